"""Systems, formulas and trajectories are pytrees: in JAX's transformations, Optax and Orbax, with nothing around them."""

import diffrax as dfx
import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import optax
import oracles
import pytest

import ukjax as uk

Q, V, DT = jnp.asarray([0.6, -0.8]), jnp.zeros(2), 0.05
STABILIZER = uk.Baumgarte(5.0, 5.0)


def _advance(system, formula, stabilizer, q, v):
    return uk.step(system, 0.0, q, v, DT, formula=formula, stabilizer=stabilizer, solver=dfx.Midpoint())


def _height(system, formula, q, v, wrap=lambda f: f):
    """The height after three steps; system and formula are carried through the loop."""

    def body(carry, _):
        system, formula, q, v = carry
        q, v = wrap(_advance)(system, formula, STABILIZER, q, v)
        return (system, formula, q, v), q

    return jax.lax.scan(body, (system, formula, q, v), None, length=3)[1][-1, 1]


def test_arguments_of_jit_carried_by_scan_and_checkpointed():
    """A model's system has nothing but arrays for leaves: plain `jax.jit` and `jax.grad` take it."""
    system, formula = uk.models.pendulum().system, uk.UdwadiaKalaba()
    checkpointed = lambda *args: _height(*args, wrap=jax.checkpoint)
    gradient = jax.jit(jax.grad(checkpointed))(system, formula, Q, V)
    height = jax.jit(_height)
    for name in ("mass", "length", "gravity"):
        change = lambda s, name=name: eqx.tree_at(
            lambda x: getattr(x, name), system, getattr(system, name) + s
        )
        slope = helpers.central(lambda s, change=change: height(change(s), formula, Q, V))
        np.testing.assert_allclose(getattr(gradient, name), slope, rtol=1e-7, atol=1e-12)


def _many(lengths):
    return jax.vmap(lambda length: uk.models.pendulum(length=length).system)(lengths)


@pytest.mark.slow
def test_a_batch_of_systems_is_a_system_with_batched_leaves():
    lengths = jnp.asarray([1.0, 1.2])
    systems, formula = _many(lengths), uk.UdwadiaKalaba()
    starts = jnp.outer(lengths, Q)
    found = jax.jit(jax.vmap(_advance, (0, None, None, 0, None)))(systems, formula, STABILIZER, starts, V)
    one = jax.jit(_advance)
    for i in range(2):
        system = jax.tree.map(lambda x, i=i: x[i], systems)
        for a, b in zip(one(system, formula, STABILIZER, starts[i], V), found, strict=True):
            np.testing.assert_allclose(a, b[i], atol=1e-14)


@pytest.mark.slow
def test_optax_trains_a_system():
    """The length of a pendulum from the frequency of its small swings, w^2 = g / length; mass does not matter."""
    truth = 1.3
    w = np.sqrt(9.81 / truth)
    angle = 0.01 * np.cos(w * 0.25)

    def loss(system):
        length = system.length
        q = length * jnp.stack([jnp.sin(0.01), -jnp.cos(0.01)])

        def body(state, _):
            return _advance(system, uk.UdwadiaKalaba(), STABILIZER, *state), None

        q, _ = jax.lax.scan(body, (q, V), None, length=5)[0]
        return (1e2 * (jnp.arctan2(q[0], -q[1]) - angle)) ** 2

    system = uk.models.pendulum().system
    optimizer = optax.adam(0.05)
    state = optimizer.init(eqx.filter(system, eqx.is_inexact_array))

    @eqx.filter_jit
    def train(system, state):
        def body(carry, _):
            system, state = carry
            gradient = jax.grad(loss)(system)
            fixed = eqx.tree_at(lambda s: s.gravity, gradient, jnp.zeros_like(gradient.gravity))
            with jax.numpy_dtype_promotion("standard"):
                updates, state = optimizer.update(fixed, state)
            return (eqx.apply_updates(system, updates), state), None

        return jax.lax.scan(body, (system, state), None, length=200)[0]

    trained, _ = train(system, state)
    np.testing.assert_allclose(trained.length, truth, rtol=2e-2)  # Midpoint's own error included
    assert trained.gravity == system.gravity


@pytest.fixture(scope="module")
def run():
    """A compiled simulation of two pendulums, with the trajectories for its result."""

    @eqx.filter_jit
    def swing(rates, formula):
        def one(rate):
            problem = uk.models.pendulum(rate=rate)
            return uk.simulate(
                problem, t1=0.2, ts=3, formula=formula, solver=dfx.Bosh3(), rtol=1e-7, atol=1e-7
            )

        return jax.vmap(one)(rates)

    return swing(jnp.asarray([0.0, 0.5]), uk.UdwadiaKalaba())


@pytest.mark.slow
def test_trajectories_leave_compiled_functions_and_are_mapped(run):
    assert isinstance(run, uk.Trajectory)
    second = jax.tree.map(lambda x: x[1], run)
    angle, _ = oracles.pendulum_elliptic(second.t, np.pi / 3, 0.5, 9.81)
    np.testing.assert_allclose(second.q, np.stack([np.sin(angle), -np.cos(angle)], 1), atol=1e-5)
    assert second.ok
    assert second.row_names == ("rod",)
    heights = jax.jit(lambda run: run.q[..., 1])(run)
    np.testing.assert_array_equal(heights[1], second.q[:, 1])


@pytest.mark.slow
def test_orbax_keeps_systems_and_trajectories(run, tmp_path):
    checkpoint = pytest.importorskip("orbax.checkpoint")
    systems = _many(jnp.asarray([1.0, 1.2]))
    with checkpoint.StandardCheckpointer() as keeper:
        for name, tree in (("systems", systems), ("run", run)):
            arrays, rest = eqx.partition(tree, eqx.is_array)
            keeper.save(tmp_path / name, arrays)
            keeper.wait_until_finished()
            blank = jax.tree.map(jnp.zeros_like, arrays)
            back = eqx.combine(keeper.restore(tmp_path / name, blank), rest)
            assert jax.tree.structure(back) == jax.tree.structure(tree)
            for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
                np.testing.assert_array_equal(a, b)
