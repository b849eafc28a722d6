"""Lengths of joints, tendons and actuators.

They are linear in the coordinates, and in the rotations of balls; or of paths of tendons, which are taut, through points
of bodies and around spheres and cylinders.
"""

from collections.abc import Sequence
from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Velocities, as_jax
from ..mechanisms._placement import AnyPlacement, moment, norm
from ._state import rotation_vector

Term = tuple[int | None, int, float]
"""One joint's part in a length: the number of its coordinate, or None where the length does not know it, the number
of its velocity, and its coefficient."""


@final
class Lengths(eqx.Module):
    """k lengths l = l0 + sum c_i q_i; each has as many terms as the longest, those it lacks with c = 0.

    That of a servo on a ball is c.x of its rotation vector x, whose rate counts as the angular velocity, as in MuJoCo.
    """

    # `coordinates`: the numbers of the coordinates of each; -1 where the length does not know it.
    coordinates: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    velocities: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # the numbers of their velocities
    coefficients: Float[Array, "k terms"]  # c (k, terms)
    reference: Float[Array, " k"]  # l0, in the reference posture (k,)
    # `balls`: where the quaternion of a ball starts, for each length; -1 for none.
    balls: tuple[int, ...] = eqx.field(static=True, default=())

    @classmethod
    def of(
        cls, terms: Sequence[Sequence[Term]], reference: Sequence[float], balls: Sequence[int] = ()
    ) -> "Lengths":
        """From the terms of each."""
        width = max((len(own) for own in terms), default=0)
        filled = [[*own, *[(None, 0, 0.0)] * (width - len(own))] for own in terms]
        number = lambda i: -1 if i is None else i
        return cls(
            tuple(tuple(number(i) for i, _, _ in own) for own in filled),
            tuple(tuple(j for _, j, _ in own) for own in filled),
            as_jax(np.array([[c for _, _, c in own] for own in filled], float).reshape(len(terms), width)),
            as_jax(np.asarray(reference, float)),
            tuple(balls),
        )

    def __len__(self) -> int:
        return len(self.coordinates)

    @property
    def touched(self) -> tuple[int, ...]:
        """The numbers of the velocities of all."""
        return tuple(k for own in self.velocities for k in own)

    def change(self, q: Coordinates) -> Float[Array, " k"]:
        """l - l0."""
        at = np.array(self.coordinates, int).reshape(self.coefficients.shape)
        known = (at >= 0).astype(q.dtype)
        coefficients = self.coefficients.astype(q.dtype)
        changes = jnp.sum(known * coefficients * q[np.maximum(at, 0)], axis=1)
        for k, ball in enumerate(self.balls):
            if ball >= 0:
                changes = changes.at[k].add(jnp.dot(coefficients[k, :3], rotation_vector(q[ball : ball + 4])))
        return changes

    def rate(self, v: Velocities) -> Float[Array, " k"]:
        """l'."""
        at = np.array(self.velocities, int).reshape(self.coefficients.shape)
        return jnp.sum(self.coefficients.astype(v.dtype) * v[at], axis=1)

    def __call__(self, q: Coordinates) -> Float[Array, " k"]:
        return self.reference.astype(q.dtype) + self.change(q)


def stack_lengths(several: Sequence[Lengths]) -> Lengths:
    """Several as one."""
    terms = [
        list(zip((None if i < 0 else i for i in q), v, c.tolist(), strict=True))
        for x in several
        for q, v, c in zip(x.coordinates, x.velocities, np.asarray(x.coefficients), strict=True)
    ]
    return Lengths.of(terms, [float(x) for own in several for x in np.asarray(own.reference)])


# --- Paths: behind a pulley their parts count by 1/divisor


@final
class Anchor(eqx.Module):
    """A point of a body."""

    body: int = eqx.field(static=True)  # which of the path's bodies
    point: Float[Array, "3"]  # in the reference posture [m] (3,)

    def __call__(self, placements: Sequence[AnyPlacement]) -> Float[Array, "3"]:
        return placements[self.body].point(self.point)


@final
class Straight(eqx.Module):
    """A straight part of a path, from one point to another."""

    start: Anchor
    end: Anchor

    def __call__(self, placements: Sequence[AnyPlacement]) -> Float[Array, ""]:
        return norm(self.end(placements) - self.start(placements))


