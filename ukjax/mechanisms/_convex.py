"""How far two convex bodies are from each other, or how deep in: any polytope, ellipsoid, cylinder, and round ones.

A body is a core and all that is no farther than a radius from it; a core is the convex hull of some points, to each of
which an ellipsoid is added that may be flat: a disc about each end of a line is a cylinder. Two cores are told by

    sigma(n) = min n . b - max n . a,    |n| = 1,

how far they are apart along n. Its maximum is their distance, and where they overlap less their depth. It is sought by

- Gilbert, Johnson and Keerthi's method (1988): the place of A - B that is nearest to the origin, on simplices;
- the expanding polytope (van den Bergh 2003) for those that overlap or nearly touch: the face nearest to the origin;
- Newton's method on the normal, on what both have found: features (vertices, edges, faces, curved parts) are kept.

The first two only find features. What depends on placements smoothly is the last step of the third, which is also what
is differentiated: so the derivatives of a gap, two of them, are those of its features.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .._formula._blank import blank
from .._formula._contact_list import entry, item, loop, put, put_item
from .._misc._types import choose_by_precision
from ._joint_rows import across
from ._placement import Placement


def _within(i: Array, count: int) -> Array:
    """A number below a count. Members of a batch go where others go, also with numbers that were never put."""
    return jnp.clip(i, 0, count - 1)


class Core(NamedTuple):
    """The core of a convex body, in its reference posture.

    - `points`: of all bodies, one after the other [m] (n, 3).
    - `first`, `number`: which of these are its own, and how many.
    - `spread`: Q of the ellipsoid {x : x = Q^(1/2) y, |y| <= 1} about each point [m^2] (3, 3).
    - `axis`: where this is a disc, its axis; else zero (3,).
    - `radius`: [m].
    - `size`: about how large it is [m].
    - `origin`, `axes`: x = origin + axes y are its points for fixed y, whatever its measures; columns are orthogonal.
    """

    points: Array
    first: Array
    number: Array
    spread: Float[Array, "3 3"]
    axis: Float[Array, "3"]
    radius: Array
    size: Array
    origin: Float[Array, "3"]
    axes: Float[Array, "3 3"]

    def point(self, i: Array) -> Float[Array, "3"]:
        """A point, by its number among all."""
        return item(self.points, _within(i, len(self.points)))

    def farthest(self, d: Float[Array, "3"]) -> Array:
        """The number of the point that lies farthest along a direction."""
        first = jnp.asarray(self.first)
        height = lambda i: jnp.dot(item(self.points, i), d)

        def look(k: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
            at = height(first + k)
            higher = at > best[1]
            return jnp.where(higher, first + k, best[0]), jnp.where(higher, at, best[1])

        return loop(self.number, look, (first, height(first)))[0]

    def follow(self, x: Float[Array, "3"]) -> Float[Array, "3"]:
        """A point as a function of the measures of the body, of which it is none itself."""
        still = lax.stop_gradient(self)
        square = jnp.sum(still.axes**2, 0)
        y = _over((x - still.origin) @ still.axes, square)
        return x + (self.origin - still.origin) + (self.axes - still.axes) @ y

    def curved(self, d: Float[Array, "3"]) -> Float[Array, "3"]:
        """What the ellipsoid adds to a point along a direction."""
        along = self.spread @ d
        square = jnp.dot(along, d)
        return jnp.where(square > 0, along / jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def core_of(
    points: Array,
    origin: Array,
    axes: Array | None = None,
    spread: Any = None,
    axis: Any = None,
    radius: Any = 0.0,
) -> Core:
    """One body by itself: its points (n, 3) and what else its core has, by default nothing."""
    dtype, count = points.dtype, points.shape[0]
    zero = jnp.zeros(3, dtype)
    spread = jnp.zeros((3, 3), dtype) if spread is None else spread
    square = jnp.max(jnp.sum((points - origin[None]) ** 2, 1)) + jnp.trace(spread)
    return Core(
        points,
        jnp.asarray(0),
        jnp.asarray(count),
        spread,
        zero if axis is None else axis,
        jnp.asarray(radius, dtype),
        jnp.sqrt(square) + radius,
        origin,
        jnp.eye(3, dtype=dtype) if axes is None else axes,
    )


class Pair(NamedTuple):
    """Two bodies and where they are; as corners of B - A they are taken smaller by a scale, each about its origin."""

    cores: tuple[Core, Core]
    places: tuple[Placement, Placement]
    scale: float = 1.0

    def back(self, k: int, n: Array) -> Array:
        """A direction of the world in a body's axes; of the first along n, of the second against it."""
        return self.places[k].back(n if k == 0 else -n)

    def locals(self, numbers: tuple[Array, Array], n: Array) -> list[Array]:
        """Points of both bodies in their reference postures, with what is curved."""
        ends = enumerate(zip(self.cores, numbers, strict=True))
        return [core.point(i) + core.curved(self.back(k, n)) for k, (core, i) in ends]

    def between(self, ends: list[Array]) -> Array:
        """From a point of the first to one of the second, in the world."""
        a, b = (place.point(x) for place, x in zip(self.places, ends, strict=True))
        return b - a

    def support(self, n: Array) -> "Corner":
        """The points that are farthest towards each other along n."""
        a, b = (core.farthest(self.back(k, n)) for k, core in enumerate(self.cores))
        ends = self.locals((a, b), n)
        if self.scale != 1:
            ends = [
                core.origin + self.scale * (x - core.origin) for core, x in zip(self.cores, ends, strict=True)
            ]
        return Corner(self.between(ends), a, b)

    def apart(self, n: Array) -> Array:
        """Sigma(n)."""
        return jnp.dot(n, self.support(n).w)


