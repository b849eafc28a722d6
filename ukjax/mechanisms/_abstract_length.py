"""Lengths: what is limited and rubs as the position of a joint is and does, and belongs to none."""

import abc
from collections.abc import Sequence

import equinox as eqx
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Velocities
from ._placement import AnyPlacement, Twist


class AbstractLength(eqx.Module):
    """What has limits and dry friction as a joint has and is none, such as a tendon."""

    name: eqx.AbstractVar[str]  # what reports call it
    turns: eqx.AbstractVar[bool]  # whether it is an angle [rad] and no length [m]

    @property
    @abc.abstractmethod
    def bodies(self) -> tuple[str, ...]:
        """The bodies whose places it depends on, if any."""

    @abc.abstractmethod
    def value(self, q: Coordinates, placements: Sequence[AnyPlacement]) -> Float[Array, ""]:
        """How long it is.

        **Arguments:**

        - `q`: coordinates.
        - `placements`: of `bodies`.
        """

    @abc.abstractmethod
    def rate(
        self, v: Velocities, placements: Sequence[AnyPlacement], twists: Sequence[Twist]
    ) -> Float[Array, ""]:
        """How fast it becomes longer, linear in v.

        **Arguments:**

        - `v`: velocities.
        - `placements`, `twists`: of `bodies`.
        """
