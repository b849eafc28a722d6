"""Stick, slip and rocking against closed forms and SciPy: states to 1e-8, times to 1e-9, derivatives to 1e-6."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_references import TIGHT, G, compared, events_of, exactly, followed, slopes, within
from scipy.integrate import quad

import ukjax as uk

pytestmark = pytest.mark.slow
TURNS = 7  # of the pendulum with dry friction, until it stays


def test_block_whose_direction_turns():
    """Problem 3d, across an incline with mu = tan(alpha): |v| + v_y stays; times and places are integrals over the
    direction, which go with v0 / g and v0^2 / g."""
    alpha, beta = 0.5, 1.0

    def run(p, options):
        v0, g = p
        plane = uk.Unilateral(
            lambda t, q: q[2], friction=np.tan(alpha), slip=lambda t, q, v: v[:2], name="plane"
        )
        weight = g * jnp.array([0.0, np.sin(alpha), -np.cos(alpha)])
        turned = lambda t, q, v: jnp.arctan2(v[1], v[0]) - beta
        block = uk.System(jnp.eye(3), weight, [plane])
        start = jnp.stack([v0, 0 * v0, 0 * v0])
        found = uk.simulate(block, jnp.zeros(3), start, t1=3.0, ts=jnp.array([3.0]), event=turned, **options)
        speed = jnp.sqrt(jnp.sum(found.v_end[:2] ** 2))
        states = jnp.concatenate([found.q_end[:2], found.v_end[:2], speed[None]])
        return (states, found.t_end[None]), found

    def reference(p):
        v0, g = p
        speed = lambda b: v0 / (1 + np.sin(b))
        per_angle = lambda b: speed(b) / (g * np.sin(alpha) * np.cos(b))
        of = lambda f: quad(f, 0, beta, epsabs=1e-13)[0]
        x, y = (of(lambda b, along=along: speed(b) * along(b) * per_angle(b)) for along in (np.cos, np.sin))
        end = speed(beta)
        return [x, y, end * np.cos(beta), end * np.sin(beta), end], [of(per_angle)]

    compared(run, reference, [2.0, G])


def test_pendulum_with_dry_friction_in_its_pivot():
    """Problem 12b: when and at which angles it turns, a state while it swings, where it stays and the torque there; by
    angle, limit, length, g and mass."""
    p = [1.4, 0.45, 0.5, G, 1.0]

    def reference(p):
        th0, limit, length, g, m = p
        side, angles = [-1.0], []  # the sign of the rate, and where it turned
        moment = lambda x: -m * g * length * np.sin(x)
        rate = lambda t, y: (
            [y[1], (moment(y[0]) - side[0] * limit) / (m * length**2)] if side[0] else [0.0, 0.0]
        )
        turns = lambda t, y: y[1] * side[0] + 1e-14 if side[0] else 1.0
        turns.direction = -1

        def jump(k, t, y):
            angles.append(y[0])
            side[0] = np.sign(moment(y[0])) if abs(moment(y[0])) > limit else 0.0
            return [y[0], 0.0]

        states, times = followed(rate, [th0, 0.0], 12.0, [turns], jump, [1.0])
        return [*states[0], -moment(angles[-1]), *angles], times

    # At a turn the angle stands still: its derivative at that time is that of the angle of the turn.
    turns = reference(p)[1]
    at = np.sort([1.0, *turns, 12.0])

    def run(p, options):
        th0, limit, length, g, m = p
        rub = uk.DryFriction(lambda t, q, v: v[0], limit, name="pivot")
        force = lambda t, q, v: -m * g * length * jnp.sin(q)
        system = uk.System(lambda t, q: m * length**2 * jnp.eye(1), force, [rub])
        found = uk.simulate(system, th0[None], jnp.zeros(1), t1=12.0, ts=jnp.asarray(at), **options)
        swings, turned = np.searchsorted(at, 1.0), np.searchsorted(at, turns)
        states = (found.q[swings], found.v[swings], found.contacts.force[TURNS + 1], found.q[turned, 0])
        return (jnp.concatenate(states), found.contacts.event_time[:TURNS]), found

    trajectory = compared(run, reference, p)
    assert trajectory.contacts.num_events == TURNS


def block(b, h, g=G):
    """A rectangular block, base 2 b, height 2 h, on a rough floor by its two lower corners."""

    def contact(x, name):
        at = lambda q: (jnp.cos(q[2]) * x + jnp.sin(q[2]) * h, jnp.sin(q[2]) * x - jnp.cos(q[2]) * h)
        slip = lambda t, q, v: v[0] - v[2] * at(q)[1]
        return uk.Unilateral(lambda t, q: q[1] + at(q)[1], friction=1.0, slip=slip, name=name)

    M = lambda t, q: jnp.diag(jnp.stack([1.0 + 0 * b, 1.0 + 0 * b, (b * b + h * h) / 3]))
    return uk.System(
        M, lambda t, q, v: jnp.stack([0 * g, -g, 0 * g]), [contact(-b, "left"), contact(b, "right")]
    )


def tilted(b, h, tilt, xp):
    """The centre of a block that stands on its right corner at the origin, tilted to the right."""
    return xp.stack([-b * xp.cos(tilt) + h * xp.sin(tilt), b * xp.sin(tilt) + h * xp.cos(tilt)])


def rocked(b, h, g, start, t1, at, most=10_000):
    """Housner's block by SciPy: states (tilt, rate) from one impact to the next, in each of which the rate falls by
    1 - 3/2 sin^2 alpha; times, and the rates before impacts."""
    R, alpha, rates = np.hypot(b, h), np.arctan2(b, h), []
    fall = lambda t, y: [y[1], -g * np.sin(alpha - y[0]) / (4 / 3 * R)]
    flat = lambda t, y: y[0] + 1e-14
    flat.direction = -1

    def jump(k, t, y):
        rates.append(y[1])
        return [0.0, -(1 - 1.5 * np.sin(alpha) ** 2) * y[1]]

    states, times = followed(fall, start, t1, [flat], jump, at, most)
    return states, times, np.array(rates)


def by_impulses(b, h, impulse):
    """The rates before impacts of a block, twice: by the impulses on its corners that make b (1 + r) w of the velocity of
    its centre upwards, and those that make h (1 - r) w to the side; r = 1 - 3/2 sin^2 alpha."""
    lost = 1.5 * b * b / (b * b + h * h)
    upwards, aside = (jnp.abs(impulse[:, k] + impulse[:, k + 2]) for k in (0, 1))
    return jnp.concatenate([upwards / (b * (2 - lost)), aside / (h * lost)])


def turned(b, h, g, tilt, rate):
    """The tilt at which a block turns that has a state, by its energy."""
    alpha, R = jnp.arctan2(b, h), jnp.sqrt(b * b + h * h)
    return alpha - jnp.arccos(jnp.cos(alpha - jnp.abs(tilt)) + 2 / 3 * R / g * rate**2)


@pytest.mark.parametrize(("size", "step"), [((0.2, 0.3, 0.3), 2e-5), ((0.1, 0.4, 0.15), 1e-4)])
def test_rocking_block(size, step):
    """Problems 8a and 8b: times of six impacts, the rates before and the amplitudes after them, and a state between each
    two, by b, h, the tilt and g."""

    def reference(p, at):
        b, h, tilt, g = p
        states, times, rates = rocked(b, h, g, [tilt, 0.0], 10.0, at, most=7)
        after = (1 - 1.5 * b * b / (b * b + h * h)) * rates[:6]
        return [
            *np.abs(states).T.ravel(),
            *np.abs(rates[[*range(6)] * 2]),
            *turned(b, h, g, 0.0, after),
        ], times[:6]

    struck = rocked(*size[:2], G, [size[2], 0.0], 10.0, [], most=7)[1]
    at = (struck[1:] + 2 * struck[:-1]) / 3

    def run(p, options):
        b, h, tilt, g = p
        start = jnp.append(tilted(b, h, tilt, jnp), -tilt)
        found = uk.simulate(block(b, h, g), start, jnp.zeros(3), t1=at[-1], ts=jnp.asarray(at), **options)
        states, told = (found.q[:6, 2], found.v[:6, 2]), found.contacts
        numbers = *map(jnp.abs, states), by_impulses(b, h, told.impulse[:6]), turned(b, h, g, *states)
        return (jnp.concatenate(numbers), told.event_time[:6]), found

    by = lambda function, p: slopes(function, p, step)
    trajectory = compared(run, lambda p: reference(p, at), [*size, G], by)
    assert trajectory.contacts.num_events == 6


def rest_of_rocking(b, h, tilt, g):
    """When a block that rocks comes to rest, after infinitely many impacts: twice the quarter periods that follow the
    first one, by elliptic integrals over s with tilt (1 - s^2), then those of a falling rate."""
    R, alpha = np.hypot(b, h), np.arctan2(b, h)
    ratio, scale = 1 - 1.5 * np.sin(alpha) ** 2, np.sqrt(R / (3 * g))

    def quarter(tilt):
        energy = lambda s: np.sin(alpha - tilt + tilt * s * s / 2) * np.sin(tilt * s * s / 2)
        return quad(lambda s: 2 * scale * tilt * s / np.sqrt(energy(s)), 0, 1, epsabs=0, epsrel=1e-12)[0]

    time = quarter(tilt)
    for _ in range(18):
        energy = ratio**2 * np.sin(alpha - tilt / 2) * np.sin(tilt / 2)
        for _ in range(60):
            tilt = 2 * np.arcsin(energy / np.sin(alpha - tilt / 2))
        time += 2 * quarter(tilt)
    return time + 2 * quarter(tilt) * ratio / (1 - ratio)


def test_rocking_ends():
    """Problem 8a: the squat block comes to rest, after infinitely many impacts."""

    def run(p, options):
        b, h, tilt, g = p
        start = jnp.append(tilted(b, h, tilt, jnp), -tilt)
        found = uk.simulate(block(b, h, g), start, jnp.zeros(3), t1=2.0, ts=jnp.array([2.0]), **options)
        last = jnp.take(found.contacts.event_time, found.contacts.num_events - 1)
        return (jnp.concatenate([found.q_end[1:], found.v_end]), last[None]), found

    compared(run, lambda p: ([p[1], 0, 0, 0, 0], [rest_of_rocking(*p)]), [0.2, 0.3, 0.3, G])


def test_block_dropped_on_a_corner():
    """Problem 8c: the corner sticks, its impulse takes the velocity of the corner away, and the block rocks on from
    there. Four impacts, the rates after the first one and before the others, and amplitudes."""
    p = [0.2, 0.3, 0.25, G, 0.05]

    def reference(p):
        b, h, tilt, g, height = p
        (x, y), R2 = tilted(b, h, tilt, np), b * b + h * h  # from the corner to the centre
        drop, first = np.sqrt(2 * g * height), np.sqrt(2 * height / g)
        rate = drop * x / (4 / 3 * R2)  # of the rotation, from the moment of momentum about the corner
        _, times, rates = rocked(b, h, g, [tilt, rate], 0.9, [], most=3)
        # of the centre after it, in place of (0, -drop); the tilt to the right is a rotation by -rate
        after = np.array([rate * y, -rate * x])
        high = turned(b, h, g, 0.0, (1 - 1.5 * b * b / R2) * rates)
        numbers = [after[1] + drop, after[0], -rate, *np.abs(rates[[0, 1, 2] * 2]), *high]
        return numbers, [first, *(first + times)]

    struck = reference(p)[1]
    at = np.array([*(np.add(struck[1:-1], struck[2:]) / 2), struck[-1] + 0.01])

    def run(p, options):
        b, h, tilt, g, height = p
        x, y = tilted(b, h, tilt, jnp)
        start = jnp.stack([x, y + height, -tilt])
        found = uk.simulate(block(b, h, g), start, jnp.zeros(3), t1=at[-1], ts=jnp.asarray(at), **options)
        told = found.contacts
        normal, along = told.impulse[0, 2:]
        rate = 3 * (y * along - x * normal) / (b * b + h * h)  # of the rotation by it, about the centre
        high = turned(b, h, g, found.q[:3, 2], found.v[:3, 2])
        numbers = jnp.stack([normal, along, rate]), by_impulses(b, h, told.impulse[1:4]), high
        return (jnp.concatenate(numbers), told.event_time[:4]), found

    compared(run, reference, p)


def rod(mu, spin, speed=-2.0, phi=1.1, floor=0.0):
    """The rod of Painleve, its state, and the Delassus operator and free accelerations of its tip; on a floor that
    moves."""
    length = 0.5
    s, c = length * jnp.sin(phi), length * jnp.cos(phi)
    slip = lambda t, q, v: v[0] + length * jnp.sin(q[2]) * v[2] - floor
    tip = uk.Unilateral(lambda t, q: q[1] - length * jnp.sin(q[2]), friction=mu, slip=slip, name="tip")
    M = jnp.diag(jnp.array([1.0, 1.0, length**2 / 3]))
    v0 = jnp.stack([floor + speed - s * spin, c * spin, 1.0 * spin])
    J = jnp.stack([jnp.stack([0 * c, 1 + 0 * c, -c]), jnp.stack([1 + 0 * c, 0 * c, s])])
    free = jnp.stack([-G + s * spin**2, c * spin**2])
    system = uk.System(M, jnp.array([0.0, -G, 0.0]), [tip])
    return system, jnp.stack([0 * s, s, 1.0 * phi]), v0, J @ jnp.linalg.solve(M, J.T), free


def test_rod_of_painleve():
    """Problem 9a, e = 0. No acceleration solves this state: the tip sticks by an impulse without collision, P = -G^-1 u,
    and stays."""

    def run(p, options):
        mu, speed, phi = p
        system, q0, v0, *_ = rod(mu, 0.0, speed, phi)
        found = uk.simulate(system, q0, v0, t1=1e-3, ts=jnp.array([0.0]), **options)
        return (
            jnp.concatenate([found.contacts.impulse[0], found.v[0]]),
            found.contacts.event_time[:1],
        ), found

    def exact(p):
        mu, speed, phi = p
        _, _, v0, inverse_inertia, _ = rod(mu, 0.0, speed, phi)
        normal, along = -jnp.linalg.solve(inverse_inertia, jnp.stack([0 * speed, speed]))
        moment = -0.5 * jnp.cos(phi) * normal + 0.5 * jnp.sin(phi) * along
        return jnp.stack([normal, along, v0[0] + along, normal, 12 * moment]), 0 * p[:1]

    p = jnp.array([1.6, -2.0, 1.1])
    trajectory = compared(run, exact, p, exactly)
    assert trajectory.contacts.sudden[0]
    assert trajectory.contacts.told()[0].endswith("N s, without collision")
    # A step of time stepping finds it too.
    system, q0, v0, *_ = rod(1.6, 0.0)
    step = uk.simulate(system, q0, v0, t1=1e-6, ts=[1e-6], contact="steps", dt0=1e-6)
    np.testing.assert_allclose(1e-6 * step.contacts.force[0], exact(p)[0][:2], atol=2e-5)


def test_rod_that_slides():
    """Problem 9c. With less friction than Painleve's the tip slides on, pressed by -b_n / (G_nn - mu s G_nt), s = -1."""

    def run(p, options):
        mu, speed, phi, spin = p
        system, q0, v0, *_ = rod(mu, spin, speed, phi)
        found = uk.simulate(system, q0, v0, t1=1e-4, ts=jnp.array([0.0]), **options)
        return (found.contacts.force[0], found.t[:0]), found

    def exact(p):
        mu, speed, phi, spin = p
        *_, inverse_inertia, free = rod(mu, spin, speed, phi)
        normal = -free[0] / (inverse_inertia[0, 0] + mu * inverse_inertia[0, 1])
        return jnp.stack([normal, mu * normal]), p[:0]

    trajectory = compared(run, exact, [1.2, -2.0, 1.1, 0.0], exactly)
    assert trajectory.contacts.sliding[0, 0]


