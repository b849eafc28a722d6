"""The benchmark problems: what is run, what is compared with which reference, and what other programs need for it."""

import dataclasses
import functools
from collections.abc import Callable
from typing import final

import diffrax as dfx
import jax
import numpy as np
import optimistix as optx

from ... import models
from ..._run._trajectory import Trajectory
from ..._system._problem import Problem
from . import _references

PEERS_SOURCE = (
    "measured on 2 shared cores, one core each, in another run than this one: Pinocchio 4.1.0, MuJoCo 4.0.0, "
    "MJX 3.17.0, Exudyn 1.13.6, Drake 1.51.1; benchmarks/peers.py measures the first two side by side"
)


@final
@dataclasses.dataclass(frozen=True)
class Peer:
    """A run of another program (`PEERS_SOURCE`)."""

    program: str  # its name and settings
    wall: float  # of one run, compiled [s]
    constraint_error: float  # its drift [m]
    end_error: float  # at the end, of the quantity of the case


@final
@dataclasses.dataclass(frozen=True)
class Case:
    """A benchmark problem."""

    build: Callable[[], Problem]  # makes the problem
    t1: float  # its end [s]
    # `quantity`, `unit`: what is compared.
    quantity: str
    unit: str
    observe: Callable[[Problem, Trajectory], np.ndarray]  # that quantity along a trajectory (k, d)
    reference: Callable[[np.ndarray], np.ndarray]  # the same at times (k,), NaN where it is not known
    source: str  # where the reference is from
    peers: tuple[Peer, ...] = ()  # other programs on the same problem
    solver: Callable[[], dfx.AbstractSolver] = dfx.Dopri8  # makes the Diffrax solver
    conserves: bool = True  # whether the energy is constant, so that its change is an error
    quick: bool = False  # whether `--quick` runs it


def _coordinates(problem: Problem, run: Trajectory) -> np.ndarray:
    return np.asarray(run.q)


def _point(name: str) -> Callable[[Problem, Trajectory], np.ndarray]:
    def at(problem: Problem, run: Trajectory) -> np.ndarray:
        assert problem.points is not None
        points = problem.points
        return np.asarray(jax.jit(jax.vmap(lambda t, q: points(t, q)[name]))(run.t, run.q))

    return at


def _height(problem: Problem, run: Trajectory) -> np.ndarray:
    return _point("slider")(problem, run)[:, 2:]


def _energy_balance(problem: Problem, run: Trajectory) -> np.ndarray:
    """Energy gained but not by the drive's work, relative to that work (k, 1)."""
    assert run.energy is not None
    energy, turned = np.asarray(run.energy), np.asarray(run.q[:, 0])
    return ((energy - energy[0]) / (0.033 * (turned[-1] - turned[0])))[:, None]


def case_of(problem: Problem) -> Case:
    """The case of a problem that is none of `CASES`: its coordinates against its closed form, NaN where it has none."""
    at, size = problem.reference, problem.q0.size
    expected = lambda t: np.full((t.size, size), np.nan) if at is None else np.asarray(jax.vmap(at)(t))
    about = (_coordinates, expected, "its closed form" if at is not None else "its own run at 1e-12")
    return Case(lambda: problem, float(problem.t1), "coordinates", "SI", *about, conserves=False)


def _newton() -> dfx.AbstractSolver:
    return dfx.Kvaerno5(root_finder=dfx.with_stepsize_controller_tols(optx.Newton)())


_ELLIPTIC = "closed form, elliptic functions"
_FOUR_BARS = (
    Peer("Pinocchio RK4 h = 0.02", 0.0105, 5e-11, 2.2e-5),
    Peer("Pinocchio RK4 h = 1e-3", 0.192, 2e-13, 1.2e-11),
    Peer("MuJoCo tight, Euler 1e-3", 0.0254, 2.7e-8, 9.9e-5),
    Peer("MuJoCo default, Euler 2e-3", 0.0145, 9.7e-4, 1.28),
    Peer("MJX Euler 1e-3", 0.107, 6e-9, 2.0e-5),
    Peer("Exudyn generalized-alpha 1e-3", 0.178, 5e-11, 6.0e-5),
    Peer("Drake SAP 1e-3", 0.442, 2.7e-8, 4.6e-5),
    Peer("SciPy RK45 1e-6, numpy pinv", 0.72, 6e-8, 5.7e-5),
)
_TEN_FOUR_BARS = (
    Peer("Pinocchio h = 0.02", 0.045, 6e-12, 1.1e-5),
    Peer("MuJoCo tight 1e-3", 0.102, 6e-8, 1.2e-4),
    Peer("SciPy, numpy pinv", 5.5, 6e-8, 3.4e-5),
)
_PARALLELOGRAM = (
    Peer("MuJoCo tight, Euler 1e-3", 0.056, 6.6e-9, 7.4e-4),
    Peer("MuJoCo tight, RK4 1e-3", 0.215, 6.6e-9, 6.6e-5),
    Peer("Pinocchio h = 5e-3", 0.090, 1e-7, 2.8e-4),
    Peer("Pinocchio h = 1e-3", 0.435, 1e-10, 2.4e-9),
    Peer("SciPy RK45 1e-6, numpy pinv", 1.80, 6e-8, 5.3e-5),
)
_ANDREWS = (
    Peer("Pinocchio RK4 h = 1e-4", 0.0138, 9e-8, 8.4e-5),
    Peer("Pinocchio RK4 h = 1e-5", 0.133, 8e-12, 1.1e-8),
    Peer("MuJoCo tight, RK4 1e-5", 0.050, 5e-9, 1.2e-6),
)

CASES: dict[str, Case] = {
    "pendulum": Case(
        models.pendulum, 10.0, "mass", "m", _point("mass"), _references.pendulum, _ELLIPTIC, quick=True
    ),
    "scara": Case(
        functools.partial(models.scara, exact_start=True), 20.0, "joints", "rad, m", _coordinates,
        _references.scara, "inverse kinematics of the path, exact", conserves=False, quick=True,
    ),
    "parallelogram": Case(
        models.parallelogram, 20.0, "pin A", "m", _point("A"), _references.parallelogram, _ELLIPTIC,
        _PARALLELOGRAM,
    ),
    "four_bars": Case(
        models.four_bars, 10.0, "pin B0", "m", _point("B0"), _references.four_bars, _ELLIPTIC, _FOUR_BARS,
        quick=True,
    ),
    "four_bars_10": Case(
        functools.partial(models.four_bars, 10), 10.0, "pin B0", "m", _point("B0"),
        functools.partial(_references.four_bars, n=10), _ELLIPTIC, _TEN_FOUR_BARS,
    ),
    "andrews": Case(
        models.andrews, 0.03, "angles at the end", "rad", _coordinates, _references.andrews,
        "IVP Test Set, published", _ANDREWS, quick=True,
    ),
    "andrews_energy": Case(
        models.andrews, 0.05, "energy balance over the drive's work", "1", _energy_balance,
        lambda t: np.zeros((t.size, 1)), "conservation of energy",
    ),
    "bricard": Case(
        models.bricard, 12.0, "P3", "m", _point("P3"), _references.bricard,
        "SciPy DOP853, one degree of freedom",
    ),
    "flyball_governor": Case(
        models.flyball_governor, 10.0, "slider's height", "m", _height, _references.flyball_governor,
        "SciPy LSODA, reduced coordinates", solver=_newton, conserves=False,
    ),
}  # fmt: skip
"""The problems by name, in the order they are run."""
