"""Where bodies are, for contacts: in absolute coordinates, and in those of a tree."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._misc._types import Coordinates, Velocities
from ._bodies import GROUND
from ._contact_rows import AbstractBodyKinematics
from ._coordinates import AbstractCoordinates, GroundCoordinates
from ._each_body import call_each_body
from ._mechanism import Mechanism, Placements, Twists
from ._moving_bodies import flat_twist
from ._tree_layout import Order
from ._tree_loops import ends, locate_bodies, own_columns, placements_by_name, twists_of
from ._tree_place import cast_arrays, chains_of, moving
from ._vmap_by_structure import vmap_by_structure


@final
class AbsolutePlaces(AbstractBodyKinematics):
    """Where bodies are in absolute coordinates."""

    mechanism: Mechanism
    parts: dict[str, AbstractCoordinates]

    def described(self, dtype: jnp.dtype) -> Mechanism:
        return cast_arrays(self.mechanism, dtype)

    def _parts(self, names: Iterable[str]) -> dict[str, AbstractCoordinates]:
        ground = GroundCoordinates(dimension=self.mechanism.dimension)
        return {name: ground if name == GROUND else self.parts[name] for name in names}

    def placements(self, names: Iterable[str], q: Coordinates) -> Placements:
        return call_each_body("placement", self._parts(names), q)

    def moving(self, names: Iterable[str], q: Coordinates, v: Velocities) -> tuple[Placements, Twists]:
        return self.placements(names, q), call_each_body("twist", self._parts(names), q, v)

    def columns(self, names: Sequence[str], q: Coordinates) -> Float[Array, "bodies s w"]:
        parts = list(self._parts(names).values())
        width, items = max(part.sizes[1] for part in parts), []
        for part in parts:
            alone, n_q = dataclasses.replace(part, q_start=0, v_start=0), part.sizes[0]
            items.append((alone, q[part.q_start : part.q_start + n_q]))

        def of_one(part: AbstractCoordinates, own: Array) -> Array:
            twist = lambda v: flat_twist(part.twist(own, v))
            return jax.jacfwd(twist)(jnp.zeros(part.sizes[1], q.dtype))

        found = []
        for part, moved in zip(parts, vmap_by_structure(of_one, items), strict=True):
            found.append(jnp.pad(moved, ((0, 0), (0, width - part.sizes[1]))))
        return jnp.stack(found)

    def velocity_numbers(self, names: Sequence[str]) -> Int[np.ndarray, "bodies w"]:
        parts = self._parts(names).values()
        all_of_one = np.arange(max(x.sizes[1] for x in parts))
        return np.stack([np.where(all_of_one < x.sizes[1], x.v_start + all_of_one, 0) for x in parts])

    def velocity_counts(self, names: Sequence[str]) -> Int[np.ndarray, " bodies"]:
        return np.array([x.sizes[1] for x in self._parts(names).values()])


@final
class TreePlaces(AbstractBodyKinematics):
    """Where bodies are in the coordinates of a tree."""

    mechanism: Mechanism
    order: Order = eqx.field(static=True)

    def described(self, dtype: jnp.dtype) -> Mechanism:
        return cast_arrays(self.mechanism, dtype)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(x for x in self.order.labels if x in self.order.velocity_labels)

    @property
    def slides(self) -> tuple[str, ...]:
        return self.order.slides

    def coordinate(self, label: str) -> tuple[int, int] | None:
        labels, rates = self.order.labels, self.order.velocity_labels
        return (labels.index(label), rates.index(label)) if label in self.labels else None

    def _numbers(self, names: Iterable[str]) -> tuple[int, ...]:
        wanted = set(names)
        return tuple(i for i, body in enumerate(self.mechanism.bodies) if body.name in wanted)

    def placements(self, names: Iterable[str], q: Coordinates) -> Placements:
        mechanism, numbers = self.described(q.dtype), self._numbers(names)
        found = ends(chains_of(mechanism, self.order.layout), q, bodies=numbers)
        return placements_by_name(mechanism, numbers, found)

    def moving(self, names: Iterable[str], q: Coordinates, v: Velocities) -> tuple[Placements, Twists]:
        mechanism, numbers = self.described(q.dtype), self._numbers(names)
        chains = chains_of(mechanism, self.order.layout)
        posture, found = locate_bodies(chains, q, numbers)
        own = [mechanism.bodies[i] for i in numbers]
        twists = twists_of(chains, posture, found[1], v, numbers)
        return placements_by_name(mechanism, numbers, found), moving(own, twists)

    def columns(self, names: Sequence[str], q: Coordinates) -> Float[Array, "bodies s w"]:
        mechanism, numbers = self.described(q.dtype), self._numbers(names)
        chains = chains_of(mechanism, self.order.layout)
        posture, found = locate_bodies(chains, q, numbers)
        of, _ = own_columns(chains, posture, found[1], numbers)
        parts = (
            (of.omega, of.velocity) if mechanism.dimension == 3 else (of.omega[..., 2:], of.velocity[..., :2])
        )
        stacked = jnp.swapaxes(jnp.concatenate(parts, axis=2), 1, 2)
        by_name = {mechanism.bodies[i].name: x for i, x in zip(numbers, stacked, strict=True)}
        still = jnp.zeros(stacked.shape[1:], q.dtype)
        return jnp.stack([by_name.get(name, still) for name in names])

    def velocity_numbers(self, names: Sequence[str]) -> Int[np.ndarray, "bodies w"]:
        numbers = self._numbers(names)
        own, _ = self.order.layout.moving_velocities(numbers)
        by_name = {self.mechanism.bodies[i].name: x for i, x in zip(numbers, own, strict=True)}
        return np.stack([by_name.get(name, np.zeros_like(own[0])) for name in names])

    def velocity_counts(self, names: Sequence[str]) -> Int[np.ndarray, " bodies"]:
        numbers = self._numbers(names)
        counts = self.order.layout.moved(numbers).sum(1)
        by_name = {self.mechanism.bodies[i].name: k for i, k in zip(numbers, counts, strict=True)}
        return np.array([by_name.get(name, 0) for name in names])
