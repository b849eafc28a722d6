"""The one door to Diffrax: integrates v' = a and q' = N v."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._batch import Pooled, can_be_pooled
from .._formula._acceleration import AbstractFormula
from .._misc._arguments import real_array, require_instance, require_solver, whole_number
from .._misc._callbacks import arguments_checked
from .._misc._closures import hoisted
from .._misc._errors import InputError
from .._misc._precision import in_full_precision
from .._misc._types import Coordinates, Time, Velocities, is_traced
from .._motion._energy_projection import projected
from .._motion._model import Model, coded
from .._motion._project import Projection
from .._system._problem import Problem, resolve_state
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from . import _options
from ._failure import explained
from ._observe import assembled, errors_at, throw_if_failed
from ._start import checked_start
from ._trajectory import RESULTS, Trajectory


@in_full_precision
def vector_field(t: Array, y: tuple[Array, Array], model: Model) -> tuple[Array, Array]:
    """(q', v') of the state (q, v).

    **Arguments:**

    - `t`: time [s].
    - `y`: the state (q, v).
    - `model`: the system and how its acceleration is computed.
    """
    q, v = y
    return model.system.kinematics(t, q, v), model.acceleration(t, q, v)


@eqx.filter_jit
@in_full_precision
def _integrate(
    model: Model,
    y0: tuple[Array, Array],
    span: tuple[Array, Array, Array | None],
    ts: Array | None,
    settings: dict[str, Any],
    solver: dfx.AbstractSolver,
    dense: bool,
    keep: Callable[[Array, Any, Model], Any] | None = None,
) -> dfx.Solution:
    """The Diffrax solve: saves the state, or `keep` of it, at `ts` (None: at every step), and the final state."""
    t0, t1, dt0 = span
    if isinstance(model.stabilizer, Projection):
        solver = projected(solver)
    if can_be_pooled(settings, ts, dense, keep):
        settings = settings | {"adjoint": Pooled()}
    backsolve = isinstance(settings["adjoint"], dfx.BacksolveAdjoint)
    if backsolve:  # takes one list of times only
        saveat = dfx.SaveAt(ts=jnp.append(ts, t1))
    else:
        kept = dfx.SubSaveAt(t0=ts is None, ts=ts, steps=ts is None, **({} if keep is None else {"fn": keep}))
        saveat = dfx.SaveAt(subs=(kept, dfx.SubSaveAt(t1=True)), dense=dense)
    term = dfx.ODETerm(vector_field)  # pyright: ignore[reportArgumentType]
    with arguments_checked():
        solution = dfx.diffeqsolve(
            term, solver, t0, t1, dt0, y0, args=model.ready(), saveat=saveat, throw=False, **settings
        )
    if backsolve:
        parts = [
            jax.tree.map(lambda x, i=i: x[i], (solution.ts, solution.ys)) for i in (np.s_[:-1], np.s_[-1:])
        ]
        solution = dataclasses.replace(solution, ts=(parts[0][0], parts[1][0]), ys=(parts[0][1], parts[1][1]))
    return dataclasses.replace(solution, result=RESULTS.promote(solution.result))


def errors_along(
    model: Model,
    y0: tuple[Array, Array],
    span: tuple[Array, Array, Array | None],
    ts: Array | None,
    settings: dict[str, Any],
    solver: dfx.AbstractSolver,
) -> tuple[Array, tuple[Array, Array], dict[str, Any], Array]:
    """Only the errors of a run, for `tune`: much less to compute and to differentiate than a `Trajectory`.

    **Arguments:** as `_integrate`.

    **Returns:** times, errors (phi, psi) there, Diffrax's statistics, and whether the run reached its end.
    """
    settings = {"event": None, "progress_meter": dfx.NoProgressMeter()} | settings
    solution = _integrate(model, model.project(span[0], y0), span, ts, settings, solver, False, errors_at)
    assert solution.ts is not None
    assert solution.ys is not None
    reached = solution.result == RESULTS.successful
    return solution.ts[0], solution.ys[0], solution.stats, reached


def simulate(
    system: AbstractSystem | Problem,
    q0: Coordinates | None = None,
    v0: Velocities | None = None,
    *,
    t0: Time | float | None = None,
    t1: Time | float | None = None,
    dt0: Time | float | None = None,
    ts: Float[Array, " k"] | int | Literal["steps"] | None = None,
    formula: AbstractFormula | None = None,
    stabilizer: AbstractStabilizer = Projection(),
    solver: dfx.AbstractSolver = dfx.Dopri8(),
    stepsize_controller: dfx.AbstractStepSizeController | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    adjoint: dfx.AbstractAdjoint | None = None,
    event: dfx.Event | Callable[[Time, Coordinates, Velocities], Array] | None = None,
    dense: bool = False,
    max_steps: int = 100_000,
    progress: bool | dfx.AbstractProgressMeter = False,
    throw: bool = False,
) -> Trajectory:
    """Integrates the motion of a constrained system: v' = a(t, q, v), q' = N(t, q) v.

    Works under `jit`, `vmap` and differentiation; called outside them it compiles itself, and checks its
    input before anything is computed.

    **Arguments:**

    - `system`: the system, or a `Problem`, which brings its own q0, v0, t0 and t1.
    - `q0`: initial generalized coordinates (n_q,).
    - `v0`: initial generalized velocities (n,).
    - `t0`: start [s]; by default the problem's, or 0.
    - `t1`: end [s].
    - `dt0`: the first step, or the step size of a fixed-step run [s]; by default chosen.
    - `ts`: the times to save at [s], increasing (which cannot be checked of times JAX traces: of others than that the
      states are NaN), how many evenly spaced ones (by default 201), or `"steps"` for every step.
    - `formula`: how the acceleration is computed; by default as `UdwadiaKalaba()` says, by scalar code where the
      system can be written so (`uk.lanes`), with implicit solvers only for small ones. At fixed steps that are projected
      the default's `rcond` is 1e-5 in float64.
    - `stabilizer`: how constraint errors are kept small. `Projection`, the default, projects the initial state
      as well.
    - `solver`: any Diffrax solver for ordinary differential equations.
    - `stepsize_controller`: any Diffrax controller; by default `PIDController(rtol, atol)` for solvers that
      estimate their error, else steps of dt0.
    - `rtol`: relative tolerance of the default controller; by default 1e-8, in float32 1e-5.
    - `atol`: absolute tolerance of the default controller; the same defaults.
    - `adjoint`: how derivatives are taken, by any of Diffrax's adjoints: by default `RecursiveCheckpointAdjoint`, for
      reverse mode, with two megabytes of checkpoints; `ForwardMode` for forward mode. `BacksolveAdjoint` without
      projection, events, `dense` and `ts="steps"`.
    - `event`: stops the run where this real function of (t, q, v) crosses zero, at t0 if it is zero there; or any
      `diffrax.Event`, whose state is the pair (q, v).
    - `dense`: keep the motion between saved times too, for `Trajectory.evaluate`.
    - `max_steps`: the most steps to take.
    - `progress`: show a progress meter, or the Diffrax meter to show.
    - `throw`: raise `SimulationError` if the run ends early, instead of returning what there is.

    **Returns:** `Trajectory`. Its last time is t1, or the time the run stopped at; under `jit` it has one entry
    more than `ts` for that, and unreached times are infinite.

    **Raises:** `InputError` before the run for wrong shapes, non-finite values, a span or tolerance that cannot
    be meant, a mass matrix that is not positive definite, and inconsistent constraints, by name.
    """
    t0 = system.t0 if t0 is None and isinstance(system, Problem) else t0
    t1 = system.t1 if t1 is None and isinstance(system, Problem) else t1
    given = system
    name = system.name if isinstance(system, Problem) else type(system).__name__
    system, t0, q0, v0 = resolve_state(system, t0, q0, v0)
    if t1 is None:
        raise InputError("an end time t1 is needed: give t1, or a Problem, which brings its own.")
    require_instance("stabilizer", stabilizer, AbstractStabilizer, "Projection()")
    require_solver(solver)
    t1 = real_array("t1", t1).astype(t0.dtype)
    ts = _options.times(t0, t1, ts)
    dt0 = _options.first_step(dt0, t0.dtype)
    max_steps = whole_number("max_steps", max_steps)
    adjoint = _options.adjoint(adjoint, (q0, v0), max_steps)
    controller = _options.controller(stepsize_controller, solver, dt0, (rtol, atol), q0.dtype)
    automatic = formula is None
    fixed = isinstance(controller, dfx.ConstantStepSize)
    formula = _options.formula(formula, stabilizer, q0.dtype, fixed=fixed)
    settings = {
        "stepsize_controller": controller,
        "adjoint": adjoint,
        "event": hoisted(_options.event(event, q0.dtype)),
        "max_steps": max_steps,
        "progress_meter": _options.progress_meter(progress),
    }
    _options.require_fitting(adjoint, ts, event, dense, isinstance(stabilizer, Projection))
    model = Model(system, formula, stabilizer)
    # Within `jit` what is computed is traced even if all it is computed from has values, as t1 - t0 shows.
    tracing = is_traced(model, t0, q0, v0, t1, ts, t1 - t0)
    computed_by = f"{type(formula).__name__} on arrays"
    if automatic:
        model, computed_by = coded(model, solver, t0, q0, v0)
    y0 = model.start(t0, (q0, v0)) if tracing else checked_start(model, t0, q0, v0, automatic)
    solution = _integrate(model, y0, (t0, t1, dt0), ts, settings, solver, dense)
    evaluations = _options.evaluations(solver, stabilizer, solution.stats)
    trajectory = assembled(model, solution, name, evaluations, dense)
    trajectory = dataclasses.replace(trajectory, computed_by=computed_by)
    if tracing:
        return throw_if_failed(trajectory) if throw else trajectory
    if not isinstance(given, Problem):
        given = Problem(system, q0, v0, float(t0), float(t1), getattr(system, "points", None), name=name)
    trajectory = dataclasses.replace(trajectory, problem=given)
    if not trajectory.ok:
        trajectory = explained(model, trajectory, t1)
    return trajectory.raise_if_failed() if throw else trajectory
