"""A run of a system with unilateral constraints by equal time steps."""

import dataclasses
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler._structured._scalarize import scalarize
from .._contact._contact_dynamics import ContactDynamics
from .._contact._history import AT_TIMES
from .._contact._moreau import contacts_at_once
from .._contact._rows import contact_model, layout_of, require_newton
from .._contact._stepping import TimeSteppingRun, gaps_along, run_time_stepping, steps_within
from .._misc._arguments import whole_number
from .._misc._derivatives import not_differentiable
from .._misc._errors import InputError
from .._misc._modules import replace_unchecked
from .._misc._types import as_jax, is_traced, is_tracing
from .._system._system import AbstractSystem
from . import _options
from ._contact_common import Asked, ContactRun, Prepared, observe_state, trajectory_of
from ._integrate import pad_times
from ._interning import intern_system
from ._observe import find_reached, observe_each, pad_places
from ._options import Options, is_judged, stop_code
from ._results import RESULTS, result_of, step_counts
from ._trajectory import Trajectory

_NO_DERIVATIVE = (
    "contact='steps' has no derivatives: times of impacts stay in their steps, so derivatives of the steps are not those "
    "of the motion. contact='events' has these; contact='differentiated steps' takes those of the steps, which are right "
    "as long as no gap closes and no slip turns round."
)


@final
class StepsPlan:
    """How runs of a system with contacts are made, by equal time steps.

    - `traced`: whether JAX traces any of it.
    - `formula`: how accelerations are computed.
    """

    def __init__(self, system: AbstractSystem, options: Options, t: Array, q: Array, v: Array):
        o = options
        _require_fitting(o)
        formula = _options.formula(o.formula, o.stabilizer, q.dtype)
        system = intern_system(system, t, q, v)
        layout, coefficients = layout_of(system, t, q, v)
        require_newton(layout)
        given = system, formula, o.stabilizer, o.solver, (t, q, v)
        model, said = contact_model(*given, automatic=o.formula is None, implicit=True)
        said = f"time steps with {len(layout.names)} contacts; bilateral motion by {said}"
        self._judged = is_judged(formula, o.stabilizer)
        settings = {"stop": stop_code(self._judged, o.on_violation)}
        run = ContactRun(
            ContactDynamics(model, coefficients, layout), formula, o.solver, settings, None, said
        )
        self._prepared = Prepared(run, (system, o), (t, q, v))
        self.formula = formula
        self.traced, self._most = self._prepared.traced, whole_number("max_steps", o.max_steps)
        self._differentiated = o.contact == "differentiated steps"

    def trajectory(self, asked: Asked, **told: Any) -> Trajectory:
        """The trajectory of a run."""
        (t0, q, v), t1, dt0, ts, _ = asked
        run = self._prepared.run
        steps = _number_of_steps((t0, t1, dt0), self._most)
        at = np.linspace(float(t0), float(t1), steps + 1, dtype=q.dtype) if ts is None else ts
        count = None if ts is None else len(at)
        if self.traced or is_tracing() or is_traced(asked.start, at):
            if not self._differentiated:
                run, q, v = not_differentiable((run, q, v), _NO_DERIVATIVE)
            ends = jnp.append(jnp.asarray(at), t1)
            observed, columns, found, counts, begun = _march_and_observe(
                run, (t0, t1), q, v, steps, ends, not self._differentiated
            )
            states = {name: observed[name] for name in "tqv"}
        else:
            q, v = self._prepared.begun(asked)
            ends = pad_times(np.append(at, t1), t1)  # pyright: ignore[reportArgumentType]
            given = (t0, t1), q, v, as_jax(np.asarray(steps)), ends, not self._differentiated
            observed, columns, found, counts, begun = _march_and_observe(run, *given)
            while found.full:
                run = self._with_more_room(v.size)
                observed, columns, found, counts, begun = _march_and_observe(run, *given)
            places = find_reached(columns["t"], count)
            observed = jax.tree.map(lambda x: np.asarray(x)[..., places], observed)
            columns = jax.tree.map(lambda x: np.asarray(x)[places], columns)
            states: dict[str, Any] = {name: pad_places(observed[name]) for name in "tqv"}
        told |= self._prepared.told | {
            "begun": begun,
            "computed_by": found.left.said(f"{steps} {run.computed_by}"),
        }
        told |= {"contacts": lambda at_times: replace_unchecked(found.contacts, **at_times)}
        number = len(columns["t"])
        at_states = states["t"], states["q"].T, states["v"].T
        told["gaps"] = lambda: _gaps(run, at_states, as_jax(np.asarray(number)))[:number]
        told |= {"stats": counts | {"num_unsolved_steps": found.unsolved, "num_passing_steps": found.passed}}
        told |= {"result": _result_of(found), "judged": self._judged}
        return trajectory_of(asked.start, observed, columns, count, **told)

    def _with_more_room(self, velocities: int) -> ContactRun:
        """The run with twice the room for contacts."""
        touching = self._prepared.run.touching
        room = 2 * contacts_at_once(touching.layout, velocities)
        touching = dataclasses.replace(touching, layout=touching.layout._replace(room=room))
        self._prepared.run = self._prepared.run._replace(touching=touching)
        return self._prepared.run


