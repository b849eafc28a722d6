"""Derivatives where the rank of the rows changes: the flat position of the parallelogram, without gravity."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import central

import ukjax as uk

ANGLE, RATE = 0.2, -1.0  # flat at 0.2 s; nothing turns the links, so their angle is ANGLE + RATE t


def _run(rate, gravity=0.0, *, t1, **options):
    problem = uk.models.parallelogram(angle=ANGLE, rate=rate, gravity=gravity)
    return uk.simulate(
        problem, t0=0.0, t1=t1, ts="steps", stepsize_controller=dfx.ConstantStepSize(),
        adjoint=dfx.ForwardMode(), **options,
    )  # fmt: skip


def _with_slope(fn, x):
    return jax.jit(lambda x: jax.jvp(fn, (x,), (jnp.ones(()),)))(jnp.asarray(x))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dt0", "meets"), [(0.01, True), (0.03, False)], ids=["a step ends there", "between steps"]
)
def test_past_a_flat_position(dt0, meets):
    """Value and derivative are finite, and the rank tells where a step ends at the flat position.

    "There" is within the rank threshold, 1e-5, of it: Heun's angle at 0.2 s is off by 3e-6 at steps of 0.01.
    """
    t1, options = 0.24, {"solver": dfx.Heun(), "dt0": dt0, "max_steps": round(0.24 / dt0)}

    def final(rate):
        run = _run(rate, t1=t1, **options)
        return run.q[-1, jnp.array([2, 5, 8])], run.rank_changed

    angles, slope = jax.jit(lambda x: jax.jvp(final, (x,), (jnp.ones(()),)))(jnp.asarray(RATE))
    assert np.all(np.isfinite(slope[0]))
    np.testing.assert_allclose(angles[0], ANGLE + RATE * t1, atol=1e-3)
    assert bool(angles[1]) == meets
    if not meets:
        np.testing.assert_allclose(slope[0], t1, rtol=1e-2)


@pytest.mark.slow
def test_clearance_damps_across_it():
    """With R > 0 the acceleration is smooth in the rows, so the derivative is that of the computed run."""
    options = {"solver": dfx.Tsit5(), "dt0": 0.02, "max_steps": 16, "t1": 0.32}
    options |= {"formula": uk.Recursive(clearance=1e-2), "stabilizer": uk.Baumgarte(40.0, 400.0)}
    final = lambda gravity: _run(RATE, gravity, **options).q[-1]
    values, slope = _with_slope(final, 1.0)
    run = jax.jit(final)
    exact = central(lambda h: run(jnp.asarray(1.0 + h)))
    assert np.all(np.isfinite(values))
    np.testing.assert_allclose(slope, exact, rtol=0, atol=1e-6 * np.abs(exact).max())
