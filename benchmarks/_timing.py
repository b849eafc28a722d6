"""Interleaved rounds of timings, their medians, and the machine they were taken on.

What is imported with this keeps no compiled programs, unless a script says where: a first call is then a first call.
"""

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping

import jax
import numpy as np

import ukjax as uk

os.environ.setdefault("UKJAX_CACHE", "0")


def machine() -> str:
    """The processor, the number of cores and the versions that matter."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as lines:
            name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    device = jax.devices()[0]
    where = "" if device.platform == "cpu" else f", {device.device_kind}"
    return f"{name}, {os.cpu_count()} cores{where}; Python {platform.python_version()}, JAX {jax.__version__}"


@contextlib.contextmanager
def pinned(cores: int) -> Iterator[None]:
    """Every thread of this process on the first cores it may use, where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)

    def put(where: set[int]) -> None:
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(thread), where)

    put(set(sorted(allowed)[:cores]))
    try:
        yield
    finally:
        put(allowed)


def interleaved(
    cases: Mapping[str, Callable[[], object]],
    rounds: int = 7,
    least: float = 0.02,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The median time of one call of each case [s], all cases in turn in every round.

    **Arguments:**

    - `cases`: functions of nothing; what they return is waited for. Each is called once before, to compile.
    - `rounds`: how often to go round.
    - `least`: how long one measurement should take at least [s]; short calls are repeated.
    - `clock`: `time.process_time` counts the time of all threads of this process, and no other's.
    """
    repeats = {}
    for name, case in cases.items():
        jax.block_until_ready(case())
        uk.optimize_now()
        start = clock()
        jax.block_until_ready(case())
        repeats[name] = max(1, int(least / max(clock() - start, 1e-7)))
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            start = clock()
            for _ in range(repeats[name]):
                out = case()
            jax.block_until_ready(out)
            found[name].append((clock() - start) / repeats[name])
    return {name: float(np.median(times)) for name, times in found.items()}


def table(columns: list[str], rows: Mapping[str, list[float]]) -> str:
    """A Markdown table of numbers, three digits each; NaN is shown as a dash."""
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, values in rows.items():
        cells = ("-" if np.isnan(x) else f"{x:.3g}" for x in values)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
