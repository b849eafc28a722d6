"""The door of a run: what is given is checked, planned, run and observed."""

import inspect
from collections.abc import Callable
from typing import Any, Literal

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._formula._acceleration import AbstractFormula
from .._misc._arguments import explain_arguments, flag, real_values, require_finite, require_function
from .._misc._errors import InputError, unknown_name
from .._misc._garbage import collector_held_back
from .._misc._modules import make_unchecked, replace_unchecked
from .._misc._types import Numbers, Time, as_jax, is_traced, is_tracing
from .._motion._project import Projection
from .._system._labels import title_of
from .._system._problem import Problem, resolve_state
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from .._system._tabulated import held_tables_are_found
from . import _options
from ._certify import certify
from ._contact_common import Asked, Tier, warn_of_contacts
from ._events import Events
from ._failure import explain_contact_failure, explain_failure
from ._observe import build_trajectory, throw_if_failed
from ._options import Options
from ._results import warn_of_rows
from ._run_plan import RunPlan, plan_run
from ._start import check_start_tolerance
from ._trajectory import RunOptions, RunRecord, Trajectory


def _origin(
    given: AbstractSystem | Problem,
    as_given: tuple[Any, Any],
    system: AbstractSystem,
    state: tuple[Array, Array, Array, Array],
    again: RunOptions,
    **told: Any,
) -> dict[str, Any]:
    """What a trajectory knows of what was simulated, and how, where all has values."""
    if not isinstance(given, Problem):
        is_right = lambda x, y: isinstance(x, Array) and x.dtype == y.dtype
        y0 = [
            x if is_right(x, y) else as_jax(np.asarray(y)) for x, y in zip(as_given, state[:2], strict=True)
        ]
        t0, t1 = map(float, state[2:])
        given = make_unchecked(Problem, system=system, q0=y0[0], v0=y0[1], t0=t0, t1=t1, **told)
    return {"problem": given, "made": RunRecord(*state, again)}


# What solvers of SciPy, Diffrax and MuJoCo call arguments of `simulate`.
_MEANT = {
    **dict.fromkeys(("dt", "h", "step", "timestep", "step_size"), "dt0=, the first step; to keep it, with "
    "stepsize_controller=diffrax.ConstantStepSize()"),
    **dict.fromkeys(("tol", "tolerance"), "rtol= and atol="),
    **dict.fromkeys(("x0", "y0", "qpos", "qvel", "state"), "q0= and v0="),
    **dict.fromkeys(("t", "tf", "t_end", "tend", "T", "tmax", "duration", "t_final"), "t1=, the end in seconds"),
    "t_span": "t0= and t1=",
    **dict.fromkeys(("t_eval", "saveat", "times", "n_steps"), "ts=, times or how many"),
    "method": "solver=, such as diffrax.Tsit5(), or formula=, how accelerations are computed",
    "events": "event=, one or a list",
}  # fmt: skip


