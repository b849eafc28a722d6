"""Expressions over numbers: what a scalar program is made of.

An expression is a Python number or a `Node`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeGuard, final

from jaxtyping import Array

from ._structured import _ir


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


class Call(NamedTuple):
    """A JAX function with a derivative rule of its own.

    - `function`: takes and returns arrays.
    - `inputs`: their shapes and types.
    """

    function: Callable[..., list[Array]]
    inputs: tuple[Any, ...]


_OF_WHOLE_NUMBERS = "shift_left", "shift_right_arithmetic", "shift_right_logical", "quotient", "remainder"
_OF_TYPES = "round", "convert", "bitcast"
OPERATIONS = frozenset((*_ir.OPERATIONS, "rsqrt", "logistic")).difference(_OF_WHOLE_NUMBERS, _OF_TYPES)
"""Operations of numbers that are written out; what is not here cannot be translated."""

BOOLEAN = frozenset(("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "xor", "not", "is_finite"))
"""Operations whose result is true or false."""


REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "mul",
    "reduce_and": "and",
    "reduce_or": "or",
}
"""Reductions of arrays: the operation they repeat."""
OF_NONE = {"max": -math.inf, "min": math.inf, "mul": 1.0, "and": True, "or": False}
"""What they give of no numbers; a sum gives 0."""


def is_number(x: Any) -> TypeGuard[float]:
    """Whether an expression is a constant."""
    return not isinstance(x, Node)


def is_truth(x: Expression) -> bool:
    """Whether an expression is true or false, and no number."""
    while isinstance(x, Node) and x.op == "select":
        x = x.args[2] if is_number(x.args[1]) and not isinstance(x.args[1], bool) else x.args[1]
    return isinstance(x, bool) if is_number(x) else x.op in BOOLEAN  # pyright: ignore[reportAttributeAccessIssue]


def is_zero(x: Expression) -> bool:
    """Whether an expression is the constant zero."""
    return not isinstance(x, Node) and x == 0


Entries = dict[int, Expression]


def entries(x: Iterable[Expression]) -> Entries:
    """What is not structurally zero in a vector, by place."""
    return {i: value for i, value in enumerate(x) if isinstance(value, Node) or value != 0}


CARRIERS = ("attached", "ruled")
"""Operations that pass on a value, their first operand, with a derivative of its own."""


def reachable(outputs: Sequence[Expression], *, values: bool = False) -> list[Node]:
    """The nodes that outputs need, each after its operands."""
    found: dict[Node, None] = {}
    stack = [x for x in outputs if type(x) is Node]
    while stack:
        node, waiting = stack[-1], len(stack)
        if node not in found and node.op != "input":
            for x in node.args[:1] if values and node.op in CARRIERS else node.args:
                if type(x) is Node and x not in found:
                    stack.append(x)
        if len(stack) == waiting:
            found[stack.pop()] = None
    return list(found)


def borders(outputs: Sequence[Expression], seen: set[Node]) -> list[Node]:
    """The nodes among those `seen` that outputs are computed of, so that nothing behind them is needed."""
    found: dict[Node, None] = {}
    stack, visited = [x for x in outputs if type(x) is Node], set[Node]()
    while stack:
        node = stack.pop()
        if node in seen:
            found[node] = None
        elif node not in visited and node.op != "input":
            visited.add(node)
            stack += [x for x in node.args if type(x) is Node]
    return list(found)
