"""Time of `uk.identify` against the number of recordings, each with an unknown initial state.

Gravity of a double pendulum, and the angles and rates that each recording of half a second starts with: four numbers a
recording. The first call compiles; the second has other noise.

    python benchmarks/many_recordings.py [--recordings 4 64 256]
"""

import argparse
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

import ukjax as uk

TIMES, NOISE = np.linspace(0.02, 0.5, 25), 2e-3
model = functools.partial(uk.models.n_pendulum, n=2)


def measured(count: int, seed: int) -> list[uk.Recording]:
    """Runs from rest at angles of their own, with the places of both masses at 25 times."""
    random = np.random.default_rng(seed)
    problems = [model(angle=x) for x in random.uniform(0.2, 1.2, count)]
    run = lambda q0, v0: uk.simulate(problems[0].system, q0, v0, t1=0.5, ts=TIMES).q
    starts = jnp.stack([p.q0 for p in problems]), jnp.stack([p.v0 for p in problems])
    y = np.asarray(jax.jit(jax.vmap(run))(*starts))
    y = y + NOISE * random.normal(size=y.shape)
    return [
        uk.Recording(TIMES, x, q0=p.q0, v0=p.v0, name=str(i))
        for i, (x, p) in enumerate(zip(y, problems, strict=True))
    ]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recordings", type=int, nargs="+", default=[4, 64, 256])
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    columns = (
        "recordings",
        "numbers",
        "steps",
        "first call, CPU [s]",
        "again [s]",
        "gravity",
        "its standard error",
    )
    table = Table(*columns, box=box.MARKDOWN)
    for count in options.recordings:
        seconds = []
        for seed in (0, 1):
            recordings, start = measured(count, seed), time.process_time()
            found = uk.identify(model, recordings, {"gravity": 9.0}, initial=("q0", "v0"), noise=NOISE)
            seconds.append(f"{time.process_time() - start:.1f}")
        shown = f"{found.values[0]:.4f}", f"{found.standard_errors[0]:.1g}"
        table.add_row(str(count), str(len(found.names)), str(len(found.costs)), *seconds, *shown)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
