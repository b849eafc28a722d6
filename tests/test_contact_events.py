"""Runs with unilateral constraints, event by event: closed forms, and SciPy's location of events."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_references import TIGHT, G, events_of, followed, impacts_of

import ukjax as uk
from ukjax._contact import _modes as modes
from ukjax._contact._parts import of_contacts_on_arrays
from ukjax._contact._rows import Coefficients, ContactLayout, ContactState

# ---- the bouncing ball


def ball(h0, g, e):
    floor = uk.Unilateral(lambda t, q: q[0], restitution=e, name="floor")
    return uk.System(jnp.eye(1), -g * jnp.ones(1), [floor]), jnp.reshape(h0, 1), jnp.zeros(1)


def bounced(t, h0, g, e):
    """Height and velocity in closed form."""
    start = jnp.sqrt(2 * h0 / g)
    if t < start:
        return jnp.stack([h0 - g * t * t / 2, -g * t])
    speed = e * g * start
    while t > start + 2 * speed / g:
        start, speed = start + 2 * speed / g, e * speed
    return jnp.stack([speed * (t - start) - g * (t - start) ** 2 / 2, speed - g * (t - start)])


@pytest.mark.slow
def test_bouncing_ball_and_its_derivatives():
    times, p = (0.2, 0.6, 1.1, 1.7, 2.3), jnp.array([1.0, G, 0.8])

    def run(p):
        system, q0, v0 = ball(*p)
        run = uk.simulate(system, q0, v0, t1=4.2, ts=jnp.array([*times, 4.2]), **TIGHT)
        return jnp.concatenate([run.q, run.v], axis=1)[:6], run

    jacobian, whole = jax.jit(jax.jacrev(run, has_aux=True))(p)
    h0, g, e = map(float, p)
    first = np.sqrt(2 * h0 / g)
    t = events_of(whole)
    np.testing.assert_allclose(t[:5], first * (1 + 2 * np.cumsum([0, *e ** np.arange(1, 5)])), atol=1e-9)
    np.testing.assert_allclose(t[-1], first * (1 + e) / (1 - e), atol=1e-6)  # where bouncing has ended
    states = np.concatenate([whole.q, whole.v], axis=1)
    np.testing.assert_allclose(states[:5], [bounced(t, *p) for t in times], atol=1e-8)
    np.testing.assert_allclose(states[5], 0, atol=1e-12)
    np.testing.assert_allclose(whole.contacts.force[5], g, rtol=1e-12)
    exact = [jax.jacfwd(lambda p, t=t: bounced(t, *p))(p) for t in times]
    np.testing.assert_allclose(jacobian[:5], exact, atol=1e-6)
    np.testing.assert_array_equal(jacobian[5], 0)


# ---- sliding, sticking


def block(friction, m=1.0, pull=lambda t: 0.0, slope=0.0):
    down = m * G * np.array([-np.sin(slope), -np.cos(slope)])
    force = lambda t, q, v: jnp.array(down) + jnp.stack([pull(t), 0.0])
    plane = uk.Unilateral(lambda t, q: q[1], friction=friction, slip=lambda t, q, v: v[0], name="plane")
    return uk.System(m * jnp.eye(2), force, [plane])


@pytest.mark.slow
def test_sliding_block():
    run = uk.simulate(block(0.4, 2.0), [0.0, 0.0], [3.0, 0.0], t1=2.0, ts=[0.4, 2.0], **TIGHT)
    a = 0.4 * G
    np.testing.assert_allclose(events_of(run), [3 / a], atol=1e-9)
    np.testing.assert_allclose(run.q[:, 0], [3 * 0.4 - a * 0.08, 9 / (2 * a)], atol=1e-9)
    np.testing.assert_allclose(run.contacts.force, [[2 * G, -2 * a], [2 * G, 0]], atol=1e-9)
    np.testing.assert_array_equal(run.contacts.sliding[:, 0], [True, False])


@pytest.mark.slow
@pytest.mark.parametrize("slope", [0.35, 0.2])
def test_block_pushed_up_an_incline(slope):
    run = uk.simulate(block(0.3, slope=slope), [0.0, 0.0], [2.0, 0.0], t1=1.0, ts=[1.0], **TIGHT)
    up = G * (np.sin(slope) + 0.3 * np.cos(slope))
    down = G * max(np.sin(slope) - 0.3 * np.cos(slope), 0)
    turn, top = 2 / up, 2 / up
    np.testing.assert_allclose(events_of(run)[0], turn, atol=1e-9)
    top = 4 / (2 * up)
    np.testing.assert_allclose(run.q[-1, 0], top - down * (1 - turn) ** 2 / 2, atol=1e-9)
    friction = 0.3 * G * np.cos(slope) if down else G * np.sin(slope)
    np.testing.assert_allclose(run.contacts.force[-1, 1], friction, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("strength", [20.0, 6.0])
def test_block_that_is_pulled_to_and_fro(strength):
    """Stick and slip against SciPy: phases x'' = F(t) - s mu g, ended by x' = 0, or rest until |F| = mu g."""
    times, limit = [0.3, 1.0, 2.0, 3.0, 5.0], 0.4 * G
    pull = lambda t: strength * np.sin(3 * t)
    run = uk.simulate(
        block(0.4, pull=lambda t: strength * jnp.sin(3 * t)),
        [0.0, 0.0],
        [0.0, 0.0],
        t1=5.0,
        ts=times,
        **TIGHT,
    )
    side = [0.0]  # of the slip; 0 at rest

    def rate(t, y):
        return [y[1], 0.0] if side[0] == 0 else [y[1], pull(t) - side[0] * limit]

    stops = lambda t, y: y[1] * side[0] + 1e-13 if side[0] else 1.0
    slips = lambda t, y: limit - abs(pull(t)) if side[0] == 0 else 1.0
    stops.direction = slips.direction = -1

    def jump(k, t, y):
        side[0] = np.sign(pull(t)) if k == 1 or abs(pull(t)) > limit else 0.0
        return [y[0], 0.0]

    states, events = followed(rate, [0.0, 0.0], 5.0, [stops, slips], jump, times)
    np.testing.assert_allclose(events_of(run), events, atol=1e-7)
    np.testing.assert_allclose(np.stack([run.q[:, 0], run.v[:, 0]], axis=1), states, atol=1e-7)


