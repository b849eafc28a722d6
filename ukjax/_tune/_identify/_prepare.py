"""What `identify` makes of its arguments, each checked by name before anything is run."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx

from ..._formula._acceleration import UdwadiaKalaba
from ..._misc._arguments import (
    all_of,
    one_of,
    real_array,
    require_between,
    require_instance,
    whole_number,
)
from ..._misc._closures import require_untraced
from ..._misc._errors import InputError, format_value, require_known, unknown_name
from ..._misc._types import as_jax
from ..._motion._model import Model
from ..._motion._project import project
from ..._run import _options
from ..._run._contact_common import BY_STEPS, tier_of
from ..._run._start import require_near
from ..._sweep._names import Build
from ..._system._problem import Problem, resolve_state
from ..._system._rows import constraint_rows
from ..._system._stabilize import AbstractStabilizer
from ..._system._system import AbstractSystem
from ...robots import Robot
from .._freedoms import state_names, tangent_space
from ._blocks import Layout
from ._fit import Fit, Noise, first_change, outcomes
from ._recording import Recording
from ._runs import Outcome, Rows, Runs, make_measure
from ._space import Space, make_space

OFFSET = "offset."
_QUIET = 1e-9
"""Noise that is estimated is at least this part of the spread of a channel: data without noise still have rounding."""


class Identification(NamedTuple):
    """An identification that can be run."""

    # `fit`, `noise`: what is made small, and the noise of channels.
    fit: Fit
    noise: Noise
    size: np.ndarray  # how far each of z may change at first
    names: tuple[str, ...]  # of all numbers that are reported, with those of initial states last
    # `low`, `high`: their bounds.
    low: np.ndarray
    high: np.ndarray
    places: np.ndarray  # which numbers of `report` they are
    channels: tuple[str, ...]  # names of the outputs
    recordings: tuple[Recording, ...]  # with their names
    rows_of: tuple[tuple[int, ...], ...]  # the rows of each
    name: str  # of the problem


# --- The model, and who takes which parameter


def _as_model(model: Any) -> Any:
    if isinstance(model, AbstractSystem):
        raise InputError(
            "identify needs a start: give a Problem, such as uk.Problem(system, q0, v0, t0, t1), or a function that "
            "returns one."
        )
    if not isinstance(model, Robot):
        return model

    def changed(parameters: Mapping[str, Any]) -> Problem:
        kinds: dict[str, dict[str, Any]] = {}
        for name, value in parameters.items():
            kind, _, of = name.partition(".")
            kinds.setdefault(kind, {})[of] = value
        return model.with_parameters(**kinds).problem

    return changed


def _build(
    model: Any, values: dict[str, Any], inputs: dict[str, Any], only_measured: set[str], how: tuple[Any, Any]
) -> tuple[Build, tuple[str, ...]]:
    """From values to problems, and which parameters the model takes: all that `measure` does not ask for, and of those it
    asks for the ones the model knows too."""

    def made(names: Sequence[str]) -> Build:
        given = {name: values[name] for name in names} | inputs
        build = Build(model, tuple(given), *how)
        result = build.check(given)
        if result is None:
            raise InputError("the model must return a Problem: of a robot, its `problem`.")
        return build

    names = [name for name in values if name not in only_measured]
    build = made(names)
    for name in sorted(only_measured):
        try:
            build = made([*names, name])
        except InputError:  # nothing in the model has this name
            continue
        names.append(name)
    return build, tuple(names)


# --- Options of runs


def _run_options(options: dict[str, Any], system: AbstractSystem) -> dict[str, Any]:
    """Options of `simulate`, with derivatives in forward mode."""
    _options.require_method(options["formula"], options["stabilizer"], options["solver"])
    whole_number("max_steps", options["max_steps"])
    kept = {x: options[x] for x in ("dt0", "solver", "contact", "max_steps")}
    tier = tier_of(system, options["contact"], resets=False)
    if tier in BY_STEPS:
        return kept | {"stepsize_controller": options["stepsize_controller"]}  # which it refuses
    return (
        kept
        | {x: options[x] for x in ("stepsize_controller", "rtol", "atol")}
        | {"adjoint": dfx.ForwardMode()}
    )


# --- Recordings


def _recordings(data: Any) -> tuple[Recording, ...]:
    given = (data,) if isinstance(data, Recording) else data
    recordings = all_of("data", given, Recording, "uk.Recording(t, y)")
    if not recordings:
        raise InputError("data has no recordings: give uk.Recording(t, y), or a list of these.")
    names = [x.name or str(i) for i, x in enumerate(recordings)]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"two recordings are called '{twice}': give each a name of its own.")
    return recordings


def name_of(recordings: Sequence[Recording], i: int) -> str:
    return recordings[i].name or str(i)


def _inputs(recordings: Sequence[Recording]) -> list[dict[str, np.ndarray]]:
    """The inputs of each recording, alike in names and shapes."""
    found = [
        {
            key: np.asarray(real_array(f"the input '{key}' of a recording", x), float)
            for key, x in r.inputs.items()
        }
        for r in recordings
    ]
    shapes = [{key: x.shape for key, x in inputs.items()} for inputs in found]
    for i, of in enumerate(shapes):
        if of != shapes[0]:
            raise InputError(
                f"inputs of recording '{name_of(recordings, i)}' have shapes {of}, and of '{name_of(recordings, 0)}' "
                f"{shapes[0]}: give all the same; of a shorter table repeat the last value at later times."
            )
    return found


def _series(recording: Recording, sizes: dict[str, int], i: str) -> np.ndarray:
    """Samples of all channels (k, d), NaN where there is none."""
    if set(recording.y) - set(sizes):
        name = next(x for x in recording.y if x not in sizes)
        if not name or "" in sizes:
            raise InputError(
                "y of a recording and measure must agree: both arrays, or both dicts with the same names."
            )
        raise unknown_name("series of a recording", name, sizes)
    columns = []
    for name, size in sizes.items():
        y = recording.y.get(name, np.full((recording.t.size, size), np.nan))
        if y.shape[1] != size:
            what = f"'{name}' of recording" if name else "recording"
            raise InputError(f"{what} '{i}' has {y.shape[1]} columns, and measure returns {size}.")
        columns.append(y)
    return np.concatenate(columns, axis=1)


def _pieces(t0: float, t: np.ndarray, length: float | None) -> list[tuple[float, float, slice]]:
    """Start, end and samples of each piece of a recording; a piece starts at a sample, its own first one."""
    starts, firsts = [t0], [0]
    if length is not None:
        for j, x in enumerate(t):
            if x >= starts[-1] + length * (1 - 1e-9) and t[-1] - x >= 0.5 * length:
                starts.append(float(x))
                firsts.append(j)
    ends, lasts = [*starts[1:], float(t[-1])], [*firsts[1:], t.size]
    return [(a, b, slice(i, j)) for a, b, i, j in zip(starts, ends, firsts, lasts, strict=True)]


def _rows(
    recordings: Sequence[Recording], problems: list[Problem], inputs: Sequence[dict[str, Any]],
    samples: list[np.ndarray], shooting: float | None,
) -> tuple[Rows, tuple[tuple[int, ...], ...]]:  # fmt: skip
    """The rows, their known states those of recordings or problems, and which belong to each recording."""
    found, rows_of = [], []
    for r, p, known, y in zip(recordings, problems, inputs, samples, strict=True):
        t0 = float(p.t0) if r.t0 is None else float(r.t0)
        pieces = _pieces(t0, r.t, shooting)
        rows_of.append(tuple(range(len(found), len(found) + len(pieces))))
        for number, (start, end, which) in enumerate(pieces):
            own = np.array([r.q0 is not None, r.v0 is not None], float) if number == 0 else np.ones(2)
            found.append((start, end, r.t[which], y[which], p.q0, p.v0, own, known))
    k = max(x[2].size for x in found)
    pad = lambda x, by: np.concatenate([x, np.full((k - len(x), *x.shape[1:]), by)])
    stack = lambda i: np.stack([np.asarray(x[i], float) for x in found])
    y = np.stack([pad(x[3], np.nan) for x in found])
    rows = Rows(
        stack(0), stack(1), np.stack([pad(x[2], x[1]) for x in found]), np.where(np.isnan(y), 0.0, y),
        (~np.isnan(y)).astype(float), stack(4), stack(5), stack(6), None, None,
        {key: np.stack([x[7][key] for x in found]) for key in inputs[0]},
    )  # fmt: skip
    return rows, tuple(rows_of)


def _start_of(recording: Recording, problem: Problem, i: int, names: Sequence[Recording]) -> Problem:
    """The problem with the start of a recording."""
    q0, v0, t0 = recording.q0, recording.v0, recording.t0
    q0 = problem.q0 if q0 is None else jnp.asarray(q0, float)
    v0 = problem.v0 if v0 is None else jnp.asarray(v0, float)
    t0 = float(problem.t0 if t0 is None else t0)
    of = f"of recording '{name_of(names, i)}'"
    for name, x, y in (("q0", q0, problem.q0), ("v0", v0, problem.v0)):
        if x.shape != y.shape:
            raise InputError(f"{name} {of} has shape {x.shape}; this system needs {y.shape}.")
    if recording.t[0] < t0:
        raise InputError(
            f"the first sample {of} is at {recording.t[0]:g} s, before the run starts at {t0:g} s: give its t0."
        )
    if not recording.t[-1] > t0:
        raise InputError(f"the only sample {of} is at its start: nothing has moved by then.")
    return Problem(problem.system, q0, v0, t0, float(recording.t[-1]), name=problem.name)


def _require_near(problem: Problem, stabilizer: AbstractStabilizer, formula: Any) -> None:
    """As `simulate` does of runs that are projected."""
    if (method := stabilizer.projection_method) is None:
        return
    system, t, q, v = resolve_state(problem, None, None, None)
    model = Model(system, formula or UdwadiaKalaba(), stabilizer)
    require_near(model, t, (q, v), project(system, t, q, v, pinv=method), None, stacklevel=5)


# --- Noise and priors


def _read_channels(what: str, given: Any, sizes: dict[str, int], channels: tuple[str, ...]) -> np.ndarray:
    """A number for each channel, NaN for those that are not given."""
    found = np.full(len(channels), np.nan)
    if given is None:
        return found
    if not isinstance(given, Mapping):
        x = np.asarray(real_array(what, given), float)
        if x.shape not in ((), found.shape):
            raise InputError(
                f"{what} has shape {x.shape}; give a number, or one for each of {', '.join(channels)}."
            )
        return np.broadcast_to(x, found.shape).copy()
    places, begin = {}, 0
    for name, size in sizes.items():
        places[name] = list(range(begin, begin + size))
        begin += size
    places |= {name: [i] for i, name in enumerate(channels)}
    for name, x in given.items():
        if name not in places:
            raise unknown_name(f"channel in {what}", name, channels)
        found[places[name]] = np.asarray(real_array(f"{what} of '{name}'", x), float)
    return found


def _noise(given: Any, sizes: dict[str, int], channels: tuple[str, ...], rows: Rows) -> Noise:
    value = _read_channels("noise", given, sizes, channels)
    known = ~np.isnan(value)
    if not np.all(value[known] > 0) or not np.all(np.isfinite(value[known])):
        raise InputError(f"noise must be positive standard deviations, got {format_value(given)}.")
    spread = np.ones(len(channels))
    for c in range(len(channels)):
        if (y := rows.y[..., c][rows.present[..., c] > 0]).size:
            spread[c] = np.std(y) or np.abs(y).max() or 1.0
    return Noise(np.where(known, value, spread), known, _QUIET * spread)


def _priors(priors: Any, names: tuple[str, ...], space: Space) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which numbers have a prior, and their means and standard deviations."""
    require_instance("priors", priors, Mapping, "{'length': (1.0, 0.1)}")
    which, mean, deviation = [], [], []
    for name, given in priors.items():
        group = dict(zip(space.keys, (x.names for x in space.parts), strict=True)).get(name, (name,))
        if not all(x in names for x in group):
            raise unknown_name("parameter in priors", name, names)
        try:
            m, s = (np.broadcast_to(np.asarray(x, float).ravel(), len(group)) for x in given)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"the prior of '{name}' must be a mean and a standard deviation, got {format_value(given)}."
            ) from error
        if not (np.all(np.isfinite(m)) and np.all(s > 0)):
            raise InputError(
                f"the prior of '{name}' must have a finite mean and a positive standard deviation, got "
                f"{format_value(given)}."
            )
        which += [names.index(x) for x in group]
        mean, deviation = [*mean, *m], [*deviation, *s]
    return np.array(which, int), np.array(mean, float), np.array(deviation, float)


