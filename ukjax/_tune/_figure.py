"""Figures of a search: the loss over two gains with the path on it, and what happened at each iteration."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._figures._plot import drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ._result import History


_FAR = 1e30  # of runs that fail, or nearly so; no axis has place for 1e283


def _landscape(axes: Any, names: tuple[str, ...], history: "History", landscape: tuple) -> Any:
    """The logarithm of the loss as colours, white where runs fail, with the path from square to star."""
    (first, second, losses), gains, best = landscape, history.gains, np.argmin(history.loss)
    shown = np.where(np.isfinite(losses), losses, np.nan)
    least = np.floor(5 * np.log10(np.nanmin(shown))) / 5
    levels = least + 0.2 * np.arange(21)
    colours = axes.contourf(first, second, np.log10(shown).T, levels, cmap="viridis", extend="max")
    axes.plot(*gains.T, color="#ffffff", linewidth=2.4)
    axes.plot(*gains.T, ".-", color="#c8452b", label="path")
    axes.plot(*gains[0], "s", color="#c8452b", markeredgecolor="#ffffff", label="given")
    axes.plot(*gains[best], "*", color="#c8452b", markeredgecolor="#ffffff", markersize=14, label="tuned")
    axes.set(xscale="log", yscale="log", xlabel=names[0], ylabel=names[1])
    axes.set_title("Loss (colour: log10; blank: the run fails)", loc="left")
    axes.legend(loc="upper left")
    return colours


def plot(
    title: str,
    names: tuple[str, ...],
    history: "History",
    landscape: tuple[np.ndarray, np.ndarray, np.ndarray] | None,
    path: str | Path | None,
) -> "Figure":
    """Draws a search."""
    with drawing((9.5, 4.5), path) as figure:
        widths = (1.0,) if landscape is None else (1.4, 1.0)
        parts: Any = figure.subfigures(1, len(widths), squeeze=False, width_ratios=widths)
        loss, gains = parts[0, -1].subplots(2, 1, sharex=True)
        far = ~(history.loss <= _FAR)
        loss.semilogy(np.where(far, np.nan, history.loss), ".-")
        loss.set_title(f"Loss (blank: above {_FAR:.0e})" if far.any() else "Loss", loc="left")
        gains.semilogy(history.gains, ".-", label=names)
        gains.set_title("Gains", loc="left")
        gains.set_xlabel("iteration")
        if len(names) <= 12:
            gains.legend(ncols=1 + (len(names) - 1) // 4, fontsize="small")
        if landscape is not None:
            colours = _landscape(parts[0, 0].subplots(), names, history, landscape)
            parts[0, 0].colorbar(colours, ticks=colours.levels[::5])
        figure.suptitle(title)
    return figure
