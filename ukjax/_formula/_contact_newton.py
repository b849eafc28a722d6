"""Contacts at one instant: unilateral constraints with Coulomb friction, as one small dense problem.

With the inverse inertia of the contacts G = J M^-1 J^T (the Delassus operator) and the velocity u' they would have
without impulses, find impulses p and velocities u = G p + u' such that at each contact (Signorini and Coulomb)

    0 <= p_n  perp  u_n >= 0,      |p_t| <= mu p_n + c,      u_t != 0  =>  p_t = -(mu p_n + c) u_t / |u_t|.

The same holds for forces and accelerations. With a step r > 0 for each row this says p = P(p - r u), where P takes the
positive part of normal rows and cuts tangential ones at the length mu max(0, p_n - r u_n) + c (Alart and Curnier 1991).
It is solved by Newton's method on G + e 1, where e pulls towards the last solution (proximal point): e shrinks where the
steps converge and grows where they do not. So dependent contacts, such as the fourth leg of a table, need no other
treatment: of their impulses those nearest to zero are found, and u is what it is for all of them.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._pseudoinverse._kernels import dot, one_hot_largest

# Of e; over random problems all from (0.3, 10) to (0.1, 100) take as many steps within 20 %.
_SHRINK, _GROW = 0.1, 30.0
_FIRST, _LEAST, _MOST = 1e-2, 1e-5, 1e2  # of e, beside the mean of G's diagonal
_TRIES = 10  # steps for one e; where they converge, three to six are enough
_STEPS = 400  # of 2,000 random problems of up to 8 contacts none took more than 190


class ContactRows(NamedTuple):
    """Which rows belong to which contact: ones in the places of its normal row and of its tangential rows (n, m)."""

    normal: Array
    tangent: Array

    @property
    def has_normal(self) -> Array:
        """Whether contacts have one (n,)."""
        return jnp.any(self.normal > 0, axis=1)


class ContactData(NamedTuple):
    """A problem: G, u', mu and c."""

    G: Array
    u: Array
    mu: Array
    c: Array


Layout = tuple[tuple[bool, int], ...]
"""Of each contact, whether it has a normal row, and how many tangential ones."""


def rows_of(layout: Layout, dtype: Any) -> ContactRows:
    sizes = [int(normal) + tangents for normal, tangents in layout]
    owner, starts = np.repeat(np.arange(len(sizes)), sizes), np.cumsum([0, *sizes[:-1]])
    first = np.isin(
        np.arange(len(owner)), [k for k, (normal, _) in zip(starts, layout, strict=True) if normal]
    )
    own = owner[None] == np.arange(len(sizes))[:, None]
    return ContactRows(jnp.asarray(own & first[None], dtype), jnp.asarray(own & ~first[None], dtype))


def _sizes(rows: ContactRows, data: ContactData, e: Array) -> Array:
    """r of each row: one over the mean of the diagonal of G + e 1 over the rows that are cut together."""
    diagonal = jnp.diagonal(data.G) + e
    mean = dot(rows.tangent, diagonal) / jnp.maximum(jnp.sum(rows.tangent, axis=1), 1)
    return 1 / (jnp.sum(rows.normal, axis=0) * diagonal + dot(mean, rows.tangent))


class _Cut(NamedTuple):
    """P(y) with its derivative by y and that by the lengths at which tangential rows are cut; and which are cut."""

    value: Array
    by_y: Array
    by_bound: Array
    closed: Array
    sliding: Array


def _cut(rows: ContactRows, data: ContactData, y: Array) -> _Cut:
    normal, tangent = rows
    on_rows = lambda of_contacts: dot(of_contacts.astype(y.dtype), tangent)
    pressed = dot(normal, y)
    closed = (pressed > 0) | ~rows.has_normal
    bound = data.mu * jnp.maximum(pressed, 0) + data.c
    square = dot(tangent, y * y)
    sliding = (square > bound * bound) | (bound <= 0)
    length = jnp.sqrt(jnp.where(square > 0, square, 1))
    left = jnp.where(sliding, bound / length, 1)  # of the tangential part
    direction = jnp.where(on_rows(sliding) > 0, y / (on_rows(length) + jnp.sum(normal, axis=0)), 0)
    diagonal = dot(closed.astype(y.dtype), normal) + on_rows(left)
    turning = (on_rows(jnp.where(sliding, left, 0)) * direction)[:, None] * direction[None]
    pressing = dot(tangent.T, normal) * (on_rows(jnp.where(closed, data.mu, 0)) * direction)[:, None]
    return _Cut(
        jnp.maximum(y, 0) * jnp.sum(normal, axis=0) + on_rows(left) * y,
        jnp.diag(diagonal) - dot(tangent.T, tangent) * turning + pressing,
        tangent.T * direction[:, None],
        closed,
        closed & sliding & jnp.any(tangent > 0, axis=1),
    )


