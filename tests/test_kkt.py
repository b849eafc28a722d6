"""The Lagrange multiplier form against NumPy's solution of the same system, and the other formulas."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import solve

import ukjax as uk
from ukjax._formula._acceleration import Equations


def _equations(rank, *, n=7, m=5, units=1.0, seed=0, consistent=True, singular=False):
    """Random M, Q, c and m rows of that rank."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n - 1 if singular else n))
    A = rng.normal(size=(m, rank)) @ rng.normal(size=(rank, n)) * units
    b = A @ rng.normal(size=n) if consistent else rng.normal(size=m) * units
    zero = np.zeros(m)
    names = tuple(f"row {i}" for i in range(m))
    rows = uk.Rows(A, b, zero, zero, names, ("holonomic",) * m)
    Q, c = rng.normal(size=(2, n))
    return Equations(root @ root.T, Q, c, rows)


def _by_numpy(equations):
    """a and the multipliers of least norm from the system as printed, by NumPy's least squares."""
    M, A = equations.M, equations.rows.A
    K = np.block([[M, -A.T], [A, np.zeros((len(A), len(A)))]])
    right = np.concatenate([equations.Q + equations.c, equations.rows.b])
    x = np.linalg.lstsq(K, right, rcond=1e-11)[0]
    return x[: len(M)], x[len(M) :]


@pytest.mark.parametrize("singular", [False, True])
@pytest.mark.parametrize("rank", [5, 4, 2])
def test_solves_the_system_as_printed(rank, singular):
    equations = _equations(rank, singular=singular)
    found, (a, multipliers) = solve(uk.KKT(), equations), _by_numpy(equations)
    np.testing.assert_allclose(found.a, a, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(found.multipliers, multipliers, rtol=1e-7, atol=1e-7)
    assert int(found.rank) == rank
    assert bool(found.unique)


@pytest.mark.parametrize("consistent", [True, False])
@pytest.mark.parametrize("units", [1.0, 1e6, 1e-6])
@pytest.mark.parametrize("rank", [5, 3])
def test_is_the_others_in_any_units(rank, units, consistent):
    """For inconsistent rows too, the least-squares answer."""
    equations = _equations(rank, units=units, consistent=consistent)
    found, other = solve(uk.KKT(), equations), solve(uk.UdwadiaKalaba(), equations)
    for name in ("a", "constraint_force", "gauss", "residual"):
        scale = np.abs(getattr(other, name)).max() + units * (name == "residual")
        difference = np.abs(getattr(found, name) - getattr(other, name)).max()
        assert difference < 1e-8 * scale, name
    scale = np.abs(other.multipliers).max()
    assert np.abs(found.multipliers - other.multipliers).max() < 1e-8 * scale


@pytest.mark.parametrize("method", [uk.SVD(), uk.CompleteOrthogonal(), uk.Greville(), uk.HouseholderQR()])
def test_any_method(method):
    equations = _equations(3)
    np.testing.assert_allclose(
        solve(uk.KKT(method), equations).a, _by_numpy(equations)[0], rtol=1e-8, atol=1e-8
    )


def test_no_rows_and_as_many_as_coordinates():
    free = _equations(0, m=0)
    expected = np.linalg.solve(free.M, free.Q + free.c)
    np.testing.assert_allclose(solve(uk.KKT(), free).a, expected, rtol=1e-8)
    full = _equations(7, m=9)
    expected = np.linalg.lstsq(full.rows.A, full.rows.b)[0]
    np.testing.assert_allclose(solve(uk.KKT(), full).a, expected, rtol=1e-7)


def test_not_unique_is_refused_by_name():
    problem = uk.models.light_cart_pole()
    massless = uk.System(jnp.diag(jnp.array([1.0, 0.0])), jnp.zeros(2), (uk.Holonomic(lambda t, q: q[0]),))
    with pytest.raises(uk.InputError, match=r"\[M; A\] has rank 1 of 2"):
        uk.KKT().acceleration(massless, 0.0, jnp.zeros(2), jnp.zeros(2))
    state = problem.t0, problem.q0, problem.v0
    found = uk.KKT().acceleration(problem.system, *state)
    np.testing.assert_allclose(found.a, uk.NullSpace().acceleration(problem.system, *state).a, rtol=1e-6)


def test_derivative_is_that_of_finite_differences():
    equations = _equations(3)
    rng = np.random.default_rng(3)
    direction = rng.normal(size=equations.rows.A.shape[0])

    def a(x):
        """The rows scaled one by one: their rank stays."""
        scaled = dataclasses.replace(equations.rows, A=equations.rows.A * (1 + x * direction)[:, None])
        return solve(uk.KKT(), dataclasses.replace(equations, rows=scaled)).a

    h, along = 1e-5, jax.jit(lambda x: jax.jvp(a, (x,), (1.0,)))
    expected = (along(h)[0] - along(-h)[0]) / (2 * h)
    np.testing.assert_allclose(along(0.0)[1], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_run_past_flat_positions_with_a_dependent_row():
    problem = uk.models.parallelogram(angle=np.pi / 3, rate=0.0)
    runs = [uk.simulate(problem, t1=2.0, formula=f, throw=True) for f in (uk.KKT(), uk.UdwadiaKalaba())]
    np.testing.assert_allclose(runs[0].q[-1], runs[1].q[-1], atol=1e-4)
    assert runs[0].max_position_error < 1e-10
