"""The work-precision diagram: error over the time it takes, a panel for each problem."""

import math
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from ..._figures._plot import drawing
from ._run import BenchResult

_FLOOR = 1e-16  # errors of exactly zero have no place on a log axis


def _widen_to_decade(axes: Any) -> None:
    """Room for a labelled tick on both axes, and labels at powers of ten only."""
    from matplotlib.ticker import NullFormatter

    for axis, limits in ((axes.xaxis, axes.set_xlim), (axes.yaxis, axes.set_ylim)):
        low, high = axis.get_view_interval()
        if high < 10 * low:
            middle = math.sqrt(low * high)
            limits(middle / math.sqrt(12), middle * math.sqrt(12))
        axis.set_minor_formatter(NullFormatter())


def work_precision(results: list[BenchResult], path: str | Path) -> None:
    """Draws the error over the warm wall time, a point for each tolerance; other programs as open markers."""
    columns = min(3, len(results))
    rows = math.ceil(len(results) / columns)
    size = (4.0 * columns, 3.2 * rows)
    with drawing(size, path, "the work-precision diagram", "bench") as figure:
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, result in zip(panels, results, strict=False):
            axes.loglog(result.warm, np.maximum(result.error, _FLOOR), "o-", label="ukjax, largest error")
            if result.peers:
                wall, error = np.array([(peer.wall, peer.end_error) for peer in result.peers]).T
                axes.loglog(wall, error, "s", mfc="none", color="grey", label="others, at the end, elsewhere")
            axes.set_title(result.problem, loc="left")
            axes.set_xlabel("wall time, compiled [s]")
            axes.set_ylabel(f"error of {result.quantity} [{result.unit}]", fontsize="small")
            axes.legend(fontsize="x-small")
            _widen_to_decade(axes)
        for axes in panels[len(results) :]:
            axes.set_visible(False)
        if any(result.peers for result in results):
            said = textwrap.fill(f"other programs: {results[0].peers_source}", 60 * columns)
            figure.supxlabel(said, fontsize="small")
