"""Projection onto the constraints: it arrives, by the shortest way in the mass metric; its derivatives."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import central, state

import ukjax as uk

_M = np.array([[2.0, 0.4, 0.1, 0.0], [0.4, 1.0, 0.2, 0.1], [0.1, 0.2, 3.0, 0.3], [0.0, 0.1, 0.3, 0.7]])


class Path(eqx.Module):
    """Two curved rows, one of them rheonomic and with a parameter."""

    radius: jax.Array

    def __call__(self, t, q):
        return jnp.stack([jnp.dot(q[:3], q[:3]) - self.radius**2, q[3] - jnp.sin(q[0] + t)])


class Slip(eqx.Module):
    """A nonholonomic row, linear in v."""

    drift: jax.Array

    def __call__(self, t, q, v):
        return v[1] * jnp.cos(q[2]) - v[0] * jnp.sin(q[2]) - self.drift * jnp.cos(t)


class Twice(eqx.Module):
    """A row, and the same in other words: redundant everywhere."""

    inner: Path

    def __call__(self, t, q):
        first = self.inner(t, q)
        return jnp.stack([first[0], -3 * first[0], first[0] + first[1]])


def _system(radius=1.2, drift=0.3, *, redundant=False):
    path = Path(jnp.asarray(radius))
    rows = [uk.Holonomic(path, name="path"), uk.Nonholonomic(Slip(jnp.asarray(drift)), name="slip")]
    if redundant:
        rows.insert(1, uk.Holonomic(Twice(path), name="twice"))
    mass = lambda t, q: jnp.asarray(_M) * (2.0 + jnp.tanh(q[0]))
    return uk.System(mass, jnp.zeros(4), rows)


_MASS = _system().mass_matrix_
START = state(0.3, [0.9, 0.5, -0.4, 0.7], [0.5, -1.0, 0.8, 0.2])


def _share(system):
    """One mass function for all, so that compiled functions are shared."""
    return eqx.tree_at(lambda s: s.mass_matrix_, system, _MASS)


PLAIN, REDUNDANT = _share(_system()), _share(_system(redundant=True))


def _in_range(vector, basis, tolerance):
    """Whether a vector is a combination of the columns of `basis`."""
    basis = np.asarray(basis)
    left = vector - basis @ np.linalg.lstsq(basis, vector, rcond=1e-10)[0]
    assert np.abs(left).max() < tolerance * max(1.0, np.abs(vector).max()), left


_rows = eqx.filter_jit(uk.constraint_rows)


def _holonomic(rows):
    return np.asarray(rows.A)[np.array(rows.kinds) == "holonomic"]


@pytest.mark.parametrize("system", [PLAIN, REDUNDANT], ids=["independent", "redundant"])
def test_is_the_nearest_state_in_the_mass_metric(system):
    """q* - q in M^-1 A(q)^T, and v* the solution of min |v* - v|_M with A v* = ..., by numpy."""
    t, q, v = START
    q1, v1 = uk.project(system, t, q, v)
    before, after = _rows(system, t, q, v), _rows(system, t, q1, v1)
    assert np.abs(before.position_error).max() > 0.05
    assert np.abs(before.velocity_error).max() > 0.05
    assert np.abs(after.position_error).max() < 1e-12
    assert np.abs(after.velocity_error).max() < 1e-12
    M = np.asarray(system.mass_matrix(t, q))
    _in_range(np.asarray(q1 - q), np.linalg.solve(M, _holonomic(before).T), 1e-12)
    # Least squares with equality constraints: v* = v + L^-T y with y of least norm, at the projected q
    L = np.linalg.cholesky(np.asarray(system.mass_matrix(t, q1)))
    there = _rows(system, t, q1, v)
    B = np.linalg.solve(L, np.asarray(there.A).T).T
    y = np.linalg.lstsq(B, -np.asarray(there.velocity_error), rcond=1e-10)[0]
    np.testing.assert_allclose(v1, v + np.linalg.solve(L.T, y), atol=1e-12)


@pytest.mark.parametrize(
    "method",
    [uk.SVD(), uk.Greville(), pytest.param(uk.HouseholderQR(), marks=pytest.mark.slow), uk.GramSchmidt()],
)
def test_methods_agree(method):
    expected = uk.project(REDUNDANT, *START)
    for computed, other in zip(uk.project(REDUNDANT, *START, pinv=method), expected, strict=True):
        np.testing.assert_allclose(computed, other, atol=1e-12)


class Spy(uk.AbstractPseudoinverse):
    """A user's method: NumPy's answer for rows of full rank, and how often JAX traced it."""

    rcond: float | None = None
    traced = []  # noqa: RUF012

    def of_unit_rows(self, B):
        self.traced.append(B.shape)
        return jnp.linalg.solve(B @ B.T, B).T, jnp.asarray(len(B))


def test_the_method_given_is_used():
    expected = uk.project(PLAIN, *START)
    for computed, other in zip(uk.project(PLAIN, *START, pinv=Spy()), expected, strict=True):
        np.testing.assert_allclose(computed, other, atol=1e-12)
    assert Spy.traced


def test_consistent_states_stay():
    once = uk.project(PLAIN, *START)
    again = uk.project(PLAIN, START[0], *once)
    for first, second in zip(once, again, strict=True):
        np.testing.assert_allclose(second, first, atol=1e-14)
    problem = uk.models.slider_crank()
    for before, after in zip((problem.q0, problem.v0), uk.project(problem), strict=True):
        np.testing.assert_allclose(after, before, atol=1e-13)


def test_quaternions_return_to_unit_length():
    """Quasi-velocities: G G^T phi_q^T with G G^T = N M^-1 N^T + (I - N N^+), the norm outside their reach."""
    top = uk.models.spinning_top().system
    M = np.diag([1.25, 1.0, 0.5])

    def rows(t, q):
        tilt = 1 - 2 * (q[1] ** 2 + q[2] ** 2)
        return jnp.stack([jnp.dot(q, q) - 1, tilt - jnp.cos(0.8 + 0.1 * t)])

    system = uk.System(
        M,
        jnp.zeros(3),
        [uk.Holonomic(rows, name="unit and tilt")],
        kinematics=lambda t, q, v: top.kinematics(t, q, v),
    )
    q, v = jnp.asarray([0.9, 0.5, -0.2, 0.15]), jnp.asarray([0.3, -0.4, 2.0])
    q1, v1 = uk.project(system, 0.5, q, v)
    after = _rows(system, *state(0.5, q1, v1))
    assert np.abs(after.position_error).max() < 1e-12
    assert np.abs(after.velocity_error).max() < 1e-12
    np.testing.assert_allclose(jnp.dot(q1, q1), 1.0, atol=1e-13)
    by_v, by_q = lambda v: top.kinematics(0.0, q, v), lambda q: rows(0.5, q)
    N, J = map(np.asarray, jax.jit(lambda q, v: (jax.jacfwd(by_v)(v), jax.jacfwd(by_q)(q)))(q, v))
    metric = N @ np.linalg.inv(M) @ N.T + np.eye(4) - N @ np.linalg.pinv(N)
    _in_range(np.asarray(q1 - q), metric @ J.T, 1e-11)
    there = _rows(system, *state(0.5, q1, v))
    _in_range(np.asarray(v1 - v), np.linalg.solve(M, np.asarray(there.A).T), 1e-12)


def test_far_starts_arrive():
    """A pendulum's mass from 4 rod lengths away, a chain pulled apart, a linkage far out of joint."""
    rng = np.random.default_rng(0)
    for problem, size in (
        (uk.models.pendulum(), 4.0),
        (uk.models.n_pendulum(3), 0.8),
        (uk.models.slider_crank(), 0.15),
    ):
        for _ in range(3):
            q = problem.q0 + size * rng.normal(size=problem.q0.size)
            v = 10 * rng.normal(size=problem.v0.size)
            after = _rows(problem.system, *state(0.0, *uk.project(problem.system, 0.0, q, v)))
            assert np.abs(after.position_error).max() < 1e-12
            assert np.abs(after.velocity_error).max() < 1e-11


