"""The steps of a run, compiled once, and how they are differentiated: one program of scalars.

Explicit Runge-Kutta methods have a loop of our own (`explicit_run`), every other solver that of Diffrax. What has no
scalar code is Diffrax's loop by XLA.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .._compiler import cached_or_untranslatable, compiler_is_here, looks_for_nans
from .._compiler._structured._scalarize import LeftToXLA, ScalarFunction, explain_fallback, scalarize
from .._misc._closures import Static, combine_static, partition_static
from .._misc._derivatives import once_through_events, reverse_only
from .._misc._errors import Untranslatable
from .._misc._jax_programs import diffrax_called
from .._misc._types import as_jax, in_full_precision, is_traced
from .._motion._model import Model
from .._motion._solvers import (
    Stop,
    end_of_step,
    inflate_error_if_singular,
    judge_constraints,
    shortest_step,
    with_projection,
    with_scan,
)
from . import _options
from ._events import leave_zeros, separate_events
from ._observe import RunStates, errors_at
from ._results import RESULTS, code, result_of, step_counts, to_diffrax_result

# --- The one door to Diffrax: integrates v' = a and q' = N v

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
        if model.stabilizer.projects:
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
    # Of a span that is NaN, Diffrax does nothing, and calls it success.
    result = jnp.where(jnp.isnan(span[1] - span[0]), code(RESULTS.diverged), result)
    return dataclasses.replace(solution, result=result_of(result))


@in_full_precision
def _with_start(settings: dict[str, Any], model: Model, t0: Array, y0: State) -> dict[str, Any]:
    """The event, told where the run starts, and the controller that keeps several of them apart."""
    if settings["event"] is None:
        return {}
    field = lambda t, y: vector_field(t, y, model)
    event = leave_zeros(settings["event"], model.system.kinematics, t0, y0, field)
    return {"event": event, "stepsize_controller": separate_events(settings["stepsize_controller"], event)}


def integrate(
    model: Model,
    y0: State,
    span: Span,
    ts: Array | None,
    settings: dict[str, Any],
    solver: dfx.AbstractSolver,
    dense: bool,
) -> RunStates:
    """The steps of a run, by Diffrax."""
    settings = settings | _with_start(settings, model, span[0], y0)
    solution = _diffeqsolve(model, y0, span, ts, settings, solver, dense)
    assert solution.ts is not None
    assert solution.ys is not None
    stats = statistics(model, solver, *(solution.stats[f"num_{name}steps"] for name in ("", "accepted_")))
    t = jnp.concatenate(solution.ts)
    q, v = map(jnp.concatenate, zip(*solution.ys, strict=True))
    result: Any = solution.result  # one of ours: `_diffeqsolve` promotes it
    return RunStates(t, q, v, stats, result, solution.interpolation, solution.event_mask)


def statistics(model: Model, solver: dfx.AbstractSolver, steps: Any, accepted: Any) -> dict[str, Any]:
    """The statistics of a run: steps, those accepted, and evaluations where they are known."""
    counts = step_counts(steps, accepted)
    evaluations = _options.evaluations(solver, model.stabilizer, counts)
    if evaluations is not None:
        counts["num_evaluations"] = (jnp if is_traced(steps) else np).asarray(evaluations, np.int32)
    return counts


# --- Runs by explicit Runge-Kutta methods: steps, their projection, step control and saved times in one loop
#
# Tableaus, interpolation and controllers are Diffrax's; the loop is what its own does with them, and takes the same
# steps. Diffrax's serves every other solver. It cannot project states that it saves, and to trace it takes longer than
# a short run with all else.

_NEAR_END = 100  # units of rounding within which a step is moved to the end, as Diffrax does
_TERMS = dfx.ODETerm(lambda t, y, args: y)  # of which a solver asks what kind of equation they are
_RESULT = jax.tree.structure(dfx.RESULTS.successful)


class UnfitError(Exception):
    """A controller asks for what only Diffrax's loop gives it."""


