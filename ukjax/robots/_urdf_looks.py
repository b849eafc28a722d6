"""What the links of a URDF look like: its visual elements, which MuJoCo leaves out, as shapes for pictures.

Meshes are read by MuJoCo one by one, so that one it cannot read, or that is not there, is told of and costs no other.
"""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..mechanisms import Visual
from ._mujoco import mujoco
from ._reference import Reference, remove_rounding


class Look(NamedTuple):
    """A visual element."""

    link: str  # whose it is
    shape: dict[str, Any]  # the arguments of a `Visual` that say what it is
    # `position`, `rotation`: in the link's frame [m] (3,), (3, 3).
    position: np.ndarray
    rotation: np.ndarray
    colour: np.ndarray | None  # red, green, blue and opacity; None where the file has none


def _numbers(element: ET.Element | None, key: str, default: str) -> np.ndarray:
    return np.array([float(x) for x in ((None if element is None else element.get(key)) or default).split()])


def _make_rpy_rotation(rpy: np.ndarray) -> np.ndarray:
    """The rotation by roll, pitch and yaw about fixed axes."""
    (a, b, c), (d, e, f) = np.cos(rpy), np.sin(rpy)
    x = np.array([[1, 0, 0], [0, a, -d], [0, d, a]])
    y = np.array([[b, 0, e], [0, 1, 0], [-e, 0, b]])
    z = np.array([[c, -f, 0], [f, c, 0], [0, 0, 1]])
    return z @ y @ x


def _mesh(path: Path, scale: np.ndarray) -> dict[str, Any]:
    """Vertices in the file's own axes, and faces."""
    spec = mujoco().MjSpec()
    spec.add_mesh(
        name="mesh", file=str(path), scale=scale, inertia=mujoco().mjtMeshInertia.mjMESH_INERTIA_SHELL
    )
    geom = spec.worldbody.add_geom(type=mujoco().mjtGeom.mjGEOM_MESH, meshname="mesh")
    geom.contype = geom.conaffinity = 0  # or MuJoCo looks for the convex hull
    model, turn = spec.compile(), np.zeros(9)
    mujoco().mju_quat2Mat(turn, model.mesh_quat[0])  # MuJoCo moves meshes into their principal axes
    vertices = model.mesh_vert @ turn.reshape(3, 3).T + model.mesh_pos[0]
    return {"kind": "mesh", "vertices": vertices, "faces": np.array(model.mesh_face)}


def _shape(geometry: ET.Element, found: Callable[[str], Path | None]) -> dict[str, Any] | None:
    """What a geometry is; None for a mesh that is not there or cannot be read, and for what URDF does not know."""
    kind = next((x.tag for x in geometry), "")
    element = geometry.find(kind) if kind else None
    number = lambda key: float(_numbers(element, key, "0")[0])
    if kind == "box":
        return {"kind": kind, "size": _numbers(element, "size", "0 0 0")}
    if kind == "sphere":
        return {"kind": kind, "size": [number("radius")]}
    if kind in ("cylinder", "capsule"):
        return {"kind": kind, "size": [number("radius"), number("length")]}
    file = found(str(element.get("filename"))) if kind == "mesh" and element is not None else None
    return None if file is None else mesh_shape(file, _numbers(element, "scale", "1 1 1"))


def mesh_shape(file: Path, scale: np.ndarray) -> dict[str, Any] | None:
    """A mesh of a file as a shape; None for one that MuJoCo cannot read."""
    try:
        return _mesh(file, scale)
    except ValueError:
        return None


def looks(robot: ET.Element, found: Callable[[str], Path | None]) -> Iterator[Look | str]:
    """The visual elements of a URDF; for one that cannot be shown the name of its link."""
    named = {
        str(x.get("name")): x.find("color") for x in robot.iter("material") if x.find("color") is not None
    }
    for link in robot.findall("link"):
        for visual in link.findall("visual"):
            name, geometry, material = str(link.get("name")), visual.find("geometry"), visual.find("material")
            shape = None if geometry is None else _shape(geometry, found)
            if shape is None:
                yield name
                continue
            colour = None if material is None else material.find("color")
            colour = (
                named.get(str(material.get("name"))) if colour is None and material is not None else colour
            )
            origin = visual.find("origin")
            place, rpy = _numbers(origin, "xyz", "0 0 0"), _numbers(origin, "rpy", "0 0 0")
            rgba = None if colour is None else np.clip(_numbers(colour, "rgba", "0.5 0.5 0.5 1"), 0.0, 1.0)
            yield Look(name, shape, place, _make_rpy_rotation(rpy), rgba)


def make_visuals(at: Reference, given: tuple[Look, ...]) -> list[Visual]:
    """Visual elements where their links are in the reference posture."""
    numbers, made = {at.model.body(i).name: i for i in range(at.model.nbody)}, []
    for look in given:
        body = numbers.get(look.link, 0)  # the root link, where it is the world
        turn = at.data.xmat[body].reshape(3, 3)
        place = {
            "position": at.data.xpos[body] + turn @ look.position,
            "rotation": remove_rounding(turn @ look.rotation),
        }
        made.append(Visual(at.carriers[body], **place, colour=look.colour, **look.shape))
    return made
