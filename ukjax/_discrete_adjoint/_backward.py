"""The way back along a run: the adjoint of each step, from the last to the first."""

from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from ._record import Arguments, Outcome, Record, State, interval, step


class _Carried(NamedTuple):
    """The adjoint of the state, the gradient so far, and the last saved time that is still to come."""

    adjoint: State
    gradient: Arguments
    place: Array


def _zeros(x: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, eqx.filter(x, eqx.is_inexact_array))


def _filled(cotangents: Any, like: Any) -> Any:
    """Cotangents with zeros for those that are none."""
    given = lambda c, y: jnp.zeros_like(y) if c is None else c
    return jax.tree.map(given, cotangents, like, is_leaf=lambda c: c is None)


@final
class Backward:
    """The way back along a run."""

    def __init__(
        self,
        x: Arguments,
        perturbed: Arguments,
        record: Record,
        cotangents: Outcome,
        terms: Any,
        solver: Any,
        max_steps: int,
    ):
        self.varied, self.fixed = eqx.partition(x.parameters, perturbed.parameters)
        self.x, self.record, self.interval = x, record, interval(max_steps)
        self.terms, self.solver = terms, solver
        length = record.times.size if x.ts is None else x.ts.size
        many = jax.tree.map(lambda y: jnp.broadcast_to(y, (length, *y.shape)), x.y0)
        self.saved = _filled(cotangents.saved[1], many)
        last = jax.tree.map(lambda y: y[None], x.y0)
        self.end = jax.tree.map(lambda c: c[0], _filled(cotangents.last[1], last))

    def step(self, varied: Any, y: State, start: Array, end: Array) -> tuple[State, Any]:
        """The state after a step, and what is known of the motion within."""
        return step(self.terms, self.solver, eqx.combine(varied, self.fixed), y, start, end)

    def _within(
        self, carried: _Carried, start: Array, end: Array, motion: Any
    ) -> tuple[Any, _Carried, Array, Array]:
        """The cotangent of the motion within a step, of what is saved there; and of its times."""
        ts = self.x.ts
        assert ts is not None

        def pending(state: Any) -> Array:
            place = state[2]
            return (place >= 0) & (ts[jnp.maximum(place, 0)] > start)

        def add(state: Any) -> Any:
            pulled, slopes, place, *ends = state
            value = lambda motion, t, start, end: self.solver.interpolation_cls(
                t0=start, t1=end, **motion
            ).evaluate(t)
            _, pull = jax.vjp(value, motion, ts[place], start, end)
            more, slope, *times = pull(jax.tree.map(lambda c: c[place], self.saved))
            pulled = jax.tree.map(jnp.add, pulled, more)
            return pulled, slopes.at[place].add(slope), place - 1, *map(jnp.add, ends, times)

        zero = jnp.zeros_like(start)
        first = _zeros(motion), carried.gradient.ts, carried.place, zero, zero
        pulled, slopes, place, *ends = lax.while_loop(pending, add, first)
        carried = carried._replace(gradient=carried.gradient._replace(ts=slopes), place=place)
        return pulled, carried, *ends

    def back(self, i: Array, y: State, carried: _Carried) -> _Carried:
        """From the end of step i to its start, where the state is y."""
        start, end = self.record.times[i], self.record.times[i + 1]
        adjoint, zero = carried.adjoint, jnp.zeros_like(start)
        (_, motion), pull = jax.vjp(self.step, self.varied, y, start, end)
        if self.x.ts is None:
            adjoint = jax.tree.map(lambda a, c: a + c[i + 1], adjoint, self.saved)
            pulled, at_start, at_end = _zeros(motion), zero, zero
        else:
            pulled, carried, at_start, at_end = self._within(carried, start, end, motion)
        more, adjoint, to_start, to_end = pull((adjoint, pulled))
        g = carried.gradient
        g = g._replace(
            parameters=jax.tree.map(jnp.add, g.parameters, more),
            t0=jnp.where(i == 0, at_start + to_start, g.t0),
            t1=jnp.where(i == self.record.taken - 1, at_end + to_end, g.t1),
        )
        return carried._replace(adjoint=adjoint, gradient=g)

    def segment(self, number: Array, carried: _Carried) -> _Carried:
        """From the end of a segment between two checkpoints to its start."""
        first = number * self.interval
        length = jnp.minimum(self.interval, self.record.taken - first)
        y = jax.tree.map(lambda x: x[number], self.record.states)
        kept = jax.tree.map(lambda x: jnp.zeros((self.interval, *x.shape), x.dtype).at[0].set(x), y)
        times = self.record.times

        def ahead(k: Array, state: tuple[State, State]) -> tuple[State, State]:
            kept, y = state
            y, _ = self.step(self.varied, y, times[first + k - 1], times[first + k])
            return jax.tree.map(lambda all, x: all.at[k].set(x), kept, y), y

        kept, _ = lax.fori_loop(1, length, ahead, (kept, y))

        def behind(k: Array, carried: _Carried) -> _Carried:
            place = length - 1 - k
            return self.back(first + place, jax.tree.map(lambda x: x[place], kept), carried)

        return lax.fori_loop(0, length, behind, carried)

    def gradient(self) -> Arguments:
        """The cotangents of all arguments."""
        x, count = self.x, self.record.taken
        zero = Arguments(_zeros(self.varied), x.y0, jnp.zeros_like(x.t0), jnp.zeros_like(x.t1), _zeros(x.ts))
        # Nothing is saved beyond the end of a run that stopped early.
        last = jnp.asarray(-1) if x.ts is None else jnp.sum(x.ts <= self.record.times[count]) - 1
        carried = _Carried(self.end, zero, last)
        segments = -(-count // self.interval)
        carried = lax.fori_loop(0, segments, lambda k, c: self.segment(segments - 1 - k, c), carried)
        at_start = jax.tree.map(lambda c: c[0], self.saved)
        here = True if x.ts is None else (x.ts[0] <= x.t0)
        adjoint = jax.tree.map(lambda a, c: a + jnp.where(here, c, 0), carried.adjoint, at_start)
        return carried.gradient._replace(y0=adjoint)
