"""Which numbers a function depends on."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .._misc._errors import Untranslatable
from .._misc._types import is_traced
from ._structured._needed import Needed
from ._structured._nodes import is_number
from ._structured._program import program_of


def find_dependence(function: Callable[..., Any], *shapes: Any) -> tuple[frozenset[int], ...] | None:
    """Of each argument, an array, the entries that what a function returns may depend on, whatever their values and those
    that it closes over are; None where it cannot be followed."""
    closed = jax.make_jaxpr(function)(*shapes)
    unknown = lambda x: is_traced(x) or jnp.issubdtype(jnp.result_type(x), jnp.floating)
    try:
        program, _, _ = program_of(closed, unknown)
        nodes = Needed(program.flat).nodes
    except Untranslatable:
        return None
    params, found = iter(program.params), []
    for shape in shapes:
        own = next(params) if shape.size else None
        read = [x for x in nodes if own in x.args]
        known = all(x.op == "load" and is_number(x.args[1]) for x in read)
        found.append(frozenset(int(x.args[1]) for x in read) if known else frozenset(range(shape.size)))
    return tuple(found)
