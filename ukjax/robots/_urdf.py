"""URDF, with loops that its standard has not, and motors of its transmissions.

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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from .._misc._errors import InputError, require_known, unknown_name
from ._closures import CLOSING
from ._contact_selection import ContactSelection
from ._files import find_mesh, is_ascii, local_name, numbers_of
from ._graph import (
    BUSHING_LAWS,
    WORLD,
    Axis,
    Description,
    Joint,
    Link,
    Mimic,
    Shape,
    finite_limits,
    make_bushing,
    place_of,
    pose_arguments,
    specify,
)
from ._reference import mujoco
from ._report import Row, features
from ._sdf import Model, joint_of
from ._visuals import Look, mesh_shape, read_colour, visual_shape

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


def _require_sense(robot: ET.Element) -> None:
    """Raises `InputError` for names that are given twice, bodies that float in others, and what is no number; a limit may
    be infinite."""
    seen = set[tuple[str, str | None]]()
    for joint in robot.findall("joint[@type='floating']"):
        parent = joint.find("parent")
        name, base = joint.get("name"), "world" if parent is None else parent.get("link")
        if base != "world":
            raise InputError(f"joint '{name}' is floating: its parent must be called 'world', not '{base}'.")
    for part in (x for x in robot if local_name(x.tag) in ("link", "joint")):
        named = local_name(part.tag), part.get("name")
        what = f"{named[0]} '{named[1]}'"
        if named in seen:
            raise InputError(f"this URDF has {what} twice: each link and joint needs a name of its own.")
        seen.add(named)
        for x in part.iter() if part.tag == named[0] else ():  # Drake's joints have other numbers
            for key in _NUMBERS.get(x.tag, ()):
                numbers = numbers_of(x, key, "0 0 0" if key == "size" else "0", f"{what}: {x.tag}")
                if x.tag != "limit" and not np.isfinite(numbers).all():
                    raise InputError(f"{what}: {x.tag} {key} must be finite, got '{x.get(key)}'.")


def _origin(element: ET.Element | None, what: str) -> np.ndarray:
    xyz, rpy = (numbers_of(element, key, "0 0 0", what) for key in ("xyz", "rpy"))
    return place_of(xyz, Rotation.from_euler("xyz", rpy) if rpy.any() else None)


# --- Links

_UNREAD = "its mesh is not there, or of a kind that is not read"
_WEIGHED = "no inertial, so 1000 kg/m^3 of the collision geometry are taken, as by MuJoCo; URDF means no mass"


def _geometry(element: ET.Element, what: str) -> tuple[str, np.ndarray, ET.Element | None]:
    """Kind and MuJoCo's size of the shape of a `<visual>` or a `<collision>`, and the shape's element."""
    own = element.find("geometry/*")
    kind = "" if own is None else own.tag
    of = lambda key: numbers_of(own, key, "0 0 0" if key == "size" else "0", what)
    lengths = np.concatenate([np.zeros(0), *map(of, _LENGTHS.get(kind, ()))])
    return kind, lengths * {"box": 0.5, "cylinder": [1, 0.5], "capsule": [1, 0.5]}.get(kind, 1.0), own


def _mesh_of(own: ET.Element, what: str, folder: Path) -> tuple[Path | None, np.ndarray]:
    return find_mesh(str(own.get("filename")), folder), numbers_of(own, "scale", "1 1 1", what)


def _shapes(link: ET.Element, folder: Path, wanted: ContactSelection, rows: list[Row]) -> Iterator[Shape]:
    """What touches; meshes where that is asked for, or an inertia follows from them."""
    name, weighed = str(link.get("name")), link.find("inertial") is None
    what = f"a collision of link '{name}'"
    for collision in link.findall("collision"):
        kind, size, own = _geometry(collision, what)
        file, scale = None, np.ones(3)
        if own is None or kind not in (*_LENGTHS, "mesh"):
            rows.append((f"collision of a {kind or 'shape'}", name, "ignored", "such a shape is not read"))
            continue
        if not size.all():
            rows.append(("shape without size", name, "off", "one of its lengths is 0"))
            continue
        if kind == "mesh":
            if not (weighed or wanted.touching):
                rows += wanted.left_out("collision mesh", [name], "self")
                continue
            file, scale = _mesh_of(own, what, folder)
            if file is None or is_ascii(file):
                why = "no inertial, and its collision mesh is not there"
                lost = ("link without mass", name, "approximated", why)
                rows.append(lost if weighed else ("collision mesh", name, "ignored", _UNREAD))
                continue
        place = _origin(collision.find("origin"), what)
        yield Shape(collision.get("name", ""), kind, size, place, file, scale)


def _link(
    element: ET.Element, place: np.ndarray, folder: Path, wanted: ContactSelection, rows: list[Row]
) -> Link:
    name, inertial = str(element.get("name")), element.find("inertial")
    what, shapes = f"link '{name}'", tuple(_shapes(element, folder, wanted, rows))
    if inertial is None:
        rows += [("mass from geometry", name, "approximated", _WEIGHED)] if shapes else []
        return Link(name, place, None, np.eye(4), np.zeros((3, 3)), shapes)
    number = lambda tag, key: float(numbers_of(inertial.find(tag), key, "0", what)[0])
    xx, yy, zz, xy, xz, yz = (number("inertia", f"i{x}") for x in ("xx", "yy", "zz", "xy", "xz", "yz"))
    inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return Link(name, place, number("mass", "value"), _origin(inertial.find("origin"), what), inertia, shapes)


def _looks(robot: ET.Element, folder: Path, rows: list[Row]) -> Iterator[Look]:
    """The visual elements."""
    materials = ((str(x.get("name")), x.find("color")) for x in robot.iter("material"))
    named = {name: colour for name, colour in materials if colour is not None}
    for link in robot.findall("link"):
        name = str(link.get("name"))
        what = f"a visual of link '{name}'"
        for visual in link.findall("visual"):
            kind, size, own = _geometry(visual, what)
            shape = visual_shape(kind, size) if kind in _LENGTHS else None
            if own is not None and kind == "mesh":
                file, scale = _mesh_of(own, what, folder)
                shape = None if file is None else mesh_shape(file, scale)
            if shape is None:
                rows.append(("visual geometry", name, "off", _UNREAD))
                continue
            material, colour = visual.find("material"), None
            if material is not None and (colour := material.find("color")) is None:
                colour = named.get(str(material.get("name")))
            rgba = None if colour is None else read_colour(colour.get("rgba") or "0.5 0.5 0.5 1", what)
            place = _origin(visual.find("origin"), what)
            rows.append(("visual geometry", name, "still", "in pictures"))
            yield Look(name, shape, place[:3, 3], place[:3, :3], rgba)


# --- Joints

_KINDS = {"continuous": "revolute", "spherical": "ball", "floating": "free"}
_TREE = ("revolute", "prismatic", "fixed", "planar", "ball", "free")  # the kinds of joints of its tree
_NO_PLAY = "its ends are the same, or the wrong way round, so the joint moves freely"


def _axis(element: ET.Element, what: str, kind: str, rows: list[Row]) -> Axis:
    """The axis of a joint, and what acts along it."""
    name, given = element.get("name", element.tag), element.get("type", "")
    limit, dynamics = element.find("limit"), element.find("dynamics")
    number = lambda of, key: float(numbers_of(of, key, "0", what)[0])
    low, high, effort = (number(limit, x) for x in ("lower", "upper", "effort"))
    if limit is not None and given in ("revolute", "prismatic") and low >= high:
        rows.append(("limit without play", name, "ignored", _NO_PLAY))
    if number(limit, "velocity") > 0:
        rows.append(("velocity limit", name, "ignored", "speeds have no limits"))
    if effort > 0:
        rows.append(("effort limit", name, "still", "of actuators, if there are any"))
    return Axis(
        numbers_of(element.find("axis"), "xyz", "1 0 0", what),
        kind == "prismatic",
        finite_limits(low, high) if low < high and given != "continuous" else (-np.inf, np.inf),
        number(dynamics, "damping"),
        friction=number(dynamics, "friction"),
        effort=effort if effort > 0 else np.inf,
    )


def _joint(element: ET.Element, links: Mapping[str, np.ndarray], loop: bool, rows: list[Row]) -> Joint:
    """A `<joint>`, of the tree or one that closes a loop."""
    name, given = str(element.get("name", "joint")), element.get("type", "")
    what = f"joint '{name}'"
    kind = _closing_kind(element, what) if loop else _KINDS.get(given, given)
    if not loop and kind not in _TREE:
        raise unknown_name(f"type of {what}:", given, [*_KINDS, *_TREE])
    ends = _link_of_end(element, "parent", links, what), _link_of_end(element, "child", links, what)
    axis = _axis(element, what, kind, rows)
    axes = () if kind in ("fixed", "free") and not loop else (axis,)
    if kind == "planar":
        x, y, z = np.eye(3)
        each = (("TX", x, True), ("TY", y, True), ("RZ", z, False))
        axes = tuple(axis._replace(direction=d, slides=s, name=f"{name}_{word}") for word, d, s in each)
    places = _origin(element.find("origin"), what), np.eye(4)
    return Joint(name, kind, *ends, places, axes, loop=loop)


def _name_drake_joints(robot: ET.Element) -> list[ET.Element]:
    """Makes each `<drake:joint>` a `<joint>`; returns these."""
    own = [x for x in robot if "}" in x.tag and local_name(x.tag) == "joint"]
    for joint in own:
        joint.tag = "joint"
    return own


def _drake_joint(element: ET.Element, links: Mapping[str, np.ndarray]) -> Joint:
    """A `<drake:joint>` of the tree."""
    name, kind = str(element.get("name")), element.get("type", "")
    what = f"<drake:joint> '{name}'"
    ends = _link_of_end(element, "parent", links, what), _link_of_end(element, "child", links, what)
    frame, axis = np.eye(4), numbers_of(element.find("axis"), "xyz", "1 0 0", what)
    damping = numbers_of(element.find("dynamics"), "damping", "0 0 0" if kind == "planar" else "0", what)
    if not (axis.any() and np.isfinite([*axis, *damping]).all()):
        raise InputError(f"{what}: axis and damping must be finite, and the axis not the zero vector.")
    x, y, z = np.eye(3)
    if kind == "planar":
        frame = place_of(turn=Rotation.align_vectors([axis], [z])[0])
        c = damping
        axes = (Axis(x, True, damping=c[0]), Axis(y, True, damping=c[1]), Axis(z, damping=c[2]))
    elif kind in ("ball", "universal", "screw"):
        c = float(damping[0])
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
    places = _origin(element.find("origin"), what) @ frame, frame
    return Joint(name, kind, *ends, places, axes, ratio)


def _mimics(robot: ET.Element) -> Iterator[Mimic]:
    """Who follows a joint that the file fixes stays at the offset."""
    kinds = {str(x.get("name")): x.get("type") for x in robot.findall("joint")}
    for joint in robot.findall("joint"):
        mimic, name = joint.find("mimic"), str(joint.get("name"))
        if mimic is not None and kinds[name] != "fixed":
            offset, factor = (float(mimic.get(x) or y) for x, y in (("offset", 0.0), ("multiplier", 1.0)))
            leader = str(mimic.get("joint"))
            if leader == name:
                raise InputError(f"joint '{name}' of this URDF mimics itself: it must follow another joint.")
            yield Mimic(name, "" if kinds.get(leader) == "fixed" else leader, offset, factor)


def _root(robot: ET.Element) -> str:
    children = {str(child.get("link")) for child in robot.findall("joint/child")}
    roots = [str(link.get("name")) for link in robot.findall("link") if link.get("name") not in children]
    if len(roots) != 1:
        raise InputError(f"a URDF must be a tree with one root link, and this one has {len(roots)}: {roots}.")
    return roots[0]


def _settings(robot: ET.Element) -> Any:
    """A specification with what the `<mujoco>` of a URDF says of compiling and simulating."""
    own, given = ET.Element("mujoco"), robot.find("mujoco")
    own.extend(x for x in (() if given is None else given) if x.tag in ("compiler", "option", "size"))
    for compiler in own.findall("compiler"):
        compiler.attrib.pop("meshdir", None)  # the paths are whole
    try:
        spec = mujoco().MjSpec.from_string(ET.tostring(own, encoding="unicode"))
    except ValueError as error:
        raise InputError(f"<mujoco> of this URDF: {error}") from error
    spec.compiler.fusestatic = False  # links keep their names
    return spec


_READ = {
    "link": "name inertial visual collision",
    "inertial": "origin mass inertia",
    "mass": "value",
    "inertia": "ixx ixy ixz iyy iyz izz",
    "joint": "name type parent child origin axis dynamics limit mimic screw_thread_pitch",
    "constraint": "name type parent child parent_origin child_origin parent_axis child_axis limit dynamics",
    "loop": "name type predecessor successor origin predecessor_origin successor_origin axis limit dynamics",
    "ball_constraint": "ball_constraint_body_A ball_constraint_body_B ball_constraint_p_AP ball_constraint_p_BQ",
    **dict.fromkeys(("parent", "child"), "link"),
    **dict.fromkeys(("predecessor", "successor"), "link origin"),
    **dict.fromkeys(("origin", "parent_origin", "child_origin"), "xyz rpy"),
    **dict.fromkeys(("predecessor_origin", "successor_origin"), "xyz rpy"),
    **dict.fromkeys(("axis", "parent_axis", "child_axis"), "xyz"),
    "dynamics": "damping friction",
    "limit": "lower upper effort velocity",
    "mimic": "joint multiplier offset",
}
"""Attributes and elements that are read of an element."""


def _list_unread_parts(element: ET.Element, name: str) -> Iterator[Row]:
    """Attributes and elements of links, joints and what closes loops that no reader looks at."""
    kind = local_name(element.tag)
    for part in map(local_name, (*element.attrib, *(x.tag for x in element))):
        if part not in (*_READ[kind].split(), *_OTHERS):
            yield f"{part} of <{kind}>", name, "ignored", "not read"
    for x in element:
        if local_name(x.tag) in _READ:
            yield from _list_unread_parts(x, name)


def _list_unread(robot: ET.Element) -> Iterator[Row]:
    for x in robot:
        if x.tag in ("link", "joint"):
            yield from _list_unread_parts(x, str(x.get("name")))
    for tag in dict.fromkeys(local_name(x.tag) for x in robot if x.tag not in (*_KNOWN, *_OTHERS)):
        yield tag, tag, "ignored", "not read"
    for x in (x for tag in _OTHERS for x in robot.iter(tag)):
        yield x.tag, x.get("name") or x.get("reference") or x.tag, "off", "not read"


def read_urdf(robot: ET.Element, folder: Path, wanted: ContactSelection) -> Description:
    """A URDF file."""
    if any("xacro" in x.tag for x in robot.iter()):
        raise InputError("this file is to be expanded by xacro first: `xacro robot.urdf.xacro > robot.urdf`.")
    _require_sense(robot)
    of_drake = _name_drake_joints(robot)
    ends = {str(x.get("link")) for x in robot.findall("joint/parent")}
    if WORLD in ends - {x.get("name") for x in robot.findall("link")}:
        ET.SubElement(robot, "link", name=WORLD)  # Drake's files take it for granted
    root, places = _root(robot), _place_links(robot)
    closing, rows = _take_loops(robot, places)
    links = [_link(x, places[str(x.get("name"))], folder, wanted, rows) for x in robot.findall("link")]
    joints, reached = list[Joint](), set[str]()
    for element in robot.findall("joint"):
        child = _link_of_end(element, "child", places, f"joint '{element.get('name')}'")
        own = element in of_drake and child not in reached
        joints.append(
            _drake_joint(element, places) if own else _joint(element, places, child in reached, rows)
        )
        reached.add(child)
    fixed = () if root == WORLD else (root,)
    name, mimics = robot.get("name", ""), _mimics(robot)
    spec, closures, of_graph = specify(name, links, [*joints, *closing], mimics, fixed, _settings(robot))
    _add_frames(spec, robot)
    looks = tuple(_looks(robot, folder, rows))
    rows += [*of_graph, *_list_unread(robot), *add_motors(spec, robot)]
    return Description(spec, features(dict.fromkeys(rows)), looks, tuple(closures), "".join(fixed))


# --- Loops


def _closing_kind(element: ET.Element, what: str) -> str:
    given = element.get("type", "")
    kind = _KINDS.get(given, given)
    has_axes = kind != "universal" or element.tag == "constraint"
    if kind not in CLOSING or kind in ("screw", "gearbox") or not has_axes:
        raise InputError(
            f"{what} of type '{given}' cannot close a loop; revolute, ball, fixed and others can."
        )
    return kind


def _link_of_end(element: ET.Element, tag: str, links: Mapping[str, np.ndarray], what: str) -> str:
    """The link of a `<parent link="...">` or the like."""
    own = element.find(tag)
    name = "" if own is None else own.get("link") or (own.text or "").strip()
    require_known(f"<{tag}> link of {what}:", links, name)
    return name


def _read_constraint(element: ET.Element, links: Mapping[str, np.ndarray], rows: list[Row]) -> Joint:
    name = element.get("name", "constraint")
    what = f"constraint '{name}'"
    kind, ends = (
        _closing_kind(element, what),
        (_link_of_end(element, "parent", links, what), _link_of_end(element, "child", links, what)),
    )
    places = [_origin(element.find(f"{end}_origin"), what) for end in ("parent", "child")]
    first, second = (
        numbers_of(element.find(f"{end}_axis"), "xyz", "1 0 0", what) for end in ("parent", "child")
    )
    if not (first.any() and second.any()):
        raise InputError(f"{what}: an axis must not be the zero vector.")
    axes = [_axis(element, what, kind, rows)._replace(direction=first), Axis(second)]
    if kind != "universal" and (first != second).any():  # one axis, in different axes of the two frames
        places[1] = places[1] @ place_of(turn=Rotation.align_vectors([second], [first])[0])
    own = tuple(axes if kind == "universal" else axes[:1])
    return Joint(name, kind, *ends, (places[0], places[1]), own, loop=True)


def _read_loop(element: ET.Element, links: Mapping[str, np.ndarray], rows: list[Row]) -> Joint:
    name = element.get("name", "loop")
    what = f"loop '{name}'"
    ends = _link_of_end(element, "predecessor", links, what), _link_of_end(element, "successor", links, what)
    places = [
        _origin(element.find(f"{x}_origin"), what) @ _origin(element.find(f"{x}/origin"), what)
        for x in ("predecessor", "successor")
    ]
    places[0] = _origin(element.find("origin"), what) @ places[0]
    kind = _closing_kind(element, what)
    own = (_axis(element, what, kind, rows),)
    return Joint(name, kind, *ends, (places[0], places[1]), own, loop=True)


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
    return Joint(f"ball {ends[0]} {ends[1]}", "ball", ends[0], ends[1], (points[0], points[1]), loop=True)


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
        yield taken._replace(loop=True)


def _take_loops(robot: ET.Element, links: Mapping[str, np.ndarray]) -> tuple[list[Joint], list[Row]]:
    """What closes loops besides joints, taken out of a URDF, and what is to be said of it."""
    closing, rows = list(_read_bushings(robot, links)), list[Row]()
    kinds = {"constraint": _read_constraint, "loop": _read_loop, "ball_constraint": _read_ball}
    for element in list(robot):
        tag = local_name(element.tag)
        if tag in kinds:
            closing.append(kinds[tag](element, links, rows))
            rows += _list_unread_parts(element, element.get("name", tag))
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


def _add_frames(spec: Any, robot: ET.Element) -> None:
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
