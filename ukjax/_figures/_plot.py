"""Figures of a trajectory's table: coordinates, constraint errors, energy and forces over time."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._misc._errors import InputError, missing_extra
from .._misc._paths import as_path, writing
from ._files import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.framealpha": 0.8,
    "legend.edgecolor": "none",
    "font.size": 9.0,
    "lines.linewidth": 1.2,
}
_LEGEND_LIMIT = 12


def _lines(axes: Any, t: np.ndarray, values: np.ndarray, labels: list[str], title: str) -> None:
    if len(labels) > 10:  # more than the default cycle has colours
        from matplotlib import colormaps

        axes.set_prop_cycle(color=colormaps["turbo"](np.linspace(0.05, 0.95, len(labels))))
    for column, label in zip(values.T, labels, strict=True):
        axes.plot(t, column, label=label)
    axes.set_title(title, loc="left")
    if 1 < len(labels) <= _LEGEND_LIMIT:
        axes.legend(ncols=1 + (len(labels) - 1) // 4, fontsize="small")


def _errors(axes: Any, t: np.ndarray, table: Table) -> None:
    """The largest error over each kind, on a log axis; zeros are drawn at the precision."""
    kinds = np.asarray(table.labels["row_kind"])
    floor = np.finfo(t.dtype).eps / 10
    for name, label, rows in (
        ("position_error", r"position, $\max|\varphi|$", (kinds == "holonomic") | (kinds == "position")),
        ("velocity_error", r"velocity, $\max|\psi|$", kinds != "acceleration"),
    ):
        if rows.any():
            worst = np.abs(table.columns[name].values[:, rows]).max(axis=1)
            axes.semilogy(t, np.maximum(worst, floor), label=label)
    axes.set_title("Constraint error", loc="left")
    if axes.lines:
        axes.set_ylim(floor, max(axes.get_ylim()[1], 1e4 * floor))  # rounding alone fills no axis
        axes.legend(fontsize="small")


def plot(table: Table, path: str | Path | None = None) -> "Figure":
    """Draws a trajectory's table.

    **Arguments:**

    - `table`: as `Trajectory` makes it.
    - `path`: where to write the figure; by default it is only returned.

    **Returns:** the matplotlib figure.

    **Raises:** `MissingExtraError` without matplotlib.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("plot()", "plot") from error
    t = table.columns["t"].values
    with rc_context(STYLE):
        figure = Figure(figsize=(9.5, 6.5), layout="constrained")
        axes = figure.subplots(2, 2, sharex=True)
        q, force = table.columns["q"].values, table.columns["constraint_force"].values
        _lines(
            axes[0, 0],
            t,
            q,
            [f"$q_{{{i + 1}}}$" for i in range(q.shape[1])],
            "Generalized coordinates",
        )
        names = [f"$Q^c_{{{i + 1}}}$" for i in range(force.shape[1])]
        _lines(axes[0, 1], t, force, names, "Generalized constraint forces")
        _errors(axes[1, 0], t, table)
        if "energy" in table.columns:
            energy = table.columns["energy"].values
            _lines(axes[1, 1], t, (energy - energy[0])[:, None], ["energy"], "Change of energy [J]")
        else:
            rank = table.columns["rank"].values
            _lines(axes[1, 1], t, rank[:, None], ["rank"], "Rank of the constraints")
        for below in axes[1]:
            below.set_xlabel("time [s]")
        figure.suptitle(str(table.attributes["model"]))
        if path is not None:
            write_figure(figure, path)
    return figure


def write_figure(figure: "Figure", path: str | Path) -> None:
    """Writes a figure.

    **Arguments:**

    - `figure`: of matplotlib.
    - `path`: whose suffix chooses the format; by default .png.

    **Raises:** `InputError` for another suffix, and where it cannot be written.
    """
    path = as_path("path", path)
    known = figure.canvas.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in known:
        raise InputError(f"a figure is written as {', '.join('.' + x for x in known)}; got '{path}'.")
    with writing(path):
        figure.savefig(path, dpi=160)
