"""How often intervals of `uk.identify` cover the truth: synthetic data sets of three mechanisms.

- a pendulum: its length, and the velocity it starts with; two channels whose noise is estimated;
- a four-bar linkage by two encoders: a mass and a bearing's damping;
- a ball with backspin that strikes a floor twice: restitution and friction.

    python benchmarks/interval_coverage.py [--sets 200] [--quick]
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

import ukjax as uk
import ukjax.mechanisms as um


class Case(NamedTuple):
    """What is measured of a model, by default its coordinates, and what is known of it."""

    name: str
    model: Callable[..., uk.Problem]
    truth: dict[str, float]
    guess: dict[str, float]
    times: np.ndarray
    noise: float
    options: dict[str, Any]


def four_bar(damping, mass):
    bodies = [
        um.rod("crank", (0.0, 0.0), (0.0, 0.3), mass=0.5),
        um.rod("coupler", (0.0, 0.3), (0.8, 0.6), mass=mass),
        um.rod("rocker", (0.8, 0.6), (0.7, 0.0), mass=0.8),
    ]
    joints = [
        um.Revolute("A", "ground", "crank", (0.0, 0.0)),
        um.Revolute("B", "crank", "coupler", (0.0, 0.3)),
        um.Revolute("C", "coupler", "rocker", (0.8, 0.6)),
        um.Revolute("D", "rocker", "ground", (0.7, 0.0)),
    ]
    loads = [um.Gravity(), um.TorsionalSpring("grease", "A", stiffness=0.0, damping=damping)]
    return um.problem(um.assemble(bodies, joints, loads), rates={"A": 2.0}, t1=1.0)


def ball(restitution, friction):
    disk = um.disk("ball", (0.0, 1.0), 0.1, mass=1.0)
    floor = um.HalfSpace("ground", point=(0.0, 0.0))
    touch = um.Contact(um.Sphere("ball", (0.0, 1.0), 0.1), floor, restitution=restitution, friction=friction)
    thrown = um.assemble([disk], loads=[um.Gravity()], contacts=[touch])
    return um.problem(thrown, v0=[1.5, 0.0, 80.0], t1=1.1)


def encoders(q):
    return q[jnp.array([2, 8])]


def place(q):
    return q[:2]


CASES = [
    Case("pendulum", uk.models.pendulum, {"length": 1.2}, {"length": 1.0}, np.linspace(0.1, 2.0, 20), 0.01,
         {"initial": "v0", "bounds": {"length": (0.0, None)}}),
    Case("four-bar", four_bar, {"damping": 0.15, "mass": 1.3}, {"damping": 0.1, "mass": 1.0},
         np.linspace(0.02, 1.0, 50), 1e-3,
         {"measure": encoders, "bounds": {"damping": (0.0, None), "mass": (0.0, None)}}),
    Case("ball, impacts", ball, {"restitution": 0.65, "friction": 0.2}, {"restitution": 0.7, "friction": 0.18},
         np.linspace(0.02, 1.1, 55), 2e-3,
         {"measure": place, "bounds": {"restitution": (0.0, 1.0), "friction": (0.0, None)}}),
]  # fmt: skip


def covered(case: Case, sets: int) -> tuple[tuple[str, ...], np.ndarray]:
    """Names, and how many of the intervals of 95 % cover the truth."""
    problem = case.model(**case.truth)
    run = uk.simulate(problem, ts=case.times, t1=float(case.times[-1]))
    exact = np.asarray(jax.vmap(case.options.get("measure", lambda q: q))(run.q))
    truth = np.array([*case.truth.values(), *(problem.v0 if "initial" in case.options else ())])
    inside = np.zeros(truth.size, int)
    for seed in range(sets):
        y = exact + case.noise * np.random.default_rng(seed).normal(size=exact.shape)
        found = uk.identify(case.model, uk.Recording(case.times, y), case.guess, **case.options)
        low, high = found.intervals(0.95).T
        inside += (low < truth) & (truth < high)
    return found.names, inside


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=200, help="data sets of each mechanism")
    parser.add_argument("--quick", action="store_true", help="3 data sets of the pendulum")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    sets, cases = (3, CASES[:1]) if options.quick else (options.sets, CASES)
    table = Table(
        "mechanism", "number", f"intervals of {sets} that cover it", "%", "CPU [s]", box=box.MARKDOWN
    )
    for case in cases:
        start = time.process_time()
        names, inside = covered(case, sets)
        spent = f"{time.process_time() - start:.0f}"
        for i, name in enumerate(names):
            first = (case.name, spent) if i == 0 else ("", "")
            table.add_row(first[0], name, str(inside[i]), f"{100 * inside[i] / sets:.1f}", first[1])
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
