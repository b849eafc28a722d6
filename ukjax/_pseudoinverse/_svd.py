"""The singular value decomposition: one-sided Jacobi for small matrices, LAPACK for large ones."""

from typing import ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._base import DEFAULT_RCOND, AbstractPseudoinverse
from ._kernels import dot, householder, threshold

LARGEST_JACOBI = 32
MAX_SWEEPS = 15


@final
class SVD(AbstractPseudoinverse):
    """The singular value decomposition B = U S V^T (DPV 2008, section 3), B^+ = V S^+ U^T, for rows of any rank.

    Up to 32 x 32 by one-sided Jacobi rotations after a pivoted QR (Drmač and Veselić 2008), which batches well
    and finds small singular values to high relative accuracy; larger matrices by `jnp.linalg.svd`.

    **Arguments:**

    - `rcond`: singular values at most this times the largest, those of the rows at unit norm, count as zero.
    """

    rcond: float = eqx.field(static=True, default=DEFAULT_RCOND)
    independent_rows: ClassVar[bool] = False

    def _unit_rows(self, B):
        rcond = threshold(self.rcond, B)
        if max(B.shape) > LARGEST_JACOBI:
            U, s, VT = jnp.linalg.svd(B, full_matrices=False)
            keep = s > rcond * s[0]
            P = dot(VT.T * jnp.where(keep, 1 / jnp.where(keep, s, 1), 0)[None, :], U.T)
        else:
            left, right = _jacobi(B)
            s = jnp.sqrt(jnp.sum(left * left, axis=1))
            keep = s > rcond * jnp.max(s)
            inverse = jnp.where(keep, 1 / jnp.where(keep, s * s, 1), 0)
            P = dot(right.T * inverse[None, :], left)
        return P, jnp.sum(keep, dtype=jnp.int32)


def _jacobi(B: Float[Array, "m n"]) -> tuple[Float[Array, "k m"], Float[Array, "k n"]]:
    """B = left^T right with orthogonal rows of `left`, whose norms are the singular values, and orthonormal `right`."""
    m = B.shape[0]
    factors = householder(B, threshold(0.0, B))
    k = factors.R.shape[0]
    pairs = (k + 1) // 2
    if pairs < 2 and k < 2:
        return factors.R, factors.Q
    stacked = jnp.concatenate([factors.R, factors.Q], axis=1)
    stacked = jnp.pad(stacked, ((0, 2 * pairs - k), (0, 0)))
    tolerance = float(jnp.finfo(B.dtype).eps) ** 0.75

    def sweep(carry):
        count, _, X = carry
        worst, X = jax.lax.fori_loop(
            0, 2 * pairs - 1, lambda _, c: _rotate(c, m), (jnp.zeros((), B.dtype), X)
        )
        return count + 1, worst, X

    def unfinished(carry):
        return (carry[0] < MAX_SWEEPS) & (carry[1] > tolerance)

    start = jnp.zeros((), jnp.int32), jnp.full((), jnp.inf, B.dtype), stacked
    X = jax.lax.while_loop(unfinished, sweep, start)[2]
    return X[:, :m], X[:, m:]


def _rotate(carry: tuple[Array, Array], m: int) -> tuple[Array, Array]:
    """One round of a sweep: the first half of the rows against the second, then the round robin's next pairing."""
    worst, X = carry
    h = X.shape[0] // 2
    p, q = X[:h], X[h:]
    alpha = jnp.sum(p[:, :m] ** 2, axis=1)
    beta = jnp.sum(q[:, :m] ** 2, axis=1)
    gamma = jnp.sum(p[:, :m] * q[:, :m], axis=1)
    size = jnp.sqrt(alpha * beta)
    cosine = jnp.abs(gamma) / jnp.where(size > 0, size, 1)
    rotate = gamma != 0
    zeta = (beta - alpha) / jnp.where(rotate, 2 * gamma, 1)
    sign = jnp.where(zeta < 0, -1, 1).astype(X.dtype)
    t = jnp.where(rotate, sign / (jnp.abs(zeta) + jnp.sqrt(1 + zeta * zeta)), 0)
    c = 1 / jnp.sqrt(1 + t * t)
    c, s = c[:, None], (c * t)[:, None]
    p, q = c * p - s * q, s * p + c * q
    X = jnp.concatenate([p[:1], q[:1], p[1:-1], q[1:], p[-1:]]) if h > 1 else X
    return jnp.maximum(worst, jnp.max(cosine)), X
