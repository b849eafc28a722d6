"""What operations of JAX do with arrays of scalars: most of them the same with each entry."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from ..._misc._errors import Untranslatable
from ._arrays import constants, map_entries
from ._ir import OPERATIONS, Builder, Operand, is_float, is_integer, is_number
from ._jaxprs import type_of
from ._moves import Scalars, fill_array, pad_entries
from ._reductions import CUMULATIVE, REDUCTIONS, accumulate, find_extreme, reduce_axes

_NAMES = {"add_any": "add"}


def _select_n(b: Builder, e: Any, inputs: list[Scalars]) -> Scalars:
    which, *cases = inputs
    t, kind = type_of(e.outvars[0].aval), type_of(e.invars[0].aval)
    if kind == "bool":
        no, yes = cases
        return map_entries(lambda p, x, y: b.select(p, x, y, t), np.broadcast_to(which, yes.shape), yes, no)

    def choose(p: Operand, *x: Operand) -> Operand:
        value = x[-1]
        for k in range(len(x) - 2, -1, -1):
            value = b.select(b.compare("le", p, k, kind), x[k], value, t)
        return value

    return map_entries(choose, np.broadcast_to(which, cases[0].shape), *cases)


def _convert(b: Builder, e: Any, inputs: list[Scalars]) -> Scalars:
    source, target = type_of(e.invars[0].aval), type_of(e.outvars[0].aval)
    return map_entries(lambda x: b.convert(x, source, target), inputs[0]) if source != target else inputs[0]


def _clamp(b: Builder, e: Any, inputs: list[Scalars]) -> Scalars:
    t = type_of(e.outvars[0].aval)
    low, x, high = inputs
    return map_entries(
        lambda least, y, most: b.apply("min", t, b.apply("max", t, y, least), most),
        *np.broadcast_arrays(low, x, high),
    )


def _integer_pow(b: Builder, e: Any, inputs: list[Scalars]) -> Scalars:
    t = type_of(e.outvars[0].aval)
    return map_entries(lambda x: b.power(x, e.params["y"], t), inputs[0])


def _round(b: Builder, e: Any, inputs: list[Scalars]) -> Scalars:
    t = type_of(e.outvars[0].aval)
    if e.params["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN:
        return map_entries(lambda x: b.apply("round", t, x), inputs[0])
    away = lambda x: b.mul(b.apply("sign", t, x), b.apply("floor", t, b.add(b.apply("abs", t, x), 0.5, t)), t)
    return map_entries(away, inputs[0])


def _next_after(b: Builder, e: Any, inputs: list[Scalars]) -> Scalars:
    """By S. M. Rump et al., "Computing predecessor and successor in rounding to nearest", BIT 49, 2009."""
    t = type_of(e.outvars[0].aval)
    info = np.finfo(t)
    unit, most, least = float(info.eps) / 2, float(info.max), float(info.tiny)

    def after(x: Operand, y: Operand) -> Operand:
        if is_number(x) and is_number(y):
            return np.nextafter(np.dtype(t).type(x), np.dtype(t).type(y)).item()
        size = b.apply("min", t, b.apply("abs", t, x), most)
        step = b.apply("max", t, b.mul(unit * (1 + 2 * unit), size, t), least)
        up = b.apply("max", t, b.add(x, step, t), -most)
        down = b.apply("min", t, b.sub(x, step, t), most)
        back = b.select(b.compare("gt", x, y, t), down, b.add(x, y, t), t)
        other = b.select(b.compare("eq", x, y, t), y, back, t)
        return b.select(b.compare("lt", x, y, t), up, other, t)

    return map_entries(after, *inputs)


def _bitcast(b: Builder, e: Any, inputs: list[Scalars]) -> Scalars:
    source, target = type_of(e.invars[0].aval), type_of(e.outvars[0].aval)
    if np.dtype(source).itemsize != np.dtype(target).itemsize:
        raise Untranslatable(f"a bit cast from {source} to {target} has no scalar code")
    known = lambda x: np.dtype(source).type(x).view(target).item()
    return map_entries(
        lambda x: known(x) if is_number(x) else b.node("bitcast", target, x, data=source), inputs[0]
    )


def _total_order(b: Builder, e: Any, inputs: list[Scalars]) -> Scalars:
    t = type_of(e.invars[0].aval)
    strict = e.primitive.name == "lt_to"

    def less(x: Operand, y: Operand) -> Operand:
        found = b.compare("lt", x, y, t)
        if not is_float(t):
            return found
        last = b.both(b.compare("eq", x, x, t), b.compare("ne", y, y, t), "bool")
        return b.either(last, found, "bool")

    return map_entries(less if strict else lambda x, y: b.invert(less(y, x), "bool"), *inputs)


def _pad(b: Builder, e: Any, inputs: list[Scalars]) -> Scalars:
    x, fill = inputs
    places = pad_entries([np.arange(x.size).reshape(x.shape), np.asarray(x.size)], [], e.params)
    flat = [*x.reshape(-1), fill[()]]
    return fill_array(places.shape, [flat[int(i)] for i in places.reshape(-1)])


def _apply_composed(b: Builder, e: Any, inputs: list[Scalars]) -> Scalars:
    t = type_of(e.outvars[0].aval)
    return map_entries(lambda *x: COMPOSED[e.primitive.name](b, t, *x), *inputs)


def _platform(b: Builder, e: Any, inputs: list[Scalars]) -> Scalars:
    """Which of several ways JAX takes: that of a CPU, or the default."""
    ways = e.params["platforms"]
    default = next((k for k, names in enumerate(ways) if names is None), 0)
    return constants(np.int32(next((k for k, names in enumerate(ways) if names and "cpu" in names), default)))


def _empty(b: Builder, e: Any, inputs: list[Scalars]) -> Scalars:
    """An array whose entries nobody reads, as zeros."""
    aval = e.outvars[0].aval
    return constants(np.broadcast_to(np.zeros((), aval.dtype), aval.shape))


COMPOSED: dict[str, Callable[..., Operand]] = {
    "square": lambda b, t, x: b.mul(x, x, t),
    "rsqrt": lambda b, t, x: b.div(1.0, b.apply("sqrt", t, x), t),
    "logistic": lambda b, t, x: b.div(1.0, b.add(1.0, b.apply("exp", t, b.neg(x, t)), t), t),
}
_RULES: dict[str, Callable[[Builder, Any, list[Scalars]], Scalars]] = {
    "select_n": _select_n,
    "convert_element_type": _convert,
    "nextafter": _next_after,
    "clamp": _clamp,
    "pad": _pad,
    "integer_pow": _integer_pow,
    "round": _round,
    "bitcast_convert_type": _bitcast,
    "platform_index": _platform,
    **dict.fromkeys(("empty", "empty2"), _empty),
    **dict.fromkeys(COMPOSED, _apply_composed),
    **dict.fromkeys(("argmax", "argmin"), find_extreme),
    **dict.fromkeys(("lt_to", "le_to"), _total_order),
    **dict.fromkeys(REDUCTIONS, reduce_axes),
    **dict.fromkeys(CUMULATIVE, accumulate),
}
_OF_ENTRIES = frozenset(
    (
        *COMPOSED,
        "select_n",
        "convert_element_type",
        "nextafter",
        "clamp",
        "integer_pow",
        "round",
        "lt_to",
        "le_to",
    )
)


def is_of_entries(name: str) -> bool:
    """Whether an operation is one on each entry."""
    return name in _OF_ENTRIES or (name not in _RULES and _NAMES.get(name, name) in OPERATIONS)


def is_of_scalars(name: str) -> bool:
    """Whether an operation is one on arrays of scalars."""
    return name in _RULES or is_of_entries(name)


def apply_operation(b: Builder, e: Any, flat: list[Scalars]) -> Scalars:
    """What an operation makes of arrays of scalars."""
    name = e.primitive.name
    if name in _RULES:
        return _RULES[name](b, e, flat)
    types = [type_of(v.aval) for v in e.invars]
    op: str = _NAMES.get(name) or name
    op = {"div": "quotient", "rem": "remainder"}.get(op, op) if is_integer(types[0]) else op
    t = types[-1] if op == "select" else types[0]
    return map_entries(lambda *x: b.apply(op, t, *x), *flat)
