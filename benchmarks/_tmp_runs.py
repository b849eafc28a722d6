"""A whole run of Cassie, its motors following sines, beside MuJoCo and Pinocchio: processor time against accuracy.

    python benchmarks/robot_runs.py [--t1 2] [--rounds 5]

The error is the largest distance of a body's place at the end from that of a run of ukjax at tolerance 1e-11. MuJoCo's
equalities are soft, as its file has them, and as hard as its steps allow. Of Pinocchio, where it is installed, classical
Runge-Kutta steps call `constraintDynamics` (2 iterations); what counts is the time of these calls alone, as in a program
in C++. Contacts, limits and dry friction are off. All run on one core of one process, compiled before.
"""

import argparse
import time
from collections.abc import Callable, Iterator
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
AMPLITUDE = 0.1 * np.array([4.5, 4.5, 12.2, 12.2, 0.9] * 2)  # a tenth of what the motors can do
Row = tuple[str, float, float]


def taken(call: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """The median of processor times [s], after a first call, and what is returned."""
    found, times = call(), []
    for _ in range(rounds):
        begin = time.process_time()
        found = call()
        times.append(time.process_time() - begin)
    return float(np.median(times)), found


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


def rows(t1: float, rounds: int) -> Iterator[Row]:
    """Each way to run, its seconds and its error [m]."""
    model = mujoco.MjModel.from_xml_path(str(FILE))
    for flag in ("CONTACT", "LIMIT", "FRICTIONLOSS"):
        model.opt.disableflags |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}"))
    robot = uk.load(model, ctrl=lambda t: AMPLITUDE * jnp.sin(4 * jnp.pi * t))
    n_q = robot.problem.q0.size
    start = tuple(np.asarray(x) for x in robot.state_to_mujoco(robot.problem.q0, robot.problem.v0))

    def places(qpos: np.ndarray) -> np.ndarray:
        at = mujoco.MjData(model)
        at.qpos[:] = qpos
        mujoco.mj_kinematics(model, at)
        return np.array(at.xpos)

    of_ours = lambda x: places(np.asarray(robot.state_to_mujoco(x[:n_q], x[n_q:])[0]))
    wanted = of_ours(by_ukjax(robot, t1, 1e-11))
    error = lambda found: float(np.max(np.linalg.norm(found - wanted, axis=1)))
    for tolerance in (1e-4, 1e-6, 1e-8):
        seconds, x = taken(lambda tolerance=tolerance: by_ukjax(robot, t1, tolerance), rounds)
        yield f"ukjax, tolerance {tolerance:g}", seconds, error(of_ours(x))
    for hard in ():
        for integrator, dt in (("EULER", 5e-4), ("RK4", 5e-4), ("RK4", 1e-4)):
            if hard:
                as_hard_as_steps_allow(model, dt)
            run = lambda integrator=integrator, dt=dt: by_mujoco(model, start, t1, integrator, dt)
            seconds, qpos = taken(run, 1)
            yield f"MuJoCo, {integrator}, {dt:g} s{', hard' if hard else ''}", seconds, error(places(qpos))
    for dt in (1.25e-4, 6.25e-5):
        found = run_by_pinocchio(model, start, t1, dt, lambda t: AMPLITUDE * np.sin(4 * np.pi * t))
        if found is not None:
            yield f"Pinocchio, Runge-Kutta, {dt:g} s", found[0], error(places(found[1]))


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
        for name, seconds, error in rows(given.t1, given.rounds):
            print(f"| {name} | {seconds:.3f} | {error:.1e} |", flush=True)


if __name__ == "__main__":
    main()
