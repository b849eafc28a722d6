"""All of a run that its state and times do not change: checked, translated and compiled once, and then remembered."""

import functools
from typing import Any, Literal, NamedTuple, final, get_args

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._formula._singular_mass import NullSpace
from .._misc._arguments import one_of, whole_number
from .._misc._closures import Static, combine_static, partition_static
from .._misc._types import is_traced, is_tracing
from .._motion._model import Model, translate_model
from .._motion._states import loses_rows
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem, names_of, states_of
from . import _options
from ._events import as_diffrax, event_names
from ._integrated import Integrated, Span, State, integrate_from_start
from ._interned import intern_system
from ._observe import build_trajectory
from ._options import controller_of_steps
from ._results import RESULTS, code
from ._start import find_start, require_near, start_moved
from ._trajectory import Trajectory

OnViolation = Literal["stop", "continue"]
"""What becomes of a run where no motion keeps the constraints."""


class Options(NamedTuple):
    """The arguments of `simulate` that are neither state nor time, as they were given.

    - `with_dt0`, `every_step`: whether a first step is given, and whether every step is saved.
    - `on_violation`: what becomes of a run where no motion keeps the constraints.
    """

    formula: Any
    stabilizer: Any
    solver: Any
    stepsize_controller: Any
    rtol: Any
    atol: Any
    adjoint: Any
    event: Any
    contact: Any
    progress: Any
    dense: bool
    max_steps: Any
    with_dt0: bool
    every_step: bool
    on_violation: Any = "stop"


def is_judged(formula: Any, stabilizer: AbstractStabilizer) -> bool:
    """Whether a run is to keep its constraints: whether its states are projected, and its rows met, which those of a
    hierarchy that yields are not.
    """
    return stabilizer.projects and getattr(formula, "clearance", None) is None


def stop_code(judged: bool, on_violation: Any) -> int | None:
    """The code with which a run ends where no motion keeps the constraints; None for one that goes on."""
    one_of("on_violation", on_violation, get_args(OnViolation))
    return code(RESULTS.constraints_broken) if judged and on_violation == "stop" else None


@final
class RunPlan:
    """How runs of a system are made.

    - `model`: what is integrated.
    - `automatic`: whether the formula is the default one.
    - `judged`: as `is_judged`.
    - `traced`: whether JAX traces any of it.
    - `told`: what it says of every trajectory: what became of the model, and names.
    - `points`: the system's named points, if it has any.
    - `arrays`: what the run takes but state and times.
    """

    def __init__(self, system: AbstractSystem, options: Options, t: Array, q: Array, v: Array):
        o, dtype = options, q.dtype
        _options.require_method(o.formula, o.stabilizer, o.solver)
        max_steps = whole_number("max_steps", o.max_steps)
        adjoint = _options.adjoint(o.adjoint, (q, v), max_steps)
        controller = _options.controller(o.stepsize_controller, o.solver, o.with_dt0, (o.rtol, o.atol), dtype)
        o = o._replace(solver=_options.with_tolerances(o.solver, dtype, controller))
        self.automatic = o.formula is None
        self._begun: tuple[Any, State, Array] | None = None
        self._started = False
        formula = _options.formula(o.formula, o.stabilizer, dtype)
        event = as_diffrax(o.event, (t, q, v))
        controller = controller_of_steps(controller, system, dtype)
        self.judged = is_judged(formula, o.stabilizer)
        settings = {
            "stepsize_controller": controller,
            "adjoint": adjoint,
            "event": event,
            "max_steps": max_steps,
            "progress_meter": _options.progress_meter(o.progress),
            "stop": stop_code(self.judged, o.on_violation),
        }
        projects = o.stabilizer.projects
        _options.require_fitting(adjoint, o.every_step, event, o.dense, projects)
        self.model = Model(intern_system(system, t, q, v), formula, o.stabilizer)
        self.model, computed_by = translate_model(
            *(self.model, o.solver, t, q, v),
            automatic=self.automatic,
        )
        known = self.automatic and not (is_tracing() or is_traced(system, tuple(options), t, q, v))
        if known and loses_rows(self.model, t, q, v):
            self.automatic, self.model = False, Model(self.model.system, NullSpace(), o.stabilizer)
            self.model, computed_by = translate_model(self.model, o.solver, t, q, v, automatic=False)
        names = names_of(system, q, v)
        self.told = {"computed_by": computed_by, "event_names": event_names(event)}
        self.told |= {"coordinate_names": names.coordinates, "velocity_names": names.velocities}
        self.told |= {"num_states": len(states_of(system))}
        self.points = getattr(system, "points", None)
        self.traced = is_traced(system, tuple(options), self.model)
        self.model = self.model if self.traced else self.model.ready()
        self._static, self.arrays = partition_static((self.model, settings, o.solver, o.dense))
        self._reverse = o.adjoint is None
        if not self.traced:
            with jax.ensure_compile_time_eval():
                self.arrays = jax.device_put(self.arrays)

    def start(self, t: Array, q: Array, v: Array, tolerance: float | None) -> tuple[State, Array]:
        """The state to start from, checked, and projected if the stabilizer projects, and by how much it was moved; the
        last one is remembered."""
        given = tolerance, *(np.asarray(x).tobytes() for x in (t, q, v))
        begun = self._begun
        if begun is not None and begun[0] == given:
            return begun[1:]
        y0 = find_start(self.model, t, q, v, self.automatic, symmetric=self._started)
        as_given = y0[0] is q and y0[1] is v
        silent = as_given or require_near(self.model, t, (q, v), y0, tolerance, stacklevel=5)
        moved = start_moved((q, v), y0)
        self._begun, self._started = (given, y0, moved) if silent else None, True
        return y0, moved

    @functools.cached_property
    def run(self) -> Integrated:
        """The steps of a run now, of which all has values."""
        return Integrated(self._static, self._reverse, self.arrays)

    def traced_run(self, state: State, span: Span, ts: Array | None, told: dict[str, Any]) -> Trajectory:
        """A run where JAX traces some of it: start, steps and what is told of them, as one compiled function."""
        given = self._static, self._reverse, self.arrays
        return _run_traced(*given, state, span, ts, self.judged, told)


def _move_start(model: Model, t0: Array, state: State) -> tuple[State, Array]:
    """The state to start from, and by how much it was moved."""
    y0 = model.start(t0, state)
    return y0, start_moved(state, y0)


@eqx.filter_jit
def _run_traced(
    static: Static,
    reverse: bool,
    arrays: Any,
    state: State,
    span: Span,
    ts: Any,
    judged: bool,
    told: Any,
) -> Trajectory:
    model, *others = combine_static(static, arrays)
    solved, moved, whole = integrate_from_start(_move_start, static, reverse, arrays, state, span, ts)
    count = None if ts is None else len(ts)
    return build_trajectory(model, solved, others[-1], count, judged, whole=whole, start_moved=moved, **told)
