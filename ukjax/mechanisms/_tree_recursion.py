"""Recursion along a tree, from the ground to its leaves and back, of which one pass is traced for all of its nodes."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

Before = Sequence[int]
"""The node before each, which stands before it in the list; 0 for the ground, i + 1 for node i."""


def _numbers(values: Sequence[int]) -> Array:
    return jnp.asarray(np.asarray(values, np.uint32))  # JAX takes no care of negative ones then


def _read(states: Any, place: Array) -> Any:
    return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, place, keepdims=False), states)


def outwards(before: Before, combine: Callable[[Any, Any], Any], ground: Any, given: Any) -> Any:
    """The states of all nodes, stacked behind that of the ground: each from that of the node before and what is given."""
    room = lambda x: jnp.concatenate([x[None], jnp.zeros((len(before), *x.shape), x.dtype)])
    states = jax.tree.map(room, ground)

    def visit(states: Any, at: Any) -> tuple[Any, None]:
        place, parent, own = at
        found = combine(_read(states, parent), own)
        put = lambda x, new: lax.dynamic_update_index_in_dim(x, new, place, 0)
        return jax.tree.map(put, states, found), None

    places = _numbers(range(1, len(before) + 1))
    return lax.scan(visit, states, (places, _numbers(before), given))[0]


def inwards(before: Before, passed: Callable[[Any, Any], Any], own: Any, given: Any) -> Any:
    """The sum, for each node, of what is its own and what all nodes behind pass on to it."""
    sums = jax.tree.map(lambda x: jnp.concatenate([jnp.zeros_like(x[:1]), x]), own)

    def visit(sums: Any, at: Any) -> tuple[Any, None]:
        place, parent, its = at
        more = jax.tree.map(jnp.add, _read(sums, parent), passed(_read(sums, place), its))
        put = lambda x, new: lax.dynamic_update_index_in_dim(x, new, parent, 0)
        return jax.tree.map(put, sums, more), None

    places = _numbers(range(1, len(before) + 1))
    sums = lax.scan(visit, sums, (places, _numbers(before), given), reverse=True)[0]
    return jax.tree.map(lambda x: x[1:], sums)
