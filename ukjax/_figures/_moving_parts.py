"""What moves in a picture of a run: shapes and lines, and where they are at each frame of a film."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler import evaluate_at_states
from .._misc._arguments import call_user_function, number_array
from .._misc._errors import InputError
from .._misc._types import Coordinates, Time
from .._system._problem import Problem
from .._system._system import innermost
from ..mechanisms import GROUND, HalfSpace, SpringDamper, Visual
from ..mechanisms._default_visuals import contact_shapes, contact_visuals_of, visuals_of
from ..mechanisms._visual import facing, lift_to_space
from ._meshes import revolve

_WIDTH = 0.008  # of lines, of the size of what is shown: some five pixels of a window
MOST_BARS = 7  # lines of at most so many points are bars with balls where they meet, as of a linkage; others are curves
_FLAT = 1e-9  # the least stretch: viewers divide by it
_OF_PATH = 600  # points of a path
_TURNS = 8  # of the coil of a spring
_MARK, _STEEL, _FORCE, _FRICTION = (
    (0.36, 0.38, 0.42),
    (0.45, 0.48, 0.53),
    (0.80, 0.16, 0.12),
    (0.95, 0.58, 0.05),
)  # points, rods and springs, arrows, those of friction
_SHEET = (0.62, 0.65, 0.70, 0.45)  # a half-space in space, through which one sees what is below
_SHAPE = (0.10, 0.62, 0.55, 0.55)  # shapes that touch, where bodies look different
# That a half-space of the ground goes on beyond what moves, in the plane and in space, and one of a body around its
# point; of the size of what is shown.
_BEYOND, _OF_BODY = {True: 0.1, False: 0.2}, 0.5
_SHORTEST = 2e-3  # of an arrow at a contact that is seen, of the size of what is shown


FORCES = "forces/"
"""How the names of arrows begin."""
HALF_SPACE, SHAPES = "/half-space", "/contact shapes"
"""How the names of half-spaces end, and those of shapes that touch."""


class SceneNode(NamedTuple):
    """Shapes that move together."""

    name: str  # by which the viewer lists it
    # `visuals`: the shapes, in axes of the node: of a body those of the world in the reference posture.
    visuals: tuple[Visual, ...]
    position: np.ndarray  # of the node's origin at the k frames (k, 3) [m]
    wxyz: np.ndarray  # its orientation, a unit quaternion (k, 4)
    scale: np.ndarray | None = None  # by how much its one shape is stretched along its axes (k, 3), or None


class Curve(NamedTuple):
    """A line through points that move."""

    name: str  # by which the viewer lists it
    points: np.ndarray  # at the k frames (k, p, 3) [m], or (1, p, 3) where they stay
    radius: float  # [m]


class MovingParts(NamedTuple):
    """What moves of one run."""

    parts: list[SceneNode | Curve]  # all of it
    size: float  # the diagonal of the box around it, at the frame where that is largest [m]
    planar: bool  # whether it moves in the plane


class ShownRun(NamedTuple):
    """One run."""

    name: str  # as its label says
    problem: Problem  # what was simulated
    # `t`, `q`: the motion (k,), (k, n_q).
    t: np.ndarray
    q: np.ndarray
    # `forces`: of each joint its point and the force there (k, 3) or (k, 2), by name.
    forces: Mapping[str, tuple[np.ndarray, np.ndarray]]
    paths: bool  # whether the paths of the problem's points are drawn
    # `contacts`: of each contact its point, the force there and the part of it that is friction, by name.
    contacts: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
    shapes: bool  # whether shapes that touch are drawn of bodies that look different


def is_overlay(part: SceneNode | Curve) -> bool:
    """Whether a part would be hidden by bodies that cannot be seen through."""
    return part.name.startswith(FORCES) or part.name.endswith(SHAPES)


def place_bodies(system: Any, t: Time, q: Coordinates) -> dict[str, Any]:
    """Of each body its rotation, or its angle, its centre, and this in the reference posture."""
    placements = system.placements(t, q)
    return {k: (x.angle if jnp.size(x.p) == 2 else x.R, x.p, x.centre) for k, x in placements.items()}


def compute_drawing(problem: Problem, t: Time, q: Coordinates) -> tuple[dict[str, Any], dict[str, Any]]:
    """The lines (p, d) of a system's drawing and the points (d,) of its problem."""
    points = {} if problem.points is None else _named_arrays("points", problem.points, t, q)
    lines = _named_arrays("drawing", problem.system.drawing, t, q)
    for name, line in lines.items():
        if line.ndim != 2 or line.shape[1] not in (2, 3) or not len(line):
            raise InputError(f"line '{name}' of drawing has shape {line.shape}; it must be (k, 2) or (k, 3).")
    return lines, {k: x for k, x in points.items() if x.size in (2, 3)}