# --- Unknown initial states


def _size(x: np.ndarray) -> np.ndarray:
    """The size of each coordinate, over rows."""
    return np.maximum(np.sqrt(np.mean(x**2, axis=0)), 1e-2 * (np.sqrt(np.mean(x**2)) or 1.0))


def _initial(given: Any) -> tuple[str, ...]:
    given = (given,) if isinstance(given, str) else given
    names = all_of("initial", given, str, "'q0'")
    require_known("initial state", ("q0", "v0"), *names)
    return names


def _with_directions(
    rows: Rows, problems: list[Problem], rows_of: Sequence[Sequence[int]], initial: tuple[str, ...]
) -> tuple[Rows, np.ndarray]:
    """The rows with the directions of their unknown initial states, and which of these are searched (b, f)."""
    along = []
    for problem, own in zip(problems, rows_of, strict=True):
        for number, i in enumerate(own):
            searched = ("q0", "v0") if number else initial
            none = np.zeros((problem.q0.size, 0)), np.zeros((problem.v0.size, 0))
            both = tangent_space(problem.system, rows.t0[i], rows.q[i], rows.v[i]) if searched else none
            along.append(
                [x if name in searched else y for name, x, y in zip(("q0", "v0"), both, none, strict=True)]
            )
    of_q, of_v = (max((x[k].shape[1] for x in along), default=0) for k in (0, 1))
    used = np.array(
        [[*(np.arange(of_q) < a.shape[1]), *(np.arange(of_v) < b.shape[1])] for a, b in along], bool
    )
    wide = lambda x, before, width: np.pad(x, ((0, 0), (before, width - before - x.shape[1])))
    along_q = np.stack([wide(a, 0, of_q + of_v) for a, _ in along])
    along_v = np.stack([wide(b, of_q, of_q + of_v) for _, b in along])
    return rows._replace(along_q=along_q, along_v=along_v), used