def sphere(mu, R, g):
    inertia = 0.4 * R * R
    slip = lambda t, q, v: (v[:3] + jnp.cross(v[3:], -R * jnp.array([0.0, 0.0, 1.0])))[:2]
    plane = uk.Unilateral(lambda t, q: q[2], friction=mu, slip=slip, name="plane")
    M = jnp.diag(jnp.concatenate([jnp.ones(3), inertia * jnp.ones(3)]))
    return uk.System(M, -g * jnp.eye(6)[2], [plane])


@pytest.mark.slow
def test_sphere_that_slides_and_then_rolls():
    """In closed form: the slip u keeps its direction and ends at |u| = 7/2 mu g t; derivatives in forward mode."""

    def exact(p):
        mu, R, g = p[:3]
        v, w = p[3:5], p[5:7]
        u = v + R * jnp.stack([-w[1], w[0]])
        unit = u / jnp.linalg.norm(u)
        t = 2 * jnp.linalg.norm(u) / (7 * mu * g)
        rolling = v - mu * g * t * unit
        x = v * t - mu * g * t * t / 2 * unit + rolling * (2.0 - t)
        return jnp.concatenate([x, rolling])

    def run(p):
        mu, R, g = p[:3]
        v0 = jnp.concatenate([p[3:5], jnp.zeros(1), p[5:8]])
        run = uk.simulate(
            sphere(mu, R, g), jnp.zeros(6), v0, t1=2.0, ts=[2.0], adjoint=dfx.ForwardMode(), **TIGHT
        )
        return jnp.concatenate([run.q[-1, :2], run.v[-1, :2]])

    p = jnp.array([0.2, 0.11, G, 3.0, 0.5, -25.0, -10.0, 7.0])
    np.testing.assert_allclose(jax.jit(run)(p), exact(p), atol=1e-8)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(run))(p), jax.jacfwd(exact)(p), atol=1e-6)


@pytest.mark.slow
def test_oscillator_with_dry_friction():
    """Turning angles shrink by 2 Tc / k each half period, until the spring is weaker than Tc."""
    rub = uk.DryFriction(lambda t, q, v: v[0], 0.12, name="rub")
    system = uk.System(0.02 * jnp.eye(1), lambda t, q, v: -1.5 * q, [rub])
    run = uk.simulate(system, [1.0], [0.0], t1=3.0, ts=[1.0, 3.0], **TIGHT)
    half = np.pi * np.sqrt(0.02 / 1.5)
    np.testing.assert_allclose(events_of(run), half * np.arange(1, 7), atol=1e-8)
    np.testing.assert_allclose(run.q[-1, 0], 1 - 6 * 2 * 0.12 / 1.5, atol=1e-9)
    np.testing.assert_allclose(run.contacts.force[-1, 0], 1.5 * run.q[-1, 0], rtol=1e-9)


# ---- impacts


