"""Contacts of shapes as kinds: one program for all pairs that are alike, which takes a pair by its number.

Of the two bodies of a pair placements and twists are looked up in arrays in memory (`_moving_bodies`).
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._contact._kinds import ContactMotion, Instant
from .._formula._contact_list import entry, item, loop, put
from .._misc._modules import replace_unchecked
from ._contact_pairs import is_closed_form
from ._contact_shapes import Capsule, Cuboid, HalfSpace, HeightField, Sphere, Surface
from ._contact_table import PairsOfShapes, TabulatedContacts, stack_alike, take_rows
from ._contacts import Contact
from ._convex_kinds import ConvexKind, convex_kind
from ._field_kinds import FieldKind, field_kind
from ._moving_bodies import (
    AbstractPairKind,
    BodyRow,
    DividedBodies,
    MovingBodies,
    contact_motion,
    contact_row,
    gap_acceleration,
)
from ._nearness import Nearness, no_nearness
from ._placement import norm
from ._slips import SlipForm
from ._thin_bodies import bow, share_without_passing
from ._vmap_by_structure import form_of


@final
class ShapeKind(AbstractPairKind):
    """Contacts of pairs of shapes that are alike.

    - `stacked`: the contacts, their arrays stacked.
    - `contacts`: which of all contacts each is.
    - `margin`: of the sizes of both bodies, beyond which they are far apart.
    """

    places: DividedBodies
    stacked: Contact
    bodies: tuple[str, ...] = eqx.field(static=True)
    pairs: tuple[tuple[int, int], ...] = eqx.field(static=True)
    contacts: tuple[int, ...] = eqx.field(static=True)
    margin: float = eqx.field(static=True, default=0.02)

    @property
    def form(self) -> SlipForm:
        return self.stacked.form

    def _contact(self, i: Array, dtype: jnp.dtype) -> Contact:
        arrays, rest = eqx.partition(self.stacked, eqx.is_array)
        return eqx.combine(jax.tree.map(lambda x: item(jnp.asarray(x), i).astype(dtype), arrays), rest)

    @property
    def seeks(self) -> bool:
        """Closed forms are computed, but of what is near only; surfaces need not tell how far that is."""
        return self.margin < np.inf and not isinstance(self.stacked.shapes[0], Surface)

    def everywhere(self) -> "ShapeKind":
        """The same with the gaps of what is far apart."""
        return dataclasses.replace(self, margin=np.inf)

    def nothing(self, at: Instant) -> Nearness | None:
        if not self.seeks:
            return None
        placements, dtype = self.places.locate(self.bodies, at), at.q.dtype

        def reaches(i: Array, reach: Array) -> Array:
            own = zip(
                self._numbers(i), self._contact(i, dtype).shapes, self._ends(placements, i), strict=True
            )
            for body, shape, place in own:
                if not isinstance(shape, HalfSpace):
                    corners, radius = shape.corners(), getattr(shape, "radius", 0.0)  # pyright: ignore
                    for x in corners:
                        farthest = norm(x - place.centre) + radius
                        reach = put(reach, body, jnp.maximum(entry(reach, body), farthest))
            return reach

        reach = loop(len(self.contacts), reaches, jnp.zeros(len(self.bodies), dtype))
        return no_nearness(placements, len(self.contacts), reach)

    def unsought(self, at: Instant, before: Nearness | None) -> Nearness | None:
        return before.move_to(self.places.locate(self.bodies, at)) if before and self.seeks else None

    def seek(self, at: Instant, unsought: Nearness | None) -> Nearness | None:
        if unsought is None:
            return None

        def look(i: Array, _: None) -> tuple[None, Array, Array]:
            contact, ends = self._contact(i, at.q.dtype), self._ends(unsought.placements, i)
            first, second = (entry(unsought.reach, b) for b in self._numbers(i))
            margin = self.margin * (first + second)
            return None, contact.meeting(*ends).gap[0], margin

        return unsought.find(self._numbers, look, None)[0]

    @property
    def is_thin(self) -> bool:
        """Half-spaces and surfaces are not."""
        return not isinstance(self.stacked.shapes[0], HalfSpace | Surface)

    def share_without_passing(self, instants: Sequence[Instant], before: Nearness, after: Nearness) -> Array:
        each, dtype = [self.places.locate(self.bodies, at) for at in instants], instants[0].q.dtype

        def one(i: Array, share: Array) -> Array:
            contact = self._contact(i, dtype)
            start, *later = (self._ends(x, i) for x in each)
            n, shapes = contact.meeting(*start).normal[0], contact.shapes
            corners = [x.corners() for x in shapes]  # pyright: ignore[reportAttributeAccessIssue]
            inradii = [x.inradius for x in shapes]  # pyright: ignore[reportAttributeAccessIssue]
            radii = sum(getattr(x, "radius", 0.0) for x in shapes)

            def apart(ends: Any) -> Array:
                a, b = (jax.vmap(place.point)(x) @ n for place, x in zip(ends, corners, strict=True))
                return jnp.min(b) - jnp.max(a) - radii

            for ends in later:
                ways = zip(corners, start, ends, strict=True)
                bows = sum(bow(0.5 * norm(x[-1] - x[0]), *way) for x, *way in ways)
                share = jnp.minimum(share, share_without_passing(apart(start), apart(ends) - bows, inradii))
            return share

        # What came near within the step is among what may come near if bodies move as far again. To read what was known
        # before it would have that copied.
        return after.over_coming([*each, after.placements], self._numbers, one, jnp.ones((), dtype))

    def gaps(self, at: Instant, kept: Nearness | None, so_far: Array) -> Array:
        places = self.places.locate(self.bodies, at)
        which, dtype = jnp.asarray(np.array(self.contacts)), at.q.dtype

        def one(i: Array, so_far: Array) -> Array:
            gap = self._contact(i, dtype).meeting(*self._ends(places, i)).gap[0]
            return put(so_far, entry(which, i), gap)

        return self.each(kept, one, so_far)

    def each(self, kept: Nearness | None, body: Callable[[Array, Any], Any], state: Any) -> Any:
        if kept is None:
            return loop(len(self.contacts), body, state)
        return kept.over_near(body, state)

    def motion(self, moving: MovingBodies, kept: Nearness | None, i: Array) -> ContactMotion:
        places = self._ends(moving.placements, i)
        meeting = self._contact(i, moving.twists.dtype).meeting(*places)
        return contact_motion(meeting.gap[0], meeting.point[0], places, self._numbers(i), moving)

    def acceleration(self, moving: MovingBodies, kept: Nearness | None, i: Array) -> Array:
        contact = self._contact(i, moving.twists.dtype)
        gap = lambda *places: contact.meeting(*places).gap[0]
        return gap_acceleration(gap, self._ends(moving.placements, i), self._numbers(i), moving)

    def rows(self, moving: MovingBodies, kept: Nearness | None, i: Array) -> BodyRow:
        numbers, dtype = self._numbers(i), moving.twists.dtype
        contact = self._contact(i, dtype)
        places = self._ends(moving.placements, i)
        meeting = contact.meeting(*places)
        gap = lambda *places: contact.meeting(*places).gap[0]
        slip = (contact.slip_axes(places, meeting.normal[0]), contact.slip_scale) if self.tangents else None
        return contact_row(gap, meeting.point[0], slip, places, numbers, moving)


def _balls_of(shape: Any) -> list[Sphere]:
    """What of a shape touches a plane: a ball itself, the ends of a capsule, or the corners of a box."""
    if isinstance(shape, Capsule):
        return [Sphere(shape.body, x, shape.radius) for x in (shape.start, shape.end)]
    return [Sphere(shape.body, x) for x in shape.corners()] if isinstance(shape, Cuboid) else [shape]


def kinds_of_shapes(
    places: DividedBodies, contacts: TabulatedContacts, first: int, names: tuple[str, ...]
) -> list[ShapeKind | ConvexKind | FieldKind]:
    """Contacts by kinds: those of closed forms by their forms, those of convex bodies together."""
    number, shapes, kinds = {name: i for i, name in enumerate(names)}, contacts.shapes, list[Any]()
    forms, balls = [form_of(x) for x in shapes], functools.cache(lambda b: _balls_of(shapes[b]))
    for table, firsts in zip(contacts.tables, contacts.firsts(), strict=True):
        groups: dict[Any, list[int]] = {}
        for i, (a, b) in enumerate(table.pairs):
            if is_closed_form(shapes[a], shapes[b]):
                key = (
                    _shape_kind,
                    forms[a],
                    form_of(balls(b)[0]) if isinstance(shapes[a], HalfSpace) else forms[b],
                )
            else:
                is_field, on_plane = (isinstance(shapes[a], x) for x in (HeightField, HalfSpace))
                key = field_kind if is_field else convex_kind, on_plane
            groups.setdefault(key, []).append(i)
        counts = table.counts(shapes)
        for (make, *_), own in groups.items():
            pairs = [table.pairs[i] for i in own]
            bodies = tuple((number[shapes[a].body], number[shapes[b].body]) for a, b in pairs)
            rows, numbers = take_rows(table.stacked, np.array(own)), first + firsts[own]
            group = PairsOfShapes(rows, shapes, pairs, names, bodies, numbers, counts[own])
            kinds.append(make(places, group))
    return kinds


def _shape_kind(places: DividedBodies, of: PairsOfShapes) -> ShapeKind:
    firsts, seconds = zip(*((of.shapes[a], of.shapes[b]) for a, b in of.pairs), strict=True)
    each = np.arange(len(firsts))
    if isinstance(firsts[0], HalfSpace):  # each place is a contact of its own, of a ball
        balls = {id(x): _balls_of(x) for x in seconds}
        seconds, each = [ball for x in seconds for ball in balls[id(x)]], np.repeat(each, of.counts)
    contact = replace_unchecked(
        take_rows(of.contact, each), shapes=(take_rows(stack_alike(firsts), each), stack_alike(seconds))
    )
    bodies, first = tuple(of.bodies[i] for i in each), np.cumsum([0, *of.counts])[:-1]
    numbers = of.numbers[each] + np.arange(each.size) - first[each]
    return ShapeKind(  # pyright: ignore[reportCallIssue]
        places=places, stacked=contact, bodies=of.names, pairs=bodies, contacts=tuple(numbers.tolist())
    )
