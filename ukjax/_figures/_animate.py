"""Pictures of a run, moving and still: the scene that the viewer shows, drawn by Matplotlib from a place far away.

What is behind is drawn first: triangles are sorted by how far away their middles are.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._misc._errors import InputError, needing
from .._misc._files import as_path, replacing
from ._meshes import mesh_of
from ._moving_parts import FORCES, HALF_SPACE, Curve, SceneNode, corners
from ._plot import STYLE
from ._scene import FROM, Scene, first_name, opacity_of

if TYPE_CHECKING:
    from matplotlib.animation import FuncAnimation

_WRITERS = {".gif": "pillow", ".mp4": "ffmpeg", ".html": "html"}
_SLENDEREST = 0.3  # the shorter side of what is shown, of the longer one
_FOR_ARROWS = 0.15  # of that side, around all that is no arrow
_INCHES, _DPI = 6.0, 72  # its longer side, and dots of an inch
_GIF_COLOURS = 64
_FOR_COLOURS = 8  # frames that these are taken from: arrows come and go
_LIGHT = np.array([0.35, 0.75, 0.55])  # where it comes from: right, above, towards the viewer
_SHADE = 0.62  # of a side that gets no light, of the brightness of one that faces it
_LINE = "#8c919b"
_GROUND = _LINE + "4b"  # lines that can be seen on white and on black
_INCHES_IN_NOTEBOOKS = 3.6
_SHADES_ON_ANY_PAGE = 0.38, 0.7  # which differ from a dark page and from a white one
_ON_ANY_PAGE: dict[Any, Any] = {"axes.grid": False} | {
    f"{x}color": _LINE for x in ("xtick.", "ytick.", "axes.edge", "axes.label")
}


def check_path(path: str | Path | None) -> Path | None:
    """A path that a film can be written to."""
    path = None if path is None else as_path("path", path)
    if path is not None and path.suffix not in _WRITERS:
        raise InputError(f"cannot draw '{path}': the name must end in {', '.join(_WRITERS)}.")
    return path


class _Solid(NamedTuple):
    """Triangles that move together: corners (f, 3, 3) in the axes of their part, colours (f, 4), and whether they enclose
    a body, so that those that face away are not seen."""

    part: SceneNode
    corners: np.ndarray
    colours: np.ndarray
    closed: bool


def _solids(scene: Scene) -> Iterator[_Solid]:
    colours = scene.colours()
    for part in (x for parts in scene.parts.values() for x in parts if isinstance(x, SceneNode)):
        for visual in part.visuals:
            vertices, faces = mesh_of(visual)
            given = colours[first_name(part)] if visual.colour is None else visual.colour
            colour = np.append(given, 1.0)[:4] * [1.0, 1.0, 1.0, opacity_of(part, scene)]
            yield _Solid(part, vertices[faces], np.tile(colour, (len(faces), 1)), visual.kind != "mesh")


def _place(solid: _Solid, frame: int, axes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The corners (f, 3, 3) of triangles as seen: to the right, above, towards the viewer; colours in the light; how near
    they are, and in which layer (f, 2): a half-space is behind all that is on its side, or in front of it, and arrows are
    in front of everything."""
    from scipy.spatial.transform import Rotation

    part = solid.part
    own = solid.corners * (1.0 if part.scale is None else part.scale[frame])
    turn = Rotation.from_quat(part.wxyz[frame], scalar_first=True).as_matrix()
    seen = (own @ turn.T + part.position[frame]) @ axes.T
    normal = np.cross(seen[:, 1] - seen[:, 0], seen[:, 2] - seen[:, 0])
    length = np.linalg.norm(normal, axis=1, keepdims=True)
    facing = normal / np.where(length > 0, length, 1) * np.where(normal[:, 2:] < 0, -1, 1)
    bright = _SHADE + (1 - _SHADE) * np.clip(facing @ (_LIGHT / np.linalg.norm(_LIGHT)), 0, 1)
    colours = solid.colours.copy()
    colours[:, :3] *= bright[:, None]
    layer = 2 if part.name.startswith(FORCES) else 0
    if part.name.endswith(HALF_SPACE) and not solid.closed:
        layer = -1 if normal[0, 2] > 0 else 1  # the first of its triangles are those of its outside
    depth = np.stack([seen[:, :, 2].mean(axis=1), np.full(len(seen), layer)], axis=1)
    shown = (normal[:, 2] > 0) | (not solid.closed)
    return seen[shown], colours[shown], depth[shown]


