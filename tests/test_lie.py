"""Exponentials, adjoints and quaternions against SciPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

import ukjax as uk
from ukjax._misc import _lie as lie

RNG = np.random.default_rng(0)


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
    g, xi = _motion(), _twist()
    conjugate = g @ _hat_twist(xi) @ np.linalg.inv(g)
    np.testing.assert_allclose(_hat_twist(lie.adjoint(g) @ xi), conjugate, atol=1e-14)
    np.testing.assert_allclose(lie.inverse_adjoint(g) @ lie.adjoint(g), np.eye(6), atol=1e-14)


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
    g = lie.exp_twist(xi, xi[0])
    results = (
        g,
        lie.adjoint(g),
        lie.inverse_adjoint(g),
        lie.rotation_matrix(p),
        lie.quaternion_rate(p, xi[:3]),
    )
    assert all(x.dtype == jnp.float32 for x in results)


@pytest.mark.parametrize("angles", [(0.3, 1.1, -2.0), (-2.9, 3.0, 2.5), (1.0, 1e-7, 0.5)])
def test_zyz_angles(angles):
    """Xu-Liu (42)-(44) against SciPy's, and there and back."""
    R = lie.zyz_rotation(jnp.asarray(angles))
    np.testing.assert_allclose(R, Rotation.from_euler("ZYZ", angles).as_matrix(), atol=1e-15)
    np.testing.assert_allclose(lie.zyz_angles(R), angles, atol=1e-8)
    jacobian = jax.jacfwd(lambda x: lie.zyz_angles(lie.zyz_rotation(x)))(jnp.asarray(angles))
    np.testing.assert_allclose(jacobian, np.eye(3), atol=1e-6)


@pytest.mark.parametrize(("psi", "sign"), [(0.0, 1), (np.pi, -1)])
def test_zyz_angles_where_only_a_sum_is_determined(psi, sign):
    """Xu-Liu (45): phi = 0 is chosen, and the rotation is the same."""
    R = jnp.asarray(Rotation.from_euler("ZYZ", (0.4, psi, 0.9)).as_matrix())
    found = lie.zyz_angles(R)
    np.testing.assert_allclose(found, [0.0, psi, 0.9 + sign * 0.4], atol=1e-12)
    np.testing.assert_allclose(lie.zyz_rotation(found), R, atol=1e-12)


def test_tool_of_the_scara_turns_about_z_only():
    """Xu-Liu (43), (46): psi = 0, and gamma = q1 + q2 + q3."""
    arm, q = uk.models.scara().system, jnp.asarray([0.3, -0.9, 1.1, 0.05])
    found = lie.zyz_angles(arm._frames(q)[-1][:3, :3])
    np.testing.assert_allclose(found, [0.0, 0.0, 0.5], atol=1e-14)
