"""Runs that are not machine code in a pool of slots: each takes steps of its own run, and the next run where one ended.

So a batch costs its total work plus, at the end, at most one longest run. The loop is Diffrax's own, with another `while`
under `jax.vmap`. Arrays over the slots have the slots last: each number of a state is then a vector over them.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array

# On a CPU wider loops barely help, and more of their slots idle while the last runs end.
_FEWEST, _MOST, _RUNS_OF_A_SLOT = 64, 128, 32
_MOST_ON_ACCELERATORS = 65_536


def can_be_pooled(settings: dict[str, Any], ts: Array | None, dense: bool) -> bool:
    """Whether a batch of such integrations can run in a pool.

    **Arguments:**

    - `settings`: of `diffrax.diffeqsolve`.
    - `ts`: the times to save at, None for every step.
    - `dense`: whether all steps are kept.
    """
    plain = settings["event"] is None and isinstance(settings["progress_meter"], dfx.NoProgressMeter)
    return plain and ts is not None and not dense


def slots_for(count: int, on_cpu: bool) -> int:
    """How many slots a batch is given.

    **Arguments:**

    - `count`: how many runs.
    - `on_cpu`: where they are to run.
    """
    if not on_cpu:
        return min(count, _MOST_ON_ACCELERATORS)
    whole_vectors = count // _RUNS_OF_A_SLOT // 8 * 8
    return min(count, max(_FEWEST, min(_MOST, whole_vectors)))


@final
class Pooled(dfx.AbstractAdjoint):
    """No derivative at all; under `jax.vmap` the runs go through a pool of slots, in which none waits for another."""

    def loop(
        self, *, throw: bool, passed_solver_state: bool, passed_controller_state: bool, **given: Any
    ) -> tuple[Any, dict]:
        del throw, passed_solver_state, passed_controller_state
        solver = given["solver"]
        if isinstance(solver, dfx.AbstractRungeKutta) and solver.scan_kind is None:
            # As Diffrax's forward mode does.
            given["solver"] = eqx.tree_at(lambda s: s.scan_kind, solver, "lax", is_leaf=lambda x: x is None)
        return self._loop(**given, inner_while_loop=_plain_loop, outer_while_loop=_loop)


def _plain_loop(cond_fun: Any, body_fun: Any, init_state: Any, **_: Any) -> Any:
    return lax.while_loop(cond_fun, body_fun, init_state)


class _Runs(NamedTuple):
    """Runs that differ in some arrays.

    - `goes_on`, `step`: of arrays of a run, and its state.
    - `given`: the arrays; with the runs first where they are `apart`.
    - `apart`: which are.
    - `states`: at the start, with the runs first.
    """

    goes_on: Callable[..., Array]
    step: Callable[..., Any]
    given: Sequence[Array]
    apart: Sequence[bool]
    states: Any

    @property
    def own(self) -> list[Array]:
        """The arrays in which they differ."""
        return [x for x, apart in zip(self.given, self.apart, strict=True) if apart]

    def of_each(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """One of the functions, of own arrays and states of runs on the slots."""
        shared = [x for x, apart in zip(self.given, self.apart, strict=True) if not apart]

        def of_one(own: Sequence[Array], state: Any) -> Any:
            each, every = iter(own), iter(shared)
            return fn([next(each if apart else every) for apart in self.apart], state)

        return jax.vmap(of_one, in_axes=-1, out_axes=-1)


def _loop(cond_fun: Any, body_fun: Any, init_state: Any, *, max_steps: int, buffers: Any) -> Any:
    """As `jax.lax.while_loop`, of a state that may have numbers of Python's in it."""
    del buffers
    counted = lambda x: jnp.asarray(x, jnp.int32) if type(x) is int else x
    init_state = jax.tree.map(counted, init_state)
    after = eqx.filter_eval_shape(body_fun, init_state)
    is_array = lambda x: isinstance(x, jax.ShapeDtypeStruct)
    init_state = jax.tree.map(lambda x, y: jnp.asarray(x, y.dtype) if is_array(y) else x, init_state, after)
    goes_on = lambda state: cond_fun(state) & (state.num_steps < max_steps)
    functions = [eqx.filter_closure_convert(f, init_state) for f in (goes_on, body_fun)]
    state, rest = eqx.partition(init_state, eqx.is_array)
    arrays, static = eqx.partition(functions, eqx.is_array)
    given, tree = jax.tree.flatten(arrays)

    def of(i: int, given: Sequence[Array], state: Any) -> Any:
        found = eqx.combine(jax.tree.unflatten(tree, given), static)[i](eqx.combine(state, rest))
        return eqx.filter(found, eqx.is_array)

    steps = functools.partial(of, 0), functools.partial(of, 1)
    first = jax.tree.map(lambda x: x[None], state)
    found = _ends(_Runs(*steps, given, [False] * len(given), first))
    return eqx.combine(jax.tree.map(lambda x: x[0], found), rest)


