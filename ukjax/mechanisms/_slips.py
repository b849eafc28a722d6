"""Slip at a contact of two bodies: velocities across the normal, and angular velocities about and across it."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ._joint_rows import across
from ._placement import AnyPlacement, Twist


def velocity_of(point: Array, placement: AnyPlacement, twist: Twist) -> Array:
    """Of the place of a body that is at a point of the world."""
    arm = point - placement.p
    turning = twist.omega * jnp.stack([-arm[1], arm[0]]) if arm.shape == (2,) else jnp.cross(twist.omega, arm)
    return twist.velocity + turning


def turn_tangents(start: Array, first: AnyPlacement, normal: Array) -> Float[Array, "2 3"]:
    """Directions of slip in space: those across a normal of the reference posture, turned with it the shortest way."""
    n = first.back(normal)
    share = (n + start) / jnp.maximum(1 + jnp.dot(n, start), jnp.finfo(n.dtype).eps)
    return jnp.stack([first.vector(a - jnp.dot(n, a) * share) for a in across(start)])


def align_tangents(along: Array, body: AnyPlacement, normal: Array) -> Float[Array, "2 3"]:
    """Directions of slip in space: the first one along a direction of a body, as far as it lies across the normal."""
    a = body.vector(along)
    a = a - jnp.dot(normal, a) * normal
    square = jnp.dot(a, a)
    one = a / jnp.sqrt(jnp.where(square > 0, square, 1))
    return jnp.stack([one, jnp.cross(normal, one)])


class SlipAxes(NamedTuple):
    """The slip of a contact in the world: of the second body beside the first."""

    across: Array  # directions of its velocity (s, d)
    about: Array  # those of its angular velocity, in the plane numbers (r, 1)

    def velocities(
        self, point: Array, ends: Sequence[AnyPlacement], moves: Sequence[Twist]
    ) -> Float[Array, " tangents"]:
        """Slip, where the two bodies move by twists."""
        first, second = (velocity_of(point, *end) for end in zip(ends, moves, strict=True))
        slides = self.across @ (second - first)
        if not len(self.about):
            return slides
        first, second = (jnp.reshape(x.omega, -1) for x in moves)
        return jnp.concatenate([slides, self.about @ (second - first)])


class SlipForm(NamedTuple):
    """Which kinds of slip friction resists."""

    dimension: int  # 2 in the plane, 3 in space
    rough: bool  # whether it resists sliding
    # `twists`, `rolls`: whether it resists turning about the normal, and rolling.
    twists: bool
    rolls: bool
    # `aligned`: the body with which the first direction of slip turns, 0 or 1; None where no direction is given.
    aligned: int | None

    @property
    def turning(self) -> int:
        """How many angular velocities there are."""
        return self.twists + self.rolls * (self.dimension - 1)

    @property
    def tangents(self) -> int:
        """How many velocities and angular velocities there are."""
        return self.rough * (self.dimension - 1) + self.turning

    @property
    def is_round(self) -> bool:
        """Whether all have the same coefficient."""
        return self.aligned is None and not self.turning

    def axes(self, direction: Array, ends: Sequence[AnyPlacement], normal: Array) -> SlipAxes:
        """Of a contact with a normal, by the direction that is aligned, or the normal of the reference posture.

        Without one that is aligned they are turned from that posture with the normal, the shortest way in the first
        body's axes: so they turn smoothly, until the normal is the opposite one.
        """
        if self.dimension == 2:
            slides = jnp.stack([normal[1], -normal[0]])[None]
            return SlipAxes(slides, jnp.ones((self.turning, 1), normal.dtype))
        if self.aligned is None:
            slides = turn_tangents(direction, ends[0], normal)
        else:
            slides = align_tangents(direction, ends[self.aligned], normal)
        return SlipAxes(
            slides, jnp.concatenate([normal[None]] * self.twists + [slides] * self.rolls or [slides[:0]])
        )
