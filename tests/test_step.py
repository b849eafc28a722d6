"""One step at a time: against SciPy, against Runge and Kutta by hand, in loops, and its derivatives."""

from functools import partial

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from benchmark_oracles import four_bars_top

import ukjax as uk


def test_a_loop_of_steps_is_the_motion():
    problem = uk.models.pendulum(rate=0.5)

    @jax.jit
    def run(q, v):
        def body(state, t):
            return uk.step(problem, t, *state, 1e-3, solver=dfx.Dopri5()), None

        return jax.lax.scan(body, (q, v), 1e-3 * jnp.arange(1000.0))[0]

    q, v = run(problem.q0, problem.v0)
    angle, rate = oracles.pendulum_elliptic(1.0, np.pi / 3, 0.5, 9.81)
    np.testing.assert_allclose(q, [np.sin(angle), -np.cos(angle)], atol=1e-11)
    np.testing.assert_allclose(v, rate * np.array([np.cos(angle), np.sin(angle)]), atol=1e-10)
    np.testing.assert_allclose(q @ q, 1.0, atol=1e-15)


def test_euler_is_euler():
    """Without a stabilizer one step of Euler's method is q + h v, v + h a."""
    problem = uk.models.slider_crank(rate=2.0)
    state = problem.q0, problem.v0
    a = uk.UdwadiaKalaba().acceleration(problem.system, 0.0, *state).a
    q, v = uk.step(problem, None, None, None, 0.01, solver=dfx.Euler(), stabilizer=uk.NoStabilizer())
    np.testing.assert_allclose(q, problem.q0 + 0.01 * problem.v0, atol=1e-15)
    np.testing.assert_allclose(v, problem.v0 + 0.01 * a, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "w2"), [("parallelogram", 3.5 * 9.81 / 3.05), ("four_bars", 2.0 * 9.81 / (5 / 3))]
)
def test_large_steps_stay_on_the_right_branch(model, w2):
    """Flat positions are passed some twenty times in 10 s, by steps of 0.04 s."""
    system, solver = uk.models.get(model).system, dfx.Dopri5()

    @jax.jit
    def run(q, v):
        return jax.lax.fori_loop(0, 250, lambda _, y: uk.step(system, 0.0, *y, 0.04, solver=solver), (q, v))

    for angle, rate in ((np.pi / 3, 0.0), (np.pi / 2, 1.0), (0.2, -1.0), (-2.0, 3.0)):
        end = oracles.pendulum_elliptic(10.0, angle + np.pi / 2, rate, w2)[0] - np.pi / 2
        q, _ = run(*system.state(angle, rate))
        np.testing.assert_allclose(q[:2], [np.cos(end) / 2, np.sin(end) / 2], atol=1e-4)


def _runs(steps, count, step):
    """The first link's tip after so many steps of each size, two four-bars (k, 2), and by the closed form."""
    problem = uk.models.four_bars(2)

    def tip(h):
        one = lambda i, y: step(problem.system, i * h, *y, h)
        return 2 * jax.lax.fori_loop(0, count, one, (problem.q0, problem.v0))[0][:2]

    return jax.jit(jax.vmap(tip))(jnp.asarray(steps)), four_bars_top(count * steps, 2)[1]


def test_steps_of_most_sizes_keep_their_accuracy_past_flat_positions():
    """Five or more, at other places within the step for each size: experiments/fixed_steps.py."""
    found, exact = _runs(np.linspace(0.01, 0.013, 32), 500, partial(uk.step, solver=dfx.Tsit5()))
    errors = np.abs(found - exact).max(axis=1)
    assert np.quantile(errors, 0.9) < 2e-6


