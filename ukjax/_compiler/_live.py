"""The equations of a traced program that count: JAX writes down all that a function computes, also what nobody uses."""

from typing import Any

from jax.extend import core


def live(jaxpr: Any, outputs: Any) -> list[Any]:
    """Those that the outputs need, and those that do more than compute, in order."""
    needed, found = {x for x in outputs if not isinstance(x, core.Literal)}, []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or not needed.isdisjoint(equation.outvars):
            found.append(equation)
            needed.update(x for x in equation.invars if not isinstance(x, core.Literal))
    return found[::-1]