@explain_arguments(_MEANT)
def simulate(
    system: AbstractSystem | Problem,
    q0: Numbers | None = None,
    v0: Numbers | None = None,
    *,
    t0: Time | float | None = None,
    t1: Time | float | None = None,
    dt0: Time | float | None = None,
    ts: Numbers | Literal["steps"] | None = None,
    formula: AbstractFormula | None = None,
    stabilizer: AbstractStabilizer = Projection(),
    solver: dfx.AbstractSolver = dfx.Dopri8(),
    stepsize_controller: dfx.AbstractStepSizeController | None = None,
    rtol: Array | float | None = None,
    atol: Array | float | None = None,
    adjoint: dfx.AbstractAdjoint | None = None,
    event: Events | None = None,
    contact: Tier | None = None,
    start_tolerance: float | None = None,
    dense: bool = False,
    max_steps: int = 100_000,
    on_violation: Literal["stop", "continue"] = "stop",
    progress: bool | dfx.AbstractProgressMeter = False,
    throw: bool = False,
) -> Trajectory:
    """Integrates the motion of a constrained system: v' = a(t, q, v), q' = N(t, q) v.

    Works under `jit`, `vmap` and differentiation. Outside them it compiles by itself, and checks its input first.

    **Arguments:**

    - `system`: the system, or a `Problem`, which brings its own q0, v0, t0 and t1.
    - `q0`: initial generalized coordinates (n_q,).
    - `v0`: initial generalized velocities (n,).
    - `t0`: start [s]; by default the problem's, or 0.
    - `t1`: end [s].
    - `dt0`: the first step [s]; by default chosen automatically. It is the length of all steps where nothing changes it:
      with `diffrax.ConstantStepSize()`, by solvers that do not estimate their error, and with `contact="steps"`.
    - `ts`: increasing times to save at [s], or how many evenly spaced ones (by default 201), or `"steps"` for every
      step. Under `jit` one that is earlier than the one before, or outside of t0 and t1, is not reached, nor are later
      ones.
    - `formula`: how the acceleration is computed; by default that of `UdwadiaKalaba()`, by scalar code (`uk.lanes`) where
      the system allows it. In float64 the default's `rcond` is 1e-3 without projection. With it rows are judged by where
      a step starts: if all are independent it is 1.5e-6, else 3e-3 times the square of their least sine, at least 1e-4.
    - `stabilizer`: how constraint errors are kept small. `Projection`, the default, also projects the initial state.
    - `solver`: any Diffrax solver for ordinary differential equations.
    - `stepsize_controller`: any Diffrax controller; by default `PIDController(rtol, atol)` for solvers that
      estimate their error, and steps of dt0 for others.
    - `rtol`: relative tolerance of the default controller; by default 1e-8, in float32 1e-5.
    - `atol`: absolute tolerance of the default controller; the same defaults.
    - `adjoint`: how derivatives are taken: any of Diffrax's adjoints. By default forward and reverse mode both work, by
      machine code on a CPU, and so do second derivatives of runs without events. Another than `ForwardMode` and
      `DirectAdjoint`, which are the same, has XLA compile the run. `BacksolveAdjoint` excludes projection, events,
      `dense` and `ts="steps"`.
    - `event`: stops the run where a real function of (t, q, v) crosses zero. Give the function; a `ukjax.Event` with a
      direction, a name, and a reset, after which the run goes on; a list of these, of which the first to occur counts; or
      a `diffrax.Event` of real functions of the pair (q, v). Two crossings within one step are not seen. A function that
      is zero at t0 stops the run when it crosses zero next (a `diffrax.Event` stops it at t0).
    - `contact`: how the unilateral constraints of the system are met: `"events"`, the default, locates every closing,
      opening, sticking and slipping, with impacts by Newton's law and derivatives of all of it; `"steps"` takes equal
      steps of dt0 of Moreau's scheme: for many contacts, of first order, and without derivatives. `"differentiated
      steps"` are the same with derivatives of the steps, which are those of the motion as long as no gap closes and no
      slip turns round. Which contacts a robot from a file has is chosen by `uk.load(..., contact=[...])`.
    - `start_tolerance`: how far `Projection` may move the initial state, relative to its size: q (or the direction of a
      constraint row, if that changes more) and v. By default 0.5, with a `StartMovedWarning` from 0.05 on; a v0 of zeros
      may change to anything. `jnp.inf` accepts any start. Under `jit` nothing is raised: see `Trajectory.start_moved`.
    - `dense`: also keep the motion between saved times, for `Trajectory.evaluate`.
    - `max_steps`: the most steps to take.
    - `on_violation`: what to do where no motion keeps the constraints, as of a drive beyond its reach, and states are
      projected: `"stop"` ends the run there, `"continue"` follows the least-squares solution. The result of both is
      `constraints_broken`. With steps of fixed length, also of `contact="steps"`, it ends after the first off them. With
      `Baumgarte` and `NoStabilizer`, which allow drift, nothing is judged: off the constraints there always is an
      acceleration. Look at `max_position_error`.
    - `progress`: True for a progress meter, or a Diffrax meter.
    - `throw`: raise `SimulationError` if the run ends early, instead of returning what was computed.

    **Returns:** `Trajectory`, with an entry for each of `ts`; times that were not reached are infinite. The state at t1,
    or where the run stopped, is in its `end`. With `ts="steps"` it has an entry for the start and each step; under `jit`
    for as many as `max_steps` allows.

    **Raises:** `InputError` before the run for wrong shapes, non-finite values, an invalid span or tolerance, a mass
    matrix that is not positive definite, inconsistent constraints (by name), and a start far from them. Outside `jit` it
    warns: `StartMovedWarning`, `ConstraintWarning` of constraints that are not kept, and `ContactWarning`.
    """
    again = RunOptions(simulate, certify, {
        "dt0": dt0, "ts": ts, "formula": formula, "stabilizer": stabilizer, "solver": solver,
        "stepsize_controller": stepsize_controller, "rtol": rtol, "atol": atol, "adjoint": adjoint, "event": event,
        "contact": contact, "start_tolerance": start_tolerance, "max_steps": max_steps, "on_violation": on_violation,
    })  # fmt: skip
    t0 = system.t0 if t0 is None and isinstance(system, Problem) else t0
    t1 = system.t1 if t1 is None and isinstance(system, Problem) else t1
    given, as_given = system, (q0, v0)
    name = system.name if isinstance(system, Problem) else title_of(system)
    system, t0, q0, v0 = resolve_state(system, t0, q0, v0)
    if t1 is None:
        raise InputError("an end time t1 is needed: give t1, or a Problem, which brings its own.")
    t1 = real_values("t1", t1).astype(t0.dtype)
    ts = _options.times(t0, t1, ts)
    dt0 = _options.first_step(dt0, t0.dtype)
    start_tolerance = check_start_tolerance(start_tolerance)
    dense, throw = flag("dense", dense), flag("throw", throw)
    options = Options(
        formula, stabilizer, solver, stepsize_controller, rtol, atol, adjoint, event, contact, progress, dense, max_steps,
        dt0 is not None, ts is None, on_violation,
    )  # fmt: skip
    with collector_held_back(), held_tables_are_found():
        plan = plan_run(system, options, t0, q0, v0)
        if not isinstance(plan, RunPlan):
            if is_traced(t0, t1):  # impacts and resets cannot be undone
                t1 = jnp.where(t1 < t0, jnp.nan, t1)
            trajectory = plan.trajectory(Asked((t0, q0, v0), t1, dt0, ts, start_tolerance), name=name)
            if not is_traced(trajectory.t):
                points = getattr(system, "points", None)
                origin = _origin(given, as_given, system, (q0, v0, t0, t1), again, points=points, name=name)
                trajectory = replace_unchecked(trajectory, **origin)
                warn_of_contacts(trajectory)
                warn_of_rows(trajectory)
                if not trajectory.ok:
                    trajectory = explain_contact_failure(system, plan.formula, stabilizer, trajectory, t1)
                return trajectory.raise_if_failed() if throw else trajectory
            return throw_if_failed(trajectory) if throw else trajectory
        told: dict[str, Any] = plan.told | {"name": name}
        if plan.traced or is_tracing() or is_traced(t0, q0, v0, t1, ts, dt0):
            trajectory = plan.traced_run((q0, v0), (t0, t1, dt0), ts, told)
            return throw_if_failed(trajectory) if throw else trajectory
        y0, moved = plan.start(t0, q0, v0, start_tolerance)
        solved = plan.run(y0, (t0, t1, dt0), ts)
        told |= _origin(given, as_given, system, (q0, v0, t0, t1), again, points=plan.points, name=name)
        count = None if ts is None else len(ts)
        trajectory = build_trajectory(
            plan.model, solved, dense, count, plan.judged, start_moved=moved, **told
        )
        warn_of_rows(trajectory)
        if not trajectory.ok:
            trajectory = explain_failure(plan.model, trajectory, t1)
        return trajectory.raise_if_failed() if throw else trajectory


