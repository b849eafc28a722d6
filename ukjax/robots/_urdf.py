"""URDF: what MuJoCo loses of it, loops that its standard has not, and motors of its transmissions.

Meshes of links that have an inertia say nothing of the motion but in contacts, so they are taken out where these are not
asked for, and need not be there. Loops are read in the forms that files and proposals have:

- A second joint that leads to a link (ros/urdf issue 13).
- `<constraint>`, with an origin and an axis on both links (ros/urdfdom pull request 264).
- `<loop>` and `<coupling>`, with a predecessor and a successor (URDF+, Chignoli et al. 2024).
- `<gazebo><joint>`, an SDF joint in a URDF.
- `<drake:ball_constraint>`, points of two links that coincide (Drake), whose `<drake:joint>`s are read, too.

Motors are those of ROS 1, of `ros2_control`, of PR2's controllers and of Drake.
"""

import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from .._misc._errors import InputError, require_known
from ._closures import CLOSING
from ._contact_selection import ContactSelection
from ._files import find_mesh, is_ascii, local_name, numbers_of
from ._graph import (
    BUSHING_LAWS,
    WORLD,
    Axis,
    Joint,
    Mimic,
    make_bushing,
    name_axes,
    place_of,
    pose_arguments,
    tie,
)
from ._reference import mujoco
from ._report import Feature, Row, features
from ._sdf import Model, joint_of
from ._visuals import Look, read_looks

# Elements that no reader of ours or MuJoCo's looks at, and that say nothing of the motion.
_OTHERS = ("gazebo", "sensor", "calibration", "safety_controller")
_KNOWN = ("link", "joint", "material", "mujoco", "transmission", "ros2_control", "frame")
_LENGTHS = {
    "box": ("size",),
    "sphere": ("radius",),
    "cylinder": ("radius", "length"),
    "capsule": ("radius", "length"),
}
_NUMBERS = _LENGTHS | {
    "mass": ("value",),
    "inertia": ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"),
    "limit": ("lower", "upper", "effort", "velocity"),
    "mimic": ("multiplier", "offset"),
    "dynamics": ("damping", "friction"),
}


class Urdf(NamedTuple):
    """A URDF as MuJoCo is to read it."""

    text: str  # the XML
    root: str  # the name of its root link
    mimics: tuple[Mimic, ...]  # joints that follow others
    features: tuple[Feature, ...]  # what MuJoCo does not read
    looks: tuple[Look, ...]  # its visual elements


def _require_sense(robot: ET.Element) -> None:
    """Raises `InputError` for names that are given twice, bodies that float in others, and what is no number; a limit may
    be infinite."""
    seen = set[tuple[str, str | None]]()
    for joint in robot.findall("joint[@type='floating']"):
        parent = joint.find("parent")
        name, base = joint.get("name"), "world" if parent is None else parent.get("link")
        if base != "world":
            raise InputError(f"joint '{name}' is floating: its parent must be called 'world', not '{base}'.")
    for part in (x for x in robot if x.tag in ("link", "joint")):
        what = f"{part.tag} '{part.get('name')}'"
        if (part.tag, part.get("name")) in seen:
            raise InputError(f"this URDF has {what} twice: each link and joint needs a name of its own.")
        seen.add((part.tag, part.get("name")))
        for x in part.iter():
            for key in _NUMBERS.get(x.tag, ()):
                numbers = numbers_of(x, key, "0 0 0" if key == "size" else "0", f"{what}: {x.tag}")
                if x.tag != "limit" and not np.isfinite(numbers).all():
                    raise InputError(f"{what}: {x.tag} {key} must be finite, got '{x.get(key)}'.")


def _take_lone_mimics(robot: ET.Element) -> Iterator[Row]:
    """Takes mimics of joints that are not there out of a URDF: MuJoCo would fix their joints."""
    known = {x.get("name") for x in robot.findall("joint")}
    for joint in robot.findall("joint"):
        mimic = joint.find("mimic")
        leader = None if mimic is None else mimic.get("joint")
        if mimic is not None and leader is not None and leader not in known:
            joint.remove(mimic)
            yield "mimic", str(joint.get("name")), "ignored", f"'{leader}' is no joint of the tree"


