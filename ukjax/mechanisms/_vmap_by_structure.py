"""Parts that are alike, such as the hinges of a mechanism, evaluated as one.

Many parts of one kind differ in their numbers only. A function of them is traced once, for all of them stacked (`vmap`),
so that what is traced and compiled grows with the kinds of parts in a mechanism, and not with how many there are.
"""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .._misc._types import as_jax, module_for

_NAMES = frozenset(("name", "parent", "child", "carrier", "body", "shape"))
"""Fields that hold the names of parts, and of shapes to show: what differs in these only is alike."""


def form_of(x: Any) -> Hashable:
    """All of a part but its numbers and names."""
    if eqx.is_array(x):
        return jnp.shape(x), jax.typeof(x).dtype, jax.typeof(x).weak_type
    if isinstance(x, eqx.Module):
        values = [(field.name, getattr(x, field.name)) for field in dataclasses.fields(x)]
        return type(x), *(form_of(y) for name, y in values if not (name in _NAMES and isinstance(y, str)))
    if isinstance(x, tuple | list):
        return type(x), *map(form_of, x)
    if isinstance(x, dict):
        return dict, *((key, form_of(y)) for key, y in x.items())
    return type(x), x if isinstance(x, Hashable) else id(x)


def stack_trees(parts: Sequence[Any]) -> Any:
    """Parts that are alike as one, with the names of the first, and arrays stacked; by NumPy where values are known."""
    arrays, rest = eqx.partition(parts[0], eqx.is_array)
    columns = zip(*(jax.tree.leaves(eqx.filter(x, eqx.is_array)) for x in parts), strict=True)
    stacked = [as_jax(module_for(*x).stack(x)) for x in columns]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(arrays), stacked), rest)


def unstack_tree(stacked: Any, count: int) -> list[Any]:
    """The pytrees that are stacked in one, along the first axis of each array."""
    leaves, tree = jax.tree.flatten(stacked)
    each = [[lax.squeeze(x, (0,)) for x in lax.split(leaf, (1,) * count)] for leaf in leaves]
    return [jax.tree.unflatten(tree, [x[i] for x in each]) for i in range(count)]


def _vmap_alike(function: Callable[..., Any], items: Sequence[tuple[Any, ...]]) -> list[Any]:
    """A function of items that are alike; what all of them share is not stacked."""
    arrays, rest = eqx.partition(items[0], eqx.is_array)
    tree = jax.tree.structure(arrays)
    columns = list(zip(*(jax.tree.leaves(eqx.filter(item, eqx.is_array)) for item in items), strict=True))
    axes = [None if all(x is column[0] for x in column) else 0 for column in columns]
    if all(axis is None for axis in axes):
        return [function(*items[0])] * len(items)
    given = [
        column[0] if axis is None else jnp.stack(column) for column, axis in zip(columns, axes, strict=True)
    ]

    def one(leaves: list[Array]) -> Any:
        return function(*eqx.combine(jax.tree.unflatten(tree, leaves), rest))

    return unstack_tree(jax.vmap(one, in_axes=(axes,))(given), len(items))


def vmap_by_structure(function: Callable[..., Any], items: Sequence[tuple[Any, ...]]) -> list[Any]:
    """What a function returns for each item, a pytree of arrays; it is called once for all items that are alike."""
    groups: dict[Hashable, list[int]] = {}
    for i, item in enumerate(items):
        groups.setdefault(form_of(item), []).append(i)
    results: dict[int, Any] = {}
    for places in groups.values():
        alone = len(places) == 1
        several = (
            [function(*items[places[0]])] if alone else _vmap_alike(function, [items[i] for i in places])
        )
        results |= zip(places, several, strict=True)
    return [results[i] for i in range(len(items))]
