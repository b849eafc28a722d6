"""The methods there are, each a class."""

from typing import ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._base import AbstractPseudoinverse
from ._kernels import (
    RowFactors,
    above_rounding,
    dot,
    gram_schmidt,
    householder,
    inverse_cholesky_factor,
    inverse_lower,
    one_hot_largest,
    set_row,
)

# --- From pivoted factors to least-norm solutions, shared by the two least-squares methods


def least_norm(factors: RowFactors) -> tuple[Float[Array, "n m"], Int[Array, ""]]:
    """Q^T L^-1 E, the least-norm solution of the chosen rows E B = L Q, with L = E R^T; and the rank."""
    Q, R, pivots, rank = factors
    inverse = inverse_lower(dot(pivots, R.T))
    return dot(dot(Q.T, inverse), pivots), rank


# --- Cholesky of B B^T, for independent rows only


@final
class Cholesky(AbstractPseudoinverse):
    """B^+ = B^T (B B^T)^-1 by Cholesky factorization (DPV 2008, section 3): fastest, for independent rows only.

    It cannot handle dependent rows. Where it meets one the matrix is NaN throughout and `rank` counts the
    independent rows before it; `simulate` and `check` report that, and every other method handles it.
    Forming B B^T squares the condition number, so rows closer to dependence than sqrt(m eps) count as
    dependent whatever `rcond` says.

    **Arguments:**

    - `rcond`: a row is dependent when its residual, relative to unit norm, is at most this; by default
      1e-4, in float32 0.03.
    """

    rcond: float | None = eqx.field(static=True, default=None)
    independent_rows: ClassVar[bool] = True

    def of_unit_rows(self, B):
        m = B.shape[0]
        W, pivots = inverse_cholesky_factor(dot(B, B.T))
        good = pivots > max(self.threshold(B.dtype) ** 2, m * float(jnp.finfo(B.dtype).eps))
        rank = jnp.sum(jnp.cumprod(good.astype(jnp.int32)), dtype=jnp.int32)
        return jnp.where(rank == m, dot(dot(B.T, W.T), W), jnp.nan), rank


# --- Varga's method: the complete orthogonal decomposition


@final
class CompleteOrthogonal(AbstractPseudoinverse):
    """Varga's method, the complete orthogonal decomposition (DPV 2008, section 3), for rows of any rank.

    A pivoted Householder QR of B^T gives B = R^T Q1; a second one, of R^T, gives R = T Q2 with T lower
    triangular; so B = Q2^T T^T Q1 and

        B^+ = Q1^T T^-T Q2.

    **Arguments:**

    - `rcond`: a row is dependent when its residual, relative to unit norm, is at most this; by default
      1e-4, in float32 0.03.
    """

    rcond: float | None = eqx.field(static=True, default=None)

    def of_unit_rows(self, B):
        first = householder(B, above_rounding(self.threshold(B.dtype), B))
        second = householder(first.R, 0.0, pivot=False)
        inverse = inverse_lower(second.R.T)
        return dot(dot(first.Q.T, inverse.T), second.Q), first.rank


# --- Least squares by pivoted QR: modified Gram-Schmidt


@final
class GramSchmidt(AbstractPseudoinverse):
    """Least squares by modified Gram-Schmidt with pivoting (DPV 2008, section 3), for rows of any rank.

    As `HouseholderQR`, but the orthonormal rows come from modified Gram-Schmidt, each pivot orthogonalized
    a second time so that they stay orthonormal to rounding.

    **Arguments:**

    - `rcond`: a row is dependent when its residual, relative to unit norm, is at most this; by default
      1e-4, in float32 0.03.
    """

    rcond: float | None = eqx.field(static=True, default=None)

    def of_unit_rows(self, B):
        return least_norm(gram_schmidt(B, above_rounding(self.threshold(B.dtype), B)))


# --- Greville's method: row by row


