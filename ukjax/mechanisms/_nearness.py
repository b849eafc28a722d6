"""Which pairs of bodies are near each other: a pair is looked at once its bodies have moved as far as they were apart."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .._formula._contact_list import entry, fill_entries, item, loop, put
from ._placement import AnyPlacement, Placement, norm

# Instants after which bodies' paths are measured anew, and all pairs are looked at: sums of small parts lose some.
_AGE = 100


class Nearness(NamedTuple):
    """What is known of all pairs at an instant.

    - `placements`: where bodies are.
    - `near`: 1 for pairs that are near (pairs,).
    - `which`, `number`: their numbers, in order (pairs,), and how many they are.
    - `reach`: of each body how far its shapes are from its centre at most (bodies,).
    - `path`: how far its shapes have moved at most, since all began at zero (bodies,).
    - `until`: how far the two bodies of a pair may have moved before it can be near (pairs,).
    - `age`: how many instants ago all began at zero.
    """

    placements: AnyPlacement
    near: Array
    which: Array
    number: Array
    reach: Array
    path: Array
    until: Array
    age: Array

    def move_to(self, placements: AnyPlacement) -> "Nearness":
        """With bodies in other places."""
        again = self.age >= _AGE
        path = fill_entries(self.path, 0, 0, jnp.where(again, self.path.size, 0))
        until = fill_entries(self.until, 0, 0, jnp.where(again, self.until.size, 0))
        path = self._add_ways(path, lax.stop_gradient((self.placements, placements)))
        age = jnp.where(again, 0, self.age + 1)
        return self._replace(placements=placements, path=path, until=until, age=age)

    def _add_ways(self, path: Array, each: Sequence[Any]) -> Array:
        """Paths of bodies with their ways from one place to the next."""

        def add(b: Array, path: Array) -> Array:
            for x, y in itertools.pairwise(each):
                begin, end = (jax.tree.map(lambda x: item(x, b), places) for places in (x, y))
                path = put(path, b, entry(path, b) + _way(begin, end, entry(self.reach, b)))
            return path

        return loop(self.reach.size, add, path)

    def comes_near(self, each: Sequence[Any], pairs: Callable[[Array], tuple[Array, Array]]) -> Any:
        """Whether pair i is near, or comes near as bodies move on from one place to the next: a function of i."""
        moved = self._add_ways(self.path, each)

        def comes_near(i: Array) -> Array:
            a, b = pairs(i)
            return (entry(self.near, i) > 0) | (entry(moved, a) + entry(moved, b) >= entry(self.until, i))

        return comes_near

    def find(
        self,
        pairs: Callable[[Array], tuple[Array, Array]],
        look: Callable[[Array, Any], tuple[Any, Array, Array]],
        state: Any,
        *,
        always: bool = False,
    ) -> tuple["Nearness", Any]:
        """What is near, and the state after `look(i, state)` for each pair i that may be.

        It also returns how far the pair is apart at least, and how far what is near may be.
        """

        def one(i: Array, so_far: tuple[Array, Array, Any]) -> tuple[Array, Array, Any]:
            a, b = pairs(i)
            path = entry(self.path, a) + entry(self.path, b)

            def seek(_: Array, so_far: tuple[Array, Array, Any]) -> tuple[Array, Array, Any]:
                near, until, state = so_far
                state, apart, margin = look(i, state)
                until = until if always else put(until, i, path + (apart - margin))
                return put(near, i, apart < margin), until, state

            looks = jnp.asarray(True) if always else path >= entry(so_far[1], i)
            return loop(looks.astype(i.dtype), seek, so_far)

        near, until, state = loop(self.near.size, one, (self.near, self.until, state))
        is_near = lambda i: (entry(near, i) > 0).astype(i.dtype)
        add = lambda i, so_far: (put(so_far[0], so_far[1], i), so_far[1] + is_near(i))
        which, number = loop(near.size, add, (self.which, jnp.zeros_like(self.number)))
        return self._replace(near=near, until=until, which=which, number=number), state

    def over_near(self, body: Callable[[Array, Any], Any], state: Any) -> Any:
        """The state after `body(i, state)` for each pair i that is near."""
        return loop(self.number, lambda k, state: body(entry(self.which, k), state), state)


def _way(x: AnyPlacement, y: AnyPlacement, reach: Array) -> Array:
    """How far a body's shapes have moved at most."""
    if isinstance(x, Placement) and isinstance(y, Placement):
        return norm(y.p - x.p) + norm(jnp.ravel(y.R - x.R)) * reach
    return norm(y.p - x.p) + jnp.abs(y.angle - x.angle) * reach  # pyright: ignore[reportAttributeAccessIssue]


def no_nearness(placements: AnyPlacement, pairs: int, reach: Array) -> Nearness:
    """Before any pair was looked at."""
    zeros, none = jnp.zeros(pairs, reach.dtype), jnp.asarray(0)
    which = jnp.zeros(pairs, none.dtype)
    found = Nearness(placements, zeros, which, none, reach, jnp.zeros_like(reach), zeros, none)
    return lax.stop_gradient(found)
