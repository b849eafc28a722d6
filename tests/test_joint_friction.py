"""Friction that depends on the constraint forces: against closed forms, SciPy and calls one by one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

import ukjax as uk

G, SLOPE, MASS = 9.81, 0.5, 2.0
NORMAL, ALONG = (-np.sin(SLOPE), np.cos(SLOPE)), (np.cos(SLOPE), np.sin(SLOPE))
UP = 5.0 * np.array(ALONG)


def block(mu, tilt=0.0, rows=1, **more):
    """A block in a guide up an incline; with `tilt` friction presses it against the guide, or lifts it."""
    n = jnp.asarray(NORMAL)
    along = jnp.asarray(ALONG)
    guides = [
        uk.Holonomic(lambda t, q, k=k: k * n.astype(q.dtype) @ q, name=f"guide {k}")
        for k in range(1, rows + 1)
    ]

    def friction(t, q, v, multipliers):
        ahead, side = along.astype(v.dtype), n.astype(v.dtype)
        size = mu * jnp.abs(multipliers[0]) * sum(k**2 for k in range(1, rows + 1))
        return -size * jnp.tanh(ahead @ v / 1e-3) * (ahead + tilt * side)

    weight = jnp.array([0.0, -MASS * G])
    return uk.System(MASS * jnp.eye(2), weight, guides, friction_force=friction, **more)


def force_of_guide(mu, tilt):
    return MASS * G * np.cos(SLOPE) / (1 - mu * tilt)


FORMULAS = {
    "default": uk.UdwadiaKalaba(),
    "kkt": uk.KKT(),
    "range": uk.RangeForm(),
    "recursive": uk.Recursive(),
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_block_on_an_incline(formula):
    """Without tilt and with either, by one program; outside `jit`: `test_dependent_rows_share_the_friction`."""

    @jax.jit
    def of(tilt):
        return FORMULAS[formula].acceleration(block(0.3, tilt), 0.0, jnp.zeros(2), jnp.asarray(UP))

    for tilt in (0.0, 0.8, -0.8):
        found, pressed = of(tilt), force_of_guide(0.3, tilt)
        ahead = -G * np.sin(SLOPE) - 0.3 * pressed / MASS
        np.testing.assert_allclose(found.multipliers, [pressed], rtol=1e-13)
        np.testing.assert_allclose(np.dot(ALONG, found.a), ahead, rtol=1e-13)
        np.testing.assert_allclose(found.constraint_force, MASS * (found.a + np.array([0.0, G])), rtol=1e-12)


def test_dependent_rows_share_the_friction():
    """Twice the same guide, once in half the units: friction by multipliers of least norm."""
    one, two = (uk.UdwadiaKalaba().acceleration(block(0.3, 0.4, n), 0.0, np.zeros(2), UP).a for n in (1, 2))
    np.testing.assert_allclose(two, one, rtol=1e-12)


@pytest.mark.slow
def test_its_derivatives():
    """By mu, in both modes, and one over the other, against the closed form."""

    def ahead(mu):
        return jnp.asarray(ALONG) @ uk.UdwadiaKalaba().acceleration(block(mu, 0.5), 0.0, jnp.zeros(2), UP).a

    exact = lambda mu: -G * np.sin(SLOPE) - mu * G * np.cos(SLOPE) / (1 - 0.5 * mu)
    first, second = jax.jvp(jax.grad(ahead), (0.3,), (1.0,))
    np.testing.assert_allclose(first, jax.grad(exact)(0.3), rtol=1e-12)
    np.testing.assert_allclose(second, jax.grad(jax.grad(exact))(0.3), rtol=1e-11)
    np.testing.assert_allclose(jax.jvp(ahead, (0.3,), (1.0,))[1], first, rtol=1e-12)


def test_a_run_and_its_gradient():
    """Up the incline: s = v t - a t^2 / 2; in a batch of coefficients as one by one."""

    def end(mu):
        return jnp.asarray(ALONG) @ uk.simulate(block(mu), jnp.zeros(2), UP, t1=0.5, ts=[0.5]).q[0]

    exact = lambda mu: 2.5 - 0.125 * G * (np.sin(SLOPE) + mu * np.cos(SLOPE))
    mus = jnp.array([0.0, 0.3, 0.6])
    values, slopes = jax.vmap(jax.value_and_grad(end))(mus)
    np.testing.assert_allclose(values, exact(mus), rtol=1e-11)
    np.testing.assert_allclose(slopes, np.full(3, -0.125 * G * np.cos(SLOPE)), rtol=1e-10)
    np.testing.assert_allclose(end(0.3), values[1], rtol=1e-13)


def test_friction_that_jams():
    """lambda = P + mu tilt |lambda| has no solution, two, and none: Painleve's cases."""
    at = lambda mu, tilt: uk.UdwadiaKalaba().acceleration(block(mu, tilt), 0.0, jnp.zeros(2), UP).a
    with pytest.raises(uk.InputError, match=r"non-ideal force is not finite .* multipliers jams"):
        at(3.0, 0.5)
    within = jax.jit(jax.vmap(at))(jnp.array([3.0, 3.0, 2.0, 1.9]), jnp.array([0.5, -0.5, 0.5, 0.5]))
    assert np.all(np.isfinite(within), axis=1).tolist() == [False, False, False, True]


