"""A Stewart platform in absolute coordinates: what it takes to build, check, run and ask for reactions.

A plate on legs of two bodies each, a universal joint at the ground, a slide and a ball at the plate: with six legs 13
bodies, 78 velocities and 72 rows. A spring in each slide bears the plate, which sinks until they do.

    python benchmarks/stewart.py [--legs 6] [--order leg kind mixed] [--formula]

Processor time, each order of the joints in a process of its own, with nothing compiled before. `--formula` runs it by
`formula=uk.UdwadiaKalaba()`, on arrays, instead.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from _timing import machine, table

import ukjax as uk
import ukjax.mechanisms as um


def platform(legs: int, order: str) -> um.AbsoluteSystem:
    """The platform.

    **Arguments:**

    - `legs`: how many.
    - `order`: of the joints: `"leg"` by leg, `"kind"` by kind, `"mixed"` at random.
    """
    bodies, joints = [um.disk("plate", (0.0, 0.0, 1.0), 0.5, mass=5.0)], []
    loads: list[um.Gravity | um.SpringDamper] = [um.Gravity()]
    for k in range(legs):
        below, above = (
            2 * np.pi * (k // 2 + s) / ((legs + 1) // 2) for s in ((k % 2 - 0.5) * 0.3, (k % 2 - 0.5) * 0.7)
        )
        foot = np.array([np.cos(below), np.sin(below), 0.0])
        top = np.array([0.5 * np.cos(above), 0.5 * np.sin(above), 1.0])
        along, middle = top - foot, 0.5 * (foot + top)
        across = np.cross(along, [0.0, 0.0, 1.0])
        bodies += [um.rod(f"cylinder{k}", foot, middle, 1.0, 0.04), um.rod(f"rod{k}", middle, top, 0.5, 0.02)]
        joints += [
            um.Universal(f"foot{k}", um.GROUND, f"cylinder{k}", foot, across, np.cross(along, across)),
            um.Prismatic(f"slide{k}", f"cylinder{k}", f"rod{k}", middle, along),
            um.Spherical(f"top{k}", f"rod{k}", "plate", top),
        ]
        loads.append(um.SpringDamper(f"spring{k}", f"cylinder{k}", f"rod{k}", foot, top, 2000.0, 20.0))
    places = {
        "leg": range(len(joints)),
        "kind": sorted(range(len(joints)), key=lambda i: i % 3),
        "mixed": np.random.default_rng(0).permutation(len(joints)),
    }
    return um.assemble(bodies, [joints[i] for i in places[order]], loads)


def measure(legs: int, order: str, by_formula: bool) -> dict[str, float]:
    """Seconds by stage."""
    jax.block_until_ready(jax.device_put(1.0))
    times: dict[str, float] = {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        start = time.process_time()
        found = call()
        times[name] = time.process_time() - start
        print(f"{legs} legs by {order}: {name} {times[name]:.3g} s", file=sys.stderr, flush=True)
        return found

    problem = timed("assemble and problem", lambda: um.problem(platform(legs, order), t1=1.0))
    run = lambda: uk.simulate(problem, formula=uk.UdwadiaKalaba() if by_formula else None)
    if not by_formula:
        timed("check", lambda: uk.check(problem))
        timed("check again", lambda: uk.check(problem))
    trajectory = timed("first run", run)
    timed("later run", run)
    if not by_formula:
        timed("reactions", trajectory.reactions)
        timed("reactions again", trajectory.reactions)
    print(trajectory.computed_by, trajectory.result_name, file=sys.stderr)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--legs", type=int, default=6)
    parser.add_argument("--order", nargs="+", default=["leg", "kind", "mixed"])
    parser.add_argument("--formula", action="store_true", help="run it by the formula on arrays")
    parser.add_argument("--one", action="store_true", help="measure here, and print it as JSON")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if given.one:
        print(json.dumps(measure(given.legs, given.order[0], given.formula)))
        return
    env = {k: x for k, x in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    rows: dict[str, list[float]] = {}
    for order in given.order:
        command = [sys.executable, __file__, "--one", "--legs", str(given.legs), "--order", order]
        command += ["--formula"] * given.formula
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout
        for name, seconds in json.loads(said).items():
            rows.setdefault(name, []).append(seconds)
    print(f"{given.legs} legs, float64, processor time [s]. {machine()}.\n")
    print(table([f"joints by {x}" for x in given.order], rows))


if __name__ == "__main__":
    main()
