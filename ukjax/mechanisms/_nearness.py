"""Which pairs of bodies are near each other: a pair is looked at once its bodies have moved as far as they were apart."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .._formula._contact_list import copy_entries, entry, fill_entries, item, loop, put
from .._misc._blank import blank
from ._placement import AnyPlacement, Placement, norm

_BLOCK = 32  # pairs that are skipped together, as long as none of them can have come near
# Instants after which bodies' paths are measured anew, and all pairs are looked at: sums of small parts lose some.
_AGE = 100
_SURE = 1 - 1e-3  # of a way that is left: far more than sums of a hundred ways lose


class Nearness(NamedTuple):
    """What is known of all pairs at an instant."""

    placements: AnyPlacement  # where bodies are
    near: Array  # 1 for pairs that are near (pairs,)
    # `which`, `number`: their numbers, in order (pairs,), and how many they are.
    which: Array
    number: Array
    reach: Array  # of each body how far its shapes are from its centre at most (bodies,)
    path: Array  # how far its shapes have moved at most, since all began at zero (bodies,)
    until: Array  # how far the two bodies of a pair may have moved before it can be near (pairs,)
    # `farthest`: how far any body may have moved since paths began at zero: by the sum of the longest ways.
    farthest: Array
    due: Array  # of each block of pairs how far that may become before one that is not near can be (blocks,)
    held: Array  # of each block how many pairs are near (blocks,)
    age: Array  # how many instants ago all began at zero

    def move_to(self, placements: AnyPlacement) -> "Nearness":
        """With bodies in other places."""
        again = self.age >= _AGE
        path = fill_entries(self.path, 0, 0, jnp.where(again, self.path.size, 0))
        until = fill_entries(self.until, 0, 0, jnp.where(again, self.until.size, 0))
        due = fill_entries(self.due, 0, 0, jnp.where(again, self.due.size, 0))
        path, longest = self._add_ways(path, lax.stop_gradient((self.placements, placements)))
        farthest, age = jnp.where(again, 0, self.farthest) + longest, jnp.where(again, 0, self.age + 1)
        return self._replace(
            placements=placements, path=path, until=until, farthest=farthest, due=due, age=age
        )

    def _add_ways(self, path: Array, each: Sequence[Any]) -> tuple[Array, Array]:
        """Paths of bodies with their ways from one place to the next, and the longest of these."""

        def add(b: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
            (path, longest), way = so_far, jnp.zeros((), self.reach.dtype)
            for x, y in itertools.pairwise(each):
                begin, end = (jax.tree.map(lambda x: item(x, b), places) for places in (x, y))
                way += _way(begin, end, entry(self.reach, b))
            return put(path, b, entry(path, b) + way), jnp.maximum(longest, way)

        return loop(self.reach.size, add, (path, jnp.zeros((), self.reach.dtype)))

    def _over_pairs(self, farthest: Array, body: Callable[[Array, Array, Any], Any], state: Any) -> Any:
        """The state after `body(block, i, state)` for each pair i, in order, that is near or of a block that is due."""
        pairs = self.near.size

        def of_block(block: Array, so_far: tuple[Array, Any]) -> tuple[Array, Any]:
            (begin, state), first = so_far, block * _BLOCK
            is_due, held = farthest >= entry(self.due, block), entry(self.held, block)
            count = jnp.where(is_due, jnp.minimum(_BLOCK, pairs - first), held)
            near = lambda j: entry(self.which, jnp.minimum(begin + j, pairs - 1))
            one = lambda j, state: body(block, jnp.where(is_due, first + j, near(j)), state)
            return begin + held, loop(count, one, state)

        return loop(self.due.size, of_block, (jnp.zeros_like(self.number), state))[1]

    def over_coming(
        self,
        each: Sequence[Any],
        pairs: Callable[[Array], tuple[Array, Array]],
        body: Callable[[Array, Any], Any],
        state: Any,
    ) -> Any:
        """The state after `body(i, state)` for each pair i that is near, or comes near as bodies move on from one place
        to the next."""
        moved, longest = self._add_ways(self.path, each)

        def one(_: Array, i: Array, state: Any) -> Any:
            a, b = pairs(i)
            comes = (entry(self.near, i) > 0) | (entry(moved, a) + entry(moved, b) >= entry(self.until, i))
            return loop(comes.astype(i.dtype), lambda _, state: body(i, state), state)

        return self._over_pairs(self.farthest + longest, one, state)

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
        dtype, whole = self.near.dtype, self.number.dtype

        def one(block: Array, i: Array, so_far: tuple) -> tuple:
            a, b = pairs(i)
            path = entry(self.path, a) + entry(self.path, b)

            def seek(_: Array, so_far: tuple[Array, Array, Any]) -> tuple[Array, Array, Any]:
                near, until, state = so_far
                state, apart, margin = look(i, state)
                until = until if always else put(until, i, path + (apart - margin))
                return put(near, i, apart < margin), until, state

            (near, until, state), (which, number, due, held) = so_far[:3], so_far[3:]
            looks = jnp.asarray(True) if always else path >= entry(until, i)
            near, until, state = loop(looks.astype(i.dtype), seek, (near, until, state))
            is_near = entry(near, i) > 0
            one_more = is_near.astype(whole)
            which, number = put(which, number, i), number + one_more
            # Both bodies of a pair together move by no more than twice the longest way.
            left = 0.5 * _SURE * (entry(until, i) - path)
            of_pair = jnp.where(is_near, jnp.inf, self.farthest + left)
            due = put(due, block, jnp.minimum(entry(due, block), of_pair))
            return near, until, state, which, number, due, put(held, block, entry(held, block) + one_more)

        def begin(block: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
            due, held = so_far
            was = entry(self.due, block)
            return put(due, block, jnp.where(self.farthest >= was, jnp.inf, was)), put(held, block, 0)

        new = lambda x, dtype: blank(x.size, dtype)
        blocks = loop(self.due.size, begin, (new(self.due, dtype), new(self.held, whole)))
        state = self.near, self.until, state, new(self.which, whole), jnp.zeros_like(self.number), *blocks
        near, until, state, which, number, due, held = self._over_pairs(self.farthest, one, state)
        due = self.due if always else due  # so that all blocks stay due
        which = copy_entries(self.which, which, number)  # where it was: nothing else is copied
        return self._replace(near=near, until=until, which=which, number=number, due=due, held=held), state

    def over_near(self, body: Callable[[Array, Any], Any], state: Any) -> Any:
        """The state after `body(i, state)` for each pair i that is near."""
        return loop(self.number, lambda k, state: body(entry(self.which, k), state), state)


def _way(x: AnyPlacement, y: AnyPlacement, reach: Array) -> Array:
    if isinstance(x, Placement) and isinstance(y, Placement):
        return norm(y.p - x.p) + norm(jnp.ravel(y.R - x.R)) * reach
    return norm(y.p - x.p) + jnp.abs(y.angle - x.angle) * reach  # pyright: ignore[reportAttributeAccessIssue]


def no_nearness(placements: AnyPlacement, pairs: int, reach: Array) -> Nearness:
    """Before any pair was looked at."""
    zeros, none = jnp.zeros(pairs, reach.dtype), jnp.asarray(0)
    which = jnp.zeros(pairs, none.dtype)
    due, held = (jnp.zeros(-(-pairs // _BLOCK), x) for x in (reach.dtype, none.dtype))
    of_pairs = zeros, which, none, reach, jnp.zeros_like(reach), zeros
    return lax.stop_gradient(Nearness(placements, *of_pairs, jnp.zeros((), reach.dtype), due, held, none))
