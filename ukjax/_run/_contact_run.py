"""A run of a system with unilateral constraints: planned, begun, integrated from event to event, and observed."""

from typing import Any, NamedTuple, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler._structured._scalarize import LeftToXLA, scalarize
from .._contact._contact_dynamics import ContactDynamics, State, flow
from .._contact._history import ContactHistory
from .._contact._hybrid import HybridSolver, Log, drop_after, empty_log, events_of, prepend_event, uncrossed
from .._contact._modes import Mode, open_mode
from .._contact._rows import contact_model, layout_of, require_rigid
from .._misc._arguments import whole_number
from .._misc._closures import combine_static
from .._misc._closures import partition_static as divided
from .._misc._derivatives import reverse_only
from .._misc._errors import InputError
from .._misc._jax_programs import diffrax_called
from .._misc._types import in_full_precision, is_traced, is_tracing
from .._motion._solvers import Stop, shortest_step
from .._system._constraint import unilateral
from .._system._system import AbstractSystem
from . import _options
from ._contact_common import Asked, ContactRun, Prepared, observe_state, trajectory_of
from ._events import (
    Stops,
    as_diffrax,
    event_names,
    leave_zeros,
    separate_events,
    split_events,
    warn_of_resets,
    which,
)
from ._integrate import ends_with_step, pad_times, run_as_program
from ._interning import intern_system
from ._observe import find_reached, observe_each
from ._options import Options, controller_of_steps, is_judged, stop_code
from ._results import RESULTS, code, fill_unreached, result_of, step_counts, to_diffrax_result
from ._trajectory import Trajectory


def require_followed(system: AbstractSystem) -> None:
    """Raises `InputError` for contacts that cannot be followed from event to event."""
    if changing := [
        name
        for c in unilateral(system.constraints)
        for name in getattr(getattr(c, "fn", None), "changing", ())
    ]:  # pyright: ignore
        raise InputError(
            f"contact {', '.join(changing[:3])}: these shapes touch now at one corner, now at another, which cannot be "
            "followed from event to event: use contact='steps', dt0=1e-3."
        )


@final
class EventsPlan:
    """How runs of a system with contacts are made, event by event.

    - `traced`: whether JAX traces any of it.
    - `formula`: how accelerations are computed.
    """

    def __init__(self, system: AbstractSystem, options: Options, t: Array, q: Array, v: Array):
        run = _plan_run(intern_system(system, t, q, v), options, t, q, v)
        self._prepared = Prepared(run, (system, options), (t, q, v))
        self.formula, self.traced = run.formula, self._prepared.traced

    def trajectory(self, asked: Asked, **told: Any) -> Trajectory:
        """The trajectory of a run."""
        (t, q, v), t1, dt0, ts, _ = asked
        run, traced = self._prepared.run, self.traced or is_tracing() or is_traced(asked)
        q, v = (q, v) if traced else self._prepared.begun(asked)
        observed, solved, events, begun, last = _run(
            run, t, q, v, (t1, dt0), ts if traced else pad_times(ts, t1)
        )
        count, columns = None if ts is None else len(ts), {"t": solved.t}
        if not traced:
            places = find_reached(solved.t, count)
            observed = jax.tree.map(lambda x: np.asarray(x)[..., places], observed)
            columns = {"t": np.asarray(solved.t)[places]}
            warn_of_resets(run.touching.resets, events, observed["q"].T, observed["v"].T)
        told |= self._prepared.told | {
            "computed_by": solved.left.said(run.computed_by),
            "event_names": event_names(run.event),
        }
        told |= {"begun": begun, "contacts": lambda at_times: _history(run, events, at_times)}
        told |= {"stats": solved.stats, "result": solved.result, "event": solved.event}
        told |= {"judged": is_judged(run.formula, run.touching.model.stabilizer)}
        if traced and ends_with_step(run.settings["adjoint"][0], run.event, solved.left):
            told["settled"] = last
        return trajectory_of(asked.start, observed, columns, count, **told)


def _history(run: ContactRun, events: dict[str, Any], at_times: dict[str, Any]) -> ContactHistory:
    """What is told of contacts."""
    layout, resets = run.touching.layout, tuple(x.name for x in run.touching.resets)
    return ContactHistory(
        names=layout.names,
        contacts=layout.contacts,
        angles=layout.angles,
        turning=layout.turning,
        reset_names=resets,
        **events,
        **at_times,
    )


