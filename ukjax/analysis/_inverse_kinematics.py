"""Inverse kinematics: the posture that puts frames where they are wanted, by springs that pull them there.

Springs of unit stiffness between frames and their targets have the potential and the force

    V = 1/2 |x - x_d|^2 + l^2 / 4 |R - R_d|^2,        Q = -dV/dq N,

where |R - R_d|^2 = 8 sin^2(angle / 2) is Frobenius' norm and l the length that one radian counts as. What the mechanism
settles in under these alone (`_settle`) has V = 0 where the targets can be reached, and else the least V nearby; the
loops are closed all the way. So the derivative is that of an equilibrium.
"""

from collections.abc import Mapping
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._compiler import compile_small, evaluate_by_code
from .._misc._arguments import fails, flag, require_instance
from .._misc._errors import InputError
from .._misc._lie import rotation_matrix
from .._misc._types import Coordinates, Forces, Numbers, Time, Velocities, in_full_precision, is_traced
from .._system._problem import Problem
from .._system._rows import constraint_rows, position_rows
from .._system._system import AbstractForwardingSystem, AbstractSystem
from ..mechanisms._bodies import check_array, check_positive_scalar
from ..mechanisms._postures import hold_at
from ._jacobian import Frame, frame_of, owner_of
from ._settle import settle_posture
from ._states import MechanismSystem, bodies_at, make_zero_velocities, require_mechanism, state_of

Targets = dict[str, Array]


@final
class InverseKinematics(eqx.Module):
    """A posture, and how near it brings the frames to where they are wanted.

    - `q`: the posture (n_q,).
    - `position_error`: by frame, place minus target [m].
    - `orientation_error`: by frame, the angle that is left [rad].
    - `reached`: whether all targets are reached; outside `jit` always true, unless `nearest`.
    """

    q: Coordinates
    position_error: dict[str, Array]
    orientation_error: dict[str, Array]
    reached: Bool[Array, ""]


@final
class TargetSpringSystem(AbstractForwardingSystem):
    """A mechanism under no forces but those of the springs of the module's docstring."""

    system: MechanismSystem  # the mechanism
    positions: Targets  # places of frames by name
    orientations: Targets  # rotations of frames by name; in the plane angles
    length: Array  # what one radian counts as [m]

    def frames(self, q: Coordinates) -> dict[str, Frame]:
        """The frames that are pulled."""
        owners = {name: owner_of(self.system, name) for name in (*self.positions, *self.orientations)}
        placements, _ = bodies_at(self.system, q, dict.fromkeys(body for body, _ in owners.values()))
        return {name: frame_of(placements[body], X) for name, (body, X) in owners.items()}

    def stretch(self, q: Coordinates) -> Float[Array, " k"]:
        """What the springs are off by, such that V is half its square (k,)."""
        frames, parts = self.frames(q), []
        for name, x in self.positions.items():
            parts.append(frames[name].position - x)
        for name, R in self.orientations.items():
            off = frames[name].rotation - R  # pyright: ignore[reportOptionalOperand]
            parts.append(self.length * (off.ravel() / np.sqrt(2) if off.ndim else off[None]))
        return jnp.concatenate(parts)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        rate = lambda v: jax.jvp(self.stretch, (q,), (self.kinematics(t, q, v),))[1]
        return -jax.vjp(rate, v)[1](self.stretch(q))[0]

    def left(self, t: Time, q: Coordinates) -> tuple[Targets, Targets, Array, Array]:
        """How far frames are from their targets, places and angles; `stretch`; and phi."""
        frames = self.frames(q)
        off = {name: frames[name].position - x for name, x in self.positions.items()}
        turned = {name: _angle(frames[name].rotation - R, R) for name, R in self.orientations.items()}  # pyright: ignore
        return off, turned, self.stretch(q), position_rows(self, t, q)

    def nonideal_force(self, t: Time, q: Coordinates, v: Velocities) -> None:
        return None


def _targets(what: str, given: Any, shapes: Any, such_as: str) -> Targets:
    given = {} if given is None else given
    require_instance(what, given, Mapping, such_as)
    return {name: check_array(f"the value of '{name}' in {what}", x, *shapes) for name, x in given.items()}


def _rotation(name: str, value: Array, given: Any) -> Array:
    """A rotation from a unit quaternion or a matrix; in the plane the angle as it is."""
    if value.shape == (4,):
        if fails(lambda p: abs(p @ p - 1) < 1e-3, given):
            raise InputError(f"the value of '{name}' in orientations must be a unit quaternion, got {given}.")
        return rotation_matrix(value)
    if value.shape == (3, 3) and fails(lambda R: np.allclose(R @ R.T, np.eye(3), atol=1e-3), given):
        raise InputError(f"the value of '{name}' in orientations must be a rotation matrix, got {given}.")
    return value


