"""Kernels of whole runs for GPUs, without one: registers, spills, instructions of a step, and what they allow.

    python benchmarks/gpu_static.py [pendulum robot.xml ...] [--cards sm_90] [--output gpu_static.md]

Nothing here runs on a GPU. `ptxas` and `nvdisasm` must be there: pip install nvidia-cuda-nvcc-cu12 nvidia-cuda-nvdisasm.
Steps are those of Tsit5: fixed ones under Baumgarte stabilization, and adaptive ones that are projected. Those of a step
are the instructions of the loop of the machine code with all that it calls, loops within it passed once each.

The estimate is the least of five bounds for a card with all its threads at work: one instruction a cycle and scheduler;
the arithmetic units; level-1 caches, which a step's local and global memory (spilled registers, stages, what functions
leave for each other) passes through at 128 bytes a cycle; the level-2 cache, for the part of that which the level-1 cache
has no room for; and the memory of the card, for what that has none for. Latencies, divergence and clocks under load
are left out, so that it is an upper bound; "limit" is that of the arithmetic units alone.
"""

import argparse
import collections
import functools
import itertools
import time
from pathlib import Path
from typing import Any, NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
from _sass import PIPES, Machine, assembled
from _timing import machine
from jax.interpreters import mlir

import ukjax as uk
from ukjax._compiler._structured import _primitive
from ukjax._compiler._structured._kernel import Kernel
from ukjax._compiler._structured._program import Program

MODELS = "pendulum", "scara", "four_bars", "parallelogram", "andrews", "planar_3rrr", "bricard"
WAYS: dict[str, dict[str, Any]] = {
    "fixed": {
        "stepsize_controller": dfx.ConstantStepSize(),
        "dt0": 1e-4,
        "stabilizer": uk.Baumgarte.squared(20.0, 20.0),
    },
    "adaptive": {},
}
COLUMNS = [
    "LLVM [s]", "registers", "stack [B]", "spills [B]", "instructions", "arithmetic", "memory [B]", "estimate [steps/s]",
    "limit [steps/s]", "ptxas [s]",
]  # fmt: skip


class Card(NamedTuple):
    """What a card has: multiprocessors, their clock [1/s], and of each its units of a type, level-1 cache [B], and share
    of the level-2 cache [B, B/cycle] and of the memory [B/cycle]."""

    name: str
    processors: int
    clock: float
    units: dict[str, int]
    level1: int
    level2: float
    level2_rate: float
    memory_rate: float


# NVIDIA's white papers on the A100 (2020, 40 GB) and H100 (2022, SXM); level 2 gives 5,120 bytes a cycle to all.
CARDS = {
    "sm_80": Card(
        "A100",
        108,
        1.41e9,
        {"fp64": 32, "fp32": 64},
        192 * 1024,
        40e6 / 108,
        5120 / 108,
        1.555e12 / 1.41e9 / 108,
    ),
    "sm_90": Card(
        "H100",
        132,
        1.755e9,
        {"fp64": 64, "fp32": 128},
        256 * 1024,
        50e6 / 132,
        5120 / 132,
        3.35e12 / 1.755e9 / 132,
    ),
    "sm_100": None,  # of which too little is published
}
REGISTERS, SCHEDULERS, WARP, MOST_WARPS = 65_536, 4, 32, 32


def problem_of(name: str) -> uk.Problem:
    """A model by its name, or the robot of a file."""
    return uk.load(name).problem if Path(name).exists() else uk.models.get(name)


def kernel_of(problem: uk.Problem, **options: Any) -> Kernel:
    """That of the steps of runs: the first of those that a batch is lowered to; others tell of saved states."""
    kernels = list[Kernel]()
    run = lambda q, v: (
        uk.simulate(
            problem.system, q, v, t0=problem.t0, t1=problem.t0 + 1e-3, ts=2, solver=dfx.Tsit5(), **options
        ).q
    )

    def noted(program: Program, operands: Any, count: int) -> Any:
        kernels.append(program.kernel(tuple(x.ndim == 1 for x in operands)))
        return [jnp.zeros((n, count), t) for t, n in program.results]

    batch = [jnp.stack([x, x]) for x in (problem.q0, problem.v0)]
    usual = _primitive._by_foreign_function
    lowering = functools.partial(_primitive._call, noted)
    _primitive._by_foreign_function = mlir.lower_fun(lowering, multiple_results=True)
    try:
        jax.jit(jax.vmap(run)).lower(*batch)
    finally:
        _primitive._by_foreign_function = usual
        jax.clear_caches()
    return kernels[0]


