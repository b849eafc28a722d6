"""What JAX traces of Diffrax, without checks that were made before, and with a loop for what it repeats.

Diffrax goes down 100 floating-point numbers from the end, one by one: each is a function with a derivative rule, which
JAX lowers and XLA compiles. That takes a fifth of the time until a run is compiled.
"""

import functools
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from ._checks import nan_for_errors
from ._traced import signature

_FEWEST = 20
"""Fewer numbers one after the other are left as they are."""


def diffrax_called(fn: Callable[..., Any], times: Any, *arguments: Any) -> Any:
    """Calls a function that calls Diffrax, without its checks of times, which the caller has made; others stay."""
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
    return before.invars[0].aval == after.invars[0].aval and _operations(before) == _operations(after)


def _operations(equation: JaxprEqn) -> list[Any]:
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
