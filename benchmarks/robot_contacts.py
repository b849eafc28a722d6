"""A humanoid that falls, with its limits and nine contacts with the floor, by time stepping, beside MuJoCo.

Times are of one run of 1 s in steps of 1 ms, the second call. MuJoCo, with Euler's method, has all contacts of the file,
which is gymnasium's.
"""

import platform
import time
from pathlib import Path

import _one_thread  # noqa: F401
import gymnasium
import jax
import mujoco
import numpy as np

import ukjax as uk

jax.config.update("jax_enable_x64", True)
FILE = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "humanoid.xml"
TOUCHING = ("head", "torso1", "butt", "right_foot", "left_foot", "right_hand", "left_hand")
STEP, STEPS = 1e-3, 1000


def ours():
    """Microseconds a step of the second run, its seconds of compilation, and the trajectory."""
    robot = uk.load(str(FILE), contact=["limits", *((name, "floor") for name in TOUCHING)])
    times = []
    for _ in range(2):
        began = time.process_time()
        run = uk.simulate(robot.problem, t1=STEPS * STEP, contact="steps", dt0=STEP, ts=np.linspace(0, 1, 11))
        jax.block_until_ready(run.q)
        times.append(time.process_time() - began)
    return times[1] / STEPS * 1e6, times[0] - times[1], run


def theirs():
    """Microseconds a step, and the deepest penetration [m]."""
    model = mujoco.MjModel.from_xml_path(str(FILE))
    model.opt.timestep, model.opt.integrator = STEP, mujoco.mjtIntegrator.mjINT_EULER
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    began, deepest = time.process_time(), 0.0
    for _ in range(STEPS):
        mujoco.mj_step(model, data)
        deepest = min(deepest, *data.contact.dist) if data.ncon else deepest
    return (time.process_time() - began) / STEPS * 1e6, -deepest


def main():
    """Prints the table."""
    mine, compiled, run = ours()
    its, deepest = theirs()
    print(f"{platform.machine()}, jax {jax.__version__}, processor time; first run {compiled:.0f} s longer\n")
    print("| | rows | us a step | deepest penetration [m] | steps unsolved |\n|---|---|---|---|---|")
    rows, off = len(run.contacts.row_names), max(-float(run.contacts.gap.min()), 0.0)
    print(f"| ukjax | {rows} | {mine:.0f} | {off:.1e} | {int(run.stats['num_unsolved_steps'])} |")
    print(f"| MuJoCo | | {its:.0f} | {deepest:.1e} | |")


if __name__ == "__main__":
    main()