def test_unsatisfiable_constraints_are_named():
    rods = (
        uk.Holonomic(lambda t, q: jnp.dot(q, q) - 1.0, name="short rod"),
        uk.Holonomic(lambda t, q: jnp.dot(q, q) - 4.0, name="long rod"),
        uk.Holonomic(lambda t, q: q[2], name="plane"),
    )
    system = uk.System(jnp.eye(3), jnp.zeros(3), rods)
    with pytest.raises(uk.InputError) as error:
        uk.project(system, 0.0, np.array([1.2, 0.3, 0.1]), np.zeros(3))
    message = str(error.value)
    assert "short rod" in message
    assert "long rod" in message
    assert "plane" not in message
    assert "\n" not in message
    rates = (
        uk.Nonholonomic(lambda t, q, v: v[0] - 1.0, name="right"),
        uk.Nonholonomic(lambda t, q, v: v[0] + 1.0, name="left"),
    )
    with pytest.raises(uk.InputError, match=r"right.*left"):
        uk.project(uk.System(jnp.eye(3), jnp.zeros(3), rates), 0.0, np.zeros(3), np.zeros(3))


def test_velocity_constraints_that_are_not_linear():
    """|v| = 2 from |v| = 0.3, by repeated Gauss-Newton steps."""
    row = uk.Nonholonomic(lambda t, q, v: jnp.dot(v, v) - 4.0, name="speed")
    system = uk.System(jnp.eye(3), jnp.zeros(3), [row])
    v = jnp.asarray([0.1, 0.2, 0.2])
    np.testing.assert_allclose(uk.project(system, 0.0, jnp.zeros(3), v)[1], v / 0.15, atol=1e-12)


# Derivatives


def _projected(x):
    """(q*, v*) as one vector, from (q, v, t, radius, drift) as one vector."""
    q, v, t, radius, drift = x[:4], x[4:8], x[8], x[9], x[10]
    rows = [uk.Holonomic(Path(radius), name="path"), uk.Nonholonomic(Slip(drift), name="slip")]
    return jnp.concatenate(uk.project(uk.System(_MASS, jnp.zeros(4), rows), t, q, v))


