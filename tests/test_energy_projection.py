"""Energy kept by projection: against its closed form, and the motion against elliptic functions."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmark_oracles import four_bars_top
from oracles import GRAVITY, pendulum_elliptic

import ukjax as uk

T1, TOLERANCE = 40.3, 1e-7  # some 19 periods, and a time at which the pendulum moves


def _swing(angle, solver, **options) -> uk.Trajectory:
    problem = uk.models.pendulum(angle=angle)
    return uk.simulate(problem, t1=T1, solver=solver, rtol=TOLERANCE, atol=TOLERANCE, **options)


def _at_end(angle: float) -> np.ndarray:
    theta = pendulum_elliptic(np.array([T1]), angle, 0.0, GRAVITY)[0][0]
    return np.array([np.sin(theta), -np.cos(theta)])


def test_energy_is_that_of_the_start_and_the_motion_is_better_for_it():
    kept, plain = (_swing(1.0, x, ts="steps") for x in (uk.EnergyProjection(dfx.Dopri8()), dfx.Dopri8()))
    drift, error = [], []
    for run in (kept, plain):
        q, v = np.asarray(run.q), np.asarray(run.v)
        energy = 0.5 * np.sum(v * v, axis=1) + GRAVITY * q[:, 1]
        moving = np.sum(v * v, axis=1) > 4.0
        drift.append(np.abs(energy + GRAVITY * np.cos(1.0))[moving].max())
        error.append(np.abs(q[-1] - _at_end(1.0)).max())
        assert run.max_position_error < 1e-14
        assert run.max_velocity_error < 1e-14
    assert drift[0] < 1e-13
    assert drift[1] > 1e-7
    assert error[0] < 0.1 * error[1]
    assert int(kept.stats["num_evaluations"]) < 1.1 * int(plain.stats["num_evaluations"])


@pytest.mark.slow
def test_it_can_be_differentiated():
    """The end by the angle it is let go from: there is no velocity to scale at the start."""
    end = lambda angle: _swing(angle, uk.EnergyProjection(dfx.Tsit5()), ts=2).q[-1, 0]
    expected = (_at_end(1.0 + 1e-5) - _at_end(1.0 - 1e-5))[0] / 2e-5
    assert jax.grad(end)(1.0) == pytest.approx(expected, rel=1e-4)


def test_at_rest_it_stays_at_rest():
    run = uk.simulate(uk.models.pendulum(angle=0.0), t1=1.0, solver=uk.EnergyProjection(dfx.Dopri8()), ts=3)
    np.testing.assert_allclose(run.q, [[0.0, -1.0]] * 3, atol=1e-14)


def test_a_system_without_an_energy_is_named():
    free = uk.System(jnp.eye(1), jnp.zeros(1), [])
    with pytest.raises(uk.InputError, match="needs the energy, and System does not define it"):
        uk.simulate(free, jnp.zeros(1), jnp.ones(1), t1=1.0, solver=uk.EnergyProjection(dfx.Dopri8()))
    with pytest.raises(uk.InputError, match="solver must be something like"):
        uk.EnergyProjection(dfx.Dopri8)


@pytest.mark.slow
def test_a_linkage_over_a_thousand_seconds():
    """Some 500 turns through flat positions."""
    run = uk.simulate(uk.models.four_bars(), t1=1e3, solver=uk.EnergyProjection(dfx.Dopri8()), ts="steps")
    assert run.ok, run.message
    t = np.asarray(run.t)
    error = np.abs(2 * np.asarray(run.q)[:, :2] - four_bars_top(t)[1])
    assert error.max() < 1e-5
