"""Reactions: the force and the torque at each joint, from the multipliers of its rows.

The rows of a joint, differentiated by the twist of the child, say what their multipliers do to it:

    (torque about the centre of mass, force) = (d psi / d twist)^T lambda,

which is what the parent exerts on the child (principle of virtual power). In a tree, whose own joints have no rows,
Newton and Euler say the rest (`TreeSystem.joint_wrenches`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._formula._acceleration import AbstractFormula, UdwadiaKalaba
from .._formula._singular_mass import RangeForm
from .._misc._arguments import require_instance
from .._misc._precision import in_full_precision
from .._misc._types import Coordinates, Time, Velocities
from .._pseudoinverse import GramSchmidt, pinv
from .._system._constraint import constraint_rows
from .._system._problem import resolve_state
from ._absolute import AbsoluteSystem
from ._abstract_joint import AbstractJoint
from ._coordinates import EulerCoordinates
from ._placement import AnyPlacement, PlanarPlacement, Twist
from ._springs import commanded
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
    """

    force: Array
    torque: Array
    body_force: Array
    body_torque: Array
    point: Array
    unique: Bool[Array, ""]


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


def _reaction(joint: AbstractJoint, child: AnyPlacement, wrench: Twist, unique: Bool[Array, ""]) -> Reaction:
    """A force with a torque about the centre of mass, moved to the joint's point."""
    point, force = child.point(child.centre if joint.point is None else joint.point), wrench.velocity
    arm = point - child.p
    if isinstance(child, PlanarPlacement):
        torque = wrench.omega - (arm[0] * force[1] - arm[1] * force[0])
        return Reaction(force, torque, child.back(force), torque, point, unique)
    torque = wrench.omega - jnp.cross(arm, force)
    return Reaction(force, torque, child.back(force), child.back(torque), point, unique)


def _at(
    system: AbsoluteSystem, t: Time, q: Coordinates, v: Velocities, multipliers: Float[Array, " m"]
) -> dict[str, Reaction]:
    A = constraint_rows(system, t, q, v).A
    own = jnp.sum(A * pinv(A, GramSchmidt()).matrix.T, axis=1)  # (A A^+)_ii: 1 where the multiplier is unique
    placements, twists = system.placements(t, q), system.twists(t, q, v)
    found, i = {}, 0
    for joint in system.joints:
        ends = tuple(placements[name] for name in joint.bodies)
        rows = ChildRows(joint, t, ends, tuple(twists[name] for name in joint.bodies))
        psi, transposed = jax.vjp(rows, twists[joint.child])
        k = slice(i, i := i + psi.size)
        unique = jnp.all(1.0 - own[k] <= _SHARED)
        found[joint.name] = _reaction(joint, ends[1], transposed(multipliers[k])[0], unique)
    return found


def _at_tree(
    system: TreeSystem, t: Time, q: Coordinates, v: Velocities, a: Velocities, multipliers: Float[Array, " m"]
) -> dict[str, Reaction]:
    """Unique is what does not change with the multipliers that the rows leave open, I - A A^+."""
    A, placements = constraint_rows(system, t, q, v).A, system.placements(t, q)
    every = jnp.eye(A.shape[0], dtype=A.dtype)
    wrenches, effect = jax.linearize(lambda x: system.joint_wrenches(t, q, v, a, x), multipliers)
    of_each, of_open = (jax.vmap(effect)(x) for x in (every, every - A @ pinv(A, GramSchmidt()).matrix))
    found = {}
    for joint in system.joints:
        unique = _size(of_open[joint.name]) <= _SHARED * _size(of_each[joint.name])
        found[joint.name] = _reaction(joint, placements[joint.child], wrenches[joint.name], unique)
    return found


def _size(wrenches: Twist) -> Float[Array, ""]:
    return jnp.maximum(*(jnp.max(jnp.abs(x), initial=0) for x in (wrenches.omega, wrenches.velocity)))


@eqx.filter_jit
@in_full_precision
def reactions_along(
    system: AbsoluteSystem | TreeSystem, states: tuple[Array, ...], inputs: Mapping[str, Array]
) -> dict[str, Reaction]:
    """The reactions at k states.

    **Arguments:**

    - `system`: a mechanism.
    - `states`: t (k,), q (k, n_q), v (k, n), v' (k, n) and multipliers (k, m).
    - `inputs`: what actuators exert on top of their own drive (k,), by name.
    """

    def at(inputs: Mapping[str, Array], *state: Array) -> dict[str, Reaction]:
        if isinstance(system, TreeSystem):
            return _at_tree(commanded(system, inputs), *state)
        t, q, v, _, multipliers = state
        return _at(system, t, q, v, multipliers)

    return jax.vmap(at)(inputs, *states)


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

    **Raises:** `InputError` for a system that is no mechanism, and as the formula.
    """
    require_instance("the system", system, (AbsoluteSystem, TreeSystem), "assemble(bodies, joints, loads)")
    if hasattr(t, "multipliers"):
        names = ("t", "q", "v", "a", "multipliers")
        return reactions_along(system, tuple(getattr(t, x) for x in names), {})
    if formula is None:
        parts = system.coordinates().values() if isinstance(system, AbsoluteSystem) else ()
        euler = any(isinstance(part, EulerCoordinates) for part in parts)
        formula = RangeForm() if euler else UdwadiaKalaba()
    state = resolve_state(system, t, q, v)[1:]  # pyright: ignore[reportArgumentType]
    motion = formula.acceleration(system, *state)
    states = tuple(x[None] for x in (*state, motion.a, motion.multipliers))
    return jax.tree.map(lambda x: x[0], reactions_along(system, states, {}))
