"""The planar mechanisms of RR modules (Orsino 2017) against joint coordinates by SciPy, and their hierarchies."""

import itertools
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

import ukjax as uk

L, MASS, RADIUS, PLATFORM, INERTIA = 0.8, 1.0, 0.3, 2.0, 0.05
FULL_EXTENSION = (0.45298, 0.57946)
"""When a leg of planar_3rrr is stretched [s]: its definition, integrated independently."""

_rows = eqx.filter_jit(uk.constraint_rows)


def _e(angle):
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def _n(angle):
    return np.stack([-np.sin(angle), np.cos(angle)], axis=-1)


class Mechanism(NamedTuple):
    """Legs with pivots, in joint coordinates x = (proximal 1, distal 1, proximal 2, ..., those of what moves on).

    With a platform the tips sit at its vertices and x ends with its pose (x, y, phi); without, all tips meet.
    """

    pivots: np.ndarray
    vertices: np.ndarray | None
    pose: tuple[float, ...]

    @property
    def legs(self) -> int:
        return len(self.pivots)

    @property
    def links(self) -> int:
        return 2 * self.legs

    @property
    def closing(self) -> int:
        """How many rows close the loops."""
        return 2 * (self.legs if self.vertices is not None else self.legs - 1)

    def tips(self, pose):
        """Where the legs end, the platform (or the common tip) being at that pose."""
        if self.vertices is None:
            return [np.asarray(pose)] * self.legs
        return [pose[:2] + RADIUS * _e(pose[2] + vertex) for vertex in self.vertices]

    def start(self, pose=None):
        pose = np.asarray(self.pose if pose is None else pose)
        x = []
        for pivot, tip in zip(self.pivots, self.tips(pose), strict=True):
            reach = tip - pivot
            along, bend = np.arctan2(reach[1], reach[0]), np.arccos(np.linalg.norm(reach) / (2 * L))
            x += [along + bend, along - bend]
        return np.array(x if self.vertices is None else [*x, *pose])

    def closed_rates(self, x, rate):
        """Rates that keep the loops closed: those of the platform or the tip as given, of the links by them."""
        found = np.zeros(x.size)
        if self.vertices is not None:
            found[self.links :] = rate
        for k in range(self.legs):
            tip_rate = np.array(rate[:2])
            if self.vertices is not None:
                tip_rate += rate[2] * RADIUS * _n(x[-1] + self.vertices[k])
            i = 2 * k
            found[i : i + 2] = np.linalg.solve(L * np.stack([_n(x[i]), _n(x[i + 1])], axis=1), tip_rate)
        return found

    def _loops(self, x, rate):
        """A and b of the closing rows: of leg k, pivot + l e(a) + l e(b) is its vertex, or the next leg's tip."""
        A, b = np.zeros((self.closing, x.size)), np.zeros(self.closing)
        for k in range(self.closing // 2):
            rows = slice(2 * k, 2 * k + 2)
            both = [(k, 1.0)] if self.vertices is not None else [(k, 1.0), (k + 1, -1.0)]
            for leg, sign in both:
                for i in (2 * leg, 2 * leg + 1):
                    A[rows, i] = sign * L * _n(x[i])
                    b[rows] += sign * L * _e(x[i]) * rate[i] ** 2
            if self.vertices is not None:
                vertex = x[-1] + self.vertices[k]
                A[rows, -3:-1], A[rows, -1] = -np.eye(2), -RADIUS * _n(vertex)
                b[rows] -= RADIUS * _e(vertex) * rate[-1] ** 2
        return A, b

    def acceleration(self, x, rate):
        """x''; a leg in absolute link angles has M = m l^2 [[4/3, c/2], [c/2, 1/3]], c = cos(a - b)."""
        M, Q = np.zeros((x.size, x.size)), np.zeros(x.size)
        ml2, weight = MASS * L**2, MASS * oracles.GRAVITY * L
        for i in range(0, self.links, 2):
            j, a, d = i + 1, x[i], x[i + 1]
            M[i, i], M[j, j] = ml2 * 4 / 3, ml2 / 3
            M[i, j] = M[j, i] = ml2 * np.cos(a - d) / 2
            Q[i] = -ml2 / 2 * np.sin(a - d) * rate[j] ** 2 - 1.5 * weight * np.cos(a)
            Q[j] = ml2 / 2 * np.sin(a - d) * rate[i] ** 2 - 0.5 * weight * np.cos(d)
        if self.vertices is not None:
            M[-3:, -3:] = np.diag([PLATFORM, PLATFORM, INERTIA])
            Q[-2] = -PLATFORM * oracles.GRAVITY
        A, b = self._loops(x, rate)
        K = np.block([[M, A.T], [A, np.zeros((len(b), len(b)))]])
        return np.linalg.solve(K, np.concatenate([Q, b]))[: x.size]

    def state(self, x, rate, bend=None):
        """The absolute coordinates of all bodies, their rates and accelerations."""
        bend = self.acceleration(x, rate) if bend is None else bend
        q, v, a = [], [], []

        def arm(i):
            angle, w, w2 = x[i], rate[i], bend[i]
            return L * np.stack([_e(angle), w * _n(angle), w2 * _n(angle) - w**2 * _e(angle)])

        for k, point in enumerate(self.pivots):
            first, second = arm(2 * k), arm(2 * k + 1)
            pivot = np.stack([point, np.zeros(2), np.zeros(2)])
            for centre, i in ((pivot + first / 2, 2 * k), (pivot + first + second / 2, 2 * k + 1)):
                for out, part, last in zip((q, v, a), centre, (x[i], rate[i], bend[i]), strict=True):
                    out += [*part, last]
        for out, last in zip((q, v, a), (x, rate, bend), strict=True):
            out += [*last[self.links :]]
        return np.array(q), np.array(v), np.array(a)


def _with_platform(*angles):
    angles = np.radians(angles)
    return Mechanism(_e(angles), angles, (0.05, 0.1, 0.1))


MECHANISMS = {
    "five_bar": Mechanism(np.array([[-0.5, 0.0], [0.5, 0.0]]), None, (0.05, -0.9)),
    "planar_2rrr": _with_platform(30.0, 150.0),
    "planar_3rrr": _with_platform(90.0, 210.0, 330.0),
    "planar_4rrr": _with_platform(45.0, 135.0, 225.0, 315.0),
}
NEW = ("five_bar", "planar_2rrr", "planar_4rrr")


@pytest.fixture(scope="module", params=MECHANISMS)
def mechanism(request):
    """The problem, and the mechanism in joint coordinates."""
    return uk.models.get(request.param), MECHANISMS[request.param]


def _by_joint_coordinates(mechanism, ts):
    x0 = mechanism.start()
    xs, rates = oracles.integrate(mechanism.acceleration, x0, np.zeros(x0.size), ts)
    q, v, _ = (np.stack(column) for column in zip(*map(mechanism.state, xs, rates), strict=True))
    return q, v


def test_start_is_as_defined(mechanism):
    problem, joints = mechanism
    x0 = joints.start()
    n, m = 3 * (joints.links + (joints.vertices is not None)), 4 * joints.legs + joints.closing
    np.testing.assert_allclose(problem.q0, joints.state(x0, np.zeros(x0.size))[0], atol=1e-15)
    np.testing.assert_array_equal(problem.v0, np.zeros(n))
    assert (problem.t0, problem.t1) == (0.0, 1.0)
    rows = _rows(problem.system, 0.0, problem.q0, problem.v0)
    np.testing.assert_allclose(rows.position_error, 0.0, atol=1e-15)
    assert rows.A.shape == (m, n)
    assert np.linalg.matrix_rank(rows.A) == m


def test_drawing(mechanism):
    """Legs of two links from the pivots to where they end, on the corners of a closed platform or in one point."""
    problem, joints = mechanism
    lines = problem.system.drawing(0.0, problem.q0)
    legs = [np.asarray(lines.pop(f"leg {k + 1}")) for k in range(joints.legs)]
    for leg, pivot, tip in zip(legs, joints.pivots, joints.tips(joints.pose), strict=True):
        np.testing.assert_allclose(leg[[0, 2]], [pivot, tip], atol=1e-15)
        np.testing.assert_allclose(np.linalg.norm(np.diff(leg, axis=0), axis=1), L)
    if joints.vertices is None:
        assert not lines
    else:
        np.testing.assert_allclose(lines["platform"], [*(leg[2] for leg in legs), legs[0][2]], atol=1e-15)


def test_levels_are_modules_chains_mechanism(mechanism):
    problem, joints = mechanism
    levels = problem.system.levels
    assert sum(levels, ()) == tuple(c.name for c in problem.system.constraints)
    rows = _rows(problem.system, 0.0, problem.q0, problem.v0)
    touched = (np.asarray(rows.A).reshape(len(rows.names), -1, 3) != 0).any(axis=2)  # row, body
    touched = touched.reshape(-1, 2, touched.shape[1]).any(axis=1)  # joint, body
    bodies = [set(np.flatnonzero(row)) for row in touched]
    legs = range(joints.legs)
    assert bodies[: joints.legs] == [{2 * k} for k in legs]
    assert bodies[joints.legs : 2 * joints.legs] == [{2 * k, 2 * k + 1} for k in legs]
    platform = 2 * joints.legs
    last = [{1, 3}] if joints.vertices is None else [{2 * k + 1, platform} for k in legs]
    assert bodies[2 * joints.legs :] == last


@pytest.mark.parametrize(
    "mechanism",
    [pytest.param(name, marks=() if name == "five_bar" else pytest.mark.slow) for name in MECHANISMS],
    indirect=True,
)
def test_acceleration_is_that_of_joint_coordinates(mechanism):
    problem, joints = mechanism
    formula = uk.Recursive(problem.system.levels)
    sizes = np.cumsum([2 * len(level) for level in formula.levels])
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = joints.start(np.array(joints.pose) + rng.uniform(-0.1, 0.1, size=len(joints.pose)))
        rate = joints.closed_rates(x, rng.normal(size=len(joints.pose)))
        q, v, a = joints.state(x, rate)
        found = uk.recursive_levels(problem, 0.0, q, v, formula=formula)
        whole = uk.UdwadiaKalaba().acceleration(problem.system, 0.0, q, v)
        assert [int(result.rank) for result in found] == list(sizes)
        np.testing.assert_allclose(found[-1].a, whole.a, rtol=0, atol=1e-12 * np.abs(a).max())
        np.testing.assert_allclose(found[-1].a, a, rtol=0, atol=1e-11 * np.abs(a).max())


@pytest.mark.slow
def test_every_level_is_the_acceleration_all_at_once():
    """The lower levels of planar_3rrr: the same constraints, enforced by the other formula."""
    problem, joints = uk.models.planar_3rrr(), MECHANISMS["planar_3rrr"]
    levels = problem.system.levels
    x = joints.start((0.1, 0.0, -0.1))
    q, v, _ = joints.state(x, joints.closed_rates(x, np.array([1.0, -2.0, 3.0])))
    found = uk.recursive_levels(problem, 0.0, q, v, formula=uk.Recursive(levels))
    for level, result in enumerate(found, start=1):
        part = uk.at_level(problem.system, levels, level)
        whole = uk.UdwadiaKalaba().acceleration(part, 0.0, q, v)
        np.testing.assert_allclose(result.a, whole.a, rtol=0, atol=1e-12 * np.abs(whole.a).max())


@pytest.mark.slow
def test_simulation_is_that_of_joint_coordinates(mechanism):
    problem, joints = mechanism
    ts = np.linspace(0.0, 1.0, 11)
    q, v = _by_joint_coordinates(joints, ts)
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
@pytest.mark.parametrize("name", ["planar_3rrr", "five_bar"])
def test_the_models_of_lower_levels_can_be_simulated(name):
    """At level 0 all bodies fall; at level 1 proximal links are pendulums; at level 2 legs are double pendulums."""
    problem, joints = uk.models.get(name), MECHANISMS[name]
    levels = problem.system.levels
    bodies = problem.q0.size // 3
    platform = range(joints.links, bodies)
    fall = -0.5 * oracles.GRAVITY * 0.5**2
    runs = [
        uk.simulate(uk.at_level(problem.system, levels, level), problem.q0, problem.v0, t1=0.5, ts=2)
        for level in range(3)
    ]
    for run, free in zip(
        runs, (range(bodies), [*range(1, joints.links, 2), *platform], platform), strict=True
    ):
        drop = (run.q[-1] - run.q[0]).reshape(-1, 3)
        for body in free:
            np.testing.assert_allclose(drop[body], [0, fall, 0], atol=1e-9)
    for level, run in enumerate(runs):
        assert np.all(np.asarray(run.rank) == 2 * joints.legs * level)
    angle, _ = oracles.pendulum_elliptic(0.5, problem.q0[2] + np.pi / 2, 0.0, 1.5 * oracles.GRAVITY / L)
    np.testing.assert_allclose(runs[1].q[-1, 2], angle - np.pi / 2, atol=1e-7)
    open_legs = joints._replace(vertices=None, pivots=joints.pivots[:1])
    (x, _) = oracles.integrate(open_legs.acceleration, joints.start()[:2], np.zeros(2), [0.0, 0.5])
    np.testing.assert_allclose(runs[2].q[-1, [2, 5]], x[-1], atol=1e-6)


def test_legs_of_planar_3rrr_are_stretched_when_they_should_be():
    """The times at which a leg passes full extension: the sine of its elbow's angle changes sign."""
    joints = MECHANISMS["planar_3rrr"]
    dense = solve_ivp(
        lambda t, y: np.concatenate([y[9:], joints.acceleration(y[:9], y[9:])]),
        (0.0, 0.65),
        np.concatenate([joints.start(), np.zeros(9)]),
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


def test_four_drives_of_planar_4rrr_are_one_too_many():
    """Proximal links that all turn as they would anyway: 28 rows of rank 27, and no force to speak of."""
    problem, joints = uk.models.planar_4rrr(), MECHANISMS["planar_4rrr"]
    x = joints.start((0.0, 0.05, 0.2))
    q, v, a = joints.state(x, joints.closed_rates(x, np.array([0.5, -1.0, 2.0])))
    proximal = np.arange(2, 24, 6)
    drives = uk.AccelerationConstraint(
        lambda t, q, v: (jnp.eye(27)[proximal], jnp.asarray(a)[proximal]), name="drive"
    )
    driven = uk.System(
        problem.system.mass_matrix, problem.system.force, (*problem.system.constraints, drives)
    )
    found = uk.UdwadiaKalaba().acceleration(driven, 0.0, q, v)
    assert int(found.rank) == 27
    np.testing.assert_allclose(found.a, a, rtol=0, atol=1e-9 * np.abs(a).max())


def test_parameters():
    problem = uk.models.planar_3rrr(length=1.0, x=0.0, y=0.0, phi=0.0)
    rows = _rows(problem.system, 0.0, problem.q0, problem.v0)
    np.testing.assert_allclose(rows.position_error, 0.0, atol=1e-15)
    points = problem.points(0.0, problem.q0)
    assert set(points) == {"platform", "elbow1", "elbow2", "elbow3"}
    pivot = jnp.asarray(MECHANISMS["planar_3rrr"].pivots[1])
    np.testing.assert_allclose(np.linalg.norm(points["elbow2"] - pivot), 1.0)
    tip = uk.models.five_bar(x=0.1).points
    np.testing.assert_allclose(tip(0.0, uk.models.five_bar(x=0.1).q0)["tip"], [0.1, -0.9], atol=1e-15)
    for name, wrong in (("planar_3rrr", "platform_inertia"), ("planar_2rrr", "mass"), ("five_bar", "base")):
        with pytest.raises(uk.InputError, match="within reach"):
            uk.models.get(name, x=2.5)
        with pytest.raises(uk.InputError, match=wrong):
            uk.models.get(name, **{wrong: 0.0})