_LOOKED_AT = 16  # of many starts alike; to look at one takes milliseconds
_OPEN = 10.0
"""Pieces of runs first start where their own samples say, with a prior of this many times the size of the state."""


@eqx.filter_jit
def _fit_pieces(fit: Fit, theta: Any, rows: Rows, noise: Any, size: Any) -> Outcome:
    """The runs of some rows, each from where its samples say that it starts."""

    def one(row: Rows, size: Any) -> Outcome:
        def off(s: Any, _: Any) -> Any:
            r = (fit.runs.one(theta, s, row).y - row.y) / jnp.broadcast_to(noise, row.y.shape)
            return jnp.append(jnp.where((row.present > 0) & jnp.isfinite(r), r, 0.0).ravel(), s / size)

        solver = optx.LevenbergMarquardt(1e-3, 1e-3)
        s = optx.least_squares(off, solver, jnp.zeros(size.shape), max_steps=12, throw=False).value
        return fit.runs.one(theta, s, row)

    return jax.vmap(one)(rows, size)


def _pass_through(
    fit: Fit, noise: Noise, problems: list[Problem], rows_of: Sequence[Sequence[int]], used: np.ndarray
) -> tuple[Rows, Noise]:
    """The rows with known states on the way, and the noise that they leave: each piece starts where the one before it
    ended, moved towards its samples."""
    rows, theta = fit.rows, fit.z[: fit.count]
    of_q = np.any(rows.along_q != 0, axis=(0, 1))  # directions of coordinates
    off = np.zeros(rows.y.shape)
    for number in range(max(map(len, rows_of))):
        here = np.array([own[number] for own in rows_of if len(own) > number])
        scale = np.abs(rows.q[here]).max(axis=1) + 1e-6
        pace = scale / (rows.t1[here] - rows.t0[here])
        size = np.where(used[here], _OPEN * np.where(of_q, scale[:, None], pace[:, None]), 1e-9)
        some = jax.tree.map(lambda x, here=here: jnp.asarray(x[here]), rows)
        found = jax.tree.map(
            np.asarray, _fit_pieces(fit, theta, some, jnp.asarray(noise.value), jnp.asarray(size))
        )
        off[here] = np.where(rows.present[here] > 0, found.y - rows.y[here], 0.0)
        for k, i in enumerate(here):
            which = next(n for n, own in enumerate(rows_of) if i in own)
            for row, t, (q, v) in ((i, rows.t0[i], found.start), (i + 1, rows.t1[i], found.end)):
                if not (np.isfinite(q[k]).all() and np.isfinite(v[k]).all()):
                    raise InputError(
                        f"with the first guess the run from {rows.t0[i]:g} s on does not get to {rows.t1[i]:g} s: give a "
                        "better one."
                    )
                if row in rows_of[which][1:]:
                    a, b = tangent_space(problems[which].system, t, q[k], v[k])
                    rows.q[row], rows.v[row] = q[k], v[k]
                    rows.along_q[row][:, of_q], rows.along_v[row][:, ~of_q] = a, b
    count = np.maximum(rows.present.sum(axis=(0, 1)), 1.0)
    left = np.maximum(np.sqrt(np.sum(off**2, axis=(0, 1)) / count), noise.least)
    return rows, noise._replace(value=np.where(noise.known, noise.value, left))


