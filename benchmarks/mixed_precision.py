"""What float64 states would gain for runs of float32: errors of fixed steps on the constraints, against float64.

With all numbers in float32; with sums of float32 that keep what they lose (Kahan); and with states of float64 whose
accelerations and projections are computed in float32 ("mixed"). The classical Runge-Kutta method at equal steps, so the
errors are those of rounding alone; each is the median over starts on the constraints that are moved by 1 % at random.

    python benchmarks/mixed_precision.py [--models pendulum scara] [--starts 16]
"""

import argparse
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from _timing import machine

import ukjax as uk

jax.config.update("jax_enable_x64", True)

SPANS = {  # of time, and the step [s]
    "pendulum": (10.0, 1e-3),
    "scara": (2.0, 1e-3),
    "four_bars": (5.0, 1e-3),
    "parallelogram": (5.0, 1e-3),
    "andrews": (0.03, 1e-5),
    "planar_3rrr": (1.0, 1e-3),
    "bricard": (2.0, 1e-3),
}
WAYS = "float32", "Kahan's sums", "mixed"
State = tuple[jax.Array, jax.Array]


def rounded(system: uk.AbstractSystem, dtype: type) -> uk.AbstractSystem:
    """The system with its numbers in this precision."""
    is_float = lambda x: isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating)
    return jax.tree.map(lambda x: x.astype(dtype) if is_float(x) else x, system)


def step(system: uk.AbstractSystem, h: float, low: type, y: State, lost: State, kahan: bool) -> tuple:
    """A step of the classical Runge-Kutta method and the projection of its end; also what the sums lost."""
    computed = lambda y: jax.tree.map(lambda x: x.astype(low), y)
    wide = lambda y, like: jax.tree.map(lambda x, z: x.astype(z.dtype), y, like)

    def rate(y: State) -> State:
        q, v = computed(y)
        a = uk.UdwadiaKalaba().acceleration(system, jnp.zeros((), low), q, v).a
        return y[1], a.astype(y[1].dtype)

    plus = lambda y, h, k: jax.tree.map(lambda x, d: x + jnp.asarray(h, x.dtype) * d, y, k)
    k1 = rate(y)
    k2 = rate(plus(y, h / 2, k1))
    k3 = rate(plus(y, h / 2, k2))
    k4 = rate(plus(y, h, k3))
    change = jax.tree.map(
        lambda a, b, c, d: jnp.asarray(h / 6, a.dtype) * (a + 2 * (b + c) + d), k1, k2, k3, k4
    )
    end = computed(plus(y, 1.0, change))
    projected = uk.project(system, jnp.zeros((), low), *end)
    moved = wide(jax.tree.map(jnp.subtract, projected, end), y)
    change = jax.tree.map(jnp.add, change, moved)
    if not kahan:
        return plus(y, 1.0, change), lost
    change = jax.tree.map(jnp.subtract, change, lost)
    new = plus(y, 1.0, change)
    return new, jax.tree.map(lambda new, old, d: (new - old) - d, new, y, change)


def ends(model: str, low: type, state: type, kahan: bool = False) -> Callable[..., State]:
    """The last states of a batch of runs, as a function of the first ones."""
    t1, h = SPANS[model]
    system = rounded(uk.models.get(model).system, low)

    def end(q: jax.Array, v: jax.Array) -> State:
        y = q.astype(state), v.astype(state)
        body = lambda _, c: step(system, h, low, *c, kahan)
        return jax.lax.fori_loop(0, round(t1 / h), body, (y, jax.tree.map(jnp.zeros_like, y)))[0]

    return jax.jit(jax.vmap(end))


def errors(model: str, count: int) -> list[float]:
    """The median error of each way, relative to the largest entry of the state."""
    problem, rng = uk.models.get(model), np.random.default_rng(0)
    moved = lambda x: x + 0.01 * rng.standard_normal((count, x.size))
    starts = jax.vmap(lambda q, v: uk.project(problem.system, 0.0, q, v))(
        moved(problem.q0), moved(problem.v0)
    )
    flat = lambda y: np.concatenate([np.asarray(x, float) for x in y], 1)
    exact = flat(ends(model, jnp.float64, jnp.float64)(*starts))
    runs = ((jnp.float32, False), (jnp.float32, True), (jnp.float64, False))
    found = [flat(ends(model, jnp.float32, *run)(*starts)) for run in runs]
    return [float(np.median(np.abs(x - exact).max(1) / (1 + np.abs(exact).max(1)))) for x in found]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", default=list(SPANS), choices=list(SPANS))
    parser.add_argument("--starts", type=int, default=16)
    given = parser.parse_args()
    print(f"{machine()}; {given.starts} starts each\n")
    print("| model | span [s] | step [s] |", *(f" {way} |" for way in WAYS))
    print("|---" * (3 + len(WAYS)) + "|")
    for model in given.models:
        t1, h = SPANS[model]
        print(f"| {model} | {t1} | {h} |", *(f"{x:.1e} |" for x in errors(model, given.starts)), flush=True)


if __name__ == "__main__":
    main()
