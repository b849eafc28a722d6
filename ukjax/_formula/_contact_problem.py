"""A contact problem as arrays: whose rows are which, the problem as one vector, and small linear systems of its size."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._pseudoinverse._kernels import dot, one_hot_largest


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


def apart(layout: Layout, data: ContactData, active: Array) -> ContactData:
    """A problem in which only active contacts touch: the rows of the others move by themselves, and do not."""
    (G, u, mu, c), rows = data, rows_of(layout, data.u.dtype)
    on = jnp.sum((rows.normal + rows.tangent) * active[:, None], axis=0)
    size = jnp.trace(G) / max(u.size, 1)
    G = on[:, None] * G * on[None] + jnp.diag((1 - on) * jnp.where(size > 0, size, 1))
    return ContactData(G, on * u, mu, c)


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


def solve_by_elimination(A: Float[Array, "m m"], b: Float[Array, " m"]) -> Float[Array, " m"]:
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
