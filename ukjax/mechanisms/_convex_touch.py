"""Where two convex bodies touch: the nearest parts, and the corners of the area that flat parts share.

What is found is kept for a time (`Touch`), and gaps are smooth functions of it.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .._formula._contact_list import entry, item, loop, put, put_item
from .._misc._blank import blank
from .._misc._types import choose_by_precision
from ._convex import Core, Pair, divide, dot, unit
from ._convex_features import Feature, conditions, nearest_feature, newton_matrix
from ._convex_search import Parts
from ._joint_rows import across
from ._placement import Placement, norm

POINTS = 5
"""How many contacts two bodies have: where they are nearest, and up to four corners of the area that they share."""

_DIRECTIONS, _ROOM = 8, 24
_TILT = 0.03  # parts of which the normal is turned by less may lie on those of another body [rad]
_TURN = 0.3  # of the directions in which corners are sought, so that parallel edges have two corners as a rule [rad]


class Touch(NamedTuple):
    """What a contact of two bodies has where they are now, of which gaps near by are functions."""

    feature: Feature  # the nearest parts
    newton: Array  # the matrix of Newton's method for the normal (3, 3)
    # `a`, `b`: further points on the surfaces, in the reference postures [m] (4, 3).
    a: Array
    b: Array
    there: Array  # which of the points, the nearest ones first, are contacts of their own (5,)
    nearest: Array  # the gap between the nearest parts, at the instant [m]
    parts: Parts  # the nearest ones again, from which they are sought a short time later

    def hold_rims(self, pair: Pair) -> "Touch":
        """The same, with the nearest point on the rim of a disc that lies nearly flat kept in its place on the body.

        Along with the others it tells how far a disc is to be turned until it lies flat. The lowest point of the rim does
        not: it runs all about the rim meanwhile.
        """
        f, ends = self.feature, []
        rims = jnp.stack([c.is_level(pair.back(k, f.n), _TILT) for k, c in enumerate(pair.cores)]) & ~f.flat
        for k, x in enumerate((f.a, f.b)):
            ends.append(x + jnp.where(rims[k], pair.cores[k].curved(pair.back(k, f.n)), 0))
        return self._replace(feature=f._replace(a=ends[0], b=ends[1], flat=f.flat | rims))

    def gap(self, pair: Pair, i: Any) -> tuple[Array, Array, Array]:
        """Of contact i the gap, the place between the bodies, and the normal; without the contact the gap is large.

        The bodies may be near where they were, and their measures others.
        """
        whole = [core._replace(points=None, links=None) for core in pair.cores]
        return _gap(self, whole, pair.places, jnp.asarray(i))


class _Outline(NamedTuple):
    """What of a body lies towards another, seen along the normal."""

    x: Array  # corners, anticlockwise (n, 2)
    # `mean`, `slope`, `height`: the plane through them: z = height + slope . (x - mean).
    mean: Array
    slope: Array
    height: Array

    def at(self, x: Array) -> Array:
        """The height of the plane."""
        return self.height + dot(self.slope, x - self.mean)


def find_direction(k: Array, count: int, dtype: jnp.dtype) -> Array:
    """One of some directions to all sides."""
    angle = _TURN + k.astype(dtype) * (2 * np.pi / count)
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def _outline(pair: Pair, k: int, axes: Array, middle: Array, near: Array) -> _Outline:
    core, place, (one, two, n) = pair.cores[k], pair.places[k], axes
    sign, dtype, along = 1 - 2 * k, n.dtype, place.back(n)
    level = core.is_level(along, _TILT)

    def look(i: Array, so_far: tuple) -> tuple:
        x, z = so_far
        c, s = find_direction(i, _DIRECTIONS, dtype)
        d = place.back(sign * n + _TILT * (c * one + s * two))
        # A disc is curved about its rim: only where it lies flat does it reach to all sides.
        p = (
            place.point(
                core.point(core.farthest(d, pair.near[k]))
                + core.curved(jnp.where(level, d, place.back(sign * n)))
            )
            - middle
        )
        # Made wider by next to nothing, so that points and lines have an area too.
        x = put_item(x, i, jnp.stack([dot(one, p) + near * c, dot(two, p) + near * s]))
        return x, put(z, i, dot(n, p))

    x, z = loop(_DIRECTIONS, look, (blank((_DIRECTIONS, 2), dtype), blank(_DIRECTIONS, dtype)))
    mean, height = jnp.mean(x, 0), jnp.mean(z)
    off, rise = x - mean[None], z - height
    xx, xy, yy = (dot(off[:, i], off[:, j]) for i, j in ((0, 0), (0, 1), (1, 1)))
    along = jnp.stack([dot(off[:, 0], rise), dot(off[:, 1], rise)])
    det = xx * yy - xy * xy
    slope = jnp.stack([yy * along[0] - xy * along[1], xx * along[1] - xy * along[0]]) / jnp.where(
        det > 0, det, 1
    )
    return _Outline(x, mean, slope, height)


def _clip(first: _Outline, second: _Outline) -> tuple[Array, Array]:
    """The corners of what two outlines share, and their number (Sutherland and Hodgman 1974)."""
    dtype = first.x.dtype

    def push(polygon: tuple[Array, Array], there: Array, x: Array) -> tuple[Array, Array]:
        corners, count = polygon
        return put_item(corners, count, x), jnp.minimum(count + there.astype(count.dtype), _ROOM - 1)

    def cut(e: Array, polygon: tuple[Array, Array]) -> tuple[Array, Array]:
        corners, count = polygon
        p, q = item(second.x, e), item(second.x, jnp.where(e + 1 == _DIRECTIONS, 0, e + 1))
        inside = lambda x: (q[0] - p[0]) * (x[1] - p[1]) - (q[1] - p[1]) * (x[0] - p[0])

        def corner(i: Array, new: tuple[Array, Array]) -> tuple[Array, Array]:
            x, y = item(corners, i), item(corners, jnp.where(i + 1 == count, 0, i + 1))
            s, t = inside(x), inside(y)
            new = push(new, s >= 0, x)
            return push(new, s * t < 0, x + divide(s, s - t) * (y - x))

        return loop(count, corner, (blank((_ROOM, 2), dtype), jnp.zeros_like(count)))

    corners = loop(_DIRECTIONS, lambda i, x: put_item(x, i, item(first.x, i)), blank((_ROOM, 2), dtype))
    return loop(_DIRECTIONS, cut, (corners, jnp.asarray(_DIRECTIONS)))


def find_touch(pair: Pair, former: Parts) -> Touch:
    """Where two bodies touch, or would: nothing of it is differentiated."""
    f, apart, parts = nearest_feature(pair, former)
    pair, (first, second) = pair.look_near(parts), pair.cores
    dtype, size = first.size.dtype, first.size + second.size
    near = choose_by_precision(dtype, 1e-7, 1e-4) * size
    gap = apart - first.radius - second.radius
    a, b = (place.point(x) for place, x in zip(pair.places, f.ends(pair, f.n), strict=True))
    middle = 0.5 * (a + first.radius * f.n + b - second.radius * f.n)
    axes = jnp.stack([*across(f.n), f.n])
    flat = [(core.number > 1) | jnp.any(core.axis != 0) for core in pair.cores]
    flat = flat[0] & flat[1] & (gap < 0.1 * size)

    def corners(_: Array, so_far: tuple) -> tuple:
        outlines = [_outline(pair, k, axes, middle, near) for k in range(2)]
        shared, count = _clip(*outlines)

        def corner(k: Array, so_far: tuple) -> tuple:
            ends, xs, there = so_far
            d = find_direction(k, POINTS - 1, dtype)

            def farther(i: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
                x = item(shared, i)
                reach = dot(d, x)
                return jnp.where(reach > best[1], x, best[0]), jnp.maximum(reach, best[1])

            x, _ = loop(count, farther, (jnp.zeros(2, dtype), jnp.asarray(-jnp.inf, dtype)))
            low, high = outlines[0].at(x) + first.radius, outlines[1].at(x) - second.radius
            # No place is nearer than the nearest one.
            short = jnp.maximum(gap - (high - low), 0)
            low, high = low - 0.5 * short, high + 0.5 * short
            new = jnp.max(jnp.abs(x)) > 8 * near
            for j in range(POINTS - 1):
                new = new & ((j >= k) | (jnp.max(jnp.abs(x - item(xs, j))) > 8 * near))
            new = new & (count > 0)
            xs = put_item(xs, k, x)
            flat = middle + x[0] * axes[0] + x[1] * axes[1]
            for m, (place, z) in enumerate(zip(pair.places, (low, high), strict=True)):
                local = place.centre + place.back(flat + z * axes[2] - place.p)
                ends = put_item(ends, m * (POINTS - 1) + k, local)
            there = put(there, k + 1, new)
            again = new & (high - low <= gap + choose_by_precision(dtype, 1e-12, 1e-6) * size)
            return ends, xs, put(there, 0, jnp.where(again, 0, entry(there, 0)))

        ends, there = so_far
        ends, _, there = loop(POINTS - 1, corner, (ends, jnp.zeros((POINTS - 1, 2), dtype), there))
        return ends, there

    none = jnp.zeros(POINTS, dtype)
    ends, there = loop(
        flat.astype(f.rank.dtype), corners, (jnp.zeros((2 * (POINTS - 1), 3), dtype), put(none, 0, 1))
    )
    a, b = ends.reshape(2, POINTS - 1, 3)
    return Touch(f, newton_matrix(pair, f), a, b, there > 0, gap, parts)


def find_plane_touch(pair: Pair, former: Parts) -> Touch:
    """Where a body touches a half-space, whose core is a point on its plane with the normal for an axis."""
    (plane, core), (ground, place) = pair.cores, pair.places
    dtype, size = core.size.dtype, core.size
    n = ground.vector(plane.axis)
    one, two = across(n)
    down = place.back(-n)
    level = core.is_level(down, _TILT)
    near = choose_by_precision(dtype, 1e-6, 1e-3) * size
    found, points, number = [], [], former.b[0]
    for k in range(POINTS):
        d = down
        if k:
            c, s = find_direction(jnp.asarray(k), POINTS - 1, dtype)
            d = place.back(-n + _TILT * (c * one + s * two))
        number = core.farthest(d, number)
        curved = core.curved(jnp.where(level, d, down)) if k else core.curved(down)
        x = core.point(number)
        found.append(x if not k else x + curved + core.radius * down)
        points.append(x + curved)
    ahead = lambda k: [jnp.max(jnp.abs(points[k] - points[j])) > near for j in range(k)]
    there = jnp.stack([jnp.asarray(True), *(jnp.all(jnp.stack(ahead(k))) for k in range(1, POINTS))])
    down_on = lambda x: ground.centre + ground.back(x - dot(n, x - ground.point(plane.origin)) * n - ground.p)
    below = [down_on(place.point(x)) for x in points]
    whole = jnp.asarray(2)
    edges = jnp.stack(across(plane.axis))
    flat = jnp.asarray(np.array([True, False]))
    f = Feature(n, below[0], found[0], edges, jnp.zeros(2, bool), whole, flat)
    gap = dot(n, place.point(points[0] + core.radius * down) - ground.point(plane.origin))
    parts = former._replace(b=jnp.full_like(former.b, number))
    return Touch(f, newton_matrix(pair, f), jnp.stack(below[1:]), jnp.stack(found[1:]), there, gap, parts)


def touch_of(pair: Pair, on_plane: bool, former: Parts) -> Touch:
    """Where a pair touches, or a half-space and a body, as what does not change."""
    return _find(*lax.stop_gradient((pair.cores, pair.places)), former, on_plane)


@functools.partial(jax.jit, static_argnums=3)
def _find(cores: Any, places: Any, former: Parts, on_plane: bool) -> Touch:
    """Traced once for all places where it is used."""
    return (find_plane_touch if on_plane else find_touch)(Pair(cores, places), former)


@jax.jit
def _gap(
    touch: Touch, cores: Sequence[Core], places: tuple[Placement, Placement], i: Array
) -> tuple[Array, Array, Array]:
    """As `Touch.gap`, traced once for all places where it is used. Of cores no points are read."""
    pair, (first, second), still = Pair((cores[0], cores[1]), places), cores, touch.feature
    f = still._replace(a=first.follow(still.a), b=second.follow(still.b))
    n = unit(f.n - touch.newton @ conditions(f.n, pair, f))
    nearest, found = f.ends(pair, n), []
    for k, (core, place, others) in enumerate(zip(cores, places, (touch.a, touch.b), strict=True)):
        surface = place.point(nearest[k]) + (1 - 2 * k) * core.radius * n
        further = place.point(core.follow(item(others, jnp.maximum(i - 1, 0))))
        found.append(jnp.where(i == 0, surface, further))
    a, b = found
    middles = [place.point(core.origin) for core, place in zip(cores, places, strict=True)]
    none = first.size + second.size + norm(middles[1] - middles[0])  # more than any gap of theirs
    gap = jnp.where(item(touch.there, i), dot(n, b - a), lax.stop_gradient(none))
    return gap, 0.5 * (a + b), n
