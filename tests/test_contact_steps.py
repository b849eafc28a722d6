"""Time stepping with contacts, against closed forms."""

import functools
import itertools
import pickle

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._contact import _moreau
from ukjax._contact._rows import contact_model, layout_of
from ukjax._contact._stepping import run_time_stepping
from ukjax._formula._acceleration import UdwadiaKalaba
from ukjax._misc._types import is_traced
from ukjax._motion._project import Projection
from ukjax._run import _contact_march
from ukjax._system._constraint import DryFriction, Unilateral

G = 9.81


@eqx.filter_jit
def marched(system, q, v, end, steps, ts):
    state = jnp.zeros(()), q, v
    model, _ = contact_model(system, UdwadiaKalaba(), Projection(), dfx.Tsit5(), state, automatic=True)
    return run_time_stepping(model, *layout_of(system, *state), (q, v), (0.0, end), steps, ts)


def stepped(system, q, v, end, steps, ts):
    """Runs of one system share a program, whatever their number of steps."""
    given = [jnp.asarray(x, float) for x in (q, v, end)]
    found = marched(system, *given, jnp.asarray(steps), jnp.asarray(ts, float))
    return found if is_traced(found) else jax.device_get(found)


def height(t, q):
    return q[-1]


def speed(t, q, v):
    return v[0]


def ball(e):
    return uk.System(jnp.eye(1), jnp.array([-G]), [Unilateral(height, restitution=e, name="floor")])


def bounced(e, t):
    """Height of a ball that fell from 1 m."""
    z, v, left = 1.0, 0.0, t
    while v > -1e-9:
        flight = (v + np.sqrt(v * v + 2 * G * z)) / G
        if flight > left:
            return z + v * left - G * left**2 / 2
        z, v, left = 0.0, e * (G * flight - v), left - flight
        if v < 1e-9:
            return 0.0


