"""Where a convex body touches a height field: a grid of heights, of which each cell is two triangles.

Each triangle is the top of a prism, a convex body. Of those below the body two are asked: the plane of the triangle, for
what of the body lies over it, and the prism. A normal of the prism that its neighbours would not let through, as at the
edge between two triangles of one plane, is none of the field. Of all places that are found some are kept (`Slots`): the
deepest, and those that reach farthest to all sides. The grid is an array, looked up when a program runs.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .._formula._contact_list import entry, item, loop, put, put_item
from .._misc._blank import blank
from .._misc._types import choose_by_precision
from ._convex import Core, Pair, core_of, cross, dot, pack, packed_size, unit, unpack
from ._convex_features import no_parts
from ._convex_search import Parts
from ._convex_touch import POINTS, Touch, find_direction, touch_of
from ._placement import AnyPlacement, Placement

PLACES = 9
"""How many contacts a body and a height field have: the deepest place, and those that reach farthest to eight sides."""

# Of a cell (column, row): the corners of its two triangles, anticlockwise from above, and the corners across their edges.
_CORNERS = np.array([[(0, 0), (1, 1), (0, 1)], [(0, 0), (1, 0), (1, 1)]])
_ACROSS = np.array([[(1, 2), (-1, 0), (1, 0)], [(2, 1), (0, 1), (0, -1)]])
# A place that reaches farther by the size of a body counts as much as one that is lower by this share of it.
_LOWER = 0.01
# Of the size of a body, beyond which places are no contacts.
_CLOSE = 0.02


class Field(NamedTuple):
    """A height field in the reference posture."""

    heights: Array  # of all fields, row after row, one after the other [m]
    # `first`, `rows`, `columns`: where its own begin, and how many there are.
    first: Any
    rows: Any
    columns: Any
    step: Float[Array, "2"]  # between columns and between rows [m] (2,)
    # `depth`, `top`: how far it reaches below zero, and its largest height [m].
    depth: Array
    top: Array
    origin: Float[Array, "3"]  # where its first place has height zero [m] (3,)
    axes: Float[Array, "3 3"]  # along rows, across them, and upwards, as columns (3, 3)

    def corner(self, column: Array, row: Array) -> tuple[Float[Array, "3"], Array]:
        """A place of the grid, in the axes of the field, and whether it is there."""
        there = (column >= 0) & (row >= 0) & (column < self.columns) & (row < self.rows)
        c, r = (jnp.clip(x, 0, n - 1) for x, n in ((column, self.columns), (row, self.rows)))
        height = entry(self.heights, self.first + r * self.columns + c)
        number = lambda x: x.astype(height.dtype)
        return jnp.stack([number(c) * self.step[0], number(r) * self.step[1], height]), there

    def to_body(self, x: Array) -> Array:
        """A place in the reference posture."""
        return self.origin + self.axes @ x

    def local(self, placement: Placement, x: Array) -> Array:
        """A place of the world in the axes of the field."""
        return self.axes.T @ (placement.centre + placement.back(x - placement.p) - self.origin)

    def away(self, x: Array) -> Array:
        """How far a place in the axes of the field is from the cuboid about it."""
        number = lambda n: (n - 1).astype(x.dtype)
        ends = jnp.stack([number(self.columns) * self.step[0], number(self.rows) * self.step[1], self.top])
        starts = jnp.stack([jnp.zeros_like(self.depth), jnp.zeros_like(self.depth), -self.depth])
        off = x - jnp.clip(x, starts, ends)
        square = dot(off, off)
        return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


class Triangle(NamedTuple):
    """A triangle of a field: the cell, and which of its two it is."""

    column: Array
    row: Array
    second: Array

    def corners(self, field: Field, of: np.ndarray) -> tuple[Float[Array, "3 3"], Array]:
        """Three places, in the axes of the field, and whether they are there."""
        pick = lambda k, i: jnp.where(self.second > 0, of[1, k, i], of[0, k, i])
        found = [field.corner(self.column + pick(k, 0), self.row + pick(k, 1)) for k in range(3)]
        return jnp.stack([x for x, _ in found]), jnp.stack([there for _, there in found])

    def prism(self, field: Field) -> Core:
        """All that is below it, in the reference posture."""
        top = self.corners(field, _CORNERS)[0]
        local = jnp.concatenate(
            [top, jnp.stack([top[:, 0], top[:, 1], -field.depth * jnp.ones(3, top.dtype)], 1)]
        )
        points = field.origin[None] + local @ field.axes.T
        return core_of(points, jnp.mean(points, 0))


class Slot(NamedTuple):
    """A place where a body touches: the triangle, what is there of it, which of its contacts, and whether it counts."""

    triangle: Triangle
    touch: Touch
    r: Array
    there: Array


def _shares(corners: Float[Array, "3 3"], x: Array) -> Float[Array, "3"]:
    """Of the corners of a triangle at a place of it, seen from above."""
    a, b, c = corners[:, :2]
    area = lambda p, q, r: (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])
    p = x[:2]
    return jnp.stack([area(p, b, c), area(a, p, c), area(a, b, p)]) / area(a, b, c)


def _lets_through(field: Field, triangle: Triangle, p: Array, n: Array) -> Array:
    """Whether a normal at a place of a triangle, in the axes of the field, points out of what is about that place."""
    corners, _ = triangle.corners(field, _CORNERS)
    up = unit(cross(corners[1] - corners[0], corners[2] - corners[0]))
    others, there = triangle.corners(field, _ACROSS)
    small = choose_by_precision(p.dtype, 1e-7, 1e-3)
    on_edge = _shares(corners, p) < small
    into = (others - p[None]) @ n > small * jnp.max(field.step)
    return (n[2] > -0.5) & ((dot(n, up) > 1 - small**2) | ~jnp.any(on_edge & into & there))


def slot_like(core: Core, places: tuple[Placement, Placement], field: Field) -> Slot:
    """The shapes of a slot."""

    def make() -> Slot:
        zero = jnp.asarray(0)
        triangle = Triangle(zero, zero, zero)
        touch = touch_of(Pair((triangle.prism(field), core), places), False, no_parts(core.size.dtype))
        return Slot(triangle, touch, zero, jnp.asarray(False))

    return jax.eval_shape(make)  # pyright: ignore[reportReturnType]


def no_slots(core: Core, places: tuple[Placement, Placement], field: Field) -> Float[Array, "places size"]:
    """What is known before anything was sought."""
    return jnp.zeros((PLACES, packed_size(slot_like(core, places, field))), core.size.dtype)


def find_slots(
    field: Field,
    core: Core,
    places: tuple[Placement, Placement],
    near: Array,
    before: Float[Array, "places size"],
) -> Float[Array, "places size"]:
    """Where a body touches a field, and the nearest place if that is nearer than `near`, packed; sought from what was
    found a short time ago, or zeros."""
    ground, place = places
    like = slot_like(core, places, field)
    dtype, whole = core.size.dtype, like.r.dtype
    axes = [ground.vector(field.axes[:, k]) for k in range(3)]
    reach = lambda d: place.point(_lowest(core, place, d))
    low, high = ([field.local(ground, reach(s * axes[k]))[k] for k in range(3)] for s in (-1.0, 1.0))
    small, close = choose_by_precision(dtype, 1e-9, 1e-4), _CLOSE * core.size

    def of_triangle(triangle: Triangle, near: Array, slots: tuple[Array, ...]) -> tuple[Array, ...]:
        corners, _ = triangle.corners(field, _CORNERS)
        up = field.axes @ unit(cross(corners[1] - corners[0], corners[2] - corners[0]))
        prism = triangle.prism(field)
        pair = Pair((prism, core), places)
        base = field.to_body(corners[0])
        level = core_of(base[None], base, axis=up)
        over = touch_of(pair._replace(cores=(level, core)), True, no_parts(dtype))
        n = over.feature.n
        over_plane = dot(n, reach(-n) - ground.point(base))
        gap = jnp.maximum(over_plane, low[2] - jnp.max(corners[:, 2]))

        def known(k: Array, parts: Parts) -> Parts:
            slot = unpack(item(before, k), like)
            same = [x == y for x, y in zip(slot.triangle, triangle, strict=True)]
            there = slot.there & same[0] & same[1] & same[2]
            return jax.tree.map(lambda x, y: jnp.where(there, x, y), slot.touch.parts, parts)

        def look(_: Array, slots: tuple[Array, ...]) -> tuple[Array, ...]:
            feet = jnp.concatenate([over.feature.a[None], over.a])
            inside = [jnp.min(_shares(corners, field.axes.T @ (x - field.origin))) >= -small for x in feet]
            former = loop(PLACES, known, no_parts(dtype))
            of_plane = over._replace(there=over.there & jnp.stack(inside), parts=former)
            # What is round is nearest to the plane where it is lowest.
            single = (core.number == 1) & ~jnp.any(core.axis != 0) & inside[0]
            flat = lambda touch, r=0: pack(Slot(triangle, touch, jnp.asarray(r), jnp.asarray(True)), dtype)
            both = put_item(blank((2, flat(over).size), dtype), 0, flat(of_plane))

            def ask(_: Array, both: Array) -> Array:
                touch = touch_of(pair, False, former)
                gap, middle, n = touch.gap(pair, 0)
                p = field.local(ground, middle - 0.5 * gap * n)
                fits = _lets_through(field, triangle, p, field.axes.T @ ground.back(n))
                both = put_item(both, 0, flat(of_plane._replace(parts=touch.parts)))
                return put_item(both, 1, flat(touch._replace(there=touch.there & fits)))

            both = loop((~single).astype(whole), ask, both)

            def offer(k: Array, slots: tuple[Array, ...]) -> tuple[Array, ...]:
                slot = unpack(item(both, jnp.where(k < POINTS, 0, 1)), like)
                r = jnp.where(k < POINTS, k, k - POINTS)
                gap, middle, _ = slot.touch.gap(pair, r)
                counts = item(slot.touch.there, r) & (gap < near)
                x = field.local(ground, middle)[:2]
                record = pack(slot._replace(r=r, there=jnp.asarray(True)), dtype)

                def keep(i: Array, slots: tuple[Array, ...]) -> tuple[Array, ...]:
                    records, scores, xs = slots
                    far = jnp.where(i == 0, 0, dot(find_direction(i, PLACES - 1, dtype), x))
                    score = far - gap / _LOWER
                    better = ((score > entry(scores, i)) & ((i == 0) | (gap < close))).astype(whole)
                    put_all = lambda _, s: (
                        put_item(s[0], i, record),
                        put(s[1], i, score),
                        put_item(s[2], i, x),
                    )
                    return loop(better, put_all, (records, scores, xs))

                return loop(counts.astype(whole) * PLACES, keep, slots)

            return loop(jnp.where(single, POINTS, 2 * POINTS), offer, slots)

        # Beyond what is close only what is nearer than the nearest counts.
        nearest = jnp.minimum(near, jnp.maximum(close, -_LOWER * entry(slots[1], 0)))
        return loop((gap < nearest).astype(whole), look, slots)

    def within(again: Array, slots: tuple[Array, ...]) -> tuple[Array, ...]:
        reach = jnp.where(again > 0, near, close)
        goes = (high[2] > -field.depth) & ((again == 0) | ((near > close) & (entry(slots[1], 0) == -jnp.inf)))
        begin, count = [], []
        for k, n in enumerate((field.columns - 1, field.rows - 1)):
            a, b = (jnp.floor((x + s * reach) / field.step[k]) for x, s in ((low[k], -1), (high[k], 1)))
            last = (n - 1).astype(dtype)
            first = jnp.clip(a, 0, last)
            begin.append(first.astype(whole))
            there = goes & (b >= 0) & (a <= last)
            count.append(jnp.where(there, jnp.clip(b, 0, last) - first + 1, 0).astype(whole))

        def of_row(i: Array, slots: tuple[Array, ...]) -> tuple[Array, ...]:
            def of_cell(j: Array, slots: tuple[Array, ...]) -> tuple[Array, ...]:
                cell = begin[0] + j, begin[1] + i
                return loop(2, lambda k, s: of_triangle(Triangle(*cell, k.astype(whole)), reach, s), slots)

            return loop(count[0], of_cell, slots)

        return loop(count[1], of_row, slots)

    none = jnp.full(PLACES, -jnp.inf, dtype)
    slots = jnp.zeros_like(before), none, jnp.zeros((PLACES, 2), dtype)
    records, scores, xs = loop(2, within, slots)  # what is far only where nothing is close
    same = choose_by_precision(dtype, 1e-6, 1e-4) * core.size

    def once(k: Array, records: Array) -> Array:
        """Places that are kept already count once."""
        off = lambda j: jnp.max(jnp.abs(item(xs, k) - item(xs, j)))
        again = loop(k, lambda j, again: again | (off(j) < same), jnp.asarray(False))
        slot = unpack(item(records, k), like)
        there = (entry(scores, k) > -jnp.inf) & ~again
        return put_item(records, k, pack(slot._replace(there=there), dtype))

    return loop(PLACES, once, records)


def _lowest(core: Core, place: Placement, d: Array) -> Array:
    """The place of a body that lies farthest along a direction of the world, in the reference posture."""
    along = place.back(d)
    return core.point(core.farthest(along)) + core.curved(along) + core.radius * along


def gap_of(
    slot: Slot, field: Field, core: Core, places: tuple[AnyPlacement, ...]
) -> tuple[Array, Array, Array]:
    """Of a slot the gap, the place between the bodies, and the normal, as functions of placements."""
    first, second = places
    assert isinstance(first, Placement)
    assert isinstance(second, Placement)
    prism = lax.stop_gradient(slot.triangle.prism(field))
    return slot.touch.gap(Pair((prism, core), (first, second)), slot.r)


def least_gap(field: Field, core: Core, places: tuple[AnyPlacement, ...], near: Array) -> Array:
    """What no gap is less than where no place was found."""
    ground, place = places
    x = field.local(ground, place.point(core.origin))  # pyright: ignore[reportArgumentType]
    return jnp.maximum(field.away(x) - core.size, near)
