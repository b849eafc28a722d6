"""Systems of any order against closed forms, SciPy and, at order two, the ordinary constraints."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from helpers import central
from scipy.integrate import solve_ivp

import ukjax as uk

SLOW = pytest.mark.slow
_constraint_rows = eqx.filter_jit(uk.constraint_rows)


def _at(system, x, formula=uk.UdwadiaKalaba()):
    return formula.acceleration(system, 0.3, *system.state(jnp.asarray(x)))


# Order two is the ordinary case


def _mass(t, q):
    return jnp.diag(2.0 + q**2)


def _force(t, q, v):
    return -q + v[::-1] * q


def _bowl(t, q):
    return q[2] - q[0] ** 2 * q[1] - jnp.sin(t)


def _rolling(t, q, v):
    return jnp.stack([v[0] * q[1] - v[1] * jnp.exp(t * q[2])])


def _rows(t, q, v):
    return jnp.array([[0.5, 1.0, -1.0]]), jnp.stack([q[0] * v[1]])


def _as_function(t, q, v, a):
    A, b = _rows(t, q, v)
    return A @ a - b


def test_of_order_two_it_is_the_ordinary_system():
    system = uk.AnyOrderSystem(
        2, _mass, _force, [uk.OfOrder(0, _bowl), uk.OfOrder(1, _rolling), uk.OfOrder(2, _as_function)]
    )
    ordinary = uk.System(
        _mass, _force, [uk.Holonomic(_bowl), uk.Nonholonomic(_rolling), uk.AccelerationConstraint(_rows)]
    )
    x = np.random.default_rng(0).normal(size=(2, 3))
    t, q, v = 0.3, *system.state(x)
    rows, expected = (_constraint_rows(s, t, q, v) for s in (system, ordinary))
    for name in ("A", "b", "position_error", "velocity_error"):
        np.testing.assert_allclose(getattr(rows, name), getattr(expected, name), rtol=1e-13, atol=1e-13)
    assert rows.kinds == expected.kinds
    a = uk.UdwadiaKalaba().acceleration(ordinary, t, q, v).a
    np.testing.assert_allclose(_at(system, x).a, a, rtol=1e-13, atol=1e-13)
    # And where position and velocity rows are moved onto:
    some = [s.constraints[:2] for s in (system, ordinary)]
    moved = [uk.project(uk.System(_mass, _force, c), t, q, v) for c in some]
    for one, other in zip(*moved, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


# Rows: of order k, and every derivative below


ORDERS = [
    pytest.param(k, j, marks=SLOW if (k, j) == (4, 0) else ()) for k in range(1, 5) for j in range(k + 1)
]


@pytest.mark.parametrize(("order", "of"), ORDERS)
def test_rows_are_the_total_derivatives(order, of):
    """Along q(t) = polynomial in t, each derivative of h is what differences of h say, and A q(k) = b its last."""
    coefficients = jnp.asarray(np.random.default_rng(order).normal(size=(order + 1, 2)))

    def orders(t):
        """(q0, ..., qk) at t."""
        found, path = [], lambda t: t ** jnp.arange(order + 1.0) @ coefficients
        for _ in range(order + 1):
            found.append(path(t))
            path = jax.jacfwd(path)
        return jnp.stack(found)

    weights = np.random.default_rng(of).normal(size=of + 1)

    def law(t, *x):
        below = sum(w * jnp.sin(y[0] * y[1] + t) for w, y in zip(weights, x[:-1], strict=False))
        last = jnp.sin(x[-1][0] * x[-1][1]) if of < order else x[-1][0] * jnp.cos(t) - 2 * x[-1][1]
        return below + last

    system = uk.AnyOrderSystem(order, jnp.eye(2), jnp.zeros(2), [uk.OfOrder(of, law, name="h")])

    @eqx.filter_jit
    def evaluated(t):
        x, derivative, expected = orders(t), lambda t: law(t, *orders(t)[: of + 1]), []
        for _ in range(order - of + 1):
            expected.append(derivative(t))
            derivative = jax.jacfwd(derivative)
        return x, uk.constraint_rows(system, t, *system.state(x[:-1])), jnp.stack(expected)

    x, rows, expected = evaluated(jnp.asarray(0.4))
    last = np.asarray(rows.A @ x[-1] - rows.b)[-1]
    np.testing.assert_allclose(last, expected[-1], rtol=1e-11, atol=1e-11)
    positions = order - 1 - of
    np.testing.assert_array_equal(rows.A[: max(positions - 1, 0)], 0.0)
    assert list(rows.names) == ["h" + "'" * i for i in range(max(positions, 1))]
    if positions > 0:
        np.testing.assert_allclose(rows.position_error, expected[:positions], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(rows.velocity_error, expected[1 : positions + 1], rtol=1e-12, atol=1e-12)
    elif positions == 0:
        np.testing.assert_allclose(rows.velocity_error, expected[:1], rtol=1e-12, atol=1e-12)


# Third order: the point on a helix


@pytest.fixture(scope="module")
def helix():
    problem = uk.models.jerk_point()
    ts = np.linspace(0.0, 3.0, 13)
    return problem, uk.simulate(problem, ts=ts, rtol=1e-10, atol=1e-10)


def test_jerk_point_is_its_closed_form(helix):
    problem, run = helix
    expected = jax.vmap(problem.reference)(run.t)
    assert run.ok
    np.testing.assert_allclose(run.q, expected, rtol=0, atol=1e-8)
    assert np.all(np.asarray(run.rank) == 2)
    report = str(uk.check(problem))
    assert "path[0] asks nothing of the acceleration" in report
    assert "1 degree of freedom" in report


def test_jerk_point_in_one_coordinate(helix):
    """The closed form itself: u''' = k u'^3 - rate^2 u' by SciPy, from rest with u'' = the model's."""
    problem, run = helix
    k = 0.5**2 / (0.5**2 + 0.2**2)
    start = [0.0, 0.0, float(problem.v0[2]) / 0.2]
    rate = lambda t, y: [y[1], y[2], k * y[1] ** 3 - y[1]]
    u = solve_ivp(rate, (0, 3), start, "DOP853", rtol=1e-12, atol=1e-12, t_eval=run.t).y
    np.testing.assert_allclose(run.q[:, 2], 0.2 * u[0], rtol=0, atol=1e-8)
    np.testing.assert_allclose(run.v[:, 2], 0.2 * u[2], rtol=0, atol=1e-8)


def test_projection_holds_the_path_and_its_rate_to_rounding(helix):
    """Of order 0 and 1, which are positions here, and of order 2."""
    problem, run = helix
    system = problem.system
    x = np.asarray(system.orders(run.q, run.v))
    assert x.shape == (13, 3, 3)
    angle = x[:, 0, 2] / 0.2
    tangent = np.stack([-0.5 * np.sin(angle), 0.5 * np.cos(angle), 0.2 * np.ones(13)], axis=1)
    along = np.einsum("ti,ti->t", x[:, 1], tangent) / np.sum(tangent**2, axis=1)
    np.testing.assert_allclose(x[:, 0, 0], 0.5 * np.cos(angle), rtol=0, atol=1e-14)
    np.testing.assert_allclose(x[:, 1], along[:, None] * tangent, rtol=0, atol=1e-14)
    assert run.max_position_error < 1e-14
    assert run.max_velocity_error < 1e-14


def test_projection_brings_all_orders_back():
    problem = uk.models.jerk_point()
    rng = np.random.default_rng(0)
    q, v = (x + 0.05 * rng.normal(size=x.size) for x in (problem.q0, problem.v0))
    q, v = uk.project(problem.system, 0.0, q, v)
    rows = _constraint_rows(problem.system, 0.0, q, v)
    for error in (rows.position_error, rows.velocity_error):
        np.testing.assert_allclose(error, 0.0, atol=1e-13)
    angle = float(q[2]) / 0.2
    np.testing.assert_allclose(q[:2], [0.5 * np.cos(angle), 0.5 * np.sin(angle)], atol=1e-13)


class Chain:
    """h = q on one coordinate: its error e of order 0 obeys a linear equation that can be solved by hand."""

    @staticmethod
    def law(t, q):
        return q

    @staticmethod
    def run(order, stabilizer, x, decay=0.0):
        system = uk.AnyOrderSystem(order, jnp.eye(1), jnp.ones(1), [uk.OfOrder(0, Chain.law)], decay=decay)
        q, v = system.state(x)
        options = {"stabilizer": stabilizer, "rtol": 1e-11, "atol": 1e-11, "start_tolerance": np.inf}
        run = uk.simulate(system, q, v, t1=1.0, ts=2, **options)
        return np.asarray(system.orders(run.q, run.v))[-1, :, 0]


@pytest.mark.slow
@pytest.mark.parametrize("order", [2, 3, 4])
def test_drift_of_every_stabilizer(order):
    """None: e is a polynomial. Baumgarte: (D^2 + alpha D + beta) (D + s)^(k-2) e = 0."""
    x = np.random.default_rng(order).normal(size=(order, 1))
    free = Chain.run(order, uk.NoStabilizer(), x)
    powers = np.array([1 / np.prod(np.arange(1.0, i + 1)) for i in range(order)])
    np.testing.assert_allclose(free[0], powers @ x[:, 0], rtol=1e-10)
    for decay in (0.0, 3.0):
        damped = Chain.run(order, uk.Baumgarte(4.0, 5.0), x, decay)
        polynomial = np.poly1d([1.0, 4.0, 5.0]) * np.poly1d([1.0, decay]) ** (order - 2)
        companion = np.eye(order, k=1)
        companion[-1] = -polynomial.coefficients[::-1][:-1]
        np.testing.assert_allclose(damped, scipy.linalg.expm(companion) @ x[:, 0], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(Chain.run(order, uk.Projection(), x), 0.0, atol=1e-14)


# First order


def test_first_order_kinematics():
    """Two points that move at given speeds, the distance between them kept: the mean speed, each."""
    law = uk.OfOrder(0, lambda t, q: q[1] - q[0] - 1.0, name="distance")
    system = uk.AnyOrderSystem(1, jnp.eye(2), jnp.array([1.0, 3.0]), [law])
    run = uk.simulate(system, *system.state([[0.0, 1.0]]), t1=2.0, ts=3)
    assert run.q.shape == (3, 0)
    np.testing.assert_allclose(system.orders(run.q, run.v)[-1], [[4.0, 5.0]], atol=1e-12)
    assert run.max_velocity_error < 1e-14


def test_first_order_network():
    """Resistor and capacitor in series: without inductance R q' = V - q/C + constraint, M = diag(R, 0) singular."""
    R, C, V = 2.0, 0.3, 5.0
    system = uk.AnyOrderSystem(
        1,
        jnp.diag(jnp.array([R, 0.0])),
        lambda t, q: jnp.stack([jnp.asarray(V), -q[1] / C]),
        [uk.OfOrder(0, lambda t, q: q[0] - q[1], name="Kirchhoff")],
    )
    start = system.state(jnp.zeros((1, 2)))
    run = uk.simulate(system, *start, t1=2.0, ts="steps", formula=uk.RangeForm(), rtol=1e-9, atol=1e-10)
    charge = C * V * (1 - np.exp(-run.t / (R * C)))
    np.testing.assert_allclose(run.v, np.stack([charge, charge], axis=1), atol=1e-8)


# The electric ladder


def _series(t, R, L, C, V):
    """Charge and current of the damped series circuit switched to V."""
    decay = R / (2 * L)
    w = np.sqrt(1 / (L * C) - decay**2)
    q = C * V * (1 - np.exp(-decay * t) * (np.cos(w * t) + decay / w * np.sin(w * t)))
    return q, V / (w * L) * np.exp(-decay * t) * np.sin(w * t)


@pytest.mark.parametrize(
    ("wire", "formula"),
    [
        pytest.param(0.1, "UdwadiaKalaba", marks=SLOW),
        pytest.param(0.0, "RangeForm", marks=SLOW),
        pytest.param(0.0, "StackedForm", marks=SLOW),
    ],
)
def test_series_circuit_is_its_closed_form(wire, formula):
    problem = uk.models.rlc_network(sections=1, wire=wire)
    run = uk.simulate(problem, ts="steps", formula=getattr(uk, formula)(), rtol=1e-9, atol=1e-9)
    assert run.ok
    q, i = _series(np.asarray(run.t), 0.5, 1.0 + 2 * wire, 0.25, 1.0)
    np.testing.assert_allclose(run.q, np.stack([q] * 3, axis=1), atol=2e-8)
    np.testing.assert_allclose(run.v, np.stack([i] * 3, axis=1), atol=2e-8)


def _ladder(ts, n, R, L, C, V, wire):
    """Currents i_k of the coils and charges of the capacitors, as the matrix exponential of their state space.

    (L + wire) i_k' = u_(k-1) - u_k - R i_k and u_k = q_k / C + wire (i_k - i_(k+1))', q_k' = i_k - i_(k+1).
    """
    D = np.eye(n) - np.eye(n, k=1)
    M = (L + wire) * np.eye(n) + wire * D.T @ D
    A = np.block([[-R * np.linalg.inv(M), -np.linalg.inv(M) @ D.T / C], [D, np.zeros((n, n))]])
    steady = np.concatenate([np.zeros(n), C * V * np.ones(n)])
    return np.stack([steady - scipy.linalg.expm(A * t) @ steady for t in ts])


@pytest.mark.slow
@pytest.mark.parametrize("formula", ["UdwadiaKalaba", "Recursive"])
def test_ladder_is_its_state_space(formula):
    problem = uk.models.rlc_network()
    run = uk.simulate(problem, ts="steps", formula=getattr(uk, formula)(), rtol=1e-9, atol=1e-9)
    expected = _ladder(np.asarray(run.t), 3, 0.5, 1.0, 0.25, 1.0, 0.1)
    np.testing.assert_allclose(run.v[:, 1::3], expected[:, :3], atol=2e-8)
    np.testing.assert_allclose(run.q[:, 2::3], expected[:, 3:], atol=2e-8)
    assert run.max_velocity_error < 1e-14


def test_multipliers_are_the_potentials_of_the_nodes():
    problem = uk.models.rlc_network(sections=2, wire=0.0)
    rng = np.random.default_rng(0)
    system, q, v = problem.system, rng.normal(size=6), jnp.zeros(6)
    found = uk.RangeForm().acceleration(system, 0.0, q, v)
    nodes = [i for i, name in enumerate(uk.constraint_rows(system, 0.0, q, v).names) if "node" in name]
    # Resistor and coil at one current: V - u_1 over the first coil, u_1 - u_2 over the second.
    u = -np.asarray(found.multipliers)[nodes]
    np.testing.assert_allclose(np.abs(u), np.abs(q[2::3] / 0.25), atol=1e-12)
    coils = np.asarray(found.a)[1::3]
    np.testing.assert_allclose(coils, [1.0 - q[2] / 0.25, (q[2] - q[5]) / 0.25], atol=1e-12)


@pytest.mark.slow
def test_energy_of_the_ladder_is_kept_without_resistance():
    run = uk.simulate(uk.models.rlc_network(sections=1, resistance=0.0), ts="steps", rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(run.energy, 0.0, atol=1e-9)


# Derivatives, and what is refused


def test_derivative_by_a_parameter():
    @jax.jit
    def force(radius):
        problem = uk.models.jerk_point(radius=radius)
        return uk.UdwadiaKalaba().acceleration(problem.system, 0.0, problem.q0, problem.v0).constraint_force

    np.testing.assert_allclose(
        jax.jit(jax.jacfwd(force))(0.5), central(lambda s: force(0.5 + s)), rtol=1e-8, atol=1e-8
    )


def test_what_is_refused():
    law = uk.OfOrder(2, lambda t, *x: x[0], name="law")
    for order in (0, 1.0, True):
        with pytest.raises(uk.InputError, match="order must be an integer of at least 1"):
            uk.AnyOrderSystem(order, jnp.eye(1), jnp.ones(1))
    with pytest.raises(uk.InputError, match="'law' is of order 2; the system is of order 1"):
        uk.AnyOrderSystem(1, jnp.eye(1), jnp.ones(1), [law])
    with pytest.raises(uk.InputError, match="OfOrder"):
        uk.AnyOrderSystem(1, jnp.eye(1), jnp.ones(1), [uk.Holonomic(lambda t, q: q)])
    with pytest.raises(uk.InputError, match="order must be an integer of at least 0"):
        uk.OfOrder(-1, lambda t, q: q)
    with pytest.raises(uk.InputError, match="function of"):
        uk.OfOrder(0, 3.0, name="law")
    with pytest.raises(uk.InputError, match="decay must be finite and not negative"):
        uk.AnyOrderSystem(1, jnp.eye(1), jnp.ones(1), decay=-1.0)
    with pytest.raises(uk.InputError, match="must be \\(2, n\\)"):
        uk.AnyOrderSystem(2, jnp.eye(1), jnp.ones(1)).state(jnp.ones(2))
    for name, wrong in (("wire", -1.0), ("sections", 0), ("resistance", -1.0), ("capacitance", 0.0)):
        with pytest.raises(uk.InputError, match=name):
            uk.models.rlc_network(**{name: wrong})
