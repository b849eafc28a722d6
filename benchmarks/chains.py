"""How trees grow: spatial chains of hinges in the coordinates of their joints, free and held at the end by a ball joint.

    python benchmarks/chains.py [--links 6 12 24 48] [--batch 1024]

Operations of one acceleration as scalar code; the first call of `simulate` in a process of its own, JAX's cache empty
(processor time, its imports apart); one evaluation in a batch, for each member, in a compiled loop on one core.
"""

import argparse
import json
import subprocess
import sys
import time

import jax
import numpy as np
from _timing import machine, pinned, table
from growth import WAYS, cost

import ukjax as uk
from ukjax import mechanisms as um


def chain(links: int, closed: bool) -> uk.Problem:
    """Hinges about axes in all directions, with bodies of no special shape."""
    rng = np.random.default_rng(0)
    axes, steps = rng.normal(size=(links, 3)), 0.3 * rng.normal(size=(links + 1, 3)) + [1.0, 0.0, 0.0]
    points, names = np.cumsum(steps, axis=0), [um.GROUND, *(f"link {i}" for i in range(links))]
    bodies, joints = [], []
    for i in range(links):
        A = 0.1 * rng.normal(size=(3, 3))
        inertia = np.trace(A @ A.T) * np.eye(3) - A @ A.T
        bodies.append(um.Body(names[i + 1], 1.0, 0.5 * (points[i] + points[i + 1]), inertia))
        joints.append(um.Revolute(f"hinge {i}", names[i], names[i + 1], points[i], axes[i]))
    ends = [um.Spherical("end", um.GROUND, names[-1], points[links])] if closed else []
    system = um.tree(bodies, joints, [um.Gravity()], loops=ends)
    return uk.Problem(system, system.q0, system.v0, 0.0, 0.1)


def first_run(links: int, closed: bool) -> float:
    """Seconds of processor time of the first call of `simulate` in this process."""
    problem = chain(links, closed)
    start = time.process_time()
    jax.block_until_ready(uk.simulate(problem).q)
    return time.process_time() - start


def measure(links: int, closed: bool, batch: int) -> list[float]:
    """The columns of the table."""
    problem = chain(links, closed)
    operations = sum(uk.lanes(problem).operations(0.0, problem.q0, problem.v0).values())
    command = [sys.executable, __file__, "--one", "--links", str(links), *["--closed"] * closed]
    first = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    with pinned(1):
        each, _ = cost(problem, WAYS["scalar code"], batch, 60.0)
    return [operations, operations / links, first, 1e6 * each, 1e6 * each / links]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--links", type=int, nargs="+", default=[6, 12, 24, 48])
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--closed", action="store_true", help="the end held, with --one")
    parser.add_argument("--one", action="store_true", help="the first run here, printed as JSON")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    if given.one:
        print(json.dumps(first_run(given.links[0], given.closed)))
        return
    print(f"float64. {machine()}.\n")
    columns = ["operations", "for each link", "first run [s]", "an evaluation [us]", "for each link [us]"]
    for closed in (False, True):
        rows = {f"{n} links": measure(n, closed, given.batch) for n in given.links}
        print(f"**{'held at the end' if closed else 'free'}**\n\n{table(columns, rows)}\n", flush=True)


if __name__ == "__main__":
    main()