def _inverse(A: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """A^-1 by Gauss and Jordan with the largest pivots of each column; batches well, unlike LAPACK's."""
    m = A.shape[0]

    def step(j: Any, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        both, chosen, used = carry
        column = jax.lax.dynamic_index_in_dim(both, j, 1, keepdims=False)
        pivot = one_hot_largest(jnp.where(used > 0, -1, column * column))
        size = dot(pivot, column)
        row = dot(pivot, both) / jnp.where(size == 0, 1, size)
        both = both - (column - pivot * column)[:, None] * row[None]
        both = jnp.where(pivot[:, None] > 0, row[None], both)
        return both, jax.lax.dynamic_update_slice(chosen, pivot[None], (j, jnp.zeros_like(j))), used + pivot

    start = jnp.concatenate([A, jnp.eye(m, dtype=A.dtype)], axis=1), jnp.zeros_like(A), jnp.zeros_like(A[0])
    both, chosen, _ = jax.lax.fori_loop(0, m, step, start)
    return dot(chosen, both[:, m:])


def _residual(rows: ContactRows, data: ContactData, p: Array) -> Float[Array, ""]:
    """The largest violation: of Signorini's conditions, of the cone, and of maximum dissipation."""
    normal, tangent = rows
    u = dot(data.G, p) + data.u
    signorini = jnp.where(rows.has_normal, jnp.abs(jnp.minimum(dot(normal, p), dot(normal, u))), 0)
    bound = data.mu * dot(normal, p) + data.c
    cone = jnp.sqrt(dot(tangent, p * p)) - bound
    dissipation = jnp.abs(dot(tangent, p * u) + bound * jnp.sqrt(dot(tangent, u * u)))
    return jnp.max(jnp.concatenate([signorini, cone, dissipation]), initial=0)


class _State(NamedTuple):
    """Where the iteration is: p, where e pulls to, e, steps with this e, all steps, and the best p so far."""

    p: Array
    centre: Array
    e: Array
    tries: Array
    steps: Array
    best: Array
    residual: Array


def _newton(rows: ContactRows, data: ContactData, state: _State) -> _State:
    """One step of Newton's method, or the choice of another e."""
    p, eps = state.p, jnp.finfo(state.p.dtype).eps
    r = _sizes(rows, data, state.e)
    u = dot(data.G, p) + data.u + state.e * (p - state.centre)
    cut = _cut(rows, data, p - r * u)
    F = p - cut.value
    unit = jnp.eye(p.size, dtype=p.dtype)
    J = unit - dot(cut.by_y, unit - r[:, None] * (data.G + state.e * unit))
    error, size = jnp.max(jnp.abs(F), initial=0), 1 + jnp.max(jnp.abs(p), initial=0)
    solved = error < 30 * eps * size  # the rounding of G p
    ended = solved | (state.tries == _TRIES)
    fine = error < 1e6 * eps * size  # rounding may keep it from less where G + e 1 is nearly singular
    moved = p - dot(_inverse(J), F)
    residual = jnp.where(ended, _residual(rows, data, p), jnp.inf)
    better = residual < state.residual
    return _State(
        jnp.where(ended, jnp.where(fine, p, state.centre), moved),
        jnp.where(ended & fine, p, state.centre),
        jnp.where(ended, jnp.where(fine, state.e * _SHRINK, state.e * _GROW).clip(_LEAST, _MOST), state.e),
        jnp.where(ended, 0, state.tries + 1),
        jnp.where(ended, state.steps, state.steps + 1),
        jnp.where(better, p, state.best),
        jnp.where(better, residual, state.residual),
    )


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def newton_solution(data: ContactData, layout: Layout, tolerance: float) -> tuple[Array, Array, Array]:
    """p of a scaled problem, its residual, and the steps it took."""
    rows = rows_of(layout, data.u.dtype)
    zero, count = jnp.zeros_like(data.u), jnp.zeros((), jnp.int32)
    first = jnp.asarray(_FIRST, data.u.dtype)
    start = _State(zero, zero, first, count, count, zero, jnp.asarray(jnp.inf, data.u.dtype))
    goes_on = lambda state: (state.residual > tolerance) & (state.steps < _STEPS)
    end = jax.lax.while_loop(goes_on, lambda state: _newton(rows, data, state), start)
    return end.best, end.residual, end.steps


@newton_solution.defjvp
def _(layout: Layout, tolerance: float, primals: tuple, tangents: tuple) -> tuple:
    """The modes stay as they are; J dp = -dF, with the same pull towards zero where contacts are dependent."""
    (data,), (d,) = primals, tangents
    p, residual, steps = newton_solution(data, layout, tolerance)
    rows = rows_of(layout, data.u.dtype)
    e = jnp.asarray(_LEAST, p.dtype)
    r, unit = _sizes(rows, data, e), jnp.eye(p.size, dtype=p.dtype)
    y = p - r * (dot(data.G, p) + data.u)
    cut = _cut(rows, data, y)
    inverse = _inverse(unit - dot(cut.by_y, unit - r[:, None] * (data.G + e * unit)))
    bound = d.mu * jnp.maximum(dot(rows.normal, y), 0) + d.c
    given = dot(cut.by_bound, bound) - dot(cut.by_y, r * (dot(d.G, p) + d.u))
    dp = jnp.zeros_like(p)
    for _ in range(8):  # each reduces what e leaves by e beside G's smallest positive eigenvalue
        dp = dot(inverse, given + dot(cut.by_y, r * e * dp))
    still = np.zeros((), jax.dtypes.float0)
    return (p, residual, steps), (dp, jnp.zeros_like(residual), still)


def modes(data: ContactData, layout: Layout, p: Array) -> tuple[Array, Array]:
    """Which contacts are closed, and which of those slide (n,)."""
    rows = rows_of(layout, data.u.dtype)
    r = _sizes(rows, data, jnp.zeros((), p.dtype))
    cut = _cut(rows, data, p - r * (dot(data.G, p) + data.u))
    return cut.closed, cut.sliding
