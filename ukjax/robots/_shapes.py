"""What a robot looks like: the geoms of its file as shapes, in the reference posture."""

import numpy as np

from ..mechanisms import Visual
from ._mujoco import mujoco
from ._reference import Reference, remove_rounding
from ._urdf_looks import Look, make_visuals

_SHOWN = 3  # MuJoCo's viewer shows the groups 0, 1 and 2; files put what only collides into others
_GREY = (
    0.5,
    0.5,
    0.5,
    1.0,
)  # MuJoCo's colour of geoms that have none of their own: then the material's counts


def _visible(at: Reference) -> list[int]:
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


def _shape(at: Reference, geom: int) -> dict[str, object] | None:
    """Kind and size of a geom; None for planes, height fields and what is no shape."""
    model, size = at.model, np.array(at.model.geom_size[geom])
    kind = mujoco().mjtGeom(model.geom_type[geom]).name.removeprefix("mjGEOM_").lower()
    if kind == "mesh" and model.geom_dataid[geom] >= 0:
        mesh = model.mesh(int(model.geom_dataid[geom])).id
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
    found = make_visuals(at, looks)
    told = {visual.body for visual in found}
    for geom in _visible(at):
        if at.carriers[at.model.geom_bodyid[geom]] in told:
            continue
        shape = _shape(at, geom)
        if shape is not None:
            body, rotation = int(at.model.geom_bodyid[geom]), at.data.geom_xmat[geom].reshape(3, 3)
            placed = {"position": at.data.geom_xpos[geom], "rotation": remove_rounding(rotation)}
            found.append(Visual(at.carriers[body], **placed, colour=_colour(at, geom), **shape))  # pyright: ignore[reportArgumentType]
    return found
