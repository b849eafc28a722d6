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
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Time, Velocities
from .._system._constraint import AbstractConstraint, AbstractTogether, Nonholonomic
from ._abstract_joint import AbstractJoint
from ._mechanism import Mechanism, Placements, Twists, sum_of
from ._placement import Twist, ground_twist, rate_of
from ._tree_layout import TreeLayout
from ._tree_place import TreeAt, twists_by_name
from ._vmap_by_structure import vmap_by_structure


@final
class Loop(eqx.Module):
    """A joint that closes a loop, and the tree it is of: `layout` says what hangs on what."""

    mechanism: Mechanism
    layout: TreeLayout = eqx.field(static=True)
    number: int = eqx.field(static=True)


def loop_wrenches(
    mechanism: Mechanism, placements: Placements, t: Time, twists: Twist, multipliers: Float[Array, " m"]
) -> dict[str, tuple[Twist, Twist]]:
    """What each loop does to all bodies, stacked, and what to its child, by the principle of virtual power."""
    wrenches, start, bodies = {}, 0, mechanism.bodies
    for joint in mechanism.joints[len(bodies) :]:
        ends = tuple(placements[name] for name in joint.bodies)

        def rows(twists: Twist, child: Twist, joint: AbstractJoint = joint, ends: tuple = ends) -> Array:
            by_name = twists_by_name(bodies, twists)
            first, second, *others = (by_name[name] for name in joint.bodies)
            return joint.velocity_rows(t, ends, (first, jax.tree.map(jnp.add, second, child), *others))

        still = ground_twist(mechanism.dimension, twists.omega.dtype)
        psi, transposed = jax.vjp(rows, twists, still)
        wrenches[joint.name] = transposed(multipliers[start : start + psi.size])
        start += psi.size
    return wrenches


class LoopsAt(NamedTuple):
    """Some loops of a tree at one q."""

    joints: list[AbstractJoint]
    at: TreeAt  # the bodies that they join

    @classmethod
    def of(cls, functions: Sequence[Any], q: Coordinates) -> "LoopsAt":
        """Those of rows that have a `loop`."""
        loops = [x.loop for x in functions]
        whole, layout = loops[0].mechanism, loops[0].layout
        joined = {name for loop in loops for name in whole.joints[loop.number].bodies}
        at = TreeAt(whole, layout, q, [i for i, x in enumerate(whole.bodies) if x.name in joined])
        return cls([at.mechanism.joints[loop.number] for loop in loops], at)

    def twists_and_rates(self, v: Velocities) -> tuple[Twists, Twists]:
        """The twists of the bodies, and their rates at v' = 0, by name."""
        bodies, rates = self.at.bodies, self.at.rates(v)
        return twists_by_name(bodies, rates.twist), twists_by_name(bodies, rates.twist_rate)

    def items(self, *by_name: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Of each joint: itself, and what its bodies have, their placements first."""
        of_bodies = lambda joint: [
            tuple(of[name] for name in joint.bodies) for of in (self.at.placements, *by_name)
        ]
        return [(joint, *of_bodies(joint)) for joint in self.joints]


@final
class LoopSlip(AbstractTogether):
    """psi of a nonholonomic loop's joint."""

    loop: Loop

    def __call__(self, t: Time, q: Coordinates, v: Velocities) -> Array:
        return self.together([self], t, q, v)[0]

    @staticmethod
    def together(functions: Sequence[Any], *arguments: Array) -> list[Array]:
        t, q, v = arguments
        loops = LoopsAt.of(functions, q)
        slip = lambda joint, placements, twists: joint.slip(t, placements, twists)
        return vmap_by_structure(slip, loops.items(loops.at.twists(v)))


def _rate(t: Time, joint: AbstractJoint, placements: Any, twists: Any) -> Array:
    """psi, of phi(t, placements)."""
    flows = (placement.flow(twist) for placement, twist in zip(placements, twists, strict=True))
    at, along = (t, *placements), (jnp.ones_like(t), *flows)
    return jax.jvp(lambda t, *of: joint.rows(t, *of), at, along)[1]


def _jacobian(t: Time, joint: AbstractJoint, placements: Any, columns: Any) -> Float[Array, "k n"]:
    """A, of columns as `TreeAt` has them."""
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
        loops = LoopsAt.of(constraints, q)
        return vmap_by_structure(lambda joint, placements: joint.rows(t, *placements), loops.items())

    @classmethod
    def position_jacobians(cls, constraints: Sequence[Any], t: Time, q: Coordinates) -> Sequence[Array]:
        loops = LoopsAt.of(constraints, q)
        velocities = jax.jacfwd(lambda rate: loops.at.chains.velocities(q, rate))(jnp.zeros_like(q))
        jacobians = vmap_by_structure(functools.partial(_jacobian, t), loops.items(loops.at.columns))
        return [A @ velocities for A in jacobians]

    @classmethod
    def velocity_errors(
        cls, constraints: Sequence[Any], t: Time, q: Coordinates, v: Velocities
    ) -> Sequence[Array]:
        loops = LoopsAt.of(constraints, q)
        return vmap_by_structure(functools.partial(_rate, t), loops.items(loops.twists_and_rates(v)[0]))

    @classmethod
    def all_acceleration_rows(
        cls, constraints: Sequence[Any], t: Time, q: Coordinates, v: Velocities
    ) -> Sequence[tuple[Array, Array]]:
        loops = LoopsAt.of(constraints, q)
        A = vmap_by_structure(functools.partial(_jacobian, t), loops.items(loops.at.columns))
        twists_and_rates = loops.twists_and_rates(v)
        b = vmap_by_structure(functools.partial(_right_hand_side, t), loops.items(*twists_and_rates))
        return list(zip(A, b, strict=True))


def loop_constraints(mechanism: Mechanism, layout: TreeLayout) -> list[AbstractConstraint]:
    """The rows of all loops, in their order."""
    constraints = list[AbstractConstraint]()
    for i, joint in enumerate(mechanism.joints[len(mechanism.bodies) :], len(mechanism.bodies)):
        loop = Loop(mechanism, layout, i)
        if joint.holonomic:
            constraints.append(LoopClosure(loop=loop, name=joint.name))
        if joint.nonholonomic:
            constraints.append(Nonholonomic(LoopSlip(loop), name=joint.slip_name))
    return constraints
