"""What an estimate is worth: covariance, intervals, and the combinations that the data do not tell."""

from typing import NamedTuple

import numpy as np
from scipy import stats

from ._fit import DEPENDENT

_INVOLVED = 1e-4
"""A number changes with a direction that the data do not tell if it does by more than this share of its own change."""
_NAMED = 12  # numbers of a combination that are named
_SHOWN = 1e-3  # parts of a direction, relative to the largest


class Directions(NamedTuple):
    """The directions of z that squares see, and those that they do not.

    - `root`: columns R with the covariance R R^T of z, in units of the noise (p, r).
    - `unseen`: columns that change nothing (p, p - r).
    """

    root: np.ndarray
    unseen: np.ndarray


def directions(J: np.ndarray, jumps: np.ndarray, norms: np.ndarray) -> Directions:
    """By the singular values of the derivatives J of residuals by z, its columns divided by `norms`, along changes of z
    that open no jumps between pieces of runs."""
    Z = np.eye(norms.size)
    if len(jumps):
        _, s, Vt = np.linalg.svd(np.linalg.qr(jumps / norms, mode="r"), full_matrices=True)
        Z = Vt[int(np.sum(s > DEPENDENT * s.max())) :].T
    _, s, Vt = np.linalg.svd(np.linalg.qr((J / norms) @ Z, mode="r"), full_matrices=True)
    V, rank = Z @ Vt.T / norms[:, None], int(np.sum(s > DEPENDENT * s.max(initial=0)))
    return Directions(V[:, :rank] / s[:rank], V[:, rank:])


def spread(G: np.ndarray, of: Directions) -> np.ndarray:
    """Standard deviations of numbers with derivatives G by z (n,); infinite for those that are not told."""
    norms = np.linalg.norm(np.concatenate([of.root, of.unseen], axis=1), axis=1)
    change = np.linalg.norm(G * norms, axis=1)
    hidden = np.linalg.norm(G @ of.unseen, axis=1) > _INVOLVED * np.where(change > 0, change, np.inf)
    return np.where(hidden, np.inf, np.linalg.norm(G @ of.root, axis=1))


def combinations(
    G: np.ndarray, values: np.ndarray, names: tuple[str, ...], of: Directions
) -> tuple[dict[str, float], ...]:
    """Changes of numbers that together change no sample: relative ones, but of numbers that are zero. As few numbers in
    each as elimination leaves."""
    changes = (G @ of.unseen).T / np.where(values == 0, 1.0, values)
    size = np.abs(changes).max(initial=0.0)
    found: list[np.ndarray] = []
    while changes.size and np.abs(changes).max(initial=0) > DEPENDENT * size > 0:
        row, column = np.unravel_index(np.argmax(np.abs(changes)), changes.shape)
        pivot = changes[row] / changes[row, column]
        changes = np.delete(changes - np.outer(changes[:, column], pivot), row, axis=0)
        found = [x - x[column] * pivot for x in found] + [pivot]
    said = []
    for x in found:
        x = x / x[np.argmax(np.abs(x))]
        said.append({names[i]: float(x[i]) for i in range(len(names)) if abs(x[i]) > _SHOWN})
    return tuple(said)


def describe(combination: dict[str, float], values: dict[str, float]) -> str:
    """A combination in words."""
    part = lambda name, x: f"{name} {x:+.3g}{' %' if values[name] else ''}"
    parts = [part(name, x) for name, x in combination.items()]
    return ", ".join(parts[:_NAMED]) + (f" and {len(parts) - _NAMED} more" if len(parts) > _NAMED else "")


def quantile(level: float, freedom: float) -> float:
    """How many standard errors reach from the estimate to the end of an interval."""
    p = 0.5 + 0.5 * level
    return float(stats.norm.ppf(p) if np.isinf(freedom) else stats.t.ppf(p, freedom))


def influence(r: np.ndarray, k: float, loss: str) -> tuple[np.ndarray, np.ndarray]:
    """psi = rho' and psi' of residuals in units of the noise."""
    if loss == "squares":
        return r, np.ones(r.shape)
    if loss == "huber":
        return np.clip(r, -k, k), (np.abs(r) <= k).astype(float)
    square = (r / k) ** 2
    return r / (1 + square), (1 - square) / (1 + square) ** 2
