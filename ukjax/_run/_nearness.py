"""Which rows are on the verge of dependence, and how near: there motions may branch, and steps are refused."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Array

from .._compiler import evaluate_at_states
from .._misc._errors import InputError
from .._misc._tolerances import DEFAULT_RCOND, IN_SINGLE_PRECISION, nearly_dependent
from .._misc._types import choose_by_precision
from .._motion._project import project
from .._pseudoinverse import unit_rows_on_host
from .._system._rows import constraint_rows
from .._system._system import AbstractSystem
from ._end import append_end

if TYPE_CHECKING:
    from ._trajectory import Trajectory

_INVOLVED = 0.1  # of the row that takes part most
# Of the rank rule's threshold: a motion that would take rows beyond it, and is held, has steps refused there.
_HELD_BACK = 0.1
_AWAY = 1e-2  # of the size of the coordinates, by which a state near by is moved: far above the rank rule's threshold


def _jacobian(system: AbstractSystem, t: Array, q: Array, v: Array) -> Array:
    return constraint_rows(system, t, q, v).A


def _unit_rows(system: AbstractSystem, *states: Any) -> np.ndarray:
    """The rows of A at states, of unit norm (k, m, n)."""
    return np.stack([unit_rows_on_host(A)[0] for A in evaluate_at_states(_jacobian, system, *states)])


def least_sine(unit: np.ndarray, rank: int) -> tuple[float, np.ndarray]:
    """The least singular value of rows of a rank, beside the largest: the sine by which they are independent; and which
    rows take part in it. If others count as dependent, but by far not to rounding, the sine by which these are not.
    """
    U, s, _ = np.linalg.svd(unit, full_matrices=False)
    which = int(_nearest(s[None], rank)[1][0])
    part = np.abs(U[:, which])
    return float(_nearest(s[None], rank)[0][0]), np.flatnonzero(part >= _INVOLVED * part.max())


def _nearest(s: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Of singular values (k, m) those nearest to the border between rows that count and rows that depend, and which."""
    s = np.abs(s) / np.maximum(s[:, :1], np.finfo(s.dtype).tiny)
    which = np.full(len(s), rank - 1)
    if rank < s.shape[1]:
        which += s[:, rank] > _HELD_BACK * choose_by_precision(s.dtype, DEFAULT_RCOND, IN_SINGLE_PRECISION)
    return s[np.arange(len(s)), which], which


def rank_nearby(system: AbstractSystem, t: Array, q: Array, v: Array, kernel: np.ndarray) -> int | None:
    """The rank of the rows a little further along some motion they allow: None where there is no such state.

    Rows that depend on each other everywhere, as those of an overconstrained mechanism, do so there as well.
    """
    if not len(kernel):
        return None
    along = np.random.default_rng(0).normal(size=len(kernel)) @ kernel
    rate = np.asarray(system.kinematics(t, q, np.asarray(along, q.dtype)))  # pyright: ignore[reportArgumentType]
    largest = np.abs(rate).max(initial=0)
    if not largest > 0:
        return None
    by = _AWAY * max(1.0, float(np.abs(q).max())) / largest
    try:
        there, _ = project(system, t, np.asarray(q + by * rate, q.dtype), 0 * v)
    except InputError:
        return None
    (unit,) = _unit_rows(system, *(np.asarray(x)[None] for x in (t, there, v)))
    s = np.linalg.svd(unit, compute_uv=False)
    return int(np.sum(s > DEFAULT_RCOND * s.max(initial=0)))


def find_nearly_dependent_rows(run: "Trajectory") -> tuple[float | None, tuple[str, ...]]:
    """The least sine of the rows at the saved times of a run, and their names; None where there is nothing to explain:
    the rank stayed and few steps were refused, or no rows are nearly dependent.
    """
    rejected, accepted = (int(run.stats.get(f"num_{kind}_steps", 0)) for kind in ("rejected", "accepted"))
    refused = 2 * rejected > accepted
    if run.problem is None or not run.row_names or not (refused or bool(run.rank_changed)):
        return None, ()
    columns = [np.asarray(x) for x in append_end(run, "t", "q", "v")]
    finite = np.all([np.isfinite(x).reshape(len(x), -1).all(axis=1) for x in columns], axis=0)
    rank = int(run.rank_max)
    if not rank or not finite.any():
        return None, ()
    unit = _unit_rows(run.problem.system, *(x[finite] for x in columns))
    s = np.linalg.svd(unit, compute_uv=False)
    if unit.shape[1] != len(run.row_names) or rank > s.shape[1]:
        return None, ()
    least, _ = _nearest(s, rank)
    sine, involved = least_sine(unit[int(np.argmin(least))], rank)
    if not sine < nearly_dependent(run.q.dtype):
        return None, ()
    return sine, tuple(run.row_names[i] for i in involved)
