"""Rows of unit norm, and the way back.

With B = C Bs, C diagonal, let P solve Bs x = z with least norm for every z in the range of Bs. Then P C^-1
does the same for B. Other right-hand sides must first be projected onto the range of B, by I - V V^T with V
an orthonormal basis of B's left null space.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._misc._tolerances import ROW_NOISE as ROW_NOISE
from ._kernels import dot, one_hot_largest


def unit_rows(
    B: Float[Array, "m n"],
) -> tuple[Float[Array, "m n"], Float[Array, " m"], Bool[Array, " m"], Float[Array, ""]]:
    """B = size * diag(scales) * rows, with rows of norm 1; noise becomes zero rows, of scale 1.

    **Returns:** (rows, scales, nonzero, size); `size` is the largest entry of B, so that no square overflows.
    """
    size = jnp.max(jnp.abs(B))
    size = jnp.where(size == 0, jnp.ones_like(size), size)
    B = B / size
    norms = jnp.sqrt(jnp.sum(B * B, axis=1))
    nonzero = norms > ROW_NOISE * jnp.finfo(B.dtype).eps * jnp.max(norms)
    scales = jnp.where(nonzero, norms, jnp.ones_like(norms))
    return jnp.where(nonzero[:, None], B / scales[:, None], 0), scales, nonzero, size


def left_null_space(
    P: Float[Array, "n m"],
    B: Float[Array, "m n"],
    nonzero: Bool[Array, " m"],
    rank: Int[Array, ""],
) -> Float[Array, "m m"]:
    """Orthonormal rows V that span B's left null space, from P, which solves B x = r with least norm where that
    has a solution; rows beyond its dimension are zero.

    It is spanned by the rows of I - B P and has dimension m - rank, zero rows aside, so there are none for independent
    rows. They are refined once, for V B = 0 to rounding and not to rounding times the condition number.
    """
    complement = jnp.diag(nonzero.astype(P.dtype)) - dot(B, P)
    V = _leading_rows(complement, jnp.sum(nonzero).astype(rank.dtype) - rank)
    return V - dot(dot(V, B), P)


def _leading_rows(Y: Float[Array, "m m"], count: Int[Array, ""]) -> Float[Array, "m m"]:
    """`count` orthonormal rows spanning the rows of Y, largest first; the rest are zero.

    The number of steps is that of the rows, for scalar code has no loops of unknown length; without any to find, none is
    made.
    """
    indices = jnp.arange(Y.shape[0], dtype=count.dtype)

    def step(carry, i):
        Y, V = carry
        squares = jnp.sum(Y * Y, axis=1)
        one_hot = one_hot_largest(squares)
        v = dot(one_hot, Y)
        v = v - dot(dot(V, v), V)
        square = jnp.sum(v * v)
        v = jnp.where(square > 0, v / jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
        Y = (Y - jnp.outer(dot(Y, v), v)) * (1 - one_hot)[:, None]
        return (Y, jnp.where(((indices == i) & (i < count))[:, None], v[None, :], V)), None

    none = jnp.zeros_like(Y)
    return jax.lax.cond(count > 0, lambda: jax.lax.scan(step, (Y, none), indices)[0][1], lambda: none)
