"""Static equilibrium of a system: posture, constraint forces, stability."""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._compiler import compile_small
from .._misc._errors import InputError
from .._misc._types import Coordinates, Forces, Numbers, Time, Velocities, in_full_precision, is_traced
from .._system._constraint import AccelerationConstraint, require_bilateral
from .._system._problem import Problem
from .._system._rows import Rows
from .._system._system import AbstractForwardingSystem, AbstractSystem, names_of, states_of
from ..mechanisms._reactions import Reaction, reactions_along
from ._settle import Stiffness, compute_remaining_step, is_definite, is_out_of_reach, settle_posture
from ._states import make_zero_velocities, mechanism_of, state_of


@final
class Equilibrium(eqx.Module):
    """A posture of rest: Q(t, q, 0) + A^T lambda = 0 on phi(t, q) = 0.

    - `q`: the posture (n_q,).
    - `multipliers`: lambda of least norm, one a row (m,).
    - `constraint_force`: A^T lambda (n,).
    - `residual`: the force out of balance (n,), zero to rounding where `found`.
    - `stiffness`: E K E, what the force out of balance changes by along the constraints: K = -d(Q + A^T lambda)/dq N,
      and E projects on the kernel of A (n, n).
    - `stable`: whether the stiffness is positive along all motions the constraints leave; false also where it is zero. Of
      follower forces and damping `linearize` tells more.
    - `found`: whether it is an equilibrium; outside `jit` always true.
    - `reactions`: of a mechanism, at each joint, by name.
    """

    q: Coordinates
    multipliers: Float[Array, " m"]
    constraint_force: Forces
    residual: Forces
    stiffness: Float[Array, "n n"]
    stable: Bool[Array, ""]
    found: Bool[Array, ""]
    reactions: dict[str, Reaction]


@final
class _HeldStates(AbstractForwardingSystem):
    """A system whose states of first order stay as they are."""

    system: AbstractSystem
    z: Float[Array, " k"]

    @property
    def constraints(self) -> tuple[Any, ...]:
        return (*self.system.constraints, AccelerationConstraint(self._rows, name="held states"))

    def _rows(self, t: Time, q: Coordinates, v: Velocities) -> tuple[Array, Array]:
        return jnp.eye(v.size, dtype=v.dtype)[v.size - self.z.size :], jnp.zeros_like(self.z)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        moving = v.size - self.z.size
        held = jnp.concatenate([v[:moving], self.z.astype(v.dtype)])
        return self.system.force(t, q, held).at[moving:].set(0)


def _open(rows: Rows) -> Float[Array, " m"]:
    """By how much each row is open, or does not let the system rest."""
    parts = [jnp.abs(x) for x in (rows.position_error, rows.velocity_error, rows.b)]
    return jnp.max(jnp.stack(parts), axis=0)


def _settles(here: Stiffness, q: Coordinates) -> Bool[Array, ""]:
    """Whether forces are in balance, and no more than a hair's breadth is left to go."""
    root = jnp.sqrt(jnp.finfo(q.dtype).eps)
    balanced = jnp.linalg.norm(here.W @ here.unbalanced) <= root * here.size
    near = jnp.max(jnp.abs(compute_remaining_step(here))) <= root * (1e-2 + jnp.max(jnp.abs(q)))
    near &= jnp.any(here.reduced != 0)  # without any stiffness, as in free fall, nothing tells how far it is
    return (balanced | near) & jnp.all(_open(here.rows) <= root)


@compile_small
@in_full_precision
def _equilibrium(system: AbstractSystem, t: Time, q: Coordinates) -> tuple[Equilibrium, Stiffness]:
    q, here = settle_posture(system, t, q)
    unit = jnp.eye(len(here.E), dtype=q.dtype)
    least = jnp.sqrt(jnp.finfo(q.dtype).eps) * jnp.linalg.norm(here.reduced)
    beyond = jnp.linalg.norm(here.reduced) * (here.W @ (unit - here.E) @ here.W.T)
    stable = is_definite(here.reduced + beyond - least * unit)
    settled = Equilibrium(
        q=q,
        multipliers=here.multipliers,
        constraint_force=here.rows.A.T @ here.multipliers,
        residual=here.unbalanced,
        stiffness=here.E @ here.K @ here.E,
        stable=stable,
        found=_settles(here, q),
        reactions={},
    )
    return settled, here


def _require_found(system: AbstractSystem, start: Coordinates, found: Equilibrium, here: Stiffness) -> None:
    """Raises `InputError` with the names of what still moves, or of what is open."""
    if is_traced(found) or found.found:
        return
    q, root = found.q, np.sqrt(np.finfo(found.q.dtype).eps)
    errors = zip(here.rows.names, np.asarray(_open(here.rows)), strict=True)
    left = [f"{name} ({x:.1e})" for name, x in errors if not x <= root]
    if left:
        raise InputError(f"there is no equilibrium: open, or moving by themselves, are {', '.join(left)}.")
    names = names_of(system, q, found.residual).velocities
    force = np.abs(np.asarray(here.W @ here.unbalanced))
    worst = np.argsort(-force)[:3]
    text = ", ".join(
        f"{names[i]} ({found.residual[i]:.2g})" for i in worst if force[i] > root * np.max(force)
    )
    if is_out_of_reach(start, q):
        raise InputError(
            f"there is no equilibrium within reach of this start: without end, forces move it along {text}."
        )
    raise InputError(
        f"no equilibrium was found from this start: force out of balance is left along {text}, at q = {q}."
    )


def equilibrium(
    system: AbstractSystem | Problem, t: Time | float | None = None, q: Numbers | None = None
) -> Equilibrium:
    """The posture in which a system rests: Q(t, q, 0) + A^T lambda = 0, phi(t, q) = 0.

    It is where the system settles from the start if it moves in thick oil, so that a start on a slope leads down to a
    stable equilibrium; a start that is an unstable one stays. Closed loops and dependent rows are no trouble. The
    derivative in parameters is that of the implicit function; freedoms without stiffness stay as they are, and so do
    states of first order, such as activations, as a problem has them.

    **Arguments:**

    - `system`: any system, or a `Problem`, which brings its start.
    - `t`: time [s]; forces and constraints are those at this time.
    - `q`: where to start (n_q,); by default of a mechanism the reference posture.

    **Returns:** `Equilibrium`.

    **Raises:** `InputError` where there is none to be found, with the names of what is out of balance, and for
    constraints that do not let the system rest (a drive).
    """
    given, (system, t, q, _) = system, state_of(system, t, q, None)
    require_bilateral("equilibrium", system.constraints)
    if states := len(states_of(system)):
        z = given.v0[-states:] if isinstance(given, Problem) else jnp.zeros(states, q.dtype)
        settled, here = _equilibrium(_HeldStates(system, z), t, q)
        settled = eqx.tree_at(lambda x: x.multipliers, settled, settled.multipliers[:-states])
    else:
        settled, here = _equilibrium(system, t, q)
    _require_found(system, q, settled, here)
    mechanism = mechanism_of(system)
    if mechanism is None:
        return settled
    still = make_zero_velocities(system, t, settled.q)
    states = tuple(x[None] for x in (t, settled.q, still, still, settled.multipliers))
    at = jax.tree.map(lambda x: x[0], reactions_along(mechanism, states, {}))
    return eqx.tree_at(lambda x: x.reactions, settled, at)
