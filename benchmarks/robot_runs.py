"""A whole run of Cassie, its motors following sines, beside MuJoCo and Pinocchio: processor time against accuracy.

    python benchmarks/robot_runs.py [--t1 2] [--rounds 5]

The error is the largest distance of a body's place at the end from that of a run of ukjax at tolerance 1e-11. MuJoCo's
equalities are soft, as its file has them, and as hard as its steps allow. Of Pinocchio, where it is installed, classical
Runge-Kutta steps call `constraintDynamics` (2 iterations); what counts is the time of these calls alone, as in a program
in C++. Contacts, limits and dry friction are off. All run in turn on one core of one process, compiled before; told are
the medians.
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
from _robot_pinocchio import run_by_pinocchio
from _timing import machine, pinned

import ukjax as uk

FILE = Path(__file__).parent.parent / "experiments" / "robots" / "cassie.xml"
STEPS = (("EULER", 5e-4), ("RK4", 5e-4), ("RK4", 1e-4))
AMPLITUDE = 0.1 * np.array([4.5, 4.5, 12.2, 12.2, 0.9] * 2)  # a tenth of what the motors can do
Way = Callable[[], tuple[float, np.ndarray | None]]
"""A run: its processor time [s], and qpos at the end; None where what computes it is not installed."""


def timed(call: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """The processor time [s] of a call, and what it returns."""
    begin = time.process_time()
    found = call()
    return time.process_time() - begin, found


def by_ukjax(robot: uk.robots.Robot, t1: float, tolerance: float) -> np.ndarray:
    """The state at the end."""
    run = uk.simulate(robot.problem, t1=t1, ts=2, rtol=tolerance, atol=tolerance, max_steps=200_000)
    return np.concatenate([run.q[-1], run.v[-1]])


def by_mujoco(model: Any, start: tuple[Any, Any], t1: float, integrator: str, dt: float) -> np.ndarray:
    """qpos at the end; NaN if it does not get there."""
    model.opt.timestep, model.opt.integrator = dt, getattr(mujoco.mjtIntegrator, f"mjINT_{integrator}")
    at = mujoco.MjData(model)
    at.qpos[:], at.qvel[:] = start
    for i in range(round(t1 / dt)):
        at.ctrl[:] = AMPLITUDE * np.sin(4 * np.pi * i * dt)
        mujoco.mj_step(model, at)
    return np.array(at.qpos if at.time >= t1 - dt else np.nan * at.qpos)


def as_hard_as_steps_allow(model: Any, dt: float) -> None:
    """MuJoCo wants the time constant of an equality to be at least two steps."""
    model.eq_solref[:] = (2.0 * dt, 1.0)
    model.eq_solimp[:, :2] = 0.9999


def ways(t1: float) -> tuple[dict[str, Way], Callable[[np.ndarray], float]]:
    """All that is measured, by name, and the error of where a run ends [m]."""
    model = mujoco.MjModel.from_xml_path(str(FILE))
    for flag in ("CONTACT", "LIMIT", "FRICTIONLOSS"):
        model.opt.disableflags |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}"))
    robot = uk.load(model, ctrl=lambda t: AMPLITUDE * jnp.sin(4 * jnp.pi * t))
    n_q = robot.problem.q0.size
    qpos, qvel = robot.state_to_mujoco(robot.problem.q0, robot.problem.v0)
    start = np.asarray(qpos), np.asarray(qvel)

    def places(qpos: np.ndarray) -> np.ndarray:
        at = mujoco.MjData(model)
        at.qpos[:] = qpos
        mujoco.mj_kinematics(model, at)
        return np.array(at.xpos)

    def ours(tolerance: float) -> tuple[float, np.ndarray]:
        seconds, x = timed(lambda: by_ukjax(robot, t1, tolerance))
        return seconds, np.asarray(robot.state_to_mujoco(x[:n_q], x[n_q:])[0])

    def mujocos(hard: bool, integrator: str, dt: float) -> tuple[float, np.ndarray]:
        own = copy.copy(model)
        if hard:
            as_hard_as_steps_allow(own, dt)
        return timed(lambda: by_mujoco(own, start, t1, integrator, dt))

    def pinocchios(dt: float) -> tuple[float, np.ndarray | None]:
        found = run_by_pinocchio(model, start, t1, dt, lambda t: AMPLITUDE * np.sin(4 * np.pi * t))
        return (np.nan, None) if found is None else found

    wanted = places(ours(1e-11)[1])
    found: dict[str, Way] = {}
    for tolerance in (1e-4, 1e-6, 1e-8):
        found[f"ukjax, tolerance {tolerance:g}"] = functools.partial(ours, tolerance)
    for hard, (integrator, dt) in itertools.product((False, True), STEPS):
        name = f"MuJoCo, {integrator}, steps of {1e3 * dt:g} ms{', hard' if hard else ''}"
        found[name] = functools.partial(mujocos, hard, integrator, dt)
    for dt in (5e-4, 2.5e-4, 1.25e-4, 6.25e-5):
        found[f"Pinocchio, RK4, steps of {1e3 * dt:g} ms"] = functools.partial(pinocchios, dt)
    return found, lambda qpos: float(np.max(np.linalg.norm(places(qpos) - wanted, axis=1)))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--t1", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(machine())
    print("\n| | s | error [m] |\n|---|---|---|")
    with pinned(1):
        every, error = ways(given.t1)
        ends = {name: run()[1] for name, run in every.items()}
        uk.optimize_now()
        times = [[run()[0] for run in every.values()] for _ in range(given.rounds)]  # in turn
    for (name, qpos), seconds in zip(ends.items(), np.median(times, axis=0), strict=True):
        if qpos is not None:
            print(f"| {name} | {seconds:.3f} | {error(qpos):.1e} |", flush=True)


if __name__ == "__main__":
    main()
