"""Two robots that carry a load (Liu 2015, section V), against a closed form and the published torque ranges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import rows_of, state

import ukjax as uk

# shared/models.md: least and greatest of u1..u6 by the paper's formula
PAPER = [(0.44, 10.13), (2.88, 4.90), (-8.00, -4.43), (4.63, 9.67), (-4.16, 0.46), (-5.11, 0.18)]


def posture(t):
    """theta(t): by the cosine rule, since links 1 and 2 span (1, y3) and links 5, 4 mirror them."""
    y = (1 - np.cos(t)) / 2
    aim, open_ = np.arctan2(y, 1.0), np.arccos(np.hypot(1.0, y) / 2)
    return np.stack([aim + open_, aim - open_, 0 * y, open_ - aim, -aim - open_], axis=-1)


def _energy(q, v, g=9.8):
    """By the centres of the links, all masses, inertias and lengths 1."""
    turn, ends, speeds = np.cos(q) + 1j * np.sin(q), 0j, 0j
    energy = 0.0
    for e, w in zip(turn, v, strict=True):
        centre, speed = ends + e / 2, speeds + 1j * w * e / 2
        energy += abs(speed) ** 2 / 2 + w**2 / 2 + g * centre.imag
        ends, speeds = ends + e, speeds + 1j * w * e
    return energy


@pytest.fixture(scope="module")
def problem():
    return uk.models.coordinated_robots()


@pytest.fixture(scope="module")
def closed(problem):
    robots = problem.system
    return uk.with_servo(problem, robots.input_matrix, robots.servo_constraints)


@pytest.fixture(scope="module")
def run(closed):
    return uk.simulate(closed, rtol=1e-11, atol=1e-12, ts=401, throw=True)


def test_equations_of_motion_are_lagranges(problem):
    """M and Q from the energy of the links, by differences; eq. (A2) word for word in one entry."""
    rng = np.random.default_rng(0)
    q, v = rng.normal(size=(2, 5))
    system = problem.system
    M = np.asarray(system.mass_matrix(*state(0.0, q, v)[:2]))
    np.testing.assert_allclose(M[0, 1], 3.5 * np.cos(q[0] - q[1]))
    np.testing.assert_allclose(np.diag(M), [5.25, 4.25, 3.25, 2.25, 1.25])
    np.testing.assert_allclose(system.energy(*state(0.0, q, v)), _energy(q, v), rtol=1e-13)
    basis = np.eye(5)
    rest = _energy(q, np.zeros(5))
    polar = [[_energy(q, a + b) - _energy(q, a) - _energy(q, b) + rest for a in basis] for b in basis]
    np.testing.assert_allclose(M, polar, atol=1e-12)
    by_energy = uk.lagrangian_system(
        lambda t, q, v: system.energy(t, q, v) - 2 * system.energy(t, q, jnp.zeros_like(v))
    )
    np.testing.assert_allclose(
        system.force(*state(0.0, q, v)), by_energy.force(*state(0.0, q, v)), rtol=1e-12, atol=1e-12
    )


def test_task_is_the_papers(problem):
    """Eq. (68) word for word, and the points."""
    rng = np.random.default_rng(1)
    q, v = rng.normal(size=(2, 5))
    t, system = 0.7, problem.system
    rows = rows_of(uk.System(np.eye(5), np.zeros(5), system.servo_constraints), *state(t, q, v))
    s, c, half = np.sin(q), np.cos(q), np.array([1.0, 1.0, 0.5, 0.0, 0.0])
    np.testing.assert_allclose(rows.A, [-s * half, c * half, [0, 0, 1, 0, 0]], atol=1e-14)
    b = [c * half @ v**2, s * half @ v**2 + np.cos(t) / 2, 0.0]
    np.testing.assert_allclose(rows.b, b, atol=1e-14)
    assert rows.names == ("load position[0]", "load position[1]", "load angle")
    points = system.points(*state(t, q, v)[:2])
    np.testing.assert_allclose(points["E"], [c.sum(), s.sum()])
    np.testing.assert_allclose(points["load"], [c @ half, s @ half])
    closing = rows_of(system, *state(t, q, v))
    np.testing.assert_allclose(closing.position_error, [c.sum() - 3, s.sum()], atol=1e-14)


def test_motion_is_the_closed_form(run):
    np.testing.assert_allclose(posture(0.0), np.radians([60, -60, 0, 60, -60]), atol=1e-15)
    np.testing.assert_allclose(posture(np.pi), np.radians([90, 0, 0, 0, -90]), atol=1e-15)
    np.testing.assert_allclose(run.q, posture(np.asarray(run.t)), atol=1e-8)


def test_all_five_rows_are_kept(problem, closed, run):
    task = uk.System(np.eye(5), np.zeros(5), (*problem.system.constraints, *problem.system.servo_constraints))
    rows = jax.device_get(
        jax.jit(jax.vmap(lambda t, q, v: uk.constraint_rows(task, t, q, v)))(run.t, run.q, run.v)
    )
    assert rows.position_error.shape == (401, 5)
    assert np.abs(rows.position_error).max() < 1e-9
    assert np.abs(rows.velocity_error).max() < 1e-9
    miss = np.einsum("kij,kj->ki", rows.A, run.a) - rows.b
    assert np.abs(miss).max() < 1e-9
    report = jax.jit(jax.vmap(closed.system.report))(run.t, run.q, run.v)
    assert report.realizable.all()
    assert (report.rank == 3).all()


def test_closed_loop_is_drawn_as_the_robots_are(problem, closed):
    """Three lines through the points that `test_task_is_the_papers` has checked, also of one level."""
    t, q = jnp.asarray(0.0), problem.q0
    points = problem.system.points(t, q)
    joints = {"left": [0 * points["A"], points["A"], points["B"]], "load": [points["B"], points["C"]]}
    joints["right"] = [points[name] for name in "CDE"]
    for system in (closed.system, uk.at_level(problem.system, (("closing",),), 0)):
        lines = system.drawing(t, q)
        assert lines.keys() == joints.keys()
        for name, line in lines.items():
            np.testing.assert_array_equal(line, jnp.stack(joints[name]))
    np.testing.assert_array_equal(closed.system.points(t, q)["load"], points["load"])


def test_closed_loop_has_the_velocities_of_the_robots(problem, closed):
    """q' = v: another size of v is refused."""
    for system in (closed.system, uk.at_level(problem.system, (("closing",),), 1)):
        with pytest.raises(uk.InputError, match="q has 5 entries and v has 4"):
            uk.simulate(system, problem.q0, jnp.zeros(4), t1=1.0)


