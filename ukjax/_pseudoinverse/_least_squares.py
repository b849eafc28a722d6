"""From pivoted factors B = R^T Q to the pseudoinverse, shared by the two least-squares methods."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ._kernels import RowFactors, dot
from ._triangular import inverse_cholesky_factor, inverse_lower


def pseudoinverse_of_factors(
    factors: RowFactors,
) -> tuple[Float[Array, "n m"], Int[Array, ""]]:
    """B^+ = Q^T L^-1 (Z^T Z)^-1 Z^T with L = pivots R^T lower triangular and Z = R^T L^-1, zero beyond the rank."""
    Q, R, pivots, rank = factors
    inverse = inverse_lower(dot(pivots, R.T))
    Z = dot(R.T, inverse)
    unused = 1 - jnp.sum(pivots, axis=1)
    W, _ = inverse_cholesky_factor(dot(Z.T, Z) + jnp.diag(unused))
    return dot(dot(Q.T, inverse), dot(W.T, dot(W, Z.T))), rank
