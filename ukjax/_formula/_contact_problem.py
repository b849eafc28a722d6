"""Contacts at one instant: unilateral constraints with Coulomb friction, as one small dense problem.

With the inverse inertia of the contacts G = J M^-1 J^T (the Delassus operator) and the velocity u' they would have
without impulses, find impulses p and velocities u = G p + u' such that at each contact (Signorini and Coulomb)

    0 <= p_n  perp  u_n >= 0,      |p_t| <= mu p_n + c,      u_t != 0  =>  p_t = -(mu p_n + c) u_t / |u_t|.

The same holds for forces and accelerations. With a step r > 0 for each row this says p = P(p - r u), where P takes the
positive part of normal rows and cuts tangential ones at the length mu max(0, p_n - r u_n) + c (Alart and Curnier 1991).
`_contact_solver` solves that.
"""

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


class ContactSolution(NamedTuple):
    """Impulses p (m,), residual, steps, and which contacts are closed and which slide (n,), all as numbers."""

    p: Array
    residual: Array
    steps: Array
    closed: Array
    sliding: Array
