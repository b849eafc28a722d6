"""Robots and objects that fall on a floor, beside MuJoCo: how deep they penetrate, how high they rest, and their energy.

Each file loses its planes, actuators, keyframes and margins, at which MuJoCo pushes before bodies touch, and
gets a floor 5 cm below its lowest geom; a robot that the file
fixes to the world gets a free base. All its geoms may touch (`contact=True`). It falls for 2 s in steps of 1 ms, without
restitution, by `contact="steps"` and by MuJoCo with its own solver, from the same posture. Prints a table:

- the deepest penetration of any contact or limit at saved times, every 20 steps, of both;
- how much lower ukjax's centre of mass is at the end than MuJoCo's, and the speed of the fastest body then;
- the most by which the energy (MuJoCo's `mj_energyPos` and `mj_energyVel` of the states of each) grows between two saved
  times, beside what it loses in all;
- seconds of processor time to load, for the first run less a later one, and microseconds a step of later ones and of
  MuJoCo, medians of three runs of each in turn, and the median of their ratios.

Each file has a process of its own, which ends after `--seconds` of processor time; what is so slow is told with its pairs
and contacts. With `--optimized` later runs are by optimized code, as those of long runs are (`uk.optimize_now`).

    python benchmarks/robot_drops.py FOLDER [--seconds 180] [--results drops.jsonl] [--only NAME] [--optimized]

FOLDER has the packages of `robot_files.py`, unpacked, and robosuite; or it is one file.
"""

import argparse
import json
import resource
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

STEP, EVERY, SAVED, TURNS = 1e-3, 20, 100, 3
HEIGHT = 0.05
_ROBOTS = "example-robot-data/cmeel.prefix/share/example-robot-data/robots"
_HANDS = "gymnasium-robotics/gymnasium_robotics/envs/assets/hand"
_SUITE, _WARP = "dm-control/dm_control/suite", "mujoco-warp/mujoco_warp/test_data"
_GRIPPERS = "robosuite/robosuite/models/assets/grippers"
FILES = (
    "gymnasium/gymnasium/envs/mujoco/assets/ant.xml",
    "gymnasium/gymnasium/envs/mujoco/assets/humanoid.xml",
    f"{_SUITE}/humanoid.xml",
    f"{_SUITE}/quadruped.xml",
    f"{_ROBOTS}/a1_description/urdf/a1.urdf",
    f"{_ROBOTS}/go2_description/urdf/go2.urdf",
    f"{_ROBOTS}/laikago_description/urdf/laikago.urdf",
    f"{_ROBOTS}/hyq_description/robots/hyq_no_sensors.urdf",
    f"{_ROBOTS}/anymal_b_simple_description/robots/anymal.urdf",
    "genesis-world/genesis/assets/xml/two_box.xml",
    f"{_ROBOTS}/quadruped_description/urdf/quadruped.urdf",
    f"{_ROBOTS}/g1_description/urdf/g1_29dof_rev_1_0.urdf",
    f"{_ROBOTS}/iris_description/robots/iris.urdf",
    "genesis-world/genesis/assets/xml/franka_sim/franka_panda_ball.xml",
    "robosuite/robosuite/models/assets/robots/spot/robot.xml",
    "genesis-world/genesis/assets/xml/universal_robots_ur5e/ur5e.xml",
    "genesis-world/genesis/assets/xml/franka_emika_panda/panda_nohand.xml",
    "dm-control/dm_control/third_party/kinova/jaco_hand.xml",
    f"{_GRIPPERS}/panda_gripper.xml",
    f"{_HANDS}/manipulate_block.xml",
    f"{_WARP}/collision.xml",
    f"{_WARP}/mug/mug.xml",
)


