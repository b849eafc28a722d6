"""How far a run can be trusted: it is repeated at tighter tolerances, and its derivative is compared with differences."""

import datetime
import hashlib
import importlib.metadata
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler import AtStates, evaluate_at_states
from .._misc._arguments import require_between, require_instance, whole_number
from .._misc._errors import InputError
from .._misc._tolerances import DEFAULT_RCOND
from .._motion._project import Projection
from .._pseudoinverse import unit_rows_on_host
from .._system._problem import Problem
from .._system._rows import constraint_rows
from .._system._system import AbstractSystem
from . import _options
from ._certificate import Certificate, require_suffix
from ._contact_common import BY_STEPS
from ._doctor import rows_that_do_not_fit
from ._results import get_problem, trim_to_end
from ._trajectory import RunRecord, Trajectory, get_run_record

# --- The derivative of a run's end, compared with differences of runs in random directions of its start and parameters

_STEP = 1e-4  # of differences, relative: of fourth order, so the noise of runs is what limits them
_EXACT = 1e-6  # of the derivative: below this, differences of runs tell nothing
_TOLD = 1e-2  # of the derivative: where differences are less certain than this, they decide nothing


def _directions(x: Any, rng: np.random.Generator, count: int) -> list[Any]:
    """The start in random directions, as large as it is; each array of parameters scaled by a random factor."""
    (q0, v0), parameters = x
    normal = lambda y: jnp.asarray(
        rng.normal(size=y.shape) * (np.abs(np.asarray(y)).max(initial=0) or 1), y.dtype
    )
    scaled = lambda y: jnp.asarray(rng.normal() * np.asarray(y), y.dtype)
    return [((normal(q0), normal(v0)), jax.tree.map(scaled, parameters)) for _ in range(count)]


def _perturb(x: Any, direction: Any, by: float) -> Any:
    return jax.tree.map(lambda a, b: jnp.asarray(np.asarray(a) + by * np.asarray(b), a.dtype), x, direction)


def _inner(a: Any, b: Any) -> float:
    return sum(float(np.vdot(x, y)) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))


def derivatives(
    made: RunRecord, problem: Problem, run: Trajectory, changes: dict[str, Any], noise: float, count: int
) -> tuple[bool | None, dict[str, Any]]:
    """Compares the derivative of a random combination of the final state with central differences.

    **Returns:** whether they agree, None where differences cannot tell, and what was compared.
    """
    rng = np.random.default_rng(0)  # so that a report can be repeated
    # Parameters of redundant rows, such as the lengths of a parallelogram, cannot be changed one by one.
    free = int(run.rank_min) == len(run.row_names)
    parameters, rest = eqx.partition(problem.system, eqx.is_inexact_array if free else lambda _: False)
    weights = [jnp.asarray(rng.normal(size=x.shape[1:]), x.dtype) for x in (run.q, run.v)]
    x0 = ((made.q0, made.v0), parameters)

    def end(x: Any) -> Array:
        (q0, v0), parameters = x
        system = eqx.combine(parameters, rest)
        again = made.again(system, q0=q0, v0=v0, ts=2, start_tolerance=jnp.inf, **changes)
        return weights[0] @ again.q_end + weights[1] @ again.v_end

    along = _directions(x0, rng, count)
    if isinstance(made.by.options["adjoint"], dfx.ForwardMode):
        exact = [float(eqx.filter_jvp(end, (x0,), (d,))[1]) for d in along]
    else:
        gradient = eqx.filter_grad(end)(x0)
        exact = [_inner(gradient, d) for d in along]
    differences, doubts = zip(*(_difference(end, x0, d, noise) for d in along), strict=True)
    scale = max(np.abs(exact).max(), np.abs(differences).max())
    apart = [abs(a - b) for a, b in zip(exact, differences, strict=True)]
    verdicts = [
        None if doubt > _TOLD * scale else a <= max(doubt, _EXACT * scale)
        for a, doubt in zip(apart, doubts, strict=True)
    ]
    told = {
        "of": "a random combination of the final coordinates and velocities",
        "by": "the start and "
        + ("all parameters" if free else "no parameters, since constraint rows are redundant"),
        "directions": count,
        "derivatives": exact,
        "differences": list(differences),
        "apart": apart,
        "differences_are_uncertain_by": list(doubts),
        "largest_relative": max(apart) / scale if scale else 0.0,
    }
    return False if False in verdicts else None if None in verdicts else True, told


