"""Starting postures: joints, bodies and points are put where they are wanted, and the rest of the mechanism follows.

From the reference posture, with x of what is named and s from 0 to 1 in small steps,

    phi(t, q) = 0,    x(q) = x0 + s (x1 - x0),

each solved by projection in the mass metric, from where the two steps before lead (continuation; Allgower and Georg,
Introduction to Numerical Continuation Methods, 2003, chapter 2). So of several assemblies, elbow up or down, it is the
one that the drawn posture leads to, and what is left open moves no more than it must.
"""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import fails
from .._misc._errors import InputError
from .._misc._lie import rotation_about, rotation_matrix
from .._misc._names import unknown_name
from .._misc._precision import in_full_precision
from .._misc._types import Coordinates, Time, is_traced
from .._motion._project import Projection
from .._system._constraint import Holonomic
from .._system._rows import constraint_rows, position_rows
from ._absolute import AbsoluteSystem
from ._abstract_joint import AbstractAxisJoint, AbstractJoint
from ._bodies import GROUND, AbstractBody, Body, PlanarBody, PointMass, checked_array
from ._coordinates import EulerCoordinates, QuaternionCoordinates
from ._free import Free
from ._given_motions import position_row
from ._joint_rows import same_direction, same_point
from ._joints import Revolute, Spherical, Universal
from ._placement import AnyPlacement, Placement, PlanarPlacement
from ._tree import TreeSystem

AnySystem = AbsoluteSystem | TreeSystem

_STEPS = 64
"""On the way there: a full turn in steps of a tenth of a radian. In long ones a linkage could change its assembly."""

_UPRIGHT = (1.0, 0.0, 0.0, 0.0)


def _turning(child: AbstractBody | None, dimension: int) -> tuple[float, ...]:
    """An orientation in the reference posture: a quaternion, in the plane an angle, of a point mass nothing."""
    return () if isinstance(child, PointMass) else _UPRIGHT if dimension == 3 else (0.0,)


def _joint_reference(joint: AbstractJoint, child: AbstractBody | None) -> Any:
    """The position of a joint in the reference posture; its shape is that of any."""
    turning = _turning(child, joint.dimension)
    if isinstance(joint, AbstractAxisJoint):
        return 0.0
    if isinstance(joint, Universal):
        return (0.0, 0.0)
    if isinstance(joint, Free):
        return (0.0,) * joint.dimension + turning
    if isinstance(joint, Spherical) and turning:
        return turning if joint.dimension == 3 else 0.0
    raise InputError(
        f"joint '{joint.name}' ({type(joint).__name__}) has no position to start at; give that of a Revolute, Prismatic, "
        "Cylindrical, Screw, Universal, Spherical or Free joint, of a body or of a point."
    )


def _reference(system: AnySystem, name: str) -> Any:
    """Where in the reference posture a joint, a body or a point is, by its name."""
    joints, bodies = {joint.name: joint for joint in system.joints}, system.mechanism.by_name
    if name in joints:
        return _joint_reference(joints[name], bodies.get(joints[name].child))
    if name in bodies:
        body = bodies[name]
        return body.centre if isinstance(body, PointMass) else _UPRIGHT if isinstance(body, Body) else 0.0
    points = {f"{body.name}.{key}": X for body in system.bodies for key, X in body.points.items()}
    if name in points:
        return points[name]
    raise unknown_name("joint, body or point", name, dict.fromkeys([*joints, *bodies, *points]))


def _orientation_rows(value: Array, parent: AnyPlacement, child: AnyPlacement) -> Array:
    """Zero where the child is turned against the parent as a quaternion says, or in the plane an angle."""
    if isinstance(parent, PlanarPlacement):
        return same_direction(parent, child) - value
    return _turned_rows(rotation_matrix(value), parent, child)


