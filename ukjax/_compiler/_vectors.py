"""Vectors of expressions: sums, products and sizes."""

from collections.abc import Iterable, Sequence

from ._scalars import Builder, Expression, entries
from ._structured._ir import is_number

Vector = list[Expression]


def plus(build: Builder, x: Iterable[Expression], y: Iterable[Expression]) -> Vector:
    """The sum of two vectors."""
    return [build.apply("add", *pair) for pair in zip(x, y, strict=True)]


def minus(build: Builder, x: Iterable[Expression], y: Iterable[Expression]) -> Vector:
    """The difference of two vectors."""
    return [build.apply("sub", *pair) for pair in zip(x, y, strict=True)]


def scale_vector(build: Builder, factor: Expression, x: Iterable[Expression]) -> Vector:
    """A vector times a number."""
    return [build.apply("mul", factor, value) for value in x]


def dot(build: Builder, x: Iterable[Expression], y: Iterable[Expression]) -> Expression:
    """The sum of products of two vectors."""
    return build.dot(entries(x), entries(y))


def times(build: Builder, X: Iterable[Sequence[Expression]], y: Sequence[Expression]) -> Vector:
    """The product of a matrix, by its rows, and a vector."""
    known = entries(y)
    return [build.dot(entries(row), known) for row in X]


def largest(build: Builder, x: Iterable[Expression]) -> Expression:
    """The largest absolute value of a vector."""
    sizes = [build.apply("abs", value) for value in x]
    found: Expression = max((float(size) for size in sizes if is_number(size)), default=0.0)
    for size in dict.fromkeys(size for size in sizes if not is_number(size)):
        found = build.apply("max", found, size)
    return found
