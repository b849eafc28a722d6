"""Functions that are called once, and evaluated and differentiated as what JAX traced then."""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun


def trace_once(fn: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """The function, from its operations: to trace it again, as each derivative does, takes several times as long."""
    closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*arguments)
    run, structure = jaxpr_as_fun(closed), jax.tree.structure(shapes)
    return lambda *arguments: jax.tree.unflatten(structure, run(*jax.tree.leaves(arguments)))
