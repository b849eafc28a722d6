"""Two coordinated robots of Liu et al. (2015): Figures 4 to 14 and the torque ranges, by both formulas.

The motion is a closed form, written below in numpy. The paper's torques need the passive force consistent with
them (`formula="paper"`); the least torques that do the same are another, mirror-symmetric answer.
Writes angles.png, rates.png and torques.png and prints the paper's ranges beside what is measured.

    python experiments/liu_servo.py [--out out/liu_servo]
"""

import argparse
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from paper_tables import Table

import ukjax as uk

# As the paper's text reads its Figures 9 to 14; of u2 it gives the magnitude.
PAPER_RANGES = ((0, 10), (3, 5), (-8, -5.5), (4.5, 10), (-4.5, 0.5), (-5, 0))
FORMULAS = {"paper": "paper's formula", "eliminate": "least norm"}
OTHERS = {"Qc without u": "Qc without u", "no Qc": "no Qc in (71)", "no pin": "far pin as a servo row"}
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


def other_readings(run: uk.Trajectory) -> dict[str, np.ndarray]:
    """Torque ranges (6, 2) along the motion by other readings of section V, whose torques need not give that motion.

    - "Qc without u": the passive force (14) of Q alone, not of Q + B u; then u by (71).
    - "no Qc": a = M^-1/2 Q in (71).
    - "no pin": the closing rows (60) as servo rows too, so that joints do what the far pin does.
    """
    robots = uk.models.coordinated_robots().system
    served = uk.System(robots.mass_matrix, robots.force, robots.servo_constraints)

    @jax.jit
    @jax.vmap
    def terms(t, q, v):
        both = (uk.constraint_rows(x, t, q, v) for x in (robots, served))
        return robots.mass_matrix(t, q), robots.force(t, q, v), *((rows.A, rows.b) for rows in both)

    found = {"Qc without u": [], "no Qc": [], "no pin": []}
    B, pinv = np.asarray(robots.input_matrix), np.linalg.pinv
    M, Q, passive, servo = jax.tree.map(np.asarray, terms(run.t, run.q, run.v))
    for i in range(len(M)):
        W = np.linalg.inv(np.linalg.cholesky(M[i])).T  # any root does: M^-1 = W W^T
        (A_p, b_p), (A, b) = ((A[i], b[i]) for A, b in (passive, servo))
        free = W @ (W.T @ Q[i])
        held = free + W @ pinv(A_p @ W) @ (b_p - A_p @ free)
        all_A, all_b = np.concatenate([A_p, A]), np.concatenate([b_p, b])
        for name, rows, right, a in (
            ("Qc without u", A, b, held),
            ("no Qc", A, b, free),
            ("no pin", all_A, all_b, free),
        ):
            found[name].append(pinv(rows @ W @ W.T @ B) @ (right - rows @ a))
    return {name: np.stack([np.min(u, axis=0), np.max(u, axis=0)], axis=1) for name, u in found.items()}


def measures(run: uk.Trajectory, reports: dict[str, uk.ServoControl]) -> dict[str, np.ndarray]:
    """Torque ranges (6, 2) of each formula, and the errors of the motion and of the rows."""
    found = {
        f"{name}: range": np.stack([np.min(x.u, axis=0), np.max(x.u, axis=0)], axis=1)
        for name, x in reports.items()
    }
    found |= {f"{name}: range": ranges for name, ranges in other_readings(run).items()}
    found["angle error"] = np.max(np.abs(np.asarray(run.q) - posture(np.asarray(run.t))))
    found["closing error"] = np.max(np.abs(run.position_error))
    found["residual"] = np.max([np.max(np.abs(x.residual)) for x in reports.values()])
    found["same motion"] = np.max(np.abs(reports["paper"].a - reports["eliminate"].a))
    return found


def tables(found: dict[str, np.ndarray]) -> list[Table]:
    """Torque ranges beside the paper's, and the errors."""
    title = "Joint torques over one period"
    torques = Table(title, "torque [N m]", "the paper's text", *FORMULAS.values(), *OTHERS.values())
    for i, (low, high) in enumerate(PAPER_RANGES):
        ranges = (
            "{:.2f} .. {:.2f}".format(*(found[f"{name}: range"][i].round(2) + 0.0))
            for name in (*FORMULAS, *OTHERS)
        )
        torques.add_row(f"u{i + 1}", f"{low} .. {high}", *ranges)
    errors = Table("Errors", "over one period", "largest")
    errors.add_row("angles against the closed form (rad)", f"{found['angle error']:.1e}")
    errors.add_row("closing rows (60) (m)", f"{found['closing error']:.1e}")
    errors.add_row("servo rows (68), accelerations", f"{found['residual']:.1e}")
    errors.add_row("accelerations, one formula against the other", f"{found['same motion']:.1e}")
    return [torques, errors]


def _rates(run: uk.Trajectory, file: Path) -> None:
    """Rates and accelerations of the five angles, beside central differences of the closed form."""
    t, h = np.asarray(run.t), 1e-4
    ahead, now, back = (posture(t + x) for x in (h, 0.0, -h))
    fig, axes = plt.subplots(2, 5, figsize=(7.2, 3.4), sharex=True)
    for i in range(5):
        for row, ours, exact, unit in (
            (0, run.v, (ahead - back) / (2 * h), "'$ [1/s]"),
            (1, run.a, (ahead - 2 * now + back) / h**2, "''$ [1/s$^2$]"),
        ):
            axis = axes[row, i]
            axis.plot(t, np.asarray(ours)[:, i], color=COLOURS[0], label="ukjax")
            axis.plot(t, exact[:, i], "--", color="#202020", lw=1.0, label="closed form")
            axis.set_title(rf"$\theta_{i + 1}{unit}", fontsize=8)
            if i == 2:
                axis.set_ylim(-1, 1)
    fig.supxlabel("$t$ [s]", fontsize=9)
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    fig.savefig(file)
    plt.close(fig)


def figures(run: uk.Trajectory, reports: dict[str, uk.ServoControl], out: Path) -> None:
    """Angles of Figures 4 to 8, their rates, and Figures 9 to 14, a file each."""
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
        _rates(run, out / "rates.png")
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
    parser.add_argument("--quick", action="store_true", help="101 saved times")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    plt.switch_backend("agg")
    run, reports = simulate(101 if options.quick else options.count)
    found = measures(run, reports)
    for table in tables(found):
        print(table)
    figures(run, reports, options.out)
    print(f"wrote angles.png, rates.png and torques.png to {options.out}")
    return found


if __name__ == "__main__":
    main()
