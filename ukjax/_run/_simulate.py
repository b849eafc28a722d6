"""The door of a run: what is given is checked, planned, run and observed."""

from typing import Literal

import diffrax as dfx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._formula._acceleration import AbstractFormula
from .._misc._arguments import flag, real_values
from .._misc._errors import InputError
from .._misc._types import Coordinates, Time, Velocities, is_traced
from .._motion._project import Projection
from .._system._labels import title_of
from .._system._problem import Problem, resolve_state
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from . import _options
from ._events import Events
from ._failure import explained
from ._observe import assembled, throw_if_failed
from ._plan import Options, padded, planned
from ._start import checked_start
from ._start_moved import checked_tolerance, require_near, start_moved
from ._trajectory import Trajectory


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
    event: Events | None = None,
    start_tolerance: float | None = None,
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
      reverse mode, with two megabytes of checkpoints, or the same as machine code on a CPU; `ForwardMode` for forward
      mode. `BacksolveAdjoint` without projection, events, `dense` and `ts="steps"`.
    - `event`: stops the run where a real function of (t, q, v) crosses zero, at t0 if it is zero there: the function, a
      `ukjax.Event` with a direction and a name, a list of these, of which the first to occur stops the run, or any
      `diffrax.Event` of real functions, whose state is the pair (q, v). Two crossings within one step are not seen.
    - `start_tolerance`: how far `Projection` may move the initial state, as a part of its size: of q, or of the direction
      of a constraint row if that changes more, and of v. By default 0.5, with a `StartMovedWarning` from 0.05 on, while
      a v0 of zeros may become any. `jnp.inf` takes any start. Under `jit` only `Trajectory.start_moved` tells.
    - `dense`: keep the motion between saved times too, for `Trajectory.evaluate`.
    - `max_steps`: the most steps to take.
    - `progress`: show a progress meter, or the Diffrax meter to show.
    - `throw`: raise `SimulationError` if the run ends early, instead of returning what there is.

    **Returns:** `Trajectory`. Its last time is t1, or the time the run stopped at; under `jit` it has one entry
    more than `ts` for that, and unreached times are infinite.

    **Raises:** `InputError` before the run for wrong shapes, non-finite values, a span or tolerance that cannot
    be meant, a mass matrix that is not positive definite, inconsistent constraints, by name, and a start far from
    them.
    """
    t0 = system.t0 if t0 is None and isinstance(system, Problem) else t0
    t1 = system.t1 if t1 is None and isinstance(system, Problem) else t1
    given = system
    name = system.name if isinstance(system, Problem) else title_of(system)
    system, t0, q0, v0 = resolve_state(system, t0, q0, v0)
    if t1 is None:
        raise InputError("an end time t1 is needed: give t1, or a Problem, which brings its own.")
    t1 = real_values("t1", t1).astype(t0.dtype)
    ts = _options.times(t0, t1, ts)
    dt0 = _options.first_step(dt0, t0.dtype)
    start_tolerance = checked_tolerance(start_tolerance)
    dense, throw = flag("dense", dense), flag("throw", throw)
    options = Options(
        formula, stabilizer, solver, stepsize_controller, rtol, atol, adjoint, event, progress, dense, max_steps,
        dt0 is not None, ts is None,
    )  # fmt: skip
    plan = planned(system, options, t0, q0, v0)
    told = plan.told | {"name": name}
    # Within `jit` what is computed is traced even if all it is computed from has values, as this sum shows.
    if is_traced(plan.arrays, t0, q0, v0, t1, ts, jnp.add(1.0, 1.0)):
        y0 = plan.model.start(t0, (q0, v0))
        solved = plan.run(y0, (t0, t1, dt0), ts, at_once=False)
        trajectory = assembled(plan.model, solved, dense, start_moved=start_moved((q0, v0), y0), **told)
        return throw_if_failed(trajectory) if throw else trajectory
    y0 = checked_start(plan.model, t0, q0, v0, plan.automatic)
    require_near(plan.model, t0, (q0, v0), y0, start_tolerance)
    solved = plan.run(y0, (t0, t1, dt0), padded(ts, t1), at_once=True)
    if not isinstance(given, Problem):
        given = Problem(system, q0, v0, float(t0), float(t1), getattr(system, "points", None), name=name)
    told["problem"] = given
    trajectory = assembled(plan.model, solved, dense, start_moved=start_moved((q0, v0), y0), **told)
    if not trajectory.ok:
        trajectory = explained(plan.model, trajectory, t1)
    return trajectory.raise_if_failed() if throw else trajectory
