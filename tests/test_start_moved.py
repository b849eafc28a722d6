"""A start off the constraints: by how much it is moved is told, warned of, and refused beyond a bound."""

import warnings

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

PENDULUM = uk.models.pendulum()
SHORT = {"t1": 0.01, "ts": 2}


def _run(q=None, v=None, **options):
    return uk.simulate(PENDULUM, q, v, **(SHORT | options))


def _silent(fn, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("error", uk.StartMovedWarning)
        return fn(*args, **kwargs)


def test_a_consistent_start_is_not_moved():
    run = _silent(_run)
    np.testing.assert_array_equal(run.start_moved, [0.0, 0.0])


def test_digits_are_no_reason_to_warn():
    run = _silent(_run, [0.866, -0.5], [0.0, 0.0])
    assert 1e-5 < run.start_moved[0] < 3e-5


def test_by_how_much():
    """Along the rod to its length, then the velocity along the rod away."""
    q, v = np.array([1.2, 0.5]), np.array([-0.5, 1.0])
    along = q / np.linalg.norm(q)
    expected = [np.abs(along - q).max(), np.abs((along @ v) * along).max()]
    with pytest.warns(uk.StartMovedWarning, match=r"rod by 0\.345.*changes q by up to 0\.277 \(23 %") as said:
        run = _run(q, v)
    assert said[0].filename == __file__
    np.testing.assert_allclose(run.start_moved, expected, rtol=1e-9)
    np.testing.assert_allclose(run.summary()["start_moved"], expected, rtol=1e-9)
    np.testing.assert_allclose(run.q[0], along, rtol=1e-12)
    compiled = jax.jit(lambda q, v: _run(q, v).start_moved)
    np.testing.assert_allclose(compiled(*map(jnp.asarray, (q, v))), expected, rtol=1e-9)
    assert _silent(_run, q, v, start_tolerance=0.3).ok
    assert not _silent(_run, q, v, stabilizer=uk.NoStabilizer()).start_moved.any()


FAR = {
    "of the issue": ([3.0, 1.0], [5.0, 5.0]),
    "3 m for 1 m": ([3.0, 0.0], [0.0, 0.0]),
    "1e6 m": ([1e6, 0.0], [0.0, 0.0]),
    "only the velocity": ([1.0, 0.0], [5.0, 1.0]),
}


@pytest.mark.parametrize("name", FAR)
def test_far_starts_are_refused(name):
    with pytest.raises(uk.InputError, match=r"constraints \(rod .*start_tolerance = 0\.5 allows") as error:
        _run(*FAR[name])
    assert "\n" not in str(error.value)


def test_a_bound_of_ones_own():
    q, v = FAR["of the issue"]
    run = _silent(_run, q, v, start_tolerance=jnp.inf)
    np.testing.assert_allclose(run.q[0], np.array(q) / np.hypot(*q), rtol=1e-12)
    with pytest.raises(uk.InputError, match="start_tolerance = 1e-06"):
        _run([0.866, -0.5], start_tolerance=1e-6)


@pytest.mark.parametrize("given", [-1.0, float("nan"), "half", True, [0.1]])
def test_bounds_that_are_none(given):
    with pytest.raises(uk.InputError, match="start_tolerance"):
        _run(start_tolerance=given)


@pytest.mark.parametrize(
    "name", ["parallelogram", *(pytest.param(x, marks=pytest.mark.slow) for x in ("slider_crank", "andrews"))]
)
def test_degrees_for_radians_are_not_silent(name):
    problem = uk.models.get(name)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            uk.simulate(problem, np.rad2deg(problem.q0), **SHORT)
        except uk.InputError as error:
            assert "the initial state is off the constraints" in str(error)  # noqa: PT017
            return
    assert uk.StartMovedWarning in [x.category for x in said]


def _turned(scale):
    """A hinge that closes a triangle: one angle that two lengths fix, in other units of length, mass and angle."""
    metre, kilogram, radian = scale

    def closed(t, q):
        x, angle = q / jnp.asarray([metre, radian])
        return jnp.stack([x - 2 * jnp.cos(angle)])

    M = jnp.diag(kilogram * jnp.asarray([1.0, 0.3]) / jnp.asarray([metre, radian]) ** 2)
    return uk.System(M, jnp.zeros(2), [uk.Holonomic(closed, name="closed")]), jnp.asarray([metre, radian])


def test_parts_do_not_depend_on_units():
    """The least tolerance that takes a start, by bisection, in SI and in millimetres, tonnes and degrees."""

    def least(scale):
        system, units = _turned(scale)
        low, high = 0.0, 1.0
        for _ in range(12):
            middle = 0.5 * (low + high)
            try:
                uk.simulate(
                    system, units * jnp.asarray([1.3, 0.6]), jnp.zeros(2), start_tolerance=middle, **SHORT
                )
                high = middle
            except uk.InputError:
                low = middle
        return high

    si = least((1.0, 1.0, 1.0))
    assert 0.05 < si < 0.5
    np.testing.assert_allclose(least((1e3, 1e-3, 180 / np.pi)), si, rtol=1e-9)


def test_a_drive_started_at_rest_is_warned_of():
    """x = sin t moves at 1 m/s at the start, and the run with it."""
    drive = uk.Holonomic(lambda t, q: q[0] - jnp.sin(t), name="drive")
    system = uk.System(jnp.eye(1), jnp.zeros(1), [drive])
    with pytest.warns(uk.StartMovedWarning, match="drive in its rate by 1"):
        run = uk.simulate(system, jnp.zeros(1), jnp.zeros(1), **SHORT)
    np.testing.assert_allclose(run.start_moved, [0.0, 1.0])


class _Millimetres(uk.AbstractSystem):
    """The pendulum with its place in mm and its velocity in m/s."""

    def mass_matrix(self, t, q):
        return jnp.eye(2)

    def force(self, t, q, v):
        return jnp.asarray([0.0, -9.81])

    def kinematics(self, t, q, v):
        return 1e3 * v

    @property
    def constraints(self):
        return (uk.Holonomic(lambda t, q: jnp.dot(q, q) / 1e6 - 1, name="rod"),)


def test_quasi_velocities():
    with pytest.warns(
        uk.StartMovedWarning, match=r"rod by 0\.69.*changes q by up to 300 \(23 %.*v by up to 2 \(45 %"
    ):
        run = uk.simulate(_Millimetres(), [1300.0, 0.0], [2.0, 4.0], **SHORT)
    np.testing.assert_allclose(run.start_moved, [300.0, 2.0], rtol=1e-9)


def test_sweeps_tell_of_each_run():
    def started_at(length):
        return uk.Problem(PENDULUM.system, jnp.stack([length, 0 * length]), jnp.zeros(2), 0.0, 0.01)

    runs = uk.sweep(started_at, {"length": [1.0, 1.5, 3.0]}, ts=2, progress=False)
    np.testing.assert_allclose(runs.start_moved_q, [0.0, 0.5, 2.0], atol=1e-12)
    np.testing.assert_array_equal(runs.start_moved_v, np.zeros(3))


def test_tuning_refuses_far_starts():
    def plant(gains):
        return uk.Problem(PENDULUM.system, jnp.asarray([3.0, 0.0]), jnp.zeros(2), 0.0, 0.01)

    with pytest.raises(uk.InputError, match="start_tolerance"):
        uk.tune(plant, {"k": 1.0}, lambda run: jnp.sum(run.q_end**2), stabilizer=uk.Projection())


@pytest.mark.parametrize("returned", [lambda run: run.q_end, lambda run: run.rank[-1], lambda run: "none"])
def test_losses_are_real_numbers(returned):
    with pytest.raises(uk.InputError, match="the loss return"):
        uk.tune(lambda gains: PENDULUM, {"k": 1.0}, returned, t1=0.01)


@pytest.mark.parametrize(("t0", "t1"), [(0.0, 5e-324), (1.0, 1.0 + 2e-16), (1e9, 1e9 + 1e-7)])
def test_spans_too_short(t0, t1):
    with pytest.raises(uk.InputError, match="too near"):
        uk.simulate(PENDULUM, t0=t0, t1=t1)
    assert _run(t1=1e-12).ok


def _stopped(q, **options):
    return _run(q, event=lambda t, q, v: q[0] + 0.5, **options).q_end


FORWARD = {
    "jvp": lambda f, q: jax.jvp(f, (q,), (q,)),
    "jacfwd": lambda f, q: jax.jacfwd(f)(q),
    "of jit": lambda f, q: jax.jvp(jax.jit(f), (q,), (q,)),
    "in jit": lambda f, q: jax.jit(jax.jacfwd(f))(q),
}


@pytest.mark.parametrize("name", FORWARD)
def test_forward_mode_names_its_adjoint(name):
    """Where the adjoint asked for has none."""
    with pytest.raises(uk.InputError, match=r"adjoint=diffrax\.ForwardMode\(\)"):
        FORWARD[name](
            lambda q: _stopped(q, adjoint=dfx.RecursiveCheckpointAdjoint(checkpoints=8)), PENDULUM.q0
        )


def test_forward_mode_through_an_event():
    def stopped(angle):
        q = jnp.stack([jnp.sin(angle), -jnp.cos(angle)])
        return _run(q, t1=2.0, event=lambda t, q, v: q[0] + 0.5, rtol=1e-10, atol=1e-10).t_end

    step = 1e-4
    difference = (stopped(1.0 + step) - stopped(1.0 - step)) / (2 * step)
    slope = jax.jvp(stopped, (1.0,), (1.0,))[1]
    np.testing.assert_allclose(slope, difference, rtol=1e-5)


@pytest.mark.slow
def test_forward_mode_with_that_adjoint():
    """In closed form where an event stops a run: `test_an_event_of_a_closure`."""
    forward = jax.jit(jax.jacfwd(lambda q: _stopped(q, adjoint=dfx.ForwardMode())))(PENDULUM.q0)
    np.testing.assert_allclose(jax.jit(jax.jacrev(_stopped))(PENDULUM.q0), forward, atol=1e-10)


BEAD = uk.System(jnp.eye(2), jnp.zeros(2), [uk.Holonomic(lambda t, q: q[1] - q[0] ** 2, name="parabola")])


def _nearest_by_the_rule(q, tolerance=1e4 * np.finfo(float).eps):
    """As docs/theory.md says it: along J^T where a pass begins, two iterations at a time."""
    phi = lambda q: q[1] - q[0] ** 2
    while abs(phi(q)) > tolerance:
        J = np.array([-2 * q[0], 1.0])
        size, before, after = np.abs(J).max() * np.abs(q).max() * np.finfo(float).eps, np.inf, 0.0
        for _ in range(16):
            before, q = abs(phi(q)), q - J * phi(q) / (J @ J)
            after, q = abs(phi(q)), q - J * phi(q) / (J @ J)
            if after >= before / 2 or after**2 <= size * before:
                break
    return q


@pytest.mark.parametrize("q", [[1.0, 9.0], [1.0, 3.0], [1.0, 1.5], [-4.0, 30.0], [0.1, 20.0]])
def test_one_start_within_and_outside_jit(q):
    q, v = np.array(q), jnp.zeros(2)
    begun = lambda q: uk.simulate(BEAD, q, v, start_tolerance=np.inf, **SHORT).q[0]
    project = lambda q: uk.project(BEAD, 0.0, q, v)[0]
    expected = _nearest_by_the_rule(q)
    for find in (begun, project):
        for found in (_silent(find, q), jax.jit(find)(q), jax.vmap(find)(q[None])[0]):
            np.testing.assert_allclose(found, expected, rtol=1e-9)
