"""Reactions: the force and the torque at each joint, from the multipliers of its rows.

The rows of a joint, differentiated by the twist of the child, say what their multipliers do to it:

    (torque about the centre of mass, force) = (d psi / d twist)^T lambda,

which is what the parent exerts on the child (principle of virtual power). In a tree, whose own joints have no rows,
Newton and Euler say the rest (`TreeSystem.joint_wrenches`).
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._compiler import evaluate_at_states
from .._compiler._structured._scalarize import scalarize
from .._formula._acceleration import AbstractFormula, UdwadiaKalaba
from .._formula._on_host import acceleration_at
from .._formula._singular_mass import RangeForm
from .._misc._errors import InputError
from .._misc._types import Coordinates, Numbers, Time, Velocities, in_full_precision, is_traced
from .._pseudoinverse import GramSchmidt, pinv, unit_rows_on_host
from .._system._problem import resolve_state
from .._system._rows import constraint_rows
from ._absolute import AbsoluteSystem
from ._abstract_joint import AbstractJoint
from ._coordinates import EulerCoordinates
from ._given_motions import Drive
from ._loads import command_actuators
from ._mechanism_system import MechanismSystem, require_mechanism
from ._placement import AnyPlacement, PlanarPlacement, Twist, moment, rate_of
from ._tree import TreeSystem
from ._vmap_by_structure import vmap_by_structure

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
    unique: Bool[Array, "..."]
    effort: Float[Array, "..."] | None = None
    power: Float[Array, "..."] | None = None


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


ReactionParts = tuple[dict[str, Any], dict[str, Any]]
"""By joint the reaction but for `unique`; and by joint its multipliers, in a tree what it has of each multiplier."""


def _jacobian(system: Any, t: Time, q: Coordinates, v: Velocities, *_: Any) -> Array:
    return constraint_rows(system, t, q, v).A


def _make_reaction(
    joint: AbstractJoint, placements: tuple[AnyPlacement, ...], twists: tuple[Twist, ...], wrench: Twist
) -> tuple[Any, ...]:
    """A force with a torque about the centre of mass, moved to the joint's point: a `Reaction` but for `unique`."""
    child, force = placements[1], wrench.velocity
    point = child.point(child.centre if joint.point is None else joint.point)
    arm = point - child.p
    work = None, None
    if isinstance(joint, Drive):
        driven: Any = joint.joint
        effort = driven.effort(placements[0], wrench)
        work = effort, effort * rate_of(driven.position, placements, twists)
    torque = wrench.omega - moment(arm, force)
    own_torque = torque if isinstance(child, PlanarPlacement) else child.back(torque)
    return force, torque, child.back(force), own_torque, point, *work


def _compute_absolute_reactions(
    system: AbsoluteSystem,
    t: Time,
    q: Coordinates,
    v: Velocities,
    _: Velocities,
    multipliers: Float[Array, " m"],
) -> ReactionParts:
    items, i = [], 0
    placements, twists = system.placements(t, q), system.twists(t, q, v)
    for joint in system.joints:
        ends = tuple(placements[name] for name in joint.bodies)
        moves = tuple(twists[name] for name in joint.bodies)
        items.append((joint, ends, moves, multipliers[i : (i := i + joint.row_count(t, ends, moves))]))

    def reaction(joint: AbstractJoint, ends: tuple, moves: tuple, own: Array) -> tuple[Array, ...]:
        transposed = jax.vjp(ChildRows(joint, t, ends, moves), moves[1])[1]
        return _make_reaction(joint, ends, moves, transposed(own)[0])

    names = [joint.name for joint in system.joints]
    by_joint = dict(zip(names, vmap_by_structure(reaction, items), strict=True))
    return by_joint, {name: own for name, (*_, own) in zip(names, items, strict=True)}


def _compute_tree_reactions(
    system: TreeSystem, t: Time, q: Coordinates, v: Velocities, a: Velocities, multipliers: Float[Array, " m"]
) -> ReactionParts:
    placements, twists = system.placements(t, q), system.twists(t, q, v)
    every = jnp.eye(multipliers.size, dtype=q.dtype)
    wrenches, effect = jax.linearize(lambda x: system.joint_wrenches(t, q, v, a, x), multipliers)
    by_joint = {}
    for joint in system.joints:
        ends = tuple(placements[name] for name in joint.bodies)
        moves = tuple(twists[name] for name in joint.bodies)
        by_joint[joint.name] = _make_reaction(joint, ends, moves, wrenches[joint.name])
    return by_joint, jax.vmap(effect)(every)


