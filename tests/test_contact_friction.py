"""Stick, slip and rocking against closed forms and SciPy: states to 1e-8, times to 1e-9, derivatives to 1e-6."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_references import TIGHT, G, events_of, followed
from scipy.integrate import quad

import ukjax as uk

pytestmark = pytest.mark.slow


def test_block_whose_direction_turns():
    """Across an incline with mu = tan(alpha): |v| + v_y stays; times and places are integrals over the direction."""
    alpha, v0, beta = 0.5, 2.0, 1.0
    plane = uk.Unilateral(lambda t, q: q[2], friction=np.tan(alpha), slip=lambda t, q, v: v[:2], name="plane")
    weight = jnp.array([0.0, G * np.sin(alpha), -G * np.cos(alpha)])
    run = uk.simulate(
        uk.System(jnp.eye(3), weight, [plane]),
        [0.0, 0.0, 0.0],
        [v0, 0.0, 0.0],
        t1=3.0,
        ts=[3.0],
        event=lambda t, q, v: jnp.arctan2(v[1], v[0]) - beta,
        **TIGHT,
    )
    speed = lambda b: v0 / (1 + np.sin(b))
    per_angle = lambda b: speed(b) / (G * np.sin(alpha) * np.cos(b))
    of = lambda f: quad(f, 0, beta, epsabs=1e-13)[0]
    x, y = (
        of(lambda b: speed(b) * np.cos(b) * per_angle(b)),
        of(lambda b: speed(b) * np.sin(b) * per_angle(b)),
    )
    np.testing.assert_allclose(run.t[-1], of(per_angle), atol=1e-9)
    np.testing.assert_allclose(run.q[-1, :2], [x, y], atol=1e-8)
    np.testing.assert_allclose(run.v[-1, :2], speed(beta) * np.array([np.cos(beta), np.sin(beta)]), atol=1e-8)


def test_pendulum_with_dry_friction_in_its_pivot():
    length, limit = 0.5, 0.45
    rub = uk.DryFriction(lambda t, q, v: v[0], limit, name="pivot")
    system = uk.System(length**2 * jnp.eye(1), lambda t, q, v: -G * length * jnp.sin(q), [rub])
    run = uk.simulate(system, [1.4], [0.0], t1=12.0, ts=[1.0, 12.0], **TIGHT)
    side = [-1.0]  # of the rate

    def rate(t, y):
        return [y[1], (-G * length * np.sin(y[0]) - side[0] * limit) / length**2] if side[0] else [0.0, 0.0]

    turns = lambda t, y: y[1] * side[0] + 1e-14 if side[0] else 1.0
    turns.direction = -1

    def jump(k, t, y):
        moment = -G * length * np.sin(y[0])
        side[0] = np.sign(moment) if abs(moment) > limit else 0.0
        return [y[0], 0.0]

    states, times = followed(rate, [1.4, 0.0], 12.0, [turns], jump, [1.0, 12.0])
    np.testing.assert_allclose(events_of(run), times, atol=1e-7)
    np.testing.assert_allclose(np.concatenate([run.q, run.v], axis=1), states, atol=1e-7)
    np.testing.assert_allclose(run.contacts.force[-1, 0], G * length * np.sin(run.q[-1, 0]), rtol=1e-9)


def block(b, h):
    """A rectangular block, base 2 b, height 2 h, on a rough floor by its two lower corners."""

    def contact(x, name):
        at = lambda q: (jnp.cos(q[2]) * x + jnp.sin(q[2]) * h, jnp.sin(q[2]) * x - jnp.cos(q[2]) * h)
        slip = lambda t, q, v: v[0] - v[2] * at(q)[1]
        return uk.Unilateral(lambda t, q: q[1] + at(q)[1], friction=1.0, slip=slip, name=name)

    M = jnp.diag(jnp.array([1.0, 1.0, (b * b + h * h) / 3]))
    return uk.System(M, jnp.array([0.0, -G, 0.0]), [contact(-b, "left"), contact(b, "right")])


def tilted(b, h, tilt):
    """The centre of a block that stands on its right corner at the origin, tilted to the right."""
    return np.array([-b * np.cos(tilt) + h * np.sin(tilt), b * np.sin(tilt) + h * np.cos(tilt)])


def rocking(b, h):
    R, alpha = np.hypot(b, h), np.arctan2(b, h)
    fall = lambda t, y: [y[1], -G * np.sin(alpha - y[0]) / (4 / 3 * R)]
    flat = lambda t, y: y[0] + 1e-14
    flat.direction = -1
    ratio = 1 - 1.5 * np.sin(alpha) ** 2
    return fall, flat, ratio


def test_squat_rocking_block():
    """Housner's block: the rate falls by 1 - 3/2 sin^2 alpha in each impact; times by SciPy; it comes to rest."""
    b, h, tilt = 0.2, 0.3, 0.3
    run = uk.simulate(block(b, h), [*tilted(b, h, tilt), -tilt], [0.0, 0.0, 0.0], t1=2.0, ts=[2.0], **TIGHT)
    fall, flat, ratio = rocking(b, h)
    _, times = followed(fall, [tilt, 0.0], 0.77, [flat], lambda k, t, y: [0.0, -ratio * y[1]], [])
    np.testing.assert_allclose(events_of(run)[: len(times)], times, atol=1e-8)
    np.testing.assert_allclose(run.v[-1], 0, atol=1e-9)
    np.testing.assert_allclose(run.q[-1, 1:], [h, 0], atol=1e-9)
    assert events_of(run)[-1] < 0.79  # where infinitely many impacts have ended


