"""A model as one HTML file in which it moves by itself: its projected step as WebAssembly, with sliders and a mouse."""

import base64
import dataclasses
import gzip
import html
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler._structured._program import Program, program_of
from .._compiler._structured._wasm import write_wasm
from .._figures._meshes import mesh_of
from .._figures._moving_parts import MOST_BARS, Curve, ShownRun, compute_drawing, place_bodies
from .._figures._page import FIELD, place_camera
from .._figures._scene import Scene, first_name, scene_of
from .._figures._serve import write_page
from .._misc._arguments import positive_time, require_instance, require_solver
from .._misc._closures import require_untraced
from .._misc._errors import InputError, require_known
from .._run._step import step
from .._system._drive import DrivenSystem
from .._system._problem import Problem
from .._system._rows import constraint_rows
from .._system._stabilize import NoStabilizer
from .._system._system import innermost
from ..analysis._inputs import MatrixForce, input_matrix_of
from ..mechanisms import GROUND, SpringDamper
from ..mechanisms._default_visuals import visuals_of
from ._c_functions import Parameter, explain_untranslatable, input_units, parameters_of

_TEMPLATE = Path(__file__).with_name("live_page.html")
_SLIDERS = 12  # without a choice: more would not be looked through
_FLAT, _G = 1e-18, 9.81
_WATCHED = 2.0  # seconds of motion that the camera is placed for
# What names of parameters end with, before their indices.
_ENDINGS = (
    "mass", "gravity", "length", "radius", "stiffness", "damping", "inertia", "angle", "centre", "point", "points",
)  # fmt: skip
_FIRST = ("mass", "gravity", "length", "stiffness", "damping")  # what most people want to change


