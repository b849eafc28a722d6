"""Batches of integrations on one core, by batch size, model and method.

Times are processor time of this process, bound to one core, the least of several: other work on the machine disturbs
that little. Batches are of different starting angles or parameters; a `step` is one of one run, rejected ones included.

    python benchmarks/batched.py --models four_bars --batches 1 64 1024 16384
    python benchmarks/batched.py --models --saved four_bars
    python benchmarks/batched.py --models --difficulty 2048
    python benchmarks/batched.py --models --sweep 100000 1000000
"""

import argparse
import functools
import os
import resource
import time
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import jax
import numpy as np
from _timing import machine, table

import ukjax as uk

MODELS: dict[str, tuple[Callable[[Any], uk.Problem], float, float]] = {
    "four_bars": (lambda x: uk.models.four_bars(1, angle=x), 0.8, 1.4),
    "parallelogram": (lambda x: uk.models.parallelogram(angle=x), 0.8, 1.2),
    "scara": (lambda x: uk.models.scara(m4=x), 0.2, 0.8),
    "pendulum": (lambda x: uk.models.pendulum(angle=x), 0.3, 2.0),
}
METHODS: dict[str, dict[str, Any]] = {
    "fixed": {"solver": dfx.Tsit5(), "dt0": 0.01, "stepsize_controller": dfx.ConstantStepSize()},
    "adaptive": {"solver": dfx.Tsit5(), "rtol": 1e-6, "atol": 1e-6},
}
KEPT: dict[str, tuple[str, ...]] = {
    "the end": ("q",),
    "states": ("q", "v"),
    "errors, energy and ranks": ("max_position_error", "energy_drift", "rank_min"),
    "forces": ("q", "constraint_force"),
    "multipliers": ("q", "multipliers"),
}


def processor_time(case: Callable[[], Any], rounds: int) -> float:
    """The least processor time of a call [s]; what it returns is waited for."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        jax.block_until_ready(case())
        times.append(time.process_time() - start)
    return min(times)


def batch(
    problem: Callable[[Any], uk.Problem], values: np.ndarray, t1: float, **options: Any
) -> tuple[functools.partial, int, float]:
    """A compiled batch, how many steps it takes, and how long compilation took [s]."""

    def run(x: Any) -> tuple[Any, Any]:
        trajectory = uk.simulate(problem(x), t1=t1, ts=2, **options)
        return trajectory.q[-1], trajectory.stats["num_steps"]

    start = time.process_time()
    compiled = jax.jit(jax.vmap(run)).lower(values).compile()
    took = time.process_time() - start
    steps = int(np.sum(compiled(values)[1]))
    uk.optimize_now()
    return functools.partial(compiled, values), steps, took


def by_size(
    names: list[str], methods: list[str], sizes: list[int], t1: float, stabilizer: Any, rounds: int
) -> None:
    rows = {}
    for name in names:
        problem, low, high = MODELS[name]
        for method in methods:
            for size in sizes:
                values = np.linspace(low, high, size)
                case, steps, compilation = batch(
                    problem, values, t1, stabilizer=stabilizer, **METHODS[method]
                )
                took = processor_time(case, rounds)
                label = f"{name}, {method}, {size}"
                rows[label] = [1e6 * took / steps, steps / took, size * t1 / took, compilation]
                print(label, *(f"{x:.3g}" for x in rows[label]), flush=True)
    print("\n" + table(["us / step", "steps / s", "simulated s / s", "compilation [s]"], rows) + "\n")


def by_saved(names: list[str], t1: float, rounds: int) -> None:
    """What is kept of each of 1,024 runs: its end, or something at 201 times."""
    rows = {}
    for name in names:
        problem, low, high = MODELS[name]
        values = np.linspace(low, high, 1024)
        for label, kept in KEPT.items():
            times = 2 if label == "the end" else 201

            def run(x: Any, problem=problem, times=times, kept=kept) -> Any:
                found = uk.simulate(problem(x), t1=t1, ts=times, **METHODS["adaptive"])
                return [getattr(found, what) for what in kept]

            compiled = jax.jit(jax.vmap(run)).lower(values).compile()
            took = processor_time(functools.partial(compiled, values), rounds)
            rows[f"{name}, {label}"] = [1e3 * took / values.size]
            print(name, label, f"{1e3 * took / values.size:.3g}", flush=True)
    print("\n" + table(["ms / run"], rows) + "\n")


def by_difficulty(size: int, rounds: int) -> None:
    """Pendulums whose rates differ 100-fold, in mixed order, beside the same in batches of nearly equal ones."""
    lengths = np.geomspace(1e-4, 1.0, size)
    mixed = np.random.default_rng(0).permutation(lengths)
    rows = {}
    for label, parts in (("8 batches of like runs", np.split(lengths, 8)), ("one batch, mixed", [mixed])):
        problem = lambda x: uk.models.pendulum(length=x, angle=1.0)
        case, _, _ = batch(problem, parts[0], 2.0, **METHODS["adaptive"])
        runs = case.func
        steps = sum(int(np.sum(runs(x)[1])) for x in parts)
        took = sum(processor_time(functools.partial(runs, x), rounds) for x in parts)
        rows[label] = [steps, took, 1e6 * took / steps]
        print(label, *(f"{x:.3g}" for x in rows[label]), flush=True)
    print("\n" + table(["steps of all", "time [s]", "us / step"], rows) + "\n")


def by_sweep(sizes: list[int]) -> None:
    """`uk.sweep` of pendulums, in chunks; memory is the most this process has had so far."""
    rows = {}
    for size in sizes:
        angles = {"angle": np.linspace(0.1, 2.5, size)}
        start, wall = time.process_time(), time.perf_counter()
        runs = uk.sweep(uk.models.pendulum, angles, t1=1.0, ts=2, progress=False, **METHODS["adaptive"])
        took = time.process_time() - start, time.perf_counter() - wall
        assert np.all(runs.result == 0)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        rows[f"{size} runs"] = [int(runs.steps.sum()), *took, memory]
        print(size, *(f"{x:.3g}" for x in rows[f"{size} runs"]), flush=True)
    print("\n" + table(["steps of all", "processor time [s]", "time [s]", "memory [GB]"], rows) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--models", nargs="*", choices=MODELS, default=["four_bars", "parallelogram", "scara"]
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64, 1024, 16384])
    parser.add_argument("--t1", type=float, default=2.0)
    parser.add_argument("--stabilizer", choices=["projection", "baumgarte"], default="projection")
    parser.add_argument("--saved", nargs="*", choices=MODELS, default=[], metavar="MODEL")
    parser.add_argument("--difficulty", type=int, default=0, metavar="RUNS")
    parser.add_argument("--sweep", type=int, nargs="*", default=[], metavar="RUNS")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    jax.config.update("jax_enable_x64", True)
    stabilizer = uk.Projection() if given.stabilizer == "projection" else uk.Baumgarte(20.0, 100.0)
    print(f"float64, one core, {given.stabilizer}. {machine()}.\n")
    if given.models:
        by_size(given.models, given.methods, given.batches, given.t1, stabilizer, given.rounds)
    if given.saved:
        by_saved(given.saved, given.t1, given.rounds)
    if given.difficulty:
        by_difficulty(given.difficulty, given.rounds)
    if given.sweep:
        by_sweep(given.sweep)


if __name__ == "__main__":
    main()