def _difference(end: Any, x: Any, direction: Any, noise: float) -> tuple[float, float]:
    """The derivative along a direction by differences of fourth order, and how uncertain it is."""
    near, far = (
        (float(end(_perturb(x, direction, s))) - float(end(_perturb(x, direction, -s))))
        for s in (_STEP, 2 * _STEP)
    )
    of_second, of_fourth = near / (2 * _STEP), (8 * near - far) / (12 * _STEP)
    return of_fourth, abs(of_fourth - of_second) + noise / _STEP


# --- When a motion passed singular positions, where constraint rows that are independent elsewhere depend on each other
#
# Saved times miss the singular position itself. So the smallest singular value that belongs to the rank is followed
# between them, on the motion's quintic Hermite interpolation brought back onto the constraints, down to its minima.

_ZOOMS = 20
_POINTS = 9


class Passage(NamedTuple):
    """A singular position a motion went through.

    - `t`: when [s].
    - `rank_before`, `rank_at`, `rank_after`: rank of the constraint rows.
    """

    t: float
    rank_before: int
    rank_at: int
    rank_after: int


def _rates(system: AbstractSystem, t: Array, q: Array, v: Array, a: Array) -> tuple[Array, Array]:
    """q' and q''."""
    return jax.jvp(system.kinematics, (t, q, v), (jnp.ones_like(t), system.kinematics(t, q, v), a))


def _jacobian_nearby(system: AbstractSystem, t: Array, q: Array, v: Array) -> Array:
    """A at the nearest position on the constraints."""
    return constraint_rows(system, t, Projection().positions(system, t, q), v).A


def _read_motion(trajectory: Trajectory) -> list[np.ndarray]:
    """Times, coordinates, velocities and accelerations (k, ...) where a run got to, also of a compiled one."""
    if trajectory.t.ndim == 1:
        run = trim_to_end(trajectory)
        columns = [np.asarray(x) for x in (run.t, run.q, run.v, run.a)]
        # Where it diverged, its last state is none.
        finite = np.all([np.isfinite(x).reshape(len(run), -1).all(axis=1) for x in columns], axis=0)
        times, order = np.unique(columns[0][finite], return_index=True)  # within `jit` runs go backwards too
        if times.size >= 3:
            return [x[finite][order] for x in columns]
    raise InputError(
        f"passages needs one run with at least three saved times, got t of shape {trajectory.t.shape}."
    )


def _singular_values(columns: list[np.ndarray], system: AbstractSystem) -> Callable[[np.ndarray], np.ndarray]:
    """Of the rows of unit norm, as a function of times within what is known (k,) -> (k, min(m, n))."""
    from scipy.interpolate import BPoly  # slow to load

    t, q, v, a = columns
    rates = evaluate_at_states(_rates, system, t, q, v, a)
    motion = BPoly.from_derivatives(t, np.stack([q, *rates], axis=1))
    velocity = BPoly.from_derivatives(t, v[:, None])
    jacobians = AtStates(_jacobian_nearby, system)

    def values(times: np.ndarray) -> np.ndarray:
        A = jacobians(times, motion(times).astype(q.dtype), velocity(times).astype(v.dtype))
        return np.linalg.svd(np.stack([unit_rows_on_host(x)[0] for x in A]), compute_uv=False)

    return values


