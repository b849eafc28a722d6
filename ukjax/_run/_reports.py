"""What a run says of itself: a summary in words, and tables of named arrays."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from .._contact._history import AT_TIMES, ContactHistory
from .._formula._servo import Servoed, ServoRun
from .._misc._tables import Column, RunTable
from .._misc._types import is_traced
from ._doctor import find_nearly_dependent_rows
from ._results import append_end, end_of, require_values, split, trim_to_end

if TYPE_CHECKING:
    from ._trajectory import Trajectory


# --- The figures one looks at first, of a run: as plain numbers, and in a line


def is_servoed(trajectory: "Trajectory") -> bool:
    """Whether a run is known to be under servo control."""
    known = trajectory.problem is not None and isinstance(trajectory.problem.system, Servoed)
    return known or trajectory.tracking is not None


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


def summary(run: "Trajectory") -> dict[str, Any]:
    """As `Trajectory.summary`."""
    require_values(run)
    number = lambda kind, x: (
        None if x is None else kind(x)
    )  # which a trajectory put together by hand may lack
    sine, rows = find_nearly_dependent_rows(run)
    return {
        "model": run.name,
        "t1": float(run.t_end),
        "steps": int(run.stats["num_steps"]),
        "evaluations": number(int, run.stats.get("num_evaluations")),
        "max_position_error": float(run.max_position_error),
        "max_velocity_error": float(run.max_velocity_error),
        "energy_drift": number(float, run.energy_drift),
        "rank_min": int(run.rank_min),
        "rank_max": int(run.rank_max),
        **_summarize_servo(run),
        "rejected_steps": number(int, run.stats.get("num_rejected_steps")),
        "least_sine": sine,
        "nearly_dependent": list(rows),
        "start_moved": [float(x) for x in run.start_moved],
        "event": run.event_name,
        "result": run.result_name,
        "broken_rows": list(run.broken_rows),
    }


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
    coarse = "" if run.q.dtype == np.float64 else f", in {run.q.dtype}"
    return f"{head}: {span}, {run.result_name}, position error {phi:.1e}, velocity error {psi:.1e}{coarse}"


# --- A trajectory as a table of named arrays with dimensions, labels and units, for xarray, pandas, plots and files;
# and back from it.

COLUMNS: dict[str, tuple[tuple[str, ...], str]] = {
    "t": (("time",), "s"),
    "q": (("time", "coordinate"), "generalized coordinate"),
    "v": (("time", "velocity"), "generalized velocity"),
    "a": (("time", "velocity"), "generalized acceleration"),
    "constraint_force": (("time", "velocity"), "generalized force"),
    "multipliers": (("time", "row"), "force conjugate to the row"),
    "position_error": (("time", "row"), "unit of the row"),
    "velocity_error": (("time", "row"), "unit of the row / s"),
    "energy": (("time",), "J"),
    "rank": (("time",), "1"),
}
"""The arrays of a trajectory."""

_EVENTS = "num_contact_events"
_MOVED = ("start_moved_q", "start_moved_v")
_ASKED, _REACHED = "saved_times", "saved_times_reached"
_STATES = "num_states"

SERVO_COLUMNS: dict[str, tuple[tuple[str, ...], str]] = {
    "inputs": (("time", "input"), "unit of the input"),
    "servo_position_error": (("time", "servo_row"), "unit of the row"),
    "servo_velocity_error": (("time", "servo_row"), "unit of the row / s"),
    "servo_multipliers": (("time", "servo_row"), "force conjugate to the row"),
    "servo_residual": (("time", "servo_row"), "unit of the row / s^2"),
    "servo_realizable": (("time",), "1"),
}
"""The arrays of a `ServoRun`, under these names where they are beside the others."""


CONTACT_COLUMNS: dict[str, tuple[tuple[str, ...], str]] = {
    "gap": (("time", "contact"), "m"),
    "contact_force": (("time", "contact_row"), "N"),
    "closed": (("time", "contact"), "1"),
    "sliding": (("time", "contact"), "1"),
    "ambiguous": (("time", "contact"), "1"),
    "contacts": (("contact", "normal_and_tangents"), "1"),
    "angles": (("contact",), "1"),
    "closed_before": (("contact",), "1"),
    "sliding_before": (("contact",), "1"),
}
"""The arrays of a `ContactHistory` that are not of its events."""

EVENT_COLUMNS: dict[str, tuple[tuple[str, ...], str]] = {
    "event_time": (("event",), "s"),
    "impulse": (("event", "contact_row"), "N s"),
    "event_closed": (("event", "contact"), "1"),
    "event_sliding": (("event", "contact"), "1"),
    "event_ambiguous": (("event", "contact"), "1"),
    "event_speed": (("event",), "unit of what ran out / s"),
    "event_sudden": (("event",), "1"),
    "event_residual": (("event",), "1"),
    "event_reset": (("event",), "1"),
    "event_reset_moved": (("event",), "unit of the state"),
}
"""Those of what happened."""


def _field(of: Any, column: str) -> str:
    """What a column is called in its owner: without a first word that only tells it from others of the table."""
    return column if column in of.__dataclass_fields__ else column.partition("_")[2]


def _columns(owner: Any, columns: dict[str, tuple[tuple[str, ...], str]]) -> dict[str, Column]:
    named = {k: (dims, getattr(owner, _field(owner, k)), units) for k, (dims, units) in columns.items()}
    return {k: Column(d, np.asarray(x), u) for k, (d, x, u) in named.items() if x is not None}


def _tabulate_contacts(history: ContactHistory) -> dict[str, Column]:
    """All of them; of events those that there were."""
    columns = _columns(history, CONTACT_COLUMNS)
    dims, contacts, unit = columns["contacts"]
    columns["contacts"] = Column(dims, contacts.reshape(-1, 2).astype(np.int32), unit)
    columns["angles"] = columns["angles"]._replace(values=columns["angles"].values.astype(bool))
    if history.turning:
        columns["turning"] = Column(("contact",), np.asarray(history.turning, np.int32), "1")
    happened = np.isfinite(np.asarray(history.event_time))
    of_events = _columns(history, EVENT_COLUMNS)
    return columns | {name: x._replace(values=x.values[happened]) for name, x in of_events.items()}


def table(run: "Trajectory", parts: Any = ()) -> RunTable:
    """The arrays with their dimensions, labels and units, at the saved times reached, and last at the end."""
    require_values(run)
    asked, reached, run = len(run), int(np.sum(np.isfinite(run.t))), trim_to_end(run)
    columns = _columns(run, COLUMNS)
    names = run.names
    labels = {"coordinate": names.coordinates, "velocity": names.velocities}
    labels |= {"row": run.row_names, "row_kind": run.row_kinds}
    if is_servoed(run):
        servo = run.servo()
        columns |= _columns(servo, SERVO_COLUMNS)
        labels |= {
            "input": servo.input_names,
            "servo_row": servo.row_names,
            "servo_row_kind": servo.row_kinds,
        }
    if run.contacts is not None:
        columns |= _tabulate_contacts(run.contacts)
        labels |= {"contact": run.contacts.names, "contact_row": run.contacts.row_names}
        labels |= {"reset": run.contacts.reset_names} if run.contacts.reset_names else {}
    if parts:
        from ._quantities import arrays_of, dims_of, units_of

        for name, x in arrays_of(run, parts).items():
            columns[name] = Column(("time", *dims_of(name, x.shape[1:])), x, units_of(name))
            if columns[name].dims[-1] == "axis":
                labels["axis"] = ("x", "y", "z")[: x.shape[-1]]
    attributes: dict[str, str | int | float] = {
        "model": run.name,
        "result": run.result_name,
        "message": run.message,
        "computed_by": run.computed_by,
    }
    attributes |= {"event": run.event_name or ""} | dict(
        zip(_MOVED, map(float, run.start_moved), strict=True)
    )
    attributes |= {_ASKED: asked, _REACHED: reached} | ({_STATES: run.num_states} if run.num_states else {})
    attributes |= {name: int(value) for name, value in run.stats.items()}
    attributes |= {} if run.contacts is None else {_EVENTS: int(run.contacts.num_events)}
    return RunTable(columns, {name: list(x) for name, x in labels.items()}, attributes)


def _servo_from(table: RunTable, at_times: dict[str, Any]) -> ServoRun | None:
    if "inputs" not in table.columns:
        return None
    return ServoRun(
        **at_times,
        row_names=tuple(table.labels["servo_row"]),
        row_kinds=tuple(table.labels["servo_row_kind"]),  # pyright: ignore[reportArgumentType]
        input_names=tuple(table.labels["input"]),
    )


def _contacts_from(table: RunTable, at_times: dict[str, Any], count: int) -> ContactHistory | None:
    """The contacts, of which there were `count` events; None in a file of a version that left them out."""
    if "contacts" not in table.columns:
        return None
    columns = {_field(ContactHistory, k): table.columns[k].values for k in CONTACT_COLUMNS | EVENT_COLUMNS}
    columns |= at_times
    contacts, angles = columns.pop("contacts").tolist(), columns.pop("angles").tolist()
    return ContactHistory(
        names=tuple(table.labels["contact"]),
        contacts=tuple((bool(normal), tangents) for normal, tangents in contacts),
        angles=tuple(map(bool, angles)),
        turning=tuple(map(int, table.columns["turning"].values)) if "turning" in table.columns else (),
        reset_names=tuple(table.labels.get("reset", ())),
        num_events=jnp.asarray(count),
        **{name: jnp.asarray(x) for name, x in columns.items()},
    )


def fields_from(table: RunTable) -> dict[str, Any]:
    """The fields of the trajectory a table was made of, but for `result`, whose name comes in its place."""
    attributes = dict(table.attributes)
    name, result, message = (str(attributes.pop(key)) for key in ("model", "result", "message"))
    event, computed_by = (str(attributes.pop(key, "")) for key in ("event", "computed_by"))
    moved = jnp.asarray([float(attributes.pop(key, 0.0)) for key in _MOVED])
    events, states = (int(attributes.pop(key, 0)) for key in (_EVENTS, _STATES))
    rows = len(table.columns["t"].values)
    asked, reached = (int(attributes.pop(key, rows)) for key in (_ASKED, _REACHED))
    of_contacts = {k: k if k in AT_TIMES else _field(ContactHistory, k) for k in CONTACT_COLUMNS}
    of_contacts = {k: field for k, field in of_contacts.items() if field in AT_TIMES}
    of_servo = {k: k.removeprefix("servo_") for k in SERVO_COLUMNS}
    along = [*COLUMNS, *of_contacts, *of_servo]
    # The end is the last row, which may be that of a saved time as well.
    ends = lambda x: np.concatenate([x[:reached], x[-1:]])
    saved, end = split({k: ends(table.columns[k].values) for k in along if k in table.columns}, asked)
    chosen = lambda of, names: {field: of[k] for k, field in names.items() if k in of}
    last = end_of({name: end.get(name) for name in COLUMNS} | chosen(end, of_contacts))
    return {
        **{name: saved.get(name) for name in COLUMNS},
        "end": dataclasses.replace(last, tracking=chosen(end, of_servo) or None),
        "stats": {name: jnp.asarray(value) for name, value in attributes.items()},
        "result": result,
        "row_names": tuple(table.labels["row"]),
        "row_kinds": tuple(table.labels["row_kind"]),
        "name": name,
        "message": message,
        "computed_by": computed_by,
        "start_moved": moved,
        "event": np.asarray(0 if event else -1),
        "event_names": (event,) if event else (),
        "coordinate_names": tuple(table.labels.get("coordinate", ())),
        "velocity_names": tuple(table.labels.get("velocity", ())),
        "num_states": states,
        "tracking": _servo_from(table, chosen(saved, of_servo)),
        "contacts": _contacts_from(table, chosen(saved, of_contacts), events),
    }
