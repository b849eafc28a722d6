"""Functions as JAX traces them, the same in every process, and digests that tell one from another."""

import functools
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from hashlib import sha256
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from jaxtyping import Array

from ._closures import key_by_identity

# --- Programs without the checks by which Equinox raises errors from compiled code
#
# A check calls back to Python. JAX keeps no program that does in its cache of compiled programs, and exports none.

_LOOPS = ("while", "scan")


def nan_for_errors(program: ClosedJaxpr, known: Sequence[bool] | None = None) -> ClosedJaxpr:
    """A program with NaN in place of errors."""
    known = [True] * len(program.in_avals) if known is None else known
    return _replace_checks(program, known)


def _replace_checks(program: ClosedJaxpr, known: Sequence[bool]) -> ClosedJaxpr:
    return ClosedJaxpr(_without(program.jaxpr, known), program.consts) if _has_check(program) else program


def _without(jaxpr: Jaxpr, inputs: Sequence[bool]) -> Jaxpr:
    known = dict(zip(jaxpr.invars, inputs, strict=True)) | dict.fromkeys(jaxpr.constvars, all(inputs))
    equations = []
    for equation in jaxpr.eqns:
        given = [isinstance(x, Literal) or known[x] for x in equation.invars]
        known |= dict.fromkeys(equation.outvars, all(given))
        equations.append(_rewrite_equation(equation, given))
    return jaxpr.replace(eqns=equations)


def _rewrite_equation(equation: JaxprEqn, known: list[bool]) -> JaxprEqn:
    if _is_check(equation):
        return _as_nan(equation) if all(known) else equation
    params = dict(equation.params)
    for name, x in params.items():
        parts = x if isinstance(x, tuple) else (x,)
        if any(isinstance(part, ClosedJaxpr) for part in parts):
            new = tuple(_replace_checks(part, _inner(equation, part, known)) for part in parts)
            params[name] = new if isinstance(x, tuple) else new[0]
    return equation.replace(params=params)


def _inner(equation: JaxprEqn, part: ClosedJaxpr, known: list[bool]) -> list[bool]:
    """What is known of the inputs of a part: the last operands are its inputs, but those of loops change."""
    count = len(part.in_avals)
    if equation.primitive.name in _LOOPS or count > len(known):
        return [all(known)] * count
    return known[len(known) - count :]


def _as_nan(check: JaxprEqn) -> JaxprEqn:
    """The check as an operation that returns NaN where it would raise."""
    program: ClosedJaxpr = check.params["call_jaxpr"]

    def nan(*operands: Array) -> list[Array]:
        return [jnp.full_like(x, jnp.nan) if eqx.is_inexact_array(x) else x for x in operands]

    def with_nan(equation: JaxprEqn) -> JaxprEqn:
        if not _raises(equation):
            return equation
        passing = next(x for x in equation.params["branches"] if not _calls_back(x))
        failing = jax.make_jaxpr(lambda *x: nan(*jaxpr_as_fun(passing)(*x)))(*passing.in_avals)
        branches = tuple(failing if _calls_back(x) else x for x in equation.params["branches"])
        return equation.replace(params=equation.params | {"branches": branches})

    jaxpr = program.jaxpr.replace(eqns=[with_nan(x) for x in program.jaxpr.eqns])
    operation = jax.jit(jaxpr_as_fun(ClosedJaxpr(jaxpr, program.consts)))
    (made,) = jax.make_jaxpr(operation)(*program.in_avals).eqns
    return check.replace(primitive=made.primitive, params=made.params)


def _parts(equation: JaxprEqn) -> Iterator[ClosedJaxpr]:
    for x in equation.params.values():
        yield from (part for part in (x if isinstance(x, tuple) else (x,)) if isinstance(part, ClosedJaxpr))


def _has_check(program: ClosedJaxpr) -> bool:
    return any(_is_check(x) or any(map(_has_check, _parts(x))) for x in program.eqns)


