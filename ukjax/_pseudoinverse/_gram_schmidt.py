"""Least squares by pivoted QR: modified Gram-Schmidt."""

from typing import final

import equinox as eqx

from ._base import DEFAULT_RCOND, AbstractPseudoinverse
from ._kernels import gram_schmidt, threshold
from ._least_squares import least_norm


@final
class GramSchmidt(AbstractPseudoinverse):
    """Least squares by modified Gram-Schmidt with pivoting (DPV 2008, section 3), for rows of any rank.

    As `HouseholderQR`, but the orthonormal rows come from modified Gram-Schmidt, each pivot orthogonalized
    a second time so that they stay orthonormal to rounding.

    **Arguments:**

    - `rcond`: a row is dependent when its residual, relative to unit norm, is at most this.
    """

    rcond: float = eqx.field(static=True, default=DEFAULT_RCOND)

    def _unit_rows(self, B):
        return least_norm(gram_schmidt(B, threshold(self.rcond, B)))