class _Unknown:
    """Stands for the terms and the arguments of a run, at which Diffrax's own controllers do not look."""

    def __getattr__(self, name: str) -> NoReturn:
        raise UnfitError(f"a controller asks for {name} of the terms or the arguments")


_UNKNOWN: Any = _Unknown()


def is_explicit(solver: dfx.AbstractSolver) -> bool:
    """Whether a solver is an explicit Runge-Kutta method and no more."""
    kind = type(solver)
    # A wrapper of Diffrax's, such as HalfSolver, is an instance of what it wraps, but its class is not a subclass.
    plain = issubclass(kind, dfx.AbstractERK) and kind.step is dfx.AbstractERK.step
    return plain and isinstance(getattr(kind, "tableau", None), dfx.ButcherTableau)


def fits(solver: dfx.AbstractSolver, settings: dict[str, Any], dense: bool) -> bool:
    """Whether a run that does not save every step is one of those here, unless its controller is unfit."""
    silent = isinstance(settings["progress_meter"], dfx.NoProgressMeter)
    return is_explicit(solver) and settings["event"] is None and silent and not dense


def _coefficients(tableau: dfx.ButcherTableau) -> tuple[np.ndarray, np.ndarray]:
    """a (s, s) and c (s,) of all stages, the first among them."""
    a, c = np.zeros((tableau.num_stages,) * 2), np.zeros(tableau.num_stages)
    for i, row in enumerate(tableau.a_lower):
        a[i + 1, : i + 1] = row
    c[1:] = tableau.c
    return a, c


def _sum(weights: np.ndarray, stages: Array) -> Array:
    """Of stages, one a row. Weights of zero cost nothing in a program of scalars."""
    return lax.dot_general(jnp.asarray(weights, stages.dtype), stages, (((0,), (0,)), ((), ())))


class _Steps:
    """The steps of a method, whose states are vectors of q and v."""

    def __init__(self, model: Model, solver: Any, n_q: int):
        self.model, self._n_q, self._tableau = model.ready(), n_q, solver.tableau
        self._a, self._c = _coefficients(solver.tableau)

    def parts(self, y: Array) -> State:
        """(q, v)."""
        return y[: self._n_q], y[self._n_q :]

    def nearness(self, t: Array, y: Array) -> Array:
        """How close to singular the rows are where a run starts."""
        if not self.model.stabilizer.projects or self.model.projection is None:
            return jnp.full((), jnp.inf, y.dtype)  # no step is refused for that
        return self.projected(t, y, y)[2]

    def projected(self, t: Array, y: Array, error: Array) -> tuple[Array, Array, Array]:
        """The state, its error estimate and the nearness, as `end_of_step`.

        Where no estimate is asked for, one that is not zero has it be the same function for LLVM.
        """
        pair, error_pair, near = end_of_step(self.model, t, self.parts(y), self.parts(error))
        assert error_pair is not None
        return jnp.concatenate(pair), jnp.concatenate(error_pair), near

    def slope(self, t: Array, y: Array, near: Array) -> Array:
        """y' in a step that starts with this nearness."""
        model = self.model
        here = model if model.projection is None else dataclasses.replace(model, nearness=near)
        return jnp.concatenate(vector_field(t, self.parts(y), here))

    def stages(
        self, start: Array, end: Array, h: Array, y: Array, near: Array, first: Array | None
    ) -> tuple[Array, Array, Array]:
        """The end of a step, its error estimate, and y' at the stages (s, n), of which the first may be known.

        Its length h is not the difference of its ends where these are large: that is rounded.
        """
        k = None
        for a, c in zip(self._a, self._c, strict=True):
            if k is None:
                new = self.slope(start, y, near) if first is None else first
            else:
                at = end if c == 1 else start + h * float(c)
                new = self.slope(at, y + h * _sum(a[: len(k)], k), near)
            row = lax.expand_dims(new, (0,))
            k = row if k is None else lax.concatenate([k, row], 0)
        assert k is not None
        return y + h * _sum(self._tableau.b_sol, k), h * _sum(self._tableau.b_error, k), k


