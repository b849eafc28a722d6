"""The 3RRR mechanism of Orsino (2017): the model of every level, what levels cost, and joints with clearance.

Levels are those of the paper's Figure 4: bodies on their base pins, legs, mechanism. Writes levels.png and
clearance.png and prints three tables.

    python experiments/orsino_3rrr.py [--out out/orsino_3rrr] [--quick]
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from paper_tables import Table

import ukjax as uk
from ukjax._formula._acceleration import Equations, equations_of_motion

NAMES = ("bodies", "on base pins", "legs", "mechanism")
COLOURS = ("#8a8a8a", "#c8452b", "#d99a2b", "#0b5fa5")
T1, SHOWN = 0.4, 0.25
GAINS = 200.0, 1e4
"""Baumgarte's alpha and beta of the runs with clearance: critically damped at 100 rad/s."""
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


class Cost(NamedTuple):
    """Of one acceleration from given M, Q, A, b: operations as XLA counts them, and time [s] in a batch."""

    operations: float
    seconds: float


class Clearances(NamedTuple):
    """What a clearance R of the platform pins does: at the start, and at the end of a run, one value each R."""

    R: np.ndarray
    force: np.ndarray
    violation: np.ndarray
    error: np.ndarray
    run_r: np.ndarray
    gap: np.ndarray
    expected_gap: np.ndarray


def simulate_levels(problem: uk.Problem, count: int) -> list[uk.Trajectory]:
    """The model of each level from the problem's start."""
    ts = np.linspace(0.0, T1, count)
    systems = [uk.at_level(problem.system, problem.system.levels, level) for level in range(4)]
    return [uk.simulate(system, problem.q0, problem.v0, t1=T1, ts=ts, throw=True) for system in systems]


def _cost(formula: uk.AbstractFormula, system: uk.AbstractSystem, q, v, batch: int) -> Cost:
    """Only the algebra: the equations of motion are inputs."""
    equations = eqx.filter_jit(equations_of_motion)(system, jnp.zeros(()), q, v, uk.NoStabilizer())
    arrays, static = eqx.partition(equations, eqx.is_array)
    many = jax.tree.map(lambda x: jnp.repeat(x[None], batch, axis=0), arrays)
    solve = lambda arrays: formula.solve(eqx.combine(arrays, static)).a
    one, all_of_them = jax.jit(solve).lower(arrays).compile(), jax.jit(jax.vmap(solve)).lower(many).compile()
    counted = one.cost_analysis()
    operations = (counted[0] if isinstance(counted, list) else counted).get("flops", np.nan)
    times = []
    for _ in range(25):
        start = time.perf_counter()
        all_of_them(many).block_until_ready()
        times.append(time.perf_counter() - start)
    return Cost(operations, min(times) / batch)


def costs(problem: uk.Problem, batch: int = 256) -> dict[str, list[Cost]]:
    """Of the model of each level, all at once, level by level, and with the legs as one batch."""
    system, levels = problem.system, problem.system.levels
    modules = uk.find_modules(problem, levels)
    found = {"all at once": [], "level by level": [], "legs as a batch": []}
    for level in (1, 2, 3):
        part = uk.at_level(system, levels, level)
        known = [c.name for c in part.constraints]
        own = [(m.variables, [name for name in m.constraints if name in known]) for m in modules]
        formulas = (
            uk.UdwadiaKalaba(),
            uk.Recursive(levels[:level]),
            uk.Recursive(levels[:level], modules=own),
        )
        for cells, formula in zip(found.values(), formulas, strict=True):
            cells.append(_cost(formula, part, problem.q0, problem.v0, batch))
    return found


def clearances(problem: uk.Problem, count: int, runs: int) -> Clearances:
    """The platform pins' force and violation by R, the other joints being exact."""
    system, levels = problem.system, problem.system.levels
    rows = np.array([i for i, name in enumerate(_row_names(problem)) if name.startswith("platform pin")])

    def formula(R):
        return uk.Recursive(levels, dict.fromkeys(levels[2], R))

    @eqx.filter_jit
    def at_start(R):
        found = formula(R).acceleration(system, jnp.zeros(()), problem.q0, problem.v0)
        return found.multipliers[rows], found.residual[rows]

    R = np.logspace(-10, 6, count)
    ideal, _ = at_start(jnp.asarray(0.0))
    forces, violations = (np.stack(x) for x in zip(*(at_start(jnp.asarray(r)) for r in R), strict=True))
    run_r, gaps, expected = np.logspace(-6, 0, runs), [], []
    for r in run_r:
        run = uk.simulate(
            problem, t1=T1, ts=5, formula=formula(jnp.asarray(r)), stabilizer=uk.Baumgarte(*GAINS), throw=True
        )
        gaps.append(np.abs(run.position_error[-1][rows]).max())
        expected.append(r * np.abs(run.multipliers[-1][rows]).max() / GAINS[1])
    return Clearances(
        R,
        np.linalg.norm(forces, axis=1),
        np.linalg.norm(violations, axis=1),
        np.linalg.norm(forces - np.asarray(ideal), axis=1) / np.linalg.norm(ideal),
        run_r,
        np.array(gaps),
        np.array(expected),
    )


