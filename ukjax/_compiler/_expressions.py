"""Expressions over numbers: what a scalar program is made of.

An expression is a Python number or a `Node`.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeGuard, final

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .._misc._attached import attached_p


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

    def __call__(self, flat: Sequence[Array], dtype: Any) -> list[Array]:
        """The numbers of each output, given those of all inputs."""
        ends = list(itertools.accumulate(math.prod(x.shape) for x in self.inputs))
        parts = [flat[a:b] for a, b in itertools.pairwise([0, *ends])]
        stacked = [
            jnp.stack(part).reshape(x.shape).astype(x.dtype) if part else jnp.zeros(x.shape, x.dtype)
            for part, x in zip(parts, self.inputs, strict=True)
        ]
        return [x.reshape(-1).astype(dtype) for x in self.function(*stacked)]


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
    "attached": attached_p.bind,
}
"""How each operation is computed; what is not here cannot be translated."""

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
    """The nodes that outputs need, each after its operands.

    **Arguments:**

    - `outputs`: expressions.
    - `values`: whether only for their values, and not for their derivatives.
    """
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


def weight(x: Node) -> int:
    """How many operations one is where it is compiled for a CPU: sine and cosine are polynomials there."""
    return 20 if x.op in ("sin", "cos") else 1


def evaluate(outputs: Sequence[Expression], inputs: Sequence[Array], dtype: Any) -> list[Array]:
    """The values of expressions, by JAX operations.

    **Arguments:**

    - `outputs`: expressions.
    - `inputs`: the array of each input number, all of one shape; at least one.
    - `dtype`: of constants.
    """
    shape = inputs[0].shape
    values: dict[int, Array] = {}
    called: dict[tuple, list[Array]] = {}

    def value(x: Expression) -> Array:
        if isinstance(x, Node):
            return values[id(x)]
        return lax.full(shape, x, jnp.bool_ if isinstance(x, bool) else dtype)

    def by_rule(_: Expression, output: tuple[Call, int, int], *given: Expression) -> Array:
        (call, k, i), key = output, (output[0], *map(id, given))
        if key not in called:
            called[key] = call(list(map(value, given)), dtype)
        return called[key][k][i]

    for node in reachable(outputs):
        if node.op == "input":
            values[id(node)] = inputs[node.args[0]]
        elif node.op == "ruled":
            values[id(node)] = by_rule(*node.args)
        else:
            values[id(node)] = OPERATIONS[node.op](*map(value, node.args))
    return [value(x) for x in outputs]
