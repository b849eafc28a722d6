"""Gradients back through the steps of runs by machine code: against central differences and Diffrax's adjoint."""

import functools

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import central

import ukjax as uk

FIXED = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.01}
CASES = {
    "pendulum": (uk.models.pendulum, 1.0, {}),
    "four-bar": (lambda: uk.models.four_bars(1), 0.5, {}),
    "dependent rows": (uk.models.parallelogram, 0.3, {}),
    "quaternions": (uk.models.spinning_top, 0.1, {}),
    "servo": (uk.models.scara, 1.0, {}),
    "the last stage is the next first": (
        uk.models.pendulum, 1.0, {"solver": dfx.Tsit5(), "stabilizer": uk.Baumgarte(10.0, 100.0)},
    ),
    "fixed steps": (uk.models.pendulum, 0.5, FIXED | {"solver": dfx.Tsit5()}),
}  # fmt: skip


def loss(problem, t1, **options):
    """A function of parameters, gains and start, of saved states, and where to take its derivative."""
    stabilizer = options.pop("stabilizer", uk.Projection())
    moving, still = eqx.partition((problem.system, stabilizer), eqx.is_inexact_array)

    def of(given, **more):
        (system, stabilizer), q0, v0 = eqx.combine(given[0], still), *given[1:]
        run = uk.simulate(
            system, q0, v0, t0=0.0, t1=t1, ts=jnp.array([0.0, 0.3, 0.31, 0.9]) * t1, stabilizer=stabilizer,
            **(options | more),
        )  # fmt: skip
        weights = jnp.cos(jnp.arange(run.q.size, dtype=run.q.dtype)).reshape(run.q.shape)
        return jnp.sum(weights * run.q) + jnp.sum(run.v[1:-1] ** 2)

    return of, (moving, problem.q0, problem.v0)


def flat(tree):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def by_diffrax(of):
    return lambda *x: of(*x, adjoint=dfx.RecursiveCheckpointAdjoint())


def assert_alike(found, expected, rtol=1e-9):
    found, expected = flat(found), flat(expected)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


@functools.cache
def value_and_gradient(case):
    """A function, where to take its derivative, and both by machine code."""
    make, t1, options = CASES[case]
    of, at = loss(make(), t1, **options)
    return of, at, jax.jit(jax.value_and_grad(of))(at)


LONG = "servo", "four-bar"  # of the kinds that the others are of


@pytest.mark.parametrize("case", [pytest.param(x, marks=[pytest.mark.slow] * (x in LONG)) for x in CASES])
def test_gradients_are_slopes(case):
    """Along random changes of parameters, gains and start; of velocities alone where rows are to stay dependent."""
    of, at, (value, gradient) = value_and_gradient(case)
    rng = np.random.default_rng(1)
    along = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape) * (0.1 + np.abs(x))), at)
    if case == "dependent rows":
        along = *jax.tree.map(jnp.zeros_like, along[:2]), along[2]
    moved = lambda s: jax.tree.map(lambda x, dx: x + s * dx, at, along)
    pushed = jax.jit(lambda s: jax.jvp(of, (moved(s),), (along,)))
    slope = sum(np.vdot(x, dx) for x, dx in zip(*map(jax.tree.leaves, (gradient, along)), strict=True))
    np.testing.assert_allclose(slope, central(lambda s: pushed(s)[0], 1e-4), rtol=1e-5)
    np.testing.assert_allclose(pushed(0.0), (value, slope), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["pendulum", "the last stage is the next first"])
def test_gradients_are_those_of_diffrax(case):
    of, at, found = value_and_gradient(case)
    assert_alike(found, jax.jit(jax.value_and_grad(by_diffrax(of)))(at))


def end(length, speed, t1=1.0, **options):
    """Where a pendulum ends."""
    problem = uk.models.pendulum(length=length)
    run = uk.simulate(problem.system, problem.q0, problem.v0 + speed, t0=0.0, t1=t1, ts=3, **options)
    return run.q[-1, 0]


def test_runs_of_many_lengths_in_one_vector():
    lengths, spans = jnp.linspace(0.5, 2.0, 11), jnp.linspace(0.2, 8.0, 11)
    speed = jnp.array([0.1, 0.2])
    of = lambda length, t1: end(length, speed, t1)
    found = jax.jit(jax.vmap(jax.grad(of), (0, None)))(lengths, 1.0)
    many = jax.jit(jax.vmap(jax.grad(of)))(lengths, spans)
    steps = jax.vmap(lambda t1: uk.simulate(uk.models.pendulum(), t1=t1, ts=2).stats["num_accepted_steps"])(
        spans
    )
    assert steps[0] < 20 < 60 < steps[-1]
    h = 1e-4
    for k in (0, 4, 10):
        slope = central(lambda s, k=k: jax.jit(of)(lengths[k] + s, spans[k]), h)
        np.testing.assert_allclose(many[k], slope, rtol=1e-5)
    np.testing.assert_allclose(found[3], central(lambda s: jax.jit(of)(lengths[3] + s, 1.0), h), rtol=1e-5)


def test_gradients_of_a_sum_over_a_batch():
    lengths = jnp.linspace(0.5, 1.5, 3)
    of = lambda lengths, speed: jnp.sum(jax.vmap(end, (0, None))(lengths, speed))
    found = jax.jit(jax.grad(of, 1))(lengths, jnp.zeros(2))
    each = sum(jax.jit(jax.grad(end, 1))(length, jnp.zeros(2)) for length in lengths)
    np.testing.assert_allclose(found, each, rtol=1e-8)


