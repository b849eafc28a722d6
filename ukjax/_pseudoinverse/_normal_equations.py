"""The normal equations B^+ = B^T (B B^T)^+, by any method."""

from typing import final

from jaxtyping import Array, Float, Int

from ._base import AbstractPseudoinverse, compute_primal_pinv
from ._kernels import dot


@final
class NormalEquations(AbstractPseudoinverse):
    """B^+ = B^T S^+ with S = B B^T, the form behind the Schur complement formula (DPV 2008, eqs. (34)-(36)).

    S squares the singular values of B, so the method works with its `rcond` squared, and B should not be worse
    conditioned than about 1e7.

    **Arguments:**

    - `method`: how S^+ is computed.
    """

    method: AbstractPseudoinverse

    def __init__(self, method: AbstractPseudoinverse):
        self.method = method

    @property
    def rcond(self) -> float | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.method.rcond

    def of_unit_rows(self, B: Float[Array, "m n"]) -> tuple[Float[Array, "n m"], Int[Array, ""]]:
        inverse, rank = compute_primal_pinv(dot(B, B.T), self.method.squared(B.dtype))
        return dot(B.T, inverse), rank
