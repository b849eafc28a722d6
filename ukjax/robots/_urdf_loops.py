"""Loops of a URDF, which its standard has not, in the forms that files and proposals have.

- A second joint that leads to a link (ros/urdf issue 13).
- `<constraint>`, with an origin and an axis on both links (ros/urdfdom pull request 264).
- `<loop>` and `<coupling>`, with a predecessor and a successor (URDF+, Chignoli et al. 2024).
- `<gazebo><joint>`, an SDF joint in a URDF.
- `<drake:ball_constraint>`, points of two links that coincide (Drake).
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from .._misc._errors import InputError, unknown_name
from ._closures import CLOSING
from ._graph import WORLD, Axis, Joint, place_of
from ._rows import Row
from ._sdf import Model, joint_of, numbers_in
from ._xml import local

_KINDS = {"continuous": "revolute", "spherical": "ball", "floating": "free"}


def _numbers(element: ET.Element | None, key: str, default: str, what: str) -> np.ndarray:
    return numbers_in((None if element is None else element.get(key)) or default, 3, f"{what}: {key}")


def _origin(element: ET.Element | None, what: str) -> np.ndarray:
    xyz, rpy = (_numbers(element, key, "0 0 0", what) for key in ("xyz", "rpy"))
    return place_of(xyz, Rotation.from_euler("xyz", rpy))


def _kind(element: ET.Element, what: str) -> str:
    given = element.get("type", "")
    kind = _KINDS.get(given, given)
    if kind not in CLOSING or kind in ("screw", "gearbox"):
        raise InputError(
            f"{what} of type '{given}' cannot close a loop; revolute, ball, fixed and others can."
        )
    return kind


def _end(element: ET.Element, tag: str, links: Mapping[str, np.ndarray], what: str) -> str:
    """The link of a `<parent link="...">` or the like."""
    own = element.find(tag)
    name = "" if own is None else own.get("link") or (own.text or "").strip()
    if name not in links:
        raise unknown_name(f"<{tag}> link of {what}:", name, links)
    return name


def _constraint(element: ET.Element, links: Mapping[str, np.ndarray]) -> Joint:
    name = element.get("name", "constraint")
    what = f"constraint '{name}'"
    kind, ends = (
        _kind(element, what),
        (_end(element, "parent", links, what), _end(element, "child", links, what)),
    )
    places = [_origin(element.find(f"{end}_origin"), what) for end in ("parent", "child")]
    first, second = (
        _numbers(element.find(f"{end}_axis"), "xyz", "1 0 0", what) for end in ("parent", "child")
    )
    if not (first.any() and second.any()):
        raise InputError(f"{what}: an axis must not be the zero vector.")
    axes = [Axis(first), Axis(second)]
    if kind != "universal" and (first != second).any():  # one axis, in different axes of the two frames
        places[1] = places[1] @ place_of(turn=Rotation.align_vectors([second], [first])[0])
    return Joint(name, kind, *ends, (places[0], places[1]), tuple(axes if kind == "universal" else axes[:1]))


def _loop(element: ET.Element, links: Mapping[str, np.ndarray]) -> Joint:
    name = element.get("name", "loop")
    what = f"loop '{name}'"
    ends = _end(element, "predecessor", links, what), _end(element, "successor", links, what)
    axis = Axis(_numbers(element.find("axis"), "xyz", "1 0 0", what))
    places = [_origin(element.find(x), what) for x in ("predecessor_origin", "successor_origin")]
    places[0] = _origin(element.find("origin"), what) @ places[0]
    return Joint(name, _kind(element, what), *ends, (places[0], places[1]), (axis,))


def _joint(element: ET.Element, links: Mapping[str, np.ndarray]) -> Joint:
    name = element.get("name", "joint")
    what = f"joint '{name}'"
    axis = Axis(_numbers(element.find("axis"), "xyz", "1 0 0", what))
    ends = _end(element, "parent", links, what), _end(element, "child", links, what)
    return Joint(
        name, _kind(element, what), *ends, (_origin(element.find("origin"), what), np.eye(4)), (axis,)
    )


def _ball(element: ET.Element, links: Mapping[str, np.ndarray]) -> Joint:
    """`<drake:ball_constraint>`."""
    own = {local(x.tag).removeprefix("ball_constraint_"): x for x in element}
    ends, what = (
        [str(own[x].get("name")) for x in ("body_A", "body_B") if x in own],
        "<drake:ball_constraint>",
    )
    for name in ends:
        if name not in links:
            raise unknown_name(f"body of {what}:", name, links)
    if len(ends) < 2:
        raise InputError(f"{what} needs <drake:ball_constraint_body_A> and <drake:ball_constraint_body_B>.")
    points = [place_of(_numbers(own.get(x), "value", "0 0 0", what)) for x in ("p_AP", "p_BQ")]
    return Joint(f"ball {ends[0]} {ends[1]}", "ball", ends[0], ends[1], (points[0], points[1]))


def _place_links(robot: ET.Element) -> dict[str, np.ndarray]:
    """Where the links are with all joints at zero, in the root link (4, 4); joints that lead to a link a second time
    count for nothing."""
    carrying = dict[str, ET.Element]()
    for joint in robot.findall("joint"):
        child = joint.find("child")
        if child is not None:
            carrying.setdefault(str(child.get("link")), joint)
    found = dict[str, np.ndarray]()

    def place(name: str, below: tuple[str, ...] = ()) -> np.ndarray:
        if name in below:
            raise InputError(
                f"joints of this URDF lead in a circle, from '{name}' back to it; one link must be the root."
            )
        if name not in found:
            joint = carrying.get(name)
            parent = None if joint is None else joint.find("parent")
            above = np.eye(4) if parent is None else place(str(parent.get("link")), (*below, name))
            found[name] = (
                above
                if joint is None
                else above @ _origin(joint.find("origin"), f"joint '{joint.get('name')}'")
            )
        return found[name]

    return {name: place(name) for name in (str(link.get("name")) for link in robot.findall("link"))}


def _gazebo(element: ET.Element, links: Mapping[str, np.ndarray], rows: list[Row]) -> Iterator[Joint]:
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
        found = joint_of(joint, scope, rows)
        if WORLD in (found.parent, found.child) and WORLD not in links:
            root = next(name for name, place in links.items() if (place == np.eye(4)).all())
            found = found._replace(parent=root)
        yield found


def take_loops(robot: ET.Element) -> tuple[list[Joint], list[Row]]:
    """The joints that close loops, taken out of a URDF, and what is to be said of them."""
    links, found, rows = _place_links(robot), list[Joint](), list[Row]()
    reached = set[str]()
    for joint in robot.findall("joint"):
        child = joint.find("child")
        name = "" if child is None else str(child.get("link"))
        if name in reached:
            found.append(_joint(joint, links))
            robot.remove(joint)
        reached.add(name)
    kinds = {"constraint": _constraint, "loop": _loop, "ball_constraint": _ball}
    for element in list(robot):
        tag = local(element.tag)
        if tag in kinds:
            found.append(kinds[tag](element, links))
            robot.remove(element)
        elif tag == "coupling":
            rows.append(
                ("coupling", element.get("name", tag), "ignored", "not read; a mimic says the same of joints")
            )
        elif tag == "gazebo" and element.find("joint") is not None:
            found += _gazebo(element, links, rows)
            if not len(element):
                robot.remove(element)
    return found, rows
