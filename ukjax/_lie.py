"""Rigid motions: so(3) and se(3), their exponentials and adjoints, and unit quaternions.

Conventions are those of Murray, Li and Sastry (1994, chapter 2) and Xu-Liu (2017, eqs. (12)-(39)):
a twist is xi = (v, omega), linear part first; a rigid motion is a matrix g = [[R, p], [0, 1]]; a
quaternion is scalar first. Every function is smooth where it is defined, at zero too.
"""

import math
from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float

_SERIES_TERMS = 9


def hat(omega: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """The skew matrix of w, hat(w) u = cross(w, u) (Murray, Li and Sastry 1994, eq. (2.4))."""
    x, y, z = omega
    o = jnp.zeros_like(x)
    return jnp.stack([jnp.stack([o, -z, y]), jnp.stack([z, o, -x]), jnp.stack([-y, x, o])])


def hat_twist(xi: Float[Array, "6"]) -> Float[Array, "4 4"]:
    """The matrix [[hat(omega), v], [0, 0]] of a twist (Murray, Li and Sastry 1994, eq. (2.30))."""
    top = jnp.concatenate([hat(xi[3:]), xi[:3, None]], axis=1)
    return jnp.concatenate([top, jnp.zeros_like(top[:1])])


def rigid_motion(R: Float[Array, "3 3"], p: Float[Array, "3"]) -> Float[Array, "4 4"]:
    """The homogeneous matrix g = [[R, p], [0, 1]] (Murray, Li and Sastry 1994, eq. (2.21))."""
    last = jnp.asarray([[0.0, 0.0, 0.0, 1.0]], R.dtype)
    return jnp.concatenate([jnp.concatenate([R, p[:, None]], axis=1), last])


def inverse(g: Float[Array, "4 4"]) -> Float[Array, "4 4"]:
    """The inverse motion g^-1 = [[R^T, -R^T p], [0, 1]]."""
    R = g[:3, :3]
    return rigid_motion(R.T, -(R.T @ g[:3, 3]))


def _series(z: Array, first: int) -> Array:
    """sum over k of (-z)^k / (2 k + first)!, by Horner; exact to rounding for 0 <= z <= 1."""
    total = jnp.zeros_like(z)
    for k in reversed(range(_SERIES_TERMS)):
        total = 1.0 / math.factorial(2 * k + first) - z * total
    return total


def _coefficients(z: Array) -> tuple[Array, Array, Array]:
    """sin(x)/x, (1 - cos(x))/x^2 and (x - sin(x))/x^3 of z = x^2, smooth at zero."""
    small = z < 1.0
    near, far = jnp.where(small, z, 0.0), jnp.where(small, 1.0, z)
    x = jnp.sqrt(far)
    closed = (jnp.sin(x) / x, 2.0 * jnp.sin(0.5 * x) ** 2 / far, (x - jnp.sin(x)) / (far * x))
    a, b, c = (jnp.where(small, _series(near, i + 1), closed[i]) for i in range(3))
    return a, b, c


def exp_so3(omega: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """The rotation by a rotation vector w [rad], Rodrigues' formula with x = |w|,

        R = I + (sin x / x) hat(w) + ((1 - cos x) / x^2) hat(w)^2

    (Murray, Li and Sastry 1994, eq. (2.14)); all its derivatives are right at w = 0.
    """
    a, b, _ = _coefficients(jnp.dot(omega, omega))
    w = hat(omega)
    return jnp.eye(3, dtype=w.dtype) + a * w + b * (w @ w)


def exp_se3(xi: Float[Array, "6"]) -> Float[Array, "4 4"]:
    """The rigid motion e^hat(xi) of any twist xi = (v, w), with x = |w|,

        R = exp_so3(w),    p = (I + ((1 - cos x) / x^2) hat(w) + ((x - sin x) / x^3) hat(w)^2) v

    (Murray, Li and Sastry 1994, eqs. (2.32) and (2.36) in one); smooth at xi = 0.
    """
    a, b, c = _coefficients(jnp.dot(xi[3:], xi[3:]))
    w = hat(xi[3:])
    ww, identity = w @ w, jnp.eye(3, dtype=w.dtype)
    return rigid_motion(identity + a * w + b * ww, (identity + b * w + c * ww) @ xi[:3])


def rotation_about(axis: Float[Array, "3"], angle: Float[Array, ""]) -> Float[Array, "3 3"]:
    """The rotation by `angle` [rad] about a constant unit `axis` w,

    R = I + sin(angle) hat(w) + (1 - cos(angle)) hat(w)^2    (Xu-Liu 2017, below eq. (37)).
    """
    w = hat(axis)
    return jnp.eye(3, dtype=w.dtype) + jnp.sin(angle) * w + (1.0 - jnp.cos(angle)) * (w @ w)


def exp_twist(xi: Float[Array, "6"], x: Float[Array, ""]) -> Float[Array, "4 4"]:
    """The motion e^(hat(xi) x) of a joint, whose constant twist xi = (v, w) has |w| = 1 or w = 0,

        R = I + sin(x) hat(w) + (1 - cos x) hat(w)^2,
        p = (x I + (1 - cos x) hat(w) + (x - sin x) hat(w)^2) v,

    which is Xu-Liu 2017, eq. (37) for a revolute or screw joint (x in rad) and a translation by x v
    for a prismatic one (x in m): one polynomial for both, without branch or division.
    """
    w = hat(xi[3:])
    ww, identity = w @ w, jnp.eye(3, dtype=w.dtype)
    s, c1 = jnp.sin(x), 1.0 - jnp.cos(x)
    return rigid_motion(identity + s * w + c1 * ww, (x * identity + c1 * w + (x - s) * ww) @ xi[:3])


def product_of_exponentials(
    twists: Sequence[Float[Array, "6"]], q: Sequence[Float[Array, ""]], g0: Float[Array, "4 4"]
) -> Float[Array, "4 4"]:
    """The frame g(q) = e^(hat(xi_1) q_1) ... e^(hat(xi_i) q_i) g(0) of a serial chain
    (Xu-Liu 2017, eq. (15))."""
    g = g0
    for xi, x in zip(reversed(twists), reversed(q), strict=True):
        g = exp_twist(xi, x) @ g
    return g


def body_jacobian(
    twists: Sequence[Float[Array, "6"]], q: Sequence[Float[Array, ""]], g0: Float[Array, "4 4"]
) -> Float[Array, "6 n"]:
    """The body Jacobian of a serial chain's frame, whose columns are the instantaneous joint twists

        xi_j+ = Ad^-1(e^(hat(xi_j) q_j) ... e^(hat(xi_i) q_i) g(0)) xi_j

    (Murray, Li and Sastry 1994, section 3.4; Xu-Liu 2017, eq. (17), whose product must start at j,
    not at 1).
    """
    g, columns = g0, []
    for xi, x in zip(reversed(twists), reversed(q), strict=True):
        g = exp_twist(xi, x) @ g
        columns.append(inverse_adjoint(g) @ xi)
    return jnp.stack(columns[::-1], axis=1)


def adjoint(g: Float[Array, "4 4"]) -> Float[Array, "6 6"]:
    """Ad_g = [[R, hat(p) R], [0, R]], which carries body twists to spatial ones
    (Murray, Li and Sastry 1994, eq. (2.58))."""
    R, p = g[:3, :3], g[:3, 3]
    return _block_triangular(R, hat(p) @ R)


def inverse_adjoint(g: Float[Array, "4 4"]) -> Float[Array, "6 6"]:
    """Ad_g^-1 = [[R^T, -R^T hat(p)], [0, R^T]] (Murray, Li and Sastry 1994, below eq. (2.58))."""
    R, p = g[:3, :3], g[:3, 3]
    return _block_triangular(R.T, -(R.T @ hat(p)))


def _block_triangular(diagonal: Array, corner: Array) -> Array:
    upper = jnp.concatenate([diagonal, corner], axis=1)
    return jnp.concatenate([upper, jnp.concatenate([jnp.zeros_like(corner), diagonal], axis=1)])


def quaternion_product(p: Float[Array, "4"], q: Float[Array, "4"]) -> Float[Array, "4"]:
    """Hamilton's product p o q, scalar first (Murray, Li and Sastry 1994, section 2.3)."""
    scalar = p[0] * q[0] - jnp.dot(p[1:], q[1:])
    vector = p[0] * q[1:] + q[0] * p[1:] + hat(p[1:]) @ q[1:]
    return jnp.concatenate([scalar[None], vector])


def rotation_matrix(p: Float[Array, "4"]) -> Float[Array, "3 3"]:
    """The rotation of p / |p|, with p = (s, u) scalar first,

        R = ((s^2 - u.u) I + 2 u u^T + 2 s hat(u)) / (s^2 + u.u)

    (Murray, Li and Sastry 1994, section 2.3). It takes body to world coordinates; the norm drops
    out, so a drift of |p| does no harm.
    """
    s, u = p[0], p[1:]
    R = (s * s - jnp.dot(u, u)) * jnp.eye(3, dtype=p.dtype) + 2.0 * (jnp.outer(u, u) + s * hat(u))
    return R / jnp.dot(p, p)


def quaternion_rate(p: Float[Array, "4"], omega: Float[Array, "3"]) -> Float[Array, "4"]:
    """The rate p' = 1/2 p o (0, omega) from the angular velocity [rad/s] in body axes
    (the kinematics q' = N(q) v of Orsino 2017, section 2); it keeps |p|."""
    return 0.5 * quaternion_product(p, jnp.concatenate([jnp.zeros_like(omega[:1]), omega]))
