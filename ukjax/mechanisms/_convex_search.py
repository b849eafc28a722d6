"""The parts of two convex bodies that are nearest to each other, sought on B - A, the differences of their points.

- Gilbert, Johnson and Keerthi's method (1988), for bodies that are apart: the place of B - A that is nearest to the
  origin, on simplices.
- The expanding polytope (van den Bergh 2003), for bodies that overlap: the face that is nearest to the origin.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .._formula._contact_list import entry, item, loop, put, put_item
from .._misc._blank import blank
from .._misc._types import choose_by_precision
from ._convex import Corner, Pair, cross, divide, dot, within

# --- The nearest place of a simplex

_EDGES = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
_FACES = np.array([(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)])


@jax.jit
def find_nearest(w: Float[Array, "4 3"], there: Array) -> tuple[Array, Array]:
    """Of the points that are there (4,): the weights of the place nearest to the origin, and its squared distance.

    By the nearest places of all sub-simplices: the nearest of those that lie within theirs.
    """
    eye = jnp.eye(4, dtype=w.dtype)
    i, j = _EDGES.T
    along = w[j] - w[i]
    share = divide(-dot(w[i], along), dot(along, along))
    on_edge = w[i] + share[:, None] * along
    edges = there[i] & there[j] & (share > 0) & (share < 1)
    of_edges = (1 - share)[:, None] * eye[i] + share[:, None] * eye[j]
    i, j, k = _FACES.T
    n = cross(w[j] - w[i], w[k] - w[i])
    square = dot(n, n)
    parts = [divide(dot(n, cross(w[x], w[y])), square) for x, y in ((j, k), (k, i), (i, j))]
    of_faces = sum(
        (part[:, None] * eye[x] for part, x in zip(parts, (i, j, k), strict=True)),
        jnp.zeros_like(n, shape=(4, 4)),
    )
    inside = (parts[0] > 0) & (parts[1] > 0) & (parts[2] > 0) & (square > 0)
    faces = there[i] & there[j] & there[k] & inside
    from_face = divide(dot(n, w[i]) ** 2, square)
    # Of the whole tetrahedron: by its faces, each with the volume that it makes with the origin.
    volumes = jnp.stack(
        [(-1) ** (k + 1) * dot(cross(w[x], w[y]), w[z]) for k, (x, y, z) in enumerate(_FACES[::-1])]
    )
    whole = jnp.sum(volumes)
    of_whole = divide(volumes, whole)
    within = jnp.all(there) & jnp.all(of_whole > 0) & (whole != 0)
    none = jnp.inf
    squares = jnp.concatenate(
        [
            jnp.where(there, dot(w, w), none),
            jnp.where(edges, dot(on_edge, on_edge), none),
            jnp.where(faces, from_face, none),
            jnp.where(within, 0, none)[None],
        ]
    )
    weights = jnp.concatenate([eye, of_edges, of_faces, of_whole[None]])
    best, at = weights[0], squares[0]
    for weight, here in zip(weights[1:], squares[1:], strict=True):
        best, at = jnp.where(here < at, weight, best), jnp.minimum(here, at)
    return best, at


class Parts(NamedTuple):
    """Where two bodies are nearest, as a place of up to four corners of B - A."""

    n: Array  # the normal, from the first to the second, in the world (3,)
    # `a`, `b`: the numbers of the points of both (4,).
    a: Array
    b: Array
    weights: Array  # of the corners at the place (4,); those that are not used have none


class Simplex(NamedTuple):
    """Four corners of B - A (4, 3), points of both, weights of the place nearest to the origin (4,), which are used;
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