@pytest.mark.slow
def test_pendulum_that_rests_on_a_stop_and_leaves_it():
    th0, length, stop, m, tau, w = 1.0, 0.8, 0.2, 1.0, 3.0, 1.5
    torque = lambda t: -tau * np.cos(w * t)
    force = lambda t, q, v: -m * G * length * jnp.sin(q) - tau * jnp.cos(w * t)
    system = uk.System(
        m * length**2 * jnp.eye(1), force, [uk.Unilateral(lambda t, q: q[0] - stop, name="stop")]
    )
    run = uk.simulate(system, [th0], [0.0], t1=2.2, ts=[1.0, 2.2], **TIGHT)
    resting = [False]

    def rate(t, y):
        a = (-m * G * length * np.sin(y[0]) + torque(t)) / (m * length**2)
        return [0.0, 0.0] if resting[0] else [y[1], a]

    hits = lambda t, y: 1.0 if resting[0] else y[0] - stop + 1e-14
    leaves = lambda t, y: m * G * length * np.sin(stop) - torque(t) if resting[0] else 1.0
    hits.direction = leaves.direction = -1

    def jump(k, t, y):
        resting[0] = k == 0
        return [stop, 0.0]

    states, events = followed(rate, [th0, 0.0], 2.2, [hits, leaves], jump, [1.0, 2.2])
    np.testing.assert_allclose(events_of(run), events, atol=1e-9)
    np.testing.assert_allclose(np.concatenate([run.q, run.v], axis=1), states, atol=1e-8)
    np.testing.assert_allclose(
        run.contacts.force[0, 0], m * G * length * np.sin(stop) - torque(1.0), rtol=1e-9
    )


@pytest.mark.slow
def test_double_pendulum_against_a_wall():
    l1, l2, m1, m2, wall, e = 1.0, 0.8, 1.0, 0.7, 0.6, 0.5

    def mass(q, xp):
        c = m2 * l1 * l2 * xp.cos(q[0] - q[1])
        return xp.array([[(m1 + m2) * l1 * l1, c], [c, m2 * l2 * l2]])

    def force(q, v, xp):
        s = m2 * l1 * l2 * xp.sin(q[0] - q[1])
        weight = xp.array([(m1 + m2) * G * l1 * xp.sin(q[0]), m2 * G * l2 * xp.sin(q[1])])
        return xp.array([-s * v[1] ** 2, s * v[0] ** 2]) - weight

    gap = lambda q, xp: wall - l1 * xp.sin(q[0]) - l2 * xp.sin(q[1])
    side = uk.Unilateral(lambda t, q: gap(q, jnp), restitution=e, name="wall")
    system = uk.System(lambda t, q: mass(q, jnp), lambda t, q, v: force(q, v, jnp), [side])
    run = uk.simulate(system, [-0.8, -0.5], [0.0, 0.0], t1=3.4, ts=[3.4], **TIGHT)

    def rate(t, y):
        return [*y[2:], *np.linalg.solve(mass(y[:2], np), force(y[:2], y[2:], np))]

    hits = lambda t, y: gap(y, np) + 1e-14
    hits.direction = -1
    impulses = []

    def jump(k, t, y):
        n = -np.array([l1 * np.cos(y[0]), l2 * np.cos(y[1])])
        response = np.linalg.solve(mass(y[:2], np), n)
        p = -(1 + e) * (n @ y[2:]) / (n @ response)
        impulses.append(p)
        return [*y[:2], *(y[2:] + response * p)]

    states, events = followed(rate, [-0.8, -0.5, 0, 0], 3.4, [hits], jump, [3.4])
    times, pushed = impacts_of(run)
    np.testing.assert_allclose(times, events, atol=1e-8)
    np.testing.assert_allclose(pushed, impulses, atol=1e-7)
    np.testing.assert_allclose(np.concatenate([run.q[-1], run.v[-1]]), states[-1], atol=1e-7)


def test_what_is_told(tmp_path):
    """The table has contacts by name, a file can be written and read, and events are told in words."""
    both = [
        uk.Unilateral(lambda t, q: q[1], friction=0.4, slip=lambda t, q, v: v[0], name="plane"),
        uk.Unilateral(lambda t, q: 5.0 - q[0], name="wall"),
    ]
    run = uk.simulate(uk.System(jnp.eye(2), jnp.array([0.0, -G]), both), [0.0, 0.0], [3.0, 0.0], t1=1.0, ts=5)
    assert run.contacts.told() == [f"{float(run.contacts.event_time[0]):.10g} s: plane sticks"]
    table = run.to_xarray()
    assert list(table.contact.values) == ["plane", "wall"]
    assert list(table.contact_row.values) == ["plane normal", "plane tangent 1", "wall normal"]
    np.testing.assert_allclose(table.contact_force[0], [G, -0.4 * G, 0], atol=1e-9)
    np.testing.assert_array_equal(run.contacts.rows("wall"), slice(2, 3))
    np.testing.assert_allclose(table.event_time, [3.0 / (0.4 * G)], atol=1e-9)
    np.testing.assert_array_equal(table.impulse.dims, ["event", "contact_row"])
    for name in ("run.nc", "run.npz", "run.csv"):
        run.save(tmp_path / name)
    np.testing.assert_array_equal(uk.Trajectory.load(tmp_path / "run.nc").q, run.q)
    with pytest.raises(uk.InputError, match="no contact 'floor'"):
        run.contacts.rows("floor")