def _turned_rows(R: Float[Array, "3 3"], parent: AnyPlacement, child: AnyPlacement) -> Float[Array, "3"]:
    return same_direction(Placement(parent.R @ R, parent.p, parent.centre), child)  # pyright: ignore


def _joint_rows(joint: AbstractJoint, value: Array, parent: AnyPlacement, child: AnyPlacement) -> Array:
    """Zero where a joint's position is a value."""
    if isinstance(joint, AbstractAxisJoint):
        return position_row(joint, value, parent, child)
    if isinstance(joint, Universal):
        R = rotation_about(joint.axis, value[0]) @ rotation_about(joint.child_axis, value[1])
        return _turned_rows(R, parent, child)
    if isinstance(joint, Spherical):
        return _orientation_rows(value, parent, child)
    d = joint.dimension
    moved = parent.back(same_point(joint.point, parent, child)) - value[:d]
    if value.size == d:
        return moved
    return jnp.concatenate([moved, _orientation_rows(value[d:], parent, child)])


@final
class At(eqx.Module):
    """Rows that are zero where what bears a name is at a value."""

    system: AnySystem
    name: str = eqx.field(static=True)
    value: Array

    def __call__(self, t: Time, q: Coordinates) -> Array:
        placements = self.system.placements(t, q)
        joints = {joint.name: joint for joint in self.system.joints}
        if self.name in joints:
            joint = joints[self.name]
            return _joint_rows(joint, self.value, *(placements[name] for name in joint.bodies))
        if self.name in placements and not isinstance(self.system.mechanism.by_name[self.name], PointMass):
            return _orientation_rows(self.value, placements[GROUND], placements[self.name])
        return self.system.points(t, q)[self.name] - self.value


def _held(system: AnySystem, values: dict[str, Array]) -> AnySystem:
    """The mechanism with rows that hold what is named."""
    rows = [Holonomic(At(system, name, x), name=f"{name}, as given") for name, x in values.items()]
    return dataclasses.replace(system, further=(*system.further, *rows))


def _with_unit_quaternions(system: AnySystem, q: Coordinates) -> Coordinates:
    """Rows on rotations leave the length of a quaternion open; steps change it."""
    if isinstance(system, TreeSystem):
        starts = [element.q for element in system.order.layout.elements if element.kind == "ball"]
    else:
        kinds = (QuaternionCoordinates, EulerCoordinates)
        starts = [part.q_start + 3 for part in system.coordinates().values() if isinstance(part, kinds)]
    for i in starts:
        p = q[i : i + 4]
        q = q.at[i : i + 4].set(p / jnp.sqrt(jnp.dot(p, p)))
    return q


