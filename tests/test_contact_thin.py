"""Events within a step whose ends do not show them: thin and small bodies that are passed, struck or grazed."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_references import G, discs_at, within

import ukjax as uk
import ukjax.mechanisms as um

R, HALF = 0.03, np.array([0.5, 0.02])  # of two discs, and of a plate about the origin


def _from_plate(t, q):
    off = jnp.maximum(jnp.abs(q[:2]) - HALF, 0)
    square = jnp.dot(off, off)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0) - R


def _apart(t, q):
    return jnp.sqrt(jnp.dot(q[2:4] - q[:2], q[2:4] - q[:2])) - 2 * R


@pytest.fixture(scope="module")
def run():
    """Runs of two elastic discs, a plate, and an arm with a narrow stop at 2 rad, for a second."""
    contacts = [
        uk.Unilateral(_from_plate, restitution=1.0, name="plate"),
        uk.Unilateral(_apart, restitution=1.0, name="discs"),
        uk.Unilateral(lambda t, q: 0.9999 - jnp.cos(q[4] - 2.0), restitution=1.0, name="stop"),
    ]

    @jax.jit
    def of(gravity, q0, v0, ts):
        run = uk.simulate(uk.System(jnp.eye(5), gravity, contacts), q0, v0, t1=1.0, ts=ts)
        history = run.contacts
        return run.q[:3], run.v[:3], history.event_time, history.num_events, run.stats["num_steps"]

    def runs(q0, v0, down=0.0, early=(0.0, 0.0)):
        gravity = np.array([0, -down, 0, 0, 0])
        return of(*map(jnp.asarray, (gravity, q0, v0, np.array([*early, 1.0]))))

    return runs


FAR = [9.0, 9.0, 0.0]  # where the second disc and the arm are out of the way


def test_a_thin_plate_is_struck(run) -> None:
    """By a disc that falls on it, and by fast ones that else are behind it after one step."""
    q, _, when, _, _ = run([0.0, 0.2, *FAR], np.zeros(5), G)
    fall = np.sqrt(2 * (0.2 - HALF[1] - R) / G)
    since = (1 - fall) % (2 * fall)
    within(1e-8, when[0], fall)
    within(1e-4, q[2, 1], HALF[1] + R + G * fall * since - G * since**2 / 2)
    for x, v0, axis in (
        ([0.1, 1.0], [0.0, -50.0], 1),
        ([0.1, -3.0], [0.2, 500.0], 1),
        ([2.0, 0.01], [-20.0, 0.0], 0),
    ):
        q, v, when, count, steps = run([*x, *FAR], [*v0, 0, 0, 0])
        x, v0 = map(np.array, (x, v0))
        after = v0 * np.where(np.arange(2) == axis, -1, 1)
        time = (abs(x[axis]) - HALF[axis] - R) / abs(v0[axis])
        assert count == 1
        assert steps < 20
        within(1e-9, when[0], time)
        within(1e-6, v[2, :2], after)
        within(1e-5, q[2, :2], x + v0 * time + after * (1 - time))


def test_a_disc_slides_off_the_end(run) -> None:
    """What presses it ends with a jump, as the gap has no curvature before."""
    for x, speed in ((0.0, 2.0), (0.3, -3.0), (-0.1, 0.9)):
        q, _, when, count, steps = run([x, HALF[1] + R, *FAR], [speed, 0, 0, 0, 0], G)
        leaves = (HALF[0] - np.sign(speed) * x) / abs(speed)
        assert count == 1
        assert steps < 30
        within(1e-9, when[0], leaves)
        within(1e-6, q[2, :2], [x + speed, HALF[1] + R - G * (1 - leaves) ** 2 / 2])


def test_a_state_at_an_event_is_the_one_before_it(run) -> None:
    """However its time is rounded; a nanosecond later it is the one after."""
    for height in (0.1, 0.2, 0.31, 0.7, 1.3):
        start = [0.0, height, *FAR], np.zeros(5), G
        when = run(*start)[2][0]
        speed = np.sqrt(2 * G * (height - HALF[1] - R))
        for shift in (-2, -1, 0, 1, 2):
            at = when + shift * np.spacing(when)
            _, v, again, _, _ = run(*start, early=(at, at + 1e-9))
            assert again[0] == when
            within(1e-6, v[:2, 1], [-speed, speed])


@pytest.mark.parametrize("aside", [0.0, 0.9, 0.9999, 1.0001])
def test_two_moving_discs_strike_or_pass_by(aside: float, run) -> None:
    """Both move; the last ones pass at a distance of 6 micrometres."""
    start, speed = [[-2.0, 3.0], [2.0, 3.0 + aside * 2 * R]], [[30.0, 1.0], [-20.0, 1.0]]
    q, v, when, count, steps = run([*start[0], *start[1], 0.0], [*speed[0], *speed[1], 0.0])
    places, speeds, times = discs_at(1.0, start, speed, np.zeros((2, 2)), [1.0, 1.0], [R, R], 1.0)
    assert count == times.size == (aside < 1)
    assert steps < 20
    within(1e-9, when[: times.size], times)
    within(1e-5, q[2, :4], places.ravel())
    within(1e-5, v[2, :4], speeds.ravel())


def test_a_narrow_stop_of_a_turning_arm_is_struck(run) -> None:
    """0.03 rad wide, of an arm that else turns by 10 rad in one step."""
    q, _, when, count, _ = run([5.0, 5.0, *FAR], [0, 0, 0, 0, 10.0])
    stop = 2.0 - np.arccos(0.9999)
    within(1e-9, when[0], stop / 10)
    # It turns back, round to the other side of the stop, and again.
    free = 2 * np.pi - 2 * np.arccos(0.9999)
    assert count == 2
    within(1e-9, when[1], (stop + free) / 10)
    within(1e-6, q[2, 4], stop - free + (10 - stop - free))


@pytest.mark.slow
def test_a_table_holds_what_falls_on_it_and_a_wall_what_is_thrown() -> None:
    """Of shapes of a mechanism: a table top above a plane, and 5 m/s against half a metre."""
    ball, disc = um.PlanarBody("ball", 1.0, (0.0, 0.9), 0.004), um.Sphere("ball", (0.0, 0.9), 0.03)
    contacts = [
        um.Contact(um.Cuboid("ground", (0.0, 0.7), (1.0, 0.04)), disc, name="table"),
        um.Contact(um.HalfSpace("ground", (0.0, 0.0)), disc, name="floor"),
        um.Contact(um.Cuboid("ground", (3.0, 0.5), (0.5, 4.0)), disc, name="wall"),
    ]
    system = um.assemble([ball], loads=[um.Gravity()], contacts=contacts)
    falls = uk.simulate(system, [0.0, 0.9, 0.0], np.zeros(3), t1=1.0, ts=[1.0])
    within(1e-8, falls.q[-1], [0.0, 0.75, 0.0])
    thrown = uk.simulate(system, [1.0, 0.9, 0.0], [5.0, 0.0, 0.0], t1=0.4, ts=[0.4])
    within(1e-7, thrown.q[-1], [3.0 - 0.25 - 0.03, 0.9 - G * 0.4**2 / 2, 0.0])
    within(1e-8, thrown.contacts.event_time[0], (2.75 - 1.03) / 5.0)


@pytest.mark.slow
@pytest.mark.parametrize("friction", [0.0, 0.3])
def test_a_ball_leaves_the_edge_of_a_box(friction: float) -> None:
    """A parabola after it rolled or slid over the top; derivatives of place and time by the start too."""
    box, ball = um.Cuboid("ground", (0.0, 0.4), (1.0, 0.8)), um.Sphere("ball", (0.0, 0.9), 0.1)
    contact = um.Contact(box, ball, friction=friction)
    body = um.PlanarBody("ball", 1.0, (0.0, 0.9), 0.005)
    system = um.assemble([body], loads=[um.Gravity()], contacts=[contact])

    def left(p):
        zero = 0.0 * p[0]
        spin = -p[1] / 0.1 if friction else zero
        start = jnp.stack([p[0], 0.9 + zero, zero]), jnp.stack([p[1], zero, spin])
        tight = {"rtol": 1e-9, "atol": 1e-9, "adjoint": dfx.ForwardMode()}
        run = uk.simulate(system, *start, t1=0.6, ts=[0.6], **tight)
        found = jnp.append(run.q[0, :2], run.contacts.event_time[0])
        return found, found

    def exact(p):
        leaves = (0.5 - jnp.sign(p[1]) * p[0]) / jnp.abs(p[1])
        return jnp.stack([p[0] + 0.6 * p[1], 0.9 - G * (0.6 - leaves) ** 2 / 2, leaves])

    both = jax.jit(jax.jacfwd(left, has_aux=True))
    rng = np.random.default_rng(0)
    for p in zip(
        rng.uniform(-0.3, 0.3, 48), rng.choice([-1, 1], 48) * rng.uniform(1.4, 4.0, 48), strict=True
    ):
        p = jnp.array(p)
        slope, found = both(p)
        within(1e-7, found, exact(p))
        within(1e-5, slope, jax.jacfwd(exact)(p))
