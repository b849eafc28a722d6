"""Absolute coordinates of one body: where they lie in q and v, and what they say of placement, twist and inertia.

Planar bodies have (x, y, theta), point masses their place. Bodies in space have their centre and a quaternion
p = (s, u), (1, 0, 0, 0) in the reference posture, with one of two kinds of velocities:

    quaternion          (velocity, omega in body axes),  p' = 1/2 p o (0, omega),
    euler parameters    q' itself,  omega = W p' with W = 2 (-u, s I - hat(u)) / p.p,

which gives J omega' + omega x J omega = torque and, since W' p' = -2 (p.p') / (p.p) omega, the mass matrix
W^T J W of rank 3 (Udwadia and Schutte 2010).
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._lie import hat, quaternion_rate, rotation_matrix
from .._misc._types import Coordinates, Forces, Velocities, module_for
from ._bodies import AbstractBody, Body, PlanarBody, PointMass
from ._placement import AnyPlacement, Placement, PlanarPlacement, Twist, ground_placement, ground_twist
from ._vmap_by_structure import vmap_by_structure

QUATERNION = ("qw", "qx", "qy", "qz")
"""Labels of a quaternion, scalar first."""
ANGULAR_VELOCITY = ("wx", "wy", "wz")
"""Labels of an angular velocity."""


class AbstractCoordinates(eqx.Module):
    """The coordinates of one body, or of the ground, which has none."""

    # `q_start`, `v_start`: where its coordinates and velocities begin.
    q_start: eqx.AbstractVar[int]
    v_start: eqx.AbstractVar[int]
    labels: eqx.AbstractVar[tuple[str, ...]]  # the names of its coordinates

    @property
    def velocity_labels(self) -> tuple[str, ...]:
        """The names of its velocities; where they are rates, those of the coordinates."""
        return self.labels

    @property
    @abc.abstractmethod
    def reference(self) -> Coordinates:
        """The coordinates of the reference posture."""

    @abc.abstractmethod
    def placement(self, q: Coordinates) -> AnyPlacement:
        """Where the body is, from the coordinates of all bodies."""

    @abc.abstractmethod
    def twist(self, q: Coordinates, v: Velocities) -> Twist:
        """How it moves, from the coordinates and velocities of all bodies."""

    @abc.abstractmethod
    def inertia(self, q: Coordinates) -> Array:
        """Its block of the mass matrix, (k, k), or (k,) where that is diagonal."""

    @property
    def sizes(self) -> tuple[int, int]:
        """How many coordinates and velocities it has."""
        return len(self.labels), len(self.velocity_labels)

    def gyroscopic(self, q: Coordinates, v: Velocities) -> Forces:
        """Its part of the force that is quadratic in v (k,)."""
        return jnp.zeros(self.sizes[1], v.dtype)

    def rate(self, q: Coordinates, v: Velocities) -> Coordinates:
        """q' of this body."""
        return v[self.v_start : self.v_start + self.sizes[1]]


@final
class GroundCoordinates(AbstractCoordinates):
    """The ground, which has no coordinates."""

    dimension: int = eqx.field(static=True)
    q_start: int = eqx.field(static=True, default=0)
    v_start: int = eqx.field(static=True, default=0)

    labels: ClassVar[tuple[str, ...]] = ()

    @property
    def reference(self) -> Coordinates:
        return jnp.zeros(0)

    def placement(self, q: Coordinates) -> AnyPlacement:
        return ground_placement(self.dimension, q.dtype)

    def twist(self, q: Coordinates, v: Velocities) -> Twist:
        return ground_twist(self.dimension, v.dtype)

    def inertia(self, q: Coordinates) -> Array:
        return jnp.zeros(0, q.dtype)


@final
class PlanarCoordinates(AbstractCoordinates):
    """(x, y, theta) of a planar body."""

    body: PlanarBody
    q_start: int = eqx.field(static=True)
    v_start: int = eqx.field(static=True)

    labels: ClassVar[tuple[str, ...]] = ("x", "y", "theta")

    @property
    def reference(self) -> Coordinates:
        return module_for(self.body).append(self.body.centre, self.body.angle)

    def placement(self, q: Coordinates) -> PlanarPlacement:
        i = self.q_start
        return PlanarPlacement(q[i + 2] - self.body.angle, q[i : i + 2], self.body.centre)

    def twist(self, q: Coordinates, v: Velocities) -> Twist:
        i = self.v_start
        return Twist(v[i + 2], v[i : i + 2])

    def inertia(self, q: Coordinates) -> Array:
        return jnp.stack([self.body.mass, self.body.mass, self.body.inertia])


@final
class PointCoordinates(AbstractCoordinates):
    """The place of a point mass."""

    body: PointMass
    q_start: int = eqx.field(static=True)
    v_start: int = eqx.field(static=True)

    @property
    def labels(self) -> tuple[str, ...]:
        return ("x", "y", "z")[: self.body.dimension]

    @property
    def reference(self) -> Coordinates:
        return self.body.centre

    def placement(self, q: Coordinates) -> AnyPlacement:
        d = self.body.dimension
        ground, p = ground_placement(d, q.dtype), q[self.q_start : self.q_start + d]
        if isinstance(ground, PlanarPlacement):
            return PlanarPlacement(ground.angle, p, self.body.centre)
        return Placement(ground.R, p, self.body.centre)

    def twist(self, q: Coordinates, v: Velocities) -> Twist:
        d = self.body.dimension
        return Twist(ground_twist(d, v.dtype).omega, v[self.v_start : self.v_start + d])

    def inertia(self, q: Coordinates) -> Array:
        return jnp.full(self.body.dimension, self.body.mass)


