"""Shapes that touch: balls, capsules, boxes, half-spaces and surfaces, each fixed to a body in the reference posture."""

from collections.abc import Callable
from typing import Any, ClassVar, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import fails, require_function
from .._misc._errors import InputError
from ._abstract_joint import normalize_axis
from ._bodies import check_array, check_name, check_nonnegative
from ._placement import AnyPlacement


class AbstractShape(eqx.Module):
    """A shape that may touch others. Concrete ones: `Sphere`, `Capsule`, `Cuboid`, `HalfSpace`, `Surface`.

    - `order`: of two shapes the one with the lower order counts as the first.
    - `body`: the name of the body it is fixed to, or `"ground"`.
    """

    order: eqx.AbstractClassVar[int]
    body: eqx.AbstractVar[str]

    @property
    def dimension(self) -> int | None:
        """2 in the plane, 3 in space, None for either."""
        return None


@final
class Sphere(AbstractShape):
    """A ball; in the plane a disc. Without a radius it is a point.

    **Arguments:**

    - `body`: name of the body.
    - `centre`: in the reference posture [m] (2,) or (3,).
    - `radius`: [m].

    **Raises:** `InputError` for a negative radius.
    """

    order: ClassVar[int] = 4

    body: str = eqx.field(static=True)
    centre: Array
    radius: Float[Array, ""]

    def __init__(self, body: str, centre: Any, radius: Any = 0.0):
        self.body = check_name("body", body)
        self.centre = check_array(f"the centre of a sphere of '{body}'", centre, (2,), (3,))
        self.radius = check_nonnegative(f"the radius of a sphere of '{body}'", radius)

    @property
    def dimension(self) -> int:
        return self.centre.shape[0]


@final
class Capsule(AbstractShape):
    """All that is no farther than a radius from a line between two points; in the plane a stadium.

    **Arguments:**

    - `body`: name of the body.
    - `start`, `end`: of the line in the reference posture [m] (2,) or (3,).
    - `radius`: [m].

    **Raises:** `InputError` for a negative radius, and for two points that are one.
    """

    order: ClassVar[int] = 3

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
    def dimension(self) -> int:
        return self.start.shape[0]


@final
class Cuboid(AbstractShape):
    """A box; in the plane a rectangle.

    **Arguments:**

    - `body`: name of the body.
    - `centre`: in the reference posture [m] (2,) or (3,).
    - `size`: lengths of its edges [m], of the same shape.
    - `rotation`: its axes in the reference posture, as columns; by default those of the world.

    **Raises:** `InputError` for negative lengths, and what is no rotation matrix.
    """

    order: ClassVar[int] = 2

    body: str = eqx.field(static=True)
    centre: Array
    size: Array
    rotation: Array

    def __init__(self, body: str, centre: Any, size: Any, rotation: Any = None):
        self.body = check_name("body", body)
        self.centre = check_array(f"the centre of a cuboid of '{body}'", centre, (2,), (3,))
        d = self.dimension
        self.size = check_nonnegative(f"the size of a cuboid of '{body}'", size, (d,))
        rotation = np.eye(d) if rotation is None else rotation
        self.rotation = check_array(f"the rotation of a cuboid of '{body}'", rotation, (d, d))
        if fails(lambda R: np.allclose(R @ R.T, np.eye(d), atol=1e-6), rotation):  # as read from a file
            raise InputError(f"the rotation of a cuboid of '{body}' must be a rotation matrix.")

    @property
    def dimension(self) -> int:
        return self.centre.shape[0]

    def corners(self) -> Float[Array, "corners d"]:
        """The corners in the reference posture [m]."""
        d = self.dimension
        signs = np.array(np.meshgrid(*[(-1.0, 1.0)] * d, indexing="ij")).reshape(d, -1).T
        half = jnp.asarray(signs, self.size.dtype) * (0.5 * self.size)[None]
        return self.centre[None] + half @ self.rotation.T


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

    body: str = eqx.field(static=True)
    function: Callable[[Array], Array]

    def __init__(self, body: str, function: Callable[[Array], Array]):
        self.body = check_name("body", body)
        require_function(f"the surface of '{body}'", function, "x")
        self.function = function


def from_world(placement: AnyPlacement, x: Array) -> Array:
    """Where a place of the world is in a body's reference posture [m]."""
    return placement.centre + placement.back(x - placement.p)
