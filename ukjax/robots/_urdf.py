"""What MuJoCo's reader of URDF loses, read here: limits, mimics, paths of meshes, links without an inertia.

Meshes of links that have an inertia say nothing of the motion but in contacts, so they are taken out where these are not
asked for, and need not be there.
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .._misc._errors import InputError
from ._contact_selection import ContactSelection
from ._mujoco import mujoco
from ._report import Feature
from ._rows import features
from ._urdf_looks import Look, looks
from ._xml import local

# Elements that no reader of ours or MuJoCo's looks at, and that say nothing of the motion.
_OTHERS = ("gazebo", "sensor", "calibration", "safety_controller")
_KNOWN = ("link", "joint", "material", "mujoco", "transmission", "ros2_control")
_LENGTHS = {
    "box": ("size",),
    "sphere": ("radius",),
    "cylinder": ("radius", "length"),
    "capsule": ("radius", "length"),
}
_READABLE = (".stl", ".obj", ".msh")  # what MuJoCo reads of meshes


class Urdf(NamedTuple):
    """A URDF as MuJoCo is to read it."""

    text: str  # the XML
    root: str  # the name of its root link
    # `mimics`: of joints that follow others: the names of both, offset and multiplier.
    mimics: tuple[tuple[str, str, float, float], ...]
    features: tuple[Feature, ...]  # what MuJoCo does not read
    looks: tuple[Look, ...]  # its visual elements


def _meshes(element: ET.Element) -> list[ET.Element]:
    return list(element.iter("mesh"))


def find_mesh(name: str, folder: Path) -> Path | None:
    """The file that a mesh's name means, if it is of a kind that is read."""
    return find_file(name, folder) if Path(name).suffix.lower() in _READABLE else None


def find_file(name: str, folder: Path) -> Path | None:
    """The file that a name means: `package://` packages are looked for in the folders above."""
    scheme, _, rest = name.rpartition("://")
    places = [folder / rest]
    if scheme == "package" or scheme == "model":
        package, _, inside = rest.partition("/")
        above = [folder, *folder.parents]
        places = [
            x for up in above for x in (up / package / inside, *([up / inside] if up.name == package else []))
        ]
    return next((x for x in places if x.is_file()), None)


def is_ascii(file: Path) -> bool:
    """Whether a file is an STL of text, which MuJoCo does not read: its size is not that of its number of faces."""
    start = file.read_bytes()[:84]
    return file.suffix.lower() == ".stl" and file.stat().st_size != 84 + 50 * int.from_bytes(
        start[80:], "little"
    )


def _has_size(element: ET.Element) -> bool:
    """Whether no length of a shape is 0."""
    lengths = [x.get(key) or "0" for x in element.iter() for key in _LENGTHS.get(x.tag, ())]
    return all(float(x) != 0.0 for text in lengths for x in text.split())


def _without_meshes(links: Iterable[ET.Element], folder: Path, touching: bool) -> Iterator[tuple[str, str]]:
    """Takes meshes out of links, but for those an inertia follows from or that touch; yields what was lost, and of which
    link."""
    for link in links:
        name, weighed = str(link.get("name")), link.find("inertial") is not None
        for kind in ("visual", "collision"):
            for element in link.findall(kind):
                meshes = _meshes(element)
                if kind == "visual":
                    link.remove(element)
                elif not _has_size(element):
                    link.remove(element)
                    yield "sizeless", name
                elif meshes and weighed and not touching:
                    link.remove(element)
                    yield "unasked", name
                elif meshes:
                    file = find_mesh(str(meshes[0].get("filename")), folder)
                    if file is None or is_ascii(file):
                        link.remove(element)
                        yield ("collision" if weighed else "missing"), name
                    else:
                        meshes[0].set("filename", str(file))
        if not weighed and link.find("collision") is not None:
            yield "weighed", name


_TOLD = {
    "visual": ("visual geometry", "ignored", "its mesh is not there, or of a kind that is not read", False),
    "collision": (
        "collision mesh",
        "ignored",
        "its mesh is not there, or of a kind that is not read",
        True,
    ),
    "sizeless": ("shape without size", "ignored", "one of its lengths is 0", False),
    "missing": (
        "link without mass",
        "approximated",
        "no inertial, and its collision mesh is not there",
        True,
    ),
    "weighed": (
        "mass from geometry",
        "approximated",
        "no inertial, so MuJoCo takes 1000 kg/m^3 of the collision geometry; URDF means no mass",
        True,
    ),
}


