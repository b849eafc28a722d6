"""Time stepping with contacts at velocity level: Moreau's scheme (Moreau 1988; Jean 1999), with positions projected.

A step of length h takes the state (q, v) to

    q' = q + h/2 N v,    M (v+ - v) = h Q + A^T lambda + J^T p    at q',    q+ = q + h/2 N (v + v+),

where the contacts take part whose gap the motion without impulses would close by the middle of the step, and impulses p
obey Signorini's condition with Newton's restitution and Coulomb's law after the step:

    0 <= p_n  perp  u_n+ + e u_n- >= 0,    |p_t| <= mu p_n + h c,    u_t+ != 0  =>  p_t = -(mu p_n + h c) u_t+ / |u_t+|.

A contact of stiffness k and damping d is a spring and damper at the end of the step, p = -h (k g+ + d u_n+) >= 0. With
its gap g in the middle, which its velocity takes to g+ = g + h u_n+ / 2, and no restitution, this is

    0 <= p_n  perp  u_n+ + c p_n + b >= 0,    c = 1 / (h (h k / 2 + d)),    b = k g / (h k / 2 + d).

Bilateral rows are held by W = M^-1 - M^-1 A^T (A M^-1 A^T)^+ A M^-1 in place of M^-1. Then positions are pushed out of
rigid contacts (`_penetration`), and positions and velocities projected onto the bilateral rows.

Springs and dampers of single coordinates, of stiffness k and damping c, are linearized about the middle of the step:
they add h c / 2 + h^2 k / 4 to the diagonal of M there, and stay stable however stiff they are.

What closes slower than three times the change of speed that forces make within a step does not bounce: so bouncing
ends in contact.

Steps do not end at impacts, so any number of contacts and infinitely many impacts cost no more than others, and the
motion is of first order in h. Forces alone are of second order.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._compiler._structured._scalarize import LeftToXLA, because, scalarize
from .._formula._contact_newton import ContactSolution
from .._misc._derivatives import scan_packed
from .._misc._errors import InputError, Untranslatable
from .._misc._types import choose_by_precision
from .._motion._model import Model
from ._history import ContactHistory
from ._kinds import kinds_of
from ._modes import ambiguous_state
from ._moreau import ContactStep
from ._penetration import Apart, Gaps, solve_push_out
from ._rows import Coefficients, ContactLayout, evaluate_model_part, passing
from ._run_steps import EndPositions, MidpointStage, StepsRun, arrival, free_step, run_steps
from ._solve import ImpulseRows, solve_impulses

# Of the scaled problem: a residual above it means that impulses do not obey the laws.
_UNSOLVED = (1e-8, 1e-3)


class TimeSteppingRun(NamedTuple):
    """A motion by time stepping, at its k saved times.

    - `t`, `q`, `v`: saved times (k,), infinite where they were not reached, and states (k, n_q), (k, n), there the last.
    - `t_end`: where it stopped, infinite if it did not.
    - `push`: the generalized force of the contacts there (k, n).
    - `contacts`: what became of the contacts.
    - `residual`: the largest of all steps, as in `solve_contacts`.
    - `solver_steps`: of the complementarity problems, all together.
    - `impacts`: how many steps had impacts.
    - `unsolved`: in how many steps the residual stayed large; there impulses do not obey the laws.
    - `diverged`: whether a state was not finite; the run stays at the last one that was.
    - `steps`, `rejected`, `passed`: how many were taken, parts of steps included, were taken again in parts, and were so
      long that bodies may have passed through each other.
    - `left`: why they are left to XLA, if they are.
    """

    t: Float[Array, " k"]
    t_end: Float[Array, ""]
    q: Float[Array, "k nq"]
    v: Float[Array, "k n"]
    push: Float[Array, "k n"]
    contacts: ContactHistory
    residual: Float[Array, ""]
    solver_steps: Int[Array, ""]
    impacts: Int[Array, ""]
    unsolved: Int[Array, ""]
    diverged: Bool[Array, ""]
    steps: Int[Array, ""]
    rejected: Int[Array, ""]
    passed: Int[Array, ""]
    left: LeftToXLA = LeftToXLA()


class StepResult(NamedTuple):
    """What a step leaves: positions, velocities, impulses and modes, 1 for contacts that were struck fast (n,), and
    whether the state is off the bilateral rows."""

    q: Array
    v: Array
    found: ContactSolution
    fast: Array
    off: Array


class _Step(NamedTuple):
    """What a step leaves: the state, impulses (m,), and by contact whether it is closed, slides, and was struck (n,)."""

    q: Array
    v: Array
    p: Array
    closed: Array
    sliding: Array
    struck: Array
    residual: Array
    solver_steps: Array
    finite: Array
    off: Array


def steps_within(t0: float, t1: float, h: float) -> int:
    """The number of equal steps from t0 to t1 that are at most h long.

    **Raises:** `InputError` for a step that is not positive.
    """
    if not h > 0:
        raise InputError(f"the time step must be positive, got {h}.")
    return max(1, math.ceil((t1 - t0) / h * (1 - 1e-12)))


def _make_initial_step(layout: ContactLayout, q: Array, v: Array) -> _Step:
    """What there is before a first step."""
    p, none, zero = jnp.zeros(len(layout.owner), q.dtype), jnp.zeros(len(layout.contacts), bool), jnp.int32(0)
    return _Step(
        q, v, p, none, none, none, jnp.zeros((), q.dtype), zero, jnp.asarray(True), jnp.asarray(False)
    )


def contact_step(model: Model, layout: ContactLayout, t: Array, q: Array, v: Array) -> ContactStep:
    """A step over a list of contacts."""
    system: Any = model.system
    kinds = kinds_of(system.system, t, q, v)
    return ContactStep(kinds, layout, v.size, free_step(model), arrival(model), system.kinematics)


def _run_with_derivatives(
    given: Any, by_list: Callable[..., Any], finish: Callable[..., Any], by_arrays: Callable[..., Any]
) -> tuple[Any, LeftToXLA]:
    """What `finish` makes of a function of pytrees, as a program of scalars; its derivatives are those of another one,
    which takes its place where it has no scalar code."""
    arrays, rest = eqx.partition(given, eqx.is_array)
    flat, tree = jax.tree.flatten(arrays)
    whole = lambda flat: eqx.combine(jax.tree.unflatten(tree, flat), rest)
    program, left = scalarize(lambda *flat: by_list(*whole(flat))), LeftToXLA()

    @jax.custom_jvp
    def run(*flat: Array) -> Any:
        nonlocal left
        try:
            found = program(*flat)
        except Untranslatable as error:
            left = because(error)
            return by_arrays(*whole(flat))
        return finish(found, *whole(flat))

    @run.defjvp
    def _(primals: tuple, tangents: tuple) -> Any:
        return run(*primals), jax.jvp(lambda *flat: by_arrays(*whole(flat)), primals, tangents)[1]

    return run(*flat), left


def one_step(
    model: Model,
    layout: ContactLayout,
    coefficients: Coefficients,
    t: Array,
    y: tuple[Array, Array],
    h: Array,
) -> tuple[Array, Array]:
    """The state (q, v) after one step; NaN where it is not finite."""

    def ended(q: Array, v: Array) -> tuple[Array, Array]:
        finite = jnp.all(jnp.isfinite(q)) & jnp.all(jnp.isfinite(v))
        return jnp.where(finite, q, jnp.nan), jnp.where(finite, v, jnp.nan)

    def by_list(model: Model, coefficients: Coefficients, t: Array, y: Any, h: Array) -> tuple[Array, Array]:
        step = contact_step(model, layout, t, *y)
        return ended(*step(t, h, step.before(t, *y), coefficients, jnp.asarray(False))[:2])

    def by_arrays(
        model: Model, coefficients: Coefficients, t: Array, y: Any, h: Array
    ) -> tuple[Array, Array]:
        end = _take_step(model, layout, coefficients, h, _make_initial_step(layout, *y), t)
        return ended(end.q, end.v)

    given = model.ready(), coefficients, t, y, h
    return _run_with_derivatives(given, by_list, lambda end, *_: end, by_arrays)[0]


def _take_step(
    model: Model, layout: ContactLayout, coefficients: Coefficients, h: Array, last: _Step, t: Array
) -> _Step:
    """One step from time t; nothing of a run that has ended."""
    q, v, found, fast, off = _solve_step(model, layout, coefficients, h, last, t)
    p, residual, solver_steps, *modes = found
    closed, sliding = (mode > 0 for mode in modes)
    finite = last.finite & jnp.all(jnp.isfinite(q)) & jnp.all(jnp.isfinite(v)) & jnp.all(jnp.isfinite(p))
    step = _Step(
        *(q, v, p, closed, sliding, closed & (fast > 0), residual, solver_steps.astype(jnp.int32), finite),
        off,
    )
    ended = _idle(last, layout)._replace(finite=finite | last.off)
    return jax.tree.map(lambda new, old: jnp.where(finite & ~last.off, new, old), step, ended)


def _idle(last: _Step, layout: ContactLayout) -> _Step:
    """A step of a run that has ended: the state stays, and nothing happens."""
    start = _make_initial_step(layout, last.q, last.v)
    return last._replace(**{name: getattr(start, name) for name in ("struck", "residual", "solver_steps")})


def _solve_step(
    model: Model, layout: ContactLayout, coefficients: Coefficients, h: Array, last: _Step, t: Array
) -> StepResult:
    """The end of a step, without penetration and on the bilateral rows."""
    x = evaluate_model_part(MidpointStage(layout), model, last.q, last.v, t, h, *coefficients)
    going = (last.finite & ~last.off).astype(x.active.dtype)  # a run that has ended has nothing to solve
    rows, laws = ImpulseRows(x.J, x.W), (coefficients.friction, coefficients.limit * h, x.soft)
    still = jnp.zeros_like(x.free)
    found, change = solve_impulses(layout.contacts, rows, still, x.u, laws, x.active * going, last.p)
    v_end = x.free + change

    def at(d: Array, pi: Array) -> tuple[Array, Array, Array, Apart]:
        end = evaluate_model_part(EndPositions(), model, last.q, last.v + v_end, t, h, x.middle, d)
        y, off = (end.q, v_end), jnp.zeros((), bool)
        (q, v), off = model.kept(end.t, y) if model.system.constraints else (y, off)
        return q, v, off, evaluate_model_part(Gaps(layout), model, q, v, end.t, pi)

    d = solve_push_out(lambda d, pi: at(d, pi)[3], layout, x.W, v_end.size) if len(layout.normals) else still
    q, v, off, _ = at(d, jnp.zeros_like(last.p))
    return StepResult(q, v, found, x.fast, off)


def run_time_stepping(
    model: Model,
    layout: ContactLayout,
    coefficients: Coefficients,
    y0: tuple[Float[Array, " nq"], Float[Array, " n"]],
    span: tuple[Array, Array],
    steps: int | Int[Array, ""],
    ts: Float[Array, " k"],
    *,
    room: int | None = None,
    most_impacts: int = 100,
    stops: bool = True,
    splits: bool = False,
) -> TimeSteppingRun:
    """The motion by equal time steps, as the module's docstring says; for use inside `jit`, `vmap` and `grad`.

    If it `splits` steps, those that take thin bodies through each other are taken in parts. Then derivatives are those of
    other steps.

    Saved states between steps are interpolated linearly, and projected onto the bilateral rows; forces there are impulses
    over h. An impact is a contact that closes faster than forces move it within one step; its time is that step's middle.

    Derivatives are those of the steps, by the implicit function theorem at each solution. They are not those of the
    motion, however small h is, where there are impacts: the time of an impact does not move with the state, but stays in
    its step. Of a ball that falls from h0 and bounces, d z/d h0 is +1, or 0 where its place was pushed out of the floor,
    instead of -0.208.

    With restitution in the normal direction and none in the tangential one, Moreau's law can create energy in an impact
    with friction.
    """
    dtype = y0[0].dtype
    unsolved = choose_by_precision(dtype, *_UNSOLVED)

    def by_list(
        model: Model, coefficients: Coefficients, y0: Any, t0: Array, t1: Array, count: Array, ts: Array
    ) -> tuple[TimeSteppingRun, Array]:
        h = (t1 - t0) / count.astype(dtype)
        step, grid = contact_step(model, layout, t0, *y0), (t0, h, count)
        found = run_steps(
            step, coefficients, y0, grid, ts, most_impacts, unsolved, stops=stops, splits=splits
        )
        t, there, t_end = _clip_saved_times(ts, h, found.off, found.until)
        return _assemble_run(layout, coefficients, found, (t, t_end), y0, most_impacts), there

    def finish(found: tuple[TimeSteppingRun, Array], model: Model, *_: Any) -> TimeSteppingRun:
        told, there = found
        if not model.system.constraints:
            return told
        # By the code that the start is projected by, which is large: once is enough for it to be in a program.
        q, v = jax.lax.map(lambda x: model.project(*x), (there, (told.q, told.v)))
        return told._replace(q=q, v=v)

    def by_arrays(
        model: Model, coefficients: Coefficients, y0: Any, t0: Array, t1: Array, count: Array, ts: Array
    ) -> TimeSteppingRun:
        h = (t1 - t0) / count.astype(dtype)
        return _run_by_arrays(
            model,
            layout,
            coefficients,
            y0,
            (t0, h, count if room is not None else steps),
            ts,
            room,
            most_impacts,
            stops=stops,
        )

    t0, t1 = (jnp.asarray(x, dtype) for x in span)
    given = model.ready(), coefficients, y0, t0, t1, jnp.asarray(steps), ts
    found, left = _run_with_derivatives(given, by_list, finish, by_arrays)
    return found._replace(left=left)


def _clip_saved_times(ts: Array, h: Array, off: Array, until: Array) -> tuple[Array, Array, Array]:
    """Saved times, infinite after the end of a run that stopped; the same, at the end instead; and that end."""
    t_end = jnp.where(off, until, jnp.inf)
    there = jnp.minimum(ts, t_end)
    return jnp.where(ts <= t_end + 1e-9 * h, there, jnp.inf), there, t_end


def _assemble_run(
    layout: ContactLayout,
    coefficients: Coefficients,
    found: StepsRun,
    t: tuple[Array, Array],
    y0: tuple[Array, Array],
    most: int,
) -> TimeSteppingRun:
    """What a run over a list of contacts has found."""
    ts, t_end = t
    k, n, m, saved, impacts = ts.size, len(layout.contacts), len(layout.owner), found.saved, found.impacts
    rows = lambda x, count: jnp.reshape(x[: k * count], (k, count))
    of_impacts = lambda x, count: jnp.reshape(x[: most * count], (most, count))
    time = impacts.time
    history = _history_of(
        layout,
        coefficients,
        most,
        gap=rows(saved.gap, n),
        force=rows(saved.force, m),
        closed=rows(saved.closed, n) > 0,
        sliding=rows(saved.sliding, n) > 0,
        ambiguous=rows(saved.ambiguous, n) > 0,
        event_time=time,
        impulse=of_impacts(impacts.impulse, m),
        event_closed=of_impacts(impacts.closed, n) > 0,
        event_sliding=of_impacts(impacts.sliding, n) > 0,
        residual=impacts.residual,
        num_events=found.num_impacts,
    )
    q, v, push = (rows(x, y.size) for x, y in ((saved.q, y0[0]), (saved.v, y0[1]), (saved.push, y0[1])))
    counts = found.solver_steps, found.num_impacts, found.unsolved, found.steps, found.rejected, found.passed
    solver_steps, count, unsolved, steps, rejected, passed = (x.astype(jnp.int32) for x in counts)
    ended = ~found.finite, steps, rejected, passed
    return TimeSteppingRun(
        ts, t_end, q, v, push, history, found.residual, solver_steps, count, unsolved, *ended
    )


def _history_of(
    layout: ContactLayout, coefficients: Coefficients, most: int, **found: Array
) -> ContactHistory:
    """What became of the contacts, with what time steps do not know."""
    time, none = found["event_time"], jnp.zeros(len(layout.contacts), bool)
    found |= {name: found[name] * coefficients.scale[None] for name in ("force", "impulse")}
    return ContactHistory(
        names=layout.names,
        contacts=layout.contacts,
        angles=layout.angles,
        turning=layout.turning,
        closed_before=none,
        sliding_before=none,
        speed=jnp.full(most, jnp.nan, time.dtype),
        sudden=jnp.zeros(most, bool),
        event_ambiguous=jnp.zeros((most, len(layout.contacts)), bool),
        reset=jnp.full(most, -1),
        reset_names=(),
        reset_moved=jnp.zeros(most, time.dtype),
        **found,
    )


def _run_by_arrays(
    model: Model,
    layout: ContactLayout,
    coefficients: Coefficients,
    y0: tuple[Array, Array],
    grid: tuple[Array, Array, int | Array],
    ts: Array,
    room: int | None,
    most_impacts: int,
    *,
    stops: bool,
) -> TimeSteppingRun:
    """The same run by operations on arrays, which JAX differentiates."""
    (t0, h, steps), q0 = grid, y0[0]
    model, start, until = model.ready(), _make_initial_step(layout, *y0), jnp.asarray(steps, q0.dtype)

    def one(last: _Step, i: Array) -> _Step:
        step = _take_step(model, layout, coefficients, h, last, t0 + h * i)
        return step._replace(off=step.off & stops)

    idle = lambda last, i: _idle(last, layout)

    def advanced(last: _Step, i: Array) -> tuple[_Step, _Step]:
        new = one(last, i) if room is None else jax.lax.cond(i < until, one, idle, last, i)
        return new, new

    numbers = jnp.arange(steps if room is None else room, dtype=q0.dtype)
    end, taken = scan_packed(advanced, start, numbers)
    stopped = jnp.concatenate([start.off[None], taken.off[:-1]]) | ~taken.finite
    count = jnp.sum((numbers < until) & ~stopped).astype(jnp.int32)
    t, ts, t_end = _clip_saved_times(ts, h, end.off, t0 + h * count.astype(h.dtype))
    q, v = _interpolate_states(model, y0, taken, t0, h, ts)
    history, push = _history(model, layout, coefficients, taken, (t0, h), (ts, q, v), most_impacts)
    residual, struck = taken.residual, jnp.any(taken.struck, axis=1)
    unsolved = jnp.sum(residual > choose_by_precision(q0.dtype, *_UNSOLVED))
    solver_steps, impacts, unsolved = (
        jnp.sum(x).astype(jnp.int32) for x in (taken.solver_steps, struck, unsolved)
    )
    worst, diverged, none = jnp.max(residual), ~end.finite, jnp.int32(0)
    return TimeSteppingRun(
        t, t_end, q, v, push, history, worst, solver_steps, impacts, unsolved, diverged, count, none, none
    )


def _step_of(taken: _Step, t0: Array, h: Array, ts: Array) -> tuple[Array, Array]:
    """The step in which saved times lie, and how far in it, from 0 to 1; an end of a step belongs to it."""
    steps = taken.finite.shape[0]
    place = (ts - t0) / h
    step = jnp.clip(jnp.ceil(jax.lax.stop_gradient(place) - 1e-9) - 1, 0, steps - 1)
    return step.astype(jnp.int32), place - step


def _interpolate_states(
    model: Model, y0: tuple[Array, Array], taken: _Step, t0: Array, h: Array, ts: Array
) -> tuple[Array, Array]:
    """States at saved times."""
    step, s = _step_of(taken, t0, h, ts)
    s = s[:, None]
    between = lambda x0, x: (1 - s) * jnp.concatenate([x0[None], x])[step] + s * x[step]
    y = between(y0[0], taken.q), between(y0[1], taken.v)
    if not model.system.constraints:
        return y
    # One after the other, by the code that the start is projected by: as a batch it would be compiled once more.
    return scan_packed(lambda _, x: ((), model.project(*x)), (), (ts, y))[1]


def _ambiguous(
    model: Model,
    layout: ContactLayout,
    coefficients: Coefficients,
    saved: tuple[Array, Array, Array],
    found: tuple[Array, Array, Array],
    h: Array,
) -> Array:
    of_one = lambda *x: ambiguous_state(model, layout, coefficients, h, *x)
    found = jax.tree.map(lambda x: x.astype(saved[1].dtype), found)
    return jax.vmap(of_one)(*jax.lax.stop_gradient((saved, found))) > 0


def _history(
    model: Model,
    layout: ContactLayout,
    coefficients: Coefficients,
    taken: _Step,
    grid: tuple[Array, Array],
    saved: tuple[Array, Array, Array],
    most: int,
) -> tuple[ContactHistory, Array]:
    """What became of the contacts, and their generalized force at saved times (k, n)."""
    (t0, h), (ts, q, v) = grid, saved
    step, _ = _step_of(taken, t0, h, ts)
    force = taken.p[step] / h
    modes = taken.closed[step], taken.sliding[step]
    seen = jax.vmap(lambda *x: evaluate_model_part(passing, model, *x))(ts, q, v, jnp.zeros_like(v))
    struck = jnp.any(taken.struck, axis=1)
    found = jnp.nonzero(struck, size=most, fill_value=struck.size)[0]
    there = found < struck.size
    which = jnp.minimum(found, struck.size - 1)
    time = jnp.where(there, t0 + (which.astype(h.dtype) + 0.5) * h, jnp.inf)
    impulse = jnp.where((there[:, None] & taken.struck[which])[:, layout.owner], taken.p[which], 0)
    history = _history_of(
        layout,
        coefficients,
        most,
        gap=seen.gap,
        force=force,
        closed=modes[0],
        sliding=modes[1],
        ambiguous=_ambiguous(model, layout, coefficients, saved, (force, *modes), h),
        event_time=time,
        impulse=impulse,
        event_closed=taken.closed[which],
        event_sliding=taken.sliding[which],
        residual=taken.residual[which],
        num_events=jnp.sum(struck),
    )
    return history, jnp.einsum("km,kmv->kv", force, seen.J)
