"""Shapes that touch, each fixed to a body in the reference posture."""

from collections.abc import Callable
from typing import Any, ClassVar, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._misc._arguments import fails, require_function
from .._misc._errors import InputError
from .._misc._types import arrays_of, as_jax, is_traced, module_for
from ._abstract_joint import normalize_axis
from ._bodies import check_array, check_name, check_nonnegative, check_positive_scalar
from ._convex import Core, core_of, link
from ._height_fields import Field
from ._joint_rows import across
from ._placement import AnyPlacement


class AbstractShape(eqx.Module):
    """A shape that may touch others.

    Concrete ones: `Sphere`, `Capsule`, `Cuboid`, `Cylinder`, `Ellipsoid`, `ConvexHull`, `HalfSpace`,
    `HeightField`, `Surface`.

    - `order`: of two shapes the one with the lower order counts as the first.
    - `is_convex`: whether it is a convex body in space, that `core` tells.
    - `body`: the name of the body it is fixed to, or `"ground"`.
    """

    order: eqx.AbstractClassVar[int]
    is_convex: ClassVar[bool] = True
    body: eqx.AbstractVar[str]

    @property
    def dimension(self) -> int | None:
        """2 in the plane, 3 in space, None for either."""
        return None

    def core(self) -> Core:
        """The shape as a convex body in space.

        **Raises:** `NotImplementedError` for one that is not.
        """
        raise NotImplementedError(f"a {type(self).__name__} is no convex body")

    @property
    def middle(self) -> Array:
        """A place within it, in the reference posture [m]."""
        return as_jax(self.core().origin)


class AbstractCentredShape(AbstractShape):
    """A shape about a place, its middle."""

    centre: eqx.AbstractVar[Array]

    @property
    def dimension(self) -> int:
        return self.centre.shape[0]

    @property
    def middle(self) -> Array:
        return self.centre


class AbstractLongShape(AbstractShape):
    """A shape along a line between two places."""

    start: eqx.AbstractVar[Array]
    end: eqx.AbstractVar[Array]

    @property
    def dimension(self) -> int:
        return self.start.shape[0]

    @property
    def middle(self) -> Array:
        start, end = arrays_of(self.start, self.end)
        return 0.5 * (start + end)


@final
class Sphere(AbstractCentredShape):
    """A ball; in the plane a disc. Without a radius it is a point.

    **Arguments:**

    - `body`: name of the body.
    - `centre`: in the reference posture [m] (2,) or (3,).
    - `radius`: [m].

    **Raises:** `InputError` for a negative radius.
    """

    order: ClassVar[int] = 7

    body: str = eqx.field(static=True)
    centre: Array
    radius: Float[Array, ""]

    def __init__(self, body: str, centre: Any, radius: Any = 0.0):
        self.body = check_name("body", body)
        self.centre = check_array(f"the centre of a sphere of '{body}'", centre, (2,), (3,))
        self.radius = check_nonnegative(f"the radius of a sphere of '{body}'", radius)

    @property
    def inradius(self) -> Array:
        return self.radius

    def corners(self) -> Float[Array, "1 d"]:
        """Its centre."""
        return arrays_of(self.centre)[0][None]

    def core(self) -> Core:
        return core_of(self.corners(), self.centre, radius=self.radius, inradius=self.inradius)


@final
class Capsule(AbstractLongShape):
    """All that is no farther than a radius from a line between two points; in the plane a stadium.

    **Arguments:**

    - `body`: name of the body.
    - `start`, `end`: of the line in the reference posture [m] (2,) or (3,).
    - `radius`: [m].

    **Raises:** `InputError` for a negative radius, and for two points that are one.
    """

    order: ClassVar[int] = 6

    body: str = eqx.field(static=True)
    start: Array
    end: Array
    radius: Float[Array, ""]

    def __init__(self, body: str, start: Any, end: Any, radius: Any):
        self.body = check_name("body", body)
        self.start = check_array(f"the start of a capsule of '{body}'", start, (2,), (3,))
        self.end = check_array(f"the end of a capsule of '{body}'", end, self.start.shape)
        self.radius = check_nonnegative(f"the radius of a capsule of '{body}'", radius)
        if fails(lambda a, b: np.any(a != b), start, end):
            raise InputError(f"a capsule of '{body}' has no length: it is a Sphere.")

    @property
    def inradius(self) -> Array:
        return self.radius

    def corners(self) -> Float[Array, "2 d"]:
        """The ends of its line in the reference posture [m]."""
        ends = arrays_of(self.start, self.end)
        return module_for(*ends).stack(ends)

    def core(self) -> Core:
        (start, end), radius = self.corners(), self.radius
        half = 0.5 * (end - start)
        axes = half[:, None] * np.eye(3, dtype=half.dtype)[:1]
        return core_of(self.corners(), start + half, axes, radius=radius, inradius=radius)


