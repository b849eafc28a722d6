"""Formulas that allow a singular mass matrix: a massless body, or more velocities than inertia.

All need rows A, in place of inertia, to determine what M leaves open: the acceleration is unique if and only if
[M; A] has rank n. With the projector E = I - A^+ A on ker A, the equations of motion are E M a = E (Q + c),
in which the constraint force is gone, and A a = b.
"""

import dataclasses
from typing import Any, ClassVar, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._misc._arguments import real_array, require_finite
from .._misc._errors import InputError
from .._misc._tolerances import OF_PROJECTED_MASS, OF_WHOLE_SYSTEM
from .._misc._types import in_full_precision
from .._pseudoinverse import (
    AbstractPseudoinverse,
    GramSchmidt,
    RankedInverse,
    as_pseudoinverse,
    inverse_cholesky,
    pinv,
)
from ._acceleration import AbstractFormula, Acceleration, Equations


def _projector(equations: Equations, method: AbstractPseudoinverse) -> tuple[RankedInverse, Array]:
    """A^+ and E = I - A^+ A, which is zero where the rows leave nothing free: rounding noise would be inverted."""
    A = equations.rows.A
    inverse = pinv(A, method)
    E = jnp.eye(A.shape[1], dtype=A.dtype) - inverse.matrix @ A
    return inverse, jnp.where(inverse.rank == A.shape[1], 0, E)


def _fine(method: AbstractPseudoinverse) -> AbstractPseudoinverse:
    return dataclasses.replace(method, rcond=min(method.rcond or 1.0, OF_PROJECTED_MASS))


def result(
    equations: Equations, a: Float[Array, " n"], inverse: RankedInverse, unique: Bool[Array, ""]
) -> Acceleration:
    """What follows from a: M a - Q - c = A^T lambda, and Gauss's functional with M^+ for M^-1."""
    M, rows = equations.M, equations.rows
    force = M @ a - equations.Q
    ideal = force - equations.c
    return Acceleration(
        a=a,
        constraint_force=force,
        multipliers=inverse.matrix.T @ ideal,
        rank=inverse.rank,
        residual=rows.A @ a - rows.b,
        gauss=ideal @ (pinv(M, _fine(GramSchmidt())).matrix @ ideal),
        unique=unique,
    )


@final
class RangeForm(AbstractFormula):
    """a = Z (Q + c) + (A^+ - Z M A^+) b, Z = (E M E)^+; M may be singular (DPV 2008, eq. (41)).

    Where [M; A] has rank below n, it is the solution without a part in their common kernel. A force there, which nothing
    could balance, leaves no solution; it is then told of among the constraint forces.

    **Arguments:**

    - `pinv`: a pseudoinverse method that handles dependent rows, or a lineax solver.
    """

    pinv: AbstractPseudoinverse = eqx.field(converter=as_pseudoinverse, default_factory=GramSchmidt)
    needs_definite_mass: ClassVar[bool] = False

    @in_full_precision
    def solve(self, equations: Equations) -> Acceleration:
        M, b = equations.M, equations.rows.b
        inverse, E = _projector(equations, self.pinv)
        Z = pinv(E @ M @ E, _fine(self.pinv))
        by_rows = inverse.matrix @ b
        a = by_rows + Z.matrix @ (equations.Q + equations.c - M @ by_rows)
        return result(equations, a, inverse, inverse.rank + Z.rank == M.shape[0])


def _free_acceleration(eta: Any) -> Array | None:
    if eta is None:
        return None
    array = real_array("eta", eta)
    if array.ndim != 1:
        raise InputError(f"eta has shape {array.shape}; it must be a vector.")
    require_finite("eta", array)
    return array


@final
class StackedForm(AbstractFormula):
    """a = [E M; A]^+ [E (Q + c); b] + (I - [E M; A]^+ [E M; A]) eta; M may be singular.

    Udwadia and Phohomsiri 2006; DPV 2008, eqs. (42)-(43), whose Q + c stands for E (Q + c): the pseudoinverse
    gives the same for both. Where [M; A] has rank below n, eta chooses among the solutions.

    **Arguments:**

    - `pinv`: a pseudoinverse method that handles dependent rows, or a lineax solver.
    - `eta`: the free acceleration (n,) of which the part in the common kernel is taken; by default zero, which
      gives the solution of least norm.
    """

    pinv: AbstractPseudoinverse = eqx.field(converter=as_pseudoinverse, default_factory=GramSchmidt)
    eta: Float[Array, " n"] | None = eqx.field(converter=_free_acceleration, default=None)
    needs_definite_mass: ClassVar[bool] = False

    @in_full_precision
    def solve(self, equations: Equations) -> Acceleration:
        A, n = equations.rows.A, equations.M.shape[0]
        inverse, E = _projector(equations, self.pinv)
        stacked = jnp.concatenate([E @ equations.M, A])
        both = pinv(stacked, _fine(self.pinv))
        right = jnp.concatenate([E @ (equations.Q + equations.c), equations.rows.b])
        a = both.matrix @ right
        if self.eta is not None:
            if self.eta.shape != (n,):
                raise InputError(f"eta has shape {self.eta.shape}; there are {n} velocities.")
            a = a + self.eta - both.matrix @ (stacked @ self.eta)
        return result(equations, a, inverse, both.rank == n)


@final
class NullSpace(AbstractFormula):
    """The null space form [Z^T M; A] a = [Z^T (Q + c); b], Z spanning ker A (Orsino 2017, eq. (3.4)).

    With E's columns for Z: a = A^+ b + K^-1 E (Q + c - M A^+ b), K = E M E + mu (I - E). K is positive definite
    wherever the acceleration is unique, so it takes one pseudoinverse and one Cholesky factor, and M may be
    singular. NaN where the acceleration is not unique.

    **Arguments:**

    - `pinv`: a pseudoinverse method that handles dependent rows, or a lineax solver.
    """

    pinv: AbstractPseudoinverse = eqx.field(converter=as_pseudoinverse, default_factory=GramSchmidt)
    needs_definite_mass: ClassVar[bool] = False

    @in_full_precision
    def solve(self, equations: Equations) -> Acceleration:
        M = equations.M
        inverse, E = _projector(equations, self.pinv)
        by_rows = inverse.matrix @ equations.rows.b
        mu = jnp.trace(M) / M.shape[0]
        W = inverse_cholesky(E @ M @ E + mu * (jnp.eye(M.shape[0], dtype=M.dtype) - E))
        along = W.T @ (W @ (E @ (equations.Q + equations.c - M @ by_rows)))
        a = by_rows + E @ along
        return result(equations, a, inverse, jnp.all(jnp.isfinite(W)))


# --- The Lagrange multiplier form: one linear system for the acceleration and the multipliers together


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

    pinv: AbstractPseudoinverse = eqx.field(converter=as_pseudoinverse, default_factory=GramSchmidt)
    needs_definite_mass: ClassVar[bool] = False

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
