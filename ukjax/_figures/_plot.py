"""Figures of a run over time: coordinates, forces, contacts, constraint and servo errors, inputs, energy."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._misc._errors import InputError, needing
from .._misc._files import as_path, writing
from .._misc._tables import RunTable
from .._system._constraint import OF_POSITIONS, OF_VELOCITIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Those of Okabe and Ito, which colour-blind people tell apart, and three more.
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#332288", "#6b6f77", "#882255", "#000000",
)  # fmt: skip
STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.framealpha": 0.8,
    "legend.edgecolor": "none",
    "font.size": 9.0,
    "lines.linewidth": 1.2,
    "axes.prop_cycle": f"cycler('color', {list(COLOURS)})",
}
# So many lines can be told apart, by the colours of Matplotlib's cycle and in a legend.
_MOST_LINES = 10
# Forces beyond so many times what so many per cent of the times have are cut off, and a word says so.
_PEAK, _USUAL = 5.0, 90
_NEAR = 0.1  # of the largest gap of a run: contacts that never come so near are counted only


def _lines(
    axes: Any, table: RunTable, name: str, title: str, said: str, size: Callable = np.ptp, places: Any = None
) -> None:
    """The columns of an array, or those at some places, with a legend; of too many those largest by `size`, and a word on
    it."""
    column = table.columns[name]
    values, labels = column.values, table.labels[column.dims[1]]
    if places is not None:
        values, labels = values[:, places], [labels[i] for i in places]
    shown = range(len(labels))
    if len(labels) > _MOST_LINES:
        with np.errstate(invalid="ignore"):
            sizes = size(np.nan_to_num(values), axis=0)
        shown = sorted(np.argsort(-sizes, kind="stable")[:_MOST_LINES])
        title += f": {_MOST_LINES} of {len(labels)}, those {said}"
    for i in shown:
        axes.plot(table.columns["t"].values, values[:, i], label=labels[i])
    axes.set_title(title, loc="left")
    set_legend(axes)


def set_legend(axes: Any) -> None:
    """Beside the axes, where it hides nothing."""
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)


def _largest(values: np.ndarray, axis: int) -> np.ndarray:
    return np.abs(values).max(axis=axis)


_OF_MOTION = {
    "q": ("Coordinates", "that move most", np.ptp, {"m": "m", "rad": "rad"}),
    "v": ("Velocities", "that change most", np.ptp, {"m": "m/s", "rad": "rad/s"}),
    "constraint_force": (
        "Generalized constraint forces",
        "that are largest",
        _largest,
        {"m": "N", "rad": "N m"},
    ),
}
"""Of arrays with a column for each coordinate: title, what is shown of many, and units by that of the coordinate."""


def _of_motion(table: RunTable, name: str, units: Sequence[str]) -> list[Callable[[Any, RunTable], None]]:
    """A panel for each unit; one for all where units are not known."""
    title, said, size, named = _OF_MOTION[name]
    count = table.columns[name].values.shape[1] - (0 if name == "q" else _count_states(table))
    if len(units) != count:
        units = ("",) * count
    panels = []
    for unit in dict.fromkeys(units):
        words = f"{title} [{named[unit]}]" if unit else title
        places = [i for i, x in enumerate(units) if x == unit]
        panels.append(partial(_lines, name=name, title=words, said=said, size=size, places=places))
    return panels


def _count_states(table: RunTable) -> int:
    return int(table.attributes.get("num_states", 0))


def _states(axes: Any, table: RunTable) -> None:
    n = table.columns["v"].values.shape[1]
    places = range(n - _count_states(table), n)
    _lines(axes, table, "v", "States of first order", "that change most", np.ptp, places)


def _inputs(axes: Any, table: RunTable) -> None:
    _lines(axes, table, "inputs", "Inputs", "that are largest", _largest)


def _servo(axes: Any, table: RunTable) -> None:
    """Of rows of positions their error; of others that of velocities, or what is left of their accelerations."""
    kinds = np.asarray(table.labels["servo_row_kind"])
    of_q, of_v = np.isin(kinds, OF_POSITIONS), np.isin(kinds, OF_VELOCITIES)
    for kind, name, unit in (
        (of_q, "servo_position_error", ""),
        (of_v & ~of_q, "servo_velocity_error", ", rate"),
        (~of_v, "servo_residual", ", acceleration"),
    ):
        for i in np.flatnonzero(kind)[:_MOST_LINES]:
            label = table.labels["servo_row"][i] + unit
            axes.plot(table.columns["t"].values, table.columns[name].values[:, i], label=label)
    more = len(kinds) - len(axes.lines)
    axes.set_title(
        "Tracking error" + (f": {len(axes.lines)} of {len(kinds)} rows" if more else ""), loc="left"
    )
    set_legend(axes)


class _Pairs(NamedTuple):
    """Contacts by pairs of shapes, of those that come near."""

    names: list[str]  # of the pairs (n,)
    gap: np.ndarray  # the least of their places (k, n), infinite for dry friction
    # `normal`, `friction`: sums of normal forces, and of the sizes of tangential ones (k, n).
    normal: np.ndarray
    friction: np.ndarray
    # `closed`, `sliding`: whether any of their places is (k, n).
    closed: np.ndarray
    sliding: np.ndarray
    is_angle: np.ndarray  # whether gaps are angles (n,)
    which: str  # how many of all these are


def _by_pairs(table: RunTable, pairs: Mapping[str, str]) -> _Pairs:
    """A pair comes near where it closes, or its gap falls to a tenth of the largest of all; else the nearest one does."""
    of = {name: x.values for name, x in table.columns.items()}
    names = [pairs.get(x, x) for x in table.labels["contact"]]
    (has_gap, tangents), force = of["contacts"].T, of["contact_force"]
    ends = np.cumsum(has_gap + tangents)
    starts = ends - has_gap - tangents
    slides = ends - of.get("turning", 0)  # without moments
    sizes = np.linalg.norm  # of tangential forces
    each = {
        "gap": np.where(has_gap > 0, of["gap"], np.inf).T,
        "normal": [force[:, i] * has for i, has in zip(starts, has_gap, strict=True)],
        "friction": [sizes(force[:, i:j], axis=1) for i, j in zip(starts + has_gap, slides, strict=True)],
        "closed": of["closed"].T > 0,
        "sliding": of["sliding"].T > 0,
        "is_angle": of["angles"],
        "struck": np.array([np.any(of["impulse"][:, i]) for i in starts]) | of["event_closed"].any(axis=0),
    }
    known = list(dict.fromkeys(names))
    places = [[i for i, x in enumerate(names) if x == name] for name in known]
    reduce = {"gap": np.min, "normal": np.sum, "friction": np.sum}
    by = {
        name: np.stack([reduce.get(name, np.any)(np.asarray(x)[own], axis=0) for own in places], axis=-1)
        for name, x in each.items()
    }
    least, closes = by["gap"].min(axis=0), by.pop("struck") | by["closed"].any(axis=0)
    far = np.max(by["gap"], initial=0.0, where=np.isfinite(by["gap"]))
    near = closes | (least <= max(_NEAR * far, least.min()))
    order = np.lexsort((least, ~closes, ~near))[: near.sum()]
    shown = np.sort(order[:_MOST_LINES])
    count = f"{len(shown)} of {len(order)}" if len(order) > len(shown) else f"{len(order)}"
    others = f", {len(known) - len(order)} do not" if len(order) < len(known) else ""
    chosen = {name: x[..., shown] for name, x in by.items()}
    return _Pairs([known[i] for i in shown], **chosen, which=f"{count} that come near{others}")


def _panels_of_contacts(table: RunTable, pairs: Mapping[str, str]) -> list[Callable[[Any, RunTable], None]]:
    """Gaps and forces, of lengths and of angles, and when contacts are closed."""
    found = _by_pairs(table, pairs)
    panels = []
    for is_angle in (False, True):
        own = np.flatnonzero(found.is_angle == is_angle)
        if np.isfinite(found.gap[:, own]).any():
            panels.append(partial(_gaps, found=found, own=own, unit="rad" if is_angle else "m"))
        if np.any(found.normal[:, own]) or np.any(found.friction[:, own]):
            dry = np.isinf(found.gap[:, own]).any()  # of which it is not known
            unit = "N m" if is_angle else "N, N m" if dry else "N"
            panels.append(partial(_contact_forces, found=found, own=own, unit=unit))
    return [*panels, *([partial(_contact_states, found=found)] if found.closed.any() else [])]


def _gaps(axes: Any, table: RunTable, found: _Pairs, own: np.ndarray, unit: str) -> None:
    for i in own:
        if not np.isinf(found.gap[:, i]).any():
            axes.plot(table.columns["t"].values, found.gap[:, i], color=f"C{i}", label=found.names[i])
    axes.axhline(0.0, color=COLOURS[-1], lw=0.6, zorder=1)
    axes.set_title(f"Gaps [{unit}]: {found.which}", loc="left")
    set_legend(axes)


def _contact_forces(axes: Any, table: RunTable, found: _Pairs, own: np.ndarray, unit: str) -> None:
    for i in own:
        label: str | None = found.names[i]
        for values, style in ((found.normal[:, i], "-"), (found.friction[:, i], "--")):
            if np.any(values):
                axes.plot(table.columns["t"].values, values, style, color=f"C{i}", label=label)
                label = None
    # By time stepping an impact is a large force over a step, beside which no other one is seen.
    values = np.stack([found.normal[:, own], found.friction[:, own]])
    most, usual = values.max(), np.percentile(values.max(axis=(0, 2)), _USUAL)
    cut = f", peaks to {most:.3g} cut off" if most > _PEAK * usual > 0 else ""
    if cut:
        axes.set_ylim(-0.1 * usual, 2 * usual)
    axes.set_title(f"Normal forces [{unit}]{cut}; dashed: friction", loc="left")
    set_legend(axes)


def _impulses(axes: Any, table: RunTable) -> None:
    """A stem for each impact, of the rows that are struck hardest."""
    t, values = (table.columns[name].values for name in ("event_time", "impulse"))
    labels = table.labels["contact_row"]
    values = np.where(np.abs(values) > 1e-9 * np.abs(values).max(initial=0), values, 0)  # not rounding
    struck = np.flatnonzero(_largest(values, 0))
    shown = struck[np.argsort(-_largest(values, 0)[struck], kind="stable")][:_MOST_LINES]
    for i in np.sort(shown):
        at = np.abs(values[:, i]) > 0
        (line,) = axes.plot(t[at], values[at, i], "o", ms=4, label=labels[i])
        axes.vlines(t[at], 0, values[at, i], color=line.get_color(), lw=1)
    more = f": {len(shown)} of {len(struck)}, those that are largest" if len(struck) > len(shown) else ""
    axes.set_title(f"Impulses of impacts{more}", loc="left")
    set_legend(axes)


def _contact_states(axes: Any, table: RunTable, found: _Pairs) -> None:
    """A band for each pair: where it is closed, and darker where it slides."""
    t, rows = table.columns["t"].values, np.flatnonzero(found.closed.any(axis=0))
    for on, alpha in ((found.closed, 0.35), (found.sliding, 0.9)):
        for row, i in enumerate(rows):
            axes.fill_between(t, row - 0.35, row + 0.35, where=on[:, i], color=f"C{i}", alpha=alpha, lw=0)
    axes.set_yticks(range(len(rows)), [found.names[i] for i in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_title("Contacts that are closed; darker: that slide", loc="left")


def _errors(axes: Any, table: RunTable) -> None:
    """The largest error over each kind, on a log axis; zeros are drawn at the precision."""
    kinds, t = np.asarray(table.labels["row_kind"]), table.columns["t"].values
    floor = np.finfo(t.dtype).eps / 10
    for name, label, rows in (
        ("position_error", r"position, $\max|\varphi|$", np.isin(kinds, OF_POSITIONS)),
        ("velocity_error", r"velocity, $\max|\psi|$", np.isin(kinds, OF_VELOCITIES)),
    ):
        if rows.any():
            worst = np.abs(table.columns[name].values[:, rows]).max(axis=1)
            axes.semilogy(t, np.maximum(worst, floor), label=label)
    axes.set_title("Constraint error", loc="left")
    axes.set_ylim(floor, max(axes.get_ylim()[1], 1e4 * floor))  # rounding alone fills no axis
    axes.legend(fontsize="small")


def _energy(axes: Any, table: RunTable) -> None:
    energy = table.columns["energy"].values
    change = energy - energy[0]
    with np.errstate(invalid="ignore"):
        largest = np.max(np.abs(np.nan_to_num(change)), initial=0)
    # A power of ten in the title, where it is read, and not beside the axis.
    exponent = 0 if largest == 0 or 1e-3 < largest < 1e4 else int(np.floor(np.log10(largest)))
    axes.plot(table.columns["t"].values, change / 10.0**exponent)
    axes.set_title(f"Change of energy [{rf'$10^{{{exponent}}}$ ' if exponent else ''}J]", loc="left")


def _rank(axes: Any, table: RunTable) -> None:
    axes.plot(table.columns["t"].values, table.columns["rank"].values)
    axes.set_title("Rank of the constraints", loc="left")


def _some(table: RunTable, name: str) -> bool:
    return name in table.columns and bool(np.any(table.columns[name].values))


def _panels(
    table: RunTable, units: Sequence[str], pairs: Mapping[str, str]
) -> list[Callable[[Any, RunTable], None]]:
    """What there is to show, and nothing that would be empty."""
    kinds, moves = set(table.labels["row_kind"]), table.columns["q"].values.size > 0
    wanted = [
        *(_of_motion(table, "q", units) if moves else ()),
        *(() if kinds and moves else _of_motion(table, "v", units)),
        *(_of_motion(table, "constraint_force", units) if kinds else ()),
        *(_panels_of_contacts(table, pairs) if "contacts" in table.columns else ()),
    ]
    others = {
        _states: _count_states(table) > 0,
        _impulses: _some(table, "impulse"),
        _errors: bool(kinds & set(OF_VELOCITIES)),
        _servo: "inputs" in table.columns,
        _inputs: "inputs" in table.columns,
        _energy: "energy" in table.columns,
        _rank: bool(kinds) and "energy" not in table.columns,
    }
    return [*wanted, *(panel for panel, is_wanted in others.items() if is_wanted)]


def _grid(figure: Any, count: int) -> list[Any]:
    """Axes in two columns, the first over both where the number is odd; the lowest ones are labelled."""
    wide = count % 2
    rows = (count + 1) // 2
    grid = figure.add_gridspec(rows, 2)
    places = [grid[0, :]] if wide else []
    places += [grid[row, column] for row in range(wide, rows) for column in (0, 1)]
    axes = []
    for i, place in enumerate(places):
        axes.append(figure.add_subplot(place, sharex=axes[0] if axes else None))
        below = i >= count - 2 or (wide and i == 0)
        axes[-1].set_xlabel("time [s]" if below else "")
        axes[-1].tick_params(labelbottom=below)
    return axes


def plot(
    table: RunTable,
    path: str | Path | None = None,
    units: Sequence[str] = (),
    pairs: Mapping[str, str] = MappingProxyType({}),
) -> "Figure":
    """Draws a trajectory's table.

    **Arguments:**

    - `units`: of each coordinate `"m"`, `"rad"` or nothing; by default not known.
    - `pairs`: of contacts that are places of one pair of shapes its name; by default each contact is one."""
    panels = _panels(table, units, pairs)
    with drawing((11.0, 1.2 + 2.6 * ((len(panels) + 1) // 2)), path) as figure:
        for panel, axes in zip(panels, _grid(figure, len(panels)), strict=True):
            panel(axes, table)
        figure.suptitle(str(table.attributes["model"]).replace("_", " "))
    return figure


@contextlib.contextmanager
def drawing(
    size: tuple[float, float], path: str | Path | None, what: str = "plot()", extra: str = "plot"
) -> Iterator["Figure"]:
    """A figure of a size in inches, to be drawn in the style of ukjax; then it is written where there is a path."""
    with needing(what, extra):
        from matplotlib import rc_context

        from ._notebook import Picture
    with rc_context(STYLE):
        figure = Picture(figsize=size, layout="constrained")
        yield figure
        if path is not None:
            _write(figure, path)


def _write(figure: "Figure", path: str | Path) -> None:
    path = as_path("path", path)
    known = figure.canvas.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in known:
        raise InputError(f"a figure is written as {', '.join('.' + x for x in known)}; got '{path}'.")
    with writing(path):
        figure.savefig(path, dpi=160)