def _projected_redundant(x):
    q, v, t, radius, drift = x[:4], x[4:8], x[8], x[9], x[10]
    rows = [
        uk.Holonomic(Path(radius), name="path"),
        uk.Holonomic(Twice(Path(radius)), name="twice"),
        uk.Nonholonomic(Slip(drift), name="slip"),
    ]
    return jnp.concatenate(uk.project(uk.System(_MASS, jnp.zeros(4), rows), t, q, v))


def _point(consistent):
    t, q, v = START
    if consistent:
        q, v = uk.project(PLAIN, t, q, v)
    return jnp.concatenate([q, v, t[None], jnp.asarray([1.2, 0.3])])


# Rows that depend on each other take every step that others do.
FUNCTIONS = pytest.mark.parametrize(
    "fn",
    [
        pytest.param(_projected, marks=pytest.mark.slow, id="independent"),
        pytest.param(_projected_redundant, id="redundant"),
    ],
)


@functools.partial(jax.jit, static_argnums=0)
def _value_and_derivatives(fn, x, direction, weights):
    _, pull = jax.vjp(fn, x)
    return *jax.jvp(fn, (x,), (direction,)), pull(weights)[0]


@pytest.mark.parametrize("consistent", [True, False], ids=["consistent", "inconsistent"])
@FUNCTIONS
def test_first_derivatives(fn, consistent):
    """By each of q, v, t and the constraints' parameters forwards, and by all backwards, against central differences."""
    x, weights = _point(consistent), jnp.asarray(np.random.default_rng(0).normal(size=8))
    derivatives = lambda x, e: _value_and_derivatives(fn, x, jnp.asarray(e), weights)
    columns = [central(lambda s, e=e: derivatives(x + s * e, e)[0]) for e in np.eye(x.size)]
    found = [derivatives(x, e)[1] for e in np.eye(x.size)]
    np.testing.assert_allclose(found, columns, atol=1e-7)
    gradient = derivatives(x, np.eye(x.size)[0])[2]
    np.testing.assert_allclose(gradient, np.stack(columns) @ weights, atol=1e-7)


@pytest.mark.parametrize("mode", ["reverse", pytest.param("forward", marks=pytest.mark.slow)])
@FUNCTIONS
def test_second_derivatives(fn, mode):
    """Of a weighted sum, by jvp over each mode, against central differences of the first."""
    x = _point(consistent=False)
    weights, direction = (jnp.asarray(np.random.default_rng(i).normal(size=n)) for i, n in ((0, 8), (1, 11)))

    weighted = lambda x: weights @ fn(x)
    slope = lambda x: jax.jvp(weighted, (x,), (direction,))[1]
    first = jax.grad(weighted) if mode == "reverse" else slope
    derivatives = jax.jit(lambda x: jax.jvp(first, (x,), (direction,)))
    expected = central(lambda s: derivatives(x + s * direction)[0])
    np.testing.assert_allclose(derivatives(x)[1], expected, atol=1e-6)


def test_derivative_by_what_the_rows_do_not_see():
    """By the force alone, with t, q and v constants: zero, in both modes, not an error."""

    def projected(force):
        rows = [
            uk.Holonomic(Path(jnp.asarray(1.2)), name="path"),
            uk.Nonholonomic(Slip(jnp.asarray(0.3)), name="slip"),
        ]
        return jnp.concatenate(uk.project(uk.System(_MASS, force, rows), *START))

    @jax.jit
    def derivatives(force, direction, weights):
        change = jax.jvp(projected, (force,), (direction,))[1]
        return change, jax.vjp(projected, force)[1](weights)[0]

    rng = np.random.default_rng(0)
    for found in derivatives(jnp.ones(4), *(jnp.asarray(rng.normal(size=n)) for n in (4, 8))):
        np.testing.assert_array_equal(found, np.zeros(found.shape))


def test_a_single_precision_state_of_a_double_precision_system():
    """Its rows are float64; the state stays float32, and is that of float64 rounded, within jit too."""
    problem = uk.models.slider_crank()
    q, v = problem.q0 + 1e-3, problem.v0
    project = lambda q, v: uk.project(problem.system, 0.0, q, v)[0]
    with jax.numpy_dtype_promotion("standard"):
        found = jax.jit(project)(q.astype(jnp.float32), v.astype(jnp.float32))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, project(q, v), atol=1e-6)


def test_inertia_of_a_thin_rod_is_not_lost_in_float32() -> None:
    """Beside 33 kg, in closed form: the two angles of a row take an equal share of its error."""
    inertia, zero = jnp.diag(jnp.array([33.0, 1e-6, 1e-6], jnp.float32)), jnp.zeros(3, jnp.float32)
    system = uk.System(inertia, zero, [uk.Holonomic(lambda t, q: q[1] + q[2], name="angles")])
    q, _ = jax.jit(lambda q: uk.project(system, 0.0, q, zero))(jnp.array([1.0, 0.3, 0.1], jnp.float32))
    np.testing.assert_allclose(q, [1.0, 0.1, -0.1], atol=1e-4)
