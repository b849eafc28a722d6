"""Runs in the browser, and in files that show them."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._compiler import evaluate_at_states
from .._figures._animate import animate as animate_scene
from .._figures._animate import check_path
from .._figures._interpolation import refine
from .._figures._moving_parts import ShownRun, interpolate_frames
from .._figures._page import page
from .._figures._scene import scene_of
from .._figures._serve import View, write_page
from .._misc._arguments import all_of, require_instance, whole_number
from .._misc._errors import InputError
from .._system._problem import Problem
from . import _quantities
from ._results import get_problem, trim_to_end

if TYPE_CHECKING:
    from matplotlib.animation import FuncAnimation

    from ._trajectory import Trajectory

_SHOWN = ("points", "reactions", "contacts", "shapes")  # three of the parts of a run, and what touches


def view(
    runs: "Trajectory | Iterable[Trajectory] | Mapping[str, Trajectory]",
    *,
    parts: str | Iterable[str] = (),
    speed: float = 1.0,
    fps: float = 30.0,
    port: int = 0,
) -> View:
    """Shows runs in a browser, several side by side: it serves a page, prints its address, and returns at once.

    Bodies of a mechanism have their shapes (see `ukjax.mechanisms.Visual`), other systems the lines of their `drawing`
    and the points of their problem. The page has a slider for the time, a choice of speed, and a list of all that is
    shown, where each thing can be hidden. Between saved times the motion is interpolated by its velocities.

    **Arguments:**

    - `runs`: a trajectory, several, or several by the names they are to have.
    - `parts`: what to add of `"reactions"`, the force at each joint as an arrow; `"contacts"`, the force at each contact
      of shapes, its friction as an arrow of its own, and where it acts; `"shapes"`, the shapes that touch, of bodies that
      look different; and `"points"`, the paths of the points.
    - `speed`: seconds of motion that a second shows.
    - `fps`: frames per second.
    - `port`: of the address; by default one that is free.

    **Returns:** a `View`, with `address`, `save(path)`, `wait()` and `close()`.

    **Raises:** `InputError` where there is nothing to show, or a run does not know its problem; `MissingExtraError`
    without viser (`ukjax[view]`).
    """
    port = whole_number("port", port, 0, 65535)
    shown = View(text_of(runs, parts=parts, speed=speed, fps=fps), port)
    print(f"view: {shown.address}", file=sys.stderr)
    return shown


def save(trajectory: "Trajectory", path: str | Path, parts: Any) -> Path:
    """Writes a run as one HTML file."""
    return write_page(text_of(trajectory, parts=parts, speed=1.0, fps=30.0), path)


def animate(
    run: "Trajectory", path: str | Path | None, *, problem: Problem | None, parts: Any, speed: float, fps: int
) -> "FuncAnimation":
    """As `Trajectory.animate`."""
    file = check_path(path)
    if problem is not None:
        require_instance("problem", problem, Problem, "uk.models.pendulum()")
        run = run.with_problem(problem)
    if run.problem is None:
        raise InputError("this trajectory does not know its problem: give animate(problem=...).")
    name = run.name if problem is None else problem.name
    shown = prepare_run(name, run, _choose_shown(parts), trails=True)
    scene = scene_of([shown], speed=speed, fps=fps)
    return animate_scene(scene, scene.captions[0][0], file, fps)


def _choose_shown(parts: Any) -> tuple[str, ...]:
    names = (parts,) if isinstance(parts, str) else tuple(parts)
    if unknown := [name for name in names if name not in _SHOWN]:
        *most, last = map(repr, _SHOWN)
        raise InputError(f"parts that can be shown are {', '.join(most)} and {last}, not {unknown[0]!r}.")
    return names


def text_of(runs: Any, *, parts: Any, speed: float, fps: float) -> str:
    """The page that shows runs."""
    parts = _choose_shown(parts)
    found = [prepare_run(name, run, parts) for name, run in _name_runs(runs).items()]
    return page(scene_of(found, speed=speed, fps=fps), ", ".join(x.name for x in found))


def _is_run(x: Any) -> bool:
    return hasattr(x, "row_names") and hasattr(x, "with_problem")  # its class is made with this file


def _name_runs(runs: Any) -> "dict[str, Trajectory]":
    """The runs by names, numbered where they share one."""
    names = list(runs) if isinstance(runs, Mapping) else None
    given = [runs] if _is_run(runs) else runs.values() if isinstance(runs, Mapping) else runs
    found = all_of("runs", given, object, "uk.simulate(problem)")
    if not found or not all(map(_is_run, found)):
        raise InputError("runs must be a trajectory, or several, at least one: see uk.simulate(problem).")
    if names is None:
        own = [run.name for run in found]
        names = [f"{name} {i + 1}" if own.count(name) > 1 else name for i, name in enumerate(own)]
    return dict(zip(map(str, names), found, strict=True))


_LEAST = 600  # times at which a motion is known, so that its paths look smooth


def prepare_run(name: str, run: "Trajectory", parts: tuple[str, ...], *, trails: bool = False) -> ShownRun:
    """What of a run is shown, up to its end; with `trails` the paths of points too, of a problem that has such."""
    problem = get_problem(run)
    if run.t.ndim != 1:
        raise InputError(
            f"'{name}' is a batch of runs: show them one by one, as jax.tree.map(lambda x: x[0], runs)."
        )
    run = trim_to_end(run)
    forces = _quantities.reactions(run) if "reactions" in parts else {}
    forces = {k: (x.point, x.force) for k, x in forces.items()}
    contacts = _quantities.forces_on_bodies(run) if "contacts" in parts else {}
    t, q, v, a = (np.asarray(x) for x in (run.t, run.q, run.v, run.a))
    rate = np.asarray(evaluate_at_states(_kinematics, problem.system, t, q, v))
    history = run.contacts
    events = np.zeros(0) if history is None else np.asarray(history.event_time)
    times, places = refine(t, q, rate, a if a.shape == q.shape else 0 * q, events, _LEAST)
    at_times: Any = lambda of: {
        k: tuple(interpolate_frames(times, t, np.asarray(x)) for x in of[k]) for k in of
    }
    if "points" in parts:
        _quantities.require_points(problem)
    return ShownRun(
        name,
        problem,
        times,
        places,
        at_times(forces),
        trails or "points" in parts,
        at_times(contacts),
        "shapes" in parts,
    )


def _kinematics(system: Any, t: Any, q: Any, v: Any) -> Any:
    return system.kinematics(t, q, v)
