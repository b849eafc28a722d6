"""Planar bodies in absolute coordinates (x, y, theta), and the revolute joints between them."""

from typing import final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Coordinates, Time


def on_body(q: Coordinates, body: int, offset: Array) -> Float[Array, "2"]:
    """The world point [m] at `offset` [m] from the centre of `body` along its own axis."""
    x, y, theta = q[3 * body : 3 * body + 3]
    return jnp.stack([x + offset * jnp.cos(theta), y + offset * jnp.sin(theta)])


@final
class GroundPin(eqx.Module):
    """phi of a revolute joint between a body's point and a fixed point `anchor` (two rows [m])."""

    offset: Array
    anchor: Float[Array, "2"]
    body: int = eqx.field(static=True)

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, "2"]:
        return on_body(q, self.body, self.offset) - self.anchor


@final
class Pin(eqx.Module):
    """phi of a revolute joint between points of two bodies (two rows [m])."""

    offset: Array
    other_offset: Array
    body: int = eqx.field(static=True)
    other: int = eqx.field(static=True)

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, "2"]:
        return on_body(q, self.body, self.offset) - on_body(q, self.other, self.other_offset)