def test_slender_rocking_block():
    b, h, tilt, t1 = 0.1, 0.4, 0.15, 2.0
    run = uk.simulate(block(b, h), [*tilted(b, h, tilt), -tilt], [0.0, 0.0, 0.0], t1=t1, ts=[t1], **TIGHT)
    fall, flat, ratio = rocking(b, h)
    states, times = followed(fall, [tilt, 0.0], t1, [flat], lambda k, t, y: [0.0, -ratio * y[1]], [t1])
    np.testing.assert_allclose(events_of(run), times, atol=1e-8)
    np.testing.assert_allclose(abs(run.q[-1, 2]), states[-1, 0], atol=1e-8)
    np.testing.assert_allclose(abs(run.v[-1, 2]), abs(states[-1, 1]), atol=1e-7)


def test_block_dropped_on_a_corner():
    """The corner sticks: its impulse takes the velocity of the corner away, and the block rocks on from there."""
    b, h, tilt, height = 0.2, 0.3, 0.25, 0.05
    centre = tilted(b, h, tilt) + np.array([0.0, height])
    run = uk.simulate(block(b, h), [*centre, -tilt], [0.0, 0.0, 0.0], t1=0.7, ts=[0.7], **TIGHT)
    R2, x, y = b * b + h * h, *tilted(b, h, tilt)  # from the corner to the centre
    drop = np.sqrt(2 * G * height)
    rate = drop * x / (4 / 3 * R2)  # of the rotation, from the moment of momentum about the corner
    fall, flat, ratio = rocking(b, h)
    first = np.sqrt(2 * height / G)
    _, times = followed(
        fall, [tilt, rate], 0.7 - first, [flat], lambda k, t, y: [0.0, -ratio * y[1]], [], most=3
    )
    np.testing.assert_allclose(events_of(run)[:4], [first, *(first + times)], atol=1e-8)
    # of the centre after it, in place of (0, -drop); the tilt to the right is a rotation by -rate
    after = np.array([rate * y, -rate * x])
    np.testing.assert_allclose(run.contacts.impulse[0, 2:], [after[1] + drop, after[0]], atol=1e-8)


