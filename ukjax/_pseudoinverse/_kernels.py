"""Small dense factorizations by rows, in `fori_loop`s of static length.

They batch well under `jax.vmap` (pivots are one-hot vectors, contracted; no gather per batch element) and
work for large single matrices. LAPACK under vmap is slow on CPU, where it can hang (QR then a triangular
solve, from a few thousand matrices on), and loops over the batch on GPU.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._misc._types import in_full_precision

dot = in_full_precision(jnp.matmul)


class RowFactors(NamedTuple):
    """B = R^T Q with orthonormal rows Q, k = min(m, n): the pivoted QR of B^T, rows kept in B's order.

    `pivots @ R.T` is lower triangular, one-hot row j of `pivots` naming B's row chosen at step j. Rows of all
    three beyond `rank` are zero.
    """

    Q: Float[Array, "k n"]
    R: Float[Array, "k m"]
    pivots: Float[Array, "k m"]
    rank: Int[Array, ""]


def above_rounding(rcond: float, B: Float[Array, "m n"]) -> float:
    """`rcond`, but never below what rounding can tell: max(m, n) machine epsilons."""
    return max(rcond, max(B.shape) * float(jnp.finfo(B.dtype).eps))


_EQUAL = 1e-3  # relative: rows of a mechanism are often of one size but for drift, which is not to choose between them


def one_hot_largest(squares: Float[Array, " m"]) -> Float[Array, " m"]:
    """The one-hot vector of the largest entry; of entries that are nearly equal, the first.

    So the order of pivots, and with it the rank found near the threshold, does not change with rounding.
    """
    largest = squares >= (1 - _EQUAL) * jnp.max(squares)
    return (jnp.arange(squares.shape[0]) == jnp.argmax(largest)).astype(squares.dtype)


def set_row(X: Float[Array, "k n"], i, row: Float[Array, " n"]) -> Float[Array, "k n"]:
    """X with row i replaced; i is the same for the whole batch."""
    return jax.lax.dynamic_update_slice(X, row[None, :], (i, jnp.zeros_like(i)))


def _no_factors(B: Float[Array, "m n"]) -> RowFactors:
    m, n = B.shape
    k = min(m, n)
    rows = jnp.zeros((k, m), B.dtype)
    return RowFactors(jnp.zeros((k, n), B.dtype), rows, rows, jnp.zeros((), jnp.int32))


def gram_schmidt(B: Float[Array, "m n"], rcond: float) -> RowFactors:
    """Row-pivoted modified Gram-Schmidt with one reorthogonalization of each pivot (Björck 1967).

    At each step the row with the largest residual is normalized and removed from the others; it counts as
    independent while that residual exceeds rcond times the first pivot's.
    """
    m, n = B.shape
    k = min(m, n)

    def step(j, carry):
        V, first, factors = carry
        Q, R, pivots, rank = factors
        squares = jnp.sum(V * V, axis=1)
        norm = jnp.sqrt(jnp.max(squares))
        first = jnp.where(j == 0, norm, first)
        accept = norm > rcond * first
        one_hot = jnp.where(accept, one_hot_largest(squares), 0)
        q = dot(one_hot, V)
        q = q - dot(dot(Q, q), Q)
        square = jnp.sum(q * q)
        q = q / jnp.sqrt(jnp.where(accept, square, 1))
        r = dot(V, q)
        V = (V - r[:, None] * q[None, :]) * (1 - one_hot)[:, None]
        rank = rank + accept.astype(rank.dtype)
        factors = RowFactors(set_row(Q, j, q), set_row(R, j, r), set_row(pivots, j, one_hot), rank)
        return V, first, factors

    return jax.lax.fori_loop(0, k, step, (B, jnp.zeros((), B.dtype), _no_factors(B)))[2]


def _reflector(x: Float[Array, " n"], j, norm: Float[Array, ""], accept: Array) -> Float[Array, " n"]:
    """The v of I - v v^T that takes x, zero before its entry j, to that entry; zero unless accepted."""
    head = jax.lax.dynamic_index_in_dim(x, j, keepdims=False)
    signed = jnp.where(head < 0, -norm, norm)
    at_head = (jnp.arange(x.size) == j).astype(x.dtype)
    scale = jnp.where(accept, norm * (norm + jnp.abs(head)), 1)
    return jnp.where(accept, (x + signed * at_head) / jnp.sqrt(scale), 0)


def householder(B: Float[Array, "m n"], rcond: float, *, pivot: bool = True) -> RowFactors:
    """Row-pivoted Householder QR of B^T (Golub and Businger 1965); without pivoting row j is step j's.

    Without pivoting `rank` counts the steps whose pivot was accepted.
    """
    m, n = B.shape
    k = min(m, n)
    columns = jnp.arange(n)

    def step(j, carry):
        A, first, reflectors, pivots, rank = carry
        tail = columns >= j
        trailing = jnp.where(tail[None, :], A, 0)
        if pivot:
            squares = jnp.sum(trailing * trailing, axis=1)
            one_hot = one_hot_largest(squares)
        else:
            one_hot = (jnp.arange(m) == j).astype(A.dtype)
        x = dot(one_hot, trailing)
        norm = jnp.sqrt(jnp.sum(x * x))
        first = jnp.where(j == 0, norm, first)
        accept = norm > rcond * first
        v = _reflector(x, j, norm, accept)
        A = A - dot(A, v)[:, None] * v[None, :]
        clear = (one_hot[:, None] > 0) & (columns > j)[None, :] & accept
        A = jnp.where(clear, 0, A)
        one_hot = jnp.where(accept, one_hot, 0)
        rank = rank + accept.astype(rank.dtype)
        return A, first, set_row(reflectors, j, v), set_row(pivots, j, one_hot), rank

    none = _no_factors(B)
    start = B, jnp.zeros((), B.dtype), none.Q, none.pivots, none.rank
    A, _, reflectors, pivots, rank = jax.lax.fori_loop(0, k, step, start)

    def reflect(i, Q):
        v = jax.lax.dynamic_index_in_dim(reflectors, k - 1 - i, keepdims=False)
        return Q - dot(Q, v)[:, None] * v[None, :]

    Q = jax.lax.fori_loop(0, k, reflect, jnp.eye(k, n, dtype=B.dtype))
    used = jnp.sum(pivots, axis=1)[:, None]
    return RowFactors(used * Q, used * A[:, :k].T, pivots, rank)


# --- Inverses of triangular matrices and of Cholesky factors: products of blocks, short loops at the ends

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
