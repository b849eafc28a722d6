"""The equations of motion of a kinematic tree: its inertia, link by link, and by Newton and Euler all forces.

With the inertia I_e of all bodies on a frame about the point o of the element before it,

    M = sum J_e^T I_e J_e                                                  (Xu-Liu 2017, eq. (24)),

which `TreeInertia` holds without its n^2 entries. The terms in v, eqs. (28)-(30), are the forces of inertia left over
where v' = 0: the frames' rates say what those are, and a sum from the leaves to the ground (Featherstone 2008, section
5.3: recursive Newton-Euler) what they come to along each axis. So neither M nor J is differentiated.

Trees that turn about axes of coordinates, as most robots do in their reference posture, are computed in axes of their
frames (`Links`): scalar code then takes half the operations.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._lie import hat
from .._misc._types import Forces, Velocities
from .._system._system import TreeInertia
from ._placement import Twist
from ._tree_motion import Chains, Posture, Rates, TreeLayout, cross, inwards, outwards


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


class Composite(NamedTuple):
    """All bodies on the frame behind each element: mass, m d and the inertia about the frame's origin, from which d leads
    to a centre of mass."""

    mass: Float[Array, " elements"]
    moment: Float[Array, "elements 3"]
    inertia: Float[Array, "elements 3 3"]

    def whole(self) -> Float[Array, "elements 6 6"]:
        """[I, hat(m d); -hat(m d), m 1], angular part first."""
        unit = jnp.broadcast_to(jnp.eye(3, dtype=self.mass.dtype), self.inertia.shape)
        hats = jax.vmap(hat)(self.moment)
        upper = jnp.concatenate([self.inertia, hats], axis=2)
        return jnp.concatenate(
            [upper, jnp.concatenate([-hats, self.mass[:, None, None] * unit], axis=2)], axis=1
        )


class Links(NamedTuple):
    """A tree in axes of the world, or of the frames: then twists and inertias are numbers, but all that is passed on
    from frame to frame is turned.
    """

    # `angular`, `linear`: what each velocity does.
    angular: Float[Array, "n 3"]
    linear: Float[Array, "n 3"]
    # `arm`: from the origin of the frame before each element, in its axes, to that of the frame behind.
    arm: Float[Array, "elements 3"]
    lever: Float[Array, "bodies 3"]  # from the origin of the frame of each body to its centre
    turn: Float[Array, "elements 3 3"]  # the axes of the frame behind each element in those before it
    composite: Composite  # of each
    # `rotation`: the axes of the frames behind in those of the world; None where they are the same.
    rotation: Float[Array, "elements 3 3"] | None


def _compose_bodies(
    chains: Chains, d: Float[Array, "bodies 3"], inertia: Float[Array, "bodies 3 3"]
) -> Composite:
    hats = jax.vmap(hat)(d)
    whole = inertia - chains.mass[:, None, None] * (hats @ hats)
    # Equal entries are to be one, which scalar code computes once.
    upper = np.broadcast_to(np.triu(np.ones((3, 3), bool)), whole.shape)
    each = (chains.mass, chains.mass[:, None] * d, jnp.where(upper, whole, jnp.swapaxes(whole, 1, 2)))
    return Composite(*(_sum_by_element(chains.layout, x) for x in each))


def _make_links(chains: Chains, posture: Posture, own: bool) -> Links:
    if own:
        arms, levers = chains.own_arms(posture), chains.own_levers()
        composite = _compose_bodies(chains, levers, chains.inertia)
        axes = chains.angular, chains.linear
        return Links(*axes, arms, levers, posture.turn, composite, posture.rotation[1:])
    R = posture.rotation[np.array(chains.layout.frames, int)]
    inertia, levers = jnp.einsum("iab,ibc,idc->iad", R, chains.inertia, R), chains.levers(posture)
    composite = _compose_bodies(chains, levers, inertia)
    still = jnp.broadcast_to(jnp.eye(3, dtype=R.dtype), posture.turn.shape)
    return Links(posture.angular, posture.linear, posture.arm, levers, still, composite, None)


def tree_inertia(
    chains: Chains, posture: Posture, armature: Float[Array, " n"] | None, own: bool
) -> TreeInertia:
    """The mass matrix, link by link: the velocities of a ball are links without a mass but for the last.

    - `own`: whether in axes of the frames.
    """
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
    of_first, of_last = (np.array([k in x for k in range(layout.nv)]) for x in (first, last))
    only = lambda which, x: jnp.asarray(which, dtype).reshape(-1, *(1,) * (x.ndim - 1)) * x[owner]
    links = _make_links(chains, posture, own)
    given = (
        jnp.concatenate([links.angular, links.linear], axis=1),
        only(of_last, links.composite.whole()),
        only(of_first, links.arm),
        parents,
        armature,
    )
    if links.rotation is None:
        return TreeInertia(*given)
    turns = links.turn[owner]
    turns = jnp.where(of_first[:, None, None], turns, jnp.broadcast_to(jnp.eye(3, dtype=dtype), turns.shape))
    return TreeInertia(*given, turns, links.rotation[owner])


def _shift_wrench(wrench: Twist, arm: Float[Array, "3"]) -> Twist:
    """A force and a torque about the end of an arm as those about its start."""
    return Twist(wrench.omega + cross(arm, wrench.velocity), wrench.velocity)


class _Motion(NamedTuple):
    """How a frame moves, in its axes: turning, the rate of that, and that of what of it is at its origin [m/s^2]."""

    omega: Float[Array, "*frames 3"]
    alpha: Float[Array, "*frames 3"]
    acceleration: Float[Array, "*frames 3"]

    def spread(self) -> Float[Array, "3 3"]:
        """hat(alpha) + hat(omega)^2: what a point gains in acceleration by its place."""
        omega = hat(self.omega)
        return hat(self.alpha) + omega @ omega


def _advance_motion(before: _Motion, own: tuple[Array, ...]) -> _Motion:
    turn, arm, w, s, alpha, acceleration = own
    omega = turn.T @ before.omega
    carried = turn.T @ (before.acceleration + before.spread() @ arm)
    return _Motion(
        omega + w,
        turn.T @ before.alpha + cross(omega, w) + alpha,
        carried + 2.0 * cross(omega, s) + acceleration,
    )


def _wrench_of(motion: _Motion, mass: Array, moment: Array, inertia: Array) -> Twist:
    """The force that a motion asks for and its torque about the frame's origin, I alpha + omega x I omega + m d x a."""
    omega, spread, x, y = motion.omega, motion.spread(), np.array([1, 2, 0]), np.array([2, 0, 1])
    main = jnp.diagonal(inertia)
    # Products of inertia by what there is already: of no more operations than their share of I alpha and I omega.
    mixed = spread @ (inertia - jnp.diag(main))
    turning = main * motion.alpha + (main[y] - main[x]) * (omega[x] * omega[y]) + mixed[x, y] - mixed[y, x]
    return Twist(turning + cross(moment, motion.acceleration), mass * motion.acceleration + spread @ moment)