def model_over_floor(path: str) -> Any:
    """MuJoCo's model of a file over a floor, free to fall and without actuators."""
    import mujoco

    from ukjax.robots._contact_selection import read_contact_selection
    from ukjax.robots._source import remove_missing
    from ukjax.robots._urdf import read_urdf

    folder, every = Path(path).resolve().parent, read_contact_selection(True, None, None)
    if path.endswith(".urdf"):
        spec = read_urdf(ElementTree.parse(path).getroot(), folder, every).spec
    else:
        spec = mujoco.MjSpec.from_file(path)
    remove_missing(spec, True)
    spec.compiler.balanceinertia = True
    for x in spec.bodies:  # of links that stand for a frame, such as HyQ's base
        full = np.array(x.fullinertia)
        if np.all(np.isfinite(full)) and np.linalg.eigvalsh(_matrix(full))[0] <= 0:
            x.fullinertia = [*(full[:3] + 1e-8), *full[3:]]
    parts = [*spec.keys, *spec.actuators, *spec.sensors]
    for x in [*parts, *(x for x in spec.geoms if x.type == mujoco.mjtGeom.mjGEOM_PLANE)]:
        spec.delete(x)
    for x in [*spec.geoms, *spec.joints]:
        x.margin = 0.0
    for x in spec.geoms:
        x.gap = 0.0
    if not any(x.type == mujoco.mjtJoint.mjJNT_FREE for x in spec.joints):
        for base in [x for x in spec.worldbody.bodies if not x.joints and not x.mocap][:1]:
            base.add_freejoint()
    plane = {"type": mujoco.mjtGeom.mjGEOM_PLANE, "size": [0, 0, 1], "contype": 0xFFFF, "conaffinity": 0xFFFF}
    spec.worldbody.add_geom(
        name="the floor", pos=[0, 0, _lowest(spec.compile()) - HEIGHT], friction=[1, 0.005, 0.0001], **plane
    )
    spec.option.timestep = STEP
    spec.option.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    return spec.compile()


def _matrix(full: Any) -> Any:
    """The symmetric matrix of its entries xx, yy, zz, xy, xz, yz."""
    xx, yy, zz, xy, xz, yz = full
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _lowest(model: Any) -> float:
    """The height of the lowest corner of the boxes about all moving geoms that touch, where ukjax starts."""
    import mujoco

    import ukjax as uk

    data, robot = mujoco.MjData(model), uk.load(model, contact=["limits"])
    data.qpos[:] = robot.state_to_mujoco(robot.problem.q0, robot.problem.v0)[0]
    mujoco.mj_kinematics(model, data)
    moves = model.body_dofnum[model.body_weldid[model.geom_bodyid]] > 0
    touches = (model.geom_contype | model.geom_conaffinity) > 0
    up = data.geom_xmat.reshape(-1, 3, 3)[:, 2]
    box = model.geom_aabb.reshape(-1, 6)
    height = data.geom_xpos[:, 2] + (up * box[:, :3]).sum(1) - (np.abs(up) * box[:, 3:]).sum(1)
    return float(height[moves & touches].min())


class _Watch:
    """Energy, place and speed by MuJoCo, of the states of both."""

    def __init__(self, model: Any) -> None:
        import mujoco

        self.model, self.data = model, mujoco.MjData(model)

    def look(self, qpos: Any, qvel: Any) -> tuple[float, float, float]:
        """Energy [J], the height of the centre of mass of what moves [m], and the speed of the fastest body [m/s]."""
        import mujoco

        self.data.qpos[:], self.data.qvel[:] = qpos, qvel
        mujoco.mj_forward(self.model, self.data)
        moves = self.model.body_dofnum[self.model.body_weldid] > 0
        mass = self.model.body_mass * moves
        height = float(mass @ self.data.xipos[:, 2] / mass.sum())
        return float(self.data.energy.sum()), height, float(np.abs(self.data.cvel[moves, 3:]).max())


def _growth(energies: Any) -> float:
    """The most by which energy grows between two saved times."""
    return float(max(np.diff(energies).max(), 0.0))


def ours(model: Any, found: dict[str, Any], tell: Any, optimized: bool) -> tuple[Any, Callable[[], float]]:
    """A fall by ukjax; returns where it starts, and what takes it again and tells microseconds a step."""
    import ukjax as uk
    from ukjax.mechanisms import Contact

    began = time.process_time()
    robot = uk.load(model, contact=True, restitution=0.0, t1=STEP * EVERY * SAVED)
    found["load"] = time.process_time() - began
    pairs = [x for x in robot.mechanism.mechanism.contacts if isinstance(x, Contact)]
    found |= {"nv": int(model.nv), "pairs": len(pairs), "contacts": sum(x.count for x in pairs)}
    tell(found)
    times = STEP * EVERY * np.arange(SAVED + 1)

    def go() -> tuple[Any, float]:
        began = time.process_time()
        run = uk.simulate(robot.problem, contact="steps", dt0=STEP, ts=times)
        return run, time.process_time() - began

    first = go()[1]
    tell(found | {"first run": first})
    if optimized:
        uk.optimize_now()
    run, later = go()
    watch = _Watch(model)
    states = [robot.state_to_mujoco(q, v) for q, v in zip(run.q, run.v, strict=True)]
    seen = np.array([watch.look(*x) for x in states])
    found |= {
        "first run": first - later,
        "result": str(run.result),
        "unsolved": int(run.stats["num_unsolved_steps"]),
        "deepest": max(-float(np.min(run.contacts.gap)), 0.0),
        "growth": _growth(seen[:, 0]),
        "lost": float(seen[0, 0] - seen[-1, 0]),
        "height": seen[-1, 1],
        "speed": seen[-1, 2],
    }
    return states[0], lambda: go()[1] / EVERY / SAVED * 1e6


