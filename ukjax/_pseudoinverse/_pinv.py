"""The Moore-Penrose inverse by any method a user names."""

import lineax as lx
from jaxtyping import Array, Float

from ._base import AbstractPseudoinverse, Pseudoinverse
from ._lineax import as_pseudoinverse


def pinv(B: Float[Array, "m n"], method: AbstractPseudoinverse | lx.AbstractLinearSolver) -> Pseudoinverse:
    r"""The Moore-Penrose inverse B^+ by any method (DPV 2008, section 3), differentiable at constant rank.

    Rows are scaled to unit norm, B = C Bs; rows smaller than 1e3 machine epsilons of the largest are rounding
    noise and count as zero. The method finds the rank and P, the least-norm solution of Bs x = z; the scaling
    is undone so that the answer is the pseudoinverse of B itself, for inconsistent right-hand sides too:

        B^+ = P C^-1 (I - V V^T),    V an orthonormal basis of the left null space of B.

    The derivative is one rule for all methods and both modes (Golub and Pereyra 1973; P = B^+):

        dP = -P dB P + P P^T dB^T (I - B P) + (I - P B) dB^T P^T P.

    **Arguments:**

    - `B`: a real floating-point matrix of shape (m, n), any m and n, zero included.
    - `method`: an `AbstractPseudoinverse`, such as `SVD()`, or a lineax solver.

    **Returns:** `Pseudoinverse`: `matrix` of shape (n, m) in B's dtype, and `rank`, an int32 scalar.

    **Raises:** `InputError` if B is not a real floating-point matrix, or the method is none.
    """
    return as_pseudoinverse(method)(B)