def test_fixed_steps_of_simulate_are_those():
    """At a size that ends one near a flat position, where the threshold of adaptive steps leaves rows out."""
    problem, h = uk.models.four_bars(2), 0.012619047619047618
    fixed = {"solver": dfx.Tsit5(), "dt0": h, "stepsize_controller": dfx.ConstantStepSize()}
    run = uk.simulate(problem, t1=200 * h, ts=2, **fixed)
    found, exact = _runs(np.array([h]), 200, partial(uk.step, solver=dfx.Tsit5()))
    np.testing.assert_allclose(2 * run.q[-1, :2], found[0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-6)


@jax.jit
def _end(angle):
    """The state after one projected step of a pendulum, from that angle."""
    started = uk.models.pendulum(angle=angle, rate=1.0)
    return jnp.concatenate(uk.step(started, 0.0, started.q0, started.v0, 0.05))


def test_batches():
    angles = jnp.linspace(0.2, 1.0, 3)
    for angle, each in zip(angles, jax.jit(jax.vmap(_end))(angles), strict=True):
        np.testing.assert_allclose(_end(angle), each, atol=1e-14)


@pytest.mark.slow
def test_derivatives():
    slope = (_end(0.7 + 1e-5) - _end(0.7 - 1e-5)) / 2e-5
    np.testing.assert_allclose(jax.jit(jax.jacfwd(_end))(jnp.asarray(0.7)), slope, atol=1e-8)
    np.testing.assert_allclose(jax.jit(jax.jacrev(_end))(jnp.asarray(0.7)), slope, atol=1e-8)


def test_what_cannot_be_meant_says_so():
    problem = uk.models.pendulum()
    with pytest.raises(uk.InputError, match="dt must be a positive time"):
        uk.step(problem, None, None, None, 0.0)
    back = jax.jit(lambda dt: uk.step(problem, None, None, None, dt))(-0.1)
    assert np.all(np.isnan(np.stack(back)))
    with pytest.raises(uk.InputError, match=r"solver must be something like diffrax\.Tsit5\(\)"):
        uk.step(problem, None, None, None, 0.1, solver=dfx.Tsit5)


def test_a_loop_in_python_compiles_once():
    jax.clear_caches()  # whatever tests before it compiled
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if "backend_compile" in event else None
    )
    problem = uk.models.pendulum()
    state, system = (problem.q0, problem.v0), uk.models.pendulum(length=1.25).system
    for i in range(4):
        state = uk.step(system, 0.01 * i, *state, 0.01)
        if i == 1:
            assert compiled
            compiled.clear()
    assert not compiled


@pytest.mark.parametrize(("solver", "accuracy"), [(dfx.ImplicitEuler(), 1e-2), (dfx.Kvaerno5(), 1e-9)])
def test_implicit_solvers_take_default_tolerances(solver, accuracy):
    problem = uk.models.pendulum()
    state = problem.q0, problem.v0
    for i in range(20):
        state = uk.step(problem, 0.01 * i, *state, 0.01, solver=solver)
    expected = uk.simulate(problem, t1=0.2, ts=2, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(state[0], expected.q[-1], rtol=0, atol=accuracy)


def test_a_step_far_too_long_is_nan():
    """Alone, in a batch beside others that are right, and for the step it cannot take only."""
    problem = uk.models.pendulum()
    after = lambda h: uk.step(problem, None, None, None, h)
    q, v = jax.vmap(after)(jnp.array([0.05, 1e6, 0.1]))
    np.testing.assert_array_equal(np.isfinite(q).all(axis=1), [True, False, True])
    np.testing.assert_array_equal(np.isnan(v), np.isnan(q))
    np.testing.assert_allclose(q[0], after(0.05)[0], rtol=1e-13)
    assert np.isnan(after(1e6)[0]).all()
    slope = jax.grad(lambda h: after(h)[0][0])(0.05)
    np.testing.assert_allclose(slope, (after(0.0501)[0][0] - after(0.0499)[0][0]) / 2e-4, rtol=1e-6)


@pytest.mark.slow
def test_jax_debug_nans_stops_at_a_nan():
    """Nothing is machine code then, of which JAX sees only what it returns."""
    system = uk.System(jnp.eye(1), lambda t, q, v: jnp.log(0.5 - t) * jnp.ones(1))
    state = jnp.zeros(1), jnp.zeros(1)
    jax.config.update("jax_debug_nans", True)
    try:
        with pytest.raises(FloatingPointError, match="nan"):
            uk.step(system, 1.0, *state, 0.1)
    finally:
        jax.config.update("jax_debug_nans", False)