class Corner(NamedTuple):
    """A point of B - A: w, and the numbers of the points of both."""

    w: Array
    a: Array
    b: Array


# --- The nearest place of a simplex

_EDGES = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
_FACES = np.array([(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)])


def _cross(x: Array, y: Array) -> Array:
    """Of vectors along the last axis."""
    a, b, c = (x[..., i] for i in range(3))
    d, e, f = (y[..., i] for i in range(3))
    return jnp.stack([b * f - c * e, c * d - a * f, a * e - b * d], -1)


def _dot(x: Array, y: Array) -> Array:
    return jnp.sum(x * y, -1)


def _over(x: Array, y: Array) -> Array:
    return x / jnp.where(y == 0, 1, y)


def _nearest(w: Float[Array, "4 3"], there: Array) -> tuple[Array, Array]:
    """Of the points that are there (4,): the weights of the place nearest to the origin, and its squared distance.

    By the nearest places of all sub-simplices: the nearest of those that lie within theirs.
    """
    eye = jnp.eye(4, dtype=w.dtype)
    i, j = _EDGES.T
    along = w[j] - w[i]
    share = _over(-_dot(w[i], along), _dot(along, along))
    on_edge = w[i] + share[:, None] * along
    edges = there[i] & there[j] & (share > 0) & (share < 1)
    of_edges = (1 - share)[:, None] * eye[i] + share[:, None] * eye[j]
    i, j, k = _FACES.T
    n = _cross(w[j] - w[i], w[k] - w[i])
    square = _dot(n, n)
    parts = [_over(_dot(n, _cross(w[x], w[y])), square) for x, y in ((j, k), (k, i), (i, j))]
    of_faces = sum(
        (part[:, None] * eye[x] for part, x in zip(parts, (i, j, k), strict=True)),
        jnp.zeros_like(n, shape=(4, 4)),
    )
    inside = (parts[0] > 0) & (parts[1] > 0) & (parts[2] > 0) & (square > 0)
    faces = there[i] & there[j] & there[k] & inside
    from_face = _over(_dot(n, w[i]) ** 2, square)
    # Of the whole tetrahedron: by its faces, each with the volume that it makes with the origin.
    volumes = jnp.stack(
        [(-1) ** (k + 1) * _dot(_cross(w[x], w[y]), w[z]) for k, (x, y, z) in enumerate(_FACES[::-1])]
    )
    whole = jnp.sum(volumes)
    of_whole = _over(volumes, whole)
    within = jnp.all(there) & jnp.all(of_whole > 0) & (whole != 0)
    none = jnp.inf
    squares = jnp.concatenate(
        [
            jnp.where(there, _dot(w, w), none),
            jnp.where(edges, _dot(on_edge, on_edge), none),
            jnp.where(faces, from_face, none),
            jnp.where(within, 0, none)[None],
        ]
    )
    weights = jnp.concatenate([eye, of_edges, of_faces, of_whole[None]])
    best, at = weights[0], squares[0]
    for weight, here in zip(weights[1:], squares[1:], strict=True):
        best, at = jnp.where(here < at, weight, best), jnp.minimum(here, at)
    return best, at


class _Simplex(NamedTuple):
    """Four places of B - A (4, 3), points of both, weights of the place nearest to the origin (4,), which are used;
    and whether it is the nearest of all."""

    w: Array
    a: Array
    b: Array
    weights: Array
    done: Array
    tries: Array

    @property
    def v(self) -> Array:
        """The nearest place."""
        return self.weights @ self.w


_TRIES = 100


