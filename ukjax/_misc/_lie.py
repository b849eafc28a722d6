"""Rigid motions: the exponentials of joints, adjoints, and unit quaternions.

Conventions are those of Murray, Li and Sastry (1994, chapter 2) and Xu-Liu (2017, eqs. (12)-(39)):
a twist is xi = (v, omega), linear part first; a rigid motion is a matrix g = [[R, p], [0, 1]]; a
quaternion is scalar first. Every function is smooth where it is defined, at zero too.
"""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._arguments import real_array
from ._errors import InputError


def hat(omega: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """The skew matrix of w, hat(w) u = cross(w, u) (Murray, Li and Sastry 1994, eq. (2.4))."""
    x, y, z = omega
    o = jnp.zeros_like(x)
    return jnp.stack([jnp.stack([o, -z, y]), jnp.stack([z, o, -x]), jnp.stack([-y, x, o])])


def rigid_motion(R: Float[Array, "3 3"], p: Float[Array, "3"]) -> Float[Array, "4 4"]:
    """The homogeneous matrix g = [[R, p], [0, 1]] (Murray, Li and Sastry 1994, eq. (2.21))."""
    last = jnp.asarray([[0.0, 0.0, 0.0, 1.0]], R.dtype)
    return jnp.concatenate([jnp.concatenate([R, p[:, None]], axis=1), last])


def rotation_about(axis: Float[Array, "3"], angle: Float[Array, ""]) -> Float[Array, "3 3"]:
    """The rotation by `angle` [rad] about a constant unit `axis` w,

    R = I + sin(angle) hat(w) + (1 - cos(angle)) hat(w)^2    (Xu-Liu 2017, below eq. (37)).
    """
    w = hat(axis)
    ww = w @ w
    # Constants apart: about a coordinate axis entries are then a cosine, and not 1 - (1 - cosine).
    return jnp.eye(3, dtype=w.dtype) + ww + jnp.sin(angle) * w - jnp.cos(angle) * ww


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

        R = I + 2 (hat(u)^2 + s hat(u)) / (s^2 + u.u)

    (Murray, Li and Sastry 1994, section 2.3). It takes body to world coordinates; the norm drops
    out, so a drift of |p| does no harm.
    """
    u = hat(p[1:])
    return jnp.eye(3, dtype=p.dtype) + (2.0 / jnp.dot(p, p)) * (u @ u + p[0] * u)


def unit_quaternion(R: Float[Array, "3 3"]) -> Float[Array, "4"]:
    """A unit quaternion p of a rotation, scalar first: the longest column of 4 p p^T, brought to length 1."""
    trace, turned, both = jnp.trace(R), R - R.T, R + R.T
    u = jnp.stack([turned[2, 1], turned[0, 2], turned[1, 0]])[None]
    K = jnp.block([[(1.0 + trace)[None, None], u], [u.T, both + (1.0 - trace) * jnp.eye(3, dtype=R.dtype)]])
    p = K[jnp.argmax(jnp.diagonal(K))]
    return p / jnp.sqrt(jnp.dot(p, p))


_COS, _SIN = (np.array([(-1) ** k / math.factorial(2 * k + i) for k in reversed(range(11))]) for i in (0, 1))


def exp_quaternion(x: Float[Array, "3"]) -> Float[Array, "4"]:
    """The unit quaternion of a turn about a vector by its length, (cos |x|/2, sin |x|/2 x/|x|): by series in the square
    of |x|, smooth where that is zero."""
    square = 0.25 * jnp.dot(x, x)
    cos, sin = (jnp.polyval(jnp.asarray(c, x.dtype), square) for c in (_COS, _SIN))
    return jnp.concatenate([cos[None], 0.5 * sin * x])


def quaternion_rate(p: Float[Array, "4"], omega: Float[Array, "3"]) -> Float[Array, "4"]:
    """The rate p' = 1/2 p o (0, omega) from the angular velocity [rad/s] in body axes
    (the kinematics q' = N(q) v of Orsino 2017, section 2); it keeps |p|."""
    return 0.5 * quaternion_product(p, jnp.concatenate([jnp.zeros_like(omega[:1]), omega]))


def _check_shape(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    array = real_array(name, value)
    if array.shape != shape:
        raise InputError(f"{name} has shape {array.shape}; it must be {shape}.")
    return array


def zyz_rotation(angles: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """The rotation R_z(phi) R_y(psi) R_z(gamma) of ZYZ Euler angles (Xu-Liu 2017, eq. (42)).

    **Arguments:**

    - `angles`: phi, psi, gamma [rad] (3,).

    **Returns:** the rotation matrix (3, 3).

    **Raises:** `InputError` for another shape.
    """
    angles = _check_shape("angles", angles, (3,))
    (cf, cp, cg), (sf, sp, sg) = jnp.cos(angles), jnp.sin(angles)
    first = jnp.stack([cf * cp * cg - sf * sg, -cf * cp * sg - sf * cg, cf * sp])
    second = jnp.stack([sf * cp * cg + cf * sg, -sf * cp * sg + cf * cg, sf * sp])
    return jnp.stack([first, second, jnp.stack([-sp * cg, sp * sg, cp])])


def zyz_angles(R: Float[Array, "3 3"]) -> Float[Array, "3"]:
    """ZYZ Euler angles phi, psi, gamma [rad] of a rotation, with 0 <= psi <= pi (Xu-Liu 2017, eqs. (43)-(45)).

    Where sin psi = 0 only phi + gamma (psi = 0) or gamma - phi (psi = pi) is determined; then phi = 0. There the
    angles have no derivative.

    **Arguments:**

    - `R`: rotation matrix (3, 3).

    **Returns:** phi, psi, gamma (3,).

    **Raises:** `InputError` for another shape.
    """
    R = _check_shape("R", R, (3, 3))
    square = R[2, 0] ** 2 + R[2, 1] ** 2
    straight = square <= (16 * jnp.finfo(R.dtype).eps) ** 2
    sine = jnp.sqrt(jnp.where(straight, 1, square))
    psi = jnp.where(straight, jnp.where(R[2, 2] < 0, jnp.pi, 0), jnp.arctan2(sine, R[2, 2]))
    one, zero = jnp.ones_like(square), jnp.zeros_like(square)
    pick = lambda y, x: jnp.arctan2(jnp.where(straight, zero, y), jnp.where(straight, one, x))
    along = jnp.arctan2(-jnp.sign(R[2, 2]) * R[0, 1], jnp.sign(R[2, 2]) * R[0, 0])
    gamma = jnp.where(straight, along, pick(R[2, 1], -R[2, 0]))
    return jnp.stack([pick(R[1, 2], R[0, 2]), psi, gamma])
