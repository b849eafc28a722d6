"""The figures one looks at first, of a run: as plain numbers, and as a table in a notebook."""

import html
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._misc._types import is_traced
from ._doctor import find_nearly_dependent_rows
from ._parts import is_servoed
from ._results import RESULTS, append_end, code, require_one, trim_to_end

if TYPE_CHECKING:
    from ._trajectory import Trajectory


def _summarize_run(run: "Trajectory") -> dict[str, Any]:
    evaluations = run.stats.get("num_evaluations")
    return {
        "model": run.name,
        "t1": float(run.t_end),
        "steps": int(run.stats["num_steps"]),
        "evaluations": None if evaluations is None else int(evaluations),
    }


def _summarize_constraints(run: "Trajectory") -> dict[str, Any]:
    drift = run.energy_drift
    return {
        "max_position_error": float(run.max_position_error),
        "max_velocity_error": float(run.max_velocity_error),
        "energy_drift": None if drift is None else float(drift),
        "rank_min": int(run.rank_min),
        "rank_max": int(run.rank_max),
    }


def _summarize_ends(run: "Trajectory") -> dict[str, Any]:
    sine, rows = find_nearly_dependent_rows(run)
    rejected = run.stats.get("num_rejected_steps")  # which a trajectory put together by hand may lack
    return {
        "rejected_steps": None if rejected is None else int(rejected),
        "least_sine": sine,
        "nearly_dependent": list(rows),
        "start_moved": [float(x) for x in run.start_moved],
        "event": run.event_name,
        "result": run.result_name,
        "broken_rows": list(run.broken_rows),
    }


def _summarize_servo(run: "Trajectory") -> dict[str, Any]:
    """How servo rows were followed, which are none of the constraints."""
    if not is_servoed(run):
        return {}
    run = trim_to_end(run)
    servo = run.servo()
    return {
        "max_servo_position_error": float(run.largest(servo.position_error)),
        "max_servo_velocity_error": float(run.largest(servo.velocity_error)),
        "servo_position_error_end": float(np.max(np.abs(servo.position_error[-1]), initial=0)),
        "max_input": float(run.largest(servo.inputs)),
    }


_FIGURES: tuple[Callable[["Trajectory"], dict[str, Any]], ...] = (
    _summarize_run,
    _summarize_constraints,
    _summarize_servo,
    _summarize_ends,
)
"""What a summary consists of, in its order."""


def summary(run: "Trajectory") -> dict[str, Any]:
    """As `Trajectory.summary`."""
    require_one(run)
    return {name: value for figures in _FIGURES for name, value in figures(run).items()}


def _format_value(value: Any) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def as_line(run: "Trajectory") -> str:
    """The run in a line, by NumPy: nothing is compiled. Of a batch and within `jit` it tells shapes only."""
    head, t, errors = f"Trajectory '{run.name}'", run.t, (run.position_error, run.velocity_error)
    if not all(hasattr(x, "shape") for x in (t, run.q, *errors)):
        return head
    known = not is_traced(run) and all(isinstance(x, jax.Array | np.ndarray) for x in (t, *errors))
    if not known or t.ndim != 1:
        return f"{head}: t {t.shape}, q {run.q.shape}, {len(run.row_names)} constraint rows"
    times, *errors = map(np.asarray, append_end(run, "t", "position_error", "velocity_error"))
    reached = np.isfinite(times)
    count = int(np.sum(reached[:-1]))
    of = "" if count == len(run) else f" of {len(run)}"
    span = f"{times[reached][0]:.6g} to {times[-1]:.6g} s at {count}{of} times"
    phi, psi = (np.max(np.abs(x[reached]), initial=0) for x in errors)
    result = next(name for name, x in RESULTS._name_to_item.items() if code(x) == code(run.result))
    return f"{head}: {span}, {result}, position error {phi:.1e}, velocity error {psi:.1e}"


def as_html(run: "Trajectory") -> str:
    """The summary as a table; of a batch or within `jit`, its line."""
    if is_traced(run.t) or run.t.ndim != 1:
        return f"<pre>{html.escape(repr(run))}</pre>"
    figures = run.summary()
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(_format_value(value))}</td></tr>"
        for name, value in figures.items()
        if name != "model"
    )
    message = f"<pre>{html.escape(run.message)}</pre>" if run.message else ""
    shape = f"{len(run)} times, {run.q.shape[1]} coordinates, {len(run.row_names)} constraint rows"
    return f"<b>{html.escape(run.name)}</b><br>{shape}<table>{rows}</table>{message}"