# --- All of it


def _output_sizes(runs: Runs, problem: Problem, values: dict[str, Any]) -> dict[str, int]:
    """How many channels `measure` returns by each name."""
    order: list[str] = []  # JAX sorts what a function returns by name

    def at(q: Any, v: Any) -> dict[str, Any]:
        system, t, q, v = resolve_state(problem, None, q, v)
        m = constraint_rows(system, t, q, v).b
        known = {"t": t, "q": q, "v": v, "a": v, "constraint_force": v, "multipliers": m}
        found = runs.outputs_at(known, problem, values)
        order.extend(found)
        return found

    shapes = eqx.filter_eval_shape(at, problem.q0, problem.v0)
    return {name: shapes[name].size for name in order}


def _channels(measure: Any, sizes: dict[str, int], problem: Problem) -> tuple[str, ...]:
    if measure is None:
        return state_names(problem.system, problem.q0, problem.v0, "q", "v")[0]
    return tuple(
        f"{name or 'y'}[{i}]" if n > 1 else name or "y" for name, n in sizes.items() for i in range(n)
    )


def _offsets(given: Any, sizes: dict[str, int], channels: tuple[str, ...]) -> tuple[int, ...]:
    """Which channels have an unknown offset."""
    if isinstance(given, bool):
        return tuple(range(len(channels))) if given else ()
    wanted = all_of("offsets", (given,) if isinstance(given, str) else given, str, "'angle'")
    chosen = _read_channels("offsets", dict.fromkeys(wanted, 0.0), sizes, channels)
    return tuple(int(i) for i in np.flatnonzero(~np.isnan(chosen)))


