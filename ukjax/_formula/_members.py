"""Parts of a system that are alike: one program for all of them, which takes each by its number."""

from collections.abc import Callable, Sequence
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._misc._types import as_jax, is_traced
from ._contact_list import entry, item, loop, put

EntriesOfMembers = Sequence[tuple[int, ...]]
"""Of each member as many entries of an array."""


@final
class Members(eqx.Module):
    """Parts of a system that are alike."""

    one: Any  # what each is, its arrays stacked where there are several
    # `q`, `v`: which coordinates and velocities each has.
    q: EntriesOfMembers = eqx.field(static=True)
    v: EntriesOfMembers = eqx.field(static=True)

    def __len__(self) -> int:
        return len(self.q)

    def each(self, body: Callable[[Any, Any, Any], Any], state: Any) -> Any:
        """The state after `body(k, one, state)` for member k, each."""
        if len(self) == 1:
            return body(0, self.one, state)
        at = lambda k: self._at(lambda x: item(jnp.asarray(x), k))
        return loop(len(self), lambda k, state: body(k, at(k), state), state)

    def _at(self, of: Callable[[Any], Any]) -> Any:
        arrays, rest = eqx.partition(self.one, eqx.is_array)
        return eqx.combine(jax.tree.map(of, arrays), rest)

    def __getitem__(self, k: int) -> Any:
        """One by itself, by NumPy where values are known."""
        own = lambda x: x[k] if is_traced(x) else as_jax(np.asarray(x)[k])
        return self.one if len(self) == 1 else self._at(own)


def take_entries(x: Array, numbers: EntriesOfMembers, k: Any) -> Array:
    """The entries of x that member k has."""
    if len(numbers) == 1:
        own = numbers[0]
        return x if own == tuple(range(x.size)) else x[np.array(own, int)]
    return jnp.stack([entry(x, place) for place in places_of(numbers, k)])


def put_entries(x: Array, numbers: EntriesOfMembers, k: Any, values: Array) -> Array:
    """x with the entries that member k has replaced."""
    if len(numbers) == 1 and numbers[0] == tuple(range(x.size)):
        return values
    for i, place in enumerate(places_of(numbers, k)):
        x = put(x, place, values[i])
    return x


def places_of(numbers: EntriesOfMembers, k: Any) -> list[Any]:
    """The places of these entries."""
    if len(numbers) == 1:
        return list(numbers[0])
    table = np.array(numbers)
    if np.array_equal(table - table[:, :1], np.broadcast_to(np.arange(table.shape[1]), table.shape)):
        first = entry(jnp.asarray(table[:, 0]), k)
        return [first + i for i in range(table.shape[1])]
    flat = jnp.asarray(table.reshape(-1))
    return [entry(flat, k * table.shape[1] + i) for i in range(table.shape[1])]
