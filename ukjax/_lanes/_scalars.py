"""Scalar programs: expressions over numbers, built once, each distinct one kept once, constants folded.

An expression is a Python number or a `Node`. `Builder` makes nodes and simplifies as it goes (0 x, 1 x, 0 + x,
x - x, ...), so that structural zeros of Jacobians and mass matrices never become code. A zero is structural:
0 x is 0 even where x is infinite.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

Number = float | int | bool


@final
class Node:
    """One operation on expressions, or an input: `op` is its name, `args` its operands.

    - `op`: a key of `OPERATIONS`, or `"input"`.
    - `args`: expressions; of an input its number.
    - `number`: which it was to be made.
    """

    __slots__ = ("args", "number", "op")

    def __init__(self, op: str, args: tuple, number: int):
        self.op, self.args, self.number = op, args, number


Expression = Node | float | int | bool

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
    "sqrt": math.sqrt,
    "sin": math.sin,
    "cos": math.cos,
    "abs": abs,
}


@jax.custom_jvp
def _attached(x: Array, carrier: Array) -> Array:
    """x, with the derivative of the carrier."""
    return x


@_attached.defjvp
def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    return primals[0], tangents[1]


# fmt: off
_NAMED = (
    "add", "sub", "mul", "div", "neg", "max", "min", "rem", "pow", "lt", "le", "gt", "ge", "eq", "ne", "abs", "sign",
    "floor", "ceil", "sqrt", "rsqrt", "cbrt", "exp", "exp2", "expm1", "log", "log1p", "logistic", "erf", "erfc",
    "erf_inv", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "is_finite", "stop_gradient",
)
# fmt: on
OPERATIONS: dict[str, Callable[..., Array]] = {name: getattr(lax, name) for name in _NAMED} | {
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "not": lax.bitwise_not,
    "select": lambda which, x, y: lax.select(which, x, y),
    "attached": _attached,
}
"""How each operation is computed; what is not here cannot be translated."""

BOOLEAN = frozenset(("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "xor", "not", "is_finite"))
"""Operations whose result is true or false."""


def is_number(x: Expression) -> bool:
    """Whether an expression is a constant."""
    return not isinstance(x, Node)


def is_zero(x: Expression) -> bool:
    """Whether an expression is the constant zero."""
    return not isinstance(x, Node) and x == 0


Entries = dict[int, Expression]


def entries(x: Iterable[Expression]) -> Entries:
    """What is not structurally zero in a vector, by place."""
    return {i: value for i, value in enumerate(x) if isinstance(value, Node) or value != 0}


class TranslationError(Exception):
    """A program that cannot be written as scalar code; the message says why."""


@final
class Builder:
    """Makes expressions; the same operation on the same operands is the same node.

    **Arguments:**

    - `most`: nodes to make; an attempt at more raises `TranslationError`.
    """

    def __init__(self, most: float = math.inf) -> None:
        self._known: dict[tuple, Node] = {}
        self._most = most

    def _node(self, op: str, *args: Any) -> Node:
        # 1, 1.0 and True are equal as keys, so the type goes in; -0.0 and 0.0 may be one.
        key = (op, *(id(x) if isinstance(x, Node) else (type(x), x) for x in args))
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
        return getattr(self, "_" + op, None) or functools.partial(self._general, op)

    def apply(self, op: str, *args: Expression) -> Expression:
        """Any operation."""
        return self.rule(op)(*args)

    def _general(self, op: str, *args: Expression) -> Expression:
        if op in _CONSTANT and all(map(is_number, args)):
            return _CONSTANT[op](*args)
        return self._node(op, *args)

    def _sorted(self, op: str, x: Any, y: Any) -> Node:
        """An operation whose operands may change places: numbers first, then in the order they were made."""
        first = is_number(x) or (not is_number(y) and x.number <= y.number)
        return self._node(op, x, y) if first else self._node(op, y, x)

    def _add(self, x: Any, y: Any) -> Expression:
        if is_number(x) and is_number(y):
            return x + y
        if is_number(x) and x == 0:
            return y
        if is_number(y) and y == 0:
            return x
        if isinstance(y, Node) and y.op == "neg":
            return self._sub(x, y.args[0])
        if isinstance(x, Node) and x.op == "neg":
            return self._sub(y, x.args[0])
        return self._sorted("add", x, y)

    def _sub(self, x: Any, y: Any) -> Expression:
        if is_number(x) and is_number(y):
            return x - y
        if is_number(y) and y == 0:
            return x
        if is_number(x) and x == 0:
            return self._neg(y)
        if x is y:
            return 0.0
        if isinstance(y, Node) and y.op == "neg":
            return self._add(x, y.args[0])
        return self._node("sub", x, y)

    def _neg(self, x: Any) -> Expression:
        if is_number(x):
            return -x
        if isinstance(x, Node) and x.op == "neg":
            return x.args[0]
        return self._node("neg", x)

    def _mul(self, x: Any, y: Any) -> Expression:
        if is_number(y):
            x, y = y, x
        if is_number(x):
            if is_number(y):
                return x * y
            if x == 0:
                return 0.0
            if x == 1:
                return y
            if x == -1:
                return self._neg(y)
        for first, second in ((x, y), (y, x)):
            if isinstance(first, Node) and first.op == "neg":
                return self._neg(self._mul(first.args[0], second))
        return self._sorted("mul", x, y)

    def _div(self, x: Any, y: Any) -> Expression:
        if is_number(x) and x == 0:
            return 0.0
        if is_number(y) and y != 0:
            return self._mul(1.0 / y, x) if not is_number(x) else x / y
        return self._node("div", x, y)

    def _select(self, which: Expression, x: Expression, y: Expression) -> Expression:
        """x where `which` holds, else y."""
        if is_number(which):
            return x if which else y
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

    def total(self, terms: Sequence[Expression]) -> Expression:
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


def reachable(outputs: Sequence[Expression]) -> list[Node]:
    """The nodes that outputs need, each after its operands."""
    found: dict[int, Node] = {}
    stack = [x for x in outputs if isinstance(x, Node)]
    while stack:
        node = stack[-1]
        if id(node) in found:
            stack.pop()
            continue
        waiting = [x for x in node.args if isinstance(x, Node) and id(x) not in found]
        if node.op != "input" and waiting:
            stack += waiting
        else:
            found[id(node)] = stack.pop()
    return list(found.values())


def operations(outputs: Sequence[Expression]) -> int:
    """The number of operations that outputs take."""
    return sum(node.op != "input" for node in reachable(outputs))


def plain(outputs: Sequence[Expression]) -> list[Expression]:
    """The same expressions without carriers."""
    build, copies = Builder(), {}

    def copy(x: Expression) -> Expression:
        return copies[x] if isinstance(x, Node) else x

    for node in reachable(outputs):
        if node.op == "input":
            copies[node] = build.input(node.args[0])
        elif node.op == "attached":
            copies[node] = copy(node.args[0])
        else:
            copies[node] = build.apply(node.op, *map(copy, node.args))
    return [copy(x) for x in outputs]


def evaluate(outputs: Sequence[Expression], inputs: Sequence[Array], dtype: Any) -> list[Array]:
    """The values of expressions, by JAX operations.

    **Arguments:**

    - `outputs`: expressions.
    - `inputs`: the array of each input number, all of one shape; at least one.
    - `dtype`: of constants.
    """
    shape = inputs[0].shape
    values: dict[int, Array] = {}

    def value(x: Expression) -> Array:
        if isinstance(x, Node):
            return values[id(x)]
        return lax.full(shape, x, jnp.bool_ if isinstance(x, bool) else dtype)

    for node in reachable(outputs):
        values[id(node)] = (
            inputs[node.args[0]] if node.op == "input" else OPERATIONS[node.op](*map(value, node.args))
        )
    return [value(x) for x in outputs]
