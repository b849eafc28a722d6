"""What `tune` returns: the gains, how they were found, and figures of it."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from .._misc._arguments import require_between, whole_number
from .._misc._errors import InputError
from .._system._stabilize import Baumgarte
from . import _figure
from ._gains import to_convention
from ._objective import Objective
from ._search import scan

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class History(NamedTuple):
    """One entry an iteration, the first for the gains given; k iterations, d gains."""

    loss: np.ndarray  # the loss (k,), that of the evaluations over the budget included
    gains: np.ndarray  # the gains (k, d), in the order of `TuneResult.names`
    gradient_norm: np.ndarray  # of d log(loss) / d log(gains) (k,)
    # `evaluations`: of the acceleration, by the steps of all runs for this loss (k,), counted as
    # `Trajectory.stats` does; steps for solvers whose stages do not tell.
    evaluations: np.ndarray


def ending(stopped: str) -> str:
    """How a search ended, as a sentence says it."""
    return {"iterations": "stopped"}.get(stopped, stopped)


@final
@dataclasses.dataclass(frozen=True)
class TuneResult:
    """Tuned gains, and how they were found; `str(result)` says it in a line.

    - `gains`: what was given, with the best values found, to be used in its place: a dictionary of numbers is one again.
    - `loss`: the loss with them.
    - `names`: of the gains, `"alpha"` and `"beta"`, or `"alpha[0]"`, ... for gains per row.
    - `values`: the best gains, in the order of `names` and in the convention given (d,).
    - `history`: arrays `loss`, `gains`, `gradient_norm` and `evaluations`, one entry an iteration; the first is
      for the gains given.
    - `stopped`: `"converged"`, `"iterations"` (all used up) or `"interrupted"`.
    - `name`: of the problem.
    """

    gains: Any
    loss: float
    names: tuple[str, ...]
    values: np.ndarray
    history: History
    stopped: str
    name: str
    _objective: Objective = dataclasses.field(repr=False)

    def __str__(self) -> str:
        gains = ", ".join(f"{name} = {x:.6g}" for name, x in zip(self.names, self.values, strict=True))
        before, iterations = self.history.loss[0], len(self.history.loss) - 1
        return (
            f"{self.name}: {gains}; loss {self.loss:.3g}, before {before:.3g}, {ending(self.stopped)} after "
            f"{iterations} iterations."
        )

    def _baumgarte(self) -> Any:
        if not isinstance(self.gains, Baumgarte):
            raise InputError(
                f"these gains are not Baumgarte's, but of type {type(self.gains).__name__}; see `gains`."
            )
        return to_convention(self.gains, self._objective.space.convention)

    @property
    def alpha(self) -> np.ndarray:
        """Baumgarte's alpha in the convention given, a scalar or one per row."""
        return np.asarray(self._baumgarte().alpha)

    @property
    def beta(self) -> np.ndarray:
        """Baumgarte's beta in the convention given, a scalar or one per row."""
        return np.asarray(self._baumgarte().beta)

    def summary(self) -> dict[str, Any]:
        """The figures one looks at first, as plain numbers; the command line prints these."""
        best = int(np.argmin(self.history.loss))
        return {
            "model": self.name,
            "gains": {name: float(x) for name, x in zip(self.names, self.values, strict=True)},
            "loss": self.loss,
            "loss_before": float(self.history.loss[0]),
            "improvement": float(self.history.loss[0] / self.loss),
            "evaluations": int(self.history.evaluations[best]),
            "evaluations_before": int(self.history.evaluations[0]),
            "iterations": len(self.history.loss) - 1,
            "stopped": self.stopped,
        }

    def landscape(
        self, resolution: int = 32, low: float | None = None, high: float | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The loss on a logarithmic grid of two scalar gains.

        **Arguments:**

        - `resolution`: points along each gain.
        - `low`: the least gain, for both; by default three times below the path of the search, each its own.
        - `high`: the largest gain, likewise.

        **Returns:** the values of the first gain (r,), of the second (r,), and the losses (r, r), the first gain
        along the first axis; infinite where a run fails.

        **Raises:** `InputError` unless there are two scalar gains.
        """
        if len(self.names) != 2:
            raise InputError(f"a landscape is drawn over two gains; these are {len(self.names)}.")
        resolution = whole_number("resolution", resolution, 2, 10_000)
        for name, x in (("low", low), ("high", high)):
            if x is not None:
                require_between(name, x, 0, np.inf)
        lows = self.history.gains.min(axis=0) / 3 if low is None else (low, low)
        highs = self.history.gains.max(axis=0) * 3 if high is None else (high, high)
        first, second = (np.geomspace(a, b, resolution) for a, b in zip(lows, highs, strict=True))
        x = np.log(np.stack(np.meshgrid(first, second, indexing="ij"), axis=-1).reshape(-1, 2))
        return first, second, np.exp(scan(self._objective, x)).reshape(resolution, resolution)

    def plot(self, path: str | Path | None = None, *, resolution: int = 32) -> "Figure":
        """Draws the loss over two scalar gains with the path of the search on it; for other gains, and beside it,
        loss and gains over the iterations.

        **Arguments:**

        - `path`: where to write the figure (.png, .pdf, .svg); by default it is only returned.
        - `resolution`: points along each gain.

        **Returns:** the matplotlib figure.

        **Raises:** `MissingExtraError` without matplotlib (`ukjax[plot]`).
        """
        landscape = self.landscape(resolution) if len(self.names) == 2 else None
        return _figure.plot(self.name, self.names, self.history, landscape, path)
