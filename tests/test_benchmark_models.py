"""The field's benchmark problems against closed forms, published numbers and independent integrations."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from benchmark_oracles import (
    ANDREWS_END,
    ANDREWS_START,
    bricard,
    bricard_corners,
    flyball_governor,
    four_bars_top,
)
from helpers import state
from oracles import integrate

import ukjax as uk
from ukjax import models

_rows = eqx.filter_jit(uk.constraint_rows)
STARTS = [(np.pi / 2, 1.0), (np.pi / 2, -1.7), (np.pi / 3, 0.0), (0.4, 2.5), (-2.0, 0.5), (2.2, -4.0)]


def _path(problem: uk.Problem, run: uk.Trajectory, name: str) -> np.ndarray:
    """A named point at all saved times."""
    return np.asarray(jax.jit(jax.vmap(lambda t, q: problem.points(t, q)[name]))(run.t, run.q))


calls: list[None] = []


class _Counted(uk.AbstractSystem):
    """A system that counts the evaluations of its force."""

    inner: uk.AbstractSystem

    @property
    def constraints(self):
        return self.inner.constraints

    def mass_matrix(self, t, q):
        return self.inner.mass_matrix(t, q)

    def force(self, t, q, v):
        jax.debug.callback(lambda t: calls.append(None), t)
        return self.inner.force(t, q, v)


def _classical(q: np.ndarray) -> np.ndarray:
    """The seven angles of the squeezer from its absolute coordinates."""
    K1, K2, K3, K4, K5, K6, K7 = q[..., 2::3].T
    return np.stack([K1, K2 - K1, K3, K4 - K5, K5, K6 - K7, K7], axis=-1)


# n four-bars


@pytest.mark.parametrize("n", [1, 2, 7])
def test_four_bars_have_as_many_rows_as_they_should(n):
    """One degree of freedom; where all rods lie in a line, n more."""
    problem = models.four_bars(n)
    t, q, v = state(0.0, problem.q0, problem.v0)
    A = np.asarray(_rows(problem.system, t, q, v).A)
    assert A.shape == (6 * n + 2, 6 * n + 3)
    assert np.linalg.matrix_rank(A) == 6 * n + 2
    flat = models.four_bars(n, angle=0.0)
    A = np.asarray(_rows(flat.system, t, flat.q0, v).A)
    assert np.linalg.matrix_rank(A, tol=1e-9) == 5 * n + 2


def test_four_bars_start_as_defined():
    """Upright, top pins moving at 1 m/s along x."""
    problem = models.four_bars(3)
    at = lambda q: problem.points(0.0, q)
    points, rates = jax.jit(lambda q, v: jax.jvp(at, (q,), (v,)))(problem.q0, problem.v0)
    for i in range(4):
        np.testing.assert_allclose(points[f"B{i}"], [i, 1.0], atol=1e-15)
        np.testing.assert_allclose(rates[f"B{i}"], [1.0, 0.0], atol=1e-15)


def test_four_bars_closed_form_agrees_with_its_equation():
    n, ts = 3, np.linspace(0.0, 4.0, 21)
    bend = lambda theta, rate: -9.81 * (2 + n) / (4 / 3 + n) * np.cos(theta)
    for angle, speed in STARTS:
        theta = integrate(bend, angle, -speed, ts)[0][:, 0]
        np.testing.assert_allclose(four_bars_top(ts, n, angle, speed)[0], theta, atol=1e-10)


def _tip_error(n: int, start: tuple[float, float], tolerance: float) -> float:
    problem = models.four_bars(n, angle=start[0], speed=start[1])
    run = uk.simulate(problem, rtol=tolerance, atol=tolerance, ts=41)
    assert run.ok, run.message
    assert run.max_position_error < 1e-12
    top = four_bars_top(np.asarray(run.t), n, *start)[1]
    return np.abs(np.asarray(run.q)[:, :2] * 2 - top).max()


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 10, 40])
def test_four_bars_stay_on_the_right_branch(n):
    """16 starts and tolerances through flat positions; at 1e-9 and less the tops are within 1e-6 m for 10 s."""
    rng = np.random.default_rng(n)
    starts = [*STARTS, *zip(rng.uniform(-3, 3, 10), rng.uniform(-4, 4, 10), strict=True)]
    tolerances = (1e-9, 1e-9, 1e-10, 1e-12, 1e-9, 1e-8, 1e-7, 1e-6)
    for start, tolerance in zip(starts, 2 * tolerances, strict=True):
        error = _tip_error(n, start, tolerance)
        print(f"n = {n}, start {start[0]:.3f} {start[1]:.3f}, tolerance {tolerance:.0e}: {error:.1e} m")
        assert error < (1e-6 if tolerance <= 1e-9 else 3e3 * tolerance), (start, tolerance, error)


# Andrews' squeezer


@pytest.mark.parametrize("coordinates", ["classical", "absolute"])
def test_andrews_starts_as_published(coordinates):
    problem = models.andrews(coordinates=coordinates)
    q = np.asarray(problem.q0)
    q = q if coordinates == "classical" else _classical(q)
    np.testing.assert_allclose(q, ANDREWS_START, atol=2e-15)


@pytest.mark.slow
def test_andrews_moves_alike_in_both_coordinates():
    """Centres and angles of the bodies as functions of the seven angles carry one acceleration to the other."""
    classical, absolute = (models.andrews(coordinates=x) for x in ("classical", "absolute"))
    rng, zero = np.random.default_rng(0), jnp.zeros(())
    system, x = classical.system, classical.system.dimensions

    def bodies(q):
        beta, Theta, gamma, Phi, delta, Omega, epsilon = q
        angles = jnp.stack([beta, beta + Theta, gamma, Phi + delta, delta, Omega + epsilon, epsilon])
        return jnp.concatenate([x.centres(q), angles[:, None]], axis=1).ravel()

    @jax.jit
    def carried(q, v, a):
        rate = lambda q, v: jax.jvp(bodies, (q,), (v,))[1]
        return bodies(q), *jax.jvp(rate, (q, v), (v, a))

    for Theta in (0.0, 0.3, -1.2):
        start = models.andrews(Theta=Theta)
        A = np.asarray(_rows(system, zero, start.q0, start.v0).A)
        v = jnp.asarray(50.0 * rng.normal() * np.linalg.svd(A)[2][-1])
        one = uk.UdwadiaKalaba().acceleration(system, zero, start.q0, v)
        q, w, a = carried(start.q0, v, one.a)
        other = uk.UdwadiaKalaba().acceleration(absolute.system, zero, q, w)
        assert (one.rank, other.rank) == (6, 20)
        np.testing.assert_allclose(other.a, a, rtol=0, atol=1e-9 * np.abs(a).max())
        energies = system.energy(zero, start.q0, v), absolute.system.energy(zero, q, w)
        turned = absolute.q0[2] * 0.033  # the drive's potential counts from the absolute reference posture
        np.testing.assert_allclose(energies[0], energies[1] - turned, rtol=1e-12)
        for name, place in classical.points(zero, start.q0).items():
            np.testing.assert_allclose(absolute.points(zero, q)[name], place, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["classical", "absolute"])
def test_andrews_ends_as_published(coordinates):
    run = uk.simulate(models.andrews(coordinates=coordinates), ts=4)
    q = np.asarray(run.q[-1])
    q = q if coordinates == "classical" else _classical(q)
    np.testing.assert_allclose(q, ANDREWS_END, rtol=0, atol=1e-8)
    assert run.max_position_error < 1e-15


@pytest.mark.slow
def test_andrews_energy_balance():
    """What the drive has done is kinetic energy and stretch of the spring, within 1e-9 of it, at 0.05 s."""
    problem = models.andrews()
    run = uk.simulate(problem, t1=0.05, rtol=1e-10, atol=1e-10)
    done = 0.033 * (run.q[-1, 0] - run.q[0, 0])
    assert abs(run.energy[-1] - run.energy[0]) < 1e-9 * done


def test_andrews_refuses_lengths_that_do_not_close():
    with pytest.raises(uk.InputError, match="do not close"):
        models.andrews(ss=0.2)


# Bricard's linkage


def test_bricard_oracle_is_closed():
    for a, b in bricard(np.linspace(0.0, 5.0, 11))[1]:
        np.testing.assert_allclose(bricard_corners(a, b)[1], 0.0, atol=1e-11)


@pytest.mark.slow
def test_bricard():
    problem = models.bricard()
    run = uk.simulate(problem, ts=61)
    assert run.ok, run.message
    np.testing.assert_allclose(_path(problem, run, "P3"), bricard(np.linspace(0, 12, 61))[0], atol=1e-7)
    np.testing.assert_array_equal(run.rank, 4)
    assert run.max_position_error < 1e-12


@pytest.mark.slow
def test_bricard_in_absolute_coordinates():
    """Slender rods make the mass matrix singular: rank 29 of 30 rows, and the motion of the first second."""
    problem = models.bricard(coordinates="absolute")
    run = uk.simulate(problem, t1=1.0, ts=6, formula=uk.RangeForm())
    assert run.ok, run.message
    np.testing.assert_allclose(_path(problem, run, "P3"), bricard(np.linspace(0, 1, 6))[0], atol=1e-7)
    np.testing.assert_array_equal(run.rank, 29)


# The flyball governor


def test_flyball_oracles_agree():
    ts = np.linspace(0.0, 10.0, 11)
    np.testing.assert_allclose(
        flyball_governor(ts, "LSODA", 1e-12), flyball_governor(ts, "BDF", 1e-8), atol=1e-6
    )


@pytest.mark.parametrize("coordinates", ["joints", pytest.param("absolute", marks=pytest.mark.slow)])
def test_flyball_governor_accelerates_as_with_reduced_coordinates(coordinates):
    """At the start, springs unstretched: the slider falls freely; the rods' angle by moments about their hinges."""
    hinge, far, near = (
        (0.3 * (1 + 1e-4) / 12 + 0.3 / 4 + 5.0),
        0.05 + np.cos(np.pi / 6),
        0.05 + np.cos(np.pi / 6) / 2,
    )
    c, s = np.cos(np.pi / 6), 0.5
    slope = -2 * s * (10.0 * far + 0.3 * near + 2 * 0.3 * (1 + 1e-4 - 2e-4) / 12 * c)
    turning = (slope * (2 * np.pi) ** 2 / 2 + 2 * 5.15 * 9.81 * c) / (2 * hinge)
    problem = models.flyball_governor(coordinates=coordinates)
    t, q, v = state(0.0, problem.q0, problem.v0)
    a = uk.UdwadiaKalaba().acceleration(problem.system, t, q, v).a
    if coordinates == "joints":
        np.testing.assert_allclose(a[1:], [-9.81, turning, -turning], rtol=1e-10)
    else:
        np.testing.assert_allclose(a[8], -9.81, rtol=1e-10)
        np.testing.assert_allclose(a[16], turning, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["joints", "absolute"])