def test_rod_with_two_accelerations():
    """Problem 9b, p < 0 and b_n > 0: to part and to slide on both obey the laws. The run says so, and parts, in both
    ways."""
    system, q0, v0, inverse_inertia, free = rod(1.6, 6.0)
    p = inverse_inertia[0, 0] + 1.6 * inverse_inertia[0, 1]
    assert p < 0 < free[0]
    with pytest.warns(uk.ContactWarning, match="several motions of tip obey the laws at 0 s"):
        run = uk.simulate(system, q0, v0, t1=1e-4, ts=[0.0], **TIGHT)
    within(1e-12, run.contacts.force[0], 0)
    within(1e-9, run.v[0], v0)
    assert run.contacts.told() == ["0 s: other motions of tip obey the laws as well"]


@pytest.mark.parametrize("floor", [0.0, 2.0])
def test_rod_with_two_accelerations_by_steps(floor):
    """The same, on a floor that stands or moves with the tip; it is said as the rod parts, not of one that flies, nor of
    one that leaves with a speed."""
    system, q0, v0, *_ = rod(1.6, 6.0, floor=floor)
    run = lambda v, h: uk.simulate(system, q0, v, t1=10 * h, ts=np.arange(6) * h, contact="steps", dt0=h)
    for h in (1e-5, 1e-3):
        with pytest.warns(uk.ContactWarning, match="several motions of tip obey the laws at 0 s"):
            steps = run(v0, h)
        np.testing.assert_allclose(steps.contacts.force, 0, atol=1e-12)
        # Of the first step at both its ends.
        assert steps.contacts.ambiguous[:, 0].tolist() == [True] * 2 + [False] * 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not run(v0 + jnp.array([0.0, 1.0, 0.0]), 1e-3).contacts.ambiguous.any()


