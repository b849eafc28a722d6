"""All of a run that its state and times do not change: checked, translated and compiled once, and then remembered, for
the next call with the same objects.
"""

import functools
import gc
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, final

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._compiler import forget, machine_code_is_wanted, stays_here
from .._formula._singular_mass import NullSpace
from .._misc._arguments import whole_number
from .._misc._closures import Static, combine_static, key_by_identity, partition_static
from .._misc._garbage import undisturbed
from .._misc._progress import COMPILING, say
from .._misc._types import is_traced, is_tracing
from .._motion._model import Model, translate_model
from .._motion._states import loses_rows
from .._system._system import AbstractSystem, names_of, states_of
from . import _options
from ._contact_common import BY_STEPS, tier_of
from ._contact_march import StepsPlan
from ._contact_run import EventsPlan
from ._events import as_diffrax, event_names, has_resets
from ._integrate import CompiledRun, Span, State, integrate_from_start
from ._interning import intern_system
from ._observe import build_trajectory
from ._options import Options, controller_of_steps, is_judged, option_key, stop_code
from ._start import find_start, require_near, start_moved
from ._trajectory import Trajectory


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
    def run(self) -> CompiledRun:
        """The steps of a run now, of which all has values."""
        return CompiledRun(self._static, self._reverse, self.arrays)

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


# --- What of a call's arguments a user may change in place, so that what is remembered of them no longer holds


def changeable_in(given: Any) -> list[tuple[Any, Any]]:
    """All in a pytree whose contents can change, each with what it holds now: dictionaries, lists, arrays of NumPy's."""
    containers = lambda x: isinstance(x, list | dict)
    parts = [x for x in jax.tree.leaves(given, is_leaf=containers) if isinstance(x, list | dict | np.ndarray)]
    within = [changeable_in(tuple(x.values() if isinstance(x, dict) else x)) for x in parts if containers(x)]
    return [(x, _contents(x)) for x in parts] + [pair for each in within for pair in each]


def _contents(x: Any) -> Any:
    return x.copy() if isinstance(x, np.ndarray) else [*x, *x.values()] if isinstance(x, dict) else list(x)


def is_unchanged(x: Any, before: Any) -> bool:
    """Whether something holds what it held."""
    if isinstance(x, np.ndarray):
        return np.array_equal(x, before, equal_nan=True)
    now = _contents(x)
    return len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True))


# --- The plans of runs, by the kind of run, remembered for the next call with the same objects

_KINDS = {None: RunPlan, "events": EventsPlan, **dict.fromkeys(BY_STEPS, StepsPlan)}
_MOST = 64  # plans remembered
AnyPlan = RunPlan | EventsPlan | StepsPlan

_lock = threading.Lock()
_plans: OrderedDict[Hashable, tuple[AnyPlan, list[tuple[Any, Any]]]] = OrderedDict()


def plan_run(system: AbstractSystem, options: Options, t: Array, q: Array, v: Array) -> AnyPlan:
    """The plan of a run."""
    here = machine_code_is_wanted(), stays_here()
    remembered = key_by_identity(system), *map(option_key, options), q.dtype, q.shape, v.shape, *here
    with _lock:
        plan, changeable = _plans.get(remembered, (None, ()))
        if plan is not None and all(is_unchanged(*x) for x in changeable):
            _plans.move_to_end(remembered)
            return plan
    kind = _KINDS[tier_of(system, options.contact, has_resets(options.event))]
    with say(COMPILING):
        plan = undisturbed(kind)(system, options, t, q, v)
    if not plan.traced:
        with _lock:
            _plans[remembered] = plan, changeable_in((system, tuple(options)))
            if len(_plans) > _MOST:
                _plans.popitem(last=False)
    return plan


def forget_plans() -> None:
    """Drops all plans."""
    with _lock:
        _plans.clear()


# --- What is kept of models that were run, and how to let go of it


def clear_caches() -> None:
    """Lets go of all that ukjax and JAX keep of models so far, for sessions in which models come by hundreds.

    A model that was run keeps some megabytes: its scalar code, its machine code, and what XLA compiled around it. Of
    scalar code the last 64 models of each kind are kept, by JAX far more. After this call what runs next is compiled
    anew. Trajectories and your own arrays stay as they are. What machine code functions under `jax.jit` call stays until
    the process ends, since XLA may call it for as long.
    """
    forget_plans()
    forget()
    jax.clear_caches()
    gc.collect()
