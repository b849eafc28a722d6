"""Baumgarte's gains tuned through the simulation, beside the best point of a grid and the paper's gains.

The SCARA arm (Xu and Liu 2017) and the parallelogram (de Falco, Pennestrì and Vita 2008), by Tsit5 at fixed steps
of 0.01 s over 5 s; the loss is the mean over the steps of the squared position errors, summed over the rows.
Each is tuned with gains all rows share, and from those on with gains per row. The grid has 60 x 60 points, 0.1 to 10,000
in each gain.

    python experiments/tune_gains.py [--out out/tune_gains] [--quick]
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import diffrax as dfx
import jax
import matplotlib.pyplot as plt
import numpy as np
from paper_tables import Table

import ukjax as uk

GAINS = (0.5, 200.0)  # alpha, beta of Xu-Liu (52)
RANGE = (1e-1, 1e4)
FIXED = {"dt0": 0.01, "stepsize_controller": dfx.ConstantStepSize()}


class Row(NamedTuple):
    model: str
    kind: str
    before: float
    best_of_grid: float
    tuned: float
    gains: str
    seconds: float
    cpu: float


def in_words(result: uk.TuneResult) -> str:
    """The gains, or the range of those of the rows."""
    show = lambda x: f"{x:.4g}" if x.ndim == 0 else f"{x.min():.4g} to {x.max():.4g}"
    return f"{show(result.alpha)}, {show(result.beta)}"


def study(name: str, resolution: int, t1: float, out: Path) -> list[Row]:
    """Both kinds of gains of one model; draws the landscape of those the rows share."""
    rows, best, before, gains = [], np.nan, np.nan, uk.Baumgarte(*GAINS)
    for kind, per_row in (("scalar", False), ("per row", True)):
        wall, cpu = time.perf_counter(), time.process_time()
        result = uk.tune(uk.models.get(name), gains, t1=t1, per_row=per_row, progress=True, **FIXED)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        if not per_row:
            before, gains = float(result.history.loss[0]), result.gains
            best = float(result.landscape(resolution, *RANGE)[2].min())
            result.plot(out / f"{name}.png", resolution=max(8, resolution // 2))
        rows.append(Row(name, kind, before, best, result.loss, in_words(result), wall, cpu))
    return rows


def table(rows: list[Row], t1: float) -> Table:
    columns = (
        f"model, over {t1:g} s",
        "gains",
        "with 0.5, 200",
        "best of grid",
        "tuned",
        "tuned / grid",
        "alpha, beta",
    )
    shown = Table("Mean squared position error", *columns, "wall [s]", "CPU [s]", names=2)
    for r in rows:
        losses = (f"{x:.3e}" for x in (r.before, r.best_of_grid, r.tuned))
        times = f"{r.seconds:.0f}", f"{r.cpu:.0f}"
        shown.add_row(r.model, r.kind, *losses, f"{r.tuned / r.best_of_grid:.3f}", r.gains, *times)
    return shown


def main(arguments: list[str] | None = None) -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/tune_gains"), help="folder of the figures")
    parser.add_argument("--models", nargs="+", default=["scara", "parallelogram"])
    parser.add_argument("--quick", action="store_true", help="the SCARA arm over 1 s, a grid of 12 x 12")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    plt.switch_backend("agg")
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    resolution, t1 = (12, 1.0) if options.quick else (60, 5.0)
    for name in ["scara"] if options.quick else options.models:
        rows += study(name, resolution, t1, options.out)
    print(table(rows, t1))
    return rows


if __name__ == "__main__":
    main()
