"""The hierarchy of Orsino (2017), Figures 3 and 4, with its actuators: ten modules at level 1, four at 2, one at 3.

Each leg is an actuator A_K, a pivoted bar U_K and a bar B_K. The rotor turns `RATIO` times as fast as the bar it drives.
Writes modules.png, the mechanism and the tree of its modules level by level. Prints the model of every level, and what
levels and modules cost beside all constraints at once, as ratios of times that were taken in turn in one run.

    python experiments/orsino_modules.py [--out out/orsino_modules] [--quick]
"""

import argparse
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import orsino_3rrr as orsino
from paper_tables import Table
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

import ukjax as uk

RATIO, ROTOR, TORQUE = 30.0, 2e-5, 0.1
"""Of the gear, the rotor's moment of inertia [kg m^2], and the torque on it [N m]: 0.018 kg m^2 and 3 N m at the bar."""
LEGS, T1 = "ABC", 0.2
COLOURS = {"A": "#d99a2b", "U": "#c8452b", "B": "#0b5fa5", "H": "#5b7f3a", "L": "#8a8a8a", "M": "#202020"}
"""By the kind of module."""


class Active(uk.AbstractSystem):
    """The passive mechanism and three rotors, whose angles are the last coordinates."""

    passive: uk.AbstractSystem
    torque: jax.Array

    @property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        """Figure 4: modules, legs, mechanism."""
        base, elbows, platform = self.passive.levels
        return base, (*(f"gear {leg}" for leg in LEGS), *elbows), platform

    def mass_matrix(self, t, q):
        rotors = jnp.full(3, ROTOR, q.dtype)
        return jnp.diag(jnp.concatenate([jnp.diag(self.passive.mass_matrix(t, q[:21])), rotors]))

    def force(self, t, q, v):
        return jnp.concatenate([self.passive.force(t, q[:21], v[:21]), jnp.broadcast_to(self.torque, 3)])

    def energy(self, t, q, v):
        rotors = 0.5 * ROTOR * jnp.sum(v[21:] ** 2) - self.torque * jnp.sum(q[21:])
        return self.passive.energy(t, q[:21], v[:21]) + rotors

    @property
    def constraints(self):
        of_bodies = [
            uk.Holonomic(lambda t, q, fn=c.fn: fn(t, q[:21]), name=c.name) for c in self.passive.constraints
        ]
        gears = [
            uk.Holonomic(
                lambda t, q, k=k: q[21 + k] - RATIO * (q[6 * k + 2] - self.start[k]), name=f"gear {leg}"
            )
            for k, leg in enumerate(LEGS)
        ]
        return (*of_bodies, *gears)

    start: jax.Array  # angles of the pivoted bars at which the rotors are at zero


def active() -> uk.Problem:
    """The mechanism of Figure 2 with a constant torque on every rotor."""
    given = uk.models.planar_3rrr()
    q0, v0 = (jnp.concatenate([x, jnp.zeros(3)]) for x in (given.q0, given.v0))
    return uk.Problem(
        Active(given.system, jnp.asarray(TORQUE), given.q0[2:18:6]), q0, v0, 0.0, T1, name="active 3RRR"
    )


def modules_at(problem: uk.Problem, level: int) -> list[list[int]]:
    """The velocities of each module of a level: those that a body, the mass matrix or rows up to there couple."""
    part = uk.at_level(problem.system, problem.system.levels, level)
    rng, n = np.random.default_rng(0), problem.v0.size
    q = problem.q0 + 0.1 * rng.normal(size=n)
    A = np.asarray(uk.constraint_rows(part, 0.0, q, problem.v0).A)
    coupled = np.abs(np.asarray(part.mass_matrix(jnp.asarray(0.0), q))) + np.abs(A.T) @ np.abs(A)
    for body in range(7):  # whose three coordinates are one module's
        coupled[3 * body : 3 * body + 3, 3 * body : 3 * body + 3] = 1
    number, labels = connected_components(csr_array(coupled))
    return [np.flatnonzero(labels == k).tolist() for k in range(number)]


