"""The parts of two convex bodies that are nearest to each other, and the normal between them.

Parts are flat (corners, edges, faces) or curved. The normal is across the edges of the flat ones, and otherwise along the
line between the nearest points: equations that Newton's method solves to rounding, and of which the last step is what is
differentiated.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .._formula._contact_list import entry, item, loop, put_item
from .._misc._blank import blank
from .._misc._types import choose_by_precision
from ._convex import Pair, cross, divide, dot, pack, packed_size, unit, unpack, within
from ._convex_search import CORNERS, Parts, Polytope, expand, find_nearest, find_simplex
from ._joint_rows import across

_LONGEST = 0.1  # step of Newton's method [rad]: beyond it flat bodies have other normals
# Bodies this much smaller do not overlap where they touch, and touch at the same parts as a rule.
_SHRUNK = 0.9
_ENOUGH = 1e-6  # of the distance of curved bodies, from where on Newton's method finds it
_BESIDE = (
    0.05  # of a part, and of the sizes: places nearer to its end, and bodies farther apart, are found exactly
)
# Of the sizes: how far bodies are moved apart along a former normal, and how deep they may overlap there.
_APART, _SHALLOW = 1e-4, 1e-3


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


def conditions(n: Array, pair: Pair, f: Feature) -> Array:
    """What is zero at the normal: it is across the edges, else along the line between the nearest points."""
    (first, second), (one, two) = f.along(pair), across(f.n)
    w = pair.between(f.ends(pair, n))
    aside = w - dot(n, w) * n
    return jnp.stack(
        [
            jnp.where(f.rank > 0, dot(first, n), dot(one, aside)),
            jnp.where(
                f.rank > 1,
                dot(second, n),
                jnp.where(f.rank > 0, dot(cross(n, first), w), dot(two, aside)),
            ),
            0.5 * (dot(n, n) - 1),
        ]
    )


@jax.jit
def newton_matrix(pair: Pair, f: Feature) -> Array:
    """The inverse of the derivative of the conditions; zero where there is none: points on points that touch."""
    J = jax.jacfwd(conditions)(f.n, pair, f)
    rows = jnp.stack([cross(J[1], J[2]), cross(J[2], J[0]), cross(J[0], J[1])], 1)
    det = dot(J[0], rows[:, 0])
    sizes = dot(J, J)
    regular = jnp.abs(det) > 1e-14 * jnp.sqrt(sizes[0] * sizes[1] * sizes[2])
    return jnp.where(regular, rows / jnp.where(regular, det, 1), 0)


def _improve(pair: Pair, f: Feature) -> Feature:
    """A step of Newton's method, and points on the flat parts that lie along the normal."""
    step = newton_matrix(pair, f) @ conditions(f.n, pair, f)
    length = jnp.sqrt(dot(step, step))
    f = f._replace(n=unit(f.n - step / jnp.maximum(length / _LONGEST, 1)))
    w, (first, second) = pair.between(f.ends(pair, f.n)), f.along(pair)
    aside = w - dot(f.n, w) * f.n
    square = dot(first, first)
    skew = divide(dot(second, first), square)
    other = second - skew * first
    y = jnp.where(f.rank > 1, divide(dot(aside, other), dot(other, other)), 0)
    x = jnp.where(f.rank > 0, divide(dot(aside, first), square), 0) - y * skew
    a, b = f.a, f.b
    for share, edge, of_second in zip((x, y), f.edges, f.of_second, strict=True):
        a, b = a + jnp.where(of_second, 0, share) * edge, b - jnp.where(of_second, share, 0) * edge
    return f._replace(a=a, b=b)


class _Candidate(NamedTuple):
    """Parts, sigma of their normal, and by how far another corner lies beyond them, or they are beside each other."""

    feature: Feature
    apart: Array
    off: Array


