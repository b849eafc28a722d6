"""The one table of operations on scalars: how NumPy and LLVM compute each, and its derivatives."""

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ._nodes import Number, Operand, is_float, is_number

if TYPE_CHECKING:
    from ._builder import Builder


class Operation(NamedTuple):
    """One row of the table.

    - `numpy`: computes it, also for constants.
    - `partials`: its derivatives by each operand, from builder, type, operands and value; where None, those that JAX has,
      if any.
    - `llvm`: how LLVM has it: an instruction for real numbers and one for whole ones, an intrinsic `@name`, a function of
      the C library `name()`; an empty text where `_llvm` writes it out.
    - `jax`: its name in `jax.lax`, if another.
    - `cost`: in additions.
    """

    numpy: Callable[..., Any]
    partials: Callable[..., tuple] | None = None
    llvm: str = ""
    jax: str = ""
    cost: int = 1


def _tie(b: "Builder", t: str, less: Operand, equal: Operand) -> Operand:
    """The derivative of a maximum: half of each where both are equal, as JAX has it."""
    return b.select(less, 1.0, b.select(equal, 0.5, 0.0, t), t)


def _slope_of_whole_power(b: "Builder", t: str, x: Operand, y: Operand) -> Operand:
    constant = b.compare("eq", y, 0.0, t)
    less = b.apply("whole_pow", t, x, b.select(constant, 1.0, b.sub(y, 1.0, t), t))
    return b.select(constant, 0.0, b.mul(y, less, t), t)


def _unary(slope: Callable[["Builder", str, Any, Any], Operand]) -> Callable[..., tuple]:
    return lambda b, t, x, y: (slope(b, t, x, y),)


def _no_slope(b: "Builder", t: str, *args: Operand) -> tuple:
    return (None,) * (len(args) - 1)


