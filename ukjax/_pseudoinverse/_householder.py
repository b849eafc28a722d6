"""Least squares by pivoted QR: Householder reflections."""

from typing import final

import equinox as eqx

from ._base import AbstractPseudoinverse
from ._kernels import above_rounding, householder
from ._least_squares import least_norm


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
