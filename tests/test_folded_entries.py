"""Programs that are compiled for which entries of a system are zero, beside closed forms of two springs."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import ukjax as uk
from ukjax._compiler import JitByZeros
from ukjax._system._system import AbstractSystem

H, Q0 = 0.05, jnp.array([1.0, 2.0])


class Springs(uk.AbstractSystem):
    """x'' = -k x."""

    k: Array
    constraints: tuple = ()

    def mass_matrix(self, t, q):
        return jnp.eye(2)

    def force(self, t, q, v):
        return -self.k * q


def _moved(system: Springs) -> Array:
    return uk.step(system, 0.0, Q0, jnp.zeros(2), H, solver=dfx.Dopri8())[0]


moved = JitByZeros(_moved, (AbstractSystem,))


@pytest.mark.parametrize("k", [(0.0, 4.0), (9.0, 4.0), (9.0, 0.0), (1.0, 0.0), (0.0, 0.0)])
def test_each_call_has_its_own_entries(k):
    np.testing.assert_allclose(moved(Springs(jnp.array(k))), Q0 * np.cos(np.sqrt(k) * H), rtol=1e-13)


def test_derivatives_by_entries_that_are_zero():
    """d/dk of x cos(h sqrt(k)) is -x h^2 / 2 at k = 0."""
    for of in (jax.jacfwd, jax.jacrev):
        J = of(lambda k: moved(Springs(k)))(jnp.array([0.0, 1.0]))
        expected = [-Q0[0] * H**2 / 2, -Q0[1] * H * np.sin(H) / 2]
        np.testing.assert_allclose(J, np.diag(expected), rtol=1e-9)


def test_a_batch_of_systems():
    k = jnp.array([[0.0, 4.0], [9.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(
        jax.vmap(lambda k: moved(Springs(k)))(k), np.asarray(Q0) * np.cos(np.sqrt(k) * H), rtol=1e-13
    )


def test_copies_of_another_environment():
    """Gymnasium's copies of an environment whose springs are others from then on."""
    pytest.importorskip("gymnasium")
    make = lambda k: uk.Environment(
        uk.Problem(Springs(jnp.array(k)), Q0, jnp.zeros(2), 0.0, 1.0),
        jnp.zeros((2, 1)),
        lambda t, q, v, u: 0.0 * t,
        dt=H,
        horizon=9,
        solver=dfx.Dopri8(),
    )
    copies = make([0.0, 4.0]).gymnasium(2, -np.ones(1), np.ones(1))
    for k in ([0.0, 4.0], [9.0, 4.0]):
        copies.environment = make(k)
        copies.reset(seed=0)
        seen = copies.step(np.zeros((2, 1)))[0]
        np.testing.assert_allclose(
            seen[:, :2], np.tile(np.asarray(Q0) * np.cos(np.sqrt(k) * H), (2, 1)), rtol=1e-13
        )


def test_a_function_that_holds_a_system():
    """Programs within each other see its arrays twice: an action takes the springs' force back, and nothing moves."""
    pytest.importorskip("gymnasium")
    system = Springs(jnp.array([0.0, 4.0]))
    environment = uk.Environment(
        uk.Problem(system, Q0, jnp.zeros(2), 0.0, 1.0),
        lambda t, q, v, u: u[0] * system.force(t, q, v),
        lambda t, q, v, u: 0.0 * t,
        dt=H,
        horizon=9,
    )
    copies = environment.gymnasium(2, -np.ones(1), np.ones(1))
    copies.reset(seed=0)
    seen = copies.step(-np.ones((2, 1)))[0]
    np.testing.assert_allclose(seen[:, :2], np.tile(np.asarray(Q0), (2, 1)), rtol=1e-13)