@in_full_precision
def explicit_step(model: Model, solver: Any, t: Array, y: State, dt: Array) -> State:
    """One step of a method, projected if states are."""
    steps, start, end = _Steps(model, solver, y[0].size), jnp.concatenate(y), t + dt
    y1, error, _ = steps.stages(t, end, dt, start, steps.nearness(t, start), None)
    return steps.parts(steps.projected(end, y1, error)[0] if model.stabilizer.projects else y1)


def _next_times(accepted: Any, t: Any, t_next: Any, t1: Array, near_end: Array) -> tuple[Array, Array]:
    """The start and the end of the next step: one that would end near the end of the run ends there."""
    t = jnp.minimum(t, t1)
    # Where a step was refused, at most half way. Diffrax goes half way even where less is asked for, for ever.
    short = jnp.where(accepted, t1, jnp.minimum(t_next, t + 0.5 * (t1 - t)))
    return t, jnp.where(t_next > near_end, short, t_next)


def _no_field(*_: Any) -> NoReturn:
    raise UnfitError("a controller evaluates the field")


@in_full_precision
def explicit_run(
    model: Model,
    y0: State,
    span: Span,
    ts: Array,
    settings: dict[str, Any],
    solver: Any,
    *,
    settled: bool = False,
) -> RunStates:
    """The steps of a run."""
    controller, most, stop = (settings.get(x) for x in ("stepsize_controller", "max_steps", "stop"))
    steps, projects = _Steps(model, solver, y0[0].size), model.stabilizer.projects
    keeps = solver.tableau.fsal and not projects  # the last stage, for the next step
    order, y = solver.error_order(_TERMS), jnp.concatenate(y0)
    assert controller is not None
    t0, t1, dt0 = span
    forward = jnp.where(t1 < t0, -1, 1).astype(y.dtype)
    t0, t1, ts, dt0 = forward * t0, forward * t1, forward * ts, None if dt0 is None else forward * dt0
    near_end = t1 - _NEAR_END * jnp.spacing(jnp.abs(t1))

    t_next, kept = controller.init(_UNKNOWN, t0, t1, y0, dt0, _UNKNOWN, _no_field, order)
    near = steps.nearness(forward * t0, y)
    k0 = steps.slope(forward * t0, y, near) if keeps else jnp.zeros(0, y.dtype)
    saved = jnp.full((len(ts), 1 + y.size), jnp.inf, y.dtype)  # times, and states
    counts = [jnp.zeros((), jnp.int32)] * 4  # of steps, of those accepted, the result, and of times saved
    kept, longest = jax.tree.map(jnp.asarray, kept), jnp.zeros_like(t0)
    first = jnp.asarray(True), t0, jnp.minimum(t_next, t1), kept, near, longest, *counts, y, k0, saved

    def controlled(t: Array, t_next: Array, kept: Any, y: Array, y1: Array, pair: Any) -> Any:
        pair = jax.tree.map(lambda x: jnp.where(jnp.isnan(x), jnp.inf, x), pair)
        given = t, t_next, steps.parts(y), steps.parts(y1), _UNKNOWN, pair, order, kept
        accepted, t, t_next, jumped, kept, result = controller.adapt_step_size(*given)
        if keeps and jumped is not False:
            raise UnfitError(
                "a controller jumps, and the first stage of a step is the last of the one before"
            )
        return jnp.asarray(accepted), *_next_times(accepted, t, t_next, t1, near_end), kept, result

    def save(
        count: Array, saved: Array, t: Array, t_next: Array, accepted: Array, y: Array, y1: Array, k: Any
    ) -> Any:
        """The state at times within the step, by the method's interpolation."""
        at = lambda count: ts[jnp.minimum(count, len(ts) - 1)]
        due = lambda state: accepted & (state[0] < len(ts)) & (at(state[0]) <= t_next)
        h = forward * t_next - forward * t
        between = type(solver).interpolation_cls(t0=forward * t, t1=forward * t_next, y0=y, y1=y1, k=h * k)

        def one(state: Any) -> Any:
            count, saved = state
            t = forward * at(count)
            y = between.evaluate(t)
            y = steps.projected(t, y, y)[0] if settled else y
            return count + 1, saved.at[count].set(jnp.append(t, y))

        return lax.while_loop(due, one, (count, saved))

    def step(state: Any) -> Any:
        _, t, t_next, kept, near, longest, tried, taken, result, count, y, k0, saved = state
        start, end = forward * t, forward * t_next
        y1, error, k = steps.stages(start, end, end - start, y, near, k0 if keeps else None)
        near1, v, broken = near, steps.parts(y1)[1], jnp.asarray(False)
        if projects:
            y1, error, near1 = steps.projected(end, y1, error)
        pair = steps.parts(lax.stop_gradient(error))
        if projects:
            near1 = lax.stop_gradient(near1)
            pair = inflate_error_if_singular(pair, near1, near)
        if projects and stop is not None:
            of_step = t_next - t, shortest_step(t, t1), longest
            pair, broken = judge_constraints(pair, near1, v, steps.parts(y1)[1], *of_step)
        accepted, after, t_after, kept, told = controlled(t, t_next, kept, y, y1, pair)
        if len(ts):
            count, saved = save(count, saved, t, t_next, accepted, y, y1, k)
        if stop is not None:
            result = jnp.where(accepted & broken, jnp.asarray(stop, jnp.int32), result)
        before = jax.tree.unflatten(_RESULT, [result])
        result = dfx.RESULTS.where(dfx.is_okay(before), told, before)
        tried, taken = tried + 1, taken + jnp.where(accepted, 1, 0)
        unfinished = (after < t1) & dfx.is_successful(result)
        goes_on = unfinished & (tried < most)
        stopped = dfx.RESULTS.where(unfinished & ~goes_on, dfx.RESULTS.max_steps_reached, result)
        y, near = jnp.where(accepted, y1, y), jnp.where(accepted, near1, near)
        longest = jnp.where(accepted, jnp.maximum(longest, t_next - t), longest)
        k0 = jnp.where(accepted, k[-1], k0) if keeps else k0
        (result,) = jax.tree.leaves(stopped)
        return goes_on, after, t_after, kept, near, longest, tried, taken, result, count, y, k0, saved

    _, t, *_, tried, taken, result, _, y, _, saved = lax.while_loop(lambda state: state[0], step, first)
    at = jnp.concatenate([saved, jnp.append(forward * t, y)[None]])
    q, v = at[:, 1 : 1 + y0[0].size], at[:, 1 + y0[0].size :]
    return RunStates(
        at[:, 0], q, v, statistics(model, solver, tried, taken), result_of(result), None, None, settled
    )


