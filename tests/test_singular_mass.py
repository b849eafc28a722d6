"""Formulas for singular mass matrices, against the KKT system solved by LAPACK, and a top in two forms."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from helpers import Given, Rows
from scipy.integrate import solve_ivp

import ukjax as uk

ANY_MASS = [uk.RangeForm(), uk.StackedForm(), uk.NullSpace(), uk.KKT()]
POSITIVE = [uk.UdwadiaKalaba(), uk.Schur()]


def _random(n: int, m: int, rank: int, kernel: int, seed: int):
    """M of rank n - kernel, rows of a given rank, consistent b, forces; and a KKT solution."""
    rng = np.random.default_rng(seed)

    def with_values(rows: int, columns: int, values: np.ndarray) -> np.ndarray:
        U, V = (np.linalg.qr(rng.normal(size=(k, k)))[0] for k in (rows, columns))
        return U[:, : values.size] @ np.diag(values) @ V[:, : values.size].T

    root = with_values(n, n, rng.uniform(0.5, 2, n - kernel))
    M = root @ root.T
    A = with_values(m, n, rng.uniform(0.5, 2, rank)) if m else np.zeros((0, n))
    b, Q, c = A @ rng.normal(size=n), rng.normal(size=n), rng.normal(size=n)
    K = np.block([[M, -A.T], [A, np.zeros((m, m))]])
    a = np.linalg.lstsq(K, np.concatenate([Q + c, b]), rcond=1e-10)[0][:n]
    rows = uk.AccelerationConstraint(Rows(jnp.asarray(A), jnp.asarray(b)), name="rows")
    return uk.System(M, Q, [rows], nonideal_force=Given(jnp.asarray(c))), a, (M, A, Q, c)


@pytest.mark.parametrize("formula", ANY_MASS + POSITIVE, ids=lambda f: type(f).__name__)
@pytest.mark.parametrize(
    "shape",
    [
        *((6, 4, 3, 0), (6, 4, 3, 2), (4, 0, 0, 0), (4, 6, 3, 2)),
        pytest.param((5, 2, 2, 1), marks=pytest.mark.slow),
    ],
)
def test_equals_the_kkt_system(formula, shape):
    if shape[3] and formula.needs_definite_mass:
        pytest.skip("needs M > 0")
    system, expected, (M, A, Q, c) = _random(*shape, seed=1)
    found = formula.acceleration(system, 0.0, jnp.zeros(shape[0]), jnp.zeros(shape[0]))
    np.testing.assert_allclose(found.a, expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.constraint_force, M @ expected - Q, rtol=0, atol=1e-11)
    np.testing.assert_allclose(A.T @ found.multipliers + c, M @ expected - Q, rtol=0, atol=1e-11)
    assert bool(found.unique)
    assert int(found.rank) == shape[2]


def test_definite_mass_is_asked_for_by_name():
    system = _random(5, 2, 2, 1, seed=2)[0]
    for formula in POSITIVE:
        with pytest.raises(uk.InputError, match="not positive definite"):
            formula.acceleration(system, 0.0, jnp.zeros(5), jnp.zeros(5))


def test_what_is_not_unique_says_so_and_eta_chooses():
    M, A = jnp.diag(jnp.array([1.0, 1.0, 0.0])), jnp.array([[1.0, 1.0, 0.0]])
    rows = uk.AccelerationConstraint(lambda t, q, v: (A, jnp.array([2.0])), name="rows")
    system, zero = uk.System(M, jnp.array([1.0, 1.0, 0.0]), [rows]), jnp.zeros(3)
    for formula in (uk.RangeForm(), uk.StackedForm()):
        found = formula.acceleration(system, 0.0, zero, zero)
        assert not bool(found.unique)
        np.testing.assert_allclose(found.a, [1.0, 1.0, 0.0], atol=1e-14)
    chosen = uk.StackedForm(eta=jnp.array([5.0, 0.0, 7.0])).acceleration(system, 0.0, zero, zero)
    np.testing.assert_allclose(chosen.a, [1.0, 1.0, 7.0], atol=1e-13)
    with pytest.raises(uk.InputError, match=r"not unique at t = 0.0: \[M; A\] has rank 2 of 3"):
        uk.NullSpace().acceleration(system, 0.0, zero, zero)


@pytest.mark.parametrize(
    "formula",
    [
        *(uk.RangeForm(), uk.KKT()),
        *(pytest.param(f, marks=pytest.mark.slow) for f in (uk.StackedForm(), uk.NullSpace())),
    ],
    ids=lambda f: type(f).__name__,
)
def test_derivative_by_a_mass(formula):
    """Against central differences of LAPACK's solution of the KKT system."""
    A, b = np.array([[1.0, 2.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0]]), np.array([1.0, -1.0])
    Q = np.array([1.0, 2.0, 3.0, 4.0])

    def kkt(mass):
        K = np.block([[np.diag([mass, 1.0, 2.0, 0.0]), -A.T], [A, np.zeros((2, 2))]])
        return np.linalg.solve(K, np.concatenate([Q, b]))[:4]

    def ours(mass):
        M = jnp.diag(jnp.stack([mass, *jnp.array([1.0, 2.0, 0.0])]))
        rows = uk.AccelerationConstraint(lambda t, q, v: (jnp.asarray(A), jnp.asarray(b)), name="rows")
        return formula.acceleration(uk.System(M, jnp.asarray(Q), [rows]), 0.0, jnp.zeros(4), jnp.zeros(4)).a

    expected = (kkt(3 + 1e-5) - kkt(3 - 1e-5)) / 2e-5
    for slope in jax.jit(lambda mass: (jax.jacfwd(ours)(mass), jax.jacrev(ours)(mass)))(3.0):
        np.testing.assert_allclose(slope, expected, atol=1e-9)


