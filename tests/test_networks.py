"""Neural networks in a force: they stay on arrays, whatever else is scalar code."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._motion._acceleration_code import compile_acceleration

STABILIZER = uk.Baumgarte(10.0, 100.0)


class Pulled(uk.AbstractSystem):
    """The pendulum with the force, or the mass, a network gives."""

    net: eqx.nn.MLP
    constraints: tuple
    of_mass: bool = False

    def mass_matrix(self, t, q):
        more = jnp.sum(self.net(jnp.concatenate([q, q])) ** 2) if self.of_mass else 0.0
        return (1.0 + more) * jnp.eye(2)

    def force(self, t, q, v):
        gravity = jnp.array([0.0, -9.81])
        return gravity if self.of_mass else gravity + self.net(jnp.concatenate([q, v]))

    def nonideal_force(self, t, q, v):
        return -0.1 * v


def pulled(width, of_mass=False):
    net = eqx.nn.MLP(4, 2, width, 2, activation=jnp.tanh, key=jax.random.key(0))
    return Pulled(net, uk.models.pendulum().system.constraints, of_mass)


Q, V = jnp.array([0.6, -0.8]), jnp.array([0.8, 0.6])


def code_of(system):
    return compile_acceleration(system, None, STABILIZER, jnp.zeros(()), Q, V)


def test_a_network_adds_nothing_to_scalar_code():
    narrow, wide = code_of(pulled(16)), code_of(pulled(64))
    assert narrow.apart
    assert wide.apart
    assert narrow.program.size == wide.program.size < 100
    for width in (16, 64):
        assert code_of(pulled(width)).numbers(pulled(width), STABILIZER).size < 10  # none of the network's


def test_small_products_are_scalar_code():
    assert not code_of(pulled(4)).apart
    assert not code_of(uk.models.pendulum().system).apart


def test_a_network_in_the_mass_matrix_leaves_all_to_arrays():
    with pytest.raises(uk.TranslationError, match="16 x 16 matrix of parameters"):
        code_of(pulled(16, of_mass=True))
    short = {"t0": 0.0, "t1": 0.05, "ts": 2, "stabilizer": STABILIZER}
    run = uk.simulate(pulled(16, of_mass=True), Q, V, **short)
    assert run.computed_by.startswith("arrays")


@pytest.mark.parametrize("through", [uk.lanes, None])
def test_acceleration_and_gradients(through):
    """Against Newton's law of the pendulum on paper, and of its gradient by central differences."""
    system = pulled(16)

    def a(net, q, v):
        moved = eqx.tree_at(lambda s: s.net, system, net)
        if through is None:
            return uk.UdwadiaKalaba().acceleration(moved, 0.0, q, v, stabilizer=STABILIZER).a
        return uk.lanes(moved, stabilizer=STABILIZER)(0.0, q[None], v[None])[0]

    force = jnp.array([0.0, -9.81]) + system.net(jnp.concatenate([Q, V])) - 0.1 * V
    expected = force - Q * (Q @ force + V @ V)  # along the rod: q.a = -v.v; friction acts along v
    np.testing.assert_allclose(a(system.net, Q, V), expected, rtol=1e-9)

    arrays, static = eqx.partition(system.net, eqx.is_array)
    size = lambda arrays, q, v: jnp.sum(a(eqx.combine(arrays, static), q, v) ** 3)
    slope = jax.jit(jax.grad(size, (0, 1, 2)))(arrays, Q, V)
    along = jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size)).reshape(x.shape), (arrays, Q, V))
    at = lambda h: size(*jax.tree.map(lambda x, d: x + h * d, (arrays, Q, V), along))
    found = sum(jnp.vdot(x, d) for x, d in zip(*map(jax.tree.leaves, (slope, along)), strict=True))
    np.testing.assert_allclose(found, (at(1e-5) - at(-1e-5)) / 2e-5, rtol=1e-6)


@pytest.mark.parametrize("stabilizer", [STABILIZER, pytest.param(uk.Projection(), marks=pytest.mark.slow)])
def test_runs_equal_those_on_arrays(stabilizer):
    system, span = pulled(16), {"t0": 0.0, "t1": 0.2, "ts": 3, "stabilizer": stabilizer}
    run = uk.simulate(system, Q, V, **span)
    arrays = uk.simulate(system, Q, V, formula=uk.UdwadiaKalaba(), **span)
    assert "scalar code" in run.computed_by
    assert "the force on arrays" in run.computed_by
    for name in ("q", "v", "a", "constraint_force", "multipliers"):
        np.testing.assert_allclose(getattr(run, name), getattr(arrays, name), rtol=1e-6, atol=1e-8)


def test_the_gradient_of_steps():
    """By the network's weights through projected steps of two runs, against central differences."""
    system = pulled(16)
    arrays, static = eqx.partition(system.net, eqx.is_array)
    signs = jnp.array([1.0, -1.0])

    @jax.jit
    def end(arrays):
        moved = eqx.tree_at(lambda s: s.net, system, eqx.combine(arrays, static))
        one = lambda sign: uk.step(moved, 0.0, Q, sign * V, 0.1)[0]
        return jnp.sum((jax.vmap(one)(signs) - 0.3) ** 2)

    slope = jax.jit(jax.grad(end))(arrays)
    along = jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size)).reshape(x.shape), arrays)
    at = lambda h: end(jax.tree.map(lambda x, d: x + h * d, arrays, along))
    found = sum(jnp.vdot(x, d) for x, d in zip(*map(jax.tree.leaves, (slope, along)), strict=True))
    np.testing.assert_allclose(found, (at(1e-4) - at(-1e-4)) / 2e-4, rtol=1e-6)


def test_the_projection_takes_only_the_parameters_it_reads():
    """Gravity and the weights are no inputs of it: its derivative by them is not compiled."""
    from ukjax._motion._projection_code import projection_for

    system = pulled(16)
    code = projection_for(system, uk.Projection(), 1e-5, jnp.zeros(()), Q, V)
    assert code.numbers(system, uk.Projection()).size < 5