def _ends(runs: _Runs) -> Any:
    """The states at the end of all runs; of a batch of batches as of one larger batch."""
    count = jax.tree.leaves(runs.states)[0].shape[0]

    @custom_vmap
    def ends(given: Sequence[Array], states: Any) -> Any:
        one = runs._replace(given=given, states=states)
        return _alone(one) if count == 1 else _with_slots(one, count)

    @ends.def_vmap
    def _(outer: int, over: Any, given: Sequence[Array], states: Any) -> tuple[Any, Any]:
        def flat(x: Array, inner: bool, over: bool) -> Array:
            if not (inner or over):
                return x
            x = x if over else x[None]
            x = x if inner else x[:, None]
            return jnp.broadcast_to(x, (outer, count, *x.shape[2:])).reshape(outer * count, *x.shape[2:])

        apart = [a or b for a, b in zip(runs.apart, over[0], strict=True)]
        given = [*map(flat, given, runs.apart, over[0])]
        states = jax.tree.map(lambda x, over: flat(x, True, over), states, over[1])
        found = _ends(runs._replace(given=given, apart=apart, states=states))
        found = jax.tree.map(lambda x: x.reshape(outer, count, *x.shape[1:]), found)
        return found, jax.tree.map(lambda _: True, found)

    return ends(list(runs.given), runs.states)


def _alone(runs: _Runs) -> Any:
    given = [x[0] if apart else x for x, apart in zip(runs.given, runs.apart, strict=True)]
    state = jax.tree.map(lambda x: x[0], runs.states)
    of = lambda fn: functools.partial(fn, given)
    found = lax.while_loop(of(runs.goes_on), of(runs.step), state)
    return jax.tree.map(lambda x: x[None], found)


def _with_slots(runs: _Runs, count: int) -> Any:
    """With the slots of the platform it is compiled for, which need not be that of the process."""
    by = lambda slots: lambda given, states: pool(runs._replace(given=given, states=states), count, slots)[0]
    here, elsewhere = (slots_for(count, on_cpu) for on_cpu in (True, False))
    if here == elsewhere:
        return by(here)(runs.given, runs.states)
    return lax.platform_dependent(runs.given, runs.states, cpu=by(here), default=by(elsewhere))


class _Pool(NamedTuple):
    """The runs on the slots by number, their own arrays and states, states at the end so far, runs begun, iterations."""

    number: Array
    own: list[Array]
    slot: Any
    ends: Any
    next: Array
    iterations: Array


def _of_slots(x: Any, runs: Array) -> Any:
    return jax.tree.map(lambda x: jnp.moveaxis(x.at[runs].get(mode="promise_in_bounds"), 0, -1), x)


@functools.partial(jax.vmap, in_axes=-1, out_axes=-1)
def _chosen(which: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(which, x, y), new, old)


def _stored(into: Any, place: Array, values: Any) -> Any:
    set_one = lambda x, value: x.at[place].set(jnp.moveaxis(value, -1, 0), mode="drop")
    return jax.tree.map(set_one, into, values)


def pool(runs: _Runs, count: int, size: int) -> tuple[Any, Array]:
    """The states at the end of runs (count, ...), and how many iterations they took.

    **Arguments:**

    - `runs`: the runs.
    - `count`: how many.
    - `size`: how many slots, at most `count`.
    """
    goes_on, step = runs.of_each(runs.goes_on), runs.of_each(runs.step)

    def advanced(pool: _Pool) -> _Pool:
        pool = pool._replace(slot=step(pool.own, pool.slot), iterations=pool.iterations + 1)
        ended = ~goes_on(pool.own, pool.slot)
        return lax.cond(jnp.any(ended), refilled, lambda pool, ended: pool, pool, ended)

    def refilled(pool: _Pool, ended: Array) -> _Pool:
        """With the next runs on the slots of those that ended; after the last run, with that one again, for nothing."""
        moved = ended & moves.at[pool.number].get(mode="fill", fill_value=False)
        ends = _stored(pool.ends, jnp.where(moved, pool.number, count), pool.slot)
        upcoming = pool.next + jnp.cumsum(ended, dtype=jnp.int32) - 1
        number = jnp.where(ended, jnp.minimum(upcoming, count), pool.number)
        fresh = _of_slots((runs.own, runs.states), jnp.minimum(number, count - 1))
        own, slot = _chosen(ended, fresh, (pool.own, pool.slot))
        begun = pool.next + jnp.sum(ended, dtype=jnp.int32)
        return pool._replace(number=number, own=own, slot=slot, ends=ends, next=begun)

    moves = goes_on(*_of_slots((runs.own, runs.states), jnp.arange(count)))  # others end where they start
    number = jnp.arange(size, dtype=jnp.int32)
    own, slot = _of_slots((runs.own, runs.states), number)
    first = _Pool(number, own, slot, runs.states, jnp.asarray(size, jnp.int32), jnp.zeros((), jnp.int32))
    done = lax.while_loop(lambda pool: jnp.any(pool.number < count), advanced, first)
    return done.ends, done.iterations
