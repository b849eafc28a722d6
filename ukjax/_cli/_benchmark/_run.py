"""Runs benchmark problems: errors against the references, and times of a first and of later runs."""

import contextlib
import dataclasses
import importlib.metadata
import itertools
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.compilation_cache import compilation_cache
from jaxtyping import Array

from ..._compiler._machine_code import optimize_now
from ..._misc._arguments import all_of, require_between, whole_number
from ..._misc._cache import without_cache
from ..._misc._errors import InputError, unknown_name
from ..._misc._progress import show_bar
from ..._run._simulate import simulate
from ..._run._trajectory import Trajectory
from ..._system._problem import Problem
from ._cases import CASES, PEERS_SOURCE, Case, Peer, case_of

TOLERANCES = (1e-6, 1e-8, 1e-10)
QUICK_TOLERANCES = (1e-6, 1e-8)
_TIMES = 41
_TIGHTEST = 1e-12
"""The tolerance of the run that a problem without a reference is compared with: a hundredth of the tightest default."""


@final
@dataclasses.dataclass(frozen=True)
class BenchResult:
    """A benchmark problem, run at k tolerances; lists have an entry for each.

    - `problem`: its name.
    - `quantity`, `unit`: what is compared with the reference.
    - `reference`: where that is from.
    - `t1`: end of the run [s].
    - `solver`: the Diffrax solver.
    - `cold`: wall time of the first run, compilation included [s]; shorter where this process ran the problem before.
    - `rtol`: relative and absolute tolerances.
    - `error`: largest difference from the reference over the saved times; NaN where the run ended early.
    - `end_error`: the same at the end.
    - `warm`: median wall time of a run once compiled [s].
    - `steps`: of the solver.
    - `evaluations`: of the acceleration, counted as `Trajectory.stats` does; None for implicit solvers.
    - `energy_drift`: largest change of energy [J], None where it is not constant.
    - `position_error`, `velocity_error`: largest error of the constraints.
    - `result`: how the run ended, a name of `RESULTS`.
    - `peers`: runs of other programs: `program`, `wall` [s], `constraint_error` [m], `end_error`.
    - `peers_source`: where those were measured.
    """

    problem: str
    quantity: str
    unit: str
    reference: str
    t1: float
    solver: str
    cold: float
    rtol: list[float]
    error: list[float]
    end_error: list[float]
    warm: list[float]
    steps: list[int]
    evaluations: list[int | None]
    energy_drift: list[float | None]
    position_error: list[float]
    velocity_error: list[float]
    result: list[str]
    peers: list[Peer]
    peers_source: str = PEERS_SOURCE

    def summary(self) -> dict[str, Any]:
        """All fields as plain values; the command line writes these."""
        return dataclasses.asdict(self)


@contextlib.contextmanager
def _without_kept_programs() -> Iterator[None]:
    """Compiles although the program may be kept on disk: a first run is then a first run."""
    before = jax.config.values["jax_enable_compilation_cache"]
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    try:
        with without_cache():
            yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
        compilation_cache.reset_cache()


@eqx.filter_jit
def _simulate_compiled(
    problem: Problem, solver: dfx.AbstractSolver, tolerance: Array, t1: float
) -> Trajectory:
    return simulate(problem, solver=solver, rtol=tolerance, atol=tolerance, t1=t1, ts=_TIMES)


def _time_run(case: Case, problem: Problem, tolerance: float) -> tuple[float, Trajectory]:
    solver, traced = case.solver(), jnp.asarray(tolerance)
    start = time.perf_counter()
    trajectory = jax.block_until_ready(_simulate_compiled(problem, solver, traced, case.t1))
    return time.perf_counter() - start, trajectory


def _errors(
    case: Case, problem: Problem, trajectory: Trajectory, expected: np.ndarray
) -> tuple[float, float]:
    """The largest error where the reference is known, and the last."""
    if not trajectory.ok:
        return math.nan, math.nan
    error = np.abs(case.observe(problem, trajectory) - expected)
    known = np.isfinite(expected).all(axis=1)
    return float(error[known].max()), float(error[-1].max())


def _figures(case: Case, trajectory: Trajectory) -> dict[str, Any]:
    summary = trajectory.summary()
    return {
        "steps": summary["steps"],
        "evaluations": summary["evaluations"],
        "energy_drift": summary["energy_drift"] if case.conserves else None,
        "position_error": summary["max_position_error"],
        "velocity_error": summary["max_velocity_error"],
        "result": summary["result"],
    }


