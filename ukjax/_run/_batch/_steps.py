"""Diffrax's integration loop taken apart: its start, one attempt of a step, and what is saved within a step.

The arithmetic is Diffrax's own, so a run takes the same steps here as alone.
"""

from typing import Any, NamedTuple, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

NEAR_END = 100
"""Units of rounding within which a step is moved to the end, as Diffrax does."""


@final
class DiffraxRun(eqx.Module):
    """One integration, as Diffrax hands it to an adjoint.

    - `terms`, `solver`, `controller`, `args`, `saveat`: what is integrated, and how.
    - `t0`, `t1`: its span.
    - `dt0`: the first step, if given.
    - `state`: Diffrax's state before the first step.
    - `max_steps`: the most steps to take.
    """

    terms: Any
    solver: dfx.AbstractSolver
    controller: dfx.AbstractStepSizeController
    args: Any
    saveat: dfx.SaveAt
    t0: Array
    t1: Array
    dt0: Array | None
    state: Any
    max_steps: int = eqx.field(static=True)


class Slot(NamedTuple):
    """Where a run is."""

    t: Array
    t_next: Array
    y: Any
    made_jump: Array
    solver_state: Any
    controller_state: Any
    result: Any
    steps: Array
    accepted: Array
    saved: Array
    near_end: Array


class Step(NamedTuple):
    """A step that was tried: whether it was accepted, its span, and what its interpolation needs."""

    accepted: Array
    start: Array
    end: Array
    dense: dict[str, Any]


def begun(run: DiffraxRun) -> Slot:
    """The run before its first step."""
    state, solver_state = run.state, run.state.solver_state
    if isinstance(run.solver, dfx.AbstractERK) and isinstance(solver_state, tuple) and len(solver_state) == 2:
        first, derivative = solver_state
        if getattr(first, "dtype", None) == jnp.bool_:
            # First same as last: were this left to the first step, all slots would evaluate their first stage then.
            derivative = run.solver.func(run.terms, state.tprev, state.y, run.args)
            solver_state = jnp.zeros_like(first), derivative
    zero = jnp.zeros((), jnp.int32)
    near_end = run.t1 - NEAR_END * jnp.spacing(jnp.abs(run.t1))
    made_jump = jnp.asarray(state.made_jump)
    return Slot(
        state.tprev, state.tnext, state.y, made_jump, solver_state, state.controller_state, state.result,
        zero, zero, zero, near_end,
    )  # fmt: skip


def goes_on(run: DiffraxRun, slot: Slot) -> Array:
    """Whether there is another step to try.

    **Arguments:**

    - `run`: the run.
    - `slot`: where it is.
    """
    return (slot.t < run.t1) & dfx.is_successful(slot.result) & (slot.steps < run.max_steps)


def next_times(accepted: Any, t: Any, t_next: Any, t1: Array, near_end: Array) -> tuple[Array, Array]:
    """The start and the end of the next step: one that would end near the end of the run ends there.

    **Arguments:**

    - `accepted`: whether the last step was.
    - `t`, `t_next`: as the controller gives them.
    - `t1`: the end of the run.
    - `near_end`: the time that is near it.
    """
    t = jnp.minimum(t, t1)
    short = jnp.where(accepted, t1, t + 0.5 * (t1 - t))
    return t, jnp.where(t_next > near_end, short, t_next)


def attempt(run: DiffraxRun, slot: Slot) -> tuple[Slot, Step]:
    """Tries one step.

    **Arguments:**

    - `run`: the run.
    - `slot`: where it is.
    """
    solver, terms = run.solver, run.terms
    order: Any = solver.error_order(terms)
    y, error, dense, solver_state, solved = solver.step(
        terms, slot.t, slot.t_next, slot.y, run.args, slot.solver_state, slot.made_jump
    )
    error = jax.tree.map(lambda x: jnp.where(jnp.isnan(x), jnp.inf, x), error)
    accepted, t, t_next, made_jump, controller_state, controlled = run.controller.adapt_step_size(
        slot.t, slot.t_next, slot.y, y, run.args, error, order, slot.controller_state
    )
    t, t_next = next_times(accepted, t, t_next, run.t1, slot.near_end)
    keep = lambda new, old: jnp.where(accepted, new, old)
    y, solver_state, made_jump = jax.tree.map(
        keep, (y, solver_state, made_jump), (slot.y, slot.solver_state, slot.made_jump)
    )
    solved = dfx.RESULTS.where(accepted, solved, dfx.RESULTS.successful)
    result = dfx.RESULTS.where(dfx.is_okay(slot.result), solved, slot.result)
    result = dfx.RESULTS.where(dfx.is_okay(result), controlled, result)
    after = Slot(
        t, t_next, y, made_jump, solver_state, controller_state, result,
        slot.steps + 1, slot.accepted + jnp.where(accepted, 1, 0).astype(jnp.int32), slot.saved, slot.near_end,
    )  # fmt: skip
    return after, Step(jnp.asarray(accepted), slot.t, slot.t_next, dense)


def is_due(run: DiffraxRun, slot: Slot, step: Step) -> Array:
    """Whether the next time to save at lies in the step.

    **Arguments:**

    - `run`: the run.
    - `slot`: where it is after the step.
    - `step`: the step.
    """
    ts = run.saveat.subs[0].ts
    return step.accepted & (slot.saved < ts.size) & (ts[jnp.minimum(slot.saved, ts.size - 1)] <= step.end)


def sample(run: DiffraxRun, slot: Slot, step: Step) -> tuple[Array, Any]:
    """The next time to save at, and what is kept of the state there.

    **Arguments:** as `is_due`.
    """
    kept = run.saveat.subs[0]
    t = kept.ts[jnp.minimum(slot.saved, kept.ts.size - 1)]
    between = run.solver.interpolation_cls(t0=step.start, t1=step.end, **step.dense)
    return t, kept.fn(t, between.evaluate(t), run.args)


def result(run: DiffraxRun, slot: Slot) -> Any:
    """How a run ended that does not go on.

    **Arguments:** as `goes_on`.
    """
    unfinished = (slot.t < run.t1) & dfx.is_successful(slot.result)
    return dfx.RESULTS.where(unfinished, dfx.RESULTS.max_steps_reached, slot.result)
