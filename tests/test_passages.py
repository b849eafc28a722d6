"""Singular positions on the way: their times against closed forms of the motion, their ranks against geometry."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from benchmark_oracles import four_bars_top
from scipy.optimize import brentq

import ukjax as uk


def _exact(problem: uk.Problem, ts: np.ndarray, states: list) -> uk.Trajectory:
    """A trajectory whose states are known."""
    q, v, a = (jnp.asarray(np.stack(x)) for x in zip(*states, strict=True))
    rows = uk.constraint_rows(problem.system, 0.0, q[0], v[0])
    o, none = jnp.zeros((len(ts), len(rows.names))), jnp.zeros_like(v)
    return uk.Trajectory(
        *(jnp.asarray(ts), q, v, a, none, o, o, o, None, jnp.zeros(len(ts), int), {}, uk.RESULTS.successful),
        row_names=rows.names,
        row_kinds=rows.kinds,
        problem=problem,
    )


def _crossings(angle, ts: np.ndarray) -> list[float]:
    """The times at which sin(angle(t)) = 0."""
    height = lambda t: float(np.sin(angle(np.asarray(t))))
    values = [height(t) for t in ts]
    pairs = zip(ts[:-1], ts[1:], values[:-1], values[1:], strict=True)
    return [brentq(height, a, b, xtol=1e-14) for a, b, x, y in pairs if x * y < 0]


def test_parallelogram_passes_flat_positions():
    """From 60 degrees at rest it falls through the flat position, turns over and comes back: rank 11, 10, 11."""
    ts = np.linspace(0.0, 2.5, 41)
    motion = lambda t: oracles.parallelogram_elliptic(t, np.pi / 3, 0.0)
    states = [oracles.parallelogram_state(*motion(t)) for t in ts]
    found = uk.passages(_exact(uk.models.parallelogram(), ts, states))
    expected = _crossings(lambda t: motion(t)[0], np.linspace(0, 2.5, 501))
    assert len(expected) == 3
    np.testing.assert_allclose([x.t for x in found], expected, rtol=0, atol=1e-6)
    assert {x[1:] for x in found} == {(11, 10, 11)}


@pytest.mark.parametrize(
    ("tolerance", "largest"),
    [(1e-8, 1e-6), (1e-10, 1e-8), (1e-11, 2e-9), (1e-12, 1e-10)],
)
def test_redundant_rows_are_told_from_rounding_at_every_tolerance(tolerance, largest):
    """Near a flat position a redundant row's pivot is rounding over the square of a small sine."""
    run = uk.simulate(uk.models.parallelogram(), rtol=tolerance, atol=tolerance, ts=401)
    assert run.ok
    angle, _ = oracles.parallelogram_elliptic(np.asarray(run.t), np.pi / 3, 0.0)
    tip = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    assert np.abs(2 * np.asarray(run.q)[:, :2] - tip).max() < largest


def test_a_pendulum_passes_none():
    ts = np.linspace(0.0, 2.0, 21)
    motion = lambda t: oracles.pendulum_elliptic(t, 1.0, 0.0, oracles.GRAVITY)
    states = [oracles.pendulum_state(*motion(t)) for t in ts]
    trajectory = _exact(uk.models.pendulum(), ts, states)
    assert uk.passages(trajectory) == []
    with pytest.raises(uk.InputError, match="give passages"):
        uk.passages(dataclasses.replace(trajectory, problem=None))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"event": lambda t, q, v: t - 1.0}, id="ended early", marks=pytest.mark.slow),
        pytest.param({}, id="to its end"),
    ],
)
def test_a_compiled_run_passes_what_the_same_run_does(options):
    """It has entries for times not reached."""
    problem = uk.models.four_bars(2)
    run = lambda: uk.simulate(problem, t1=1.2, ts=25, **options)
    inside = jax.jit(run)()
    assert len(inside) == 25
    (found,) = uk.passages(inside, system=problem.system)
    (expected,) = uk.passages(run())
    assert found[1:] == expected[1:] == (14, 12, 14)
    np.testing.assert_allclose(found.t, expected.t, rtol=0, atol=1e-9)


def test_subdivisions_are_counted():
    trajectory = _exact(uk.models.pendulum(), np.linspace(0, 1, 3), [oracles.pendulum_state(1.0, 0.0)] * 3)
    for wrong in (0, -1, 2.5, "a", True):
        with pytest.raises(uk.InputError, match="subdivisions must be an integer of at least 1"):
            uk.passages(trajectory, subdivisions=wrong)


@pytest.mark.slow
def test_two_four_bars_lose_two_ranks():
    run = uk.simulate(uk.models.four_bars(2), t1=4.0, rtol=1e-9, atol=1e-9, ts=161)
    expected = _crossings(lambda t: four_bars_top(t, 2)[0], np.linspace(0, 4, 801))
    found = uk.passages(run)
    assert len(expected) >= 2
    np.testing.assert_allclose([x.t for x in found], expected, rtol=0, atol=1e-6)
    assert {x[1:] for x in found} == {(14, 12, 14)}
