"""What a robot looks like in the reference posture: the geoms of its file, and visual elements, which MuJoCo leaves out.

Meshes are read by MuJoCo one by one, so that one it cannot read, or that is not there, is told of and costs no other."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..mechanisms import Visual
from ._files import numbers_in
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


def visual_shape(kind: str, size: np.ndarray) -> dict[str, Any] | None:
    """The arguments of a `Visual` for a shape as MuJoCo has it; None for one that is not shown."""
    scales = {"box": 2.0, "sphere": [1.0], "ellipsoid": 1.0, "capsule": [1.0, 2.0], "cylinder": [1.0, 2.0]}
    if kind not in scales:
        return None
    scale = np.array(scales[kind])
    return {"kind": kind, "size": np.asarray(size)[: scale.size if scale.ndim else 3] * scale}


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
    return visual_shape(kind, size)


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
