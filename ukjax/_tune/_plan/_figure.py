"""States and inputs of a plan over time."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._figures._plot import STYLE, write_figure
from ..._misc._errors import missing_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ._result import PlanResult

_MOST = 10  # plans, and lines of a panel


def plot(result: "PlanResult", path: str | Path | None) -> "Figure":
    """Draws the plan.

    **Returns:** the matplotlib figure.

    **Raises:** `MissingExtraError` without matplotlib.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("plot()", "plot") from error
    with rc_context(STYLE):
        from matplotlib import rcParams

        colours = rcParams["axes.prop_cycle"].by_key()["color"]
        figure = Figure(figsize=(8.0, 6.0), layout="constrained")
        axes: Any = figure.subplots(3, 1, sharex=True)
        plans = [result[i] for i in range(min(len(result.q), _MOST))] if result.many else [result]
        panels = (("q", result.coordinates), ("v", result.velocities), ("u", result.inputs))
        for axis, (kind, names) in zip(axes, panels, strict=True):
            for i, one in enumerate(plans):
                for j, name in enumerate(names[:_MOST]):
                    look = {"color": colours[j % len(colours)], "label": name if i == 0 else None}
                    x = getattr(one, kind)[:, j]
                    if kind == "u":
                        axis.stairs(x, one.t, baseline=None, **look)
                    else:
                        axis.plot(one.t, x, **look)
            axis.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
        for axis, label in zip(axes, ("coordinates", "velocities", "inputs"), strict=True):
            axis.set_ylabel(label)
        axes[-1].set_xlabel("t [s]")
        shown = f", {len(plans)} of {len(result.q)} plans" if result.many else ""
        figure.suptitle(f"{result.name}{shown}")
        if path is not None:
            write_figure(figure, path)
    return figure