def _first_is_quick(formulas):
    """Whole runs take seconds each to compile: one formula stands for the others in the quick tests."""
    marks = ((), *[pytest.mark.slow] * (len(formulas) - 1))
    return [pytest.param(f, marks=m, id=type(f).__name__) for f, m in zip(formulas, marks, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("formula", _first_is_quick(ANY_MASS))
def test_top_with_a_singular_mass_matrix(formula):
    """Four quaternion rates with a mass matrix of rank 3, against three angular velocities without rows."""
    singular = uk.models.spinning_top(formulation="singular mass")
    times = jnp.linspace(0.0, 1.0, 6)
    steps = dfx.ClipStepSizeController(
        dfx.PIDController(1e-11, 1e-11), step_ts=times
    )  # nothing is interpolated
    ours = uk.simulate(singular, t1=1.0, ts=times, formula=formula, stepsize_controller=steps)
    other = uk.simulate(uk.models.spinning_top(), t1=1.0, ts=times, stepsize_controller=steps)
    assert ours.ok
    assert singular.points is not None
    centre = jax.vmap(singular.points)
    found, expected = (centre(run.t, run.q)["centre"] for run in (ours, other))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    assert float(ours.max_position_error) < 1e-12


def _light_pole(t1: float) -> np.ndarray:
    """The angle at t1 by SciPy, in the one coordinate left when the centre of mass does not move along x."""
    mu, g = 1.0 / (1.0 + 1e-6), 9.81

    def rate(t, y):
        s, c = np.sin(y[0]), np.cos(y[0])
        return y[1], -(g * s + mu * s * c * y[1] ** 2) / (1.0 - mu * c * c)

    run = solve_ivp(rate, (0.0, t1), (np.pi / 3, 0.0), method="DOP853", rtol=1e-13, atol=1e-13, max_step=1e-3)
    s, c = np.sin(run.y[0, -1]), np.cos(run.y[0, -1])
    cart = mu * (np.sin(np.pi / 3) - s)
    return np.array([cart, cart + s, -c])


@pytest.mark.parametrize("formula", _first_is_quick([uk.UdwadiaKalaba(), uk.RangeForm()]))
def test_a_light_cart_moves_as_in_minimal_coordinates(formula):
    """Through the two moments, near 0.32 and 0.96 s, when the hanging pole throws the cart across."""
    expected = _light_pole(1.0)
    for rtol in (1e-8, 1e-10):
        run = uk.simulate(uk.models.light_cart_pole(), ts=2, rtol=rtol, atol=rtol, formula=formula)
        np.testing.assert_allclose(run.q[-1], expected, rtol=0, atol=1e-8)


def _angle_of_links(gravity: float) -> float:
    return oracles.pendulum_elliptic(0.4, np.pi / 3 + np.pi / 2, 0.0, 0.5 * gravity / 0.35)[0] - np.pi / 2


@pytest.mark.slow
@pytest.mark.parametrize("formula", _first_is_quick(ANY_MASS))
def test_a_massless_coupler_leaves_the_links_their_motion(formula):
    """Without the coupler's mass 3 (I + m l^2 / 4) theta'' = -3 m g l / 2 cos(theta), elliptic."""
    problem = uk.models.parallelogram(coupler_mass=0.0, coupler_inertia=0.0)
    angle = _angle_of_links(9.81)
    run = uk.simulate(problem, t1=0.4, ts=2, rtol=1e-10, atol=1e-10, formula=formula)
    np.testing.assert_allclose(run.q[-1, [2, 5, 8]], angle, rtol=0, atol=1e-8)
    np.testing.assert_allclose(run.q[-1, 11], 0.0, atol=1e-9)
    with pytest.raises(uk.InputError, match="RangeForm"):
        uk.simulate(problem, t1=0.4)


@pytest.mark.parametrize(
    "formula", _first_is_quick([uk.NullSpace(), uk.RangeForm(), uk.StackedForm(), uk.KKT()])
)
@pytest.mark.parametrize("derive", [jax.grad, pytest.param(jax.jacfwd, marks=pytest.mark.slow)])
def test_derivative_of_a_run_with_a_massless_coupler(formula, derive):
    """By gravity, against differences of the elliptic function; states are projected where M is singular."""

    def end(gravity):
        problem = uk.models.parallelogram(coupler_mass=0.0, coupler_inertia=0.0, gravity=gravity)
        return uk.simulate(problem, t1=0.4, ts=2, rtol=1e-10, atol=1e-10, formula=formula).q_end[2]

    h = 1e-3
    expected = (_angle_of_links(9.81 + h) - _angle_of_links(9.81 - h)) / (2 * h)
    np.testing.assert_allclose(derive(end)(9.81), expected, rtol=0, atol=1e-7)