@final
class Around(eqx.Module):
    """A part of a path around a sphere or a cylinder, where that is in its way; else straight."""

    # `start`, `end`: its ends.
    start: Anchor
    end: Anchor
    centre: Anchor  # of the sphere or the cylinder
    frame: Float[Array, "3 3"]  # of the body's reference posture, the cylinder's axis last (3, 3)
    radius: Float[Array, ""]  # [m]
    side: Anchor | None  # the side on which it passes, by a point outside; None for the shorter way
    cylinder: bool = eqx.field(static=True)  # whether it is one

    def __call__(self, placements: Sequence[AnyPlacement]) -> Float[Array, ""]:
        body = placements[self.centre.body]
        centre = self.centre(placements)
        local = lambda X: self.frame.T @ body.back(X(placements) - centre)
        p0, p1 = local(self.start), local(self.end)
        ends = None if self.side is None else local(self.side)
        if self.cylinder:
            axes, height = jnp.eye(3, dtype=p0.dtype)[:2], p1[2] - p0[2]
        else:
            axes, height = _plane(p0, p1), jnp.zeros((), p0.dtype)
        side = None if ends is None else axes @ ends
        around = around_circle(axes @ p0, axes @ p1, self.radius, side)
        return jnp.where(height == 0, around, jnp.sqrt(jnp.where(height == 0, 1.0, around**2 + height**2)))


@final
class Path(eqx.Module):
    """A path through points of bodies."""

    bodies: tuple[str, ...] = eqx.field(static=True)  # their names
    parts: tuple[Straight | Around, ...]  # straight ones and those around something
    divisors: Float[Array, " parts"]  # of the parts

    def __call__(self, *placements: AnyPlacement) -> Float[Array, ""]:
        """Its length [m]."""
        length = jnp.zeros((), placements[0].p.dtype)
        for part, divisor in zip(self.parts, self.divisors, strict=True):
            length = length + part(placements) / divisor
        return length


def _unit(d: Array) -> Array:
    length = norm(d)
    return d / jnp.where(length > 0, length, 1)


def _plane(p0: Float[Array, "3"], p1: Float[Array, "3"]) -> Float[Array, "2 3"]:
    """Two axes of the plane through a sphere's centre and two points."""
    first = _unit(p0)
    return jnp.stack([first, _unit(jnp.cross(jnp.cross(p0, p1), first))])


def _segments_meet(a: Array, b: Array, c: Array, d: Array) -> Array:
    det = moment(b - a, d - c)
    scale = jnp.where(det == 0, 1, det)
    s, r = moment(c - a, d - c) / scale, moment(c - a, b - a) / scale
    return (det != 0) & (s >= 0) & (s <= 1) & (r >= 0) & (r <= 1)


def around_circle(
    p0: Float[Array, "2"], p1: Float[Array, "2"], radius: Float[Array, ""], side: Float[Array, "2"] | None
) -> Float[Array, ""]:
    """The length of a taut path in the plane from one point to another around a circle about the origin.

    It is straight where the circle is not in the way, and where an end is inside. Of the two ways round it takes that
    on the given side, or else the one whose points of contact are closer, as MuJoCo does.
    """
    direct = p1 - p0
    square, s0, s1, rr = jnp.dot(direct, direct), jnp.dot(p0, p0), jnp.dot(p1, p1), radius**2
    outside = (s0 >= rr) & (s1 >= rr) & (square > 0)
    s0, s1 = jnp.where(outside, s0, 2 * rr), jnp.where(outside, s1, 2 * rr)
    near = jnp.clip(-jnp.dot(direct, p0) / jnp.where(square > 0, square, 1), 0, 1) * direct + p0
    clear = jnp.dot(near, near) > rr
    if side is not None:
        side = _unit(side)
        clear = clear & (jnp.dot(side, near) >= 0)
    t0, t1 = (jnp.where(s > rr, jnp.sqrt(jnp.where(s > rr, s - rr, 1)), 0) for s in (s0, s1))
    lengths, goods, crossed = [], [], []
    for sign in (1.0, -1.0):
        c0 = (p0 * rr + sign * radius * t0 * jnp.stack([p0[1], -p0[0]])) / s0
        c1 = (p1 * rr - sign * radius * t1 * jnp.stack([p1[1], -p1[0]])) / s1
        # the angle from c0 to c1, clockwise for the first way
        angle = jnp.arctan2(-sign * moment(c0, c1), jnp.dot(c0, c1))
        lengths.append(t0 + t1 + radius * jnp.where(angle < 0, angle + 2 * jnp.pi, angle))
        meets = _segments_meet(p0, c0, p1, c1)
        apart = c0 - c1
        good = -jnp.dot(apart, apart) if side is None else jnp.dot(_unit(c0 + c1), side)
        goods.append(jnp.where(meets, -10000.0, good))
        crossed.append(meets)
    first = goods[0] > goods[1]
    wraps = outside & ~clear & ~jnp.where(first, *crossed)
    return jnp.where(wraps, jnp.where(first, *lengths), norm(direct))
