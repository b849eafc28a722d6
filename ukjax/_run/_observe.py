"""What a `Trajectory` tells of the states a run saved: forces, errors, energy and rank there."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .._compiler._structured._scalarize import LeftToXLA, scalarize
from .._formula._acceleration import is_unbalanced
from .._formula._equations import asymmetry
from .._formula._servo import Servoed
from .._misc._modules import make_unchecked
from .._misc._types import in_full_precision, is_traced, module_for
from .._motion._model import Model
from .._motion._states import States, project_states
from .._motion._states import observe_states as at_states
from .._system._constraint import Kind
from .._system._rows import constraint_errors, constraint_rows
from .._system._system import AbstractSystem
from ._events import which
from ._results import RESULTS, Dense, end_of, fill_unreached, judgement, split
from ._trajectory import Trajectory


class RunStates(NamedTuple):
    """What the steps of a run left behind; last of the saved states stands the one in which it ended."""

    t: Array  # saved times, infinite where they were not reached, and the end [s] (k + 1,)
    q: Array  # generalized coordinates (k + 1, n_q)
    v: Array  # generalized velocities (k + 1, n)
    stats: dict[str, Array]  # Diffrax's, and `num_evaluations` where that is known
    result: RESULTS  # a code of `RESULTS`
    interpolation: Any  # the motion between saved times, if it was asked for
    event_mask: Any  # which events occurred, if there are any
    settled: bool = False  # whether the states between steps are projected already
    left: LeftToXLA = LeftToXLA()  # why the steps are left to XLA, if they are


def errors_at(system: AbstractSystem, t: Array, q: Array, v: Array) -> tuple[Array, Array]:
    """phi and psi of all rows (m,), those of the servo included for a system under servo control."""
    phi, psi = constraint_errors(system, t, q, v)
    if not isinstance(system, Servoed):
        return phi, psi
    task = system.law.task(system.system, t, q, v)
    return jnp.append(phi, task.position_error), jnp.append(psi, task.velocity_error)


Names = tuple[tuple[str, ...], tuple[Kind, ...]]
"""Those of the rows, and their kinds."""

_SOLVED = ("a", "constraint_force", "multipliers", "rank")
"""What a formula tells."""


def observe_by_equations(model: Model, t: Array, q: Array, v: Array) -> dict[str, Array]:
    """What a `Trajectory` tells of a state, but its energy; and for its result whether forces are `unbalanced`, and the
    mass matrix is `asymmetric`."""
    equations = model.equations(t, q, v)
    acceleration, rows = model.formula.solve(equations), equations.rows
    told = {name: getattr(acceleration, name) for name in _SOLVED}
    told["asymmetric"] = (asymmetry(lax.stop_gradient(equations.M)) > 0).astype(q.dtype)
    if not model.formula.needs_definite_mass:
        told["unbalanced"] = is_unbalanced(model.formula, equations, acceleration)
    return told | {"position_error": rows.position_error, "velocity_error": rows.velocity_error}


def observe_at(model: Model, t: Array, q: Array, v: Array) -> dict[str, Any]:
    """What a `Trajectory` tells of a state, by the code of the acceleration as far as there is one."""
    found = observe_by_equations(model, t, q, v) | {"energy": model.system.energy(t, q, v)}
    return found | model.observed(t, q, v)


_FEW = 4  # states of which code for one after the other is made in a third of the time of code for vectors of them


def observe_each(at: Callable[..., dict[str, Any]], *states: Any) -> dict[str, Any]:
    """What holds at each state; for use inside `jit`. Of all arrays the states are along the last axes."""
    if jax.tree.leaves(states)[0].shape[-1] > _FEW:
        return jax.vmap(scalarize(at, fallback="xla"), in_axes=-1, out_axes=-1)(*states)

    def one_by_one(*states: Any) -> Any:
        first = jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), states)
        return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), lax.map(lambda state: at(*state), first))

    return scalarize(one_by_one, fallback="xla")(*states)


@eqx.filter_jit
@in_full_precision
def _observe(model: Model, states: States) -> tuple[dict[str, Any], Names]:
    """All a `Trajectory` holds of every saved state, which is projected here if it lies between steps.

    And the rows' names and kinds, which are known once it is traced.
    """

    def at(t: Any, q: Any, v: Any) -> dict[str, Any]:
        q, v = model.project(t, (q, v))
        return {"q": q, "v": v} | observe_at(model, t, q, v)

    rows = eqx.filter_eval_shape(constraint_rows, model.system, *(x[0] for x in states))
    t, (q, v) = scalarize(fill_unreached, fallback="xla")(states.t, states[1:])
    # What has no scalar code may have checks of users, which raise where XLA compiles them.
    observed = jax.vmap(at, -1, -1)(t, q, v) if model.code is None else observe_each(at, t, q, v)
    return observed, (rows.names, rows.kinds)


@eqx.filter_jit
@in_full_precision
def _energy(system: AbstractSystem, states: States) -> Array | None:
    energy: Callable[..., Any] = system.energy
    return jax.vmap(scalarize(energy, fallback="xla"))(*states)


def _observe_on_host(model: Model, states: States, settled: bool) -> tuple[dict[str, Any], Names]:
    """As `_observe`, on the host, of states that are projected if they are `settled`."""
    assert model.code is not None
    states = states if settled else project_states(model, states)
    columns = at_states(model, states)
    rows = model.code.equations.arrays.rows
    columns["rank"] = columns["rank"].astype(np.int32)
    columns.pop("regular")
    if "energy" not in columns:
        energy = _energy(model.system, states)
        columns["energy"] = None if energy is None else np.asarray(energy)
    return columns | states._asdict(), (rows.names, rows.kinds)


def pad_places(x: np.ndarray) -> np.ndarray:
    """The last entry along the last axis is repeated up to a power of two, so that runs of different lengths share
    compiled code."""
    count = x.shape[-1]
    return np.repeat(
        x, np.append(np.ones(count - 1, int), 1 + 2 ** (count - 1).bit_length() - count), axis=-1
    )


def find_reached(t: Array | np.ndarray, count: int | None) -> np.ndarray:
    """Indices of the saved times that a run reached, and of its end, the last."""
    t = np.asarray(t)
    return np.append(np.flatnonzero(np.isfinite(t[:-1][:count])), t.size - 1)


def _observe_reached(model: Model, solved: RunStates, count: int | None) -> tuple[dict[str, Any], Names]:
    """Of states with values: what holds at the times reached, and at the end."""
    t, *y = map(np.asarray, (solved.t, solved.q, solved.v))
    taken = lambda places: States(*(x[places] for x in (t, *y)))
    places = find_reached(t, count)
    if model.code is not None:
        return _observe_on_host(model, taken(places), solved.settled)
    states = taken(pad_places(places))
    observed, names = _observe(model, states)
    return _first(states_first(observed) | {"t": states.t}, places.size), names


@partial(jax.jit, static_argnums=1)
def _first(arrays: Any, kept: int) -> Any:
    return jax.tree.map(lambda x: x[:kept], arrays)


def states_first(observed: dict[str, Any]) -> dict[str, Any]:
    """Arrays with the states along the last axis, as programs of scalars have members, with them along the first."""
    return {name: None if x is None else module_for(x).moveaxis(x, -1, 0) for name, x in observed.items()}


def split_and_judge(
    columns: dict[str, Any], result: RESULTS, count: int | None, judged: bool
) -> tuple[dict[str, Any], dict[str, Any], RESULTS]:
    """What holds at the saved times and at the end, and the result of the run, of which `split` takes the columns; None
    for as many times as there are steps."""
    found = {name: columns.pop(name, 0.0) for name in ("lost", "unbalanced", "asymmetric")}
    result = judgement(columns, result, count or 0, judged, **found)
    return *split(columns, len(columns["t"]) - 1 if count is None else count), result


def build_trajectory(
    model: Model,
    solved: RunStates,
    dense: bool,
    count: int | None,
    judged: bool,
    *,
    computed_by: str,
    whole: bool = False,
    **told: Any,
) -> Trajectory:
    """The trajectory of a run; one of `whole` steps ends on the constraints, and is not projected there once more."""
    if is_traced(solved):
        observed, (names, kinds) = _observe(model, States(solved.t, solved.q, solved.v))

        def finished(observed: dict[str, Any], t: Array, result: RESULTS) -> Any:
            return split_and_judge(states_first(observed) | {"t": t}, result, count, judged)

        saved, end, result = scalarize(finished, fallback="xla")(observed, solved.t, solved.result)
        if whole:  # its derivatives would be projected, too, by as much code as for those of a step
            end |= {"q": solved.q[-1], "v": solved.v[-1]}
    else:
        observed, (names, kinds) = _observe_reached(model, solved, count)
        saved, end, result = split_and_judge(observed, solved.result, count, judged)
    return make_unchecked(
        Trajectory,
        **saved,
        end=end_of(end),
        result=result,
        stats=solved.stats,
        row_names=names,
        row_kinds=kinds,
        computed_by=solved.left.said(computed_by),
        event=which(solved.event_mask),
        dense=Dense(solved.interpolation, model.system, model.stabilizer) if dense else None,
        **told,
    )


def throw_if_failed(trajectory: Trajectory) -> Trajectory:
    """The trajectory, with a runtime error attached that is raised where a compiled run fails."""
    failed = (trajectory.result != RESULTS.successful) & (trajectory.result != RESULTS.event_occurred)
    return trajectory.result.error_if(trajectory, failed)
