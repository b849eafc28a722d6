"""What an operation of a jaxpr asks of integers, and numbers made whole, or moved to the next one."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from ._expressions import OPERATIONS, Expression
from ._moves import MOVES, OPERANDS, Scalars, is_constant
from ._scalars import Builder, TranslationError

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


def whole(build: Builder, x: Expression, kind: Any) -> Expression:
    """A number without its fraction, as XLA has it: the nearest integer that the type has, and 0 for NaN.

    **Arguments:**

    - `build`: makes the expressions.
    - `x`: the number.
    - `kind`: the type of integers.
    """
    least, most = float(jnp.iinfo(kind).min), float(jnp.iinfo(kind).max)
    x = build.apply(
        "select", build.apply("eq", x, x), build.apply("min", build.apply("max", x, least), most), 0.0
    )
    return build.apply("select", build.apply("lt", x, 0.0), build.apply("ceil", x), build.apply("floor", x))


def next_above(build: Builder, inputs: list[Scalars], equation: Any) -> Scalars:
    """The next larger numbers: each and a little more than half a unit in its last place, rounded.

    Rump, Zimmermann, Boldo, Melquiond, Computing predecessor and successor in rounding to nearest, 2009. Not of numbers
    near the least normal one.

    **Arguments:**

    - `build`: makes the expressions.
    - `inputs`: the numbers, and infinity.
    - `equation`: the operation.

    **Raises:** `TranslationError` for numbers next to others in another direction.
    """
    x, towards = inputs
    if not (is_constant(towards) and all(y == math.inf for y in towards.flat)):
        raise TranslationError("'nextafter' towards another number than infinity has no scalar code")
    eps = float(jnp.finfo(equation.outvars[0].aval.dtype).eps)
    more = lambda x: build.apply("mul", build.apply("abs", x), 0.5 * eps * (1 + eps))
    above: Any = np.frompyfunc(lambda x: build.apply("add", x, more(x)), 1, 1)
    return above(x)
