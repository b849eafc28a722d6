"""Figures of many runs that are not kept: mean, variance, quantiles, histograms, the largest and the smallest.

Each chunk of runs is reduced to a few numbers where it was made. These are stored, and merged when the sweep is done,
always in the order of the chunks. Runs that failed, and values that are not finite, do not count.
"""

import abc
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar, final

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Int

from .._misc._arguments import number_array, whole_number
from .._misc._errors import InputError

State = dict[str, np.ndarray]
Merged = dict[str, tuple[tuple[str, ...], np.ndarray]]


class AbstractReduction(eqx.Module):
    """Figures of an output over all runs: `Mean`, `Variance`, `Quantiles`, `Histogram`, `Largest` or `Smallest`."""

    name: eqx.AbstractClassVar[str]  # a word for it, as in `steps_mean`

    @abc.abstractmethod
    def state(self, x: np.ndarray, counts: Bool[np.ndarray, "b ..."], runs: Int[np.ndarray, " b"]) -> State:
        """What is stored of a chunk; of no runs, what merges with any other without changing it.

        **Arguments:**

        - `x`: values (b, ...).
        - `counts`: which of them count.
        - `runs`: the numbers of the runs.
        """

    @abc.abstractmethod
    def merged(self, states: Iterable[State]) -> Merged:
        """Dimensions, besides those of the output, and values of the figures, by name.

        **Arguments:**

        - `states`: of all chunks, in order.
        """


