"""Why a run ended early, in words and with the names of constraints."""

import contextlib
import dataclasses

import numpy as np
from jaxtyping import Array

from .._misc._errors import InputError
from .._motion._model import Model
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from ._doctor import check
from ._results import RESULTS
from ._trajectory import Trajectory

# How far ahead to look for what the solver met: an adaptive one stops just short of it.
_AHEAD = (0.0, 1e-9, 1e-6, 1e-3, 1.0)


def _last_finite(trajectory: Trajectory) -> int:
    state = np.concatenate([trajectory.q, trajectory.v], axis=1)
    return int(np.flatnonzero(np.all(np.isfinite(state), axis=1)).max(initial=0))


def _what_was_met(model: Model, trajectory: Trajectory, last: int, t1: Array) -> str | None:
    """What makes the acceleration infinite or NaN at the last finite state or shortly after it, if anything."""
    t, q, v = trajectory.t[last], trajectory.q[last], trajectory.v[last]
    following = trajectory.t[last + 1] if last + 1 < len(trajectory) else t1
    rate = model.system.kinematics(t, q, v)
    for fraction in _AHEAD:
        dt = fraction * (following - t)
        try:
            model.formula.acceleration(model.system, t + dt, q + dt * rate, v, stabilizer=model.stabilizer)
        except InputError as error:
            return str(error)
    return None


def explained(model: Model, trajectory: Trajectory, t1: Array) -> Trajectory:
    """A failed trajectory with its `message`, and `diverged` for result where that is what happened.

    **Arguments:**

    - `model`: what was simulated.
    - `trajectory`: what there is of the motion.
    - `t1`: the end that was asked for [s].
    """
    last = _last_finite(trajectory)
    met = _what_was_met(model, trajectory, last, t1)
    result = trajectory.result if met is None else RESULTS.diverged
    trajectory = dataclasses.replace(trajectory, result=result)
    return _told(model.system, model.stabilizer, trajectory, t1, "" if met is None else f" There {met}")


def explained_with_contacts(
    system: AbstractSystem, stabilizer: AbstractStabilizer, trajectory: Trajectory, t1: Array
) -> Trajectory:
    """A failed trajectory of a system with contacts, with its `message`.

    **Arguments:** as `explained`, but the system and the stabilizer for the model.
    """
    met = " Contacts that touch there may contradict each other, or the constraints."
    return _told(system, stabilizer, trajectory, t1, met)


def _told(
    system: AbstractSystem, stabilizer: AbstractStabilizer, trajectory: Trajectory, t1: Array, met: str
) -> Trajectory:
    last = _last_finite(trajectory)
    t, q, v = trajectory.t[last], trajectory.q[last], trajectory.v[last]
    stopped = f"It stopped at t = {float(t):.6g} s of {float(t1):.6g} s."
    text = f"{RESULTS[trajectory.result].strip()} {stopped}{met}"
    with contextlib.suppress(InputError):  # of a state that is not finite, which the text has said
        text += f" At the last state:\n{check(system, t, q, v, stabilizer=stabilizer)}"
    return dataclasses.replace(trajectory, message=text)
