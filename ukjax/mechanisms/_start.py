"""From a mechanism to a problem: a posture, velocities that fit the joints, and the inputs of actuators."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import evaluate_at_state
from .._formula._equations import equations_at
from .._misc._arguments import explain_arguments, real_array
from .._misc._errors import InputError, require_known, unknown_name
from .._misc._types import Coordinates, Numbers, Time, Velocities, as_jax, in_full_precision, is_traced
from .._pseudoinverse import GramSchmidt, pinv, solve_on_host
from .._system._problem import Problem, resolve_state
from .._system._rows import velocity_rows
from .._system._stabilize import NoStabilizer
from .._system._system import states_of
from ._abstract_joint import AbstractAxisJoint
from ._bodies import PointMass, check_array
from ._joints import Connect
from ._loads import Actuator
from ._mechanism_system import require_mechanism
from ._placement import rate_of
from ._postures import close_loops, hold_joint, joints_that_stay, posture
from ._tree import TreeSystem


def compute_named_rates(
    system: Any, names: Iterable[str], t: Time, q: Coordinates, v: Velocities
) -> list[Array]:
    """What velocities are given of under these names: a joint's position, a body's turning, a point."""
    bodies = {body.name: body for body in system.bodies}
    joints = {joint.name: joint for joint in system.joints if isinstance(joint, AbstractAxisJoint)}
    labels = system.velocity_labels if isinstance(system, TreeSystem) else ()
    placements, twists = system.placements(t, q), system.twists(t, q, v)

    def rate(name: str) -> Array:
        if name in labels:
            return v[labels.index(name)]
        if name in joints:
            ends = joints[name].bodies
            return rate_of(joints[name].position, [placements[x] for x in ends], [twists[x] for x in ends])
        if name in bodies:
            twist = twists[name]
            return twist.velocity if isinstance(bodies[name], PointMass) else twist.omega
        points = system.points(t, q)
        if name in points:
            return jax.jvp(lambda q: system.points(t, q)[name], (q,), (system.kinematics(t, q, v),))[1]
        raise unknown_name("joint, body or point", name, [*joints, *dict.fromkeys([*bodies, *points])])

    return [rate(name) for name in names]


def _velocity_equations(
    parameters: tuple[Any, dict[str, Array], tuple[str, ...]], t: Time, q: Coordinates
) -> tuple[Array, Array]:
    """A and b of A v = b: the joints' rows, those of joints that stay at rest, and those of the rates that are given."""
    system, targets, names = parameters
    stay = [joint for joint in system.joints if joint.name in names]

    def misses(v: Velocities) -> tuple[Array, Array]:
        off = [velocity_rows(system, t, q, v)]
        placements, twists = system.placements(t, q), system.twists(t, q, v)
        for joint in stay:
            ends = [placements[x] for x in joint.bodies], [twists[x] for x in joint.bodies]
            off.append(rate_of(hold_joint(system, joint, placements), *ends))
        if targets:
            rates = zip(compute_named_rates(system, targets, t, q, v), targets.values(), strict=True)
            off += [jnp.atleast_1d(rate - wanted) for rate, wanted in rates]
        return jnp.concatenate(off), jnp.concatenate(off)

    A, miss = jax.jacfwd(misses, has_aux=True)(jnp.zeros(len(system.velocity_labels), q.dtype))
    return A, -miss


@in_full_precision
def _solve_velocity(
    system: Any, t: Time, q: Coordinates, targets: dict[str, Array], stay: tuple[str, ...] = ()
) -> tuple[Array, Array]:
    """v, and by how much it misses the rows."""
    method = GramSchmidt()
    if is_traced((system, t, q, targets)):
        A, b = _velocity_equations((system, targets, stay), t, q)
        v = pinv(A, method).matrix @ b
    else:
        A, b = evaluate_at_state(_velocity_equations, (system, targets, stay), t, q)
        if not (np.all(np.isfinite(A)) and np.all(np.isfinite(b))):
            raise InputError(
                f"rows of the joints are not finite at t = {t}, q = {q}: what do their functions return?"
            )
        v = as_jax(solve_on_host(A, b, method.threshold(q.dtype)))
        return v, A @ np.asarray(v) - b
    return v, A @ v - b


def _as_problem(system: Any) -> Problem:
    """A mechanism at rest in its reference posture, unless it is a problem already."""
    if isinstance(system, Problem):
        require_mechanism(system.system)
        return system
    require_mechanism(system)
    still = np.zeros(len(system.velocity_labels), system.q0.dtype)
    return Problem(system, system.q0, still, 0.0, 10.0, system.points)


