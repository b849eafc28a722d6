"""Which rank threshold? The parallelogram of DPV 2008 over rcond x tolerance x stabilizer x starts.

It justifies what ships: `Projection` with rcond = 1e-4. Prints a table and draws it as a heat map.

    python experiments/rank_rule.py [--out out/rank_rule] [--method CompleteOrthogonal] [--quick]
"""

import argparse
import dataclasses
import math
from collections import Counter
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from linkage import Case, Outcome, run
from matplotlib import colors
from paper_tables import Table
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import ukjax as uk

RCONDS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-12)
STARTS = ((60, 0), (90, 1), (-80, 5), (30, 0), (120, -2), (45, 3), (10, 0), (-60, 0))
"""Angle [deg] and rate [rad/s]. The third turns back 7 deg above flat; the last never gets there."""


@dataclasses.dataclass(frozen=True)
class Stabilizer:
    """A column of the study: how many of the starts, at which tolerances, with how many steps at most."""

    name: str
    gains: tuple[float, float] | None
    starts: int
    tolerances: tuple[float, ...]
    max_steps: int


FULL = (
    Stabilizer("no stabilizer", (0.0, 0.0), 3, (1e-6, 1e-8, 1e-10), 3_000),
    Stabilizer("Baumgarte.squared(100, 100)", (200.0, 1e4), 3, (1e-6, 1e-8, 1e-10), 15_000),
    Stabilizer("Projection", None, 8, (1e-5, 1e-6, 1e-8, 1e-10, 1e-12), 5_000),
)
QUICK = (
    Stabilizer("Baumgarte.squared(100, 100)", (200.0, 1e4), 3, (1e-6,), 15_000),
    Stabilizer("Projection", None, 8, (1e-6, 1e-10), 5_000),
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """All starts at one rcond, tolerance and stabilizer."""

    outcomes: list[Outcome]

    @property
    def right(self) -> int:
        return sum(o.kind == "right" for o in self.outcomes)

    @property
    def all_right(self) -> bool:
        return self.right == len(self.outcomes)

    @property
    def error(self) -> float:
        """The worst over those that are right."""
        return max((o.error for o in self.outcomes if o.kind == "right"), default=math.nan)

    @property
    def steps(self) -> int:
        return int(np.median([o.steps for o in self.outcomes if o.kind == "right"] or [0]))

    def failures(self) -> str:
        return ", ".join(
            f"{n} {kind}" for kind, n in Counter(o.kind for o in self.outcomes).items() if kind != "right"
        )


Cells = dict[tuple[float, float], Cell]


def study(kind: Stabilizer, method: type[uk.AbstractPseudoinverse], rconds: tuple[float, ...], step) -> Cells:
    """Runs every start at every tolerance for each rcond; `step()` after each rcond."""
    alpha, beta = kind.gains or (0.0, 0.0)
    grid = [(tol, start) for tol in kind.tolerances for start in STARTS[: kind.starts]]
    cases = [Case(math.radians(angle), float(rate), tol, alpha, beta) for tol, (angle, rate) in grid]
    cells = {}
    for rcond in rconds:
        outcomes = run(cases, method(rcond=rcond), projection=kind.gains is None, max_steps=kind.max_steps)
        for i, tol in enumerate(kind.tolerances):
            cells[rcond, tol] = Cell(outcomes[i * kind.starts : (i + 1) * kind.starts])
        step()
    return cells


def power(x: float) -> str:
    return f"1e{round(math.log10(x))}"


def table(kind: Stabilizer, cells: Cells) -> Table:
    title = (
        f"At most {kind.max_steps:,} steps: starts on the right motion, worst error of θ [rad], median steps"
    )
    columns = f"{kind.name}, {kind.starts} starts: rcond", *(f"TOL {power(x)}" for x in kind.tolerances)
    result = Table(title, *columns)
    for rcond in dict.fromkeys(rcond for rcond, _ in cells):
        row = [cells[rcond, tol] for tol in kind.tolerances]
        text = [
            f"{c.right}"
            + (f" {c.error:.0e} {c.steps:,}" if c.right else "")
            + ("" if c.all_right else f" ({c.failures()})")
            for c in row
        ]
        result.add_row(power(rcond), *text)
    return result


def figure(results: dict[Stabilizer, Cells], path: Path) -> None:
    """One panel per stabilizer: shades of blue by error where all starts are right, orange where not."""
    widths = [len(kind.tolerances) for kind in results]
    fig, axes = plt.subplots(
        1, len(results), figsize=(max(7.0, 1.5 + 1.05 * sum(widths)), 5.2), sharey=True, squeeze=False,
        width_ratios=widths, layout="constrained",
    )  # fmt: skip
    blues = plt.get_cmap("Blues_r")
    norm = colors.LogNorm(1e-11, 1e-1)
    for axis, (kind, cells) in zip(axes[0], results.items(), strict=True):
        rconds = list(dict.fromkeys(rcond for rcond, _ in cells))
        for (rcond, tol), cell in cells.items():
            x, y = kind.tolerances.index(tol), rconds.index(rcond)
            share = cell.right / len(cell.outcomes)
            shade = 0.25 + 0.6 * float(norm(max(cell.error, 1e-11))) if cell.all_right else 0.0
            face = blues(shade) if cell.all_right else colors.to_rgb("#f6c28b" if share else "#d95f4c")
            axis.add_patch(plt.Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=face, edgecolor="white", lw=2))
            text = f"{cell.right}/{len(cell.outcomes)}"
            if cell.right:
                text += f"\n{cell.error:.0e}\n{cell.steps:,}"
            else:
                text += "\n" + "\n".join(dict.fromkeys(o.kind for o in cell.outcomes))
            dark = cell.all_right and shade < 0.5
            axis.text(
                x, y, text, ha="center", va="center", fontsize=7.5, color="white" if dark else "#222222"
            )
        axis.set_xlim(-0.5, len(kind.tolerances) - 0.5)
        axis.set_ylim(len(rconds) - 0.5, -0.5)
        axis.set_xticks(
            range(len(kind.tolerances)), [f"$10^{{{round(math.log10(t))}}}$" for t in kind.tolerances]
        )
        axis.set_yticks(range(len(rconds)), [f"$10^{{{round(math.log10(r))}}}$" for r in rconds])
        axis.set_title(kind.name, fontsize=10)
        axis.set_xlabel("integrator tolerance")
        axis.tick_params(length=0)
        for side in axis.spines.values():
            side.set_visible(False)
        if 1e-4 in rconds and kind.gains is None:
            y = rconds.index(1e-4)
            axis.add_patch(
                plt.Rectangle(
                    (-0.48, y - 0.48), len(kind.tolerances) - 0.04, 0.96, fill=False, ec="#111111", lw=1.6
                )
            )
    axes[0][0].set_ylabel("rank threshold rcond")
    fig.suptitle(
        "Parallelogram, 20 s: starts on the right motion / worst error of θ [rad] / median steps\n"
        "blue: all right (darker: more accurate), orange: some, red: none; framed: what ships",
        fontsize=9,
    )
    fig.savefig(path, dpi=200)
    plt.close(fig)


def main(arguments: list[str] | None = None) -> dict[Stabilizer, Cells]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/rank_rule"))
    parser.add_argument("--method", default="CompleteOrthogonal", help="the pseudoinverse method")
    parser.add_argument("--quick", action="store_true", help="two thresholds, few tolerances")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    plt.switch_backend("agg")
    method = getattr(uk, options.method)
    kinds, rconds = (QUICK, (1e-3, 1e-4)) if options.quick else (FULL, RCONDS)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    results = {}
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("thresholds", total=len(kinds) * len(rconds))
        for kind in kinds:
            progress.update(task, description=kind.name)
            results[kind] = study(kind, method, rconds, lambda: progress.advance(task))
    for kind, cells in results.items():
        print(table(kind, cells))
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "rank_rule.png"
    figure(results, path)
    print(f"wrote {path}")
    return results


if __name__ == "__main__":
    main()