def of_a_step(kernel: Machine) -> collections.Counter:
    """Instructions of a step by pipe: of its loop with all that it calls, and of the loops within it once each."""
    size = lambda x: sum(x.own.values()) + sum(map(size, x.inner))
    run = max(kernel.loops.inner, key=size)
    while run.inner and size(max(run.inner, key=size)) > 0.5 * size(run):  # that of members is around it
        run = max(run.inner, key=size)
    total: collections.Counter = collections.Counter()
    loops = [run]
    while loops:
        loop = loops.pop()
        loops += loop.inner
        for name, n in loop.own.items():
            total[PIPES.get(name, "other")] += n
            total["all"] += n
    return total


def bounds(kernel: Machine, step: collections.Counter, card: Card, number: int) -> tuple[float, float]:
    """Steps a second: by all of it, and by arithmetic alone."""
    warps = min(MOST_WARPS, REGISTERS // (WARP * -(-kernel.registers // 8) * 8))
    # In bytes, while each scheduler makes a step of a warp.
    moved = (step["local"] + step["global"]) * number * WARP * SCHEDULERS
    in_use = warps * WARP * (kernel.stack + step["global"] * number)
    missed = lambda size: max(0.0, 1 - size / in_use) if in_use else 0.0
    arithmetic = max(step[x] * WARP * SCHEDULERS / card.units[x] for x in ("fp64", "fp32"))
    cached = moved / 128, moved * missed(card.level1) / card.level2_rate
    cycles = max(step["all"], arithmetic, *cached, moved * missed(card.level2) / card.memory_rate)
    rate = card.processors * SCHEDULERS * WARP * card.clock
    return rate / cycles, rate / arithmetic


def written(problem: uk.Problem, way: str, x64: bool) -> tuple[str, float]:
    """The kernel in PTX, and the processor time LLVM took [s]."""
    with jax.enable_x64(x64):
        kernel = kernel_of(problem, **WAYS[way])
        start = time.process_time()
        return kernel.ptx, time.process_time() - start


def row(ptx: str, card: str, number: int) -> list[str]:
    """Of one kernel on one card."""
    start = time.perf_counter()
    kernel = assembled(ptx, card)
    took, step, known = time.perf_counter() - start, of_a_step(kernel), CARDS[card]
    rates = [f"{x:.1e}" for x in bounds(kernel, step, known, number)] if known else ["", ""]
    counts = [
        f"{x:,}"
        for x in (step["all"], step["fp64"] + step["fp32"], (step["local"] + step["global"]) * number)
    ]
    spills = "/".join(map(str, kernel.spills))
    return [str(kernel.registers), str(kernel.stack), spills, *counts, *rates, f"{took:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--cards", nargs="+", default=list(CARDS), choices=CARDS)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    rows: dict[str, list[str]] = {card: [] for card in given.cards}
    for name in given.models:
        for x64, way in itertools.product((True, False), WAYS):
            with jax.enable_x64(x64):
                problem = problem_of(name)
            ptx, took = written(problem, way, x64)
            for card, lines in rows.items():
                cells = row(ptx, card, 8 if x64 else 4)
                lines.append(
                    " | ".join(
                        ["", Path(name).stem, "float64" if x64 else "float32", way, f"{took:.1f}", *cells, ""]
                    )
                )
            print(*(lines[-1] for lines in rows.values()), sep="\n", flush=True)
    head = ["model", "type", "steps", *COLUMNS]
    text = [machine()]
    for card, known in ((card, CARDS[card]) for card in given.cards):
        text.append(f"### {card}{f' ({known.name})' if known else ''}")
        text.append("\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows[card]]))
    if given.output:
        given.output.write_text("\n\n".join(text).replace("\n |", "\n|") + "\n")


if __name__ == "__main__":
    main()