def _require_named(what: str, values: Any, such_as: str) -> None:
    if not isinstance(values, Mapping):
        raise InputError(f"{what} must be a dict of values by name, such as {such_as}, got {values!r}.")


def velocity(
    system: Any, rates: Mapping[str, Any], t: Time | float = 0.0, q: Numbers | None = None
) -> Velocities:
    """The velocities of a mechanism of which a few are given: they meet its joints, and those given.

    A joint that is not named is at rest, unless it is part of a loop, or on the way from the ground to a body or point
    that is named. Where motion is still open, it is the least v.

    **Arguments:**

    - `system`: a mechanism, assembled in any coordinates, or a `Problem` of one.
    - `rates`: by name: of a joint with a position, its rate [rad/s] or [m/s]; of a body, its angular velocity in
      world axes [rad/s], a scalar in the plane; of a point mass or a point `body.point`, its velocity [m/s].
    - `t`: time [s].
    - `q`: generalized coordinates (n_q,); by default the reference posture, or the problem's start.

    **Returns:** v (n,).

    **Raises:** `InputError` for an unknown name, and where the joints do not allow these rates.
    """
    given = _as_problem(system)
    system = given.system
    _require_named("rates", rates, "{'crank': 3.0}")
    q = real_array("q", given.q0 if q is None else q)
    still = np.zeros(len(system.velocity_labels), q.dtype)
    system, t, q, _ = resolve_state(system, t, q, still)
    shapes = (
        jax.eval_shape(lambda t, q, v: compute_named_rates(system, rates, t, q, v), t, q, still)
        if rates
        else []
    )
    targets = {
        name: check_array(f"the rate of '{name}'", value, like.shape).astype(q.dtype)
        for (name, value), like in zip(rates.items(), shapes, strict=True)
    }
    # In a tree the least v leaves these joints at rest by itself; and if nothing moves, they do not.
    traced = is_traced((system, t, q, targets))
    solution: Any = (None, None) if rates or traced else _solve_velocity(system, t, q, targets)
    if solution[0] is None or np.any(solution[0]):
        stay = () if isinstance(system, TreeSystem) else joints_that_stay(system, rates)
        solution = _solve_velocity(system, t, q, targets, tuple(joint.name for joint in stay))
    v, miss = solution
    if not is_traced(miss):
        off, size = np.abs(miss), np.max(np.abs(v), initial=0)
        least = np.sqrt(jnp.finfo(q.dtype).eps) * max(size, 1.0)
        if off.max(initial=0) > least:
            raise InputError(_why_no_motion(system, rates, off > least, off.max(), (t, q, still)))
    return v


def _why_no_motion(
    system: Any, rates: Mapping[str, Any], missed: np.ndarray, worst: float, state: tuple[Any, ...]
) -> str:
    """Which rows no velocities meet: those that joints and drives have without them, or those of the rates given."""
    if rates:
        return f"no motion of the mechanism has the rates given for {', '.join(rates)}: off by {worst:.1e}."
    rows = equations_at(system, NoStabilizer(), *state).rows
    names = [
        name for name, miss in zip(np.array(rows.names)[rows.of_velocities], missed, strict=False) if miss
    ]
    return (
        f"no motion of the mechanism meets the rows {', '.join(names)} at t = {state[0]}: off by {worst:.1e}. A drive "
        "asks for a rate that it cannot have in this posture, such as a dead centre: start from another."
    )


def _close_connects(system: Any, t: Any, q0: Array) -> Array:
    """A start from which `posture` can lead on: with the loops closed that may be open in the reference posture."""
    if not isinstance(system, TreeSystem) or not any(isinstance(x, Connect) for x in system.loops):
        return q0
    if is_traced((system, t, q0)):
        return q0
    still, t = np.zeros(len(system.velocity_labels), q0.dtype), np.asarray(t, q0.dtype)
    return close_loops(system, t, q0, still)[0]  # pyright: ignore[reportArgumentType]


_MEANT = {
    **dict.fromkeys(("angles", "positions", "posture", "q"), "at=, positions by name, or q0="),
    **dict.fromkeys(("velocities", "speeds", "v"), "rates=, velocities by name, or v0="),
}