def test_bouncing_beside_an_end_that_slides():
    """A plank whose one end slides while the other one bounces: it falls by b = -2 (N/m - g), N the force on the end that
    slides, with its friction; and is at rest after t1 (1 + e) / (1 - e)."""
    m, inertia, high, mu, e, height = 1.0, 0.5, 0.3, 0.4, 0.5, 0.1
    ends = uk.Unilateral(
        lambda t, q: jnp.stack([q[1] - q[2], q[1] + q[2]]),
        restitution=jnp.array([0.0, e]),
        friction=mu,
        slip=lambda t, q, v: jnp.stack([v[0] + high * v[2]] * 2)[:, None],
        name="end",
    )
    plank = uk.System(jnp.diag(jnp.array([m, m, inertia])), jnp.array([0.0, -m * G, 0.0]), [ends])
    start = jnp.array([0.0, height / 2, height / 2]), jnp.array([6.0, 0.0, 0.0])
    run = uk.simulate(plank, *start, t1=0.5, ts=[0.5])
    force = G / (1 / m + (1 + high * mu) / inertia)
    falls = np.sqrt(2 * height / (2 * (G - force / m)))
    within(1e-12, events_of(run)[0], falls)
    within(1e-10, events_of(run)[-1], falls * (1 + e) / (1 - e))
    assert run.contacts.closed[-1].all()
    assert run.contacts.sliding[-1].all()


