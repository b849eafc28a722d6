"""Varga's method: the complete orthogonal decomposition."""

from typing import final

import equinox as eqx

from ._base import AbstractPseudoinverse
from ._kernels import above_rounding, dot, householder
from ._triangular import inverse_lower


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
