"""From pivoted factors to least-norm solutions, shared by the two least-squares methods."""

from jaxtyping import Array, Float, Int

from ._kernels import RowFactors, dot
from ._triangular import inverse_lower


def least_norm(factors: RowFactors) -> tuple[Float[Array, "n m"], Int[Array, ""]]:
    """Q^T L^-1 E, the least-norm solution of the chosen rows E B = L Q, with L = E R^T; and the rank."""
    Q, R, pivots, rank = factors
    inverse = inverse_lower(dot(pivots, R.T))
    return dot(dot(Q.T, inverse), pivots), rank
