"""Runs with unilateral constraints, event by event: a ball in reverse mode, what is told and what is refused."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_references import TIGHT, G, events_of, within

import ukjax as uk
from ukjax._contact import _modes as modes
from ukjax._contact._rows import Coefficients, ContactLayout, ContactState, evaluate_part_on_arrays

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
    within(1e-9, t[:5], first * (1 + 2 * np.cumsum([0, *e ** np.arange(1, 5)])))
    within(1e-9, t[-1], first * (1 + e) / (1 - e))  # where bouncing has ended
    states = np.concatenate([whole.q, whole.v], axis=1)
    within(1e-8, states[:5], [bounced(t, *p) for t in times])
    within(1e-12, states[5], 0)
    np.testing.assert_allclose(whole.contacts.force[5], g, rtol=1e-12)
    exact = [jax.jacfwd(lambda p, t=t: bounced(t, *p))(p) for t in times]
    within(1e-6, jacobian[:5], exact)
    np.testing.assert_array_equal(jacobian[5], 0)


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


@pytest.mark.parametrize("t1", [-1.0, np.nan])
def test_impacts_are_not_undone(t1):
    """Within `jit` nothing can be refused: a run back in time bounced, was called successful, and lost energy."""
    system, q0, v0 = ball(1.0, G, 0.5)
    run = jax.jit(lambda t1: uk.simulate(system, q0, v0, t1=t1, ts=2))
    assert run(0.6).ok
    assert not run(t1).ok


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
    assert "Penetrates: floor by 1 m" in str(uk.check(system, 0.0, -q0, v0))
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
    np.testing.assert_allclose(run.t_end, 0.5, atol=1e-9)
    assert "may contradict each other" in run.message
    assert "Touches: left, right." in run.message


@pytest.mark.slow
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
    contact = ContactState(zero, zero, zero, np.eye(2), G, G, G, zero, np.array([20.0, 0.0]), noise)
    forces = modes.contact_forces
    margins = lambda *of: modes.margins(*of, forces(*of), jnp.zeros(()), zero)
    mode = modes.Mode(closed, zero, zero)

    @jax.jit
    def margin(contact):
        found = evaluate_part_on_arrays(
            margins, layout, Coefficients(zero, zero, zero, np.ones(2), zero, zero), contact, mode
        )
        return found.value + found.slack

    assert (np.asarray(margin(contact)) >= 0).all()
    pulled = contact._replace(rate=np.full(2, 1e-3))  # which is a force, and lets them open
    assert (np.asarray(margin(pulled)) < 0)[:2].all()


@pytest.mark.slow
def test_a_bead_on_a_wire_by_singular_values():
    """On a wire at 45 degrees it falls with g / 2, and bounces off the ground at its lower end."""
    wire = uk.Holonomic(lambda t, q: q[0] - q[1], name="wire")
    ground = uk.Unilateral(lambda t, q: q[1], restitution=0.6, name="ground")
    system = uk.System(jnp.eye(2), jnp.array([0.0, -9.81]), [wire, ground])
    run = uk.simulate(
        system, [1.0, 1.0], [0.0, 0.0], t1=1.2, ts=7, rtol=1e-9, atol=1e-9, formula=uk.UdwadiaKalaba(uk.SVD())
    )
    a, t = 9.81 / 2, np.asarray(run.t)
    hit = np.sqrt(2 / a)
    since = t - hit
    height = np.where(t < hit, 1 - a * t**2 / 2, 0.6 * a * hit * since - a * since**2 / 2)
    speed = np.where(t < hit, -a * t, 0.6 * a * hit - a * since)
    np.testing.assert_allclose(run.contacts.event_time[:1], hit, atol=1e-7)
    np.testing.assert_allclose(run.q, np.stack([height, height], 1), atol=1e-7)
    np.testing.assert_allclose(run.v, np.stack([speed, speed], 1), atol=1e-7)


@pytest.mark.parametrize(
    ("t0", "above"),
    [
        (0.0, 1e3),
        pytest.param(0.0, 0.0, marks=pytest.mark.slow),
        pytest.param(1e3, 0.0, marks=pytest.mark.slow),
        pytest.param(1e5, 1e3, marks=pytest.mark.slow),
    ],
)
def test_nothing_falls_through_a_floor_that_shakes(t0, above):
    """It is thrown at each turn, as A w^2 > g, however large times and places, and so what they round to, are."""
    w, A = 10.0, 0.1
    place = lambda t: above + A * jnp.sin(w * t)
    floor = uk.Unilateral(lambda t, q: q - place(t), restitution=0.5, name="floor")
    system = uk.System(jnp.eye(1), jnp.array([-9.81]), [floor])
    drop = lambda height: uk.simulate(
        system, (place(t0) + height)[None], jnp.zeros(1), t0=t0, t1=t0 + 60.0, ts=601
    )
    for height in (0.99, 1.0, 1.01):
        run = drop(jnp.asarray(height))
        assert run.ok
        gap = np.asarray(run.q[:, 0] - jax.vmap(place)(run.t))
        assert gap.min() > -1e-9
        assert gap[100:].max() < 1e-3  # at most so far in 1 / w, by A w^2 - g