def _outline(scene: Scene, axes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest place (2,) of all that ever moves, as seen, with a margin and never slender; of arrows
    what they reach but for moments, and not far beyond."""
    arrows = [x for parts in scene.parts.values() for x in parts if x.name.startswith(FORCES)]
    reached = [np.percentile(corners(x), (3, 97), axis=0).reshape(-1, 3) for x in arrows]
    box, all_seen = (x @ axes[:2].T for x in (scene.box(), np.concatenate([scene.box(), *reached])))
    room = _FOR_ARROWS * np.ptp(box, axis=0).max()
    low = np.maximum(all_seen.min(axis=0), box.min(axis=0) - room)
    high = np.minimum(all_seen.max(axis=0), box.max(axis=0) + room)
    middle, longest = (low + high) / 2, max((high - low).max(), 1e-3)
    span = np.maximum(high - low, _SLENDEREST * longest) + 0.08 * longest
    return middle - span / 2, middle + span / 2


def _ground(scene: Scene, axes: np.ndarray) -> list[np.ndarray]:
    """The lines (2, 2) of a grid below all that moves, as seen; none in the plane."""
    if scene.planar:
        return []
    cell, up = scene.cell(), scene.up
    across = np.linalg.svd(up[None])[2][1:]
    box = scene.box()
    height = scene.ground() * up
    ends = [(np.floor(x.min() / cell) - 1, np.ceil(x.max() / cell) + 1) for x in (box @ across.T).T]
    found = []
    for i, j in ((0, 1), (1, 0)):
        for k in np.arange(ends[i][0], ends[i][1] + 1):
            line = [height + cell * (k * across[i] + end * across[j]) for end in ends[j]]
            found.append(np.array(line) @ axes[:2].T)
    return found


def _write(animation: "FuncAnimation", path: Path, fps: int) -> None:
    from matplotlib import animation as matplotlib_animation

    writer = _WRITERS[path.suffix]
    if writer == "html":
        path.write_text(animation.to_jshtml(fps=fps), encoding="utf-8")
        return
    if not matplotlib_animation.writers.is_available(writer):
        raise InputError(
            f"cannot write {path.suffix}: {writer} is not installed; a name ending in .gif needs nothing more."
        )
    animation.save(path, writer=writer, fps=fps, dpi=_DPI)
    if path.suffix == ".gif":
        _share_colours(path, fps)


def _share_colours(path: Path, fps: int) -> None:
    """Has all frames of a GIF take the same few colours, of which plain shapes need no more: a third of the bytes."""
    from PIL import Image, ImageSequence

    with Image.open(path) as film:
        frames = [frame.convert("RGB") for frame in ImageSequence.Iterator(film)]
    some = [frames[i] for i in np.linspace(0, len(frames) - 1, _FOR_COLOURS).astype(int)]
    palette = Image.fromarray(np.concatenate(some)).quantize(_GIF_COLOURS, Image.Quantize.MAXCOVERAGE)
    first, *others = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    first.save(
        path, "GIF", save_all=True, append_images=others, duration=round(1000 / fps), loop=0, optimize=True
    )


def animate(scene: Scene, title: str, path: Path | None, fps: int) -> "FuncAnimation":
    """Draws a scene.

    **Arguments:**

    - `title`: the film's, before the time.
    - `path`: of `check_path`, or None for a film that is not written."""
    with needing("animate()", "plot"):
        from matplotlib import rc_context

        from ._notebook import Film, Picture
    with rc_context(STYLE):
        figure = Picture(layout="constrained")
        _, draw = _lay_out(figure, scene, _INCHES, title)
        film = Film(figure, draw, frames=scene.times.size, interval=1000 / fps)
        draw(0)
        figure.canvas.draw()
        figure.set_layout_engine("none")  # laid out once: it would cost most of the time of every frame
        if path is not None:
            with replacing(path) as partial:
                _write(film, partial, fps)
    return film


def draw_end(scene: Scene) -> bytes:
    """The last frame of a scene as a PNG that can be seen on light and on dark pages."""
    with needing("a picture", "plot"):
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    file = io.BytesIO()
    with rc_context(STYLE | _ON_ANY_PAGE):
        figure = Figure(layout="constrained")
        drawn, draw = _lay_out(figure, scene, _INCHES_IN_NOTEBOOKS, "", _SHADES_ON_ANY_PAGE)
        draw(scene.times.size - 1)
        drawn.set_title("", loc="left")  # which the table has
        figure.savefig(file, format="png", dpi=2 * _DPI, transparent=True)
    return file.getvalue()


def _lay_out(
    figure: Any, scene: Scene, inches: float, title: str, shades: tuple[float, float] = (0.0, 1.0)
) -> tuple[Any, Any]:
    """Axes for all that ever moves, and a function that moves it to a frame; `shades`: the darkest, the lightest."""
    axes = np.stack(scene.axes((0.0, 1.0, 0.0) if scene.planar else FROM))
    low, high = _outline(scene, axes)
    size = inches * (high - low) / (high - low).max()
    figure.set_size_inches(max(size[0], inches / 2) + 0.8, size[1] + 0.9)
    drawn = figure.add_subplot(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    drawn.set(xlabel="x [m]", ylabel="y [m]") if scene.planar else drawn.set_axis_off()
    return drawn, _artists(drawn, scene, axes, title, shades)


def _is_path(curve: Curve) -> bool:
    return first_name(curve) == "paths"


def _limit_shades(colours: np.ndarray, darkest: float, lightest: float) -> np.ndarray:
    """Colours (f, 4) of which the dark ones are made lighter and the light ones darker; others stay."""
    rgb = colours[:, :3]
    lift = np.clip(darkest - rgb.max(axis=1, keepdims=True), 0, None)
    lower = np.clip(rgb.min(axis=1, keepdims=True) - lightest, 0, None)
    return np.hstack([rgb + lift - lower, colours[:, 3:]])


def _artists(drawn: Any, scene: Scene, axes: np.ndarray, title: str, shades: tuple[float, float]) -> Any:
    from matplotlib.collections import LineCollection, PolyCollection

    drawn.add_collection(LineCollection(_ground(scene, axes), colors=_GROUND, linewidths=0.8, zorder=0))
    solids = list(_solids(scene))
    triangles: Any = PolyCollection([], zorder=2, linewidths=0.3)
    drawn.add_collection(triangles)
    colours, lines = scene.colours(), []
    curves = [x for parts in scene.parts.values() for x in parts if isinstance(x, Curve)]
    for curve in curves:
        thin: dict[str, Any] = {"lw": 1.0, "color": _LINE, "zorder": 1}
        thick: dict[str, Any] = {"lw": 2.5, "color": colours[first_name(curve)], "zorder": 3}
        lines += drawn.plot([], [], **thin if _is_path(curve) else thick)

    def draw(frame: int) -> list[Any]:
        placed = [_place(x, frame, axes) for x in solids]
        if placed:
            seen, colour, depth = (np.concatenate(x) for x in zip(*placed, strict=True))
            colour = _limit_shades(colour, *shades)
            order = np.lexsort(depth.T)  # by layers, in each by how near
            triangles.set_verts(seen[order][:, :, :2])
            triangles.set_facecolor(colour[order])
            # Edges close the seams of what is opaque; of what is not they would be seen.
            triangles.set_edgecolor(np.where(colour[order][:, 3:] < 1, 0.0, colour[order]))
        for line, curve in zip(lines, curves, strict=True):
            points = curve.points[min(frame, len(curve.points) - 1)]
            if _is_path(curve):  # what has been passed: it has points at all frames, and more between them
                points = points[: 1 + frame * (len(points) - 1) // max(scene.times.size - 1, 1)]
            line.set_data(*(points @ axes[:2].T).T)
        drawn.set_title(f"{title.replace('_', ' ')}, t = {scene.times[frame]:.2f} s", loc="left")
        return [triangles, *lines]

    return draw