def test_what_is_refused():
    system, q0, v0 = ball(1.0, G, 0.5)
    with pytest.raises(uk.InputError, match="penetrates floor by 1"):
        uk.simulate(system, -q0, v0, t1=1.0)
    with pytest.raises(uk.InputError, match="adaptive"):
        uk.simulate(
            system, q0, v0, t1=1.0, dt0=0.01, solver=dfx.Dopri5(), stepsize_controller=dfx.ConstantStepSize()
        )
    with pytest.raises(uk.InputError, match="Unilateral constraints"):
        uk.simulate(uk.models.pendulum(), contact="events")
    doors = (
        uk.lanes,
        lambda s: uk.as_diffrax(s, q0, v0),
        lambda s: uk.analysis.equilibrium(s, q=q0),
        lambda s: uk.analysis.linearize(s, q=q0),
        lambda s: uk.analysis.inverse_dynamics(s, v0, q=q0),
    )
    for door in doors:
        with pytest.raises(uk.InputError, match=r"unilateral constraints.*floor"):
            door(system)
    assert "Penetrates: floor by 1.000e+00" in str(uk.check(system, 0.0, -q0, v0))
    of = lambda *given, **more: uk.System(
        jnp.eye(1), jnp.array([-G]), [uk.Unilateral(*given, name="floor", **more)]
    )
    slip = lambda t, q, v: v[0] ** 2
    for wrong, words in (
        (of(lambda t, q: q[:0]), "no contacts"),
        (of(lambda t, q: jnp.log(q[0] - 2)), "not finite"),
        (of(lambda t, q: q[0], friction=0.1, slip=slip), "linear in the velocities"),
    ):
        with pytest.raises(uk.InputError, match=words):
            uk.simulate(wrong, q0, v0, t1=1.0)
    with pytest.raises(uk.InputError, match="at most 1"):
        uk.Unilateral(lambda t, q: q[0], restitution=1.5)
    with pytest.raises(uk.InputError, match="slip"):
        uk.Unilateral(lambda t, q: q[0], friction=0.5)


def test_walls_that_close_in_on_a_body_are_told():
    """Two walls that move by 1 m/s meet after 0.5 s, and there is nowhere to go."""
    walls = [
        uk.Unilateral(lambda t, q: q[0] - t, name="left"),
        uk.Unilateral(lambda t, q: 1 - q[0] - t, name="right"),
    ]
    system = uk.System(jnp.eye(1), jnp.zeros(1), walls)
    with pytest.warns(uk.ContactWarning, match=r"no motion .* at 0.5 s"):
        run = uk.simulate(system, [0.4], [0.0], t1=1.0, max_steps=300)
    assert not run.ok
    np.testing.assert_allclose(run.t[-1], 0.5, atol=1e-9)
    assert "may contradict each other" in run.message
    assert "closed: left, right" in run.message


def test_single_precision_does_not_fall_through():
    with jax.enable_x64(False):
        floor = uk.Unilateral(lambda t, q: q[0], restitution=0.8)
        ball = uk.System(jnp.eye(1), jnp.array([-9.81]), [floor])
        run = uk.simulate(ball, jnp.ones(1), jnp.zeros(1), t1=4.5, ts=jnp.array([0.6, 4.5]))
        np.testing.assert_allclose(run.q[:, 0], [0.418003, 0], atol=1e-4)
        assert run.contacts.closed[-1, 0]


def test_dependent_contacts_pressed_by_nothing_stay_closed():
    """Their forces are zero; rounding of the motion beside them, over what is left of a dependency, is no force."""
    layout = ContactLayout(("first", "second"), ((True, 0), (True, 0)), (False, False))
    zero, closed = np.zeros(2), np.ones(2)
    G, noise = np.full((2, 2), 4.0), 1e-15 * np.array([1.0, -1.0])
    contact = ContactState(zero, zero, np.eye(2), G, G, G, zero, np.array([20.0, 0.0]), noise)
    margins = lambda means, contact, mode: modes.margins(means, contact, mode, jnp.zeros(()), zero)
    mode = modes.Mode(closed, zero, zero)

    @jax.jit
    def margin(contact):
        found = of_contacts_on_arrays(margins, layout, Coefficients(zero, zero, zero), contact, mode)
        return found.value + found.slack

    assert (np.asarray(margin(contact)) >= 0).all()
    pulled = contact._replace(rate=np.full(2, 1e-3))  # which is a force, and lets them open
    assert (np.asarray(margin(pulled)) < 0)[:2].all()
