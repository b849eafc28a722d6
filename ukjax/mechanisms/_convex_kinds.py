"""Contacts of convex bodies as one kind: one program that takes any pair by its number, whatever the two shapes are.

Where a pair touches is sought once an instant and kept in memory; its contacts are smooth functions of that. Pairs that
are far apart are not looked at: of which not even the balls about both bodies touch, and those that cannot have come near
since they were looked at, by how far their bodies have moved.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .._contact._kinds import Instant
from .._formula._contact_list import entry, item, loop, put, put_item
from .._misc._blank import blank
from ._contact_shapes import HalfSpace
from ._contact_table import PairsOfShapes
from ._convex import Core, Pair, join_cores, pack, packed_size, pick_core, unpack
from ._convex_features import no_parts
from ._convex_touch import Touch, touch_of
from ._moving_bodies import AbstractSoughtKind, DividedBodies, SoughtContact
from ._nearness import Nearness, no_nearness
from ._placement import norm
from ._slips import SlipForm
from ._thin_bodies import bow, share_without_passing


class _Touches(NamedTuple):
    """What is known of all pairs at an instant."""

    pairs: Nearness  # which are near
    records: Array  # of each its touch, if it is near, else the last one, or zeros (pairs, size)
    # `last`: of these normals, and the numbers of two points there (pairs, 5). To read it where a step has
    # changed the records spares a copy of them.
    last: Array


@final
class ConvexKind(AbstractSoughtKind):
    """Contacts of pairs of convex bodies, or of half-spaces and convex bodies."""

    places: DividedBodies
    cores: Core  # of all shapes, joined
    directions: Array
    scales: Array | None
    bodies: tuple[str, ...] = eqx.field(static=True)
    pairs: tuple[tuple[int, int], ...] = eqx.field(static=True)
    # `shapes`: of each pair the places of its shapes among all.
    shapes: tuple[tuple[int, int], ...] = eqx.field(static=True)
    # `firsts`, `counts`: of each pair which of all contacts its first is, and how many there are.
    firsts: tuple[int, ...] = eqx.field(static=True)
    counts: tuple[int, ...] = eqx.field(static=True)
    form: SlipForm = eqx.field(static=True)
    on_plane: bool = eqx.field(static=True)  # whether the first shape is a half-space
    # `margin`: of the sizes of a pair, beyond which the distance of the balls about them stands for the gap.
    margin: float = eqx.field(static=True, default=0.02)

    def everywhere(self) -> "ConvexKind":
        """The same with the gaps of pairs that are far apart."""
        return dataclasses.replace(self, margin=np.inf)

    @property
    def contacts(self) -> tuple[int, ...]:
        """Which of all contacts each is."""
        return tuple(n + r for n, count in zip(self.firsts, self.counts, strict=True) for r in range(count))

    def _pair_and_row(self, i: Array) -> tuple[Array, Array]:
        """Of contact i the pair, and which of its contacts it is."""
        all_rows = [(pair, r) for pair, count in enumerate(self.counts) for r in range(count)]
        pairs, rows = (jnp.asarray(np.array(x)) for x in zip(*all_rows, strict=True))
        return entry(pairs, i), entry(rows, i)

    def _cores(self, i: Array, dtype: jnp.dtype) -> tuple[Core, Core]:
        table = jnp.asarray(np.array(self.shapes).reshape(-1))
        one = lambda place: pick_core(self.cores, entry(table, place), dtype)
        return one(2 * i), one(2 * i + 1)

    def _pair(self, placements: Any, i: Array, dtype: jnp.dtype) -> Pair:
        return Pair(self._cores(i, dtype), self._ends(placements, i))

    def _bound(self, pair: Pair) -> Array:
        """No more than the gap: by the balls about both bodies, or the half-space and a ball."""
        (a, b), (first, second) = pair.cores, pair.places
        x, y = first.point(a.origin), second.point(b.origin)
        if self.on_plane:
            return jnp.dot(first.vector(a.axis), y - x) - b.size
        return norm(y - x) - a.size - b.size

    def _margin(self, pair: Pair) -> Array:
        sizes = pair.cores[1].size if self.on_plane else pair.cores[0].size + pair.cores[1].size
        return self.margin * sizes

    def _touch_like(self, placements: Any, dtype: jnp.dtype) -> Touch:
        of_type = lambda x: dtype if jnp.issubdtype(x.dtype, jnp.floating) else x.dtype
        one = lambda x: jax.ShapeDtypeStruct(x.shape[1:], of_type(x))
        whole = lambda x: jax.ShapeDtypeStruct(x.shape, of_type(x))
        points, links = whole(self.cores.points), whole(self.cores.links)
        core = jax.tree.map(one, self.cores)._replace(points=points, links=links)
        find = lambda *pair: touch_of(Pair(*pair), self.on_plane, no_parts(dtype))
        return jax.eval_shape(find, (core, core), (jax.tree.map(one, placements),) * 2)

    def nothing(self, at: Instant) -> _Touches:
        placements = self.places.locate(self.bodies, at)
        size = packed_size(self._touch_like(placements, at.q.dtype))
        zeros = lambda *shape: jnp.zeros(shape, at.q.dtype)

        def reaches(i: Array, reach: Array) -> Array:
            ends = self._numbers(i), self._cores(i, at.q.dtype), self._ends(placements, i)
            for body, core, place in zip(*ends, strict=True):
                farthest = norm(core.origin - place.centre) + core.size
                reach = put(reach, body, jnp.maximum(entry(reach, body), farthest))
            return reach

        pairs, none = len(self.pairs), zeros(len(self.bodies))
        reach = none if self.on_plane else loop(pairs, reaches, none)
        found = lax.stop_gradient((zeros(pairs, size), zeros(pairs, 5)))
        return _Touches(no_nearness(placements, pairs, reach), *found)

    def unsought(self, at: Instant, before: _Touches) -> _Touches:
        placements = self.places.locate(self.bodies, at)
        if self.on_plane:
            return before._replace(pairs=before.pairs._replace(placements=placements))
        return before._replace(pairs=before.pairs.move_to(placements))

    def seek(self, at: Instant, unsought: _Touches) -> _Touches:
        dtype, placements = at.q.dtype, unsought.pairs.placements

        def look(i: Array, touches: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array, Array]:
            pair = self._pair(placements, i, dtype)
            margin, bound = self._margin(pair), self._bound(pair)

            def find(_: Array, so_far: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                records, last, _ = so_far
                former = self._read(unsought._replace(records=records), i).parts
                touch = touch_of(pair, self.on_plane, former)
                ends = jnp.stack([touch.parts.a[0], touch.parts.b[0]]).astype(dtype)
                last = put_item(last, i, jnp.append(touch.feature.n, ends))
                return put_item(records, i, pack(touch, dtype)), last, touch.nearest

            records, last, apart = loop((bound < margin).astype(i.dtype), find, (*touches, bound))
            return (records, last), apart, margin

        always, before = self.on_plane or self.margin == np.inf, (unsought.records, unsought.last)
        pairs, touches = unsought.pairs.find(self._numbers, look, before, always=always)
        return _Touches(pairs, *touches)

    def each(self, kept: _Touches, body: Callable[[Array, Any], Any], state: Any) -> Any:
        firsts, counts = (jnp.asarray(np.array(x)) for x in (np.cumsum([0, *self.counts])[:-1], self.counts))

        def one(i: Array, state: Any) -> Any:
            return loop(entry(counts, i), lambda r, state: body(entry(firsts, i) + r, state), state)

        return kept.pairs.over_near(one, state)

    def _last(self, kept: _Touches, i: Array) -> tuple[Array, tuple[Array, Array]]:
        """The normal that was found last of pair i, and points there."""
        n, ends = jnp.split(item(kept.last, i), [3])
        return n, (ends[0].astype(i.dtype), ends[1].astype(i.dtype))

    def _read(self, kept: _Touches, i: Array) -> Touch:
        return unpack(item(kept.records, i), self._touch_like(kept.pairs.placements, kept.records.dtype))

    @property
    def is_thin(self) -> bool:
        """A half-space is not."""
        return not self.on_plane

    def share_without_passing(self, instants: Sequence[Instant], kept: _Touches, after: _Touches) -> Array:
        dtype = instants[0].q.dtype
        each = kept.pairs.placements, *(self.places.locate(self.bodies, at) for at in instants[1:])
        placements = jax.tree.map(lambda *x: jnp.stack(x), *each)

        def one(i: Array, share: Array) -> Array:
            near = entry(kept.pairs.near, i) > 0
            at = lambda k: self._pair(jax.tree.map(lambda x: item(x, k), placements), i, dtype)
            pairs, (a, b) = [at(jnp.asarray(k)) for k in range(len(each))], self._cores(i, dtype)

            def along(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
                """By the normal that was found last, or the one of now."""
                tries, n, *_ = state
                seek = lambda _, n: touch_of(pairs[0], self.on_plane, self._read(after, i).parts).feature.n
                n = loop(tries, seek, n)
                of_instant = lambda k, gaps: put(
                    gaps, k, at(k)._replace(near=ends).apart(n) - a.radius - b.radius
                )
                gaps = loop(len(each), of_instant, blank(len(each), dtype))
                least = share
                for k, pair in enumerate(pairs[1:], 1):
                    ways = zip((a, b), pairs[0].places, pair.places, strict=True)
                    bows = sum(
                        (bow(core.size - core.radius, *way) for core, *way in ways), jnp.zeros((), dtype)
                    )
                    shares = entry(gaps, 0), entry(gaps, k) - bows, (a.inradius, b.inradius)
                    least = jnp.minimum(least, share_without_passing(*shares))
                return tries + 1, n, entry(gaps, 0), least

            # Of what comes near within the step, what was found last may be long ago: bodies may overlap along it.
            says_enough = lambda s: near | ((s[2] > 0) & (s[3] >= share))
            goes_on = lambda s: (s[0] == 0) | ((s[0] == 1) & ~says_enough(s))
            n, ends = self._last(kept, i)
            return lax.while_loop(goes_on, along, (jnp.zeros_like(i), n, share, share))[3]

        return kept.pairs.over_coming(each, self._numbers, one, jnp.ones((), dtype))

    def gaps(self, at: Instant, kept: _Touches, so_far: Array) -> Array:
        firsts, counts = (jnp.asarray(np.array(x)) for x in (self.firsts, self.counts))
        now = self.places.locate(self.bodies, at)

        def one(i: Array, so_far: Array) -> Array:
            touch = self._read(kept, i).hold_rims(self._pair(kept.pairs.placements, i, at.q.dtype))
            pair, first = self._pair(now, i, at.q.dtype), entry(firsts, i)
            gap = lambda r, x: put(x, first + r, touch.gap(pair, r)[0])
            return loop(entry(counts, i), gap, so_far)

        return kept.pairs.over_near(one, so_far)

    def _seek_contact(self, kept: _Touches, i: Array, *, held: bool = False) -> SoughtContact:
        number, r = self._pair_and_row(i)
        pair = self._pair(kept.pairs.placements, number, kept.records.dtype)
        touch = self._read(kept, number)
        there = (entry(kept.pairs.near, number) > 0) & item(touch.there, r)  # of others nothing is kept
        touch = touch.hold_rims(pair) if held else touch
        gap = lambda *places: touch.gap(pair._replace(places=places), r)
        return SoughtContact(number, there, gap, pair.places, pair.cores[1].size)


def convex_kind(places: DividedBodies, of: PairsOfShapes) -> ConvexKind:
    """Contacts of convex bodies as one kind."""
    number = {k: i for i, k in enumerate(dict.fromkeys(k for pair in of.pairs for k in pair))}
    used = [of.shapes[k] for k in number]
    cores = join_cores([x.plane() if isinstance(x, HalfSpace) else x.core() for x in used])
    shapes = tuple((number[a], number[b]) for a, b in of.pairs)
    on_plane, contact = isinstance(used[0], HalfSpace), of.contact
    return ConvexKind(
        places=places,
        cores=cores,
        directions=contact.direction,
        scales=contact.slip_scale,
        bodies=of.names,
        pairs=of.bodies,
        shapes=shapes,
        firsts=tuple(of.numbers.tolist()),
        counts=tuple(of.counts.tolist()),
        form=contact.form,
        on_plane=on_plane,
    )
