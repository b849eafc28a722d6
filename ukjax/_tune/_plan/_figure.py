"""States and inputs of a plan over time."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._figures._plot import COLOURS, drawing, set_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ._result import PlanResult

_MOST = 10  # plans, and lines of a panel


def plot(result: "PlanResult", path: str | Path | None) -> "Figure":
    """Draws the plan."""
    with drawing((8.0, 6.0), path) as figure:
        axes: Any = figure.subplots(3, 1, sharex=True)
        plans = [result[i] for i in range(min(len(result.q), _MOST))] if result.many else [result]
        panels = (("q", result.coordinates), ("v", result.velocities), ("u", result.inputs))
        for axis, (kind, names) in zip(axes, panels, strict=True):
            for i, one in enumerate(plans):
                for j, name in enumerate(names[:_MOST]):
                    look = {"color": COLOURS[j % len(COLOURS)], "label": name if i == 0 else None}
                    x = getattr(one, kind)[:, j]
                    if kind == "u":
                        axis.stairs(x, one.t, baseline=None, **look)
                    else:
                        axis.plot(one.t, x, **look)
            set_legend(axis)
        for axis, label in zip(axes, ("coordinates", "velocities", "inputs"), strict=True):
            axis.set_ylabel(label)
        axes[-1].set_xlabel("t [s]")
        shown = f", {len(plans)} of {len(result.q)} plans" if result.many else ""
        figure.suptitle(f"{result.name}{shown}")
    return figure
