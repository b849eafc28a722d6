"""What a sweep keeps of a run, by name: trajectories, the final state, reductions, or functions of one's own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._misc._arguments import called, number_array, shown, unknown_name
from .._misc._errors import InputError
from .._motion._project import Projection
from .._run._trajectory import _COLUMNS, RESULTS, Trajectory
from .._system._problem import Problem
from ._names import Case, points_of, require_name

OUTCOMES = dict(zip(RESULTS._name_to_item, RESULTS._index_to_message, strict=True)) | {
    "inconsistent_start": "No initial state near the one given satisfies the constraints."
}
"""The results a run can have, in the order of their codes, and what they mean."""
INCONSISTENT = len(OUTCOMES) - 1

Output = str | Callable[[Trajectory], Array]
Outputs = str | Sequence[Output] | Mapping[str, Output] | None


class Run(NamedTuple):
    """A run that was made, and of what."""

    trajectory: Trajectory
    problem: Problem
    case: Case


class Named(NamedTuple):
    """An output: the dimensions of its value, its unit, and how to get it."""

    dims: tuple[str, ...] | None
    units: str
    of: Callable[[Run], Any]
    kept: bool = False
    """Whether it says something of runs that failed, too."""


def _points(run: Run) -> dict[str, Array]:
    points = points_of(run.problem, run.case.system)
    at = (run.trajectory.t[:-1], run.trajectory.q[:-1])
    along = {} if points is None else called("points", jax.vmap(points), *at)
    return {f"point_{name}": x for name, x in along.items()}


def _points_end(run: Run) -> dict[str, Array]:
    points = points_of(run.problem, run.case.system)
    found = {} if points is None else called("points", points, run.trajectory.t[-1], run.trajectory.q[-1])
    return {f"point_{name}_end": x for name, x in found.items()}


def _along(name: str) -> Callable[[Run], Array | None]:
    def of(run: Run) -> Array | None:
        x = getattr(run.trajectory, name)
        return None if x is None else x[:-1]  # the last is the final state

    return of


def _known() -> dict[str, Named]:
    known = {
        name: Named(dims, units, _along(name)) for name, (dims, units) in _COLUMNS.items() if name != "t"
    }
    return known | {
        "points": Named(("time", "axis"), "m", _points),
        "points_end": Named(("axis",), "m", _points_end),
        "t_end": Named((), "s", lambda run: run.trajectory.t[-1], kept=True),
        "q_end": Named(("coordinate",), _COLUMNS["q"][1], lambda run: run.trajectory.q[-1]),
        "v_end": Named(("velocity",), _COLUMNS["v"][1], lambda run: run.trajectory.v[-1]),
        "max_position_error": Named((), "unit of the row", lambda run: run.trajectory.max_position_error),
        "max_velocity_error": Named((), "unit of the row / s", lambda run: run.trajectory.max_velocity_error),
        "energy_drift": Named((), "J", lambda run: run.trajectory.energy_drift),
        "rank_min": Named((), "1", lambda run: run.trajectory.rank_min),
        "rank_max": Named((), "1", lambda run: run.trajectory.rank_max),
        "steps": Named((), "1", lambda run: run.trajectory.stats["num_steps"], kept=True),
    }


KNOWN = _known()
"""Outputs of every model."""
DEFAULT = ("t_end", "q_end", "v_end", "max_position_error", "max_velocity_error", "energy_drift")
DEFAULT += ("rank_min", "rank_max", "steps")


def _own(name: str, fn: Callable[[Trajectory], Any]) -> Named:
    if not isinstance(name, str) or not name.isidentifier():
        raise InputError(f"an output needs a name: give outputs={{'name': function}}, not {name!r}.")
    return Named(None, "", lambda run: _numbers(name, called(f"output {name}", fn, run.trajectory)))


def _numbers(name: str, value: Any) -> Array:
    """What an output function returned, which must be one array."""
    value = number_array(f"output {name}", value)
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        raise InputError(f"output {name} must be real, got {value.dtype}.")
    return value


def chosen(outputs: Outputs) -> dict[str, Named]:
    """The outputs asked for, by name.

    **Arguments:**

    - `outputs`: names and functions, or a dict of them; None for the default ones.

    **Raises:** `InputError` for unknown names.
    """
    if outputs is None:
        return {name: KNOWN[name] for name in DEFAULT}
    if isinstance(outputs, str) or callable(outputs):
        outputs = [outputs]
    if not isinstance(outputs, Mapping | Sequence):
        raise InputError(f"outputs are names or functions of a trajectory, got {shown(outputs)}.")
    if not isinstance(outputs, Mapping):
        outputs = {x if isinstance(x, str) else getattr(x, "__name__", ""): x for x in outputs}
    found = {}
    for name, x in outputs.items():
        if not isinstance(x, str) and not callable(x):
            raise InputError(f"outputs are names or functions of a trajectory, got {shown(x)}.")
        require_name("an output", name)
        if isinstance(x, str) and x not in KNOWN:
            raise unknown_name("output", x, KNOWN)
        found[name] = KNOWN[x] if isinstance(x, str) else _own(name, x)
    return found


def observed(run: Run, outputs: dict[str, Named], optional: bool) -> dict[str, Array]:
    """The values of outputs; of points, one for each.

    **Arguments:**

    - `run`: the run.
    - `outputs`: as `chosen` has them.
    - `optional`: whether to leave out what the system does not define, instead of objecting.
    """
    found: dict[str, Array] = {}
    for name, output in outputs.items():
        value = output.of(run)
        if value is None or (isinstance(value, dict) and not value):
            if optional:
                continue
            what = "named points" if isinstance(value, dict) else "energy"
            raise InputError(f"there is no output {name}: {run.problem.name} defines no {what}.")
        if isinstance(value, dict):
            found |= {key: _numbers(key, x) for key, x in value.items()}
        else:
            found[name] = jnp.asarray(value)
    return found


def description(name: str, outputs: dict[str, Named]) -> Named:
    """What is known of a value that `observed` returned.

    **Arguments:**

    - `name`: of the value.
    - `outputs`: that were asked for.
    """
    if name in outputs:
        return outputs[name]
    return KNOWN["points_end" if name.endswith("_end") else "points"]


def outcome(run: Run) -> Array:
    """The code of how a run ended, an index of `OUTCOMES`.

    **Arguments:**

    - `run`: the run.
    """
    trajectory = run.trajectory
    code = trajectory.result._value  # pyright: ignore[reportAttributeAccessIssue]
    code = jnp.asarray(code, jnp.int8)
    if not isinstance(run.case.stabilizer, Projection) or getattr(run.case.formula, "clearance", None):
        return code
    start = jnp.concatenate([trajectory.position_error[0], trajectory.velocity_error[0]])
    off = jnp.max(jnp.abs(start), initial=0) > jnp.sqrt(jnp.finfo(start.dtype).eps)
    return jnp.where(off, jnp.asarray(INCONSISTENT, jnp.int8), code)


def succeeded(code: Array) -> Array:
    """Whether a run reached its end, or the event it was to stop at.

    **Arguments:**

    - `code`: of its outcome.
    """
    names = list(OUTCOMES)
    good = [names.index(name) for name in ("successful", "event_occurred")]
    return (code == good[0]) | (code == good[1])