@final
class Cuboid(AbstractCentredShape):
    """A box; in the plane a rectangle.

    **Arguments:**

    - `body`: name of the body.
    - `centre`: in the reference posture [m] (2,) or (3,).
    - `size`: lengths of its edges [m], of the same shape.
    - `rotation`: its axes in the reference posture, as columns; by default those of the world.

    **Raises:** `InputError` for negative lengths, and what is no rotation matrix.
    """

    order: ClassVar[int] = 5

    body: str = eqx.field(static=True)
    centre: Array
    size: Array
    rotation: Array

    def __init__(self, body: str, centre: Any, size: Any, rotation: Any = None):
        self.body = check_name("body", body)
        self.centre = check_array(f"the centre of a cuboid of '{body}'", centre, (2,), (3,))
        d = self.dimension
        self.size = check_nonnegative(f"the size of a cuboid of '{body}'", size, (d,))
        self.rotation = _check_rotation(f"the rotation of a cuboid of '{body}'", rotation, d)

    def corners(self) -> Float[Array, "corners d"]:
        """The corners in the reference posture [m]."""
        d = self.dimension
        signs = np.array(np.meshgrid(*[(-1.0, 1.0)] * d, indexing="ij")).reshape(d, -1).T
        size, centre, rotation = arrays_of(self.size, self.centre, self.rotation)
        half = signs.astype(size.dtype) * (0.5 * size)[None]
        return centre[None] + half @ rotation.T

    @property
    def inradius(self) -> Array:
        (size,) = arrays_of(self.size)
        return 0.5 * size.min()

    def core(self) -> Core:
        rotation, size = arrays_of(self.rotation, self.size)
        axes = rotation * (0.5 * size)[None]
        return core_of(self.corners(), self.centre, axes, inradius=self.inradius, links=_CUBOID_LINKS)


_CUBOID_LINKS = link([[i ^ 1, i ^ 2, i ^ 4] for i in range(8)])  # corners differ in one sign


@final
class Cylinder(AbstractLongShape):
    """A cylinder with flat ends, in space.

    **Arguments:**

    - `body`: name of the body.
    - `start`, `end`: the middles of its ends in the reference posture [m] (3,).
    - `radius`: [m].

    **Raises:** `InputError` for a radius that is not positive, and for two middles that are one.
    """

    order: ClassVar[int] = 3

    body: str = eqx.field(static=True)
    start: Array
    end: Array
    radius: Float[Array, ""]

    def __init__(self, body: str, start: Any, end: Any, radius: Any):
        self.body = check_name("body", body)
        self.start = check_array(f"the start of a cylinder of '{body}'", start, (3,))
        self.end = check_array(f"the end of a cylinder of '{body}'", end, (3,))
        self.radius = check_positive_scalar(f"the radius of a cylinder of '{body}'", radius)
        if fails(lambda a, b: np.any(a != b), start, end):
            raise InputError(f"a cylinder of '{body}' has no length.")

    def core(self) -> Core:
        start, end, radius = arrays_of(self.start, self.end, self.radius)
        half, xp = 0.5 * (end - start), module_for(start, end, radius)
        length = xp.linalg.norm(half)
        along = half / length
        disc = [radius * x for x in across(along)]
        spread, axes = (xp.stack([*disc, x], 1) for x in (xp.zeros_like(half), half))
        inradius = xp.minimum(radius, length)
        return core_of(xp.stack([start, end]), start + half, axes, spread, along, inradius=inradius)


@final
class Ellipsoid(AbstractCentredShape):
    """An ellipsoid, in space.

    **Arguments:**

    - `body`: name of the body.
    - `centre`: in the reference posture [m] (3,).
    - `radii`: half the lengths of its axes [m] (3,).
    - `rotation`: its axes in the reference posture, as columns; by default those of the world.

    **Raises:** `InputError` for radii that are not positive, and what is no rotation matrix.
    """

    order: ClassVar[int] = 4

    body: str = eqx.field(static=True)
    centre: Array
    radii: Array
    rotation: Array

    def __init__(self, body: str, centre: Any, radii: Any, rotation: Any = None):
        self.body = check_name("body", body)
        self.centre = check_array(f"the centre of an ellipsoid of '{body}'", centre, (3,))
        self.radii = check_array(f"the radii of an ellipsoid of '{body}'", radii, (3,))
        if fails(lambda r: np.all(r > 0), radii):
            raise InputError(f"the radii of an ellipsoid of '{body}' must be positive, got {radii}.")
        self.rotation = _check_rotation(f"the rotation of an ellipsoid of '{body}'", rotation, 3)

    def core(self) -> Core:
        centre, radii, rotation = arrays_of(self.centre, self.radii, self.rotation)
        axes = rotation * radii[None]
        return core_of(centre[None], centre, axes, axes, inradius=radii.min())


