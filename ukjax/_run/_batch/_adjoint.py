"""Runs whose batches go through a pool of slots: an adjoint of Diffrax's without derivatives."""

from collections.abc import Callable, Sequence
from typing import Any, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array

from ._pool import Outcome, pool
from ._steps import DiffraxRun

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


def _pooled(
    make: Callable[[Sequence[Array]], DiffraxRun],
    others: dict[str, Any],
    batched: Sequence[bool],
    count: int,
    leaves: Sequence[Array],
) -> Outcome:
    """A batch of runs; a batch of batches is one larger batch."""

    @custom_vmap
    def whole(*leaves: Array) -> Outcome:
        if count == 1:
            only = make([x[0] if b else x for x, b in zip(leaves, batched, strict=True)])
            return jax.tree.map(lambda x: x[None], _alone(only, others))
        return _in_pool(make, batched, count, leaves)

    @whole.def_vmap
    def _(outer: int, over: list[bool], *leaves: Array) -> tuple[Outcome, Any]:
        def flat(x: Array, inner: bool, over: bool) -> Array:
            if not (inner or over):
                return x
            x = x if over else x[None]
            x = x if inner else x[:, None]
            return jnp.broadcast_to(x, (outer, count, *x.shape[2:])).reshape(outer * count, *x.shape[2:])

        every = [a or b for a, b in zip(batched, over, strict=True)]
        found = _pooled(make, others, every, outer * count, [*map(flat, leaves, batched, over)])
        found = jax.tree.map(lambda x: x.reshape(outer, count, *x.shape[1:]), found)
        return found, jax.tree.map(lambda _: True, found)

    return whole(*leaves)


def _in_pool(
    make: Callable[[Sequence[Array]], DiffraxRun],
    batched: Sequence[bool],
    count: int,
    leaves: Sequence[Array],
) -> Outcome:
    """With the slots of the platform it is compiled for, which need not be that of the process."""

    def with_slots(slots: int) -> Callable[..., Outcome]:
        return lambda *leaves: pool(make, leaves, batched, count, slots)[0]

    here, elsewhere = (slots_for(count, on_cpu) for on_cpu in (True, False))
    if here == elsewhere:
        return with_slots(here)(*leaves)
    return lax.platform_dependent(*leaves, cpu=with_slots(here), default=with_slots(elsewhere))


def _alone(run: DiffraxRun, others: dict[str, Any]) -> Outcome:
    """One run, by Diffrax's own loop."""
    final, _ = dfx.ForwardMode().loop(
        args=run.args, terms=run.terms, solver=run.solver, stepsize_controller=run.controller, saveat=run.saveat,
        t0=run.t0, t1=run.t1, dt0=run.dt0, max_steps=run.max_steps, init_state=run.state, **others,
    )  # fmt: skip
    kept, last = final.save_state
    t, y = jax.tree.map(lambda x: x[0], (last.ts, last.ys))
    tried, accepted = (jnp.asarray(x, jnp.int32) for x in (final.num_steps, final.num_accepted_steps))
    return Outcome(kept.ts, kept.ys, t, y, jax.tree.map(jnp.asarray, final.result), tried, accepted)


@final
class Pooled(dfx.AbstractAdjoint):
    """No derivative at all; under `jax.vmap` the runs go through a pool of slots, in which none waits for another."""

    def loop(
        self,
        *,
        args: Any,
        terms: Any,
        solver: Any,
        stepsize_controller: Any,
        saveat: dfx.SaveAt,
        t0: Array,
        t1: Array,
        dt0: Array | None,
        max_steps: int,
        init_state: Any,
        **others: Any,
    ) -> tuple[Any, dict]:
        if isinstance(solver, dfx.AbstractRungeKutta) and solver.scan_kind is None:
            # As Diffrax's forward mode does: a loop that forward mode can differentiate.
            solver = eqx.tree_at(lambda s: s.scan_kind, solver, "lax", is_leaf=lambda x: x is None)
        run = DiffraxRun(terms, solver, stepsize_controller, args, saveat, t0, t1, dt0, init_state, max_steps)
        arrays, static = eqx.partition(run, eqx.is_array)
        leaves, tree = jax.tree.flatten(arrays)

        def make(leaves: Sequence[Array]) -> DiffraxRun:
            return eqx.combine(jax.tree.unflatten(tree, list(leaves)), static)

        @custom_vmap
        def outcome(*leaves: Array) -> Outcome:
            return _alone(make(leaves), others)

        @outcome.def_vmap
        def _(count: int, batched: list[bool], *leaves: Array) -> tuple[Outcome, Any]:
            found = _pooled(make, others, batched, count, leaves)
            return found, jax.tree.map(lambda _: True, found)

        return _as_state(init_state, outcome(*leaves)), {}


def _as_state(state: Any, outcome: Outcome) -> Any:
    """Diffrax's state at the end, as far as a solution is made of it."""
    kept, last = state.save_state
    kept = eqx.tree_at(lambda s: (s.ts, s.ys), kept, (outcome.ts, outcome.ys))
    end = jax.tree.map(lambda x: x[None], (outcome.t_end, outcome.y_end))
    last = eqx.tree_at(lambda s: (s.ts, s.ys), last, end)
    counts = outcome.steps, outcome.accepted, outcome.steps - outcome.accepted
    where = lambda s: (s.save_state, s.result, s.num_steps, s.num_accepted_steps, s.num_rejected_steps)
    return eqx.tree_at(where, state, ((kept, last), outcome.result, *counts))
