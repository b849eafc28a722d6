"""Whether a run that projects its states has kept its constraints: rows that contradict each other no motion keeps."""

import warnings
from typing import TYPE_CHECKING

import numpy as np

from .._misc._errors import ConstraintWarning
from ._end import joined
from ._results import RESULTS, code, off_by

if TYPE_CHECKING:
    from ._trajectory import Trajectory

# Beside the one that is off most: rows that contradict each other share what cannot be met.
_INVOLVED = 1e-2


def first_broken(run: "Trajectory") -> tuple[float, tuple[str, ...]]:
    """When constraints were first off among the saved times and the end, and the names of the rows that were then.

    **Arguments:**

    - `run`: with values, that did not keep its constraints.
    """
    names = "t", "q", "v", "position_error", "velocity_error"
    columns = dict(zip(names, joined(run, *names), strict=True))
    off = np.asarray(off_by(columns))
    worst = np.max(off, axis=1, initial=0)
    # Where the run stopped, they are off by just as much as counts.
    first = int(np.argmax(worst > 1)) if np.any(worst > 1) else len(worst) - 1
    involved = np.flatnonzero(off[first] >= _INVOLVED * worst[first]) if worst[first] > 0 else ()
    return float(columns["t"][first]), tuple(run.row_names[i] for i in involved)


def in_words(names: tuple[str, ...]) -> str:
    """The first of some names.

    **Arguments:**

    - `names`: of rows.
    """
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"{', '.join(names[:6])}{more}"


def warn_of_rows(run: "Trajectory") -> None:
    """Warns of constraints that a run with values did not keep.

    **Arguments:**

    - `run`: the run.
    """
    if code(run.result) != code(RESULTS.constraints_broken):
        return
    when, names = first_broken(run)
    errors = float(run.max_position_error), float(run.max_velocity_error)
    went_on = float(run.t_end) > when
    where = "went on with errors up to {:.3g} of positions and {:.3g} of velocities" if went_on else "stopped there"
    warnings.warn(
        f"constraints are not kept from {when:.6g} s on: {in_words(names)}. The run {where.format(*errors)}. No motion "
        "keeps rows that contradict each other, and none that say of velocities what only positions decide.",
        ConstraintWarning,
        stacklevel=3,
    )
