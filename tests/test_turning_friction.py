"""Friction against turning and rolling, and of two directions: one elliptic cone, beside closed forms and MuJoCo."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import ukjax as uk
import ukjax.mechanisms as um

G, R, MASS = 9.81, 0.1, 2.0
BALL = 0.4 * MASS * R**2
FLOOR = um.HalfSpace("ground", (0.0, 0.0, 0.0))


def run_of(shape, body, v0, t1, contact="steps", dt0=1e-3, **frictions):
    touch = um.Contact(shape, FLOOR, **frictions)
    moved = um.assemble([body], loads=[um.Gravity()], contacts=[touch], name="moved")
    return uk.simulate(um.problem(moved, v0=v0, t1=t1), contact=contact, dt0=dt0, ts=[0.5 * t1, t1])


def ball(v0, t1, contact="steps", dt0=1e-3, **frictions):
    body = um.Body("ball", MASS, (0.0, 0.0, R), BALL * np.eye(3))
    return run_of(um.Sphere("ball", (0.0, 0.0, R), R), body, v0, t1, contact, dt0, **frictions)


def point(v0, t1, contact="steps", **frictions):
    body = um.PointMass("point", MASS, (0.0, 0.0, 0.0))
    return run_of(um.Sphere("point", (0.0, 0.0, 0.0)), body, [*v0, 0.0], t1, contact, **frictions)


@pytest.mark.parametrize("contact", ["steps", "events"])
@pytest.mark.parametrize("shape", ["sphere", "ellipsoid"])
def test_spin_ends(contact, shape):
    """I dw/dt = -mu N, until it sticks."""
    torsion, spin = 0.01, 20.0
    if shape == "sphere":
        run = ball([0, 0, 0, 0, 0, spin], 0.4, contact, friction=0.5, torsion=torsion)
    else:
        body = um.Body("egg", MASS, (0.0, 0.0, R), BALL * np.eye(3))
        egg = um.Ellipsoid("egg", (0.0, 0.0, R), (2 * R, 1.5 * R, R))
        run = run_of(egg, body, [0, 0, 0, 0, 0, spin], 0.4, contact, friction=0.5, torsion=torsion)
    slower = torsion * MASS * G / BALL
    np.testing.assert_allclose(run.v[:, 5], [spin - 0.2 * slower, spin - 0.4 * slower], rtol=1e-9)
    np.testing.assert_allclose(run.v[:, :5], 0.0, atol=1e-9)
    np.testing.assert_allclose(
        np.abs(run.contacts.force[0, [0, 3]]), [MASS * G, torsion * MASS * G], rtol=1e-6
    )
    assert run.contacts.row_names[3].endswith("torsion")
    assert bool(run.contacts.sliding[0, 0])


def rolled(v, mu, rolling, inertia, t):
    """Place, speed and angular speed of what rolls: a little slip makes the share of the cone that slows it down."""

    def rate(t, y):
        _, v, w = y
        slip, scaled = v - R * w, rolling / mu * w
        size = np.hypot(slip, scaled)
        force, moment = -mu * MASS * G * slip / size, -rolling * MASS * G * scaled / size
        return [v, force / MASS, (moment - R * force) / inertia]

    return solve_ivp(rate, (0, t), [0.0, v, v / R], method="Radau", rtol=1e-9, atol=1e-12).y[:, -1]


@pytest.mark.parametrize("contact", ["steps", "events"])
def test_a_ball_that_rolls_slows_down(contact):
    """m R a = mu N / 1.4, but for the little that it slips."""
    rolling = 0.002
    run = ball([1.0, 0, 0, 0, 1.0 / R, 0], 1.0, contact, friction=0.5, rolling=rolling)
    a = rolling * G / (1.4 * R)
    np.testing.assert_allclose(run.v_end[0], 1.0 - a, rtol=1e-3)
    exact = rolled(1.0, 0.5, rolling, BALL, 1.0)
    np.testing.assert_allclose([run.q_end[0], run.v_end[0], run.v_end[4]], exact, rtol=2e-5)
    force = run.contacts.force[0]
    np.testing.assert_allclose(np.linalg.norm(force[3:]), rolling * MASS * G, rtol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(force[1:3]), MASS * a, rtol=1e-3)
    assert run.contacts.row_names[3:] == ("ball-ground rolling 1", "ball-ground rolling 2")


def test_a_wheel_in_the_plane_stops():
    rolling, v, wheel = 0.01, 1.0, um.disk("wheel", (0.0, R), R, mass=MASS)
    touch = um.Contact(
        um.Sphere("wheel", (0.0, R), R), um.HalfSpace("ground", (0.0, 0.0)), friction=0.8, rolling=rolling
    )
    moved = um.assemble([wheel], loads=[um.Gravity()], contacts=[touch], name="wheel")
    start = um.problem(moved, v0=[v, 0.0, -v / R], t1=2.0)
    run = uk.simulate(start, contact="steps", dt0=1e-3, ts=[1.0, 2.0])
    exact = rolled(v, 0.8, rolling, 0.5 * MASS * R**2, 1.0)
    np.testing.assert_allclose(run.q[0, 0], exact[0], rtol=1e-4)
    np.testing.assert_allclose(np.asarray(run.v)[0, [0, 2]] * [1.0, -1.0], exact[1:], rtol=1e-3)
    np.testing.assert_allclose(run.v_end, 0.0, atol=1e-9)
    np.testing.assert_allclose(np.abs(run.contacts.force[0, 2]), rolling * MASS * G, rtol=5e-3)
    assert run.contacts.row_names == ("wheel-ground normal", "wheel-ground tangent 1", "wheel-ground rolling")


@pytest.mark.parametrize("contact", ["steps", "events"])
@pytest.mark.parametrize("turn", [0.0, 0.4])
def test_a_point_slides_as_two_frictions_say(contact, turn):
    """f = -N (mu_i^2 v_i) / |(mu_i v_i)|, along a direction of the floor and across it."""
    mu, v0 = np.array([0.6, 0.2]), np.array([1.5, 1.0])
    axes = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    touch = {"friction": mu, "along": [*axes[0], 0.0]}
    run = point(v0, 0.3, contact, **touch)

    def rate(t, y):
        u = axes @ y[2:]
        return [*y[2:], *(-G * axes.T @ (mu**2 * u) / np.linalg.norm(mu * u))]

    exact = solve_ivp(rate, (0, 0.3), [0, 0, *v0], rtol=1e-11, atol=1e-12).y[:, -1]
    tight = 1e-6 if contact == "events" else 2e-3
    np.testing.assert_allclose([*run.q_end[:2], *run.v_end[:2]], exact, atol=tight)


def test_the_direction_turns_with_the_body_that_is_given_first():
    """A skate, turned by a quarter: it slides along its own direction as if there were no friction."""
    size = np.array([0.3, 0.2, 1e-4])
    body, shape = um.box("box", (0, 0, 5e-5), size, mass=MASS), um.Cuboid("box", (0, 0, 5e-5), size)
    quarter = np.sqrt(0.5)
    for shapes, slows in (((shape, FLOOR), 0.01), ((FLOOR, shape), 0.5)):
        touch = um.Contact(*shapes, friction=(0.01, 0.5), along=(1, 0, 0))
        skate = um.assemble([body], loads=[um.Gravity()], contacts=[touch], name="skate")
        start = um.problem(skate, v0=[0.0, 2.0, 0.0, 0.0, 0.0, 0.0], t1=0.1)
        q0 = start.q0.at[3:].set(jnp.array([quarter, 0.0, 0.0, quarter]))
        run = uk.simulate(skate, q0, start.v0, t1=0.1, contact="steps", dt0=1e-3)
        np.testing.assert_allclose(run.v_end[:2], [0.0, 2.0 - slows * G * 0.1], atol=1e-9)


def test_beside_mujoco():
    """A ball that slides, rolls and spins; MuJoCo's contact as stiff as its steps of 0.1 ms let it be."""
    v0, frictions = [1.0, 0.5, 0.0, 0.0, 3.0, 10.0], (0.5, 0.01, 0.002)
    run = ball(v0, 0.4, dt0=1e-4, friction=frictions[0], torsion=frictions[1], rolling=frictions[2])
    mu, torsion, rolling = frictions
    model = mujoco.MjModel.from_xml_string(f"""<mujoco>
      <option timestep="1e-4" cone="elliptic" impratio="100" tolerance="1e-14" iterations="200"/>
      <worldbody><geom name="floor" type="plane" size="9 9 1"/><body pos="0 0 {R}"><freejoint/>
        <geom name="ball" size="{R}" mass="{MASS}"/></body></worldbody>
      <contact><pair geom1="floor" geom2="ball" condim="6" friction="{mu} {mu} {torsion} {rolling} {rolling}"
        solref="2e-4 1" solimp="0.999 0.999 0.001"/></contact></mujoco>""")
    data = mujoco.MjData(model)
    data.qvel[:] = v0
    mujoco.mj_step(model, data, 4000)
    speed = lambda v: [*v[:2], np.linalg.norm(v[3:])]
    np.testing.assert_allclose(speed(run.v_end), speed(data.qvel), rtol=3e-3)
    np.testing.assert_allclose(run.q_end[:2], data.qpos[:2], rtol=3e-3)


