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

# --- A contact problem as arrays: whose rows are which, the problem as one vector, and small linear systems of its size


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


def rows_in(layout: Layout) -> int:
    """How many rows all contacts have."""
    return sum(int(normal) + tangents for normal, tangents in layout)


def flatten_problem(data: ContactData) -> Array:
    """A problem as one vector, which a batch of scalar programs passes on as it is."""
    return jnp.concatenate([jnp.ravel(x) for x in data])


def data_of(layout: Layout, given: Array) -> ContactData:
    """A problem from that vector."""
    m, n = rows_in(layout), len(layout)
    G, u, mu, c = jnp.split(given, np.cumsum([m * m, m, n]))
    return ContactData(G.reshape(m, m), u, mu, c)


def rows_of(layout: Layout, dtype: Any) -> ContactRows:
    sizes = [int(normal) + tangents for normal, tangents in layout]
    owner, starts = np.repeat(np.arange(len(sizes)), np.array(sizes, int)), np.cumsum([0, *sizes])[:-1]
    first = np.isin(
        np.arange(len(owner)), [k for k, (normal, _) in zip(starts, layout, strict=True) if normal]
    )
    own = owner[None] == np.arange(len(sizes))[:, None]
    return ContactRows(jnp.asarray(own & first[None], dtype), jnp.asarray(own & ~first[None], dtype))


def invert_matrix(A: Float[Array, "m m"]) -> Float[Array, "m m"]:
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


def eliminate(A: Float[Array, "m m"]) -> Callable[[Float[Array, " m"]], Float[Array, " m"]]:
    """What gives A^-1 b for any b by A = L U, written out, with pivots as they come: e keeps them from zero, or is made
    to."""
    parts = []
    while A.size:
        pivot = jnp.where(A[0, 0] == 0, 1, A[0, 0])
        row, column = A[0, 1:] / pivot, A[1:, 0]
        parts.append((pivot, row, column))
        A = A[1:, 1:] - column[:, None] * row[None]

    def solve(b: Array) -> Array:
        y = []
        for pivot, _, column in parts:
            y.append(b[0] / pivot)
            b = b[1:] - column * y[-1]
        x = jnp.zeros(0, b.dtype)
        for (_, row, _), last in zip(parts[::-1], y[::-1], strict=True):
            x = jnp.concatenate([(last - jnp.sum(row * x))[None], x])
        return x

    return solve


# --- The problem as an equation, and Newton's method for it


# Of e; over random problems all from (0.3, 10) to (0.03, 100) take as many steps within 20 %.
SHRINK, GROW = 0.03, 30.0
# Of e, beside the mean of G's diagonal. From 1e-4 on a falling humanoid takes a fifth fewer steps, but solutions just
# within tolerance are less exact: derivatives through impacts of 1e-6 m/s, where rocking ends, were off by 1e-4.
FIRST, MOST = 1e-2, 1e2
# Of e in float64 and float32. Where forces of dependent contacts move far before friction turns round, they move the
# farther in a step the smaller e is: of 80 islands of five and more contacts in a pile four took more than 120 steps with
# 1e-7, one with 1e-10, and the mean of all fell from 12 to 7.
LEAST = (1e-10, 1e-7)
IMPLICIT = 1e-5  # of e in derivatives
NEARER = 0.3  # what one e is to leave of the error: to solve for it exactly would be in vain
TRIES = 8  # steps for one e; where they converge, one to four are enough
STEPS = 400.0  # of 2,400 random problems of up to 8 contacts none took more than 170
ROUNDING = 30.0  # of G p, beside its size, in units of the last place


def _sizes(rows: ContactRows, data: ContactData, e: Array) -> Array:
    """r of each row: one over the mean of the diagonal of G + e 1 over the rows that are cut together; positive also
    where friction makes an entry negative (Painleve)."""
    diagonal = jnp.abs(jnp.diagonal(data.G) + e)
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


class ContactSolution(NamedTuple):
    """Impulses p (m,), residual, steps, and which contacts are closed and which slide (n,), all as numbers."""

    p: Array
    residual: Array
    steps: Array
    closed: Array
    sliding: Array


