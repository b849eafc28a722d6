"""What each way to the acceleration costs, and what it loses where rows are nearly dependent.

python benchmarks/methods.py [--models parallelogram scara] [--only angles]
"""

import argparse
import time

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
from _timing import interleaved, machine, table

import ukjax as uk

METHODS = (uk.GramSchmidt, uk.HouseholderQR, uk.CompleteOrthogonal, uk.Greville, uk.SVD)
SINES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-6)
NARROW = 1e-9  # a rank threshold below all these sines


def times(name: str) -> dict[str, list[float]]:
    """Processor time of an acceleration in a batch of 256 [us], and of a run of 1 s within `jit` [ms]."""
    problem, rng = uk.models.get(name), np.random.default_rng(0)
    q = problem.q0 + 1e-3 * rng.normal(size=(256, problem.q0.size))
    v = problem.v0 + 1e-3 * rng.normal(size=(256, problem.v0.size))

    def batched(one):
        accelerate = jax.jit(lambda q, v: one(jnp.asarray(0.0), q, v))
        return [lambda: accelerate(q, v)]

    def by_code(formula: uk.AbstractFormula | None):
        end = jax.jit(lambda q: uk.simulate(problem, q, t1=1.0, ts=2, formula=formula).q[-1])
        return [*batched(uk.lanes(problem, formula)), lambda: end(problem.q0)]

    def on_arrays(formula: uk.AbstractFormula):  # as runs are where there is no scalar code
        one = lambda t, q, v: formula.acceleration(problem.system, t, q, v).a
        return batched(jax.vmap(one, (None, 0, 0)))

    formulas = {f"UdwadiaKalaba({m.__name__})": uk.UdwadiaKalaba(m()) for m in METHODS}
    calls = {"default": by_code(None)} | {way: by_code(x) for way, x in formulas.items()}
    calls |= {f"{way} on arrays": on_arrays(x) for way, x in formulas.items()}
    found = {way: [float("nan")] * 2 for way in calls}
    for i, scale in enumerate((1e6 / 256, 1e3)):
        cases = {way: each[i] for way, each in calls.items() if i < len(each)}
        measured = interleaved(cases, rounds=11, clock=time.process_time)
        for way, seconds in measured.items():
            found[way][i] = scale * seconds
    return found


def _rows(sine: float, rng: np.random.Generator, n: int = 6, m: int = 3) -> tuple[np.ndarray, ...]:
    """M, Q, A, b with rows of unit norm in the metric of M, of which the last two meet at an angle of that sine."""
    root = rng.normal(size=(n, n)) + 3 * np.eye(n)
    B = np.linalg.qr(rng.normal(size=(n, m)))[0].T
    B[-1] = sine * B[-1] + np.sqrt(1 - sine**2) * B[-2]
    return root @ root.T, rng.normal(size=n), B @ root.T, rng.normal(size=m)


def _exact(M: np.ndarray, Q: np.ndarray, A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The acceleration by 60 digits."""
    with mpmath.workdps(60):
        M, Q, A, b = (mpmath.matrix(x.tolist()) for x in (M, Q, A, b))
        free = mpmath.lu_solve(M, Q)
        inverse = M**-1
        multipliers = mpmath.lu_solve(A * inverse * A.T, b - A * free)
        return np.array([float(x) for x in free + inverse * A.T * multipliers])


class _Given(uk.AbstractSystem):
    """A system with these M, Q, A and b, whatever the state."""

    M: jax.Array
    Q: jax.Array
    A: jax.Array
    b: jax.Array

    def mass_matrix(self, t, q):
        return self.M

    def force(self, t, q, v):
        return self.Q

    @property
    def constraints(self):
        return (uk.AccelerationConstraint(lambda t, q, v: (self.A, self.b), name="rows"),)


def errors(count: int = 15) -> dict[str, list[float]]:
    """The median relative error of an acceleration by the sine of rows, by each way with a threshold that keeps all."""
    ways = {f"UdwadiaKalaba({m.__name__})": uk.UdwadiaKalaba(m(NARROW)) for m in METHODS}
    ways |= {"Schur(GramSchmidt)": uk.Schur(uk.GramSchmidt(NARROW**2)), "KKT": uk.KKT(uk.GramSchmidt(NARROW))}
    o = jnp.zeros(6)
    by = {
        way: jax.jit(lambda *x, f=f: f.acceleration(_Given(*x), jnp.asarray(0.0), o, o).a)
        for way, f in ways.items()
    }
    by = {"default": jax.jit(lambda *x: uk.lanes(_Given(*x))(jnp.asarray(0.0), o[None], o[None])[0])} | by
    found = {way: [] for way in by}
    for sine in SINES:
        rng, each = np.random.default_rng(1), {way: [] for way in by}
        for _ in range(count):
            given = _rows(sine, rng)
            exact = _exact(*given)
            for way, accelerate in by.items():
                a = np.asarray(accelerate(*map(jnp.asarray, given)))
                each[way].append(np.abs(a - exact).max() / np.abs(exact).max())
        for way, x in each.items():
            found[way].append(float(np.median(x)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="*", default=["parallelogram"])
    parser.add_argument("--only", choices=["angles", "times"], help="one of both parts")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(machine())
    if arguments.only != "times":
        print("\nRelative error of the acceleration by the sine between two rows\n")
        lines = {way: [f"{x:.0e}" for x in column] for way, column in errors().items()}
        print(
            "\n".join(["| | " + " | ".join(f"{s:g}" for s in SINES) + " |", "|---" * (len(SINES) + 1) + "|"])
        )
        print("\n".join(f"| {way} | " + " | ".join(cells) + " |" for way, cells in lines.items()))
    for name in [] if arguments.only == "angles" else arguments.models:
        print(f"\n{name}\n\n" + table(["in a batch of 256 [us]", "run of 1 s [ms]"], times(name)))


if __name__ == "__main__":
    main()