def _group_priors(run_of: np.ndarray, b: int) -> np.ndarray:
    """Which priors each run has, and last those of no run (b + 1, c), filled up with their number."""
    each = [np.flatnonzero(run_of == i) for i in range(b + 1)]
    c = max(map(len, each))
    return np.stack([np.pad(x, (0, c - len(x)), constant_values=len(run_of)) for x in each])


class _ReportedNumbers(NamedTuple):
    """The numbers that are reported: names, bounds, and where each is in `report`."""

    names: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray
    places: np.ndarray


def _list_reported(
    space: Space, problem: Problem, initial: tuple[str, ...], recordings: Sequence[Recording], rows_of: Any
) -> _ReportedNumbers:
    """Parameters, and the initial states that are unknown."""
    names, places = list(space.names), list(range(len(space.names)))
    of_q, of_v = state_names(problem.system, problem.q0, problem.v0, "q0", "v0")
    for i, own in enumerate(rows_of):
        ending = "" if len(recordings) == 1 else f" of {name_of(recordings, i)}"
        begin = len(space.names) + own[0] * (len(of_q) + len(of_v))
        for which, labels, at in (("q0", of_q, begin), ("v0", of_v, begin + len(of_q))):
            if which in initial:
                names += [f"{label}{ending}" for label in labels]
                places += range(at, at + len(labels))
    free = np.full(len(names) - len(space.names), np.inf)
    low, high = np.append(space.joined("low"), -free), np.append(space.joined("high"), free)
    return _ReportedNumbers(tuple(names), low, high, np.array(places, int))


