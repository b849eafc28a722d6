"""What a sweep keeps of a run, by name: trajectories, the final state, reductions, or functions of one's own."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._formula._servo import ServoRun
from .._misc._arguments import call_user_function, number_array
from .._misc._errors import InputError, format_value, unknown_name
from .._run._quantities import PARTS, dims_of, units_of
from .._run._reports import COLUMNS, SERVO_COLUMNS, is_servoed
from .._run._results import RESULTS
from .._run._results import code as code_of
from .._run._trajectory import Trajectory
from ._names import RunSpec, require_name

OUTCOMES = dict(zip(RESULTS._name_to_item, RESULTS._index_to_message, strict=True))
"""The results a run can have, in the order of their codes, and what they mean."""

Output = str | Callable[[Trajectory], Array]
Outputs = str | Sequence[Output] | Mapping[str, Output] | None


class FinishedRun(NamedTuple):
    """A run that was made, and of what; the trajectory knows its problem."""

    trajectory: Trajectory
    spec: RunSpec
    whole: Trajectory  # the same with its end as one more saved time, the last


class NamedOutput(NamedTuple):
    """An output: the dimensions of its value, its unit, and how to get it."""

    dims: tuple[str, ...] | None
    units: str
    of: Callable[[FinishedRun], Any]
    kept: bool = False
    """Whether it says something of runs that failed, too."""


def _part(name: str) -> Callable[[FinishedRun], dict[str, Array]]:
    """A part of what a run tells, as arrays by name."""
    return lambda run: {key: x[:-1] for key, x in PARTS[name](run.whole).items()}


def _points_end(run: FinishedRun) -> dict[str, Array]:
    return {f"{name}_end": x[-1] for name, x in PARTS["points"](run.whole).items()}


def _make_column(name: str) -> Callable[[FinishedRun], Array | None]:
    return lambda run: getattr(run.trajectory, name)


def _make_servo_output(fn: Callable[[Trajectory, ServoRun], Array]) -> Callable[[FinishedRun], Array | None]:
    """What needs servo control; None without."""
    return lambda run: fn(run.whole, run.whole.servo()) if is_servoed(run.whole) else None


def _make_servo_column(name: str) -> Callable[[FinishedRun], Array | None]:
    return _make_servo_output(lambda _, servo: getattr(servo, name.removeprefix("servo_"))[:-1])


def _figures() -> dict[str, NamedOutput]:
    """What is one number or one state a run."""
    of = lambda fn: lambda run: fn(run.trajectory)
    position, velocity = "unit of the row", "unit of the row / s"
    return {
        "t_end": NamedOutput((), "s", of(lambda run: run.t_end), kept=True),
        "q_end": NamedOutput(("coordinate",), COLUMNS["q"][1], of(lambda run: run.q_end)),
        "v_end": NamedOutput(("velocity",), COLUMNS["v"][1], of(lambda run: run.v_end)),
        "max_position_error": NamedOutput((), position, of(lambda run: run.max_position_error)),
        "max_velocity_error": NamedOutput((), velocity, of(lambda run: run.max_velocity_error)),
        "max_servo_position_error": NamedOutput(
            (), position, _make_servo_output(lambda run, x: run.largest(x.position_error))
        ),
        "max_servo_velocity_error": NamedOutput(
            (), velocity, _make_servo_output(lambda run, x: run.largest(x.velocity_error))
        ),
        "energy_drift": NamedOutput((), "J", of(lambda run: run.energy_drift)),
        "rank_min": NamedOutput((), "1", of(lambda run: run.rank_min)),
        "rank_max": NamedOutput((), "1", of(lambda run: run.rank_max)),
        "start_moved_q": NamedOutput((), COLUMNS["q"][1], of(lambda run: run.start_moved[0]), kept=True),
        "start_moved_v": NamedOutput((), COLUMNS["v"][1], of(lambda run: run.start_moved[1]), kept=True),
        "steps": NamedOutput((), "1", of(lambda run: run.stats["num_steps"]), kept=True),
    }


def _define_outputs() -> dict[str, NamedOutput]:
    known = {k: NamedOutput(dims, units, _make_column(k)) for k, (dims, units) in COLUMNS.items() if k != "t"}
    known |= {
        k: NamedOutput(dims, units, _make_servo_column(k)) for k, (dims, units) in SERVO_COLUMNS.items()
    }
    known |= {name: NamedOutput(None, "", _part(name)) for name in PARTS}
    known |= {"points_end": NamedOutput(None, "", _points_end)} | _figures()
    return known | {"event": NamedOutput((), "1", lambda run: run.trajectory.event, kept=True)}


KNOWN = _define_outputs()
"""Outputs of every model."""
_SERVO = {name for name in KNOWN if name in SERVO_COLUMNS or name.startswith("max_servo_")}
_SEVERAL = (*PARTS, "points_end")
DEFAULT = tuple(_figures())
"""Outputs of every sweep that asks for none, as far as its systems define them."""


def _own(name: str, fn: Callable[[Trajectory], Any]) -> NamedOutput:
    if not isinstance(name, str) or not name.isidentifier():
        raise InputError(f"an output needs a name: give outputs={{'name': function}}, not {name!r}.")
    return NamedOutput(
        None, "", lambda run: _numbers(name, call_user_function(f"output {name}", fn, run.trajectory))
    )


def _numbers(name: str, value: Any) -> Array:
    """What an output function returned, which must be one array."""
    value = number_array(f"output {name}", value)
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        raise InputError(f"output {name} must be real, got {value.dtype}.")
    return value


def select_outputs(outputs: Outputs) -> dict[str, NamedOutput]:
    """The outputs asked for, by name."""
    if outputs is None:
        return {name: KNOWN[name] for name in DEFAULT}
    if isinstance(outputs, str) or callable(outputs):
        outputs = [outputs]
    if not isinstance(outputs, Mapping | Sequence):
        raise InputError(f"outputs are names or functions of a trajectory, got {format_value(outputs)}.")
    if not isinstance(outputs, Mapping):
        outputs = {x if isinstance(x, str) else getattr(x, "__name__", ""): x for x in outputs}
    functions = {}
    for name, x in outputs.items():
        if not isinstance(x, str) and not callable(x):
            raise InputError(f"outputs are names or functions of a trajectory, got {format_value(x)}.")
        require_name("an output", name)
        if isinstance(x, str) and x not in KNOWN:
            raise unknown_name("output", x, KNOWN)
        functions[name] = KNOWN[x] if isinstance(x, str) else _own(name, x)
    return functions


def compute_outputs(run: FinishedRun, outputs: dict[str, NamedOutput], optional: bool) -> dict[str, Array]:
    """The values of outputs; of parts such as points, one for each."""
    columns: dict[str, Array] = {}
    if is_servoed(run.whole) and _SERVO & outputs.keys():  # found once for all of them
        run = run._replace(whole=dataclasses.replace(run.whole, tracking=run.whole.servo()))
    for name, output in outputs.items():
        value = output.of(run)
        if value is None:
            if optional:
                continue
            what = "energy" if name.startswith("energy") else "servo control: sweep uk.with_servo(...)"
            raise InputError(f"there is no output {name}: {run.trajectory.name} has no {what}.")
        if name in _SEVERAL and isinstance(value, dict):
            columns |= {key: _numbers(key, x) for key, x in value.items()}
        else:
            columns[name] = jnp.asarray(value)
    return columns


def description(name: str, value: Array, outputs: dict[str, NamedOutput]) -> NamedOutput:
    """What is known of a value that `observed` returned."""
    if name in outputs:
        return outputs[name]
    if name.endswith("_end") and "points_end" in outputs:  # one of its points, at the end
        return NamedOutput(dims_of(name, value.shape), units_of(name), lambda run: None)
    return NamedOutput(("time", *dims_of(name, value.shape[1:])), units_of(name), lambda run: None)


def outcome(run: FinishedRun) -> Array:
    """The code of how a run ended, an index of `OUTCOMES`."""
    trajectory = run.trajectory
    code = trajectory.result._value  # pyright: ignore[reportAttributeAccessIssue]
    code = jnp.asarray(code, jnp.int8)
    if not run.spec.stabilizer.projects or getattr(run.spec.formula, "clearance", None):
        return code
    start = jnp.concatenate([trajectory.position_error[0], trajectory.velocity_error[0]])
    off = jnp.max(jnp.abs(start), initial=0) > jnp.sqrt(jnp.finfo(start.dtype).eps)
    return jnp.where(off, jnp.asarray(code_of(RESULTS.inconsistent_start), jnp.int8), code)


def has_succeeded(code: Array | np.ndarray) -> Array:
    """Whether a run reached its end, or the event it was to stop at."""
    names = list(OUTCOMES)
    good = [names.index(name) for name in ("successful", "event_occurred")]
    return (code == good[0]) | (code == good[1])
