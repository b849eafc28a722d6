"""What moves in a picture of a run: shapes and lines, and where they are at each frame of a film."""

from collections.abc import Callable, Mapping
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
from ..mechanisms._default_visuals import facing, looks
from ._meshes import revolve

_WIDTH = 0.008  # of lines, of the size of what is shown: some five pixels of a window
MOST_BARS = 7  # lines of at most so many points are bars with balls where they meet, as of a linkage; others are curves
_FLAT = 1e-9  # the least stretch: viewers divide by it
_OF_PATH = 600  # points of a path
_TURNS = 8  # of the coil of a spring
_MARK, _STEEL, _FORCE = (
    (0.36, 0.38, 0.42),
    (0.45, 0.48, 0.53),
    (0.80, 0.16, 0.12),
)  # points, rods and springs, arrows


FORCES = "forces/"
"""How the names of arrows begin."""


class SceneNode(NamedTuple):
    """Shapes that move together.

    - `name`: by which the viewer lists it.
    - `visuals`: the shapes, in axes of the node: of a body those of the world in the reference posture.
    - `position`: of the node's origin at the k frames (k, 3) [m].
    - `wxyz`: its orientation, a unit quaternion (k, 4).
    - `scale`: by how much its one shape is stretched along its axes (k, 3), or None.
    """

    name: str
    visuals: tuple[Visual, ...]
    position: np.ndarray
    wxyz: np.ndarray
    scale: np.ndarray | None = None


class Curve(NamedTuple):
    """A line through points that move.

    - `name`: by which the viewer lists it.
    - `points`: at the k frames (k, p, 3) [m], or (1, p, 3) where they stay.
    - `radius`: [m].
    """

    name: str
    points: np.ndarray
    radius: float


class Moving(NamedTuple):
    """What moves of one run.

    - `parts`: all of it.
    - `size`: the diagonal of the box around it, at the frame where that is largest [m].
    - `planar`: whether it moves in the plane.
    """

    parts: list[SceneNode | Curve]
    size: float
    planar: bool


class Shown(NamedTuple):
    """One run.

    - `name`: as its label says.
    - `problem`: what was simulated.
    - `t`, `q`: the motion (k,), (k, n_q).
    - `forces`: of each joint its point and the force there (k, 3) or (k, 2), by name.
    - `paths`: whether the paths of the problem's points are drawn.
    """

    name: str
    problem: Problem
    t: np.ndarray
    q: np.ndarray
    forces: Mapping[str, tuple[np.ndarray, np.ndarray]]
    paths: bool


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


def _turning(times: np.ndarray, t: np.ndarray, turned: np.ndarray) -> Any:
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


def _wxyz(rotation: Any) -> np.ndarray:
    return np.roll(rotation.as_quat(), 1, axis=-1)


def _bodies(system: Any, t: np.ndarray, q: np.ndarray, times: np.ndarray) -> list[SceneNode]:
    """The bodies of a system whose looks are known."""
    visuals: dict[str, list[Visual]] = {}
    for visual in looks(system):
        visuals.setdefault(visual.body, []).append(visual)
    if not visuals:
        return []
    places, found = evaluate_at_states(place_bodies, system, t, q), []
    for name, shapes in visuals.items():
        turned, p, centre = (np.asarray(x, float) for x in places[name])
        rotation = _turning(times, t, turned)
        origin = interpolate_frames(times, t, _embed_in_space(p)) - rotation.apply(_embed_in_space(centre[0]))
        found.append(SceneNode(name, tuple(shapes), origin, _wxyz(rotation)))
    return found


def _stretch_between(name: str, visual: Visual, a: np.ndarray, b: np.ndarray) -> SceneNode:
    """A shape one long between two places (k, 3) that move."""
    from scipy.spatial.transform import Rotation

    length = np.linalg.norm(b - a, axis=1)
    along = np.where(length[:, None] > 0, b - a, [0.0, 0.0, 1.0])
    scale = np.stack([np.ones_like(length), np.ones_like(length), np.maximum(length, _FLAT)], axis=1)
    return SceneNode(name, (visual,), (a + b) / 2, _wxyz(Rotation.from_matrix(facing(along))), scale)


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


def _arrow(name: str, radius: float) -> Visual:
    """An arrow of length one about its z axis."""
    r = radius * np.array([0.0, 0.4, 0.4, 1.0, 0.0])
    vertices, faces = revolve(r, np.array([-0.5, -0.5, 0.25, 0.25, 0.5]), 16)
    return Visual(name, "mesh", colour=_FORCE, vertices=vertices, faces=faces)


def arrows(run: Shown, times: np.ndarray, scale: float, size: float, front: float) -> list[SceneNode | Curve]:
    """The force at each joint, an arrow from the joint's point."""
    found = []
    for name, at_point in run.forces.items():
        point, force = (interpolate_frames(times, run.t, _embed_in_space(x)) for x in at_point)
        point = point + np.array([0.0, 0.0, front])
        arrow = _arrow(name, 1.5 * _WIDTH * size)
        node = _stretch_between(f"{FORCES}{name}", arrow, point, point + scale * force)
        assert node.scale is not None
        node.scale[:, :2] = np.clip(
            node.scale[:, 2:] / (5 * _WIDTH * size), _FLAT, 1
        )  # short ones are thin too
        found.append(node)
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
    turns = Rotation.from_quat(np.roll(part.wxyz, -1, axis=1)).as_matrix()
    return (np.concatenate(own) * scale[:, None]) @ turns.swapaxes(1, 2) + part.position[:, None]


def _floor(plane: HalfSpace, every: np.ndarray, size: float) -> Visual:
    """The line of a half-space of the plane, along all that moves beside it."""
    x, y = np.asarray(plane.normal, float)
    along, point = np.array([y, -x, 0.0]), np.append(np.asarray(plane.point, float), 0.0)
    ends = (every @ along).min() - 0.1 * size, (every @ along).max() + 0.1 * size
    low = point - 0.5 * _WIDTH * size * np.array([x, y, 0.0])
    middle = low + (0.5 * sum(ends) - low @ along) * along
    sizes = (ends[1] - ends[0], _WIDTH * size, _WIDTH * size)
    turn = np.stack([along, [x, y, 0.0], np.cross(along, [x, y, 0.0])], axis=1)
    return Visual(GROUND, "box", sizes, middle, turn)


def build_moving_parts(run: Shown, times: np.ndarray) -> Moving:
    """The bodies of a run, what is drawn of it besides, and the paths of its points.

    **Raises:** `InputError` where there is nothing to show.
    """
    system = innermost(run.problem.system)
    mechanism = getattr(system, "mechanism", None)
    bodies = _bodies(system, run.t, run.q, times)
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
    if flat and mechanism:
        found += [
            SceneNode(f"{GROUND}/half-space", (_floor(x, every, size),), np.zeros((times.size, 3)), still)
            for x in (x for c in mechanism.contacts for x in getattr(c, "shapes", ()))
            if isinstance(x, HalfSpace) and x.body == GROUND
        ]
    # A path has points between frames too: those of a circle would be the corners of a polygon.
    along = np.linspace(times[0], times[-1], 1 + (times.size - 1) * max(1, _OF_PATH // times.size))
    found += [
        Curve(f"paths/{k}", interpolate_frames(along, run.t, _embed_in_space(x))[None], 0.25 * width)
        for k, x in (points.items() if run.paths else ())
    ]
    return Moving(found, size, mechanism.dimension == 2 if mechanism else flat)
