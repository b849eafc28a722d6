"""Derivatives of functions of arrays by the rules of their authors, in programs of scalars."""

import functools
from collections.abc import Sequence
from typing import Any

import jax

from ..._misc._errors import Untranslatable
from ._arrays import to_scalars
from ._builder import Builder
from ._jaxprs import reverse_only
from ._moves import fill_array
from ._nodes import DerivativeRule, Operand, is_float
from ._trace import Interpreter


def _changes_of(
    rule: DerivativeRule, varied: tuple[int, ...], inputs: Sequence[Any], moved: Sequence[Any]
) -> list[Any]:
    """The changes of a function with a rule of its own, along changes of some inputs; of whole numbers none."""

    def some(*values: Any) -> Any:
        return rule.function(*[values[varied.index(i)] if i in varied else x for i, x in enumerate(inputs)])

    found = jax.jvp(some, tuple(inputs[i] for i in varied), tuple(moved))[1]
    return [None if x.dtype == jax.dtypes.float0 else x for x in found]


def _shapes(avals: Sequence[Any]) -> list[Any]:
    return [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in avals]


@functools.lru_cache(maxsize=256)
def _rule_changes(rule: DerivativeRule, varied: tuple[int, ...]) -> tuple[Any, list[int]]:
    """A jaxpr of the changes of real outputs, from all inputs and the changes of some, and which outputs are real."""
    shapes, real = _shapes(rule.inputs), list[int]()

    def changes(inputs: Sequence[Any], moved: Sequence[Any]) -> Any:
        found = _changes_of(rule, varied, inputs, moved)
        real[:] = [k for k, x in enumerate(found) if x is not None]
        return [x for x in found if x is not None]

    return jax.make_jaxpr(changes)(shapes, [shapes[i] for i in varied]), real


@functools.lru_cache(maxsize=256)
def pull_back_by_rule(rule: DerivativeRule, varied: tuple[int, ...]) -> tuple[Any, list[tuple[int, Any]]]:
    """A jaxpr of the cotangents of some inputs, from inputs and those of real outputs, and which and what these are."""
    shapes = _shapes(rule.inputs)
    closed, real = _rule_changes(rule, varied)

    def pulled(inputs: Sequence[Any], cotangents: Sequence[Any]) -> Any:
        along = lambda *moved: [x for x in _changes_of(rule, varied, inputs, moved) if x is not None]
        return jax.linear_transpose(along, *[shapes[i] for i in varied])(list(cotangents))

    outs = _shapes(closed.out_avals)
    return jax.make_jaxpr(pulled)(shapes, outs), list(zip(real, closed.out_avals, strict=True))


def push_forward_by_rule(
    b: Builder, rule: DerivativeRule, inputs: Sequence[Operand], moved: Sequence[Operand | None]
) -> dict[int, Any]:
    """The changes of each output of a function, whose inputs are given entry by entry; no change is None."""
    arrays, tangents, varied, start = [], [], [], 0
    for i, aval in enumerate(rule.inputs):
        end = start + aval.size
        arrays.append(fill_array(aval.shape, list(inputs[start:end])))
        changes = moved[start:end]
        if is_float(str(aval.dtype)) and any(x is not None for x in changes):
            varied.append(i)
            tangents.append(fill_array(aval.shape, [0.0 if x is None else x for x in changes]))
        start = end
    interpreter = Interpreter(b)
    closed, real = _rule_changes(rule, tuple(varied))
    if reverse_only(closed):
        raise refusal("a rule by jax.custom_vjp is for reverse mode only")
    outputs = interpreter.closed(closed, [*arrays, *tangents])
    return {k: to_scalars(b, x).reshape(-1) for k, x in zip(real, outputs, strict=True)}


def refusal(message: str) -> Exception:
    return Untranslatable(f"no derivative: {message}")
