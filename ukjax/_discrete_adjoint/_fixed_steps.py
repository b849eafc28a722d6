"""Runs at a fixed step size that record themselves."""

from typing import Any, NamedTuple, final

import diffrax as dfx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from ._record import Arguments, Outcome, Record, State, interval, step

_ROUNDINGS = 100  # that near the end a step goes to the end, as with Diffrax


class _Now(NamedTuple):
    """Where a run is: its state, what is saved, the number of saved times, and the recorded states."""

    y: State
    saved: State
    place: Array
    states: State


def _times(x: Arguments, terms: Any, solver: Any, dt0: Array, max_steps: int) -> tuple[Array, Array]:
    """The times of the steps, infinite beyond the last, and the number of steps: as Diffrax's controller has them."""
    controller, t1 = dfx.ConstantStepSize(), x.t1
    nearly = t1 - _ROUNDINGS * jnp.finfo(t1.dtype).eps * jnp.abs(t1)
    clipped = lambda t: jnp.where(t > nearly, t1, t)
    order, args = solver.error_order(terms), x.parameters
    first, state = controller.init(terms, x.t0, t1, x.y0, dt0, args, solver.func, order)

    def onward(now: Any) -> Array:
        times, i, *_ = now
        return (times[i] < t1) & (i < max_steps)

    def advance(now: Any) -> Any:
        times, i, end, state = now
        _, start, end_of_next, _, state, _ = controller.adapt_step_size(
            times[i], end, x.y0, x.y0, args, None, order, state
        )
        return times.at[i + 1].set(start), i + 1, clipped(end_of_next), state

    times = jnp.full(max_steps + 1, jnp.inf, x.t0.dtype).at[0].set(x.t0)
    return lax.while_loop(onward, advance, (times, jnp.asarray(0), clipped(first), state))[:2]


@final
class FixedSteps:
    """A run at fixed steps by an explicit method.

    **Arguments:**

    - `x`: what it starts from.
    - `terms`, `solver`: of Diffrax; no step of the solver can fail.
    - `max_steps`: the most steps.
    - `dt0`: the size of all steps but the last [s].
    """

    def __init__(self, x: Arguments, terms: Any, solver: Any, max_steps: int, dt0: Array):
        self.x, self.terms, self.solver, self.max_steps = x, terms, solver, max_steps
        self.times, self.count = _times(x, terms, solver, dt0, max_steps)

    def _saved(self, saved: State, place: Array, i: Array, y: State, motion: Any) -> tuple[State, Array]:
        """With the times saved that are within step i."""
        start, end, ts = self.times[i], self.times[i + 1], self.x.ts
        if ts is None:
            return jax.tree.map(lambda all, x: all.at[i + 1].set(x), saved, y), place

        def pending(state: tuple[State, Array]) -> Array:
            return (state[1] < ts.size) & (ts[jnp.minimum(state[1], ts.size - 1)] <= end)

        def add(state: tuple[State, Array]) -> tuple[State, Array]:
            saved, place = state
            y = self.solver.interpolation_cls(t0=start, t1=end, **motion).evaluate(ts[place])
            return jax.tree.map(lambda all, x: all.at[place].set(x), saved, y), place + 1

        return lax.while_loop(pending, add, (saved, place))

    def _ahead(self, i: Array, now: _Now) -> _Now:
        y, motion = step(self.terms, self.solver, self.x.parameters, now.y, self.times[i], self.times[i + 1])
        saved, place = self._saved(now.saved, now.place, i, y, motion)
        return _Now(y, saved, place, now.states)

    def _segment(self, number: Array, now: _Now) -> _Now:
        every = interval(self.max_steps)
        states = jax.tree.map(lambda all, x: all.at[number].set(x), now.states, now.y)
        end = jnp.minimum((number + 1) * every, self.count)
        return lax.fori_loop(number * every, end, self._ahead, now._replace(states=states))

    def run(self) -> tuple[Outcome, Record]:
        """What the run gives, and its record."""
        x, every = self.x, interval(self.max_steps)
        length = self.max_steps + 1 if x.ts is None else x.ts.size
        at_start = jnp.asarray(True) if x.ts is None else x.ts[0] <= x.t0
        empty = jax.tree.map(lambda y: jnp.full((length, *y.shape), jnp.inf, y.dtype), x.y0)
        saved = jax.tree.map(lambda all, y: all.at[0].set(jnp.where(at_start, y, jnp.inf)), empty, x.y0)
        states = jax.tree.map(lambda y: jnp.zeros((-(-self.max_steps // every), *y.shape), y.dtype), x.y0)
        now = _Now(x.y0, saved, at_start.astype(int), states)
        now = lax.fori_loop(0, -(-self.count // every), self._segment, now)
        last = self.times[self.count]
        ts = self.times if x.ts is None else jnp.where(jnp.arange(length) < now.place, x.ts, jnp.inf)
        counts = {"num_steps": self.count, "num_accepted_steps": self.count}
        outcome = Outcome(
            (ts, now.saved),
            (last[None], jax.tree.map(lambda y: y[None], now.y)),
            {"max_steps": self.max_steps, **counts, "num_rejected_steps": jnp.zeros_like(self.count)},
            dfx.RESULTS.where(last >= x.t1, dfx.RESULTS.successful, dfx.RESULTS.max_steps_reached),
        )
        return outcome, Record(self.times, now.states, self.count)
