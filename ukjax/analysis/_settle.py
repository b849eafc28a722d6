"""Where a system comes to rest: static equilibrium on the constraints, and its derivative.

With the projector E on the kernel of all rows A, and lambda = -(A^T)^+ Q, the force out of balance is

    r = Q(t, q, 0) + A^T lambda = E Q,

and what of it changes with q along the constraints is the stiffness K = -d(Q + A^T lambda)/dq N, lambda held fixed, the
geometric part of the constraint forces included. A step is one of implicit Euler of motion in thick oil, G dq/ds = r,

    (E K E + mu G) dv = r,        q <- q + N dv, projected onto phi = 0,

with the mass metric G. It is accepted where the force found at its end is near to what K foretold; then mu falls, and
the steps become Newton's (pseudo-transient continuation; Kelley and Keyes 1998, SIAM J. Numer. Anal. 35, 508-523). So the
way leads down: to a stable posture, unless the start is an equilibrium itself.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._compiler import evaluate_by_code
from .._formula._equations import applied_forces
from .._misc._types import (
    Coordinates,
    Forces,
    MassMatrix,
    Time,
    Velocities,
    choose_by_precision,
    in_full_precision,
)
from .._motion._project import Projection
from .._pseudoinverse import GramSchmidt, inverse_cholesky, pinv
from .._system._rows import Rows, constraint_rows
from .._system._system import AbstractSystem, has_quasi_velocities
from ._states import make_zero_velocities

_STEPS = 300
"""At most. From far away it takes some 30 steps."""

_FORETOLD = 0.5
"""A step counts where the force at its end differs from the foretold one by at most this share of that at its start."""


class Stiffness(NamedTuple):
    """Forces and stiffness at one posture, v = 0."""

    rows: Rows  # the constraint rows
    multipliers: Float[Array, " m"]  # lambda of least norm (m,)
    unbalanced: Forces  # r (n,)
    size: Float[Array, ""]  # how large the forces are that are in balance, in the norm of W
    E: Float[Array, "n n"]  # projector on the kernel of A (n, n)
    W: Float[Array, "n n"]  # W^T W = G^-1 (n, n)
    K: Float[Array, "n n"]  # the stiffness (n, n)

    @property
    def reduced(self) -> Float[Array, "n n"]:
        """W E K E W^T, whose eigenvalues along the constraints are those of K in the metric."""
        root = self.W @ self.E
        return root @ self.K @ root.T


def advance_coordinates(system: AbstractSystem, t: Time, q: Coordinates, dv: Velocities) -> Coordinates:
    """q after moving with velocities dv for one unit of time, by one Runge-Kutta step: quaternions keep their length."""
    if not has_quasi_velocities(system):
        return q + dv
    rate = lambda q: system.kinematics(t, q, dv)
    k1 = rate(q)
    k2 = rate(q + 0.5 * k1)
    k3 = rate(q + 0.5 * k2)
    return q + (k1 + 2.0 * k2 + 2.0 * k3 + rate(q + k3)) / 6.0


def balance(
    system: AbstractSystem, t: Time, q: Coordinates, multipliers: Float[Array, " m"]
) -> tuple[Forces, Float[Array, " m"]]:
    """Q + c + A^T lambda at rest, and phi (0 for rows that have none)."""
    still = make_zero_velocities(system, t, q)
    rows = constraint_rows(system, t, q, still)
    Q, c = applied_forces(system, t, q, still)
    return Q + c + rows.A.T @ multipliers, rows.position_error


def _equations(system: AbstractSystem, t: Time, q: Coordinates) -> tuple[Rows, MassMatrix, Forces]:
    """The rows, M, and Q + c at rest."""
    still = make_zero_velocities(system, t, q)
    Q, c = applied_forces(system, t, q, still)
    return constraint_rows(system, t, q, still), system.mass_matrix(t, q), Q + c


def _stiffness(
    system: AbstractSystem, t: Time, q: Coordinates, multipliers: Float[Array, " m"]
) -> Float[Array, "n n"]:
    """K of the module's docstring."""
    out = lambda dv: balance(system, t, q + system.kinematics(t, q, dv), multipliers)[0]
    return -jax.jacfwd(out)(make_zero_velocities(system, t, q))


def local(system: AbstractSystem, t: Time, q: Coordinates) -> Stiffness:
    """Forces and stiffness at a posture on the constraints."""
    rows, M, Q = evaluate_by_code(_equations, system, t, q)
    inverse, unit = pinv(rows.A, GramSchmidt()), jnp.eye(M.shape[0], dtype=q.dtype)
    E = jnp.where(inverse.rank == M.shape[0], 0, unit - inverse.matrix @ rows.A)
    multipliers = -inverse.matrix.T @ Q
    K = evaluate_by_code(_stiffness, system, t, q, multipliers)
    size = jnp.trace(M) / M.shape[0]
    # A share of the identity, so that what has no mass may move, too; a metric only says which way leads there.
    least = jnp.sqrt(jnp.finfo(q.dtype).eps) * size
    W = inverse_cholesky(E @ M @ E + size * (unit - E) + least * unit)
    forces = jnp.linalg.norm(W @ Q) + jnp.linalg.norm(W @ (rows.A.T @ multipliers))
    return Stiffness(rows, multipliers, E @ Q, forces, E, W, K)


def _solve_stiffness(K: Float[Array, "n n"], r: Float[Array, " n"]) -> Float[Array, " n"]:
    """K^+ r, where directions without stiffness, to rounding, stay as they are."""
    return pinv(K, GramSchmidt(choose_by_precision(K.dtype, 1e-10, 1e-5))).matrix @ r