def test_flyball_governor(coordinates):
    problem = models.flyball_governor(coordinates=coordinates)
    ts = np.linspace(0, 10, 11)
    run = uk.simulate(problem, ts=11)
    assert run.ok, run.message
    expected = flyball_governor(ts, "LSODA", 1e-12)[0]
    np.testing.assert_allclose(_path(problem, run, "slider")[:11, 2], expected, atol=1e-6)


@pytest.mark.slow
def test_flyball_governor_by_an_implicit_solver():
    """Within 1e-6 by a tenth of the evaluations an explicit solver's region of stability asks for.

    A Jacobian counts as one evaluation, like the value that is computed with it.
    """
    problem = models.flyball_governor(coordinates="joints")
    newton = dfx.with_stepsize_controller_tols(optx.Newton)()
    solver = dfx.Kvaerno5(root_finder=newton)
    counted = _Counted(problem.system)
    calls.clear()
    run = uk.simulate(counted, problem.q0, problem.v0, t1=10.0, ts=11, solver=solver, rtol=3e-8, atol=3e-8)
    jax.effects_barrier()
    assert run.ok, run.message
    expected = flyball_governor(np.linspace(0, 10, 11), "LSODA", 1e-12)[0]
    np.testing.assert_allclose(_path(problem, run, "slider")[:11, 2], expected, atol=1e-6)
    explicit = uk.simulate(problem, ts=11, rtol=1e-6, atol=1e-6)
    assert len(calls) < 0.1 * int(explicit.stats["num_evaluations"])


# Parameters


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("four_bars", {"n": 0}, "n must be an integer of at least 1"),
        ("four_bars", {"mass": 0.0}, "mass must be greater than 0"),
        ("andrews", {"coordinates": "polar"}, "coordinates must be 'classical' or 'absolute'"),
        ("andrews", {"m3": -1.0}, "m3 must be greater than 0"),
        ("bricard", {"radius": -0.1}, "radius must not be negative"),
        ("bricard", {"coordinates": "x"}, "coordinates must be 'joints' or 'absolute'"),
        ("flyball_governor", {"ball": float("nan")}, "ball must be a finite number"),
    ],
)
def test_bad_parameters_are_named(name, parameters, words):
    with pytest.raises(uk.InputError, match=words):
        models.get(name, **parameters)
