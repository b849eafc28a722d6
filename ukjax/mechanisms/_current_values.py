"""Where joints, bodies and points of a mechanism are in a posture."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._arguments import require_instance
from .._misc._errors import InputError, unknown_name
from .._misc._lie import unit_quaternion
from .._misc._types import Coordinates, Time
from ._absolute import AbsoluteSystem
from ._abstract_joint import AbstractAxisJoint, AbstractJoint
from ._bodies import GROUND, AbstractBody, PointMass
from ._free import Free
from ._joint_rows import same_point
from ._joints import Spherical, Universal
from ._placement import AnyPlacement, PlanarPlacement
from ._tree import TreeSystem

MechanismSystem = AbsoluteSystem | TreeSystem


def require_mechanism(system: Any) -> None:
    """Raises `InputError` unless a system is a mechanism, in any coordinates."""
    such_as = "assemble(bodies, joints, loads) or tree(bodies, joints, loads)"
    require_instance("the system", system, (AbsoluteSystem, TreeSystem), such_as)


def _angles_of(joint: Universal, R: Float[Array, "3 3"]) -> Float[Array, "2"]:
    """The angles about both axes of a cross that turns the child by R against the parent."""
    first, second = joint.axis, joint.child_axis
    across = lambda axis, a, b: jnp.dot(jnp.cross(axis, a), jnp.cross(axis, b))
    angle = lambda axis, a, b: jnp.arctan2(jnp.dot(axis, jnp.cross(a, b)), across(axis, a, b))
    return jnp.stack([angle(first, second, R @ second), angle(second, R.T @ first, first)])


def _turning(placement: AnyPlacement, against: AnyPlacement) -> Array:
    """An orientation against another one: a quaternion, in the plane an angle."""
    if isinstance(placement, PlanarPlacement):
        return placement.angle - against.angle  # pyright: ignore[reportAttributeAccessIssue]
    return unit_quaternion(against.R.T @ placement.R)  # pyright: ignore[reportAttributeAccessIssue]


def _compute_joint_position(
    joint: AbstractJoint, child: AbstractBody | None, ends: tuple[AnyPlacement, ...]
) -> Array:
    """The position of a joint whose bodies are somewhere."""
    if isinstance(joint, AbstractAxisJoint):
        return joint.position(*ends)
    if isinstance(joint, Universal):
        return _angles_of(joint, ends[0].R.T @ ends[1].R)  # pyright: ignore[reportAttributeAccessIssue]
    turns = not isinstance(child, PointMass)
    if isinstance(joint, Free):
        moved = ends[0].back(same_point(joint.point, *ends))
        return jnp.append(moved, _turning(ends[1], ends[0])) if turns else moved
    if isinstance(joint, Spherical) and turns:
        return _turning(ends[1], ends[0])
    raise InputError(
        f"joint '{joint.name}' ({type(joint).__name__}) has no position to start at; give that of a Revolute, Prismatic, "
        "Cylindrical, Screw, Universal, Spherical or Free joint, of a body or of a point."
    )


def is_coordinate(system: MechanismSystem, name: str) -> bool:
    """Whether a coordinate of a tree has this name, as those of joints with one freedom do."""
    return isinstance(system, TreeSystem) and name in system.labels


def now(system: MechanismSystem, names: tuple[str, ...], t: Time, q: Coordinates) -> dict[str, Array]:
    """Where joints, bodies and points are, by their names: positions, orientations against the reference posture, places.

    **Raises:** `InputError` for a name that is not known, and for a joint without a position.
    """
    joints, bodies = {joint.name: joint for joint in system.joints}, system.mechanism.by_name
    placements, points, found = system.placements(t, q), system.points(t, q), {}
    for name in names:
        if is_coordinate(system, name):
            found[name] = q[system.labels.index(name)]
        elif name in joints:
            ends = tuple(placements[x] for x in joints[name].bodies)
            found[name] = _compute_joint_position(joints[name], bodies.get(joints[name].child), ends)
        elif name in bodies and not isinstance(bodies[name], PointMass):
            found[name] = _turning(placements[name], placements[GROUND])
        elif name in points:
            found[name] = points[name]
        else:
            raise unknown_name("joint, body or point", name, dict.fromkeys([*joints, *points]))
    return found
