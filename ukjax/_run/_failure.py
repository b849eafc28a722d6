"""Why a run ended early, in words and with the names of constraints."""

import contextlib

import numpy as np
from jaxtyping import Array

from .._contact._rows import kinematics
from .._formula._acceleration import AbstractFormula
from .._formula._on_host import acceleration_at
from .._misc._errors import InputError
from .._misc._modules import replace_unchecked
from .._motion._model import Model
from .._system._rows import constraint_rows
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from ._doctor import check
from ._results import RESULTS, append_end, code, first_broken, join_names
from ._trajectory import Trajectory

# How far ahead to look for what the solver met: an adaptive one stops just short of it.
_AHEAD = (0.0, 1e-9, 1e-6, 1e-3, 1.0)


def _last_finite(trajectory: Trajectory) -> tuple[Array, Array, Array]:
    """The last state (t, q, v) that is finite."""
    t, q, v = append_end(trajectory, "t", "q", "v")
    finite = np.all(np.isfinite(np.concatenate([q, v], axis=1)), axis=1)
    last = int(np.flatnonzero(finite).max(initial=0))
    return t[last], q[last], v[last]


def _what_was_met(model: Model, trajectory: Trajectory, t1: Array) -> str | None:
    """What makes the acceleration infinite or NaN at the last finite state or shortly after it, if anything."""
    t, q, v = _last_finite(trajectory)
    following = trajectory.t_end if t < trajectory.t_end else t1
    rate = model.system.kinematics(t, q, v)
    for fraction in _AHEAD:
        dt = fraction * (following - t)
        state = t + dt, q + dt * rate, v
        try:
            acceleration_at(model.formula, model.system, *state, model.stabilizer)
        except InputError as error:
            return str(error)
        rows = constraint_rows(model.system, *state)
        names, values = rows.names, np.asarray(rows.position_error + rows.velocity_error)
        if trajectory.contacts is not None:
            names += trajectory.contacts.names
            values = np.append(values, kinematics(model.system, *state).gap)
        if lost := tuple(name for name, x in zip(names, values, strict=True) if not np.isfinite(x)):
            return f"{join_names(lost)} is not finite at t = {state[0]}, q = {state[1]}."
    return None


def explain_failure(model: Model, trajectory: Trajectory, t1: Array) -> Trajectory:
    """A failed trajectory with its `message`."""
    known = trajectory.broken_rows or code(trajectory.result) == code(RESULTS.max_steps_reached)
    met = None if known else _what_was_met(model, trajectory, t1)
    return _add_message(
        model.system, model.stabilizer, trajectory, t1, "" if met is None else f" There {met}"
    )


def explain_contact_failure(
    system: AbstractSystem,
    formula: AbstractFormula,
    stabilizer: AbstractStabilizer,
    trajectory: Trajectory,
    t1: Array,
) -> Trajectory:
    """A failed trajectory of a system with contacts, with its `message`."""
    said = RESULTS.max_steps_reached, RESULTS.resets_accumulate, RESULTS.mass_matrix_not_symmetric
    known = trajectory.broken_rows or code(trajectory.result) in map(code, said)
    met = None if known else _what_was_met(Model(system, formula, stabilizer), trajectory, t1)
    if met is not None:
        met = f" There {met}"
    elif not known:
        met = " Contacts that touch there may contradict each other, or the constraints."
    return _add_message(system, stabilizer, trajectory, t1, met or "")


def _add_message(
    system: AbstractSystem, stabilizer: AbstractStabilizer, trajectory: Trajectory, t1: Array, met: str
) -> Trajectory:
    t, q, v = _last_finite(trajectory)
    stopped = f"It stopped at t = {float(t):.6g} s of {float(t1):.6g} s."
    if trajectory.broken_rows:
        when, names = first_broken(trajectory)
        stopped += f" Not kept from t = {when:.6g} s on: {join_names(names)}."
    text = f"{RESULTS[trajectory.result].strip()} {stopped}{met}"
    with contextlib.suppress(InputError):  # of a state that is not finite, which the text has said
        text += f" At the last state:\n{check(system, t, q, v, stabilizer=stabilizer)}"
    return replace_unchecked(trajectory, message=text)
