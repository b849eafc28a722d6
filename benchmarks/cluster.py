"""Sweeps on workers: what is left after workers and drivers were killed, the overhead, and the memory.

    python benchmarks/cluster.py --kills dask ray pool loky
    python benchmarks/cluster.py --overhead pool dask
    python benchmarks/cluster.py --many pool dask

`--kills` makes a sweep of parallelograms while the oldest worker is killed (SIGKILL) every few seconds, and the driver
twice, which is then started again; the files of the store are compared with those of one process that nobody disturbed.
`--overhead` times sweeps on warm workers beside those of one process on as many cores, in turn. `--many` makes a million
cheap runs and tells the most memory that the driver and a worker had. `--quick` does each with small numbers.
"""

import argparse
import functools
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _cluster_parts import (
    cluster,
    descendants,
    digests,
    done,
    end,
    most_memory,
    processor_time,
    workers_below,
)
from _timing import machine, table

import ukjax as uk
from ukjax._sweep._cluster._ray import RayExecutor

KINDS = ("dask", "ray", "pool", "loky")
DRIVERS_KILLED = 2
MANY, FEWER, QUICK = 100_000, 10_000, 2_000


def executor_of(kind: str, workers: int, address: str) -> Any:
    """What `uk.sweep` takes."""
    if kind == "loky":
        import loky

        return functools.partial(loky.get_reusable_executor, workers)
    return address or workers


def parallelograms(runs: int, chunk: int, store: Path, executor: Any) -> None:
    params = {"angle": np.linspace(0.8, 1.2, runs)}
    options = {
        "t1": 2.0,
        "ts": 201,
        "chunk": chunk,
        "store": store,
        "executor": executor,
        "progress": False,
    }
    uk.sweep(uk.models.parallelogram, params, **options)


def drive(given: list[str]) -> None:
    """What a driver does: `given` is the kind, workers, address, store, runs and chunk."""
    kind, workers, address, store, runs, chunk = given
    executor = None if kind == "none" else executor_of(kind, int(workers), address)
    parallelograms(int(runs), int(chunk), Path(store), executor)


def driver(*given: Any) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, __file__, "--driver", *map(str, given)])


def undisturbed(folder: Path, runs: int, chunk: int) -> Path:
    store = folder / f"whole{runs}.zarr"
    if not store.exists():
        start = time.perf_counter()
        if driver("none", 0, "", store, runs, chunk).wait():
            raise SystemExit("the sweep in one process failed")
        print(f"{runs} runs in one process: {time.perf_counter() - start:.0f} s", flush=True)
    return store


class Killer:
    """Kills workers and drivers of one sweep, and counts.

    - `every`: how often a worker is killed [s]; but first, after each kill, a chunk is made.
    - `most`: how many are killed; a third of them with each driver.
    """

    def __init__(self, kind: str, workers: int, every: float, most: int, store: Path):
        self.kind, self.workers, self.every, self.most, self.store = kind, workers, every, most, store
        self.killed = self.drivers = self.again = 0
        self._before, self._last, self._made = {}, time.monotonic(), 0

    def look(self, top: int, chunks: int) -> bool:
        """Kills a worker below a process if it is time; returns whether to kill the driver too."""
        now = done(self.store)
        if self.killed == self.most or time.monotonic() - self._last < self.every or len(now) <= self._made:
            return False
        found = workers_below(top, self.kind)
        if len(found) < (self.workers if self.kind in ("pool", "loky") else 1):
            return False
        os.kill(found[0], signal.SIGKILL)
        self.killed, self._last, self._made = self.killed + 1, time.monotonic(), len(now)
        share = (self.drivers + 1) / (DRIVERS_KILLED + 1)
        return self.drivers < DRIVERS_KILLED and self.killed >= self.most * share and len(now) < chunks

    def check(self) -> None:
        """Counts chunks that were there when a driver was killed and were written again."""
        now = done(self.store)
        self.again += sum(now.get(name) != at for name, at in self._before.items())
        self._before = now