def _find_simplex(pair: Pair, start: Array, touching: Array) -> _Simplex:
    """By Gilbert, Johnson and Keerthi's method, until bodies overlap or are nearer than a distance."""
    first, dtype = pair.support(start), start.dtype
    four = lambda x: jnp.stack([x, *[jnp.zeros_like(x)] * 3])
    eps = jnp.finfo(dtype).eps

    def nearer(s: _Simplex) -> _Simplex:
        v = s.v
        square, used = _dot(v, v), s.weights > 0
        length = jnp.sqrt(square)
        new = pair.support(_over(v, length))
        again = jnp.any(
            used
            & (s.a == new.a)
            & (s.b == new.b)
            & (jnp.max(jnp.abs(s.w - new.w[None]), -1) <= 4 * eps * length)
        )
        # No place is nearer than v . w / |v|.
        near = square - _dot(v, new.w) <= 16 * eps * square
        free = jnp.argmin(used)
        place = jnp.arange(4) == free
        w = jnp.where(place[:, None], new.w[None], s.w)
        weights, less = _nearest(w, used | place)
        full = jnp.all(weights > 0) | (less <= touching**2)
        stays = again | near | ((less >= square) & ~full)
        keep = lambda x, y: jnp.where(stays, y, x)
        return _Simplex(
            keep(w, s.w),
            keep(jnp.where(place, new.a, s.a), s.a),
            keep(jnp.where(place, new.b, s.b), s.b),
            keep(weights, s.weights),
            stays | full,
            s.tries + 1,
        )

    begin = _Simplex(
        four(first.w),
        four(first.a),
        four(first.b),
        jnp.eye(4, dtype=dtype)[0],
        _dot(first.w, first.w) <= touching**2,
        jnp.asarray(0),
    )
    return lax.while_loop(lambda s: ~s.done & (s.tries < _TRIES), nearer, begin)


# --- The face of B - A that is nearest to the origin, from within

_CORNERS, _SIDES, _RIM = 96, 640, 96
"""How large the polytope may become, and the edge along which it grows."""


class _Polytope(NamedTuple):
    """Some corners of B - A and the faces of their convex hull, in memory.

    - `w`, `a`, `b`: corners (n, 3), and the numbers of their points (n,).
    - `sides`, `normals`, `offsets`: faces: their corners (m, 3), outer normals (m, 3), and how far these are from the
      origin (m,); infinitely far for faces that are there no longer.
    - `corners`, `faces`: how many there are.
    - `nearest`: the nearest face.
    - `done`: whether no corner of B - A is beyond that.
    """

    w: Array
    a: Array
    b: Array
    sides: Array
    normals: Array
    offsets: Array
    corners: Array
    faces: Array
    nearest: Array
    done: Array


def _with_corner(p: _Polytope, new: Corner) -> _Polytope:
    at = p.corners
    return p._replace(
        w=put_item(p.w, at, new.w), a=put(p.a, at, new.a), b=put(p.b, at, new.b), corners=at + 1
    )


def _with_face(p: _Polytope, corners: Array) -> _Polytope:
    """With one more face; one without area counts as infinitely far."""
    at, (x, y, z) = p.faces, (item(p.w, _within(corners[k], _CORNERS)) for k in range(3))
    n = _cross(y - x, z - x)
    size, sides = jnp.sqrt(_dot(n, n)), jnp.maximum(_dot(y - x, y - x), _dot(z - x, z - x))
    flat = size <= 1e-14 * sides
    n = _over(n, size)
    # From all three corners the same to rounding; the nearest to the origin is the most exact.
    offset = jnp.where(flat, jnp.inf, _dot(n, x))
    return p._replace(
        sides=put_item(p.sides, at, corners),
        normals=put_item(p.normals, at, n),
        offsets=put(p.offsets, at, offset),
        faces=at + 1,
    )


def _tetrahedron(pair: Pair, dtype: jnp.dtype) -> _Polytope:
    """Four corners of B - A that span a volume, as far as there is one."""
    unit = jnp.eye(3, dtype=dtype)
    choose = lambda yes, x, y: jax.tree.map(lambda x, y: jnp.where(yes, x, y), x, y)

    def farther(n: Array, x: Array) -> Corner:
        """The farther of two corners along n and against it, from a place x."""
        first, second = pair.support(n), pair.support(-n)
        reach = lambda c: jnp.abs(_dot(c.w - x, n))
        return choose(reach(first) >= reach(second), first, second)

    one, two = pair.support(unit[0]), pair.support(-unit[0])
    along = two.w - one.w
    # Across the line, by the axis that is least along it.
    least = jnp.argmin(jnp.abs(along))
    across = _cross(along, jnp.where(jnp.arange(3) == least, 1, 0).astype(dtype))
    across = _over(across, jnp.sqrt(_dot(across, across)))
    other = _cross(along, across)
    other = _over(other, jnp.sqrt(_dot(other, other)))
    three, instead = farther(across, one.w), farther(other, one.w)
    off = lambda c, n: jnp.abs(_dot(c.w - one.w, n))
    three = choose(off(three, across) >= off(instead, other), three, instead)
    normal = _cross(along, three.w - one.w)
    normal = _over(normal, jnp.sqrt(_dot(normal, normal)))
    four = farther(normal, one.w)
    # Outer normals: the fourth corner lies below the face of the others.
    above = _dot(normal, four.w - one.w) > 0
    two, three = choose(above, three, two), choose(above, two, three)
    none = jnp.asarray(0)
    p = _Polytope(
        w=blank((_CORNERS, 3), dtype),
        a=blank(_CORNERS, none.dtype),
        b=blank(_CORNERS, none.dtype),
        sides=blank((_SIDES, 3), none.dtype),
        normals=blank((_SIDES, 3), dtype),
        offsets=blank(_SIDES, dtype),
        corners=none,
        faces=none,
        nearest=none,
        done=jnp.asarray(False),
    )
    for corner in (one, two, three, four):
        p = _with_corner(p, corner)
    sides = jnp.asarray(np.array([(0, 1, 2), (0, 3, 1), (1, 3, 2), (2, 3, 0)]))
    return loop(4, lambda f, p: _with_face(p, item(sides, f)), p)