def _settle(pair: Pair, f: Feature, size: Array, best: _Candidate) -> _Candidate:
    """The better of two: what is known, and parts by Newton's method; then also with edges to corners beyond them."""
    dtype = f.n.dtype
    enough = choose_by_precision(dtype, 1e-13, 1e-6)
    # After a step as small its square is left, which is rounding.
    last = choose_by_precision(dtype, 1e-8, 1e-4)

    def improve(state: tuple[Feature, Array, Array]) -> tuple[Feature, Array, Array]:
        new = _improve(pair, state[0])
        return new, jnp.max(jnp.abs(new.n - state[0].n)), state[2] + 1

    def settle(state: tuple[Feature, _Candidate, Array, Array]) -> tuple[Feature, _Candidate, Array, Array]:
        f, best, _, tries = state
        start = f, jnp.ones((), dtype), jnp.zeros_like(tries)
        f = lax.while_loop(lambda s: (s[1] > last) & (s[2] < 20), improve, start)[0]
        corner = pair.support(f.n)
        edges = [core.point(i) - x for core, i, x in zip(pair.cores, corner[1:], (f.a, f.b), strict=True)]
        beyond = [dot(pair.back(k, f.n), x) for k, x in enumerate(edges)]
        of_second, off = beyond[1] > beyond[0], jnp.maximum(jnp.maximum(*beyond), 0)
        # The nearest points lie along the normal, or this is none.
        w = pair.between(f.ends(pair, f.n))
        aside = jnp.max(jnp.abs(w - dot(f.n, w) * f.n))
        new = _Candidate(f, dot(f.n, corner.w), jnp.maximum(off, aside))
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


def _feature(pair: Pair, parts: Parts, size: Array) -> Feature:
    """Of a place of B - A: the edges between the corners that are used."""
    (n, a, b, weights), dtype = parts, parts.n.dtype
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
    first = places == jnp.argmax(dot(world, world))
    along = pick(first, world)
    aside = world - divide(world @ along, dot(along, along))[:, None] * along[None]
    other = places == jnp.argmax(dot(aside, aside))
    least = choose_by_precision(dtype, 1e-8, 1e-4) * size
    long = lambda x: dot(x, x) > least**2
    rank = long(along).astype(a.dtype) * (1 + long(pick(other, aside)).astype(a.dtype))
    of_second = jnp.stack([jnp.any(first & second), jnp.any(other & second)])
    chosen = jnp.stack([pick(first, edges), pick(other, edges)])
    return Feature(n, ends[0], ends[1], chosen, of_second, rank, jnp.zeros(2, bool))


def _cap(pair: Pair, k: int, n: Array) -> Feature:
    """The flat end of a disc, on the side of a normal."""
    core, place = pair.cores[k], pair.places[k]
    axis = place.vector(core.axis)
    n = jnp.where(dot(axis, n) < 0, -axis, axis)
    corner = pair.support(n)
    a, b = pair.cores[0].point(corner.a), pair.cores[1].point(corner.b)
    edges = jnp.stack(across(core.axis))
    whole = jnp.asarray(2, corner.a.dtype)
    return Feature(n, a, b, edges, jnp.full(2, k == 1), whole, jnp.arange(2) == k)


def _point_feature(pair: Pair, n: Array) -> Feature:
    """The points that are farthest along a normal, and what is curved about them."""
    corner = pair.support(n)
    a, b = pair.cores[0].point(corner.a), pair.cores[1].point(corner.b)
    zero, no = jnp.zeros((2, 3), n.dtype), jnp.zeros(2, bool)
    return Feature(n, a, b, zero, no, jnp.zeros((), corner.a.dtype), no)


def _nearest_face(p: Polytope) -> Parts:
    corners = [within(i, CORNERS) for i in item(p.sides, p.nearest)]
    x, y, z = (item(p.w, i) for i in corners)
    m = cross(y - x, z - x)
    weights = [divide(dot(m, cross(u, v)), dot(m, m)) for u, v in ((y, z), (z, x), (x, y))]
    four = lambda x: jnp.stack([*x, x[0]])
    a, b = (four([entry(x, i) for i in corners]) for x in (p.a, p.b))
    return Parts(-item(p.normals, p.nearest), a, b, jnp.stack([*weights, jnp.zeros((), m.dtype)]))