def _many_legs(legs: int) -> tuple[Equations, list[list[str]], list[uk.hierarchy.Module]]:
    """Random equations with the pattern of a platform on that many legs, their levels and modules."""
    rng, n = np.random.default_rng(0), 6 * legs + 3
    A = np.zeros((3, legs, 2, n))
    for k in range(legs):
        A[0, k, :, 6 * k : 6 * k + 3] = rng.normal(size=(2, 3))
        A[1, k, :, 6 * k : 6 * k + 6] = rng.normal(size=(2, 6))
        A[2, k, :, [*range(6 * k + 3, 6 * k + 6), n - 3, n - 2, n - 1]] = rng.normal(size=(6, 2))
    levels = [[f"{joint} {k}" for k in range(legs)] for joint in ("base pin", "elbow", "platform pin")]
    names = tuple(f"{name}[{i}]" for level in levels for name in level for i in (0, 1))
    A = jnp.asarray(A.reshape(-1, n))
    zero, kinds = jnp.zeros(len(A)), ("holonomic",) * len(A)
    rows = uk.Rows(A, A @ jnp.asarray(rng.normal(size=n)), zero, zero, names, kinds)
    M, Q = jnp.diag(jnp.asarray(rng.uniform(0.5, 2.0, n))), jnp.asarray(rng.normal(size=n))
    modules = [
        uk.hierarchy.Module(tuple(range(6 * k, 6 * k + 6)), (levels[0][k], levels[1][k])) for k in range(legs)
    ]
    return Equations(M, Q, jnp.zeros(n), rows), levels, modules


def many_legs(counts: tuple[int, ...]) -> Table:
    """Time of one acceleration and of its compilation, by the number of legs."""
    title = "One acceleration with many legs: wall time, CPU time to compile, difference of a"
    table = Table(title, "legs: an acceleration", "all at once", "level by level", "legs as a batch")
    for legs in counts:
        equations, levels, modules = _many_legs(legs)
        arrays, static = eqx.partition(equations, eqx.is_array)
        cells, expected = [], None
        for formula in (uk.UdwadiaKalaba(), uk.Recursive(levels), uk.Recursive(levels, modules=modules)):
            begun = time.process_time()
            solve = (
                jax.jit(lambda x, f=formula, s=static: f.solve(eqx.combine(x, s)).a).lower(arrays).compile()
            )
            compiling, times = time.process_time() - begun, []
            for _ in range(60):
                start = time.perf_counter()
                a = solve(arrays).block_until_ready()
                times.append(time.perf_counter() - start)
            expected = a if expected is None else expected
            off = float(jnp.max(jnp.abs(a - expected)) / jnp.max(jnp.abs(expected)))
            cells.append(f"{1e3 * min(times):.2f} ms; {compiling:.1f} s; {off:.0e}")
        table.add_row(str(legs), *cells)
    return table


def _row_names(problem: uk.Problem) -> tuple[str, ...]:
    return tuple(f"{name}[{i}]" for level in problem.system.levels for name in level for i in (0, 1))