@pytest.mark.parametrize(
    ("speed", "spin", "several"), [(1.0, 2.0, True), (1.0, 0.0, False), (0.0, 0.0, False)]
)
def test_table_on_four_legs(speed, spin, several):
    """It slides and spins in many ways, as friction goes with how its legs share the weight; if it does one of the two,
    or stands, there is one motion, and nothing to say."""
    legs, height, m = np.array([[0.4, 0.3], [0.4, -0.3], [-0.4, 0.3], [-0.4, -0.3]]), 0.5, 5.0

    def feet(q):
        """Of place, small angles about x and y, and any angle about z."""
        c, s, a, b = jnp.cos(q[5]), jnp.sin(q[5]), q[3], q[4]
        turned = jnp.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]])
        tilted = jnp.array([[1, 0, b], [0, 1, -a], [-b, a, 1.0]])
        return q[None, :3] + np.hstack([legs, np.full((4, 1), -height)]) @ (turned @ tilted).T

    slip = lambda t, q, v: jax.jvp(feet, (q,), (v,))[1][:, :2]
    floor = uk.Unilateral(lambda t, q: feet(q)[:, 2], friction=0.4, slip=slip, name="leg")
    M = jnp.diag(jnp.array([m, m, m, 0.5, 0.6, 0.9]))
    system = uk.System(M, jnp.array([0, 0, -m * G, 0, 0, 0]), [floor])
    for options in ({}, {"contact": "steps", "dt0": 1e-3}):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", uk.ContactWarning)
            run = uk.simulate(
                system, [0, 0, height, 0, 0, 0], [speed, 0, 0, 0, 0, spin], t1=0.05, ts=[0.05], **options
            )
        assert bool(run.contacts.ambiguous.all()) is bool(run.contacts.ambiguous.any()) is several
        assert (
            any("of leg[0], leg[1], leg[2], leg[3] obey the laws" in str(x.message) for x in said) is several
        )
        np.testing.assert_allclose(run.contacts.force[0, ::3].sum(), m * G, rtol=1e-3)
