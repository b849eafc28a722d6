"""The RR module: a pivoted link and a second one pinned to its end (Orsino 2017, Figures 1 and 3).

All of the paper's planar mechanisms are made of it, as hierarchies of three levels: the bodies with their base
pins, the modules with their elbows, the mechanism with the joints between modules.
"""

from typing import final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._types import Coordinates
from ._planar import GroundPin, Pin, find_body_point

CITATION = (
    "R. M. M. Orsino, Recursive modular modelling methodology for lumped-parameter dynamic systems, "
    "Proceedings of the Royal Society A 473, 2017, Figure {figure}."
)


def direction(angle: Array) -> Float[Array, "2"]:
    """The unit vector at `angle` [rad] from +x."""
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


@final
class RRModule(eqx.Module):
    """Two uniform links of equal length, bodies `2 leg` and `2 leg + 1` in absolute coordinates (x, y, theta).

    The proximal link turns about `pivot` [m], the distal one about the proximal one's end.
    """

    pivot: Float[Array, "2"]
    length: Array
    mass: Array
    leg: int = eqx.field(static=True)

    def masses(self) -> list[Array]:
        """The diagonal of the mass matrix, of the two links."""
        return [self.mass, self.mass, self.mass * self.length**2 / 12.0] * 2

    @property
    def base_pin(self) -> GroundPin:
        return GroundPin(-0.5 * self.length, self.pivot, 2 * self.leg)

    @property
    def elbow_pin(self) -> Pin:
        return Pin(0.5 * self.length, -0.5 * self.length, 2 * self.leg, 2 * self.leg + 1)

    def elbow(self, q: Coordinates) -> Float[Array, "2"]:
        """Where the links meet [m], as a point of the proximal one."""
        return find_body_point(q, 2 * self.leg, 0.5 * self.length)

    def tip(self, q: Coordinates) -> Float[Array, "2"]:
        """The distal link's free end [m]."""
        return find_body_point(q, 2 * self.leg + 1, 0.5 * self.length)

    def drawing(self, q: Coordinates) -> Float[Array, "3 2"]:
        """Both links as one line [m], from pivot to tip."""
        return jnp.stack([find_body_point(q, 2 * self.leg, -0.5 * self.length), self.elbow(q), self.tip(q)])

    def reaching(self, tip: Float[Array, "2"]) -> list[Array]:
        """The six coordinates with the tip there: the links at a + c and a - c, a the direction from the pivot.

        Those of a tip that is out of reach are NaN.
        """
        x, y = reach = tip - self.pivot
        along = jnp.arctan2(y, x)
        bend = jnp.arccos(jnp.sqrt(jnp.sum(reach**2)) / (2.0 * self.length))
        first, second = (self.length * direction(angle) for angle in (along + bend, along - bend))
        return [
            *(self.pivot + 0.5 * first),
            along + bend,
            *(self.pivot + first + 0.5 * second),
            along - bend,
        ]
