"""The gradient of a batch of runs is that of its members, and of finite differences, whatever computes the runs."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

LOOSE = {"rtol": 1e-7, "atol": 1e-7}
WAYS = {
    "scalar code": {},
    "arrays": {"formula": uk.UdwadiaKalaba()},
    "an event": {"event": lambda t, q, v: q[0] + 10.0},
    "its own adjoint": {"adjoint": dfx.RecursiveCheckpointAdjoint()},
}


@pytest.mark.parametrize(
    "way", [pytest.param(x, marks=pytest.mark.slow) if x in ("arrays", "an event") else x for x in WAYS]
)
def test_gradient_of_a_batch(way):
    def end(length, speed):
        problem = uk.models.pendulum(length=length)
        run = uk.simulate(problem, v0=speed * jnp.array([1.0, 0.0]), t1=0.3, ts=3, **LOOSE, **WAYS[way])
        return run.q[-1, 0]

    speeds = jnp.array([1.0, 2.0])
    total = jax.jit(lambda length: jnp.sum(jax.vmap(lambda speed: end(length, speed))(speeds)))
    found = jax.jit(jax.grad(total))(1.0)
    h = 1e-4
    np.testing.assert_allclose(found, (total(1 + h) - total(1 - h)) / (2 * h), rtol=1e-4)


@pytest.mark.slow
def test_gradient_of_a_batch_with_impacts():
    """Each ball bounces at another time, in closed form sqrt(2 h0 / g)."""

    def height(h0):
        floor = uk.Unilateral(lambda t, q: q[0], restitution=0.8)
        ball = uk.System(jnp.eye(1), jnp.array([-9.81]), [floor])
        return uk.simulate(ball, h0[None], jnp.zeros(1), t1=0.6, ts=[0.6]).q[-1, 0]

    def exact(h0):
        first = jnp.sqrt(2 * h0 / 9.81)
        return 0.8 * 9.81 * first * (0.6 - first) - 9.81 * (0.6 - first) ** 2 / 2

    heights = jnp.array([0.8, 1.0, 1.2])
    found = jax.jit(jax.grad(lambda h: jnp.sum(jax.vmap(height)(h))))(heights)
    np.testing.assert_allclose(found, jax.vmap(jax.grad(exact))(heights), atol=1e-6)
