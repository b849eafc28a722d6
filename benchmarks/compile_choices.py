"""What a first run costs by how a mechanism is written: coordinates, order of joints, where the loop is cut, tables.

python benchmarks/compile_choices.py

Processor time from the system to the end of its first run, each case in a process of its own with nothing kept on disk,
and the operations of its scalar code.
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from _timing import machine

import ukjax as uk
import ukjax.mechanisms as um


def strandbeest(change: Callable[[um.AbsoluteSystem], uk.AbstractSystem]) -> uk.Problem:
    """Jansen's leg, seven bodies and ten pins, written another way."""
    system = change(uk.models.strandbeest().system)
    return um.problem(system, rates={"crank pin": 2.0}, t1=1.0)


def shuffled(system: um.AbsoluteSystem) -> uk.AbstractSystem:
    rng = np.random.default_rng(0)
    bodies, joints = ([x[i] for i in rng.permutation(len(x))] for x in (system.bodies, system.joints))
    return um.assemble(bodies, joints, system.loads)


def tree(*cut: str) -> Callable[[um.AbsoluteSystem], uk.AbstractSystem]:
    """In joint coordinates, with these pins as loops."""

    def change(system: um.AbsoluteSystem) -> uk.AbstractSystem:
        joints = [x for x in system.joints if x.name not in cut]
        return um.tree(system.bodies, joints, system.loads, loops=[x for x in system.joints if x.name in cut])

    return change


def tabulated(entries: int, by: str) -> uk.Problem:
    """A pendulum in a wind given by a table of that many entries."""
    times = jnp.linspace(0.0, 1.0, entries)
    table = uk.Tabulated(times, jnp.sin(9 * times))
    pendulum = uk.models.pendulum()
    wind = table if by == "uk.Tabulated" else lambda t: jnp.interp(t, times, jnp.sin(9 * times))
    force = lambda t, q, v: pendulum.system.force(t, q, v) + jnp.stack([wind(t), 0.0 * wind(t)])
    system = uk.System(jnp.eye(2), force, pendulum.system.constraints)
    return uk.Problem(system, pendulum.q0, pendulum.v0, 0.0, 1.0)


CASES: dict[str, Callable[[], uk.Problem]] = {
    "strandbeest, absolute": lambda: strandbeest(lambda x: x),
    "strandbeest, absolute, bodies and joints in another order": lambda: strandbeest(shuffled),
    "strandbeest, tree, loops cut at C, D and F": lambda: strandbeest(tree("D", "C", "F")),
    "strandbeest, tree, loops cut near the ground": lambda: strandbeest(tree("B shoulder", "B side", "F")),
    "pendulum, jnp.interp of 50 entries": lambda: tabulated(50, "jnp.interp"),
    "pendulum, uk.Tabulated of 50 entries": lambda: tabulated(50, "uk.Tabulated"),
}


def measure(name: str) -> str:
    jax.config.update("jax_enable_x64", True)
    start = time.process_time()
    run = uk.simulate(CASES[name](), throw=True)
    taken = time.process_time() - start
    found = re.search(r"scalar code of (\d+)", run.computed_by)
    return f"| {name} | {found.group(1) if found else run.computed_by} | {taken:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--one", choices=list(CASES), help="only this case, in this process")
    arguments = parser.parse_args()
    if arguments.one:
        print(measure(arguments.one))
        return
    print(f"{machine()}\n\n| | operations | processor time to the first run [s] |\n|---|---|---|")
    for name in CASES:
        done = subprocess.run(
            [sys.executable, __file__, "--one", name], capture_output=True, text=True, check=False
        )
        print(done.stdout.strip() or done.stderr.strip().splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
