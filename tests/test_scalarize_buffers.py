"""Long arrays that a loop fills, as Diffrax's saved steps and dense output are, beside JAX's own derivatives."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from numpy.testing import assert_allclose

import ukjax as uk

START, ALONG = jnp.array([1.0, 0.1]), jnp.array([0.3, -0.8])


def _pendulum(start: Any, saveat: Any) -> Any:
    return dfx.diffeqsolve(
        dfx.ODETerm(lambda t, y, args: jnp.stack([y[1], -jnp.sin(y[0])])),
        dfx.Tsit5(),
        0.0,
        10.0,
        None,
        start,
        saveat=saveat,
        stepsize_controller=dfx.PIDController(rtol=1e-6, atol=1e-6),
        adjoint=dfx.ForwardMode(),
        max_steps=100_000,
        throw=False,
    )


def _steps(start: Any) -> Any:
    """The states after each step, until 100,000 steps that it might take."""
    solution = _pendulum(start, dfx.SaveAt(steps=True))
    return solution.ts, solution.ys


def _dense(start: Any) -> Any:
    """States between steps."""
    solution = _pendulum(start, dfx.SaveAt(dense=True))
    return jax.vmap(solution.evaluate)(jnp.array([0.1, 3.7, 8.0]))


def _smoothed(start: Any) -> Any:
    """A long array that a loop fills, of entries that it has written before."""

    def step(i: Any, x: Any) -> Any:
        return x.at[i].set(jnp.sin(x[i - 1]) + 0.5 * x[i - 2] * x[(7 * i) % 11])

    return lax.fori_loop(11, 60, step, jnp.zeros(3000).at[:11].set(jnp.outer(start, jnp.ones(6)).ravel()[1:]))


def _moved(start: Any) -> Any:
    """Long windows of long arrays, at places that are not known."""
    k = jnp.int32(jnp.abs(start[0]) * 100)
    rows = jnp.outer(jnp.arange(30.0), jnp.arange(100.0)) * start[1]
    window = lax.dynamic_slice(_smoothed(start) + rows.reshape(-1), (k,), (500,))
    block = lax.dynamic_slice(rows, (k // 50, k), (20, 15))
    rows = lax.dynamic_update_slice(rows, jnp.sin(block), (k // 30, jnp.int32(3)))
    return lax.dynamic_update_slice(rows.reshape(-1), window * window, (2 * k,))


RUNS = {"steps": _steps, "dense": _dense, "entries read again": _smoothed, "windows": _moved}


def _total(f: Any) -> Any:
    """A sum over entries that are finite."""
    finite = lambda x: jnp.where(jnp.isfinite(x), x, 0.0)
    return lambda x: sum(jnp.sum(jnp.sin(finite(y))) for y in jax.tree.leaves(f(x)))


@pytest.mark.parametrize("name", RUNS)
def test_long_arrays_are_those_of_xla(name: str) -> None:
    run = RUNS[name]
    for x, y in zip(
        jax.tree.leaves(uk.scalarize(run)(START)), jax.tree.leaves(jax.jit(run)(START)), strict=True
    ):
        assert np.array_equal(np.isfinite(x), np.isfinite(y))
        assert_allclose(x, y, rtol=1e-7)


@pytest.mark.parametrize("name", RUNS)
def test_derivatives_through_long_arrays_are_those_of_jax(name: str) -> None:
    plain, scalar = _total(jax.jit(RUNS[name])), _total(uk.scalarize(RUNS[name]))
    slope = lambda f: lambda x: jax.jvp(f, (x,), (ALONG,))[1]
    assert_allclose(slope(scalar)(START), slope(plain)(START), rtol=1e-6)
    gradient = jax.grad(scalar)
    assert_allclose(jnp.sum(gradient(START) * ALONG), slope(plain)(START), rtol=1e-6)
    bend = slope(slope(plain))(START)
    assert_allclose(slope(lambda x: jnp.sum(gradient(x) * ALONG))(START), bend, rtol=1e-6)
    assert_allclose(jnp.sum(jax.grad(slope(scalar))(START) * ALONG), bend, rtol=1e-6)
    twice = jax.grad(lambda x: jnp.sum(gradient(x) * ALONG))(START)
    assert_allclose(jnp.sum(twice * ALONG), bend, rtol=1e-6)


@pytest.mark.parametrize("name", ["dense", "entries read again"])
def test_members_of_a_batch_fill_their_own(name: str) -> None:
    scalar = uk.scalarize(RUNS[name])
    batch = jnp.outer(jnp.array([1.0, 1.3, 0.2]), START)
    assert_allclose(jax.vmap(scalar)(batch), [scalar(x) for x in batch], rtol=1e-12)
    gradient = jax.grad(_total(scalar))
    assert_allclose(jax.vmap(gradient)(batch), [gradient(x) for x in batch], rtol=1e-9)


def test_an_error_makes_a_long_array_nan() -> None:
    f = uk.scalarize(lambda x: eqx.error_if(_smoothed(x), x[0] < 0, "negative"))
    assert_allclose(f(START), jax.jit(_smoothed)(START), rtol=1e-12)
    assert np.isnan(f(-START)).all()