class AbstractSpatialCoordinates(AbstractCoordinates):
    """Centre and quaternion of a body in space, with velocities of some kind."""

    body: eqx.AbstractVar[Body]
    labels: ClassVar[tuple[str, ...]] = ("x", "y", "z", *QUATERNION)

    @property
    def reference(self) -> Coordinates:
        upright = np.eye(4, dtype=self.body.centre.dtype)[0]
        return module_for(self.body).concatenate([self.body.centre, upright])

    def placement(self, q: Coordinates) -> Placement:
        i = self.q_start
        return Placement(rotation_matrix(q[i + 3 : i + 7]), q[i : i + 3], self.body.centre)

    @abc.abstractmethod
    def _omega(self, q: Coordinates, v: Velocities) -> Float[Array, "3"]:
        """The angular velocity in body axes."""

    def twist(self, q: Coordinates, v: Velocities) -> Twist:
        omega = self.placement(q).vector(self._omega(q, v))
        return Twist(omega, v[self.v_start : self.v_start + 3])


@final
class QuaternionCoordinates(AbstractSpatialCoordinates):
    """Centre and quaternion of a body in space, with velocity and angular velocity in body axes."""

    body: Body
    q_start: int = eqx.field(static=True)
    v_start: int = eqx.field(static=True)

    @property
    def velocity_labels(self) -> tuple[str, ...]:
        return ("x", "y", "z", *ANGULAR_VELOCITY)

    def _omega(self, q: Coordinates, v: Velocities) -> Float[Array, "3"]:
        return v[self.v_start + 3 : self.v_start + 6]

    def inertia(self, q: Coordinates) -> Array:
        return _join_inertia(self.body, self.body.inertia)

    def gyroscopic(self, q: Coordinates, v: Velocities) -> Forces:
        omega = self._omega(q, v)
        return jnp.concatenate([jnp.zeros_like(omega), -jnp.cross(omega, self.body.inertia @ omega)])

    def rate(self, q: Coordinates, v: Velocities) -> Coordinates:
        i = self.q_start + 3
        turning = quaternion_rate(q[i : i + 4], self._omega(q, v))
        return jnp.concatenate([v[self.v_start : self.v_start + 3], turning])


@final
class EulerCoordinates(AbstractSpatialCoordinates):
    """Centre and quaternion of a body in space, with their own rates for velocities."""

    body: Body
    q_start: int = eqx.field(static=True)
    v_start: int = eqx.field(static=True)

    def _quaternion(self, x: Array) -> Float[Array, "4"]:
        return x[self.q_start + 3 : self.q_start + 7]

    def _turning(self, q: Coordinates) -> Float[Array, "3 4"]:
        """W: the angular velocity in body axes of a rate of the quaternion."""
        p = self._quaternion(q)
        vector = p[0] * jnp.eye(3, dtype=p.dtype) - hat(p[1:])
        return 2.0 / jnp.dot(p, p) * jnp.concatenate([-p[1:, None], vector], axis=1)

    def _omega(self, q: Coordinates, v: Velocities) -> Float[Array, "3"]:
        return self._turning(q) @ self._quaternion(v)

    def inertia(self, q: Coordinates) -> Array:
        W = self._turning(q)
        return _join_inertia(self.body, W.T @ self.body.inertia @ W)

    def gyroscopic(self, q: Coordinates, v: Velocities) -> Forces:
        p, rate, W, J = self._quaternion(q), self._quaternion(v), self._turning(q), self.body.inertia
        omega = W @ rate
        growth = 2.0 * jnp.dot(p, rate) / jnp.dot(p, p)
        torque = growth * (J @ omega) - jnp.cross(omega, J @ omega)
        return jnp.concatenate([jnp.zeros_like(omega), W.T @ torque])

    def norm(self, q: Coordinates) -> Float[Array, ""]:
        """(p.p - 1) / 2, zero for a unit quaternion."""
        p = self._quaternion(q)
        return 0.5 * (jnp.dot(p, p) - 1.0)


def _join_inertia(body: Body, turning: Float[Array, "k k"]) -> Float[Array, "k+3 k+3"]:
    """diag(m, m, m) and the inertia of turning."""
    k = turning.shape[0]
    linear = jnp.concatenate(
        [body.mass * jnp.eye(3, dtype=turning.dtype), jnp.zeros((3, k), turning.dtype)], axis=1
    )
    return jnp.concatenate([linear, jnp.concatenate([jnp.zeros((k, 3), turning.dtype), turning], axis=1)])


def coordinates_of(bodies: tuple[AbstractBody, ...], euler: bool) -> dict[str, AbstractCoordinates]:
    """The coordinates of all bodies, one after the other, by name."""
    kinds: dict[type, Any] = {PlanarBody: PlanarCoordinates, PointMass: PointCoordinates}
    kinds[Body] = EulerCoordinates if euler else QuaternionCoordinates
    by_body, q, v = {}, 0, 0
    for body in bodies:
        by_body[body.name] = part = kinds[type(body)](body=body, q_start=q, v_start=v)
        q, v = q + part.sizes[0], v + part.sizes[1]
    return by_body


def call_each_body(method: str, parts: Mapping[Any, AbstractCoordinates], *motion: Array) -> dict[Any, Any]:
    """What a method of each body's coordinates returns, by the keys of the bodies."""
    items = []
    for part in parts.values():
        alone = dataclasses.replace(part, q_start=0, v_start=0)
        starts = zip(motion, (part.q_start, part.v_start), part.sizes, strict=False)
        items.append((alone, *(x[i : i + n] for x, i, n in starts)))
    return dict(
        zip(parts, vmap_by_structure(lambda part, *own: getattr(part, method)(*own), items), strict=True)
    )
