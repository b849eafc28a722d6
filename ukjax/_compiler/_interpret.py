"""A traced JAX program (jaxpr) as expressions over scalars: every array becomes an array of expressions.

Index operations (slices, gathers, concatenations) only move expressions about, products of matrices become
sums over what is not structurally zero, and loops of known length are unrolled. A place that a computation finds is one
of few (`_choices`). What depends on values in any other way (`while`, sorting, LAPACK) raises `TranslationError`.

Numbers here know no type. Of integers only what is right without a limit is done; else JAX does it where they are known.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from ._choices import Choices, choices, place_of_most, selected, total_order
from ._expressions import OF_NONE, OPERATIONS, REDUCTIONS, Call, Expression, Node, is_number
from ._integers import is_plain, must_be_known, needs_types
from ._live import live
from ._moves import (
    MOVES,
    OPERANDS,
    Scalars,
    as_scalars,
    evaluated,
    evaluated_together,
    filled,
    is_constant,
    moved,
    places,
    require_within,
    scalars,
    scatter,
    shaped,
)
from ._rounding import next_after, whole
from ._scalars import FOLDED, Builder, TranslationError
from ._structured._primitive import PLAIN

_LONGEST_UNROLLED = 256
_LARGEST_MATRIX = 128  # parameters in a factor; products with more XLA compiles sooner, on arrays


class LargeProductError(TranslationError):
    """A product with a large matrix of parameters, which is better left to arrays."""


class Interpreter:
    """Interprets jaxprs with one `Builder`.

    **Arguments:**

    - `builder`: makes the expressions.
    - `parameters`: how many of the first inputs are such; products with large matrices raise `LargeProductError`.
    """

    def __init__(self, builder: Builder, parameters: int = 0):
        self.builder, self._parameters = builder, parameters
        self._repeats = (
            False  # in passes of a loop and in cases, what reaches out of an array may be left out later
        )

    def run(self, jaxpr: Any, consts: Any, inputs: list[Scalars], of: Any = None) -> list[Scalars]:
        """The outputs of a jaxpr for inputs of expressions; or of its variables those that are asked for."""
        values: dict[Any, Scalars] = dict(zip(jaxpr.constvars, map(as_scalars, consts), strict=True))
        values |= dict(zip(jaxpr.invars, inputs, strict=True))
        read: Callable[[Any], Scalars] = lambda x: (
            scalars(x.val) if isinstance(x, core.Literal) else values[x]
        )
        of = jaxpr.outvars if of is None else of
        for equation in live(jaxpr, of):
            found = self._equation(equation, [read(x) for x in equation.invars])
            for variable, output in zip(equation.outvars, found, strict=True):
                values[variable] = output
        return [read(x) for x in of]

    def _equation(self, equation: Any, inputs: list[Scalars]) -> list[Scalars]:
        name, params = equation.primitive.name, equation.params
        if equation.effects:
            raise TranslationError(f"'{name}' does more than compute, such as to print or call back")
        if name in _CALLS or name in _WITH_RULES:
            called = params.get("jaxpr") or params.get("call_jaxpr")
            closed = called if hasattr(called, "consts") else core.ClosedJaxpr(called, ())
            values = self.run(closed.jaxpr, closed.consts, inputs)
            ruled = name in _WITH_RULES and not all(map(is_constant, inputs))
            return self._ruled(equation, inputs, values) if ruled else values
        if name == "nondifferentiable":  # of Equinox, which differentiates it to an error
            return inputs
        if name == "attached":  # what was constant to one differentiation is not to the next
            return inputs[:1]
        if name == "scan":
            return self._scan(params, inputs)
        if name in PLAIN:
            shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
            closed = jax.make_jaxpr(lambda *x: PLAIN[name](*x, **params))(*shapes)
            return self.run(closed.jaxpr, closed.consts, inputs)
        unknown = must_be_known(equation, inputs)
        if unknown and (found := choices([inputs[i] for i in unknown])) is not None:
            return self._by_cases(equation, inputs, unknown, found)
        if name == "cond":
            return self._cond(params, inputs)
        if name in MOVES:
            outputs = MOVES[name](inputs, params)
            return [shaped(x, v.aval.shape) for x, v in zip(outputs, equation.outvars, strict=True)]
        if needs_types(equation):
            if not all(map(is_constant, inputs)):
                raise TranslationError(f"'{name}' of integers that are not known has no scalar code")
            return evaluated(equation, inputs)
        if name not in FOLDED and name not in _RULES and all(map(is_constant, inputs)):
            return evaluated(equation, inputs)
        if name in OPERATIONS or name in _RENAMED:
            return [self._elementwise(_RENAMED.get(name) or name, inputs)]
        if name not in _RULES:
            raise TranslationError(f"'{name}' has no scalar code")
        return [shaped(_RULES[name](self, inputs, params, equation), equation.outvars[0].aval.shape)]

    def _by_cases(
        self, equation: Any, inputs: list[Scalars], unknown: list[int], found: Choices
    ) -> list[Scalars]:
        """The outputs where some inputs are integers of which each is one of few."""
        self._repeats, before = True, self._repeats
        each = [list(inputs) for _ in found.cases]
        for case, arrays in zip(each, found.cases, strict=True):
            for i, array in zip(unknown, arrays, strict=True):
                case[i] = array
        if all(is_constant(x) for i, x in enumerate(inputs) if i not in unknown) and is_plain(equation):
            results = evaluated_together(equation, each)
        else:
            results = [self._equation(equation, case) for case in each]
        self._repeats = before
        return selected(self.builder, found.tree, results)

    def _ruled(self, equation: Any, inputs: list[Scalars], values: list[Scalars]) -> list[Scalars]:
        """The values of a function that has a derivative rule of its own, marked as such."""
        if equation.primitive.name != "custom_jvp_call":
            raise TranslationError("a function with a rule for reverse mode only has no scalar code")
        given = {
            v: x for v, x in zip(equation.invars, inputs, strict=True) if not isinstance(v, core.Literal)
        }
        alone = core.Jaxpr(
            (),
            [*given],
            equation.outvars,
            [equation],
            debug_info=equation.params["call_jaxpr"].jaxpr.debug_info,
        )
        function = core.jaxpr_as_fun(core.ClosedJaxpr(alone, ()))
        call = Call(function, tuple(v.aval for v in given))
        flat = [x for array in given.values() for x in array.reshape(-1)]

        def marked(k: int, array: Scalars) -> Scalars:
            if not jnp.issubdtype(equation.outvars[k].aval.dtype, jnp.floating):
                return array
            each = enumerate(array.reshape(-1))
            return filled(array.shape, [self.builder.ruled(x, (call, k, i), flat) for i, x in each])

        return [marked(*pair) for pair in enumerate(values)]

    def _elementwise(self, op: str, inputs: list[Scalars]) -> Scalars:
        apply = np.frompyfunc(self.builder.rule(op), len(inputs), 1)
        with np.errstate(all="ignore"):  # NumPy would warn of constants that are infinite or no number
            return shaped(apply(*inputs), np.broadcast_shapes(*(x.shape for x in inputs)))

    def _each(self, rule: Callable[..., Expression], inputs: list[Scalars], equation: Any) -> Scalars:
        """A rule for each number, which folds no constants."""
        return evaluated(equation, inputs)[0] if all(map(is_constant, inputs)) else self._by(rule, *inputs)

    def _by(self, rule: Callable[..., Expression], *inputs: Scalars) -> Scalars:
        apply: Any = np.frompyfunc(rule, len(inputs), 1)
        return apply(*inputs)

    def _next_after(self, inputs: list[Scalars], params: dict, equation: Any) -> Scalars:
        kind = equation.outvars[0].aval.dtype
        return self._each(functools.partial(next_after, self.builder, kind=kind), inputs, equation)

    def _select_n(self, inputs: list[Scalars], params: dict, equation: Any) -> Scalars:
        if equation.invars[0].aval.dtype != jnp.bool_:
            if not is_constant(inputs[0]):
                raise TranslationError("'select_n' by a number that is not known has no scalar code")
            which, *among = (x.reshape(-1) for x in np.broadcast_arrays(*inputs))
            return filled(inputs[1].shape, [among[int(k)][i] for i, k in enumerate(which)])
        which, no, yes = inputs
        return self._elementwise("select", [np.broadcast_to(which, yes.shape), yes, no])

    def _convert(self, inputs: list[Scalars], params: dict, equation: Any) -> Scalars:
        source, target = equation.invars[0].aval.dtype, params["new_dtype"]
        if jnp.issubdtype(source, jnp.floating) and not jnp.issubdtype(target, jnp.floating):
            if not (jnp.issubdtype(target, jnp.signedinteger) or is_constant(inputs[0])):
                raise TranslationError(f"a conversion from {source} to {target} has no scalar code")
            return self._each(functools.partial(whole, self.builder, target=target), inputs, equation)
        return self._by(lambda x: self.builder.number(x, source == jnp.bool_), *inputs)

    def _reduce(self, fold: Callable, inputs: list[Scalars], axes: tuple[int, ...]) -> Scalars:
        (x,) = inputs
        kept = [i for i in range(x.ndim) if i not in axes]
        shape, count = tuple(x.shape[i] for i in kept), math.prod(x.shape[i] for i in axes)
        rows = np.transpose(x, [*kept, *axes]).reshape(math.prod(shape), count)
        return filled(shape, [fold(list(row)) for row in rows])

    def _reduction(self, inputs: list[Scalars], params: dict, equation: Any) -> Scalars:
        op = REDUCTIONS[equation.primitive.name]
        one_by_one = lambda row: functools.reduce(self.builder.rule(op), row or [OF_NONE[op]])
        return self._reduce(self.builder.total if op == "add" else one_by_one, inputs, params["axes"])

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
            self._require_small(xs)
            self._require_small(ys)
            flat += itertools.chain.from_iterable(self.builder.product(xs, ys.T))
        return filled((*(inputs[0].shape[i] for i in batch_x), *free_x, *free_y), flat)

    def _require_small(self, matrix: Scalars) -> None:
        is_parameter = lambda x: isinstance(x, Node) and x.op == "input" and x.args[0] < self._parameters
        if min(matrix.shape) > 1 and sum(map(is_parameter, matrix.flat)) > _LARGEST_MATRIX:
            shape = " x ".join(map(str, matrix.shape))
            raise LargeProductError(f"products with a {shape} matrix of parameters are better left to arrays")

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
        self._repeats, before = True, self._repeats
        for i in passes:
            rows = [shaped(x[i], x.shape[1:]) for x in columns]
            outputs = self.run(body.jaxpr, body.consts, [*consts, *carry, *rows])
            carry, collected[i] = outputs[: params["num_carry"]], outputs[params["num_carry"] :]
        self._repeats = before
        stacked = [np.stack(rows) for rows in zip(*(collected[i] for i in range(length)), strict=True)]
        return [*carry, *stacked]

    def _dynamic_slice(self, inputs: list[Scalars], params: dict, equation: Any) -> Scalars:
        if not self._repeats:
            require_within(inputs, params["slice_sizes"])
        return moved(inputs, params, equation.primitive)

    def _cond(self, params: dict, inputs: list[Scalars]) -> list[Scalars]:
        index = inputs[0][()]
        if not is_number(index):
            raise TranslationError("a branch by a number that is not known has no scalar code")
        branch = params["branches"][int(np.clip(index, 0, len(params["branches"]) - 1))]
        return self.run(branch.jaxpr, branch.consts, inputs[1:])

    def _place_of_most(self, inputs: list[Scalars], params: dict, equation: Any) -> Scalars:
        better = {"argmax": "gt", "argmin": "lt"}[equation.primitive.name]
        if equation.invars[0].aval.dtype == jnp.bool_:
            inputs = [self._by(lambda x: self.builder.number(x, True), x) for x in inputs]
        return self._reduce(lambda row: place_of_most(self.builder, better, row), inputs, params["axes"])

    def _total_order(self, inputs: list[Scalars], params: dict, equation: Any) -> Scalars:
        less, strict = functools.partial(total_order, self.builder), equation.primitive.name == "lt_to"
        found = shaped(self._by(less, *inputs[:: 1 if strict else -1]), equation.outvars[0].aval.shape)
        return found if strict else self._elementwise("not", [found])


_CALLS = frozenset(("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"))
_WITH_RULES = frozenset(("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"))
_RENAMED = {"add_any": "add"}
_RULES: dict[str, Callable[..., Scalars]] = {
    "integer_pow": lambda i, x, p, e: i._by(lambda a: i.builder.power(a, p["y"]), *x),
    "square": lambda i, x, p, e: i._elementwise("square", x),
    "select_n": Interpreter._select_n,
    "clamp": lambda i, x, p, e: i._elementwise("min", [i._elementwise("max", x[:2]), x[2]]),
    "convert_element_type": Interpreter._convert,
    "nextafter": Interpreter._next_after,
    "dot_general": Interpreter._dot_general,
    **dict.fromkeys(("argmax", "argmin"), Interpreter._place_of_most),
    **dict.fromkeys(("lt_to", "le_to"), Interpreter._total_order),
    "scatter": lambda i, x, p, e: scatter(e, x),
    "scatter-add": Interpreter._scatter_add,
    **dict.fromkeys(REDUCTIONS, Interpreter._reduction),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin"), Interpreter._cumulative),
    **dict.fromkeys(OPERANDS, lambda i, x, p, e: moved(x, p, e.primitive)),
    "dynamic_slice": Interpreter._dynamic_slice,
}
