"""What a `Trajectory` tells of the states a run saved: forces, errors, energy and rank there."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._formula._acceleration import equations_of_motion
from .._misc._linear import lazily_differentiated
from .._misc._precision import in_full_precision
from .._misc._types import is_traced
from .._motion._model import Model
from .._motion._states import States, projected
from .._motion._states import observed as at_states
from .._servo._control import Servoed
from .._system._constraint_names import Kind
from .._system._rows import constraint_rows
from .._system._system import AbstractSystem
from ._events import which
from ._results import RESULTS, Dense
from ._trajectory import Trajectory


class Solved(NamedTuple):
    """What the steps of a run left behind; the final state is the last of the saved ones.

    - `t`: saved times [s] (k,).
    - `q`: generalized coordinates (k, n_q).
    - `v`: generalized velocities (k, n).
    - `stats`: Diffrax's, and `num_evaluations` where that is known.
    - `result`: a code of `RESULTS`.
    - `interpolation`: the motion between saved times, if it was asked for.
    - `event_mask`: which events occurred, if there are any.
    """

    t: Array
    q: Array
    v: Array
    stats: dict[str, Array]
    result: RESULTS
    interpolation: Any
    event_mask: Any


def errors_at(t: Array, y: tuple[Array, Array], model: Model) -> tuple[Array, Array]:
    """phi and psi of all rows (m,), those of the servo included for a system under servo control.

    **Arguments:**

    - `t`: time [s].
    - `y`: the state (q, v).
    - `model`: the system.
    """
    rows = [constraint_rows(model.system, t, *y)]
    if isinstance(model.system, Servoed):
        rows.append(model.system.law.task(model.system.system, t, *y))
    phi, psi = ([getattr(r, f"{level}_error") for r in rows] for level in ("position", "velocity"))
    return jnp.concatenate(phi), jnp.concatenate(psi)


Names = tuple[tuple[str, ...], tuple[Kind, ...]]
"""Those of the rows, and their kinds."""

_SOLVED = ("a", "constraint_force", "multipliers", "rank")
"""What a formula tells."""


@eqx.filter_jit
@in_full_precision
def _observe(model: Model, states: States) -> tuple[dict[str, Any], Names]:
    """All a `Trajectory` holds of every saved state, which is projected here if it lies between steps.

    And the rows' names and kinds, which are known once it is traced.
    """

    def solved(model: Model, t: Array, q: Array, v: Array) -> dict[str, Any]:
        equations = equations_of_motion(model.system, t, q, v, model.stabilizer)
        acceleration, rows = model.formula.solve(equations), equations.rows
        return {
            **{name: getattr(acceleration, name) for name in _SOLVED},
            "position_error": rows.position_error,
            "velocity_error": rows.velocity_error,
            "energy": model.system.energy(t, q, v),
        }

    def at(t: Any, q: Any, v: Any) -> dict[str, Any]:
        q, v = model.project(t, (q, v))
        by_code = {} if model.code is None else lazily_differentiated(Model.observed)(model, t, q, v)
        # Apart, so that a program in which nobody asks for multipliers is without them.
        others = lambda *of: {name: x for name, x in solved(*of).items() if name not in by_code}
        return {"t": t, "q": q, "v": v} | lazily_differentiated(others)(model, t, q, v) | by_code

    rows = eqx.filter_eval_shape(constraint_rows, model.system, *(x[0] for x in states))
    return jax.vmap(at)(*states), (rows.names, rows.kinds)


@eqx.filter_jit
@in_full_precision
def _energy(system: AbstractSystem, states: States) -> Array | None:
    energy: Callable[..., Any] = system.energy
    return jax.vmap(energy)(*states)


def _observe_on_host(model: Model, states: States, usual: bool) -> tuple[dict[str, Any], Names]:
    """As `_observe`, on the host.

    **Arguments:** as `_observe`, and:

    - `usual`: whether other runs will have as many states.
    """
    assert model.code is not None
    states = projected(model, states)
    columns = at_states(model, states)
    rows = model.code.equations.arrays.rows
    columns["rank"] = columns["rank"].astype(np.int32)
    columns.pop("regular")
    if "energy" not in columns:
        energy = _energy(model.system, states)
        columns["energy"] = None if energy is None else np.asarray(energy)
    return _on_device(columns | states._asdict(), usual), (rows.names, rows.kinds)


@jax.jit
def _passed(arrays: Any) -> Any:
    return arrays


def _on_device(columns: dict[str, np.ndarray | None], usual: bool) -> dict[str, Array | None]:
    """NumPy's arrays as JAX's.

    **Arguments:**

    - `columns`: the arrays.
    - `usual`: whether arrays of these shapes will come again: a compiled function passes them on in a fifth of the time
      that `jax.device_put` takes, which compiles nothing.
    """
    given = {name: np.asarray(x) for name, x in columns.items() if x is not None}
    return dict.fromkeys(columns) | (_passed if usual else jax.device_put)(given)


def _padded(places: np.ndarray) -> np.ndarray:
    """The last is repeated up to a power of two, so that runs of different lengths share compiled code."""
    return np.append(places, np.full(2 ** (places.size - 1).bit_length() - places.size, places[-1]))


def reached(t: Array | np.ndarray) -> np.ndarray:
    """Indices of the saved times that a run reached, each once; the last is where it stopped.

    **Arguments:**

    - `t`: saved times with values, infinite where they were not reached (k,).
    """
    t = np.asarray(t)
    return np.flatnonzero(np.isfinite(t) & np.append(t[:-1] != t[-1], True))


def _at_reached(model: Model, states: States, usual: bool) -> tuple[dict[str, Any], Names]:
    """Of states with values: what holds at the times reached."""
    places = reached(states.t)
    taken = lambda places: States(*(np.asarray(x)[places] for x in states))
    if model.code is not None:
        all_reached = bool(np.all(np.isfinite(np.asarray(states.t))))
        return _observe_on_host(model, taken(places), usual and all_reached)
    observed, names = _observe(model, taken(_padded(places)))
    return _first(observed, places.size), names


@partial(jax.jit, static_argnums=1)
def _first(arrays: Any, kept: int) -> Any:
    return jax.tree.map(lambda x: x[:kept], arrays)


def assembled(model: Model, solved: Solved, dense: bool, *, usual: bool = False, **told: Any) -> Trajectory:
    """The trajectory of a run; where JAX traces it, it has an entry for each time asked for and, last, the final state.

    **Arguments:**

    - `model`: what was integrated.
    - `solved`: what the steps left behind.
    - `dense`: whether the motion between saved times is kept.
    - `usual`: whether other runs will save as many states.
    - `told`: fields of the trajectory that are known before the run.
    """
    tracing = is_traced(solved)
    states, result = States(solved.t, solved.q, solved.v), solved.result
    observed, (names, kinds) = _observe(model, states) if tracing else _at_reached(model, states, usual)
    xp = jnp if tracing else np
    finite = xp.all(xp.array([xp.all(xp.isfinite(xp.asarray(observed[x])[-1])) for x in ("q", "a")]))
    if tracing:
        result = RESULTS.where(finite, result, RESULTS.diverged)
    elif not finite:
        result = RESULTS.diverged
    return _trajectory(
        **observed,
        result=result,
        stats=solved.stats,
        row_names=names,
        row_kinds=kinds,
        event=which(solved.event_mask),
        dense=Dense(solved.interpolation, model.system, model.stabilizer) if dense else None,
        **told,
    )


def _trajectory(**fields: Any) -> Trajectory:
    """A trajectory without Equinox's checks of each field, which take as long as a short run."""
    made = object.__new__(Trajectory)
    for field in dataclasses.fields(Trajectory):
        object.__setattr__(made, field.name, fields.get(field.name, field.default))
    return made


def throw_if_failed(trajectory: Trajectory) -> Trajectory:
    """The trajectory, with a runtime error attached that is raised where a compiled run fails.

    **Arguments:**

    - `trajectory`: of the run.
    """
    failed = (trajectory.result != RESULTS.successful) & (trajectory.result != RESULTS.event_occurred)
    return trajectory.result.error_if(trajectory, failed)
