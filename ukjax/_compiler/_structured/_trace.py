"""Traced JAX programs (jaxprs) as programs of scalars.

A small array becomes a NumPy array of operands; what only moves its entries makes no nodes. An array that is indexed at
run time, or is large where a loop carries it, stays an array (`StoredArray`). `while_loop`, `scan`, `cond` become loops
and branches; those that are short, of a length known now, are written out.

What JAX leaves to LAPACK, to XLA or to C++ is traced again from functions in plain JAX (`_replacements`).
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.interpreters import ad

from ..._misc._errors import Untranslatable
from ..._misc._types import as_jax
from ._arrays import (
    CARRIED,
    LONG,
    MATERIALIZED,
    Lazy,
    StoredArray,
    Value,
    as_object_array,
    compute_entries,
    constants,
    flatten,
    form_of,
    is_known,
    is_too_long,
    map_entries,
    move_in_memory,
    settle,
    tabulate,
    to_memory,
    to_scalars,
    unflatten,
)
from ._builder import Builder
from ._compound import computes_compounds, divide, in_parts, is_compound
from ._indexing import READS, SELECTED, require_within, scatter, update_slice
from ._jaxprs import (
    INLINED,
    SCATTERS,
    SHORT,
    calls_back,
    core_jaxpr,
    count_scanned,
    find_indexed_shapes,
    function_of,
    jaxprs_in,
    line_of,
    live_equations,
    loops,
    needed_equations,
    raises,
    solve_within,
    type_of,
    weight,
    while_of_members,
)
from ._moves import MOVES, Scalars, fill_array
from ._nodes import DerivativeRule, Node, Operand, is_float, is_number, name_number, zero
from ._operations import (
    REDUCTIONS,
    apply_operation,
    is_of_entries,
    is_of_scalars,
    multiply,
    multiply_in_memory,
    reduce_in_memory,
)
from ._replacements import DIFFERENTIATED_BY_JAX, REPLACEMENTS
from ._subprogram import Subprogram

_WRITTEN_OUT = 1_500  # operations that a loop may become whose number of passes is found as it is traced
_MOST_PASSES = 64  # of a loop that is written out
_KNOWN = 50_000  # operations of passes with numbers that are known: 13,000 take 0.04 s, and XLA a second
_MOST_WRITTEN_OUT = 256  # passes of a scan, of what is to be written out
_BRANCHES = 60  # operations up to which both sides of a branch are computed
_LEAST_CALLED = 200  # operations of a sub-program
_LONG_RULE = f"a rule for derivatives (jax.custom_jvp) of arrays of more than {MATERIALIZED:,} entries has no scalar code"
_LOOPING_RULE = (
    "rules by jax.custom_vjp are not looked at around loops (of Diffrax's adjoints, ForwardMode() has none)"
)
# Passed on as they are: members of a batch that have ended are masked by the loop itself, so Equinox's need not be.
_PASSED = {
    "select_if_vmap": 1,
    **dict.fromkeys(
        ("nonbatchable", "copy", "copy_p", "reduce_precision", "sharding_constraint", "pvary"),
        0,
    ),
}
# Operations of others whose derivative is that of what they compute.
_AS_COMPUTED = frozenset(("maybe_set", "noinline", "nontraceable"))
_WAITS = frozenset(
    ("dot_general", "scalars", "scalars_change")
)  # besides, what may read arrays entry by entry
_REFUSED = frozenset(("nondifferentiable", "nondifferentiable_backward", "not_differentiable"))


Kind = tuple[str, int | None]
"""The type of an input, and of an array in memory its size."""

Known = tuple[tuple[Kind, Any, Any], ...]
"""Of each input its kind, and the class of the number and the number it is; or `Node` and None where it is not known."""
_AS_SHORT = 1.1  # a version for more inputs, not longer than so many times the one asked for, takes its place


class Callees:
    """Which functions a program calls, and what sub-programs they became.

    - `known`: sub-programs and the inputs that are known in them, by function and known inputs; None of those that are
      written out.
    - `versions`: those of a function.
    """

    def __init__(self):
        self.known = dict[Any, tuple[Subprogram, Known] | None]()
        self.versions = dict[Any, list[tuple[Subprogram, Known]]]()
        self._uses = dict[Any, int]()
        self._repeats = dict[Any, bool]()  # whether a function has loops
        self._indexed = dict[Any, set[tuple[int, ...]]]()

    def count(self, jaxpr: Any) -> bool:
        """Counts the uses of functions in a jaxpr, each of which is looked into once; whether it has loops."""
        repeats = False
        for e in jaxpr.eqns:
            repeats |= e.primitive.name in ("while", "scan")
            for inner in jaxprs_in(e.params):
                if self._use(inner) == 1:
                    self._repeats[inner] = self.count(core_jaxpr(inner))
                repeats |= self._repeats[inner]
            if e.primitive.name == "scalars":
                repeats |= e.params["program"].repeats
        return repeats

    def _use(self, function: Any) -> int:
        self._uses[function] = self._uses.get(function, 0) + 1
        return self._uses[function]

    def indexed(self, function: Any) -> set[tuple[int, ...]]:
        """The shapes of arrays that a function indexes at places it does not know."""
        if function not in self._indexed:
            self._indexed[function] = find_indexed_shapes(core_jaxpr(function))
        return self._indexed[function]

    def calls(self, function: Any) -> bool:
        """Whether a function is to be a sub-program, if it is large enough."""
        # Also what is used once: LLVM takes less time for two functions than for one of both, and finds better code, and
        # derivatives use it more than once. But reverse mode runs a sub-program again, so what repeats is to be worth it.
        least = 2 if self._repeats.get(function) else 1
        return self._uses.get(function, 0) >= least


def _shared(known: Known, others: Known) -> Known:
    """What is known of inputs in both of two cases."""
    return tuple(x if x == y else (x[0], Node, None) for x, y in zip(known, others, strict=True))


def _spreads(e: Any, inputs: Sequence[Value], longest: float) -> bool:
    """Whether an operation makes many entries of few that repeat and are all unknown: there are no zeros to spare."""
    out = e.outvars[0].aval
    if out.size <= longest:
        return False
    whole = False
    for x in inputs:
        if isinstance(x, StoredArray | Lazy) or x.size == 1 or not any(x.strides):
            continue
        own = x[tuple(slice(None) if k else slice(1) for k in x.strides)]
        if own.size == out.size or not all(y.__class__ is Node for y in own.flat):
            return False
        whole = True
    return whole


def _is_hashable(x: Any) -> bool:
    try:
        hash(x)
    except TypeError:
        return False
    return True


@functools.lru_cache(256)
def _jaxpr_of(function: Callable[..., Any], params: tuple[Any, ...], avals: tuple[Any, ...]) -> Any:
    """The jaxpr of an operation that others defined; some are used a hundred times in a program."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return jax.make_jaxpr(lambda *x: function(*x, **dict(params)))(*avals)


