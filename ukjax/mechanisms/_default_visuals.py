"""What the bodies and joints of a mechanism look like where nobody said: shapes from inertia, lines, pins and balls.

A body of mass m with the principal moments I1, I2, I3 has along its axis i the mean square distance from the centre

    s_i^2 = (I_j + I_k - I_i) / (2 m),

which is a^2 / 12 of a box with the edge a, c^2 / 5 of an ellipsoid with the semi-axis c, and r^2 / 4 across a round rod
or disc of radius r. So bodies made by `box`, `ball`, `disk` and `rod` are shown as they were made.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ._abstract_joint import AbstractJoint
from ._bodies import GROUND, AbstractBody, PointMass
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

_WIDTH = 0.014  # of lines and slender rods, of the mechanism's size: some ten pixels of a window across
_DARK, _GROUND = (0.16, 0.17, 0.20), (0.42, 0.44, 0.48)  # joints, and what stands on the ground


def visuals_of(system: Any) -> tuple[Visual, ...]:
    """What a system looks like.

    A system with `visuals` has these. A mechanism has those it was given; a body without any is drawn by its shape or
    what touches of it, and a joint of such bodies as a pin or a ball. Other systems have none.
    """
    mechanism = getattr(system, "mechanism", None)
    if hasattr(system, "visuals") or not isinstance(mechanism, Mechanism):
        return getattr(system, "visuals", ())
    given = _group_by_body(mechanism.visuals)
    width, depths = _measure(mechanism)
    touching = _group_by_body(draw_contact_shapes(mechanism, width, depths))
    visuals = [*mechanism.visuals, *(() if GROUND in given else touching.get(GROUND, ()))]
    for body in mechanism.bodies:
        joints = [j for j in mechanism.joints if body.name in j.bodies and j.point is not None]
        if body.name not in given:
            visuals += _draw_body(body, joints, touching.get(body.name, []), width, depths[body.name])
        elif getattr(body, "shape", "") == "joints":
            visuals += _draw_missing_reach(body, joints, given[body.name], width)
    for joint in mechanism.joints:
        if given.keys().isdisjoint(joint.bodies) and joint.point is not None:
            visuals += _draw_joint(joint, width, *(depths[name] for name in joint.bodies[:2]))
    return tuple(visuals)


def contact_visuals_of(system: Any) -> tuple[Visual, ...]:
    """The shapes of the contacts of a mechanism, but for those that its bodies are drawn as already."""
    mechanism = getattr(system, "mechanism", None)
    if not isinstance(mechanism, Mechanism):
        return ()
    shown = set(visuals_of(system))
    return tuple(x for x in draw_contact_shapes(mechanism, *_measure(mechanism)) if x not in shown)


def _group_by_body(visuals: Sequence[Visual]) -> dict[str, list[Visual]]:
    by_body = dict[str, list[Visual]]()
    for visual in visuals:
        by_body.setdefault(visual.body, []).append(visual)
    return by_body


def _measure(mechanism: Mechanism) -> tuple[float, dict[str, float]]:
    """How wide lines are, and how far in front of the plane each body is drawn."""
    width = _WIDTH * _measure_span(mechanism)
    return width, _assign_depths(mechanism, 3 * width)


def _measure_span(mechanism: Mechanism) -> float:
    """The diagonal of the box around all that is known of the reference posture [m]; 1 for a single point."""
    points = [x for body in mechanism.bodies for x in (body.centre, *body.points.values())]
    points += [joint.point for joint in mechanism.joints if joint.point is not None]
    every = np.array([np.asarray(x, float) for x in points])
    sizes = [4.0 * np.linalg.norm(_compute_spread(body)[0]) for body in mechanism.bodies]
    return float(max(np.linalg.norm(np.ptp(every, axis=0)), *sizes)) or 1.0


def _assign_depths(mechanism: Mechanism, gap: float) -> dict[str, float]:
    """How far in front of the plane each body of a planar mechanism is drawn: bodies that share a joint in layers of
    their own, as links are built."""
    layers: dict[str, int] = {GROUND: 0}
    for body in mechanism.bodies:
        beside = {name for j in mechanism.joints if body.name in j.bodies for name in j.bodies}
        taken = {layers[name] for name in beside & layers.keys() - {GROUND}}
        layers[body.name] = next(i for i in range(len(mechanism.bodies)) if i not in taken)
    return {name: gap * layer if mechanism.dimension == 2 else 0.0 for name, layer in layers.items()}


def _compute_spread(body: AbstractBody) -> tuple[np.ndarray, np.ndarray]:
    """The root mean square distances s (3,) along the principal axes, largest first, and these, as columns (3, 3)."""
    if isinstance(body, PointMass):
        return np.zeros(3), np.eye(3)
    mass, inertia = float(body.mass), np.asarray(body.inertia, float)  # pyright: ignore[reportAttributeAccessIssue]
    if not inertia.ndim:  # alike in all directions of the plane
        return np.array([1.0, 1.0, 0.0]) * np.sqrt(inertia / (2.0 * mass)), np.eye(3)
    moments, axes = np.linalg.eigh(inertia)
    squares = np.maximum(moments.sum() - 2.0 * moments, 0.0) / (2.0 * mass)
    return np.sqrt(squares), axes * np.linalg.det(axes)


def _make_capsule(body: str, a: np.ndarray, b: np.ndarray, radius: float) -> Visual:
    size = (radius, float(np.linalg.norm(b - a)))
    return Visual(body, "capsule", size, (a + b) / 2, facing(b - a))


def _make_line(body: str, points: Sequence[np.ndarray], radius: float) -> Visual:
    return Visual(body, "line", radius, vertices=np.stack(points))


def _make_spoke(body: str, radius: float, width: float, centre: np.ndarray, axes: np.ndarray) -> Visual:
    """A mark on what is round, so that one sees it turn."""
    size = (0.8 * radius, 0.6 * width, 1.2 * width)
    return Visual(body, "box", size, centre + 0.4 * radius * axes[:, 0], axes, _DARK)


def _draw_body(
    body: AbstractBody,
    joints: Sequence[AbstractJoint],
    touching: Sequence[Visual],
    width: float,
    depth: float,
) -> list[Visual]:
    """The shape it has; else what of it touches, and lines through its points, or through its joints."""
    name, centre, shape = body.name, lift_to_space(body.centre, depth), getattr(body, "shape", "")
    spread, axes = _compute_spread(body)
    if isinstance(body, PointMass):
        return [*touching] or [Visual(name, "sphere", 2.5 * width, centre)]
    if shape == "ball":
        return [Visual(name, "sphere", np.sqrt(5.0) * spread.mean(), centre)]
    if shape == "box":
        edges = getattr(body, "edges", None)
        size = np.sqrt(12.0) * spread if edges is None else lift_to_space(edges, 2.0 * width)
        return [Visual(name, "box", np.maximum(size, 0.3 * width), centre, axes)]
    if shape == "disk":
        radius = 2.0 * spread[:2].mean()
        return [
            Visual(name, "cylinder", (radius, width), centre, axes),
            _make_spoke(name, radius, width, centre, axes),
        ]
    if shape == "rod":
        radius = 2.0 * spread[1:].mean() if body.dimension == 3 else 0.0
        start, end = (lift_to_space(body.points[x], depth) for x in ("start", "end"))
        return [_make_capsule(name, start, end, max(radius, width))]
    # Lines through points, or through joints, more than two as a plate; with less to go by the ellipsoid of inertia. What
    # touches is in place of plates and ellipsoids.
    ends = {tuple(lift_to_space(x, depth)) for x in (_joint_point(joint, name) for joint in joints)}
    named = [] if shape == "joints" else [lift_to_space(x, depth) for x in body.points.values()]
    through = named or _order_outline([np.array(x) for x in sorted(ends)])
    visuals = [*touching]
    if len(through) < 2:
        through = [*through, centre]
        axis_lengths = np.maximum(np.sqrt(5.0) * spread, 2.0 * width)
        visuals = visuals or [Visual(name, "ellipsoid", axis_lengths, centre, axes)]
    if len(through) > 2:
        visuals = visuals or ([] if len(named) > 3 else [_make_plate(name, through)])
        through = [*through, through[0]]
    return [*visuals, *([_make_line(name, through, width)] if len(through) > 1 else [])]


def _draw_missing_reach(
    body: AbstractBody, joints: Sequence[AbstractJoint], given: Sequence[Visual], width: float
) -> list[Visual]:
    """A line from joint to joint, where what is shown of a body does not get to them, as where its meshes are missing."""
    ends = [np.array(x) for x in sorted({tuple(_joint_point(joint, body.name)) for joint in joints})]
    if all(any(_is_near(x, visual, 2.0 * width) for visual in given) for x in ends):
        return []
    if len(ends) == 1:
        ends.append(np.mean([np.mean(_bounding_box(visual), axis=0) for visual in given], axis=0))
    around = _order_outline(ends)
    return [_make_line(body.name, [*around, around[0]] if len(around) > 2 else around, width)]


def _bounding_box(visual: Visual) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest corner of the box around what is shown, along the world's axes."""
    low, high = visual.extent()
    own, reach = visual.rotation @ (low + high) / 2.0, np.abs(visual.rotation) @ (high - low) / 2.0
    return visual.position + own - reach, visual.position + own + reach