def _compute_reference(case: Case, problem: Problem) -> np.ndarray:
    """The reference at the saved times, or of a problem without one its own run at a tighter tolerance."""
    expected = case.reference(np.linspace(float(problem.t0), case.t1, _TIMES))
    if np.isnan(expected).all():
        return case.observe(problem, _time_run(case, problem, _TIGHTEST)[1])
    return expected


def _measure(
    name: str | Problem, tolerances: tuple[float, ...], repeats: int, done: Callable[[], None]
) -> BenchResult:
    """One problem at all tolerances; `done` is called after each."""
    case = CASES[name] if isinstance(name, str) else case_of(name)
    problem = case.build()
    with _without_kept_programs():
        cold, _ = _time_run(case, problem, tolerances[0])
    expected = _compute_reference(case, problem)
    rows = []
    for tolerance in tolerances:  # a traced number: all tolerances share one program
        _, trajectory = _time_run(case, problem, tolerance)
        optimize_now()
        warm = statistics.median(_time_run(case, problem, tolerance)[0] for _ in range(repeats))
        error, end_error = _errors(case, problem, trajectory, expected)
        row = {"rtol": tolerance, "error": error, "end_error": end_error, "warm": warm}
        rows.append(row | _figures(case, trajectory))
        done()
    lists: dict[str, Any] = {key: [row[key] for row in rows] for key in rows[0]}
    kind = type(case.solver()).__name__
    about = (_name(name), case.quantity, case.unit, case.source, case.t1, kind, cold)
    return BenchResult(*about, peers=list(case.peers), **lists)


def _name(of: str | Problem) -> str:
    return of if isinstance(of, str) else of.name


def _choose_problems(
    names: Iterable[str | Problem] | str | Problem | None, quick: bool
) -> list[str | Problem]:
    names = [names] if isinstance(names, str | Problem) else [] if names is None else names
    names = all_of("names", names, (str, Problem), "'four_bars'")
    for name in names:
        if not isinstance(name, Problem) and name not in CASES:
            raise unknown_name("benchmark problem", name, CASES)
    once = [x for i, x in enumerate(names) if isinstance(x, Problem) or x not in names[:i]]
    return once or [name for name, case in CASES.items() if case.quick or not quick]


def bench(
    names: Iterable[str | Problem] | str | Problem | None = None,
    *,
    quick: bool = False,
    tolerances: Iterable[float] | None = None,
    repeats: int = 3,
    progress: bool = False,
) -> list[BenchResult]:
    """Runs benchmark problems of multibody dynamics: accuracy against independent references, and wall times.

    References are closed forms, published numbers or SciPy's integration in minimal coordinates; nothing in them is
    of ukjax. A time is that of `simulate` under `jit`, with forces, errors and energy at 41 times. Figures of other
    programs come along as they were measured elsewhere; for a ratio, measure side by side.

    **Arguments:**

    - `names`: the problems; by default all, or with `quick` the four that compile fast. A `Problem` of your own may
      stand among them: its coordinates are compared with its `reference`, or with its own run at 1e-12.
    - `quick`: fewer problems and tolerances.
    - `tolerances`: relative and absolute, of the adaptive steps; by default 1e-6, 1e-8, 1e-10, or with `quick` the
      first two.
    - `repeats`: how many warm runs the median is taken of, at least 3.
    - `progress`: show a bar on standard error.

    **Returns:** a `BenchResult` for each problem.

    **Raises:** `InputError` for an unknown problem, a tolerance outside (0, 1), fewer than 3 repeats, and in single
    precision.
    """
    chosen = _choose_problems(names, quick)
    tolerances = tuple((QUICK_TOLERANCES if quick else TOLERANCES) if tolerances is None else tolerances)
    for tolerance in tolerances:
        require_between("tolerances", tolerance, 0, 1)
    if not tolerances:
        raise InputError("tolerances must name at least one.")
    whole_number("repeats", repeats, 3)
    if jnp.zeros(()).dtype != jnp.float64:
        raise InputError("bench() measures in double precision: jax.config.update('jax_enable_x64', True).")
    results, steps = list[BenchResult](), itertools.count(1)
    with show_bar(progress, "measuring", len(chosen) * len(tolerances)) as move:
        for problem in chosen:
            name = _name(problem)
            move(len(results) * len(tolerances), name)
            done = lambda name=name: move(next(steps), name)
            results.append(_measure(problem, tolerances, repeats, done))
    return results


def machine() -> dict[str, Any]:
    """The processor, its load and the versions that matter."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    versions = {x: importlib.metadata.version(x) for x in ("ukjax", "jax", "diffrax", "numpy", "scipy")}
    return {
        "processor": name, "cores": os.cpu_count(), "load": load, "device": jax.devices()[0].device_kind,
        "python": platform.python_version(), **versions,
    }  # fmt: skip
