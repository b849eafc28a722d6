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
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Time, Velocities
from .._system._constraint import AbstractConstraint, Nonholonomic
from ._abstract_joint import AbstractJoint
from ._bodies import GROUND, AbstractBody
from ._mechanism import Mechanism, Placements, Twists, sum_of
from ._placement import Twist, rate_of
from ._tree_layout import TreeLayout
from ._tree_loops import Ends, Loop, LoopSlip, columns, joints_of, locate_bodies, placements_by_name
from ._tree_motion import Chains, Posture, cross
from ._tree_place import cast_arrays, chains_of, moving
from ._vmap_by_structure import vmap_by_structure


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
