"""Processor time of imports: what the first use of `uk.simulate` loads, and what other names load after it.

Each figure is the median of fresh processes. Byte code is there, as pip writes it when it installs, unless a column says
otherwise: uv writes none by default, and an editable installation has none of ukjax before its first use.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from _timing import machine

# In the order in which they are based on each other, so that each counts only what it adds.
PARTS = ["numpy", "jax", "jaxtyping", "equinox", "lineax", "optimistix", "diffrax"]
NAMES = ["mechanisms", "models", "load", "analysis", "sweep", "tune", "bench"]
# What a process loads, step by step, and the processor time of each step [s].
CHILD = """
import json, sys, time
for step in sys.argv[1:]:
    start, loaded = time.process_time(), len(sys.modules)
    exec(step)
    print(json.dumps([time.process_time() - start, len(sys.modules) - loaded]))
"""


def measure(steps: list[str], rounds: int, byte_code: bool = True) -> list[list[float]]:
    """Of each step its processor time [s] and the number of modules that it loads."""
    found = []
    for _ in range(rounds + 1):
        with tempfile.TemporaryDirectory() as empty:
            environment = {
                k: x for k, x in os.environ.items() if not k.startswith("PYTHON") or k == "PYTHONPATH"
            }
            if not byte_code:
                environment |= {"PYTHONPYCACHEPREFIX": empty}
            command = [sys.executable, "-c", CHILD, *steps]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.append([json.loads(line) for line in done.stdout.splitlines()])
    found = found[1:]  # the first writes byte code, and brings files into memory
    return [[statistics.median(x) for x in zip(*step, strict=True)] for step in zip(*found, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(f"Processor time, median of {rounds} processes. {machine()}\n")
    steps = [f"import {name}" for name in PARTS] + ["import ukjax as uk", "uk.simulate"]
    quick, slow = (measure(steps, rounds, byte_code) for byte_code in (True, False))
    print("| first use of `simulate` | modules | with byte code [s] | without [s] |\n|---|---|---|---|")
    for step, (seconds, modules), (compiled, _) in zip(steps, quick, slow, strict=True):
        print(f"| `{step}` | {modules:.0f} | {seconds:.3f} | {compiled:.3f} |")
    totals = (sum(seconds for seconds, _ in x) for x in (quick, slow))
    print(f"| all | {sum(x for _, x in quick):.0f} | {' | '.join(f'{x:.2f}' for x in totals)} |")
    print("\n| after it, first use of | modules | with byte code [s] |\n|---|---|---|")
    for name in NAMES:
        _, (seconds, modules) = measure(["import ukjax as uk; uk.simulate", f"uk.{name}"], rounds)
        print(f"| `uk.{name}` | {modules:.0f} | {seconds:.3f} |")


if __name__ == "__main__":
    main()