def _is_check(equation: JaxprEqn) -> bool:
    """Whether an operation is Equinox's: a function with a derivative rule, of one choice, which may call Equinox."""
    named = equation.primitive.name == "custom_jvp_call"
    return named and any(_raises(x) for x in equation.params["call_jaxpr"].eqns)


def _raises(equation: JaxprEqn) -> bool:
    return equation.primitive.name == "cond" and any(map(_calls_back, equation.params["branches"]))


def _calls_back(branch: ClosedJaxpr) -> bool:
    called = (x.params["callback"] for x in branch.eqns if x.primitive.name == "pure_callback")
    return any(getattr(x, "callback_func", x).__module__ == "equinox._errors" for x in called)


# --- What a function computes, and a key that tells it from others


def trace_program(fn: Callable[..., list[Array]], *arguments: Array) -> ClosedJaxpr:
    """What a function computes, with NaN in place of the errors that Equinox raises from compiled code."""
    # The device is part of the key under which JAX keeps what it traced: code kept from elsewhere may call back.
    with jax.default_device(jax.devices()[0]):
        return nan_for_errors(jax.make_jaxpr(fn)(*arguments))


def fingerprint(program: ClosedJaxpr, *values: Array) -> str:
    """A digest of all operations with all their constants, the same in every process."""
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in program.in_avals]
    digest = sha256(jax.jit(jaxpr_as_fun(program)).lower(*shapes).as_text().encode())
    for x in values:
        digest.update(np.asarray(x).tobytes())
    return digest.hexdigest()[:16]


def signature(program: ClosedJaxpr, *, with_rules: bool = True) -> Hashable:
    """What a program computes, to be compared within a process: equal only for programs that compute the same."""
    rules = () if with_rules else _RULES
    return _operations(program.jaxpr, rules), tuple(_content(x, rules) for x in program.consts)


_RULES = ("jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd")
"""Parameters of operations that hold derivative rules."""


def _operations(jaxpr: Jaxpr, rules: tuple[str, ...]) -> Hashable:
    places: dict[Any, int] = {}

    def place(x: Any) -> Hashable:
        if isinstance(x, Literal):
            return _content(x.val, rules)
        return places.setdefault(x, len(places)), str(x.aval)

    inputs = tuple(map(place, [*jaxpr.constvars, *jaxpr.invars]))
    equations = tuple(
        (
            equation.primitive.name,
            tuple(map(place, equation.invars)),
            tuple(
                (name, _content(x, rules)) for name, x in sorted(equation.params.items()) if name not in rules
            ),
            tuple(map(place, equation.outvars)),
        )
        for equation in jaxpr.eqns
    )
    return inputs, equations, tuple(map(place, jaxpr.outvars))


def _content(x: Any, rules: tuple[str, ...]) -> Hashable:
    """A constant or a parameter of an operation; what cannot be compared is equal to itself alone."""
    if isinstance(x, ClosedJaxpr):
        return signature(x, with_rules=not rules)
    if isinstance(x, Jaxpr):
        return _operations(x, rules)
    if isinstance(x, tuple | list):
        return tuple(_content(y, rules) for y in x)
    if isinstance(x, Tracer):
        return key_by_identity(x)
    if isinstance(x, jax.Array | np.ndarray | np.generic) or hasattr(x, "__array__"):
        array = np.asarray(x)
        return array.dtype.str, array.shape, array.tobytes()
    try:
        hash(x)
    except TypeError:
        return key_by_identity(x)
    return type(x), x


# --- What JAX traces of Diffrax, without checks that were made before, and with a loop for what it repeats
#
# Diffrax goes down 100 floating-point numbers from the end, one by one: each is a function with a derivative rule,
# which JAX lowers and XLA compiles. That takes a fifth of the time until a run is compiled.

_FEWEST = 20
"""Fewer numbers one after the other are left as they are."""


def diffrax_called(fn: Callable[..., Any], times: Any, *arguments: Any) -> Any:
    """Calls a function that calls Diffrax, without its checks of times, which the caller has made; others stay."""
    with jax.disable_jit(False):  # what is rewritten is what a run compiles
        return _call_rewritten(fn, times, *arguments)


