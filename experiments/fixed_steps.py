"""Which rank threshold at fixed steps? Linkages through singular positions by steps of many sizes.

It justifies what ships: rcond = 1e-5 for accelerations at fixed, projected steps. No controller shortens a step there.
Left out near such a position, rows that count let velocities stray; kept, redundant rows turn drift into accelerations.
Steps are as those of `uk.step`, with accelerations by `uk.lanes`.

    python experiments/fixed_steps.py [--sizes 128] [--quick]
"""

import argparse
import math

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from linkage import GRAVITY, W2, closed_form
from rich.console import Console
from rich.progress import track
from rich.table import Table

import ukjax as uk

END = 10.0
"""Of the run by the smallest steps [s]; the others take as many."""
LOST = 0.05
"""A run that ends further than this [m] from the closed form is lost: on another branch, or with another energy."""
RCONDS = (1e-3, 1e-4, 1e-5, 1e-6)
STEPS = ((dfx.Tsit5(), 0.01), (dfx.Dopri5(), 0.035), (dfx.Dopri8(), 0.02))
"""Solvers, and the smallest step of each [s]; the largest is 1.3 times that."""


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


def errors(
    problem: uk.Problem, w2: float, solver: dfx.AbstractSolver, steps: np.ndarray, rcond: float
) -> np.ndarray:
    """How far from the closed form runs by those steps (k,) end [m]; infinite where they are not finite (k,)."""
    accelerate = uk.lanes(problem, stabilizer=uk.NoStabilizer(), rcond=rcond).one
    terms, count = dfx.ODETerm(lambda t, y, _: (y[1], accelerate(t, *y))), round(END / steps[0])

    def tip(h: jax.Array) -> jax.Array:
        def one(i: jax.Array, y: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            t, end = i * h, (i + 1) * h
            y = solver.step(terms, t, end, y, None, solver.init(terms, t, end, y, None), made_jump=True)[0]
            return uk.Projection()(problem.system, end, *y)

        return 2 * jax.lax.fori_loop(0, count, one, (problem.q0, problem.v0))[0][:2]

    found = np.asarray(jax.jit(jax.vmap(tip))(jnp.asarray(steps)))
    apart = np.abs(found - tips(problem, w2, count * steps)).max(axis=1)
    return np.where(np.isfinite(apart), apart, np.inf)


def main(arguments: list[str] | None = None) -> dict[tuple[str, str, float], np.ndarray]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes", type=int, default=128, help="how many steps between the smallest and the largest"
    )
    parser.add_argument("--quick", action="store_true", help="two thresholds, one solver, 32 sizes")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    rconds, ways = ((1e-3, 1e-5), STEPS[:1]) if options.quick else (RCONDS, STEPS)
    between = np.linspace(1.0, 1.3, 32 if options.quick else options.sizes)
    cases = [(name, *way, rcond) for name in mechanisms() for way in ways for rcond in rconds]
    found = {}
    for name, solver, smallest, rcond in track(cases, "runs"):
        key = name, f"{type(solver).__name__}, {smallest:g} s", rcond
        found[key] = errors(*mechanisms()[name], solver, smallest * between, rcond)
    table = Table(
        title=f"runs of {END:g} to {1.3 * END:g} s lost, of {between.size}; median error of the others [m]"
    )
    for column in ("mechanism", "smallest step", *(f"rcond {x:.0e}" for x in rconds)):
        table.add_column(column)
    for name, way in dict.fromkeys(key[:2] for key in found):
        each = [found[name, way, rcond] for rcond in rconds]
        table.add_row(name, way, *(f"{np.sum(x > LOST)}  {np.median(x[x <= LOST]):.0e}" for x in each))
    Console(width=120).print(table)
    return found


if __name__ == "__main__":
    main()