def disturbed(
    kind: str, runs: int, chunk: int, workers: int, every: float, most: int, folder: Path
) -> list[float]:
    """A sweep while workers and drivers are killed: kills, of drivers, chunks made twice, time [s], equal files."""
    whole, store = undisturbed(folder, runs, chunk), folder / f"{kind}.zarr"
    killer, start = Killer(kind, workers, every, most, store), time.perf_counter()
    with cluster(kind, workers) as (address, top):
        given = (kind, workers, address, store, runs, chunk)
        process = driver(*given)
        while process.poll() is None:
            time.sleep(0.05)
            if killer.look(top or process.pid, -(-runs // chunk)):
                process.kill()
                process.wait()
                killer.drivers += 1
                killer.check()
                process = driver(*given)
        took = time.perf_counter() - start
        killer.check()
    if process.returncode:
        raise SystemExit(f"{kind}: the driver ended with {process.returncode}")
    here, there = digests(store), digests(whole)
    differing = sum(here.get(name) != there.get(name) for name in here.keys() | there.keys())
    shutil.rmtree(store)
    return [runs, killer.killed, killer.drivers, took, len(there), differing, killer.again]


def kills(kinds: list[str], quick: bool, workers: int, every: float) -> None:
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            runs = QUICK if quick else MANY if kind == "dask" else FEWER
            chunk = 500 if runs == MANY else 50
            rows[kind] = disturbed(kind, runs, chunk, workers, every, 3 if quick else 12, Path(folder))
            print(kind, rows[kind], flush=True)
    columns = ["runs", "workers killed", "drivers killed", "time [s]", "files", "files that differ"]
    print("\n" + table([*columns, "chunks made twice"], rows) + "\n")


def _timed(call: Any) -> tuple[float, float]:
    start, before = time.perf_counter(), processor_time(os.getpid())
    call()
    return time.perf_counter() - start, processor_time(os.getpid()) - before


def overhead(kinds: list[str], quick: bool, rounds: int) -> None:
    """Sweeps by one process, with a device for each core, and by as many warm workers, in turn; chunks of a worker are
    as long as those of a core.
    """
    cores, runs, chunk = len(os.sched_getaffinity(0)), 2_000 if quick else 24_000, 500 if quick else 3_000
    jax.config.update("jax_num_cpu_devices", cores)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ("one process", *kinds)}
    with tempfile.TemporaryDirectory() as folder:
        executors: dict[str, Any] = {"one process": None}
        for kind in kinds:
            executors[kind] = _warm(kind, cores)
        for turn in range(-1, rounds):  # the first compiles
            for name, executor in executors.items():
                store = Path(folder, f"{name}{turn}.zarr")
                size = chunk if executor is not None else chunk * cores
                took = _timed(functools.partial(parallelograms, runs, size, store, executor))
                print(name, *(f"{x:.2f}" for x in took), flush=True)
                if turn >= 0:
                    found[name].append(took)
                shutil.rmtree(store)
        for executor in list(executors.values())[1:]:
            getattr(executor, "shutdown", getattr(executor, "close", None))()
    plain = np.array(found["one process"])
    rows = {}
    for name, times in found.items():
        ratios = np.median(np.array(times) / plain, 0)
        rows[name] = [*np.median(times, 0), *ratios]
    print(f"\n{runs} runs in {runs // chunk} chunks, {rounds} rounds, medians\n")
    print(table(["time [s]", "processor time [s]", "time, ratio", "processor time, ratio"], rows) + "\n")


def _warm(kind: str, workers: int) -> Any:
    if kind == "dask":
        from distributed import Client, LocalCluster

        settings = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
        return Client(LocalCluster(**settings))
    if kind == "ray":
        return RayExecutor("local")
    if kind == "loky":
        import loky

        return loky.get_reusable_executor(workers)
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def cheap(x):
    return {"y": jnp.cos(x), "z": jnp.sin(x)}


def many(kind: str, runs: int, workers: int) -> None:
    """A million runs that take no time, in a process of its own; prints the most memory of the driver and a worker."""
    executor = _warm(kind, workers)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        store = Path(folder, "runs.zarr")
        uk.sweep(
            cheap, {"x": np.linspace(0, 1, runs)}, store=store, executor=executor, progress=False, chunk=4_000
        )
        took = time.perf_counter() - start
        below = max(map(most_memory, workers_below(os.getpid(), kind)), default=np.nan)
        print(json.dumps([took, most_memory(os.getpid()), below]), flush=True)
    for x in descendants(os.getpid()):  # they hold what this process prints to
        end(x)
    os._exit(0)


def memory(kinds: list[str], quick: bool) -> None:
    rows = {}
    for kind in kinds:
        for runs in (10_000, 40_000) if quick else (100_000, 1_000_000):
            command = [sys.executable, __file__, "--one", kind, str(runs)]
            out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
            rows[f"{kind}, {runs} runs"] = json.loads(out.splitlines()[-1])
            print(kind, runs, rows[f"{kind}, {runs} runs"], flush=True)
    print("\n" + table(["time [s]", "driver [MB]", "a worker [MB]"], rows) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("kills", "overhead", "many"):
        parser.add_argument(f"--{name}", nargs="*", choices=KINDS, default=[], metavar="EXECUTOR")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workers", type=int, default=4, help="that are killed")
    parser.add_argument("--every", type=float, default=5.0, help="how often [s]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--driver", nargs=6, help=argparse.SUPPRESS)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if given.driver:
        return drive(given.driver)
    if given.one:
        return many(given.one[0], int(given.one[1]), 2)
    if given.kills:
        kills(given.kills, given.quick, given.workers, given.every)
    if given.overhead:
        overhead(given.overhead, given.quick, given.rounds)
    if given.many:
        memory(given.many, given.quick)
    print(f"float64. {machine()}.")


if __name__ == "__main__":
    main()
