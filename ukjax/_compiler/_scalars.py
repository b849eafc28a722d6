"""Real numbers of one type, written out: nodes of the representation, and vectors and matrices of them by NumPy.

Signs make nodes: +, <, & and so on. A zero is structural: 0 x is 0 even where x is infinite, so that structural zeros of
Jacobians and mass matrices never become code.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import numpy as np

from .._misc._errors import Untranslatable
from .._misc._tolerances import ROW_NOISE
from ._structured._builder import Builder as NodeBuilder
from ._structured._nodes import Node, Operand, Region, is_number

TranslationError = Untranslatable  # its former name
Expression = Operand
"""A node, or a number that is known."""
Vector = np.ndarray
"""Expressions, of dtype object."""
Entries = dict[int, Expression]
"""What is not structurally zero in a vector, by place."""


@final
class Builder:
    """Makes expressions of real numbers of a type, in the region of a program that takes the inputs.

    - `nodes`: makes what they are.

    **Arguments:**

    - `dtype`: the type.
    - `most`: nodes to make; an attempt at more raises `TranslationError`.
    """

    def __init__(self, dtype: Any, most: float = math.inf) -> None:
        self.type = np.dtype(dtype).name
        self.nodes = NodeBuilder(most, self.type)

    def input(self) -> Node:
        """One more input."""
        return self.nodes.parameter(self.nodes.top, self.type)

    def placeholder(self) -> Node:
        """What others are to stand in the place of."""
        return self.nodes.parameter(Region(0, self.nodes), self.type)

    def apply(self, op: str, *args: Expression) -> Expression:
        """Any operation."""
        return apply(op, *args)


_OF_NUMBERS = NodeBuilder()  # folds them


def is_zero(x: Expression) -> bool:
    """Whether an expression is known to be zero."""
    return x.__class__ is not Node and x == 0


def is_truth(x: Expression) -> bool:
    """Whether an expression is true or false, and no number."""
    return isinstance(x, bool) or (x.__class__ is Node and x.type == "bool")


# --- Operations that have no sign


def apply(op: str, *args: Expression) -> Expression:
    """Any operation."""
    if op == "select":
        return where(*args)
    for x in args:
        if x.__class__ is Node:
            return x.region.build.apply(op, x.type, *args)
    return _OF_NUMBERS.apply(op, "float64", *args)


sqrt, maximum, minimum = (functools.partial(apply, op) for op in ("sqrt", "max", "min"))
divide, differs = (functools.partial(apply, op) for op in ("div", "ne"))


def negate(x: Expression) -> Expression:
    """Whether a truth does not hold."""
    return not x if is_number(x) else apply("not", x)


def where(which: Expression, x: Expression, y: Expression) -> Expression:
    """x where a truth holds, else y."""
    if is_number(which):
        return x if which else y
    build = which.region.build
    return build.select(which, x, y, "bool" if is_truth(x) and is_truth(y) else build.real)


def as_number(x: Expression) -> Expression:
    """A truth as 0 or 1; numbers as they are."""
    return where(x, 1.0, 0.0) if is_truth(x) else x


def invert(x: Expression, kept: Expression) -> Expression:
    """1 / x where it is kept, else zero."""
    return where(kept, 1.0 / where(kept, x, 1.0), 0.0)


def unless(
    known: Expression,
    values: Iterable[Expression],
    given: Iterable[Expression],
    compute: Callable[[Callable[[Any], Any]], Sequence[Expression]],
) -> list[Expression]:
    """Values where it is `known` that they hold; else what is computed, which is not run otherwise.

    `compute` gets what stands there for each of those `given`, and leaves numbers as they are.
    """
    values = list(values)
    if is_number(known):
        return values if known else list(compute(lambda x: x))
    build = known.region.build
    given = list(dict.fromkeys(x for x in [*given, *values] if x.__class__ is Node))

    def there(params: Sequence[Node]) -> Callable[[Any], Any]:
        of = dict(zip(given, params, strict=True))
        one = lambda x: of.get(x, x)
        return lambda x: as_vector(map(one, x.flat)).reshape(x.shape) if isinstance(x, np.ndarray) else one(x)

    sides = lambda params: list(map(there(params), values)), lambda params: compute(there(params))
    gives = [("bool" if is_truth(x) else build.real, None) for x in values]
    return build.branch(known, given, sides, gives, [(x.type, None) for x in given])


# --- What has the derivative of another


@functools.partial(np.frompyfunc, nin=2, nout=1)
def attach(x: Expression, carrier: Expression) -> Expression:
    """Values with the derivatives of others, to the first differentiation."""
    return apply("attached", x, carrier) if x.__class__ is Node or carrier.__class__ is Node else x


def freeze(x: Any) -> Any:
    """Expressions that are constant to the first differentiation."""
    return attach(x, 0.0)


# --- Vectors and matrices


def as_vector(x: Iterable[Expression]) -> Vector:
    """Expressions as an array."""
    x = list(x)
    found = np.empty(len(x), object)
    found[:] = x
    return found


def entries(x: Iterable[Expression]) -> Entries:
    """What is not structurally zero in a vector, by place."""
    return {i: value for i, value in enumerate(x) if value.__class__ is Node or value != 0}


def total(terms: Iterable[Expression]) -> Expression:
    """The sum, pairwise, so that rounding errors stay small."""
    terms = list(terms)
    for x in terms:
        if x.__class__ is Node:
            return x.region.build.total(terms, x.type)
    return _OF_NUMBERS.total(terms, "float64")


def dot(x: Iterable[Expression] | Entries, y: Iterable[Expression] | Entries) -> Expression:
    """The sum of products of two vectors."""
    x, y = (z if isinstance(z, dict) else entries(z) for z in (x, y))
    return total(x[i] * y[i] for i in sorted(x.keys() & y.keys()))


def times(X: Iterable[Iterable[Expression] | Entries], y: Iterable[Expression]) -> Vector:
    """The product of a matrix, by its rows, and a vector."""
    known = entries(y)
    return as_vector(dot(row, known) for row in X)


def product(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """X Y; only what is structurally zero in neither is looked at."""
    known, found = list(map(entries, Y)), np.empty((len(X), Y.shape[1]), object)
    for row, out in zip(X, found, strict=True):
        pairs: dict[int, list[Expression]] = {}
        for i, x in entries(row).items():
            for j, y in known[i].items():
                pairs.setdefault(j, []).append(x * y)
        out[:] = [total(pairs.get(j, ())) for j in range(len(out))]
    return found


def largest(x: Iterable[Expression]) -> Expression:
    """The largest absolute value of a vector."""
    sizes = list(map(abs, x))
    found: Expression = max((float(size) for size in sizes if is_number(size)), default=0.0)
    return functools.reduce(maximum, dict.fromkeys(size for size in sizes if not is_number(size)), found)


# --- Rows that are zero but for rounding, told by the terms that cancel in them


def _terms(x: Expression) -> list[Expression]:
    """The terms of a sum, one of anything else."""
    if isinstance(x, Node) and x.op == "neg":
        return _terms(x.args[0])
    return [z for y in x.args for z in _terms(y)] if isinstance(x, Node) and x.op in ("add", "sub") else [x]


def without_noise(A: np.ndarray, eps: float) -> np.ndarray:
    """Rows, of which those are zero in which all terms cancel, if all rows consist of sums only.

    What is rounding beside other rows, the rank rule leaves out. These may have none beside them: the unit norm of a
    quaternion moved by angular velocities, whose row is zero.
    """
    terms = [[_terms(x) for x in row if not is_zero(x)] for row in A]
    if not all(len(some) > 1 for row in terms for some in row):
        return A
    out = A.copy()
    for i, (row, each) in enumerate(zip(A, terms, strict=True)):
        squares = [size * size for some in each for size in [total(map(abs, some))]]
        least = (ROW_NOISE * eps) ** 2 * total(squares)
        known = dot(row, row) > least
        out[i] = [x if is_zero(x) else where(known, x, 0.0) for x in row]
    return out
