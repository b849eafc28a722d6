"""Other programs and ukjax on the same mechanisms, in turn in one process, pinned: time against accuracy.

python benchmarks/peers.py [--cases four_bars_1 ...] [--programs ukjax Pinocchio ...] [--batches 1 64 1024] [--quick]
    [--settings loop "RK4 h" ...] [--fresh] [--output peers]

Errors are those of the end against closed forms or published numbers, so that a wrong branch shows. Programs that are not
installed are left out, and said. Writes peers.json, peers.md and peers.png.
"""

import _one_thread  # noqa: F401

# isort: split

import argparse
import contextlib
import dataclasses
import importlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from _peer_cases import CASES, Batch, Case, Single
from _peer_report import Report, write
from _timing import machine, pinned

import ukjax as uk

PROGRAMS = {  # what must be there, the module here, and its functions of singles and batches
    "ukjax": ("ukjax", "_peer_ukjax", "singles", "batches"),
    "Pinocchio": ("pinocchio", "_peer_pinocchio", "singles", "batches"),
    "Pinocchio C++": ("pinocchio", "_peer_pinocchio", "cpp_singles", "cpp_batches"),
    "Drake": ("pydrake.multibody.plant", "_peer_drake", "singles", ""),
    "MuJoCo": ("mujoco", "_peer_mujoco", "singles", "batches"),
    "MJX": ("mujoco.mjx", "_peer_mujoco", "mjx_singles", "mjx_batches"),
    "MuJoCo Warp": ("mujoco_warp", "_peer_mujoco", "warp_singles", "warp_batches"),
    "SciPy": ("scipy", "_peer_numpy", "scipy_singles", ""),
    "NumPy": ("numpy", "_peer_numpy", "numpy_singles", "numpy_batches"),
}


def available(name: str) -> bool:
    """Whether a program can be imported, quietly."""
    try:
        with contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
            importlib.import_module(PROGRAMS[name][0])
    except Exception as reason:  # a broken installation is a missing one
        print(f"{name} is left out: {reason}", file=sys.stderr)
        return False
    return True


@dataclasses.dataclass
class Measured:
    """Medians of one call: wall time and processor time [s]; `cold` is that of the first with all it prepares."""

    run: Callable[[], Any]
    cold: float
    repeats: int
    wall: list[float]
    processor: list[float]


def first(make: Callable[[], Callable[[], Any]]) -> tuple[Measured, Any]:
    """Prepared, compiled and called once; and what it returned."""
    start = time.perf_counter()
    run = make()
    state = jax.block_until_ready(run())
    cold = time.perf_counter() - start
    uk.optimize_now()
    start = time.perf_counter()
    jax.block_until_ready(run())
    repeats = max(1, int(0.02 / max(time.perf_counter() - start, 1e-7)))
    return Measured(run, cold, repeats, [], []), state


def rounds(measured: list[Measured], count: int) -> None:
    """All in turn, `count` times."""
    for _ in range(count):
        for x in measured:
            wall, processor, out = time.perf_counter(), time.process_time(), None
            for _ in range(x.repeats):
                out = x.run()
            jax.block_until_ready(out)
            x.wall.append((time.perf_counter() - wall) / x.repeats)
            x.processor.append((time.process_time() - processor) / x.repeats)


def prepared(ways: list[Any], settings: list[str], about: str) -> list[tuple[Any, Measured, Any]]:
    """Each chosen way, called once, and what it returned; one that fails is named and left out."""
    found = []
    for way in ways:
        who = f"{about}: {way.program}, {way.setting}"
        if settings and not any(word in way.setting for word in settings):
            continue
        try:
            found.append((way, *first(way.make)))
            print(f"  {who}: first run {found[-1][1].cold:.3g} s", file=sys.stderr, flush=True)
        except Exception as reason:  # of another program's or one's own: the others are worth their times
            print(f"  {who} is left out: {reason}", file=sys.stderr, flush=True)
    return found


def ways_of(programs: list[str], which: int, *args: Any) -> list[Any]:
    """What the programs' modules offer, `which` of them: 2 for singles, 3 for batches."""
    able = programs if args[0].mechanism is not None else set(programs) & {"ukjax", "SciPy", "NumPy"}
    chosen = [PROGRAMS[program] for program in programs if program in able and PROGRAMS[program][which]]
    return [way for x in chosen for way in getattr(importlib.import_module(x[1]), x[which])(*args)]


def run_singles(name: str, case: Case, given: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for each way to run the case once."""
    ways: list[tuple[Single, Measured, Any]] = prepared(
        ways_of(given.programs, 2, case, given.quick), given.settings, name
    )
    rounds([x for _, x, _ in ways], given.rounds)
    return [
        {
            "case": name, "program": way.program, "setting": way.setting, "cold": x.cold,
            "error": way.error(state), "drift": way.drift(state),
            "wall": float(np.median(x.wall)), "processor": float(np.median(x.processor)),
        }
        for way, x, state in ways
    ]  # fmt: skip


def run_batches(name: str, case: Case, size: int, given: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for each way to run many members."""
    ways: list[Batch] = ways_of(given.programs, 3, case, size)
    rows = []
    for cores in sorted({way.cores for way in ways}):
        with pinned(cores):
            chosen = prepared(
                [x for x in ways if x.cores == cores], given.settings, f"{name}, {size}, {cores}"
            )
            rounds([x for _, x, _ in chosen], given.rounds)
        for way, x, _ in chosen:
            wall, processor = (size * way.steps / float(np.median(y)) for y in (x.wall, x.processor))
            rows.append(
                {
                    "case": name, "batch": size, "cores": cores, "program": way.program,
                    "setting": way.setting, "h": way.h, "steps": way.steps, "cold": x.cold,
                    "steps_per_second": wall, "steps_per_processor_second": processor,
                    "simulated_per_core": way.h * wall / cores,
                    "simulated_per_processor_second": way.h * processor,
                }
            )  # fmt: skip
    return rows


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    usual = ["four_bars_1", "four_bars_10", "parallelogram", "andrews", "scara"]
    parser.add_argument("--cases", nargs="*", default=usual, choices=list(CASES))
    parser.add_argument("--batch-cases", nargs="*", default=["four_bars_1"], choices=list(CASES))
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 64, 1024])
    parser.add_argument(
        "--settings", nargs="*", default=[], help="only settings with one of these words in them"
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each is timed, at least 5")
    parser.add_argument("--quick", action="store_true", help="fewer settings")
    parser.add_argument("--fresh", action="store_true", help="compile although a cache may hold the program")
    parser.add_argument("--output", type=Path, default=Path("peers"))
    return parser.parse_args()


def main() -> None:
    given = arguments()
    jax.config.update("jax_enable_x64", True)
    if (os.cpu_count() or 1) > 1 and jax.config.values["jax_platforms"] in (None, "cpu"):
        jax.config.update("jax_num_cpu_devices", 2)
    if given.fresh:
        jax.config.update("jax_enable_compilation_cache", False)
    given.programs = [name for name in given.programs if available(name)]
    given.rounds = max(5, given.rounds)
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    report = Report(f"{machine()}{load}", given.rounds, given.fresh)
    jax.devices()  # its threads start with all cores
    for name in given.cases:
        with pinned(1):
            report.singles += run_singles(name, CASES[name](), given)
        write(report, given.output)
    for name in given.batch_cases:
        for size in given.batches:
            report.batches += run_batches(name, CASES[name](), size, given)
            write(report, given.output)
    print((given.output / "peers.md").read_text())


if __name__ == "__main__":
    main()
