"""The equations of motion of a kinematic tree: its mass matrix and, by Newton and Euler, all forces.

The columns J_i of body i say what each velocity does to its centre and to its turning. With them

    M = sum J_i^T diag(m_i, I_i) J_i                                       (Xu-Liu 2017, eq. (24)),

and a force f_i at the centre with a torque n_i enters as Q = sum J_i^T (f_i, n_i). The terms in v, eqs.
(28)-(30), are the forces of inertia left over where v' = 0: each body then accelerates by J_i' v, which sums
along its path, so neither M nor J is differentiated.
"""

from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._misc._types import Forces, MassMatrix, Velocities
from ._placement import Twist
from ._tree_motion import Chains, Posture


@final
class Columns(eqx.Module):
    """What each velocity does to each body: `linear` to its centre of mass, `turning` to its orientation."""

    linear: Float[Array, "bodies n 3"]
    turning: Float[Array, "bodies n 3"]

    def twists(self, v: Velocities) -> Twist:
        """Of all bodies, stacked (bodies, 3): J_i v."""
        return Twist(jnp.einsum("ika,k->ia", self.turning, v), jnp.einsum("ika,k->ia", self.linear, v))

    def forces(self, wrenches: Twist) -> Forces:
        """Q = sum J_i^T (f_i, n_i) of forces at the centres and torques, stacked (bodies, 3)."""
        linear = jnp.einsum("ika,ia->k", self.linear, wrenches.velocity)
        return linear + jnp.einsum("ika,ia->k", self.turning, wrenches.omega)


def columns(chains: Chains, posture: Posture) -> Columns:
    """J_i of every body, zero where a velocity does not move it (Xu-Liu 2017, eq. (17), in world axes)."""
    axes, moves = posture.axes, chains.moves(posture.centre.dtype)[:, :, None]
    arm = posture.centre[:, None] - axes.point[None]
    turn = jnp.broadcast_to(axes.turn[None], arm.shape)
    return Columns(moves * (axes.slide[None] + jnp.cross(turn, arm)), moves * turn)


def world_inertia(chains: Chains, posture: Posture) -> Float[Array, "bodies 3 3"]:
    """I_i about the centres of mass, in world axes."""
    R = posture.rotation
    return jnp.einsum("iab,ibc,idc->iad", R, chains.inertia, R)


def mass_matrix(chains: Chains, posture: Posture) -> MassMatrix:
    """M = sum J_i^T diag(m_i, I_i) J_i (Xu-Liu 2017, eq. (24))."""
    J = columns(chains, posture)
    linear = jnp.einsum("i,ika,ija->kj", chains.mass, J.linear, J.linear)
    return linear + jnp.einsum("ika,iab,ijb->kj", J.turning, world_inertia(chains, posture), J.turning)


def convective(chains: Chains, posture: Posture, J: Columns, v: Velocities) -> Twist:
    """What is left of the bodies' accelerations where v' = 0: J_i' v, stacked (bodies, 3).

    An axis is carried by the frame before it; with that frame's angular velocity W_k and the velocity u_k of the
    axis's point, w_k' = W_k x w_k and s_k' = W_k x s_k, and the lever to the centre grows with c_i' - u_k.
    """
    axes, carried = posture.axes, chains.carried(v.dtype)
    spin = carried @ (v[:, None] * axes.turn)
    lever = axes.point[:, None] - axes.point[None]
    turn = jnp.broadcast_to(axes.turn[None], lever.shape)
    carry = jnp.einsum("kj,j,kja->ka", carried, v, axes.slide[None] + jnp.cross(turn, lever))

    turn_rate, slide_rate = jnp.cross(spin, axes.turn), jnp.cross(spin, axes.slide)
    arm = posture.centre[:, None] - axes.point[None]
    arm_rate = J.twists(v).velocity[:, None] - carry[None]
    turn, turned = (jnp.broadcast_to(x[None], arm.shape) for x in (axes.turn, turn_rate))
    moves = chains.moves(v.dtype)
    linear = slide_rate[None] + jnp.cross(turned, arm) + jnp.cross(turn, arm_rate)
    return Twist((moves * v[None]) @ turn_rate, jnp.einsum("ik,k,ika->ia", moves, v, linear))


def inertial_wrenches(chains: Chains, posture: Posture, twists: Twist, accelerations: Twist) -> Twist:
    """The force m_i a_i at each centre and torque I_i alpha_i + omega_i x I_i omega_i that Newton and Euler ask for."""
    inertia = world_inertia(chains, posture)
    momentum = jnp.einsum("iab,ib->ia", inertia, twists.omega)
    torque = jnp.einsum("iab,ib->ia", inertia, accelerations.omega) + jnp.cross(twists.omega, momentum)
    return Twist(torque, chains.mass[:, None] * accelerations.velocity)


def gathered(
    behind: Bool[np.ndarray, "bodies bodies"], centres: Float[Array, "bodies 3"], wrenches: Twist
) -> Twist:
    """The sum of the wrenches on a body and all that hang on it, its torque about the body's own centre."""
    sums = jnp.asarray(behind, centres.dtype)
    arm = centres[None] - centres[:, None]
    moments = jnp.cross(arm, jnp.broadcast_to(wrenches.velocity[None], arm.shape))
    return Twist(sums @ wrenches.omega + jnp.einsum("ik,ika->ia", sums, moments), sums @ wrenches.velocity)
