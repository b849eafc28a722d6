"""Planar bodies in absolute coordinates (x, y, theta), and the revolute joints between them."""

from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Forces, Time, Velocities

PLANAR_UNITS = ("m", "m", "rad")


def planar_labels(*bodies: str) -> tuple[str, ...]:
    """The names of the coordinates of bodies."""
    return tuple(f"{body} {x}" for body in bodies for x in ("x", "y", "theta"))


def find_body_point(q: Coordinates, body: int, offset: Array) -> Float[Array, "2"]:
    """The world point [m] at `offset` [m] from the centre of `body` along its own axis."""
    x, y, theta = q[3 * body : 3 * body + 3]
    return jnp.stack([x + offset * jnp.cos(theta), y + offset * jnp.sin(theta)])


def weight(masses: Float[Array, " n"], gravity: Array) -> Forces:
    """The generalized force of gravity along -y; `masses` is the diagonal of the mass matrix, 3 entries a body."""
    return jnp.where(np.arange(masses.size) % 3 == 1, -gravity * masses, 0.0)


def energy(masses: Float[Array, " n"], gravity: Array, q: Coordinates, v: Velocities) -> Float[Array, ""]:
    """Kinetic and potential energy [J]; `masses` as for `weight`."""
    return 0.5 * jnp.dot(masses * v, v) + gravity * jnp.dot(masses[1::3], q[1::3])


@final
class GroundPin(eqx.Module):
    """phi of a revolute joint between a body's point and a fixed point `anchor` (two rows [m])."""

    offset: Array
    anchor: Float[Array, "2"]
    body: int = eqx.field(static=True)

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, "2"]:
        return find_body_point(q, self.body, self.offset) - self.anchor


@final
class Pin(eqx.Module):
    """phi of a revolute joint between points of two bodies (two rows [m])."""

    offset: Array
    other_offset: Array
    body: int = eqx.field(static=True)
    other: int = eqx.field(static=True)

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, "2"]:
        return find_body_point(q, self.body, self.offset) - find_body_point(q, self.other, self.other_offset)