@final
class ConvexHull(AbstractShape):
    """The convex hull of some points, such as those of a mesh, in space.

    **Arguments:**

    - `body`: name of the body.
    - `points`: in the reference posture [m] (n, 3), at least four that are not in one plane. Those within the hull are
      left out, unless they are traced.

    **Raises:** `InputError` for fewer points, and points in one plane.
    """

    order: ClassVar[int] = 2

    body: str = eqx.field(static=True)
    points: Float[Array, "n 3"]
    inradius: Float[Array, ""]
    links: Int[Array, " m"] | None

    def __init__(self, body: str, points: Any):
        self.body = check_name("body", body)
        what = f"the points of a hull of '{body}'"
        if jnp.ndim(points) != 2 or jnp.shape(points)[1] != 3 or jnp.shape(points)[0] < 4:
            raise InputError(f"{what} must have the shape (n, 3) with n > 3, got {jnp.shape(points)}.")
        points = check_array(what, points, jnp.shape(points))
        nothing = points, np.inf, None
        self.points, inradius, self.links = (
            nothing if is_traced(points) else _hull_of(what, np.asarray(points))
        )
        self.inradius = as_jax(np.asarray(inradius, self.points.dtype))

    @property
    def dimension(self) -> int:
        return 3

    def core(self) -> Core:
        return core_of(self.points, self.middle, inradius=self.inradius, links=self.links)

    @property
    def middle(self) -> Array:
        return as_jax(arrays_of(self.points)[0].mean(0))


# Of the size: of points that are nearer to each other rounding decides which is farther along a direction, and a point
# may have no higher neighbour though another one is higher.
_APART = 1e-8


def _hull_of(what: str, points: np.ndarray) -> tuple[Array, float, Array | None]:
    """Its points, the radius of a ball about their mean that is within it, and its edges, if these are of use."""
    from scipy.spatial import ConvexHull as Hull  # slow to load
    from scipy.spatial import QhullError

    try:
        hull = Hull(points)
    except QhullError as error:
        raise InputError(f"{what} lie in one plane: a hull needs a volume.") from error
    own = np.sort(hull.vertices)
    points, faces = points[own], np.searchsorted(own, hull.simplices)
    edges = np.concatenate([faces[:, [i, j]] for i in range(3) for j in range(3) if i != j])
    starts, ends = np.unique(edges, axis=0).T
    lengths = np.linalg.norm(points[ends] - points[starts], axis=1)
    neighbours = np.split(ends, np.searchsorted(starts, np.arange(1, len(own))))
    links = link([x.tolist() for x in neighbours]) if lengths.min() > _APART * np.ptp(points) else None
    inradius = -float(np.max(hull.equations @ [*np.mean(points, 0), 1.0]))
    return as_jax(points), inradius, None if links is None else as_jax(links)


def _check_rotation(what: str, rotation: Any, d: int) -> Array:
    rotation = np.eye(d) if rotation is None else rotation
    found = check_array(what, rotation, (d, d))
    if fails(lambda R: np.allclose(R @ R.T, np.eye(d), atol=1e-6), rotation):  # as read from a file
        raise InputError(f"{what} must be a rotation matrix.")
    return found


@final
class HalfSpace(AbstractShape):
    """All below a plane; in the plane, below a line.

    **Arguments:**

    - `body`: name of the body, such as `"ground"`.
    - `point`: on the plane in the reference posture [m] (2,) or (3,).
    - `normal`: out of it, likewise; by default the last axis of the world, upwards.

    **Raises:** `InputError` for a normal that is the zero vector.
    """

    order: ClassVar[int] = 1
    is_convex: ClassVar[bool] = False

    body: str = eqx.field(static=True)
    point: Array
    normal: Array

    def __init__(self, body: str, point: Any, normal: Any = None):
        self.body = check_name("body", body)
        self.point = check_array(f"the point of a half-space of '{body}'", point, (2,), (3,))
        upwards = np.eye(self.dimension)[-1] if normal is None else normal
        self.normal = normalize_axis(f"the normal of a half-space of '{body}'", upwards, self.dimension)

    @property
    def dimension(self) -> int:
        return self.point.shape[0]

    def plane(self) -> Core:
        """A point of the plane, with the normal for an axis."""
        point, normal = arrays_of(self.point, self.normal)
        return core_of(point[None], point, axis=normal)


