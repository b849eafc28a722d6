"""How the cost of one acceleration and of its compilation grows with the number of bodies.

python benchmarks/growth.py [--model four_bars] [--sizes 1 2 10 40 100] [--batches 1 64] [--limit 60]

In proportion means: the time over that of the smallest mechanism and over how many times its size it is stays near 1. A
way is left out after the size at which its compilation or a single call takes longer than the limit.
"""

import argparse
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from _timing import machine, pinned, table
from jax import lax

import ukjax as uk

Accelerate = Callable[[uk.Problem], Callable[[jax.Array, jax.Array], jax.Array]]


def by(formula: uk.AbstractFormula) -> Accelerate:
    """One acceleration by a formula on arrays."""
    return lambda problem: lambda q, v: formula.acceleration(problem.system, problem.t0, q, v).a


WAYS: dict[str, Accelerate] = {
    "scalar code": lambda problem: lambda q, v: uk.lanes(problem).one(problem.t0, q, v),
    "UdwadiaKalaba(GramSchmidt)": by(uk.UdwadiaKalaba()),
    "UdwadiaKalaba(SVD)": by(uk.UdwadiaKalaba(uk.SVD())),
    "Schur(Cholesky)": by(uk.Schur(uk.Cholesky())),
    "NullSpace": by(uk.NullSpace()),
    "Recursive": by(uk.Recursive()),
}


def cost(problem: uk.Problem, accelerate: Accelerate, batch: int, limit: float) -> tuple[float, float]:
    """Seconds of processor time per evaluation and member, in a compiled loop, and of compilation."""
    one = jax.vmap(accelerate(problem), 1, 1)
    spread = 1.0 + 1e-6 * np.linspace(0, 1, batch)
    q, v = jnp.asarray(problem.q0)[:, None] * spread, jnp.asarray(problem.v0)[:, None] * spread
    # The positions differ too: what depends on them alone would else be taken out of the loop.
    step = lambda _, y: (1.000001 * y[0], y[1] + 1e-12 * one(*y))
    run = jax.jit(lambda q, v, n: lax.fori_loop(0, n, step, (q, v)))
    start = time.perf_counter()
    fast = run.lower(q, v, 1).compile()
    compiled = time.perf_counter() - start

    def took(repeats: int) -> float:
        start = time.process_time()
        jax.block_until_ready(fast(q, v, repeats))
        return time.process_time() - start

    took(1)
    uk.optimize_now()
    repeats, spent = 1, took(1)
    while spent < min(0.1, limit / 10):
        repeats *= 4
        spent = took(repeats)
    # A call takes some time by itself, up to half a millisecond: not counted.
    more = [took(3 * repeats) - took(repeats) for _ in range(5 if spent < limit / 10 else 1)]
    return float(np.median(more)) / (2 * repeats) / batch, compiled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="four_bars", choices=["four_bars", "n_pendulum"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 10, 40, 100])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument(
        "--limit", type=float, default=60.0, help="the longest compilation or call to wait for [s]"
    )
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    jax.devices()
    print(f"{given.model}, float64, one core. {machine()}.")
    for batch in given.batches:
        tables: list[dict[str, list[float]]] = [{}, {}, {}]
        for way in given.ways:
            found: list[tuple[float, float]] = []
            for size in given.sizes:
                seconds = compiled = float("nan")
                if not found or max(found[-1][0] * batch, found[-1][1]) < given.limit:
                    try:
                        with pinned(1):
                            seconds, compiled = cost(
                                uk.models.get(given.model, n=size), WAYS[way], batch, given.limit
                            )
                    except uk.TranslationError:
                        pass
                found.append((seconds, compiled))
                print(
                    f"  {way}, n = {size}: {1e6 * seconds:.3g} us, compiled in {compiled:.3g} s", flush=True
                )
            sizes = np.array(given.sizes) / given.sizes[0]
            times = np.array([seconds for seconds, _ in found])
            tables[0][way] = list(1e6 * times)
            tables[1][way] = list(times / times[0] / sizes)
            tables[2][way] = [compiled for _, compiled in found]
        columns = [f"n = {size}" for size in given.sizes]
        for title, rows in zip(("microseconds", "over proportion", "compilation [s]"), tables, strict=True):
            print(f"\nbatch {batch}: {title}\n\n{table(columns, rows)}")


if __name__ == "__main__":
    main()
