"""What derivatives of contact steps cost beside the steps: of a ball, a sliding block, Gymnasium's hopper and Cassie.

Processor time, the least of ten: of one step, of 100 by `jax.lax.scan`, and of a batch of 64 steps, each for a step; and
that until the first gradient of a step, in this process, which keeps no machine code of others.

    python benchmarks/step_derivatives.py [--of ball]
"""

import os

os.environ["UKJAX_CACHE"] = "off"

import argparse
import platform
import sys
import time
from pathlib import Path

import _one_thread  # noqa: F401
import jax
import jax.numpy as jnp

import ukjax as uk

jax.config.update("jax_enable_x64", True)
EXPERIMENTS = Path(__file__).parent.parent / "experiments"
STEPS, MEMBERS = 100, 64


def ball():
    """It strikes the floor: a system, a state, and a step."""
    floor = uk.Unilateral(lambda t, q: q[-1], restitution=0.5, name="floor")
    return uk.System(jnp.eye(1), jnp.array([-9.81]), [floor]), jnp.array([1e-4]), jnp.array([-1.0]), 1e-3


def block():
    """It slides."""
    floor = uk.Unilateral(lambda t, q: q[-1], friction=0.4, slip=lambda t, q, v: v[0], name="floor")
    system = uk.System(2.0 * jnp.eye(2), jnp.array([0.0, -19.62]), [floor])
    return system, jnp.zeros(2), jnp.array([3.0, 0.0]), 1e-3


def hopper():
    """Its foot is on the ground, and moves."""
    sys.path.append(str(EXPERIMENTS))
    from policy_tasks import _specification

    problem = uk.load(_specification(), contact=["ground", "limits"]).problem
    return problem, problem.q0.at[1].add(-1e-3), jnp.zeros(6).at[0].set(0.5), 4e-3


def cassie():
    """It falls, with closed loops."""
    problem = uk.load(str(EXPERIMENTS / "robots" / "cassie.xml"), contact=["ground"]).problem
    return problem, problem.q0, problem.v0, 1e-3


def seconds(run, *given) -> tuple[float, float]:
    """Processor time of the first call, and the least of later ones."""
    began = time.process_time()
    jax.block_until_ready(run(*given))
    first, least = time.process_time() - began, float("inf")
    for _ in range(10):
        began = time.process_time()
        for _ in range(20):
            found = run(*given)
        jax.block_until_ready(found)
        least = min(least, (time.process_time() - began) / 20)
    return first, least


def main():
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--of", choices=("ball", "block", "hopper", "cassie"), action="append")
    print(f"{platform.machine()}, jax {jax.__version__}, float64, one thread")
    print(
        "| | step [us] | gradient | run of 100, a step | gradient | batch of 64, a step | gradient | first [s] |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in parser.parse_args().of or ["ball", "block", "hopper", "cassie"]:
        system, q, v, h = globals()[name]()
        step = lambda y, _=None, system=system, h=h: (uk.step(system, 0.0, *y, h), None)
        run = lambda y, step=step: jax.lax.scan(step, y, None, length=STEPS)[0]
        many = jax.tree.map(lambda x: jnp.stack([x] * MEMBERS), (q, v))
        gain = lambda of: jax.value_and_grad(lambda y: sum(jnp.sum(jnp.sin(x)) for x in of(y)))
        one = lambda y, step=step: step(y)[0]
        cells, firsts = [], []
        for of, wrap, given, count in (
            (one, lambda f: f, (q, v), 1),
            (run, lambda f: f, (q, v), STEPS),
            (one, jax.vmap, many, MEMBERS),
        ):
            for f in (of, gain(of)):
                first, least = seconds(jax.jit(wrap(f)), given)
                firsts.append(first)
                cells.append(f"{least / count * 1e6:.1f}")
        print(f"| {name} | {' | '.join(cells)} | {firsts[1]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
