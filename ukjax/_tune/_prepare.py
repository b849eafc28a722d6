"""What `tune` makes of its arguments: an objective, each argument checked by name before anything is computed."""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._formula._acceleration import UdwadiaKalaba, require_shapes
from .._misc._arguments import (
    call_user_function,
    one_of,
    real_array,
    require_instance,
    whole_number,
)
from .._misc._closures import require_untraced
from .._misc._errors import InputError
from .._motion._model import Model
from .._motion._project import project
from .._run import _options
from .._run._contact_common import BY_STEPS, tier_of
from .._run._observe import errors_at
from .._run._start import require_near
from .._system._labels import title_of
from .._system._problem import Problem, resolve_state
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from ._gains import Convention, GainSpace
from ._loss import ViolationLoss
from ._objective import Objective, Problems, Settings, count_fixed_steps, stack_problems

_EXPECTED = (
    "give a system, a Problem, a list of Problems, or a function that returns one of these for the gains"
)


def _problems(
    system: AbstractSystem | Problems,
    q0: Any,
    v0: Any,
    span: tuple[Any, Any],
) -> tuple[Problem, ...]:
    """One problem for each system and initial state given, all over one span."""
    several = isinstance(system, Sequence)
    if several and (not system or not all(isinstance(p, Problem) for p in system)):
        raise InputError(f"{_EXPECTED}; got a list of something else.")
    problems = []
    if not several and not isinstance(system, AbstractSystem | Problem):
        raise InputError(f"{_EXPECTED}; got {type(system).__name__}.")
    for p in system if several else [system]:
        t0, t1 = (p.t0, p.t1) if isinstance(p, Problem) else (0.0, None)
        t0, t1 = (given if given is not None else own for given, own in zip(span, (t0, t1), strict=True))
        if t1 is None:
            raise InputError("an end time t1 is needed: give t1, or a Problem, which brings its own.")
        t0, t1 = real_array("t0", t0), real_array("t1", t1)
        if t0.ndim or t1.ndim:
            raise InputError(f"t0 and t1 have shapes {t0.shape} and {t1.shape}; they must be scalars.")
        start, rate = (
            getattr(p, k, None) if x is None else real_array(k, x) for k, x in (("q0", q0), ("v0", v0))
        )
        starts = start if start is not None and start.ndim == 2 else [start]
        rates = rate if rate is not None and rate.ndim == 2 else [rate]
        count = max(len(starts), len(rates))
        if {len(starts), len(rates)} - {1, count}:
            raise InputError(
                f"q0 holds {len(starts)} initial states and v0 {len(rates)}; give as many of both."
            )
        name = p.name if isinstance(p, Problem) else title_of(p)
        for i in range(count):
            own, _, q, v = resolve_state(p, t0, starts[i % len(starts)], rates[i % len(rates)])
            problems.append(Problem(own, q, v, t0, t1, name=name))
    if len({(float(p.t0), float(p.t1)) for p in problems}) > 1:
        raise InputError("the problems have different spans of time: give t0 and t1 for all of them.")
    return tuple(problems)


_ALL_OF_DT0 = (
    "dt0 is the first step, as in simulate, and {} would adapt the next ones. This run takes them all of dt0, as it "
    "used to; give stepsize_controller=diffrax.ConstantStepSize() for that, or PIDController(rtol, atol) to adapt them."
)


def _settings(problem: Problem, options: dict[str, Any], loss: Any) -> Settings:
    """How each run is made."""
    dtype = problem.q0.dtype
    t0, t1 = (real_array(name, getattr(problem, name)).astype(dtype) for name in ("t0", "t1"))
    dt0, solver = _options.first_step(options["dt0"], dtype), options["solver"]
    _options.require_method(options["formula"], options["stabilizer"], solver)
    whole_number("max_steps", options["max_steps"])
    controller, contact = options["stepsize_controller"], options["contact"]
    by_steps = tier_of(problem.system, contact, resets=False) in BY_STEPS
    if controller is None and dt0 is not None:
        if isinstance(solver, dfx.AbstractAdaptiveSolver) and not by_steps:
            warnings.warn(_ALL_OF_DT0.format(type(solver).__name__), FutureWarning, stacklevel=4)
        controller = dfx.ConstantStepSize()
    tolerances = options["rtol"], options["atol"]
    controller = _options.controller(controller, solver, dt0 is not None, tolerances, dtype)
    solver = _options.with_tolerances(solver, dtype, controller)
    ts, max_steps = _options.times(t0, t1, options["ts"]), options["max_steps"]
    if isinstance(controller, dfx.ConstantStepSize):
        assert dt0 is not None
        if (steps := count_fixed_steps(t0, t1, dt0)) > max_steps + 1:
            raise InputError(f"t1 is {steps - 1} steps of dt0 away, more than max_steps = {max_steps}.")
        max_steps = min(max_steps, steps)
        if options["ts"] is None:
            # `ViolationLoss` leaves out the rows to spare of a run that saves its steps; a loss of the user's sees none.
            ends = np.append(np.arange(float(t0), float(t1 - dt0 / 2), float(dt0)), float(t1))
            ts = None if isinstance(loss, ViolationLoss) else jnp.asarray(ends, dtype)
    formula, stabilizer = options["formula"], options["stabilizer"]
    if by_steps:
        t0, t1, dt0 = float(t0), float(t1), dt0 if dt0 is None else float(dt0)
    return Settings(t0, t1, dt0, ts, formula, stabilizer, solver, controller, max_steps, contact)