def _result_of(found: TimeSteppingRun) -> Any:
    """How a run ended."""
    if is_traced(found.t_end, found.diverged):
        broken = RESULTS.where(found.t_end < jnp.inf, RESULTS.constraints_broken, result_of(np.int32(0)))
        full = RESULTS.where(found.full, RESULTS.too_many_contacts, broken)
        return RESULTS.where(found.diverged, RESULTS.diverged, full)
    if found.diverged:
        return RESULTS.diverged
    if found.full:
        return RESULTS.too_many_contacts
    return RESULTS.constraints_broken if float(found.t_end) < np.inf else RESULTS.successful


def _require_fitting(options: Options) -> None:
    """Raises `InputError` for options that equal steps do not have."""
    o = options
    _options.require_method(o.formula, o.stabilizer, o.solver)
    if not o.with_dt0:
        raise InputError("contact='steps' needs dt0, the length of its steps [s].")
    for name in ("event", "dense", "stepsize_controller", "adjoint", "progress"):
        if getattr(o, name) not in (None, False):
            raise InputError(
                f"contact='steps' takes equal steps of its own and knows no {name}; contact='events' does."
            )


def _number_of_steps(span: tuple[Array, Array, Any], most: int) -> int:
    if is_traced(*span):
        raise InputError(
            "contact='steps' needs to know the number of its steps: t0, t1 and dt0 cannot be traced."
        )
    t0, t1, dt0 = map(float, span)
    steps = steps_within(t0, t1, dt0)
    if steps > most:
        raise InputError(f"{steps} steps of {dt0:g} s are more than max_steps = {most}.")
    return steps


@eqx.filter_jit
def _gaps(run: ContactRun, states: tuple[Array, Array, Array], count: Array) -> Array:
    return gaps_along(run.touching.model, run.touching.layout, states, count)


@eqx.filter_jit
def _march_and_observe(
    run: ContactRun,
    span: tuple[Array, Array],
    q: Array,
    v: Array,
    steps: int | Array,
    ts: Array,
    splits: bool,
) -> tuple[dict[str, Any], dict[str, Array], TimeSteppingRun, dict[str, Array], tuple[Array, Array]]:
    """What is told of saved states, with these along the last axes, and along the first, the steps, how many there were,
    and the start."""
    args = run.touching
    start = scalarize(args.model.start, fallback="xla")(span[0], (q, v))
    stops, given = run.settings["stop"] is not None, (args.model, args.layout, args.coefficients)
    found = run_time_stepping(*given, start, span, steps, ts, stops=stops, splits=splits)
    at = lambda t, *state: observe_state(run, jnp.minimum(t, found.t_end), *state)
    told = observe_each(at, ts, found.q.T, found.v.T, found.push.T)
    columns = {name: getattr(found.contacts, name) for name in AT_TIMES if name != "gap"}
    columns |= {"t": jnp.append(found.t[:-1], told["t"][-1])}
    return told, columns, found, step_counts(found.steps + found.rejected, found.steps), start
