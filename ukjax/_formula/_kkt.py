"""The Lagrange multiplier form: one linear system for the acceleration and the multipliers together."""

import dataclasses
from typing import ClassVar, final

import jax.numpy as jnp
import lineax as lx

from .._misc._precision import in_full_precision
from .._misc._tolerances import OF_WHOLE_SYSTEM
from .._pseudoinverse import AbstractPseudoinverse, GramSchmidt, as_pseudoinverse, pinv
from ._acceleration import AbstractFormula, Acceleration, Equations
from ._singular_mass import result


@final
class KKT(AbstractFormula):
    """The Lagrange multiplier form, a and lambda from one linear system (Xu-Liu 2017, eq. (10); DPV 2008, eq. (23)):

        [ M  -A^T ] [   a    ]   [ Q + c ]
        [ A    0  ] [ lambda ] = [   b   ]

    M may be singular as long as [M; A] has rank n. The system as it stands is singular where rows depend on others.
    So dependent rows are replaced: with R = A A^+, the projector onto what A can reach,

        [ M  -(R A)^T ] [   a    ]   [ Q + c ]
        [ R A   I - R ] [ lambda ] = [  R b  ]

    has one solution for rows of any rank, the a of the other formulas and lambda of least norm; for independent rows
    R = I. Where [M; A] has rank below n, a is NaN.

    **Arguments:**

    - `pinv`: a pseudoinverse method that handles dependent rows, or a lineax solver; it decides the rank of A.
    """

    pinv: AbstractPseudoinverse
    needs_definite_mass: ClassVar[bool] = False

    def __init__(self, pinv: AbstractPseudoinverse | lx.AbstractLinearSolver = GramSchmidt()):
        self.pinv = as_pseudoinverse(pinv)

    @in_full_precision
    def solve(self, equations: Equations) -> Acceleration:
        M, A, b = equations.M, equations.rows.A, equations.rows.b
        n, m = M.shape[0], A.shape[0]
        inverse = pinv(A, self.pinv)
        reach = A @ inverse.matrix
        # Rows of norm about 1, and inertia of size about 1: multipliers are in units of size / norm.
        squares = jnp.sum(A * A, axis=1)
        norm = jnp.sqrt(jnp.where(squares > 0, squares, 1))
        size = jnp.trace(M) / n
        size = jnp.where(size > 0, size, 1)
        rows = (reach @ A) / norm[:, None]
        left = jnp.eye(m, dtype=A.dtype) - reach / norm[:, None] * norm[None, :]
        left = jnp.where(inverse.rank == m, 0, left)
        K = jnp.concatenate(
            [jnp.concatenate([M / size, -rows.T], axis=1), jnp.concatenate([rows, left], axis=1)]
        )
        right = jnp.concatenate([(equations.Q + equations.c) / size, (reach @ b) / norm])
        whole = pinv(K, dataclasses.replace(GramSchmidt(), rcond=OF_WHOLE_SYSTEM))
        unique = whole.rank == n + m
        a = jnp.where(unique, (whole.matrix @ right)[:n], jnp.nan)
        return result(equations, a, inverse, unique)