@final
class Greville(AbstractPseudoinverse):
    """Greville's method, row by row (DPV 2008, section 3, misprints corrected), for rows of any rank.

    For a further row a, with A the rows before it, P = A^+, d = a P and c = a - d A:

        [A; a]^+ = [P - k d, k],    k = c^T / (c c^T) where c is not 0, else k = P d^T / (1 + d d^T).

    Rows are taken by largest residual first, so that the rank does not depend on their order. c comes from
    Gram-Schmidt with one reorthogonalization and d from (a - c) P, refined once; as the formulas stand, B P
    loses symmetry with the square of the condition number.

    **Arguments:**

    - `rcond`: a row is dependent when ||c||, relative to unit norm, is at most this; by default
      1e-4, in float32 0.03.
    """

    rcond: float | None = eqx.field(static=True, default=None)

    def of_unit_rows(self, B):
        m = B.shape[0]
        rcond = above_rounding(self.threshold(B.dtype), B)

        # P is the transposed pseudoinverse, zero in rows not yet taken; `left` marks those.
        def step(i, carry):
            P, Q, residual, left, rank = carry
            squares = jnp.sum(residual * residual, axis=1)
            one_hot = one_hot_largest(jnp.where(left > 0, squares, -1))
            a, c = dot(one_hot, B), dot(one_hot, residual)
            c = c - dot(dot(Q, c), Q)
            square = jnp.sum(c * c)
            independent = jnp.sqrt(square) > rcond
            old = a - c
            d = dot(P, old)
            d = d + dot(P, old - dot(d, B))
            repeated = dot(d, P) / (1 + jnp.sum(d * d))
            k = jnp.where(independent, c / jnp.where(independent, square, 1), repeated)
            P = P + (one_hot - d)[:, None] * k[None, :]
            q = jnp.where(independent, c / jnp.sqrt(jnp.where(independent, square, 1)), 0)
            left = left - one_hot
            residual = (residual - dot(residual, q)[:, None] * q[None, :]) * left[:, None]
            return P, set_row(Q, i, q), residual, left, rank + independent.astype(rank.dtype)

        start = (
            jnp.zeros_like(B),
            jnp.zeros_like(B),
            B,
            jnp.ones(m, B.dtype),
            jnp.zeros((), jnp.int32),
        )
        P, _, _, _, rank = jax.lax.fori_loop(0, m, step, start)
        return P.T, rank


# --- Least squares by pivoted QR: Householder reflections


@final
class HouseholderQR(AbstractPseudoinverse):
    """Least squares by Householder QR with pivoting (DPV 2008, section 3), for rows of any rank.

    With B^T = Q R, E B the rows chosen as pivots and L = E R^T lower triangular,

        B^+ = Q L^-1 E (I - V V^T),

    the least-norm solution of the chosen rows after projecting the right-hand side onto the range of B; V, an
    orthonormal basis of B's left null space, comes from Gram-Schmidt.

    **Arguments:**

    - `rcond`: a row is dependent when its residual, relative to unit norm, is at most this; by default
      1e-4, in float32 0.03.
    """

    rcond: float | None = eqx.field(static=True, default=None)

    def of_unit_rows(self, B):
        return least_norm(householder(B, above_rounding(self.threshold(B.dtype), B)))


# --- The singular value decomposition: one-sided Jacobi for small matrices, LAPACK for large ones

LARGEST_JACOBI = 32
SWEEPS = 4
"""Of rotations, and as many more as the rows can be halved: of 14,300 random matrices of 2 to 32 rows, also nearly
dependent and badly conditioned ones, none took more until all cosines were below `tolerance`."""


@final
class SVD(AbstractPseudoinverse):
    """The singular value decomposition B = U S V^T, B^+ = V S^+ U^T (DPV 2008, section 3); rows of any rank.

    Up to 32 x 32 by one-sided Jacobi rotations after a pivoted QR (Drmač and Veselić 2008), without LAPACK;
    larger matrices by `jnp.linalg.svd`.

    **Arguments:**

    - `rcond`: singular values at most this times the largest, those of the rows at unit norm, count as zero; by
      default 1e-4, in float32 0.03.
    """

    rcond: float | None = eqx.field(static=True, default=None)

    def of_unit_rows(self, B):
        rcond = above_rounding(self.threshold(B.dtype), B)
        if max(B.shape) > LARGEST_JACOBI:
            U, s, VT = jnp.linalg.svd(B, full_matrices=False)
            keep = s > rcond * s[0]
            P = dot(VT.T * jnp.where(keep, 1 / jnp.where(keep, s, 1), 0)[None, :], U.T)
        else:
            P, keep = _jacobi_pseudoinverse(B, rcond)
        return P, jnp.sum(keep, dtype=jnp.int32)