class Interpreter:
    """Interprets jaxprs with one `Builder`.

    - `callees`: shared by those of one program: what functions that it calls became.
    - `least_called`: operations from which on a function is a sub-program; fewer are written out where it is used.

    **Arguments:**

    - `written_out`: whether all is to be scalars as far as it can be, so that structural zeros are seen: nothing is
      called, scans are passes, arrays stay out of memory. An index that lies outside is an error, and checks are refused.
    - `parameters`: how many of the first parameters of the builder's program are such of a system, of which products
      with large matrices raise `LargeProductError`.
    - `calls`: whether programs within one that is `written_out` are called none the less.
    """

    def __init__(
        self,
        builder: Builder,
        callees: Callees | None = None,
        *,
        written_out: bool = False,
        parameters: int = 0,
        calls: bool = False,
    ):
        self.b, self.callees, self.written_out = builder, callees or Callees(), written_out
        self._parameters, self._passes = parameters, 0  # how many loops, written out, this is within
        self.least_called = math.inf if written_out and not calls else _LEAST_CALLED
        self._raises = written_out  # checks of a system are to raise
        self._longest = math.inf if written_out else LONG  # an array with more entries is kept in memory
        self._passes_of_scan = _MOST_WRITTEN_OUT if written_out else 0  # written out however long they are
        self._debug_info: Any = None
        self._opened: list[Any] = []  # operations that are being traced by their own functions

    # --- jaxprs

    def whole(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Value]) -> list[Value]:
        """The outputs of a whole program's jaxpr, whose functions are called."""
        self.callees.count(jaxpr)
        return self._settled(self.run(jaxpr, consts, inputs))

    def closed(self, closed: Any, inputs: Sequence[Value], *, waits: bool = False) -> list[Value]:
        """The outputs of a jaxpr, closed or not, which may be computed later where it `waits`."""
        found = self.run(core_jaxpr(closed), getattr(closed, "consts", ()), inputs)
        return found if waits else self._settled(found)

    def function(
        self, function: Callable[..., Any], avals: Sequence[Any], inputs: Sequence[Value]
    ) -> list[Value]:
        """The outputs of a function in plain JAX."""
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in avals]
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            closed = jax.make_jaxpr(function)(*shapes)
        return self.closed(closed, inputs)

    def run(
        self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Value], of: Sequence[Any] | None = None
    ) -> list[Value]:
        """The outputs of a jaxpr, or some of its variables."""
        if of is None and computes_compounds(jaxpr):
            whole, pairs = in_parts(jaxpr), zip(jaxpr.constvars, consts, strict=True)
            parts = itertools.chain(*(divide(x) if is_compound(v.aval) else [x] for v, x in pairs))
            return self.run(whole.jaxpr, whole.consts, [*parts, *inputs])
        wanted = jaxpr.outvars if of is None else of
        self._debug_info = jaxpr.debug_info
        values: dict[Any, Value] = dict(zip(jaxpr.constvars, map(self.constant, consts), strict=True))
        values |= dict(zip(jaxpr.invars, inputs, strict=True))
        for variable, x in zip(jaxpr.invars, inputs, strict=True):
            values[variable] = self._read_once(jaxpr, variable, x)

        def read(x: Any) -> Value:
            return constants(x.val) if isinstance(x, core.Literal) else values[x]

        for equation in needed_equations(jaxpr) if of is None else live_equations(jaxpr, of):
            try:
                outputs = self.equation(equation, [read(x) for x in equation.invars])
            except Untranslatable as error:
                error.at = error.at or line_of(equation)
                raise
            for variable, output in zip(equation.outvars, outputs, strict=True):
                output = self._read_once(jaxpr, variable, output)
                if not isinstance(output, StoredArray | Lazy) and output.shape != variable.aval.shape:
                    assert output.size == variable.aval.size, (equation, output.shape)
                    output = output.reshape(variable.aval.shape)
                values[variable] = output
        return [read(x) for x in wanted]

    def _settled(self, values: Sequence[Value]) -> list[Value]:
        return [settle(self.b, x) for x in values]

    def _read_once(self, jaxpr: Any, variable: Any, x: Value) -> Value:
        """What is computed where it is read, if that is in one place only, and else computed now."""
        if not isinstance(x, Lazy) or x.entry is None:
            return x
        readers = sum(variable in e.invars for e in jaxpr.eqns) + sum(y is variable for y in jaxpr.outvars)
        return settle(self.b, x) if readers > 1 else x

    def constant(self, x: Any) -> Value:
        """An array that a jaxpr closes over."""
        return (
            x
            if isinstance(x, StoredArray) or (isinstance(x, np.ndarray) and x.dtype == object)
            else constants(x)
        )

    def equation(self, e: Any, inputs: list[Value]) -> list[Value]:
        """The outputs of one equation."""
        name, params = e.primitive.name, e.params
        if name in INLINED:
            return self._called(e, inputs)
        if name == "linear_solve":
            return self._without_raising(lambda: self._by_its_own_function(e, self._settled(inputs)))
        waits = any(isinstance(x, Lazy) for x in inputs)
        if waits and not (name in MOVES or name in REDUCTIONS or name in _WAITS or is_of_entries(name)):
            inputs = self._settled(inputs)
        if name == "custom_jvp_call":
            return self._with_rule(e, inputs, self.closed(params["call_jaxpr"], inputs))
        if name.startswith("custom_vjp_call"):
            values = self._called(e, inputs)
            return (
                self._refuse(e, inputs, values, _LOOPING_RULE)
                if loops(e)
                else self._with_rule(e, inputs, values)
            )
        if name == "custom_linear_solve":
            return self._with_rule(e, inputs, self.closed(*solve_within(e, inputs)))
        if name == "attached":
            t = type_of(e.outvars[0].aval)
            attach = lambda x, y: self.b.node("attached", t, x, y, data=params["stays"])
            return [map_entries(attach, *(to_scalars(self.b, x) for x in inputs))]
        if name in CONTROL:
            return CONTROL[name](self, e, inputs)
        if name in REPLACEMENTS and self._is_known(e, inputs):
            return self._known_outputs(e, inputs)
        return self._operation(e, inputs)

    def _is_known(self, e: Any, inputs: list[Value]) -> bool:
        """Whether JAX can tell what an operation gives."""
        known = bool(inputs) and all(map(is_known, inputs))
        return known and not any(map(calls_back, jaxprs_in(e.params)))

    def _operation(self, e: Any, inputs: list[Value]) -> list[Value]:
        """The outputs of an operation on arrays."""
        name, params, avals = e.primitive.name, e.params, [v.aval for v in e.outvars]
        if name in READS:
            if self.written_out and not self._passes and name == "dynamic_slice":
                require_within(e, inputs)
            return [READS[name](self.b, e, inputs)]
        if name == "dynamic_update_slice":
            return [update_slice(self.b, e, inputs, self._longest)]
        if name in SCATTERS:
            outputs = [scatter(self.b, e, inputs, self._longest, self._combination(params))]
            return self._with_rule(e, inputs, outputs) if name in DIFFERENTIATED_BY_JAX else outputs
        if name in MOVES and any(isinstance(x, StoredArray | Lazy) for x in inputs):
            return move_in_memory(self.b, e, inputs)
        if name in ("blank", "empty") and avals[0].size > SELECTED:
            return [StoredArray(self.b.blank(avals[0].size, type_of(avals[0])), avals[0].shape)]
        if name == "reduce_precision" and params["mantissa_bits"] < jnp.finfo(avals[0].dtype).nmant:
            raise Untranslatable("rounding to fewer bits (jax.lax.reduce_precision) has no scalar code")
        if name in _PASSED:
            return [inputs[_PASSED[name]]]
        if name == "device_put":
            return inputs
        if name == "stop_gradient" and isinstance(x := inputs[0], StoredArray):
            return [StoredArray(self.b.stop_gradient(x.node), x.shape)]
        if name in _REFUSED:
            message = str(params.get("msg") or params.get("message") or name)
            refuse = lambda y: self.b.refuse(y, message, name == "nondifferentiable_backward")
            return [map_entries(refuse, to_scalars(self.b, inputs[0]))]
        if name in MOVES:
            outputs = MOVES[name]([to_scalars(self.b, x) for x in inputs], params)
            return [as_object_array(x, aval.shape) for x, aval in zip(outputs, avals, strict=True)]
        if name in REPLACEMENTS:
            function = functools.partial(REPLACEMENTS[name], **params)
            outputs = self.function(function, [v.aval for v in e.invars], inputs)
            return self._with_rule(e, inputs, outputs) if name in DIFFERENTIATED_BY_JAX else outputs
        long = [isinstance(x, StoredArray | Lazy) and x.size > LONG for x in inputs]
        if is_of_entries(name) and (any(long) or _spreads(e, inputs, self._longest)):
            return [compute_entries(self.b, e, inputs, functools.partial(apply_operation, self.b, e))]
        if long == [True] and name in REDUCTIONS:
            axes = params.get("axes", range(inputs[0].ndim))
            return [reduce_in_memory(self.b, REDUCTIONS[name], inputs[0], type_of(e.invars[0].aval), axes)]
        if name == "dot_general":
            return [self._product(e, inputs, any(long))]
        if is_of_scalars(name):
            return [apply_operation(self.b, e, [to_scalars(self.b, settle(self.b, x)) for x in inputs])]
        return self._by_its_own_function(e, inputs)

    def _combination(self, params: Any) -> Callable[[Operand, Operand], Operand] | None:
        """How a scatter combines an entry with its update, if it does."""
        jaxpr = params["update_jaxpr"]
        if jaxpr is None:
            return None

        def combine(*entries: Operand) -> Operand:
            (found,) = self.run(jaxpr, params["update_consts"], [fill_array((), [x]) for x in entries])
            return to_scalars(self.b, found)[()]

        return combine

    def _product(self, e: Any, inputs: list[Value], long: bool) -> Value:
        # By numbers that are known it is written out, so that zeros vanish.
        if long and (not any(map(is_known, inputs)) or any(map(is_too_long, inputs))):
            product = multiply_in_memory(self.b, e, inputs)
            if product is not None:
                return product
        t = type_of(e.outvars[0].aval)

        def factor(x: Value, source: str) -> Value:  # JAX multiplies numbers of two types
            x = to_scalars(self.b, settle(self.b, x))
            return x if source == t else map_entries(lambda y: self.b.convert(y, source, t), x)

        factors = [factor(x, type_of(v.aval)) for x, v in zip(inputs, e.invars, strict=True)]
        return multiply(self.b, e, factors, self._parameters)

    def _known_outputs(self, e: Any, inputs: list[Value]) -> list[Value]:
        """What JAX makes of numbers that are known."""
        given = [np.asarray(x.tolist(), v.aval.dtype) for x, v in zip(inputs, e.invars, strict=True)]
        with jax.ensure_compile_time_eval():
            found = e.primitive.bind(*map(as_jax, given), **e.params)  # `jnp.asarray` compiles a program
        return list(map(constants, found if e.primitive.multiple_results else [found]))

    def _called(self, e: Any, inputs: list[Value]) -> list[Value]:
        called = e.params.get("jaxpr") or e.params.get("call_jaxpr") or e.params.get("fun_jaxpr")
        if not self._is_called(called):
            run = lambda: self.closed(called, inputs, waits=True)
            of_lineax = any(x.primitive.name == "linear_solve" for x in core_jaxpr(called).eqns)
            return self._without_raising(run) if of_lineax else run()
        given, indexed = [settle(self.b, x) for x in inputs], self.callees.indexed(called)
        in_memory = lambda x: (
            isinstance(x, StoredArray) or (x.size > LONG and x.shape in indexed and not is_known(x))
        )
        forms = [form_of(v.aval, in_memory=in_memory(x)) for x, v in zip(given, e.invars, strict=True)]
        operands = flatten(self.b, given, forms)

        def trace(inner: "Interpreter", params: Sequence[Operand]) -> list[Operand] | None:
            outputs = inner.closed(called, unflatten(params, forms))
            if any(isinstance(x, StoredArray) for x in outputs):  # arrays in memory are given, but not taken
                return None
            return [y for x in outputs for y in x.reshape(-1)]

        types = [t for form in forms for t in form.operands]
        flat = self.call((called, tuple(x.size is None for x in forms)), operands, types, trace)
        if flat is None:
            return self.closed(called, inputs, waits=True)
        return unflatten(flat, [form_of(v.aval, in_memory=False) for v in e.outvars])

    def _without_raising(self, run: Callable[[], list[Value]]) -> list[Value]:
        """What Lineax computes, whose checks become NaN also in systems: derivatives of solves have some that nobody
        asked for."""
        self._raises, before = False, self._raises
        try:
            return run()
        finally:
            self._raises = before

    def _is_called(self, function: Any) -> bool:
        return self.callees.calls(function) and weight(core_jaxpr(function)) >= self.least_called

    def _calls_within(self, jaxpr: Any) -> bool:
        """Whether a jaxpr has anything that becomes a call."""
        for e in jaxpr.eqns:
            if e.primitive.name == "scalars":
                return True
            for inner in jaxprs_in(e.params):
                if self._is_called(inner) or self._calls_within(core_jaxpr(inner)):
                    return True
        return False

    def call(
        self, function: Any, inputs: Sequence[Operand], types: Sequence[Kind], trace: Callable[..., Any]
    ) -> list[Operand] | None:
        """The outputs of a function by a call of a sub-program; None where it is to be written out."""
        found = self.specialize(function, inputs, types, trace)
        return found and self.b.call(*found)

    def specialize(
        self, function: Any, inputs: Sequence[Operand], types: Sequence[Kind], trace: Callable[..., Any]
    ) -> tuple[Subprogram, list[Operand]] | None:
        """The sub-program of a function for inputs of which some are known, and what it is given; None where it is to be
        written out."""
        # What is known is part of the sub-program, so that zeros vanish there as they do where it is written out.
        known = tuple(
            (t, name_number(x), x) if is_number(x) else (t, Node, None)
            for x, t in zip(inputs, types, strict=True)
        )
        key = function, known
        if key not in self.callees.known:
            self.callees.known[key] = self._version(function, known, trace)
        found = self.callees.known[key]
        if found is None:
            return None
        callee, known = found
        return callee, [x for x, (_, kind, _) in zip(inputs, known, strict=True) if kind is Node]

    def _version(
        self, function: Any, known: Known, trace: Callable[..., Any]
    ) -> tuple[Subprogram, Known] | None:
        """The sub-program for known inputs; one for fewer of them where that is as short, so that it serves for more."""
        made = self._subprogram(known, trace)
        if made is None:
            return None
        versions = self.callees.versions.setdefault(function, [])
        for other, fewer in versions:
            if _shared(known, fewer) == fewer and other.size <= _AS_SHORT * made.size:
                return other, fewer
        found = made, known
        if versions:
            fewer = _shared(known, versions[-1][1])
            other = self._subprogram(fewer, trace) if fewer != known else None
            if other is not None and other.size <= _AS_SHORT * made.size:
                found = other, fewer
        versions.append(found)
        return found

    def _subprogram(self, known: Known, trace: Callable[..., Any]) -> Subprogram | None:
        build = self.b.another()
        flat = [build.parameter(build.top, *t) if kind is Node else x for t, kind, x in known]
        outputs = trace(Interpreter(build, self.callees), flat)
        if outputs is None:
            return None
        callee = Subprogram(build.top, outputs)
        return callee if callee.size >= self.least_called else None

    def _refuse(self, e: Any, inputs: list[Value], values: list[Value], reason: str) -> list[Value]:
        """What a function gives whose rule for derivatives is not looked at."""
        # Of all inputs, also of those that its own operations have no derivative by.
        flat = [[x.node] if isinstance(x, StoredArray) else x.reshape(-1) for x in self._settled(inputs)]
        given = [y for x in flat for y in x if isinstance(y, Node)]
        refuse = lambda y: self.b.refuse(y, reason, False, given)

        def of(x: Value, t: str) -> Value:
            if not is_float(t):
                return x
            if isinstance(x, StoredArray):
                return tabulate(self.b, x.shape, t, lambda i: refuse(self.b.load(x.node, i)))
            return map_entries(refuse, x)

        return [of(x, type_of(v.aval)) for x, v in zip(values, e.outvars, strict=True)]

    def _by_its_own_function(self, e: Any, inputs: list[Value]) -> list[Value]:
        """The outputs of an operation that others defined in terms of JAX's: Equinox, Lineax, Optimistix."""
        composed = e.params.get("_prim")  # so JAX 0.12 tells what it composes itself: jnp.searchsorted
        params = {} if composed else e.params
        function = composed.expand if composed else getattr(e.primitive, "impl", None)
        of_jax = isinstance(function, functools.partial)
        if e.effects or function is None or of_jax or e.primitive in self._opened:
            raise Untranslatable(f"'{e.primitive.name}' has no scalar code")
        for v in (*e.invars, *e.outvars):
            type_of(v.aval)
        shapes = tuple(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in e.invars)
        key = tuple(sorted(params.items()))
        closed = (_jaxpr_of if _is_hashable(key) else _jaxpr_of.__wrapped__)(function, key, shapes)
        self._opened.append(e.primitive)
        outputs = self.closed(closed, inputs)
        self._opened.pop()
        name = getattr(params.get("prim"), "name", e.primitive.name)  # Equinox's "vprim" is one of a batch
        # Lineax tells the derivative by a matrix of its own, since there is none through the factors that it is given.
        own = not composed and e.primitive in ad.primitive_jvps and name not in _AS_COMPUTED
        return self._with_rule(e, inputs, outputs) if own else outputs

    def _with_rule(self, e: Any, inputs: list[Value], values: list[Value]) -> list[Value]:
        """The values of a function whose author gave its derivative, marked as such."""
        if all(map(is_known, inputs)):
            return values
        if any(map(is_too_long, (*inputs, *values))):
            return self._refuse(e, inputs, values, _LONG_RULE)
        values = [to_scalars(self.b, x) for x in values]
        given = {
            v: to_scalars(self.b, x)
            for v, x in zip(e.invars, inputs, strict=True)
            if not isinstance(v, core.Literal)
        }
        rule = DerivativeRule(function_of(e, self._debug_info), tuple(v.aval for v in given))
        flat = [x for array in given.values() for x in array.reshape(-1)]

        def marked(k: int, array: Any) -> Scalars:
            t = type_of(e.outvars[k].aval)
            if not is_float(t):
                return array
            of = lambda i, x: self.b.rule(x, t, rule, k, i, flat)
            return fill_array(array.shape, [of(i, x) for i, x in enumerate(array.reshape(-1))])

        return [marked(k, x) for k, x in enumerate(values)]

    # --- loops and branches

    def _while(self, e: Any, inputs: list[Value]) -> list[Value]:
        p = e.params
        nc, nb = p["cond_nconsts"], p["body_nconsts"]
        if p["cond_jaxpr"].out_avals[0].shape:  # of a `vmap`
            return self.closed(while_of_members(e), inputs)
        condition_consts, body_consts, first = inputs[:nc], inputs[nc : nc + nb], inputs[nc + nb :]
        goes_on = lambda x: to_scalars(self.b, self.closed(p["cond_jaxpr"], [*condition_consts, *x])[0])[()]
        advance = lambda x: self.closed(p["body_jaxpr"], [*body_consts, *x])
        body = core_jaxpr(p["body_jaxpr"])
        fixed = [body.outvars[i] is v for i, v in enumerate(body.invars[nb:])]  # what no pass changes
        known, each = self._is_known(e, inputs), weight(body)
        passes = min(_MOST_PASSES, _KNOWN // max(each, 1)) if known else _MOST_PASSES
        if (written := self._write_out(each, passes, first, goes_on, advance)) is not None:
            return written
        if known:
            return self._known_outputs(e, inputs)
        return self._loop(
            first,
            [v.aval for v in e.outvars],
            fixed,
            goes_on,
            advance,
            {body, core_jaxpr(p["cond_jaxpr"])},
            line_of(e),
        )

    def _write_out(
        self, each: int, passes: int, first: list[Value], goes_on: Any, advance: Any
    ) -> list[Value] | None:
        """The passes of a loop one after the other, if their number is known and they are short once written out.

        How short is not known before: constants fold, as the zeros of a tableau do.
        """
        if each > _WRITTEN_OUT:
            return None
        state, most = first, self.b.count + _WRITTEN_OUT
        self._passes += 1
        try:
            for _ in range(passes + 1):
                go = goes_on(state)
                if not is_number(go) or self.b.count > most:
                    return None
                if not go:
                    return state
                state = advance(state)
        finally:
            self._passes -= 1
        return None

    def _loop(
        self,
        first: list[Value],
        avals: Sequence[Any],
        fixed: Sequence[bool],
        goes_on: Any,
        advance: Any,
        within: set,
        at: str = "",
    ) -> list[Value]:
        """A loop as it is: large arrays and those indexed in it stay arrays, all else is carried as scalars."""
        indexed = set().union(*map(find_indexed_shapes, within))
        in_memory = lambda x, aval: (
            isinstance(x, StoredArray) or x.size > CARRIED or (aval.shape in indexed and x.size > SELECTED)
        )
        carried = [k for k, same in enumerate(fixed) if not same]
        forms = [form_of(avals[k], in_memory=in_memory(first[k], avals[k])) for k in carried]

        def pack(operands: Sequence[Operand]) -> list[Value]:
            state = list(first)
            for k, x in zip(carried, unflatten(operands, forms), strict=True):
                state[k] = x
            return state

        unpack = lambda values: flatten(self.b, [values[k] for k in carried], forms)

        def step(operands: Sequence[Operand]) -> Any:
            state = pack(operands)
            return goes_on(state), lambda: unpack(advance(state))

        types = [t for form in forms for t in form.operands]
        return pack(self.b.loop(unpack(first), types, step, at))

    def _scan(self, e: Any, inputs: list[Value]) -> list[Value]:
        p = e.params
        length, body, outs = p["length"], core_jaxpr(p["jaxpr"]), [v.aval for v in e.outvars]
        fixed, kept = count_scanned(e)
        consts, carry, columns = inputs[:fixed], inputs[fixed : fixed + kept], inputs[fixed + kept :]
        index = lambda i: length - 1 - i if p["reverse"] else i
        each = max(weight(body), 1)
        known = self._is_known(e, inputs)
        short = (length * each <= (_KNOWN if known else SHORT) and length <= _MOST_PASSES) or (
            length <= self._passes_of_scan
        )
        # Zeros and ones fold, as in the rotations of slides: how short passes become is only known once they are written.
        # What they call is not counted, and stays in the loop.
        may_be_short = short or (each <= SHORT and length <= _MOST_PASSES and not self._calls_within(body))
        if may_be_short and not any(is_too_long(x) for x in columns):
            most = math.inf if short else self.b.count + SHORT
            if (written := self._write_out_scan(e, consts, carry, columns, most)) is not None:
                return written
        if known:
            return self._known_outputs(e, inputs)
        rows_of = [
            to_memory(self.b, x, type_of(v.aval))
            for x, v in zip(columns, e.invars[fixed + kept :], strict=True)
        ]
        saved = [
            StoredArray(self.b.fill(zero(type_of(v)), max(v.size, 1), type_of(v)), v.shape)
            for v in outs[kept:]
        ]
        counter = jax.ShapeDtypeStruct((), np.int64)

        def advance(state: list[Value]) -> list[Value]:
            i, buffers = to_scalars(self.b, state[0])[()], state[1 + kept :]
            rows: list[Value] = []
            for x in rows_of:
                size = math.prod(x.shape[1:])
                start = index(i) * size
                rows.append(fill_array(x.shape[1:], [self.b.load(x.node, start + k) for k in range(size)]))
            outputs = self.closed(p["jaxpr"], [*consts, *state[1 : 1 + kept], *rows])
            written: list[Value] = []
            for buffer, row in zip(buffers, outputs[kept:], strict=True):
                node, size = buffer.node, math.prod(buffer.shape[1:])  # pyright: ignore[reportAttributeAccessIssue]
                start = index(i) * size
                for k, y in enumerate(to_scalars(self.b, row).reshape(-1)):
                    node = self.b.store(node, start + k, y)
                written.append(StoredArray(node, buffer.shape))
            return [fill_array((), [i + 1]), *outputs[:kept], *written]

        same = [body.outvars[k] is v for k, v in enumerate(body.invars[fixed : fixed + kept])]
        goes_on = lambda state: to_scalars(self.b, state[0])[()] < length
        first = [fill_array((), [0]), *carry, *saved]
        avals = [counter, *outs]
        return self._loop(first, avals, [False, *same, *[False] * len(saved)], goes_on, advance, {body})[1:]

    def _write_out_scan(
        self, e: Any, consts: list[Value], carry: list[Value], columns: list[Value], most: float
    ) -> list[Value] | None:
        """The passes of a scan one after the other, unless there are more nodes than `most` then."""
        p, length, outs = e.params, e.params["length"], [v.aval for v in e.outvars]
        rows_of, kept = [to_scalars(self.b, x) for x in columns], len(carry)
        collected: dict[int, list[Scalars]] = {}
        self._passes += 1
        try:
            for i in range(length)[:: -1 if p["reverse"] else 1]:
                rows = [as_object_array(x[i], x.shape[1:]) for x in rows_of]
                outputs = self.closed(p["jaxpr"], [*consts, *carry, *rows])
                carry, collected[i] = outputs[:kept], [to_scalars(self.b, x) for x in outputs[kept:]]
                if self.b.count > most:
                    return None
        finally:
            self._passes -= 1
        if not length:
            return [*carry, *(constants(np.zeros(v.shape, v.dtype)) for v in outs[kept:])]
        return [*carry, *(np.stack(x) for x in zip(*(collected[i] for i in range(length)), strict=True))]

    def _cond(self, e: Any, inputs: list[Value]) -> list[Value]:
        index, given, branches = to_scalars(self.b, inputs[0])[()], inputs[1:], e.params["branches"]
        if is_number(index):
            return self.closed(branches[min(max(int(index), 0), len(branches) - 1)], given)
        raising = [raises(core_jaxpr(x)) for x in branches]
        if any(raising):
            return self._error(e, index, given, branches, raising)
        avals, given_avals = [v.aval for v in e.outvars], [v.aval for v in e.invars[1:]]
        return self._choose(index, branches, 0, given, given_avals, avals)

    def _choose(
        self,
        index: Operand,
        branches: Any,
        k: int,
        given: list[Value],
        given_avals: list[Any],
        avals: list[Any],
    ) -> list[Value]:
        """The outputs of branch `index`, which is not before branch k."""
        if k == len(branches) - 1:
            return self.closed(branches[k], given)
        here = self.b.compare("le", index, k, "int32")
        cheap = all(weight(core_jaxpr(x)) <= _BRANCHES for x in branches[k:])
        if cheap and not any(isinstance(x, StoredArray) or x.size > CARRIED for x in given):
            yes = self.closed(branches[k], given)
            no = self._choose(index, branches, k + 1, given, given_avals, avals)
            if not any(isinstance(x, StoredArray) for x in (*yes, *no)):
                return [
                    map_entries(lambda x, y, t=type_of(v): self.b.select(here, x, y, t), a, b)
                    for a, b, v in zip(yes, no, avals, strict=True)
                ]
        in_memory = lambda x: isinstance(x, StoredArray) or (x.size > CARRIED and not is_known(x))
        forms = [form_of(v, in_memory=in_memory(x)) for x, v in zip(given, given_avals, strict=True)]
        flat = flatten(self.b, given, forms)
        nodes = list(dict.fromkeys(x for x in (index, *flat) if x.__class__ is Node))
        least = SELECTED if any(isinstance(x, StoredArray) for x in given) else CARRIED
        outs = [form_of(v, in_memory=v.size > least) for v in avals]

        def inside(params: Sequence[Operand]) -> list[Value]:  # numbers stay known
            of = dict(zip(nodes, params, strict=True))
            return unflatten([of.get(x, x) if x.__class__ is Node else x for x in flat], forms)

        sides = (
            lambda params: flatten(self.b, self.closed(branches[k], inside(params)), outs),
            lambda params: flatten(
                self.b, self._choose(params[0], branches, k + 1, inside(params), given_avals, avals), outs
            ),
        )
        types = [t for form in outs for t in form.operands]
        return unflatten(self.b.branch(here, nodes, sides, types, [(x.type, x.size) for x in nodes]), outs)

    def _error(
        self, e: Any, index: Operand, given: list[Value], branches: Any, raising: list[bool]
    ) -> list[Value]:
        """An error that Equinox would raise: its outputs become NaN there, as by Equinox's own `EQX_ON_ERROR=nan`."""
        if self._raises:
            raise Untranslatable("a check that raises has no scalar code")
        passed = self.closed(branches[raising.index(False)], given)
        wrong: Operand = False
        for k, it in enumerate(raising):
            if it:
                wrong = self.b.either(wrong, self.b.compare("eq", index, k, "int32"), "bool")
        poisoned = []
        for x, v in zip(passed, e.outvars, strict=True):
            t = type_of(v.aval)
            mark = lambda y, t=t: self.b.select(wrong, math.nan, y, t)
            if not is_float(t):
                poisoned.append(x)
            elif isinstance(x, StoredArray):
                poisoned.append(self._poison(wrong, x, t))
            else:
                poisoned.append(map_entries(mark, x))
        return poisoned

    def _poison(self, wrong: Operand, x: StoredArray, t: str) -> StoredArray:
        """An array in memory, filled with NaN where something is wrong, and not touched otherwise."""
        fill = lambda given: [tabulate(self.b, x.shape, t, lambda i: math.nan, into=(given[0], 0)).node]
        kind = (t, x.node.size)
        return StoredArray(self.b.branch(wrong, [x.node], (fill, list), [kind], [kind])[0], x.shape)


CONTROL: dict[str, Callable[..., list[Value]]] = {
    "while": Interpreter._while,
    "scan": Interpreter._scan,
    "cond": Interpreter._cond,
}