# --- A run as one compiled function, for loops

_GIVEN_APART = ("system", "q0", "v0")


def _check_state(name: str, x: Any, first: Array) -> Array:
    """An initial state as the run was made for; of arrays of JAX, only what costs nothing to know is checked."""
    if x is None or (isinstance(x, jax.Array) and (x.shape, x.dtype) == (first.shape, first.dtype)):
        return first if x is None else x
    array = real_values(name, x)
    if array.shape != first.shape:
        raise InputError(
            f"{name} has shape {array.shape}; the run was made for {first.shape} (use jax.vmap for many)."
        )
    require_finite(name, x)
    return array.astype(first.dtype)


def _arrays_of(system: Any, like: tuple[Any, Any]) -> Any:
    """The arrays of a system, as many and of the same shapes as the first has."""
    arrays, kind = eqx.partition(system, eqx.is_array)
    shapes = [[x.shape for x in jax.tree.leaves(one)] for one in (arrays, like[0])]
    if not eqx.tree_equal(kind, like[1]) or shapes[0] != shapes[1]:
        raise InputError("system must be one like that of `compiled`, with other numbers in its arrays.")
    return arrays


def compiled(
    system: AbstractSystem | Problem,
    q0: Numbers | None = None,
    v0: Numbers | None = None,
    *,
    outputs: Callable[[Trajectory], Any] = lambda trajectory: trajectory,
    **options: Any,
) -> Callable[..., Any]:
    """A run as one compiled function of its start and system: `simulate` under `jax.jit`, without checks at each call.

        run = uk.compiled(uk.models.pendulum(), t1=2.0, outputs=lambda trajectory: trajectory.q_end)
        for speed in speeds:
            end = run(v0=speed)

    What `outputs` does not need is not computed. The results are those of `simulate`. The function also works within
    `jit`, `vmap` and differentiation. Of what a call gives only kinds and shapes are checked, not how near the
    constraints it is.

    **Arguments:**

    - `system`: the system, or a `Problem`, which brings q0, v0, t0 and t1.
    - `q0`: initial coordinates (n_q,), where a call does not give others.
    - `v0`: initial velocities (n,), likewise.
    - `outputs`: what to return of the `Trajectory`; by default all of it.
    - `options`: those of `simulate`: t0, t1, ts, solver and so on.

    **Returns:** `run(q0=..., v0=..., system=...)`, all optional; `system` is one like the first, with other numbers in
    its arrays. The first call compiles.

    **Raises:** `InputError` for what `simulate` refuses, for unknown options, and in a call for an initial state of
    another shape or of no numbers, and for a system of another kind.
    """
    known = [name for name in inspect.signature(simulate).parameters if name not in _GIVEN_APART]
    if unknown := [name for name in options if name not in known]:
        raise unknown_name("option", unknown[0], [*known, "outputs"])
    require_function("outputs", outputs, "trajectory")
    if isinstance(system, Problem):
        options = {"t0": system.t0, "t1": system.t1} | options
    first, _, q_first, v_first = resolve_state(system, None, q0, v0)
    arrays_first, kind = eqx.partition(first, eqx.is_array)

    @jax.jit
    def whole(arrays: Any, q0: Array, v0: Array) -> Any:
        return outputs(simulate(eqx.combine(arrays, kind), q0, v0, **options))

    def run(
        q0: Numbers | None = None, v0: Numbers | None = None, *, system: AbstractSystem | None = None
    ) -> Any:
        arrays = arrays_first if system is None else _arrays_of(system, (arrays_first, kind))
        return whole(arrays, _check_state("q0", q0, q_first), _check_state("v0", v0, v_first))

    return run