# --- The steps of a run as one program


R = TypeVar("R")

Start = Callable[[Model, Array, State], tuple[State, Any]]

# Adjoints whose derivatives are those of the steps, which a program of scalars has in both modes by itself.
_OF_STEPS = (dfx.ForwardMode, dfx.DirectAdjoint)


def ends_with_step(adjoint: dfx.AbstractAdjoint | None, event: Any, left: LeftToXLA) -> bool:
    """Whether a run ends where a step does, on the constraints, and its derivatives are those of the steps."""
    return event is None and not left.reason and (adjoint is None or isinstance(adjoint, _OF_STEPS))


def run_as_program(
    fn: Callable[..., R],
    adjoint: dfx.AbstractAdjoint | None,
    default: dfx.AbstractAdjoint,
    *arrays: Any,
    smooth: bool = True,
) -> tuple[R, LeftToXLA]:
    """What a function that integrates gives, as one program of scalars, which has derivatives by itself.

    What has no scalar code is left to XLA, and it is told why; so is a run with an adjoint that is told how to go back.
    """
    once = (lambda x: x) if smooth else once_through_events
    left = LeftToXLA()
    if adjoint is None or isinstance(adjoint, _OF_STEPS):
        try:
            return once(scalarize(functools.partial(fn, None))(*once(arrays))), left
        except Untranslatable as error:
            left = explain_fallback(error)
    return fn(default if adjoint is None else adjoint, *arrays), left


