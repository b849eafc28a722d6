"""Whether a run that projects its states has kept its constraints: rows that contradict each other no motion keeps."""

import warnings
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from .._compiler import equations_at
from .._misc._errors import ConstraintWarning
from .._system._stabilize import NoStabilizer
from ._end import append_end
from ._results import RESULTS, code, off_by

if TYPE_CHECKING:
    from ._trajectory import Trajectory

_INVOLVED = 1e-2  # of the row that takes part most
_DEPENDENT = (
    1e-2  # singular values of rows of unit norm below this, or twice the least, are of rows that contradict
)


def _measure_involvement(run: "Trajectory", at: dict[str, np.ndarray], off: np.ndarray) -> np.ndarray:
    """How far each row takes part in what cannot be met: the part of what is off along z with A^T z = 0.

    Of rows that contradict each other a projection may leave all that is missing to one of them. Where the system is not
    known, only that one is.
    """
    if run.problem is None or not all(np.all(np.isfinite(at[name])) for name in "tqv"):
        return off
    state = (jnp.asarray(at[name]) for name in "tqv")
    A = np.asarray(equations_at(run.problem.system, NoStabilizer(), *state).rows.A, float)
    if A.shape[0] != off.size or not np.all(np.isfinite(A)):
        return off
    norms = np.linalg.norm(A, axis=1, keepdims=True)
    U, s, _ = np.linalg.svd(A / np.where(norms > 0, norms, 1))
    s = np.append(s, np.zeros(len(A) - s.size))
    U = U[:, s <= max(_DEPENDENT * s.max(initial=0), 2 * s.min(initial=np.inf))]
    return np.maximum(np.abs(U @ (U.T @ off)), off * (norms[:, 0] == 0))


def first_broken(run: "Trajectory") -> tuple[float, tuple[str, ...]]:
    """When constraints were first off among the saved times and the end, and the names of the rows that were then."""
    names = ["t", "q", "v", "position_error", "velocity_error"]
    columns = dict(zip(names, append_end(run, *names), strict=True))
    off = np.asarray(off_by(columns))
    worst = np.max(off, axis=1, initial=0)
    # Where the run stopped, they are off by just as much as counts.
    first = int(np.argmax(worst > 1)) if np.any(worst > 1) else len(worst) - 1
    part = _measure_involvement(run, {name: np.asarray(x)[first] for name, x in columns.items()}, off[first])
    involved = np.flatnonzero(part >= _INVOLVED * part.max()) if worst[first] > 0 else ()
    return float(columns["t"][first]), tuple(run.row_names[i] for i in involved)


def join_names(names: tuple[str, ...]) -> str:
    """The first of some names."""
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"{', '.join(names[:6])}{more}"


def warn_of_rows(run: "Trajectory") -> None:
    """Warns of constraints that a run with values did not keep."""
    if code(run.result) != code(RESULTS.constraints_broken):
        return
    when, names = first_broken(run)
    errors = float(run.max_position_error), float(run.max_velocity_error)
    went_on = float(run.t_end) > when
    where = (
        "went on with errors up to {:.3g} of positions and {:.3g} of velocities"
        if went_on
        else "stopped there"
    )
    warnings.warn(
        f"constraints are not kept from {when:.6g} s on: {join_names(names)}. The run {where.format(*errors)}. No motion "
        "keeps rows that contradict each other, and none that say of velocities what only positions decide.",
        ConstraintWarning,
        stacklevel=3,
    )
