"""What a run warns of: contacts of which no motion obeys the laws, or several do."""

import warnings
from typing import Any

import numpy as np

from .._contact._history import UNSOLVED
from .._misc._errors import ContactWarning
from ._trajectory import Trajectory


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
    if said:
        warnings.warn(f"contacts: {'; '.join(said)}.", ContactWarning, stacklevel=3)