def _angle(off: Array, R: Array) -> Float[Array, ""]:
    """How far a rotation is from another [rad]: |R - R_d| is 2 sqrt(2) sin(angle / 2)."""
    if not R.ndim:
        return jnp.abs(off)
    half = jnp.sqrt(jnp.maximum(jnp.sum(off * off), jnp.finfo(R.dtype).tiny)) / np.sqrt(8)
    return 2 * jnp.arcsin(jnp.minimum(half, 1))


@compile_small
@in_full_precision
def _solve_posture(pulled: TargetSpringSystem, t: Time, q: Coordinates) -> tuple[InverseKinematics, Array]:
    q = settle_posture(pulled, t, q)[0]
    off, turned, stretch, phi = evaluate_by_code(TargetSpringSystem.left, pulled, t, q)
    tolerance = 1e5 * jnp.finfo(q.dtype).eps
    sizes = [jnp.max(jnp.abs(x)) for x in (*pulled.positions.values(), pulled.length)]
    near = jnp.max(jnp.abs(stretch)) <= tolerance * jnp.max(jnp.stack(sizes))
    closed = jnp.max(jnp.abs(phi), initial=0) <= tolerance
    return InverseKinematics(q, off, turned, near & closed), phi


def inverse_kinematics(
    system: AbstractSystem | Problem,
    positions: Mapping[str, Any] | None = None,
    t: Time | float | None = None,
    q: Numbers | None = None,
    *,
    orientations: Mapping[str, Any] | None = None,
    at: Mapping[str, Any] | None = None,
    nearest: bool = False,
    length: Any = 1.0,
) -> InverseKinematics:
    """The posture in which frames are where they are wanted, with all loops closed.

    From the start the frames are pulled to their targets, so of several postures it is one that the start leads to; what
    the targets leave open moves little. The derivative in targets and parameters is that of the implicit function, of a
    redundant mechanism that of the least motion, in the mass metric.

    **Arguments:**

    - `system`: a mechanism, or a `Problem` of one, which brings its start.
    - `positions`: where frames shall be, by name: bodies (their centres of mass) and points as `body.point` [m].
    - `t`: time [s]; of constraints that depend on it.
    - `q`: where to start (n_q,); by default the reference posture.
    - `orientations`: how frames shall be turned from the reference posture, by name: a unit quaternion (4,) or a
      rotation matrix (3, 3), in the plane an angle [rad].
    - `at`: positions of joints and the like to be held exactly, as for `ukjax.mechanisms.problem`.
    - `nearest`: whether, where the targets cannot be reached, the posture is wanted that comes nearest to them.
    - `length`: what one radian counts as where targets cannot all be reached [m].

    **Returns:** `InverseKinematics`.

    **Raises:** `InputError` for names that are not known and wrong shapes; and, unless `nearest`, where the targets
    cannot be reached from this start, with what is left open.
    """
    own, t, q, _ = state_of(system, t, q, None)
    mechanism = require_mechanism(own)
    d, dtype = mechanism.mechanism.dimension, q.dtype
    flag("nearest", nearest)
    places = _targets("positions", positions, ((d,),), "{'arm.tip': (1.0, 0.5)}")
    turns = _targets("orientations", orientations, ((4,), (3, 3)) if d == 3 else ((),), "{'arm': 0.5}")
    if not (places or turns):
        raise InputError("give positions or orientations of one frame at least.")
    for name in (*places, *turns):
        owner_of(mechanism, name)
    turns = {name: _rotation(name, x, orientations[name]) for name, x in turns.items()}  # pyright: ignore
    pulled = TargetSpringSystem(
        hold_at(mechanism, at or {}, dtype),
        {name: x.astype(dtype) for name, x in places.items()},
        {name: x.astype(dtype) for name, x in turns.items()},
        check_positive_scalar("length", length).astype(dtype),
    )
    result, phi = _solve_posture(pulled, t, q)
    if not (nearest or is_traced(result) or result.reached):
        raise InputError(_describe_misses(pulled, result, phi, t))
    return result


def _describe_misses(pulled: TargetSpringSystem, found: InverseKinematics, phi: Array, t: Time) -> str:
    """One sentence on what keeps the targets from being reached."""
    least = 1e5 * np.finfo(phi.dtype).eps
    off = {name: float(np.linalg.norm(x)) for name, x in found.position_error.items()}
    parts = [f"{name} is off by {x:.2g} m" for name, x in off.items() if not x <= least]
    parts += [f"{name} by {x:.2g} rad" for name, x in found.orientation_error.items() if not x <= least]
    q, still = found.q, make_zero_velocities(pulled, t, found.q)
    rows = eqx.filter_eval_shape(constraint_rows, pulled, t, q, still)
    names = [name for name, of_q in zip(rows.names, rows.of_positions, strict=True) if of_q]
    parts += [
        f"{name} by {abs(x):.1e}"
        for name, x in zip(names, np.asarray(phi), strict=True)
        if not abs(x) <= least
    ]
    return f"these targets are not reached from this start: {', '.join(parts)}; nearest=True gives the nearest posture."