def _features(robot: ET.Element, lost: list[tuple[str, str]]) -> list[Feature]:
    limits = [(str(x.get("name")), x.find("limit")) for x in robot.findall("joint")]
    with_limit = lambda kind: tuple(
        name for name, x in limits if x is not None and float(x.get(kind) or 0) > 0
    )
    stuck = tuple(
        str(x.get("name"))
        for x in robot.findall("joint")
        if x.get("type") in ("revolute", "prismatic") and (limit := x.find("limit")) is not None
        if float(limit.get("lower") or 0.0) == float(limit.get("upper") or 0.0)
    )
    found = [
        Feature("limit without play", stuck, "ignored", "its ends are the same, so the joint moves freely"),
        Feature("velocity limit", with_limit("velocity"), "ignored", "speeds have no limits"),
        Feature("effort limit", with_limit("effort"), why="of actuators, if there are any", moves=False),
    ]
    for kind, (feature, status, why, moves) in _TOLD.items():
        names = tuple(dict.fromkeys(name for x, name in lost if x == kind))
        found.append(Feature(feature, names, status, why, moves))  # pyright: ignore[reportArgumentType]
    unknown = dict.fromkeys(local(x.tag) for x in robot if x.tag not in (*_KNOWN, *_OTHERS))
    found += [Feature(tag, (tag,), "ignored", "not read") for tag in unknown]
    for tag in _OTHERS:
        names = tuple(x.get("name") or x.get("reference") or tag for x in robot.iter(tag))
        found.append(Feature(tag, names, "ignored", "not read", moves=False))
    return found


def _mimics(robot: ET.Element) -> Iterator[tuple[str, str, float, float]]:
    for joint in robot.findall("joint"):
        mimic = joint.find("mimic")
        if mimic is not None:
            offset, factor = float(mimic.get("offset") or 0.0), float(mimic.get("multiplier") or 1.0)
            yield str(joint.get("name")), str(mimic.get("joint")), offset, factor


def _root(robot: ET.Element) -> str:
    children = {str(child.get("link")) for child in robot.findall("joint/child")}
    roots = [str(link.get("name")) for link in robot.findall("link") if link.get("name") not in children]
    if len(roots) != 1:
        raise InputError(f"a URDF must be a tree with one root link, and this one has {len(roots)}: {roots}.")
    return roots[0]


def urdf(robot: ET.Element, folder: Path, wanted: ContactSelection) -> Urdf:
    """A URDF as MuJoCo is to read it."""
    if any("xacro" in x.tag for x in robot.iter()):
        raise InputError("this file is to be expanded by xacro first: `xacro robot.urdf.xacro > robot.urdf`.")
    ends = {str(x.get("link")) for x in robot.findall("joint/parent")}
    if "world" in ends - {x.get("name") for x in robot.findall("link")}:
        ET.SubElement(robot, "link", name="world")  # Drake's files take it for granted
    visuals = list(looks(robot, lambda name: find_mesh(name, folder)))
    lost = [("visual", x) for x in visuals if isinstance(x, str)]
    lost += _without_meshes(robot.findall("link"), folder, wanted.touching)
    extension = robot.find("mujoco")
    extension = ET.SubElement(robot, "mujoco") if extension is None else extension
    compiler = extension.find("compiler")
    compiler = ET.SubElement(extension, "compiler") if compiler is None else compiler
    compiler.set("strippath", "false")  # the paths are whole
    compiler.attrib.pop("meshdir", None)
    compiler.set("fusestatic", "false")  # links keep their names
    text = ET.tostring(robot, encoding="unicode")
    seen = tuple(x for x in visuals if isinstance(x, Look))
    used = Feature(
        "visual geometry", tuple(dict.fromkeys(x.link for x in seen)), why="in pictures", moves=False
    )
    unasked = dict.fromkeys(name for x, name in lost if x == "unasked")
    off = features(wanted.left_out("collision mesh", unasked, "self"))
    return Urdf(text, _root(robot), tuple(_mimics(robot)), (*_features(robot, lost), *off, used), seen)


def without_volumes(spec: Any) -> None:
    """Lets meshes be flat or inside out where no inertia follows from them."""
    weighed = {geom.meshname for geom in spec.geoms if not geom.parent.explicitinertial}
    for mesh in spec.meshes:
        if mesh.name not in weighed:
            mesh.inertia = mujoco().mjtMeshInertia.mjMESH_INERTIA_SHELL


def with_mimics(spec: Any, given: Urdf) -> None:
    """Adds the mimics that MuJoCo has not read, as those before 4.0 have not."""
    known = {(x.name1, x.name2) for x in spec.equalities}
    moving = {joint.name for joint in spec.joints}
    for follower, leader, offset, factor in given.mimics:
        if follower not in moving or (follower, leader) in known:
            continue  # one that the file fixes cannot follow
        followed = (
            {"name2": leader} if leader in moving else {}
        )  # who follows a fixed joint stays at the offset
        added = spec.add_equality(name1=follower, objtype=mujoco().mjtObj.mjOBJ_JOINT, **followed)
        added.type = mujoco().mjtEq.mjEQ_JOINT
        added.data[:2] = offset, factor