def find_simplex(pair: Pair, start: Parts, touching: Array, enough: Array) -> Simplex:
    """By Gilbert, Johnson and Keerthi's method, from some corners on, or from the farthest one where there are none.

    It ends where bodies overlap or are nearer than a distance `touching`, and where no place is nearer by more than a
    share `enough`.
    """
    dtype = start.n.dtype
    eps, one = jnp.finfo(dtype).eps, jnp.eye(4, dtype=dtype)[0]

    def nearer(s: Simplex) -> Simplex:
        v = s.v
        square, used = dot(v, v), s.weights > 0
        length, most = jnp.sqrt(square), jnp.argmax(s.weights)
        new = pair._replace(near=(entry(s.a, most), entry(s.b, most))).support(divide(v, length))
        again = jnp.any(
            used
            & (s.a == new.a)
            & (s.b == new.b)
            & (jnp.max(jnp.abs(s.w - new.w[None]), -1) <= 4 * eps * length)
        )
        # No place is nearer than v . w / |v|.
        near = square - dot(v, new.w) <= enough * square
        free = jnp.argmin(used)
        place = jnp.arange(4) == free
        w = jnp.where(place[:, None], new.w[None], s.w)
        weights, less = find_nearest(w, used | place)
        full = jnp.all(weights > 0) | (less <= touching**2)
        stays = again | near | ((less >= square) & ~full)
        keep = lambda x, y: jnp.where(stays, y, x)
        return Simplex(
            keep(w, s.w),
            keep(jnp.where(place, new.a, s.a), s.a),
            keep(jnp.where(place, new.b, s.b), s.b),
            keep(weights, s.weights),
            stays | full,
            s.tries + 1,
        )

    first, used = pair.support(start.n), start.weights > 0
    none = ~jnp.any(used)
    pick = lambda x, own: jnp.where(
        used, x, own
    )  # in the places that are not used the farthest corner stands
    a, b = pick(start.a, first.a), pick(start.b, first.b)
    w = jnp.stack([pair.corner(i, j, start.n) for i, j in zip(a, b, strict=True)])
    weights, less = find_nearest(w, used)
    weights, less = jnp.where(none, one, weights), jnp.where(none, dot(first.w, first.w), less)
    done = jnp.all(weights > 0) | (less <= touching**2)
    return lax.while_loop(
        lambda s: ~s.done & (s.tries < _TRIES), nearer, Simplex(w, a, b, weights, done, jnp.asarray(0))
    )


# --- The face of B - A that is nearest to the origin, from within

CORNERS, _SIDES, _RIM = 128, 860, 96
"""How large the polytope may become, and the edge along which it grows."""


class Polytope(NamedTuple):
    """Some corners of B - A and the faces of their convex hull, in memory."""

    # `w`, `a`, `b`: corners (n, 3), and the numbers of their points (n,).
    w: Array
    a: Array
    b: Array
    # `sides`, `normals`, `offsets`: faces: their corners (m, 3), outer normals (m, 3), and how far these are
    # from the origin (m,); infinitely far for faces that are there no longer.
    sides: Array
    normals: Array
    offsets: Array
    # `corners`, `faces`: how many there are.
    corners: Array
    faces: Array
    nearest: Array  # the nearest face
    done: Array  # whether no corner of B - A is beyond that


def _with_corner(p: Polytope, new: Corner) -> Polytope:
    at = p.corners
    return p._replace(
        w=put_item(p.w, at, new.w), a=put(p.a, at, new.a), b=put(p.b, at, new.b), corners=at + 1
    )


def _with_face(p: Polytope, corners: Array) -> Polytope:
    """With one more face; one without area counts as infinitely far."""
    at, (x, y, z) = p.faces, (item(p.w, within(corners[k], CORNERS)) for k in range(3))
    n = cross(y - x, z - x)
    size, sides = jnp.sqrt(dot(n, n)), jnp.maximum(dot(y - x, y - x), dot(z - x, z - x))
    flat = size <= 1e-14 * sides
    n = divide(n, size)
    # From all three corners the same to rounding; the nearest to the origin is the most exact.
    offset = jnp.where(flat, jnp.inf, dot(n, x))
    return p._replace(
        sides=put_item(p.sides, at, corners),
        normals=put_item(p.normals, at, n),
        offsets=put(p.offsets, at, offset),
        faces=at + 1,
    )


