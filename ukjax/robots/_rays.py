"""Where rays meet the geoms of a file, and which points are within: for rangefinders and the zones of sites.

A convex shape holds an interval of a ray; the distance is its start, or from inside its end. Meshes are met as they are,
triangle by triangle, not by their hulls. The names of shapes are MuJoCo's, and so are their sizes.
"""

from typing import NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

SOLID = ("sphere", "ellipsoid", "cylinder", "capsule", "box")
_PARALLEL = 1e-15  # part of a unit direction below which a ray runs along a face

Interval = tuple[Array, Array]


def _where_held(held: Array, start: Array, end: Array) -> Interval:
    return jnp.where(held, start, jnp.inf), jnp.where(held, end, -jnp.inf)


def _overlap(*parts: Interval) -> Interval:
    start = jnp.max(jnp.stack([part[0] for part in parts]))
    end = jnp.min(jnp.stack([part[1] for part in parts]))
    return _where_held(start <= end, start, end)


def _in_slab(p: Array, d: Array, half: Array) -> Interval:
    """Where |p + x d| <= half."""
    along = jnp.abs(d) < _PARALLEL
    ends = jnp.stack([-half - p, half - p]) / jnp.where(along, 1.0, d)
    inside = _where_held(jnp.abs(p) <= half, jnp.asarray(-jnp.inf, p.dtype), jnp.asarray(jnp.inf, p.dtype))
    return jnp.where(along, inside[0], jnp.min(ends)), jnp.where(along, inside[1], jnp.max(ends))


def _in_ball(p: Array, d: Array, radius: Array) -> Interval:
    """Where |p + x d| <= radius, of vectors of any length."""
    a, b, c = jnp.dot(d, d), jnp.dot(p, d), jnp.dot(p, p) - radius**2
    along = a < _PARALLEL**2
    square = b * b - a * c
    held = (square >= 0) & ~along
    root, a = jnp.sqrt(jnp.where(square > 0, square, 1.0)), jnp.where(along, 1.0, a)
    root = jnp.where(square > 0, root, 0.0)
    start, end = _where_held(held, (-b - root) / a, (-b + root) / a)
    whole = along & (c <= 0)
    return jnp.where(whole, -jnp.inf, start), jnp.where(whole, jnp.inf, end)


def _interval(kind: str, size: Float[Array, "3"], p: Float[Array, "3"], d: Float[Array, "3"]) -> Interval:
    """Where a ray is within a solid, in its axes; (inf, -inf) for nowhere."""
    if kind == "sphere":
        return _in_ball(p, d, size[0])
    if kind == "ellipsoid":
        return _in_ball(p / size, d / size, jnp.ones((), p.dtype))
    if kind == "box":
        return _overlap(*(_in_slab(p[i], d[i], size[i]) for i in range(3)))
    tube = _overlap(_in_ball(p[:2], d[:2], size[0]), _in_slab(p[2], d[2], size[1]))
    if kind == "cylinder":
        return tube
    up = jnp.zeros(3, p.dtype).at[2].set(1.0) * size[1]
    starts, ends = zip(tube, _in_ball(p - up, d, size[0]), _in_ball(p + up, d, size[0]), strict=True)
    return jnp.min(jnp.stack(starts)), jnp.max(jnp.stack(ends))


def first_hit(
    kind: str, size: Float[Array, "3"], p: Float[Array, "3"], d: Float[Array, "3"]
) -> Float[Array, ""]:
    """How far along a ray a surface is, in the axes of the shape; inf where it meets none.

    A plane has a front only, and ends where it has a size.
    """
    if kind == "plane":
        front = d[2] < -_PARALLEL
        x = -p[2] / jnp.where(front, d[2], -1.0)
        at = jnp.abs(p + x * d)
        within = ((size[:2] <= 0) | (at[:2] <= size[:2])).all()
        return jnp.where(front & (x >= 0) & within, x, jnp.inf)
    start, end = _interval(kind, size, p, d)
    return jnp.where(start >= 0, start, jnp.where(end >= 0, end, jnp.inf))


