"""Starting postures: joints, bodies and points are put where they are wanted, and the rest of the mechanism follows.

From one posture, the reference posture or a problem's start, with x of what is named and s from 0 to 1 in small steps,

    phi(t, q) = 0,    x(q) = x0 + s (x1 - x0),

each solved by projection in the mass metric, from where the two steps before lead (continuation; Allgower and Georg,
Introduction to Numerical Continuation Methods, 2003, chapter 2), with the coordinates that are named put in place. So
of several assemblies, elbow up or down, it is the one that the drawn posture leads to, and what is left open moves no
more than it must.
"""

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import AtStates, evaluate_at_state
from .._misc._arguments import fails, real_array
from .._misc._errors import InputError
from .._misc._lie import rotation_about, rotation_matrix
from .._misc._types import Coordinates, Time, as_jax, in_full_precision, is_traced, module_for
from .._motion._model import nearest_start
from .._motion._project import Projection, compute_position_terms, positions_on_host, tolerance_of
from .._system._constraint import Holonomic
from .._system._rows import constraint_rows, position_rows
from ._abstract_joint import AbstractAxisJoint, AbstractJoint
from ._bodies import GROUND, PlanarBody, PointMass, check_array
from ._coordinates import EulerCoordinates, QuaternionCoordinates
from ._current_values import MechanismSystem, is_coordinate, now
from ._free import Free
from ._given_motions import position_row
from ._joint_rows import same_direction, same_point
from ._joints import Revolute, Spherical, Universal
from ._placement import AnyPlacement, Placement, PlanarPlacement
from ._tree import TreeSystem

_STEPS = 64
"""On the way there: a full turn in steps of a tenth of a radian. In long ones a linkage could change its assembly."""


def _shapes(system: MechanismSystem, at: Mapping[str, Any], t: Time, q: Coordinates) -> dict[str, Any]:
    """What values by name look like.

    **Raises:** `InputError` for unknown names.
    """
    return eqx.filter_eval_shape(lambda t, q: now(system, tuple(at), t, q), t, q)


def _orientation_rows(value: Array, parent: AnyPlacement, child: AnyPlacement) -> Array:
    """Zero where the child is turned against the parent as a quaternion says, or in the plane an angle."""
    if isinstance(parent, PlanarPlacement):
        return same_direction(parent, child) - value
    return _compute_turn_rows(rotation_matrix(value), parent, child)


def _compute_turn_rows(
    R: Float[Array, "3 3"], parent: AnyPlacement, child: AnyPlacement
) -> Float[Array, "3"]:
    return same_direction(Placement(parent.R @ R, parent.p, parent.centre), child)  # pyright: ignore


def _joint_rows(joint: AbstractJoint, value: Array, parent: AnyPlacement, child: AnyPlacement) -> Array:
    """Zero where a joint's position is a value."""
    if isinstance(joint, AbstractAxisJoint):
        return position_row(joint, value, parent, child)
    if isinstance(joint, Universal):
        R = rotation_about(joint.axis, value[0]) @ rotation_about(joint.child_axis, value[1])
        return _compute_turn_rows(R, parent, child)
    if isinstance(joint, Spherical):
        return _orientation_rows(value, parent, child)
    d = joint.dimension
    moved = parent.back(same_point(joint.point, parent, child)) - value[:d]
    if value.size == d:
        return moved
    return jnp.concatenate([moved, _orientation_rows(value[d:], parent, child)])


@final
class HeldAt(eqx.Module):
    """Rows that are zero where what bears a name is at a value."""

    system: MechanismSystem
    name: str = eqx.field(static=True)
    value: Array

    def __call__(self, t: Time, q: Coordinates) -> Array:
        if is_coordinate(self.system, self.name):
            return q[self.system.labels.index(self.name)][None] - self.value
        placements = self.system.placements(t, q)
        joints = {joint.name: joint for joint in self.system.joints}
        if self.name in joints:
            joint = joints[self.name]
            return _joint_rows(joint, self.value, *(placements[name] for name in joint.bodies))
        if self.name in placements and not isinstance(self.system.mechanism.by_name[self.name], PointMass):
            return _orientation_rows(self.value, placements[GROUND], placements[self.name])
        return self.system.points(t, q)[self.name] - self.value


