"""Where two shapes touch: gaps, points and normals of pairs of shapes, as functions of two placements.

Of round shapes a gap is the distance of their middles less the radii, with one contact; a capsule on a plane has one at
each of its ends, a box one at each of its corners. So gaps are smooth but where the nearest place of a line or a box
changes from its inside to its end: there their rates are continuous and accelerations jump. Any other two convex shapes
in space meet as `_convex` says, with one contact where one of them is round, else with up to five that come and go.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._contact_shapes import (
    AbstractShape,
    Capsule,
    Cuboid,
    Ellipsoid,
    HalfSpace,
    HeightField,
    Sphere,
    Surface,
    from_world,
)
from ._convex import Core, Pair, join_cores, pick_core, unpack
from ._convex_features import no_parts
from ._convex_touch import POINTS, touch_of
from ._height_fields import PLACES, Field, find_slots, gap_of, least_gap, no_slots, slot_like
from ._placement import AnyPlacement, Placement, norm
from ._vmap_by_structure import unstack_tree, vmap_by_structure


class Meeting(NamedTuple):
    """Where two shapes would touch, in world coordinates.

    - `gap`: gaps (k,) [m].
    - `point`: halfway between the two (k, d) [m].
    - `normal`: from the first to the second, of length 1 (k, d).
    """

    gap: Float[Array, " k"]
    point: Float[Array, "k d"]
    normal: Float[Array, "k d"]


def _upwards(d: int, dtype: jnp.dtype) -> Array:
    return jnp.asarray(np.eye(d)[-1], dtype)


def _meet_balls(x: Array, y: Array, r: Array, s: Array) -> Meeting:
    """Of balls of radii r about x and s about y."""
    distance = norm(y - x)
    safe = jnp.where(distance > 0, distance, 1)
    normal = jnp.where(distance > 0, (y - x) / safe, _upwards(x.size, x.dtype))
    gap = distance - r - s
    return Meeting(gap[None], (x + (r + 0.5 * gap) * normal)[None], normal[None])


def _plane_points(plane: HalfSpace, first: AnyPlacement, points: Float[Array, "k d"], r: Array) -> Meeting:
    """Of balls of radius r about points, and a half-space."""
    n = first.vector(plane.normal)
    height = (points - first.point(plane.point)[None]) @ n
    normal = jnp.broadcast_to(n, points.shape)
    return Meeting(height - r, points - 0.5 * (height + r)[:, None] * normal, normal)


def _plane_sphere(a: HalfSpace, b: Sphere, first: AnyPlacement, second: AnyPlacement) -> Meeting:
    return _plane_points(a, first, second.point(b.centre)[None], b.radius)


def _plane_capsule(a: HalfSpace, b: Capsule, first: AnyPlacement, second: AnyPlacement) -> Meeting:
    ends = jnp.stack([second.point(b.start), second.point(b.end)])
    return _plane_points(a, first, ends, b.radius)


def _plane_cuboid(a: HalfSpace, b: Cuboid, first: AnyPlacement, second: AnyPlacement) -> Meeting:
    corners = jax.vmap(second.point)(b.corners())
    return _plane_points(a, first, corners, jnp.zeros((), corners.dtype))


def _surface_point(a: Surface, b: Sphere, first: AnyPlacement, second: AnyPlacement) -> Meeting:
    x = second.point(b.centre)
    value, slope = jax.value_and_grad(lambda x: jnp.reshape(a.function(x), ()))(from_world(first, x))
    steep = norm(slope)
    steep = jnp.where(steep > 0, steep, 1)
    gap, normal = value / steep, first.vector(slope / steep)
    return Meeting(gap[None], (x - 0.5 * gap * normal)[None], normal[None])


def _spheres(a: Sphere, b: Sphere, first: AnyPlacement, second: AnyPlacement) -> Meeting:
    return _meet_balls(first.point(a.centre), second.point(b.centre), a.radius, b.radius)


def _nearest(start: Array, end: Array, x: Array) -> Array:
    """The place of a line that is nearest to another one."""
    along = end - start
    return start + jnp.clip(jnp.dot(x - start, along) / jnp.dot(along, along), 0, 1) * along


def _capsule_sphere(a: Capsule, b: Sphere, first: AnyPlacement, second: AnyPlacement) -> Meeting:
    x = second.point(b.centre)
    return _meet_balls(_nearest(first.point(a.start), first.point(a.end), x), x, a.radius, b.radius)


def _capsules(a: Capsule, b: Capsule, first: AnyPlacement, second: AnyPlacement) -> Meeting:
    """By the nearest places of two lines (Ericson 2005, Real-time collision detection, section 5.1.9); of parallel ones
    the middle of the first counts."""
    start, end, other, last = (
        first.point(a.start),
        first.point(a.end),
        second.point(b.start),
        second.point(b.end),
    )
    d, e, r = end - start, last - other, start - other
    dd, de, ee, dr, er = (jnp.dot(x, y) for x, y in ((d, d), (d, e), (e, e), (d, r), (e, r)))
    square = dd * ee - de * de  # of the sine of their angle
    parallel = square <= 1e3 * jnp.finfo(r.dtype).eps * dd * ee
    s = jnp.where(parallel, 0.5, jnp.clip((de * er - dr * ee) / jnp.where(parallel, 1, square), 0, 1))
    u = (de * s + er) / ee
    s = jnp.where(u < 0, jnp.clip(-dr / dd, 0, 1), jnp.where(u > 1, jnp.clip((de - dr) / dd, 0, 1), s))
    return _meet_balls(start + s * d, other + jnp.clip(u, 0, 1) * e, a.radius, b.radius)


def _cuboid_sphere(a: Cuboid, b: Sphere, first: AnyPlacement, second: AnyPlacement) -> Meeting:
    """By the nearest place of the box; with the centre within the box, by its nearest face."""
    x = second.point(b.centre)
    local, half = a.rotation.T @ (from_world(first, x) - a.centre), 0.5 * a.size
    off = local - jnp.clip(local, -half, half)
    distance = norm(off)
    outside = distance > 0
    depth = jnp.abs(local) - half
    face = jnp.arange(depth.size) == jnp.argmax(depth)
    inwards = jnp.where(face, jnp.where(local < 0, -1, 1).astype(x.dtype), 0)
    normal = jnp.where(outside, off / jnp.where(outside, distance, 1), inwards)
    gap = jnp.where(outside, distance, jnp.max(depth)) - b.radius
    normal = first.vector(a.rotation @ normal)
    return Meeting(gap[None], (x - (b.radius + 0.5 * gap) * normal)[None], normal[None])


CLOSED_FORMS: dict[tuple[type[AbstractShape], type[AbstractShape]], Callable[..., Meeting]] = {
    (HalfSpace, Sphere): _plane_sphere,
    (HalfSpace, Capsule): _plane_capsule,
    (HalfSpace, Cuboid): _plane_cuboid,
    (Surface, Sphere): _surface_point,
    (Cuboid, Sphere): _cuboid_sphere,
    (Capsule, Sphere): _capsule_sphere,
    (Capsule, Capsule): _capsules,
    (Sphere, Sphere): _spheres,
}
"""Pairs whose gaps have closed forms, the shape of lower order first."""


def is_closed_form(a: AbstractShape, b: AbstractShape) -> bool:
    """Whether the gap of a pair has a closed form."""
    return (type(a), type(b)) in CLOSED_FORMS


def is_offered(a: AbstractShape, b: AbstractShape) -> bool:
    """Whether two shapes can touch, the one of lower order first."""
    in_space = b.dimension == 3 and b.is_convex
    return is_closed_form(a, b) or (in_space and (isinstance(a, HalfSpace | HeightField) or a.is_convex))


def count_contacts(a: AbstractShape, b: AbstractShape) -> int:
    """How many contacts a pair has at most."""
    if isinstance(a, HeightField):
        return PLACES
    if isinstance(a, HalfSpace) and isinstance(b, Capsule | Cuboid):
        return 2 if isinstance(b, Capsule) else 2 ** len(b.centre)
    round_one = any(isinstance(x, Sphere | Ellipsoid) for x in (a, b))
    return 1 if is_closed_form(a, b) or round_one else POINTS


def pair_of(a: AbstractShape, b: AbstractShape, first: Placement, second: Placement) -> Pair:
    """Two convex shapes, or a half-space and one, where they are."""
    cores = [x.plane() if isinstance(x, HalfSpace) else x.core() for x in (a, b)]
    return Pair(tuple(cores), (first, second))  # pyright: ignore[reportArgumentType]


def meet(a: AbstractShape, b: AbstractShape, first: AnyPlacement, second: AnyPlacement) -> Meeting:
    """Where two shapes would touch."""
    if is_closed_form(a, b):
        return CLOSED_FORMS[type(a), type(b)](a, b, first, second)
    assert isinstance(first, Placement)
    assert isinstance(second, Placement)
    if isinstance(a, HeightField):
        return _meet_field(a.field(), b.core(), (first, second))
    return _meet_convex(pair_of(a, b, first, second), isinstance(a, HalfSpace), count_contacts(a, b))


def _meet_convex(pair: Pair, on_plane: bool, count: int) -> Meeting:
    touch = touch_of(pair, on_plane, no_parts(pair.cores[1].size.dtype))
    return Meeting(*map(jnp.stack, zip(*(touch.gap(pair, i) for i in range(count)), strict=True)))


def _meet_field(field: Field, core: Core, ends: tuple[Placement, Placement]) -> Meeting:
    near = 0.02 * core.size
    still = jax.lax.stop_gradient((field, core, ends, near))
    records, like = find_slots(*still, no_slots(core, ends, field)), slot_like(core, ends, field)
    least, up = least_gap(field, core, ends, near), ends[0].vector(field.axes[:, 2])
    point = ends[1].point(core.origin)

    def of_place(record: Array) -> Meeting:
        slot = unpack(record, like)
        gap, x, n = gap_of(slot, field, core, ends)
        there = slot.there
        return Meeting(jnp.where(there, gap, least), jnp.where(there, x, point), jnp.where(there, n, up))

    return jax.lax.map(of_place, records)


def meet_each(items: Sequence[tuple[Any, Any, Any, Any]]) -> list[Meeting]:
    """Where pairs of shapes would touch, each with two placements; convex bodies one after the other, by one program."""
    groups: dict[Any, list[int]] = {}
    for i, (a, b, *_) in enumerate(items):
        form = (
            None
            if is_closed_form(a, b)
            else "field"
            if isinstance(a, HeightField)
            else isinstance(a, HalfSpace)
        )
        groups.setdefault(form, []).append(i)
    found: dict[int, Meeting] = {}
    for form, numbers in groups.items():
        own = [items[i] for i in numbers]
        if form is None:
            met = vmap_by_structure(meet, own)
        elif form == "field":
            met = [meet(*x) for x in own]
        else:
            pairs, most = [pair_of(*x) for x in own], max(count_contacts(a, b) for a, b, *_ in own)
            cores = join_cores([core for pair in pairs for core in pair.cores])
            places = jax.tree.map(lambda *x: jnp.stack(x), *(pair.places for pair in pairs))

            def one(at: Any, cores: Core = cores, on_plane: bool = form, most: int = most) -> Meeting:
                i, ends = at
                first, second = (pick_core(cores, 2 * i + k, cores.size.dtype) for k in range(2))
                return _meet_convex(Pair((first, second), ends), on_plane, most)

            together = jax.lax.map(one, (jnp.arange(len(own)), places))
            met = [
                Meeting(*(x[: count_contacts(a, b)] for x in meeting))
                for meeting, (a, b, *_) in zip(unstack_tree(together, len(own)), own, strict=True)
            ]
        found |= zip(numbers, met, strict=True)
    return [found[i] for i in range(len(items))]
