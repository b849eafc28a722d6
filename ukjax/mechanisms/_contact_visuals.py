"""What shapes that may touch look like. A half-space has no end: a picture cuts it where its scene ends."""

from typing import Any

import jax
import numpy as np

from ._contact_shapes import (
    AbstractShape,
    Capsule,
    ConvexHull,
    Cuboid,
    Cylinder,
    Ellipsoid,
    HeightField,
    Sphere,
)
from ._mechanism import Mechanism
from ._visual import Visual, facing, lift_to_space

_LEAST = 0.3  # of the width, of what would be too thin to be seen
_MOST_PLACES = 64  # of a height field, along each side


def contact_shapes(mechanism: Mechanism) -> list[AbstractShape]:
    """Each shape of the contacts once."""
    key = lambda x: (type(x), x.body, *(np.asarray(number).tobytes() for number in jax.tree.leaves(x)))
    return list({key(x): x for x in mechanism.shapes}.values())


def draw_contact_shapes(mechanism: Mechanism, width: float, depths: dict[str, float]) -> list[Visual]:
    """Each shape of the contacts once, but for half-spaces and surfaces.

    **Arguments:**

    - `width`: half the thickness of what is flat, and the radius of points.
    - `depths`: of the plane, how far in front of it each body is drawn.
    """
    drawn = (_draw_shape(x, width, depths[x.body]) for x in contact_shapes(mechanism))
    return [x for x in drawn if x is not None]


def _draw_shape(shape: AbstractShape, width: float, depth: float) -> Visual | None:
    body, at = shape.body, lambda x: lift_to_space(x, depth)
    if isinstance(shape, Sphere):
        radius = float(shape.radius) or width
        if shape.dimension == 2 and shape.radius > 0:
            return Visual(body, "cylinder", (radius, 2 * width), at(shape.centre))
        return Visual(body, "sphere", radius, at(shape.centre))
    if isinstance(shape, Capsule | Cylinder):
        start, end = at(shape.start), at(shape.end)
        size = (max(float(shape.radius), _LEAST * width), float(np.linalg.norm(end - start)))
        kind = "capsule" if isinstance(shape, Capsule) else "cylinder"
        return Visual(body, kind, size, (start + end) / 2, facing(end - start))
    if isinstance(shape, Cuboid):
        size = np.maximum(lift_to_space(shape.size, 2 * width), _LEAST * width)
        return Visual(body, "box", size, at(shape.centre), _turn_to(shape.rotation))
    if isinstance(shape, Ellipsoid):
        return Visual(body, "ellipsoid", shape.radii, shape.centre, _turn_to(shape.rotation))
    if isinstance(shape, ConvexHull):
        return Visual(body, "mesh", vertices=shape.points, faces=_hull_faces(np.asarray(shape.points)))
    if isinstance(shape, HeightField):
        vertices, faces = _mesh_of_field(shape)
        return Visual(body, "mesh", vertices=vertices, faces=faces)
    return None


def _turn_to(axes: Any) -> np.ndarray:
    """A rotation to axes of space or of the plane; what is symmetric looks the same where these are mirrored."""
    turn = np.eye(3)
    turn[: len(axes), : len(axes)] = axes
    turn[:, 0] *= np.linalg.det(turn)
    return turn


def _mesh_of_field(shape: HeightField) -> tuple[np.ndarray, np.ndarray]:
    """The surface of a height field as triangles, counterclockwise from above; of a large one every few places."""
    heights, (length, width) = np.asarray(shape.heights), np.asarray(shape.size)
    rows, columns = (
        np.unique(np.append(np.arange(0, n, -(-n // _MOST_PLACES)), n - 1)) for n in heights.shape
    )
    x = length * (columns / (heights.shape[1] - 1) - 0.5)
    y = width * (rows / (heights.shape[0] - 1) - 0.5)
    local = np.stack([*np.meshgrid(x, y), heights[np.ix_(rows, columns)]], axis=-1).reshape(-1, 3)
    number = np.arange(len(local)).reshape(len(rows), len(columns))
    a, b, c, d = number[:-1, :-1], number[:-1, 1:], number[1:, 1:], number[1:, :-1]
    faces = np.concatenate([np.stack(x, axis=-1).reshape(-1, 3) for x in ((a, c, d), (a, b, c))])
    return np.asarray(shape.centre) + local @ np.asarray(shape.rotation).T, faces


def _hull_faces(points: np.ndarray) -> np.ndarray:
    """The triangles of a hull, counterclockwise from outside."""
    from scipy.spatial import ConvexHull as Hull  # slow to load

    hull = Hull(points)
    a, b, c = np.moveaxis(points[hull.simplices], 1, 0)
    inwards = np.sum(np.cross(b - a, c - a) * hull.equations[:, :3], axis=1) < 0
    return np.where(inwards[:, None], hull.simplices[:, ::-1], hull.simplices)