def _hold_values(system: MechanismSystem, values: dict[str, Array]) -> MechanismSystem:
    """The mechanism with rows that hold what is named."""
    rows = [Holonomic(HeldAt(system, name, x), name=f"{name}, as given") for name, x in values.items()]
    return dataclasses.replace(system, further=(*system.further, *rows))


def with_unit_quaternions(system: MechanismSystem, q: Coordinates) -> Coordinates:
    """A posture with all quaternions of length 1: rows on rotations leave it open, and steps onto them change it."""
    xp = module_for(q)
    for i in quaternions(system):
        p = q[i : i + 4]
        q = xp.concatenate([q[:i], p / xp.sqrt(xp.dot(p, p)), q[i + 4 :]])
    return q


def quaternions(system: MechanismSystem) -> list[int]:
    """Where the coordinates of each quaternion start."""
    if isinstance(system, TreeSystem):
        return [element.q for element in system.order.layout.elements if element.kind == "ball"]
    kinds = (QuaternionCoordinates, EulerCoordinates)
    return [part.q_start + 3 for part in system.coordinates().values() if isinstance(part, kinds)]


def _step(
    way: tuple[MechanismSystem, dict[str, Array], dict[str, Array], Callable[..., Any]],
    passed: tuple[Coordinates, Coordinates],
    how_far: tuple[Array, Array],
) -> tuple[tuple[Coordinates, Coordinates], None]:
    """One step on the way from a start to an end, for `jax.lax.scan`: the postures here and one before. The last of the
    way projects coordinates to where what is named has some values."""
    (system, start, end, nearest), (q, before), (share, onwards) = way, passed, how_far
    values = {name: start[name] + share * (x - start[name]) for name, x in end.items()}
    ahead = with_unit_quaternions(system, q + onwards * (q - before))
    for name, x in values.items():
        if is_coordinate(system, name):
            i = system.labels.index(name)
            ahead = module_for(ahead, x).concatenate([ahead[:i], x[None], ahead[i + 1 :]])
    return (with_unit_quaternions(system, nearest(values, ahead)), q), None