def _is_near(place: np.ndarray, visual: Visual, distance: float) -> bool:
    low, high = _bounding_box(visual)
    return bool(np.all(place >= low - distance) and np.all(place <= high + distance))


def _joint_point(joint: AbstractJoint, body: str) -> np.ndarray:
    point = getattr(joint, "parent_point", joint.point) if body == joint.parent else joint.point
    return np.asarray(point, float)


def _order_outline(points: list[np.ndarray]) -> list[np.ndarray]:
    """Points in the order in which one sees them from the middle, so that lines between them do not cross."""
    if len(points) < 3:
        return points
    aside = np.stack(points) - np.mean(points, axis=0)
    across = np.linalg.svd(aside)[2][:2]
    return [points[i] for i in np.argsort(np.arctan2(*(across @ aside.T)))]


def _make_plate(body: str, points: list[np.ndarray]) -> Visual:
    """The area within an outline, seen from both sides."""
    count = len(points)
    fan = np.array([(count, i, (i + 1) % count) for i in range(count)])
    vertices = np.stack([*points, np.mean(points, axis=0)])
    return Visual(body, "mesh", vertices=vertices, faces=np.concatenate([fan, fan[:, ::-1]]))


def _draw_joint(joint: AbstractJoint, width: float, before: float, behind: float) -> list[Visual]:
    """A pin along the axis of a hinge, a ball where all directions are free; larger on the ground."""
    size = width * (1.7 if GROUND in joint.bodies else 1.3)
    colour = _GROUND if GROUND in joint.bodies else _DARK
    body = joint.child if joint.child != GROUND else joint.parent
    point = lift_to_space(_joint_point(joint, body), (before + behind) / 2)
    if joint.looks == "ball":
        return [Visual(body, "sphere", 1.3 * size, point, colour=colour)]
    if joint.looks == "pin":
        axis = getattr(joint, "axis", None)
        axis = (0.0, 0.0, 1.0) if axis is None else axis
        length = abs(before - behind) + 3.4 * width
        return [Visual(body, "cylinder", (size, length), point, facing(axis), colour)]
    return []


# --- Shapes that may touch


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
        return Visual(body, "box", size, at(shape.centre), _complete_rotation(shape.rotation))
    if isinstance(shape, Ellipsoid):
        return Visual(body, "ellipsoid", shape.radii, shape.centre, _complete_rotation(shape.rotation))
    if isinstance(shape, ConvexHull):
        return Visual(body, "mesh", vertices=shape.points, faces=_find_hull_faces(np.asarray(shape.points)))
    if isinstance(shape, HeightField):
        vertices, faces = _mesh_of_field(shape)
        return Visual(body, "mesh", vertices=vertices, faces=faces)
    return None


def _complete_rotation(axes: Any) -> np.ndarray:
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


def _find_hull_faces(points: np.ndarray) -> np.ndarray:
    from scipy.spatial import ConvexHull as Hull  # slow to load

    hull = Hull(points)
    a, b, c = np.moveaxis(points[hull.simplices], 1, 0)
    inwards = np.sum(np.cross(b - a, c - a) * hull.equations[:, :3], axis=1) < 0
    return np.where(inwards[:, None], hull.simplices[:, ::-1], hull.simplices)
