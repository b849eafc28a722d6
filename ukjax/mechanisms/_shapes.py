"""Bodies of uniform density whose inertia is known: rods, boxes, discs and balls."""

from typing import Any

import numpy as np
from jaxtyping import Array

from .._misc._arguments import fails
from .._misc._errors import InputError
from .._misc._types import module_for
from ._abstract_joint import normalize_axis
from ._bodies import Body, PlanarBody, check_array, check_nonnegative, check_positive_scalar


def _as_arrays(*values: Array) -> tuple[Any, list[Any]]:
    """NumPy and the values as its arrays, where they are known; otherwise `jax.numpy` and the values."""
    xp = module_for(values)
    return xp, [xp.asarray(x) for x in values]


def rod(name: str, start: Any, end: Any, mass: Any, radius: Any = 0.0) -> PlanarBody | Body:
    """A uniform rod between two world points; points `start` and `end`.

    In the plane theta is its direction, from start to end. In space it is a cylinder; a slender one (radius zero) has
    no inertia about its axis, so that its mass matrix in absolute coordinates is singular (see `Body`).

    **Arguments:**

    - `name`: of the body.
    - `start`, `end`: in the reference posture [m] (2,) or (3,).
    - `mass`: [kg].
    - `radius`: in space, of the cylinder [m].

    **Returns:** a `PlanarBody` or a `Body`.

    **Raises:** `InputError` for points of different dimension or one and the same, and a negative radius.
    """
    ends = start, end
    start = check_array(f"the start of rod '{name}'", start, (2,), (3,))
    end = check_array(f"the end of rod '{name}'", end, start.shape)
    if fails(lambda a, b: np.any(a != b), *ends):
        raise InputError(f"rod '{name}' has no length: its start and end are the same point.")
    mass = check_positive_scalar(f"the mass of body '{name}'", mass)
    radius = check_nonnegative(f"the radius of rod '{name}'", radius)
    points = {"start": start, "end": end}
    xp, (start, end, mass) = _as_arrays(start, end, mass)
    along = end - start
    square, centre = xp.dot(along, along), 0.5 * (start + end)
    if start.shape == (2,):
        return PlanarBody(
            name, mass, centre, mass * square / 12.0, xp.arctan2(along[1], along[0]), points, "rod"
        )
    xp, (along, square, mass, r) = _as_arrays(along, square, mass, radius)
    axial, r2 = xp.outer(along, along) / square, r**2
    across = xp.eye(3, dtype=along.dtype) - axial
    inertia = mass * ((square / 12.0 + r2 / 4.0) * across + 0.5 * r2 * axial)
    return Body(name, mass, centre, inertia, points, "rod")


def box(name: str, centre: Any, size: Any, mass: Any) -> PlanarBody | Body:
    """A uniform box with edges along the world axes in the reference posture; in the plane a rectangle.

    **Arguments:**

    - `name`: of the body.
    - `centre`: in the reference posture [m] (2,) or (3,).
    - `size`: lengths of its edges [m] (2,) or (3,).
    - `mass`: [kg].

    **Returns:** a `PlanarBody` or a `Body`.

    **Raises:** `InputError` for arrays of different dimension, and a negative length.
    """
    centre = check_array(f"the centre of box '{name}'", centre, (2,), (3,))
    size = check_nonnegative(f"the size of box '{name}'", size, centre.shape)
    mass = check_positive_scalar(f"the mass of body '{name}'", mass)
    xp, (edges, m) = _as_arrays(size, mass)
    square, total = edges**2, xp.sum(edges**2)
    if centre.shape == (2,):
        return PlanarBody(name, mass, centre, m * total / 12.0, shape="box", edges=size)
    return Body(name, mass, centre, m * (total - square) / 12.0, shape="box")


def disk(name: str, centre: Any, radius: Any, mass: Any, axis: Any = (0.0, 0.0, 1.0)) -> PlanarBody | Body:
    """A thin uniform disc, m r^2 / 2 about its axis and m r^2 / 4 across.

    **Arguments:**

    - `name`: of the body.
    - `centre`: in the reference posture [m] (2,) or (3,).
    - `radius`: [m].
    - `mass`: [kg].
    - `axis`: in space, of the disc in the reference posture (3,).

    **Returns:** a `PlanarBody` or a `Body`.

    **Raises:** `InputError` for a radius that is not positive, and an axis that is the zero vector.
    """
    centre = check_array(f"the centre of disc '{name}'", centre, (2,), (3,))
    radius = check_positive_scalar(f"the radius of disc '{name}'", radius)
    mass = check_positive_scalar(f"the mass of body '{name}'", mass)
    if centre.shape == (2,):
        _, (r, m) = _as_arrays(radius, mass)
        return PlanarBody(name, mass, centre, 0.5 * m * r**2, shape="disk")
    xp, (r, m, n) = _as_arrays(radius, mass, normalize_axis(f"the axis of disc '{name}'", axis, 3))
    axial = xp.outer(n, n)
    inertia = 0.25 * m * r**2 * (xp.eye(3, dtype=axial.dtype) + axial)
    return Body(name, mass, centre, inertia, shape="disk")


def ball(name: str, centre: Any, radius: Any, mass: Any) -> Body:
    """A uniform ball in space, 2/5 m r^2 about any axis through its centre.

    **Arguments:**

    - `name`: of the body.
    - `centre`: in the reference posture [m] (3,).
    - `radius`: [m].
    - `mass`: [kg].

    **Returns:** a `Body`.

    **Raises:** `InputError` for a radius that is not positive.
    """
    centre = check_array(f"the centre of ball '{name}'", centre, (3,))
    radius = check_positive_scalar(f"the radius of ball '{name}'", radius)
    mass = check_positive_scalar(f"the mass of body '{name}'", mass)
    xp, (r, m) = _as_arrays(radius, mass)
    return Body(name, mass, centre, 0.4 * m * r**2 * xp.ones(3, dtype=r.dtype), shape="ball")
