"""Contacts at one instant: unilateral constraints with Coulomb friction, as one small dense problem.

With the inverse inertia of the contacts G = J M^-1 J^T (the Delassus operator) and the velocity u' they would have
without impulses, find impulses p and velocities u = G p + u' such that at each contact (Signorini and Coulomb)

    0 <= p_n  perp  u_n >= 0,      |p_t| <= mu p_n + c,      u_t != 0  =>  p_t = -(mu p_n + c) u_t / |u_t|.

The same holds for forces and accelerations. With a step r > 0 for each row this says p = P(p - r u), where P takes the
positive part of normal rows and cuts tangential ones at the length mu max(0, p_n - r u_n) + c (Alart and Curnier 1991).
It is solved by Newton's method on G + e 1, where e pulls towards an earlier p (proximal point): once that error is small
beside the whole one, e pulls towards where p is, and shrinks; where steps do not converge, it grows. So dependent
contacts, such as the fourth leg of a table, need no other treatment.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._pseudoinverse._kernels import dot, one_hot_largest

# Of e; over random problems all from (0.3, 10) to (0.03, 100) take as many steps within 20 %.
_SHRINK, _GROW = 0.03, 30.0
_FIRST, _LEAST, _MOST = 1e-2, 1e-7, 1e2  # of e, beside the mean of G's diagonal
_IMPLICIT = 1e-5  # of e in derivatives
_NEARER = 0.3  # what one e is to leave of the error: to solve for it exactly would be in vain
_TRIES = 8  # steps for one e; where they converge, one to four are enough
_STEPS = 400.0  # of 2,400 random problems of up to 8 contacts none took more than 170


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
    owner, starts = np.repeat(np.arange(len(sizes)), np.array(sizes, int)), np.cumsum([0, *sizes])[:-1]
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


def inverted(A: Float[Array, "m m"]) -> Float[Array, "m m"]:
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


def eliminated(A: Float[Array, "m m"], b: Float[Array, " m"]) -> Float[Array, " m"]:
    """A^-1 b by elimination, written out, with pivots as they come: e keeps them from zero, or is made to."""
    both, above = jnp.concatenate([A, b[:, None]], axis=1), []
    for _ in range(b.size):
        pivot = both[0, 0]
        row = both[0, 1:] / jnp.where(pivot == 0, 1, pivot)
        above.append(row)
        both = both[1:, 1:] - both[1:, :1] * row[None]
    x = jnp.zeros(0, b.dtype)
    for row in above[::-1]:
        x = jnp.concatenate([(row[-1] - jnp.sum(row[:-1] * x))[None], x])
    return x


def _residual(rows: ContactRows, data: ContactData, p: Array) -> Float[Array, ""]:
    """The largest violation: of Signorini's conditions, of the cone, and of maximum dissipation."""
    normal, tangent = rows
    u = dot(data.G, p) + data.u
    signorini = jnp.where(rows.has_normal, jnp.abs(jnp.minimum(dot(normal, p), dot(normal, u))), 0)
    bound = data.mu * dot(normal, p) + data.c
    cone = jnp.sqrt(dot(tangent, p * p)) - bound
    dissipation = jnp.abs(dot(tangent, p * u) + bound * jnp.sqrt(dot(tangent, u * u)))
    return jnp.max(jnp.concatenate([signorini, cone, dissipation]), initial=0)


class State(NamedTuple):
    """Where the iteration is: p, where e pulls to, e, steps with this e, all steps, and the best p so far."""

    p: Array
    centre: Array
    e: Array
    tries: Array
    steps: Array
    best: Array
    residual: Array


def _begun(guess: Array) -> State:
    zero = jnp.zeros((), guess.dtype)
    return State(guess, guess, zero + _FIRST, zero, zero, guess, zero + jnp.inf)


def goes_on(state: State, tolerance: float) -> Array:
    """Whether the problem is not solved yet, and worth another step."""
    return (state.residual > tolerance) & (state.steps < _STEPS)


def _linearized(
    rows: ContactRows, data: ContactData, e: Array, p: Array, centre: Array
) -> tuple[Array, Array]:
    """F = p - P(p - r u) of G + e 1, and its derivative."""
    r, unit = _sizes(rows, data, e), jnp.eye(p.size, dtype=p.dtype)
    cut = _cut(rows, data, p - r * (dot(data.G, p) + data.u + e * (p - centre)))
    return p - cut.value, unit - dot(cut.by_y, unit - r[:, None] * (data.G + e * unit))


