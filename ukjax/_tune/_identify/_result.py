"""What `identify` returns: estimates, what they are worth, and how the runs fit."""

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from ..._compiler import compile_small
from ..._figures._card import Card
from ..._misc._arguments import require_between, whole_number
from ..._misc._errors import needing
from ..._misc._types import as_jax
from ..._system._problem import Problem
from . import _figure
from ._blocks import as_sparse
from ._fit import TUNING, Fit, FitResult, data_residuals, outcomes, robust, scale_of
from ._prepare import Identification, extra_row, name_of
from ._recording import Recording
from ._runs import Rows, sensitivities
from ._space import NumberPart, Space, from_search, search_slope, to_search
from ._starts import Start
from ._statistics import Directions, combinations, describe, directions, influence, quantile, spread

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

_SHOWN = 30  # numbers in a printed table
_ALIKE = 0.01  # sums of squares of first guesses that are told as the same
_POOR = 1.5  # residuals in units of the noise given, above which it is said
_AT_BOUND = 1e-3  # of a standard error, and of the room that the first guess has up to a bound


class Prediction(NamedTuple):
    """Outputs of the model at the k times of a recording, with their band.

    - `t`: times [s] (k,).
    - `y`: outputs (k, d).
    - `deviation`: their standard deviation for what is not known of the parameters (k, d).
    - `low`, `high`: between these a new sample lies, noise included, at the level asked for (k, d).
    """

    t: np.ndarray
    y: np.ndarray
    deviation: np.ndarray
    low: np.ndarray
    high: np.ndarray


@compile_small
def _numbers(fit: Fit) -> tuple[Any, Any]:
    """The parameters as they are reported, and their derivatives."""
    theta = fit.z[: fit.count]
    return fit.runs.space.numbers(theta), jax.jacfwd(fit.runs.space.numbers)(theta)


@eqx.filter_jit
def _sensitivities(fit: Fit, rows: Rows, index: Any) -> tuple[Any, Any]:
    """Outputs of runs, and their derivatives by the numbers of each and the parameters, along a last axis."""
    at = lambda z: (z[: fit.count], jnp.append(z, 0.0)[index])
    outcome, J = fit.runs.slopes(*at(fit.z), rows, at(fit.change))
    return outcome.y, J.y


@eqx.filter_jit
def _first_states(fit: Fit) -> tuple[Any, Any]:
    """Initial states of all runs, and their derivatives likewise."""
    return sensitivities(fit.runs.first_state, *fit.layout.split(fit.z), fit.rows)