def _meshes(element: ET.Element) -> list[ET.Element]:
    return list(element.iter("mesh"))


def _has_size(element: ET.Element) -> bool:
    """Whether no length of a shape is 0."""
    lengths = [x.get(key) or "0" for x in element.iter() for key in _LENGTHS.get(x.tag, ())]
    return all(float(x) != 0.0 for text in lengths for x in text.split())


def _remove_meshes(links: Iterable[ET.Element], folder: Path, touching: bool) -> Iterator[tuple[str, str]]:
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


_REPORTED = {
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


_NO_PLAY = "its ends are the same, or the wrong way round, so the joint moves freely"


def _features(robot: ET.Element, lost: list[tuple[str, str]]) -> list[Feature]:
    limits = [(str(x.get("name")), x.find("limit")) for x in robot.findall("joint")]
    with_limit = lambda kind: tuple(
        name for name, x in limits if x is not None and float(x.get(kind) or 0) > 0
    )
    stuck = tuple(
        str(x.get("name"))
        for x in robot.findall("joint")
        if x.get("type") in ("revolute", "prismatic") and (limit := x.find("limit")) is not None
        if float(limit.get("lower") or 0.0) >= float(limit.get("upper") or 0.0)
    )
    listed = [
        Feature("limit without play", stuck, "ignored", _NO_PLAY),
        Feature("velocity limit", with_limit("velocity"), "ignored", "speeds have no limits"),
        Feature("effort limit", with_limit("effort"), why="of actuators, if there are any", moves=False),
    ]
    for kind, (feature, status, why, moves) in _REPORTED.items():
        names = tuple(dict.fromkeys(name for x, name in lost if x == kind))
        listed.append(Feature(feature, names, status, why, moves))  # pyright: ignore[reportArgumentType]
    unknown = dict.fromkeys(local_name(x.tag) for x in robot if x.tag not in (*_KNOWN, *_OTHERS))
    listed += [Feature(tag, (tag,), "ignored", "not read") for tag in unknown]
    for tag in _OTHERS:
        names = tuple(x.get("name") or x.get("reference") or tag for x in robot.iter(tag))
        listed.append(Feature(tag, names, "ignored", "not read", moves=False))
    return listed


def _mimics(robot: ET.Element) -> Iterator[Mimic]:
    for joint in robot.findall("joint"):
        mimic = joint.find("mimic")
        if mimic is not None:
            offset, factor = float(mimic.get("offset") or 0.0), float(mimic.get("multiplier") or 1.0)
            yield Mimic(str(joint.get("name")), str(mimic.get("joint")), offset, factor)


def _root(robot: ET.Element) -> str:
    children = {str(child.get("link")) for child in robot.findall("joint/child")}
    roots = [str(link.get("name")) for link in robot.findall("link") if link.get("name") not in children]
    if len(roots) != 1:
        raise InputError(f"a URDF must be a tree with one root link, and this one has {len(roots)}: {roots}.")
    return roots[0]


def read_urdf(robot: ET.Element, folder: Path, wanted: ContactSelection) -> Urdf:
    """A URDF as MuJoCo is to read it."""
    if any("xacro" in x.tag for x in robot.iter()):
        raise InputError("this file is to be expanded by xacro first: `xacro robot.urdf.xacro > robot.urdf`.")
    _require_sense(robot)
    lone = features(_take_lone_mimics(robot))
    ends = {str(x.get("link")) for x in robot.findall("joint/parent")}
    if "world" in ends - {x.get("name") for x in robot.findall("link")}:
        ET.SubElement(robot, "link", name="world")  # Drake's files take it for granted
    visuals = list(read_looks(robot, lambda name: find_mesh(name, folder)))
    lost = [("visual", x) for x in visuals if isinstance(x, str)]
    lost += _remove_meshes(robot.findall("link"), folder, wanted.touching)
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
    return Urdf(text, _root(robot), tuple(_mimics(robot)), (*_features(robot, lost), *lone, *off, used), seen)


def allow_flat_meshes(spec: Any) -> None:
    """Lets meshes be flat or inside out where no inertia follows from them."""
    weighed = {geom.meshname for geom in spec.geoms if not geom.parent.explicitinertial}
    for mesh in spec.meshes:
        if mesh.name not in weighed:
            mesh.inertia = mujoco().mjtMeshInertia.mjMESH_INERTIA_SHELL


def add_mimics(spec: Any, given: Urdf) -> None:
    """Adds the mimics that MuJoCo has not read, as those before 4.0 have not."""
    known = {(x.name1, x.name2) for x in spec.equalities}
    moving = {joint.name for joint in spec.joints}
    for mimic in given.mimics:
        if mimic.follower in moving and (mimic.follower, mimic.leader) not in known:
            # Who follows a joint that the file fixes stays at the offset.
            tie(spec, mimic if mimic.leader in moving else mimic._replace(leader=""))


# --- Loops


_KINDS = {"continuous": "revolute", "spherical": "ball", "floating": "free"}


def _origin(element: ET.Element | None, what: str) -> np.ndarray:
    xyz, rpy = (numbers_of(element, key, "0 0 0", what) for key in ("xyz", "rpy"))
    return place_of(xyz, Rotation.from_euler("xyz", rpy))


def _kind(element: ET.Element, what: str) -> str:
    given = element.get("type", "")
    kind = _KINDS.get(given, given)
    has_axes = kind != "universal" or element.tag == "constraint"
    if kind not in CLOSING or kind in ("screw", "gearbox") or not has_axes:
        raise InputError(
            f"{what} of type '{given}' cannot close a loop; revolute, ball, fixed and others can."
        )
    return kind


def _link_of_end(element: ET.Element, tag: str, links: Collection[str], what: str) -> str:
    """The link of a `<parent link="...">` or the like."""
    own = element.find(tag)
    name = "" if own is None else own.get("link") or (own.text or "").strip()
    require_known(f"<{tag}> link of {what}:", links, name)
    return name


def _laws(element: ET.Element, what: str, slides: bool, rows: list[Row]) -> Axis:
    """What acts along the axis of a joint that closes a loop."""
    number = lambda tag, key, default: float(numbers_of(element.find(tag), key, default, f"{what}: {tag}")[0])
    name, limits, limit = element.get("name", element.tag), (-np.inf, np.inf), element.find("limit")
    if limit is not None and element.get("type") != "continuous":
        low, high = number("limit", "lower", "0"), number("limit", "upper", "0")
        limits = (low, high) if low < high else limits
        rows += [("limit without play", name, "ignored", _NO_PLAY)] if low >= high else []
        rows += (
            [("velocity limit", name, "ignored", "speeds have no limits")]
            if number("limit", "velocity", "0") > 0
            else []
        )
    if element.find("mimic") is not None:
        rows.append(("mimic", name, "ignored", "its joint closes a loop"))
    direction = numbers_of(element.find("axis"), "xyz", "1 0 0", what)
    damping, friction = (number("dynamics", x, "0") for x in ("damping", "friction"))
    return Axis(direction, slides, limits, damping, friction=friction)


def _read_constraint(element: ET.Element, links: Mapping[str, np.ndarray], rows: list[Row]) -> Joint:
    name = element.get("name", "constraint")
    what = f"constraint '{name}'"
    kind, ends = (
        _kind(element, what),
        (_link_of_end(element, "parent", links, what), _link_of_end(element, "child", links, what)),
    )
    places = [_origin(element.find(f"{end}_origin"), what) for end in ("parent", "child")]
    first, second = (
        numbers_of(element.find(f"{end}_axis"), "xyz", "1 0 0", what) for end in ("parent", "child")
    )
    if not (first.any() and second.any()):
        raise InputError(f"{what}: an axis must not be the zero vector.")
    laws = _laws(element, what, kind == "prismatic", rows)
    axes = [laws._replace(direction=first), Axis(second)]
    if kind != "universal" and (first != second).any():  # one axis, in different axes of the two frames
        places[1] = places[1] @ place_of(turn=Rotation.align_vectors([second], [first])[0])
    return Joint(name, kind, *ends, (places[0], places[1]), tuple(axes if kind == "universal" else axes[:1]))


def _read_loop(element: ET.Element, links: Mapping[str, np.ndarray], rows: list[Row]) -> Joint:
    name = element.get("name", "loop")
    what = f"loop '{name}'"
    ends = _link_of_end(element, "predecessor", links, what), _link_of_end(element, "successor", links, what)
    kind, places = (
        _kind(element, what),
        [_origin(element.find(x), what) for x in ("predecessor_origin", "successor_origin")],
    )
    places[0] = _origin(element.find("origin"), what) @ places[0]
    return Joint(
        name, kind, *ends, (places[0], places[1]), (_laws(element, what, kind == "prismatic", rows),)
    )


def _read_joint(element: ET.Element, links: Mapping[str, np.ndarray], rows: list[Row]) -> Joint:
    name = element.get("name", "joint")
    what = f"joint '{name}'"
    ends = _link_of_end(element, "parent", links, what), _link_of_end(element, "child", links, what)
    kind, places = _kind(element, what), (_origin(element.find("origin"), what), np.eye(4))
    return Joint(name, kind, *ends, places, (_laws(element, what, kind == "prismatic", rows),))


def _read_ball(element: ET.Element, links: Mapping[str, np.ndarray], rows: list[Row]) -> Joint:
    """`<drake:ball_constraint>`."""
    own = {local_name(x.tag).removeprefix("ball_constraint_"): x for x in element}
    ends, what = (
        [str(own[x].get("name")) for x in ("body_A", "body_B") if x in own],
        "<drake:ball_constraint>",
    )
    require_known(f"body of {what}:", links, *ends)
    if len(ends) < 2:
        raise InputError(f"{what} needs <drake:ball_constraint_body_A> and <drake:ball_constraint_body_B>.")
    points = [place_of(numbers_of(own.get(x), "value", "0 0 0", what)) for x in ("p_AP", "p_BQ")]
    return Joint(f"ball {ends[0]} {ends[1]}", "ball", ends[0], ends[1], (points[0], points[1]))


def _read_bushings(robot: ET.Element, links: Mapping[str, np.ndarray]) -> Iterator[Joint]:
    """`<drake:linear_bushing_rpy>`, which are taken out of a URDF."""
    frames = {str(x.get("name")): (str(x.get("link")), _origin(x, "a frame")) for x in robot.findall("frame")}
    frames = {name: (name, np.eye(4)) for name in links} | frames
    for k, element in enumerate([x for x in robot if local_name(x.tag) == "linear_bushing_rpy"]):
        own, what = (
            {local_name(x.tag).removeprefix("bushing_"): x for x in element},
            "<drake:linear_bushing_rpy>",
        )
        names = [str(own[x].get("name")) for x in ("frameA", "frameC") if x in own]
        require_known(f"frame of {what}:", frames, *names)
        if len(names) < 2:
            raise InputError(f"{what} needs <drake:bushing_frameA> and <drake:bushing_frameC>.")
        (first, place), (second, other) = (frames[name] for name in names)
        laws = {x: numbers_of(own.get(x), "value", "0 0 0", f"{what}: {x}") for x in BUSHING_LAWS}
        robot.remove(element)
        yield make_bushing(f"bushing {k}", (first, second), (place, other), laws)


def _place_links(robot: ET.Element) -> dict[str, np.ndarray]:
    """Where the links are with all joints at zero, in the root link (4, 4); joints that lead to a link a second time
    count for nothing."""
    carrying = dict[str, ET.Element]()
    for joint in robot.findall("joint"):
        child = joint.find("child")
        if child is not None:
            carrying.setdefault(str(child.get("link")), joint)
    places = dict[str, np.ndarray]()

    def place(name: str, below: tuple[str, ...] = ()) -> np.ndarray:
        if name in below:
            raise InputError(
                f"joints of this URDF lead in a circle, from '{name}' back to it; one link must be the root."
            )
        if name not in places:
            joint = carrying.get(name)
            parent = None if joint is None else joint.find("parent")
            above = np.eye(4) if parent is None else place(str(parent.get("link")), (*below, name))
            places[name] = (
                above
                if joint is None
                else above @ _origin(joint.find("origin"), f"joint '{joint.get('name')}'")
            )
        return places[name]

    return {name: place(name) for name in (str(link.get("name")) for link in robot.findall("link"))}


def _take_gazebo_joints(
    element: ET.Element, links: Mapping[str, np.ndarray], rows: list[Row]
) -> Iterator[Joint]:
    """SDF joints in a `<gazebo>`, which are taken out of it."""
    scope = Model(ET.Element("model", name="gazebo"), "", None, Path(), (1, 12))
    for name, place in links.items():
        numbers = [*place[:3, 3], *Rotation.from_matrix(place[:3, :3]).as_quat()]
        scope.named[name] = ET.Element("link", name=name)
        pose = ET.SubElement(scope.named[name], "pose", rotation_format="quat_xyzw")
        pose.text = " ".join(map(repr, map(float, numbers)))
    for joint in element.findall("joint"):
        scope.named[str(joint.get("name"))] = joint
        element.remove(joint)
        taken = joint_of(joint, scope, rows)
        if WORLD in (taken.parent, taken.child) and WORLD not in links:
            root = next(name for name, place in links.items() if (place == np.eye(4)).all())
            taken = taken._replace(parent=root)
        yield taken


def take_loops(robot: ET.Element) -> tuple[list[Joint], list[Row]]:
    """The joints that close loops, taken out of a URDF, and what is to be said of them."""
    links, closing, rows = _place_links(robot), list[Joint](), list[Row]()
    reached = set[str]()
    for joint in robot.findall("joint"):
        child = joint.find("child")
        name = "" if child is None else str(child.get("link"))
        if name in reached:
            closing.append(_read_joint(joint, links, rows))
            robot.remove(joint)
        reached.add(name)
    closing += _read_bushings(robot, links)
    kinds = {"constraint": _read_constraint, "loop": _read_loop, "ball_constraint": _read_ball}
    for element in list(robot):
        tag = local_name(element.tag)
        if tag in kinds:
            closing.append(kinds[tag](element, links, rows))
            robot.remove(element)
        elif tag == "coupling":
            rows.append(
                ("coupling", element.get("name", tag), "ignored", "not read; a mimic says the same of joints")
            )
        elif tag == "gazebo" and element.find("joint") is not None:
            closing += _take_gazebo_joints(element, links, rows)
            if not len(element):
                robot.remove(element)
    return closing, rows


# --- Drake's joints


def name_drake_joints(robot: ET.Element) -> list[ET.Element]:
    """Makes each `<drake:joint>` a `<joint>`; returns these."""
    own = [x for x in robot if "}" in x.tag and local_name(x.tag) == "joint"]
    for joint in own:
        joint.tag = "joint"
    return own


def fix_drake_joints(robot: ET.Element, own: list[ET.Element]) -> list[Joint]:
    """The joints of Drake that close no loop, which become fixed in the file: MuJoCo does not know them."""
    joints, links = [], [str(x.get("name")) for x in robot.findall("link")]
    for element in (x for x in own if x in list(robot)):
        name, kind = str(element.get("name")), element.get("type", "")
        what = f"<drake:joint> '{name}'"
        parent, child = (_link_of_end(element, x, {*links, WORLD}, what) for x in ("parent", "child"))
        frame, axis = np.eye(4), numbers_of(element.find("axis"), "xyz", "1 0 0", what)
        if not axis.any():
            raise InputError(f"{what}: the axis must not be the zero vector.")
        dynamics, x, y, z = element.find("dynamics"), *np.eye(3)
        if kind == "planar":
            frame = place_of(turn=Rotation.align_vectors([axis], [z])[0])
            c = numbers_of(dynamics, "damping", "0 0 0", what)
            axes = (Axis(x, True, damping=c[0]), Axis(y, True, damping=c[1]), Axis(z, damping=c[2]))
        elif kind in ("ball", "universal", "screw"):
            c = float(numbers_of(dynamics, "damping", "0", what)[0])
            turn = axis / np.linalg.norm(axis)
            axes = {
                "ball": (Axis(x, damping=c),),
                "universal": (Axis(x, damping=c), Axis(y, damping=c)),
                "screw": (Axis(turn, damping=c), Axis(turn, True)),
            }[kind]
        else:
            raise InputError(f"{what} of type '{kind}' is not read; planar, ball, universal and screw are.")
        pitch = [x for x in element if local_name(x.tag) == "screw_thread_pitch"]
        ratio = float(numbers_of(pitch[0] if pitch else None, "value", "0", what)[0])
        if kind == "screw" and ratio == 0.0:
            raise InputError(f"{what} needs <drake:screw_thread_pitch>, and it must not be 0.")
        element.set("type", "fixed")
        for x in [x for x in element if x.tag not in ("parent", "child", "origin")]:
            element.remove(x)
        joints.append(name_axes(Joint(name, kind, parent, child, (frame, frame), axes, ratio)))
    return joints


def add_frames(spec: Any, robot: ET.Element) -> None:
    """The frames of Drake's files as sites."""
    for frame in robot.findall("frame"):
        name, link = frame.get("name"), frame.get("link")
        require_known(f"link of frame '{name}':", [body.name for body in spec.bodies], link)
        spec.body(link).add_site(name=name, **pose_arguments(_origin(frame, f"frame '{name}'")))


# --- Motors


def _value(elements: list[ET.Element], *tags: str) -> float | None:
    """The first number in elements of some tags: their text, or their `value`."""
    for element in elements:
        for x in element.iter():
            if local_name(x.tag) in tags:
                try:
                    return float(x.get("value") or x.text or "")
                except ValueError as error:
                    raise InputError(
                        f"<{local_name(x.tag)}> of '{elements[0].get('name')}' is no number: {error}."
                    ) from error
    return None


def _add_motor(spec: Any, name: str, joint: str, gear: float) -> None:
    motor = spec.add_actuator(name=name, target=joint, trntype=mujoco().mjtTrn.mjTRN_JOINT)
    motor.set_to_motor()
    motor.gear[0] = gear


def _interfaces(element: ET.Element, tag: str) -> str:
    """What kinds of commands other than efforts an element takes."""
    interfaces = [x.get("name") or (x.text or "").strip().rpartition("/")[2] for x in element.iter(tag)]
    return "" if not interfaces or any("effort" in x.lower() for x in interfaces) else interfaces[0]


def _row_of_motor(name: str, interface: str) -> Row:
    why = "its input is an effort" + (f"; the gains of '{interface}' are in no URDF" if interface else "")
    return "actuator of a transmission", name, "used", why


def add_motors(spec: Any, robot: ET.Element) -> Iterator[Row]:
    """Adds a motor for each simple transmission and each `ros2_control` joint; yields what is to be said of it.

    With the reduction n the joint's effort is n times the motor's, and a rotor of inertia I counts as n^2 I.
    """
    moving, driven = {joint.name: joint for joint in spec.joints}, set[str]()
    taken = {x.name for x in spec.actuators}
    for given in robot.iter("transmission"):
        name = given.get("name") or "transmission"
        kind = (
            given.get("type")
            or (given.findtext("type") or given.findtext("plugin") or "SimpleTransmission").strip()
        )
        joints, actuators = given.findall("joint"), given.findall("actuator")
        target = str(joints[0].get("name")) if joints else ""
        if "SimpleTransmission" not in kind or len(joints) != 1 or len(actuators) > 1:
            yield "transmission", name, "ignored", f"{kind} is not read, only simple ones of one joint are"
            continue
        if target not in moving:
            yield "transmission", name, "ignored", f"its joint '{target}' is not there, or does not move"
            continue
        gear = _value([*actuators, *joints, given], "mechanicalReduction", "mechanical_reduction") or 1.0
        own = actuators[0].get("name") if actuators else None
        own = own if own and own not in taken else name
        if own in taken:
            raise InputError(
                f"two transmissions of this URDF are called '{own}': each needs a name of its own."
            )
        taken.add(own)
        driven.add(target)
        _add_motor(spec, own, target, gear)
        rotor, ratio = _value(actuators, "rotor_inertia"), _value(actuators, "gear_ratio")
        if rotor:
            moving[target].armature += rotor * (ratio or 1.0) ** 2
        yield _row_of_motor(own, _interfaces(given, "hardwareInterface"))
    for control in robot.iter("ros2_control"):
        for joint in control.findall("joint"):
            name = str(joint.get("name"))
            if joint.find("command_interface") is None or name in driven:
                continue
            if name not in moving:
                yield "ros2_control", name, "ignored", "its joint is not there, or does not move"
                continue
            driven.add(name)
            _add_motor(spec, name, name, 1.0)
            yield _row_of_motor(name, _interfaces(joint, "command_interface"))
