"""A humanoid that falls, with its limits and nine contacts with the floor, by time stepping, beside MuJoCo.

Times are processor time of 1 s in steps of 1 ms, a step and member, of the second call within `jit`: of one run, and of
256 at once with velocities that differ. MuJoCo, with Euler's method, has all contacts of the file, which is gymnasium's.
"""

import platform
import time
from pathlib import Path

import _one_thread  # noqa: F401
import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import ukjax as uk

jax.config.update("jax_enable_x64", True)
FILE = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "humanoid.xml"
TOUCHING = ("head", "torso1", "butt", "right_foot", "left_foot", "right_hand", "left_hand")
STEP, STEPS, MEMBERS, OF_MUJOCO = 1e-3, 1000, 256, 16


def velocities(n):
    """Of the members, the first one at rest."""
    v = 0.1 * np.random.default_rng(0).normal(size=(MEMBERS, n))
    v[0] = 0
    return v


def timed(run, *given):
    """What the second call returns, its seconds, and how many more the first one took."""
    times = []
    for _ in range(2):
        began = time.process_time()
        found = jax.block_until_ready(run(*given))
        times.append(time.process_time() - began)
        uk.optimize_now()
    return found, times[1], times[0] - times[1]


def ours():
    """Of one run and of all: state, gaps and steps unsolved, microseconds a step and member, seconds of compilation."""
    robot = uk.load(str(FILE), contact=["limits", *((name, "floor") for name in TOUCHING)])
    q0, v0 = robot.problem.q0, velocities(robot.problem.v0.size)

    def run(v):
        found = uk.simulate(
            robot.mechanism, q0, v, t1=STEPS * STEP, contact="steps", dt0=STEP, ts=jnp.array([1.0])
        )
        return found.q, found.v, found.contacts.gap, found.stats["num_unsolved_steps"]

    for call, given, members in ((run, v0[0], 1), (jax.vmap(run), v0, MEMBERS)):
        found, seconds, compiled = timed(jax.jit(call), jnp.asarray(given))
        yield found, seconds / STEPS / members * 1e6, compiled


def theirs():
    """Microseconds a step, and the deepest penetration [m]."""
    model = mujoco.MjModel.from_xml_path(str(FILE))
    model.opt.timestep, model.opt.integrator = STEP, mujoco.mjtIntegrator.mjINT_EULER
    data, deepest = mujoco.MjData(model), 0.0
    began = time.process_time()
    for v0 in velocities(model.nv)[:OF_MUJOCO]:
        mujoco.mj_resetData(model, data)
        data.qvel[:] = v0
        mujoco.mj_step(model, data, nstep=STEPS)
        deepest = min(deepest, *data.contact.dist, 0.0)
    return (time.process_time() - began) / STEPS / OF_MUJOCO * 1e6, -deepest


def main():
    """Prints the table."""
    rows = []
    for name, (found, us, compiled) in zip(("ukjax, one", f"ukjax, {MEMBERS}"), ours(), strict=True):
        _, _, gap, unsolved = found
        deepest = max(-float(gap.min()), 0.0)
        rows.append(f"| {name} | {us:.1f} | {compiled:.0f} | {deepest:.1e} | {int(unsolved.sum())} |")
    its, deepest = theirs()
    print(f"{platform.machine()}, jax {jax.__version__}, float64, one thread\n")
    print(
        "| | us a step and member | s of compilation | deepest penetration at the end [m] | steps unsolved |"
    )
    print("|---|---|---|---|---|", *rows, sep="\n")
    print(f"| MuJoCo | {its:.1f} | | {deepest:.1e} | |")


if __name__ == "__main__":
    main()
