"""The whole of a picture in space: runs side by side, their frames and captions, what is up. No viewer is involved."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._misc._arguments import require_between
from .._system._system import innermost
from ..mechanisms import GROUND, Gravity
from ._moving_parts import (
    HALF_SPACE,
    Curve,
    SceneNode,
    ShownRun,
    arrows,
    build_moving_parts,
    corners,
    is_overlay,
)

_ARROW = (
    0.25  # the arrow of the usual force, of the size of a run; those of impacts may reach beyond the window
)
_NICE = (1.0, 2.0, 5.0, 10.0)  # steps of a grid
FROM = (0.45, 1.0, 0.42)
"""Where the viewer stands, as seen from the middle: to the right, in front, above."""
# Those of Okabe and Ito, which colour-blind people tell apart, without yellow, which is hard to see on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#332288", "#6b6f77")
_GREY = "#9a9da5"
_VEIL = 0.5  # opacity of bodies where arrows are shown, which begin within them, or shapes that touch
_GAP = 0.3  # between runs side by side, of the width of one


class Scene(NamedTuple):
    """All that is shown."""

    times: np.ndarray  # of the frames [s] (k,)
    parts: dict[str, list[SceneNode | Curve]]  # of each run its nodes and curves, by its name
    captions: list[tuple[str, np.ndarray]]  # a line on each run, and where it stands (3,)
    # `low`, `high`: corners of the box that everything stays in (3,) [m].
    low: np.ndarray
    high: np.ndarray
    up: np.ndarray  # the direction that is up (3,)
    planar: bool  # whether all is in the plane
    seconds: float  # that the film lasts

    def axes(self, place: tuple[float, float, float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What is to the right, above and towards a viewer (3,) who stands at a place (right, in front, above)."""
        right = np.array([1.0, 0.0, 0.0]) if abs(self.up[0]) < 0.9 else np.array([0.0, 1.0, 0.0])
        front = np.cross(right, self.up)
        front /= np.linalg.norm(front)
        away = np.array(place) @ np.stack([np.cross(self.up, front), front, self.up])
        away /= np.linalg.norm(away)
        right = np.cross(self.up, away)
        right /= np.linalg.norm(right)
        return right, np.cross(away, right), away

    def box(self) -> np.ndarray:
        """The corners (8, 3) of the box that everything but arrows stays in [m]."""
        return np.stack(np.meshgrid(*zip(self.low, self.high, strict=True)), axis=-1).reshape(8, 3)

    def cell(self) -> float:
        """The width of a cell of the grid on the ground [m]."""
        span = float(np.linalg.norm(self.high - self.low)) or 1.0
        step = 10.0 ** np.floor(np.log10(span / 8))
        return float(step * min(_NICE, key=lambda x: abs(np.log(x * step * 8 / span))))

    def ground(self) -> float:
        """How high the ground is along `up` [m]: as the lowest half-space, else below all that moves."""
        planes = [x for parts in self.parts.values() for x in parts if x.name.endswith(HALF_SPACE)]
        places = [corners(x).reshape(-1, 3) for x in planes] or [self.box()]
        return float(np.min(np.concatenate(places) @ self.up))

    def colours(self) -> dict[str, tuple[float, float, float]]:
        """Of bodies and lines, by the first name of their parts."""
        found = {GROUND: _rgb(_GREY), "paths": _rgb(_GREY)}
        for part in itertools.chain(*self.parts.values()):
            found.setdefault(first_name(part), _rgb(COLOURS[(len(found) - 2) % len(COLOURS)]))
        return found


def opacity_of(part: SceneNode | Curve, scene: Scene) -> float:
    """By how much a part can be seen: bodies do not hide what is within them."""
    veiled = any(map(is_overlay, itertools.chain(*scene.parts.values())))
    return _VEIL if veiled and not (is_overlay(part) or part.name.endswith(HALF_SPACE)) else 1.0


def first_name(part: SceneNode | Curve) -> str:
    """The name of the body or line that a part belongs to."""
    return part.name.partition("/")[0]


def _rgb(colour: str) -> tuple[float, float, float]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))  # pyright: ignore[reportReturnType]


def _up(system: Any, planar: bool) -> np.ndarray:
    """Against gravity in space, y in the plane."""
    if planar:
        return np.array([0.0, 1.0, 0.0])
    for load in getattr(system, "loads", ()):
        if isinstance(load, Gravity) and load.g is not None and (g := np.asarray(load.g)).any():
            return -g / np.linalg.norm(g)
    return np.array([0.0, 0.0, 1.0])


def _shift_part(part: SceneNode | Curve, by: np.ndarray) -> SceneNode | Curve:
    if isinstance(part, Curve):
        return part._replace(points=part.points + by)
    return part._replace(position=part.position + by)


def _usual_force(runs: Sequence[ShownRun]) -> float:
    """The largest force at a joint or a contact, its median over the times with any [N]; 1 where there is none."""
    forces = [
        np.max([np.linalg.norm(at[1], axis=1) for at in every], axis=0)
        for run in runs
        if (every := [*run.forces.values(), *run.contacts.values()])
    ]
    largest = np.concatenate([*forces, np.zeros(1)])
    some = largest[largest > 1e-6 * largest.max()]  # not rounding
    return float(np.median(some)) if some.size else 1.0


def scene_of(runs: Sequence[ShownRun], *, speed: float, fps: float) -> Scene:
    """Runs side by side along x, over the time from the first start to the last end; a run that ends stands still."""
    for name, x in (("speed", speed), ("fps", fps)):
        require_between(name, x, 0, np.inf)
    start, end = min(run.t[0] for run in runs), max(run.t[-1] for run in runs)
    times = np.linspace(start, end, max(2, round((end - start) / speed * fps) + 1))
    moving = {run.name: build_moving_parts(run, times) for run in runs}
    planar = all(x.planar for x in moving.values())
    parts, boxes = {}, {}
    for name, x in moving.items():
        places = [corners(part).reshape(-1, 3) for part in x.parts]
        boxes[name] = tuple(of([of(y, axis=0) for y in places], axis=0) for of in (np.min, np.max))
    size = max(x.size for x in moving.values())
    scale = _ARROW * size / _usual_force(runs)
    for run in runs:
        front = boxes[run.name][1][2] if planar else 0.0
        parts[run.name] = [*moving[run.name].parts, *arrows(run, times, scale, size, front)]
    pitch = (1.0 + _GAP) * max(high[0] - low[0] for low, high in boxes.values())
    captions, moved = [], []
    for i, (name, (low, high)) in enumerate(boxes.items()):
        by = np.array([i * pitch, 0.0, 0.0])
        parts[name] = [_shift_part(part, by) for part in parts[name]]
        moved += [low + by, high + by]
        words = f"{name}; arrows: 1 m is {1 / scale:.3g} N" if runs[i].forces or runs[i].contacts else name
        captions.append((words, np.array([(low[0] + high[0]) / 2, low[1], low[2]]) + by))
    low, high = np.min(moved, axis=0), np.max(moved, axis=0)
    up = _up(innermost(runs[0].problem.system), planar)
    return Scene(times, parts, captions, low, high, up, planar, float(end - start) / speed)
