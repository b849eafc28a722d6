"""The bodies of a robot, of which those that move as one are merged, and the joints that carry them."""

from typing import Any, ClassVar, final

import equinox as eqx
import numpy as np
from jaxtyping import Array

from .._misc._errors import InputError
from .._misc._types import Coordinates, as_jax
from ..mechanisms import (
    GROUND,
    AbstractBody,
    AbstractJoint,
    Body,
    Fixed,
    Free,
    Freedom,
    Prismatic,
    Revolute,
    Spherical,
    TreeSystem,
)
from ._reference import Reference, kind_of, remove_rounding

_SINGULAR = 1e3  # roundings of a mass matrix with a diagonal of 1


def _merge_bodies(at: Reference, members: list[int]) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, centre and inertia about it, in world axes of the reference posture, of bodies that move as one."""
    masses, places = at.model.body_mass[members], at.data.xipos[members]
    mass = float(np.sum(masses))
    centre = masses @ places / mass if mass > 0 else places[0]
    axes = at.data.ximat[members].reshape(-1, 3, 3)
    own = np.einsum("iab,ib,icb->ac", axes, at.model.body_inertia[members], axes)
    arms = places - centre
    square = np.einsum("i,ia,ia->", masses, arms, arms) * np.eye(3)
    inertia = own + square - np.einsum("i,ia,ib->ab", masses, arms, arms)
    return mass, remove_rounding(centre), remove_rounding(inertia, float(np.max(np.abs(inertia))))


def _make_body(
    name: str, mass: float, centre: np.ndarray, inertia: np.ndarray, points: dict[str, Any]
) -> Body:
    """The body, also without mass, and where its moments are such that no body can have them, as in some files."""
    body = Body(name, 1.0, centre, np.ones(3), points, "joints")
    numbers = (as_jax(np.asarray(x, body.inertia.dtype)) for x in (mass, 0.5 * (inertia + inertia.T)))
    return eqx.tree_at(lambda x: (x.mass, x.inertia), body, tuple(numbers))


def bodies(at: Reference) -> list[Body]:
    """The tree's bodies in MuJoCo's order, with the places of all bodies and sites on them as points."""
    members: dict[str, list[int]] = {}
    for i, carrier in enumerate(at.carriers):
        members.setdefault(carrier, []).append(i)
    points = frames(at)
    merged = []
    for name, own in members.items():
        if name == GROUND:
            continue
        mass, centre, inertia = _merge_bodies(at, own)
        named = {frame: x for frame, (carrier, x) in points.items() if carrier == name}
        merged.append(_make_body(name, mass, centre, inertia, named))
    return merged


def require_unique_motion(tree: TreeSystem, q: Coordinates) -> None:
    """Raises `InputError` where bodies without mass leave an acceleration open."""
    light = [body.name for body in tree.bodies if float(body.mass) == 0]
    if not light:
        return
    M = np.asarray(tree.mass_matrix(as_jax(np.zeros((), q.dtype)), q))
    size = np.sqrt(np.diag(M))
    if size.min() > 0 and np.linalg.eigvalsh(M / np.outer(size, size))[0] > _SINGULAR * np.finfo(M.dtype).eps:
        return
    raise InputError(
        f"of bodies without mass, {', '.join(map(repr, light))}, some can move while nothing with mass does, so that no "
        "acceleration follows: give them a mass, or their joints an armature, in the file."
    )


def frames(at: Reference) -> dict[str, tuple[str, np.ndarray]]:
    """Every body and site by name: what carries it, and where its origin is in the reference posture [m].

    A site with the name of a body is called "<name> site".
    """
    by_name = {at.names.bodies[i]: at.frame("body", i)[:2] for i in range(1, at.model.nbody)}
    for i, name in enumerate(at.names.sites):
        by_name[f"{name} site" if name in by_name else name] = at.frame("site", i)[:2]
    return by_name


# --- Joints


@final
class SeveralJoints(AbstractJoint):
    """Joints one after the other between two bodies, without bodies between them; the coordinates have their names."""

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    point: Array  # of the last of them [m] (3,)
    parts: tuple[AbstractJoint, ...]  # from the parent outwards
    turns: ClassVar[bool] = True

    @property
    def holonomic(self) -> bool:
        return False

    def freedoms(self, child: AbstractBody) -> list[Freedom]:
        return [
            freedom._replace(label=part.name, named=True)
            for part in self.parts
            for freedom in part.freedoms(child)
        ]


def _clean_axis(direction: np.ndarray) -> np.ndarray:
    axis = remove_rounding(direction)
    return np.sign(axis) if np.count_nonzero(axis) == 1 else axis


def _make_joint(at: Reference, i: int, ends: tuple[str, str]) -> AbstractJoint:
    kind, name, point = kind_of(at.model, i), at.names.joints[i], remove_rounding(at.data.xanchor[i])
    if kind == "free":
        return Free(name, *ends, point)
    if kind == "ball":
        return Spherical(name, *ends, point)
    return (Revolute if kind == "hinge" else Prismatic)(name, *ends, point, _clean_axis(at.data.xaxis[i]))


def joints(at: Reference) -> list[AbstractJoint]:
    """The joint that carries each body of the tree, in the order of the bodies.

    So the tree's coordinates and velocities have MuJoCo's places: of a hinge or a slide q = qpos - qpos0, and v = qvel.
    """
    model, carrying = at.model, list[AbstractJoint]()
    for i, name in enumerate(at.names.bodies):
        if at.carriers[i] != name or name == GROUND:
            continue
        ends = (at.carriers[model.body_parentid[i]], name)
        start, count = model.body_jntadr[i], model.body_jntnum[i]
        parts = [_make_joint(at, j, ends) for j in range(start, start + count)]
        if not parts:
            carrying.append(Fixed(f"{name} fixed", *ends, at.frame("body", i)[1]))
        elif len(parts) == 1:
            carrying.append(parts[0])
        else:
            together = ", ".join(part.name for part in parts)
            carrying.append(SeveralJoints(together, *ends, parts[-1].point, tuple(parts)))
    return carrying


def joints_by_kind(at: Reference) -> dict[str, list[int]]:
    """MuJoCo's numbers of the joints of each kind: `"free"`, `"ball"`, `"slide"`, `"hinge"`."""
    numbers: dict[str, Any] = {"free": [], "ball": [], "slide": [], "hinge": []}
    for i in range(at.model.njnt):
        numbers[kind_of(at.model, i)].append(i)
    return numbers
