"""The Moore-Penrose inverse by any method a user names."""

from typing import Any

import lineax as lx
from jaxtyping import Array, Inexact

from .._misc._errors import InputError
from . import _methods
from ._base import AbstractPseudoinverse, RankedInverse
from ._lineax import Lineax


def as_pseudoinverse(x: Any) -> AbstractPseudoinverse:
    """`x` itself if it is a pseudoinverse method, or a lineax solver wrapped as `Lineax`.

    **Raises:** `InputError` for anything else, naming the choices.
    """
    if isinstance(x, AbstractPseudoinverse):
        return x
    if isinstance(x, lx.AbstractLinearSolver):
        return Lineax(x)
    known = ", ".join(f"{name}()" for name, method in vars(_methods).items() if isinstance(method, type))
    raise InputError(f"a pseudoinverse method must be one of {known}, or a lineax solver; got {x!r}.")


def pinv(B: Inexact[Array, "m n"], method: AbstractPseudoinverse | lx.AbstractLinearSolver) -> RankedInverse:
    r"""The Moore-Penrose inverse B^+ by any method (DPV 2008, section 3), differentiable at constant rank.

    Rows are scaled to unit norm, B = C Bs; rows smaller than 1e3 machine epsilons of the largest are rounding
    noise and count as zero. The method finds the rank and P, the least-norm solution of Bs x = z; the scaling
    is undone so that the answer is the pseudoinverse of B itself, for inconsistent right-hand sides too:

        B^+ = P C^-1 (I - V V^T),    V an orthonormal basis of the left null space of B.

    The derivative is one rule for all methods and both modes (Golub and Pereyra 1973; P = B^+):

        dP = -P dB P + P P^T dB^T (I - B P) + (I - P B) dB^T P^T P.

    **Arguments:**

    - `B`: a floating-point matrix of shape (m, n), any m and n, zero included; a complex one goes through the real
      matrix [[Re B, -Im B], [Im B, Re B]], and transposes above are then conjugate ones.
    - `method`: an `AbstractPseudoinverse`, such as `SVD()`, or a lineax solver.

    **Returns:** `RankedInverse`: `matrix` of shape (n, m) in B's dtype, and `rank`, an int32 scalar.

    **Raises:** `InputError` if B is not a floating-point matrix, or the method is none.
    """
    return as_pseudoinverse(method)(B)
