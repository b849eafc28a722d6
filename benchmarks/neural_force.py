"""The first gradient through runs of a pendulum with a neural network in its force, and later ones.

Eight starts by `vmap`, the same solver, tolerances and saved times: by `uk.simulate` with its defaults, by arrays
(`formula=uk.UdwadiaKalaba()`), and by Diffrax alone with the formula's acceleration and nothing projected.

    python benchmarks/neural_force.py [--widths 16 64] [--stabilizers Projection Baumgarte]

Processor time, each in a process of its own, with nothing compiled before.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from _timing import machine, table

import ukjax as uk

WAYS = {"uk.simulate": "scalar", "by arrays": "arrays", "Diffrax alone": "plain"}
STABILIZERS = {"Projection": uk.Projection(), "Baumgarte": uk.Baumgarte(10.0, 100.0)}
STARTS = jnp.linspace(-2.0, 2.0, 8)
TIMES = {"t0": 0.0, "t1": 1.0}


class Driven(uk.AbstractSystem):
    """The pendulum with one more force."""

    pendulum: uk.AbstractSystem
    net: eqx.nn.MLP
    constraints: tuple

    def __init__(self, net: eqx.nn.MLP):
        self.pendulum, self.net = uk.models.pendulum().system, net
        self.constraints = self.pendulum.constraints

    def mass_matrix(self, t, q):
        return self.pendulum.mass_matrix(t, q)

    def force(self, t, q, v):
        return self.pendulum.force(t, q, v) + self.net(jnp.concatenate([q, v]))


def field(t: Any, y: tuple[jax.Array, jax.Array], system: Driven) -> tuple[jax.Array, jax.Array]:
    """(q', v') by the formula."""
    return y[1], uk.UdwadiaKalaba().acceleration(system, t, *y, stabilizer=STABILIZERS["Baumgarte"]).a


def loss(net: eqx.nn.MLP, way: str, stabilizer: str) -> jax.Array:
    """The mean squared distance of the ends of all runs from a point."""
    system, ts = Driven(net), jnp.linspace(0.0, 1.0, 21)
    options = {"solver": dfx.Dopri8(), "stepsize_controller": dfx.PIDController(1e-8, 1e-8)}

    def positions(speed: jax.Array) -> jax.Array:
        q, v = jnp.array([1.0, 0.0]), speed * jnp.array([0.0, 1.0])
        if way == "plain":
            saved = dfx.SaveAt(ts=ts)
            terms = dfx.ODETerm(field)
            found = dfx.diffeqsolve(terms, y0=(q, v), args=system, dt0=None, saveat=saved, **TIMES, **options)
            assert found.ys is not None
            return found.ys[0]
        more = {"formula": uk.UdwadiaKalaba()} if way == "arrays" else {}
        run = uk.simulate(system, q, v, ts=ts, stabilizer=STABILIZERS[stabilizer], **TIMES, **more, **options)
        return run.q

    return jnp.mean((jax.vmap(positions)(STARTS) - 0.3) ** 2)


def measure(way: str, width: int, stabilizer: str) -> list[float]:
    """Seconds of the first gradient, milliseconds of later ones, and the loss."""
    net = eqx.nn.MLP(4, 2, width, 2, activation=jnp.tanh, key=jax.random.key(0))
    slope = eqx.filter_jit(eqx.filter_value_and_grad(loss))
    times, found = [], None
    for _ in range(12):
        start = time.process_time()
        found = jax.block_until_ready(slope(net, way, stabilizer))
        times.append(time.process_time() - start)
        uk.optimize_now()
    assert found is not None
    value, gradient = found
    norm = jnp.sqrt(sum(jnp.sum(x**2) for x in jax.tree.leaves(eqx.filter(gradient, eqx.is_array))))
    return [times[0], float(np.median(times[1:])) * 1e3, float(value), float(norm)]


def apart(*case: Any) -> list[float]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", *map(str, case)]
    env = {k: x for k, x in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--stabilizers", nargs="+", default=list(STABILIZERS))
    parser.add_argument("--one", nargs=3, help="measure this case here, and print it as JSON")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if given.one:
        way, width, stabilizer = given.one
        print(json.dumps(measure(way, int(width), stabilizer)))
        return
    print(f"float64, processor time. {machine()}.\n")
    columns, rows = ["first gradient [s]", "later ones [ms]", "loss", "norm of the gradient"], {}
    for width in given.widths:
        cases = [
            (f"{name}, {s}", way, s)
            for name, way in WAYS.items()
            if way != "plain"
            for s in given.stabilizers
        ]
        for name, way, stabilizer in [*cases, ("Diffrax alone", "plain", "Baumgarte")]:
            rows[f"4-{width}-{width}-2, {name}"] = apart(way, width, stabilizer)
            print(list(rows)[-1], *(f"{x:.4g}" for x in rows[list(rows)[-1]]), flush=True)
    print("\n" + table(columns, rows))


if __name__ == "__main__":
    main()