def tables(runs: list[uk.Trajectory], cost: dict[str, list[Cost]], found: Clearances) -> list[Table]:
    columns = "level", "rank", "freedoms", "steps", "platform fell [m]", "change of energy [J]"
    first = Table(f"The model of each level, at rest at t = 0, at {T1} s", *columns)
    for level, run in enumerate(runs):
        rank, steps = int(run.rank[-1]), int(run.stats["num_steps"])
        fell, drift = float(run.q[0, 19] - run.q_end[19]), float(np.ptp(run.energy))
        first.add_row(
            f"{level}: {NAMES[level]}", str(rank), str(21 - rank), str(steps), f"{fell:.9f}", f"{drift:.0e}"
        )
    title = "An acceleration from given M, Q, A, b: operations XLA counts, and wall time in a batch"
    second = Table(title, "up to level", *cost)
    for level in range(3):
        cells = [cells[level] for cells in cost.values()]
        second.add_row(
            str(level + 1), *(f"{c.operations / 1e3:,.0f} k, {1e6 * c.seconds:.1f} us" for c in cells)
        )
    columns = "R [1/kg]", "force [N]", "relative difference from ideal", "A a − b [m/s²]"
    third = Table("Platform pins with clearance, at the start", *columns)
    for i in range(0, found.R.size, max(1, found.R.size // 8)):
        figures = f"{found.force[i]:.6f}", f"{found.error[i]:.1e}", f"{found.violation[i]:.1e}"
        third.add_row(f"{found.R[i]:.0e}", *figures)
    fourth = Table(f"... after {T1} s", "with gains, R [1/kg]", "gap [m]", "R λ/β [m]")
    for r, gap, expected in zip(found.run_r, found.gap, found.expected_gap, strict=True):
        fourth.add_row(f"{r:.0e}", f"{gap:.1e}", f"{expected:.1e}")
    return [first, second, third, fourth]


def _draw(axis, q: np.ndarray, colour: str) -> None:
    bodies = q.reshape(7, 3)
    for x, y, theta in bodies[:6]:
        ends = 0.4 * np.array([np.cos(theta), np.sin(theta)])
        axis.plot(
            [x - ends[0], x + ends[0]],
            [y - ends[1], y + ends[1]],
            color=colour,
            lw=2.2,
            solid_capstyle="round",
        )
    corners = bodies[6, 2] + np.radians([90, 210, 330, 90])
    axis.fill(
        bodies[6, 0] + 0.3 * np.cos(corners), bodies[6, 1] + 0.3 * np.sin(corners), color=colour, alpha=0.35
    )
    pivots = np.radians([90, 210, 330])
    axis.plot(np.cos(pivots), np.sin(pivots), "o", color="#202020", ms=4)
    axis.set(xlim=(-1.1, 1.1), ylim=(-1.0, 1.1), aspect="equal", xticks=[], yticks=[])
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)


def figures(runs: list[uk.Trajectory], found: Clearances, out: Path) -> None:
    """What each level makes of the mechanism; force and violation by clearance."""
    out.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(1, 4, figsize=(7.2, 2.2))
        for level, (axis, run) in enumerate(zip(axes, runs, strict=True)):
            shown = int(np.argmin(np.abs(np.asarray(run.t) - SHOWN)))
            _draw(axis, np.asarray(run.q[0]), "#d5d5d5")
            _draw(axis, np.asarray(run.q[shown]), COLOURS[level])
            axis.set_title(f"level {level}: {NAMES[level]}", fontsize=9)
        fig.supxlabel(f"at rest (grey) and {SHOWN} s later", fontsize=9)
        fig.savefig(out / "levels.png")
        plt.close(fig)
        fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.9))
        left.loglog(found.R, found.error, color=COLOURS[3], label="force, relative to ideal: difference")
        left.loglog(found.R, found.force / found.force[0], color=COLOURS[1], label="force, relative to ideal")
        left.loglog(found.R, found.violation, color=COLOURS[2], label="$|A a - b|$ [m/s$^2$]")
        left.set(xlabel="$R$ [1/kg]", title="at the start")
        left.legend(fontsize=7.5)
        right.loglog(found.run_r, found.gap, "o", color=COLOURS[3], label="largest gap of a pin")
        right.loglog(
            found.run_r, found.expected_gap, color="#202020", lw=1, label=r"$R\,\lambda/\beta$, as at rest"
        )
        right.set(xlabel="$R$ [1/kg]", ylabel="[m]", title=f"after {T1} s")
        right.legend(fontsize=7.5)
        fig.savefig(out / "clearance.png")
        plt.close(fig)


def main(arguments: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/orsino_3rrr"), help="folder of the figures")
    parser.add_argument("--quick", action="store_true", help="fewer clearances and times")
    parser.add_argument("--legs", action="store_true", help="only the costs with 3, 8 and 32 legs")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    plt.switch_backend("agg")
    problem = uk.models.planar_3rrr()
    if options.legs:
        print(many_legs((3, 8, 32)))
        return {}
    runs = simulate_levels(problem, 41)
    cost = costs(problem)
    found = clearances(problem, *((9, 2) if options.quick else (33, 7)))
    for table in tables(runs, cost, found):
        print(table)
    figures(runs, found, options.out)
    print(f"wrote levels.png and clearance.png to {options.out}")
    return {"runs": runs, "costs": cost, "clearances": found}


if __name__ == "__main__":
    main()