Method = Callable[[Layout, float, Array, Array], ContactSolution]
"""What solves a problem, given layout, tolerance, problem and guess."""


def solution(given: Array, guess: Array, layout: Layout, tolerance: float, method: Method) -> ContactSolution:
    """The solution of a problem, differentiable."""
    return ContactSolution(*_solution(given, jax.lax.stop_gradient(guess), layout, tolerance, method))


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4))
def _solution(given: Array, guess: Array, layout: Layout, tolerance: float, method: Method) -> tuple:
    return tuple(method(layout, tolerance, given, guess))


@_solution.defjvp
def _(layout: Layout, tolerance: float, method: Method, primals: tuple, tangents: tuple) -> tuple:
    (given, guess), (change, _) = primals, tangents
    p, *others = _solution(given, guess, layout, tolerance, method)
    dp = differentiate_solution(layout, data_of(layout, given), data_of(layout, change), p)
    return (p, *others), (dp, *map(jnp.zeros_like, others))


class _Sensitivity(NamedTuple):
    """Of a solution: sizes r of its rows, y = p - r u and the cut there, and K with dp = K (change of P(y) at p kept)."""

    r: Array
    y: Array
    cut: _Cut
    K: Array


def _sensitivity(rows: ContactRows, data: ContactData, p: Array) -> _Sensitivity:
    mean = jnp.trace(data.G) / p.size
    e = IMPLICIT * jnp.where(mean > 0, mean, 1)
    r, unit = _sizes(rows, data, e), jnp.eye(p.size, dtype=p.dtype)
    y = p - r * (dot(data.G, p) + data.u)
    cut = _cut(rows, data, y)
    # dp = K (moved + E dp), as often as makes up for e where contacts are dependent: each time by e beside G's smallest
    # positive eigenvalue. Eight times are (1 + C) (1 + C^2) (1 + C^4) K moved, C = K E: one product with the change.
    inverse = invert_matrix(unit - dot(cut.by_y, unit - r[:, None] * (data.G + e * unit)))
    again = dot(inverse, cut.by_y * (r * e)[None])
    for _ in range(3):
        inverse, again = inverse + dot(again, inverse), dot(again, again)
    return _Sensitivity(r, y, cut, inverse)


def differentiate_solution(layout: Layout, data: ContactData, d: ContactData, p: Array) -> Array:
    """The change of a solution: its modes stay as they are; J dp = -dF, with the same pull towards zero where contacts
    are dependent.
    """
    rows = rows_of(layout, data.u.dtype)
    r, y, cut, K = _sensitivity(rows, data, p)
    bound = d.mu * jnp.maximum(dot(rows.normal, y), 0) + d.c
    return dot(K, dot(cut.by_bound, bound) - dot(cut.by_y, r * (dot(d.G, p) + d.u)))


def find_border_contacts(layout: Layout, data: ContactData, p: Array, tolerance: float) -> Array:
    """Which contacts are on the border of two modes, so far as a solution within the tolerance tells (n,)."""
    rows, mean = rows_of(layout, p.dtype), jnp.trace(data.G) / p.size
    (r, y, cut, K), mean = _sensitivity(rows, data, p), jnp.where(mean > 0, mean, 1)
    largest = lambda x: jnp.max(jnp.abs(x), initial=0)
    least = 10 * tolerance * (largest(data.u) / mean + largest(p))
    opens = rows.has_normal & (jnp.abs(dot(rows.normal, y)) <= least)
    bound = data.mu * jnp.maximum(dot(rows.normal, y), 0) + data.c
    rubs = cut.closed & (bound > least) & jnp.any(rows.tangent > 0, axis=1)
    slips = rubs & (jnp.abs(jnp.sqrt(dot(rows.tangent, y * y)) - bound) <= least)
    # Where closed contacts depend on each other, u' may change so that there is none: K is as large as e lets it be.
    by_velocity = dot(K, cut.by_y * r[None]) * mean
    large = (jnp.sqrt(jnp.sum(by_velocity**2, axis=1)) > 1 / IMPLICIT).astype(p.dtype)
    return opens | slips | (dot(rows.normal + rows.tangent, large) > 0)