def to_page(
    problem: Problem,
    path: str | Path,
    *,
    parameters: Sequence[str] | None = None,
    inputs: Any = None,
    dt: float = 1e-3,
    solver: dfx.AbstractSolver = dfx.Tsit5(),
) -> Path:
    """Writes a model as one HTML file in which it moves, in any browser, without a network or an installation.

    The page computes the motion itself: `ukjax.step` as WebAssembly, the same operations in the same order. Bodies can be
    pulled with the mouse, parameters have sliders, and it prints the energy and how far constraints are off.

    **Arguments:**

    - `problem`: the model and its start.
    - `path`: a name that ends in .html. A file of that name is replaced.
    - `parameters`: which numbers of the model have a slider, by their names in `to_c`; all others are written into the
      code. By default masses, lengths, gravity, stiffness and damping, without such all numbers, at most 12.
    - `inputs`: motors that have a slider for their effort, as for `to_c`.
    - `dt`: the step [s].
    - `solver`: an explicit one of Diffrax.

    **Returns:** the path.

    **Raises:** `InputError` where there is nothing to draw, for unknown parameters, for what has no form in WebAssembly,
    for numbers in single precision, and where the file cannot be written.
    """
    require_untraced("to_page", problem, inputs)
    require_instance("problem", problem, Problem, "uk.models.pendulum()")
    require_solver(solver)
    dt = float(positive_time("dt", dt))
    if problem.q0.dtype != np.float64:
        raise InputError(
            "a live page computes in double precision: jax.config.update('jax_enable_x64', True)."
        )
    chosen, system_of = _choose_parameters(problem, parameters)
    p = jnp.array([x.default for x in chosen], float)
    t, q, v = state = jnp.asarray(problem.t0, float), problem.q0, problem.v0
    motors = input_units(problem, inputs)
    bodies = dict.fromkeys(x.body for x in visuals_of(innermost(problem.system)))
    places = lambda system, t, q: _place_parts(problem, bodies, system, t, q)
    parts = jax.eval_shape(lambda t, q: places(problem.system, t, q), t, q)
    slots = [name for name, x in parts.items() if x.shape == (3, 4)]
    curves = [name for name in parts if name not in slots]
    stack = lambda found: jnp.stack([found[name] for name in slots]) if slots else jnp.zeros((0, 3, 4))

    def advance(system: Any, t: Any, q: Any, v: Any, dt: Any, force: Any) -> dict[str, Array]:
        q, v = step(DrivenSystem(system, _apply, force), t, q, v, dt, solver=solver)
        return {"q": q, "v": v}

    def observe(system: Any, t: Any, q: Any, v: Any) -> dict[str, Array]:
        rows, found, energy = constraint_rows(system, t, q, v), places(system, t, q), system.energy(t, q, v)
        return {
            "energy": jnp.zeros(0) if energy is None else energy,
            "position_error": rows.position_error,
            "velocity_error": rows.velocity_error,
            "places": stack(found),
            "curves": jnp.concatenate([jnp.zeros(0), *(found[name].reshape(-1) for name in curves)]),
        }

    def push(system: Any, t: Any, q: Any, v: Any, grip: Any, at: Any, pull: Any, *u: Any) -> dict[str, Array]:
        place = lambda q: jnp.tensordot(grip, stack(places(system, t, q)), 1) @ jnp.append(at, 1.0)
        rate = lambda v: jax.jvp(place, (q,), (system.kinematics(t, q, v),))[1]
        (force,) = jax.vjp(rate, v)[1](pull)
        for efforts in u:
            matrix, *_ = input_matrix_of(system, inputs, t, q, v.size, every=False)
            force += MatrixForce(matrix)(t, q, v, efforts)
        return {"force": force}

    grip = (jnp.zeros(len(slots)), jnp.zeros(3), jnp.zeros(3), *([jnp.zeros(len(motors))] if motors else []))
    given = {advance: (t, v), observe: (), push: grip}
    written = {fn.__name__: _write_function(fn, system_of, (p, *state, *x)) for fn, x in given.items()}
    scene = _foresee(problem, written["advance"][0], np.asarray(p), dt)
    span, mass = float(np.linalg.norm(scene.high - scene.low)) or 1.0, _total_mass(problem)
    stiffness = mass * max(40.0, 30.0 / span)  # a pull across the picture is some times the weight
    data = {
        "t0": float(t),
        "q0": np.asarray(q).tolist(),
        "v0": np.asarray(v).tolist(),
        "dt": dt,
        "parameters": [_describe_parameter(x) for x in chosen],
        "inputs": [
            {"name": name, "unit": unit, "most": _G * mass * (1.0 if unit == "N" else span / 4)}
            for name, unit in motors.items()
        ],
        "parts": len(slots),
        "stiffness": stiffness,
        "damping": 0.3 * np.sqrt(stiffness * mass),
        "functions": {name: module for name, (_, module) in written.items()},
        "scene": _describe_scene(scene, slots, curves),
    }
    packed = base64.b64encode(gzip.compress(json.dumps(data).encode(), mtime=0)).decode()
    text = _TEMPLATE.read_text(encoding="utf-8").replace("{{data}}", packed)
    return write_page(text.replace("{{title}}", html.escape(problem.name)), path)


def _apply(t: Any, q: Any, v: Any, force: Any) -> Any:
    return force


def _write_function(
    fn: Callable[..., dict[str, Array]], system_of: Callable[[Array], Any], given: Sequence[Any]
) -> tuple[Program, dict[str, Any]]:
    """A function of the system with some parameters, and of arrays: its program, and its module for the page."""
    results = dict[str, int]()

    def compute(p: Array, *arrays: Array) -> list[Array]:
        found = fn(system_of(p), *arrays)
        results.update({name: x.size for name, x in found.items() if x.size})
        return [x.astype(float) for x in found.values()]

    def write() -> Any:
        program, _, _ = program_of(jax.make_jaxpr(compute)(*given), lambda x: False)
        return program, write_wasm(program)

    program, made = explain_untranslatable(f"{fn.__name__} of a live page", write, "WebAssembly")
    module = base64.b64encode(made.module).decode()
    return program, made._asdict() | {"module": module, "results": list(results.items())}


