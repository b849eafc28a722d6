"""What a call of `simulate` from Python takes: the first, the first with JAX's cache filled, a later one, one in a jit.

    python benchmarks/calls.py [--models pendulum four_bars ...]

Processor time, each model in processes of its own; the default solver and tolerances over one second of motion.
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


def measure(model: str) -> list[float]:
    """Seconds of the first call, of later ones, and of the compiled call of a compiled function."""
    problem = uk.models.get(model)
    run = lambda: jax.block_until_ready(uk.simulate(problem, t1=1.0).q)
    compiled = jax.jit(lambda q, v: uk.simulate(problem.system, q, v, t1=1.0).q)
    within = lambda: jax.block_until_ready(compiled(problem.q0, problem.v0))
    start = time.process_time()
    run()
    found = [time.process_time() - start]
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
    parser.add_argument("--one", help="measure this model here, and print it as JSON")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if given.one:
        print(json.dumps(measure(given.one)))
        return
    print(f"float64, one second of motion. {machine()}.\n")
    rows = {}
    for model in given.models:
        with tempfile.TemporaryDirectory() as cache:
            # Without the second, JAX keeps only what took a second to compile.
            more = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
            command = [sys.executable, __file__, "--one", model]
            said = [
                subprocess.run(
                    command, env=os.environ | more, check=True, capture_output=True, text=True
                ).stdout
                for _ in range(2)
            ]
        (first, later, compiled), (again, *_) = map(json.loads, said)
        rows[model] = [first, again, later, compiled]
    print(table(["first [s]", "first, cache filled [s]", "later [s]", "in jit [s]"], rows))


if __name__ == "__main__":
    main()