def _compute_range_projectors(A: Any) -> tuple[Any, Any]:
    """B B^+ of each state, and the norms that rows have in A = diag(norms) B: 1 - (B B^+)_ii is zero where a multiplier
    is unique, and the columns of I - B B^+ are what the rows leave open of norms * multipliers."""
    if is_traced(A):
        held = jax.vmap(lambda A: A @ pinv(A, GramSchmidt()).matrix)(A)
        return held, jnp.ones(A.shape[:2], A.dtype)
    unit, norms = unit_rows_on_host(np.asarray(A))
    return _project_onto_range(unit @ unit.swapaxes(1, 2), GramSchmidt().threshold(A.dtype) ** 2), np.where(
        np.isfinite(norms), norms, 1
    )


def _project_onto_range(gram: np.ndarray, rcond: float) -> np.ndarray:
    """The projections (k, m, m) onto the ranges of symmetric matrices: by eigenvectors, unless it is the identity.

    That it is where the least eigenvalue, at least one over the norm of the inverse, is above the threshold. (The trace
    of an inverse is no such bound: an eigenvalue that is rounding may be negative.)
    """
    (_, m, _), held = gram.shape, np.broadcast_to(np.eye(gram.shape[1], dtype=gram.dtype), gram.shape).copy()
    try:
        unsure = ~(rcond * m * np.linalg.norm(np.linalg.inv(gram), axis=(1, 2)) < 1)
    except np.linalg.LinAlgError:
        unsure = np.ones(len(gram), bool)
    squares, vectors = np.linalg.eigh(gram[unsure])
    kept = vectors * (squares > rcond * squares.max(axis=1, initial=0, keepdims=True))[:, None]
    held[unsure] = kept @ kept.swapaxes(1, 2)
    return held


def _judge_uniqueness(system: MechanismSystem, A: Any, effects: dict[str, Any]) -> dict[str, Any]:
    (held, norms), unique, i = _compute_range_projectors(A), {}, 0
    for joint in system.joints:
        effect = effects[joint.name]
        if isinstance(
            system, TreeSystem
        ):  # it is, if what the rows leave open of the multipliers does not change it
            of_each = [
                x.reshape(*x.shape[:2], math.prod(x.shape[2:])) / norms[..., None]
                for x in jax.tree.leaves(effect)
            ]
            unique[joint.name] = _largest_entry([x - held @ x for x in of_each]) <= _SHARED * _largest_entry(
                of_each
            )
        else:
            own = held.diagonal(axis1=1, axis2=2)[:, i : (i := i + effect.shape[1])]
            unique[joint.name] = (1.0 - own <= _SHARED).all(axis=1)
    return unique


def _largest_entry(arrays: list[Any]) -> Any:
    return jnp.stack([abs(x).max(axis=(1, 2), initial=0) for x in arrays]).max(axis=0)


@eqx.filter_jit
@in_full_precision
def _vmap_states(function: Any, system: Any, inputs: Any, states: tuple[Array, ...]) -> Any:
    at = lambda inputs, *state: function(command_actuators(system, inputs), *state)
    return jax.vmap(scalarize(at, fallback="xla"))(inputs, *states)


@in_full_precision
def reactions_along(
    system: MechanismSystem,
    states: tuple[Array, ...],
    inputs: Mapping[str, Array],
    rank: Array | None = None,
) -> dict[str, Reaction]:
    """The reactions at k states."""
    known = not (inputs or is_traced((system, states)))
    at = lambda function: (
        evaluate_at_states(function, system, *states)
        if known
        else _vmap_states(function, system, inputs, states)
    )
    by_joint, effects = at(
        _compute_tree_reactions if isinstance(system, TreeSystem) else _compute_absolute_reactions
    )
    if rank is None or is_traced(rank) or np.any(np.asarray(rank) < states[-1].shape[-1]):
        unique = _judge_uniqueness(system, at(_jacobian), effects)
    else:
        unique: dict[str, Any] = dict.fromkeys(by_joint, np.ones(states[0].shape, bool))
    return {
        name: jax.tree.map(jnp.asarray, Reaction(*x[:5], unique=unique[name], effort=x[5], power=x[6]))
        for name, x in by_joint.items()
    }