# --- What can be changed


def _name_ending(parameter: Parameter) -> str:
    """What it is, without what it is of, and without indices."""
    words = [x for x in parameter.name.split("_") if x and not x.isdigit()]
    return next((x for x in reversed(words) if x in _ENDINGS), "")


def _choose_parameters(
    problem: Problem, names: Sequence[str] | None
) -> tuple[list[Parameter], Callable[[Array], Any]]:
    """The parameters that have sliders, and the system as a function of their values."""
    every, with_every = parameters_of((problem.system, NoStabilizer()))
    known = {x.name: x for x in every}
    if names is None:
        names = [x.name for x in every if _name_ending(x) in _FIRST] or list(known)
        names = names[:_SLIDERS]
    names = [names] if isinstance(names, str) else list(names)
    require_known("parameter", known, *names)
    place = {name: i for i, name in enumerate(names)}
    value = lambda p, x: p[place[x.name]] if x.name in place else jnp.asarray(x.default)
    return [known[name] for name in names], lambda p: with_every([value(p, x) for x in every])[0]


def _describe_parameter(x: Parameter) -> dict[str, Any]:
    """What a slider needs to know. Masses and the like vary by as much as a factor of 4, places by half."""
    end, value = _name_ending(x), x.default
    low, high = (0.25, 4.0) if end in (*_FIRST, "inertia") else (0.5, 1.5)
    low = 0.0 if end == "gravity" else low
    low, high = sorted((low * value, high * value)) if value else (-1.0, 1.0)
    unit = re.sub(r"\^(\d)", lambda x: "⁰¹²³⁴⁵⁶⁷⁸⁹"[int(x[1])], x.unit)
    return {"name": x.name, "value": value, "low": low, "high": high, "unit": unit}


def _total_mass(problem: Problem) -> float:
    """The mass of all bodies [kg], of a system without such the largest entry of its mass matrix."""
    bodies = getattr(innermost(problem.system), "bodies", ())
    if bodies:
        return float(sum(float(x.mass) for x in bodies))
    return float(jnp.max(jnp.diag(problem.system.mass_matrix(jnp.asarray(problem.t0), problem.q0))))


# --- What is drawn


def _place_parts(problem: Problem, bodies: Iterable[str], system: Any, t: Any, q: Any) -> dict[str, Array]:
    """Of each part of a picture (`build_moving_parts`) where it is: its axes and its origin (3, 4), or the points of a
    curve (p, 3); nothing of parts that stay. `bodies` have looks."""
    inner, found = innermost(system), dict[str, Array]()
    placed = place_bodies(inner, t, q) if bodies else {}
    for name in (x for x in bodies if x != GROUND):
        turned, p, centre = placed[name]
        if not jnp.ndim(turned):
            c, s, o, i = jnp.cos(turned), jnp.sin(turned), jnp.zeros_like(turned), jnp.ones_like(turned)
            turned = jnp.stack([c, -s, o, s, c, o, o, o, i]).reshape(3, 3)
        found[name] = _frame(turned, _in_space(p) - turned @ _in_space(centre))
    lines, points = compute_drawing(dataclasses.replace(problem, system=system), t, q)
    for name, line in lines.items():
        if name in bodies:
            continue
        line, springs = (
            _in_space(line),
            [x.name for x in getattr(inner, "loads", ()) if isinstance(x, SpringDamper)],
        )
        if name in springs and len(line) == 2:
            found[name] = _stretch(*line)
        elif len(line) > MOST_BARS:
            found[name] = line
        else:
            found |= {f"{name}/{i + 1}": _stretch(*line[i : i + 2]) for i in range(len(line) - 1)}
            found |= {f"{name}/end {i}": _frame(jnp.eye(3), x) for i, x in enumerate(line)}
    return found | ({} if bodies else {k: _frame(jnp.eye(3), _in_space(x)) for k, x in points.items()})


