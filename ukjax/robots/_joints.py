"""The joints of a robot, which carry its bodies, with the names of the file."""

from typing import Any, ClassVar, final

import equinox as eqx
import numpy as np
from jaxtyping import Array

from ..mechanisms import (
    GROUND,
    AbstractBody,
    AbstractJoint,
    Fixed,
    Free,
    Freedom,
    Prismatic,
    Revolute,
    Spherical,
)
from ._reference import Reference, kind_of, remove_rounding


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


def _axis(direction: np.ndarray) -> np.ndarray:
    axis = remove_rounding(direction)
    return np.sign(axis) if np.count_nonzero(axis) == 1 else axis


def _joint(at: Reference, i: int, ends: tuple[str, str]) -> AbstractJoint:
    """Joint i of MuJoCo between two bodies of the tree."""
    kind, name, point = kind_of(at.model, i), at.names.joints[i], remove_rounding(at.data.xanchor[i])
    if kind == "free":
        return Free(name, *ends, point)
    if kind == "ball":
        return Spherical(name, *ends, point)
    return (Revolute if kind == "hinge" else Prismatic)(name, *ends, point, _axis(at.data.xaxis[i]))


def joints(at: Reference) -> list[AbstractJoint]:
    """The joint that carries each body of the tree, in the order of the bodies.

    So the tree's coordinates and velocities have MuJoCo's places: of a hinge or a slide q = qpos - qpos0, and v = qvel.
    """
    model, found = at.model, list[AbstractJoint]()
    for i, name in enumerate(at.names.bodies):
        if at.carriers[i] != name or name == GROUND:
            continue
        ends = (at.carriers[model.body_parentid[i]], name)
        start, count = model.body_jntadr[i], model.body_jntnum[i]
        parts = [_joint(at, j, ends) for j in range(start, start + count)]
        if not parts:
            found.append(Fixed(f"{name} fixed", *ends, at.point(i)[1]))
        elif len(parts) == 1:
            found.append(parts[0])
        else:
            together = ", ".join(part.name for part in parts)
            found.append(SeveralJoints(together, *ends, parts[-1].point, tuple(parts)))
    return found


def kinds(at: Reference) -> dict[str, list[int]]:
    """MuJoCo's numbers of the joints of each kind: `"free"`, `"ball"`, `"slide"`, `"hinge"`."""
    found: dict[str, Any] = {"free": [], "ball": [], "slide": [], "hinge": []}
    for i in range(at.model.njnt):
        found[kind_of(at.model, i)].append(i)
    return found