def newton_step(
    layout: Layout, data: ContactData, state: State, solve: Callable[[Array, Array], Array]
) -> State:
    """One step of Newton's method, with another e where this one has done its part, or failed.

    **Arguments:**

    - `layout`, `data`: the problem.
    - `state`: where the iteration is.
    - `solve`: A^-1 b.
    """
    rows, (p, centre, e, *_), eps = rows_of(layout, data.u.dtype), state, jnp.finfo(state.p.dtype).eps
    largest = lambda x: jnp.max(jnp.abs(x), initial=0)
    residual = _residual(rows, data, p)
    error = largest(_linearized(rows, data, e, p, centre)[0])
    whole = largest(_linearized(rows, data, e, p, p)[0])
    done = error < jnp.maximum(_NEARER * whole, 30 * eps * (1 + largest(p)))  # the latter is rounding of G p
    failed = ~done & (state.tries >= _TRIES)
    e = jnp.where(done, jnp.maximum(e * _SHRINK, _LEAST), jnp.where(failed, jnp.minimum(e * _GROW, _MOST), e))
    p, centre = jnp.where(failed, centre, p), jnp.where(done, p, centre)
    F, J = _linearized(rows, data, e, p, centre)
    better = residual < state.residual
    return State(
        p - solve(J, F),
        centre,
        e,
        jnp.where(done | failed, 0, state.tries + 1),
        state.steps + 1,
        jnp.where(better, state.p, state.best),
        jnp.where(better, residual, state.residual),
    )


def iterate_on_arrays(layout: Layout, tolerance: float, data: ContactData, state: State) -> State:
    solve = lambda A, b: dot(inverted(A), b)
    goes = lambda state: goes_on(state, tolerance)
    return jax.lax.while_loop(goes, lambda state: newton_step(layout, data, state, solve), state)


Iterate = Callable[[Layout, float, ContactData, State], State]
"""What repeats `newton_step` as long as it goes on, given layout, tolerance, problem and state."""


def newton_solution(
    data: ContactData,
    layout: Layout,
    tolerance: float,
    guess: Array,
    iterate: Iterate,
) -> tuple[Array, Array, Array]:
    """p of a scaled problem, its residual, and the steps it took.

    **Arguments:**

    - `data`, `layout`: the problem, with u' of size 1 and the mean of G's diagonal 1.
    - `tolerance`: of the residual.
    - `guess`: where to start from, which has no derivative.
    - `iterate`: the loop.
    """
    p, residual, steps = _solution(data, guess, layout, tolerance, iterate)
    return p, residual, steps.astype(jnp.int32)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4))
def _solution(
    data: ContactData, guess: Array, layout: Layout, tolerance: float, iterate: Iterate
) -> tuple[Array, Array, Array]:
    end = iterate(layout, tolerance, data, _begun(guess))
    return end.best, end.residual, end.steps


@_solution.defjvp
def _(layout: Layout, tolerance: float, iterate: Iterate, primals: tuple, tangents: tuple) -> tuple:
    """The modes stay as they are; J dp = -dF, with the same pull towards zero where contacts are dependent."""
    (data, guess), (d, _) = primals, tangents
    p, residual, steps = _solution(data, guess, layout, tolerance, iterate)
    rows = rows_of(layout, data.u.dtype)
    e = jnp.asarray(_IMPLICIT, p.dtype)
    r, unit = _sizes(rows, data, e), jnp.eye(p.size, dtype=p.dtype)
    y = p - r * (dot(data.G, p) + data.u)
    cut = _cut(rows, data, y)
    inverse = inverted(unit - dot(cut.by_y, unit - r[:, None] * (data.G + e * unit)))
    bound = d.mu * jnp.maximum(dot(rows.normal, y), 0) + d.c
    given = dot(cut.by_bound, bound) - dot(cut.by_y, r * (dot(d.G, p) + d.u))
    dp = jnp.zeros_like(p)
    for _ in range(8):  # each reduces what e leaves by e beside G's smallest positive eigenvalue
        dp = dot(inverse, given + dot(cut.by_y, r * e * dp))
    return (p, residual, steps), (dp, jnp.zeros_like(residual), jnp.zeros_like(steps))


def modes(data: ContactData, layout: Layout, p: Array) -> tuple[Array, Array]:
    """Which contacts are closed, and which of those slide (n,)."""
    rows = rows_of(layout, data.u.dtype)
    r = _sizes(rows, data, jnp.zeros((), p.dtype))
    cut = _cut(rows, data, p - r * (dot(data.G, p) + data.u))
    return cut.closed, cut.sliding
