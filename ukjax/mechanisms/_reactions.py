"""Reactions: the force and the torque at each joint, from the multipliers of its rows.

The rows of a joint, differentiated by the twist of the child, say what their multipliers do to it:

    (torque about the centre of mass, force) = (d psi / d twist)^T lambda,

which is what the parent exerts on the child (principle of virtual power). In a tree, whose own joints have no rows,
Newton and Euler say the rest (`TreeSystem.joint_wrenches`).
"""

from typing import TYPE_CHECKING, Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._formula._acceleration import AbstractFormula, UdwadiaKalaba
from .._formula._singular_mass import RangeForm
from .._misc._arguments import require_instance
from .._misc._errors import InputError
from .._misc._precision import in_full_precision
from .._misc._types import Coordinates, Time, Velocities
from .._pseudoinverse import GramSchmidt, pinv
from .._system._constraint import constraint_rows
from .._system._problem import resolve_state
from ._absolute import AbsoluteSystem
from ._abstract_joint import AbstractJoint
from ._coordinates import EulerCoordinates
from ._given_motions import Drive
from ._joints import Revolute
from ._placement import AnyPlacement, PlanarPlacement, Twist, rate_of
from ._tree import TreeSystem

if TYPE_CHECKING:
    from .._run._trajectory import Trajectory

_SHARED = 1e-6
"""How much of a multiplier may be shared with other rows before it no longer counts as unique (as `check`)."""


@final
class Reaction(eqx.Module):
    """What the parent of a joint exerts on its child, at the joint's point; along a trajectory with times in front.

    - `force`: in world axes [N] (3,) or (2,).
    - `torque`: about the joint's point, in world axes [N m] (3,), a scalar in the plane.
    - `body_force`, `body_torque`: the same in axes that turn with the child, those of the reference posture.
    - `point`: where the joint's point is, on the child [m].
    - `unique`: whether the joints leave no other: false where a joint is redundant and another could bear the load.
    - `effort`: of a `Drive`, what its motor does along the joint's position: the torque about the axis of a hinge [N m],
      the force along a slide [N], positive towards larger positions; None of other joints.
    - `power`: of a `Drive`, effort times the rate of the position [W]; positive where the motor does work.
    """

    force: Array
    torque: Array
    body_force: Array
    body_torque: Array
    point: Array
    unique: Bool[Array, ""]
    effort: Float[Array, ""] | None = None
    power: Float[Array, ""] | None = None


@final
class ChildRows(eqx.Module):
    """All rows of a joint at the level of velocities, as a function of the child's twist."""

    joint: AbstractJoint
    t: Time
    placements: tuple[AnyPlacement, ...]
    twists: tuple[Twist, ...]

    def __call__(self, child: Twist) -> Array:
        twists = (self.twists[0], child, *self.twists[2:])
        return self.joint.velocity_rows(self.t, self.placements, twists)


def _reaction(
    joint: AbstractJoint,
    placements: tuple[AnyPlacement, ...],
    twists: tuple[Twist, ...],
    wrench: Twist,
    unique: Bool[Array, ""],
) -> Reaction:
    """A force with a torque about the centre of mass, moved to the joint's point; of a drive its work."""
    child, force = placements[1], wrench.velocity
    point = child.point(child.centre if joint.point is None else joint.point)
    arm = point - child.p
    work = _work(joint.joint, placements, twists, wrench) if isinstance(joint, Drive) else (None, None)
    if isinstance(child, PlanarPlacement):
        torque = wrench.omega - (arm[0] * force[1] - arm[1] * force[0])
        return Reaction(force, torque, child.back(force), torque, point, unique, *work)
    torque = wrench.omega - jnp.cross(arm, force)
    return Reaction(force, torque, child.back(force), child.back(torque), point, unique, *work)


def _work(
    joint: Any, placements: tuple[AnyPlacement, ...], twists: tuple[Twist, ...], wrench: Twist
) -> tuple[Array, Array]:
    """Effort and power of a drive, whose wrench is a pure torque about the axis of a hinge, or a force along a slide."""
    if not isinstance(joint, Revolute):
        effort = jnp.dot(placements[0].vector(joint.axis), wrench.velocity)
    elif joint.axis is None:
        effort = wrench.omega
    else:
        effort = jnp.dot(placements[0].vector(joint.axis), wrench.omega)
    return effort, effort * rate_of(joint.position, placements, twists)


def _at(
    system: AbsoluteSystem, t: Time, q: Coordinates, v: Velocities, multipliers: Float[Array, " m"]
) -> dict[str, Reaction]:
    A = constraint_rows(system, t, q, v).A
    own = jnp.sum(A * pinv(A, GramSchmidt()).matrix.T, axis=1)  # (A A^+)_ii: 1 where the multiplier is unique
    placements, twists = system.placements(t, q), system.twists(t, q, v)
    found, i = {}, 0
    for joint in system.joints:
        ends, moving = (tuple(x[name] for name in joint.bodies) for x in (placements, twists))
        rows = ChildRows(joint, t, ends, moving)
        psi, transposed = jax.vjp(rows, twists[joint.child])
        k = slice(i, i := i + psi.size)
        unique = jnp.all(1.0 - own[k] <= _SHARED)
        found[joint.name] = _reaction(joint, ends, moving, transposed(multipliers[k])[0], unique)
    return found


