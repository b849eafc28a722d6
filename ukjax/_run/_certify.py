"""How far a run can be trusted: it is repeated at tighter tolerances, and its derivative is compared with differences."""

import datetime
import hashlib
import importlib.metadata
import platform
from pathlib import Path
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._misc._arguments import whole_number
from .._system._problem import Problem
from . import _options, _parts
from ._certificate import Certificate, require_suffix
from ._contact_common import BY_STEPS
from ._derivative_check import derivatives
from ._doctor import rows_that_do_not_fit
from ._passages import passages
from ._results import trim_to_end
from ._run_record import RunRecord
from ._trajectory import Trajectory

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
    """How the second run differs.

    - `changes`: arguments of `simulate`.
    - `factor`: of tolerances, or of the fixed step; 1 where neither can be changed.
    - `told`: what was run, in words and numbers.
    """

    changes: dict[str, Any]
    factor: float
    told: dict[str, Any]


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


def _projects(made: RunRecord) -> bool:
    return made.by.options["stabilizer"].projection_method is not None


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
    made, problem, run = _parts.get_run_record(run), _parts.get_problem(run), trim_to_end(run)
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
    checks: dict[str, bool | None] = {
        "the run reached its end": run.ok,
        "rows are the rates of their errors": "rows_that_do_not_fit" not in sections["constraints"],
        "constraints are kept": run.result_name != "constraints_broken" if _projects(made) else None,
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
