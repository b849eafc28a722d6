"""What a system's functions may do: scalar code gives the value JAX gives, and the derivatives of its own rules."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import ukjax as uk
from ukjax._compiler import array_function


@pytest.fixture(autouse=True)
def _as_users_write():
    with jax.numpy_dtype_promotion("standard"):
        yield


class Pulled(uk.AbstractSystem):
    """Unit masses under a force: a = force(q)."""

    pull: Callable
    constraints = ()

    def mass_matrix(self, t, q):
        return jnp.eye(q.size, dtype=q.dtype)

    def force(self, t, q, v):
        return self.pull(q)


@jax.custom_jvp
def straight_through(x):
    return jnp.floor(x)


straight_through.defjvps(lambda change, y, x: change)


@jax.custom_jvp
def guarded_root(x):
    return jnp.sqrt(jnp.maximum(x, 0))


@guarded_root.defjvp
def _(primals, tangents):
    (x,), (change,) = primals, tangents
    safe = jnp.where(x > 0, x, 1.0)
    return guarded_root(x), jnp.where(x > 0, change / (2 * jnp.sqrt(safe)), 0.0)


@jax.custom_jvp
def scaled(x, power):
    return {"square": x**2, "power": power * jnp.ones(())}


@scaled.defjvp
def _(primals, tangents):
    x, power = primals
    return scaled(x, power), {"square": 3 * x**2 * tangents[0], "power": tangents[1] * x[0]}


WHOLE = {
    "quotients": lambda q: -(jnp.arange(2, 4) // 2) * q,
    "quotients towards zero": lambda q: lax.div(jnp.array([-3, 4]), 2) * q,
    "remainders": lambda q: (jnp.arange(-3, -1) % 2) * q + lax.rem(jnp.array([-3, 4]), 2),
    "bits": lambda q: (jnp.arange(6, 8) & 3) * q + (jnp.arange(2) | 4) - (jnp.arange(2) ^ 3),
    "complements": lambda q: ~jnp.arange(1, 3) * q,
    "shifts": lambda q: (jnp.array([1, 5]) << 2) * q,
    "unsigned": lambda q: (jnp.arange(2, dtype=jnp.uint8) - jnp.uint8(1)).astype(float) * q,
    "powers": lambda q: jnp.arange(2, 4) ** 3 * q,
    "quotients of counts": lambda q: (jnp.sum(q > 0.1) // 2) * q,
    "counts": lambda q: jnp.sum(q > 0.1) * q,
    "choices": lambda q: lax.select_n((q > 0.1).astype(jnp.int32), -q, 2 * q),
    "whole numbers": lambda q: (10 * q - 4.5).astype(jnp.int32) * q + (1e300 * q).astype(jnp.int32),
    "sums of nothing": lambda q: q + jnp.sum(q[:0]) + jnp.prod(q[:0]),
    "infinities": lambda q: jnp.where(jnp.isnan(jnp.zeros(2) / jnp.zeros(2)), q, -q),
    "roots of less than nothing": lambda q: jnp.where(jnp.isnan(jnp.sqrt(jnp.array(-1.0))), q, -q),
}
OWN_RULES = {
    "straight through": lambda q: straight_through(3 * q) * q,
    "guarded root": lambda q: guarded_root(jnp.array([0.0, 1.0]) * q),
    "several": lambda q: scaled(q, 2.0)["square"] + scaled(q, q[1])["power"] * q,
    "softplus": lambda q: jax.nn.softplus(jnp.array([0.0, 1.0]) * q) * q,
    "relu": lambda q: jax.nn.relu(jnp.array([0.0, 1.0]) * q) + jax.nn.silu(q),
    "of what is known": lambda q: straight_through(jnp.array([2.5, 3.5])) * q,
    "of its own results": lambda q: straight_through(2 * straight_through(2 * q) * q) * q,
}
Q = jnp.array([0.3, 0.7])


def _same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", [*WHOLE, *OWN_RULES])
def test_equals_the_function_and_its_derivatives(name):
    pull = (WHOLE | OWN_RULES)[name]
    one = lambda q: uk.lanes(Pulled(pull)).one(0.0, q, jnp.zeros(2))
    _same(jax.jit(one)(Q), pull(Q))
    _same(jax.jit(jax.jacfwd(one))(Q), jax.jacfwd(pull)(Q))
    _same(jax.jit(jax.jacrev(one))(Q), jax.jacrev(pull)(Q))
    _same(jax.jit(jax.jacfwd(jax.jacrev(one)))(Q), jax.jacfwd(jax.jacrev(pull))(Q))


@jax.custom_vjp
def held(x):
    return 2 * x


held.defvjp(lambda x: (2 * x, None), lambda _, change: (0 * change,))


def test_a_rule_for_reverse_mode_only_is_kept():
    system = Pulled(lambda q: held(q))
    end = lambda q: uk.simulate(system, q, jnp.zeros(2), t1=0.1, ts=2, max_steps=16)
    assert "arrays" not in end(Q).computed_by
    # With no derivative of the force the end moves as the start.
    _same(jax.jacrev(lambda q: end(q).q[-1])(Q), np.eye(2))
    with pytest.raises(uk.Untranslatable, match="reverse mode only"):
        jax.jacfwd(lambda q: end(q).q[-1])(Q)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_neighbours_of_numbers_are_those_of_numpy(kind):
    ends = np.array(
        [1.0, -1.0, 1.5, -3.7, 2.0, np.nextafter(kind(2), kind(0)), 1e30, -1e-20, np.inf, -np.inf, np.nan]
    )
    x = np.append(ends, [np.finfo(kind).max, np.finfo(kind).min]).astype(kind)
    for y in (np.inf, -np.inf, 1.0, np.nan):
        after = array_function(lambda x, y=y: jnp.nextafter(x, jnp.asarray(y, kind)), jnp.asarray(x))
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(after.by_numpy(x[:, None])[0], np.nextafter(x, kind(y)))


def test_integers_that_are_not_known():
    """A count of thirty conditions, and a quotient of it that is 1."""
    system = Pulled(lambda q: (jnp.sum(q[0] > jnp.linspace(-2.0, -1.0, 30)) // 30) * q)
    np.testing.assert_array_equal(uk.lanes(system).one(0.0, Q, jnp.zeros(2)), Q)
    np.testing.assert_allclose(
        uk.simulate(system, Q, jnp.zeros(2), t1=1.0, ts=2).q[-1], np.cosh(1) * Q, rtol=1e-6
    )