def theirs(model: Any, start: Any, found: dict[str, Any]) -> float:
    """The same by MuJoCo; returns microseconds a step."""
    import mujoco

    data, watch, deepest = mujoco.MjData(model), _Watch(model), 0.0
    data.qpos[:], data.qvel[:] = start
    seen, spent = [watch.look(data.qpos, data.qvel)], 0.0
    for _ in range(SAVED):
        began = time.process_time()
        mujoco.mj_step(model, data, nstep=EVERY)
        spent += time.process_time() - began
        mujoco.mj_forward(model, data)
        deepest = max(deepest, -min(data.contact.dist, default=0.0))
        seen.append(watch.look(data.qpos, data.qvel))
    energies = np.array(seen)[:, 0]
    found |= {
        "its deepest": float(deepest),
        "its growth": _growth(energies),
        "its height": seen[-1][1],
        "its speed": seen[-1][2],
    }
    return spent / EVERY / SAVED * 1e6


def worker(path: str, seconds: int, optimized: bool) -> None:
    """Drops one file, and prints what is known so far as lines of JSON."""
    import jax

    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    jax.config.update("jax_enable_x64", True)
    tell = lambda x: print(json.dumps(x), flush=True)
    model, found = model_over_floor(path), {}
    start, again = ours(model, found, tell, optimized)
    steps = np.array([(again(), theirs(model, start, found)) for _ in range(TURNS)])
    of_both = np.median(steps, axis=0)
    found |= {
        "step": of_both[0],
        "its step": of_both[1],
        "ratio": float(np.median(steps[:, 0] / steps[:, 1])),
    }
    tell(found)


def dropped(path: Path, seconds: int, optimized: bool) -> dict[str, Any]:
    """What became of one file."""
    own = ["--worker", str(path), "--seconds", str(seconds), *["--optimized"] * optimized]
    command = [sys.executable, "-W", "ignore", __file__, *own]
    process = subprocess.run(command, capture_output=True, text=True)
    out, error = process.stdout, process.stderr
    lines = [json.loads(x) for x in out.splitlines() if x.startswith("{")]
    found = {"name": f"{path.parent.name}/{path.name}"} | (lines[-1] if lines else {})
    if process.returncode in (-signal.SIGKILL, -signal.SIGXCPU):
        return found | {"failed": f"more than {seconds} s"}
    return (
        found if process.returncode == 0 else found | {"failed": (error.strip().splitlines() or ["died"])[-1]}
    )


def row(x: dict[str, Any]) -> str:
    """A line of the table."""
    head = f"| {x['name']} | {x.get('nv', '')} | {x.get('pairs', '')}, {x.get('contacts', '')} |"
    if "failed" in x:
        at = "run" if "first run" in x else "first run" if "load" in x else "load"
        return f"{head} {x['failed']} ({at}) |"
    lower = 1e3 * (x["its height"] - x["height"])
    return (
        f"{head} {x['deepest']:.0e} | {x['its deepest']:.0e} | {lower:.2f} | {x['speed']:.0e}, {x['its speed']:.0e} | "
        f"{x['growth']:.0e}, {x['its growth']:.0e} of {x['lost']:.3g} | {x['unsolved']} | {x['load']:.0f} | "
        f"{x['first run']:.0f} | {x['step']:.0f}, {x['its step']:.0f} | {x['ratio']:.1f} |"
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("folder")
    parser.add_argument("--worker", action="store_true", help="drop this one file")
    parser.add_argument("--results", default="", help="a file of JSON lines: what became of each file")
    parser.add_argument("--only", default="", help="files with this in their path")
    parser.add_argument("--seconds", type=int, default=180, help="of processor time for one file")
    parser.add_argument("--optimized", action="store_true", help="time optimized code")
    given = parser.parse_args()
    if given.worker:
        worker(given.folder, given.seconds, given.optimized)
        return
    print(
        "| file | velocities | pairs, contacts | deepest [m] | MuJoCo | lower by [mm] | speed [m/s], MuJoCo | "
        "energy grows, MuJoCo [J] | unsolved | load [s] | first run [s] | step, MuJoCo [us] | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    folder = Path(given.folder)
    for file in [folder] if folder.is_file() else [folder / name for name in FILES if given.only in name]:
        found = dropped(file, given.seconds, given.optimized)
        print(row(found), flush=True)
        if given.results:
            with open(given.results, "a") as file:
                file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
