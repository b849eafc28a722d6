"""What a robot looks like in the reference posture: the geoms of its file, and visual elements, which MuJoCo leaves out.

Meshes are read by MuJoCo one by one, so that one it cannot read, or that is not there, is told of and costs no other."""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from ..mechanisms import Visual
from ._files import numbers_in, numbers_of
from ._reference import Reference, mujoco, remove_rounding, word_of


class Look(NamedTuple):
    """A visual element."""

    link: str  # whose it is
    shape: dict[str, Any]  # the arguments of a `Visual` that say what it is
    # `position`, `rotation`: in the link's frame [m] (3,), (3, 3).
    position: np.ndarray
    rotation: np.ndarray
    colour: np.ndarray | None  # red, green, blue and opacity; None where the file has none


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


def _shape_of_geometry(
    geometry: ET.Element, find: Callable[[str], Path | None], what: str
) -> dict[str, Any] | None:
    """What a geometry is; None for a mesh that is not there or cannot be read, and for what URDF does not know."""
    kind = next((x.tag for x in geometry), "")
    element = geometry.find(kind) if kind else None
    number = lambda key: float(numbers_of(element, key, "0", what)[0])
    if kind == "box":
        return {"kind": kind, "size": numbers_of(element, "size", "0 0 0", what)}
    if kind == "sphere":
        return {"kind": kind, "size": [number("radius")]}
    if kind in ("cylinder", "capsule"):
        return {"kind": kind, "size": [number("radius"), number("length")]}
    file = find(str(element.get("filename"))) if kind == "mesh" and element is not None else None
    return None if file is None else mesh_shape(file, numbers_of(element, "scale", "1 1 1", what))


def mesh_shape(file: Path, scale: np.ndarray) -> dict[str, Any] | None:
    """A mesh of a file as a shape; None for one that MuJoCo cannot read."""
    try:
        return _mesh(file, scale)
    except ValueError:
        return None


def read_colour(text: str, what: str) -> np.ndarray:
    """Red, green, blue and opacity from 0 to 1, of a text that may leave out the last."""
    numbers = numbers_in(text, 4 if len(text.split()) > 3 else 3, f"{what}: the colour")
    return np.append(numbers, 1.0)[:4].clip(0.0, 1.0)


def read_looks(robot: ET.Element, find: Callable[[str], Path | None]) -> Iterator[Look | str]:
    """The visual elements of a URDF; for one that cannot be shown the name of its link."""
    named = {
        str(x.get("name")): x.find("color") for x in robot.iter("material") if x.find("color") is not None
    }
    for link in robot.findall("link"):
        for visual in link.findall("visual"):
            name, geometry, material = str(link.get("name")), visual.find("geometry"), visual.find("material")
            what = f"a visual of link '{name}'"
            shape = None if geometry is None else _shape_of_geometry(geometry, find, what)
            if shape is None:
                yield name
                continue
            colour = None
            if material is not None and (colour := material.find("color")) is None:
                colour = named.get(str(material.get("name")))
            origin = visual.find("origin")
            place, rpy = (numbers_of(origin, x, "0 0 0", what) for x in ("xyz", "rpy"))
            rgba = None if colour is None else read_colour(colour.get("rgba") or "0.5 0.5 0.5 1", what)
            yield Look(name, shape, place, Rotation.from_euler("xyz", rpy).as_matrix(), rgba)


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


_SHOWN = 3  # MuJoCo's viewer shows the groups 0, 1 and 2; files put what only collides into others
# MuJoCo's colour of geoms that have none of their own: then the material's counts.
_GREY = (0.5, 0.5, 0.5, 1.0)


def _list_visible_geoms(at: Reference) -> list[int]:
    """The geoms to show: of each body of the tree those in the groups that are shown, or where it has none, all."""
    model = at.model
    seen = [i for i in range(model.ngeom) if _colour(at, i)[3] > 0]
    carrier = lambda i: at.carriers[model.geom_bodyid[i]]
    looked_at = {carrier(i) for i in seen if model.geom_group[i] < _SHOWN}
    return [i for i in seen if model.geom_group[i] < _SHOWN or carrier(i) not in looked_at]


def _colour(at: Reference, geom: int) -> np.ndarray:
    own, material = at.model.geom_rgba[geom], int(at.model.geom_matid[geom])
    rgba = at.model.mat_rgba[material] if material >= 0 and np.allclose(own, _GREY) else own
    return np.clip(np.asarray(rgba, float), 0.0, 1.0)


def _shape_of_geom(at: Reference, geom: int) -> dict[str, object] | None:
    model, size = at.model, np.array(at.model.geom_size[geom])
    kind = word_of("Geom", model.geom_type[geom])
    if kind == "mesh" and model.geom_dataid[geom] >= 0:
        mesh = model.geom_dataid[geom]
        vertices = slice(model.mesh_vertadr[mesh], model.mesh_vertadr[mesh] + model.mesh_vertnum[mesh])
        faces = slice(model.mesh_faceadr[mesh], model.mesh_faceadr[mesh] + model.mesh_facenum[mesh])
        return {"kind": kind, "vertices": model.mesh_vert[vertices], "faces": model.mesh_face[faces]}
    sizes = {
        "box": 2 * size,
        "sphere": size[:1],
        "capsule": size[:2] * (1, 2),
        "cylinder": size[:2] * (1, 2),
        "ellipsoid": size,
    }
    return {"kind": kind, "size": sizes[kind]} if kind in sizes else None


def visuals(at: Reference, looks: tuple[Look, ...]) -> list[Visual]:
    """The geoms of the file, where MuJoCo's viewer would show them; planes and height fields are left out. Bodies that
    have visual elements are shown as these say.
    """
    shown = make_visuals(at, looks)
    told = {visual.body for visual in shown}
    for geom in _list_visible_geoms(at):
        if at.carriers[at.model.geom_bodyid[geom]] in told:
            continue
        shape = _shape_of_geom(at, geom)
        if shape is not None:
            body, rotation = int(at.model.geom_bodyid[geom]), at.data.geom_xmat[geom].reshape(3, 3)
            placed = {"position": at.data.geom_xpos[geom], "rotation": remove_rounding(rotation)}
            shown.append(Visual(at.carriers[body], **placed, colour=_colour(at, geom), **shape))  # pyright: ignore[reportArgumentType]
    return shown