def test_derivatives_by_coefficients():
    """Those of the steps, in both modes, beside differences."""

    def end(p, contact="differentiated steps"):
        run = ball([1.0, 0, 0, 0, 10.0, 10.0], 0.2, contact, 1e-2, friction=p[0], torsion=p[1], rolling=p[2])
        return jnp.stack([run.v_end[5], run.q_end[0], run.contacts.force[-1, 3]])

    p, d = jnp.array([0.5, 0.01, 0.002]), 1e-6
    differences = [(end(p + d * e, "steps") - end(p - d * e, "steps")) / (2 * d) for e in np.eye(3)]
    differences = np.stack(differences, axis=1)
    for derivative in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(derivative(end)(p), differences, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("contact", ["steps", "differentiated steps", "events"])
def test_functions_of_ones_own(contact):
    """A puck with two frictions and one against turning; with equal ones it is Coulomb's."""
    inertia, mu = np.array([2.0, 2.0, 2.0, 0.02]), np.array([[0.5, 0.2, 0.03]])
    plane = uk.Unilateral(
        lambda t, q: q[2], friction=mu, slip=lambda t, q, v: v[jnp.array([0, 1, 3])], turning=1, name="plane"
    )
    puck = uk.System(jnp.diag(jnp.asarray(inertia)), jnp.array([0.0, 0.0, -2 * G, 0.0]), [plane])
    v0 = np.array([1.0, 0.5, 0.0, 5.0])
    run = uk.simulate(puck, jnp.zeros(4), v0, t1=0.1, ts=[0.05, 0.1], contact=contact, dt0=1e-4)

    def rate(t, v):
        of_slip = mu[0] ** 2 * v / np.linalg.norm(mu[0] * v)
        return -2 * G * of_slip / inertia[[0, 1, 3]]

    exact = solve_ivp(rate, (0, 0.1), v0[[0, 1, 3]], rtol=1e-11, atol=1e-12).y[:, -1]
    np.testing.assert_allclose(run.v_end[jnp.array([0, 1, 3])], exact, atol=2e-4)
    assert run.contacts.row_names == tuple(
        f"plane {x}" for x in ("normal", "tangent 1", "tangent 2", "torsion")
    )
    on_ellipse = np.linalg.norm(run.contacts.force[:, 1:] / mu, axis=1)
    np.testing.assert_allclose(on_ellipse, 2 * G, rtol=1e-6)


def test_a_file_keeps_which_rows_are_moments(tmp_path):
    run = ball([1.0, 0, 0, 0, 10.0, 10.0], 0.01, friction=0.5, torsion=0.01, rolling=0.002)
    run.save(tmp_path / "run.npz")
    again = uk.Trajectory.load(tmp_path / "run.npz").contacts
    assert again.row_names == run.contacts.row_names
    assert again.turning == (3,)
    np.testing.assert_array_equal(again.force, run.contacts.force)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"friction": (0.5, 0.2)}, "`along` go together"),
        ({"friction": 0.5, "along": (1, 0, 0)}, "`along` go together"),
        ({"friction": (0.5, 0.2), "along": (0, 0, 1)}, "must not be the normal"),
        ({"torsion": 0.1}, "needs friction > 0"),
        ({"friction": 0.5, "rolling": -0.1}, "negative"),
    ],
)
def test_what_makes_no_sense_is_refused(given, words):
    with pytest.raises(uk.InputError, match=words):
        um.Contact(um.Sphere("ball", (0.0, 0.0, R), R), FLOOR, **given)


def test_refused_in_the_plane_and_of_functions():
    disc, line = um.Sphere("disc", (0.0, R), R), um.HalfSpace("ground", (0.0, 0.0))
    with pytest.raises(uk.InputError, match="nothing turns about a normal"):
        um.Contact(disc, line, friction=0.5, torsion=0.1)
    slip = lambda t, q, v: v[:2]
    with pytest.raises(uk.InputError, match="first friction"):
        uk.Unilateral(lambda t, q: q[0], friction=[[0.0, 0.2]], slip=slip)
    with pytest.raises(uk.InputError, match="friction for each component"):
        uk.Unilateral(lambda t, q: q[0], friction=0.2, slip=slip, turning=1)
