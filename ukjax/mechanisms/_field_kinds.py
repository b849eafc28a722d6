"""Contacts of height fields and convex bodies as one kind: one program that takes any pair by its number.

Where they touch is sought once an instant: of each pair some places (`_height_fields`), each with the triangle it is on.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._contact._kinds import Instant
from .._formula._contact_list import entry, item, loop, put, put_item
from .._misc._blank import blank
from .._misc._types import as_jax, module_for
from ._contact_table import PairsOfShapes
from ._convex import Core, join_cores, pick_core, unpack
from ._height_fields import (
    PLACES,
    Field,
    Slot,
    find_slots,
    gap_of,
    least_gap,
    no_slots,
    slot_like,
)
from ._moving_bodies import AbstractSoughtKind, DividedBodies, SoughtContact
from ._placement import AnyPlacement, norm
from ._slips import SlipForm
from ._thin_bodies import bow, share_without_passing


class _Places(NamedTuple):
    """Where bodies are at an instant, and the places of each pair, one after the other (pairs * places, size)."""

    placements: AnyPlacement
    records: Array


@final
class FieldKind(AbstractSoughtKind):
    """Contacts of pairs of height fields and convex bodies."""

    places: DividedBodies
    heights: Array  # of all fields, one after the other
    # `fields`, `cores`: of each pair all but these, stacked, and joined.
    fields: Field
    cores: Core
    directions: Array
    scales: Array | None
    form: SlipForm = eqx.field(static=True)
    bodies: tuple[str, ...] = eqx.field(static=True)
    pairs: tuple[tuple[int, int], ...] = eqx.field(static=True)
    firsts: tuple[int, ...] = eqx.field(static=True)  # of each pair which of all contacts its first is
    # `margin`: of the size of a body, beyond which places are not sought.
    margin: float = eqx.field(static=True, default=0.02)

    def everywhere(self) -> "FieldKind":
        """The same with the gaps of bodies that are nearer to a field than they are large."""
        return dataclasses.replace(self, margin=1.0)

    @property
    def contacts(self) -> tuple[int, ...]:
        """Which of all contacts each is."""
        return tuple(n + r for n in self.firsts for r in range(PLACES))

    def _pair_of(self, i: Array) -> Array:
        return entry(jnp.asarray(np.repeat(np.arange(len(self.pairs)), PLACES)), i)

    def _shapes(self, pair: Array, dtype: jnp.dtype) -> tuple[Field, Core]:
        real = lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x
        fields = self.fields._replace(heights=None)  # pyright: ignore[reportArgumentType]
        field = jax.tree.map(lambda x: real(item(jnp.asarray(x), pair)), fields)
        heights = jnp.asarray(self.heights).astype(dtype)
        return field._replace(heights=heights), pick_core(self.cores, pair, dtype)

    def _like(self, placements: Any, dtype: jnp.dtype) -> Slot:
        field, core = self._shapes(zero := jnp.asarray(0), dtype)
        return slot_like(core, self._ends(placements, zero), field)  # pyright: ignore[reportArgumentType]

    def _read(self, kept: _Places, i: Array) -> Slot:
        return unpack(item(kept.records, i), self._like(kept.placements, kept.records.dtype))

    def nothing(self, at: Instant) -> _Places:
        placements = self.places.locate(self.bodies, at)
        field, core = self._shapes(zero := jnp.asarray(0), at.q.dtype)
        one = no_slots(core, self._ends(placements, zero), field)  # pyright: ignore[reportArgumentType]
        return _Places(placements, jnp.zeros((len(self.pairs) * PLACES, one.shape[1]), at.q.dtype))

    def unsought(self, at: Instant, before: _Places) -> _Places:
        return before._replace(placements=self.places.locate(self.bodies, at))

    def seek(self, at: Instant, unsought: _Places) -> _Places:
        placements, dtype = unsought.placements, at.q.dtype

        def one(pair: Array, records: Array) -> Array:
            (field, core), ends = self._shapes(pair, dtype), self._ends(placements, pair)
            before = jnp.stack([item(records, pair * PLACES + k) for k in range(PLACES)])
            found = find_slots(field, core, ends, self.margin * core.size, before)  # pyright: ignore[reportArgumentType]
            return loop(PLACES, lambda k, x: put_item(x, pair * PLACES + k, item(found, k)), records)

        return unsought._replace(records=loop(len(self.pairs), one, unsought.records))

    @property
    def is_thin(self) -> bool:
        """Of a body that is deep within the ground it is not known where it came from."""
        return True

    def share_without_passing(self, instants: Sequence[Instant], kept: _Places, after: _Places) -> Array:
        each, dtype = [self.places.locate(self.bodies, at) for at in instants], instants[0].q.dtype
        gaps = self.gaps(instants[0], kept, blank(max(self.contacts) + 1, dtype))
        firsts = jnp.asarray(np.array(self.firsts))

        def one(pair: Array, share: Array) -> Array:
            field, core = self._shapes(pair, dtype)
            least = lambda k, x: jnp.minimum(x, entry(gaps, entry(firsts, pair) + k))
            gap = loop(PLACES, least, jnp.full((), jnp.inf, dtype))
            start, *later = (self._ends(x, pair) for x in each)
            place = lambda ends: field.local(ends[0], ends[1].point(core.origin))
            for ends in later:
                # The ground is not convex, so it may be struck from any side.
                far = norm(place(ends) - place(start)) + bow(core.size - core.radius, start[1], ends[1])
                share = jnp.minimum(share, share_without_passing(gap, gap - far, [core.inradius] * 2))
            return share

        return loop(len(self.pairs), one, jnp.ones((), dtype))

    def gaps(self, at: Instant, kept: _Places, so_far: Array) -> Array:
        firsts, now = jnp.asarray(np.array(self.firsts)), self.places.locate(self.bodies, at)

        def one(pair: Array, so_far: Array) -> Array:
            (field, core), ends = self._shapes(pair, at.q.dtype), self._ends(now, pair)
            none = least_gap(field, core, ends, self.margin * core.size)

            def of_place(k: Array, so_far: Array) -> Array:
                slot = self._read(kept, pair * PLACES + k)
                look = lambda _, x: gap_of(slot, field, core, ends)[0]
                gap = loop(slot.there.astype(k.dtype), look, none)
                return put(so_far, entry(firsts, pair) + k, gap)

            return loop(jnp.asarray(PLACES), of_place, so_far)

        return loop(len(self.pairs), one, so_far)

    def each(self, kept: _Places, body: Callable[[Array, Any], Any], state: Any) -> Any:
        return loop(len(self.contacts), body, state)

    def _seek_contact(self, kept: _Places, i: Array, *, held: bool = False) -> SoughtContact:
        pair, slot = self._pair_of(i), self._read(kept, i)
        (field, core), ends = self._shapes(pair, kept.records.dtype), self._ends(kept.placements, pair)
        return SoughtContact(pair, slot.there, lambda *x: gap_of(slot, field, core, x), ends, core.size)


def field_kind(places: DividedBodies, of: PairsOfShapes) -> FieldKind:
    """Contacts of height fields as one kind."""
    fields, cores = zip(*((of.shapes[a].field(), of.shapes[b].core()) for a, b in of.pairs), strict=True)  # pyright: ignore
    stack = lambda items: jax.tree.map(lambda *x: as_jax(module_for(*x).stack(x)), *items)
    heights = [x.heights for x in fields]
    begin = np.cumsum([0, *(x.size for x in heights)])[:-1]
    own_fields = [x._replace(heights=None, first=n) for x, n in zip(fields, begin, strict=True)]
    return FieldKind(
        places=places,
        heights=as_jax(module_for(*heights).concatenate(heights)),
        fields=stack(own_fields),
        cores=join_cores(cores),
        directions=of.contact.direction,
        scales=of.contact.slip_scale,
        form=of.contact.form,
        bodies=of.names,
        pairs=of.bodies,
        firsts=tuple(of.numbers.tolist()),
    )
