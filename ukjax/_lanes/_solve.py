"""The acceleration from scalar equations of motion: sparse factorizations in an order of low fill-in.

With M = L D L^T (unit lower L) and the rows w_i = L^-1 A_i^T, the multipliers solve S lambda = b - A M^-1 (Q + c),
S_ij = w_i^T D^-1 w_j, and a = M^-1 (Q + c + A^T lambda). S is factored as L D L^T too. A row of S whose pivot is at
most rcond^2 of its diagonal entry depends on the rows before it, its angle to their span having a sine of at most
rcond; it is left out, lambda_i = 0. For consistent rows that is the answer of the pseudoinverse, whatever row of a
dependent set is left out. One step of iterative refinement brings the accuracy from that of the squared condition
number of B = A M^-1/2 back to that of B.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ._scalars import Builder, Expression, is_number

Vector = list[Expression]


class Factors(NamedTuple):
    """X = L D L^T in the given order of rows: `lower[i]` the entries of L in row i left of the diagonal,
    by column; `inverse[i]` is 1 / D_i, or zero for a row left out."""

    order: list[int]
    lower: list[dict[int, Expression]]
    inverse: Vector


def _is_zero(x: Expression) -> bool:
    return is_number(x) and x == 0


def _low_fill(neighbours: list[set[int]]) -> list[int]:
    """An elimination order by least degree, given who meets whom."""
    neighbours = [set(x) - {i} for i, x in enumerate(neighbours)]
    left, order = set(range(len(neighbours))), []
    while left:
        i = min(left, key=lambda i: (len(neighbours[i]), i))
        left.remove(i)
        order.append(i)
        for j in neighbours[i]:
            neighbours[j] |= neighbours[i] - {j}
            neighbours[j].discard(i)
    return order


def factor(build: Builder, X: np.ndarray, invert: Callable[[Expression, Expression], Expression]) -> Factors:
    """The factors of a symmetric matrix of expressions, of which only one triangle is read.

    **Arguments:**

    - `build`: makes the expressions.
    - `X`: (k, k).
    - `invert`: 1 / D_i from the pivot and the diagonal entry X_ii.
    """
    k = X.shape[0]
    order = _low_fill([{j for j in range(k) if not _is_zero(X[max(i, j), min(i, j)])} for i in range(k)])
    lower: list[dict[int, Expression]] = [{} for _ in range(k)]
    scaled: list[dict[int, Expression]] = [{} for _ in range(k)]  # L D
    inverse: Vector = []
    for row, i in enumerate(order):
        for column in range(row):
            j = order[column]
            shared = scaled[row].keys() & lower[column].keys()
            terms = [build.apply("mul", scaled[row][c], lower[column][c]) for c in sorted(shared)]
            entry = build.apply("sub", X[max(i, j), min(i, j)], build.total(terms))
            if not _is_zero(entry):
                scaled[row][column] = entry
                lower[row][column] = build.apply("mul", entry, inverse[column])
        terms = [build.apply("mul", x, lower[row][c]) for c, x in scaled[row].items()]
        inverse.append(invert(build.apply("sub", X[i, i], build.total(terms)), X[i, i]))
    return Factors(order, lower, inverse)


def forward(build: Builder, factors: Factors, x: Sequence[Expression]) -> Vector:
    """L^-1 x, in the order of the factors."""
    out: Vector = []
    for i, entries in zip(factors.order, factors.lower, strict=True):
        terms = [build.apply("mul", entry, out[c]) for c, entry in entries.items()]
        out.append(build.apply("sub", x[i], build.total(terms)))
    return out


def backward(build: Builder, factors: Factors, y: Sequence[Expression]) -> Vector:
    """L^-T y, of y in the order of the factors, in the original order."""
    k = len(factors.order)
    out: Vector = list(y)
    for row in reversed(range(k)):
        for column, entry in factors.lower[row].items():
            out[column] = build.apply("sub", out[column], build.apply("mul", entry, out[row]))
    unordered: Vector = [0.0] * k
    for i, x in zip(factors.order, out, strict=True):
        unordered[i] = x
    return unordered


def acceleration(
    build: Builder, M: np.ndarray, Q: np.ndarray, A: np.ndarray, b: np.ndarray, rcond: float, eps: float
) -> Vector:
    """a (n,) of M a = Q + A^T lambda, A a = b; see the module's docstring.

    **Arguments:**

    - `build`: makes the expressions.
    - `M`: mass matrix (n, n); positive definite, else the result is NaN.
    - `Q`: impressed and non-ideal force (n,).
    - `A`: constraint Jacobian (m, n).
    - `b`: right-hand side (m,), stabilized.
    - `rcond`: the rank rule's threshold.
    - `eps`: of the precision.
    """

    definite: Expression = True

    def positive(pivot: Expression, diagonal: Expression) -> Expression:
        nonlocal definite
        above = build.apply("gt", pivot, build.apply("mul", M.shape[0] * eps, diagonal))
        definite = above if definite is True else build.apply("and", definite, above)
        return build.apply("div", 1.0, build.apply("select", above, pivot, 1.0))

    def independent(pivot: Expression, diagonal: Expression) -> Expression:
        kept = build.apply("gt", pivot, build.apply("mul", max(rcond, eps) ** 2, diagonal))
        return build.apply(
            "select", kept, build.apply("div", 1.0, build.apply("select", kept, pivot, 1.0)), 0.0
        )

    mass = factor(build, M, positive)
    W = [forward(build, mass, row) for row in A]
    scaled = [[build.apply("mul", d, w) for d, w in zip(mass.inverse, row, strict=True)] for row in W]
    m = len(W)
    S = np.empty((m, m), object)
    for i in range(m):
        for j in range(i + 1):
            S[i, j] = build.dot(W[i], scaled[j])
    schur = factor(build, S, independent)
    free = [build.apply("mul", d, x) for d, x in zip(mass.inverse, forward(build, mass, Q), strict=True)]

    def corrected(x: Vector, residual: Vector) -> Vector:
        """D L^T a with the rows' residual removed."""
        z = forward(build, schur, residual)
        multipliers = backward(
            build, schur, [build.apply("mul", d, y) for d, y in zip(schur.inverse, z, strict=True)]
        )
        change = (
            [build.dot(column, multipliers) for column in zip(*scaled, strict=True)] if m else [0.0] * len(x)
        )
        return [build.apply("add", *pair) for pair in zip(x, change, strict=True)]

    first = corrected(free, [build.apply("sub", b[i], build.dot(W[i], free)) for i in range(m)])
    a = backward(build, mass, first)
    residual = [build.apply("sub", b[i], build.dot(A[i], a)) for i in range(m)]
    a = backward(build, mass, corrected(first, residual))
    return [build.apply("select", definite, x, float("nan")) for x in a]
