"""The equations of motion of a kinematic tree: its inertia, link by link, and by Newton and Euler all forces.

With the inertia I_e of all bodies on a frame about the point o of the element before it,

    M = sum J_e^T I_e J_e                                                  (Xu-Liu 2017, eq. (24)),

which `TreeInertia` holds without its n^2 entries. The terms in v, eqs. (28)-(30), are the forces of inertia left over
where v' = 0: the frames' rates say what those are, and a sum from the leaves to the ground (Featherstone 2008, section
5.3: recursive Newton-Euler) what they come to along each axis. So neither M nor J is differentiated.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Forces
from .._system._system import TreeInertia
from ._placement import Twist
from ._tree_motion import Chains, Posture, Rates, TreeLayout, cross
from ._tree_recursion import inwards


def _sum_by_element(
    layout: TreeLayout, of_bodies: Float[Array, "bodies ..."]
) -> Float[Array, "elements ..."]:
    """The sum over all bodies on the frame behind each element."""
    on = [[i for i, frame in enumerate(layout.frames) if frame == e + 1] for e in range(len(layout.elements))]
    padded = jnp.concatenate([of_bodies, jnp.zeros_like(of_bodies[:1])])
    total = jnp.zeros_like(of_bodies, shape=(len(on), *of_bodies.shape[1:]))
    for k in range(max(map(len, on))):
        total = total + padded[np.array([own[k] if k < len(own) else len(of_bodies) for own in on])]
    return total


def _world_inertia(chains: Chains, posture: Posture) -> Float[Array, "bodies 3 3"]:
    """I_i about the centres of mass, in world axes."""
    R = posture.rotation[np.array(chains.layout.frames, int)]
    return jnp.einsum("iab,ibc,idc->iad", R, chains.inertia, R)


def inertias(chains: Chains, posture: Posture) -> Float[Array, "elements 6 6"]:
    """The inertia on each frame about the point of the element before it, angular part first:

    [I + m (d.d 1 - d d^T), m hat(d); -m hat(d), m 1]    with d from there to the centre of mass.
    """
    d = chains.levers(posture)
    unit = jnp.broadcast_to(jnp.eye(3, dtype=d.dtype), (len(d), 3, 3))
    square = jnp.sum(d * d, axis=1)[:, None, None] * unit - d[:, :, None] * d[:, None]
    mass = chains.mass[:, None, None]
    hat = -cross(jnp.broadcast_to(d[:, None], unit.shape), unit)
    upper = jnp.concatenate([_world_inertia(chains, posture) + mass * square, mass * hat], axis=2)
    lower = jnp.concatenate([-mass * hat, mass * unit], axis=2)
    each = jnp.concatenate([upper, lower], axis=1)
    return _sum_by_element(chains.layout, each)


def tree_inertia(chains: Chains, posture: Posture, armature: Float[Array, " n"] | None) -> TreeInertia:
    """The mass matrix, link by link: the velocities of a ball are links without a mass but for the last."""
    layout, dtype = chains.layout, posture.origin.dtype
    owner = np.array(layout.of_velocity, int)
    first, last = ({e.velocities[place]: i for i, e in enumerate(layout.elements)} for place in (0, -1))
    behind = [-1, *(e.velocities[-1] for e in layout.elements)]
    move = layout.nv - layout.states
    parents = tuple(behind[layout.elements[i].before] if k in first else k - 1 for k, i in enumerate(owner))
    if layout.states:
        parents = (*parents[:move], *(-1,) * layout.states)
        unit = jnp.asarray(np.arange(layout.nv) >= move, dtype)
        armature = unit if armature is None else armature + unit
    of_first, of_last = (jnp.asarray([k in x for k in range(layout.nv)], dtype) for x in (first, last))
    return TreeInertia(
        jnp.concatenate([posture.angular, posture.linear], axis=1),
        of_last[:, None, None] * inertias(chains, posture)[owner],
        of_first[:, None] * posture.arm[owner],
        parents,
        armature,
    )


def _shift_wrench(wrench: Twist, arm: Float[Array, "3"]) -> Twist:
    """A force and a torque about the end of an arm as those about its start."""
    return Twist(wrench.omega + cross(arm, wrench.velocity), wrench.velocity)


def force(chains: Chains, posture: Posture, rates: Rates, loads: Twist) -> Forces:
    """Q of loads, forces at the centres of all bodies and torques, less the forces of inertia at these rates."""
    layout = chains.layout
    omega, alpha, acceleration = (x[1:] for x in (rates.omega, rates.alpha, rates.acceleration))
    inertia = inertias(chains, posture)
    moved = jnp.einsum("eab,eb->ea", inertia, jnp.concatenate([alpha, acceleration], axis=1))
    turned = jnp.einsum("eab,eb->ea", inertia[:, :, :3], omega)
    about = loads.omega + cross(chains.levers(posture), loads.velocity)
    own = Twist(
        _sum_by_element(layout, about) - moved[:, :3] - cross(omega, turned[:, :3]),
        _sum_by_element(layout, loads.velocity) - moved[:, 3:] - cross(omega, turned[:, 3:]),
    )
    total = inwards(layout.before, _shift_wrench, own, posture.arm)
    owner = np.array(layout.of_velocity, int)
    return jnp.sum(posture.angular * total.omega[owner] + posture.linear * total.velocity[owner], axis=1)


def compute_inertial_wrenches(chains: Chains, posture: Posture, rates: Rates) -> Twist:
    """The force at the centre of each body, and torque, that Newton and Euler ask for at these rates, stacked."""
    frames, d = np.array(chains.layout.frames, int), chains.levers(posture)
    omega, alpha = rates.omega[frames], rates.alpha[frames]
    acceleration = rates.acceleration[frames] + cross(alpha, d) + cross(omega, cross(omega, d))
    # In axes of the bodies: two vectors are turned, and not the inertia.
    R, turn = posture.rotation[frames], lambda R, x: jnp.einsum("iab,ib->ia", R, x)
    own = [turn(R.transpose(0, 2, 1), x) for x in (omega, alpha)]
    momentum, rate = (turn(chains.inertia, x) for x in own)
    torque = turn(R, rate + cross(own[0], momentum))
    return Twist(torque, chains.mass[:, None] * acceleration)


def sum_subtree_wrenches(
    parents: tuple[int, ...], centres: Float[Array, "bodies 3"], wrenches: Twist
) -> Twist:
    """The sum of the wrenches on a body and all that hang on it, its torque about the body's own centre."""
    order: list[int] = []
    while len(order) < len(parents):
        order += [i for i, parent in enumerate(parents) if i not in order and (parent < 0 or parent in order)]
    place = {body: k + 1 for k, body in enumerate(order)} | {-1: 0}
    listed, back = np.array(order), np.argsort(order)
    before = [parents[i] for i in order]
    arm = centres[listed] - centres[np.maximum(before, 0)]  # what is passed to the ground is not asked for
    sums = inwards(
        [place[i] for i in before], _shift_wrench, jax.tree.map(lambda x: x[listed], wrenches), arm
    )
    return jax.tree.map(lambda x: x[back], sums)