def test_torques_of_the_paper(problem, run):
    robots = problem.system
    paper = uk.with_servo(robots, robots.input_matrix, robots.servo_constraints, formula="paper")
    report = jax.jit(jax.vmap(paper.report))(run.t, run.q, run.v)
    ranges = np.stack([report.u.min(0), report.u.max(0)], axis=1)
    np.testing.assert_allclose(ranges, PAPER, atol=0.0051)
    np.testing.assert_allclose(report.a, run.a, atol=1e-9)
    assert np.abs(np.asarray(report.residual)).max() < 1e-9


def test_least_torques_are_a_mirror_image(problem, closed, run):
    robots = problem.system
    u = np.asarray(jax.jit(jax.vmap(closed.system.control))(run.t, run.q, run.v))
    np.testing.assert_allclose(u[:, 5], -u[:, 0], atol=1e-7)
    np.testing.assert_allclose(u[:, 4], -u[:, 1], atol=1e-7)
    np.testing.assert_allclose(u[:, 3], -u[:, 2], atol=1e-7)
    paper = uk.with_servo(robots, robots.input_matrix, robots.servo_constraints, formula="paper")
    other = np.asarray(jax.jit(jax.vmap(paper.control))(run.t, run.q, run.v))
    assert (np.linalg.norm(u, axis=1) < np.linalg.norm(other, axis=1)).all()


def test_torques_by_virtual_work(problem, run):
    """The power of the torques is the rate of the energy, since the passive hinges do no work."""
    robots = problem.system
    closed = uk.with_servo(robots, robots.input_matrix, robots.servo_constraints)
    u = np.asarray(jax.jit(jax.vmap(closed.control))(run.t, run.q, run.v))
    power = np.sum(u @ np.asarray(robots.input_matrix).T * np.asarray(run.v), axis=1)
    rate = np.gradient(np.asarray(run.energy), np.asarray(run.t), edge_order=2)
    np.testing.assert_allclose(power[2:-2], rate[2:-2], atol=3e-3)


@pytest.mark.parametrize("wrong", [{"mass": -1.0}, {"length": 0.0}, {"gravity": float("nan")}])
def test_wrong_parameters_are_named(wrong):
    with pytest.raises(uk.InputError, match=next(iter(wrong))):
        uk.models.coordinated_robots(**wrong)
