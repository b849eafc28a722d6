"""Any lineax solver as a pseudoinverse method."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Bool, Float

from ._base import DEFAULT_RCOND, AbstractPseudoinverse
from ._kernels import dot


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
