"""Cholesky of B B^T, for independent rows only."""

from typing import ClassVar, final

import equinox as eqx
import jax.numpy as jnp

from ._base import AbstractPseudoinverse
from ._kernels import dot
from ._triangular import inverse_cholesky_factor


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