def _call_rewritten(fn: Callable[..., Any], times: Any, *arguments: Any) -> Any:
    program, struct, static = eqx.filter_make_jaxpr(fn)(times, *arguments)
    arrays = [jax.tree.leaves(eqx.filter(x, eqx.is_array)) for x in (times, arguments)]
    known = [True] * len(arrays[0]) + [False] * len(arrays[1])
    program = _with_loops(nan_for_errors(program, known))
    found = jaxpr_as_fun(program)(*arrays[0], *arrays[1])
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(struct), found), static)


def _with_loops(program: ClosedJaxpr) -> ClosedJaxpr:
    """The same program, with a loop where it goes to the number before many times in a row."""
    return ClosedJaxpr(_roll_repeats(program.jaxpr), program.consts)


def _roll_repeats(jaxpr: Jaxpr) -> Jaxpr:
    inputs = [x for xs in (jaxpr.outvars, *(e.invars for e in jaxpr.eqns)) for x in xs]
    used: Counter[Any] = Counter(x for x in inputs if isinstance(x, Var))
    rows: list[list[JaxprEqn]] = []
    for equation in jaxpr.eqns:
        if rows and _is_repeated(rows[-1][-1], equation) and used[equation.invars[0]] == 1:
            rows[-1].append(equation)
        else:
            rows.append([equation])
    found = []
    for row in rows:
        long = len(row) >= _FEWEST and _is_before(row[0])
        found += [_loop(row)] if long else map(_with_parts, row)
    return jaxpr.replace(eqns=found)


def _is_repeated(before: JaxprEqn, after: JaxprEqn) -> bool:
    """Whether the second does to the result of the first what that did; what it calls has to be the same object."""
    if not before.primitive.name == after.primitive.name == "custom_jvp_call":
        return False
    if not len(before.invars) == len(before.outvars) == 1 or after.invars != before.outvars:
        return False
    return before.invars[0].aval == after.invars[0].aval and _list_operations(before) == _list_operations(
        after
    )


def _list_operations(equation: JaxprEqn) -> list[Any]:
    jaxpr = equation.params["call_jaxpr"].jaxpr
    places = {x: i for i, x in enumerate((*jaxpr.invars, *(x for e in jaxpr.eqns for x in e.outvars)))}
    given = lambda x: x.val if isinstance(x, Literal) else places[x]
    return [(e.primitive, [*map(given, e.invars)], e.params.get("jaxpr")) for e in jaxpr.eqns]


def _is_before(equation: JaxprEqn) -> bool:
    """Whether an operation of one input gives the number before it."""
    aval: Any = equation.invars[0].aval
    own = signature(equation.params["call_jaxpr"], with_rules=False)
    return jnp.issubdtype(aval.dtype, jnp.floating) and own == _make_before_signature(aval.shape, aval.dtype)


@functools.cache
def _make_before_signature(shape: tuple[int, ...], dtype: Any) -> Hashable:
    (equation,) = jax.make_jaxpr(eqxi.prevbefore)(jax.ShapeDtypeStruct(shape, dtype)).eqns
    return signature(equation.params["call_jaxpr"], with_rules=False)


def _loop(row: list[JaxprEqn]) -> JaxprEqn:
    aval: Any = row[0].outvars[0].aval
    every = jax.jit(lambda x: lax.fori_loop(0, len(row), lambda _, x: eqxi.prevbefore(x), x))
    (made,) = jax.make_jaxpr(every)(jax.ShapeDtypeStruct(aval.shape, aval.dtype)).eqns
    return row[-1].replace(invars=row[0].invars, primitive=made.primitive, params=made.params)


def _with_parts(equation: JaxprEqn) -> JaxprEqn:
    """The same with its programs within."""
    parts = {k: _with_loops(x) for k, x in equation.params.items() if isinstance(x, ClosedJaxpr)}
    return equation.replace(params=equation.params | parts) if parts else equation
