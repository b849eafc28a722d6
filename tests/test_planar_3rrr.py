"""The planar 3RRR mechanism against joint coordinates integrated by SciPy, and its hierarchy (Orsino 2017)."""

import itertools

import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

import ukjax as uk

L, MASS, RADIUS, PLATFORM, INERTIA = 0.8, 1.0, 0.3, 2.0, 0.05
ANGLES = np.radians([90.0, 210.0, 330.0])
FULL_EXTENSION = (0.45298, 0.57946)
"""When a leg is stretched [s]: models.md's definition, integrated independently."""


def _e(angle):
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def _n(angle):
    return np.stack([-np.sin(angle), np.cos(angle)], axis=-1)


def acceleration(x, rate):
    """x'' for x = (proximal 1, distal 1, ..., distal 3, x, y, phi): nine coordinates, six closing rows.

    A leg in absolute link angles has M = m l^2 [[4/3, c/2], [c/2, 1/3]], c = cos(a - b), and the closing rows say
    pivot + l e(a) + l e(b) = centre + r e(phi + vertex).
    """
    M, Q, A, b = np.zeros((9, 9)), np.zeros(9), np.zeros((6, 9)), np.zeros(6)
    ml2, weight = MASS * L**2, MASS * oracles.GRAVITY * L
    for k in range(3):
        i, j, rows = 2 * k, 2 * k + 1, slice(2 * k, 2 * k + 2)
        a, d, vertex = x[i], x[j], x[8] + ANGLES[k]
        M[i, i], M[j, j] = ml2 * 4 / 3, ml2 / 3
        M[i, j] = M[j, i] = ml2 * np.cos(a - d) / 2
        Q[i] = -ml2 / 2 * np.sin(a - d) * rate[j] ** 2 - 1.5 * weight * np.cos(a)
        Q[j] = ml2 / 2 * np.sin(a - d) * rate[i] ** 2 - 0.5 * weight * np.cos(d)
        A[rows, i], A[rows, j] = L * _n(a), L * _n(d)
        A[rows, 6:8], A[rows, 8] = -np.eye(2), -RADIUS * _n(vertex)
        b[rows] = L * _e(a) * rate[i] ** 2 + L * _e(d) * rate[j] ** 2 - RADIUS * _e(vertex) * rate[8] ** 2
    M[6, 6] = M[7, 7] = PLATFORM
    M[8, 8] = INERTIA
    Q[7] = -PLATFORM * oracles.GRAVITY
    K = np.block([[M, A.T], [A, np.zeros((6, 6))]])
    return np.linalg.solve(K, np.concatenate([Q, b]))[:9]


def start(pose=(0.05, 0.1, 0.1)):
    x = np.zeros(9)
    x[6:] = pose
    for k in range(3):
        reach = x[6:8] + RADIUS * _e(x[8] + ANGLES[k]) - _e(ANGLES[k])
        along, bend = np.arctan2(reach[1], reach[0]), np.arccos(np.linalg.norm(reach) / (2 * L))
        x[2 * k : 2 * k + 2] = along + bend, along - bend
    return x


def state(x, rate, rate_of_rate=None):
    """The 21 absolute coordinates, their rates and accelerations."""
    bend = acceleration(x, rate) if rate_of_rate is None else rate_of_rate
    q, v, a = [], [], []

    def arm(angle, w, w2):
        return L * np.stack([_e(angle), w * _n(angle), w2 * _n(angle) - w**2 * _e(angle)])

    for k in range(3):
        first, second = (arm(x[i], rate[i], bend[i]) for i in (2 * k, 2 * k + 1))
        pivot = np.stack([_e(ANGLES[k]), np.zeros(2), np.zeros(2)])
        for centre, i in ((pivot + first / 2, 2 * k), (pivot + first + second / 2, 2 * k + 1)):
            for out, part, last in zip((q, v, a), centre, (x[i], rate[i], bend[i]), strict=True):
                out += [*part, last]
    for out, last in zip((q, v, a), (x, rate, bend), strict=True):
        out += [*last[6:]]
    return np.array(q), np.array(v), np.array(a)


@pytest.fixture(scope="module")
def truth():
    ts = np.linspace(0.0, 1.0, 11)
    xs, rates = oracles.integrate(acceleration, start(), np.zeros(9), ts)
    q, v, _ = (np.stack(column) for column in zip(*map(state, xs, rates), strict=True))
    return ts, q, v


def test_start_is_as_defined():
    problem = uk.models.planar_3rrr()
    np.testing.assert_allclose(problem.q0, state(start(), np.zeros(9))[0], atol=1e-15)
    np.testing.assert_array_equal(problem.v0, np.zeros(21))
    assert (problem.t0, problem.t1) == (0.0, 1.0)
    rows = uk.constraint_rows(problem.system, 0.0, problem.q0, problem.v0)
    np.testing.assert_allclose(rows.position_error, 0.0, atol=1e-15)
    assert rows.A.shape == (18, 21)
    assert np.linalg.matrix_rank(rows.A) == 18


def test_levels_are_modules_chains_mechanism():
    problem = uk.models.planar_3rrr()
    levels = problem.system.levels
    assert sum(levels, ()) == tuple(c.name for c in problem.system.constraints)
    rows = uk.constraint_rows(problem.system, 0.0, problem.q0, problem.v0)
    A = np.asarray(rows.A).reshape(3, 6, 7, 3)
    touched = (A != 0).any(axis=3)  # level, row, body
    assert (touched[0].sum(axis=1) == 1).all()
    legs = touched.reshape(3, 3, 2, 7)
    for k in range(3):
        assert set(np.flatnonzero(legs[0, k].any(axis=0))) == {2 * k}
        assert set(np.flatnonzero(legs[1, k].any(axis=0))) == {2 * k, 2 * k + 1}
        assert set(np.flatnonzero(legs[2, k].any(axis=0))) == {2 * k + 1, 6}


