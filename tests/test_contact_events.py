"""Runs with unilateral constraints by events, against closed forms and SciPy's event location."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import ukjax as uk

TIGHT = {"rtol": 1e-11, "atol": 1e-11}


def ball(h0, g, e):
    fall = uk.System(jnp.eye(1), -g * jnp.ones(1), [uk.Unilateral(lambda t, q: q[0], restitution=e, name="floor")])
    return fall, jnp.reshape(h0, 1), jnp.zeros(1)


def bounced(t, h0, g, e):
    """Height and velocity of a ball that bounces, in closed form."""
    first = jnp.sqrt(2 * h0 / g)
    if t < first:
        return h0 - g * t * t / 2, -g * t
    start, speed = first, e * g * first
    while t > start + 2 * speed / g:
        start, speed = start + 2 * speed / g, e * speed
    return speed * (t - start) - g * (t - start) ** 2 / 2, speed - g * (t - start)


TIMES = np.array([0.2, 0.6, 1.1, 1.7, 2.3])
BALL = (1.0, 9.81, 0.8)


@pytest.fixture(scope="module")
def ball_and_derivatives():
    def run(p):
        system, q0, v0 = ball(*p)
        run = uk.simulate(system, q0, v0, t1=4.2, ts=jnp.append(jnp.asarray(TIMES), 4.2), **TIGHT)
        return jnp.stack([run.q[:-1, 0], run.v[:-1, 0]]), run.contacts.event_time, run


        (states, times, run), pull = jax.vjp(run_of := run, p) if False else (run(p), None)
        return states, times, run

    del both
    whole = jax.jit(lambda p: run(p))
    jacobian = jax.jit(jax.jacrev(lambda p: run(p)[0]))
    p = jnp.array(BALL)
    return whole(p), jacobian(p)


def test_bouncing_ball(ball_and_derivatives):
    (states, times, run), jacobian = ball_and_derivatives
    h0, g, e = BALL
    expected = np.array([bounced(t, *BALL) for t in TIMES]).T
    np.testing.assert_allclose(states[:, :-1], expected, atol=1e-8)
    first = np.sqrt(2 * h0 / g)
    impacts = first * (1 + 2 * np.cumsum([0, *e ** np.arange(1, 5)]))
    np.testing.assert_allclose(times[:5], impacts, atol=1e-9)
    at_rest = np.flatnonzero(run.contacts.event_closed[:, 0])[0]
    np.testing.assert_allclose(times[at_rest], first * (1 + e) / (1 - e), atol=1e-6)
    assert np.all(np.abs(states[:, -1]) < 1e-12)
    np.testing.assert_allclose(run.contacts.force[-1, 0], g, rtol=1e-12)
    of = lambda p: jnp.stack([jnp.stack(bounced(t, *p)) for t in TIMES], axis=1)
    np.testing.assert_allclose(jacobian[:, :-1], jax.jacfwd(of)(jnp.array(BALL)), atol=1e-6)
    np.testing.assert_array_equal(jacobian[:, -1], 0)