def _plan_run(system: AbstractSystem, options: Options, t: Array, q: Array, v: Array) -> ContactRun:
    o = options
    _options.require_method(o.formula, o.stabilizer, o.solver)
    controller = _options.controller(o.stepsize_controller, o.solver, o.with_dt0, (o.rtol, o.atol), q.dtype)
    if not isinstance(controller, dfx.AbstractAdaptiveStepSizeController):
        raise InputError(
            "events of contacts are located within steps, which must be able to shrink: give a solver that estimates its "
            "error and an adaptive controller (the default), or contact='steps' for fixed steps."
        )
    require_followed(system)
    if o.dense:
        raise InputError("dense output does not go with contacts yet: give the times to save at, ts.")
    max_steps = whole_number("max_steps", o.max_steps)
    formula = _options.formula(o.formula, o.stabilizer, q.dtype)
    layout, coefficients = layout_of(system, t, q, v)
    require_rigid(layout)
    carried = jax.eval_shape(lambda q, v: (y := (q, v, open_mode(layout, v.dtype)), empty_log(y)), q, v)
    settings = {
        "stepsize_controller": controller_of_steps(controller, system, q.dtype),
        "adjoint": (o.adjoint, _options.adjoint(o.adjoint, carried, max_steps)),
        "max_steps": max_steps,
        "progress_meter": _options.progress_meter(o.progress),
        "stop": stop_code(is_judged(formula, o.stabilizer), o.on_violation),
    }
    stops, resets = split_events(o.event, (t, q, v))
    event = as_diffrax(stops, (t, q, v))
    model, said = contact_model(
        system, formula, o.stabilizer, o.solver, (t, q, v), automatic=o.formula is None
    )
    counts = ((len(layout.names), "contact"), (len({x.name for x in resets}), "event with a reset"))
    of = " and ".join(f"{n} {what}{'s' * (n != 1)}" for n, what in counts if n)
    said = f"{of.replace('event with a resets', 'events with a reset')}, located in steps; motion between by {said}"
    return ContactRun(
        ContactDynamics(model, coefficients, layout, resets), formula, o.solver, settings, event, said
    )


class _Solved(NamedTuple):
    """What the steps left: states at saved times, statistics and result, and why they are left to XLA, if so."""

    t: Array
    y: State
    stats: dict[str, Array]
    result: RESULTS
    event: Array
    left: LeftToXLA = LeftToXLA()


@in_full_precision
def _integrate_by_diffrax(
    adjoint: dfx.AbstractAdjoint,
    run: ContactRun,
    y0: State,
    span: tuple[Array, Array, Array | None],
    ts: Array | None,
) -> tuple[_Solved, Log]:
    args, t0 = run.touching, span[0]
    if isinstance(adjoint, _options.REVERSE_ONLY):
        args, y0, span, ts = reverse_only((args, y0, span, ts))
        t0 = span[0]
    event = _stopping_event(run, t0, y0)
    settings: dict[str, Any] = run.settings | {"adjoint": adjoint} | _make_stop_settings(run, event)
    number, stops = settings.pop("stop"), Stops.of(event)

    def solve(times: tuple[Any, Array | None], y0: State, args: ContactDynamics) -> dfx.Solution:
        (t0, t1, dt0), ts = times
        kept = dfx.SubSaveAt(t0=ts is None, ts=ts, steps=ts is None)
        saveat = dfx.SaveAt(subs=(kept, dfx.SubSaveAt(t1=True)), solver_state=True)
        term = dfx.ODETerm(flow)  # pyright: ignore[reportArgumentType]
        shortest = jax.lax.stop_gradient(shortest_step(t0, t1))
        stop = None if number is None else Stop(shortest, to_diffrax_result(number))
        accumulation = Stop(shortest, to_diffrax_result(code(RESULTS.resets_accumulate)))
        solver = HybridSolver(run.solver, y0[0].size, stop, accumulation, stops)
        return dfx.diffeqsolve(
            term, solver, t0, t1, dt0, y0, args=args, saveat=saveat, throw=False, **settings
        )

    solution = diffrax_called(solve, (span, ts), (*y0, *uncrossed(stops.count, t0)), args)
    assert solution.ts is not None
    assert solution.ys is not None
    assert solution.solver_state is not None
    y = jax.tree.map(lambda *x: jnp.concatenate(x), *(x[:3] for x in solution.ys))
    stats = step_counts(*(solution.stats[f"num_{name}steps"] for name in ("", "accepted_")))
    (result,) = jax.tree.leaves(solution.result)  # which may be one of ours
    # Impacts and resets cannot be undone: no run goes back. Where t1 is NaN, Diffrax does nothing and calls it success.
    result = jnp.where(span[1] >= span[0], result, code(RESULTS.diverged))
    t, log, event = jnp.concatenate(solution.ts), solution.solver_state[1], which(solution.event_mask)
    if stops.count:
        log = drop_after(log, t[-1], event >= 0)
    return _Solved(t, y, stats, result_of(result), event), log


