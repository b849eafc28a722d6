"""Time of one pseudoinverse of a rank-deficient matrix, by each method, single and in batches.

python benchmarks/pseudoinverse.py [--size 12] [--rank 11] [--batches 1 64 1024 16384]
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from _timing import interleaved, machine, table

import ukjax as uk

METHODS = (uk.GramSchmidt(), uk.Greville(), uk.HouseholderQR(), uk.CompleteOrthogonal(), uk.SVD())


def matrices(batch: int, size: int, rank: int) -> np.ndarray:
    """Random matrices (batch, size, size) of that rank."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(batch, size, rank)) @ rng.normal(size=(batch, rank, size))


def times(batch: int, size: int, rank: int) -> dict[str, float]:
    """Microseconds per matrix of every method."""
    B = matrices(batch, size, rank)
    on_device = jnp.asarray(B)
    ways = {type(m).__name__: jax.jit(jax.vmap(lambda x, m=m: uk.pinv(x, m).matrix)) for m in METHODS}
    ways["jnp.linalg.pinv"] = jax.jit(lambda x: jnp.linalg.pinv(x, rtol=1e-4))
    cases = {name: (lambda f=f: f(on_device)) for name, f in ways.items()}
    cases["numpy.linalg.pinv"] = lambda: np.linalg.pinv(B, rcond=1e-4)
    return {name: 1e6 * seconds / batch for name, seconds in interleaved(cases).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=12)
    parser.add_argument("--rank", type=int, default=11)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64, 1024, 16384])
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    columns = [times(batch, arguments.size, arguments.rank) for batch in arguments.batches]
    print(
        f"Microseconds per pseudoinverse of a {arguments.size} x {arguments.size} matrix of rank {arguments.rank}."
    )
    print(f"{machine()}; float64, medians.\n")
    rows = {name: [column[name] for column in columns] for name in columns[0]}
    print(table([f"batch {batch}" for batch in arguments.batches], rows))


if __name__ == "__main__":
    main()