def _steps(
    static: Static,
    settled: bool,
    adjoint: dfx.AbstractAdjoint | None,
    arrays: Any,
    y0: State,
    span: Span,
    ts: Array | None,
) -> RunStates:
    """The steps of a run; within a program of scalars there is no adjoint, and saved states may be projected."""
    model, settings, solver, dense = combine_static(static, arrays)
    if adjoint is None and ts is not None and fits(solver, settings, dense):
        try:
            settled = settled and model.projection is not None
            return explicit_run(model, y0, span, ts, settings, solver, settled=settled)
        except UnfitError:
            if not isinstance(settings["max_steps"], int):
                raise
            # Diffrax takes no times beyond the end.
            ts = jnp.where(ts < jnp.inf, ts, span[1])
    settings = settings | {"adjoint": dfx.ForwardMode() if adjoint is None else adjoint}
    states = integrate(model, y0, span, ts, settings, solver, dense)
    if isinstance(
        adjoint, dfx.BacksolveAdjoint
    ):  # Equinox has no rule for cotangents that are known to be zero
        arrays, rest = eqx.partition(states, eqx.is_inexact_array)
        states = eqx.combine(_with_whole_cotangents(arrays), rest)
    return states


@jax.custom_vjp
def _with_whole_cotangents(tree: R) -> R:
    """The same arrays; in reverse mode JAX writes out zeros for rules of this kind."""
    return tree


_with_whole_cotangents.defvjp(lambda tree: (tree, None), lambda _, cotangents: (cotangents,))


def integrate_from_start(
    start: Start | None,
    static: Static,
    reverse: bool,
    arrays: Any,
    state: State,
    span: Span,
    ts: Array | None,
) -> tuple[RunStates, Any, bool]:
    """The steps of a run as one program, what its start tells, and whether it `ends_with_step`."""
    settings = combine_static(static, arrays)[1]
    adjoint, event = settings["adjoint"], settings["event"]

    def run(
        adjoint: dfx.AbstractAdjoint | None, arrays: Any, state: State, span: Span, ts: Any
    ) -> tuple[RunStates, Any]:
        y0, told = start(combine_static(static, arrays)[0], span[0], state) if start else (state, None)
        return _steps(static, False, adjoint, arrays, y0, span, ts), told

    asked = None if reverse else adjoint
    given = arrays, state, span, ts
    (solved, told), left = run_as_program(run, asked, adjoint, *given, smooth=event is None)
    return solved._replace(left=left), told, ends_with_step(asked, event, left)


@functools.partial(jax.jit, static_argnums=(0, 1))
def integrate_run(
    static: Static, reverse: bool, arrays: Any, y0: State, span: Span, ts: Array | None
) -> RunStates:
    """The steps of a run from where it is to start."""
    return integrate_from_start(None, static, reverse, arrays, y0, span, ts)[0]


@cached_or_untranslatable
def _program_of(static: Static, tree: Any) -> ScalarFunction[..., RunStates]:
    """The steps of a run, with saved states projected, from leaves of its arrays."""

    def run(leaves: list[Any], y0: State, span: Span, ts: Array | None) -> RunStates:
        return _steps(static, True, None, jax.tree.unflatten(tree, leaves), y0, span, ts)

    return scalarize(run)