def _ways(dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """How far each step leads, and whether it goes on in the direction of the last one. Not so twice at the end: what
    the last step left is removed to rounding."""
    shares = np.append(np.linspace(0.0, 1.0, _STEPS + 1), (1.0, 1.0))
    return shares.astype(dtype), np.append(np.ones(_STEPS + 1), (0.0, 0.0)).astype(dtype)


def _evaluate_held_rows(
    parameters: tuple[MechanismSystem, tuple[str, ...]], t: Time, q: Coordinates, *values: Array
) -> tuple[Any, ...]:
    system, names = parameters
    return compute_position_terms(_hold_values(system, dict(zip(names, values, strict=True))), t, q)


def _now_at(parameters: tuple[MechanismSystem, tuple[str, ...]], t: Time, q: Coordinates) -> dict[str, Array]:
    return now(*parameters, t, q)


@in_full_precision
def _follow_path(
    system: MechanismSystem, t: Time, q: Coordinates, end: dict[str, Array]
) -> tuple[Coordinates, Array]:
    """The posture at the end of the way, and phi there; by NumPy where all has values."""
    if is_traced((system, t, q, end)):
        return _follow_path_in_jit(system, t, q, end)
    # The values are arguments: the system is prepared once, not for each step.
    held, rcond = AtStates(_evaluate_held_rows, (system, tuple(end))), Projection().pinv.threshold(q.dtype)
    at = lambda values: lambda q: held.one(t, q, *values.values())
    nearest = lambda values, q: positions_on_host(at(values), q, rcond)[0]
    way = system, evaluate_at_state(_now_at, (system, tuple(end)), t, q), end, nearest
    passed: Any = (np.asarray(q), np.asarray(q))
    for how_far in zip(*_ways(q.dtype), strict=True):
        passed, _ = _step(way, passed, how_far)
    q = passed[0]
    return q, evaluate_at_state(position_rows, _hold_values(system, end), t, q)


@eqx.filter_jit
def _follow_path_in_jit(
    system: MechanismSystem, t: Time, q: Coordinates, end: dict[str, Array]
) -> tuple[Coordinates, Array]:
    still = jnp.zeros(len(system.velocity_labels), q.dtype)
    nearest = lambda values, q: nearest_start(_hold_values(system, values), t, q, still)[0]
    way = (system, now(system, tuple(end), t, q), end, nearest)
    (q, _), _ = jax.lax.scan(lambda *x: _step(way, *x), (q, q), _ways(q.dtype))
    return q, position_rows(_hold_values(system, end), t, q)


def _check_value(name: str, value: Any, like: Any) -> Array:
    """A value of the right shape; of the two unit quaternions that mean a rotation the one nearer to upright."""
    array = check_array(f"the value of '{name}' in at", value, like.shape).astype(like.dtype)
    if like.shape not in ((4,), (7,)):
        return array
    xp, p = module_for(array), array[-4:]
    if fails(lambda x: abs(x[-4:] @ x[-4:] - 1.0) < 1e-3, value):
        raise InputError(
            f"the value of '{name}' in at must end in a unit quaternion, scalar first; got {value}."
        )
    p = xp.where(p[0] < 0, -1, 1).astype(p.dtype) * p / xp.sqrt(xp.dot(p, p))
    return xp.concatenate([array[:-4], p])


def _angles(system: MechanismSystem, name: str, value: np.ndarray) -> np.ndarray:
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


def _warn_of_degrees(system: MechanismSystem, values: dict[str, Array]) -> None:
    """Warns of angles of more than a turn: they are legal, and more often degrees."""
    for name, value in values.items():
        angles = () if is_traced(value) else _angles(system, name, np.asarray(value))
        for angle in angles:
            if abs(angle) > 2 * np.pi:
                warnings.warn(
                    f"'{name}' in at is to turn by {angle:g} rad, {abs(angle) / (2 * np.pi):.1f} turns: angles are in "
                    f"radians, and {angle:g} degrees are {np.deg2rad(angle):.4g} rad.",
                    stacklevel=5,
                )


def hold_at(system: MechanismSystem, at: Mapping[str, Any], dtype: Any) -> MechanismSystem:
    """The mechanism with further rows, which hold what is named at a value.

    **Raises:** `InputError` for unknown names and wrong shapes.
    """
    t, q = (jax.ShapeDtypeStruct(x, dtype) for x in ((), system.q0.shape))
    shapes = _shapes(system, at, t, q)  # pyright: ignore[reportArgumentType]
    return _hold_values(system, {name: _check_value(name, value, shapes[name]) for name, value in at.items()})


def posture(system: MechanismSystem, at: Mapping[str, Any], t: Time | float, q: Coordinates) -> Coordinates:
    """The posture that another one leads to where what is named goes to a value.

    **Raises:** `InputError` for unknown names, wrong shapes, and where the mechanism cannot be closed there.
    """
    t = real_array("t", t).astype(q.dtype)
    shapes = _shapes(system, at, t, q)
    end = {name: _check_value(name, value, shapes[name]) for name, value in at.items()}
    _warn_of_degrees(system, end)
    q, phi = _follow_path(system, t, q, end)
    tolerance = tolerance_of(q.dtype)
    if not is_traced(phi) and not np.max(np.abs(phi), initial=0) <= tolerance:
        v = jnp.zeros(jax.eval_shape(system.mass_matrix, t, q).shape[0], q.dtype)
        rows = eqx.filter_eval_shape(constraint_rows, _hold_values(system, end), t, q, v)
        names = [name for name, of_q in zip(rows.names, rows.of_positions, strict=True) if of_q]
        errors = zip(names, np.abs(np.asarray(phi)), strict=True)
        off = ", ".join(f"{name} ({x:.1e})" for name, x in errors if not x <= tolerance)
        wanted = ", ".join(f"{name} = {x}" for name, x in at.items())
        raise InputError(f"the mechanism cannot be closed at {wanted}: still off are {off}.")
    return q if is_traced(q) else as_jax(q)