def _named_arrays(what: str, fn: Callable[..., Any], t: Time, q: Coordinates) -> dict[str, Array]:
    found = call_user_function(what, fn, t, q)
    if not isinstance(found, Mapping):
        raise InputError(f"{what} must return a dict of arrays by name, got {type(found).__name__}.")
    return {name: number_array(f"'{name}' of {what}", x) for name, x in found.items()}


def interpolate_frames(times: np.ndarray, t: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values (k, ...) known at t, at other times, by linear interpolation."""
    columns = values.reshape(t.size, -1).T
    return np.stack([np.interp(times, t, x) for x in columns], axis=1).reshape(-1, *values.shape[1:])


def _embed_in_space(x: np.ndarray) -> np.ndarray:
    """Places and vectors of the plane as ones of space, z = 0."""
    return x if x.shape[-1] == 3 else np.concatenate([x, np.zeros_like(x[..., :1])], axis=-1)


def _interpolate_rotations(times: np.ndarray, t: np.ndarray, turned: np.ndarray) -> Any:
    """The rotations at other times, of matrices (k, 3, 3) or angles (k,) known at t."""
    from scipy.spatial.transform import Rotation

    if turned.ndim == 1:
        known = Rotation.from_rotvec(turned[:, None] * np.array([0.0, 0.0, 1.0]))
    else:
        known = Rotation.from_matrix(turned)
    quaternions = known.as_quat()
    flips = np.einsum("ij,ij->i", quaternions[1:], quaternions[:-1]) < 0
    quaternions[1:] *= np.cumprod(np.where(flips, -1.0, 1.0))[:, None]  # q and -q are one rotation
    return Rotation.from_quat(interpolate_frames(times, t, quaternions))


def _fix_to_bodies(
    system: Any, visuals: Sequence[Visual], suffix: str, t: np.ndarray, q: np.ndarray, times: np.ndarray
) -> list[SceneNode]:
    """Shapes as they move with their bodies: of each body a node, by its name and a suffix."""
    by_body: dict[str, list[Visual]] = {}
    for visual in visuals:
        by_body.setdefault(visual.body, []).append(visual)
    if not by_body:
        return []
    places, found = evaluate_at_states(place_bodies, system, t, q), []
    for name, shapes in by_body.items():
        turned, p, centre = (np.asarray(x, float) for x in places[name])
        rotation = _interpolate_rotations(times, t, turned)
        origin = interpolate_frames(times, t, _embed_in_space(p)) - rotation.apply(_embed_in_space(centre[0]))
        found.append(SceneNode(name + suffix, tuple(shapes), origin, rotation.as_quat(scalar_first=True)))
    return found


def _stretch_between(name: str, visual: Visual, a: np.ndarray, b: np.ndarray) -> SceneNode:
    from scipy.spatial.transform import Rotation

    length = np.linalg.norm(b - a, axis=1)
    along = np.where(length[:, None] > 0, b - a, [0.0, 0.0, 1.0])
    scale = np.stack([np.ones_like(length), np.ones_like(length), np.maximum(length, _FLAT)], axis=1)
    turned = Rotation.from_matrix(facing(along)).as_quat(scalar_first=True)
    return SceneNode(name, (visual,), (a + b) / 2, turned, scale)


def _lines(name: str, line: np.ndarray, width: float, colour: Any, spring: bool) -> list[SceneNode | Curve]:
    """A drawn line (k, p, 3): a spring, bars with balls at their ends, or a curve."""
    count = line.shape[1]
    if spring and count == 2:
        return [_stretch_between(name, _coil(name, 1.6 * width, colour), line[:, 0], line[:, 1])]
    if count > MOST_BARS:
        return [Curve(name, line, width)]
    bar = Visual(name, "cylinder", (width, 1.0), colour=colour)
    ball = Visual(name, "sphere", 1.6 * width, colour=colour)
    still = np.tile([1.0, 0.0, 0.0, 0.0], (len(line), 1))
    bars = [_stretch_between(f"{name}/{i + 1}", bar, line[:, i], line[:, i + 1]) for i in range(count - 1)]
    return [*bars, *(SceneNode(f"{name}/end {i}", (ball,), line[:, i], still) for i in range(count))]


def _coil(name: str, radius: float, colour: Any) -> Visual:
    """A spring of length one about its z axis."""
    u = np.linspace(-0.5, 0.5, 15 * _TURNS + 1)
    r = radius * np.clip((0.5 - np.abs(u)) / 0.06, 0.0, 1.0)  # its ends lie on the axis
    angle = 2 * np.pi * _TURNS * u
    vertices = np.stack([r * np.cos(angle), r * np.sin(angle), u], axis=1)
    return Visual(name, "line", 0.2 * radius, colour=colour, vertices=vertices)


def _arrow(name: str, radius: float, colour: Any) -> Visual:
    """An arrow of length one about its z axis."""
    r = radius * np.array([0.0, 0.4, 0.4, 1.0, 0.0])
    vertices, faces = revolve(r, np.array([-0.5, -0.5, 0.25, 0.25, 0.5]), 16)
    return Visual(name, "mesh", colour=colour, vertices=vertices, faces=faces)


def arrows(
    run: ShownRun, times: np.ndarray, scale: float, size: float, front: float
) -> list[SceneNode | Curve]:
    """The force at each joint, an arrow from the joint's point; at contacts that bear a force also its friction, and a
    ball where they are."""
    place = lambda x: interpolate_frames(times, run.t, _embed_in_space(x))
    before = np.array([0.0, 0.0, front])

    def along(name: str, colour: Any, point: np.ndarray, force: np.ndarray) -> SceneNode:
        arrow = _arrow(name, 1.5 * _WIDTH * size, colour)
        node = _stretch_between(f"{FORCES}{name}", arrow, point, point + scale * force)
        assert node.scale is not None
        # short ones are thin too
        node.scale[:, :2] = np.clip(node.scale[:, 2:] / (5 * _WIDTH * size), _FLAT, 1)
        return node

    found: list[SceneNode | Curve] = [
        along(name, _FORCE, place(point) + before, place(force))
        for name, (point, force) in run.forces.items()
    ]
    still = np.tile([1.0, 0.0, 0.0, 0.0], (times.size, 1))
    for name, at_contact in run.contacts.items():
        point, force, friction = map(place, at_contact)
        reach = lambda x: scale * np.linalg.norm(x, axis=1) > _SHORTEST * size
        if reach(force).any():
            ball = Visual(name, "sphere", 1.0, colour=_MARK)
            radius = np.where(reach(force), 1.2 * _WIDTH * size, _FLAT)[:, None] * np.ones(3)
            found.append(SceneNode(f"{FORCES}{name}/place", (ball,), point + before, still, radius))
            found.append(along(f"{name}/force", _FORCE, point + before, force))
        if reach(friction).any():
            found.append(along(f"{name}/friction", _FRICTION, point + before, friction))
    return found


def corners(part: SceneNode | Curve) -> np.ndarray:
    """Places that a part stays within at each frame (k, n, 3), of one that does not move (1, n, 3)."""
    if isinstance(part, Curve):
        return part.points
    from scipy.spatial.transform import Rotation

    own = []
    for visual in part.visuals:
        ends = np.stack(np.meshgrid(*zip(*visual.extent(), strict=True)), axis=-1).reshape(8, 3)
        own.append(ends @ visual.rotation.T + visual.position)
    scale = np.ones((1, 3)) if part.scale is None else part.scale
    turns = Rotation.from_quat(part.wxyz, scalar_first=True).as_matrix()
    return (np.concatenate(own) * scale[:, None]) @ turns.swapaxes(1, 2) + part.position[:, None]


def _draw_half_space(plane: HalfSpace, others: Sequence[HalfSpace], every: np.ndarray, size: float) -> Visual:
    """A half-space, on the ground along all that moves, as far as it is within no other one: in the plane a bar below its
    line, in space a sheet."""
    flat, of_ground = plane.dimension == 2, plane.body == GROUND
    in_space = lambda x: lift_to_space(x, 0.0)
    normal, point = in_space(plane.normal), in_space(plane.point)
    across = facing(normal)[:, : 1 if flat else 2]  # in the plane its y axis points to the viewer, or away
    beside = every.reshape(-1, 3) @ across if of_ground else (point @ across)[None]
    beyond = (_BEYOND[flat] if of_ground else _OF_BODY) * size
    low, high = beside.min(axis=0) - beyond, beside.max(axis=0) + beyond
    ends = np.stack([low, high]) if flat else np.array([low, (high[0], low[1]), high, (low[0], high[1])])
    whole = outline = ends @ across.T + (point @ normal) * normal
    for other in (x for x in others if x is not plane and x.body == plane.body):
        outline = _clip_outline(outline, in_space(other.point), in_space(other.normal))
    outline = outline if len(outline) >= len(whole) - 1 else whole
    if flat:
        width, start, end = _WIDTH * size, *np.sort((outline @ across)[:, 0])[[0, -1]]
        middle = across[:, 0] * (start + end) / 2 + (point @ normal - 0.5 * width) * normal
        return Visual(plane.body, "box", (end - start, width, width), middle, facing(normal))
    fan = np.array([(0, i, i + 1) for i in range(1, len(outline) - 1)])
    faces = np.concatenate([fan, fan[:, ::-1]])  # seen from both sides
    return Visual(plane.body, "mesh", colour=_SHEET, vertices=outline, faces=faces)


def _clip_outline(outline: np.ndarray, point: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """The part of a convex outline (p, 3) that is on a side of a plane."""
    height, kept = (outline - point) @ normal, []
    for i in range(len(outline)):
        h, before = height[i], height[i - 1]
        if min(h, before) < 0 < max(h, before):
            kept.append(outline[i - 1] + before / (before - h) * (outline[i] - outline[i - 1]))
        if h >= 0:
            kept.append(outline[i])
    return np.array(kept)


def build_moving_parts(run: ShownRun, times: np.ndarray) -> MovingParts:
    """The bodies of a run, what is drawn of it besides, and the paths of its points."""
    system = innermost(run.problem.system)
    mechanism = getattr(system, "mechanism", None)
    fix = lambda visuals, suffix: _fix_to_bodies(system, visuals, suffix, run.t, run.q, times)
    bodies = fix(visuals_of(system), "")
    drawing, points = evaluate_at_states(compute_drawing, run.problem, run.t, run.q)
    flat = all(x.shape[-1] == 2 for x in (*drawing.values(), *points.values()))
    known = {node.name for node in bodies}
    place = lambda x: interpolate_frames(times, run.t, _embed_in_space(x))
    lines = {k: place(x) for k, x in drawing.items() if k not in known}
    marks = {} if bodies else {k: place(x) for k, x in points.items()}
    at_once = [*map(corners, bodies), *lines.values(), *(x[:, None] for x in marks.values())]
    if not at_once:
        raise InputError(
            f"there is nothing to show of {run.name}: its system has no drawing and its Problem no points."
        )
    every = np.concatenate(at_once, axis=1)
    motion = np.linalg.norm(np.ptp(every, axis=(0, 1)))
    size = float(np.linalg.norm(np.ptp(every, axis=1), axis=1).max() or motion or 1.0)
    width, still = _WIDTH * size, np.tile([1.0, 0.0, 0.0, 0.0], (times.size, 1))
    springs = {load.name for load in getattr(system, "loads", ()) if isinstance(load, SpringDamper)}
    found: list[SceneNode | Curve] = list(bodies)
    for name, line in lines.items():
        found += _lines(name, line, width, _STEEL if mechanism else None, name in springs)
    found += [
        SceneNode(k, (Visual(k, "sphere", 1.7 * width, colour=_MARK),), x, still) for k, x in marks.items()
    ]
    if mechanism:
        planes = [x for x in contact_shapes(mechanism) if isinstance(x, HalfSpace)]
        found += fix([_draw_half_space(x, planes, every, size) for x in planes], HALF_SPACE)
    if run.shapes:
        found += fix([dataclasses.replace(x, colour=_SHAPE) for x in contact_visuals_of(system)], SHAPES)
    # A path has points between frames too: those of a circle would be the corners of a polygon.
    along = np.linspace(times[0], times[-1], 1 + (times.size - 1) * max(1, _OF_PATH // times.size))
    found += [
        Curve(f"paths/{k}", interpolate_frames(along, run.t, _embed_in_space(x))[None], 0.25 * width)
        for k, x in (points.items() if run.paths else ())
    ]
    return MovingParts(found, size, mechanism.dimension == 2 if mechanism else flat)
