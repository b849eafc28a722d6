"""Reverse mode by the steps taken, against Diffrax's own adjoint and central differences."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import central

import ukjax as uk

FIXED = {
    "dt0": 0.01,
    "stepsize_controller": dfx.ConstantStepSize(),
    "solver": dfx.Tsit5(),
    "stabilizer": uk.Baumgarte(10.0, 100.0),
}
WAYS = {
    "fixed": FIXED | {"ts": 5},
    "every fixed step": FIXED | {"ts": "steps"},
    "adaptive": {"rtol": 1e-9, "atol": 1e-9, "ts": 5, "solver": dfx.Tsit5(), "stabilizer": uk.NoStabilizer()},
    "implicit": {
        "rtol": 1e-5,
        "atol": 1e-5,
        "ts": 3,
        "solver": dfx.Kvaerno3(),
        "stabilizer": uk.NoStabilizer(),
    },
}


def loss(x, adjoint, way, end=0.31):
    """Of all saved states and the last, by parameters, start and end of a pendulum."""
    parameters, q0, v0, t1 = x
    problem = uk.models.pendulum(rate=1.0)
    system = eqx.combine(parameters, problem.system)
    run = uk.simulate(system, problem.q0 + q0, problem.v0 + v0, t0=0.0, t1=end * t1, adjoint=adjoint,
                      max_steps=80, **WAYS[way])  # fmt: skip
    reached = jnp.isfinite(run.t)[:, None]
    return jnp.sum(jnp.where(reached, run.q**2 + jnp.sin(run.v), 0.0))


def point():
    problem = uk.models.pendulum()
    return eqx.filter(problem.system, eqx.is_inexact_array), jnp.zeros(2), jnp.zeros(2), jnp.asarray(1.0)


@pytest.mark.parametrize(
    "way", [x if x != "implicit" else pytest.param(x, marks=pytest.mark.slow) for x in WAYS]
)
def test_equals_diffrax_s_adjoint(way):
    """By the parameters and the start."""
    x = point()
    own, other = (
        jax.jit(jax.grad(loss), static_argnums=(1, 2))(x, adjoint, way)
        for adjoint in (uk.DiscreteAdjoint(), dfx.RecursiveCheckpointAdjoint())
    )
    for a, b in zip(jax.tree.leaves(own[:3]), jax.tree.leaves(other[:3]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_projected_parallelogram():
    """The scalar code of the projection has the derivative of what it computes."""
    problem = uk.models.parallelogram()

    def end(mass, rate):
        other = uk.models.parallelogram(mass=mass, rate=rate)
        run = uk.simulate(other, t0=0.0, t1=0.11, ts=3, solver=dfx.Heun(), dt0=0.02, max_steps=8,
                          stepsize_controller=dfx.ConstantStepSize())  # fmt: skip
        return jnp.sum(run.q[-1] * jnp.arange(12.0)) + jnp.sum(run.v[1] ** 2)

    x = tuple(map(jnp.asarray, (1.3, 0.8)))
    found = jax.jit(jax.grad(end, argnums=(0, 1)))(*x)
    value = jax.jit(end)
    for i, slope in enumerate(found):
        along = lambda s, i=i: value(*(y + s if j == i else y for j, y in enumerate(x)))
        np.testing.assert_allclose(slope, central(along, 1e-4), rtol=1e-7, atol=1e-8)
    assert problem.q0.size == 12


def test_runs_that_stop_early():
    """A run that comes to its largest number of steps has the derivative of what it saved."""
    value = jax.jit(
        lambda q0: loss((point()[0], q0, jnp.zeros(2), jnp.asarray(1.0)), uk.DiscreteAdjoint(), "fixed", 3.0)
    )
    found = jax.jit(jax.grad(lambda q0: value(q0)))(jnp.zeros(2))
    for i in range(2):
        expected = central(lambda s, i=i: value(jnp.zeros(2).at[i].set(s)), 1e-4)
        np.testing.assert_allclose(found[i], expected, rtol=1e-8)


def test_steps_are_diffrax_s():
    """What a differentiated run gives is what it gives undifferentiated."""
    x = point()
    for way in ("fixed", "every fixed step"):
        given = jax.jit(lambda x, way=way: loss(x, uk.DiscreteAdjoint(), way))(x)
        back = jax.jit(lambda x, way=way: jax.vjp(lambda x: loss(x, uk.DiscreteAdjoint(), way), x)[0])(x)
        np.testing.assert_allclose(back, given, rtol=1e-13)


def test_batches():
    x = point()
    starts = jnp.outer(jnp.linspace(0.0, 0.1, 3), jnp.ones(2))
    slope = lambda q0: jax.grad(loss)((x[0], q0, *x[2:]), uk.DiscreteAdjoint(), "fixed")[1]
    together = jax.jit(jax.vmap(slope))(starts)
    np.testing.assert_allclose(together[2], jax.jit(slope)(starts[2]), rtol=1e-12)