def _check_loss(loss: Any, settings: Settings, rows: int) -> None:
    if not callable(loss):
        raise InputError(f"loss must be ViolationLoss() or a function of a Trajectory, got {loss!r}.")
    if not isinstance(loss, ViolationLoss):
        return
    if rows == 0:
        raise InputError("the system has no constraints that could be violated: there is nothing to tune.")
    if loss.row_weights is not None and loss.row_weights.shape != (rows,):
        raise InputError(f"row_weights has shape {loss.row_weights.shape}; give one for each of {rows} rows.")
    if loss.window is not None and (loss.window[0] > settings.t1 or loss.window[1] < settings.t0):
        raise InputError(f"the window {loss.window} lies outside the run, {settings.t0} to {settings.t1} s.")


def _require_near_starts(problems: tuple[Problem, ...], settings: Settings) -> None:
    """As `simulate` does of runs that are projected."""
    stabilizer = settings.stabilizer
    if (method := stabilizer.projection_method) is None:
        return
    for p in problems:
        model = Model(p.system, settings.formula or UdwadiaKalaba(), stabilizer)
        start = project(p.system, settings.t0, p.q0, p.v0, pinv=method)
        require_near(model, settings.t0, (p.q0, p.v0), start, None, stacklevel=5)


def _example(plant: Callable[[Any], Any], gains: Any, stabilizer: Any) -> tuple[Any, Any]:
    """What a function returns for the gains given, and the stabilizer of its runs."""
    example = call_user_function("the function of the gains", plant, gains)
    if isinstance(example, tuple) and len(example) == 2 and isinstance(example[1], AbstractStabilizer):
        example, stabilizer = example
    if isinstance(example, AbstractSystem):
        raise InputError(
            "the function of the gains returned a system alone, which has no start: return a Problem, such as "
            "uk.Problem(system, q0, v0, t0, t1)."
        )
    return example, stabilizer


def prepare(
    system: AbstractSystem | Problems | Callable[[Any], Any],
    gains: Any,
    loss: Any,
    convention: Convention,
    per_row: bool,
    options: dict[str, Any],
) -> tuple[Objective, tuple[Problem, ...]]:
    """The objective, and the problems the gains given lead to."""
    q0, v0 = options["q0"], options["v0"]
    require_untraced("tune", system, gains, loss, q0, v0)
    one_of("aggregate", options["aggregate"], ("mean", "worst"))
    plant = system if callable(system) and not isinstance(system, AbstractSystem | Problem) else None
    example: Any
    if plant is None:
        require_instance("gains", gains, AbstractStabilizer, "Baumgarte(alpha, beta)")
        example, own = system, gains
    else:
        example, own = _example(plant, gains, options["stabilizer"])
        if q0 is not None or v0 is not None:
            raise InputError(
                "q0 and v0 are for a system or a Problem; a function of the gains returns its own."
            )
    problems = _problems(example, q0, v0, (options["t0"], options["t1"]))
    settings, p = _settings(problems[0], options, loss), problems[0]
    stack_problems(problems)
    require_shapes(p.system, settings.t0, p.q0, p.v0)
    rows = eqx.filter_eval_shape(errors_at, p.system, settings.t0, p.q0, p.v0)[0].size
    _check_loss(loss, settings, rows)
    space = GainSpace(gains, convention, rows if per_row else None)
    _require_near_starts(problems, dataclasses.replace(settings, stabilizer=own))
    budget = jnp.asarray(jnp.inf, p.q0.dtype)
    runs = () if plant else problems
    return Objective(space, plant, runs, settings, loss, options["aggregate"], budget), problems