def _jacobi_pseudoinverse(B: Float[Array, "m n"], rcond: float) -> tuple[Array, Bool[Array, " k"]]:
    """With B = R^T Q and J R = S U^T for a product J of rotations, B^+ = (J Q)^T S^+ U^T.

    Written out for 12 rows this is long: 8 sweeps of 66 rotations. Without the QR up to 13 sweeps were needed. By R
    alone, B^+ = B^T U S^-2 U^T, there would be a quarter less to do, but B B^+ z - z would grow with the square of the
    condition number: where that is 1e4 it is 1e-9 in place of 3e-13.
    """
    m = B.shape[0]
    Q, R, _, _ = gram_schmidt(B, above_rounding(0.0, B))
    rotated = _orthogonalize_rows(jnp.concatenate([R, Q], axis=1), m)
    SUT, VT = rotated[:, :m], rotated[:, m:]
    squares = jnp.sum(SUT * SUT, axis=1)
    keep = squares > rcond**2 * jnp.max(squares)
    inverse = jnp.where(keep, 1 / jnp.where(keep, squares, 1), 0)
    return dot(VT.T, inverse[:, None] * SUT), keep


def _orthogonalize_rows(X: Float[Array, "k c"], m: int) -> Float[Array, "K c"]:
    """J X with orthogonal rows in its first m columns, each sweep rotating all pairs of rows."""
    k = X.shape[0]
    half = (k + 1) // 2
    tolerance = float(jnp.finfo(X.dtype).eps) ** 0.5  # what is left after such a sweep is its square

    def rotated(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        _, X = carry
        start = jnp.zeros((), X.dtype), jnp.sum(X[:, :m] ** 2, axis=1), X
        worst, _, X = jax.lax.fori_loop(0, 2 * half - 1, lambda _, c: _rotate(c, m), start)
        return worst, X

    def sweep(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        return jax.lax.cond(carry[0] > tolerance, rotated, lambda carry: carry, carry)

    X = jnp.pad(X, ((0, 2 * half - k), (0, 0)))
    start = jnp.full((), jnp.inf, X.dtype), X
    return jax.lax.fori_loop(0, SWEEPS + (k - 1).bit_length(), sweep, start)[1]


def _rotate(carry: tuple[Array, Array, Array], m: int) -> tuple[Array, Array, Array]:
    """One round of a sweep: the upper half of the rows against the lower, then the next pairing."""
    worst, squares, X = carry
    h = X.shape[0] // 2
    p, q, alpha, beta = X[:h], X[h:], squares[:h], squares[h:]
    gamma = jnp.sum(p[:, :m] * q[:, :m], axis=1)
    size = jnp.sqrt(jnp.abs(alpha * beta))
    cosine = jnp.abs(gamma) / jnp.where(size > 0, size, 1)
    rotate = gamma != 0
    zeta = (beta - alpha) / jnp.where(rotate, 2 * gamma, 1)
    sign = jnp.where(zeta < 0, -1, 1).astype(X.dtype)
    t = jnp.where(rotate, sign / (jnp.abs(zeta) + jnp.sqrt(1 + zeta * zeta)), 0)
    c = 1 / jnp.sqrt(1 + t * t)
    s = c * t
    rows = _next_pairing(c[:, None] * p - s[:, None] * q, s[:, None] * p + c[:, None] * q)
    squares = _next_pairing(alpha - t * gamma, beta + t * gamma)
    return jnp.maximum(worst, jnp.max(cosine)), squares, rows


def _next_pairing(p: Array, q: Array) -> Array:
    """The circle method: the first stays, all others move on by one place."""
    return jnp.concatenate([p[:1], q[:1], p[1:-1], q[1:], p[-1:]]) if len(p) > 1 else jnp.concatenate([p, q])


METHODS = Cholesky, CompleteOrthogonal, GramSchmidt, Greville, HouseholderQR, SVD
