"""Loads and constraints of a whole tree as those of a part of it, which is all they act on and depend on."""

from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Forces, Time, Velocities
from .._system._constraint import AbstractConstraint, Kind
from ._loads import AbstractCoordinateLoad, AbstractTreeLoad, TreeMotion


class Entries(eqx.Module):
    """Which coordinates and velocities of a whole those of a part are."""

    q0: Array  # all coordinates in the reference posture, where those of other parts stay
    # `q`, `v`: the numbers of those of the part.
    q: tuple[int, ...] = eqx.field(static=True)
    v: tuple[int, ...] = eqx.field(static=True)
    size: int = eqx.field(static=True)  # how many velocities the whole has

    def coordinates(self, q: Array) -> Array:
        """All coordinates, of those of the part."""
        return self.q0.astype(q.dtype).at[np.array(self.q, int)].set(q)

    def velocities(self, v: Array) -> Array:
        """All velocities, of those of the part."""
        return jnp.zeros(self.size, v.dtype).at[np.array(self.v, int)].set(v)


@final
class CoordinateLoadOfPart(AbstractCoordinateLoad):
    """A load on coordinates of a part."""

    name: str = eqx.field(static=True)
    load: AbstractCoordinateLoad
    entries: Entries

    def rate(self, q: Coordinates, v: Velocities) -> Array:
        return self.load.rate(self.entries.coordinates(q), self.entries.velocities(v))

    def effort(self, t: Time, q: Coordinates, v: Velocities) -> Array:
        return self.load.effort(t, self.entries.coordinates(q), self.entries.velocities(v))

    def potential(self, q: Coordinates) -> Float[Array, ""] | None:
        return self.load.potential(self.entries.coordinates(q))


@final
class TreeLoadOfPart(AbstractTreeLoad):
    """A load that sees the whole motion of a part."""

    name: str = eqx.field(static=True)
    load: AbstractTreeLoad
    entries: Entries

    @property
    def states(self) -> tuple[str, ...]:
        return self.load.states

    @property
    def inertia(self) -> Array | None:
        return self.load.inertia

    def _whole(self, motion: TreeMotion) -> TreeMotion:
        def generalized(rate: Any, effort: Any) -> Forces:
            own = motion.generalized(lambda x: rate(self._whole(x)), effort)
            return self.entries.velocities(own)

        q, v = self.entries.coordinates(motion.q), self.entries.velocities(motion.v)
        return motion._replace(q=q, v=v, generalized=generalized)

    def rate(self, motion: TreeMotion) -> Array:
        return self.load.rate(self._whole(motion))

    def effort(self, motion: TreeMotion) -> Array:
        return self.load.effort(self._whole(motion))

    def state_rate(self, motion: TreeMotion) -> Array:
        return self.load.state_rate(self._whole(motion))

    def coordinate_force(self, t: Time, q: Coordinates, v: Velocities, z: Array) -> Forces | None:
        whole = self.entries.coordinates(q), self.entries.velocities(v)
        found = self.load.coordinate_force(t, *whole, z)
        return None if found is None else found[np.array(self.entries.v, int)]


@final
class ConstraintOfPart(AbstractConstraint):
    """A constraint on a part."""

    name: str = eqx.field(static=True)
    constraint: AbstractConstraint
    entries: Entries

    @property
    def kind(self) -> Kind:
        return self.constraint.kind

    def position_error(self, t: Time, q: Coordinates) -> Array | None:
        return self.constraint.position_error(t, self.entries.coordinates(q))

    def velocity_error(self, t: Time, q: Coordinates, v: Velocities) -> Array | None:
        return self.constraint.velocity_error(t, self.entries.coordinates(q), self.entries.velocities(v))

    def acceleration_rows(self, t: Time, q: Coordinates, v: Velocities) -> tuple[Array, Array] | None:
        found = self.constraint.acceleration_rows(t, self.entries.coordinates(q), self.entries.velocities(v))
        return None if found is None else (found[0][..., np.array(self.entries.v, int)], found[1])
