"""Where bodies are, for contacts: in absolute coordinates, and in those of a tree."""

import dataclasses
from collections.abc import Hashable, Iterable
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._formula._members import Members
from .._misc._types import Coordinates, Velocities
from ._bodies import GROUND
from ._contact_rows import AbstractBodyKinematics
from ._coordinates import AbstractCoordinates, GroundCoordinates, call_each_body
from ._divide import divide_tree
from ._mechanism import Mechanism, Placements, Twists
from ._moving_bodies import AbstractBodies, DividedBodies, flat_twist
from ._placement import AnyPlacement
from ._tree_layout import Order
from ._tree_motion import TreeLayout
from ._tree_place import (
    TreeAt,
    cast_arrays,
    locate_ends,
    make_chains,
    own_columns,
    place_bodies,
    placements_by_name,
    twists_by_name,
)
from ._vmap_by_structure import form_of, stack_trees


@final
class AbsoluteBodies(AbstractBodies):
    """Bodies in absolute coordinates that are alike."""

    members: Members
    names: tuple[tuple[str, ...], ...] = eqx.field(static=True)

    def locate(self, one: AbstractCoordinates, q: Coordinates) -> list[AnyPlacement]:
        return [one.placement(q)]

    def move(
        self, one: AbstractCoordinates, q: Coordinates, v: Velocities, q_rate: Coordinates, a: Velocities
    ) -> list[tuple[Array, Array]]:
        return [jax.jvp(lambda q, v: flat_twist(one.twist(q, v)), (q, v), (q_rate, a))]

    def columns(self, one: AbstractCoordinates, q: Coordinates) -> Float[Array, "bodies s w"]:
        twist = lambda v: flat_twist(one.twist(q, v))
        return jax.jacfwd(twist)(jnp.zeros(len(self.members.v[0]), q.dtype))[None]

    @property
    def moved_by(self) -> tuple[tuple[int, ...], ...]:
        return (tuple(range(len(self.members.v[0]))),)


@final
class TreeBodies(AbstractBodies):
    """The bodies of parts of a tree that are alike."""

    members: Members
    names: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    layout: TreeLayout = eqx.field(static=True)

    @eqx.filter_jit
    def locate(self, one: Mechanism, q: Coordinates) -> list[AnyPlacement]:
        one = cast_arrays(one, q.dtype)
        numbers = tuple(range(len(one.bodies)))
        return list(place_bodies(one.bodies, *locate_ends(make_chains(one, self.layout), q, bodies=numbers)))

    def move(
        self, one: Mechanism, q: Coordinates, v: Velocities, q_rate: Coordinates, a: Velocities
    ) -> list[tuple[Array, Array]]:
        at = TreeAt(one, self.layout, q)
        rates = at.rates(v, a)
        now, later = (twists_by_name(at.bodies, x) for x in (rates.twist, rates.twist_rate))
        return [(flat_twist(now[body.name]), flat_twist(later[body.name])) for body in at.bodies]

    def columns(self, one: Mechanism, q: Coordinates) -> Float[Array, "bodies s w"]:
        at = TreeAt(one, self.layout, q)
        of, _ = own_columns(at.chains, at.posture, at.centres, at.numbers)
        in_space = one.dimension == 3
        parts = (of.omega, of.velocity) if in_space else (of.omega[..., 2:], of.velocity[..., :2])
        return jnp.swapaxes(jnp.concatenate(parts, axis=2), 1, 2)

    @property
    def moved_by(self) -> tuple[tuple[int, ...], ...]:
        moved = self.layout.moved(tuple(range(len(self.names[0]))))
        return tuple(tuple(np.flatnonzero(x).tolist()) for x in moved)


@final
class AbsolutePlaces(AbstractBodyKinematics):
    """Where bodies are in absolute coordinates."""

    mechanism: Mechanism
    parts: dict[str, AbstractCoordinates]

    def cast_mechanism(self, dtype: jnp.dtype) -> Mechanism:
        return cast_arrays(self.mechanism, dtype)

    def coordinates(self, names: Iterable[str]) -> dict[str, AbstractCoordinates]:
        """The coordinates of some bodies, by name."""
        ground = GroundCoordinates(dimension=self.mechanism.dimension)
        return {name: ground if name == GROUND else self.parts[name] for name in names}

    def placements(self, names: Iterable[str], q: Coordinates) -> Placements:
        return call_each_body("placement", self.coordinates(names), q)

    def place_and_move(
        self, names: Iterable[str], q: Coordinates, v: Velocities
    ) -> tuple[Placements, Twists]:
        return self.placements(names, q), call_each_body("twist", self.coordinates(names), q, v)

    def divide(self) -> DividedBodies:
        alike: dict[Hashable, list[tuple[AbstractCoordinates, AbstractCoordinates, str]]] = {}
        for name, part in self.parts.items():
            alone = dataclasses.replace(part, q_start=0, v_start=0)
            alike.setdefault(form_of(alone), []).append((alone, part, name))
        divided = []
        for own in alike.values():
            alone, parts, names = zip(*own, strict=True)
            one = alone[0] if len(own) == 1 else stack_trees(alone)
            q, v = (
                tuple(tuple(range(start, start + n)) for start, n in x)
                for x in (
                    [(x.q_start, x.sizes[0]) for x in parts],
                    [(x.v_start, x.sizes[1]) for x in parts],
                )
            )
            divided.append(AbsoluteBodies(Members(one, q, v), tuple((name,) for name in names)))
        return DividedBodies(tuple(divided), self.mechanism.dimension)


@final
class TreePlaces(AbstractBodyKinematics):
    """Where bodies are in the coordinates of a tree."""

    mechanism: Mechanism
    order: Order = eqx.field(static=True)

    def cast_mechanism(self, dtype: jnp.dtype) -> Mechanism:
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
        mechanism, numbers = self.cast_mechanism(q.dtype), self._numbers(names)
        located = locate_ends(make_chains(mechanism, self.order.layout), q, bodies=numbers)
        return placements_by_name(mechanism, numbers, located)

    def place_and_move(
        self, names: Iterable[str], q: Coordinates, v: Velocities
    ) -> tuple[Placements, Twists]:
        at = TreeAt(self.mechanism, self.order.layout, q, self._numbers(names))
        return at.placements, at.twists(v)

    def divide(self) -> DividedBodies:
        bodies, divided = self.mechanism.bodies, []
        for part in divide_tree(self.mechanism, (), loaded=False):
            names = tuple(tuple(bodies[i].name for i in own) for own in part.bodies)
            divided.append(TreeBodies(part.members, names, part.order.layout))
        return DividedBodies(tuple(divided), self.mechanism.dimension)
