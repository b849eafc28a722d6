"""What models take to build, and calls of `simulate` from Python: the first, that with JAX's cache filled, later ones.

    python benchmarks/calls.py [--models pendulum four_bars ... | all]
    python benchmarks/calls.py --build

Processor time, each model in processes of its own, after imports; the default solver and tolerances over one second of
motion. Later calls are of the same problem, or of its system with another start each time, and what they take more than
the run in `jit` is said too: medians of 50 calls, or of what a second has room for, taken in turn, the least of 4 rounds.
Each model's row is printed when it is known. With `--build` all models are built and none is run.
"""

import argparse
import compileall
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from _timing import machine, table

import ukjax as uk


def built(model: str) -> tuple[uk.Problem, float]:
    """The model and the seconds it took to build."""
    build = uk.models.MODELS[model]
    jax.block_until_ready(jax.device_put(1.0))
    start = time.process_time()
    problem = build()
    jax.block_until_ready((problem.q0, problem.v0))
    return problem, time.process_time() - start


def measure(model: str, only_first: bool) -> list[float]:
    """Seconds of building and of the first call; milliseconds of the run in `jit`, and how many more a later call takes,
    and one from a new start."""
    problem, building = built(model)
    run = lambda: jax.block_until_ready(uk.simulate(problem, t1=1.0).q)
    compiled = jax.jit(lambda q, v: uk.simulate(problem.system, q, v, t1=1.0).q)
    within = lambda: jax.block_until_ready(compiled(problem.q0, problem.v0))
    starts = itertools.cycle([jax.block_until_ready(problem.v0 * (1 + 1e-9 * i)) for i in range(200)])
    anew = lambda: jax.block_until_ready(uk.simulate(problem.system, problem.q0, next(starts), t1=1.0).q)
    start = time.process_time()
    run()
    first = time.process_time() - start
    if only_first:
        return [building, first]
    calls = within, run, anew
    for call in (*calls, *calls):
        call()
    uk.optimize_now()
    rounds = [[_median(call) for call in calls] for _ in range(4)]
    bare, later, new = 1e3 * np.min(rounds, axis=0)
    return [building, first, bare, later - bare, new - bare]


def _median(call: Callable[[], object]) -> float:
    times = []
    while len(times) < 50 and sum(times) < 1.0:
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return float(np.median(times))


def _apart(cache: str, model: str, *options: str) -> list[float]:
    """What a process of its own measures, with what is compiled kept in a folder."""
    # Without the second, JAX keeps only what took a second to compile.
    more = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    more["UKJAX_CACHE"] = cache
    command = [sys.executable, __file__, "--one", model, *options]
    done = subprocess.run(command, env=os.environ | more, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    usual = ["pendulum", "four_bars", "parallelogram", "scara", "planar_4rrr", "arm_6r"]
    parser.add_argument("--models", nargs="+", default=usual)
    parser.add_argument("--build", action="store_true", help="build every model, and run none")
    parser.add_argument("--one", help="measure this model here, and print it as JSON")
    parser.add_argument("--first", action="store_true", help="with --one: the first call only")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if given.one:
        print(json.dumps([built(given.one)[1]] if given.build else measure(given.one, given.first)))
        return
    # Byte code, as pip makes it of an installed package.
    compileall.compile_dir(Path(uk.__file__).parent, quiet=1)
    models = list(uk.models.MODELS) if given.build or given.models == ["all"] else given.models
    print(f"float64, one second of motion. {machine()}.\n")
    more = "a later call more [ms]", "from a new start more [ms]"
    columns = ["building [s]", "first [s]", "first, cache filled [s]", "in jit [ms]", *more]
    for model in models:
        with tempfile.TemporaryDirectory() as cache:
            if given.build:
                row = _apart(cache, model, "--build")
            else:
                building, first, *later = _apart(cache, model)
                row = [building, first, _apart(cache, model, "--first")[1], *later]
        lines = table(columns[: len(row)], {model: row}).splitlines()
        print("\n".join(lines if model == models[0] else lines[2:]), flush=True)


if __name__ == "__main__":
    main()
