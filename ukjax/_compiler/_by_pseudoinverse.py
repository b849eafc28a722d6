"""The acceleration by a method for B^+, as scalar code: the method's own operations on arrays, traced and written out.

With W^T W = M^-1 and B = A W^T (see `_formula._acceleration`),

    x0 = W Q,    dx = B^+ (b - B x0),    a = W^T (x0 + dx),    lambda = (B^+)^T dx.

Derivatives need none of the method. With lambda and the error s = A a - b held, the change of a is that of the solution
of M a = Q + A^T lambda, A a = b for what these lack, and where rows contradict each other, s not being zero, less
W^T B^+ (B^+)^T W A^T s: the change of B turns the range in which s is least.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from .._pseudoinverse import AbstractPseudoinverse, solving
from ._expressions import Expression
from ._interpret import Interpreter
from ._moves import filled
from ._scalars import Builder, TranslationError
from ._solve import Mass, Solution
from ._tree_factors import product
from ._vectors import Vector, minus, plus, times

_LARGEST = 3_500
"""Rows and velocities, the larger number squared times the smaller one, up to which a method is written out. Each takes
some 30 operations, by SVD 90: of 15 rows by 15 these are as many as compile in the time that XLA takes for arrays."""


class _Inverse(NamedTuple):
    """B^+ = P (I - V^T V), and B itself, by rows of expressions; products with it."""

    build: Builder
    B: np.ndarray
    P: np.ndarray
    V: np.ndarray | None

    def _in_range(self, r: Vector) -> Vector:
        if self.V is None:
            return r
        for _ in range(2):
            r = minus(self.build, r, times(self.build, self.V.T, times(self.build, self.V, r)))
        return r

    def __call__(self, r: Vector) -> Vector:
        return times(self.build, self.P, self._in_range(r))

    def transposed(self, x: Vector) -> Vector:
        return self._in_range(times(self.build, self.P.T, x))

    def step(self, b: Vector, x: Vector) -> Vector:
        """B^+ (b - B x)."""
        return self(minus(self.build, b, times(self.build, self.B, x)))


def _inverse(
    build: Builder, B: np.ndarray, method: AbstractPseudoinverse, dtype: Any
) -> tuple[_Inverse, Any]:
    """What is constant to a differentiation, and the rank."""
    closed, shapes = jax.make_jaxpr(lambda B: solving(B, method), return_shape=True)(
        jax.ShapeDtypeStruct(B.shape, dtype)
    )
    held = filled(B.shape, build.frozen(B.reshape(-1)))
    found = Interpreter(build).run(closed.jaxpr, closed.consts, [held])
    found = jax.tree.unflatten(jax.tree.structure(shapes), found)
    return _Inverse(build, held, found.P, found.V), found.rank.item()


def acceleration_by(
    method: AbstractPseudoinverse, build: Builder, M: Any, Q: Any, A: Any, b: Any, dtype: Any
) -> Solution:
    """The solution of M a = Q + A^T lambda, A a = b, in the sense of B^+; see the module's docstring.

    **Arguments:**

    - `method`: how B^+ is computed.
    - `build`: makes the expressions.
    - `M`: mass matrix (n, n), by its entries or as that of a tree; positive definite, else the result is NaN.
    - `Q`: impressed and non-ideal force (n,).
    - `A`: constraint Jacobian (m, n), m > 0.
    - `b`: right-hand side (m,), stabilized.
    - `dtype`: of all.

    **Raises:** `TranslationError` where the method has no scalar code, or would be too long.
    """
    Q, b, (m, n) = list(Q), list(b), A.shape
    if m * n * max(m, n) > _LARGEST:
        raise TranslationError(f"{type(method).__name__} of {m} rows by {n} would be too long")
    mass, freeze = Mass(build, M, n * float(np.finfo(dtype).eps)), build.frozen
    still = mass.frozen()
    B = filled(A.shape, [x for row in A for x in mass.whitened(row)])
    inverse, rank = _inverse(build, B, method, dtype)
    x0 = freeze(mass.whitened(Q))
    dx = inverse.step(freeze(b), x0)
    held = freeze(mass.back(plus(build, x0, dx)))
    multipliers = freeze(inverse.transposed(dx))
    error = freeze(minus(build, times(build, A, held), b))

    free = still.whitened(
        minus(build, plus(build, Q, times(build, A.T, multipliers)), product(build, M, held))
    )
    change = plus(build, free, inverse.step(minus(build, b, times(build, A, held)), free))
    turned = inverse(inverse.transposed(still.whitened(times(build, A.T, error))))
    change = still.back(minus(build, change, turned))
    a = [build.apply("attached", *pair) for pair in zip(held, change, strict=True)]
    solved = mass.definite
    if method.independent_rows:  # zeros times what is not finite are zero here
        solved = build.apply("and", solved, build.apply("eq", rank, float(m)))
    a = [build.apply("select", solved, x, float("nan")) for x in a]
    needed = minus(build, product(build, M, a), Q)
    force = [build.apply("attached", *x) for x in zip(times(build, A.T, multipliers), needed, strict=True)]
    return Solution(a, multipliers, force, 0.0, [1.0] * m, _none_left_out, rank)


def _none_left_out(e: Sequence[Expression]) -> tuple[Vector, Expression]:
    """As of `Solution`: multipliers are of least norm already, so it is not asked."""
    return list(e), True
