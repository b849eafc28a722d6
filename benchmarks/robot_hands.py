"""Hands that hold an object by position servos, beside MuJoCo with hard contacts: where it rests, depths, energy.

All that the file has may touch (`contact=True`). Servos go to a share of the middle of their ranges. ukjax steps by 1 ms;
MuJoCo by 0.25 ms, with a time constant of 2 ms for contacts and limits. Margins and bodies named `target` are left out.
Prints for each file the deepest contact or limit of both, how far apart the object (the first free body) and the joints
are at the end, the fastest velocity then, and the most by which the energy, with that of the servos' springs, grows
between saved times, every 20 ms.

    python benchmarks/robot_hands.py FILE... [--share 0.5] [--t1 1.0]

Files: `manipulate_block.xml` of gymnasium-robotics, `wonik_allegro/scene_right.xml` of mujoco_menagerie.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import ukjax as uk

HARD = [0.002, 1.0]  # solref of MuJoCo's contacts: time constant [s], damping ratio


def model_of(path: Path) -> Any:
    """MuJoCo's model of a file without its target and without margins."""
    spec = mujoco.MjSpec.from_file(str(path))
    for body in [x for x in spec.bodies if x.name == "target"]:
        spec.delete(body)
    for x in (*spec.geoms, *spec.joints):
        x.margin = 0.0
    return spec.compile()


def hold(model: Any, share: float, t1: float) -> None:
    """Runs both, and prints the line."""
    low, high = model.actuator_ctrlrange.T
    start = np.clip(0.0, low, high)
    ctrl = start + share * ((low + high) / 2 - start)
    robot = uk.load(model, contact=True, ctrl=jnp.array(ctrl))
    saved = np.linspace(0.0, t1, round(t1 / 0.02) + 1)
    run = uk.simulate(robot.problem, t1=t1, ts=saved, contact="steps", dt0=1e-3)
    states = [robot.state_to_mujoco(q, v) for q, v in zip(run.q, run.v, strict=True)]

    model.geom_solref[:], model.jnt_solref[:] = HARD, HARD
    model.opt.timestep, model.opt.iterations, model.opt.tolerance = 2.5e-4, 500, 1e-12
    model.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    data, deepest = mujoco.MjData(model), 0.0
    data.qpos[:], data.qvel[:] = states[0]
    data.ctrl[:] = ctrl
    for _ in range(round(t1 / model.opt.timestep)):
        mujoco.mj_step(model, data)
        deepest = min(deepest, min((x.dist for x in data.contact), default=0.0))
    apart, energies = np.abs(states[-1][0] - data.qpos), []
    for data.qpos[:], data.qvel[:] in states:
        mujoco.mj_forward(model, data)
        stretch = data.actuator_length - ctrl
        energies.append(data.energy.sum() - 0.5 * np.sum(model.actuator_biasprm[:, 1] * stretch**2))
    free = int(model.jnt_qposadr[np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE)[0]])
    place = np.arange(free, free + 3)
    others = np.setdiff1d(np.arange(model.nq), np.arange(free, free + 7))
    print(
        f"| {share:g} | {len(run.contacts.names)} | {run.contacts.gap.min():.0e} | {deepest:.0e} | "
        f"{apart[place].max():.0e} | {apart[others].max():.0e} | {np.abs(states[-1][1]).max():.0e} | "
        f"{np.diff(energies).max():.0e} |",
        flush=True,
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--share", type=float, nargs="+", default=[0.0, 0.8])
    parser.add_argument("--t1", type=float, default=1.0)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(
        "| closed | rows | deepest [m] | MuJoCo [m] | object apart [m] | joints [rad] | fastest | energy grows [J] |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for path in given.files:
        for share in given.share:
            hold(model_of(path), share, given.t1)


if __name__ == "__main__":
    main()