@pytest.mark.slow
def test_a_run_into_jamming_says_so():
    """The coefficient grows with time, to 2 at 0.25 s, where mu tilt = -1 and a second solution appears."""
    own = block(1.0, -0.5)
    growing = lambda t, q, v, multipliers: (1 + 4 * t) * own.friction_force_(t, q, v, multipliers)
    system = uk.System(own.mass_matrix_, own.force_, own.constraints, friction_force=growing)
    run = uk.simulate(system, np.zeros(2), 8 * UP, t1=0.5, ts=[0.1, 0.5])
    assert not run.ok
    assert np.isinf(run.t[1])
    np.testing.assert_allclose(run.end.t, 0.25, rtol=1e-6)
    with pytest.raises(uk.SimulationError, match="multipliers jams"):
        run.raise_if_failed()


def test_in_single_precision():
    q, v = jnp.zeros(2, jnp.float32), jnp.asarray(UP, jnp.float32)
    system = jax.tree.map(lambda x: x.astype(jnp.float32) if eqx.is_array(x) else x, block(0.3, 0.5))
    found = uk.UdwadiaKalaba().acceleration(system, jnp.float32(0.0), q, v)
    assert found.a.dtype == jnp.float32
    np.testing.assert_allclose(found.multipliers, [force_of_guide(0.3, 0.5)], rtol=1e-5)


ARM, INERTIA, RADIUS, MU = 0.7, 0.05, 0.06, 0.4


def pendulum(mu):
    """A pendulum on a pin with Coulomb friction of its journal, in coordinates x, y and the angle."""

    def journal(t, q, v, multipliers):
        return (
            -mu * RADIUS * jnp.linalg.norm(multipliers) * jnp.tanh(v[2] / 1e-3) * jnp.array([0.0, 0.0, 1.0])
        )

    pin = uk.Holonomic(
        lambda t, q: jnp.stack([q[0] - ARM * jnp.sin(q[2]), q[1] + ARM * jnp.cos(q[2])]), name="pin"
    )
    M = jnp.diag(jnp.array([MASS, MASS, INERTIA]))
    return uk.System(M, jnp.array([0.0, -MASS * G, 0.0]), [pin], friction_force=journal)


def swung(mu, t1):
    """The angle by one equation: its moment about the pin holds the pin's force, which holds its acceleration."""

    def acceleration(angle, rate):
        tangential = lambda a: MASS * (ARM * a + G * np.sin(angle))
        radial = MASS * (ARM * rate**2 + G * np.cos(angle))
        moment = lambda a: (
            (INERTIA + MASS * ARM**2) * a + MASS * G * ARM * np.sin(angle)
            + mu * RADIUS * np.hypot(tangential(a), radial) * np.tanh(rate / 1e-3)
        )  # fmt: skip
        return brentq(moment, -1e3, 1e3, xtol=1e-13)

    rate = lambda t, y: (y[1], acceleration(*y))
    return solve_ivp(rate, (0.0, t1), (0.0, 6.0), rtol=1e-10, atol=1e-10).y[0, -1]


def angle(mu):
    """Of the pendulum after 0.4 s."""
    return uk.simulate(pendulum(mu), [0.0, -ARM, 0.0], [6.0 * ARM, 0.0, 6.0], t1=0.4, ts=[0.4]).q[0, 2]


def test_a_pendulum_on_a_pin():
    np.testing.assert_allclose(angle(MU), swung(MU, 0.4), rtol=1e-8)


@pytest.mark.slow
def test_the_gradient_of_a_pendulum_on_a_pin():
    slope = (swung(MU + 1e-3, 0.4) - swung(MU - 1e-3, 0.4)) / 2e-3
    np.testing.assert_allclose(jax.grad(angle)(MU), slope, rtol=1e-5)


def test_where_it_is_refused():
    floor = uk.Unilateral(lambda t, q: q[1] + 1.0, name="floor")
    own = block(0.3)
    touching = uk.System(
        own.mass_matrix_, own.force_, [*own.constraints, floor], friction_force=own.friction_force_
    )
    with pytest.raises(uk.InputError, match="forces of unilateral constraints, and the system has floor"):
        uk.simulate(touching, np.zeros(2), UP, t1=0.1)
    with pytest.raises(uk.InputError, match="friction force has shape"):
        uk.UdwadiaKalaba().acceleration(
            uk.System(own.mass_matrix_, own.force_, own.constraints, friction_force=lambda t, q, v, m: m),
            0.0, np.zeros(2), UP,
        )  # fmt: skip
    reach = uk.Holonomic(lambda t, q: q[0] - t, name="reach")
    with pytest.raises(uk.InputError, match="friction_force"):
        uk.servo_control(own, jnp.eye(2), reach, 0.0, np.zeros(2), UP)
    with pytest.raises(uk.InputError, match="friction_force"):
        uk.analysis.inverse_dynamics(own, np.zeros(2), 0.0, np.zeros(2), np.zeros(2))