def passages(
    trajectory: Trajectory,
    *,
    system: AbstractSystem | None = None,
    rcond: float = DEFAULT_RCOND,
    subdivisions: int = 4,
) -> list[Passage]:
    """The singular positions a motion passed between its first and last time: when, and the rank before, at and after.

    A position counts as singular where, of the rows of unit norm, a singular value that belongs to the rank elsewhere
    falls below `rcond`. Save times densely enough that each passage is a minimum of its own.

    **Arguments:**

    - `trajectory`: of one run, not of a batch.
    - `system`: what was simulated; by default known, except of a compiled run and of a trajectory read from a file.
    - `rcond`: the threshold, relative to the largest singular value.
    - `subdivisions`: into how many parts each time between saved ones is divided to look for minima.

    **Returns:** a list of `Passage`, in the order of time.

    **Raises:** `InputError` where the problem is not known, for a batch, and for fewer than three times.
    """
    require_between("rcond", rcond, 0, 1)
    require_instance("trajectory", trajectory, Trajectory, "uk.simulate(problem)")
    subdivisions = whole_number("subdivisions", subdivisions)
    if system is not None:
        require_instance("system", system, AbstractSystem, "uk.models.pendulum().system")
    if system is None:
        if trajectory.problem is None:
            raise InputError(
                "this trajectory does not know its problem: give passages(trajectory, system=...)."
            )
        system = trajectory.problem.system
    columns = _read_motion(trajectory)
    if not trajectory.row_names:
        return []
    values, known = _singular_values(columns, system), columns[0]
    parts = np.arange(subdivisions) / subdivisions
    times = np.append((known[:-1, None] + np.diff(known)[:, None] * parts).ravel(), known[-1])
    sampled = values(times)
    ranks = _ranks(sampled, rcond)
    least = np.finfo(sampled.dtype).tiny  # rows may be zero
    lowest = lambda sigma: sigma[:, ranks.max() - 1] / np.maximum(sigma[:, 0], least)
    sigma = lowest(sampled)
    (minima,) = np.nonzero((sigma[1:-1] < sigma[:-2]) & (sigma[1:-1] <= sigma[2:]))
    if not minima.size:
        return []
    at = _zoom_to_minima(lambda t: lowest(values(t)), times[minima], times[minima + 2])
    ranks_at = _ranks(values(at), rcond)
    candidates = zip(at, ranks[minima], ranks_at, ranks[minima + 2], strict=True)
    return [Passage(float(t), *map(int, r)) for t, *r in candidates if r[1] < max(r[0], r[2])]


def _ranks(sigma: np.ndarray, rcond: float) -> np.ndarray:
    return np.sum(sigma > rcond * sigma[:, :1], axis=1)


