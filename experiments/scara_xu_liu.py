"""The SCARA arm of Xu and Liu (2017): every figure of the paper beside the exact algebraic motion.

Four constraint rows on four joints: q(t) follows from inverse kinematics, written below in numpy.
Writes fig02.png .. fig10.png and prints the paper's figures beside what is measured.

    python experiments/scara_xu_liu.py [--out out/scara_xu_liu]
"""

import argparse
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from paper_tables import Table
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import ukjax as uk

GAINS = (0.5, 200.0)  # alpha, beta of Xu-Liu (52)
PAPER_ERRORS = (8e-4, 7e-3, 0.01)  # largest displacement errors in x, y, z without stabilization [m]
EXACT_Q = (0.53666328855, -0.95820673947, 0.42142591849, 0.39999998686)  # q(20) with GAINS
EXACT_FORCE = (13.0174926619, 6.0793177838, 0.0701612309, 4.900125)  # at t = 0 with GAINS
JOINTS = ("$q_1$", "$q_2$", "$q_3$", "$q_4$")
COLOURS = ("#0b5fa5", "#c8452b", "#2f8f4e", "#6b4fa0")
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.5,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
}


def path(t: np.ndarray) -> np.ndarray:
    """Where the tool shall be [m] (eq. (40)): a helix."""
    return np.stack(
        [0.05 * np.sin(0.4 * np.pi * t), 0.35 + 0.05 * np.cos(0.4 * np.pi * t), 0.02 * t], axis=-1
    )


def tool(q: np.ndarray, l1: float = 0.2, l2: float = 0.25) -> np.ndarray:
    """Where the tool is [m] (eqs. (38)-(39))."""
    q1, q12, q4 = q[..., 0], q[..., 0] + q[..., 1], q[..., 3]
    return np.stack([-l1 * np.sin(q1) - l2 * np.sin(q12), l1 * np.cos(q1) + l2 * np.cos(q12), q4], axis=-1)


def posture(t: np.ndarray, l1: float = 0.2, l2: float = 0.25) -> np.ndarray:
    """q(t) that meets eq. (48), by the law of cosines on the elbow branch q2 < 0."""
    x, y, z = np.moveaxis(path(t), -1, 0)
    reach = np.hypot(x, y)
    q2 = np.arccos((reach**2 - l1**2 - l2**2) / (2 * l1 * l2)) * -1
    shoulder = np.arccos((reach**2 + l1**2 - l2**2) / (2 * l1 * reach))
    q1 = np.arctan2(-x, y) + shoulder
    return np.stack([q1, q2, -(q1 + q2), z], axis=-1)


def drift(t: float) -> np.ndarray:
    """Displacement errors at time t without stabilization, phi(0) + t phi'(0) [m], from the paper's start."""
    q = np.array([np.radians(30.0), np.radians(-55.0), np.radians(24.0), 0.0])
    v = np.array([-0.157, 0.0001, 0.157, 0.0195])
    h = 1e-6
    ahead, back = (tool(q + s * h * v) - path(np.asarray(s * h)) for s in (1, -1))
    return (ahead + back) / 2 + t * (ahead - back) / (2 * h)


def simulate(count: int) -> dict[str, uk.Trajectory]:
    """The paper's two runs, the same projected, and one from an exact start."""
    formula = uk.UdwadiaKalaba(uk.SVD())
    paper, exact = uk.models.scara(), uk.models.scara(exact_start=True)
    cases = {
        "none": (paper, uk.NoStabilizer()),
        "Baumgarte": (paper, uk.Baumgarte(*GAINS)),
        "Projection": (paper, uk.Projection()),
        "exact start, none": (exact, uk.NoStabilizer()),
        "exact start, Projection": (exact, uk.Projection()),
    }
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    runs = {}
    with Progress(*columns, transient=True) as progress:
        for name in progress.track(cases, description="20 s of motion"):
            problem, stabilizer = cases[name]
            runs[name] = uk.simulate(
                problem, ts=count, formula=formula, stabilizer=stabilizer, rtol=1e-11, atol=1e-11, throw=True
            )
    return runs