def name_of(module: list[int]) -> str:
    """As in Figures 3 and 4: A_K, U_K and B_K of leg K, the leg H_K of all three, the platform L, the mechanism M."""
    bodies = [f"{kind}_{leg}" for leg in LEGS for kind in "UB"] + ["L"]
    parts = {bodies[i // 3] if i < 21 else f"A_{LEGS[i - 21]}" for i in module}
    if len(parts) == 1:
        return parts.pop()
    return "M" if "L" in parts else f"H_{parts.pop()[-1]}"


def run_levels(problem: uk.Problem) -> list[uk.Trajectory]:
    """The model of each level from the same start."""
    systems = (uk.at_level(problem.system, problem.system.levels, level) for level in (1, 2, 3))
    return [uk.simulate(system, problem.q0, problem.v0, t1=T1, ts=21, throw=True) for system in systems]


def in_turn(cases: dict[str, tuple], rounds: int) -> dict[str, list[float]]:
    """The times [s] of compiled functions, one after the other in every round."""
    times = {name: [] for name in cases}
    for _ in range(rounds):
        for name, (solve, given) in cases.items():
            begun = time.process_time()
            solve(given).block_until_ready()
            times[name].append(time.process_time() - begun)
    return times


def ratios(legs: int, rounds: int) -> tuple[float, dict[str, tuple[float, float, float]]]:
    """Processor time of all at once [s], and the times of levels and of modules as parts of it: median and quartiles."""
    equations, levels, modules = orsino._many_legs(legs)
    arrays, static = eqx.partition(equations, eqx.is_array)
    formulas = {
        "all at once": uk.UdwadiaKalaba(),
        "level by level": uk.Recursive(levels),
        "legs as a batch": uk.Recursive(levels, modules=modules),
    }
    cases = {
        name: (jax.jit(lambda x, f=f: f.solve(eqx.combine(x, static)).a).lower(arrays).compile(), arrays)
        for name, f in formulas.items()
    }
    times = in_turn(cases, rounds)
    parts = {name: np.array(x) / np.array(times["all at once"]) for name, x in times.items()}
    found = {
        name: tuple(np.percentile(x, (50, 25, 75))) for name, x in parts.items() if name != "all at once"
    }
    return float(np.median(times["all at once"])), found


def tables(problem: uk.Problem, runs: list[uk.Trajectory], quick: bool) -> list[Table]:
    columns = "rank", "freedoms", "rotor A turned [rad]", "platform fell [m]", "change of energy [J]"
    first = Table(f"The active mechanism by levels, after {T1} s", "level", "modules", *columns, names=2)
    for level, run in enumerate(runs, 1):
        rank, fell = int(run.rank[-1]), float(run.q[0, 19] - run.q_end[19])
        modules = len(modules_at(problem, level))
        turned = float(run.q_end[21])
        first.add_row(
            *(str(x) for x in (level, modules, rank, 24 - rank)),
            f"{turned:.6f}",
            f"{fell:.9f}",
            f"{run.energy_drift:.0e}",
        )
    columns = (
        "CPU time, all at once",
        "CPU, level by level, in parts of that",
        "CPU, legs as a batch, in parts",
    )
    second = Table("One acceleration (median, quartiles)", "legs", *columns)
    for legs in (3, 8) if quick else (3, 8, 32):
        whole, found = ratios(legs, 20 if quick else 200)
        cells = (f"{x:.2f} ({low:.2f} to {high:.2f})" for x, low, high in found.values())
        second.add_row(str(legs), f"{1e3 * whole:.2f} ms", *cells)
    return [first, second]


def _draw_posture(axis, q: np.ndarray, modules: list[list[int]]) -> None:
    """Bars, platform and rotors, each in the colour of its module. A rotor is a disc with a mark."""
    colour = {i: COLOURS[name_of(module)[0]] for module in modules for i in module}
    for body, (x, y, theta) in enumerate(q[:18].reshape(6, 3)):
        centre, across = np.array([x, y]), 0.4 * np.array([np.cos(theta), np.sin(theta)])
        ends = np.stack([centre - across, centre + across])
        axis.plot(*ends.T, color=colour[3 * body], lw=2.2, solid_capstyle="round")
    corners = q[20] + np.radians([90, 210, 330])
    axis.fill(q[18] + 0.3 * np.cos(corners), q[19] + 0.3 * np.sin(corners), color=colour[18], alpha=0.5)
    for k, pivot in enumerate(np.radians([90, 210, 330])):
        centre, turned = np.array([np.cos(pivot), np.sin(pivot)]), q[21 + k]
        axis.add_patch(plt.Circle(centre, 0.1, facecolor="white", edgecolor=colour[21 + k], lw=2))
        mark = centre + 0.1 * np.array([np.cos(turned), np.sin(turned)])
        axis.plot(*np.array([centre, mark]).T, color=colour[21 + k], lw=2)
    axis.set(xlim=(-1.25, 1.25), ylim=(-1.15, 1.15), aspect="equal", xticks=[], yticks=[])
    axis.spines[:].set_visible(False)


def _draw_tree(axis, problem: uk.Problem) -> None:
    """Figure 4, from the modules that were found: each above the parts whose velocities it has."""
    parts = [*(f"{kind}_{leg}" for leg in LEGS for kind in "AUB"), "L"]
    column = {i: parts.index(name_of(part)) for part in modules_at(problem, 1) for i in part}
    place = lambda module: float(np.mean(sorted({column[i] for i in module})))
    below: list[list[int]] = []
    for level in (1, 2, 3):
        modules = modules_at(problem, level)
        for module in modules:
            name = name_of(module)
            for part in below:
                if set(part) <= set(module):
                    axis.plot(
                        [place(part), place(module)], [level - 1, level], color="#b0b0b0", lw=1, zorder=0
                    )
            box = {"boxstyle": "round", "facecolor": "white", "edgecolor": COLOURS[name[0]]}
            axis.text(place(module), level, f"${name}$", ha="center", va="center", bbox=box, fontsize=9)
        axis.text(-1.1, level, f"level {level}", ha="right", va="center", fontsize=9)
        below = modules
    axis.set(xlim=(-2.6, 9.6), ylim=(0.6, 3.4))
    axis.axis("off")


def figure(problem: uk.Problem, runs: list[uk.Trajectory], out: Path) -> None:
    """Figures 3 and 4: what each level makes of the mechanism, and which modules there are."""
    out.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(orsino.STYLE | {"axes.grid": False}):
        fig = plt.figure(figsize=(7.2, 5.0))
        axes = fig.subplot_mosaic([["1", "2", "3"], ["tree"] * 3], height_ratios=[1.1, 1.0])
        for level, run in enumerate(runs, 1):
            modules = modules_at(problem, level)
            _draw_posture(axes[str(level)], np.asarray(run.q_end), modules)
            title = f"level {level}: {len(modules)} module{'s' if len(modules) > 1 else ''}"
            axes[str(level)].set_title(title, fontsize=9)
        _draw_tree(axes["tree"], problem)
        fig.suptitle(f"{T1} s after rest, a constant torque on every rotor", fontsize=9)
        fig.savefig(out / "modules.png")
        plt.close(fig)


def main(arguments: list[str] | None = None) -> tuple[uk.Problem, list[uk.Trajectory]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, no 32 legs")
    parser.add_argument("--out", type=Path, default=Path("out/orsino_modules"), help="folder of the figure")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    plt.switch_backend("agg")
    problem = active()
    runs = run_levels(problem)
    for table in tables(problem, runs, options.quick):
        print(table)
    figure(problem, runs, options.out)
    print(f"wrote modules.png to {options.out}")
    return problem, runs


if __name__ == "__main__":
    main()
