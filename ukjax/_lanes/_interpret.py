"""A traced JAX program (jaxpr) as expressions over scalars: every array becomes an array of expressions.

Index operations (slices, gathers, concatenations) only move expressions about, products of matrices become
sums over what is not structurally zero, and loops of known length are unrolled. What depends on values in
any other way (`while`, sorting, LAPACK) raises `TranslationError`.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from ._expressions import OPERATIONS, Expression, entries, is_number
from ._moves import (
    MOVES,
    OPERANDS,
    Scalars,
    as_scalars,
    evaluated,
    filled,
    is_constant,
    moved,
    places,
    scalars,
    scatter,
    shaped,
)
from ._scalars import Builder, TranslationError

_LONGEST_UNROLLED = 256


class Interpreter:
    """Interprets jaxprs with one `Builder`."""

    def __init__(self, builder: Builder):
        self.builder = builder

    def run(self, jaxpr: Any, consts: Any, inputs: list[Scalars]) -> list[Scalars]:
        """The outputs of a jaxpr for inputs of expressions."""
        values: dict[Any, Scalars] = dict(zip(jaxpr.constvars, map(as_scalars, consts), strict=True))
        values |= dict(zip(jaxpr.invars, inputs, strict=True))

        def read(x: Any) -> Scalars:
            return scalars(x.val) if isinstance(x, core.Literal) else values[x]

        for equation in jaxpr.eqns:
            outputs = self._equation(equation, [read(x) for x in equation.invars])
            for variable, output in zip(equation.outvars, outputs, strict=True):
                values[variable] = output
        return [read(x) for x in jaxpr.outvars]

    def _equation(self, equation: Any, inputs: list[Scalars]) -> list[Scalars]:
        name, params = equation.primitive.name, equation.params
        if name in _CALLS:
            called = params.get("jaxpr") or params.get("call_jaxpr") or params.get("fun_jaxpr")
            closed = called if hasattr(called, "consts") else core.ClosedJaxpr(called, ())
            return self.run(closed.jaxpr, closed.consts, inputs)
        if name in _LOOPS:
            return _LOOPS[name](self, params, inputs)
        if name in MOVES:
            outputs = MOVES[name](inputs, params)
            return [shaped(x, v.aval.shape) for x, v in zip(outputs, equation.outvars, strict=True)]
        if name in OPERATIONS or name in _RENAMED:
            return [self._elementwise(_RENAMED.get(name, name), inputs)]
        if name not in _RULES and all(map(is_constant, inputs)):
            return evaluated(equation, inputs)
        if name not in _RULES:
            raise TranslationError(f"'{name}' has no scalar code")
        return [shaped(_RULES[name](self, inputs, params, equation), equation.outvars[0].aval.shape)]

    def _elementwise(self, op: str, inputs: list[Scalars]) -> Scalars:
        apply = np.frompyfunc(self.builder.rule(op), len(inputs), 1)
        with np.errstate(all="ignore"):  # NumPy would warn of constants that are infinite or no number
            return shaped(apply(*inputs), np.broadcast_shapes(*(x.shape for x in inputs)))

    def _power(self, inputs: list[Scalars], params: dict, _: Any) -> Scalars:
        power: Any = np.frompyfunc(lambda x: self.builder.power(x, params["y"]), 1, 1)
        return power(inputs[0])

    def _select_n(self, inputs: list[Scalars], params: dict, _: Any) -> Scalars:
        if len(inputs) != 3:
            raise TranslationError("'select_n' among more than two has no scalar code")
        which, no, yes = inputs
        return self._elementwise("select", [np.broadcast_to(which, yes.shape), yes, no])

    def _clamp(self, inputs: list[Scalars], params: dict, _: Any) -> Scalars:
        low, x, high = inputs
        return self._elementwise("min", [self._elementwise("max", [low, x]), high])

    def _convert(self, inputs: list[Scalars], params: dict, equation: Any) -> Scalars:
        source, target = equation.invars[0].aval.dtype, params["new_dtype"]
        if jnp.issubdtype(source, jnp.floating) and not jnp.issubdtype(target, jnp.floating):
            if is_constant(inputs[0]):
                return evaluated(equation, inputs)[0]
            raise TranslationError(f"a conversion from {source} to {target} has no scalar code")
        boolean = source == jnp.bool_
        convert: Any = np.frompyfunc(lambda x: self.builder.number(x, boolean), 1, 1)
        return convert(inputs[0])

    def _reduce(self, fold: Callable, inputs: list[Scalars], axes: tuple[int, ...]) -> Scalars:
        (x,) = inputs
        kept = [i for i in range(x.ndim) if i not in axes]
        rows = np.transpose(x, [*kept, *axes]).reshape(*(x.shape[i] for i in kept), -1)
        return filled(rows.shape[:-1], [fold(list(row)) for row in rows.reshape(-1, rows.shape[-1])])

    def _pairwise(self, op: str) -> Callable[[list[Expression]], Expression]:
        def fold(terms: list[Expression]) -> Expression:
            first, *rest = terms
            for x in rest:
                first = self.builder.apply(op, first, x)
            return first

        return fold

    def _reduction(self, inputs: list[Scalars], params: dict, equation: Any) -> Scalars:
        op = _REDUCTIONS[equation.primitive.name]
        fold = self.builder.total if op == "add" else self._pairwise(op)
        return self._reduce(fold, inputs, params["axes"])

    def _cumulative(self, inputs: list[Scalars], params: dict, equation: Any) -> Scalars:
        op = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}[equation.primitive.name]
        x = np.moveaxis(inputs[0], params["axis"], -1)
        x = x[..., ::-1] if params["reverse"] else x
        columns = [x[..., :1]]
        for i in range(1, x.shape[-1]):
            columns.append(self._elementwise(op, [columns[-1], x[..., i : i + 1]]))
        out = np.concatenate(columns[::-1] if params["reverse"] else columns, axis=-1)
        return np.moveaxis(out, -1, params["axis"])

    def _dot_general(self, inputs: list[Scalars], params: dict, _: Any) -> Scalars:
        (contract_x, contract_y), (batch_x, batch_y) = params["dimension_numbers"]

        def arranged(x: Scalars, batch: Any, contract: Any) -> tuple[Scalars, list[int]]:
            free = [i for i in range(x.ndim) if i not in (*batch, *contract)]
            count = [int(np.prod([x.shape[i] for i in axes])) for axes in (batch, free, contract)]
            return np.transpose(x, [*batch, *free, *contract]).reshape(count), [x.shape[i] for i in free]

        x, free_x = arranged(inputs[0], batch_x, contract_x)
        y, free_y = arranged(inputs[1], batch_y, contract_y)
        flat = []
        for xs, ys in zip(x, y, strict=True):
            columns = list(map(entries, ys))
            flat += [self.builder.dot(row, column) for row in map(entries, xs) for column in columns]
        return filled((*(inputs[0].shape[i] for i in batch_x), *free_x, *free_y), flat)

    def _scatter_add(self, inputs: list[Scalars], params: dict, equation: Any) -> Scalars:
        operand, _, updates = inputs
        out = operand.reshape(-1).copy()
        for source, place in enumerate(places(equation, inputs)):
            if place >= 0:
                out[place] = self.builder.apply("add", out[place], updates.reshape(-1)[source])
        return out.reshape(operand.shape)

    def _scan(self, params: dict, inputs: list[Scalars]) -> list[Scalars]:
        length, body = params["length"], params["jaxpr"]
        if length > _LONGEST_UNROLLED:
            raise TranslationError(f"a loop of {length} passes is too long to be unrolled")
        fixed, first = params["num_consts"], params["num_consts"] + params["num_carry"]
        consts, carry, columns = inputs[:fixed], inputs[fixed:first], inputs[first:]
        passes = range(length)[::-1] if params["reverse"] else range(length)
        collected: dict[int, list[Scalars]] = {}
        for i in passes:
            rows = [shaped(x[i], x.shape[1:]) for x in columns]
            outputs = self.run(body.jaxpr, body.consts, [*consts, *carry, *rows])
            carry, collected[i] = outputs[: params["num_carry"]], outputs[params["num_carry"] :]
        stacked = [np.stack(rows) for rows in zip(*(collected[i] for i in range(length)), strict=True)]
        return [*carry, *stacked]

    def _cond(self, params: dict, inputs: list[Scalars]) -> list[Scalars]:
        index, operands = inputs[0][()], inputs[1:]
        branches = [self.run(b.jaxpr, b.consts, operands) for b in params["branches"]]
        if is_number(index):
            return branches[int(index)]
        if len(branches) != 2:
            raise TranslationError("'switch' among more than two has no scalar code")
        no, yes = branches
        which = self.builder.apply("ne", index, 0)
        select = np.frompyfunc(lambda x, y: self.builder.apply("select", which, x, y), 2, 1)
        return [shaped(select(y, n), y.shape) for n, y in zip(no, yes, strict=True)]


# fmt: off
_CALLS = frozenset((
    "jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "remat",
    "remat2", "checkpoint",
))
# fmt: on
_LOOPS = {"scan": Interpreter._scan, "cond": Interpreter._cond}
_RENAMED = {"add_any": "add"}
_REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "mul",
    "reduce_and": "and",
    "reduce_or": "or",
}
_RULES: dict[str, Callable[..., Scalars]] = {
    "integer_pow": Interpreter._power,
    "square": lambda i, x, p, e: i._elementwise("square", x),
    "select_n": Interpreter._select_n,
    "clamp": Interpreter._clamp,
    "convert_element_type": Interpreter._convert,
    "dot_general": Interpreter._dot_general,
    "scatter": lambda i, x, p, e: scatter(e, x),
    "scatter-add": Interpreter._scatter_add,
    **dict.fromkeys(_REDUCTIONS, Interpreter._reduction),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin"), Interpreter._cumulative),
    **dict.fromkeys(OPERANDS, lambda i, x, p, e: moved(x, p, e.primitive)),
}
