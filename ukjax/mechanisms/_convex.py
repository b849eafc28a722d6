"""Convex bodies in space, and how far two of them are apart along a direction.

A body is a core and all that is no farther than a radius from it; a core is the convex hull of some points, to each of
which an ellipsoid is added that may be flat: a disc about each end of a line is a cylinder. Two cores are told by

    sigma(n) = min n . b - max n . a,    |n| = 1,

how far they are apart along n. Its maximum is their distance, and where they overlap less their depth. It is sought in
three steps: `_convex_search` finds parts of both (corners, edges, faces, curved parts), `_convex_features` the normal of
these by Newton's method, and `_convex_touch` the corners of the area that flat parts share. What depends on placements
smoothly is the last step of the second, which is also what is differentiated: so the derivatives of a gap, two of them,
are those of its parts. In time steps the search begins at the parts of the step before (`Parts`).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .._formula._contact_list import entry, item, loop
from .._misc._types import as_jax, choose_by_precision, module_for
from ._placement import Placement

# --- Vectors, along the last axis


def within(i: Array, count: int) -> Array:
    """A number below a count. Members of a batch go where others go, also with numbers that were never put."""
    return jnp.clip(i, 0, count - 1)


def cross(x: Array, y: Array) -> Array:
    """Of vectors along the last axis."""
    a, b, c = (x[..., i] for i in range(3))
    d, e, f = (y[..., i] for i in range(3))
    return jnp.stack([b * f - c * e, c * d - a * f, a * e - b * d], -1)


def dot(x: Array, y: Array) -> Array:
    """Of vectors along the last axis."""
    return jnp.sum(x * y, -1)


def divide(x: Array, y: Array) -> Array:
    """x / y; x itself where y is zero."""
    return x / jnp.where(y == 0, 1, y)


def unit(n: Array) -> Array:
    """A vector made one long."""
    return n / jnp.sqrt(dot(n, n))


# --- Pytrees of arrays as rows of numbers, which memory keeps


def pack(tree: Any, dtype: jnp.dtype) -> Array:
    """All its entries, one after the other."""
    return jnp.concatenate([jnp.ravel(x).astype(dtype) for x in jax.tree.leaves(tree)])


def unpack(flat: Array, like: Any) -> Any:
    """The pytree of packed entries, of the shapes and types of another; what is true is greater than 0."""
    leaves, tree = jax.tree.flatten(like)
    parts = jnp.split(flat, np.cumsum([x.size for x in leaves])[:-1].tolist())
    read = lambda x, like: x > 0 if like.dtype == bool else x.astype(like.dtype)
    return jax.tree.unflatten(tree, [read(x, y).reshape(y.shape) for x, y in zip(parts, leaves, strict=True)])


def packed_size(like: Any) -> int:
    """How many entries there are."""
    return sum(x.size for x in jax.tree.leaves(like))


# --- Bodies


class Core(NamedTuple):
    """The core of a convex body, in its reference posture."""

    points: Array  # of all bodies, one after the other [m] (n, 3)
    # `first`, `number`: which of these are its own, and how many.
    first: Array
    number: Array
    # `links`, `first_link`: the neighbours of its points (`link`), likewise.
    links: Array
    first_link: Array
    spread: Float[Array, "3 3"]  # S of the ellipsoid {x : x = S y, |y| <= 1} about each point [m] (3, 3)
    axis: Float[Array, "3"]  # where this is a disc, its axis; else zero (3,)
    radius: Array  # [m]
    inradius: Array  # the radius of a ball within the body [m]; infinite where that is not known
    size: Array  # about how large it is [m]
    # `origin`, `axes`: x = origin + axes y are its points for fixed y, whatever its measures; columns are
    # orthogonal.
    origin: Float[Array, "3"]
    axes: Float[Array, "3 3"]

    def point(self, i: Array) -> Float[Array, "3"]:
        """A point, by its number among all."""
        return item(self.points, within(i, len(self.points)))

    def farthest(self, d: Float[Array, "3"], near: Any = 0) -> Array:
        """The number of the point that lies farthest along a direction, sought from another on.

        Each point is followed by the highest of its neighbours. One that is higher than all of these is the highest of
        the body, as that is convex. In single precision the first point is followed by the highest of all: bodies of many
        points are not convex when they are rounded.
        """
        whole = self.links.dtype
        number = lambda x: jnp.asarray(x).astype(whole)
        first, begin = number(self.first), number(self.first_link)
        height = lambda i: jnp.dot(item(self.points, first + i), d)
        start = jnp.clip(number(near) - first, 0, number(self.number) - 1)

        def climb(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            _, own, *best = state

            def look(k: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
                other = entry(self.links, begin + own + 1 + k)
                at = height(other)
                higher = at > best[1]
                return jnp.where(higher, other, best[0]), jnp.where(higher, at, best[1])

            best = loop(entry(self.links, begin + own), look, tuple(best))
            return own, entry(self.links, begin + best[0]), *best

        looks_at = choose_by_precision(self.points.dtype, start, number(self.number))
        state = number(-1), entry(self.links, begin + looks_at), start, height(start)
        return number(self.first) + lax.while_loop(lambda s: s[0] != s[1], climb, state)[2]

    def follow(self, x: Float[Array, "3"]) -> Float[Array, "3"]:
        """A point as a function of the measures of the body, of which it is none itself."""
        still = lax.stop_gradient(self)
        square = jnp.sum(still.axes**2, 0)
        y = divide((x - still.origin) @ still.axes, square)
        return x + (self.origin - still.origin) + (self.axes - still.axes) @ y

    def curved(self, d: Float[Array, "3"]) -> Float[Array, "3"]:
        """What the ellipsoid adds to a point along a direction."""
        # Not d . S S^T d, of which rounding leaves nothing where a disc lies nearly flat.
        y = d @ self.spread
        square = jnp.dot(y, y)
        return jnp.where(square > 0, self.spread @ y / jnp.sqrt(jnp.where(square > 0, square, 1)), 0)

    def is_level(self, d: Float[Array, "3"], tilt: float) -> Array:
        """Whether what is curved is a disc with its axis nearly along a direction; also where nothing is curved."""
        y = d @ self.spread
        return jnp.dot(y, y) <= tilt**2 * jnp.sum(self.spread**2)


def link(neighbours: Sequence[Sequence[int]]) -> np.ndarray:
    """The numbers of the neighbours of each point, and last those of all points, as lists after their lengths; before
    them where the list of each point is. Lists that are alike are told once."""
    lists, at, told = [*map(tuple, neighbours), tuple(range(len(neighbours)))], dict[Any, int](), list[int]()
    for own in lists:
        if own not in at:
            at[own] = len(lists) + len(told)
            told += [len(own), *own]
    return np.array([*(at[own] for own in lists), *told])


def core_of(
    points: Array,
    origin: Array,
    axes: Array | None = None,
    spread: Any = None,
    axis: Any = None,
    radius: Any = 0.0,
    inradius: Any = jnp.inf,
    links: Any = None,
) -> Core:
    """One body by itself: its points (n, 3) and what else its core has, by default nothing, and all points are linked.

    Arrays of NumPy where values are known: JAX would compile a program for each number of points.
    """
    given = points, origin, axes, spread, axis, radius, inradius
    xp, dtype, count = module_for(*given), points.dtype, len(points)
    none: Any = np.asarray(0)
    number: Any = np.asarray(count)
    points, origin, axes, spread, axis, radius, inradius = jax.tree.map(xp.asarray, given)
    links = link([range(count)] * count) if links is None else links
    spread = xp.zeros((3, 3), dtype) if spread is None else spread
    square = xp.max(xp.sum((points - origin[None]) ** 2, 1)) + xp.sum(spread**2)
    return Core(
        points,
        none,
        number,
        links,
        none,
        spread,
        xp.zeros(3, dtype) if axis is None else axis,
        xp.asarray(radius, dtype),
        xp.asarray(inradius, dtype),
        xp.asarray(xp.sqrt(square) + radius, dtype),
        origin,
        xp.eye(3, dtype=dtype) if axes is None else axes,
    )


def join_cores(cores: Sequence[Core]) -> Core:
    """Several bodies: points and links one after the other, of what else there is that of each (`pick_core`)."""
    begin = lambda arrays: np.cumsum([0, *map(len, arrays)])[:-1]
    points, links = [x.points for x in cores], [x.links for x in cores]
    each = [
        x._replace(points=None, links=None, first=n, first_link=m)  # pyright: ignore[reportArgumentType]
        for x, n, m in zip(cores, begin(points), begin(links), strict=True)
    ]
    by = lambda name: lambda *x: as_jax(getattr(module_for(*x), name)(x))
    joined = jax.tree.map(by("stack"), *each)
    return joined._replace(points=by("concatenate")(*points), links=by("concatenate")(*links))


def pick_core(cores: Core, i: Array, dtype: jnp.dtype) -> Core:
    """One of several bodies, by its number."""
    real = lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x
    whole = cores._replace(points=None, links=None)  # pyright: ignore[reportArgumentType]
    own = jax.tree.map(lambda x: real(item(jnp.asarray(x), i)), whole)
    return own._replace(points=real(jnp.asarray(cores.points)), links=jnp.asarray(cores.links))


class Pair(NamedTuple):
    """Two bodies and where they are."""

    cores: tuple[Core, Core]
    places: tuple[Placement, Placement]
    # `scale`, `shift`: as corners of B - A they are taken smaller by the first, each about its origin, and
    # farther apart by the second (3,).
    scale: Array | float = 1.0
    shift: Array | float = 0.0
    # `near`: numbers of points of both from which the farthest ones are sought.
    near: tuple[Array | int, Array | int] = (0, 0)

    def look_near(self, parts: Any) -> "Pair":
        """The same that seeks the farthest points from those of some parts."""
        return self._replace(near=(parts.a[0], parts.b[0]))

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

    @jax.jit
    def support(self, n: Array) -> "Corner":
        """The points that are farthest towards each other along n."""
        a, b = (self.farthest(k, n) for k in range(2))
        return Corner(self.corner(a, b, n), a, b)

    def farthest(self, k: int, n: Array) -> Array:
        """The point of one that is farthest towards the other along n."""
        return self.cores[k].farthest(self.back(k, n), self.near[k])

    @jax.jit
    def corner(self, a: Array, b: Array, n: Float[Array, "3"]) -> Float[Array, "3"]:
        """A corner of B - A: of points by number, with what is curved along n."""
        own = zip(self.cores, self.locals((a, b), n), strict=True)
        return self.between([core.origin + self.scale * (x - core.origin) for core, x in own]) + self.shift

    def apart(self, n: Array) -> Array:
        """Sigma(n)."""
        return jnp.dot(n, self.support(n).w)


class Corner(NamedTuple):
    """A point of B - A: w, and the numbers of the points of both."""

    w: Array
    a: Array
    b: Array