def _tetrahedron(pair: Pair, dtype: jnp.dtype) -> Polytope:
    """Four corners of B - A that span a volume, as far as there is one."""
    unit = jnp.eye(3, dtype=dtype)
    choose = lambda yes, x, y: jax.tree.map(lambda x, y: jnp.where(yes, x, y), x, y)

    def farther(n: Array, x: Array) -> Corner:
        """The farther of two corners along n and against it, from a place x."""
        first, second = pair.support(n), pair.support(-n)
        reach = lambda c: jnp.abs(dot(c.w - x, n))
        return choose(reach(first) >= reach(second), first, second)

    one, two = pair.support(unit[0]), pair.support(-unit[0])
    along = two.w - one.w
    # Across the line, by the axis that is least along it.
    least = jnp.argmin(jnp.abs(along))
    across = cross(along, jnp.where(jnp.arange(3) == least, 1, 0).astype(dtype))
    across = divide(across, jnp.sqrt(dot(across, across)))
    other = cross(along, across)
    other = divide(other, jnp.sqrt(dot(other, other)))
    three, instead = farther(across, one.w), farther(other, one.w)
    off = lambda c, n: jnp.abs(dot(c.w - one.w, n))
    three = choose(off(three, across) >= off(instead, other), three, instead)
    normal = cross(along, three.w - one.w)
    normal = divide(normal, jnp.sqrt(dot(normal, normal)))
    four = farther(normal, one.w)
    # Outer normals: the fourth corner lies below the face of the others.
    above = dot(normal, four.w - one.w) > 0
    two, three = choose(above, three, two), choose(above, two, three)
    none = jnp.asarray(0)
    p = Polytope(
        w=blank((CORNERS, 3), dtype),
        a=blank(CORNERS, none.dtype),
        b=blank(CORNERS, none.dtype),
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


def _nearest_face(p: Polytope) -> Array:
    def look(f: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
        here = entry(p.offsets, f)
        return jnp.where(here < best[1], f, best[0]), jnp.minimum(here, best[1])

    return loop(p.faces, look, (jnp.zeros_like(p.faces), jnp.asarray(jnp.inf, p.offsets.dtype)))[0]


def expand(pair: Pair, size: Array, dtype: jnp.dtype) -> Polytope:
    """By the expanding polytope method, until the nearest face is one of B - A."""
    curved = jnp.max(jnp.abs(pair.cores[0].spread)) + jnp.max(jnp.abs(pair.cores[1].spread)) > 0
    # Curved bodies have no faces: Newton's method takes over where a face is near to them.
    enough = size * jnp.where(curved, 1e-5, choose_by_precision(dtype, 1e-13, 1e-6))
    level = size * choose_by_precision(dtype, 1e-11, 1e-6)

    def grow(p: Polytope) -> Polytope:
        f = p.nearest
        n = item(p.normals, f)
        corner = item(p.sides, f)[0]
        new = pair._replace(near=(entry(p.a, corner), entry(p.b, corner))).support(-n)
        full = (p.corners + 1 >= CORNERS) | (p.faces + _RIM >= _SIDES)
        done = (dot(n, new.w) - entry(p.offsets, f) <= enough) | full
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

        def seen(i: Array, so_far: tuple[Array, tuple[Array, Array]]) -> tuple[Array, tuple[Array, Array]]:
            offsets, rim = so_far
            above = dot(item(p.normals, i), new.w) - entry(offsets, i) > level
            visible = (entry(offsets, i) < jnp.inf) & (above | (i == f))

            def drop(_: Array, so_far: tuple) -> tuple:
                offsets, rim = so_far
                corners = item(p.sides, i)
                one = lambda k, rim: edge(entry(corners, k), entry(corners, jnp.where(k == 2, 0, k + 1)), rim)

                return put(offsets, i, jnp.inf), loop(3, one, rim)

            return loop(visible.astype(f.dtype), drop, (offsets, rim))

        offsets, (ends, count) = loop(jnp.where(done, 0, p.faces), seen, (p.offsets, (rim, whole)))
        at = p.corners
        p = loop((~done).astype(whole.dtype), lambda _, p: _with_corner(p, new), p._replace(offsets=offsets))
        p = loop(count, lambda e, p: _with_face(p, jnp.append(item(ends, e), at)), p)
        return p._replace(nearest=_nearest_face(p), done=done)

    p = _tetrahedron(pair, dtype)
    p = p._replace(nearest=_nearest_face(p))
    return lax.while_loop(lambda p: ~p.done, grow, p)
