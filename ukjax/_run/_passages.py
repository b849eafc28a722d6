"""When a motion passed singular positions, where constraint rows that are independent elsewhere depend on each other.

Saved times miss the singular position itself. So the smallest singular value that belongs to the rank is followed
between them, on the motion's quintic Hermite interpolation brought back onto the constraints, down to its minima.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._misc._arguments import require_between, require_instance, whole_number
from .._misc._errors import InputError
from .._misc._tolerances import DEFAULT_RCOND
from .._motion._project import Projection
from .._system._rows import constraint_rows
from .._system._system import AbstractSystem
from ._results import trim_to_end
from ._trajectory import Trajectory

_CHUNK = 64
_ZOOMS = 20
_POINTS = 9


class Passage(NamedTuple):
    """A singular position a motion went through.

    - `t`: when [s].
    - `rank_before`, `rank_at`, `rank_after`: rank of the constraint rows.
    """

    t: float
    rank_before: int
    rank_at: int
    rank_after: int


def _hermite(s: Array, h: Array, start: tuple[Array, ...], end: tuple[Array, ...]) -> Array:
    """The quintic on 0 <= s <= 1 with value, first and second derivative given at both ends of a step h."""
    (x, u, a), (y, w, b) = start, end
    s2, s3 = s * s, s * s * s
    up = s3 * (10 - 15 * s + 6 * s2)
    left, right = s - s3 * (6 - 8 * s + 3 * s2), -s3 * (4 - 7 * s + 3 * s2)
    bend, tip = 0.5 * s2 * (1 - 3 * s + 3 * s2 - s3), 0.5 * s3 * (1 - 2 * s + s2)
    return x + up * (y - x) + h * (left * u + right * w) + h * h * (bend * a + tip * b)


@eqx.filter_jit
def _unit_rows(system: AbstractSystem, t: Array, steps: tuple[Array, ...]) -> Array:
    """The rows of A, of unit norm, at times within the steps (t, q, v, a of their two ends) (k, m, n)."""

    def at(t: Array, ts: Array, q: Array, v: Array, a: Array) -> Array:
        def rates(t: Array, q: Array, v: Array, a: Array) -> tuple[Array, Array, Array]:
            tangents = (jnp.ones_like(t), system.kinematics(t, q, v), a)
            return q, *jax.jvp(system.kinematics, (t, q, v), tangents)

        h = ts[1] - ts[0]
        s = (t - ts[0]) / h
        ends = [rates(*end) for end in zip(ts, q, v, a, strict=True)]
        here = Projection().positions(system, t, _hermite(s, h, *ends))
        A = constraint_rows(system, t, here, (1 - s) * v[0] + s * v[1]).A
        norms = jnp.sqrt(jnp.sum(A * A, axis=1, keepdims=True))
        return A / jnp.where(norms > 0, norms, 1)

    return jax.vmap(at)(t, *steps)


def _read_motion(trajectory: Trajectory) -> list[np.ndarray]:
    """Times, coordinates, velocities and accelerations (k, ...) where a run got to, also of a compiled one."""
    if trajectory.t.ndim == 1:
        run = trim_to_end(trajectory)
        columns = [np.asarray(x) for x in (run.t, run.q, run.v, run.a)]
        # Where it diverged, its last state is none.
        finite = np.all([np.isfinite(x).reshape(len(run), -1).all(axis=1) for x in columns], axis=0)
        if np.sum(finite) >= 3:
            return [x[finite] for x in columns]
    raise InputError(
        f"passages needs one run with at least three saved times, got t of shape {trajectory.t.shape}."
    )


def _singular_values(columns: list[np.ndarray], system: AbstractSystem) -> Callable[[np.ndarray], np.ndarray]:
    """Of the rows of unit norm, as a function of times within what is known (k,) -> (k, min(m, n))."""
    known = columns[0]

    def values(times: np.ndarray) -> np.ndarray:
        pieces = []
        # Chunks of one size, so that all share one compilation.
        for k in range(0, times.size, _CHUNK):
            part = np.pad(times[k : k + _CHUNK], (0, max(0, k + _CHUNK - times.size)), mode="edge")
            i = np.clip(np.searchsorted(known, part, side="right") - 1, 0, known.size - 2)
            steps = tuple(jnp.asarray(np.stack([x[i], x[i + 1]], axis=1)) for x in columns)
            pieces.append(np.linalg.svd(_unit_rows(system, jnp.asarray(part), steps), compute_uv=False))
        return np.concatenate(pieces)[: times.size]

    return values


def passages(
    trajectory: Trajectory,
    *,
    system: AbstractSystem | None = None,
    rcond: float = DEFAULT_RCOND,
    subdivisions: int = 4,
) -> list[Passage]:
    """The singular positions a motion passed between its first and last time: when, and the rank before, at and after.

    A position counts as singular where, of the rows of unit norm, a singular value that belongs to the rank elsewhere
    falls below `rcond`. Save times densely enough that each passage is a minimum of its own.

    **Arguments:**

    - `trajectory`: of one run, not of a batch.
    - `system`: what was simulated; by default known, except of a compiled run and of a trajectory read from a file.
    - `rcond`: the threshold, relative to the largest singular value.
    - `subdivisions`: into how many parts each time between saved ones is divided to look for minima.

    **Returns:** a list of `Passage`, in the order of time.

    **Raises:** `InputError` where the problem is not known, for a batch, and for fewer than three times.
    """
    require_between("rcond", rcond, 0, 1)
    require_instance("trajectory", trajectory, Trajectory, "uk.simulate(problem)")
    subdivisions = whole_number("subdivisions", subdivisions)
    if system is not None:
        require_instance("system", system, AbstractSystem, "uk.models.pendulum().system")
    if system is None:
        if trajectory.problem is None:
            raise InputError(
                "this trajectory does not know its problem: give passages(trajectory, system=...)."
            )
        system = trajectory.problem.system
    columns = _read_motion(trajectory)
    if not trajectory.row_names:
        return []
    values, known = _singular_values(columns, system), columns[0]
    parts = np.arange(subdivisions) / subdivisions
    times = np.append((known[:-1, None] + np.diff(known)[:, None] * parts).ravel(), known[-1])
    sampled = values(times)
    ranks = _ranks(sampled, rcond)
    least = np.finfo(sampled.dtype).tiny  # rows may be zero
    lowest = lambda sigma: sigma[:, ranks.max() - 1] / np.maximum(sigma[:, 0], least)
    sigma = lowest(sampled)
    (minima,) = np.nonzero((sigma[1:-1] < sigma[:-2]) & (sigma[1:-1] <= sigma[2:]))
    if not minima.size:
        return []
    at = _zoom_to_minima(lambda t: lowest(values(t)), times[minima], times[minima + 2])
    ranks_at = _ranks(values(at), rcond)
    candidates = zip(at, ranks[minima], ranks_at, ranks[minima + 2], strict=True)
    return [Passage(float(t), *map(int, r)) for t, *r in candidates if r[1] < max(r[0], r[2])]


def _ranks(sigma: np.ndarray, rcond: float) -> np.ndarray:
    return np.sum(sigma > rcond * sigma[:, :1], axis=1)


def _zoom_to_minima(fn: Callable[[np.ndarray], np.ndarray], start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Where fn is least within each interval, in which it has one minimum."""
    rows = np.arange(start.size)
    for _ in range(_ZOOMS):
        times = np.linspace(start, end, _POINTS, axis=1)
        lowest = np.clip(np.argmin(fn(times.ravel()).reshape(times.shape), axis=1), 1, _POINTS - 2)
        start, end = times[rows, lowest - 1], times[rows, lowest + 1]
    return 0.5 * (start + end)
