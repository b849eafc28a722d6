"""Time of one UK acceleration of a model by each method, single and in batches, beside NumPy's.

python benchmarks/acceleration.py [parallelogram scara ...] [--batches 1 64 1024]
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from _timing import interleaved, machine, table

import ukjax as uk

METHODS = (uk.GramSchmidt(), uk.Greville(), uk.HouseholderQR(), uk.CompleteOrthogonal(), uk.SVD())


def by_numpy(M: np.ndarray, Q: np.ndarray, A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What a script of one's own does with given M, Q, A, b of one state: a pseudoinverse of A M^-1/2."""
    W = np.linalg.inv(np.linalg.cholesky(M))
    free = W @ Q
    B = A @ W.T
    return W.T @ (free + np.linalg.pinv(B, rcond=1e-4) @ (b - B @ free))


def times(name: str, batch: int) -> dict[str, float]:
    """Microseconds per acceleration; NumPy's is the algebra alone, for states given one after the other."""
    problem = uk.models.get(name)
    system, rng = problem.system, np.random.default_rng(0)
    q = problem.q0 + 1e-3 * rng.normal(size=(batch, problem.q0.size))
    v = problem.v0 + 1e-3 * rng.normal(size=(batch, problem.v0.size))

    def accelerate(formula: uk.AbstractFormula):
        return jax.jit(jax.vmap(lambda q, v: formula.acceleration(system, 0.0, q, v).a))

    def terms(q, v):
        rows = uk.constraint_rows(system, 0.0, q, v)
        return system.mass_matrix(jnp.asarray(0.0), q), system.force(jnp.asarray(0.0), q, v), rows.A, rows.b

    given = [np.asarray(x) for x in jax.jit(jax.vmap(terms))(q[:64], v[:64])]
    ways = {type(m).__name__: accelerate(uk.UdwadiaKalaba(m)) for m in METHODS}
    fast = uk.lanes(problem)
    ways["uk.lanes"] = jax.jit(lambda q, v: fast(0.0, q, v))
    found = interleaved({k: (lambda f=f: f(q, v)) for k, f in ways.items()})
    alone = interleaved({"numpy": lambda: [by_numpy(*state) for state in zip(*given, strict=True)]})["numpy"]
    found = {k: 1e6 * seconds / batch for k, seconds in found.items()}
    return found | {"numpy.linalg.pinv, algebra alone": 1e6 * alone / len(given[0])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=["parallelogram", "scara"])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64, 1024])
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"Microseconds per acceleration. {machine()}; float64, medians.")
    for name in arguments.models:
        columns = [times(name, batch) for batch in arguments.batches]
        rows = {k: [column[k] for column in columns] for k in columns[0]}
        print(f"\n{name}\n\n" + table([f"batch {batch}" for batch in arguments.batches], rows))


if __name__ == "__main__":
    main()