def _zoom_to_minima(fn: Callable[[np.ndarray], np.ndarray], start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Where fn is least within each interval, in which it has one minimum."""
    rows = np.arange(start.size)
    for _ in range(_ZOOMS):
        times = np.linspace(start, end, _POINTS, axis=1)
        lowest = np.clip(np.argmin(fn(times.ravel()).reshape(times.shape), axis=1), 1, _POINTS - 2)
        start, end = times[rows, lowest - 1], times[rows, lowest + 1]
    return 0.5 * (start + end)


# --- The certificate

_TIGHTER = 1e-2  # of tolerances: then the second run's error is some hundredths of the first's
_SHORTER = 0.25  # of fixed steps: a quarter of the error at first order, a sixteenth at second
_FLOOR = 50  # roundings, below which a tolerance asks for what the arithmetic has not
_LIBRARIES = (
    "ukjax",
    "jax",
    "jaxlib",
    "diffrax",
    "equinox",
    "lineax",
    "optimistix",
    "numpy",
    "scipy",
    "llvmlite",
)


class Tighter(NamedTuple):
    """How the second run differs."""

    changes: dict[str, Any]  # arguments of `simulate`
    factor: float  # of tolerances, or of the fixed step; 1 where neither can be changed
    told: dict[str, Any]  # what was run, in words and numbers


def _controller(made: RunRecord) -> dfx.AbstractStepSizeController:
    o, dtype = made.by.options, made.q0.dtype
    tolerances = (o["rtol"], o["atol"])
    with_dt0 = o["dt0"] is not None
    return _options.controller(o["stepsize_controller"], o["solver"], with_dt0, tolerances, dtype)


def _tighter(made: RunRecord, problem: Problem) -> Tighter:
    o = made.by.options
    most = {"max_steps": min(10 * o["max_steps"], 10**8)}
    controller = _controller(made)
    told: dict[str, Any] = {"step_control": type(controller).__name__}
    by_steps = o["contact"] in BY_STEPS
    if by_steps or isinstance(controller, dfx.ConstantStepSize):
        told["step"] = float(o["dt0"])
        return Tighter(most | {"dt0": _SHORTER * o["dt0"]}, _SHORTER, told)
    if not (hasattr(controller, "rtol") and hasattr(controller, "atol")):
        return Tighter({}, 1.0, told)
    at = lambda x: (x.rtol, x.atol)
    old = [float(x) for x in at(controller)]
    floor = _FLOOR * float(np.finfo(made.q0.dtype).eps)
    new = [min(x, max(_TIGHTER * x, floor)) for x in old]
    told |= {"rtol": old[0], "atol": old[1]}
    values = tuple(jnp.asarray(x, made.q0.dtype) for x in new)
    tight = eqx.tree_at(at, controller, values)
    return Tighter(
        most | {"stepsize_controller": tight}, max(b / a for a, b in zip(old, new, strict=True)), told
    )


def _digest(problem: Problem, made: RunRecord) -> str:
    """Of all numbers of the system and the start, so that two reports can be told to be of one problem."""
    arrays = [np.asarray(x) for x in jax.tree.leaves((problem.system, made[:4])) if eqx.is_array(x)]
    return hashlib.sha256(
        b"".join(x.astype(x.dtype.newbyteorder("<")).tobytes() for x in arrays)
    ).hexdigest()[:16]


def _numbers(x: Any) -> list[float]:
    return [float(y) for y in np.asarray(x).ravel()]


def _problem(run: Trajectory, problem: Problem, made: RunRecord) -> dict[str, Any]:
    return {
        "name": run.name,
        "system": type(problem.system).__name__,
        "source": problem.citation or None,
        "coordinates": list(run.names.coordinates),
        "velocities": list(run.names.velocities),
        "constraint_rows": list(run.row_names),
        "kinds_of_rows": sorted({str(x) for x in run.row_kinds}),
        "start_and_end": _numbers([made.t0, made.t1]),
        "q0": _numbers(made.q0),
        "v0": _numbers(made.v0),
        "digest_of_all_numbers": _digest(problem, made),
    }


def _method(run: Trajectory, made: RunRecord, tighter: Tighter) -> dict[str, Any]:
    o = made.by.options
    formula = _options.formula(o["formula"], o["stabilizer"], made.q0.dtype)
    counts = {name: int(x) for name, x in run.stats.items() if np.ndim(x) == 0}
    pinv, dtype = getattr(formula, "pinv", None), made.q0.dtype
    return {
        "formula": "none given" if o["formula"] is None else str(formula),
        "computed_by": run.computed_by,
        "rank_threshold": None if pinv is None else pinv.threshold(dtype),
        "stabilizer": str(o["stabilizer"]),
        "solver": type(o["solver"]).__name__,
        **tighter.told,
        "max_steps": o["max_steps"],
        **counts,
        **({} if run.contacts is None else {"contact": o["contact"]}),
        "result": run.result_name,
        "event": run.event_name,
        "precision": str(made.q0.dtype),
    }


def _software() -> dict[str, Any]:
    def version(name: str) -> str | None:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return None

    return {
        **{name: version(name) for name in _LIBRARIES},
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
        "machine": f"{platform.system()} {platform.machine()}",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _compare_runs(run: Trajectory, second: Trajectory | None, tighter: Tighter) -> dict[str, Any]:
    """The largest differences of two runs at the times both saved."""
    unknown = {"coordinates": [float("nan")] * run.q.shape[1], "velocities": [float("nan")] * run.v.shape[1]}
    told: dict[str, Any] = {"tightened_by": tighter.factor}
    if second is None:
        return (
            unknown | told | {"second_run": "none: the step control has neither tolerances nor a fixed step"}
        )
    told |= {"second_run": second.result_name, "steps_of_second_run": int(second.stats["num_steps"])}
    common = min(len(run), len(second)) - int(run.event >= 0)
    same = np.asarray(run.t[:common]) == np.asarray(second.t[:common])
    if not np.all(same) or not common:
        return unknown | told
    apart = [
        np.abs(np.asarray(x[:common]) - np.asarray(y[:common]))
        for x, y in ((run.q, second.q), (run.v, second.v))
    ]
    q, v = (x.max(axis=0) for x in apart)
    told |= {"largest_of_coordinates": float(q.max()), "largest_of_velocities": float(v.max())}
    told["largest_at_t"] = float(run.t[int(apart[0].max(axis=1).argmax())])
    if run.event >= 0:
        told["time_of_event"] = abs(float(run.t[-1] - second.t[-1]))
    if run.energy is not None and second.energy is not None:
        told["energy"] = float(np.abs(np.asarray(run.energy[:common] - second.energy[:common])).max())
    return {"coordinates": _numbers(q), "velocities": _numbers(v)} | told


def _constraints(run: Trajectory, problem: Problem) -> dict[str, Any]:
    told: dict[str, Any] = {"start_moved": _numbers(run.start_moved)}
    if unfit := rows_that_do_not_fit(problem.system, run.t[-1], run.q[-1], run.v[-1]):
        told["rows_that_do_not_fit"] = [f"{name}: {why}" for name, why in unfit.items()]
    for name, errors in (("position_error", run.position_error), ("velocity_error", run.velocity_error)):
        largest = np.abs(np.asarray(errors)).max(axis=0, initial=0)
        told[f"largest_{name}"] = float(largest.max(initial=0))
        told[f"row_of_largest_{name}"] = run.row_names[int(largest.argmax())] if largest.any() else None
    return told


def _energy(run: Trajectory) -> dict[str, Any]:
    if run.energy is None:
        return {"energy": "the system defines none"}
    assert run.energy_drift is not None
    return {
        "at_the_start": float(run.energy[0]),
        "at_the_end": float(run.energy[-1]),
        "largest_change": float(run.energy_drift),
    }


def _rank(run: Trajectory) -> dict[str, Any]:
    told: dict[str, Any] = {
        "rows": len(run.row_names),
        "least": int(run.rank_min),
        "largest": int(run.rank_max),
    }
    if np.sum(np.isfinite(np.asarray(run.t))) < 3 or not run.ok:
        return told | {
            "singular_positions": "not looked for: that needs three saved times of a run that reached its end"
        }
    found = [{"t": p.t, "rank": [p.rank_before, p.rank_at, p.rank_after]} for p in passages(run)]
    return told | {"singular_positions": found}


def certify(run: Trajectory, path: str | Path | None, directions: int) -> Certificate:
    """As `Trajectory.certify`."""
    directions = whole_number("directions", directions, 0)
    path = None if path is None else require_suffix(path)
    made, problem, run = get_run_record(run), get_problem(run), trim_to_end(run)
    tighter = _tighter(made, problem)
    second = None
    if tighter.changes:
        times = np.asarray(run.t)
        within = times if run.event < 0 else times[:-1]
        second = trim_to_end(made.again(problem.system, ts=within if within.size else 2, **tighter.changes))
    errors = _compare_runs(run, second, tighter)
    sections = {
        "problem": _problem(run, problem, made),
        "method": _method(run, made, tighter),
        "errors": errors,
        "constraints": _constraints(run, problem),
        "energy": _energy(run),
        "rank": _rank(run),
    }
    projects = made.by.options["stabilizer"].projects
    checks: dict[str, bool | None] = {
        "the run reached its end": run.ok,
        "rows are the rates of their errors": "rows_that_do_not_fit" not in sections["constraints"],
        "constraints are kept": run.result_name != "constraints_broken" if projects else None,
        "the second run reached its end": None if second is None else second.ok,
        "tolerances or steps could be tightened enough": tighter.factor <= _SHORTER,
        "the error is estimated": bool(np.all(np.isfinite(errors["coordinates"] + errors["velocities"]))),
    }
    if directions and run.ok and made.by.options["contact"] != "steps":  # which has no derivatives
        noise = tighter.factor * max(errors["coordinates"] + errors["velocities"])
        agree, sections["derivatives"] = derivatives(made, problem, run, tighter.changes, noise, directions)
        checks["derivatives agree with differences"] = agree
    certificate = Certificate(sections | {"software": _software()}, checks)
    if path is not None:
        certificate.save(path)
    return certificate
