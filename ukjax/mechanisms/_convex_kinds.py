"""Contacts of convex bodies as one kind: one program that takes any pair by its number, whatever the two shapes are.

Where a pair touches is sought once an instant and kept in memory; its contacts are smooth functions of that. Pairs of
which not even the balls about both bodies touch are not looked at.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._contact._kinds import ContactMotion, Instant, Motion
from .._formula._contact_list import entry, item, loop, put, put_item
from .._misc._types import as_jax, is_traced, module_for
from ._contact_shapes import HalfSpace
from ._contacts import Contact
from ._convex import Core, Pair, unit
from ._convex_features import no_parts
from ._convex_touch import Touch, touch_of
from ._moving_bodies import BodyRow, MovingBodies, contact_row, locate_all, move_all, twist_of, write_row
from ._placement import AnyPlacement, norm, rate_of
from ._slips import SlipForm
from ._thin_bodies import bow, share_without_passing


class _Touches(NamedTuple):
    """Where bodies are at an instant, and the record of each pair's touch (pairs, size): there if it is near, else the
    last one, or zeros."""

    placements: AnyPlacement
    records: Array


@final
class ConvexKind(eqx.Module):
    """Contacts of pairs of convex bodies, or of half-spaces and convex bodies.

    - `places`: where bodies are.
    - `points`: of all shapes, one after the other (n, 3).
    - `cores`: of the two shapes of each pair, all but the points, stacked.
    - `directions`: of each pair that of which directions of slip are made (pairs, 3).
    - `scales`: of each pair what its slip is scaled by (pairs, tangents); None where it is not.
    - `bodies`: the names of all bodies.
    - `pairs`: of each pair the places of its bodies among these.
    - `firsts`, `counts`: of each pair which of all contacts its first is, and how many there are.
    - `form`: which kinds of slip friction resists.
    - `on_plane`: whether the first shape is a half-space.
    - `margin`: of the sizes of a pair, beyond which the distance of the balls about them stands for the gap.
    """

    places: Any
    points: Array
    cores: tuple[Core, Core]
    directions: Array
    scales: Array | None
    bodies: tuple[str, ...] = eqx.field(static=True)
    pairs: tuple[tuple[int, int], ...] = eqx.field(static=True)
    firsts: tuple[int, ...] = eqx.field(static=True)
    counts: tuple[int, ...] = eqx.field(static=True)
    form: SlipForm = eqx.field(static=True)
    on_plane: bool = eqx.field(static=True)
    margin: float = eqx.field(static=True, default=0.02)

    def everywhere(self) -> "ConvexKind":
        """The same with the gaps of pairs that are far apart."""
        return dataclasses.replace(self, margin=np.inf)

    @property
    def has_gap(self) -> bool:
        """They all have one."""
        return True

    @property
    def tangents(self) -> int:
        """How many tangential rows each has."""
        return self.form.tangents

    @property
    def contacts(self) -> tuple[int, ...]:
        """Which of all contacts each is."""
        return tuple(n + r for n, count in zip(self.firsts, self.counts, strict=True) for r in range(count))

    def _pair_and_row(self, i: Array) -> tuple[Array, Array]:
        """Of contact i the pair, and which of its contacts it is."""
        all_rows = [(pair, r) for pair, count in enumerate(self.counts) for r in range(count)]
        pairs, rows = (jnp.asarray(np.array(x)) for x in zip(*all_rows, strict=True))
        return entry(pairs, i), entry(rows, i)

    def _numbers(self, i: Array) -> tuple[Array, Array]:
        first, second = (jnp.asarray(np.array(x)) for x in zip(*self.pairs, strict=True))
        return entry(first, i), entry(second, i)

    def _cores(self, i: Array, dtype: jnp.dtype) -> tuple[Core, Core]:
        points = jnp.asarray(self.points).astype(dtype)

        def one(core: Core) -> Core:
            own = jax.tree.map(lambda x: item(jnp.asarray(x), i), core._replace(points=None))
            real = lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x
            return jax.tree.map(real, own)._replace(points=points)

        first, second = map(one, self.cores)
        return first, second

    def _pair(self, placements: Any, i: Array, dtype: jnp.dtype) -> Pair:
        at = [jax.tree.map(lambda x, b=b: item(x, b), placements) for b in self._numbers(i)]
        return Pair(self._cores(i, dtype), (at[0], at[1]))

    def _bound(self, pair: Pair) -> Array:
        """No more than the gap: by the balls about both bodies, or the half-space and a ball."""
        (a, b), (first, second) = pair.cores, pair.places
        x, y = first.point(a.origin), second.point(b.origin)
        if self.on_plane:
            return jnp.dot(first.vector(a.axis), y - x) - b.size
        return norm(y - x) - a.size - b.size

    def _is_near(self, pair: Pair) -> Array:
        sizes = pair.cores[1].size if self.on_plane else pair.cores[0].size + pair.cores[1].size
        return self._bound(pair) < self.margin * sizes

    def _touch_like(self, placements: Any, dtype: jnp.dtype) -> Touch:
        make = lambda: touch_of(self._pair(placements, jnp.asarray(0), dtype), self.on_plane, no_parts(dtype))
        return jax.eval_shape(make)  # pyright: ignore[reportReturnType]

    def moving(self, motion: Motion) -> MovingBodies:
        return move_all(self.places, self.bodies, motion)

    @property
    def seeks(self) -> bool:
        """Which parts touch is sought."""
        return True

    def nothing(self, at: Instant) -> _Touches:
        placements = locate_all(self.places, self.bodies, at)
        size = sum(x.size for x in jax.tree.leaves(self._touch_like(placements, at.q.dtype)))
        return _Touches(placements, jnp.zeros((len(self.pairs), size), at.q.dtype))

    def unsought(self, at: Instant, before: _Touches) -> _Touches:
        return before._replace(placements=locate_all(self.places, self.bodies, at))

    def seek(self, at: Instant, unsought: _Touches) -> _Touches:
        placements, dtype = unsought.placements, at.q.dtype

        def one(i: Array, records: Array) -> Array:
            pair = self._pair(placements, i, dtype)

            def keep(_: Array, records: Array) -> Array:
                touch = touch_of(pair, self.on_plane, self._read(unsought, i).parts)
                flat = [jnp.ravel(x).astype(dtype) for x in jax.tree.leaves(touch)]
                return put_item(records, i, jnp.concatenate(flat))

            return loop(self._is_near(pair).astype(i.dtype), keep, records)

        return unsought._replace(records=loop(len(self.pairs), one, unsought.records))

    def _read(self, kept: _Touches, i: Array) -> Touch:
        """What is kept of pair i."""
        leaves, tree = jax.tree.flatten(self._touch_like(kept.placements, kept.records.dtype))
        flat = jnp.split(item(kept.records, i), np.cumsum([x.size for x in leaves])[:-1].tolist())
        read = lambda x, like: x > 0 if like.dtype == bool else x.astype(like.dtype)
        found = [read(x, like).reshape(like.shape) for x, like in zip(flat, leaves, strict=True)]
        return jax.tree.unflatten(tree, found)

    @property
    def is_thin(self) -> bool:
        """A half-space is not."""
        return not self.on_plane

    def share_without_passing(self, instants: Sequence[Instant], kept: _Touches) -> Array:
        dtype = instants[0].q.dtype
        each = kept.placements, *(locate_all(self.places, self.bodies, at) for at in instants[1:])

        def one(i: Array, share: Array) -> Array:
            pairs = [self._pair(x, i, dtype) for x in each]
            start, (a, b) = pairs[0], pairs[0].cores
            near, middles = self._is_near(start), [a.origin, b.origin]
            n = jnp.where(near, self._read(kept, i).feature.n, unit(start.between(middles)))
            # Of bodies that are not near each other by the balls about both.
            gaps = jnp.stack([jnp.dot(n, x.between(middles)) for x in pairs]) - a.size - b.size
            placements = jax.tree.map(lambda *x: jnp.stack(x), *(x.places for x in pairs))

            def look(k: Array, gaps: Array) -> Array:
                pair = start._replace(places=jax.tree.map(lambda x: item(x, k), placements))
                return put(gaps, k, pair.apart(n) - a.radius - b.radius)

            gaps = loop(len(pairs) * near.astype(i.dtype), look, gaps)
            inradii = [jnp.where(near, core.inradius, 0) for core in (a, b)]
            for k, pair in enumerate(pairs[1:], 1):
                ways = zip((a, b), start.places, pair.places, strict=True)
                bows = jnp.where(near, sum(bow(core.size - core.radius, *way) for core, *way in ways), 0)
                share = jnp.minimum(share, share_without_passing(gaps[0], gaps[k] - bows, inradii))
            return share

        return loop(len(self.pairs), one, jnp.ones((), dtype))

    def gaps(self, at: Instant, kept: _Touches, so_far: Array) -> Array:
        firsts, counts = (jnp.asarray(np.array(x)) for x in (self.firsts, self.counts))
        now = locate_all(self.places, self.bodies, at)

        def one(i: Array, so_far: Array) -> Array:
            sought = self._pair(kept.placements, i, at.q.dtype)
            near = self._is_near(sought)
            pair = self._pair(now, i, at.q.dtype)
            bound = self._bound(pair)
            first, count = entry(firsts, i), entry(counts, i)
            so_far = loop(jnp.where(near, 0, count), lambda r, x: put(x, first + r, bound), so_far)

            def look(_: Array, so_far: Array) -> Array:
                touch = self._read(kept, i).hold_rims(sought)
                return loop(count, lambda r, x: put(x, first + r, touch.gap(pair, r)[0]), so_far)

            return loop(near.astype(i.dtype), look, so_far)

        return loop(len(self.pairs), one, so_far)

    def motion(self, moving: MovingBodies, kept: _Touches, i: Array) -> ContactMotion:
        number, r = self._pair_and_row(i)
        pair = self._pair(kept.placements, number, kept.records.dtype)
        near, bound = self._is_near(pair), self._bound(pair)
        there = near & item(self._read(kept, number).there, r)
        ends = self._numbers(number)
        twists, rates = ([item(x, b) for b in ends] for x in (moving.twists, moving.rates))

        def look(_: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
            touch = self._read(kept, number)
            gap = lambda *places: touch.gap(pair._replace(places=places), r)[0]
            speed = lambda places, twists: rate_of(gap, places, list(map(twist_of, twists)))
            places = list(pair.places)
            flows = [place.flow(twist_of(x)) for place, x in zip(places, twists, strict=True)]
            return gap(*places), jax.jvp(speed, (places, twists), (flows, rates))[1]

        none = jnp.where(near, pair.cores[1].size, bound)
        return ContactMotion(*loop(there.astype(i.dtype), look, (none, jnp.zeros_like(bound))))

    def rows(self, moving: MovingBodies, kept: _Touches, i: Array) -> BodyRow:
        number, r = self._pair_and_row(i)
        sought = self._pair(kept.placements, number, kept.records.dtype)
        pair = self._pair(moving.placements, number, kept.records.dtype)
        touch = self._read(kept, number).hold_rims(sought)
        _, point, normal = touch.gap(pair, r)
        own = lambda x: item(jnp.asarray(x).astype(point.dtype), number)
        gap = lambda *places: touch.gap(pair._replace(places=places), r)[0]
        slip = None
        if self.tangents:
            scale = None if self.scales is None else own(self.scales)
            slip = self.form.axes(own(self.directions), pair.places, normal), scale
        row = contact_row(gap, point, slip, pair.places, self._numbers(number), moving)
        # Of pairs that are not near nothing is kept.
        return row._replace(by_twist=jnp.where(self._is_near(sought), row.by_twist, 0))

    def write(self, rows: BodyRow, J: Array, row: Array, stride: int) -> Array:
        return write_row(self.places, self.bodies, rows, J, row, stride)

    def drift(self, rows: BodyRow) -> Array:
        return jnp.zeros(1 + self.tangents, rows.by_twist.dtype)


def convex_kind(
    places: Any,
    items: Sequence[Contact],
    names: tuple[str, ...],
    pairs: tuple[tuple[int, int], ...],
    numbers: Sequence[int],
) -> ConvexKind:
    """Contacts of convex bodies as one kind."""
    on_plane, counts = isinstance(items[0].shapes[0], HalfSpace), tuple(x.count for x in items)
    cores = [[x.plane() if isinstance(x, HalfSpace) else x.core() for x in item.shapes] for item in items]
    points, firsts, known, place = [], [], {}, 0
    for own in cores:
        numbers_of = []
        for core in own:
            same = id(core.points) if is_traced(core.points) else np.asarray(core.points).tobytes()
            if same not in known:
                known[same] = place
                points.append(core.points)
                place += len(core.points)
            numbers_of.append(known[same])
        firsts.append(numbers_of)
    stack = lambda x: as_jax(module_for(*x).stack(x))
    stacked = []
    for k in range(2):
        own = [c[k]._replace(points=None, first=np.asarray(f[k])) for c, f in zip(cores, firsts, strict=True)]  # pyright: ignore
        stacked.append(jax.tree.map(lambda *x: stack(x), *own))
    flat = as_jax(module_for(*points).concatenate(points))
    directions, form = stack([x.direction for x in items]), items[0].form
    scales = None if form.is_round else stack([x.slip_scale for x in items])
    own = flat, tuple(stacked), directions, scales
    return ConvexKind(places, *own, names, pairs, tuple(numbers), counts, form, on_plane)