@explain_arguments(_MEANT)
def problem(
    system: Any,
    *,
    q0: Numbers | None = None,
    v0: Numbers | None = None,
    at: Mapping[str, Any] | None = None,
    rates: Mapping[str, Any] | None = None,
    t0: float | None = None,
    t1: float | None = None,
    name: str | None = None,
    citation: str | None = None,
) -> Problem:
    """A mechanism with its start, to be simulated.

    With `at` it starts where joints are at given positions, exactly, and the rest follows: from the reference posture, or
    from a problem's start, they go there in small steps, and all joints stay closed. So a linkage keeps the assembly it
    is drawn in, elbow up or down. A joint that is not named stays as it is, unless it is part of a loop, or on the way
    from the ground to a body or point that is named. What is still open moves as little as it can, in the mass metric. Of
    a mechanism with `constraints` of its own, other joints may move, too.

    **Arguments:**

    - `system`: a mechanism, assembled in any coordinates; or a `Problem` of one, such as a robot's, with another start.
    - `q0`: initial coordinates (n_q,); by default the reference posture, or the problem's.
    - `v0`: initial velocities (n,); by default those of `rates`; without any, the problem's own where its
      start is kept.
    - `at`: positions by name, counted from the reference posture: of a tree's coordinate its value; of a `Revolute`,
      `Prismatic`, `Cylindrical` or `Screw` joint, the angle [rad] or slide [m]; of a `Universal`, its two angles; of a
      `Spherical`, the unit quaternion of the child against the parent (4,), in the plane the angle; of a `Free`,
      displacement [m] and orientation, (7,) or (3,); of a body in the plane, the angle it has turned, in space its unit
      quaternion; of a point mass or a point `body.point`, its place [m]. Of an angle beyond a turn there is a warning,
      since it may be in degrees.
    - `rates`: velocities by name, as for `velocity`; by default at rest, as far as the joints allow. States of first
      order have names, too; by default they stay as they are in the problem.
    - `t0`, `t1`: start and end [s]; by default the problem's, or 0 and 10.
    - `name`: what plots, summaries and files of its runs are titled; by default the problem's or the mechanism's name.
    - `citation`: where it comes from; by default as of the problem.

    **Returns:** the `Problem`, with the mechanism's named points.

    **Raises:** `InputError` as `velocity`, for both `v0` and `rates`, for both `q0` and `at`, and where the mechanism
    cannot be closed `at` these positions.
    """
    given = _as_problem(system)
    if v0 is not None and rates is not None:
        raise InputError("give v0 or rates, not both.")
    if q0 is not None and at is not None:
        raise InputError("give q0 or at, not both.")
    if at is not None:
        _require_named("at", at, "{'crank': 0.5}")
    kept, system = system is given and q0 is None and at is None and rates is None, given.system
    start: Any = given.t0 if t0 is None else t0
    q0 = given.q0 if q0 is None else q0
    if at:
        q0 = posture(system, at, start, _close_connects(system, start, given.q0))
    if v0 is None:
        rates = {} if rates is None else rates
        if (states := states_of(system)) and isinstance(rates, Mapping):  # which stay as they are
            rates = dict(zip(states, given.v0[-len(states) :], strict=True)) | dict(rates)
        v0 = given.v0 if kept else velocity(system, rates, start, q0)
    return dataclasses.replace(
        given,
        q0=q0,
        v0=v0,
        t0=start,
        t1=given.t1 if t1 is None else t1,
        reference=None,
        name=given.name if name is None else name,
        citation=given.citation if citation is None else citation,
    )


@final
class InputMatrix(eqx.Module):
    """B_u(t, q) of actuators: the generalized forces of unit efforts, one column each."""

    system: Any
    actuators: tuple[Actuator, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the inputs: those of the actuators."""
        return tuple(actuator.name for actuator in self.actuators)

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, "n p"]:
        system, placements = self.system, self.system.placements(t, q)
        bodies = {body.name: body for body in system.bodies}
        still = jnp.zeros(jax.eval_shape(system.mass_matrix, t, q).shape[0], q.dtype)

        def rates(v: Velocities) -> Array:
            twists = system.twists(t, q, v)
            return jnp.stack([actuator.rate(bodies, placements, twists) for actuator in self.actuators])

        return jax.jacrev(rates)(still).T


def input_matrix(system: Any, *names: str) -> InputMatrix:
    """What the actuators of a mechanism do, for `ukjax.servo_control` and `with_servo`.

    **Arguments:**

    - `system`: a mechanism, assembled in any coordinates.
    - `names`: of its actuators, in the order of the inputs; by default all.

    **Returns:** a function of (t, q): the generalized forces of unit efforts, one column for each actuator (n, p).

    **Raises:** `InputError` for an unknown name, and for a mechanism without actuators.
    """
    require_mechanism(system)
    known = {load.name: load for load in system.loads if isinstance(load, Actuator)}
    if not known:
        raise InputError("this mechanism has no actuators: give Actuator('motor', joint) among its loads.")
    require_known("actuator", known, *names)
    return InputMatrix(system, tuple(known[name] for name in names or known))
