"""Which rank threshold at fixed steps? Linkages through singular positions, and overconstrained ones, by many steps.

It justifies what ships: at the stages of projected steps rows stay that are independent where the step starts; if some
depend on others there, the threshold is 3e-3 times the square of the least sine of the rows, but at least 1e-4. No
controller shortens a step there. Left out near a singular position, rows that count let velocities stray; kept, redundant
rows turn drift into accelerations, and may stop the motion.
The rule is that of `uk.simulate`; thresholds are those of `uk.lanes` in steps as those of `uk.step`.

    python experiments/fixed_steps.py [--sizes 128] [--quick]
"""

import argparse
import math

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from linkage import GRAVITY, W2, closed_form
from paper_tables import Table
from rich.progress import track

import ukjax as uk

END = 10.0
"""Of the run by the smallest steps [s]; the others take as many."""
LOST = 0.05
"""A run that ends further than this [m] from the closed form is lost: on another branch, or with another energy."""
RCONDS = (1e-3, 1e-4, 1e-5, 1e-6)
STEPS = ((dfx.Tsit5(), 0.01), (dfx.Dopri5(), 0.035), (dfx.Dopri8(), 0.02))
"""Solvers, and the smallest step of each [s]; the largest is 1.3 times that."""
LARGE = (0.01, 0.02, 0.04)
"""Steps of overconstrained linkages [s]."""


def mechanisms() -> dict[str, tuple[uk.Problem, float]]:
    """Each with w2 of its links' motion, angle'' = -w2 cos(angle). The parallelogram has a redundant row everywhere."""
    w2 = lambda n: GRAVITY * ((n + 1) / 2 + n) / ((n + 1) / 3 + n)
    four_bars = {f"four_bars({n})": (uk.models.four_bars(n), w2(n)) for n in (1, 2)}
    return {**four_bars, "parallelogram": (uk.models.parallelogram(), W2)}


def tips(problem: uk.Problem, w2: float, times: np.ndarray) -> np.ndarray:
    """Where the first link's tip is at times (k,), from its motion in one degree of freedom (k, 2)."""
    x, y = np.asarray(problem.q0[:2])
    angle = closed_form(math.atan2(y, x), float(problem.v0[2]), np.append(0.0, times), w2)[1:]
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def ends(
    problem: uk.Problem, solver: dfx.AbstractSolver, count: int, steps: np.ndarray, rcond: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Where so many of those steps (k,) lead: q (k, n_q) and v (k, n), by a threshold or by the rule that ships."""

    def shipped(h: jax.Array) -> tuple[jax.Array, jax.Array]:
        options = {"stepsize_controller": dfx.ConstantStepSize(), "max_steps": count + 1, "throw": False}
        run = uk.simulate(problem, t1=count * h, dt0=h, ts=2, solver=solver, **options)
        return run.q_end, run.v_end

    def by_threshold(h: jax.Array) -> tuple[jax.Array, jax.Array]:
        accelerate = uk.lanes(problem, stabilizer=uk.NoStabilizer(), rcond=rcond).one
        terms = dfx.ODETerm(lambda t, y, _: (y[1], accelerate(t, *y)))

        def one(i: jax.Array, y: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            t, end = i * h, (i + 1) * h
            y = solver.step(terms, t, end, y, None, solver.init(terms, t, end, y, None), made_jump=True)[0]
            return uk.Projection()(problem.system, end, *y)

        return jax.lax.fori_loop(0, count, one, (problem.q0, problem.v0))

    q, v = jax.jit(jax.vmap(shipped if rcond is None else by_threshold))(jnp.asarray(steps))
    return np.asarray(q), np.asarray(v)


def errors(
    problem: uk.Problem, w2: float, solver: dfx.AbstractSolver, steps: np.ndarray, rcond: float | None
) -> np.ndarray:
    """How far from the closed form runs by those steps (k,) end [m]; infinite where they are not finite (k,)."""
    count = round(END / steps[0])
    found = 2 * ends(problem, solver, count, steps, rcond)[0][:, :2]
    apart = np.abs(found - tips(problem, w2, count * steps)).max(axis=1)
    return np.where(np.isfinite(apart), apart, np.inf)


def energy_changes(
    problem: uk.Problem, solver: dfx.AbstractSolver, steps: np.ndarray, rcond: float | None
) -> np.ndarray:
    """By how much 10 of those steps (k,) change the energy, of the most there is in kinetic energy (k,)."""
    q, v = ends(problem, solver, 10, steps, rcond)
    energy = lambda q, v: float(problem.system.energy(0.0, q, v))
    kinetic = lambda q, v: float(0.5 * v @ problem.system.mass_matrix(0.0, q) @ v)
    before = energy(problem.q0, problem.v0)
    states = list(zip(map(jnp.asarray, q), map(jnp.asarray, v), strict=True))
    most = max(kinetic(problem.q0, problem.v0), *(kinetic(*y) for y in states if np.all(np.isfinite(y[0]))))
    return np.array([abs(energy(*y) - before) / most for y in states])


def main(arguments: list[str] | None = None) -> dict[tuple[str, str, float | None], np.ndarray]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes", type=int, default=128, help="how many steps between the smallest and the largest"
    )
    parser.add_argument("--quick", action="store_true", help="fewer thresholds, one solver, 32 sizes")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    rconds, ways = ((None, 1e-3, 1e-5), STEPS[:1]) if options.quick else ((None, *RCONDS), STEPS)
    between = np.linspace(1.0, 1.3, 32 if options.quick else options.sizes)
    cases = [(name, *way, rcond) for name in mechanisms() for way in ways for rcond in rconds]
    found = {}
    for name, solver, smallest, rcond in track(cases, "runs"):
        key = name, f"{type(solver).__name__}, {smallest:g} s", rcond
        found[key] = errors(*mechanisms()[name], solver, smallest * between, rcond)
    title = f"runs of {END:g} to {1.3 * END:g} s lost, of {between.size}; median error of the others [m]"
    columns = ["as shipped" if x is None else f"rcond {x:.0e}" for x in rconds]
    table = Table(title, f"of {between.size} runs", "smallest step", *columns, names=2)
    for name, way in dict.fromkeys(key[:2] for key in found):
        each = [found[name, way, rcond] for rcond in rconds]
        table.add_row(name, way, *(f"{np.sum(x > LOST)}  {np.median(x[x <= LOST]):.0e}" for x in each))
    print(table)
    title = "change of energy of overconstrained linkages in 10 steps, of the kinetic energy"
    second = Table(title, "change of energy", "step", *columns, names=2)
    for name, problem in {"bennett": uk.models.bennett(), "bricard": uk.models.bricard()}.items():
        for solver in (dfx.Heun(), dfx.Bosh3(), dfx.Tsit5()):
            each = [energy_changes(problem, solver, np.array(LARGE), x) for x in rconds]
            for h, row in zip(LARGE, np.transpose(each), strict=True):
                second.add_row(name, f"{type(solver).__name__}, {h:g} s", *(f"{x:.0e}" for x in row))
    print(second)
    return found


if __name__ == "__main__":
    main()
