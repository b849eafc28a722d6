"""Contacts with stiffness and damping, by time steps, against closed forms and SciPy's integrator."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._contact._rows import layout_of

G, MASS = 9.81, 2.0


def height(t, q):
    return q[-1]


def along(t, q, v):
    return v[0]


def ball(stiffness, damping=0.0, weight=MASS * G):
    floor = uk.Unilateral(height, stiffness=stiffness, damping=damping, name="floor")
    return uk.System(MASS * jnp.eye(1), jnp.array([-weight]), [floor])


def run(system, q, v, t1, h, ts=2, contact="steps"):
    problem = uk.Problem(system, jnp.asarray(q), jnp.asarray(v), 0.0, t1)
    return uk.simulate(problem, contact=contact, dt0=h, ts=ts)


def test_a_ball_rests_at_the_depth_of_its_weight():
    """With the force of its weight, and no impact told; a start below the floor is one like others."""
    for start in (0.1, -0.01):
        found = run(ball(1e4, 200.0), [start], [0.0], 2.0, 1e-3, 11)
        assert abs(found.q[-1, 0] + MASS * G / 1e4) < 1e-9
        assert abs(found.contacts.gap[-1, 0] + MASS * G / 1e4) < 1e-9
        assert abs(found.contacts.force[-1, 0] - MASS * G) < 1e-6
        assert int(found.contacts.num_events) == 0
        assert not np.any(found.contacts.ambiguous)


@pytest.mark.parametrize("h", [1e-3, 1e-4])
def test_an_undamped_bounce_is_half_an_oscillation(h):
    """Without weight, it takes pi sqrt(m/k). A step keeps (1 + h^2 k / 2 m)^(-1/2) of the speed: the size of the
    eigenvalues of a step with the spring at its end."""
    k, v0 = 1e4, 1.5
    found = run(ball(k, weight=0.0), [0.01], [-v0], 0.1, h, round(0.1 / h) + 1)
    bears = np.flatnonzero(found.contacts.force[:, 0] > 0)
    assert abs(bears.size * h - np.pi * np.sqrt(MASS / k)) < 2 * h
    kept = (1 + h * h * k / (2 * MASS)) ** (-bears.size / 2)
    assert abs(found.v[-1, 0] - v0 * kept) < 0.03 * v0 * h * np.sqrt(k / MASS) + 1e-9
    # At the deepest all energy is in the spring.
    assert abs(found.q[:, 0].min() + v0 * np.sqrt(MASS / k)) < 0.5 * v0 * h


def test_a_damped_bounce_is_that_of_scipy():
    """Of first order in the step."""
    k, d, t1 = 1e4, 150.0, 0.3
    force = lambda z, v: max(0.0, -k * z - d * v) if z < 0 else 0.0
    exact = solve_ivp(
        lambda t, y: [y[1], force(*y) / MASS - G],
        (0.0, t1),
        [0.1, 0.0],
        rtol=1e-10,
        atol=1e-12,
        max_step=1e-4,
    )
    errors = [abs(run(ball(k, d), [0.1], [0.0], t1, h).q[-1, 0] - exact.y[0, -1]) for h in (1e-3, 2.5e-4)]
    assert errors[0] < 2e-3
    assert errors[1] < 0.4 * errors[0]


def test_friction_is_mu_times_the_force_of_the_spring():
    """A block at its depth slides to a stop."""
    floor = uk.Unilateral(height, stiffness=2e4, damping=300.0, friction=0.3, slip=along, name="floor")
    block = uk.System(MASS * jnp.eye(2), jnp.array([0.0, -MASS * G]), [floor])
    found = run(block, [0.0, -MASS * G / 2e4], [1.0, 0.0], 0.5, 1e-3, 6)
    t = np.asarray(found.t)
    assert np.allclose(found.v[:, 0], np.maximum(0, 1 - 0.3 * G * t), rtol=0, atol=1e-9)
    sliding = (t > 0) & (t < 0.3)
    assert np.allclose(np.abs(found.contacts.force[sliding]), [MASS * G, 0.3 * MASS * G], rtol=1e-9)


def test_rigid_contacts_stay_rigid_beside_soft_ones():
    """A second body rests on the first one, which rests on a spring."""
    gaps = [
        uk.Unilateral(lambda t, q: q[0], stiffness=1e4, damping=300.0, name="floor"),
        uk.Unilateral(lambda t, q: q[1] - q[0], name="load"),
    ]
    stack = uk.System(jnp.diag(jnp.array([MASS, 1.0])), jnp.array([-MASS * G, -G]), gaps)
    found = run(stack, [0.0, 0.1], [0.0, 0.0], 2.0, 1e-3, 51)
    assert np.min(found.contacts.gap[:, 1]) > -1e-9
    assert np.allclose(found.q[-1], -(MASS + 1) * G / 1e4, rtol=0, atol=1e-8)


def test_a_box_sinks_on_its_corners():
    crate = um.box("crate", (0.0, 0.0, 0.2), (0.4, 0.3, 0.4), mass=3.0)
    shapes = um.Cuboid("crate", (0.0, 0.0, 0.2), (0.4, 0.3, 0.4)), um.HalfSpace("ground", (0.0, 0.0, 0.0))
    touch = um.Contact(*shapes, stiffness=2e4, damping=200.0, friction=0.5)
    smooth = um.Contact(*shapes, name="far", friction=0.5)
    system = um.assemble([crate], loads=[um.Gravity()], contacts=[touch])
    found = uk.simulate(um.problem(system, t1=1.0), contact="steps", dt0=1e-3, ts=2)
    assert abs(found.q[-1, 2] - (0.2 - 3.0 * G / (4 * 2e4))) < 1e-9
    layout = layout_of(
        um.assemble([crate], contacts=[touch, smooth]), jnp.zeros(()), system.q0, jnp.zeros(6)
    )[0]
    assert sorted(zip(layout.names, layout.soft, strict=True))[::8] == [
        ("crate-ground[0]", True),
        ("far[0]", False),
    ]
    changed = touch.with_friction(0.2)
    assert (changed.stiffness, changed.damping) == (touch.stiffness, touch.damping)
    problem = dataclasses.replace(um.problem(system), q0=found.q[-1])
    assert "Redundant contacts: of crate-ground[0] normal" not in str(uk.check(problem))


def test_the_derivative_of_the_depth_by_the_stiffness():
    depth = lambda k: -run(ball(k, 200.0), [0.0], [0.0], 1.0, 1e-3, contact="differentiated steps").q[-1, 0]
    for of in (jax.grad(depth), jax.jacfwd(depth)):
        assert abs(of(1e4) + MASS * G / 1e8) < 1e-12


def test_a_batch_and_single_precision():
    depths = jax.vmap(lambda k: -run(ball(k, 200.0), [0.0], [0.0], 1.0, 1e-3).q[-1, 0])
    stiffness = jnp.array([5e3, 1e4, 2e4])
    assert np.allclose(depths(stiffness), MASS * G / stiffness, rtol=1e-9)
    cast = lambda x: x.astype(jnp.float32) if isinstance(x, jax.Array) else x
    single = jax.tree.map(cast, ball(1e4, 200.0))
    found = run(single, np.zeros(1, np.float32), np.zeros(1, np.float32), 1.0, 1e-3)
    assert found.q.dtype == np.float32
    assert abs(found.q[-1, 0] + MASS * G / 1e4) < 1e-5


def test_what_does_not_go_together_is_refused():
    with pytest.raises(uk.InputError, match="need contact='steps'"):
        run(ball(1e4), [1.0], [0.0], 1.0, None, contact="events")
    shapes = um.Sphere("ball", (0.0, 1.0), 0.1), um.HalfSpace("ground", (0.0, 0.0))
    for make in (
        lambda **given: uk.Unilateral(height, **given),
        lambda **given: um.Contact(*shapes, **given),
    ):
        with pytest.raises(uk.InputError, match="give damping instead"):
            make(stiffness=1e4, restitution=0.5)
        with pytest.raises(uk.InputError, match="damping but no stiffness"):
            make(damping=1.0)
        with pytest.raises(uk.InputError, match="must be positive"):
            make(stiffness=0.0)
