"""A whole run of a robot beside MuJoCo, Pinocchio and Drake: processor time against accuracy.

    python benchmarks/robot_runs.py [FILE] [--t1 2] [--rounds 5]

FILE is Cassie, its motors following sines, if not given; else a tree of hinges and slides that falls from its reference
posture. The error is the largest distance of a body's place at the end from that of a run of ukjax at tolerance 1e-11.
MuJoCo runs by `mujoco.rollout`; its equalities are soft, as the file has them, and as hard as its steps allow. Pinocchio
runs in C++ (`_pinocchio.cpp`): RK4 on trees, and pairs with error control; and `aba` under SciPy's DOP853. Drake, rebuilt
joint by joint, runs trees, with error control and in steps. What is not installed is left out. Contacts, limits and dry
friction are off. All run in turn on one core of one process, prepared before; told are the medians of later calls, and
the first, with what it compiles.
"""

import argparse
import copy
import functools
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _one_thread as _one_thread
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from _robot_drake import run_by_drake
from _robot_pinocchio import compile_robot, run_by_scipy, run_compiled
from _timing import machine, pinned
from mujoco import rollout

import ukjax as uk
from ukjax.robots._source import read

FILE = Path(__file__).parent.parent / "experiments" / "robots" / "cassie.xml"
FREQUENCY = 4 * np.pi
AMPLITUDE = 0.1 * np.array([4.5, 4.5, 12.2, 12.2, 0.9] * 2)  # a tenth of what the motors can do
GAIN = 20.0  # Baumgarte's, of Pinocchio's loops [1/s]
Way = Callable[[], np.ndarray | None]
"""A run that returns qpos at the end; None where what computes it is not installed."""


