"""Two coordinated robots of Liu et al. (2015): Figures 4 to 14 and the torque ranges, by both formulas.

The motion is a closed form, written below in numpy. The paper's torques need the passive force consistent with
them (`formula="paper"`); the least torques that do the same are another, mirror-symmetric answer.
Writes angles.png and torques.png and prints the paper's ranges beside what is measured.

    python experiments/liu_servo.py [--out out/liu_servo]
"""

import argparse
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

import ukjax as uk

# As the paper's text reads its Figures 9 to 14; of u2 it gives the magnitude.
PAPER_RANGES = ((0, 10), (3, 5), (-8, -5.5), (4.5, 10), (-4.5, 0.5), (-5, 0))
FORMULAS = {"paper": "paper's formula", "eliminate": "least norm"}
COLOURS = ("#0b5fa5", "#c8452b")
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
}


def posture(t: np.ndarray) -> np.ndarray:
    """theta(t) that meets eqs. (60) and (64), by the cosine rule: links 1, 2 span (1, y3), links 5, 4 mirror them."""
    y = (1 - np.cos(t)) / 2
    aim, half = np.arctan2(y, 1.0), np.arccos(np.hypot(1.0, y) / 2)
    return np.stack([aim + half, aim - half, 0 * y, half - aim, -aim - half], axis=-1)


def simulate(count: int) -> tuple[uk.Trajectory, dict[str, uk.ServoControl]]:
    """The closed loop over one period, and what each formula asks of the joints along it."""
    problem = uk.models.coordinated_robots()
    robots = problem.system
    laws = {
        name: uk.with_servo(problem, robots.input_matrix, robots.servo_constraints, formula=name)
        for name in FORMULAS
    }
    run = uk.simulate(laws["paper"], ts=count, rtol=1e-11, atol=1e-12, throw=True)
    reports = {name: jax.vmap(law.system.report)(run.t, run.q, run.v) for name, law in laws.items()}
    return run, reports


def measures(run: uk.Trajectory, reports: dict[str, uk.ServoControl]) -> dict[str, np.ndarray]:
    """Torque ranges (6, 2) of each formula, and the errors of the motion and of the rows."""
    found = {
        f"{name}: range": np.stack([np.min(x.u, axis=0), np.max(x.u, axis=0)], axis=1)
        for name, x in reports.items()
    }
    found["angle error"] = np.max(np.abs(np.asarray(run.q) - posture(np.asarray(run.t))))
    found["closing error"] = np.max(np.abs(run.position_error))
    found["residual"] = np.max([np.max(np.abs(x.residual)) for x in reports.values()])
    found["same motion"] = np.max(np.abs(reports["paper"].a - reports["eliminate"].a))
    return found


def tables(found: dict[str, np.ndarray]) -> list[Table]:
    """Torque ranges beside the paper's, and the errors."""
    torques = Table(title="Joint torques over one period (N m)")
    for name in ("torque", "paper, as read", *FORMULAS.values()):
        torques.add_column(name, justify="left" if name == "torque" else "right")
    for i, (low, high) in enumerate(PAPER_RANGES):
        ranges = (
            "{:.2f} .. {:.2f}".format(*(found[f"{name}: range"][i].round(2) + 0.0)) for name in FORMULAS
        )
        torques.add_row(f"u{i + 1}", f"{low} .. {high}", *ranges)
    errors = Table(title="Errors over one period")
    for name in ("quantity", "largest"):
        errors.add_column(name, justify="left" if name == "quantity" else "right")
    errors.add_row("angles against the closed form (rad)", f"{found['angle error']:.1e}")
    errors.add_row("closing rows (60) (m)", f"{found['closing error']:.1e}")
    errors.add_row("servo rows (68), accelerations", f"{found['residual']:.1e}")
    errors.add_row("accelerations, one formula against the other", f"{found['same motion']:.1e}")
    return [torques, errors]


def figures(run: uk.Trajectory, reports: dict[str, uk.ServoControl], out: Path) -> None:
    """Figures 4 to 8 in one file, 9 to 14 in another."""
    out.mkdir(parents=True, exist_ok=True)
    t, q = np.asarray(run.t), np.degrees(np.asarray(run.q))
    exact = np.degrees(posture(t))
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(2, 3, figsize=(7.2, 4.2), sharex=True)
        for i, axis in enumerate(axes.flat[:5]):
            axis.plot(t, q[:, i], color=COLOURS[0], label="ukjax")
            axis.plot(t, exact[:, i], "--", color="#202020", lw=1.0, label="closed form")
            axis.set(title=f"Fig. {i + 4}", ylabel=rf"$\theta_{i + 1}$ [deg]")
        axes.flat[2].set_ylim(-10, 10)
        axes.flat[2].tick_params(labelbottom=True)
        axes.flat[5].axis("off")
        axes.flat[5].legend(*axes.flat[0].get_legend_handles_labels(), loc="center")
        fig.supxlabel("$t$ [s]", fontsize=9)
        fig.savefig(out / "angles.png")
        plt.close(fig)
        fig, axes = plt.subplots(2, 3, figsize=(7.2, 4.4), sharex=True)
        for i, axis in enumerate(axes.flat):
            axis.axhspan(
                *PAPER_RANGES[i], color="#f1e7c8", zorder=0, label="paper's range, as its text reads"
            )
            for (name, label), colour in zip(FORMULAS.items(), COLOURS, strict=True):
                axis.plot(t, np.asarray(reports[name].u)[:, i], color=colour, label=label)
            axis.set(title=f"Fig. {i + 9}", ylabel=f"$u_{i + 1}$ [N m]")
        fig.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        for axis in axes[1]:
            axis.set_xlabel("$t$ [s]")
        fig.savefig(out / "torques.png")
        plt.close(fig)


def main(arguments: list[str] | None = None) -> dict[str, np.ndarray]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/liu_servo"), help="folder of the figures")
    parser.add_argument("--count", type=int, default=401, help="saved times")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    plt.switch_backend("agg")
    console = Console()
    run, reports = simulate(options.count)
    found = measures(run, reports)
    for table in tables(found):
        console.print(table)
    figures(run, reports, options.out)
    console.print(f"wrote angles.png and torques.png to {options.out}")
    return found


if __name__ == "__main__":
    main()