def test_states_that_were_not_reached_have_no_say():
    def of(length, **more):
        run = uk.simulate(uk.models.pendulum(length=length), t1=3.0, ts=7, max_steps=12, **more)
        reached = jnp.isfinite(run.t)[:, None]
        return jnp.sum(jnp.where(reached, run.q, 0.0)), jnp.sum(reached)

    length = jnp.asarray(1.2)
    found, reached = jax.jit(jax.grad(of, has_aux=True))(length)
    assert 2 < reached < 7
    assert_alike(found, jax.jit(jax.grad(by_diffrax(of), has_aux=True))(length)[0])


def test_energy_and_forces():
    def of(length):
        run = uk.simulate(uk.models.pendulum(length=length), t1=1.0, ts=4)
        assert run.energy is not None
        return jnp.sum(run.energy[:4]) + jnp.sum(run.constraint_force[1:3] ** 2) + jnp.sum(run.multipliers[2])

    length = jnp.asarray(1.2)
    np.testing.assert_allclose(
        jax.jit(jax.grad(of))(length), central(lambda s: jax.jit(of)(length + s)), rtol=1e-5
    )


def test_diffrax_differentiates_by_time():
    """The end then moves with the speed there."""
    problem = uk.models.pendulum()
    last = lambda t1: uk.simulate(problem, t1=t1, ts=2).q[-1, 0]
    speed = uk.simulate(problem, t1=1.0, ts=2).v[-1, 0]
    np.testing.assert_allclose(jax.jit(jax.grad(last))(jnp.asarray(1.0)), speed, rtol=1e-6)


def test_forward_mode_of_batches_and_failures():
    """In a batch each run has its changes; of a run that stops early there are those of where it got to."""
    lengths, speeds = jnp.array([1.0, 1.3, 2.0]), jnp.array([[0.1, 0.0], [0.2, 0.0], [0.0, 0.0]])
    both = jax.jacfwd(end, argnums=(0, 1))
    found = jax.jit(jax.vmap(both))(lengths, speeds)
    alone = [jax.jit(both)(*x) for x in zip(lengths, speeds, strict=True)]
    for i, x in enumerate(alone):
        # Steps differ where errors are those of rounding, which vectors of runs do otherwise.
        jax.tree.map(lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=1e-8), found, x)
    failed = uk.models.pendulum(length=lengths[0])
    saved = lambda q: uk.simulate(failed, q, failed.v0, t1=1.0, ts=5, max_steps=2, throw=False).q
    primal, change = jax.jit(lambda q: jax.jvp(saved, (q,), (q,)))(failed.q0)
    assert not np.isfinite(primal[-2]).any()
    assert np.isfinite(change[jnp.array([0, -1])]).all()


AT = jnp.asarray(1.0), jnp.array([0.1, 0.0])


def test_forward_mode_once_and_twice():
    value, slope = jax.jit(end), jax.jit(jax.jacfwd(end))
    np.testing.assert_allclose(slope(*AT), central(lambda h: value(AT[0] + h, AT[1]), 1e-4), rtol=1e-6)
    twice = jax.jit(jax.jacfwd(jax.jacfwd(end)))(*AT)
    np.testing.assert_allclose(twice, central(lambda h: slope(AT[0] + h, AT[1]), 1e-3), rtol=1e-5)


@pytest.mark.slow
def test_forward_mode_is_that_of_diffrax():
    by_arrays = functools.partial(end, solver=dfx.Kvaerno3(), adjoint=dfx.ForwardMode())
    expected = jax.jit(jax.jacfwd(by_arrays))(*AT)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(end))(*AT), expected, rtol=1e-5)


@pytest.mark.slow
def test_forward_mode_of_a_run_that_an_event_may_end():
    """Within jit, by differences: at once `test_forward_mode_through_an_event` has it."""
    stops = lambda t, q, v: q[1]
    of = lambda length: end(length, jnp.zeros(2), event=stops)
    found = jax.jit(jax.jacfwd(of))(jnp.asarray(1.0))
    h = 1e-5
    differences = (of(jnp.asarray(1 + h)) - of(jnp.asarray(1 - h))) / (2 * h)
    np.testing.assert_allclose(found, differences, rtol=1e-5, atol=1e-7)


def test_a_rule_of_the_user_is_that_of_the_run():
    """x'' = -x, said to change by -s^2: the derivative of cos t x0 + sin t v0 is then cos s t, sin s t / s."""
    s = 1.2

    @jax.custom_jvp
    def pull(q):
        return -q

    pull.defjvp(lambda primals, tangents: (pull(*primals), -(s**2) * tangents[0]))
    system = uk.System(jnp.eye(2), lambda t, q, v: pull(q), [uk.Holonomic(lambda t, q: q[1], name="axis")])
    end = lambda x: uk.simulate(system, [x[0], 0.0], [x[1], 0.0], t1=1.0, ts=2, rtol=1e-10, atol=1e-10).q_end[
        0
    ]
    for derivative in (jax.jacrev, jax.jacfwd):
        np.testing.assert_allclose(
            derivative(end)(jnp.array([1.0, 0.5])), [np.cos(s), np.sin(s) / s], rtol=1e-7
        )
