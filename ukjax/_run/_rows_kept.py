"""Whether a run that projects its states has kept its constraints: rows that contradict each other no motion keeps."""

import warnings
from typing import Any

import numpy as np

from .._misc._errors import ConstraintWarning
from .._misc._types import by_precision
from .._system._stabilize import AbstractStabilizer
from ._trajectory import Trajectory

# Beside 1 and the largest coordinate, or velocity. A projection leaves some 1e-12 in float64, and 1e-9 where a linkage
# passes a singular position; rows that contradict each other are off by parts of what they say.
_KEPT = (1e-6, 1e-2)


def rows_not_kept(run: Trajectory) -> dict[str, tuple[str, float, float]]:
    """The names of rows that are off: whether in position or velocity, by how much at most, and when.

    **Arguments:**

    - `run`: with values.
    """
    found, t = {}, np.asarray(run.t)
    pairs = ("velocity", run.velocity_error, run.v), ("position", run.position_error, run.q)
    for level, errors, state in pairs:
        size = 1 + np.max(np.abs(np.asarray(state)), initial=0)
        off = np.abs(np.asarray(errors))
        for i in np.flatnonzero(np.any(off > by_precision(off.dtype, *_KEPT) * size, axis=0)):
            when = int(np.argmax(off[:, i]))
            found[run.row_names[i]] = level, float(off[when, i]), float(t[when])
    return found


def warn_of_rows(run: Trajectory, stabilizer: Any) -> None:
    """Warns of rows that are not kept, of a run with values to its end whose stabilizer projects.

    **Arguments:**

    - `run`: the run.
    - `stabilizer`: of it.
    """
    projects = isinstance(stabilizer, AbstractStabilizer) and stabilizer.projection_method is not None
    if not (projects and run.ok and (found := rows_not_kept(run))):
        return
    name, (level, error, when) = max(found.items(), key=lambda x: x[1][1])
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    warnings.warn(
        f"constraints are not kept: the {level} error of '{name}' is {error:.3g} at {when:.6g} s{more}. No motion keeps "
        "rows that contradict each other, and none that say of velocities what only positions decide; the run follows "
        "their least-squares solution.",
        ConstraintWarning,
        stacklevel=3,
    )
