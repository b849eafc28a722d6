"""Derivatives in programs of scalars: of operations, and of functions of arrays by the rules of their authors."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..._misc._errors import Untranslatable
from ._arrays import to_scalars
from ._builder import Builder
from ._jaxprs import reverse_only
from ._moves import fill_array
from ._nodes import DerivativeRule, Node, Operand, is_float
from ._table import OPERATIONS
from ._trace import Interpreter


@functools.lru_cache(maxsize=256)
def _partials_by_jax(name: str, t: str, count: int) -> Any:
    """A jaxpr of an operation's derivatives by each of its operands, as JAX has them."""
    function, one = getattr(jax.lax, name), np.ones((), t)

    def partials(*x: Any) -> list[Any]:
        along = lambda i: lambda y: function(*x[:i], y, *x[i + 1 :])
        return [jax.jvp(along(i), (x[i],), (one,))[1] for i in range(count)]

    return jax.make_jaxpr(partials)(*[jax.ShapeDtypeStruct((), t)] * count)


def find_partials(
    b: Builder, node: Node, args: Sequence[Operand], value: Operand
) -> Sequence[Operand | None]:
    """The derivatives of a node's value by each of its operands; None where there is none."""
    operation = OPERATIONS[node.op]
    if operation.partials is not None:
        return operation.partials(b, node.type, *args, value)
    closed = _partials_by_jax(operation.jax or node.op, node.type, len(args))
    found = Interpreter(b).closed(closed, [fill_array((), [x]) for x in args])
    return [to_scalars(b, x)[()] for x in found]


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
def rule_changes(rule: DerivativeRule, varied: tuple[int, ...]) -> tuple[Any, list[int]]:
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
    closed, real = rule_changes(rule, varied)

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
    closed, real = rule_changes(rule, tuple(varied))
    if reverse_only(closed):
        raise refusal("a rule by jax.custom_vjp is for reverse mode only")
    outputs = interpreter.closed(closed, [*arrays, *tangents])
    return {k: to_scalars(b, x).reshape(-1) for k, x in zip(real, outputs, strict=True)}


def refusal(message: str) -> Exception:
    return Untranslatable(f"no derivative: {message}")