def rod(mu, spin):
    """The rod of Painleve, its state, and the Delassus operator and free accelerations of its tip."""
    length, phi = 0.5, 1.1
    s, c = length * np.sin(phi), length * np.cos(phi)
    slip = lambda t, q, v: v[0] + length * jnp.sin(q[2]) * v[2]
    tip = uk.Unilateral(lambda t, q: q[1] - length * jnp.sin(q[2]), friction=mu, slip=slip, name="tip")
    M = np.diag([1.0, 1.0, length**2 / 3])
    v0 = [-2.0 - s * spin, c * spin, spin]
    J = np.array([[0.0, 1.0, -c], [1.0, 0.0, s]])
    free = np.array([-G + s * spin**2, c * spin**2])
    return (
        uk.System(M, jnp.array([0.0, -G, 0.0]), [tip]),
        [0.0, s, phi],
        v0,
        J @ np.linalg.solve(M, J.T),
        free,
    )


def test_rod_of_painleve():
    """No acceleration solves this state: the tip sticks by an impulse without collision, P = -G^-1 u, and leaves."""
    system, q0, v0, inverse_inertia, _ = rod(1.6, 0.0)
    run = uk.simulate(system, q0, v0, t1=1e-3, ts=[1e-3])
    impulse = -np.linalg.solve(inverse_inertia, [0.0, -2.0])
    np.testing.assert_allclose(run.contacts.impulse[0], impulse, rtol=1e-5)
    assert run.contacts.sudden[0]
    assert run.contacts.event_time[0] == 0
    assert run.contacts.told()[0].endswith("N s, without collision")


def test_rod_that_slides():
    """With less friction than Painleve's the tip slides on, pressed by -b_n / (G_nn - mu s G_nt), s = -1."""
    system, q0, v0, inverse_inertia, free = rod(1.2, 0.0)
    run = uk.simulate(system, q0, v0, t1=1e-4, ts=[0.0], **TIGHT)
    p = inverse_inertia[0, 0] + 1.2 * inverse_inertia[0, 1]
    normal = -free[0] / p
    np.testing.assert_allclose(run.contacts.force[0], [normal, 1.2 * normal], rtol=1e-9)
    assert run.contacts.sliding[0, 0]


def test_rod_with_two_accelerations():
    """p < 0 and b_n > 0: to part and to slide on both obey the laws. The run says so, and parts, in both ways."""
    system, q0, v0, inverse_inertia, free = rod(1.6, 6.0)
    p = inverse_inertia[0, 0] + 1.6 * inverse_inertia[0, 1]
    assert p < 0 < free[0]
    with pytest.warns(uk.ContactWarning, match="several motions of tip obey the laws at 0 s"):
        run = uk.simulate(system, q0, v0, t1=1e-4, ts=[0.0], **TIGHT)
    np.testing.assert_allclose(run.contacts.force[0], 0, atol=1e-12)
    np.testing.assert_allclose(run.v[0], v0, atol=1e-9)
    assert run.contacts.told() == ["0 s: other motions of tip obey the laws as well"]
    with pytest.warns(uk.ContactWarning, match="several motions of tip"):
        steps = uk.simulate(system, q0, v0, t1=1e-4, ts=[0.0], contact="steps", dt0=1e-5)
    np.testing.assert_allclose(steps.contacts.force[0], 0, atol=1e-12)


@pytest.mark.parametrize(("speed", "spin", "several"), [(1.0, 2.0, True), (1.0, 0.0, False), (0.0, 0.0, False)])
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
            run = uk.simulate(system, [0, 0, height, 0, 0, 0], [speed, 0, 0, 0, 0, spin], t1=0.05, ts=[0.05], **options)
        assert bool(run.contacts.ambiguous.all()) is bool(run.contacts.ambiguous.any()) is several
        assert any("of leg[0], leg[1], leg[2], leg[3] obey the laws" in str(x.message) for x in said) is several
        np.testing.assert_allclose(run.contacts.force[0, ::3].sum(), m * G, rtol=1e-3)
