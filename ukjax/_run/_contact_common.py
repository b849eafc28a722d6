"""What both ways of running a system with unilateral constraints share: what is checked first, and what is told after."""

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, final, get_args

import diffrax as dfx
import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._compiler import AtStates
from .._compiler._structured._scalarize import scalarize
from .._contact._bilateral import observe_parts
from .._contact._contact_dynamics import ContactDynamics
from .._contact._history import AT_TIMES, UNSOLVED, ContactHistory
from .._contact._rows import gaps_and_bends, models_apart, with_push
from .._formula._acceleration import AbstractFormula
from .._misc._arguments import one_of
from .._misc._errors import ContactWarning, InputError
from .._misc._modules import Later, make_unchecked, replace_unchecked
from .._misc._types import as_jax, in_full_precision, is_traced
from .._system._constraint import unilateral
from .._system._rows import constraint_rows
from .._system._system import AbstractSystem, names_of, states_of
from ._doctor import find_contact_pairs, list_pairs, rounding_of_gaps
from ._observe import observe_at, split_and_judge, states_first
from ._results import end_of, split
from ._start import find_start, require_near, start_moved
from ._trajectory import Trajectory

Tier = Literal["events", "steps", "differentiated steps"]
"""How contacts are met."""
BY_STEPS = ("steps", "differentiated steps")


def tier_of(system: AbstractSystem, given: Any, resets: bool) -> Tier | None:
    """How contacts are met: as asked for, or by events; None for a run without unilateral constraints and resets."""
    if given is not None:
        one_of("contact", given, get_args(Tier))
    # Of shapes, for to compute the constraints would compile each of their operations.
    if resets or unilateral(eqx.filter_eval_shape(lambda system: system.constraints, system)):
        return given or "events"
    if given is not None:
        raise InputError(f"contact={given!r} needs a system with Unilateral constraints or DryFriction.")
    return None


class ContactRun(NamedTuple):
    """All of a run but its state and times."""

    touching: ContactDynamics  # what flow and solver compute with
    formula: AbstractFormula  # of the bilateral rows, for what a trajectory tells
    # `solver`, `settings`: Diffrax's.
    solver: dfx.AbstractSolver
    settings: dict[str, Any]
    event: dfx.Event | None  # what stops it, if anything
    computed_by: str  # in words


class Asked(NamedTuple):
    """What is asked of one run."""

    start: tuple[Array, Array, Array]  # (t, q, v)
    t1: Array  # the end [s]
    dt0: Array | None  # the first step, or the length of all [s], if it is given
    ts: Array | None  # the times to save at [s]; None for every step
    start_tolerance: float | None  # how far the start may be moved


@final
class Prepared:
    """A run as far as it is known before its start.

    - `run`: with the numbers of its model at hand, unless it is traced.
    - `traced`: whether JAX traces any of it.
    - `told`: the names of bilateral rows, coordinates and velocities, as fields of a `Trajectory`.

    **Arguments:**

    - `run`: the run.
    - `given`: the system and the options it was made of, the formula as it was given.
    - `state`: (t, q, v), of which only shapes and types matter.
    """

    def __init__(self, run: ContactRun, given: tuple[AbstractSystem, Any], state: tuple[Array, Array, Array]):
        system, model = run.touching.model.system, run.touching.model
        self._system = given[0]
        self.traced, self._automatic = is_traced(given, run), given[1].formula is None
        if not self.traced:
            run = run._replace(touching=dataclasses.replace(run.touching, model=model.ready()))
        self.run = run
        rows, names = eqx.filter_eval_shape(constraint_rows, system, *state), names_of(system, *state[1:])
        self.told = {
            "row_names": rows.names,
            "row_kinds": rows.kinds,
            "coordinate_names": names.coordinates,
            "velocity_names": names.velocities,
            "num_states": len(states_of(system)),
        }

    @functools.cached_property
    def _gaps(self) -> AtStates:
        model: Any = self.run.touching.model
        return AtStates(gaps_and_bends, (model.system.system, model.kinds))

    @functools.cached_property
    def _parts(self) -> list[Any]:
        """The parts of a system of which there is code of these only, as of `models_apart`."""
        model = self.run.touching.model
        return models_apart(model) if model.code is None else []

    def begun(self, asked: Asked) -> tuple[Array, Array]:
        """The state (q, v) to start from, for a start that has values: on the bilateral constraints."""
        touching, (t, q, v) = self.run.touching, asked.start
        y = q, v
        for model, of_q, of_v in self._parts:  # without constraints
            of_part = np.asarray(q)[list(of_q)], np.asarray(v)[list(of_v)]
            find_start(model, t, *of_part, self._automatic)  # pyright: ignore[reportArgumentType]
        if not self._parts:
            y = find_start(touching.model, t, q, v, self._automatic)
        require_near(touching.model, t, (q, v), y, asked.start_tolerance, stacklevel=6)
        gap, bend = self._gaps.one(t, *y)
        names = touching.layout.names
        bent = [name for name, x in zip(names, bend, strict=True) if x > 1e4 * np.finfo(q.dtype).eps]
        if bent:
            raise InputError(f"the slip of {', '.join(bent)} must be linear in the velocities v.")
        lost = [name for name, g in zip(names, gap, strict=True) if not np.isfinite(g)]
        if lost:
            raise InputError(f"the gap of {', '.join(lost)} is not finite at t0.")
        gap, zero, deep = np.asarray(gap), rounding_of_gaps(q), []
        if np.any(gap[touching.layout.is_rigid] < -zero) and asked.start_tolerance != np.inf:
            touch = find_contact_pairs(self._system, touching.layout, gap, zero)
            deep = [x for x in touch if x.depth]
        if deep:
            raise InputError(
                f"the start penetrates {list_pairs(deep)}: gaps must be zero or positive at t0, unless "
                "start_tolerance=inf says that it may be pushed out."
            )
        return y