@final
class CompiledRun:
    """The steps of runs that have values: of one structure, with the same parameters."""

    def __init__(self, static: Static, reverse: bool, arrays: Any):
        self._given = static, reverse, arrays
        model, settings, solver, dense = combine_static(static, arrays)
        self._fits = fits(solver, settings, dense)
        self._by_program = reverse or isinstance(settings["adjoint"], _OF_STEPS)
        # Where Diffrax's loop need not know, `max_steps` is a number like others: one program serves all.
        most = jax.device_put(np.int32(settings["max_steps"]))
        self._counted = partition_static(
            (model, settings | {"max_steps": most, "adjoint": None}, solver, dense)
        )
        self._known: dict[Any, Callable[..., RunStates]] = {}

    def __call__(self, y0: State, span: Span, ts: Any) -> RunStates:
        """The steps of a run, by machine code that Python itself calls, or by JAX."""
        if self._by_program and compiler_is_here() and not looks_for_nans():
            try:
                return _as_jax_arrays(self._by_python(y0, span, ts))
            except Untranslatable:  # which JAX is told again, and tells
                self._by_program = False
        return integrate_run(*self._given, y0, span, pad_times(ts, span[1]))

    def _by_python(self, y0: State, span: Span, ts: Any) -> RunStates:
        if self._fits and ts is not None:
            try:
                return self._by_program_of(self._counted, y0, span, pad_times(ts, np.inf, _FEW))
            except UnfitError:
                self._fits = False
        static, _, arrays = self._given
        return self._by_program_of((static, arrays), y0, span, pad_times(ts, span[1]))

    def _by_program_of(self, of: tuple[Static, Any], y0: State, span: Span, times: Any) -> RunStates:
        count = None if times is None else len(times)
        if count not in self._known:
            static, arrays = of
            leaves, tree = jax.tree.flatten(arrays)
            self._known[count] = _program_of(static, tree).on_host(leaves, y0, span, times)
        return self._known[count](y0, span, times)


_FEW = 256
"""Times to save at that no run of ours has less of: what is never reached takes no time."""


def pad_times(ts: Any, by: Any, least: int = 1) -> Any:
    """Times to save at, their number a power of two, so that runs that differ in it share what is compiled."""
    if ts is None:
        return None
    return np.append(ts, np.full(max(least, 2 ** (len(ts) - 1).bit_length()) - len(ts), by, ts.dtype))


def _as_jax_arrays(solved: RunStates) -> RunStates:
    """What is not numbers alone as arrays of JAX."""
    interpolation, mask = jax.tree.map(as_jax, (solved.interpolation, solved.event_mask))
    (result,) = jax.tree.leaves(solved.result)
    return solved._replace(
        result=result_of(result), settled=bool(solved.settled), interpolation=interpolation, event_mask=mask
    )


# --- The errors along a run, and nothing else of it: for tuning

_SAME = 1e-6  # steps by which a fixed step may miss the end that it is to reach


def _ends_of_steps(span: Span, most: int) -> tuple[Array, Array]:
    """The ends of fixed steps, the start among them, and which of them there are."""
    t0, t1, dt0 = span
    assert dt0 is not None
    steps = jnp.arange(most + 1).astype(dt0.dtype)
    last = jnp.ceil((t1 - t0) / dt0 - _SAME)
    return jnp.where(steps < last, t0 + steps * dt0, t1), steps <= last


@functools.partial(scalarize, fallback="xla")
def _evaluate_errors(of: Static, arrays: Any, t: Array, q: Array, v: Array) -> tuple[Array, Array]:
    return errors_at(combine_static(of, arrays), t, q, v)


def errors_along(
    model: Model,
    y0: State,
    span: Span,
    ts: Array | None,
    settings: dict[str, Any],
    solver: dfx.AbstractSolver,
    *,
    reverse: bool,
) -> tuple[Array, tuple[Array, Array], dict[str, Any], Array]:
    """Only the errors of a run: much less to compute and to differentiate than a `Trajectory`.

    **Returns:** times, errors (phi, psi) there, statistics, and whether the run reached its end.
    """
    settings = {"event": None, "progress_meter": dfx.NoProgressMeter()} | settings
    times, there = (ts, True) if ts is not None else _ends_of_steps(span, settings["max_steps"])
    model = model.ready()
    static, arrays = partition_static((model, settings, solver, False))
    start = model.project(span[0], y0)
    solved = integrate_run(static, reverse, arrays, start, span, times)
    t = jnp.where(there, solved.t[:-1], jnp.inf)
    # States that were not reached are infinite, and so would be their derivatives.
    reached = jnp.isfinite(t)[:, None]
    q, v = (jnp.where(reached, x[:-1], x[-1:]) for x in (solved.q, solved.v))
    errors = jax.vmap(functools.partial(_evaluate_errors, *partition_static(model.system)))(
        jnp.where(reached[:, 0], t, span[1]), q, v
    )
    return t, errors, solved.stats, solved.result == RESULTS.successful