@eqx.filter_jit
@in_full_precision
def _followed(
    system: AnySystem, t: Time, q: Coordinates, start: dict[str, Array], end: dict[str, Array]
) -> tuple[Coordinates, Array]:
    """The posture at the end of the way, and phi there."""

    def step(passed: tuple[Array, Array], way: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        (q, before), (share, onwards) = passed, way
        values = {name: start[name] + share * (x - start[name]) for name, x in end.items()}
        ahead = _with_unit_quaternions(system, q + onwards * (q - before))
        nearest = Projection().positions(_held(system, values), t, ahead)
        return (_with_unit_quaternions(system, nearest), q), None

    # Twice at the end without a step onwards: there what the last step left is removed to rounding.
    shares = np.append(np.linspace(0.0, 1.0, _STEPS + 1), (1.0, 1.0))
    onwards = np.append(np.ones(_STEPS + 1), (0.0, 0.0))
    (q, _), _ = jax.lax.scan(step, (q, q), (jnp.asarray(shares, q.dtype), jnp.asarray(onwards, q.dtype)))
    return q, position_rows(_held(system, end), t, q)


def _checked(name: str, value: Any, reference: Array) -> Array:
    """A value of the right shape; of the two unit quaternions that mean a rotation the one nearer to upright."""
    array = checked_array(f"the value of '{name}' in at", value, reference.shape).astype(reference.dtype)
    if reference.shape not in ((4,), (7,)):
        return array
    p = array[-4:]
    if fails(lambda x: abs(x[-4:] @ x[-4:] - 1.0) < 1e-3, value):
        raise InputError(
            f"the value of '{name}' in at must end in a unit quaternion, scalar first; got {value}."
        )
    p = jnp.where(p[0] < 0, -1, 1).astype(p.dtype) * p / jnp.sqrt(jnp.dot(p, p))
    return jnp.concatenate([array[:-4], p])


def _angles(system: AnySystem, name: str, value: np.ndarray) -> np.ndarray:
    """What of a value is angles (k,)."""
    joint = {joint.name: joint for joint in system.joints}.get(name)
    if isinstance(joint, Revolute | Universal):
        return value.ravel()
    if system.mechanism.dimension == 2:
        if isinstance(joint, Free):
            return value[2:]
        body = system.mechanism.by_name.get(name)
        if isinstance(joint, Spherical) or (joint is None and isinstance(body, PlanarBody)):
            return value.ravel()
    return np.zeros(0)


def _warn_of_degrees(system: AnySystem, values: dict[str, Array]) -> None:
    """Warns of angles of more than a turn: they are legal, and more often degrees."""
    for name, value in values.items():
        angles = () if is_traced(value) else _angles(system, name, np.asarray(value))
        for angle in angles:
            if abs(angle) > 2 * np.pi:
                warnings.warn(
                    f"'{name}' in at is to turn by {angle:g} rad, {abs(angle) / (2 * np.pi):.1f} turns: angles are in "
                    f"radians, and {angle:g} degrees are {np.deg2rad(angle):.4g} rad.",
                    stacklevel=4,
                )


def held_at(system: AnySystem, at: Mapping[str, Any], dtype: Any) -> AnySystem:
    """The mechanism with further rows, which hold what is named at a value.

    **Arguments:**

    - `system`: the mechanism.
    - `at`: values by name, as for `problem`.
    - `dtype`: of the coordinates.

    **Raises:** `InputError` for unknown names and wrong shapes.
    """
    given = {name: jnp.asarray(_reference(system, name), dtype) for name in at}
    return _held(system, {name: _checked(name, value, given[name]) for name, value in at.items()})


def posture(system: AnySystem, at: Mapping[str, Any], t: Time | float) -> Coordinates:
    """The posture that the reference posture leads to where what is named goes to a value.

    **Arguments:**

    - `system`: the mechanism.
    - `at`: values by name, as for `problem`.
    - `t`: time [s].

    **Raises:** `InputError` for unknown names, wrong shapes, and where the mechanism cannot be closed there.
    """
    q = system.q0
    start = {name: jnp.asarray(_reference(system, name), q.dtype) for name in at}
    end = {name: _checked(name, value, start[name]) for name, value in at.items()}
    _warn_of_degrees(system, end)
    t = jnp.asarray(t, q.dtype)
    q, phi = _followed(system, t, q, start, end)
    tolerance = 1e4 * jnp.finfo(q.dtype).eps
    if not is_traced(phi) and not np.max(np.abs(phi), initial=0) <= tolerance:
        v = jnp.zeros(jax.eval_shape(system.mass_matrix, t, q).shape[0], q.dtype)
        rows = eqx.filter_eval_shape(constraint_rows, _held(system, end), t, q, v)
        names = [name for name, of_q in zip(rows.names, rows.of_positions, strict=True) if of_q]
        errors = zip(names, np.abs(np.asarray(phi)), strict=True)
        off = ", ".join(f"{name} ({x:.1e})" for name, x in errors if not x <= tolerance)
        wanted = ", ".join(f"{name} = {x}" for name, x in at.items())
        raise InputError(f"the mechanism cannot be closed at {wanted}: still off are {off}.")
    return q