def test_members_of_a_batch_move_as_they_do_alone():
    """Five are more than a block holds, and no multiple of it; each falls from its own height."""
    heights, ts = jnp.array([0.6, 0.8, 1.0, 1.2, 1.4]), np.array([0.3, 0.9])

    def run(h):
        found = stepped(ball(0.5), h[None], [0.0], 0.9, 900, ts)
        return found.q[:, 0], found.contacts.force[:, 0], found.impacts, found.unsolved

    q, force, impacts, unsolved = jax.jit(jax.vmap(run))(heights)
    assert impacts.min() > 0
    assert unsolved.sum() == 0
    alone = jax.jit(run)
    for i, h in enumerate(heights):
        np.testing.assert_allclose(q[i], alone(h)[0], rtol=1e-12)
        np.testing.assert_allclose(force[i], alone(h)[1], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(q[:, 0], heights - G * ts[0] ** 2 / 2, rtol=1e-12)  # before the impact


@pytest.mark.parametrize("e", [0.5, 1.0])
def test_bouncing_ball_converges_at_first_order(e):
    ts = np.array([0.2, 0.6, 1.1, 1.7, 2.3, 4.2])
    exact = np.array([bounced(e, t) for t in ts])
    for steps, bound in ((420, 0.2), (4200, 0.03)):
        found = stepped(ball(e), [1.0], [0.0], 4.2, steps, ts)
        assert np.abs(found.q[:, 0] - exact).max() < bound
        assert found.q.min() > -1e-10
        assert found.unsolved == 0
    first = np.sqrt(2 / G)
    assert abs(found.contacts.event_time[0] - first) < 1e-3
    np.testing.assert_allclose(found.contacts.impulse[0, 0], (1 + e) * G * first, rtol=4e-3)
    if e < 1:
        np.testing.assert_allclose(found.contacts.force[-1], G, rtol=1e-9)  # it rests
        assert found.contacts.closed[-1, 0]


def block(mu, slope=0.0):
    """A point on a slope, x along it and z off it."""
    weight = 2.0 * G * jnp.array([-np.sin(slope), -np.cos(slope)])
    return uk.System(2.0 * jnp.eye(2), weight, [Unilateral(height, friction=mu, slip=speed, name="floor")])


def test_sliding_block_stops():
    """After v0^2 / (2 mu g), and stays."""
    for steps in (200, 2000):
        found = stepped(block(0.4), [0.0, 0.0], [3.0, 0.0], 2.0, steps, [0.4, 2.0])
        np.testing.assert_allclose(found.q[0, 0], 3 * 0.4 - 0.4 * G * 0.08, rtol=1e-9)
        assert abs(found.q[1, 0] - 9 / (0.8 * G)) < (2.0 / steps) ** 2 * 4
        np.testing.assert_allclose(found.v[1], 0, atol=1e-14)
        np.testing.assert_allclose(found.contacts.force[0], [2 * G, -0.8 * G], rtol=1e-9)
        np.testing.assert_allclose(found.contacts.force[1], [2 * G, 0], atol=1e-9)
        np.testing.assert_array_equal(found.contacts.sliding[:, 0], [True, False])


def test_block_sticks_on_a_slope_or_slides_back():
    up = 2.0 / (G * (np.sin(0.2) + 0.3 * np.cos(0.2)))
    found = stepped(block(0.3, 0.2), [0.0, 0.0], [2.0, 0.0], 1.0, 1000, [0.5, 1.0])
    assert abs(found.q[1, 0] - up) < 1e-5
    np.testing.assert_allclose(found.contacts.force[1, 1], 2 * G * np.sin(0.2), rtol=1e-9)
    turn = 2.0 / (G * (np.sin(0.35) + 0.3 * np.cos(0.35)))
    back = G * (np.sin(0.35) - 0.3 * np.cos(0.35)) * (1 - turn)
    found = stepped(block(0.3, 0.35), [0.0, 0.0], [2.0, 0.0], 1.0, 1000, [0.5, 1.0])
    np.testing.assert_allclose(found.v[1, 0], -back, atol=5e-3)


def sphere(radius=0.11, mu=0.2):
    """Position, and velocity and spin as velocities."""
    down = jnp.array([0, 0, -radius])
    return uk.System(
        lambda t, q: jnp.diag(jnp.array([1.0] * 3 + [0.4 * radius**2] * 3)),
        lambda t, q, v: jnp.array([0, 0, -G, 0, 0, 0]),
        [
            Unilateral(
                lambda t, q: q[2] - radius,
                friction=mu,
                slip=lambda t, q, v: (v[:3] + jnp.cross(v[3:], down))[:2],
            )
        ],
        kinematics=lambda t, q, v: v[:3],
    )


def test_sphere_rolls():
    """Slip keeps its direction, and ends after 2 |u| / (7 mu g); then it rolls."""
    radius, mu = 0.11, 0.2
    v, w = np.array([3.0, 0.5, 0.0]), np.array([-25.0, -10.0, 7.0])
    u = (v + np.cross(w, [0, 0, -radius]))[:2]
    end = 2 * np.linalg.norm(u) / (7 * mu * G)
    rolling = v[:2] - mu * G * end * u / np.linalg.norm(u)
    x = v[:2] * end + 0.5 * (rolling - v[:2]) * end + rolling * (2 - end)
    system = sphere()
    for steps in (200, 2000):
        found = stepped(system, [0, 0, radius], [*v, *w], 2.0, steps, [2.0])
        h = 2.0 / steps
        np.testing.assert_allclose(found.q[0, :2], x, atol=2 * h)
        np.testing.assert_allclose(found.v[0, :2], rolling, atol=1e-9)
        np.testing.assert_allclose(found.v[0, 5], 7.0, rtol=1e-12)
        assert abs(found.q[0, 2] - radius) < 1e-12


def pendulum(stop, e, torque=lambda t: 0.0):
    """A point mass on a rod by its two coordinates, so that the rod is a bilateral row, with a stop on its angle."""
    length = 0.8
    angle = lambda q: jnp.arctan2(q[0], -q[1])
    return uk.System(
        lambda t, q: jnp.eye(2),
        lambda t, q, v: jnp.array([0.0, -G]) + torque(t) / length**2 * jnp.array([-q[1], q[0]]),
        [
            uk.Holonomic(lambda t, q: jnp.sqrt(q @ q) - length, name="rod"),
            Unilateral(lambda t, q: angle(q) - stop, restitution=e, name="stop"),
        ],
    )


def test_pendulum_leaves_its_stop_when_the_force_changes_sign():
    """Where m g l sin(stop) = torque, from a rod held by a bilateral row."""
    stop, torque = 0.2, lambda t: -3.0 * jnp.cos(1.5 * t)
    q = [0.8 * np.sin(1.0), -0.8 * np.cos(1.0)]
    leaves = np.arccos(-0.8 * G * np.sin(stop) / 3.0) / 1.5
    ts = np.array([1.0, leaves - 0.01, leaves + 0.02])
    found = stepped(pendulum(stop, 0.0, torque), q, [0.0, 0.0], 2.2, 2200, ts)
    force = 0.8 * G * np.sin(stop) + 3.0 * np.cos(1.5 * 1.0)
    np.testing.assert_allclose(found.contacts.force[0, 0], force, rtol=3e-3)
    np.testing.assert_array_equal(found.contacts.closed[:, 0], [True, True, False])
    np.testing.assert_allclose(np.linalg.norm(found.q, axis=1), 0.8, rtol=1e-14)
    assert np.arctan2(found.q[:, 0], -found.q[:, 1]).min() > stop - 1e-10


def test_dry_friction_stops_an_oscillator():
    """Amplitudes fall by 2 T / k in each half period, until the spring cannot overcome T."""
    J, k, torque = 0.02, 1.5, 0.12
    system = uk.System(
        lambda t, q: J * jnp.eye(1), lambda t, q, v: -k * q, [DryFriction(lambda t, q, v: v[0], torque)]
    )
    half = np.pi * np.sqrt(J / k)
    found = stepped(system, [1.0], [0.0], 10 * half, 10000, half * np.array([1.0, 2.0, 6.0, 9.0]))
    np.testing.assert_allclose(found.q[:, 0], [-(1 - 0.16), 1 - 0.32, 1 - 0.96, 1 - 0.96], atol=2e-3)
    np.testing.assert_allclose(found.contacts.force[-1, 0], k * found.q[-1, 0], rtol=1e-9)
    np.testing.assert_array_equal(found.contacts.sliding[-1], [False])


@pytest.mark.slow
def test_derivatives_are_those_of_the_steps():
    """d z/d h0 of the bouncing ball is +1, and differences of the discrete motion agree, in both modes."""
    end = lambda h0: stepped(ball(0.8), jnp.array([h0]), [0.0], 0.6, 60, [0.6]).q[0, 0]
    np.testing.assert_allclose(jax.jvp(end, (1.0,), (1.0,))[1], 1.0, rtol=1e-9)
    np.testing.assert_allclose(jax.grad(end)(1.0), 1.0, rtol=1e-9)

    def slid(mu):
        return stepped(block(mu), [0.0, 0.0], [3.0, 0.0], 0.6, 60, [0.6]).q[0, 0]

    difference = (slid(0.4 + 1e-6) - slid(0.4 - 1e-6)) / 2e-6
    np.testing.assert_allclose(jax.grad(slid)(0.4), difference, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(slid)(0.4), -0.5 * G * 0.36, rtol=1e-9)


def _bounced(h0, **options):
    """Where a ball of e = 0.8 is after 1 s."""
    return uk.simulate(ball(0.8), h0[None], jnp.zeros(1), t1=1.0, ts=[1.0], **options).q[0, 0]


@pytest.mark.parametrize(
    "of",
    [
        jax.grad,
        lambda f: jax.jit(jax.grad(jax.jit(f))),
        lambda f: lambda x: jax.jvp(f, (x,), (x,)),
        lambda f: lambda x: jax.jvp(jax.vmap(f), (x[None],), (x[None],)),
    ],
    ids=["reverse", "jit", "forward", "batch"],
)
def test_steps_have_no_derivatives_but_by_name(of):
    """Theirs is 0 or 1, that of the ball's motion 1.3865."""
    fall = functools.partial(_bounced, contact="steps", dt0=0.01)
    with pytest.raises(uk.InputError, match="contact='events' has these; contact='differentiated steps'"):
        of(fall)(jnp.asarray(1.0))


def test_steps_that_are_not_differentiated_go_on():
    """Other arrays may be differentiated beside them; of the places there are only values."""
    place = float(_bounced(jnp.asarray(1.0), contact="steps", dt0=1e-3))
    fallen, e, h0 = np.sqrt(2 / G), 0.8, 1.0
    up, left = e * np.sqrt(2 * G * h0), 1.0 - fallen
    np.testing.assert_allclose(place, up * left - G * left**2 / 2, atol=1e-2)
    beside = lambda x: x * _bounced(jnp.asarray(1.0), contact="steps", dt0=1e-3)
    np.testing.assert_allclose(jax.grad(beside)(2.0), place, rtol=1e-9)


@pytest.mark.slow
def test_derivatives_by_name_are_right_where_nothing_closes():
    """A block that slides to its stop, v^2 / (2 mu g): by mu and v, to first order in the step; by events exactly."""
    mu, v = 0.3, 2.0

    def stop(mu, v, **options):
        run = uk.simulate(block(mu), jnp.zeros(2), jnp.stack([v, 0.0 * v]), t1=2.0, ts=[2.0], **options)
        return run.q[0, 0]

    slopes = -(v**2) / (2 * mu**2 * G), v / (mu * G)
    for h in (1e-2, 1e-3):
        by_steps = functools.partial(stop, contact="differentiated steps", dt0=h)
        np.testing.assert_allclose(jax.grad(by_steps, (0, 1))(mu, v), slopes, rtol=2 * h)
    np.testing.assert_allclose(jax.grad(stop, (0, 1))(mu, v), slopes, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("e", [0.8, 0.0])
def test_derivatives_through_impacts_are_those_of_events(e):
    """z = v t' - g t'^2 / 2 of t' = 1 - sqrt(2 h0 / g) after a bounce: 1.3865; without one, 0."""
    fall = lambda h0: uk.simulate(ball(e), h0[None], jnp.zeros(1), t1=1.0, ts=[1.0]).q[0, 0]
    left = lambda h0: 1 - jnp.sqrt(2 * h0 / G)
    exact = lambda h0: e * jnp.sqrt(2 * G * h0) * left(h0) - G * left(h0) ** 2 / 2 * float(e > 0)
    np.testing.assert_allclose(jax.grad(fall)(1.0), jax.grad(exact)(1.0) if e else 0.0, atol=1e-7)


def test_painleve_rod_has_an_impact_without_collision():
    """One step gives the impulse that stops its tip, P = -G^-1 u, where accelerations have no solution."""
    length, phi = 0.5, 1.1
    system = uk.System(
        lambda t, q: jnp.diag(jnp.array([1.0, 1.0, length**2 / 3])),
        lambda t, q, v: jnp.array([0.0, -G, 0.0]),
        [
            Unilateral(
                lambda t, q: q[1] - length * jnp.sin(q[2]),
                friction=1.6,
                slip=lambda t, q, v: v[0] + length * jnp.sin(q[2]) * v[2],
            )
        ],
    )
    J = np.array([[0, 1, -length * np.cos(phi)], [1, 0, length * np.sin(phi)]])
    v = np.array([-2.0, 0.0, 0.0])
    W = np.diag([1, 1, 3 / length**2])
    impulse = -np.linalg.solve(J @ W @ J.T, J @ v)
    found = stepped(system, [0.0, length * np.sin(phi), phi], v, 1e-6, 1, [1e-6])
    np.testing.assert_allclose(found.contacts.force[0] * 1e-6, impulse, rtol=1e-4)
    np.testing.assert_allclose(found.v[0], v + W @ J.T @ impulse, rtol=1e-4)


def test_simulate_takes_steps_within_jit():
    """A ball in free fall, then at rest on the floor: q = z - g t (t + h) / 2 of Moreau's scheme until it lands."""

    def heights(z):
        run = uk.simulate(ball(0.0), z[None], jnp.zeros(1), t0=0.0, t1=1.0, dt0=0.01, ts=6, contact="steps")
        return run.q[:6, 0]

    found = jax.jit(heights)(jnp.asarray(1.0))
    fall = 1.0 - G * np.array([0.0, 0.2, 0.4]) ** 2 / 2
    np.testing.assert_allclose(found[:3], fall, rtol=0, atol=G * 0.4 * 0.01)
    np.testing.assert_allclose(found[3:], 0.0, atol=1e-10)
    with pytest.raises(uk.InputError, match="t0, t1 and dt0 cannot be traced"):
        jax.jit(lambda h: uk.simulate(ball(0.0), t1=1.0, dt0=h, q0=[1.0], v0=[0.0], contact="steps").q)(0.01)


@pytest.mark.slow
def test_tuning_finds_the_friction_of_a_block():
    """From the places of a block that slides and stops, by time steps of 1 ms, of first order."""
    times, mu = jnp.linspace(0.0, 1.5, 16), 0.37
    stop = 3.0 / (mu * 9.81)
    measured = 3.0 * jnp.minimum(times, stop) - mu * 9.81 * jnp.minimum(times, stop) ** 2 / 2

    def rubbed(gains):
        plane = uk.Unilateral(
            lambda t, q: q[1], friction=gains["mu"], slip=lambda t, q, v: v[0], name="plane"
        )
        block = uk.System(2.0 * jnp.eye(2), jnp.array([0.0, -19.62]), [plane])
        return uk.Problem(block, jnp.zeros(2), jnp.array([3.0, 0.0]), 0.0, 1.5)

    off = lambda run: jnp.mean((run.q[:, 0] - measured) ** 2) + 1e-12
    found = uk.tune(rubbed, {"mu": 0.2}, off, ts=times, dt0=1e-3, contact="differentiated steps", starts=0)
    np.testing.assert_allclose(found.gains["mu"], mu, rtol=1e-3)


def test_steps_of_ones_own_stop_where_friction_does():
    """A block that slides stops after v^2 / (2 mu g)."""
    mu, v, h = 0.3, 2.0, 1e-3
    floor = Unilateral(lambda t, q: q[1], friction=mu, slip=lambda t, q, v: v[:1])
    block = uk.System(2.0 * jnp.eye(2), jnp.array([0.0, -2.0 * G]), [floor])
    onwards = lambda y, i: (uk.step(block, i * h, *y, h), None)
    end = jax.jit(lambda *y: jax.lax.scan(onwards, y, jnp.arange(1000.0))[0])
    q, v_end = end(jnp.zeros(2), jnp.array([v, 0.0]))
    np.testing.assert_allclose(q, [v**2 / (2 * mu * G), 0], atol=1e-5)
    np.testing.assert_allclose(v_end, 0, atol=1e-12)


def test_an_environment_has_stops():
    """A mass pushed to a stop rests there; one pulled away moves as u t^2 / 2, by Moreau's midpoint steps exactly."""
    stop = Unilateral(lambda t, q: 0.5 - q[0])
    mass = uk.Problem(uk.System(jnp.eye(1), jnp.zeros(1), [stop]), jnp.zeros(1), jnp.zeros(1), 0.0, 1.0)
    env = uk.Environment(mass, jnp.eye(1), lambda t, q, v, u: -q[0], dt=0.01, horizon=1000)
    step, state = eqx.filter_jit(env.step), env.reset(jax.random.key(0))
    for _ in range(100):
        state = step(state, jnp.array([3.0]))[0]
    np.testing.assert_allclose(state.q, 0.5, atol=1e-12)
    np.testing.assert_allclose(state.v, 0, atol=1e-12)
    for _ in range(20):
        state = step(state, jnp.array([-2.0]))[0]
    np.testing.assert_allclose(state.q, 0.5 - 0.2**2, atol=1e-12)


def test_a_force_without_scalar_code():
    """A ball that falls and stops: by XLA, which is told."""

    def force(t, q, v):
        return jax.pure_callback(
            lambda q: np.array([-9.81]), jax.ShapeDtypeStruct((1,), q.dtype), q, vmap_method="sequential"
        )

    system = uk.System(jnp.eye(1), force, [uk.Unilateral(lambda t, q: q[0], name="ground")])
    run = uk.simulate(system, [0.5], [0.0], t1=0.5, ts=6, contact="steps", dt0=1e-3)
    assert run.computed_by.endswith("steps by XLA, as 'pure_callback' has no scalar code")
    t = np.asarray(run.t)
    np.testing.assert_allclose(run.q[:, 0], np.maximum(0.5 - 9.81 * t**2 / 2, 0), atol=2e-3)


def test_derivatives_without_scalar_code():
    """By XLA in forward mode: of a ball that falls; reverse mode is refused."""
    weight = lambda t, q, v: jax.lax.optimization_barrier(jnp.array([-G]))
    system = uk.System(jnp.eye(1), weight, [Unilateral(lambda t, q: q[0], name="ground")])
    step = lambda v: uk.step(system, 0.0, jnp.ones(1), v, 0.1)[0]
    np.testing.assert_allclose(jax.jacfwd(step)(jnp.zeros(1)), [[0.1]], rtol=1e-12)
    with pytest.raises(uk.InputError, match="cannot go through contact steps without scalar code, as 'optim"):
        jax.jacrev(step)(jnp.zeros(1))


@pytest.mark.parametrize("size", [(0.4, 0.02), (0.4, 0.2)])
def test_boxes_that_bounce_come_to_rest(size: tuple[float, float]) -> None:
    """Its corners strike by turns; while it falls about one, the other moves faster than by gravity alone."""
    body = um.PlanarBody("box", 1.0, (0.0, 0.5), (size[0] ** 2 + size[1] ** 2) / 12)
    corners, floor = um.Cuboid("box", (0.0, 0.5), size), um.HalfSpace("ground", point=(0.0, 0.0))
    contact = um.Contact(corners, floor, restitution=0.2, friction=0.5)
    thrown = um.problem(
        um.assemble([body], loads=[um.Gravity()], contacts=[contact]), v0=[0.3, 0.0, 1.0], t1=2.0
    )
    run = uk.simulate(thrown, contact="steps", dt0=2e-3, ts=[1.9, 1.998, 2.0])
    np.testing.assert_allclose(run.v, 0, atol=1e-12)
    np.testing.assert_allclose(run.q[:, 1], size[1] / 2, atol=1e-10)


def _rod(length):
    """A rod whose tip slides on the floor: how deep it is depends on its angle."""
    down = lambda t, q, v: jnp.array([0.0, -G, 0.0])
    mass = lambda t, q: jnp.diag(jnp.stack([1.0 + 0 * length, 1.0 + 0 * length, length**2 / 3]))
    tip = lambda t, q: q[1] - length * jnp.sin(q[2])
    slip = lambda t, q, v: v[0] + length * jnp.sin(q[2]) * v[2]
    return uk.System(mass, down, [Unilateral(tip, friction=0.3, restitution=0.4, slip=slip)])


def _step_of_rod(x):
    """From below the floor, so it is pushed out; it strikes, and slides."""
    length, h, q, v = x[0], x[1], x[2:5], x[5:]
    return jnp.concatenate(uk.step(_rod(length), 0.0, q, v, h))


_ROD = jnp.array([0.5, 1e-3, 0.1, 0.5 * np.sin(0.8) - 1e-4, 0.8, 1.5, -0.6, 0.2])


def test_derivatives_of_a_step_against_differences():
    """By length, step and state, of first order in both modes and in a batch."""
    step, unit = jax.jit(_step_of_rod), 1e-5 * jnp.eye(8)
    differ = lambda d: (
        (8 * (step(_ROD + d) - step(_ROD - d)) - (step(_ROD + 2 * d) - step(_ROD - 2 * d))) / 12e-5
    )
    expected = np.stack([differ(d) for d in unit], axis=1)
    assert np.linalg.matrix_rank(expected[:3]) == 3
    for of in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(
            jax.jit(of(_step_of_rod))(_ROD), expected, rtol=0, atol=2e-7
        )  # gaps are closed to 5e-11
    starts = _ROD[None] + 1e-5 * jnp.arange(5.0)[:, None]
    together = jax.jit(jax.vmap(jax.jacrev(_step_of_rod)))(starts)
    alone = jax.jit(jax.jacrev(_step_of_rod))
    np.testing.assert_allclose(together, np.stack([alone(x) for x in starts]), rtol=1e-12, atol=1e-12)


def test_second_derivatives_of_a_step_against_differences():
    gain = lambda x: jnp.sum(jnp.sin(_step_of_rod(x)))
    slope, unit = jax.jit(jax.grad(gain)), 1e-5 * jnp.eye(8)
    differ = lambda d: (
        (8 * (slope(_ROD + d) - slope(_ROD - d)) - (slope(_ROD + 2 * d) - slope(_ROD - 2 * d))) / 12e-5
    )
    expected = np.stack([differ(d) for d in unit])
    for twice in (jax.hessian, lambda f: jax.jacfwd(jax.jacfwd(f))):
        np.testing.assert_allclose(jax.jit(twice(gain))(_ROD), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_of_a_run_are_products_of_those_of_steps(mode):
    """Of the end by the start; and of the force while a block is slowed down, which is what stops it."""
    h, steps, rod = 1e-2, 12, _rod(0.5)
    one = jax.jit(lambda x: jnp.concatenate(uk.step(rod, 0.0, x[:3], x[3:], h)))
    product, x = jnp.eye(6), _ROD[2:]
    for _ in range(steps):
        product, x = jax.jacfwd(one)(x) @ product, one(x)

    def run(x):
        found = uk.simulate(
            rod, x[:3], x[3:], t0=0.0, t1=steps * h, dt0=h, ts=[steps * h], contact="differentiated steps"
        )
        return jnp.concatenate([found.q_end, found.v_end])

    np.testing.assert_allclose(jax.jit(run)(_ROD[2:]), x, rtol=0, atol=1e-13)
    np.testing.assert_allclose(jax.jit(mode(run))(_ROD[2:]), product, rtol=0, atol=1e-9)

    def force(mu):
        found = uk.simulate(
            block(mu),
            jnp.zeros(2),
            jnp.array([3.0, 0.0]),
            t0=0.0,
            t1=0.2,
            dt0=h,
            ts=[0.15],
            contact="differentiated steps",
        )
        return found.contacts.force[0]

    np.testing.assert_allclose(jax.jit(mode(force))(0.4), [0.0, -2 * G], rtol=0, atol=1e-11)


def test_more_contacts_touch_at_once_than_there_is_room_for():
    """A plate falls by 1 cm on 289 feet; there is room for 268, and a run is made anew with more, but not within jit."""
    plate, ground = um.box("plate", (0, 0, 0.05), (1, 1, 0.02), mass=1.0), um.HalfSpace("ground", (0, 0, 0))
    places = [(x, y, 0.02) for x in np.linspace(-0.5, 0.5, 17) for y in np.linspace(-0.5, 0.5, 17)]
    feet = [
        um.Contact(um.Sphere("plate", x, 0.01), ground, name=f"foot {i + 1}") for i, x in enumerate(places)
    ]
    falls = um.problem(um.assemble([plate], loads=[um.Gravity()], contacts=feet), t1=0.1)
    go = lambda v0: uk.simulate(falls, v0=v0, contact="steps", dt0=1e-3, ts=[0.1])
    assert jax.jit(lambda v0: go(v0).result == uk.RESULTS.too_many_contacts)(falls.v0)
    run = go(falls.v0)
    assert run.ok
    assert run.q_end[2] == pytest.approx(0.04, abs=1e-9)
    assert run.contacts.gap.min() > -1e-9


@pytest.mark.parametrize("shape", [um.Sphere, um.Ellipsoid])
def test_one_of_many_is_struck_from_far_off(shape: type) -> None:
    """Of 12 balls in a row, 66 pairs, the last one is struck by one that flies past the others: both go on as fast."""
    size = 0.1 if shape is um.Sphere else (0.1, 0.1, 0.1)
    places = [(0.3 * i, 0.0, 0.0) for i in range(11)] + [(2.0, 2.0, 0.0)]
    balls = [um.Body(f"ball {i}", 1.0, x, 0.004 * np.eye(3)) for i, x in enumerate(places)]
    shapes = [shape(x.name, x.centre, size) for x in balls]
    pairs = [um.Contact(a, b) for a, b in itertools.combinations(shapes, 2)]
    system = um.assemble(balls, contacts=pairs)
    along = np.subtract(places[10], places[11])
    v0 = np.zeros(72)
    v0[66:69] = 20.0 * along / np.linalg.norm(along)
    run = uk.simulate(um.problem(system, v0=v0, t1=0.3), contact="steps", dt0=1e-3, ts=61)
    assert run.contacts.gap.min() > -1e-9
    expected = np.zeros(72)
    expected[60:63] = expected[66:69] = v0[66:69] / 2
    assert run.v_end == pytest.approx(expected, abs=1e-6)


def test_balls_that_fall_as_a_column_make_no_energy():
    """Each ball rolls off the one below, whose place of contact moves along curved bodies: no contact is lost for a step,
    no body sinks into the next, and no attempt is rejected, of 14 balls that lean on each other."""
    R, places = 0.05, [(1e-3 * (-1) ** i, 2e-4 * i, 0.05 + 0.1002 * i) for i in range(14)]
    balls = [um.Body(f"ball {i}", 0.5, x, 0.4 * 0.5 * R**2 * np.eye(3)) for i, x in enumerate(places)]
    shapes = [um.HalfSpace("ground", (0.0, 0.0, 0.0))]
    shapes += [um.Sphere(f"ball {i}", x, R) for i, x in enumerate(places)]
    touches = [um.Contact(a, b, friction=0.5) for a, b in itertools.combinations(shapes, 2)]
    column = um.assemble(balls, loads=[um.Gravity()], contacts=touches, name="column")
    times = np.linspace(0.0, 0.5, 251)
    run = uk.simulate(um.problem(column, t1=0.5), contact="steps", dt0=1e-3, ts=times)
    assert run.stats["num_rejected_steps"] == 0
    assert run.stats["num_unsolved_steps"] == 0
    assert np.min(run.contacts.gap) > -1e-10
    gains = np.diff(run.energy)
    assert np.sum(gains[gains > 0]) < 1e-4  # of 48 J: rolling is of second order in the step
    heights = run.q[:, 2::7]
    assert np.min(heights[-1]) > R - 1e-10
    assert np.max(heights[0] - heights[-1]) > 0.01


def test_walls_that_close_in_on_a_body_end_the_run():
    """A lid that sinks by 1 m/s on a body of 0.2 m reaches it after 0.8 s, and there is nowhere to go."""
    gaps = [
        uk.Unilateral(lambda t, q: q[0] - 0.1, name="floor"),
        uk.Unilateral(lambda t, q: 1.0 - t - q[0] - 0.1, name="lid"),
    ]
    system = uk.System(jnp.eye(1), jnp.array([-9.81]), gaps)
    go = lambda v: uk.simulate(system, jnp.array([0.1]), v, t1=1.0, contact="steps", dt0=1e-3, ts=11)
    with pytest.warns(uk.ConstraintWarning, match="bodies penetrate from 0.800"):
        run = go(jnp.zeros(1))
    assert run.result == uk.RESULTS.constraints_broken
    assert "Penetrates: lid" in run.message
    within = jax.jit(go)(jnp.zeros(1))
    assert within.result == uk.RESULTS.constraints_broken
    np.testing.assert_allclose([run.t_end, within.t_end], 0.8, atol=1e-5)


def test_one_step_loses_no_contact_for_which_there_is_no_room(monkeypatch):
    """Of points that lie on floors of their own, with room for all or for one."""

    def step(count):
        floors = [uk.Unilateral(lambda t, q, i=i: q[i], name=f"floor {i}") for i in range(count)]
        system = uk.System(jnp.eye(count), jnp.full(count, -9.81), floors)
        return uk.step(system, 0.0, jnp.zeros(count), jnp.zeros(count), 1e-3)

    np.testing.assert_allclose(step(2)[0], 0, atol=1e-12)
    monkeypatch.setattr(_moreau, "contacts_at_once", lambda layout, velocities: 1)
    assert np.isnan(step(3)[0]).all()


@pytest.mark.slow
def test_gaps_of_all_pairs_are_those_of_the_saved_states():
    """Of three balls and a floor, also of balls far apart, within `jit`, in a batch, and of a run that is taken apart or
    pickled before they are read."""
    R, places = 0.1, [(0.0, 0.0, 0.1), (0.05, 0.0, 0.35), (1.0, 0.5, 0.6)]
    balls = [um.Body(f"ball {i}", 1.0, x, 0.004 * np.eye(3)) for i, x in enumerate(places)]
    shapes = [um.HalfSpace("ground", (0.0, 0.0, 0.0)), *(um.Sphere(x.name, x.centre, R) for x in balls)]
    touches = [um.Contact(a, b) for a, b in itertools.combinations(shapes, 2)]

    def gaps(q):
        x = np.asarray(q).reshape(-1, 3, 7)[:, :, :3]
        apart = [np.linalg.norm(x[:, i] - x[:, j], axis=1) - 2 * R for i, j in ((0, 1), (0, 2), (1, 2))]
        return np.stack([*(x[:, :, 2].T - R), *apart], axis=1)

    problem = um.problem(um.assemble(balls, loads=[um.Gravity()], contacts=touches), t1=0.3)
    go = lambda q: uk.simulate(problem, q, contact="steps", dt0=1e-3, ts=jnp.linspace(0.0, 0.3, 4))
    start = jnp.asarray(problem.q0)
    for run in (go(start), jax.jit(go)(start), pickle.loads(pickle.dumps(go(start)))):
        np.testing.assert_allclose(run.contacts.gap, gaps(run.q), atol=1e-12)
        np.testing.assert_allclose(run.end.contacts["gap"], gaps(run.q_end)[0], atol=1e-12)
    runs = jax.jit(jax.vmap(go))(jnp.stack([start, start.at[2].add(0.01)]))
    for q, found in zip(runs.q, runs.contacts.gap, strict=True):
        np.testing.assert_allclose(found, gaps(q), atol=1e-12)
    copies = jax.tree.map(lambda *x: jnp.stack(x), go(start), run)
    np.testing.assert_array_equal(copies.contacts.gap[0], copies.contacts.gap[1])


@pytest.mark.slow
def test_gaps_that_nobody_reads_are_not_computed(monkeypatch):
    def refuse(*_):
        raise AssertionError

    run = uk.simulate(ball(0.5), [1.0], [0.0], t1=0.6, contact="steps", dt0=1e-3, ts=4)
    with monkeypatch.context() as patch:
        patch.setattr(_contact_march, "_gaps", refuse)
        assert run.contacts.force.shape == (4, 1)
        assert len(run.contacts.told()) > 0
        assert run.raise_if_failed().ok
        with pytest.raises(AssertionError):
            _ = run.contacts.gap
    read = jax.jit(lambda x: x + jnp.sum(run.contacts.gap))(0.0)  # they have values also where JAX traces
    np.testing.assert_allclose(run.contacts.gap, run.q, atol=1e-14)
    np.testing.assert_allclose(read, np.sum(run.q))
