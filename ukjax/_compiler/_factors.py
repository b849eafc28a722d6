"""Factors X = L D L^T of symmetric matrices of expressions, in an order of low fill-in."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ._scalars import Builder, Entries, Expression, is_zero
from ._vectors import Vector

Taken = dict[int, tuple[Expression, Expression]]


class Factors(NamedTuple):
    """X = L D L^T in the given order of rows: `lower[i]` the entries of L in row i left of the diagonal,
    by column; `inverse[i]` is 1 / D_i, or zero for a row left out."""

    order: list[int]
    lower: list[Entries]
    inverse: Vector

    def forward(self, build: Builder, x: Sequence[Expression]) -> Vector:
        """L^-1 x, in the order of the factors."""
        out: Vector = []
        for i, row in zip(self.order, self.lower, strict=True):
            terms = [build.apply("mul", entry, out[c]) for c, entry in row.items()]
            out.append(build.apply("sub", x[i], build.total(terms)))
        return out

    def backward(self, build: Builder, y: Sequence[Expression]) -> Vector:
        """L^-T y, of y in the order of the factors, in the original order."""
        out: Vector = list(y)
        for row in reversed(range(len(out))):
            for column, entry in self.lower[row].items():
                out[column] = build.apply("sub", out[column], build.apply("mul", entry, out[row]))
        unordered: Vector = [0.0] * len(out)
        for i, x in zip(self.order, out, strict=True):
            unordered[i] = x
        return unordered

    def frozen(self, build: Builder) -> "Factors":
        """The same factors, constant to a differentiation."""
        lower = [dict(zip(row, build.frozen(row.values()), strict=True)) for row in self.lower]
        return Factors(self.order, lower, build.frozen(self.inverse))


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


def order_of(X: np.ndarray) -> list[int]:
    """An order of low fill-in for the factors of a symmetric matrix."""
    k = X.shape[0]
    return _low_fill([{j for j in range(k) if not is_zero(X[max(i, j), min(i, j)])} for i in range(k)])


def factor(
    build: Builder,
    X: np.ndarray,
    invert: Callable[[Expression, int, Taken], Expression],
    order: list[int] | None = None,
) -> Factors:
    """The factors of a symmetric matrix of expressions, of which only one triangle is read."""
    k, order = X.shape[0], order_of(X) if order is None else order
    lower: list[Entries] = [{} for _ in range(k)]
    scaled: list[Entries] = [{} for _ in range(k)]  # L D
    inverse: Vector = []
    for row, i in enumerate(order):
        for column in range(row):
            j = order[column]
            known = build.dot(scaled[row], lower[column])
            entry = build.apply("sub", X[max(i, j), min(i, j)], known)
            if not is_zero(entry):
                scaled[row][column] = entry
                lower[row][column] = build.apply("mul", entry, inverse[column])
        taken = {order[c]: (build.apply("mul", x, lower[row][c]), inverse[c]) for c, x in scaled[row].items()}
        pivot = build.apply("sub", X[i, i], build.total(x for x, _ in taken.values()))
        inverse.append(invert(pivot, i, taken))
    return Factors(order, lower, inverse)


def solve_by_factors(build: Builder, factors: Factors, x: Sequence[Expression]) -> Vector:
    """X^-1 x, but for rows left out."""
    z = factors.forward(build, x)
    return factors.backward(build, [build.apply("mul", *y) for y in zip(factors.inverse, z, strict=True)])