def no_parts(dtype: jnp.dtype) -> Parts:
    """Nothing known of where bodies are nearest."""
    none = jnp.zeros(4, jnp.asarray(0).dtype)
    return Parts(jnp.zeros(3, dtype), none, none, jnp.zeros(4, dtype))


class _Search(NamedTuple):
    """Where the search is."""

    stage: Array  # what is looked at next, see `nearest_feature`
    parts: Parts  # the last that were found
    near: Array  # whether bodies overlap, or nearly
    best: _Candidate  # the best feature


def _of_corners(pair: Pair, parts: Parts, n: Array) -> Array:
    """How far a place of B - A is from the origin: the nearest one of some corners, with what is curved along n."""
    w = jnp.stack([pair.corner(a, b, n) for a, b in zip(parts.a, parts.b, strict=True)])
    return jnp.sqrt(find_nearest(w, parts.weights > 0)[1])


def _of_disc(pair: Pair, f: Feature) -> Array:
    """The same of a place on a flat disc, infinite beside the disc."""
    w, outside = pair.between(f.ends(pair, f.n)) + pair.shift, jnp.asarray(False)
    for k, (core, x) in enumerate(zip(pair.cores, (f.a, f.b), strict=True)):
        off = x - core.point(pair.farthest(k, f.n))
        outside |= f.flat[k] & (dot(off, off) > 0.5 * jnp.sum(core.spread**2))
    return jnp.where(outside, jnp.inf, jnp.sqrt(dot(w, w)))


_SAME, _FORMER, _ROUGH, _EXACT, _SHRINK, _FACES, _DONE = range(7)


