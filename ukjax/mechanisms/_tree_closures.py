"""Constraints that close loops of a kinematic tree, with their rows from how its bodies move.

A joint's phi depends on the placements of its bodies, so psi is linear in their twists, and these in v:

    A = sum over bodies  d psi / d twist  times the twists that each velocity gives by itself,
    b = -d psi / d t     at v' = 0, along the twists and their rates there.

What the twists are, and their rates, comes from the recursion along the tree that the forces of inertia take too. So the
tree is differentiated neither by q nor twice.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._misc._types import Coordinates, Time, Velocities
from .._system._constraint import AbstractConstraint, Nonholonomic
from ._abstract_joint import AbstractJoint
from ._alike import each
from ._bodies import GROUND
from ._mechanism import Mechanism
from ._placement import AnyPlacement, Twist, rate_of
from ._tree_layout import Layout
from ._tree_loops import Loop, LoopSlip, columns, ends, found_at, joints_of, placements_by_name
from ._tree_motion import cross
from ._tree_place import chains_of, described, moving


class Moving(NamedTuple):
    """A loop's joint, and of each of its bodies: where it is, its twist, how that changes at v' = 0, and its columns."""

    joint: AbstractJoint
    placements: tuple[AnyPlacement, ...]
    twists: tuple[Twist, ...]
    changes: tuple[Twist, ...]
    columns: tuple[Twist, ...]

    def rate(self, t: Time, placements: tuple[AnyPlacement, ...], twists: tuple[Twist, ...]) -> Array:
        """psi, of phi(t, placements)."""
        flows = (placement.flow(twist) for placement, twist in zip(placements, twists, strict=True))
        at, along = (t, *placements), (jnp.ones_like(t), *flows)
        return jax.jvp(lambda t, *of: self.joint.rows(t, *of), at, along)[1]

    def psi(self, t: Time) -> Array:
        """The velocity error."""
        return self.rate(t, self.placements, self.twists)

    def rows(self, t: Time) -> tuple[Array, Array]:
        """A and b."""
        of_twists = lambda *of: rate_of(lambda *x: self.joint.rows(t, *x), self.placements, of)  # pyright: ignore
        parts = jax.jacfwd(of_twists, argnums=tuple(range(len(self.twists))))(*self.twists)
        pairs = zip(jax.tree.leaves(parts), jax.tree.leaves(self.columns), strict=True)
        flat = lambda x: x.reshape(len(x), -1)
        A = sum(flat(part) @ flat(column).T for part, column in pairs)
        flows = tuple(x.flow(twist) for x, twist in zip(self.placements, self.twists, strict=True))
        along = jnp.ones_like(t), flows, self.changes
        return A, -jax.jvp(self.rate, (t, self.placements, self.twists), along)[1]  # pyright: ignore[reportReturnType]


def _each_velocity(dimension: int, columns: Twist, names: Sequence[str]) -> dict[str, Twist]:
    """The columns of each body by its name, of the plane those that there are; the ground does not move."""
    if dimension == 2:
        columns = Twist(columns.omega[..., 2], columns.velocity[..., :2])
    found = {name: jax.tree.map(lambda x, i=i: x[i], columns) for i, name in enumerate(names)}
    return {GROUND: jax.tree.map(lambda x: jnp.zeros_like(x[0]), columns)} | found


def _moving(loops: Sequence[Loop], q: Coordinates, v: Velocities) -> list[Moving]:
    mechanism, layout = described(loops[0].mechanism, q.dtype), loops[0].layout
    joints, bodies = joints_of(loops, mechanism)
    chains, own = chains_of(mechanism, layout), [mechanism.bodies[i] for i in bodies]
    posture, found = found_at(chains, q, bodies)
    rates, frames = chains.rates(posture, v), np.array([layout.frames[i] for i in bodies], int)
    omega, alpha = rates.omega[frames], rates.alpha[frames]
    d = found[1] - posture.origin[frames]
    swing = cross(omega, d)
    acceleration = rates.acceleration[frames] + cross(alpha, d) + cross(omega, swing)
    by_name = (
        placements_by_name(mechanism, bodies, found),
        moving(own, Twist(omega, rates.velocity[frames] + swing)),
        moving(own, Twist(alpha, acceleration)),
        _each_velocity(
            mechanism.dimension, columns(chains, posture, found[1], bodies), [x.name for x in own]
        ),
    )
    return [
        Moving(joint, *(tuple(of[name] for name in joint.bodies) for of in by_name))  # pyright: ignore
        for joint in joints
    ]


def _errors(loops: Sequence[Loop], t: Time, q: Coordinates) -> list[Array]:
    """phi of each loop."""
    mechanism = described(loops[0].mechanism, q.dtype)
    joints, bodies = joints_of(loops, mechanism)
    found = ends(chains_of(mechanism, loops[0].layout), q, bodies=bodies)
    placements = placements_by_name(mechanism, bodies, found)
    items = [(joint, *(placements[name] for name in joint.bodies)) for joint in joints]
    return each(lambda joint, *placements: joint.rows(t, *placements), items)


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
        return _errors([c.loop for c in constraints], t, q)

    @classmethod
    def velocity_errors(
        cls, constraints: Sequence[Any], t: Time, q: Coordinates, v: Velocities
    ) -> Sequence[Array]:
        found = _moving([c.loop for c in constraints], q, v)
        return each(lambda *of: Moving(*of).psi(t), found)

    @classmethod
    def all_acceleration_rows(
        cls, constraints: Sequence[Any], t: Time, q: Coordinates, v: Velocities
    ) -> Sequence[tuple[Array, Array]]:
        found = _moving([c.loop for c in constraints], q, v)
        return each(lambda *of: Moving(*of).rows(t), found)


def loop_constraints(mechanism: Mechanism, layout: Layout) -> list[AbstractConstraint]:
    """The rows of all loops, in their order.

    **Arguments:**

    - `mechanism`: its joints are those of the tree, then those that close loops.
    - `layout`: what hangs on what.
    """
    found = list[AbstractConstraint]()
    for i, joint in enumerate(mechanism.joints[len(mechanism.bodies) :], len(mechanism.bodies)):
        loop = Loop(mechanism, layout, i)
        if joint.holonomic:
            found.append(LoopClosure(loop, joint.name))
        if joint.nonholonomic:
            name = f"{joint.name}, no slip" if joint.holonomic else joint.name
            found.append(Nonholonomic(LoopSlip(loop), name=name))
    return found
