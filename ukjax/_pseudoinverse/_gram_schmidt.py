"""Least squares by pivoted QR: modified Gram-Schmidt."""

from typing import final

import equinox as eqx

from ._base import AbstractPseudoinverse
from ._kernels import above_rounding, gram_schmidt
from ._least_squares import least_norm


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