@final
class HeightField(AbstractCentredShape):
    """The ground below a grid of heights, in space. Each cell is two triangles, with an edge from its first corner on.

    All convex shapes touch it, by time stepping. There are no derivatives by heights.

    **Arguments:**

    - `body`: name of the body, such as `"ground"`.
    - `centre`: the middle of the grid at height zero, in the reference posture [m] (3,).
    - `heights`: of the places of the grid [m] (rows, columns), at least 2 by 2; columns along the first axis, rows along
      the second, heights along the third.
    - `size`: how long the grid is along the first two axes [m] (2,).
    - `depth`: how far the ground reaches below height zero [m].
    - `rotation`: its axes in the reference posture, as columns; by default those of the world.

    **Raises:** `InputError` for another shape, a size that is not positive, heights below the depth, and what is no
    rotation matrix.
    """

    order: ClassVar[int] = 0
    is_convex: ClassVar[bool] = False

    body: str = eqx.field(static=True)
    centre: Float[Array, "3"]
    heights: Float[Array, "rows columns"]
    size: Float[Array, "2"]
    depth: Float[Array, ""]
    rotation: Float[Array, "3 3"]

    def __init__(
        self, body: str, centre: Any, heights: Any, size: Any, depth: Any = 1.0, rotation: Any = None
    ):
        self.body = check_name("body", body)
        what = f"the heights of '{body}'"
        if len(jnp.shape(heights)) != 2 or min(jnp.shape(heights)) < 2:
            raise InputError(
                f"{what} must have the shape (rows, columns), at least 2 by 2, got {jnp.shape(heights)}."
            )
        self.heights = check_array(what, heights, jnp.shape(heights))
        self.centre = check_array(f"the centre of a height field of '{body}'", centre, (3,))
        self.size = check_array(f"the size of a height field of '{body}'", size, (2,))
        if fails(lambda x: np.all(x > 0), size):
            raise InputError(f"the size of a height field of '{body}' must be positive, got {size}.")
        self.depth = check_positive_scalar(f"the depth of a height field of '{body}'", depth)
        if fails(lambda h, d: h.min() > -d, heights, depth):
            raise InputError(f"{what} reach below its depth of {depth} m.")
        self.rotation = _check_rotation(f"the rotation of a height field of '{body}'", rotation, 3)

    @property
    def normal(self) -> Array:
        """Upwards, in the reference posture."""
        return self.rotation[:, 2]

    def field(self) -> Field:
        """The grid in the reference posture."""
        xp = module_for(self.heights, self.size, self.rotation)
        rows, columns = self.heights.shape
        size = xp.asarray(self.size)
        off = xp.asarray(self.rotation)[:, :2] @ (0.5 * size)
        return Field(
            xp.reshape(xp.asarray(self.heights), -1),
            np.asarray(0),
            np.asarray(rows),
            np.asarray(columns),
            size / xp.asarray([columns - 1, rows - 1], size.dtype),
            self.depth,
            xp.max(xp.asarray(self.heights)),
            self.centre - off,
            self.rotation,
        )


@final
class Surface(AbstractShape):
    """The outside of a surface, f(x) >= 0. Points touch it: a `Sphere` without a radius.

    The gap is f / |grad f|, near the surface the distance from it [m].

    **Arguments:**

    - `body`: name of the body, such as `"ground"`.
    - `function`: f(x) of a place x [m], in the world where the body is the ground, else in its reference posture: a
      number, zero on the surface, with a gradient there.
    """

    order: ClassVar[int] = 0
    is_convex: ClassVar[bool] = False

    body: str = eqx.field(static=True)
    function: Callable[[Array], Array]

    def __init__(self, body: str, function: Callable[[Array], Array]):
        self.body = check_name("body", body)
        require_function(f"the surface of '{body}'", function, "x")
        self.function = function


def from_world(placement: AnyPlacement, x: Array) -> Array:
    """Where a place of the world is in a body's reference posture [m]."""
    return placement.centre + placement.back(x - placement.p)