def _joints(run: uk.Trajectory, file: Path) -> None:
    """Figures 2 and 6: joint responses, solid numerical and dashed theoretical."""
    t, q, exact = np.asarray(run.t), np.asarray(run.q), posture(np.asarray(run.t))
    fig, axes = plt.subplots(1, 2, figsize=(7.2, 2.9), width_ratios=(2, 1))
    for i, (name, colour) in enumerate(zip(JOINTS, COLOURS, strict=True)):
        axis = axes[i // 3]
        axis.plot(t, q[:, i], color=colour, label=name)
        axis.plot(t, exact[:, i], "--", color="#202020", lw=1.0, label="theoretical" if i in (2, 3) else None)
    axes[0].set(xlabel="$t$ [s]", ylabel="joint angle [rad]", title="(a)")
    axes[1].set(xlabel="$t$ [s]", ylabel="joint displacement [m]", title="(b)")
    axes[0].set_ylim(-2.2, 2.1)
    axes[0].legend(ncols=2, loc="upper center")
    axes[1].legend(loc="upper left")
    _save(fig, file)


def _path(run: uk.Trajectory, label: str, file: Path) -> None:
    """Figures 3 and 7: the tool's trajectory in space, and from above."""
    t = np.asarray(run.t)
    p, exact = tool(np.asarray(run.q)), path(t)
    fig = plt.figure(figsize=(7.2, 3.5))
    space = fig.add_subplot(1, 2, 1, projection="3d")
    above = fig.add_subplot(1, 2, 2)
    space.plot(*p.T, color=COLOURS[0], label=label)
    space.plot(*exact.T, "--", color="#202020", lw=1.0, label="theoretical")
    space.set_xlabel("$x$ [m]", labelpad=6)
    space.set_ylabel("$y$ [m]", labelpad=6)
    space.set_zlabel("$z$ [m]", labelpad=6)
    space.set_xticks((-0.05, 0, 0.05))
    space.set_yticks((0.30, 0.35, 0.40))
    space.set_box_aspect((1, 1, 1.15), zoom=0.85)
    space.view_init(elev=18, azim=-55)
    space.tick_params(labelsize=7.5, pad=1)
    above.plot(p[:, 0], p[:, 1], color=COLOURS[0], label=label)
    above.plot(exact[:, 0], exact[:, 1], "--", color="#202020", lw=1.0, label="theoretical")
    above.set(xlabel="$x$ [m]", ylabel="$y$ [m]", title="from above", aspect="equal")
    above.set_xticks((-0.05, 0, 0.05))
    fig.legend(*above.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    _save(fig, file)


def _displacements(t: np.ndarray, errors: np.ndarray, file: Path) -> None:
    """Figure 5: displacement errors without stabilization, with the paper's largest as a line."""
    fig, axes = plt.subplots(1, 3, figsize=(7.2, 2.4))
    for axis, error, name, said, letter in zip(axes, 1e3 * errors.T, "xyz", PAPER_ERRORS, "abc", strict=True):
        axis.plot(t, error, color=COLOURS[0])
        said = 1e3 * said * np.sign(error[np.argmax(np.abs(error))])
        axis.axhline(said, color=COLOURS[1], ls=":", lw=1.2)
        right = name == "y"  # where the curve is not
        axis.annotate(
            "paper's largest",
            (19.8 if right else 0.2, said),
            color=COLOURS[1],
            fontsize=7.5,
            ha="right" if right else "left",
            xytext=(0, 3),
            textcoords="offset points",
        )
        axis.set(xlabel="$t$ [s]", ylabel=f"${name}$ error [mm]", title=f"({letter})")
    _save(fig, file)


def _joint_errors(run: uk.Trajectory, file: Path) -> None:
    """Figure 4: joint errors without stabilization."""
    t = np.asarray(run.t)
    errors = 1e3 * (np.asarray(run.q) - posture(t))
    fig, axes = plt.subplots(1, 2, figsize=(7.2, 2.7), width_ratios=(2, 1))
    for i, (name, colour) in enumerate(zip(JOINTS, COLOURS, strict=True)):
        axes[i // 3].plot(t, errors[:, i], color=colour, label=name)
    axes[0].set(xlabel="$t$ [s]", ylabel="joint error [mrad]", title="(a)")
    axes[1].set(xlabel="$t$ [s]", ylabel="joint error [mm]", title="(b)")
    axes[0].legend(ncols=3, loc="best")
    axes[1].legend(loc="best")
    _save(fig, file)


def _before_and_after(
    before: np.ndarray,
    after: np.ndarray,
    t: np.ndarray,
    labels: tuple[str, ...],
    shape: tuple[int, int],
    file: Path,
) -> None:
    """Figures 8 and 9: errors without stabilization and with it, on one axis."""
    fig, axes = plt.subplots(*shape, figsize=(7.2, 2.35 * shape[0]), squeeze=False)
    for i, (axis, label) in enumerate(zip(axes.flat, labels, strict=True)):
        axis.plot(t, 1e3 * before[:, i], color="#9aa4ad", label="without stabilization")
        axis.plot(t, 1e3 * after[:, i], color=COLOURS[0], lw=1.0, label="Baumgarte 0.5, 200")
        axis.set(xlabel="$t$ [s]", ylabel=label, title=f"({'abcd'[i]})")
    fig.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    _save(fig, file)


def _torques(run: uk.Trajectory, file: Path) -> None:
    """Figure 10: constraint torques and, of the prismatic joint, the force."""
    t, force = np.asarray(run.t), np.asarray(run.constraint_force)
    fig, axes = plt.subplots(1, 2, figsize=(7.2, 2.9), width_ratios=(2, 1))
    for i, colour in enumerate(COLOURS):
        axes[i // 3].plot(t, force[:, i], color=colour, lw=1.2, label=f"$Q_{{c{i + 1}}}$")
    axes[0].set(xlabel="$t$ [s]", ylabel="constraint torque [N m]", title="(a)")
    axes[1].set(xlabel="$t$ [s]", ylabel="constraint force [N]", title="(b)")
    axes[1].ticklabel_format(axis="y", useOffset=False)
    for axis in axes:
        axis.legend(ncols=3, loc="upper right")
    _save(fig, file)


def _save(fig, file: Path) -> None:
    fig.savefig(file)
    plt.close(fig)


def figures(runs: dict[str, uk.Trajectory], out: Path) -> None:
    """All figures of the paper: 2-5 without stabilization, 6-10 with Baumgarte's."""
    out.mkdir(parents=True, exist_ok=True)
    none, held = runs["none"], runs["Baumgarte"]
    t = np.asarray(none.t)
    exact = posture(t)
    q_before, q_after = (np.asarray(run.q) - exact for run in (none, held))
    p_before, p_after = (tool(np.asarray(run.q)) - path(t) for run in (none, held))
    with plt.rc_context(STYLE):
        _joints(none, out / "fig02.png")
        _path(none, "without stabilization", out / "fig03.png")
        _joint_errors(none, out / "fig04.png")
        _displacements(t, p_before, out / "fig05.png")
        _joints(held, out / "fig06.png")
        _path(held, "Baumgarte 0.5, 200", out / "fig07.png")
        names = [
            f"{name} error [{unit}]"
            for name, unit in zip(JOINTS, ("mrad", "mrad", "mrad", "mm"), strict=True)
        ]
        _before_and_after(q_before, q_after, t, tuple(names), (2, 2), out / "fig08.png")
        axes = tuple(f"${x}$ error [mm]" for x in "xyz")
        _before_and_after(p_before, p_after, t, axes, (1, 3), out / "fig09.png")
        _torques(held, out / "fig10.png")


def measures(runs: dict[str, uk.Trajectory]) -> dict[str, np.ndarray]:
    """What the table shows: largest displacement errors of each run [m], and the published numbers' counterparts."""
    result = {}
    for name, run in runs.items():
        t, q = np.asarray(run.t), np.asarray(run.q)
        result[f"{name}: displacement"] = np.max(np.abs(tool(q) - path(t)), axis=0)
        result[f"{name}: joints"] = np.max(np.abs(q - posture(t)), axis=0)
    late = np.asarray(runs["Baumgarte"].t) > 15.0
    held = tool(np.asarray(runs["Baumgarte"].q)) - path(np.asarray(runs["Baumgarte"].t))
    result["Baumgarte: displacement after 15 s"] = np.max(np.abs(held[late]), axis=0)
    result["none: displacement at 20 s"] = np.abs(
        tool(np.asarray(runs["none"].q[-1])) - path(np.asarray(20.0))
    )
    result["q(20)"] = np.asarray(runs["Baumgarte"].q[-1])
    result["force(0)"] = np.asarray(runs["Baumgarte"].constraint_force[0])
    return result


def tables(found: dict[str, np.ndarray], count: int) -> list[Table]:
    """Displacement errors, joint errors against the algebraic motion, and the reference numbers."""
    errors = Table("", f"largest displacement error of the tool, at {count} times to 20 s [m]", "x", "y", "z")
    number = lambda x: f"{x:.3e}"
    errors.add_row("paper, without stabilization", *(number(x) for x in PAPER_ERRORS))
    errors.add_row("without stabilization, largest", *map(number, found["none: displacement"]))
    errors.add_row("  at 20 s", *map(number, found["none: displacement at 20 s"]))
    errors.add_row("  exact, phi(0) + 20 s phi'(0)", *map(number, np.abs(drift(20.0))))
    errors.add_row("Baumgarte 0.5, 200, largest", *map(number, found["Baumgarte: displacement"]))
    errors.add_row("  after 15 s", *map(number, found["Baumgarte: displacement after 15 s"]))
    for name in ("Projection", "exact start, none", "exact start, Projection"):
        errors.add_row(name, *map(number, found[f"{name}: displacement"]))
    joints = Table("", "largest joint error against the algebraic motion, 0 to 20 s [rad, m]", *"1234")
    for name in ("none", "Baumgarte", "Projection", "exact start, none", "exact start, Projection"):
        joints.add_row(name, *map(number, found[f"{name}: joints"]))
    numbers = Table("", "reference numbers by Baumgarte(0.5, 200)", *"1234")
    for name, key, exact in (
        ("q(20)", "q(20)", EXACT_Q),
        ("constraint force at t = 0", "force(0)", EXACT_FORCE),
    ):
        numbers.add_row(f"{name}, reference", *(f"{x:.11g}" for x in exact))
        numbers.add_row(f"{name}, ukjax", *(f"{x:.11g}" for x in found[key]))
        numbers.add_row(
            "  difference", *(f"{abs(x - y):.0e}" for x, y in zip(found[key], exact, strict=True))
        )
    return [errors, joints, numbers]


def main(arguments: list[str] | None = None) -> dict[str, np.ndarray]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/scara_xu_liu"), help="folder of the figures")
    parser.add_argument("--count", type=int, default=801, help="saved times")
    parser.add_argument("--quick", action="store_true", help="201 saved times")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    plt.switch_backend("agg")
    count = 201 if options.quick else options.count
    runs = simulate(count)
    found = measures(runs)
    for table in tables(found, count):
        print(table)
    figures(runs, options.out)
    print(f"wrote fig02.png .. fig10.png to {options.out}")
    return found


if __name__ == "__main__":
    main()
