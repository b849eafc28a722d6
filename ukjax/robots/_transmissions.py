"""How actuators on sites and spatial tendons act on bodies: a length, and the rate that their force works on."""

import abc
from collections.abc import Sequence
from typing import final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._lie import unit_quaternion
from ..mechanisms._placement import AnyPlacement, Twist, rate_of
from ._paths import Anchor, Path
from ._state import rotation_vector

Ends = Sequence[AnyPlacement]


class AbstractTransmission(eqx.Module):
    """A length of bodies, and a rate. Concrete ones: `PathTransmission`, `SiteTransmission`, `SiteAgainst`, `Crank`."""

    bodies: eqx.AbstractVar[tuple[str, ...]]

    @abc.abstractmethod
    def length(self, placements: Ends) -> Float[Array, ""]:
        """l, as the actuator knows it.

        **Arguments:**

        - `placements`: of `bodies`.
        """

    @abc.abstractmethod
    def rate(self, placements: Ends, twists: Sequence[Twist]) -> Float[Array, ""]:
        """What the force works on, linear in the twists.

        **Arguments:**

        - `placements`, `twists`: of `bodies`.
        """


@final
class PathTransmission(AbstractTransmission):
    """The length of a tendon that is a path, times a gear ratio."""

    bodies: tuple[str, ...] = eqx.field(static=True)
    path: Path
    gear: Float[Array, ""]

    def length(self, placements: Ends) -> Float[Array, ""]:
        return self.gear * self.path(*placements)

    def rate(self, placements: Ends, twists: Sequence[Twist]) -> Float[Array, ""]:
        return rate_of(lambda *p: self.length(p), placements, twists)


@final
class SiteTransmission(AbstractTransmission):
    """A force and a torque at a point of a body, in axes that turn with it; its length is zero."""

    bodies: tuple[str, ...] = eqx.field(static=True)
    point: Float[Array, "3"]
    # `force`, `torque`: of a unit input, in the reference posture, in world axes (3,).
    force: Float[Array, "3"]
    torque: Float[Array, "3"]

    def length(self, placements: Ends) -> Float[Array, ""]:
        return jnp.zeros((), placements[0].p.dtype)

    def rate(self, placements: Ends, twists: Sequence[Twist]) -> Float[Array, ""]:
        (body,), (twist,) = placements, twists
        velocity = rate_of(lambda p: p.point(self.point), placements, twists)
        return jnp.dot(body.vector(self.force), velocity) + jnp.dot(body.vector(self.torque), twist.omega)


@final
class SiteAgainst(AbstractTransmission):
    """A force and a torque between points of two bodies, in axes of the first; its length is the displacement, and what
    the second has turned against the first: the vector along the axis of that turn, as long as its angle.
    """

    bodies: tuple[str, ...] = eqx.field(static=True)
    origin: Float[Array, "3"]  # of the first body, from where it is measured [m] (3,)
    point: Float[Array, "3"]  # of the second (3,)
    # `force`, `torque`: of a unit input on the second, in the reference posture, in world axes (3,).
    force: Float[Array, "3"]
    torque: Float[Array, "3"]
    # `axes`: of both, in the reference posture, as columns (2, 3, 3), if it counts turns.
    axes: Float[Array, "2 3 3"] | None = None

    def _displacement(self, *placements: AnyPlacement) -> Float[Array, ""]:
        first, second = placements
        return jnp.dot(first.vector(self.force), second.point(self.point) - first.point(self.origin))

    def length(self, placements: Ends) -> Float[Array, ""]:
        moved = self._displacement(*placements)
        if self.axes is None:
            return moved
        first, second = (p.R @ axes for p, axes in zip(placements, self.axes, strict=True))  # pyright: ignore
        turned = rotation_vector(unit_quaternion(first.T @ second))
        return moved + jnp.dot(self.axes[0].T @ self.torque, turned)

    def rate(self, placements: Ends, twists: Sequence[Twist]) -> Float[Array, ""]:
        turning = twists[1].omega - twists[0].omega
        along = rate_of(self._displacement, placements, twists)
        return along + jnp.dot(placements[0].vector(self.torque), turning)


@final
class Crank(AbstractTransmission):
    """A slider on an axis that drives a pin by a rod of given length: a.d - sqrt((a.d)^2 + r^2 - d.d)."""

    bodies: tuple[str, ...] = eqx.field(static=True)
    # `pin`, `slider`: points.
    pin: Anchor
    slider: Anchor
    axis: Float[Array, "3"]  # of the slider's body in the reference posture (3,)
    rod: Float[Array, ""]  # r [m]
    gear: Float[Array, ""]  # a ratio

    def length(self, placements: Ends) -> Float[Array, ""]:
        axis = placements[self.slider.body].vector(self.axis)
        d = self.pin(placements) - self.slider(placements)
        along = jnp.dot(axis, d)
        square = along**2 + self.rod**2 - jnp.dot(d, d)
        root = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
        return self.gear * (along - root)

    def rate(self, placements: Ends, twists: Sequence[Twist]) -> Float[Array, ""]:
        return rate_of(lambda *p: self.length(p), placements, twists)