def _require_own(system: MechanismSystem, run: Any) -> None:
    """Raises `InputError` unless a trajectory has a mechanism's coordinates and rows; behind them may be a servo's."""
    t, q = jax.ShapeDtypeStruct((), run.q.dtype), jax.ShapeDtypeStruct(system.q0.shape, run.q.dtype)
    v = jax.eval_shape(lambda t, q: system.mass_matrix(t, q)[0], t, q)
    names = eqx.filter_eval_shape(constraint_rows, system, t, q, v).names
    simulated = (run.q.shape[-1], run.v.shape[-1], run.row_names[: len(names)])
    if simulated != (q.size, v.size, names):
        raise InputError(
            f"the trajectory is not one of this mechanism: it has {simulated[0]} coordinates and the rows "
            f"{', '.join(run.row_names) or '(none)'}; here are {q.size} and {', '.join(names) or '(none)'}."
        )


def reactions(
    system: MechanismSystem,
    t: "Time | float | Trajectory",
    q: Numbers | None = None,
    v: Numbers | None = None,
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
    require_mechanism(system)
    if hasattr(t, "row_names"):
        _require_own(system, t)
        names = ("t", "q", "v", "a", "multipliers")
        return reactions_along(system, tuple(getattr(t, x) for x in names), {}, t.rank)  # pyright: ignore[reportAttributeAccessIssue]
    if formula is None:
        parts = system.coordinates().values() if isinstance(system, AbsoluteSystem) else ()
        euler = any(isinstance(part, EulerCoordinates) for part in parts)
        formula = RangeForm() if euler else UdwadiaKalaba()
    state = resolve_state(system, t, q, v)[1:]  # pyright: ignore[reportArgumentType]
    motion = acceleration_at(formula, system, *state)
    states = tuple(x[None] for x in (*state, motion.a, motion.multipliers))
    return jax.tree.map(lambda x: x[0], reactions_along(system, states, {}))


# --- Efforts of loads


@final
class Effort(eqx.Module):
    """What a load does; along a trajectory with times in front.

    - `effort`: force or torque [N], [N m]: a scalar of springs and actuators, a vector of a `Force`, one row a body of
      `Gravity`; in world axes.
    - `rate`: what it works on, of the same shape: a velocity [m/s], an angular velocity [rad/s].
    - `power`: their product [W].
    """

    effort: Array
    rate: Array
    power: Float[Array, ""]


@eqx.filter_jit
@in_full_precision
def efforts_along(
    system: MechanismSystem, states: tuple[Array, ...], inputs: Mapping[str, Array]
) -> dict[str, Effort]:
    """The efforts of all loads at k states."""

    def at(inputs: Mapping[str, Array], t: Time, q: Coordinates, v: Velocities) -> dict[str, Effort]:
        mechanism = command_actuators(system, inputs).mechanism
        placements, twists = system.placements(t, q), system.twists(t, q, v)
        efforts = mechanism.efforts(t, placements, twists)
        rates = mechanism.rates(placements, twists)
        if isinstance(system, TreeSystem):
            efforts += [load.effort(t, q, v) for load in system.on_coordinates]
            rates += [load.rate(q, v) for load in system.on_coordinates]
            motions = system.motions(t, q, v)
            efforts += [load.effort(motion) for load, motion in motions]
            rates += [load.rate(motion) for load, motion in motions]
        names = [load.name for load in system.loads]
        return {name: Effort(e, r, jnp.sum(e * r)) for name, e, r in zip(names, efforts, rates, strict=True)}

    return jax.vmap(scalarize(at, fallback="xla"))(inputs, *states)


def efforts(
    system: MechanismSystem,
    t: "Time | float | Trajectory",
    q: Numbers | None = None,
    v: Numbers | None = None,
) -> dict[str, Effort]:
    """The effort and the power of each load, at one state or along a run.

    A load works by e . r, where its effort e is a force or torque and r the rate that it works on (principle of virtual
    power); a positive power feeds the mechanism.

    **Arguments:**

    - `system`: a mechanism, in absolute coordinates or a tree.
    - `t`: time [s]; or a `Trajectory` of the system.
    - `q`: generalized coordinates (n_q,).
    - `v`: generalized velocities (n,).

    **Returns:** an `Effort` by the load's name; along a trajectory with its times in front.

    **Raises:** `InputError` for a system that is no mechanism, and a state of wrong shape.
    """
    require_mechanism(system)
    if hasattr(t, "multipliers"):
        return efforts_along(system, tuple(getattr(t, x) for x in ("t", "q", "v")), {})
    states = tuple(x[None] for x in resolve_state(system, t, q, v)[1:])  # pyright: ignore[reportArgumentType]
    return jax.tree.map(lambda x: x[0], efforts_along(system, states, {}))
