"""The door of a plan: what is given is checked, searched, and told."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

from ..._compiler import JitByZeros, compile_small
from ..._misc._arguments import (
    explain_arguments,
    flag,
    real_array,
    real_values,
    require_between,
    require_finite,
    require_function,
    require_instance,
    require_solver,
    whole_number,
)
from ..._misc._closures import require_untraced
from ..._misc._errors import InputError, format_value, unknown_name
from ..._misc._types import Numbers
from ..._motion._project import project, tolerance_of
from ..._system._problem import Problem, resolve_state
from ..._system._system import AbstractSystem
from ...analysis._inputs import MatrixForce, input_matrix_of
from ...analysis._states import state_of
from ...robots import Robot
from .._freedoms import evaluate_rows, free_velocities, state_names
from ._phases import HeldContacts, HeldSystem, Instant, read_instants, read_phases
from ._result import PlanResult, make_result
from ._search import LOST, Given, solve
from ._stages import DYNAMICS, Penalty, Stages


def _pair(name: str, value: Any, low: float = -np.inf, high: float = np.inf) -> tuple[float, float]:
    """(low, high), None for none."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InputError(f"{name} must be a pair (low, high), None for none, got {format_value(value)}.")
    least, most = (
        float(real_values(name, default if x is None else x))
        for x, default in zip(value, (low, high), strict=True)
    )
    if not least < most:
        raise InputError(f"{name} must be low < high, got {format_value(value)}.")
    return least, most


def _duration(t0: float, t1: Any) -> tuple[float, float]:
    """The least and the greatest duration; the same where the end is given."""
    if isinstance(t1, tuple | list):
        least, most = _pair("t1", t1)
        if not (t0 < least and np.isfinite(most)):
            raise InputError(f"t1 must be a pair of times after t0 = {t0:g} s, got {format_value(t1)}.")
        return least - t0, most - t0
    end = float(real_values("t1", t1)) if np.ndim(t1) == 0 else np.nan
    if not (np.isfinite(end) and end > t0):
        raise InputError(
            f"t1 must be a time after t0 = {t0:g} s, or a pair of these, got {format_value(t1)}."
        )
    return end - t0, end - t0


def _bounds(bounds: Any, inputs: tuple[str, ...], states: tuple[str, ...]) -> tuple[Any, Any]:
    """Bounds of inputs (low, high), each (p,), and of states by their place in (q, v)."""
    require_instance("bounds", bounds, Mapping, "{'u[0]': (-1.0, 1.0)}")
    low, high = np.full(len(inputs), -np.inf), np.full(len(inputs), np.inf)
    of_states = {}
    for name, value in bounds.items():
        pair = _pair(f"bounds['{name}']", value)
        if name == "u":
            low[:], high[:] = pair
        elif name in inputs:
            low[inputs.index(name)], high[inputs.index(name)] = pair
        elif name in states:
            of_states[states.index(name)] = pair
        else:
            raise unknown_name("input or state in bounds", name, ["u", *inputs, *states])
    return (low, high), of_states


def _make_consistent(system: AbstractSystem, t: Any, q: Any, v: Any) -> tuple[Any, Any]:
    """`project`, but for states that keep the constraints already."""
    rows = evaluate_rows(system, t, q, v)[0]
    errors = np.concatenate([np.asarray(rows.position_error), np.asarray(rows.velocity_error)])
    return (q, v) if np.all(np.abs(errors) <= tolerance_of(q.dtype)) else project(system, t, q, v)


def _starts(
    problem: Problem, contacts: HeldContacts | None, instants: Instant, start: float, q0: Any, v0: Any
) -> tuple[np.ndarray, bool]:
    """Starts (b, n_q + n) on the constraints, and whether many were given."""
    q0 = problem.q0 if q0 is None else real_array("q0", q0)
    v0 = problem.v0 if v0 is None else real_array("v0", v0)
    if q0.ndim > 2 or v0.ndim > 2:
        raise InputError(
            f"q0 and v0 are vectors, or rows of many starts; got shapes {q0.shape} and {v0.shape}."
        )
    many = max(q0.ndim, v0.ndim) == 2
    count = max((len(x) for x in (q0, v0) if x.ndim == 2), default=1)
    for name, x in (("q0", q0), ("v0", v0)):
        if x.ndim == 2 and len(x) != count:
            raise InputError(f"{name} has {len(x)} starts; there are {count} of the other.")
        require_finite(name, x)
    rows = [jnp.broadcast_to(x, (count, x.shape[-1])) for x in (q0, v0)]
    states = []
    for q, v in zip(*rows, strict=True):
        system, t, q, v = resolve_state(problem.system, start, q, v)
        if contacts is not None:
            contacts.require_closed(system, t, *_make_consistent(system, t, q, v), instants)
            system = HeldSystem(system, contacts, instants.closed[0], instants.closed[0])
        states.append(np.concatenate(_make_consistent(system, t, q, v)))
    return np.stack(states), many


