"""Operations and bytes of one UK acceleration as scalar code, and the time it takes, beside what the machine can do.

python benchmarks/roofline.py [pendulum parallelogram ...] [--batch 1024] [--output roofline.md]

Every model that can be written as scalar code, in a compiled loop on one core. Operations are those of the program
(`uk.lanes(...).operations`), and what XLA counts in the compiled code; the least bytes are q and v read and a written.
Without a list of models each model is run in its default form.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _timing import machine, pinned, table
from jax import lax

import ukjax as uk

COLUMNS = [
    "+, -, x", "/, sqrt", "sin, cos, ...", "<, select", "XLA: flops", "XLA: bytes", "least bytes", "ns", "Gflop/s",
    "of the peak [%]", "at the peak [ns]",
]  # fmt: skip
CHEAP = {"add", "sub", "mul", "neg"}
SLOW = {"div", "sqrt", "rsqrt", "cbrt"}
CHOICES = {"lt", "le", "gt", "ge", "eq", "ne", "select", "and", "or", "not", "max", "min", "abs", "sign"}


def seconds(fn: Callable[[], Any], rounds: int = 7) -> float:
    """Processor time of one call, the median; the first is left out."""
    jax.block_until_ready(fn())
    uk.optimize_now()
    found = []
    for _ in range(rounds):
        start = time.process_time()
        jax.block_until_ready(fn())
        found.append(time.process_time() - start)
    return float(np.median(found))


def peak(chains: int, depth: int = 16, size: int = 1024, repeats: int = 2000) -> float:
    """Floating-point operations a second of multiply-adds on vectors in the first-level cache."""

    def multiply_add(_: int, xs: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        for _ in range(depth):
            xs = tuple(x * 0.999 + 1e-3 for x in xs)
        return xs

    xs = tuple(jnp.full(size, 1.0 + i) for i in range(chains))
    run = jax.jit(lambda xs: lax.fori_loop(0, repeats, multiply_add, xs))
    return 2.0 * chains * depth * size * repeats / seconds(lambda: run(xs))


def bandwidth(size: int = 2**23) -> float:
    """Bytes a second read and written by a copy much larger than the caches."""
    x = jnp.ones(size)
    copy = jax.jit(lambda x: x + 1.0)
    return 2.0 * x.nbytes / seconds(lambda: copy(x))


def counts(operations: dict[str, int]) -> list[int]:
    """How many are cheap, slow, transcendental and choices."""
    of = lambda kinds: sum(n for op, n in operations.items() if op in kinds)
    known = CHEAP | SLOW | CHOICES
    return [of(CHEAP), of(SLOW), sum(n for op, n in operations.items() if op not in known), of(CHOICES)]


def row(problem: uk.Problem, batch: int, fastest: float, repeats: int = 50) -> list[float]:
    """The columns of a model.

    **Arguments:**

    - `problem`: the model.
    - `batch`: how many states at once.
    - `fastest`: operations a second the machine does.
    - `repeats`: evaluations in the loop.
    """
    lanes = uk.lanes(problem)
    number = counts(lanes.operations(problem.t0, problem.q0, problem.v0))
    spread = 1.0 + 1e-4 * np.linspace(0, 1, batch)
    q, v = jnp.asarray(problem.q0)[:, None] * spread, jnp.asarray(problem.v0)[:, None] * spread
    one = jax.vmap(lambda q, v: lanes.one(problem.t0, q, v), 1, 1)
    analysis: Any = jax.jit(one).lower(q, v).compile().cost_analysis()
    analysis = analysis[0] if isinstance(analysis, list) else analysis

    @jax.jit
    def run(q: jax.Array, v: jax.Array) -> jax.Array:
        # The next state depends on the acceleration and differs, so that no part of it can be left out.
        return lax.fori_loop(0, repeats, lambda _, y: (1.000001 * y[0], y[1] + 1e-12 * one(*y)), (q, v))[1]

    each = seconds(lambda: run(q, v)) / repeats / batch
    arithmetic = number[0] + number[1]
    xla = [analysis.get("flops", np.nan) / batch, analysis.get("bytes accessed", np.nan) / batch]
    rate, least = arithmetic / each, 8.0 * (q.shape[0] + 2 * v.shape[0])
    return [*number, *xla, least, 1e9 * each, rate / 1e9, 100 * rate / fastest, 1e9 * arithmetic / fastest]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=list(uk.models.MODELS))
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    jax.devices()
    with pinned(1):
        rates = {chains: peak(chains) for chains in (1, 2, 4, 8)}
        fastest, copied = max(rates.values()), bandwidth()
        lines = [
            f"One acceleration, batch {arguments.batch}, one core, float64. {machine()}. Measured peak of "
            f"multiply-adds {fastest / 1e9:.1f} Gflop/s, of a copy {copied / 1e9:.1f} GB/s: below "
            f"{fastest / copied:.1f} operations a byte memory would be the limit.", "",
        ]  # fmt: skip
        rows, left_out, text = {}, [], ""
        for name in arguments.models:
            problem = uk.models.get(name)
            try:
                rows[name] = row(problem, arguments.batch, fastest)
            except Exception as reason:  # what has no scalar code is named, not measured
                left_out.append(f"{name} ({str(reason).partition(chr(10))[0][:80]})")
            text = "\n".join([*lines, table(COLUMNS, rows)])
            text += f"\n\nNo scalar code: {'; '.join(left_out)}." if left_out else ""
            print(name, *(f"{x:.3g}" for x in rows.get(name, [])), flush=True)
            if arguments.output:
                arguments.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
