"""Tables, ratios and the work-precision diagram of a comparison of programs."""

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

Row = dict[str, Any]
_FLOORS = {"andrews": 2e-9}  # the published digits are not trusted beyond


@dataclasses.dataclass
class Report:
    """What was measured.

    - `machine`: where.
    - `rounds`: how often each was timed.
    - `fresh`: whether first runs compiled everything.
    - `singles`, `batches`: rows, as `peers.py` makes them.
    """

    machine: str
    rounds: int
    fresh: bool
    singles: list[Row] = dataclasses.field(default_factory=list)
    batches: list[Row] = dataclasses.field(default_factory=list)


def rival(row: Row, rows: list[Row], kind: str = "") -> Row | None:
    """The fastest run of ukjax as accurate as a row, among settings that begin with `kind`."""
    enough = max(row["error"], _FLOORS.get(row["case"], 0.0))
    own = [
        x for x in rows
        if x["program"] == "ukjax" and x["case"] == row["case"] and x["setting"].startswith(kind)
        and x["error"] <= enough
    ]  # fmt: skip
    return min(own, key=lambda x: x["processor"], default=None)


def _number(x: float | None) -> str:
    return "-" if x is None or not math.isfinite(x) else f"{x:.2g}"


def _table(columns: list[str], rows: list[list[str]]) -> list[str]:
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _single(row: Row, rows: list[Row]) -> list[str]:
    numbers = [row[k] for k in ("cold", "wall", "processor", "drift", "error")]
    cells = [f"{row['program']}, {row['setting']}", *(_number(x) for x in numbers)]
    for kind in ("", "simulate, "):
        other = rival(row, rows, kind) if row["program"] != "ukjax" and math.isfinite(row["error"]) else None
        ratio = "-" if other is None else f"{row['processor'] / other['processor']:.1f}"
        cells.append(ratio if other is None or kind else f"{ratio} ({other['setting']})")
    return cells


def _batch(row: Row, singles: list[Row]) -> list[str]:
    same = [x for x in singles if all(x[k] == row[k] for k in ("case", "program", "setting"))]
    error = same[0]["error"] if same else math.nan
    kinds = ("steps_per_second", "steps_per_processor_second", "simulated_per_core")
    rates = [row[k] for k in (*kinds, "simulated_per_processor_second")]
    who = f"{row['program']}, {row['setting']}"
    return [who, str(row["batch"]), str(row["cores"]), *(_number(x) for x in (*rates, error, row["cold"]))]


def markdown(report: Report) -> str:
    """All tables."""
    first = "compiled afresh" if report.fresh else "of programs that a cache may have held"
    lines = [f"{report.machine}; float64; medians of {report.rounds}, all in turn; first runs {first}.", ""]
    columns = ["", "first [s]", "wall [s]", "processor [s]", "drift", "error"]
    columns += ["times the fastest of ukjax as accurate", "times `simulate` as it stands"]
    for case in dict.fromkeys(row["case"] for row in report.singles):
        rows = [row for row in report.singles if row["case"] == case]
        lines += [f"**{case}**, one run", "", *_table(columns, [_single(row, rows) for row in rows])]
    columns = [
        "",
        "batch",
        "cores",
        "trajectory-steps / s",
        "the same / processor s",
        "simulated s / s and core",
    ]
    columns += ["error of a whole run", "first [s]"]
    for case in dict.fromkeys(row["case"] for row in report.batches):
        rows = [_batch(row, report.singles) for row in report.batches if row["case"] == case]
        lines += [f"**{case}**, batches", "", *_table(columns, rows)]
    return "\n".join(lines)


def _without_size(setting: str) -> str:
    """A setting without its step size or tolerance."""
    return re.sub(r",? *(h = |tolerance )?[\de.-]+$", "", setting)


def _lines(report: Report, case: str) -> dict[str, list[tuple[float, float]]]:
    """Time and error of each program and method, by step size."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in report.singles:
        if row["case"] == case and math.isfinite(row["error"]):
            name = f"{row['program']}, {_without_size(row['setting'])}"
            found.setdefault(name, []).append((row["processor"], max(row["error"], 1e-16)))
    return {name: sorted(points) for name, points in found.items()}


def _diagram(report: Report, path: Path) -> None:
    """One panel a case, two or three in a row; a program and method look the same in all."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    lines = {case: _lines(report, case) for case in dict.fromkeys(row["case"] for row in report.singles)}
    names = sorted({name for x in lines.values() for name in x}, key=lambda x: (not x.startswith("ukjax"), x))
    colours = {name: colormaps["tab20"](i % 20) for i, name in enumerate(names)}
    across = 2 if len(lines) in (2, 4) else min(3, len(lines))
    down = -(-len(lines) // across)
    figure = Figure(figsize=(4.2 * across, 3.6 * down + 1.2), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False)
    shown: dict[str, Any] = {}
    for axes, (case, each) in zip(panels.flat, lines.items(), strict=False):
        for name, points in each.items():
            own = name.startswith("ukjax")
            style = {"color": colours[name], "mfc": None if own else "w", "markersize": 4}
            (shown[name],) = axes.loglog(*zip(*points, strict=True), "o-" if own else "s--", **style)
        axes.set_title(case, loc="left")
        axes.grid(alpha=0.25)
        axes.set_ylabel("error at the end")
        axes.set_xlabel("processor time of a run, compiled [s]")
    for axes in panels.flat[len(lines) :]:
        axes.set_visible(False)
    figure.legend([shown[x] for x in names], names, loc="outside lower center", ncols=across, frameon=False)
    figure.suptitle(report.machine, fontsize="small")
    figure.savefig(path, dpi=110)


def write(report: Report, output: Path) -> None:
    """peers.json, peers.md and, with matplotlib, peers.png."""
    output.mkdir(parents=True, exist_ok=True)
    (output / "peers.json").write_text(json.dumps(dataclasses.asdict(report), indent=1))
    (output / "peers.md").write_text(markdown(report))
    if report.singles:
        try:
            _diagram(report, output / "peers.png")
        except ImportError:
            print("no diagram: matplotlib is not installed")
