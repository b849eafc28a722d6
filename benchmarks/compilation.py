"""What it takes to compile a batch of runs: every model by `jax.jit(jax.vmap(...))` of `simulate` with its defaults.

    python benchmarks/compilation.py [--models planar_4rrr ...] [--batches 1 64 1024] [--limit 300]

Wall time, each in processes of its own. What takes longer
than the limit is shown as a dash. Names with a number in brackets are models of that many links: "four_bars(10)".
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _timing import machine, table

import ukjax as uk


def problem_of(name: str) -> uk.Problem:
    """A model by its name, and by its size where that is given."""
    name, _, size = name.partition("(")
    return uk.models.get(name, **({"n": int(size[:-1])} if size else {}))


def measure(name: str, batch: int) -> list[float]:
    """Seconds of tracing and lowering, of compilation, and milliseconds of a member's run of half a second."""
    problem = problem_of(name)

    def run(q: Any) -> Any:
        span = {"t0": problem.t0, "t1": float(problem.t0) + 0.5, "ts": 2}
        return uk.simulate(problem.system, q, problem.v0, **span).q[-1]

    starts = jnp.tile(problem.q0, (batch, 1))
    times = [time.perf_counter()]
    lowered = jax.jit(jax.vmap(run)).lower(starts)
    times.append(time.perf_counter())
    compiled = lowered.compile()
    times.append(time.perf_counter())
    jax.block_until_ready(compiled(starts))
    uk.optimize_now()
    runs = []
    for _ in range(5):
        start = time.perf_counter()
        jax.block_until_ready(compiled(starts))
        runs.append(time.perf_counter() - start)
    return [*np.diff(times).tolist(), float(np.median(runs)) / batch * 1e3]


def apart(name: str, batch: int, limit: float) -> list[float]:
    """The same in a process of its own, with the time another one takes to read what it compiled before that of a run.

    NaN if one fails or takes longer than the limit.
    """
    command = [sys.executable, __file__, "--one", name, "--batches", str(batch)]
    with tempfile.TemporaryDirectory() as cache:
        # Without the second, JAX keeps only what took a second to compile.
        more = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        more["UKJAX_CACHE"] = cache
        options = {"check": True, "capture_output": True, "text": True, "timeout": limit}
        try:
            first, second = (
                json.loads(subprocess.run(command, env=os.environ | more, **options).stdout) for _ in range(2)
            )
        except subprocess.SubprocessError as reason:
            print(f"{name}, {batch}: {reason}", file=sys.stderr)
            return [float("nan")] * 4
    return [*first[:2], second[1], first[2]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=list(uk.models.MODELS))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64, 1024])
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one of them")
    parser.add_argument("--one", help="measure this model here, and print it as JSON")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if given.one:
        print(json.dumps(measure(given.one, *given.batches)))
        return
    print(f"float64. {machine()}.\n")
    columns = ["trace and lower [s]", "compile [s]", "the same from the cache [s]", "run of 0.5 s, each [ms]"]
    of = partial(apart, limit=given.limit)
    for batch in given.batches:
        rows = {name: of(name, batch) for name in given.models}
        print(f"**batch {batch}**\n\n{table(columns, rows)}\n", flush=True)


if __name__ == "__main__":
    main()
