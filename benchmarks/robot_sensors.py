"""Sensors of robot files: whether they read what MuJoCo's read, and what a reading costs.

Loads every file with sensors in some folders and reads these at random states, with random inputs and MuJoCo's own
acceleration, which is handed to ukjax too. Contacts and equalities are off in both, as MuJoCo's are soft. Prints a table
by kind: how many sensors, in how many files, and the largest difference, relative to 1 and the largest entry.

    python benchmarks/robot_sensors.py FOLDER... [--states 2] [--only NAME]
    python benchmarks/robot_sensors.py --time FILE...

With `--time`, each file in a process of its own: processor seconds to load, for the first reading (with the robot's own
acceleration) and a second one, for the first under `jit` of a batch of 1,024, and microseconds of it a reading later.

`robot_files.py` says where to get files.
"""

import argparse
import collections
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import mujoco
import numpy as np

import ukjax as uk

NOT_COMPARED = ("touch", "jointlimitfrc", "tendonlimitfrc")  # of contacts and stops, which are off
OFF = mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_EQUALITY
BATCH = 1024


def compare(path: str, states: int) -> tuple[list[tuple[str, float]], dict[str, str]] | None:
    """The kind of each sensor and how far it is off, and the kinds that are not built with the reason."""
    try:
        model = mujoco.MjModel.from_xml_path(path)
    except ValueError:
        return None
    if not model.nsensor or not model.nv:
        return None
    robot = uk.load(path)
    model.opt.disableflags |= int(OFF)
    model.opt.density = model.opt.viscosity = 0.0
    rng, worst = np.random.default_rng(0), dict.fromkeys(robot.sensors.names, 0.0)
    for _ in range(states):
        data = mujoco.MjData(model)
        data.qpos[:], _ = robot.state_to_mujoco(robot.problem.q0, robot.problem.v0)
        mujoco.mj_integratePos(model, data.qpos, rng.normal(size=model.nv), 0.3)
        data.qvel[:], data.ctrl[:] = rng.normal(size=model.nv), 0.3 * rng.normal(size=model.nu)
        data.act[:] = robot.problem.v0[model.nv :]
        mujoco.mj_forward(model, data)
        q, v = robot.state_from_mujoco(data.qpos, data.qvel, data.act)
        a = np.concatenate([robot.conversion.velocities(np.array(data.qacc)), np.zeros(model.na)])
        still = np.zeros(6 * len(robot.mechanism.loops))
        own = robot.with_inputs(data.ctrl).sensors(data.time, q, v, a, multipliers=still)
        starts = zip(robot.names.sensors, model.sensor_adr, model.sensor_dim, strict=True)
        for name, start, size in starts:
            if name in own:
                theirs = data.sensordata[start : start + size]
                off = np.abs(np.ravel(own[name]) - theirs).max() / max(1.0, np.abs(theirs).max())
                worst[name] = max(worst[name], float(off))
    kinds = robot.sensors.kinds
    found = [(kinds[name], x) for name, x in worst.items() if kinds[name] not in NOT_COMPARED]
    return found, {kind: why for _, kind, why in robot.table.refused}


def table(paths: list[str], states: int) -> str:
    """By kind of sensor."""
    errors, files, lines = collections.defaultdict(list), collections.defaultdict(set), []
    for path in paths:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = compare(path, states)
        if found is None:
            continue
        for kind, error in found[0]:
            errors[kind].append(error)
            files[kind].add(path)
        lines += [f"{path}: {kind} is not built: {why}" for kind, why in found[1].items()]
        lines += [f"{path}: {kind} is off by {x:.1e}" for kind, x in found[0] if not x < 1e-9]
        jax.clear_caches()
    all_files = set().union(*files.values())
    rows = [
        f"| {kind} | {len(x)} | {len(files[kind])} | {max(x):.0e} |" for kind, x in sorted(errors.items())
    ]
    count = sum(map(len, errors.values()))
    head = [
        f"{count} sensors of {len(all_files)} files.",
        "",
        "| sensor | number | files | worst |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *rows, "", *lines])


def measure(path: str) -> str:
    """What one file costs in this process."""
    clock, seconds = time.process_time, list[float]()

    def timed(function: Any, *arguments: Any) -> Any:
        start = clock()
        found = jax.block_until_ready(function(*arguments))
        seconds.append(clock() - start)
        return found

    robot = timed(uk.load, path)
    q, v = robot.problem.q0, robot.problem.v0
    for _ in range(2):
        timed(robot.sensors, 0.0, q, v)
    batch = jax.jit(jax.vmap(lambda q, v: robot.sensors.vector(0.0, q, v)))
    many = [np.broadcast_to(x, (BATCH, x.size)) for x in (q, v)]
    for _ in range(2):
        timed(batch, *many)
    load, first, second, compiled, again = seconds
    return f"| {Path(path).stem} | {load:.1f} | {first:.2f} | {second:.3f} | {compiled:.1f} | {1e6 * again / BATCH:.2g} |"


def main() -> None:
    """Compares the files of the folders given, or measures them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--states", type=int, default=2, help="at which readings are compared")
    parser.add_argument("--only", default="", help="files with this in their path")
    parser.add_argument("--time", action="store_true", help="measure the files")
    parser.add_argument("--alone", action="store_true", help="measure one file in this process")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if given.alone:
        print(measure(given.folders[0]))
        return
    if given.time:
        print("| file | load [s] | first reading [s] | second [s] | batch, first [s] | a reading [µs] |")
        print("|---|---|---|---|---|---|", flush=True)
        for path in given.folders:
            subprocess.run([sys.executable, __file__, "--alone", path], check=True)
        return
    paths = [
        x for f in given.folders for x in ([Path(f)] if Path(f).is_file() else sorted(Path(f).rglob("*.xml")))
    ]
    print(table([str(x) for x in paths if given.only in str(x)], given.states))


if __name__ == "__main__":
    main()
