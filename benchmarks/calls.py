"""What models take to build, and calls of `simulate` from Python: the first, that with JAX's cache filled, later ones.

    python benchmarks/calls.py [--models pendulum four_bars ...]
    python benchmarks/calls.py --build

Processor time, each model in processes of its own, after imports; the default solver and tolerances over one second of
motion. With `--build` all models are built and none is run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

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


def measure(model: str) -> list[float]:
    """Seconds of building, of the first call, of later ones, and of the compiled call of a compiled function."""
    problem, building = built(model)
    run = lambda: jax.block_until_ready(uk.simulate(problem, t1=1.0).q)
    compiled = jax.jit(lambda q, v: uk.simulate(problem.system, q, v, t1=1.0).q)
    within = lambda: jax.block_until_ready(compiled(problem.q0, problem.v0))
    start = time.process_time()
    run()
    found = [building, time.process_time() - start]
    for call in (run, within):
        call()
        times = []
        for _ in range(50):
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
        found.append(float(np.median(times)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    usual = ["pendulum", "four_bars", "parallelogram", "scara", "planar_4rrr", "arm_6r"]
    parser.add_argument("--models", nargs="+", default=usual)
    parser.add_argument("--build", action="store_true", help="build every model, and run none")
    parser.add_argument("--one", help="measure this model here, and print it as JSON")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if given.one:
        print(json.dumps([built(given.one)[1]] if given.build else measure(given.one)))
        return
    models = list(uk.models.MODELS) if given.build else given.models
    print(f"float64, one second of motion. {machine()}.\n")
    rows = {}
    for model in models:
        with tempfile.TemporaryDirectory() as cache:
            # Without the second, JAX keeps only what took a second to compile.
            more = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
            command = [sys.executable, __file__, "--one", model, *["--build"] * given.build]
            said = [
                subprocess.run(
                    command, env=os.environ | more, check=True, capture_output=True, text=True
                ).stdout
                for _ in range(1 if given.build else 2)
            ]
        (building, *first), *second = map(json.loads, said)
        rows[model] = [building, *first[:1], *(again for _, again, *_ in second), *first[1:]]
    columns = ["building [s]", "first [s]", "first, cache filled [s]", "later [s]", "in jit [s]"]
    print(table(columns[:1] if given.build else columns, rows))


if __name__ == "__main__":
    main()