def _stopping_event(run: ContactRun, t0: Array, y0: State) -> dfx.Event | None:
    """The event that stops the run, of (q, v), told where the run starts."""
    if run.event is None:
        return None
    field = lambda t, y: flow(t, (*y, *y0[2:]), run.touching)[:2]
    return leave_zeros(run.event, run.touching.model.system.kinematics, t0, y0[:2], field)


def _make_stop_settings(run: ContactRun, event: dfx.Event | None) -> dict[str, Any]:
    """That event of the whole state, and the controller that keeps several apart."""
    if event is None:
        return {}
    conditions, tree = jax.tree.flatten(event.cond_fn, is_leaf=callable)

    def whole(fn: Any, i: int) -> Any:
        return lambda t, y, args, **more: y[3].values(fn(t, y[:2], args, **more))[i]

    conditions = [whole(fn, i) for i, fn in enumerate(conditions)]
    event = dfx.Event(jax.tree.unflatten(tree, conditions), event.root_finder, event.direction)
    return {
        "event": event,
        "stepsize_controller": separate_events(run.settings["stepsize_controller"], event),
    }


@in_full_precision
def _observe_saved(run: ContactRun, t: Array, y: State) -> dict[str, Any]:
    """What is told of a saved state, which is projected here if it lies between steps."""
    args = run.touching
    q, v, mode = y = args.held(t, y)[0]
    contact, p = args.forces(t, y)
    return observe_state(run, t, q, v, contact.J.T @ p) | {
        "gap": contact.gap,
        "force": p * args.coefficients.scale,
        "closed": mode.closed > 0,
        "sliding": args.sliding(mode.closed, mode.stick),
        "ambiguous": args.ambiguous(contact, mode, p) > 0,
    }


@eqx.filter_jit
def _run(
    run: ContactRun, t0: Array, q: Array, v: Array, rest: tuple[Array, Array | None], ts: Array | None
) -> tuple[dict[str, Any], _Solved, dict[str, Array], tuple[Array, Array], dict[str, Array]]:
    """What is told of saved states, with these along the last axes, what the steps left, what a `ContactHistory` tells
    of events, the state (q, v) the run started from, and the last one of its steps."""
    static, arrays = divided(run)
    of_steps = dfx.ForwardMode()
    fn = lambda adjoint, arrays, *given: _from_start(
        adjoint or of_steps, combine_static(static, arrays), *given
    )
    given = arrays, t0, (q, v), rest, ts
    (solved, events, begun), left = run_as_program(fn, *run.settings["adjoint"], *given, smooth=False)
    t, y = scalarize(fill_unreached, fallback="xla")(solved.t, solved.y)
    observed = observe_each(lambda t, y: _observe_saved(run, t, y), t, y)
    last = {name: x[-1] for name, x in zip("qv", solved.y[:2], strict=True)}
    return observed, solved._replace(left=left), events, begun, last


def _from_start(
    adjoint: dfx.AbstractAdjoint,
    run: ContactRun,
    t0: Array,
    y: tuple[Array, Array],
    rest: tuple[Array, Array | None],
    ts: Array | None,
) -> tuple[_Solved, dict[str, Array], tuple[Array, Array]]:
    """The steps from the start on the constraints, with what happens to contacts there."""
    q, v = run.touching.model.start(t0, y)
    y0, happened = run.touching.begun(t0, q, v)
    solved, log = _integrate_by_diffrax(adjoint, run, y0, (t0, *rest), ts)
    # By more than a projection of velocities that were right but for rounding would change them.
    struck = jnp.max(jnp.abs(happened.v - v), initial=0) > 1e3 * jnp.finfo(v.dtype).eps * (
        1 + jnp.max(jnp.abs(v), initial=0)
    )
    told = struck | jnp.any(happened.ambiguous > 0)
    return solved, _collect_events(run, y0[2], prepend_event(log, t0, happened, told)), y0[:2]


def _collect_events(run: ContactRun, begun: Mode, log: Log) -> dict[str, Array]:
    """What a `ContactHistory` tells of the mode in which it began and of what happened."""
    found = events_of(log, begun)
    return {
        "closed_before": begun.closed > 0,
        "sliding_before": run.touching.sliding(begun.closed, begun.stick),
        "event_time": found.t,
        "impulse": found.impulse * run.touching.coefficients.scale[None],
        "event_closed": found.closed > 0,
        "event_sliding": run.touching.sliding(found.closed, found.stick),
        "speed": found.speed,
        "sudden": found.jumped > 0,
        "residual": found.residual,
        "reset": found.reset.astype(jnp.int32),
        "reset_moved": found.moved,
        "event_ambiguous": found.ambiguous > 0,
        "num_events": log.number,
    }