def nearest_feature(pair: Pair, former: Parts) -> tuple[Feature, Array, Parts]:
    """The parts of two bodies that are nearest to each other, and how far they are apart, without the radii.

    Stages, each where the one before has not led to the nearest parts:

    - same, former: bodies are moved apart along the normal of the parts that were nearest a short time ago, so that they
      do not overlap; then these parts are the nearest still, or simplices start at them;
    - rough, exact: simplices from nothing known, of curved bodies first as near as Newton's method needs;
    - shrink: of bodies that overlap, simplices of smaller ones;
    - faces: of those that overlap by more than a little, the faces of B - A.

    Parts of bodies that are apart are proved to be the nearest: sigma of their normal, which is never more than the
    distance, is as large as some place of B - A is far from the origin.
    """
    first, second = pair.cores
    pair = pair.look_near(former)
    dtype, size = first.size.dtype, first.size + second.size
    ends = [place.point(core.point(core.first)) for core, place in zip(pair.cores, pair.places, strict=True)]
    start = ends[1] - ends[0]
    start = unit(jnp.where(dot(start, start) > 0, start, 1))
    touching = choose_by_precision(dtype, 1e-8, 1e-4) * size
    rounding = 16 * jnp.finfo(dtype).eps
    curved = jnp.any(first.spread != 0) | jnp.any(second.spread != 0)
    whole = former.a.dtype
    no = jnp.zeros(2, bool)
    yes = lambda there: there.astype(whole)
    zero = jnp.zeros(3, dtype)
    nothing = Feature(start, zero, zero, jnp.zeros((2, 3), dtype), no, jnp.zeros((), whole), no)

    def search(s: _Search) -> _Search:
        same, by_former, by_faces = s.stage == _SAME, s.stage <= _FORMER, s.stage == _FACES
        enough = jnp.where(curved & (s.stage <= _ROUGH), _ENOUGH, rounding)
        # How far bodies are moved apart along the former normal.
        overlap = _APART * size - pair.apart(s.parts.n)
        shift = jnp.where(by_former, jnp.maximum(overlap, 0), 0) * s.parts.n
        scale = jnp.where(s.stage == _SHRINK, _SHRUNK, 1.0).astype(dtype)
        moved = pair._replace(scale=scale, shift=shift)
        begin = jax.tree.map(
            lambda x, y: jnp.where(by_former, x, y), s.parts, no_parts(dtype)._replace(n=start)
        )

        def simplex(_: Array, so_far: tuple) -> tuple:
            least = jnp.where(s.stage == _SHRINK, 0, touching)
            found = find_simplex(moved, begin, least, enough)
            distance = jnp.sqrt(dot(found.v, found.v))
            n = jnp.where(distance > 0, divide(found.v, distance), start)
            near = jnp.all(found.weights > 0) | (distance <= touching)
            return Parts(n, found.a, found.b, found.weights), near

        def faces(_: Array, so_far: tuple) -> tuple:
            return _nearest_face(expand(pair, size, dtype)), so_far[1]

        none = s.parts, ~same
        parts, near = loop(yes(by_faces), faces, loop(yes(~by_faces & ~same), simplex, none))
        here = pair.look_near(parts)
        # Only of what is apart it is known.
        proves = (s.stage <= _EXACT) & ~near

        def is_nearest(best: _Candidate) -> Array:
            (f, apart, off), n = best, best.feature.n
            small = choose_by_precision(dtype, 1e-12, 1e-5) * size
            # Along the normal itself, so that the place along it is the nearest of those moved, if it is one of B - A.
            way = jnp.where(by_former, jnp.maximum(_APART * size - apart, 0), 0)
            moved = here._replace(scale=scale, shift=way * n)
            bound = lax.cond(
                jnp.any(f.flat), lambda: _of_disc(moved, f), lambda: _of_corners(moved, parts, n)
            )
            right = (apart + way >= bound - small) & (off <= small)
            return proves & right & (~by_former | (apart > -_SHALLOW * size))

        kept = blank((5, packed_size(nothing)), dtype), jnp.zeros((), whole)

        def keep_if(there: Array, kept: tuple, find: Callable[[], Feature]) -> tuple:
            keep = lambda _, kept: (put_item(kept[0], kept[1], pack(find(), dtype)), kept[1] + 1)
            return loop(yes(there), keep, kept)

        kept = keep_if(jnp.asarray(True), kept, lambda: _feature(here, parts, size))
        kept = keep_if(curved, kept, lambda: _point_feature(here, parts.n))
        for k, core in enumerate(pair.cores):
            kept = keep_if(jnp.any(core.axis != 0), kept, lambda k=k: _cap(here, k, parts.n))
        count = kept[1] + yes(curved & ~by_former)

        def look(state: tuple[Array, Array, Array, _Candidate]) -> tuple[Array, Array, Array, _Candidate]:
            i, _, records, best = state
            # Last the corners that lie farthest by what is found.
            last = lambda _, records: put_item(records, i, pack(_point_feature(here, best.feature.n), dtype))
            records = loop(yes(i >= kept[1]), last, records)
            best = _settle(here, unpack(item(records, i), nothing), size, best)
            return i + 1, is_nearest(best), records, best

        goes_on = lambda state: (state[0] < count) & ~state[1]
        first_look = jnp.zeros((), whole), jnp.asarray(False), kept[0], s.best
        _, known, _, best = lax.while_loop(goes_on, look, first_look)
        # What overlaps deeply is looked for anew.
        deep = (s.stage == _SHRINK) & (best.apart < -touching)
        after = jnp.where(near & (s.stage <= _EXACT), _SHRINK, jnp.where(deep, _FACES, _DONE))
        after = jnp.where(~near & (s.stage == _ROUGH), _EXACT, after)
        after = jnp.where(known, _DONE, jnp.where(by_former, s.stage + 1, after))
        best = best._replace(apart=jnp.where(by_former & ~known, -jnp.inf, best.apart))
        return _Search(after, parts, near, best)

    best = _Candidate(nothing, jnp.asarray(-jnp.inf, dtype), jnp.zeros((), dtype))
    stage = jnp.where(jnp.any(former.weights > 0), _SAME, _ROUGH)
    begin = _Search(stage, former, jnp.asarray(False), best)
    found = lax.while_loop(lambda s: s.stage < _DONE, search, begin)
    n = found.best.feature.n
    return found.best.feature, found.best.apart, found.parts._replace(n=n)