def _guess(name: str, value: Any, count: int, shape: tuple[int, ...]) -> np.ndarray:
    """A guess, one for each start."""
    array = np.asarray(real_array(name, value), float)
    require_finite(name, array)
    try:
        return np.broadcast_to(array, (count, *shape))
    except ValueError:
        raise InputError(
            f"{name} has shape {array.shape}; it must be {shape}, or one that fills it."
        ) from None


@explain_arguments({"x0": "q0= and v0=", "horizon": "t1= and steps=", "dt": "t1= and steps=", "N": "steps=",
                    "running_cost": "cost=", "terminal_cost": "end_cost=", "terminal": "end=",
                    "constraints": "bounds= and end=", "lower": "bounds=", "upper": "bounds=",
                    "initial_guess": "u=", "guess": "u=", "warm_start": "previous="})  # fmt: skip
def plan(
    model_or_problem: Problem | Robot,
    cost: Callable[..., Any],
    *,
    inputs: Any = None,
    t1: Any = None,
    steps: int | None = None,
    phases: Any = None,
    end_cost: Callable[..., Any] | None = None,
    end: Callable[..., Any] | None = None,
    bounds: Mapping[str, tuple[Any, Any]] = {},
    u: Any = None,
    states: tuple[Any, Any] | None = None,
    previous: PlanResult | None = None,
    q0: Numbers | None = None,
    v0: Numbers | None = None,
    t0: float | None = None,
    second_order: bool = False,
    solver: dfx.AbstractSolver = dfx.Tsit5(),
    tolerance: float = 1e-6,
    iterations: int = 200,
) -> PlanResult:
    """Inputs of least cost that bring a mechanism where it should be: optimal control.

    Makes the integral of `cost` over time and `end_cost` at the end small, with inputs held over each of `steps` steps:
    min sum_k h l(t_k, q_k, v_k, u_k) + l_end(t_N, q_N, v_N). A step is one of `ukjax.step`, so all constraints hold at
    every state. Feasibility-driven differential dynamic programming (Mastalli et al. 2020) on derivatives of the steps;
    it finds a minimum near its first guess.

    **Arguments:**

    - `model_or_problem`: a `Problem`, or a `Robot`, with where it starts and when.
    - `cost`: per second, a function of (t, q, v, u): a number, or a vector of residuals r that costs r.r / 2.
    - `inputs`: what is planned, as for `ukjax.analysis.linearize`: names of actuators or driven joints, an input matrix
      (n, p), or a function of (t, q) that returns it. By default the actuators.
    - `t1`: the end [s], by default the problem's; or (earliest, latest), and the best time between is searched.
    - `steps`: how many steps there are; by default those of `phases`, or 100.
    - `phases`: which contacts of the system are closed when, as pairs (steps, names) one after the other, such as
      `[(30, ["foot"]), (40, [])]`. A name is that of a contact, of several that are numbered, or of a constraint. Closed
      contacts stick, if they have friction; forces may neither pull them nor rub more than that. All others stay open.
      By default all stay open.
    - `end_cost`: a function of (t, q, v) at the end, as `cost`.
    - `end`: a function of (t, q, v) that is to vanish at the end: a number or a vector.
    - `bounds`: (low, high) by name, None for none: of inputs by their names (such as `u[0]`, or `u` for all), of
      coordinates and velocities as in `sweep` (`x`, `x'`, `q[0]`, `v[0]`).
    - `u`: first guess of the inputs: a number, (p,), or (steps, p). By default zero; where symmetry makes zero a
      saddle, as of a pole that hangs, give another.
    - `states`: first guess of (q, v), (steps + 1, n_q) and (steps + 1, n); they need not follow from each other. By
      default those that `u` leads through.
    - `previous`: an earlier plan to go on from, for receding horizons: its states, inputs and multipliers at the new
      times are the first guess.
    - `q0`, `v0`, `t0`: where to start, by default the problem's. With rows, (b, n_q) and (b, n), b plans are made at
      once.
    - `second_order`: take second derivatives of the motion and of residuals, too: often fewer iterations, each longer.
    - `solver`: as for `ukjax.step`; `diffrax.Midpoint()` takes a third of the time and is less accurate.
    - `tolerance`: of the cost that is still to gain, to the cost plus one; and how far `end` and bounds may be off, in
      their own units.
    - `iterations`: the most passes of the search.

    **Returns:** `PlanResult`.

    **Raises:** `InputError` before the search for unknown names, bounds that cannot be, wrong shapes, a start off the
    constraints, costs that are not finite at the start, and first inputs whose motion is not finite.
    """
    problem = model_or_problem.problem if isinstance(model_or_problem, Robot) else model_or_problem
    if not isinstance(problem, Problem):
        raise InputError(
            f"plan needs a start: give a Problem, such as uk.Problem(system, q0, v0, t0, t1), got "
            f"{format_value(model_or_problem)}."
        )
    require_untraced("plan", problem, cost, end_cost, end, inputs, t1, q0, v0, u, states)
    require_function("cost", cost, "t, q, v, u")
    for name, function in (("end_cost", end_cost), ("end", end)):
        if function is not None:
            require_function(name, function, "t, q, v")
    steps = None if steps is None else whole_number("steps", steps)
    iterations = whole_number("iterations", iterations)
    exact, _ = flag("second_order", second_order), require_solver(solver)
    require_between("tolerance", tolerance, 0, 1)
    if previous is not None:
        require_instance("previous", previous, PlanResult, "an earlier plan")
    start = problem.t0 if t0 is None else t0
    start = float(real_values("t0", start))
    shortest, longest = _duration(start, problem.t1 if t1 is None else t1)
    at_start = resolve_state(problem.system, start, problem.q0, problem.v0)
    contacts, closed = read_phases(*at_start, phases, steps)
    steps, instants = len(closed), read_instants(contacts, closed, at_start[2].dtype)
    x0, many = _starts(problem, contacts, instants, start, q0, v0)
    count, n_q = len(x0), problem.q0.size
    system, t, q, v = state_of(problem.system, start, x0[0, :n_q], x0[0, n_q:])
    if isinstance(inputs, list | tuple) and not any(isinstance(x, str) for x in inputs):
        inputs = real_array("inputs", inputs)
    matrix, input_names, _ = input_matrix_of(system, inputs, t, q, v.size, every=False)
    if not input_names:
        raise InputError("there are no inputs to plan: name joints, or give an input matrix, by inputs=.")
    names = state_names(system, q, v, "q", "v")
    state_labels = names[0] + names[1]
    (low, high), of_states = _bounds(bounds, input_names, state_labels)
    for name, i in zip(state_labels, range(len(state_labels)), strict=True):
        if i in of_states and np.any((x0[:, i] < of_states[i][0]) | (x0[:, i] > of_states[i][1])):
            raise InputError(f"bounds['{name}'] do not hold at the start: {x0[0, i]:g}.")
    p, is_free = len(input_names), shortest < longest
    stages = Stages(
        system, MatrixForce(matrix), cost, end_cost, end, solver,
        jnp.array([x[0] for x in of_states.values()], q.dtype),
        jnp.array([x[1] for x in of_states.values()], q.dtype),
        tuple(of_states), contacts, instants, steps, n_q, is_free, exact,
    )  # fmt: skip
    sizes = _check_costs(stages, t, jnp.asarray(x0[0]), p)
    if previous is not None:
        us, xs, T, penalty = previous._guess_from(start, steps, count, sizes, (shortest, longest))
    else:
        us = T = xs = penalty = None
    if u is not None or us is None:
        us = _guess("u", 0.0 if u is None else u, count, (steps, p))
    us = jnp.asarray(np.clip(us, low, high), q.dtype)
    T = jnp.asarray(np.full(count, 0.5 * (shortest + longest)) if T is None else T, q.dtype)
    if penalty is None:
        b, e = sizes
        penalty = Penalty(jnp.zeros((count, steps + 1, b)), jnp.zeros((count, e)), jnp.zeros(count))
    if states is not None:
        xs = _state_guess(states, count, steps, n_q, v.size)
    boxed = bool(np.any(np.isfinite(low)) or np.any(np.isfinite(high)))
    first = [free_velocities(system, t, x[:n_q], x[n_q:])[:2] for x in x0]
    if len({x[0].shape[1] for x in first} | {-x[1].shape[1] for x in first}) > 2:
        raise InputError("starts differ in how many freedoms the constraints leave.")
    given = Given(
        jnp.full(count, start), _first_states(stages, start, jnp.asarray(x0), xs, T), jnp.full(count, xs is None), us,
        T, (jnp.asarray(np.stack([Z for Z, _ in first])), jnp.asarray(np.stack([Z for _, Z in first]))),
        jnp.asarray(np.tile(low, (count, 1))), jnp.asarray(np.tile(high, (count, 1))),
        jnp.full(count, shortest), jnp.full(count, longest), penalty,
    )  # fmt: skip
    given = jax.tree.map(lambda x: x if x.dtype == bool else x.astype(q.dtype), given)
    found = _solve_all(stages, given, boxed, (tolerance, tolerance), jnp.asarray(iterations), many)
    if np.any(found.status == LOST):
        raise InputError("the motion under the first inputs is not finite: give others by u=, or more steps.")
    return make_result(stages, given, found, many, (input_names, *names), problem)


