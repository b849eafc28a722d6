"""The rows of joints that close loops of a kinematic tree, as functions of its coordinates."""

from collections.abc import Sequence
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._misc._types import Coordinates, Time, Velocities, in_full_precision
from .._system._constraint import AbstractTogether
from ._abstract_joint import AbstractJoint
from ._bodies import GROUND
from ._mechanism import Mechanism, Placements, Twists
from ._placement import Twist, ground_placement, ground_twist
from ._tree_layout import TreeLayout
from ._tree_motion import Chains, Posture, cross
from ._tree_place import cast_arrays, chains_of, moving, place_bodies
from ._vmap_by_structure import vmap_by_structure

Ends = tuple[Float[Array, "k 3 3"], Float[Array, "k 3"], Float[Array, " k"]]
"""Of some bodies: rotations from the reference posture, centres [m], and in the plane angles [rad]."""


def locate_bodies(chains: Chains, q: Coordinates, bodies: tuple[int, ...]) -> tuple[Posture, Ends]:
    """The posture of a tree, and where some bodies are."""
    posture, frames, places = chains.posture(q), np.array(chains.layout.frames, int), np.array(bodies, int)
    at = frames[places]
    centres = posture.origin[at] + chains.levers(posture)[places]
    return posture, (posture.rotation[at], centres, posture.angle[at])


@eqx.filter_custom_jvp
def ends(chains: Chains, q: Coordinates, *, bodies: tuple[int, ...]) -> Ends:
    """Where some bodies are.

    Their change with q is their twist, a sum over what carries them. So each column of a Jacobian takes as much as one
    axis does, where that of the product of exponentials takes all frames behind it.
    """
    return locate_bodies(chains, q, bodies)[1]


@ends.def_jvp
@in_full_precision
def _(primals: tuple, tangents: tuple, *, bodies: tuple[int, ...]) -> tuple[Ends, Ends]:
    (chains, q), (of_chains, of_q) = primals, tangents
    found = ends(chains, q, bodies=bodies)
    change = jax.tree.map(jnp.zeros_like, found)
    if jax.tree.leaves(of_chains):
        fixed = lambda chains: locate_bodies(chains, q, bodies)[1]
        moved = eqx.filter_jvp(fixed, (chains,), (of_chains,))[1]
        change = eqx.combine(moved, change)  # None stands for what does not change
    if of_q is not None:
        posture, (R, p, _) = locate_bodies(chains, q, bodies)
        twists = twists_of(chains, posture, p, chains.velocities(q, of_q), bodies)
        columns = jnp.swapaxes(R, 1, 2)
        turned = jnp.swapaxes(cross(jnp.broadcast_to(twists.omega[:, None], R.shape), columns), 1, 2)
        change = jax.tree.map(jnp.add, change, (turned, twists.velocity, twists.omega[:, 2]))
    return found, change


def columns(chains: Chains, posture: Posture, centres: Float[Array, "k 3"], bodies: tuple[int, ...]) -> Twist:
    """How each velocity moves some bodies, by itself: twists (k, n, 3)."""
    moves = jnp.asarray(chains.layout.moved(bodies), centres.dtype)[:, :, None]
    points = posture.origin[1:][np.array(chains.layout.of_velocity, int)]
    arm = moves * (centres[:, None] - points[None])
    angular = jnp.broadcast_to(posture.angular, arm.shape)
    return Twist(moves * angular, moves * posture.linear[None] + cross(angular, arm))


def own_columns(
    chains: Chains, posture: Posture, centres: Float[Array, "k 3"], bodies: tuple[int, ...]
) -> tuple[Twist, Int[np.ndarray, "k w"]]:
    """The same of the velocities that move each body alone (k, w, 3), and which these are."""
    numbers, moves = chains.layout.moving_velocities(bodies)
    points = posture.origin[1:][np.array(chains.layout.of_velocity, int)[numbers]]
    moves = jnp.asarray(moves, centres.dtype)[:, :, None]
    angular = moves * posture.angular[numbers]
    return Twist(
        angular, moves * posture.linear[numbers] + cross(angular, centres[:, None] - points)
    ), numbers


