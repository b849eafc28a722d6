"""Methods for B^+ as scalar code: the same answer as their operations on arrays, and derivatives against differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from helpers import equations

import ukjax as uk

FORMULAS = {
    "GramSchmidt": uk.UdwadiaKalaba(uk.GramSchmidt()),
    "HouseholderQR": uk.UdwadiaKalaba(uk.HouseholderQR()),
    "Greville": uk.UdwadiaKalaba(uk.Greville()),
    "CompleteOrthogonal": uk.UdwadiaKalaba(uk.CompleteOrthogonal()),
    "SVD": uk.UdwadiaKalaba(uk.SVD()),
    "Schur": uk.Schur(uk.HouseholderQR()),
}
GAPS = {"agreeing": (0.0, 0.0), "contradicting": (0.0, 0.3), "nearly dependent": (0.02, 0.3)}
"""What the second row has beyond twice the first, in A and in b."""


def system(in_A: float, in_b: float) -> uk.System:
    """Four masses under three rows of norms 1 to 100, of which the second is twice the first but for gaps."""

    def rows(t: jax.Array, q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        first, b = jnp.stack([jnp.ones(()), q[0], q[1] ** 2, jnp.sin(q[2])]), q[3] - v[0] ** 2
        second = 2 * first + in_A * jnp.stack([q[1], jnp.ones(()), 0 * t, v[2]])
        third = 100 * jnp.stack([q[2], 0 * t, q[3], jnp.ones(())])
        return jnp.stack([first, second, third]), jnp.stack([b, 2 * b + in_b * jnp.cos(q[1]), 5 * v[1]])

    mass = lambda t, q: jnp.diag(jnp.asarray([1.0, 2.0, 3.0, 4.0])) + 0.3 * jnp.outer(q, q)
    return uk.System(mass, lambda t, q, v: -q - 0.1 * v, [uk.AccelerationConstraint(rows, name="rows")])


T0 = jnp.zeros(())
RNG = np.random.default_rng(7)
Q, V = jnp.asarray(RNG.normal(size=(2, 3, 4)))


@pytest.mark.parametrize("name", FORMULAS)
def test_as_on_arrays(name: str) -> None:
    """Three states with each of the gaps, which are parameters of the code."""
    formula = FORMULAS[name]
    gaps, q, v = (
        jnp.repeat(jnp.asarray([*GAPS.values()]), 3, axis=0),
        jnp.tile(Q, (3, 1)),
        jnp.tile(V, (3, 1)),
    )
    on_arrays = lambda gaps, q, v: formula.acceleration(system(*gaps), 0.0, q, v).a
    by_code = lambda gaps, q, v: uk.lanes(system(*gaps), formula).one(T0, q, v)
    both = jax.jit(jax.vmap(lambda *x: (by_code(*x), on_arrays(*x))))
    np.testing.assert_allclose(*both(gaps, q, v), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("gaps", GAPS)
def test_derivatives(gaps: str) -> None:
    """Against differences of the pseudoinverse of NumPy, which no row is left out of, nor met alone."""
    given, formula = system(*GAPS[gaps]), FORMULAS["HouseholderQR"]
    q, v, (dq, dv) = Q[0], V[0], RNG.normal(size=(2, 4))

    def acceleration(s: float) -> np.ndarray:
        M, force, rows = jax.device_get(equations(given, T0, q + s * dq, v + s * dv))
        W = np.linalg.inv(np.linalg.cholesky(M))
        B, free = rows.A @ W.T, W @ force
        return W.T @ (free + np.linalg.pinv(B, rcond=1e-9) @ (rows.b - B @ free))

    one = uk.lanes(given, formula).one
    a, change = jax.jit(lambda *x: jax.jvp(lambda q, v: one(T0, q, v), x, (dq, dv)))(q, v)
    np.testing.assert_allclose(a, acceleration(0.0), rtol=1e-9, atol=1e-10)
    h = 1e-3
    differences = [(acceleration(k * h) - acceleration(-k * h)) / (2 * k * h) for k in (1, 2)]
    expected = (4 * differences[0] - differences[1]) / 3
    np.testing.assert_allclose(change, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    pulled = jax.jit(lambda *x: jax.vjp(lambda q, v: one(T0, q, v), *x)[1](jnp.ones(4)))(q, v)
    np.testing.assert_allclose(pulled[0] @ dq + pulled[1] @ dv, change.sum(), rtol=1e-9)


def test_a_run_tells_of_it() -> None:
    """Rank, multipliers of least norm and forces of a run by scalar code are those of the formula at its states."""
    given, formula = system(*GAPS["agreeing"]), FORMULAS["CompleteOrthogonal"]
    run = uk.simulate(given, Q[0], V[0], t1=0.1, ts=3, formula=formula, stabilizer=uk.NoStabilizer())
    assert run.computed_by.startswith("scalar code")
    assert "CompleteOrthogonal" in run.computed_by
    for i, state in enumerate(zip(run.t, run.q, run.v, strict=True)):
        expected = formula.acceleration(given, *state)
        assert run.rank[i] == expected.rank == 2
        for what in ("a", "multipliers", "constraint_force"):
            found = getattr(run, what)[i]
            np.testing.assert_allclose(found, getattr(expected, what), rtol=1e-9, atol=1e-8, err_msg=what)


class Pinv(uk.AbstractPseudoinverse):
    """A method of one's own, by plain operations, or by LAPACK's."""

    rcond: float | None = None
    by_lapack: bool = False

    def of_unit_rows(self, B):
        if self.by_lapack:
            return jnp.linalg.pinv(B, rtol=1e-9), jnp.linalg.matrix_rank(B)
        P = B.T / jnp.trace(B @ B.T)
        for _ in range(60):  # Ben-Israel and Cohen's iteration
            P = 2 * P - P @ B @ P
        return P, jnp.asarray(3, jnp.int32)


def test_a_method_of_ones_own() -> None:
    given = system(*GAPS["nearly dependent"])
    on_arrays, lapack = (uk.UdwadiaKalaba(Pinv(by_lapack=x)) for x in (False, True))
    expected = FORMULAS["SVD"].acceleration(given, 0.0, Q[0], V[0]).a
    np.testing.assert_allclose(uk.lanes(given, on_arrays).one(T0, Q[0], V[0]), expected, rtol=1e-8)
    np.testing.assert_allclose(uk.lanes(given, lapack).one(T0, Q[0], V[0]), expected, rtol=1e-8)


def test_refuses() -> None:
    with pytest.raises(uk.InputError, match="L D L"):
        uk.lanes(uk.models.pendulum(), FORMULAS["SVD"], rcond=1e-6)
    with pytest.raises(uk.InputError, match="between 0 and 1"):
        uk.lanes(uk.models.pendulum(), rcond=2.0)


@pytest.mark.parametrize("name", ["HouseholderQR", "SVD"])
def test_many_rows(name: str) -> None:
    """Of 20 rows by 20 the inverse is that of NumPy."""
    A = RNG.normal(size=(20, 20))
    A[7] = A[3] - 2 * A[11]
    many = uk.System(
        jnp.eye(20),
        jnp.ones(20),
        [uk.AccelerationConstraint(lambda t, q, v: (jnp.asarray(A), v), name="all")],
    )
    v = A @ RNG.normal(size=20)
    expected = 1 + np.linalg.pinv(A, rcond=1e-9) @ (v - A @ np.ones(20))
    found = uk.lanes(many, FORMULAS[name]).one(T0, jnp.ones(20), jnp.asarray(v))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "formula",
    [uk.NullSpace(), *(pytest.param(x, marks=pytest.mark.slow) for x in (uk.KKT(), uk.RangeForm()))],
    ids=lambda x: type(x).__name__,
)
def test_a_formula_on_arrays_takes_equations_from_scalar_code(formula: uk.AbstractFormula) -> None:
    """Its run, against SciPy's with the pseudoinverse of NumPy."""
    given, n = system(0.0, 0.0), Q.shape[1]

    def field(t: float, y: np.ndarray) -> np.ndarray:
        q, v = y[:n], y[n:]
        A = np.array(
            [[1.0, q[0], q[1] ** 2, np.sin(q[2])], np.zeros(n), [100 * q[2], 0.0, 100 * q[3], 100.0]]
        )
        b = np.array([q[3] - v[0] ** 2, 0.0, 5 * v[1]])
        A[1], b[1] = 2 * A[0], 2 * b[0]
        inverse_root = np.linalg.inv(np.linalg.cholesky(np.diag([1.0, 2.0, 3.0, 4.0]) + 0.3 * np.outer(q, q)))
        free = inverse_root @ (-q - 0.1 * v)
        B = A @ inverse_root.T
        return np.concatenate([v, inverse_root.T @ (free + np.linalg.pinv(B, 1e-8) @ (b - B @ free))])

    start, none = np.concatenate([Q[0], V[0]]), uk.NoStabilizer()
    run = uk.simulate(given, Q[0], V[0], t1=0.3, formula=formula, stabilizer=none, rtol=1e-9, atol=1e-9)
    assert "equations of motion by scalar code" in run.computed_by
    want = scipy.integrate.solve_ivp(field, (0.0, 0.3), start, rtol=1e-11, atol=1e-11, method="DOP853").y[
        :, -1
    ]
    np.testing.assert_allclose(np.concatenate([run.q[-1], run.v[-1]]), want, rtol=0, atol=1e-7)
