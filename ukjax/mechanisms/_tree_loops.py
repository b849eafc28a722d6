"""Constraints that close loops of a kinematic tree, with their rows from how its bodies move.

A joint's phi depends on the placements of its bodies, so psi is linear in their twists, and these in v:

    A = sum over bodies  d psi / d twist  times the twists that each velocity gives by itself,
    b = -d psi / d t     at v' = 0, along the twists and their rates there.

What the twists are, and their rates, comes from the recursion along the tree that the forces of inertia take too. So the
tree is differentiated neither by q nor twice.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._misc._types import Coordinates, Time, Velocities, in_full_precision
from .._system._constraint import AbstractConstraint, AbstractTogether, Nonholonomic
from ._abstract_joint import AbstractJoint
from ._bodies import GROUND, AbstractBody
from ._mechanism import Mechanism, Placements, Twists, sum_of
from ._placement import Twist, ground_placement, ground_twist, rate_of
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


# --- Constraints, with their rows from how bodies move


class _At(NamedTuple):
    """The tree of some loops at one q: their joints, the bodies that these join, and where they are."""

    mechanism: Mechanism
    joints: list[AbstractJoint]
    bodies: tuple[int, ...]
    chains: Chains
    posture: Posture
    ends: Ends

    @classmethod
    def of(cls, loops: Sequence[Loop], q: Coordinates) -> "_At":
        mechanism = cast_arrays(loops[0].mechanism, q.dtype)
        joints, bodies = joints_of(loops, mechanism)
        chains = chains_of(mechanism, loops[0].layout)
        return cls(mechanism, joints, bodies, chains, *locate_bodies(chains, q, bodies))

    @property
    def own(self) -> list[AbstractBody]:
        return [self.mechanism.bodies[i] for i in self.bodies]

    @property
    def placements(self) -> Placements:
        return placements_by_name(self.mechanism, self.bodies, self.ends)

    @property
    def columns(self) -> Twists:
        """How each velocity moves the bodies by itself, by their names: twists along a first axis (n,)."""
        of = columns(self.chains, self.posture, self.ends[1], self.bodies)
        if self.mechanism.dimension == 2:
            of = Twist(of.omega[..., 2], of.velocity[..., :2])
        found = {body.name: jax.tree.map(lambda x, i=i: x[i], of) for i, body in enumerate(self.own)}
        return {GROUND: jax.tree.map(lambda x: jnp.zeros_like(x[0]), of)} | found

    def moving(self, v: Velocities) -> tuple[Twists, Twists]:
        """The twists of the bodies, and their rates at v' = 0, by name."""
        frames = np.array([self.chains.layout.frames[i] for i in self.bodies], int)
        rates, d = self.chains.rates(self.posture, v), self.ends[1] - self.posture.origin[frames]
        omega, alpha = rates.omega[frames], rates.alpha[frames]
        swing = cross(omega, d)
        acceleration = rates.acceleration[frames] + cross(alpha, d) + cross(omega, swing)
        twists = Twist(omega, rates.velocity[frames] + swing)
        return moving(self.own, twists), moving(self.own, Twist(alpha, acceleration))

    def items(self, *by_name: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Of each joint: itself, and what its bodies have."""
        of_bodies = lambda joint: [tuple(of[name] for name in joint.bodies) for of in by_name]
        return [(joint, *of_bodies(joint)) for joint in self.joints]


def _rate(t: Time, joint: AbstractJoint, placements: Any, twists: Any) -> Array:
    """psi, of phi(t, placements)."""
    flows = (placement.flow(twist) for placement, twist in zip(placements, twists, strict=True))
    at, along = (t, *placements), (jnp.ones_like(t), *flows)
    return jax.jvp(lambda t, *of: joint.rows(t, *of), at, along)[1]


def _jacobian(t: Time, joint: AbstractJoint, placements: Any, columns: Any) -> Float[Array, "k n"]:
    """A, of columns as `_At` has them."""
    still = [jax.tree.map(lambda x: jnp.zeros_like(x[0]), twist) for twist in columns]
    of_twists = lambda *twists: rate_of(lambda *x: joint.rows(t, *x), placements, twists)  # pyright: ignore
    parts = jax.jacfwd(of_twists, argnums=tuple(range(len(still))))(*still)
    pairs = zip(jax.tree.leaves(parts), jax.tree.leaves(columns), strict=True)
    return sum_of([part.reshape(len(part), -1) @ of.reshape(len(of), -1).T for part, of in pairs])


def _right_hand_side(t: Time, joint: AbstractJoint, placements: Any, twists: Any, changes: Any) -> Array:
    """b, of twists and their rates."""
    flows = tuple(placement.flow(twist) for placement, twist in zip(placements, twists, strict=True))
    at, along = (t, placements, twists), (jnp.ones_like(t), flows, changes)
    return -jax.jvp(lambda t, *of: _rate(t, joint, *of), at, along)[1]


@final
class LoopClosure(AbstractConstraint):
    """phi of a joint that closes a loop."""

    loop: Loop
    name: str = eqx.field(static=True)

    def position_error(self, t: Time, q: Coordinates) -> Array:
        return self.position_errors([self], t, q)[0]

    def velocity_error(self, t: Time, q: Coordinates, v: Velocities) -> Array:
        return self.velocity_errors([self], t, q, v)[0]

    def acceleration_rows(self, t: Time, q: Coordinates, v: Velocities) -> tuple[Array, Array]:
        return self.all_acceleration_rows([self], t, q, v)[0]

    @classmethod
    def position_errors(cls, constraints: Sequence[Any], t: Time, q: Coordinates) -> Sequence[Array]:
        at = _At.of([c.loop for c in constraints], q)
        return vmap_by_structure(
            lambda joint, placements: joint.rows(t, *placements), at.items(at.placements)
        )

    @classmethod
    def position_jacobians(cls, constraints: Sequence[Any], t: Time, q: Coordinates) -> Sequence[Array]:
        at = _At.of([c.loop for c in constraints], q)
        velocities = jax.jacfwd(lambda rate: at.chains.velocities(q, rate))(jnp.zeros_like(q))
        found = vmap_by_structure(functools.partial(_jacobian, t), at.items(at.placements, at.columns))
        return [A @ velocities for A in found]

    @classmethod
    def velocity_errors(
        cls, constraints: Sequence[Any], t: Time, q: Coordinates, v: Velocities
    ) -> Sequence[Array]:
        at = _At.of([c.loop for c in constraints], q)
        return vmap_by_structure(functools.partial(_rate, t), at.items(at.placements, at.moving(v)[0]))

    @classmethod
    def all_acceleration_rows(
        cls, constraints: Sequence[Any], t: Time, q: Coordinates, v: Velocities
    ) -> Sequence[tuple[Array, Array]]:
        at = _At.of([c.loop for c in constraints], q)
        A = vmap_by_structure(functools.partial(_jacobian, t), at.items(at.placements, at.columns))
        b = vmap_by_structure(functools.partial(_right_hand_side, t), at.items(at.placements, *at.moving(v)))
        return list(zip(A, b, strict=True))


def loop_constraints(mechanism: Mechanism, layout: TreeLayout) -> list[AbstractConstraint]:
    """The rows of all loops, in their order."""
    found = list[AbstractConstraint]()
    for i, joint in enumerate(mechanism.joints[len(mechanism.bodies) :], len(mechanism.bodies)):
        loop = Loop(mechanism, layout, i)
        if joint.holonomic:
            found.append(LoopClosure(loop=loop, name=joint.name))
        if joint.nonholonomic:
            name = f"{joint.name}, no slip" if joint.holonomic else joint.name
            found.append(Nonholonomic(LoopSlip(loop), name=name))
    return found