OPERATIONS: dict[str, Operation] = {
    "add": Operation(np.add, lambda b, t, x, y, z: (1.0, 1.0), "fadd add"),
    "sub": Operation(np.subtract, lambda b, t, x, y, z: (1.0, -1.0), "fsub sub"),
    "mul": Operation(np.multiply, lambda b, t, x, y, z: (y, x), "fmul mul"),
    "div": Operation(
        np.divide,
        lambda b, t, x, y, z: (
            b.div(1.0, y, t),
            None if is_number(y) else b.neg(b.div(z, y, t), t),
        ),
        "fdiv",
        cost=4,
    ),
    "neg": Operation(np.negative, _unary(lambda b, t, x, y: -1.0)),
    "max": Operation(
        np.maximum,
        lambda b, t, x, y, z: (
            _tie(b, t, b.compare("gt", x, y, t), b.compare("eq", x, y, t)),
            _tie(b, t, b.compare("lt", x, y, t), b.compare("eq", x, y, t)),
        ),
        "@maximum",
    ),
    "min": Operation(
        np.minimum,
        lambda b, t, x, y, z: (
            _tie(b, t, b.compare("lt", x, y, t), b.compare("eq", x, y, t)),
            _tie(b, t, b.compare("gt", x, y, t), b.compare("eq", x, y, t)),
        ),
        "@minimum",
    ),
    "rem": Operation(np.fmod, None, "fmod()", cost=20),
    "pow": Operation(np.power, None, "pow()", cost=40),
    # Of a whole exponent, which comes as a real number: x^0 has a derivative at zero too.
    "whole_pow": Operation(
        np.power,
        lambda b, t, x, y, z: (_slope_of_whole_power(b, t, x, y), None),
        "pow()",
        jax="pow",
        cost=40,
    ),
    "atan2": Operation(np.arctan2, None, "atan2()", cost=40),
    # As JAX has it: of size 1 at zero too, for the second derivative of a square or of jnp.hypot there.
    "abs": Operation(
        np.abs, _unary(lambda b, t, x, y: b.select(b.compare("ge", x, 0.0, t), 1.0, -1.0, t)), "@fabs"
    ),
    "sign": Operation(np.sign, _no_slope),
    "floor": Operation(np.floor, _no_slope, "@floor"),
    "ceil": Operation(np.ceil, _no_slope, "@ceil"),
    "round": Operation(np.round, _no_slope, "@roundeven"),
    "sqrt": Operation(np.sqrt, _unary(lambda b, t, x, y: b.div(0.5, y, t)), "@sqrt", cost=6),
    "cbrt": Operation(np.cbrt, None, "cbrt()", cost=30),
    "exp": Operation(np.exp, _unary(lambda b, t, x, y: y), "exp()", cost=20),
    "exp2": Operation(np.exp2, None, "exp2()", cost=20),
    "expm1": Operation(np.expm1, None, "expm1()", cost=20),
    "log": Operation(np.log, _unary(lambda b, t, x, y: b.div(1.0, x, t)), "log()", cost=20),
    "log1p": Operation(np.log1p, None, "log1p()", cost=20),
    "sin": Operation(np.sin, _unary(lambda b, t, x, y: b.apply("cos", t, x)), cost=20),
    "cos": Operation(np.cos, _unary(lambda b, t, x, y: b.neg(b.apply("sin", t, x), t)), cost=20),
    "tan": Operation(np.tan, None, "tan()", cost=30),
    "asin": Operation(np.arcsin, None, "asin()", cost=30),
    "acos": Operation(np.arccos, None, "acos()", cost=30),
    "atan": Operation(np.arctan, None, "atan()", cost=30),
    "sinh": Operation(np.sinh, None, "sinh()", cost=30),
    "cosh": Operation(np.cosh, None, "cosh()", cost=30),
    "tanh": Operation(np.tanh, None, "tanh()", cost=30),
    "asinh": Operation(np.arcsinh, None, "asinh()", cost=30),
    "acosh": Operation(np.arccosh, None, "acosh()", cost=30),
    "atanh": Operation(np.arctanh, None, "atanh()", cost=30),
    "erf": Operation(np.vectorize(math.erf, otypes=[float]), None, "erf()", cost=40),
    "erfc": Operation(np.vectorize(math.erfc, otypes=[float]), None, "erfc()", cost=40),
    "lt": Operation(np.less, llvm="olt slt ult"),
    "le": Operation(np.less_equal, llvm="ole sle ule"),
    "gt": Operation(np.greater, llvm="ogt sgt ugt"),
    "ge": Operation(np.greater_equal, llvm="oge sge uge"),
    "eq": Operation(np.equal, llvm="oeq eq eq"),
    "ne": Operation(np.not_equal, llvm="une ne ne"),
    "and": Operation(np.bitwise_and, llvm="and and", jax="bitwise_and"),
    "or": Operation(np.bitwise_or, llvm="or or", jax="bitwise_or"),
    "xor": Operation(np.bitwise_xor, llvm="xor xor", jax="bitwise_xor"),
    "not": Operation(np.invert, jax="bitwise_not"),
    "shift_left": Operation(np.left_shift, llvm="shl shl"),
    "shift_right_logical": Operation(
        lambda x, y: np.right_shift(x.view(f"u{x.dtype.itemsize}"), y.view(f"u{x.dtype.itemsize}")).view(
            x.dtype
        ),
        llvm="lshr lshr",
    ),
    "shift_right_arithmetic": Operation(
        lambda x, y: np.right_shift(x.view(f"i{x.dtype.itemsize}"), y.view(f"i{x.dtype.itemsize}")).view(
            x.dtype
        ),
        llvm="ashr ashr",
    ),
    "quotient": Operation(lambda x, y: (x - np.fmod(x, y)) // y, llvm="sdiv udiv", jax="div", cost=20),
    "remainder": Operation(np.fmod, llvm="srem urem", jax="rem", cost=20),
    "select": Operation(
        np.where, lambda b, t, p, x, y, z: (None, b.select(p, 1.0, 0.0, t), b.select(p, 0.0, 1.0, t))
    ),
    "is_finite": Operation(np.isfinite),
    "convert": Operation(lambda x: x, _unary(lambda b, t, x, y: 1.0), jax="convert_element_type"),
    "bitcast": Operation(lambda x: x, jax="bitcast_convert_type"),
    "stop_gradient": Operation(lambda x: x, _no_slope),
    # A value with the derivative of another, to the first differentiation: derivatives have the value alone.
    "attached": Operation(lambda x, carrier: x, lambda b, t, x, carrier, y: (None, 1.0)),
}
"""What a program can do with scalars; what is not here, nor written in terms of it by `_trace`, cannot be translated."""


TRUTHS = frozenset(("lt", "le", "gt", "ge", "eq", "ne", "is_finite"))
"""Operations whose operands have another type than their value, which is true or false."""


def convert_number(x: Any, t: str) -> Number:
    """A number as one of a type."""
    if t == "bool":
        return bool(x)
    if is_float(t):
        return float(np.dtype(t).type(x))
    info = np.iinfo(t)
    if isinstance(x, float):
        x = 0 if math.isnan(x) else min(max(x, info.min), info.max)
    x, span = int(x), 1 << info.bits
    return (x - int(info.min)) % span + int(info.min)


# What places in arrays are computed by, tens of thousands of times for a robot: NumPy takes ten times as long.
_OF_PLACES = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "eq": operator.eq, "ne": operator.ne,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


def fold(op: str, t: str, args: Sequence[Any]) -> Number:
    """An operation on numbers that are known."""
    if t == "int64" and op in _OF_PLACES and all(x.__class__ is int for x in args):
        found = _OF_PLACES[op](*args)
        if -(1 << 63) <= found < 1 << 63:
            return found
    dtype = np.dtype(t)
    with np.errstate(all="ignore"):
        given = [x if op == "select" and i == 0 else dtype.type(x) for i, x in enumerate(args)]
        return np.asarray(OPERATIONS[op].numpy(*given)).item()


def fold_arrays(op: str, t: str, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """As `fold`, of the entries of arrays of objects."""
    with np.errstate(all="ignore"):
        return OPERATIONS[op].numpy(*(np.array(x.tolist(), t).reshape(x.shape) for x in arrays))