def _check_costs(stages: Stages, t: Any, x: Any, p: int) -> tuple[int, int]:
    """How many bounds of states there are, and entries of `end`."""
    values = _costs_at(stages, t, x, jnp.zeros(p, x.dtype))
    for name, value in values.items():
        if not all(np.all(np.isfinite(y)) for y in jax.tree.leaves(value)):
            raise InputError(f"{name} is not finite at the start, without inputs.")
    return stages.count_bounds(), values["end"].size


@compile_small
def _costs_at(stages: Stages, t: Any, x: Any, u: Any) -> dict[str, Any]:
    return {"cost": stages.running(t, x, u), "end_cost": stages.at_end(t, x), "end": stages.missed(t, x)}


def _state_guess(states: Any, count: int, steps: int, n_q: int, n: int) -> np.ndarray:
    if not isinstance(states, tuple | list) or len(states) != 2:
        raise InputError(f"states must be a pair (q, v), got {format_value(states)}.")
    q, v = (
        _guess(f"{name} of states", x, count, (steps + 1, size))
        for name, x, size in zip("qv", states, (n_q, n), strict=True)
    )
    return np.concatenate([q, v], axis=-1)


@functools.partial(JitByZeros, kinds=DYNAMICS)
def _on_constraints(stages: Stages, t0: Any, T: Any, xs: Any) -> Any:
    return jax.vmap(lambda T, xs: jax.vmap(stages.projected)(stages.time(t0, T, stages.instants), xs))(T, xs)