def _nearest_face(p: _Polytope) -> Array:
    def look(f: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
        here = entry(p.offsets, f)
        return jnp.where(here < best[1], f, best[0]), jnp.minimum(here, best[1])

    return loop(p.faces, look, (jnp.zeros_like(p.faces), jnp.asarray(jnp.inf, p.offsets.dtype)))[0]


def _expand(pair: Pair, size: Array, dtype: jnp.dtype) -> _Polytope:
    """By the expanding polytope method, until the nearest face is one of B - A."""
    curved = jnp.max(jnp.abs(pair.cores[0].spread)) + jnp.max(jnp.abs(pair.cores[1].spread)) > 0
    # Curved bodies have no faces: Newton's method takes over where a face is near to them.
    enough = size * jnp.where(curved, 1e-5, choose_by_precision(dtype, 1e-13, 1e-6))
    level = size * choose_by_precision(dtype, 1e-14, 1e-6)

    def grow(p: _Polytope) -> _Polytope:
        f = p.nearest
        n = item(p.normals, f)
        new = pair.support(-n)
        full = (p.corners + 1 >= _CORNERS) | (p.faces + _RIM >= _SIDES)
        done = (_dot(n, new.w) - entry(p.offsets, f) <= enough) | full
        whole = jnp.zeros_like(p.faces)
        rim = blank((_RIM, 2), whole.dtype)

        def edge(i: Array, j: Array, rim: tuple[Array, Array]) -> tuple[Array, Array]:
            """The rim without an edge, where it has it the other way round; else with it."""
            ends, count = rim
            found = loop(
                count, lambda e, at: jnp.where(jnp.all(item(ends, e) == jnp.stack([j, i])), e, at), count
            )
            there = found < count
            last = jnp.maximum(count - 1, 0)
            new = jnp.where(there, item(ends, last), jnp.stack([i, j]))
            ends = put_item(ends, jnp.where(there, found, jnp.minimum(count, _RIM - 1)), new)
            return ends, jnp.where(there, count - 1, jnp.minimum(count + 1, _RIM))

        def seen(f: Array, so_far: tuple[Array, tuple[Array, Array]]) -> tuple[Array, tuple[Array, Array]]:
            offsets, rim = so_far
            visible = (entry(offsets, f) < jnp.inf) & (
                _dot(item(p.normals, f), new.w) - entry(offsets, f) > level
            )

            def drop(_: Array, so_far: tuple) -> tuple:
                offsets, rim = so_far
                corners = item(p.sides, f)
                one = lambda k, rim: edge(entry(corners, k), entry(corners, jnp.where(k == 2, 0, k + 1)), rim)

                return put(offsets, f, jnp.inf), loop(3, one, rim)

            return loop(visible.astype(f.dtype), drop, (offsets, rim))

        offsets, (ends, count) = loop(jnp.where(done, 0, p.faces), seen, (p.offsets, (rim, whole)))
        at = p.corners
        p = loop((~done).astype(whole.dtype), lambda _, p: _with_corner(p, new), p._replace(offsets=offsets))
        p = loop(count, lambda e, p: _with_face(p, jnp.append(item(ends, e), at)), p)
        return p._replace(nearest=_nearest_face(p), done=done)

    p = _tetrahedron(pair, dtype)
    p = p._replace(nearest=_nearest_face(p))
    return lax.while_loop(lambda p: ~p.done, grow, p)


# --- The parts of two bodies that are nearest to each other


class Feature(NamedTuple):
    """Where two bodies are nearest, as parts of each: flat parts told by edges, and points on them.

    - `n`: the normal, from the first to the second, in the world (3,).
    - `a`, `b`: points of the cores, without what is curved, in the reference postures [m] (3,).
    - `edges`: up to two directions of flat parts, in the axes of the body each belongs to (2, 3).
    - `of_second`: whether they belong to the second body (2,).
    - `rank`: how many there are.
    - `flat`: whether the disc of a body lies across the normal, so that it is flat there (2,).
    """

    n: Array
    a: Array
    b: Array
    edges: Array
    of_second: Array
    rank: Array
    flat: Array

    def ends(self, pair: Pair, n: Array) -> list[Array]:
        """The points that are nearest for a normal near by, in the reference postures."""
        own = enumerate(zip(pair.cores, (self.a, self.b), strict=True))
        return [x + jnp.where(self.flat[k], 0, core.curved(pair.back(k, n))) for k, (core, x) in own]

    def along(self, pair: Pair) -> list[Array]:
        """The edges in the world."""
        first, second = pair.places
        turn = lambda x, of_second: jnp.where(of_second, second.vector(x), first.vector(x))
        return [turn(x, second) for x, second in zip(self.edges, self.of_second, strict=True)]


def _conditions(n: Array, pair: Pair, f: Feature) -> Array:
    """What is zero at the normal: it is across the edges, else along the line between the nearest points."""
    (first, second), (one, two) = f.along(pair), across(f.n)
    w = pair.between(f.ends(pair, n))
    aside = w - _dot(n, w) * n
    return jnp.stack(
        [
            jnp.where(f.rank > 0, _dot(first, n), _dot(one, aside)),
            jnp.where(
                f.rank > 1,
                _dot(second, n),
                jnp.where(f.rank > 0, _dot(_cross(n, first), w), _dot(two, aside)),
            ),
            0.5 * (_dot(n, n) - 1),
        ]
    )


def _newton_matrix(pair: Pair, f: Feature) -> Array:
    """The inverse of the derivative of the conditions; zero where there is none: points on points that touch."""
    J = jax.jacfwd(_conditions)(f.n, pair, f)
    rows = jnp.stack([_cross(J[1], J[2]), _cross(J[2], J[0]), _cross(J[0], J[1])], 1)
    det = _dot(J[0], rows[:, 0])
    sizes = _dot(J, J)
    regular = jnp.abs(det) > 1e-14 * jnp.sqrt(sizes[0] * sizes[1] * sizes[2])
    return jnp.where(regular, rows / jnp.where(regular, det, 1), 0)


def _unit(n: Array) -> Array:
    return n / jnp.sqrt(_dot(n, n))


def _improve(pair: Pair, f: Feature) -> Feature:
    """A step of Newton's method, and points on the flat parts that lie along the normal."""
    f = f._replace(n=_unit(f.n - _newton_matrix(pair, f) @ _conditions(f.n, pair, f)))
    w, (first, second) = pair.between(f.ends(pair, f.n)), f.along(pair)
    aside = w - _dot(f.n, w) * f.n
    square = _dot(first, first)
    skew = _over(_dot(second, first), square)
    other = second - skew * first
    y = jnp.where(f.rank > 1, _over(_dot(aside, other), _dot(other, other)), 0)
    x = jnp.where(f.rank > 0, _over(_dot(aside, first), square), 0) - y * skew
    a, b = f.a, f.b
    for share, edge, of_second in zip((x, y), f.edges, f.of_second, strict=True):
        a, b = a + jnp.where(of_second, 0, share) * edge, b - jnp.where(of_second, share, 0) * edge
    return f._replace(a=a, b=b)


class _Found(NamedTuple):
    """Parts, sigma of their normal, and by how far another corner lies beyond them."""

    feature: Feature
    apart: Array
    off: Array


def _settle(pair: Pair, f: Feature, size: Array, best: _Found) -> _Found:
    """The better of two: what is known, and parts by Newton's method; then also with edges to corners beyond them."""
    dtype = f.n.dtype
    enough = choose_by_precision(dtype, 1e-13, 1e-6)

    def improve(state: tuple[Feature, Array, Array]) -> tuple[Feature, Array, Array]:
        new = _improve(pair, state[0])
        return new, jnp.max(jnp.abs(new.n - state[0].n)), state[2] + 1

    def settle(state: tuple[Feature, _Found, Array, Array]) -> tuple[Feature, _Found, Array, Array]:
        f, best, _, tries = state
        start = f, jnp.ones((), dtype), jnp.zeros_like(tries)
        f = lax.while_loop(lambda s: (s[1] > enough) & (s[2] < 8), improve, start)[0]
        corner = pair.support(f.n)
        edges = [core.point(i) - x for core, i, x in zip(pair.cores, corner[1:], (f.a, f.b), strict=True)]
        beyond = [_dot(pair.back(k, f.n), x) for k, x in enumerate(edges)]
        of_second, off = beyond[1] > beyond[0], jnp.maximum(jnp.maximum(*beyond), 0)
        new = _Found(f, _dot(f.n, corner.w), off)
        better = new.apart - off > best.apart - best.off + 10 * enough * size
        best = jax.tree.map(lambda x, y: jnp.where(better, x, y), new, best)
        adds = (off > 10 * enough * size) & (f.rank < 2)
        place = (jnp.arange(2) == f.rank) & adds
        edge = jnp.where(of_second, edges[1], edges[0])
        f = f._replace(
            edges=jnp.where(place[:, None], edge[None], f.edges),
            of_second=jnp.where(place, of_second, f.of_second),
            rank=f.rank + adds.astype(f.rank.dtype),
        )
        return f, best, adds, tries + 1

    start = f, best, jnp.asarray(True), jnp.zeros_like(f.rank)
    return lax.while_loop(lambda s: s[2] & (s[3] < 3), settle, start)[1]


def _feature(pair: Pair, n: Array, a: Array, b: Array, weights: Array, size: Array) -> Feature:
    """Of the place of a simplex with corners of points a and b, and some weights."""
    dtype = n.dtype
    used = weights > choose_by_precision(dtype, 1e-9, 1e-5)
    most = jnp.arange(weights.size) == jnp.argmax(weights)
    points = [jnp.stack([core.point(i) for i in x]) for core, x in zip(pair.cores, (a, b), strict=True)]
    ends = [weights @ x for x in points]
    off = [jnp.where(used[:, None], x - (most.astype(dtype) @ x)[None], 0) for x in points]
    edges = jnp.concatenate(off)
    world = jnp.concatenate(
        [jnp.stack([p.vector(x) for x in y]) for p, y in zip(pair.places, off, strict=True)]
    )
    second = jnp.arange(edges.shape[0]) >= weights.size
    pick = lambda which, x: jnp.sum(jnp.where(which.reshape(-1, *[1] * (x.ndim - 1)), x, 0), 0)
    places = jnp.arange(edges.shape[0])
    first = places == jnp.argmax(_dot(world, world))
    along = pick(first, world)
    aside = world - _over(world @ along, _dot(along, along))[:, None] * along[None]
    other = places == jnp.argmax(_dot(aside, aside))
    least = choose_by_precision(dtype, 1e-8, 1e-4) * size
    long = lambda x: _dot(x, x) > least**2
    rank = long(along).astype(a.dtype) * (1 + long(pick(other, aside)).astype(a.dtype))
    of_second = jnp.stack([jnp.any(first & second), jnp.any(other & second)])
    chosen = jnp.stack([pick(first, edges), pick(other, edges)])
    return Feature(n, ends[0], ends[1], chosen, of_second, rank, jnp.zeros(2, bool))


def _cap(pair: Pair, k: int, n: Array) -> Feature:
    """The flat end of a disc, on the side of a normal."""
    core, place = pair.cores[k], pair.places[k]
    axis = place.vector(core.axis)
    n = jnp.where(_dot(axis, n) < 0, -axis, axis)
    corner = pair.support(n)
    a, b = pair.cores[0].point(corner.a), pair.cores[1].point(corner.b)
    edges = jnp.stack(across(core.axis))
    whole = jnp.asarray(2, corner.a.dtype)
    return Feature(n, a, b, edges, jnp.full(2, k == 1), whole, jnp.arange(2) == k)


_RECORD = 20


def _packed(f: Feature) -> Array:
    return jnp.concatenate([jnp.ravel(x).astype(f.n.dtype) for x in f])


def _unpacked(x: Array, whole: jnp.dtype) -> Feature:
    n, a, b, edges, of_second, rank, flat = jnp.split(x, [3, 6, 9, 15, 17, 18])
    return Feature(n, a, b, edges.reshape(2, 3), of_second > 0, rank[0].astype(whole), flat > 0)


def _point_feature(pair: Pair, n: Array) -> Feature:
    """The points that are farthest along a normal, and what is curved about them."""
    corner = pair.support(n)
    a, b = pair.cores[0].point(corner.a), pair.cores[1].point(corner.b)
    zero, no = jnp.zeros((2, 3), n.dtype), jnp.zeros(2, bool)
    return Feature(n, a, b, zero, no, jnp.zeros((), corner.a.dtype), no)


def _face_feature(pair: Pair, p: _Polytope, size: Array) -> Feature:
    """The nearest face of a polytope."""
    corners = [_within(i, _CORNERS) for i in item(p.sides, p.nearest)]
    x, y, z = (item(p.w, i) for i in corners)
    m = _cross(y - x, z - x)
    weights = [_over(_dot(m, _cross(u, v)), _dot(m, m)) for u, v in ((y, z), (z, x), (x, y))]
    four = lambda x: jnp.stack([*x, x[0]])
    a, b = (four([entry(x, i) for i in corners]) for x in (p.a, p.b))
    weights = jnp.stack([*weights, jnp.zeros((), m.dtype)])
    return _feature(pair, -item(p.normals, p.nearest), a, b, weights, size)


_SHRUNK = (
    0.9  # bodies this much smaller do not overlap where they touch, and touch at the same parts as a rule
)


def nearest_feature(pair: Pair) -> tuple[Feature, Array]:
    """The parts of two bodies that are nearest to each other, and how far they are apart, without the radii."""
    first, second = pair.cores
    dtype, size = first.size.dtype, first.size + second.size
    ends = [place.point(core.point(core.first)) for core, place in zip(pair.cores, pair.places, strict=True)]
    start = ends[1] - ends[0]
    start = _unit(jnp.where(_dot(start, start) > 0, start, 1))
    touching = choose_by_precision(dtype, 1e-8, 1e-4) * size
    simplex = _find_simplex(pair, start, touching)
    distance = jnp.sqrt(_dot(simplex.v, simplex.v))
    near = jnp.all(simplex.weights > 0) | (distance <= touching)
    curved = jnp.any(first.spread != 0) | jnp.any(second.spread != 0)
    whole = simplex.tries.dtype

    def of_simplex(s: _Simplex) -> Feature:
        distance = jnp.sqrt(_dot(s.v, s.v))
        return _feature(pair, jnp.where(distance > 0, _over(s.v, distance), start), s.a, s.b, s.weights, size)

    def keep_if(there: Array, kept: tuple[Array, Array], find: Callable[[], Feature]) -> tuple[Array, Array]:
        def keep(_: Array, kept: tuple[Array, Array]) -> tuple[Array, Array]:
            records, count = kept
            return put_item(records, count, _packed(find())), count + 1

        return loop(there.astype(whole), keep, kept)

    def look(i: Array, state: tuple[tuple[Array, Array], _Found]) -> tuple[tuple[Array, Array], _Found]:
        (records, count), best = state
        # Last the corners that lie farthest by what is found.
        found = lambda _, records: put_item(records, i, _packed(_point_feature(pair, best.feature.n)))
        records = loop((i >= count).astype(whole), found, records)
        return (records, count), _settle(pair, _unpacked(item(records, i), whole), size, best)

    def search(state: tuple[Array, _Found]) -> tuple[Array, _Found]:
        """By simplices first; then, where bodies overlap, by the faces of B - A."""
        number, best = state
        by_simplex = number == 0
        kept = blank((6, _RECORD), dtype), jnp.zeros((), whole)
        kept = keep_if(by_simplex, kept, lambda: of_simplex(simplex))
        kept = keep_if(
            by_simplex & near,
            kept,
            lambda: of_simplex(_find_simplex(pair._replace(scale=_SHRUNK), start, 0 * size)),
        )
        kept = keep_if(~by_simplex, kept, lambda: _face_feature(pair, _expand(pair, size, dtype), size))
        records, count = kept
        towards = item(records, jnp.maximum(count - 1, 0))[:3]
        kept = keep_if(curved, kept, lambda: _point_feature(pair, towards))
        for k, core in enumerate(pair.cores):
            kept = keep_if(jnp.any(core.axis != 0), kept, lambda k=k: _cap(pair, k, towards))
        return number + 1, loop(kept[1] + curved.astype(whole), look, (kept, best))[1]

    goes_on = lambda s: (s[0] == 0) | ((s[0] == 1) & near & (s[1].apart < -touching))
    best = _Found(_point_feature(pair, start), jnp.asarray(-jnp.inf, dtype), jnp.zeros((), dtype))
    return lax.while_loop(goes_on, search, (jnp.zeros((), whole), best))[1][:2]


# --- Where they touch: the nearest parts, and the corners of the area where flat parts lie on each other

POINTS = 5
"""How many contacts two bodies have: where they are nearest, and up to four corners of the area that they share."""

_DIRECTIONS, _ROOM = 8, 24
_TILT = 0.03  # parts of which the normal is turned by less may lie on those of another body [rad]
_TURN = 0.3  # of the directions in which corners are sought, so that parallel edges have two corners as a rule [rad]


class Touch(NamedTuple):
    """What a contact of two bodies has where they are now, of which gaps near by are functions.

    - `feature`: the nearest parts.
    - `newton`: the matrix of Newton's method for the normal (3, 3).
    - `a`, `b`: further points on the surfaces, in the reference postures [m] (4, 3).
    - `there`: which of the points, the nearest ones first, are contacts of their own (5,).
    """

    feature: Feature
    newton: Array
    a: Array
    b: Array
    there: Array

    def gap(self, pair: Pair, i: Any) -> tuple[Array, Array, Array]:
        """Of contact i the gap, the place between the bodies, and the normal; without the contact the gap is large.

        The bodies may be near where they were, and their measures others.
        """
        (first, second), still = pair.cores, self.feature
        f = still._replace(a=first.follow(still.a), b=second.follow(still.b))
        n = _unit(f.n - self.newton @ _conditions(f.n, pair, f))
        nearest, found = f.ends(pair, n), []
        for k, (core, place, others) in enumerate(
            zip(pair.cores, pair.places, (self.a, self.b), strict=True)
        ):
            surface = place.point(nearest[k]) + (1 - 2 * k) * core.radius * n
            further = place.point(core.follow(item(others, jnp.maximum(i - 1, 0))))
            found.append(jnp.where(i == 0, surface, further))
        a, b = found
        gap = jnp.where(item(self.there, i), _dot(n, b - a), first.size + second.size)
        return gap, 0.5 * (a + b), n


class _Outline(NamedTuple):
    """What of a body lies towards another, seen along the normal.

    - `x`: corners, anticlockwise (n, 2).
    - `mean`, `slope`, `height`: the plane through them: z = height + slope . (x - mean).
    """

    x: Array
    mean: Array
    slope: Array
    height: Array

    def at(self, x: Array) -> Array:
        """The height of the plane."""
        return self.height + _dot(self.slope, x - self.mean)


def _direction(k: Array, count: int, dtype: jnp.dtype) -> Array:
    angle = _TURN + k.astype(dtype) * (2 * np.pi / count)
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def _outline(pair: Pair, k: int, axes: Array, middle: Array, near: Array) -> _Outline:
    core, place, (one, two, n) = pair.cores[k], pair.places[k], axes
    sign, dtype, along = 1 - 2 * k, n.dtype, place.back(n)
    level = _dot(along, core.spread @ along) < _TILT**2 * jnp.trace(core.spread)

    def look(i: Array, so_far: tuple) -> tuple:
        x, z = so_far
        c, s = _direction(i, _DIRECTIONS, dtype)
        d = place.back(sign * n + _TILT * (c * one + s * two))
        # A disc is curved about its rim: only where it lies flat does it reach to all sides.
        p = (
            place.point(core.point(core.farthest(d)) + core.curved(jnp.where(level, d, place.back(sign * n))))
            - middle
        )
        # Made wider by next to nothing, so that points and lines have an area too.
        x = put_item(x, i, jnp.stack([_dot(one, p) + near * c, _dot(two, p) + near * s]))
        return x, put(z, i, _dot(n, p))

    x, z = loop(_DIRECTIONS, look, (blank((_DIRECTIONS, 2), dtype), blank(_DIRECTIONS, dtype)))
    mean, height = jnp.mean(x, 0), jnp.mean(z)
    off, rise = x - mean[None], z - height
    xx, xy, yy = (_dot(off[:, i], off[:, j]) for i, j in ((0, 0), (0, 1), (1, 1)))
    along = jnp.stack([_dot(off[:, 0], rise), _dot(off[:, 1], rise)])
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
            return push(new, s * t < 0, x + _over(s, s - t) * (y - x))

        return loop(count, corner, (blank((_ROOM, 2), dtype), jnp.zeros_like(count)))

    corners = loop(_DIRECTIONS, lambda i, x: put_item(x, i, item(first.x, i)), blank((_ROOM, 2), dtype))
    return loop(_DIRECTIONS, cut, (corners, jnp.asarray(_DIRECTIONS)))


def find_touch(pair: Pair) -> Touch:
    """Where two bodies touch, or would: nothing of it is differentiated."""
    f, apart = nearest_feature(pair)
    first, second = pair.cores
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
            d = _direction(k, POINTS - 1, dtype)

            def farther(i: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
                x = item(shared, i)
                reach = _dot(d, x)
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
    return Touch(f, _newton_matrix(pair, f), a, b, there > 0)


def find_plane_touch(pair: Pair) -> Touch:
    """Where a body touches a half-space, whose core is a point on its plane with the normal for an axis."""
    (plane, core), (ground, place) = pair.cores, pair.places
    dtype, size = core.size.dtype, core.size
    n = ground.vector(plane.axis)
    one, two = across(n)
    down = place.back(-n)
    level = _dot(down, core.spread @ down) < _TILT**2 * jnp.trace(core.spread)
    near = choose_by_precision(dtype, 1e-6, 1e-3) * size
    found, points = [], []
    for k in range(POINTS):
        d = down
        if k:
            c, s = _direction(jnp.asarray(k), POINTS - 1, dtype)
            d = place.back(-n + _TILT * (c * one + s * two))
        number = core.farthest(d)
        curved = core.curved(jnp.where(level, d, down)) if k else core.curved(down)
        x = core.point(number)
        found.append(x if not k else x + curved + core.radius * down)
        points.append(x + curved)
    ahead = lambda k: [jnp.max(jnp.abs(points[k] - points[j])) > near for j in range(k)]
    there = jnp.stack([jnp.asarray(True), *(jnp.all(jnp.stack(ahead(k))) for k in range(1, POINTS))])
    down_on = lambda x: (
        ground.centre + ground.back(x - _dot(n, x - ground.point(plane.origin)) * n - ground.p)
    )
    below = [down_on(place.point(x)) for x in points]
    whole = jnp.asarray(2)
    edges = jnp.stack(across(plane.axis))
    flat = jnp.asarray(np.array([True, False]))
    f = Feature(n, below[0], found[0], edges, jnp.zeros(2, bool), whole, flat)
    return Touch(f, _newton_matrix(pair, f), jnp.stack(below[1:]), jnp.stack(found[1:]), there)
