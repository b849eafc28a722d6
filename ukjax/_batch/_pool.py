"""A pool of lanes: each iteration every lane tries one step of its own run, and takes the next run where one ended.

So a batch costs its total work plus, at the end, at most one longest run.
Arrays over the lanes have the lanes last: each number of a state is then a vector over them.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from ._steps import Lane, Run, Step, attempt, begun, goes_on, is_due, result, sample


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
    """The runs on the lanes by number, their own arrays and places, results so far, runs begun, iterations."""

    number: Array
    own: list[Array]
    lane: Lane
    outcome: Outcome
    next: Array
    iterations: Array


def _of_lanes(x: Any, runs: Array) -> Any:
    return jax.tree.map(lambda x: jnp.moveaxis(x.at[runs].get(mode="promise_in_bounds"), 0, -1), x)


@functools.partial(jax.vmap, in_axes=-1, out_axes=-1)
def _chosen(which: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(which, x, y), new, old)


def _stored(into: Any, place: tuple[Array, ...], values: Any) -> Any:
    set_one = lambda x, value: x.at[place].set(jnp.moveaxis(value, -1, 0), mode="drop")
    return jax.tree.map(set_one, into, values)


@final
class _Batch:
    """The runs of a batch: what they share, and what each has of its own, over the runs and over the lanes."""

    def __init__(
        self,
        make: Callable[[Sequence[Array]], Run],
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

    def run(self, own: Sequence[Array]) -> Run:
        """A run from what it has of its own."""
        each, every = iter(own), iter(self.shared)
        return self.make([next(each if b else every) for b in self.batched])

    def of_each(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function of a run, mapped over the lanes."""
        return jax.vmap(lambda own, *args: fn(self.run(own), *args), in_axes=-1, out_axes=-1)

    def begin(self, size: int) -> _Pool:
        """The first runs on their lanes, and room for what is kept."""
        number = jnp.arange(size, dtype=jnp.int32)
        own, lane = _of_lanes((self.own, self.starts), number)
        _, kept = jax.eval_shape(lambda: self.samples(own, lane, self.attempts(own, lane)[1]))
        times, starts = self.run([x[0] for x in self.own]).saveat.subs[0].ts.size, self.starts
        room = lambda x: jnp.full((self.count, times, *x.shape[:-1]), jnp.inf, x.dtype)
        outcome = Outcome(
            room(lane.t), jax.tree.map(room, kept),
            starts.t, starts.y, starts.result, starts.steps, starts.accepted,
        )  # fmt: skip
        return _Pool(number, own, lane, outcome, jnp.asarray(size, jnp.int32), jnp.zeros((), jnp.int32))

    def saved(self, pool: _Pool, step: Step) -> _Pool:
        """With what is due within the steps just tried, one time of each lane after the other."""
        number, own = pool.number, pool.own

        def save(state: tuple[Lane, Any, Array]) -> tuple[Lane, Any, Array]:
            lane, kept, due = state
            place = jnp.where(due, number, self.count), lane.saved
            kept = _stored(kept, place, self.samples(own, lane, step))
            lane = lane._replace(saved=lane.saved + due.astype(lane.saved.dtype))
            return lane, kept, self.due(own, lane, step)

        state = pool.lane, (pool.outcome.ts, pool.outcome.ys), self.due(own, pool.lane, step)
        lane, (ts, ys), _ = lax.while_loop(lambda state: jnp.any(state[2]), save, state)
        return pool._replace(lane=lane, outcome=pool.outcome._replace(ts=ts, ys=ys))

    def refilled(self, pool: _Pool, ended: Array) -> _Pool:
        """With the next runs on the lanes of those that ended; after the last run, with that one again, for nothing."""
        upcoming = pool.next + jnp.cumsum(ended, dtype=jnp.int32) - 1
        number = jnp.where(ended, jnp.minimum(upcoming, self.count), pool.number)
        fresh = _of_lanes((self.own, self.starts), jnp.minimum(number, self.count - 1))
        own, lane = _chosen(ended, fresh, (pool.own, pool.lane))
        taken = jnp.sum(ended, dtype=jnp.int32)
        return pool._replace(number=number, own=own, lane=lane, next=pool.next + taken)

    def advanced(self, pool: _Pool) -> _Pool:
        """After one more attempt of a step on every lane."""
        lane, step = self.attempts(pool.own, pool.lane)
        pool = self.saved(pool._replace(lane=lane, iterations=pool.iterations + 1), step)
        lane, ended = pool.lane, ~self.going(pool.own, pool.lane)
        ends = lane.t, lane.y, self.results(pool.own, lane), lane.steps, lane.accepted
        final = _stored(tuple(pool.outcome[2:]), (jnp.where(ended, pool.number, self.count),), ends)
        pool = pool._replace(outcome=Outcome(*pool.outcome[:2], *final))
        return lax.cond(jnp.any(ended), self.refilled, lambda pool, ended: pool, pool, ended)


def pool(
    make: Callable[[Sequence[Array]], Run],
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
    - `size`: how many lanes, at most `count`.
    """
    batch = _Batch(make, leaves, batched, count)
    done = lax.while_loop(lambda pool: jnp.any(pool.number < count), batch.advanced, batch.begin(size))
    return done.outcome, done.iterations