def _pass_wrench(wrench: Twist, own: tuple[Array, Array]) -> Twist:
    turn, arm = own
    return _shift_wrench(jax.tree.map(lambda x: turn @ x, wrench), arm)


def generalized_force(
    chains: Chains,
    posture: Posture,
    loads: Twist,
    v: Velocities,
    a: Velocities | None = None,
    falls: Float[Array, "3"] | None = None,
) -> Forces:
    """Q of loads, less the forces of inertia at v and v' = a.

    - `loads`: forces at the centres of all bodies, and torques, in world axes.
    - `a`: by default zero.
    - `falls`: the acceleration with which all bodies would fall.
    """
    layout, o, owner = chains.layout, jnp.zeros(3, v.dtype), np.array(chains.layout.of_velocity, int)
    owned, links = jnp.asarray(layout.ownership(), v.dtype), _make_links(chains, posture, layout.aligned)
    share = lambda axes, x: jnp.zeros_like(posture.arm) if x is None else owned @ (x[:, None] * axes)
    of_each = [share(axes, x) for x in (v, a) for axes in (links.angular, links.linear)]
    ground = _Motion(o, o, o if falls is None else -falls)
    motions = outwards(layout.before, _advance_motion, ground, (links.turn, links.arm, *of_each))
    asked = jax.vmap(_wrench_of)(jax.tree.map(lambda x: x[1:], motions), *links.composite)
    if links.rotation is not None:
        R = posture.rotation[np.array(layout.frames, int)]
        loads = jax.tree.map(lambda x: jnp.einsum("iba,ib->ia", R, x), loads)
    about = Twist(loads.omega + cross(links.lever, loads.velocity), loads.velocity)
    pulled = jax.tree.map(lambda x: _sum_by_element(layout, x), about)
    own = jax.tree.map(jnp.subtract, pulled, asked)
    total = inwards(layout.before, _pass_wrench, own, (links.turn, links.arm))
    return jnp.sum(links.angular * total.omega[owner] + links.linear * total.velocity[owner], axis=1)


def compute_inertial_wrenches(chains: Chains, posture: Posture, rates: Rates) -> Twist:
    """The force at the centre of each body, and torque, that Newton and Euler ask for at these rates there, stacked."""
    # In axes of the bodies: two vectors are turned, and not the inertia.
    R = posture.rotation[np.array(chains.layout.frames, int)]
    turn = lambda R, x: jnp.einsum("iab,ib->ia", R, x)
    own = [turn(R.transpose(0, 2, 1), x) for x in (rates.omega, rates.alpha)]
    momentum, rate = (turn(chains.inertia, x) for x in own)
    torque = turn(R, rate + cross(own[0], momentum))
    return Twist(torque, chains.mass[:, None] * rates.acceleration)


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