def is_within(kind: str, size: Float[Array, "3"], p: Float[Array, "3"]) -> Bool[Array, ""]:
    """Whether a point is inside a solid, in its axes."""
    start, end = _interval(kind, size, p, jnp.zeros_like(p).at[2].set(1.0))
    return (start < 0) & (end > 0)


class Ray(NamedTuple):
    """A ray of unit direction, and the body of the file whose own geoms it passes."""

    origin: Float[Array, "3"]
    direction: Float[Array, "3"]
    body: Array


@final
class Solids(eqx.Module):
    """Geoms of one kind, in the reference posture."""

    kind: str = eqx.field(static=True)
    # `carriers`: numbers of the tree's bodies plus 1; 0 for the ground.
    carriers: tuple[int, ...] = eqx.field(static=True)
    bodies: tuple[int, ...] = eqx.field(static=True)  # of the file
    # `centres`, `axes`, `sizes`: theirs; axes as columns.
    centres: Float[Array, "k 3"]
    axes: Float[Array, "k 3 3"]
    sizes: Float[Array, "k 3"]

    def distance(self, ray: Ray, R: Float[Array, "n 3 3"], shift: Float[Array, "n 3"]) -> Float[Array, ""]:
        """To the nearest of them."""
        carriers = np.array(self.carriers)

        def of_one(R: Array, shift: Array, centre: Array, axes: Array, size: Array) -> Array:
            p = axes.T @ (R.T @ (ray.origin - shift) - centre)
            return first_hit(self.kind, size, p, axes.T @ (R.T @ ray.direction))

        distances = jax.vmap(of_one)(R[carriers], shift[carriers], self.centres, self.axes, self.sizes)
        return jnp.min(jnp.where(np.array(self.bodies) == ray.body, jnp.inf, distances))


@final
class Mesh(eqx.Module):
    """Triangles of one body of the file, in the reference posture."""

    carrier: int = eqx.field(static=True)
    body: int = eqx.field(static=True)
    triangles: Float[Array, "k 3 3"]

    def distance(self, ray: Ray, R: Float[Array, "n 3 3"], shift: Float[Array, "n 3"]) -> Float[Array, ""]:
        """To the nearest of them, from either side (Moeller and Trumbore 1997)."""
        turned = R[self.carrier]
        p, d = turned.T @ (ray.origin - shift[self.carrier]), turned.T @ ray.direction
        corner = self.triangles[:, 0]
        first, second = self.triangles[:, 1] - corner, self.triangles[:, 2] - corner
        across = jnp.cross(jnp.broadcast_to(d, second.shape), second)
        det = jnp.sum(first * across, axis=1)
        seen = jnp.abs(det) > _PARALLEL * jnp.max(jnp.abs(first)) * jnp.max(jnp.abs(second))
        scale, off = jnp.where(seen, det, 1.0), p[None] - corner
        u, other = jnp.sum(off * across, axis=1) / scale, jnp.cross(off, first)
        w, x = other @ d / scale, jnp.sum(second * other, axis=1) / scale
        hit = seen & (u >= 0) & (w >= 0) & (u + w <= 1) & (x >= 0)
        return jnp.where(ray.body == self.body, jnp.inf, jnp.min(jnp.where(hit, x, jnp.inf)))


@final
class Scene(eqx.Module):
    """What rangefinders see."""

    solids: tuple[Solids, ...]
    meshes: tuple[Mesh, ...]

    def distance(self, ray: Ray, R: Float[Array, "n 3 3"], shift: Float[Array, "n 3"]) -> Float[Array, ""]:
        """How far a ray goes; -1 where it meets nothing.

        **Arguments:**

        - `R`, `shift`: of the ground and the bodies: a place X of the reference posture is at R X + shift.
        """
        none = jnp.asarray(jnp.inf, ray.origin.dtype)
        nearest = jnp.min(
            jnp.stack([none, *(x.distance(ray, R, shift) for x in (*self.solids, *self.meshes))])
        )
        return jnp.where(jnp.isfinite(nearest), nearest, -1.0)
