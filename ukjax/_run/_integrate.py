"""The one door to Diffrax: integrates v' = a and q' = N v."""

import dataclasses
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .._misc._diffrax_called import diffrax_called
from .._misc._precision import in_full_precision
from .._misc._reverse_only import reverse_only
from .._misc._types import is_traced
from .._motion._energy_projection import with_projection
from .._motion._model import Model
from .._motion._projected_solver import Stop, shortest_step
from .._motion._wrapped_solver import with_scan
from . import _options
from ._event_separation import separate_events
from ._events import departing
from ._observe import Solved
from ._results import result_of, step_counts, to_diffrax_result

State = tuple[Array, Array]
Span = tuple[Array, Array, Array | None]
"""Start, end and first step [s]."""


@in_full_precision
def vector_field(t: Array, y: State, model: Model) -> State:
    """(q', v') of the state (q, v)."""
    q, v = y
    return model.system.kinematics(t, q, v), model.acceleration(t, q, v)


@in_full_precision
def _diffeqsolve(
    model: Model,
    y0: State,
    span: Span,
    ts: Array | None,
    settings: dict[str, Any],
    solver: dfx.AbstractSolver,
    dense: bool,
) -> dfx.Solution:
    """The Diffrax solve: saves the state at `ts` (None: at every step), and the final state."""
    if isinstance(settings["adjoint"], _options.REVERSE_ONLY):
        model, y0, span, ts = reverse_only((model, y0, span, ts))
    settings = dict(settings)
    number = settings.pop("stop", None)
    backsolve = isinstance(settings["adjoint"], dfx.BacksolveAdjoint)

    def run(
        times: tuple[Span, Array | None], y0: State, model: Model, settings: dict[str, Any]
    ) -> dfx.Solution:
        (t0, t1, dt0), ts = times
        wrapped = with_scan(solver, settings["adjoint"])
        if model.stabilizer.projection_method is not None:
            shortest = lax.stop_gradient(shortest_step(t0, t1))
            wrapped = with_projection(
                wrapped, None if number is None else Stop(shortest, to_diffrax_result(number))
            )
        kept = dfx.SubSaveAt(t0=ts is None, ts=ts, steps=ts is None)
        subs = (kept, dfx.SubSaveAt(t1=True))
        saveat = dfx.SaveAt(subs=subs, dense=dense)
        if backsolve:  # takes one list of times only
            assert ts is not None
            saveat = dfx.SaveAt(ts=jnp.append(ts, t1))
        term = dfx.ODETerm(vector_field)  # pyright: ignore[reportArgumentType]
        return dfx.diffeqsolve(
            term, wrapped, t0, t1, dt0, y0, args=model.ready(), saveat=saveat, throw=False, **settings
        )

    solution = diffrax_called(run, (span, ts), y0, model, settings)
    if backsolve:
        ts, ys = solution.ts, solution.ys
        solution = dataclasses.replace(solution, ts=(ts, ts[:0]), ys=(ys, tuple(x[:0] for x in ys)))  # pyright: ignore
    (result,) = jax.tree.leaves(solution.result)  # which may be one of ours
    return dataclasses.replace(solution, result=result_of(result))


@in_full_precision
def _with_start(settings: dict[str, Any], model: Model, t0: Array, y0: State) -> dict[str, Any]:
    """The event, told where the run starts, and the controller that keeps several of them apart."""
    if settings["event"] is None:
        return {}
    event = departing(settings["event"], model.system.kinematics, t0, y0, vector_field(t0, y0, model))
    return {"event": event, "stepsize_controller": separate_events(settings["stepsize_controller"], event)}


def integrate(
    model: Model,
    y0: State,
    span: Span,
    ts: Array | None,
    settings: dict[str, Any],
    solver: dfx.AbstractSolver,
    dense: bool,
) -> Solved:
    """The steps of a run, by Diffrax."""
    settings = settings | _with_start(settings, model, span[0], y0)
    solution = _diffeqsolve(model, y0, span, ts, settings, solver, dense)
    assert solution.ts is not None
    assert solution.ys is not None
    stats = statistics(model, solver, *(solution.stats[f"num_{name}steps"] for name in ("", "accepted_")))
    t = jnp.concatenate(solution.ts)
    q, v = map(jnp.concatenate, zip(*solution.ys, strict=True))
    result: Any = solution.result  # one of ours: `_diffeqsolve` promotes it
    return Solved(t, q, v, stats, result, solution.interpolation, solution.event_mask)


def statistics(model: Model, solver: dfx.AbstractSolver, steps: Any, accepted: Any) -> dict[str, Any]:
    """The statistics of a run: steps, those accepted, and evaluations where they are known."""
    counts = step_counts(steps, accepted)
    evaluations = _options.evaluations(solver, model.stabilizer, counts)
    if evaluations is not None:
        counts["num_evaluations"] = (jnp if is_traced(steps) else np).asarray(evaluations, np.int32)
    return counts
