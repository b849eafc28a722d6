"""What an estimate is worth: covariance, intervals, and the combinations that the data do not tell."""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse, stats

from ._blocks import Layout

DEPENDENT = 1e-7
"""Singular values below this share of the largest are of directions that change nothing."""
_INVOLVED = 1e-4
"""A number changes with a direction that the data do not tell if it does by more than this share of its own change."""
_NAMED = 12  # numbers of a combination that are named
_SHOWN = 1e-3  # parts of a direction, relative to the largest


class Directions(NamedTuple):
    """The directions of z that squares see, and those that they do not, as sparse matrices."""

    root: Any  # columns R with the covariance R R^T of z, in units of the noise (p, r)
    unseen: Any  # columns that change nothing (p, p - r)


class _Own(NamedTuple):
    """What a recording says of its own numbers, with those of the parameters theta: they are W theta, and beside this
    root times noise, and anything along unseen. And what it says of theta: rows R."""

    columns: np.ndarray
    W: np.ndarray
    root: np.ndarray
    unseen: np.ndarray
    R: np.ndarray


def _svd(A: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """U, s and V of the singular values above `least`, and what V leaves."""
    U, s, Vt = np.linalg.svd(A, full_matrices=A.shape[0] < A.shape[1])
    _, r = A.shape, int(np.sum(s > least))
    return U[:, :r], s[:r], Vt[:r].T, Vt[r:].T


def _triangle(A: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.qr(A, mode="r"))


def _own(A: np.ndarray, C: np.ndarray, G: np.ndarray, columns: np.ndarray, least: float) -> _Own:
    """Eliminates the numbers of a recording from rows [A, C] over them and theta, along changes with G z = 0, which open
    no jumps."""
    k = columns.size
    W, N = np.zeros((k, C.shape[1])), np.eye(k)
    if len(G):
        U, s, V, N = _svd(G[:, :k], DEPENDENT * float(np.linalg.norm(G[:, :k], 2)))
        W = -(V / s) @ (U.T @ G[:, k:])
        C = C + A @ W
    U, s, V, left = _svd(A @ N, least)
    on_own = U.T @ C
    return _Own(
        columns,
        W - N @ (V / s) @ on_own,
        N @ (V / s),
        N @ left,
        _triangle(C - U @ on_own),
    )


def directions(samples: Any, jumps: Any, priors: Any, layout: Layout, norms: np.ndarray) -> Directions:
    """By the singular values of the derivatives of residuals by z, its columns divided by `norms`, along changes of z
    that open no jumps between pieces of runs: of each recording by itself, and of what is left for the parameters."""
    index, ends, runs = (np.asarray(x) for x in (layout.index, layout.ends, layout.prior_runs))
    b, p, m = len(index), layout.count, layout.samples
    unit = sparse.diags_array(1.0 / norms)
    samples, jumps, priors = (sparse.csr_array(x @ unit) for x in (samples, jumps, priors))
    sizes = [x.power(2).sum(axis=0) for x in (samples, priors)]
    least = DEPENDENT * np.sqrt(np.max(sizes[0] + sizes[1], initial=0))
    f, own = index.shape[1], []
    for rows in np.split(np.arange(b), np.setdiff1d(np.arange(b - 1), ends) + 1):
        columns = index[rows].ravel()
        columns = columns[columns < norms.size]
        both = np.concatenate([columns, np.arange(p)])
        first, after = rows[0], rows[-1] + 1
        of_priors = priors[np.flatnonzero((runs >= first) & (runs < after))]
        joints = np.flatnonzero((ends >= first) & (ends < after))
        of_jumps = jumps[(joints[:, None] * 2 * f + np.arange(2 * f)).ravel()]
        here = sparse.vstack([samples[first * m : after * m], of_priors]).tocsc()[:, both].toarray()
        G = of_jumps.tocsc()[:, both].toarray() if columns.size else np.zeros((0, 0))
        own.append(_own(here[:, : columns.size], here[:, columns.size :], G, columns, least))
    of_theta = priors[np.flatnonzero(runs == b)].toarray()[:, :p]
    _, s, V, left = _svd(_triangle(np.concatenate([*(x.R for x in own), of_theta])), least)
    along = np.zeros((norms.size, p))
    along[:p] = np.eye(p)
    for x in own:
        along[x.columns] = x.W
    noise = [_placed(x.columns, x.root, norms.size) for x in own]
    hidden = [_placed(x.columns, x.unseen, norms.size) for x in own]
    return Directions(
        unit @ sparse.hstack([sparse.csr_array(along @ (V / s)), *noise], format="csr"),
        unit @ sparse.hstack([sparse.csr_array(along @ left), *hidden], format="csr"),
    )


def _placed(rows: np.ndarray, values: np.ndarray, size: int) -> Any:
    """Values in some rows of a matrix."""
    k = values.shape[1]
    where = np.repeat(rows, k), np.tile(np.arange(k), rows.size)
    return sparse.csr_array((values.ravel(), where), shape=(size, k))


def _norms(A: Any) -> np.ndarray:
    """Of rows."""
    return np.sqrt(A.power(2).sum(axis=1))


def spread(G: Any, of: Directions) -> np.ndarray:
    """Standard deviations of numbers with derivatives G by z (n,); infinite for those that are not told."""
    G = sparse.csr_array(G)
    norms = _norms(sparse.hstack([of.root, of.unseen], format="csr"))
    change = _norms(G @ sparse.diags_array(norms))
    hidden = _norms(G @ of.unseen) > _INVOLVED * np.where(change > 0, change, np.inf)
    return np.where(hidden, np.inf, _norms(G @ of.root))


def combinations(
    G: Any, values: np.ndarray, names: tuple[str, ...], of: Directions
) -> tuple[dict[str, float], ...]:
    """Changes of numbers that together change no sample: relative ones, but of numbers that are zero. As few numbers in
    each as elimination leaves."""
    changes = (G @ of.unseen).toarray().T / np.where(values == 0, 1.0, values)
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
