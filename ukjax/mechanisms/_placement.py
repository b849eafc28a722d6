"""Where a rigid body is and how it moves, in the plane and in space.

A body is described once, in its reference posture, in world coordinates. A placement is its motion from
there: a point X of the reference posture lies at

    x = p + R (X - centre),

where p is where the centre of mass has come to. Everything else moves along: the rate of any function of
placements is its derivative along their flow R' = hat(omega) R, p' = velocity, which `rate_of` takes. It is linear
in the twists, so its transpose turns an effort into the forces and torques that do the same work.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Self, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._lie import hat


def norm(d: Array) -> Float[Array, ""]:
    """|d| of a vector, with derivative zero at d = 0."""
    square = jnp.dot(d, d)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def moment(arm: Array, force: Array) -> Array:
    """arm x force, in the plane its one component."""
    return jnp.cross(arm, force) if arm.shape == (3,) else arm[0] * force[1] - arm[1] * force[0]


@final
class Twist(eqx.Module):
    """The velocity of a body, or by the same two fields a force and a torque on it.

    - `omega`: angular velocity in world axes [rad/s] (3,), a scalar in the plane; or a torque about the centre
      of mass [N m].
    - `velocity`: of the centre of mass [m/s] (3,) or (2,); or a force [N].
    """

    omega: Array
    velocity: Array


class AbstractPlacement(eqx.Module):
    """The place of a body. Concrete ones: `Placement`, `PlanarPlacement`."""

    p: eqx.AbstractVar[Array]
    centre: eqx.AbstractVar[Array]

    @abc.abstractmethod
    def vector(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        """A vector fixed to the body, in world axes.

        **Arguments:**

        - `u`: the vector in the reference posture (3,), in the plane (2,).
        """

    @abc.abstractmethod
    def back(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        """The inverse of `vector`: a world vector in body axes.

        **Arguments:**

        - `u`: the vector in world axes (3,), in the plane (2,).
        """

    @abc.abstractmethod
    def flow(self, twist: Twist) -> Self:
        """The rate of the placement under a twist.

        **Arguments:**

        - `twist`: the body's `Twist`.
        """

    def point(self, X: Float[Array, " d"]) -> Float[Array, " d"]:
        """The world place of a point of the body [m].

        **Arguments:**

        - `X`: where it is in the reference posture [m] (3,), in the plane (2,).
        """
        return self.p + self.vector(X - self.centre)


@final
class Placement(AbstractPlacement):
    """The place of a body in space.

    - `R`: rotation from the reference posture (3, 3).
    - `p`: the centre of mass now [m] (3,).
    - `centre`: the centre of mass in the reference posture [m] (3,).
    """

    R: Float[Array, "3 3"]
    p: Float[Array, "3"]
    centre: Float[Array, "3"]

    def vector(self, u: Float[Array, "3"]) -> Float[Array, "3"]:
        return self.R @ u

    def back(self, u: Float[Array, "3"]) -> Float[Array, "3"]:
        return self.R.T @ u

    def flow(self, twist: Twist) -> "Placement":
        return Placement(hat(twist.omega) @ self.R, twist.velocity, jnp.zeros_like(self.centre))


@final
class PlanarPlacement(AbstractPlacement):
    """The place of a body in the plane.

    - `angle`: turned from the reference posture [rad].
    - `p`: the centre of mass now [m] (2,).
    - `centre`: the centre of mass in the reference posture [m] (2,).
    """

    angle: Float[Array, ""]
    p: Float[Array, "2"]
    centre: Float[Array, "2"]

    def vector(self, u: Float[Array, "2"]) -> Float[Array, "2"]:
        c, s = jnp.cos(self.angle), jnp.sin(self.angle)
        return jnp.stack([c * u[0] - s * u[1], s * u[0] + c * u[1]])

    def back(self, u: Float[Array, "2"]) -> Float[Array, "2"]:
        c, s = jnp.cos(self.angle), jnp.sin(self.angle)
        return jnp.stack([c * u[0] + s * u[1], c * u[1] - s * u[0]])

    def flow(self, twist: Twist) -> "PlanarPlacement":
        return PlanarPlacement(twist.omega, twist.velocity, jnp.zeros_like(self.centre))


AnyPlacement = Placement | PlanarPlacement


def ground_placement(dimension: int, dtype: jnp.dtype) -> AnyPlacement:
    """The placement of the ground, which never moves."""
    o = jnp.zeros(dimension, dtype)
    return (
        PlanarPlacement(jnp.zeros((), dtype), o, o)
        if dimension == 2
        else Placement(jnp.eye(3, dtype=dtype), o, o)
    )


def ground_twist(dimension: int, dtype: jnp.dtype) -> Twist:
    """The twist of the ground: zero."""
    return Twist(jnp.zeros(() if dimension == 2 else 3, dtype), jnp.zeros(dimension, dtype))


def rate_of(fn: Callable[..., Array], placements: Sequence[AnyPlacement], twists: Sequence[Twist]) -> Array:
    """The rate of a function of placements, linear in the twists."""
    flows = tuple(p.flow(twist) for p, twist in zip(placements, twists, strict=True))
    return jax.jvp(fn, tuple(placements), flows)[1]