@pytest.mark.parametrize("seed", range(3))
def test_acceleration_is_that_of_joint_coordinates(seed):
    rng = np.random.default_rng(seed)
    problem = uk.models.planar_3rrr()
    x = start(rng.uniform(-0.1, 0.1, size=3))
    # Rates that keep the legs closed: any of the platform, and those of the links by the closing rows.
    rate = np.zeros(9)
    rate[6:] = rng.normal(size=3)
    for k in range(3):
        i = 2 * k
        N = L * np.stack([_n(x[i]), _n(x[i + 1])], axis=1)
        rate[i : i + 2] = np.linalg.solve(N, rate[6:8] + rate[8] * RADIUS * _n(x[8] + ANGLES[k]))
    q, v, a = state(x, rate)
    formula = uk.Recursive(problem.system.levels)
    found = uk.recursive_levels(problem, 0.0, q, v, formula=formula)
    for level, result in enumerate(found, start=1):
        part = uk.at_level(problem.system, formula.levels, level)
        whole = uk.UdwadiaKalaba().acceleration(part, 0.0, q, v)
        np.testing.assert_allclose(result.a, whole.a, rtol=0, atol=1e-12 * np.abs(whole.a).max())
        assert int(result.rank) == 6 * level
    np.testing.assert_allclose(found[-1].a, a, rtol=0, atol=1e-11 * np.abs(a).max())


@pytest.mark.slow
def test_simulation_is_that_of_joint_coordinates(truth):
    ts, q, v = truth
    problem = uk.models.planar_3rrr()
    formulas = (uk.UdwadiaKalaba(), uk.Recursive(problem.system.levels))
    runs = [uk.simulate(problem, ts=ts, formula=f, rtol=1e-12, atol=1e-12) for f in formulas]
    for run in runs:
        assert run.ok
        np.testing.assert_allclose(run.q, q, rtol=0, atol=1e-8)
        np.testing.assert_allclose(run.v, v, rtol=0, atol=1e-7)
        assert np.abs(run.position_error).max() < 1e-13
        assert np.ptp(run.energy) < 1e-9
    np.testing.assert_allclose(runs[0].q, runs[1].q, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_the_models_of_lower_levels_can_be_simulated():
    """At level 0 all bodies fall; at level 1 the proximal links are pendulums, and the rest falls."""
    problem = uk.models.planar_3rrr()
    levels = problem.system.levels
    fall = -0.5 * oracles.GRAVITY * 0.5**2
    for level, free in ((0, range(7)), (1, (1, 3, 5, 6)), (2, (6,))):
        system = uk.at_level(problem.system, levels, level)
        run = uk.simulate(system, problem.q0, problem.v0, t1=0.5, ts=2)
        drop = (run.q[-1] - run.q[0]).reshape(7, 3)
        for body in free:
            np.testing.assert_allclose(drop[body], [0, fall, 0], atol=1e-9)
        assert np.all(np.asarray(run.rank) == 6 * level)
    link = np.asarray(problem.q0)[2]
    angle, _ = oracles.pendulum_elliptic(0.5, link + np.pi / 2, 0.0, 1.5 * oracles.GRAVITY / L)
    run = uk.simulate(uk.at_level(problem.system, levels, 1), problem.q0, problem.v0, t1=0.5, ts=2)
    np.testing.assert_allclose(run.q[-1, 2], angle - np.pi / 2, atol=1e-7)


def test_legs_are_stretched_when_they_should_be():
    """The times at which a leg passes full extension: the sine of its elbow's angle changes sign."""
    dense = solve_ivp(
        lambda t, y: np.concatenate([y[9:], acceleration(y[:9], y[9:])]),
        (0.0, 0.65),
        np.concatenate([start(), np.zeros(9)]),
        "DOP853",
        rtol=1e-12,
        atol=1e-12,
        dense_output=True,
    ).sol
    bend = lambda t, k: np.sin(dense(t)[2 * k] - dense(t)[2 * k + 1])
    ts = np.linspace(0.0, 0.65, 131)
    times = sorted(
        brentq(bend, lo, hi, args=(k,))
        for k in range(3)
        for lo, hi in itertools.pairwise(ts)
        if bend(lo, k) * bend(hi, k) < 0
    )
    np.testing.assert_allclose(times, FULL_EXTENSION, atol=5e-6)


def test_parameters():
    problem = uk.models.planar_3rrr(length=1.0, x=0.0, y=0.0, phi=0.0)
    rows = uk.constraint_rows(problem.system, 0.0, problem.q0, problem.v0)
    np.testing.assert_allclose(rows.position_error, 0.0, atol=1e-15)
    points = problem.points(0.0, problem.q0)
    assert set(points) == {"platform", "elbow1", "elbow2", "elbow3"}
    np.testing.assert_allclose(np.linalg.norm(points["elbow2"] - jnp.asarray(_e(ANGLES[1]))), 1.0)
    with pytest.raises(uk.InputError, match="within reach"):
        uk.models.planar_3rrr(x=1.5)
    with pytest.raises(uk.InputError, match="platform_inertia"):
        uk.models.planar_3rrr(platform_inertia=0.0)