def _require_reached(fit: Fit, recordings: Sequence[Recording], rows_of: Any) -> None:
    """Raises `InputError` where a run with the first guess does not get to its samples."""
    y = np.asarray(outcomes(fit).y)
    lost = ~np.isfinite(y) & (np.asarray(fit.rows.present) > 0)
    for i, own in enumerate(rows_of):
        for row in own:
            if lost[row].any():
                t = float(np.asarray(fit.rows.ts)[row][lost[row].any(axis=1)][0])
                raise InputError(
                    f"with the first guess the run beside recording '{name_of(recordings, i)}' has no outputs at "
                    f"{t:g} s: give a better one, or more max_steps; ukjax.simulate with it shows what goes wrong."
                )


def prepare(
    model: Any, data: Any, parameters: Any, measure: Any, noise: Any, offsets: Any, initial: Any, bounds: Any,
    priors: Any, loss: Any, shooting: Any, options: dict[str, Any],
) -> Identification:  # fmt: skip
    """What is made small, and what is told of it."""
    require_untraced("identify", model, data, parameters, measure)
    one_of("loss", loss, ("squares", "huber", "cauchy"))
    if shooting is not None:
        require_between("shooting", shooting, 0, np.inf)
    recordings, initial = _recordings(data), _initial(initial)
    space, inputs = make_space(parameters, bounds), _inputs(recordings)
    if twice := set(space.keys) & set(inputs[0]):
        raise InputError(
            f"'{min(twice)}' is both a parameter and an input of the recordings, which are known."
        )
    fn = make_measure(measure, space.keys)

    values = space.values(space.joined("z"))
    known = [{key: as_jax(x) for key, x in of.items()} for of in inputs]
    only = {name for name in fn.asked if name in space.keys}
    how = options["stabilizer"], options["formula"]
    build, of_model = _build(_as_model(model), values, known[0], only, how)
    runs = Runs(build, of_model, space, fn, (), {}, None)
    made = [runs.problem(values, of)[0] for of in known]
    problems = [_start_of(r, p, i, recordings) for i, (r, p) in enumerate(zip(recordings, made, strict=True))]
    by = runs.problem(values, known[0])[1]
    for problem in problems[:_LOOKED_AT]:
        _require_near(problem, by["stabilizer"], by["formula"])
    p = problems[0]
    span = min(float(p.t0) for p in problems), max(float(p.t1) for p in problems)
    kept = _run_options(options, p.system)
    in_steps = kept["contact"] in BY_STEPS
    if in_steps and (shooting is not None or len({float(p.t0) for p in problems}) > 1):
        raise InputError(
            f"contact='{kept['contact']}' needs all runs to start at one time: leave shooting out, and give recordings "
            "the same t0."
        )

    sizes = _output_sizes(runs, made[0], values)
    channels = _channels(measure, sizes, p)
    offset = _offsets(offsets, sizes, channels)
    space = make_space({**parameters, **{f"{OFFSET}{channels[i]}": 0.0 for i in offset}}, bounds)
    runs = Runs(
        build,
        of_model,
        space,
        fn,
        tuple((i, f"{OFFSET}{channels[i]}") for i in offset),
        kept,
        span if in_steps else None,
    )
    samples = [_series(r, sizes, name_of(recordings, i)) for i, r in enumerate(recordings)]
    rows, rows_of = _rows(recordings, problems, known, samples, shooting)
    if not rows.present.any():
        raise InputError("all samples of the recordings are missing.")
    sigma = _noise(noise, sizes, channels, rows)
    rows, used = _with_directions(rows, problems, rows_of, initial)
    theta, unknown = space.joined("z"), int(used.sum())
    if not theta.size + unknown:
        raise InputError(
            "there is nothing to identify: parameters is empty, and no initial state is unknown."
        )
    index = np.full(used.shape, theta.size + unknown)
    index[used] = theta.size + np.arange(unknown)
    told = _list_reported(space, p, initial, recordings, rows_of)
    which, mean, deviation = _priors(priors, told.names, space)
    ends = np.array([i for own in rows_of for i in own[:-1]], int)
    z = np.append(theta, np.zeros(unknown))
    prior = told.places[which], mean, deviation
    run_of = (prior[0] - len(space.names)) // (p.q0.size + p.v0.size)
    run_of = np.where(prior[0] < len(space.names), len(index), run_of)
    layout = Layout(index, ends, run_of, _group_priors(run_of, len(index)), theta.size, rows.y[0].size)
    size = np.append(space.joined("size"), np.full(unknown, np.inf))
    arrays: Any = layout, (p.q0, p.v0), prior, z, np.ones(z.size), first_change(size)
    arrays = jax.tree.map(as_jax, arrays)
    fit = Fit(runs, rows, *arrays, loss=loss)
    if ends.size:
        rows, sigma = _pass_through(fit, sigma, problems, rows_of, used)
    sizes_of = as_jax(_size(rows.q)), as_jax(_size(rows.v))
    fit = dataclasses.replace(fit, rows=jax.tree.map(as_jax, rows), state_size=sizes_of)
    _require_reached(fit, recordings, rows_of)
    return Identification(fit, sigma, size, *told, channels, recordings, rows_of, made[0].name)


def extra_row(prepared: Identification, fit: Fit, recording: Recording) -> tuple[Fit, Rows]:
    """The row of a recording that was not fitted, without samples, and the fit with its span."""
    inputs = _inputs((prepared.recordings[0], recording))[1]
    known = {key: as_jax(x) for key, x in inputs.items()}
    problem = fit.runs.problem(fit.runs.space.values(fit.z[: fit.count]), known)[0]
    problem = _start_of(recording, problem, 0, (recording,))
    if fit.runs.span is not None:
        span = float(problem.t0), float(problem.t1)
        fit = dataclasses.replace(fit, runs=dataclasses.replace(fit.runs, span=span))
    nothing = np.full((recording.t.size, len(prepared.channels)), np.nan)
    rows, _ = _rows((recording,), [problem], [inputs], [nothing], None)
    f = fit.rows.along_q.shape[2]
    rows = rows._replace(along_q=np.zeros((1, problem.q0.size, f)), along_v=np.zeros((1, problem.v0.size, f)))
    return fit, jax.tree.map(as_jax, rows)
