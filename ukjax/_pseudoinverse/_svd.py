"""The singular value decomposition: one-sided Jacobi for small matrices, LAPACK for large ones."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._base import AbstractPseudoinverse
from ._kernels import above_rounding, dot, gram_schmidt

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
