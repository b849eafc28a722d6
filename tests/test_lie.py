"""Exponentials, adjoints and quaternions against SciPy's, and their derivatives at zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

from ukjax import _lie as lie

RNG = np.random.default_rng(0)
SIZES = [0.0, 1e-9, 1e-4, 0.1, 1.0 - 1e-9, 1.0 + 1e-9, 2.0, 3.1, 9.0]


def _hat_twist(xi):
    v, (x, y, z) = xi[:3], xi[3:]
    rows = [[0, -z, y, v[0]], [z, 0, -x, v[1]], [-y, x, 0, v[2]], [0, 0, 0, 0]]
    return np.array(rows, float)


def _twist(size=1.0):
    xi = RNG.normal(size=6)
    return np.concatenate([xi[:3], size * xi[3:] / np.linalg.norm(xi[3:])])


def _motion():
    return jnp.asarray(expm(_hat_twist(RNG.normal(size=6))))


def test_hat_is_the_cross_product():
    w, u = RNG.normal(size=(2, 3))
    np.testing.assert_allclose(lie.hat(jnp.asarray(w)) @ u, np.cross(w, u), atol=1e-15)
    xi = _twist()
    np.testing.assert_array_equal(lie.hat_twist(jnp.asarray(xi)), _hat_twist(xi))


@pytest.mark.parametrize("size", SIZES)
def test_exponentials_of_any_size(size):
    xi = _twist(size)
    expected = expm(_hat_twist(xi))
    np.testing.assert_allclose(lie.exp_se3(jnp.asarray(xi)), expected, atol=2e-14)
    np.testing.assert_allclose(lie.exp_so3(jnp.asarray(xi[3:])), expected[:3, :3], atol=2e-14)


def _along(xi, tangent, s):
    return lie.exp_se3(xi + s * tangent)


_first = jax.jit(jax.jacfwd(_along, argnums=2))
_second = jax.jit(jax.jacfwd(jax.jacfwd(_along, argnums=2), argnums=2))
_jacobian = jax.jit(jax.jacrev(lie.exp_se3))


@pytest.mark.parametrize("size", SIZES)
def test_derivatives_of_exponentials(size):
    xi, step = _twist(size), 1e-4
    tangent = RNG.normal(size=6)

    def first(s):
        return _first(jnp.asarray(xi), jnp.asarray(tangent), s)

    central = (expm(_hat_twist(xi + step * tangent)) - expm(_hat_twist(xi - step * tangent))) / step
    np.testing.assert_allclose(first(0.0), central / 2, atol=1e-6)
    np.testing.assert_allclose(
        _second(jnp.asarray(xi), jnp.asarray(tangent), 0.0),
        (first(step) - first(-step)) / (2 * step),
        atol=1e-6,
    )
    np.testing.assert_allclose(_jacobian(jnp.asarray(xi)) @ tangent, first(0.0), atol=1e-13)


def test_derivatives_at_zero_are_the_generators():
    zero, generators = jnp.zeros(6), np.stack([_hat_twist(e) for e in np.eye(6)])
    first = np.moveaxis(jax.jit(jax.jacrev(lie.exp_se3))(zero), -1, 0)
    np.testing.assert_allclose(first, generators, atol=1e-16)
    second = np.moveaxis(jax.jit(jax.jacfwd(jax.jacfwd(lie.exp_se3)))(zero), (-2, -1), (0, 1))
    products = np.einsum("iab,jbc->ijac", generators, generators)
    np.testing.assert_allclose(second, (products + products.swapaxes(0, 1)) / 2, atol=1e-15)


@pytest.mark.parametrize("kind", ["revolute", "screw", "prismatic"])
@pytest.mark.parametrize("x", [0.0, 0.3, -4.0])
def test_joint_exponential(kind, x):
    xi = _twist(0.0 if kind == "prismatic" else 1.0)
    if kind == "revolute":
        xi[:3] = -np.cross(xi[3:], RNG.normal(size=3))
    g = lie.exp_twist(jnp.asarray(xi), jnp.asarray(x))
    np.testing.assert_allclose(g, expm(x * _hat_twist(xi)), atol=1e-13)
    np.testing.assert_allclose(
        jax.jacfwd(lie.exp_twist, argnums=1)(jnp.asarray(xi), jnp.asarray(x)),
        _hat_twist(xi) @ np.asarray(g),
        atol=1e-13,
    )
    R = lie.rotation_about(jnp.asarray(xi[3:]), jnp.asarray(x))
    np.testing.assert_allclose(R, g[:3, :3], atol=1e-15)


def test_joint_exponential_of_the_scara():
    """The second exponential below eq. (38) of Xu-Liu 2017."""
    x, l1 = 0.7, 0.2
    c, s = np.cos(x), np.sin(x)
    expected = [[c, -s, 0, l1 * s], [s, c, 0, l1 * (1 - c)], [0, 0, 1, 0], [0, 0, 0, 1]]
    g = lie.exp_twist(jnp.asarray([l1, 0, 0, 0, 0, 1.0]), jnp.asarray(x))
    np.testing.assert_allclose(g, expected, atol=1e-16)


def test_adjoints_carry_twists_between_frames():
    g, xi = _motion(), jnp.asarray(_twist())
    conjugate = g @ lie.hat_twist(xi) @ lie.inverse(g)
    np.testing.assert_allclose(lie.hat_twist(lie.adjoint(g) @ xi), conjugate, atol=1e-14)
    np.testing.assert_allclose(lie.inverse_adjoint(g) @ lie.adjoint(g), np.eye(6), atol=1e-14)
    np.testing.assert_allclose(lie.inverse(g) @ g, np.eye(4), atol=1e-14)


def test_serial_chain_and_its_body_jacobian():
    twists = [jnp.asarray(_twist(size)) for size in (1.0, 0.0, 1.0)]
    q, g0 = jnp.asarray(RNG.normal(size=3)), _motion()

    def frame(q):
        return lie.product_of_exponentials(twists, list(q), g0)

    expected = g0
    for xi, x in zip(twists[::-1], q[::-1], strict=True):
        expected = expm(_hat_twist(np.asarray(xi)) * float(x)) @ expected
    np.testing.assert_allclose(frame(q), expected, atol=1e-13)
    J = lie.body_jacobian(twists, list(q), g0)
    for j, dg in enumerate(np.moveaxis(jax.jacfwd(frame)(q), -1, 0)):
        body = np.linalg.inv(frame(q)) @ dg
        np.testing.assert_allclose(lie.hat_twist(J[:, j]), body, atol=1e-13)


def test_quaternions():
    p, q = jnp.asarray(RNG.normal(size=(2, 4)))
    scipy = Rotation.from_quat(np.roll(p, -1))
    np.testing.assert_allclose(lie.rotation_matrix(p), scipy.as_matrix(), atol=1e-15)
    np.testing.assert_allclose(lie.rotation_matrix(3.0 * p), scipy.as_matrix(), atol=1e-15)
    product = lie.rotation_matrix(p) @ lie.rotation_matrix(q)
    np.testing.assert_allclose(lie.rotation_matrix(lie.quaternion_product(p, q)), product, atol=1e-14)


def test_quaternion_rate_turns_the_body():
    p, omega = jnp.asarray(RNG.normal(size=4)), jnp.asarray(RNG.normal(size=3))
    rate = lie.quaternion_rate(p, omega)
    R, R_rate = jax.jvp(lie.rotation_matrix, (p,), (rate,))
    np.testing.assert_allclose(R_rate, R @ lie.hat(omega), atol=1e-14)
    np.testing.assert_allclose(p @ rate, 0.0, atol=1e-15)


def test_single_precision_stays_single():
    xi, p = jnp.ones(6, jnp.float32), jnp.ones(4, jnp.float32)
    g = lie.exp_se3(xi)
    results = (g, lie.exp_so3(xi[:3]), lie.exp_twist(xi, xi[0]), lie.adjoint(g))
    results += (lie.rotation_matrix(p), lie.quaternion_rate(p, xi[:3]), lie.inverse(g))
    assert all(x.dtype == jnp.float32 for x in results)
