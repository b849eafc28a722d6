"""A pool of slots: each iteration every slot tries one step of its own run, and takes the next run where one ended.

So a batch costs its total work plus, at the end, at most one longest run.
Arrays over the slots have the slots last: each number of a state is then a vector over them.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from ._steps import DiffraxRun, Slot, Step, attempt, begun, goes_on, is_due, result, sample


class Outcome(NamedTuple):
    """What is kept of a run: saved times and values, the end, how it ended, and steps tried and accepted."""

    ts: Array
    ys: Any
    t_end: Array
    y_end: Any
    result: Any
    steps: Array
    accepted: Array


class _Pool(NamedTuple):
    """The runs on the slots by number, their own arrays and places, results so far, runs begun, iterations."""

    number: Array
    own: list[Array]
    slot: Slot
    outcome: Outcome
    next: Array
    iterations: Array


def _of_slots(x: Any, runs: Array) -> Any:
    return jax.tree.map(lambda x: jnp.moveaxis(x.at[runs].get(mode="promise_in_bounds"), 0, -1), x)


@functools.partial(jax.vmap, in_axes=-1, out_axes=-1)
def _chosen(which: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(which, x, y), new, old)


def _stored(into: Any, place: tuple[Array, ...], values: Any) -> Any:
    set_one = lambda x, value: x.at[place].set(jnp.moveaxis(value, -1, 0), mode="drop")
    return jax.tree.map(set_one, into, values)


@final
class _Batch:
    """The runs of a batch: what they share, and what each has of its own, over the runs and over the slots."""

    def __init__(
        self,
        make: Callable[[Sequence[Array]], DiffraxRun],
        leaves: Sequence[Array],
        batched: Sequence[bool],
        count: int,
    ):
        self.make, self.batched, self.count = make, batched, count
        self.shared = [x for x, b in zip(leaves, batched, strict=True) if not b]
        self.own = [x for x, b in zip(leaves, batched, strict=True) if b]
        self.starts = jax.vmap(lambda own: begun(self.run(own)))(self.own)
        self.attempts, self.due, self.samples = map(self.of_each, (attempt, is_due, sample))
        self.going, self.results = map(self.of_each, (goes_on, result))

    def run(self, own: Sequence[Array]) -> DiffraxRun:
        """A run from what it has of its own."""
        each, every = iter(own), iter(self.shared)
        return self.make([next(each if b else every) for b in self.batched])

    def of_each(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function of a run, mapped over the slots."""
        return jax.vmap(lambda own, *args: fn(self.run(own), *args), in_axes=-1, out_axes=-1)

    def begin(self, size: int) -> _Pool:
        """The first runs on their slots, and room for what is kept."""
        number = jnp.arange(size, dtype=jnp.int32)
        own, slot = _of_slots((self.own, self.starts), number)
        _, kept = jax.eval_shape(lambda: self.samples(own, slot, self.attempts(own, slot)[1]))
        times, starts = self.run([x[0] for x in self.own]).saveat.subs[0].ts.size, self.starts
        room = lambda x: jnp.full((self.count, times, *x.shape[:-1]), jnp.inf, x.dtype)
        outcome = Outcome(
            room(slot.t), jax.tree.map(room, kept),
            starts.t, starts.y, starts.result, starts.steps, starts.accepted,
        )  # fmt: skip
        return _Pool(number, own, slot, outcome, jnp.asarray(size, jnp.int32), jnp.zeros((), jnp.int32))

    def saved(self, pool: _Pool, step: Step) -> _Pool:
        """With what is due within the steps just tried, one time of each slot after the other."""
        number, own = pool.number, pool.own

        def save(state: tuple[Slot, Any, Array]) -> tuple[Slot, Any, Array]:
            slot, kept, due = state
            place = jnp.where(due, number, self.count), slot.saved
            kept = _stored(kept, place, self.samples(own, slot, step))
            slot = slot._replace(saved=slot.saved + due.astype(slot.saved.dtype))
            return slot, kept, self.due(own, slot, step)

        state = pool.slot, (pool.outcome.ts, pool.outcome.ys), self.due(own, pool.slot, step)
        slot, (ts, ys), _ = lax.while_loop(lambda state: jnp.any(state[2]), save, state)
        return pool._replace(slot=slot, outcome=pool.outcome._replace(ts=ts, ys=ys))

    def refilled(self, pool: _Pool, ended: Array) -> _Pool:
        """With the next runs on the slots of those that ended; after the last run, with that one again, for nothing."""
        upcoming = pool.next + jnp.cumsum(ended, dtype=jnp.int32) - 1
        number = jnp.where(ended, jnp.minimum(upcoming, self.count), pool.number)
        fresh = _of_slots((self.own, self.starts), jnp.minimum(number, self.count - 1))
        own, slot = _chosen(ended, fresh, (pool.own, pool.slot))
        taken = jnp.sum(ended, dtype=jnp.int32)
        return pool._replace(number=number, own=own, slot=slot, next=pool.next + taken)

    def advanced(self, pool: _Pool) -> _Pool:
        """After one more attempt of a step on every slot."""
        slot, step = self.attempts(pool.own, pool.slot)
        pool = self.saved(pool._replace(slot=slot, iterations=pool.iterations + 1), step)
        slot, ended = pool.slot, ~self.going(pool.own, pool.slot)
        ends = slot.t, slot.y, self.results(pool.own, slot), slot.steps, slot.accepted
        final = _stored(tuple(pool.outcome[2:]), (jnp.where(ended, pool.number, self.count),), ends)
        pool = pool._replace(outcome=Outcome(*pool.outcome[:2], *final))
        return lax.cond(jnp.any(ended), self.refilled, lambda pool, ended: pool, pool, ended)


def pool(
    make: Callable[[Sequence[Array]], DiffraxRun],
    leaves: Sequence[Array],
    batched: Sequence[bool],
    count: int,
    size: int,
) -> tuple[Outcome, Array]:
    """The outcomes of a batch of runs (count, ...), and how many iterations they took.

    **Arguments:**

    - `make`: a run from its arrays.
    - `leaves`: the arrays, with the runs first where they differ.
    - `batched`: which do.
    - `count`: how many runs.
    - `size`: how many slots, at most `count`.
    """
    batch = _Batch(make, leaves, batched, count)
    done = lax.while_loop(lambda pool: jnp.any(pool.number < count), batch.advanced, batch.begin(size))
    return done.outcome, done.iterations
