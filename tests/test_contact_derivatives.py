"""Derivatives of states, times and impulses with contacts to 1e-6, by all parameters: closed forms, and SciPy's events
differentiated by differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_references import G, compared, discs_at, exactly, followed, forward, within
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

import ukjax as uk

pytestmark = pytest.mark.slow


def block(mu, g, m, pull, slope):
    """On a plane that rises to the right."""
    down = lambda g: m * g * jnp.stack([-jnp.sin(slope), -jnp.cos(slope)])
    force = lambda t, q, v: down(g) + jnp.stack([pull(t), 0.0 * t])
    plane = uk.Unilateral(lambda t, q: q[1], friction=mu, slip=lambda t, q, v: v[0], name="plane")
    return uk.System(lambda t, q: m * jnp.eye(2), force, [plane])


def pushed(system, v0, ts, options):
    start = jnp.stack([v0, 0.0 * v0])
    return uk.simulate(system, jnp.zeros(2), start, t1=float(ts[-1]), ts=jnp.asarray(ts), **options)


def test_sliding_block():
    """Problem 3a: states while it slides and where it stopped, forces there, and the time when."""

    def run(p, options):
        v0, mu, g = p
        found = pushed(block(mu, g, 2.0, lambda t: 0.0 * t, 0.0), v0, [0.4, 2.0], options)
        states = found.q[:2, 0], found.v[:2, 0], found.contacts.force[:2].ravel()
        return (jnp.concatenate(states), found.contacts.event_time[:1]), found

    def exact(p):
        v0, mu, g = p
        a = mu * g
        states = v0 * 0.4 - a * 0.08, v0**2 / (2 * a), v0 - a * 0.4, 0 * a, 2 * g, -2 * a, 2 * g, 0 * a
        return jnp.stack(states), jnp.stack([v0 / a])

    trajectory = compared(run, exact, [3.0, 0.4, G], exactly)
    np.testing.assert_array_equal(trajectory.contacts.sliding[:2, 0], [True, False])


@pytest.mark.parametrize("slope", [0.35, 0.2])
def test_block_pushed_up_an_incline(slope):
    """Problem 3b: it slides back, or stays where it stops."""
    p = [slope, 0.3, G, 2.0]

    def exact(p):
        alpha, mu, g, v0 = p
        pressed, along = g * jnp.cos(alpha), g * jnp.sin(alpha)
        turn = v0 / (along + mu * pressed)
        back = along - mu * pressed if slope == 0.35 else 0.0 * v0
        rubs = mu * pressed if slope == 0.35 else along
        top = v0 * turn / 2
        x = top - back * (1 - turn) ** 2 / 2
        return jnp.stack([top, x, -back * (1 - turn), pressed, rubs]), jnp.stack([turn])

    # At its highest point it stands still: the derivative there is that of the highest point.
    at = [float(exact(p)[1][0]), 1.0]

    def run(p, options):
        alpha, mu, g, v0 = p
        found = pushed(block(mu, g, 1.0, lambda t: 0.0 * t, alpha), v0, at, options)
        states = found.q[:2, 0], found.v[1, :1], found.contacts.force[1]
        return (jnp.concatenate(states), found.contacts.event_time[:1]), found

    compared(run, exact, p, exactly)


@pytest.mark.parametrize(("strength", "events"), [(20.0, 5), (6.0, 9)])
def test_block_that_is_pulled_to_and_fro(strength, events):
    """Problem 3c: states at five times and all events, by mu, the strength and the frequency of the pull, m and g."""
    times = [0.3, 1.0, 2.0, 3.0, 5.0]

    def run(p, options):
        mu, F, w, m, g = p
        found = pushed(block(mu, g, m, lambda t: F * jnp.sin(w * t), 0.0), 0.0 * mu, times, options)
        states = jnp.concatenate([found.q[:5, 0], found.v[:5, 0]])
        return (states, found.contacts.event_time[:events]), found

    def reference(p):
        mu, F, w, m, g = p
        limit, pull, side = mu * g, lambda t: F * np.sin(w * t) / m, [0.0]
        rate = lambda t, y: [y[1], pull(t) - side[0] * limit if side[0] else 0.0]
        stops = lambda t, y: y[1] * side[0] + 1e-13 if side[0] else 1.0
        slips = lambda t, y: 1.0 if side[0] else limit - abs(pull(t))
        stops.direction = slips.direction = -1

        def jump(k, t, y):
            side[0] = np.sign(pull(t)) if k == 1 or abs(pull(t)) > limit else 0.0
            return [y[0], 0.0]

        states, when = followed(rate, [0.0, 0.0], 5.0, [stops, slips], jump, times)
        return states.T.ravel(), when

    trajectory = compared(run, reference, [0.4, strength, 3.0, 1.0, G])
    assert trajectory.contacts.num_events == events


def test_block_that_is_pulled_off_two_feet():
    """By a force F sin(w t), at once by both, when it is as large as the weight."""

    def run(p, options):
        F, w, m, g = p
        feet = uk.Unilateral(lambda t, q: jnp.stack([q[1] - 0.3 * q[2], q[1] + 0.3 * q[2]]), name="foot")
        force = lambda t, q, v: jnp.stack([0 * t, F * jnp.sin(w * t) - m * g, 0 * t])
        system = uk.System(lambda t, q: m * jnp.eye(3), force, [feet])
        found = uk.simulate(system, jnp.zeros(3), jnp.zeros(3), t1=0.6, ts=jnp.array([0.6]), **options)
        return (jnp.concatenate([found.q_end, found.v_end]), found.contacts.event_time[:1]), found

    def exact(p):
        F, w, m, g = p
        t, start, c = 0.6, jnp.arcsin(m * g / F) / w, F / m / w
        s, speed = t - start, c * jnp.cos(w * start)
        y = speed * s + c / w * (jnp.sin(w * start) - jnp.sin(w * t)) - g * s * s / 2
        v = speed - c * jnp.cos(w * t) - g * s
        return jnp.stack([0 * y, y, 0 * y, 0 * y, v, 0 * y]), start[None]

    trajectory = compared(run, exact, [20.0, 3.0, 1.0, G], exactly)
    assert trajectory.contacts.num_events == 1


def test_block_that_starts_to_slide_on_dependent_contacts():
    """The two share its weight in any way, known to rounding over 1e-9: so is when they start to slide."""

    def run(p, options):
        mu, F, w, m, g = p
        slip = lambda t, q, v: jnp.stack([v[:1], v[:1]])
        planes = uk.Unilateral(lambda t, q: jnp.stack([q[1], q[1]]), friction=mu, slip=slip, name="plane")
        force = lambda t, q, v: jnp.stack([F * jnp.sin(w * t), -m * g + 0 * t])
        system = uk.System(lambda t, q: m * jnp.eye(2), force, [planes])
        found = uk.simulate(system, jnp.zeros(2), jnp.zeros(2), t1=0.5, ts=jnp.array([0.5]), **options)
        return found.contacts.event_time[:1], found

    p = jnp.array([0.4, 6.0, 3.0, 1.0, G])
    exact = lambda p: jnp.arcsin(p[0] * p[3] * p[4] / p[1])[None] / p[2]
    found, slope, trajectory = forward(run, p)
    within(1e-7, found, exact(p))
    within(1e-6, slope, exactly(exact, p))
    assert trajectory.contacts.num_events == 1


@pytest.mark.parametrize(
    "start",
    [(2, 0, 0, -60, 0), (3, 0, 0, 0, 0), (3, 0.5, -25, -10, 7)],
    ids=["backspin", "no spin", "sidespin"],
)
def test_sphere_that_slides_and_then_rolls(start):
    """Problem 4, the whole state while it slides and when it rolls; with backspin it comes back."""

    def run(p, options):
        mu, R, g, vx, vy, *w = p
        slip = lambda t, q, v: (v[:3] + jnp.cross(v[3:], -R * jnp.array([0.0, 0.0, 1.0])))[:2]
        plane = uk.Unilateral(lambda t, q: q[2], friction=mu, slip=slip, name="plane")
        M = lambda t, q: jnp.diag(jnp.concatenate([jnp.ones(3), 0.4 * R * R * jnp.ones(3)]))
        ball = uk.System(M, lambda t, q, v: -g * jnp.eye(6)[2], [plane])
        v0 = jnp.stack([vx, vy, 0.0 * vx, *w])
        found = uk.simulate(ball, jnp.zeros(6), v0, t1=2.0, ts=jnp.array([0.2, 2.0]), **options)
        states = jnp.concatenate([found.q[:2, :2], found.v[:2, :2], found.v[:2, 3:]], axis=1)
        return (states.ravel(), found.contacts.event_time[:1]), found

    def exact(p):
        mu, R, g, vx, vy, *w = p
        v, w = jnp.stack([vx, vy]), jnp.stack(w)
        u = v + R * jnp.stack([-w[1], w[0]])
        unit = u / jnp.sqrt(u @ u)
        end = 2 * jnp.sqrt(u @ u) / (7 * mu * g)

        def at(t):
            s = jnp.minimum(t, end)
            now = v - mu * g * s * unit
            x = v * s - mu * g * s * s / 2 * unit + now * (t - s)
            spin = w[:2] + 2.5 * mu * g * s / R * jnp.stack([-unit[1], unit[0]])
            return jnp.concatenate([x, now, spin, w[2:]])

        return jnp.concatenate([at(0.2), at(2.0)]), end[None]

    compared(run, exact, [0.2, 0.11, G, *start], exactly)


def test_billiards():
    """Problem 5f: the whole Jacobian (8, 8)."""
    radii, masses = [0.1, 0.1], [1.0, 1.0]

    def run(p, options):
        distance = lambda t, q: jnp.sqrt((q[:2] - q[2:]) @ (q[:2] - q[2:])) - 0.2
        system = uk.System(jnp.eye(4), jnp.zeros(4), [uk.Unilateral(distance, restitution=1.0, name="discs")])
        found = uk.simulate(system, p[:4], p[4:], t1=1.0, ts=jnp.array([1.0]), **options)
        return (jnp.concatenate([found.q_end, found.v_end]), found.contacts.event_time[:1]), found

    def reference(p):
        q, v, times = discs_at(
            1.0, p[:4].reshape(2, 2), p[4:].reshape(2, 2), np.zeros((2, 2)), masses, radii, 1.0
        )
        return np.concatenate([q.ravel(), v.ravel()]), times

    compared(run, reference, [0, 0, 0.6, 0.07, 1.5, 0, 0, 0])


def test_pendulum_that_rests_on_a_stop_and_leaves_it():
    """Problem 2b: what was before the stop is forgotten, d state / d theta0 = 0; times, impulse, and forces just after
    the impact and later."""
    p = [1.0, 0.8, 0.2, G, 1.0, 3.0, 1.5]

    def run(p, options):
        th0, length, stop, g, m, tau, w = p
        force = lambda t, q, v: -m * g * length * jnp.sin(q) - tau * jnp.cos(w * t)
        held = uk.Unilateral(lambda t, q: q[0] - stop, name="stop")
        system = uk.System(lambda t, q: m * length**2 * jnp.eye(1), force, [held])
        ts = jnp.array([just_after, 1.0, 2.2])
        found = uk.simulate(system, th0[None], jnp.zeros(1), t1=2.2, ts=ts, **options)
        told = found.contacts
        states = found.q_end, found.v_end, told.impulse[0], told.force[:2, 0]
        return (jnp.concatenate(states), told.event_time[:2]), found

    def reference(p):
        th0, length, stop, g, m, tau, w = p
        inertia, resting, impulse = m * length**2, [False], []
        torque = lambda t: -tau * np.cos(w * t)
        weight = lambda x: m * g * length * np.sin(x)
        rate = lambda t, y: [0, 0] if resting[0] else [y[1], (torque(t) - weight(y[0])) / inertia]
        hits = lambda t, y: 1.0 if resting[0] else y[0] - stop + 1e-14
        leaves = lambda t, y: weight(stop) - torque(t) if resting[0] else 1.0
        hits.direction = leaves.direction = -1

        def jump(k, t, y):
            impulse.append(-inertia * y[1])
            resting[0] = k == 0
            return [stop, 0.0]

        states, times = followed(rate, [th0, 0.0], 2.2, [hits, leaves], jump, [2.2])
        forces = [weight(stop) - torque(t) for t in (just_after, 1.0)]
        return [*states[-1], impulse[0], *forces], times

    just_after = 0.0
    just_after = reference(p)[1][0] + 1e-6
    trajectory = compared(run, reference, p)
    assert trajectory.contacts.num_events == 2


def test_oscillator_with_dry_friction():
    """Problem 12a: each half period takes 2 Tc / k of the angle, until the spring is weaker than Tc."""
    p = [1.0, 0.12, 1.5, 0.02]

    def exact(p):
        th0, limit, k, inertia = p
        w, shift = jnp.sqrt(k / inertia), limit / k
        half = jnp.pi / w
        passed = 2  # half periods in 1 s
        side = (-1.0) ** passed  # of the turning point before 1 s, from where it swings about the other shift
        size, phase = th0 - 2 * passed * shift - shift, w * (1.0 - passed * half)
        now = side * (size * jnp.cos(phase) + shift), -side * size * w * jnp.sin(phase)
        turns = [(-1) ** i * (th0 - 2 * i * shift) for i in range(1, 7)]
        return jnp.stack([*now, *turns, k * turns[-1]]), half * jnp.arange(1.0, 7.0)

    # At a turn the angle stands still: its derivative at that time is that of the angle of the turn.
    turns = np.asarray(exact(p)[1])
    at = np.sort([1.0, *turns, 3.0])

    def run(p, options):
        th0, limit, k, inertia = p
        rub = uk.DryFriction(lambda t, q, v: v[0], limit, name="rub")
        system = uk.System(lambda t, q: inertia * jnp.eye(1), lambda t, q, v: -k * q, [rub])
        found = uk.simulate(system, th0[None], jnp.zeros(1), t1=3.0, ts=jnp.asarray(at), **options)
        swings, turned = np.searchsorted(at, 1.0), np.searchsorted(at, turns)
        states = found.q[swings], found.v[swings], found.q[turned, 0], found.contacts.force[7]
        return (jnp.concatenate(states), found.contacts.event_time[:6]), found

    compared(run, exact, p, exactly)


def test_double_pendulum_against_a_wall():
    """Problem 6: both impacts and the state at the end, by the start, lengths, masses, g, e and the wall."""

    def mass(q, p, xp):
        l1, l2, m1, m2 = p
        c = m2 * l1 * l2 * xp.cos(q[0] - q[1])
        return xp.stack([xp.stack([(m1 + m2) * l1 * l1, c]), xp.stack([c, m2 * l2 * l2])])

    def force(q, v, p, g, xp):
        l1, l2, m1, m2 = p
        s = m2 * l1 * l2 * xp.sin(q[0] - q[1])
        weight = xp.stack([(m1 + m2) * g * l1 * xp.sin(q[0]), m2 * g * l2 * xp.sin(q[1])])
        return xp.stack([-s * v[1] ** 2, s * v[0] ** 2]) - weight

    gap = lambda q, p, wall, xp: wall - p[0] * xp.sin(q[0]) - p[1] * xp.sin(q[1])

    def run(p, options):
        q0, v0, of, (g, e, wall) = p[:2], p[2:4], p[4:8], p[8:]
        side = uk.Unilateral(lambda t, q: gap(q, of, wall, jnp), restitution=e, name="wall")
        system = uk.System(lambda t, q: mass(q, of, jnp), lambda t, q, v: force(q, v, of, g, jnp), [side])
        found = uk.simulate(system, q0, v0, t1=3.4, ts=jnp.array([3.4]), **options)
        told = found.contacts
        return (jnp.concatenate([found.q_end, found.v_end, told.impulse[:2, 0]]), told.event_time[:2]), found

    def reference(p):
        q0, v0, of, (g, e, wall) = p[:2], p[2:4], p[4:8], p[8:]
        rate = lambda t, y: [*y[2:], *np.linalg.solve(mass(y, of, np), force(y, y[2:], of, g, np))]
        hits = lambda t, y: gap(y, of, wall, np) + 1e-14
        hits.direction, impulses = -1, []

        def jump(k, t, y):
            n = -np.array([of[0] * np.cos(y[0]), of[1] * np.cos(y[1])])
            response = np.linalg.solve(mass(y, of, np), n)
            impulses.append(-(1 + e) * (n @ y[2:]) / (n @ response))
            return [*y[:2], *(y[2:] + response * impulses[-1])]

        states, times = followed(rate, [*q0, *v0], 3.4, [hits], jump, [3.4])
        return [*states[-1], *impulses], times

    trajectory = compared(run, reference, [-0.8, -0.5, 0, 0, 1.0, 0.8, 1.0, 0.7, G, 0.5, 0.6])
    assert trajectory.contacts.num_events == 2


def test_block_that_starts_to_slide_into_any_direction():
    """Pulled by k t, it slides from mu m g / k on; a turn of the pull turns the motion, of whose direction slip that has
    just started knows nothing."""
    k, g, end = 2.0, 9.81, 2.5

    def place(angle, friction):
        plane = uk.Unilateral(lambda t, q: q[2], friction=friction, slip=lambda t, q, v: v[:2], name="plane")
        pull = lambda t, q, v: jnp.stack([k * t * jnp.cos(angle), k * t * jnp.sin(angle), -g + 0 * angle])
        block = uk.System(jnp.eye(3), pull, [plane])
        return uk.simulate(block, jnp.zeros(3), jnp.zeros(3), t1=end, ts=jnp.array([end])).q_end[:2]

    angle, friction = 0.4, 0.3
    along, late = np.array([np.cos(angle), np.sin(angle)]), end - friction * g / k
    across = np.array([-along[1], along[0]])
    slopes = jax.jit(jax.jacrev(place, argnums=(0, 1)))(angle, friction)
    assert_allclose(jax.jit(place)(angle, friction), k * late**3 / 6 * along, rtol=1e-7)
    assert_allclose(slopes[0], k * late**3 / 6 * across, rtol=1e-6)
    assert_allclose(slopes[1], -g * late**2 / 2 * along, rtol=1e-6)


def test_block_that_slides_off_a_turntable():
    """Where a turntable that spins up loses it, t^4 = (mu g)^2 - 1, the force that would hold it turns while
    slip starts. Beside an implicit solver of SciPy, with friction smooth below 1e-10 m/s."""
    g, end = 9.81, 2.5
    loss = lambda mu: ((mu * g) ** 2 - 1) ** 0.25

    def run(mu):
        slip = lambda t, q, v: v[:2] - t * jnp.stack([-q[1], q[0]])
        table = uk.Unilateral(lambda t, q: q[2], friction=mu, slip=slip, name="table")
        block = uk.System(jnp.eye(3), jnp.array([0.0, 0.0, -g]), [table])
        start = jnp.array([1.0, 0.0, 0.0])
        found = uk.simulate(block, start, jnp.zeros(3), t1=end, ts=jnp.array([end]))
        return found.q_end[:2], found.contacts.event_time[0]

    def place(mu):
        t, turned = loss(mu), loss(mu) ** 2 / 2

        def rate(t, y):
            slip = y[2:] - t * np.array([-y[1], y[0]])
            return np.r_[y[2:], -mu * g * slip / np.sqrt(slip @ slip + 1e-20)]

        radial, around = np.array([[np.cos(turned), np.sin(turned)], [-np.sin(turned), np.cos(turned)]])
        y = np.r_[radial, t * around]
        return solve_ivp(rate, (t, end), y, method="Radau", rtol=1e-11, atol=1e-13).y[:2, -1]

    mu, h = 0.3, 1e-3
    q, t = jax.jit(run)(mu)
    of_q, of_t = jax.jit(jax.jacfwd(run))(mu)
    assert_allclose(q, place(mu), atol=3e-7)
    assert_allclose(t, loss(mu), rtol=1e-8)
    # a difference of fourth order
    near = {i: place(mu + i * h) for i in (-2, -1, 1, 2)}
    assert_allclose(of_q, (8 * (near[1] - near[-1]) - near[2] + near[-2]) / (12 * h), rtol=1e-4)
    assert_allclose(of_t, (loss(mu + 1e-6) - loss(mu - 1e-6)) / 2e-6, rtol=1e-7)