def is_definite(K: Float[Array, "n n"]) -> Bool[Array, ""]:
    """Whether the symmetric part of a matrix is positive definite."""
    return jnp.all(jnp.isfinite(inverse_cholesky(0.5 * (K + K.T))))


def is_out_of_reach(start: Coordinates, q: Coordinates) -> Bool[Array, ""]:
    """Whether a posture is so far from the start that steps of the first one's size are lost in rounding."""
    return jnp.finfo(q.dtype).eps * jnp.max(jnp.abs(q - start)) > 1 + jnp.max(jnp.abs(start))


class Way(NamedTuple):
    """Where the search stands: posture, what is known there, mu, number of steps, size of forces met, whether it ends."""

    q: Coordinates
    here: Stiffness
    mu: Float[Array, ""]
    step: Array
    size: Float[Array, ""]
    ended: Bool[Array, ""]


def _onwards(system: AbstractSystem, t: Time, start: Coordinates, way: Way) -> Way:
    """One step of the module's docstring; the first one goes no further than onto the constraints."""
    q, here, first = way.q, way.here, way.step == 0
    eps = jnp.finfo(q.dtype).eps
    r = here.W @ here.unbalanced
    shifted = here.reduced + way.mu * jnp.eye(len(r), dtype=q.dtype)
    dv = jnp.where(first, 0, here.E @ (here.W.T @ _solve_stiffness(shifted, r)))
    end = Projection().positions(system, t, evaluate_by_code(advance_coordinates, system, t, q, dv))
    there = local(system, t, end)
    off = jnp.linalg.norm(here.W @ (here.E @ (there.unbalanced - here.unbalanced + here.K @ dv)))
    down = is_definite(shifted)
    closed = jnp.max(jnp.abs(there.rows.position_error), initial=0) <= jnp.sqrt(eps)
    counts = first | (down & closed & (off <= _FORETOLD * jnp.linalg.norm(r)))
    still = ~first & (jnp.max(jnp.abs(end - q)) <= 8 * eps * jnp.max(jnp.abs(q)))
    stiff, left = jnp.linalg.norm(there.reduced), there.W @ there.unbalanced
    # To begin with, as far as the stiffness says, and by no more than about 1 rad or 1 m.
    begun = stiff + jnp.max(jnp.abs(there.W.T @ left))
    share = jnp.clip(4 * off / jnp.where(r @ r == 0, 1, jnp.linalg.norm(r)), 0.1, 1)
    mu = jnp.where(counts, jnp.maximum(way.mu * share, jnp.sqrt(eps) * stiff), 4 * way.mu)
    size = jnp.maximum(way.size, there.size)
    balanced = counts & (jnp.linalg.norm(left) <= 16 * eps * size)
    pick = lambda new, old: jnp.where(counts, new, old)
    here, q = jax.tree.map(pick, there, here), pick(end, q)
    ended = balanced | (down & still) | ~jnp.isfinite(mu) | is_out_of_reach(start, q)
    return Way(q, here, jnp.where(first, begun, mu), way.step + 1, size, ended)


@eqx.filter_custom_jvp
def settle_posture(system: AbstractSystem, t: Time, q: Coordinates) -> tuple[Coordinates, Stiffness]:
    """The posture a system settles in from q, on the constraints, and what is known there; where it does not settle,
    that where it came to.

    Its derivative is that of the implicit function, from K dv = dQ + dA^T lambda + A^T dlambda and A dv = -dphi. Where
    there are freedoms without stiffness, they stay as they are.
    """
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), eqx.filter_eval_shape(local, system, t, q))
    zero = jnp.zeros((), q.dtype)
    start = Way(q, nothing, zero, jnp.zeros((), jnp.int32), zero, jnp.asarray(False))
    going = lambda way: ~way.ended & (way.step < _STEPS)
    end = jax.lax.while_loop(going, lambda way: _onwards(system, t, q, way), start)
    return end.q, end.here


@settle_posture.def_jvp
@in_full_precision
def _(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    system, t, _ = primals
    q, here = settle_posture(*primals)
    fixed = lambda system, t: evaluate_by_code(balance, system, t, q, here.multipliers)
    changes = eqx.filter_jvp(fixed, (system, t), tangents[:2])[1]
    force, phi = (
        jnp.zeros_like(x) if d is None else d for x, d in zip(fixed(system, t), changes, strict=True)
    )
    onto = -pinv(here.rows.A, GramSchmidt()).matrix @ phi
    dv = onto + here.E @ (
        here.W.T @ _solve_stiffness(here.reduced, here.W @ (here.E @ (force - here.K @ onto)))
    )
    dq = jax.jvp(lambda dv: advance_coordinates(system, t, q, dv), (jnp.zeros_like(dv),), (dv,))[1]
    return (q, here), (dq, eqx.filter_jvp(local, (system, t, q), (*tangents[:2], dq))[1])


def compute_remaining_step(here: Stiffness) -> Velocities:
    """The step that linear equations would still take from a posture: zero in an equilibrium."""
    least = jnp.sqrt(jnp.finfo(here.K.dtype).eps) * jnp.linalg.norm(here.reduced)
    shifted = here.reduced + least * jnp.eye(len(here.K), dtype=here.K.dtype)
    return here.E @ (here.W.T @ _solve_stiffness(shifted, here.W @ here.unbalanced))