def _at_tree(
    system: TreeSystem, t: Time, q: Coordinates, v: Velocities, a: Velocities, multipliers: Float[Array, " m"]
) -> dict[str, Reaction]:
    """Unique is what does not change with the multipliers that the rows leave open, I - A A^+."""
    A, placements, twists = (
        constraint_rows(system, t, q, v).A,
        system.placements(t, q),
        system.twists(t, q, v),
    )
    every = jnp.eye(A.shape[0], dtype=A.dtype)
    wrenches, effect = jax.linearize(lambda x: system.joint_wrenches(t, q, v, a, x), multipliers)
    of_each, of_open = (jax.vmap(effect)(x) for x in (every, every - A @ pinv(A, GramSchmidt()).matrix))
    found = {}
    for joint in system.joints:
        unique = _size(of_open[joint.name]) <= _SHARED * _size(of_each[joint.name])
        ends, moving = (tuple(x[name] for name in joint.bodies) for x in (placements, twists))
        found[joint.name] = _reaction(joint, ends, moving, wrenches[joint.name], unique)
    return found


def _size(wrenches: Twist) -> Float[Array, ""]:
    return jnp.maximum(*(jnp.max(jnp.abs(x), initial=0) for x in (wrenches.omega, wrenches.velocity)))


@eqx.filter_jit
@in_full_precision
def _along(system: AbsoluteSystem | TreeSystem, *states: Array) -> dict[str, Reaction]:
    if isinstance(system, TreeSystem):
        return jax.vmap(lambda *state: _at_tree(system, *state))(*states)
    return jax.vmap(lambda t, q, v, _, multipliers: _at(system, t, q, v, multipliers))(*states)


def _require_own(system: AbsoluteSystem | TreeSystem, run: Any) -> None:
    """Raises `InputError` unless a trajectory has a mechanism's coordinates and rows; behind them may be a servo's."""
    t, q = jax.ShapeDtypeStruct((), run.q.dtype), jax.ShapeDtypeStruct(system.q0.shape, run.q.dtype)
    v = jax.eval_shape(lambda t, q: system.mass_matrix(t, q)[0], t, q)
    names = eqx.filter_eval_shape(constraint_rows, system, t, q, v).names
    found = (run.q.shape[-1], run.v.shape[-1], run.row_names[: len(names)])
    if found != (q.size, v.size, names):
        raise InputError(
            f"the trajectory is not one of this mechanism: it has {found[0]} coordinates and the rows "
            f"{', '.join(run.row_names) or '(none)'}; here are {q.size} and {', '.join(names) or '(none)'}."
        )


def reactions(
    system: AbsoluteSystem | TreeSystem,
    t: "Time | float | Trajectory",
    q: Coordinates | None = None,
    v: Velocities | None = None,
    *,
    formula: AbstractFormula | None = None,
) -> dict[str, Reaction]:
    """The force and the torque that the parent of each joint exerts on its child, at one state or along a run.

    Where joints are redundant, as a door with three hinges, the motion does not depend on who bears what, and the
    multipliers are those of least norm; `unique` tells where that is a choice.

    **Arguments:**

    - `system`: a mechanism, in absolute coordinates or a tree.
    - `t`: time [s]; or a `Trajectory` of the system, whose multipliers are taken as they are.
    - `q`: generalized coordinates (n_q,).
    - `v`: generalized velocities (n,).
    - `formula`: gives the multipliers at one state; by default `UdwadiaKalaba`, for Euler parameters `RangeForm`.

    **Returns:** a `Reaction` by joint name; along a trajectory with its times in front.

    **Raises:** `InputError` for a system that is no mechanism, for a trajectory of another one, and as the formula.
    """
    require_instance("the system", system, (AbsoluteSystem, TreeSystem), "assemble(bodies, joints, loads)")
    if hasattr(t, "row_names"):
        _require_own(system, t)
        return _along(system, t.t, t.q, t.v, t.a, t.multipliers)  # pyright: ignore[reportAttributeAccessIssue]
    if formula is None:
        parts = system.coordinates().values() if isinstance(system, AbsoluteSystem) else ()
        euler = any(isinstance(part, EulerCoordinates) for part in parts)
        formula = RangeForm() if euler else UdwadiaKalaba()
    state = resolve_state(system, t, q, v)[1:]  # pyright: ignore[reportArgumentType]
    motion = formula.acceleration(system, *state)
    return jax.tree.map(
        lambda x: x[0], _along(system, *(x[None] for x in (*state, motion.a, motion.multipliers)))
    )