def _frame(axes: Array, origin: Array) -> Array:
    return jnp.concatenate([axes, origin[:, None]], axis=1)


def _in_space(x: Any) -> Array:
    x = jnp.asarray(x, float)
    return x if x.shape[-1] == 3 else jnp.concatenate([x, jnp.zeros_like(x[..., :1])], axis=-1)


def _stretch(a: Array, b: Array) -> Array:
    """Axes of which the third goes from one place to another, and the place between them."""
    length = jnp.sqrt(jnp.maximum((b - a) @ (b - a), _FLAT))
    z = (b - a) / length
    aside = jnp.where(jnp.abs(z[0]) < 0.9, jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 1.0, 0.0]))
    y = jnp.cross(z, aside)
    y /= jnp.sqrt(jnp.maximum(y @ y, _FLAT))
    return _frame(jnp.stack([jnp.cross(y, z), y, length * z], axis=1), (a + b) / 2)


def _foresee(problem: Problem, advance: Program, p: np.ndarray, dt: float) -> Scene:
    """The picture of the first seconds, as far as there is a motion: what the camera is to have in sight."""
    t, q, v = float(problem.t0), np.asarray(problem.q0), np.asarray(problem.v0)
    seen, still = [(t, q)], np.zeros(v.size)
    for k in range(round(_WATCHED / dt)):
        given = [p, np.array([t + k * dt]), q, v, np.array([dt]), still]
        q, v = advance.on_host([x.ctypes.data for x in given if x.size])
        if not np.isfinite(q).all():
            break
        seen.append((t + (k + 1) * dt, q))
    seen = seen[:: max(1, len(seen) // 40)]
    times, places = (np.array(x) for x in zip(*seen, strict=True))
    if len(times) == 1:
        times, places = times[0] + np.array([0.0, dt]), places.repeat(2, axis=0)
    shown = ShownRun(problem.name, problem, times, places, {}, paths=False, contacts={}, shapes=False)
    return scene_of([shown], speed=1.0, fps=20.0)


def _describe_scene(scene: Scene, slots: Sequence[str], curves: Sequence[str]) -> dict[str, Any]:
    colours, (parts,) = scene.colours(), scene.parts.values()
    eye, look = place_camera(scene)
    normal = np.array([0.0, 0.0, 1.0]) if scene.planar else scene.up
    below = min(scene.low @ normal, scene.high @ normal)
    meshes, drawn = list[dict[str, Any]](), dict[str, Any]()
    for part in parts:
        colour = colours[first_name(part)]
        if isinstance(part, Curve):
            drawn[part.name] = {"points": part.points.shape[1], "colour": [*colour, 1.0]}
            continue
        for visual in part.visuals:
            vertices, faces = mesh_of(visual)
            own = colour if visual.colour is None else tuple(visual.colour.tolist())
            meshes.append(
                {
                    "slot": slots.index(part.name) if part.name in slots else -1,
                    "place": np.column_stack([np.eye(3), part.position[0]]).reshape(-1).tolist(),
                    "colour": [*own, 1.0][:4],
                    "vertices": _pack(vertices, np.float32),
                    "faces": _pack(faces, np.uint32),
                }
            )
    return {
        "meshes": meshes,
        "curves": [drawn[name] for name in curves],
        "eye": eye.tolist(),
        "look": look.tolist(),
        "up": np.asarray(scene.up, float).tolist(),
        "field": FIELD,
        "cell": scene.cell(),
        "normal": np.asarray(normal, float).tolist(),
        "height": float(below - 0.02 * np.linalg.norm(scene.high - scene.low) * scene.planar),
    }


def _pack(x: np.ndarray, dtype: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(x, dtype).tobytes()).decode()