def _first_states(stages: Stages, t0: float, x0: Any, xs: Any, T: Any) -> Any:
    """(b, steps + 1, n_q + n): those given, brought onto the constraints, or the first alone, again and again."""
    if xs is None:
        return jnp.broadcast_to(x0[:, None], (len(x0), stages.steps + 1, x0.shape[1]))
    xs = _on_constraints(stages, jnp.asarray(t0, x0.dtype), T, jnp.asarray(xs, x0.dtype))
    if not np.all(np.isfinite(xs)):
        raise InputError(
            "the first guess of states is too far from the constraints: no state near it obeys them."
        )
    return xs.at[:, 0].set(x0)


def _solve_all(stages: Stages, given: Given, boxed: bool, tolerances: Any, most: Any, many: bool) -> Any:
    if not many:
        found = solve(stages, jax.tree.map(lambda x: x[0], given), boxed, tolerances, most)
        return jax.tree.map(lambda x: np.asarray(x)[None], found)
    return jax.tree.map(np.asarray, _solve_many(stages, given, boxed, tolerances, most))


@functools.partial(JitByZeros, kinds=DYNAMICS)
def _solve_many(stages: Stages, given: Given, boxed: bool, tolerances: Any, most: Any) -> Any:
    return jax.vmap(lambda one: solve(stages, one, boxed, tolerances, most))(given)