def by_mujoco(model: Any, qpos: np.ndarray, t1: float, integrator: str, dt: float) -> np.ndarray:
    """qpos at the end of a run from rest by `mujoco.rollout`, in C++; NaN if it does not get there."""
    model.opt.timestep, model.opt.integrator = dt, getattr(mujoco.mjtIntegrator, f"mjINT_{integrator}")
    times = dt * np.arange(round(t1 / dt))
    sines = AMPLITUDE[: model.nu] * np.sin(FREQUENCY * times)[:, None]
    at = mujoco.MjData(model)
    at.qpos[:] = qpos
    start = np.empty(mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS))
    mujoco.mj_getState(model, at, start, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    with rollout.Rollout(nthread=0) as here:
        end = here.rollout(model, [at], start[None], sines[None], nstep=len(times))[0][0, -1]
    return end[1 : 1 + model.nq] if end[0] >= t1 - dt else np.full(model.nq, np.nan)


def as_hard_as_steps_allow(model: Any, dt: float) -> None:
    """MuJoCo wants the time constant of an equality to be at least two steps."""
    model.eq_solref[:] = (2.0 * dt, 1.0)
    model.eq_solimp[:, :2] = 0.9999


def ways(file: Path, t1: float) -> tuple[dict[str, Way], Callable[[np.ndarray], float]]:
    """All that is measured, by name, and the error of where a run ends [m]."""
    model = read(str(file), False).model
    for flag in ("CONTACT", "LIMIT", "FRICTIONLOSS"):
        model.opt.disableflags |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}"))
    amplitude, loops = AMPLITUDE[: model.nu], bool(model.neq)
    robot = uk.load(model, ctrl=lambda t: amplitude * jnp.sin(FREQUENCY * t))
    start = np.asarray(robot.state_to_mujoco(robot.problem.q0, robot.problem.v0)[0])

    def places(qpos: np.ndarray) -> np.ndarray:
        at = mujoco.MjData(model)
        at.qpos[:] = qpos
        mujoco.mj_kinematics(model, at)
        return np.array(at.xpos)

    to_mujoco = jax.jit(lambda q, v: robot.state_to_mujoco(q, v)[0])

    def by_ukjax(tolerance: jax.Array | float) -> jax.Array:
        run = uk.simulate(robot.problem, t1=t1, ts=2, rtol=tolerance, atol=tolerance, max_steps=200_000)
        return to_mujoco(run.q[-1], run.v[-1])

    def ours(tolerance: float) -> np.ndarray:
        return np.asarray(by_ukjax(tolerance))

    fast = jax.jit(by_ukjax)

    def ours_in_jit(tolerance: float) -> np.ndarray:
        return np.asarray(fast(tolerance))

    def mujocos(hard: bool, integrator: str, dt: float) -> np.ndarray:
        own = copy.copy(model)
        if hard:
            as_hard_as_steps_allow(own, dt)
        return by_mujoco(own, start, t1, integrator, dt)

    wanted = functools.cache(lambda: places(ours(1e-11)))  # after the first calls, for they compile
    error = lambda qpos: float(np.max(np.linalg.norm(places(qpos) - wanted(), axis=1)))
    found: dict[str, Way] = {}
    for tolerance in (1e-4, 1e-6, 1e-8):
        found[f"ukjax, tolerance {tolerance:g}"] = functools.partial(ours, tolerance)
        found[f"ukjax in jit, tolerance {tolerance:g}"] = functools.partial(ours_in_jit, tolerance)
    steps = (5e-4, 1e-4) if loops else (1e-2, 5e-3, 2e-3, 1e-3)
    for hard, (integrator, dt) in itertools.product(
        (False, True)[: 1 + loops], itertools.product(("EULER", "RK4"), steps)
    ):
        name = f"MuJoCo, {integrator}, steps of {1e3 * dt:g} ms{', hard' if hard else ''}"
        found[name] = functools.partial(mujocos, hard, integrator, dt)
    robot_in_cpp = functools.cache(lambda: compile_robot(model, amplitude, FREQUENCY, GAIN))

    def pinocchios(order: int, size: float) -> np.ndarray | None:
        made = robot_in_cpp()
        return None if made is None else run_compiled(made, model, start, t1, order, size)

    for dt in () if loops else steps:
        found[f"Pinocchio C++, RK4, steps of {1e3 * dt:g} ms"] = functools.partial(pinocchios, 4, dt)
    for (order, name), tolerance in itertools.product(((5, "Dopri5"), (8, "Fehlberg78")), (1e-4, 1e-6, 1e-8)):
        found[f"Pinocchio C++, {name}, tolerance {tolerance:g}"] = functools.partial(
            pinocchios, order, tolerance
        )
    if loops:
        return found, error
    for tolerance in (1e-6, 1e-8, 1e-10):
        name = f"Pinocchio in Python, SciPy's DOP853, tolerance {tolerance:g}"
        found[name] = functools.partial(run_by_scipy, model, start, t1, tolerance)
    for scheme, size in itertools.product(("runge_kutta3", "runge_kutta5"), (1e-4, 1e-6, 1e-8)):
        found[f"Drake, {scheme}, accuracy {size:g}"] = functools.partial(
            run_by_drake, model, start, t1, scheme, size
        )
    for dt in (1e-3, 1e-4):
        found[f"Drake, discrete, steps of {1e3 * dt:g} ms"] = functools.partial(
            run_by_drake, model, start, t1, "", dt
        )
    return found, error


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    parser.add_argument("--t1", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(machine())
    print("\n| | s | error [m] | first call [s] |\n|---|---|---|---|")
    with pinned(1):
        every, error = ways(given.file, given.t1)
        first, ends = {}, {}
        for name, run in every.items():
            begin = time.process_time()
            ends[name] = run()
            first[name] = time.process_time() - begin
        installed = {name: run for name, run in every.items() if ends[name] is not None}
        uk.optimize_now()
        times = [[seconds(run) for run in installed.values()] for _ in range(given.rounds)]  # in turn
    for name, took in zip(installed, np.median(times, axis=0), strict=True):
        print(f"| {name} | {took:.2g} | {error(ends[name]):.1e} | {first[name]:.2g} |", flush=True)


def seconds(run: Way) -> float:
    """The processor time of a call, the mean of as many as take 20 ms."""
    begin, count = time.process_time(), 0
    while count == 0 or time.process_time() - begin < 0.02:
        run()
        count += 1
    return (time.process_time() - begin) / count


if __name__ == "__main__":
    main()
