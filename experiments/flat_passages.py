"""Why runs of DPV's linkage with the gains (1000, 100) stop at a flat position, or leave their branch there.

Follows one run step by step. At every flat position (rank 10) it prints by how much the rates of two links differ, which
must be equal, how often the rank of the rows changes from one step to the next, and the shortest step.

    python experiments/flat_passages.py [--method SVD GramSchmidt] [--gains 1000,100 1000,300 100,100]
"""

import argparse
import math
from typing import NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import ukjax as uk

END, AROUND = 20.0, 0.02
"""s, and how near to flat [rad] a state is to belong to a passage."""
BEFORE = 0.1
"""Where the difference of rates is read on the way to flat [rad]: what is left of the passage before."""


class Steps(NamedTuple):
    """The accepted steps of one run."""

    t: np.ndarray
    angle: np.ndarray
    difference: np.ndarray
    rank: np.ndarray
    acceleration: np.ndarray
    taken: int


class Passage(NamedTuple):
    """One flat position: time [s], differences of rates before and largest [rad/s], rank changes, shortest step [s]."""

    t: float
    before: float
    largest: float
    rank_changes: int
    shortest: float


def follow(pinv: uk.AbstractPseudoinverse, gains: tuple[float, float], tolerance: float, most: int) -> Steps:
    """The linkage from 60 degrees at rest, Dopri8, every accepted step."""
    problem = uk.models.parallelogram(angle=math.pi / 3, rate=0.0)
    formula, stabilizer = uk.UdwadiaKalaba(pinv), uk.Baumgarte.squared(*gains)

    def at(t, y):
        return formula.acceleration(problem.system, t, y[:12], y[12:], stabilizer=stabilizer)

    @jax.jit
    def run():
        found = dfx.diffeqsolve(
            dfx.ODETerm(lambda t, y, _: jnp.concatenate([y[12:], at(t, y).a])),
            dfx.Dopri8(),
            0.0,
            END,
            None,
            jnp.concatenate([problem.q0, problem.v0]),
            saveat=dfx.SaveAt(steps=True),
            stepsize_controller=dfx.PIDController(rtol=tolerance, atol=tolerance),
            max_steps=most,
            throw=False,
        )
        ys = jnp.where(jnp.isfinite(found.ys), found.ys, 0.0)
        ranks, largest = jax.lax.map(lambda x: (at(*x).rank, jnp.max(jnp.abs(at(*x).a))), (found.ts, ys))
        return found.ts, ys, ranks, largest, found.stats["num_steps"]

    t, y, rank, acceleration, taken = map(np.asarray, run())
    kept = np.isfinite(t)
    y = y[kept]
    return Steps(t[kept], y[:, 2], y[:, 17] - y[:, 14], rank[kept], acceleration[kept], int(taken))


def passages(steps: Steps) -> list[Passage]:
    """The flat positions of a run, one after the other."""
    flat = np.abs(np.sin(steps.angle)) < AROUND
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flat.astype(int), [0]])))
    found = []
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        within = slice(start, stop)
        earlier = np.flatnonzero(np.abs(np.sin(steps.angle[:start])) > BEFORE)
        before = abs(steps.difference[earlier[-1]]) if earlier.size else 0.0
        found.append(
            Passage(
                float(np.mean(steps.t[within])),
                float(before),
                float(np.max(np.abs(steps.difference[within]))),
                int(np.sum(np.diff(steps.rank[within]) != 0)),
                float(np.min(np.diff(steps.t[max(start - 1, 0) : stop]))),
            )
        )
    return found


def growth(found: list[Passage]) -> float:
    """By what factor the difference of rates grows in one second, from the first passage to where it is 1 rad/s."""
    used = [p for p in found if 0 < p.largest < 1]
    if len(used) < 3:
        return math.nan
    return float(np.exp(np.polyfit([p.t for p in used], np.log([p.largest for p in used]), 1)[0]))


def main(arguments: list[str] | None = None) -> dict[tuple[str, tuple[float, float]], list[Passage]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", nargs="+", default=["SVD", "GramSchmidt"])
    parser.add_argument("--gains", nargs="+", default=["1000,100", "1000,300", "100,100"])
    parser.add_argument("--tolerance", type=float, default=1e-8)
    parser.add_argument("--max-steps", type=int, default=40_000)
    parser.add_argument("--each", action="store_true", help="print every passage")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    console, results = Console(), {}
    summary = Table(
        title=f"To {END:g} s at tolerance {options.tolerance:.0e}, at most {options.max_steps:,} steps"
    )
    columns = (
        "method",
        "gains",
        "slow root [1/s]",
        "reached [s]",
        "steps",
        "growth in 1 s",
        "rank changes",
        "largest a",
    )
    for column in columns:
        summary.add_column(column)
    for method in options.method:
        for text in options.gains:
            alpha, beta = (float(x) for x in text.split(","))
            steps = follow(getattr(uk, method)(), (alpha, beta), options.tolerance, options.max_steps)
            found = results[method, (alpha, beta)] = passages(steps)
            slow = (alpha - np.sqrt(complex(alpha**2 - beta**2))).real
            changes = sum(p.rank_changes for p in found)
            cells = (
                f"{slow:.3g}",
                f"{steps.t[-1]:.2f}",
                f"{steps.taken:,}",
                f"{growth(found):.3g}",
                f"{changes:,}",
            )
            summary.add_row(method, text, *cells, f"{steps.acceleration.max():.1e}")
            if options.each:
                for p in found:
                    console.print(method, text, *(f"{x:.3g}" for x in p))
    console.print(summary)
    return results


if __name__ == "__main__":
    main()