def _moments(states: Iterable[State]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number, mean and sum of squared deviations (Chan, Golub and LeVeque, 1979)."""
    n, mean, squares = (np.zeros(()),) * 3
    for state in states:
        more, step = n + state["count"], state["mean"] - mean
        part = np.divide(state["count"], more, out=np.zeros(np.shape(more)), where=more > 0)
        squares = squares + state["squares"] + step**2 * n * part
        n, mean = more, mean + step * part
    return n, mean, squares


class AbstractMoments(AbstractReduction):
    """What follows from the number, the mean and the sum of squared deviations of the values that count."""

    def state(self, x: np.ndarray, counts: np.ndarray, runs: np.ndarray) -> State:
        n = counts.sum(0)
        known = np.where(counts, x, 0).astype(float)
        mean = known.sum(0) / np.maximum(n, 1)
        squares = np.where(counts, (known - mean) ** 2, 0).sum(0)
        return {"count": n.astype(np.int64), "mean": mean, "squares": squares}


@final
class Mean(AbstractMoments):
    """The mean over all runs, and how many counted: `<output>_mean`, `<output>_count`."""

    name: ClassVar[str] = "mean"

    def merged(self, states: Iterable[State]) -> Merged:
        n, mean, _ = _moments(states)
        return {"mean": ((), np.where(n > 0, mean, np.nan)), "count": ((), n.astype(np.int64))}


@final
class Variance(AbstractMoments):
    """The variance over all runs, sum (x - mean)^2 / (n - 1): `<output>_variance`.

    Chunks are merged by their means and sums of squared deviations (Chan, Golub and LeVeque, 1979): to rounding that of
    all values at once.
    """

    name: ClassVar[str] = "variance"

    def merged(self, states: Iterable[State]) -> Merged:
        n, _, squares = _moments(states)
        return {"variance": ((), np.where(n > 1, squares / np.maximum(n - 1, 1), np.nan))}


def _count_in_bins(places: np.ndarray, counts: np.ndarray, bins: int) -> State:
    """How many values (b, ...) lie in each bin: (..., bins)."""
    inner = places.shape[1:]
    cells = int(np.prod(inner, dtype=int))
    flat = np.where(counts, places, 0).reshape(-1, cells) + bins * np.arange(cells)
    found = np.bincount(flat.ravel(), counts.reshape(-1), minlength=bins * cells)
    return {"counts": found.astype(np.int64).reshape(*inner, bins)}


def _total(states: Iterable[State]) -> np.ndarray:
    return sum((state["counts"] for state in states), np.zeros((), np.int64))


@final
class Histogram(AbstractReduction):
    """How many values lie between edges: `<output>_histogram` along `bin`, one bin more at either end for what lies
    beyond. A value at an edge counts to the bin above it. Chunks are merged exactly.

    **Arguments:**

    - `edges`: of the bins (k,), ascending.
    """

    edges: np.ndarray
    name: ClassVar[str] = "histogram"

    def __init__(self, edges: Any):
        self.edges = np.asarray(number_array("edges", edges), float)
        if self.edges.ndim != 1 or self.edges.size < 1 or not np.all(np.diff(self.edges) > 0):
            raise InputError(f"edges must be ascending numbers, got {edges!r}.")

    def state(self, x: np.ndarray, counts: np.ndarray, runs: np.ndarray) -> State:
        return _count_in_bins(np.searchsorted(self.edges, x, "right"), counts, self.edges.size + 1)

    def merged(self, states: Iterable[State]) -> Merged:
        return {"histogram": (("bin",), _total(states))}


# Magnitudes that are told apart; what is smaller counts as 0, what is larger as the largest.
_SMALLEST, _LARGEST = 1e-18, 1e18


@final
class Quantiles(AbstractReduction):
    """Quantiles, each with a relative error of at most `accuracy`: `<output>_quantile` along `quantile`.

    The sketch is DDSketch (Masson, Rim and Lee, VLDB 2019): values are counted in bins whose edges are powers of
    (1 + accuracy) / (1 - accuracy), so chunks are merged exactly. Magnitudes below 1e-18 count as 0, those
    above 1e18 as 1e18. A chunk keeps some 8,300 counts of each number at an accuracy of 0.01, nearly all of them 0.

    **Arguments:**

    - `levels`: such as (0.05, 0.5, 0.95).
    - `accuracy`: the largest relative error.
    """

    levels: np.ndarray
    accuracy: float
    name: ClassVar[str] = "quantile"

    def __init__(self, levels: Any, accuracy: float = 0.01):
        self.levels = np.atleast_1d(np.asarray(number_array("levels", levels), float))
        if self.levels.ndim != 1 or not np.all((self.levels >= 0) & (self.levels <= 1)):
            raise InputError(f"levels are numbers from 0 to 1, got {levels!r}.")
        if not 1e-4 <= accuracy < 1:
            raise InputError(f"accuracy is between 1e-4 and 1, got {accuracy!r}.")
        self.accuracy = float(accuracy)

    @property
    def _log_ratio(self) -> float:
        return float(np.log1p(self.accuracy) - np.log1p(-self.accuracy))

    @property
    def _half(self) -> int:
        """Bins on either side of 0."""
        return int(np.ceil(np.log(_LARGEST / _SMALLEST) / self._log_ratio))

    def state(self, x: np.ndarray, counts: np.ndarray, runs: np.ndarray) -> State:
        x = np.where(counts, x, 0).astype(float)
        size = np.clip(np.abs(x), _SMALLEST, _LARGEST)
        place = np.ceil(np.log(size / _SMALLEST) / self._log_ratio).astype(int).clip(1, self._half)
        place = np.where(np.abs(x) < _SMALLEST, 0, np.sign(x).astype(int) * place)
        return _count_in_bins(self._half + place, counts, 2 * self._half + 1)

    def merged(self, states: Iterable[State]) -> Merged:
        up_to = np.cumsum(_total(states), -1)
        n = up_to[..., -1:]
        found = []
        for level in self.levels:
            rank = np.floor(level * np.maximum(n - 1, 0))
            place = np.sum(up_to <= rank, -1) - self._half
            size = 2 * _SMALLEST * np.exp(np.abs(place) * self._log_ratio) / (1 + np.exp(self._log_ratio))
            found.append(np.where(n[..., 0] > 0, np.sign(place) * size, np.nan))
        return {"quantile": (("quantile",), np.stack(found, -1))}


class AbstractExtremes(AbstractReduction):
    """The values that are largest times a sign, and the numbers of their runs."""

    k: eqx.AbstractVar[int]
    sign: eqx.AbstractClassVar[int]

    def state(self, x: np.ndarray, counts: np.ndarray, runs: np.ndarray) -> State:
        """The k most extreme, in order, of equal ones that of the first run."""
        if x.ndim != 1:
            raise InputError("Largest and Smallest are of outputs with one number a run.")
        order = np.lexsort((runs, -self.sign * np.where(counts, x, 0).astype(float), ~counts))[: self.k]
        order = order[counts[order]]
        values, at = np.full(self.k, np.nan), np.full(self.k, -1, np.int64)
        values[: order.size], at[: order.size] = x[order], runs[order]
        return {"values": values, "runs": at}

    def merged(self, states: Iterable[State]) -> Merged:
        kept = {"values": np.full(self.k, np.nan), "runs": np.full(self.k, -1, np.int64)}
        for state in states:
            x, runs = (np.concatenate([kept[key], state[key]]) for key in ("values", "runs"))
            kept = self.state(x, runs >= 0, runs)
        along = (self.name,)
        return {self.name: (along, kept["values"]), f"{self.name}_run": (along, kept["runs"])}


@final
class Largest(AbstractExtremes):
    """The largest values, and the numbers of their runs: `<output>_largest`, `<output>_largest_run` along `largest`.

    Runs are numbered with the last dimension of the sweep fastest. Chunks are merged exactly.

    **Arguments:**

    - `k`: how many.
    """

    k: int = eqx.field(converter=partial(whole_number, "k"))
    name: ClassVar[str] = "largest"
    sign: ClassVar[int] = 1


@final
class Smallest(AbstractExtremes):
    """The smallest values, and the numbers of their runs: `<output>_smallest`, `<output>_smallest_run`; as `Largest`.

    **Arguments:**

    - `k`: how many.
    """

    k: int = eqx.field(converter=partial(whole_number, "k"))
    name: ClassVar[str] = "smallest"
    sign: ClassVar[int] = -1
