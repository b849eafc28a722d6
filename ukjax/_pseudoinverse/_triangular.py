"""Inverses of triangular matrices and of Cholesky factors: products of blocks, short loops at the ends."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._kernels import dot

LEAF = 16
"""Blocks up to this size are inverted row by row: measured, splitting pays from about here on."""


def inverse_lower(L: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """L^-1 of a lower triangular matrix; where the diagonal is zero, row and column are left out (zero)."""
    k = L.shape[0]
    if k <= LEAF:
        return _inverse_lower_rows(L)
    h = k // 2
    first, last = inverse_lower(L[:h, :h]), inverse_lower(L[h:, h:])
    below = -dot(last, dot(L[h:, :h], first))
    return _lower_blocks(first, below, last)


def _lower_blocks(first: Array, below: Array, last: Array) -> Array:
    above = jnp.zeros((first.shape[0], last.shape[1]), first.dtype)
    return jnp.block([[first, above], [below, last]])


def _inverse_lower_rows(L: Float[Array, "k k"]) -> Float[Array, "k k"]:
    # In place: columns before i already hold the inverse, those after it still hold L.
    rows = jnp.arange(L.shape[0])

    def step(i, T):
        at = rows == i
        pivot = T[i, i]
        row = jnp.where(at, 1, T[i]) * jnp.where(pivot == 0, 0, 1 / jnp.where(pivot == 0, 1, pivot))
        column = jnp.where(rows > i, T[:, i], 0)
        T = jnp.where(at[None, :], 0, T) - column[:, None] * row[None, :]
        return jnp.where(at[:, None], row[None, :], T)

    return jax.lax.fori_loop(0, L.shape[0], step, jnp.tril(L))


def inverse_cholesky_factor(
    M: Float[Array, "k k"],
) -> tuple[Float[Array, "k k"], Float[Array, " k"]]:
    """W = L^-1 with M = L L^T, and the pivots L_kk^2; where one is not positive, W is not finite."""
    k = M.shape[0]
    if k <= LEAF:
        return _inverse_cholesky_rows(M)
    h = k // 2
    first, pivots = inverse_cholesky_factor(M[:h, :h])
    across = dot(M[h:, :h], first.T)
    last, more = inverse_cholesky_factor(M[h:, h:] - dot(across, across.T))
    below = -dot(last, dot(across, first))
    return _lower_blocks(first, below, last), jnp.concatenate([pivots, more])


def _inverse_cholesky_rows(M: Float[Array, "k k"]) -> tuple[Array, Array]:
    # Gaussian elimination in place: columns before i hold the inverse of the unit lower factor.
    k = M.shape[0]
    rows = jnp.arange(k)

    def step(i, T):
        at, below = rows == i, rows > i
        column = jnp.where(below, T[:, i] / T[i, i], 0)
        row = jnp.where(at, 1, T[i])
        T = jnp.where(below[:, None] & at[None, :], 0, T)
        return T - column[:, None] * row[None, :]

    T = jax.lax.fori_loop(0, k, step, M)
    pivots = jnp.diagonal(T)
    unit = jnp.tril(T, -1) + jnp.eye(k, dtype=M.dtype)
    return unit / jnp.sqrt(pivots)[:, None], pivots


@jax.custom_jvp
def inverse_cholesky(M: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """W = L^-1 where M = L L^T is symmetric positive definite; so W^T is a square root of M^-1 = W^T W.

    NaN throughout where M is singular or indefinite, a pivot being at most n machine epsilons of its diagonal
    entry: the caller reports it. Only the symmetric part of M counts, for the derivative too:

        dW = -Phi(W dM W^T) W,    Phi the lower triangle with halved diagonal.

    **Returns:** (n, n), lower triangular.
    """
    M = (M + M.T) / 2
    W, pivots = inverse_cholesky_factor(M)
    tolerance = M.shape[0] * jnp.finfo(M.dtype).eps
    definite = jnp.all(pivots > tolerance * jnp.diagonal(M))
    return jnp.where(definite, W, jnp.nan)


@inverse_cholesky.defjvp
def _inverse_cholesky_jvp(primals, tangents):
    (M,), (dM,) = primals, tangents
    W = inverse_cholesky(M)
    X = dot(dot(W, (dM + dM.T) / 2), W.T)
    halved = jnp.tril(X, -1) + jnp.diag(jnp.diagonal(X) / 2)
    return W, -dot(halved, W)
