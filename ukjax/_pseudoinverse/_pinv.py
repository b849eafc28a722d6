"""The Moore-Penrose inverse by any method a user names."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Bool, Float, Inexact, Int

from .._misc._errors import InputError
from ._base import DEFAULT_RCOND, AbstractPseudoinverse, RankedInverse, compute_primal_pinv
from ._kernels import dot
from ._methods import METHODS

# --- Any lineax solver as a pseudoinverse method


@final
class Lineax(AbstractPseudoinverse):
    """Any lineax linear solver, applied to B x = e for each unit vector e; the derivative is ours.

    The answer is accepted only if it is a pseudoinverse, that is if it meets Penrose's four conditions to
    `rcond`; if not (`lineax.QR` on dependent rows returns 1e16) the matrix is NaN throughout and the rank -1.
    The rank decision is the solver's own, so give it a tolerance as wide as ours:
    `Lineax(lx.SVD(rcond=1e-4))`. lineax's direct solvers are LAPACK's: slow in batches, and on CPUs of few
    cores known to hang in large ones.

    **Arguments:**

    - `solver`: a `lineax.AbstractLinearSolver`, such as `lx.SVD(rcond=1e-4)`.
    - `rcond`: the residual, relative to that of rows of unit norm, at which the answer is refused.
    """

    solver: lx.AbstractLinearSolver = eqx.field(static=True)
    rcond: float = eqx.field(static=True)

    def __init__(self, solver: lx.AbstractLinearSolver, rcond: float = DEFAULT_RCOND):
        self.solver = solver
        self.rcond = rcond

    def of_unit_rows(self, B):
        operator = lx.MatrixLinearOperator(B)
        state = self.solver.init(operator, {})

        def column(e):
            return lx.linear_solve(operator, e, self.solver, state=state, throw=False).value

        P = jax.vmap(column, out_axes=1)(jnp.eye(B.shape[0], dtype=B.dtype))
        accepted = _penrose(B, P, self.rcond)
        rank = jnp.round(jnp.sum(B * P.T))
        rank = jnp.where(accepted, rank, -1).astype(jnp.int32)
        return jnp.where(accepted, P, jnp.nan), rank


def _penrose(B: Float[Array, "m n"], P: Float[Array, "n m"], tolerance: float) -> Bool[Array, ""]:
    """Whether P meets the four conditions B P B = B, P B P = P, and B P and P B symmetric."""
    BP, PB = dot(B, P), dot(P, B)
    size = jnp.max(jnp.abs(P))

    def small(residual: Array, scale) -> Array:
        return jnp.max(jnp.abs(residual)) <= tolerance * scale  # False for NaN

    return small(dot(BP, B) - B, 1) & small(dot(PB, P) - P, size) & small(BP - BP.T, 1) & small(PB - PB.T, 1)


# --- The normal equations B^+ = B^T (B B^T)^+, by any method


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


# --- The inverse of any matrix, by any method


def as_pseudoinverse(x: AbstractPseudoinverse | lx.AbstractLinearSolver) -> AbstractPseudoinverse:
    """`x` itself if it is a pseudoinverse method, or a lineax solver wrapped as `Lineax`.

    **Raises:** `InputError` for anything else, naming the choices.
    """
    if isinstance(x, AbstractPseudoinverse):
        return x
    if isinstance(x, lx.AbstractLinearSolver):
        return Lineax(x)
    known = ", ".join(f"{method.__name__}()" for method in METHODS)
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
