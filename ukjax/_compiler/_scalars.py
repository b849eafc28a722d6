"""Makes expressions: each distinct one once, constants folded.

`Builder` simplifies as it goes (0 x, 1 x, 0 + x, x - x, ...), so that structural zeros of Jacobians and mass matrices
never become code. A zero is structural: 0 x is 0 even where x is infinite.
"""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, final

import numpy as np

from .._misc._errors import Untranslatable
from ._expressions import Call, Entries, Expression, Node, entries, is_number, is_zero

_CONSTANT: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "neg": lambda x: -x,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "max": max,
    "min": min,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "not": lambda x: not x,
    "sqrt": lambda x: float(np.sqrt(x)),
    "sin": lambda x: float(np.sin(x)),
    "cos": lambda x: float(np.cos(x)),
    "abs": abs,
}
FOLDED = frozenset((*_CONSTANT, "and", "add_any", "square"))
"""Operations that are done at once on numbers that are known."""


TranslationError = Untranslatable  # its former name


@final
class Builder:
    """Makes expressions; the same operation on the same operands is the same node.

    **Arguments:**

    - `most`: nodes to make; an attempt at more raises `TranslationError`.
    """

    def __init__(self, most: float = math.inf) -> None:
        self._known: dict[tuple, Node] = {}
        self._rules: dict[str, Callable[..., Expression]] = {}
        self._most = most

    def _node(self, op: str, *args: Any) -> Node:
        # 1, 1.0 and True are equal as keys, so the type goes in; -0.0 and 0.0 may be one. Most have two operands.
        if len(args) == 2:
            x, y = args
            key = (op, x if type(x) is Node else (type(x), x), y if type(y) is Node else (type(y), y))
        else:
            key = (op, *[x if type(x) is Node else (type(x), x) for x in args])
        node = self._known.get(key)
        if node is None:
            if len(self._known) > self._most:
                raise TranslationError(f"it takes more than {self._most} operations, too many to write out")
            node = self._known[key] = Node(op, args, len(self._known))
        return node

    def input(self, number: int) -> Node:
        """The input of that number."""
        return self._node("input", number)

    def rule(self, op: str) -> Callable[..., Expression]:
        """How an operation is applied; by the methods below where they simplify it."""
        found = self._rules.get(op)
        if found is None:
            found = getattr(self, "_" + op, None) or functools.partial(self._general, op)
            self._rules[op] = found
        return found

    def apply(self, op: str, *args: Expression) -> Expression:
        """Any operation."""
        return self.rule(op)(*args)

    def _general(self, op: str, *args: Expression) -> Expression:
        if op in _CONSTANT and all(map(is_number, args)):
            return _CONSTANT[op](*args)
        return self._node(op, *args)

    def _sorted(self, op: str, x: Any, y: Any) -> Node:
        """An operation whose operands may change places: numbers first, then in the order they were made."""
        first = type(x) is not Node or (type(y) is Node and x.number <= y.number)
        return self._node(op, x, y) if first else self._node(op, y, x)

    # Sums, differences and products are made a million times for a large mechanism, mostly of zeros: that types are
    # compared here, and not by `is_number`, shows.

    def _add(self, x: Any, y: Any) -> Expression:
        if type(x) is not Node:
            if type(y) is not Node:
                return x + y
            if x == 0:
                return y
        elif type(y) is not Node and y == 0:
            return x
        if type(y) is Node and y.op == "neg":
            return self._sub(x, y.args[0])
        if type(x) is Node and x.op == "neg":
            return self._sub(y, x.args[0])
        return self._sorted("add", x, y)

    def _sub(self, x: Any, y: Any) -> Expression:
        if type(y) is not Node:
            if type(x) is not Node:
                return x - y
            return x if y == 0 else self._node("sub", x, y)
        if type(x) is not Node and x == 0:
            return self._neg(y)
        if x is y:
            return 0.0
        if y.op == "neg":
            return self._add(x, y.args[0])
        return self._node("sub", x, y)

    def _neg(self, x: Any) -> Expression:
        if is_number(x):
            return -x
        if isinstance(x, Node) and x.op == "neg":
            return x.args[0]
        return self._node("neg", x)

    def _mul(self, x: Any, y: Any) -> Expression:
        if type(y) is not Node:
            x, y = y, x
        if type(x) is not Node:
            if type(y) is not Node:
                return x * y
            if x == 0:
                return 0.0
            if x == 1:
                return y
            if x == -1:
                return self._neg(y)
        if type(x) is Node and x.op == "neg":
            return self._neg(self._mul(x.args[0], y))
        if type(y) is Node and y.op == "neg":
            return self._neg(self._mul(x, y.args[0]))
        return self._sorted("mul", x, y)

    def _div(self, x: Any, y: Any) -> Expression:
        if is_number(x) and is_number(y):
            return float(np.divide(x, y))
        if is_number(x) and x == 0:
            return 0.0
        return self._mul(1.0 / y, x) if is_number(y) and y != 0 else self._node("div", x, y)

    def _select(self, which: Expression, x: Expression, y: Expression) -> Expression:
        """x where `which` holds, else y."""
        if is_number(which):
            return x if which else y
        if x is True and y is False:
            return which
        return (
            x if x is y or (is_number(x) and is_number(y) and x == y) else self._node("select", which, x, y)
        )

    def _and(self, x: Expression, y: Expression) -> Expression:
        if is_number(x):
            x, y = y, x
        if is_number(y):
            return x if y else False
        return x if x is y else self._node("and", x, y)

    def _attached(self, x: Expression, carrier: Expression) -> Expression:
        """x, with the derivative of the carrier; that derivative is differentiated again as it stands."""
        return x if is_number(x) and is_number(carrier) else self._node("attached", x, carrier)

    def ruled(self, x: Expression, output: tuple[Call, int, int], inputs: Iterable[Expression]) -> Expression:
        """x, an output of a function of the inputs that has a derivative rule of its own."""
        return x if is_number(x) else self._node("ruled", x, output, *inputs)

    def frozen(self, xs: Iterable[Expression]) -> list[Expression]:
        """Expressions that are constant to the first differentiation."""
        return [self._attached(x, 0.0) for x in xs]

    def _square(self, x: Any) -> Expression:
        return self._mul(x, x)

    def power(self, x: Expression, exponent: int) -> Expression:
        """x to an integer power, by repeated squaring."""
        if exponent < 0:
            return self._div(1.0, self.power(x, -exponent))
        if exponent == 0:
            return 1.0
        half = self.power(x, exponent // 2)
        square = self._mul(half, half) if exponent > 1 else 1.0
        return self._mul(square, x) if exponent % 2 else square

    def number(self, x: Expression, boolean: bool) -> Expression:
        """A boolean as 0 or 1 where a number is wanted."""
        if not boolean:
            return x
        return float(x) if is_number(x) else self._select(x, 1.0, 0.0)

    def inverse(self, x: Expression, kept: Expression) -> Expression:
        """1 / x where it is kept, else zero."""
        return self._select(kept, self._div(1.0, self._select(kept, x, 1.0)), 0.0)

    def total(self, terms: Iterable[Expression]) -> Expression:
        """The sum, pairwise, so that rounding errors stay small."""
        terms = [x for x in terms if not is_zero(x)]
        if not terms:
            return 0.0
        while len(terms) > 1:
            pairs = [self._add(x, y) for x, y in zip(terms[::2], terms[1::2], strict=False)]
            terms = pairs + terms[len(pairs) * 2 :]
        return terms[0]

    def dot(self, x: "Entries", y: "Entries") -> Expression:
        """The sum of products."""
        return self.total([self._mul(x[i], y[i]) for i in sorted(x.keys() & y.keys())])

    def product(self, X: np.ndarray, Y: np.ndarray) -> list[list[Expression]]:
        """The rows of X Y; only what is structurally zero in neither is looked at."""
        known, found = list(map(entries, Y)), []
        for row in X:
            pairs: dict[int, list[tuple[Expression, Expression]]] = {}
            for i, x in entries(row).items():
                for j, y in known[i].items():
                    pairs.setdefault(j, []).append((x, y))
            found.append([0.0] * Y.shape[1])
            for j in sorted(pairs):
                found[-1][j] = self.total([self._mul(*pair) for pair in pairs[j]])
        return found
