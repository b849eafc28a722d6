"""Real numbers of one type, written out: nodes of the representation, made without saying their type each time.

A zero is structural: 0 x is 0 even where x is infinite, so that structural zeros of Jacobians and mass matrices never
become code.
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
Entries = dict[int, Expression]
"""What is not structurally zero in a vector, by place."""


def is_zero(x: Expression) -> bool:
    """Whether an expression is known to be zero."""
    return x.__class__ is not Node and x == 0


def is_truth(x: Expression) -> bool:
    """Whether an expression is true or false, and no number."""
    return isinstance(x, bool) or (x.__class__ is Node and x.type == "bool")


def entries(x: Iterable[Expression]) -> Entries:
    """What is not structurally zero in a vector, by place."""
    return {i: value for i, value in enumerate(x) if value.__class__ is Node or value != 0}


@final
class Builder:
    """Makes expressions of real numbers of a type, in the region of a program that takes the inputs.

    - `nodes`: makes what they are.

    **Arguments:**

    - `dtype`: the type.
    - `most`: nodes to make; an attempt at more raises `TranslationError`.
    """

    def __init__(self, dtype: Any, most: float = math.inf) -> None:
        self.nodes, self.type = NodeBuilder(most), np.dtype(dtype).name
        b, t = self.nodes, self.type
        self._rules: dict[str, Callable[..., Expression]] = {
            "add": lambda x, y: b.add(x, y, t),
            "sub": lambda x, y: b.sub(x, y, t),
            "mul": lambda x, y: b.mul(x, y, t),
            "square": lambda x: b.mul(x, x, t),
            "and": lambda x, y: b.both(x, y, "bool"),
            "or": lambda x, y: b.either(x, y, "bool"),
            "not": lambda x: b.invert(x, "bool"),
            "select": lambda p, x, y: b.select(p, x, y, "bool" if is_truth(x) and is_truth(y) else t),
        }

    def input(self) -> Node:
        """One more input."""
        return self.nodes.parameter(self.nodes.top, self.type)

    def placeholder(self) -> Node:
        """What others are to stand in the place of."""
        return self.nodes.parameter(Region(0), self.type)

    def apply(self, op: str, *args: Expression) -> Expression:
        """Any operation."""
        rule = self._rules.get(op)
        if rule is None:
            rule = self._rules[op] = functools.partial(self.nodes.apply, op, self.type)
        return rule(*args)

    def frozen(self, xs: Iterable[Expression]) -> list[Expression]:
        """Expressions that are constant to the first differentiation."""
        return [self.apply("attached", x, 0.0) for x in xs]

    def number(self, x: Expression) -> Expression:
        """A truth as 0 or 1; numbers as they are."""
        return self.apply("select", x, 1.0, 0.0) if is_truth(x) else x

    def inverse(self, x: Expression, kept: Expression) -> Expression:
        """1 / x where it is kept, else zero."""
        return self.apply("select", kept, self.apply("div", 1.0, self.apply("select", kept, x, 1.0)), 0.0)

    def unless(
        self,
        known: Expression,
        values: Sequence[Expression],
        given: Iterable[Expression],
        compute: Callable[[Callable[[Expression], Expression]], Sequence[Expression]],
    ) -> list[Expression]:
        """Values where it is `known` that they hold; else what is computed, which is not run otherwise.

        `compute` gets what stands there for each of those `given`, and leaves numbers as they are.
        """
        if is_number(known):
            return list(values) if known else list(compute(lambda x: x))
        given = list(dict.fromkeys(x for x in [*given, *values] if x.__class__ is Node))

        def there(params: Sequence[Node]) -> Callable[[Expression], Expression]:
            of = dict(zip(given, params, strict=True))
            return lambda x: of.get(x, x)

        sides = lambda params: list(map(there(params), values)), lambda params: compute(there(params))
        gives = [("bool" if is_truth(x) else self.type, None) for x in values]
        return list(self.nodes.branch(known, given, sides, gives, [(x.type, None) for x in given]))

    def total(self, terms: Iterable[Expression]) -> Expression:
        """The sum, pairwise, so that rounding errors stay small."""
        return self.nodes.total(terms, self.type)

    def dot(self, x: Entries, y: Entries) -> Expression:
        """The sum of products."""
        return self.total([self.apply("mul", x[i], y[i]) for i in sorted(x.keys() & y.keys())])

    def product(self, X: np.ndarray, Y: np.ndarray) -> list[list[Expression]]:
        """The rows of X Y; only what is structurally zero in neither is looked at."""
        known, found = list(map(entries, Y)), []
        for row in X:
            pairs: dict[int, list[Expression]] = {}
            for i, x in entries(row).items():
                for j, y in known[i].items():
                    pairs.setdefault(j, []).append(self.apply("mul", x, y))
            found.append([self.total(pairs.get(j, ())) for j in range(Y.shape[1])])
        return found


# --- Vectors of expressions: sums, products and sizes

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


# --- Rows that are zero but for rounding, told by the terms that cancel in them


def _terms(x: Expression) -> list[Expression]:
    """The terms of a sum, one of anything else."""
    if isinstance(x, Node) and x.op == "neg":
        return _terms(x.args[0])
    return [z for y in x.args for z in _terms(y)] if isinstance(x, Node) and x.op in ("add", "sub") else [x]


def without_noise(build: Builder, A: np.ndarray, eps: float) -> np.ndarray:
    """Rows, of which those are zero in which all terms cancel, if all rows consist of sums only.

    What is rounding beside other rows, the rank rule leaves out. These may have none beside them: the unit norm of a
    quaternion moved by angular velocities, whose row is zero.
    """
    terms = [[_terms(x) for x in row if not is_zero(x)] for row in A]
    if not all(len(some) > 1 for row in terms for some in row):
        return A
    apply, out = build.apply, A.copy()
    for i, (row, each) in enumerate(zip(A, terms, strict=True)):
        sizes = [apply("square", build.total([apply("abs", x) for x in some])) for some in each]
        least = apply("mul", (ROW_NOISE * eps) ** 2, build.total(sizes))
        known = apply("gt", dot(build, row, row), least)
        out[i] = [x if is_zero(x) else apply("select", known, x, 0.0) for x in row]
    return out
