"""What joints are made of: functions of two placements that are zero where points, axes or directions agree."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._lie import rotation_matrix, unit_quaternion
from .._misc._types import arrays_of, module_for
from ._placement import AnyPlacement, Placement, PlanarPlacement


def across(axis: Float[Array, "3"]) -> tuple[Float[Array, "3"], Float[Array, "3"]]:
    """Two unit vectors that form a right-handed frame with a unit axis in third place
    (Duff et al. 2017, Building an orthonormal basis, revisited).
    """
    (axis,), xp = arrays_of(axis), module_for(axis)
    x, y, z = axis
    s = xp.where(z < 0, -1, 1).astype(axis.dtype)
    a = -1.0 / (s + z)
    b = x * y * a
    return xp.stack([1.0 + s * x * x * a, s * b, -s * x]), xp.stack([b, s + y * y * a, -y])


def same_point(X: Array, parent: AnyPlacement, child: AnyPlacement) -> Array:
    """x' - x of a point common to two bodies [m]."""
    return child.point(X) - parent.point(X)


def same_axis(axis: Array, parent: AnyPlacement, child: AnyPlacement) -> Float[Array, "2"]:
    """a'.n1 and a'.n2, zero where an axis common to two bodies is parallel in both."""
    relative = parent.back(child.vector(axis))
    return jnp.stack([jnp.dot(n, relative) for n in across(axis)])


def same_direction(parent: AnyPlacement, child: AnyPlacement) -> Array:
    """vee(R^T R' - R'^T R) / 2 = sin(angle) axis of the relative rotation (3,); in the plane the angle (1,)."""
    if isinstance(parent, PlanarPlacement) and isinstance(child, PlanarPlacement):
        return (child.angle - parent.angle)[None]
    S = parent.R.T @ child.R  # pyright: ignore[reportAttributeAccessIssue]
    return 0.5 * jnp.stack([S[2, 1] - S[1, 2], S[0, 2] - S[2, 0], S[1, 0] - S[0, 1]])


def turn_rows(R: Float[Array, "3 3"], parent: AnyPlacement, child: AnyPlacement) -> Float[Array, "3"]:
    """Zero where the child is turned by R against the parent."""
    return same_direction(Placement(parent.R @ R, parent.p, parent.centre), child)  # pyright: ignore


def orientation(parent: AnyPlacement, child: AnyPlacement) -> Array:
    """That of the child against the parent: a quaternion, in the plane an angle."""
    if isinstance(child, PlanarPlacement):
        return child.angle - parent.angle  # pyright: ignore[reportAttributeAccessIssue]
    return unit_quaternion(parent.R.T @ child.R)  # pyright: ignore[reportAttributeAccessIssue]


def orientation_rows(value: Array, parent: AnyPlacement, child: AnyPlacement) -> Array:
    """Zero where the child's orientation against the parent is a quaternion, or in the plane an angle."""
    if isinstance(parent, PlanarPlacement):
        return same_direction(parent, child) - value
    return turn_rows(rotation_matrix(value), parent, child)


def compute_cos_sin(axis: Array | None, parent: AnyPlacement, child: AnyPlacement) -> tuple[Array, Array]:
    """Cosine and sine of the angle by which the child has turned about an axis, against the parent."""
    if axis is None:
        angle = same_direction(parent, child)[0]
        return jnp.cos(angle), jnp.sin(angle)
    n1, n2 = across(axis)
    relative = parent.back(child.vector(n1))
    return jnp.dot(n1, relative), jnp.dot(n2, relative)


def angle_of(axis: Array | None, parent: AnyPlacement, child: AnyPlacement) -> Float[Array, ""]:
    """The angle by which the child has turned about an axis [rad]; in space between -pi and pi."""
    if axis is None:
        return same_direction(parent, child)[0]
    c, s = compute_cos_sin(axis, parent, child)
    return jnp.arctan2(s, c)


def displacement(axis: Array, X: Array, parent: AnyPlacement, child: AnyPlacement) -> Float[Array, ""]:
    """How far the child's point has moved along an axis of the parent [m]."""
    return jnp.dot(parent.vector(axis), same_point(X, parent, child))


def sideways(axis: Array, X: Array, parent: AnyPlacement, child: AnyPlacement) -> Array:
    """How far the child's point is off an axis of the parent [m]: 2 rows, in the plane 1."""
    normals = (jnp.stack([-axis[1], axis[0]]),) if axis.shape == (2,) else across(axis)
    offset = parent.back(same_point(X, parent, child))
    return jnp.stack([jnp.dot(n, offset) for n in normals])


def rotation_angle(parent: AnyPlacement, child: AnyPlacement) -> Float[Array, ""]:
    """The whole angle between two bodies, from 0 to pi [rad]; in the plane with its sign."""
    sine = same_direction(parent, child)
    if isinstance(parent, PlanarPlacement):
        return sine[0]
    square = jnp.dot(sine, sine)
    length = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
    return jnp.arctan2(length, 0.5 * (jnp.sum(parent.R * child.R) - 1))  # pyright: ignore[reportAttributeAccessIssue]
