"""Least squares by pivoted QR: Householder reflections."""

from typing import ClassVar, final

import equinox as eqx

from ._base import DEFAULT_RCOND, AbstractPseudoinverse
from ._kernels import householder, threshold
from ._least_squares import pseudoinverse_of_factors


@final
class HouseholderQR(AbstractPseudoinverse):
    """Least squares by Householder QR with pivoting (DPV 2008, section 3), for rows of any rank.

    With B^T = Q R the chosen rows R11 give B = Z R11^T Q^T, Z = R^T R11^-T having the identity in those rows; so

        B^+ = Q R11^-T (Z^T Z)^-1 Z^T,

    where Z^T Z is small and, by the pivoting, well conditioned.

    **Arguments:**

    - `rcond`: a row is dependent when its residual, relative to unit norm, is at most this.
    """

    rcond: float = eqx.field(static=True, default=DEFAULT_RCOND)
    independent_rows: ClassVar[bool] = False

    def _unit_rows(self, B):
        return pseudoinverse_of_factors(householder(B, threshold(self.rcond, B)))
