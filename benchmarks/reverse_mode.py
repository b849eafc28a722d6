"""What derivatives of a run cost, in runs and in memory: gradients in reverse mode, changes along one direction in
forward mode; and a batch of gradients.

With two megabytes of checkpoints, the default; with Diffrax's number of them, about the root of twice the steps; and
with one for every step.

    python benchmarks/reverse_mode.py [--models pendulum scara] [--steps 1000 10000 100000] [--batch 1024]

Processor time in one thread, so that what else the machine does counts little.
"""

import argparse
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from _timing import machine, table

import ukjax as uk

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")  # read when JAX first computes

STABILIZERS = {"Baumgarte": lambda: uk.Baumgarte(10.0, 100.0), "Projection": uk.Projection}
CHECKPOINTS = "by default", "Diffrax's number", "every step"


def squared_end(model: str, steps: int, stabilizer: str, checkpoints: str) -> Callable:
    """The sum of squares of the final state, as a function of all parameters of the system."""
    problem = uk.models.get(model)
    dt0 = 1e-4 if steps > 1000 else 1e-3
    number = steps + 1 if checkpoints == "every step" else None
    adjoint = None if checkpoints == "by default" else dfx.RecursiveCheckpointAdjoint(number)

    def end(parameters: Any) -> jax.Array:
        run = uk.simulate(
            eqx.combine(parameters, problem.system), problem.q0, problem.v0, t0=0.0, t1=steps * dt0, dt0=dt0,
            solver=dfx.Tsit5(), stepsize_controller=dfx.ConstantStepSize(), max_steps=steps + 1, ts=2,
            stabilizer=STABILIZERS[stabilizer](), adjoint=adjoint,
        )  # fmt: skip
        return jnp.sum(run.q[-1] ** 2) + jnp.sum(run.v[-1] ** 2)

    return end


def seconds(fn: Callable[[], object], rounds: int) -> float:
    """Processor time of one call, the median of some after the first."""
    jax.block_until_ready(fn())
    uk.optimize_now()
    found = []
    for _ in range(rounds):
        start = time.process_time()
        jax.block_until_ready(fn())
        found.append(time.process_time() - start)
    return float(np.median(found))


def cost(model: str, steps: int, stabilizer: str, checkpoints: str) -> list[float]:
    """Seconds of a run, runs that a gradient and a change take, and megabytes of temporaries of run and gradient."""
    end = squared_end(model, steps, stabilizer, checkpoints)
    parameters = eqx.filter(uk.models.get(model).system, eqx.is_inexact_array)
    as_it_goes = squared_end(model, steps, stabilizer, "by default")  # checkpoints are for reverse mode
    change = lambda x: jax.jvp(as_it_goes, (x,), (x,))
    run, reverse, forward = (jax.jit(f).lower(parameters).compile() for f in (end, jax.grad(end), change))
    rounds = 25 if steps <= 1000 else 5 if steps <= 10_000 else 3
    once, back, along = (seconds(lambda f=f: f(parameters), rounds) for f in (run, reverse, forward))
    megabytes = [c.memory_analysis().temp_size_in_bytes / 1e6 for c in (run, reverse)]
    return [once, back / once, along / once, *megabytes]


def batch(model: str, size: int, steps: int = 100) -> None:
    """Gradients by all parameters of `size` systems in one call, and three of them one by one."""
    parameters, _ = eqx.partition(uk.models.get(model).system, eqx.is_inexact_array)
    rng = np.random.default_rng(0)
    spread = lambda x: x * jnp.asarray(1 + 0.01 * rng.normal(size=size))
    many = jax.tree.map(spread, parameters)
    slope = jax.grad(squared_end(model, steps, "Baumgarte", "by default"))
    together, single = jax.jit(jax.vmap(slope)), jax.jit(slope)
    times = seconds(lambda: together(many), 1), seconds(lambda: single(parameters), 3)
    found, error = together(many), 0.0
    for i in np.linspace(0, size - 1, 3, dtype=int):
        alone = single(jax.tree.map(lambda x, i=i: x[i], many))
        pairs = zip(jax.tree.leaves(alone), jax.tree.leaves(found), strict=True)
        scale = max(float(jnp.abs(x)) for x in jax.tree.leaves(alone))
        error = max([error, *(float(jnp.abs(x - y[i])) / scale for x, y in pairs)])
    count = len(jax.tree.leaves(parameters))
    print(
        f"\nGradients by {count} parameters of {size} {model}, {steps} steps, in one call: {times[0]:.2f} s, "
        f"one alone {times[1]:.4f} s; three of the batch differ from those computed alone by {error:.1e}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=["pendulum"])
    parser.add_argument("--steps", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--stabilizers", nargs="+", default=list(STABILIZERS))
    parser.add_argument("--batch", type=int, default=1024)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"Tsit5 at fixed steps, float64, one thread. {machine()}.\n")
    columns = ["run [s]", "gradient / run", "change / run", "run [MB]", "gradient [MB]"]
    rows = {}
    for model, stabilizer, steps in itertools.product(
        arguments.models, arguments.stabilizers, arguments.steps
    ):
        for checkpoints in CHECKPOINTS:
            row = cost(model, steps, stabilizer, checkpoints)
            rows[f"{model}, {stabilizer}, {steps} steps, checkpoints {checkpoints}"] = row
            print(list(rows)[-1], *(f"{x:.3g}" for x in row), flush=True)
    print("\n" + table(columns, rows))
    if arguments.batch:
        batch("scara", arguments.batch)


if __name__ == "__main__":
    main()