@in_full_precision
def observe_state(run: ContactRun, t: Array, q: Array, v: Array, push: Array) -> dict[str, Any]:
    """All a `Trajectory` holds of a state but its contacts."""
    model = run.touching.model
    if model.code is None and model.parts:
        told = observe_parts(model, t, q, v, push)
    else:
        told = observe_at(with_push(model, push), t, q, v)
    return told | {"t": t, "q": q, "v": v, "constraint_force": told["constraint_force"] + push}


def trajectory_of(
    start: tuple[Array, Array, Array],
    observed: dict[str, Any],
    columns: dict[str, Any],
    count: int | None,
    *,
    contacts: Callable[[dict[str, Any]], ContactHistory],
    gaps: Callable[[], Array] | None = None,
    begun: tuple[Array, Array],
    result: Any,
    judged: bool,
    settled: dict[str, Array] | None = None,
    **fields: Any,
) -> Trajectory:
    """The trajectory, with a result that says so where its end is not finite, or constraints are not kept; the end is
    `settled` where that is on the constraints, as in `build_trajectory`. `gaps` that are not among the columns are
    computed when they are read."""

    def finished(observed: Any, columns: Any, result: Any, given: Any, begun: Any) -> Any:
        columns = states_first(observed) | columns
        return *split_and_judge(columns, result, count, judged), start_moved(given, begun)

    traced, t = is_traced((observed, columns, result)), columns["t"]
    fn = scalarize(finished, fallback="xla") if traced else finished
    saved, last, result, moved = fn(observed, columns, result, start[1:], begun)
    saved = saved if is_traced(saved) else jax.device_put(saved)
    end = end_of(last | (settled or {}))
    history = contacts({name: saved.pop(name) for name in AT_TIMES if name in saved})
    if gaps is not None:
        # Within `jit` they are a program of their own, which is left out where nothing reads them.
        both = functools.cache(lambda: split({"t": t, "gap": gaps()}, len(t) - 1 if count is None else count))
        later = (lambda compute: compute()) if traced else Later
        of_end = end.contacts or {}
        end = replace_unchecked(end, contacts=later(lambda: {"gap": both()[1]["gap"], **of_end}))
        history = replace_unchecked(history, gap=later(lambda: as_jax(both()[0]["gap"])))
    return make_unchecked(
        Trajectory, **saved, end=end, result=result, contacts=history, start_moved=moved, **fields
    )


# --- What a run warns of: contacts of which no motion obeys the laws, or several do


def _first(times: Any, found: Any) -> str:
    """When it was first, and how often."""
    which = np.flatnonzero(found)
    more = f" and at {which.size - 1} more of those times" if which.size > 1 else ""
    return f"at {float(times[which[0]]):.6g} s{more}"


def warn_of_contacts(trajectory: Trajectory) -> None:
    """Warns where contacts leave no motion or several."""
    history = trajectory.contacts
    if history is None:
        return
    count, said = min(int(history.num_events), history.event_time.size), []
    when = np.concatenate([np.asarray(history.event_time)[:count], np.asarray(trajectory.t)])
    several = np.concatenate([np.asarray(history.event_ambiguous)[:count], np.asarray(history.ambiguous)])
    if several.any():
        names = [name for name, x in zip(history.names, np.any(several, axis=0).tolist(), strict=True) if x]
        by_steps = "num_unsolved_steps" in trajectory.stats
        rule = "the forces nearest to the step before" if by_steps else "the least normal forces"
        said.append(
            f"several motions of {', '.join(names[:4])}{' ...' * (len(names) > 4)} obey the laws "
            f"{_first(when, several.any(axis=1))}; the run went on with {rule}, and a contact opens that may, unless it "
            "slides already (contacts.ambiguous)"
        )
    residual = np.asarray(history.residual)[:count]
    unsolved = residual > UNSOLVED[residual.dtype != np.float64]
    steps = int(trajectory.stats.get("num_unsolved_steps", 0))
    if unsolved.any() or steps:
        where = f"in {steps} steps" if steps else _first(np.asarray(history.event_time)[:count], unsolved)
        said.append(
            f"no motion that obeys the laws exists, or none was found, {where}; the run went on with the impulses whose "
            "violation is the least that was found (contacts.residual)"
        )
    if passing := int(trajectory.stats.get("num_passing_steps", 0)):
        said.append(
            f"in {passing} steps bodies moved so far that they may have passed through each other; take a smaller dt0 "
            "(contact='steps' takes such steps in parts, as far as that helps; steps with derivatives stay whole)"
        )
    if said:
        warnings.warn(f"contacts: {'; '.join(said)}.", ContactWarning, stacklevel=4)