@final
@dataclasses.dataclass(frozen=True)
class IdentifyResult:
    """Estimates and what they are worth; `print(result)` shows a table, and so does a notebook.

    - `parameters`: what was given, with the estimates: `model(**result.parameters)` is the identified problem.
    - `offsets`: estimated offsets of channels, by name.
    - `problems`: the identified problem of each recording, from its start to its last sample.
    - `names`: of all n numbers: parameters, their entries and those of bodies, offsets, and unknown initial states.
    - `values`: the estimates (n,), and `standard_errors` (n,): infinite for what the data do not tell.
    - `recordings`: their names.
    - `channels`: names of the d outputs; `noise`: their standard deviations, given or estimated (d,).
    - `unseen`: combinations that the data do not tell: for each the changes of numbers that together change no output,
      relative ones, but of numbers that are zero. A prior may still decide them.
    - `at_bounds`: names of numbers that the data want at a bound or beyond it, which have no standard error either.
    - `costs`: the sum of squares after each step of the search.
    - `stopped`: `"converged"`, `"iterations"` (all used up) or `"interrupted"`.
    - `name`: of the problem.
    - `starts`: what became of each first guess, where there were several: `guess`, `parameters` and `cost`, the sum of
      squares after the steps that all of them took; the best, from which the search went on, first.
    """

    parameters: dict[str, Any]
    offsets: dict[str, float]
    problems: tuple[Problem, ...]
    names: tuple[str, ...]
    values: np.ndarray
    standard_errors: np.ndarray
    recordings: tuple[str, ...]
    channels: tuple[str, ...]
    noise: np.ndarray
    unseen: tuple[dict[str, float], ...]
    at_bounds: tuple[str, ...]
    costs: np.ndarray
    stopped: str
    name: str
    starts: tuple[Start, ...]
    _prepared: Identification = dataclasses.field(repr=False)
    _fit: Fit = dataclasses.field(repr=False)
    _slopes: Any = dataclasses.field(repr=False)
    _directions: Directions = dataclasses.field(repr=False)
    _freedom: float = dataclasses.field(repr=False)

    # --- What the estimates are worth

    @functools.cached_property
    def covariance(self) -> np.ndarray:
        """Of the estimates (n, n); of numbers that the data do not tell infinite on the diagonal, and NaN beside it."""
        R = self._slopes @ self._directions.root
        found, lost = (R @ R.T).toarray(), ~np.isfinite(self.standard_errors)
        found[lost], found[:, lost] = np.nan, np.nan
        found[lost, lost] = np.inf
        return found

    @property
    def correlation(self) -> np.ndarray:
        """Of the estimates (n, n)."""
        deviation = np.where(self.standard_errors > 0, self.standard_errors, 1.0)
        with np.errstate(invalid="ignore"):
            return self.covariance / np.outer(deviation, deviation)

    def intervals(self, level: float = 0.95) -> np.ndarray:
        """Confidence intervals (n, 2), within bounds: of a positive number they are those of its logarithm.

        **Arguments:**

        - `level`: with which probability an interval covers the number.
        """
        require_between("level", level, 0, 1)
        low, high = self._prepared.low, self._prepared.high
        z = np.nan_to_num(to_search(self.values, low, high))  # infinite on a bound
        reach = quantile(level, self._freedom) * self.standard_errors / search_slope(self.values, low, high)
        return np.stack(
            [np.asarray(from_search(z + sign * reach, low, high)) for sign in (-1.0, 1.0)], axis=1
        )

    @property
    def misfit(self) -> float:
        """How large residuals are, in units of the noise and of what the fit leaves of it: 1 where the model can do what
        was measured; where noise was given and this is much larger, it cannot, or the search ended beside the best
        fit."""
        samples = float(np.asarray(self._fit.rows.present).sum())
        return float(np.sqrt(self.costs[-1] / max(samples - self._directions.root.shape[1], 1.0)))

    # --- Runs beside the recordings

    @functools.cached_property
    def _outcomes(self) -> Any:
        return jax.tree.map(np.asarray, outcomes(self._fit))

    def _of_recording(self, x: np.ndarray, i: int) -> np.ndarray:
        """What rows have, along the times of a recording."""
        parts, left = [], self._prepared.recordings[i].t.size
        rows = self._prepared.rows_of[i]
        for row in rows:
            count = left if row == rows[-1] else self._counts[row]
            parts.append(x[row][:count])
            left -= count
        return np.concatenate(parts)

    @functools.cached_property
    def _counts(self) -> np.ndarray:
        """How many samples each row but the last of a recording has."""
        rows = self._fit.rows
        return np.asarray((rows.ts < rows.t1[:, None]).sum(axis=1))

    @functools.cached_property
    def residuals(self) -> list[np.ndarray]:
        """Samples less outputs (k, d), one array for each recording; NaN where there is no sample."""
        rows = self._fit.rows
        off = np.where(np.asarray(rows.present) > 0, np.asarray(rows.y) - self._outcomes.y, np.nan)
        return [self._of_recording(off, i) for i in range(len(self._prepared.recordings))]

    def predict(self, recording: int | Recording = 0, *, level: float = 0.95) -> Prediction:
        """Outputs with their band, of a recording that was fitted or of another one.

        **Arguments:**

        - `recording`: the number of one that was given to `identify`; or a new one, which starts where it says, or
          where the problem does. Its samples are not looked at.
        - `level`: with which probability a new sample lies in the band.

        **Raises:** `InputError` for a number that there is none of, and for a new recording that does not fit the
        model.
        """
        require_between("level", level, 0, 1)
        if isinstance(recording, Recording):
            fit, row = extra_row(self._prepared, self._fit, recording)
            index = np.full((1, row.along_q.shape[2]), fit.z.size)
            y, deviation = (x[0] for x in self._spread_of(*_sensitivities(fit, row, index), index))
            t = recording.t
        else:
            i = whole_number("recording", recording, 0, len(self._prepared.recordings) - 1)
            y, deviation = (self._of_recording(x, i) for x in self._all_spread)
            t = self._prepared.recordings[i].t
        reach = quantile(level, self._freedom) * np.sqrt(deviation**2 + self.noise**2)
        return Prediction(t, y, deviation, y - reach, y + reach)

    def _spread_of(self, y: Any, J: Any, index: Any) -> tuple[np.ndarray, np.ndarray]:
        """Outputs of runs (b, k, d), and their standard deviations."""
        y, slopes = np.asarray(y), np.asarray(J).reshape(len(y), -1, J.shape[-1])
        G = as_sparse(slopes, np.asarray(index), self._fit.count, self._fit.z.size)
        return y, spread(G, self._directions).reshape(y.shape)

    @functools.cached_property
    def _all_spread(self) -> tuple[np.ndarray, np.ndarray]:
        index = self._fit.layout.index
        return self._spread_of(*_sensitivities(self._fit, self._fit.rows, index), index)

    # --- What is shown

    def summary(self) -> dict[str, Any]:
        """The figures one looks at first, as plain numbers."""
        return {
            "model": self.name,
            "estimates": dict(zip(self.names, map(float, self.values), strict=True)),
            "standard_errors": dict(zip(self.names, map(float, self.standard_errors), strict=True)),
            "noise": dict(zip(self.channels, map(float, self.noise), strict=True)),
            "unseen": list(self.unseen),
            "at_bounds": list(self.at_bounds),
            "recordings": len(self._prepared.recordings),
            "samples": int(np.asarray(self._fit.rows.present).sum()),
            "cost": float(self.costs[-1]),
            "iterations": len(self.costs),
            "stopped": self.stopped,
        }

    def _head(self) -> str:
        told = self.summary()
        ended = {"iterations": "stopped"}.get(self.stopped, self.stopped)
        of = f"{told['recordings']} recording{'s' * (told['recordings'] > 1)}, {told['samples']} samples"
        return (
            f"{self.name}: {len(self.names)} numbers from {of}; {ended} after {told['iterations']} iterations"
        )

    def _table(self) -> list[tuple[str, ...]]:
        return [
            (
                name,
                f"{x:.6g}",
                f"{e:.2g}" if np.isfinite(e) else "at its bound" if name in self.at_bounds else "not told",
                f"{a:.6g} to {b:.6g}" if np.isfinite(e) else "",
            )
            for name, x, e, (a, b) in zip(
                self.names, self.values, self.standard_errors, self.intervals(), strict=True
            )
        ][:_SHOWN]

    def _notes(self) -> list[str]:
        known = self._prepared.noise.known
        noise = [
            f"{name} {x:.3g}{' (given)' * bool(k)}"
            for name, x, k in zip(self.channels, self.noise, known, strict=True)
        ]
        more = [f"and {len(self.names) - _SHOWN} more numbers"] if len(self.names) > _SHOWN else []
        values = dict(zip(self.names, self.values, strict=True))
        unseen = [f"no output tells: {describe(x, values)}" for x in self.unseen]
        if known.any() and self.misfit > _POOR:
            more.append(
                f"residuals are {self.misfit:.3g} times the noise given: the model cannot do what was measured, "
                "or the search ended beside the best fit"
            )
        if self.starts:
            costs = np.array([x.cost for x in self.starts])
            alike = int(np.sum(costs <= (1 + _ALIKE) * costs[0]))
            more.append(f"best of {costs.size} first guesses; {alike} ended with these squares, to 1 %")
        return [*more, f"noise: {', '.join(noise[:12])}{', ...' * (len(noise) > 12)}", *unseen]

    def __str__(self) -> str:
        head = ("", "estimate", "standard error", "95 % interval")
        rows = [head, *self._table()]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = ["  ".join(x.ljust(w) for x, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self._head(), *lines, *self._notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        card = Card(self._head())
        card.add_table(("", "estimate", "standard error", "95 % interval"), self._table())
        for note in self._notes():
            card.add_line(note)
        return card.to_html()

    def to_xarray(self) -> "xarray.Dataset":
        """Estimates, standard errors, covariance, noise, and samples, outputs and residuals along (recording, sample,
        channel), NaN beyond the last sample of a recording.

        **Raises:** `MissingExtraError` without xarray (`ukjax[data]`).
        """
        with needing("to_xarray()", "data"):
            import xarray
        recordings, residuals = self._prepared.recordings, self.residuals
        k = max(r.t.size for r in recordings)
        pad = lambda x: np.concatenate([x, np.full((k - len(x), *x.shape[1:]), np.nan)])
        stack = lambda each: np.stack([pad(each(i)) for i in range(len(recordings))])
        y = stack(lambda i: self._of_recording(self._outcomes.y, i))
        along, intervals = ("recording", "sample", "channel"), self.intervals()
        return xarray.Dataset(
            {
                "estimate": ("parameter", self.values),
                "standard_error": ("parameter", self.standard_errors),
                "interval": (("parameter", "end"), intervals, {"level": 0.95}),
                "covariance": (("parameter", "parameter_"), self.covariance),
                "noise": ("channel", self.noise),
                "time": (("recording", "sample"), stack(lambda i: recordings[i].t), {"units": "s"}),
                "output": (along, y),
                "residual": (along, stack(lambda i: residuals[i])),
                "measured": (along, y + stack(lambda i: residuals[i])),
            },
            coords={
                "parameter": list(self.names),
                "parameter_": list(self.names),
                "end": ["low", "high"],
                "channel": list(self.channels),
                "recording": list(self.recordings),
            },
            attrs={"model": self.name, "stopped": self.stopped, "iterations": len(self.costs)},
        )

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Draws samples, outputs with their band, and residuals in units of the noise, a column for each of the first
        recordings.

        **Arguments:**

        - `path`: where to write the figure (.png, .pdf, .svg); by default it is only returned.

        **Returns:** the matplotlib figure.

        **Raises:** `MissingExtraError` without matplotlib (`ukjax[plot]`).
        """
        return _figure.plot(self, path)


def _report(fit: Fit, places: np.ndarray, starts: bool) -> tuple[np.ndarray, Any]:
    """The numbers that are reported, and their derivatives by z as a sparse matrix."""
    x, slopes = (np.asarray(x) for x in _numbers(fit))
    slopes: Any = sparse.csr_array(np.pad(slopes, ((0, 0), (0, fit.z.size - fit.count))))
    if starts:
        states, J = _first_states(fit)
        x = np.concatenate([x, np.concatenate(states, axis=1).ravel()])
        of_starts = np.concatenate(J, axis=1)
        of_starts = as_sparse(of_starts, np.asarray(fit.layout.index), fit.count, fit.z.size)
        slopes = sparse.vstack([slopes, of_starts], format="csr")
    return x[places], slopes[places]


def _at_bounds(space: Space, z: Any, deviations: np.ndarray) -> np.ndarray:
    """Which numbers a search drove to a bound, as seen from how well they are known and from the first guess: one that
    changes no output stays near that."""
    low, high, first = space.joined("low"), space.joined("high"), jnp.asarray(space.joined("z"))
    room = lambda z: np.minimum((x := np.asarray(space.numbers(z))) - low, high - x)
    plain = np.concatenate(
        [np.zeros(0, bool), *(np.full(x.z.size, isinstance(x, NumberPart)) for x in space.parts)]
    )
    return plain & (room(z) < _AT_BOUND * np.minimum(room(first), deviations))


def make_result(prepared: Identification, found: FitResult, starts: tuple[Start, ...]) -> IdentifyResult:
    """The result of a search."""
    fit, J, space = found.fit, found.J, found.fit.runs.space
    noise, known = np.asarray(found.weights.noise), prepared.noise.known
    r = data_residuals(fit, outcomes(fit), found.weights.noise)
    bent, r = np.asarray(robust(r, fit.loss)).ravel(), np.asarray(r).ravel()
    present = np.asarray(fit.rows.present).ravel() > 0
    psi, slope = influence(r, TUNING[fit.loss], fit.loss)
    # By this the covariance is larger than that of least squares (Huber and Ronchetti 2009, section 7.6).
    wider = 1.0 if fit.loss == "squares" else np.mean(psi[present] ** 2) / np.mean(slope[present]) ** 2
    bend = np.where(bent == 0, 1.0, psi / np.where(bent == 0, 1.0, bent))
    outputs = sparse.diags_array(1.0 / bend) @ J[0]  # derivatives of outputs again
    scale, none = scale_of([outputs, J[2]], prepared.size), J[2] * 0.0
    seen = directions(outputs, J[1], J[2], fit.layout, scale)
    deviations = spread(_report(fit, np.arange(len(space.names)), False)[1], seen)
    held = np.pad(_at_bounds(space, fit.z[: fit.count], deviations), (0, fit.z.size - fit.count))
    free = sparse.diags_array(np.where(held, 0.0, 1.0))
    outputs, J, none = outputs @ free, [x @ free for x in J], none @ free
    seen = directions(outputs, J[1], J[2], fit.layout, scale) if held.any() else seen
    of_data = directions(outputs, J[1], none, fit.layout, scale)
    freedom = np.inf if known.all() else max(present.sum() - seen.root.shape[1], 1)
    seen = seen._replace(root=seen.root * np.sqrt(wider))
    x, slopes = _report(fit, prepared.places, len(prepared.names) > len(space.names))
    given = space.as_given(fit.z[: fit.count])
    values = space.values(fit.z[: fit.count])
    offset = {name for _, name in fit.runs.offsets}
    at_bounds = tuple(name for name, is_held in zip(space.names, held, strict=False) if is_held)
    unseen = combinations(slopes, x, prepared.names, of_data)
    rows, problems = fit.rows, []
    for r_, own in zip(prepared.recordings, prepared.rows_of, strict=True):
        row = jax.tree.map(lambda x, i=own[0]: as_jax(np.asarray(x)[i]), rows)
        problem = fit.runs.problem(values, row.inputs)[0]
        s = fit.layout.split(fit.z)[1][own[0]]
        q0, v0 = map(as_jax, fit.runs.start(problem, s, row))
        problems.append(dataclasses.replace(problem, q0=q0, v0=v0, t0=float(row.t0), t1=float(r_.t[-1])))
    return IdentifyResult(
        parameters={name: x for name, x in given.items() if name not in offset},
        offsets={name.removeprefix("offset."): float(values[name]) for name in given if name in offset},
        problems=tuple(problems),
        names=prepared.names,
        values=x,
        standard_errors=spread(slopes, seen),
        recordings=tuple(name_of(prepared.recordings, i) for i in range(len(problems))),
        channels=prepared.channels,
        noise=noise,
        unseen=tuple(x for x in unseen if x.keys().isdisjoint(at_bounds)),
        at_bounds=at_bounds,
        costs=found.costs,
        stopped=found.stopped,
        name=prepared.name,
        starts=starts,
        _prepared=prepared,
        _fit=fit,
        _slopes=slopes,
        _directions=seen,
        _freedom=freedom,
    )