def twists_of(
    chains: Chains, posture: Posture, centres: Float[Array, "k 3"], v: Velocities, bodies: tuple[int, ...]
) -> Twist:
    """How some bodies move, stacked."""
    of, numbers = own_columns(chains, posture, centres, bodies)
    return jax.tree.map(lambda x: jnp.einsum("ika,ik->ia", x, v[numbers]), of)


@final
class Loop(eqx.Module):
    """A joint that closes a loop, and the tree it is of: `layout` says what hangs on what."""

    mechanism: Mechanism
    layout: TreeLayout = eqx.field(static=True)
    number: int = eqx.field(static=True)


def joints_of(loops: Sequence[Loop], mechanism: Mechanism) -> tuple[list[AbstractJoint], tuple[int, ...]]:
    """The joints, and the numbers of all bodies that they join."""
    joints = [mechanism.joints[loop.number] for loop in loops]
    joined = {name for joint in joints for name in joint.bodies}
    return joints, tuple(i for i, body in enumerate(mechanism.bodies) if body.name in joined)


def placements_by_name(mechanism: Mechanism, bodies: tuple[int, ...], found: Ends) -> Placements:
    """The placements of some bodies and the ground, by name."""
    own = [mechanism.bodies[i] for i in bodies]
    each_body = dict(zip((body.name for body in own), place_bodies(own, *found), strict=True))
    return {GROUND: ground_placement(mechanism.dimension, found[1].dtype)} | each_body


@final
class LoopSlip(AbstractTogether):
    """psi of a nonholonomic loop's joint."""

    loop: Loop

    def __call__(self, t: Time, q: Coordinates, v: Velocities) -> Array:
        return self.together([self], t, q, v)[0]

    @staticmethod
    def together(functions: Sequence[Any], *arguments: Array) -> list[Array]:
        (t, q, v), loops = arguments, [function.loop for function in functions]
        mechanism = cast_arrays(loops[0].mechanism, q.dtype)
        joints, bodies = joints_of(loops, mechanism)
        chains = chains_of(mechanism, loops[0].layout)
        posture, found = locate_bodies(chains, q, bodies)
        placements = placements_by_name(mechanism, bodies, found)
        twists: Twists = moving(
            [mechanism.bodies[i] for i in bodies], twists_of(chains, posture, found[1], v, bodies)
        )
        of = lambda by_name, joint: tuple(by_name[name] for name in joint.bodies)
        items = [(joint, of(placements, joint), of(twists, joint)) for joint in joints]
        return vmap_by_structure(lambda joint, placements, twists: joint.slip(t, placements, twists), items)


def loop_wrenches(
    mechanism: Mechanism, placements: Placements, t: Time, twists: Twist, multipliers: Float[Array, " m"]
) -> dict[str, tuple[Twist, Twist]]:
    """What each loop does to all bodies, stacked, and what to its child, by the principle of virtual power."""
    found, start, bodies = {}, 0, mechanism.bodies
    for joint in mechanism.joints[len(bodies) :]:
        ends = tuple(placements[name] for name in joint.bodies)

        def rows(twists: Twist, child: Twist, joint: AbstractJoint = joint, ends: tuple = ends) -> Array:
            by_name = moving(bodies, twists)
            first, second, *others = (by_name[name] for name in joint.bodies)
            return joint.velocity_rows(t, ends, (first, jax.tree.map(jnp.add, second, child), *others))

        still = ground_twist(mechanism.dimension, twists.omega.dtype)
        psi, transposed = jax.vjp(rows, twists, still)
        found[joint.name] = transposed(multipliers[start : start + psi.size])
        start += psi.size
    return found
