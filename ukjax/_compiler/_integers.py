"""What an operation of a jaxpr asks of integers: whether their type matters, and which of them must be known."""

from typing import Any

import jax.numpy as jnp

from ._expressions import OPERATIONS
from ._moves import MOVES, OPERANDS, Scalars, is_constant

# fmt: off
_WITHOUT_TYPES = frozenset((
    "add", "sub", "mul", "neg", "abs", "max", "min", "lt", "le", "gt", "ge", "eq", "ne", "integer_pow", "square",
    "clamp", "convert_element_type", "dot_general", "reduce_sum", "reduce_max", "reduce_min", "reduce_prod",
    "cumsum", "cumprod", "cummax", "cummin", "scatter", "scatter-add", "argmax", "argmin", "add_any",
    "stop_gradient",
))
# fmt: on


def must_be_known(equation: Any, inputs: list[Scalars]) -> list[int]:
    """Which inputs that are not known are integers, but for those that are only moved about."""
    name = equation.primitive.name
    if name in MOVES or (name == "convert_element_type" and not needs_types(equation)):
        return []
    matter = {"cond": (0, 1), "select_n": (0, 1), "scatter": (1, 2), "scatter-add": (1, 2)}.get(
        name, (OPERANDS.get(name, 0), None)
    )
    integer = lambda i: jnp.issubdtype(equation.invars[i].aval.dtype, jnp.integer)
    return [i for i in range(len(inputs))[slice(*matter)] if integer(i) and not is_constant(inputs[i])]


def is_plain(equation: Any) -> bool:
    """Whether an operation is one on numbers one by one."""
    return equation.primitive.name in OPERATIONS or equation.primitive.name == "clamp"


def needs_types(equation: Any) -> bool:
    """Whether an operation on integers depends on their type: quotients, bits, and whatever may wrap."""
    if equation.primitive.name in ("select_n", *OPERANDS):  # which only move them
        return False
    types = [x.aval.dtype for x in (*equation.invars, *equation.outvars)]
    if equation.primitive.name not in _WITHOUT_TYPES:
        return any(jnp.issubdtype(x, jnp.integer) for x in types)
    return any(jnp.issubdtype(x.aval.dtype, jnp.unsignedinteger) for x in equation.outvars)
