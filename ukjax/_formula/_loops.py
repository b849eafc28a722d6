"""Loops over arrays in memory whose bounds are known when they run: what lists of contacts are computed by.

Arrays are flat, and places lie within them. Written this way, the size of a program does not grow with the list. Read an
entry before another is put: what reads the former array later has it copied.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

_READ = lax.GatherDimensionNumbers((), (0,), (0,))
_WRITE = lax.ScatterDimensionNumbers((), (0,), (0,))
_WITHIN = lax.GatherScatterMode.PROMISE_IN_BOUNDS


def entry(x: Array, place: Any) -> Array:
    """x[place] of a flat array."""
    return lax.gather(x, jnp.reshape(place, (1,)), _READ, (1,), mode=_WITHIN)


def put(x: Array, place: Any, value: Any) -> Array:
    """A flat array with x[place] replaced."""
    value = jnp.asarray(value).astype(x.dtype)
    return lax.scatter(x, jnp.reshape(place, (1,)), value, _WRITE, mode=_WITHIN)


def loop(count: Any, body: Callable[[Array, Any], Any], state: Any) -> Any:
    """The state after `body(i, state)` for each i below a count."""
    count = jnp.asarray(count)
    go = lambda c: c[0] < count
    return lax.while_loop(go, lambda c: (c[0] + 1, body(*c)), (jnp.zeros_like(count), state))[1]


def add_scaled(x: Array, to: Any, factor: Array, y: Array, of: Any, count: Any) -> Array:
    """x[to + i] + factor y[of + i] for each i below a count; nothing is done for a factor of zero."""
    add = lambda i, x: put(x, to + i, entry(x, to + i) + factor * entry(y, of + i))
    return loop(jnp.where(factor == 0, 0, count), add, x)


def add_scaled_within(x: Array, to: Any, factor: Array, of: Any, count: Any) -> Array:
    """x[to + i] + factor x[of + i], of entries of one array that do not overlap."""
    add = lambda i, x: put(x, to + i, entry(x, to + i) + factor * entry(x, of + i))
    return loop(jnp.where(factor == 0, 0, count), add, x)


def copy_entries(x: Array, y: Array, count: Any) -> Array:
    """x with its first entries from y."""
    return loop(count, lambda i, x: put(x, i, entry(y, i)), x)


def fill_entries(x: Array, to: Any, value: Any, count: Any) -> Array:
    """x with entries from a place on set to a value."""
    return loop(count, lambda i, x: put(x, to + i, value), x)


def item(x: Array, place: Any) -> Array:
    """x[place] along the first axis."""
    inner = tuple(range(x.ndim - 1))
    where = lax.GatherDimensionNumbers(inner, (0,), (0,))
    return lax.gather(x, jnp.reshape(place, (1,)), where, (1, *x.shape[1:]), mode=_WITHIN)


def blank(size: int, dtype: Any) -> Array:
    """A flat array whose entries are put before they are read."""
    return lax.empty((size,), dtype)
