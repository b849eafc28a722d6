"""Programs without the checks by which Equinox raises errors from compiled code.

A check calls back to Python. JAX keeps no program that does in its cache of compiled programs, and exports none.
"""

from collections.abc import Iterator, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun
from jaxtyping import Array

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
