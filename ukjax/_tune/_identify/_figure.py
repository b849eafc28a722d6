"""Samples beside the runs that were fitted, and what is left between them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._figures._plot import COLOURS, drawing, set_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ._result import IdentifyResult

_COLUMNS, _LINES = 3, 6  # recordings and channels that are drawn


def _draw_recording(above: Any, below: Any, result: "IdentifyResult", i: int) -> None:
    told, off = result.predict(i), result.residuals[i]
    for c, (name, colour) in enumerate(zip(result.channels[:_LINES], COLOURS, strict=False)):
        above.plot(told.t, told.y[:, c] + off[:, c], ".", ms=3, color=colour, alpha=0.6)
        above.plot(told.t, told.y[:, c], color=colour, label=name)
        above.fill_between(told.t, told.low[:, c], told.high[:, c], color=colour, alpha=0.15, lw=0)
        below.plot(told.t, off[:, c] / result.noise[c], ".", ms=3, color=colour)
    below.axhline(0.0, color="#404040", lw=0.8)
    below.set_xlabel("t [s]")


def plot(result: "IdentifyResult", path: str | Path | None) -> "Figure":
    """Draws the fit."""
    problems = len(result.problems)
    columns = min(problems, _COLUMNS)
    with drawing((1.5 + 3.5 * columns, 5.0), path) as figure:
        axes: Any = figure.subplots(2, columns, sharex="col", squeeze=False, height_ratios=(2.0, 1.0))
        for i in range(columns):
            _draw_recording(axes[0, i], axes[1, i], result, i)
            if columns > 1:
                axes[0, i].set_title(f"recording {result.recordings[i]}", loc="left")
        shown = f", {_LINES} of {len(result.channels)} channels" if len(result.channels) > _LINES else ""
        shown += f", {columns} of {problems} recordings" if columns < problems else ""
        axes[0, 0].set_ylabel("samples, outputs, 95 % band")
        axes[1, 0].set_ylabel("residual / noise")
        set_legend(axes[0, -1])
        figure.suptitle(f"{result.name}{shown}")
    return figure
