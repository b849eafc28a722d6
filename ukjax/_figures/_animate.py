"""Moving pictures of a trajectory: the bodies of a mechanism as lines, its named points with their paths."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._compiler import evaluate_at_states
from .._misc._arguments import require_between, require_instance
from .._misc._errors import InputError, missing_extra
from .._misc._files import as_path, replacing
from .._system._problem import Problem
from ._moving import compute_drawing, interpolate_frames
from ._plot import STYLE

if TYPE_CHECKING:
    from matplotlib.animation import FuncAnimation

_WRITERS = {".gif": "pillow", ".mp4": "ffmpeg", ".html": "html"}
_SLENDEREST = {2: 0.25, 3: 0.5}  # by dimension, the narrowest side of what is shown, of the longest
_COLOURS = ("#33527a", "#c2683c", "#4d8a6a", "#8a5a8f", "#b1953c", "#5b8fa8", "#a34a53", "#6b6f77")


def _limits(arrays: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The box that holds everything, with a margin, never flat, and in space not so slender that labels overlap."""
    every = np.concatenate([x.reshape(-1, x.shape[-1]) for x in arrays])
    low, high = every.min(axis=0), every.max(axis=0)
    middle, longest = (low + high) / 2, max((high - low).max(), 1e-3)
    span = np.maximum(high - low, _SLENDEREST[low.size] * longest)
    return middle - 0.56 * span, middle + 0.56 * span


def _axes(figure: Any, arrays: list[np.ndarray]) -> Any:
    """Axes of two or three dimensions with equal scales, in which everything stays in sight."""
    low, high = _limits(arrays)
    spatial = low.size == 3
    axes = figure.add_subplot(projection="3d" if spatial else None)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xlabel="x [m]", ylabel="y [m]")
    if spatial:
        axes.set(zlim=(low[2], high[2]), zlabel="z [m]")
        axes.locator_params(nbins=4)
        axes.zaxis.labelpad = 8
        axes.set_box_aspect(high - low)
    else:
        axes.set_aspect("equal")
    return axes


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
    animation.save(path, writer=writer, fps=fps, dpi=110)


def animate(
    problem: Problem | None, t: Any, q: Any, path: str | Path | None, *, speed: float, fps: int
) -> "FuncAnimation":
    """Draws the motion t (k,), q (k, n_q) of a problem; arguments are those of `Trajectory.animate`.

    **Returns:** the matplotlib animation.

    **Raises:** `InputError` where there is nothing to draw, or for a file that cannot be written;
    `MissingExtraError` without matplotlib.
    """
    if problem is None:
        raise InputError("this trajectory does not know its problem: give animate(problem=...).")
    t, q = np.asarray(t), np.asarray(q)
    try:
        from matplotlib import rc_context
        from matplotlib.animation import FuncAnimation
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("animate()", "plot") from error
    path = None if path is None else as_path("path", path)
    if path is not None and path.suffix not in _WRITERS:
        raise InputError(f"cannot draw '{path}': the name must end in {', '.join(_WRITERS)}.")
    require_instance("problem", problem, Problem, "uk.models.pendulum()")
    for name, x in (("speed", speed), ("fps", fps)):
        require_between(name, x, 0, np.inf)
    lines, points = evaluate_at_states(compute_drawing, problem, t, q)
    if not lines and not points:
        raise InputError(
            f"there is nothing to draw of {problem.name}: its system has no drawing and its Problem no points."
        )
    frames = np.linspace(t[0], t[-1], max(2, round((t[-1] - t[0]) / speed * fps) + 1))
    lines, points = (
        {k: interpolate_frames(frames, t, x) for k, x in each.items()} for each in (lines, points)
    )
    with rc_context(STYLE):
        figure = Figure(figsize=(6.0, 5.0), layout="constrained")
        axes = _axes(figure, [*lines.values(), *points.values()])
        draw = _artists(axes, lines, points, frames, problem.name)
        animation = FuncAnimation(figure, draw, frames=frames.size, interval=1000 / fps)
        draw(0)
        figure.canvas.draw()
        figure.set_layout_engine("none")  # laid out once: it would cost most of the time of every frame
        if path is not None:
            with replacing(path) as partial:
                _write(animation, partial, fps)
    return animation


def _artists(axes: Any, lines: dict, points: dict, frames: np.ndarray, name: str) -> Any:
    """A function that moves everything to a frame."""
    bars = [
        axes.plot(
            *x[0].T,
            "-o" if len(x[0]) < 8 else "-",
            lw=3.5,
            ms=5,
            color=_COLOURS[i % len(_COLOURS)],
            solid_capstyle="round",
        )[0]
        for i, x in enumerate(lines.values())
    ]
    paths = [axes.plot(*x[:1].T, lw=1.0, alpha=0.6, color="#888888")[0] for x in points.values()]
    marks = [axes.plot(*x[:1].T, "o", ms=4, color="#222222")[0] for x in points.values()]
    planar = not hasattr(axes, "get_zlim")

    def place(artist: Any, xyz: np.ndarray) -> None:
        artist.set_data(*xyz.T) if planar else artist.set_data_3d(*xyz.T)

    def draw(frame: int) -> list[Any]:
        for bar, x in zip(bars, lines.values(), strict=True):
            place(bar, x[frame])
        for path, mark, x in zip(paths, marks, points.values(), strict=True):
            place(path, x[: frame + 1])
            place(mark, x[frame : frame + 1])
        axes.set_title(f"{name}, t = {frames[frame]:.2f} s", loc="left")
        return [*bars, *paths, *marks]

    return draw
