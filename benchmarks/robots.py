"""Robots from files beside MuJoCo and Pinocchio: one acceleration, on one core, in one process, in turn.

    python benchmarks/robots.py FILE... [--batch 256 1024] [--rounds 7] [--free-base] [--first [--limits]]

ukjax computes a batch of random states by scalar code; MuJoCo goes through the same states with `mj_forward` and
`mj_step` (Euler), with contacts, limits and dry friction off and its soft equalities on; Pinocchio, where it is
installed, with `aba`, or with `constraintDynamics` where the file has connects, from a model rebuilt of MuJoCo's joint by
joint, called from Python and from C++ (`_pinocchio.cpp`). The times are processor time. With `--first` instead: `load`,
the first run of 0.1 s and the first batch, each in a process of its own, nothing cached; with `--limits` too, the first
run of the robot with the limits of its joints, event by event.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import _one_thread as _one_thread
import jax
import jax.numpy as jnp
import numpy as np
from _robot_pinocchio import accelerations, prepare_accelerations_in_cpp
from _timing import machine, pinned, table

import ukjax as uk

SIZE = 0.1  # of the random displacements and velocities


def states(model: Any, qpos: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Random states around one: qpos and qvel.

    **Arguments:**

    - `model`: MuJoCo's.
    - `qpos`: its coordinates there.
    - `count`: how many.
    """
    import mujoco

    rng, found = np.random.default_rng(0), []
    for _ in range(count):
        moved = qpos.copy()
        mujoco.mj_integratePos(model, moved, rng.normal(size=model.nv), SIZE)
        found.append(moved)
    return np.array(found), SIZE * rng.normal(size=(count, model.nv))


def of_mujoco(model: Any, function: Any, qpos: np.ndarray, qvel: np.ndarray) -> Callable[[], None]:
    """What evaluates a function of MuJoCo at all states."""
    import mujoco

    data = mujoco.MjData(model)

    def run() -> None:
        for q, v in zip(qpos, qvel, strict=True):
            data.qpos[:], data.qvel[:] = q, v
            function(model, data)

    return run


def cases(file: str, free_base: bool, batches: list[int]) -> Iterator[tuple[str, int, Callable[[], object]]]:
    """What is measured: its name, for how many states, and a call."""
    import mujoco

    from ukjax.robots._contact_selection import read_contact_selection
    from ukjax.robots._source import read

    model = read(file, free_base, read_contact_selection(None, None, None)).model
    off = (mujoco.mjtDisableBit.mjDSBL_CONTACT, mujoco.mjtDisableBit.mjDSBL_LIMIT)
    for flag in (*off, mujoco.mjtDisableBit.mjDSBL_FRICTIONLOSS):
        model.opt.disableflags |= int(flag)
    robot = uk.load(model)
    start = np.array(robot.state_to_mujoco(robot.problem.q0, robot.problem.v0)[0])
    qpos, qvel = states(model, start, max(batches))
    yield "mj_forward", 256, of_mujoco(model, mujoco.mj_forward, qpos[:256], qvel[:256])
    yield "mj_step", 256, of_mujoco(model, mujoco.mj_step, qpos[:256], qvel[:256])
    name, call = accelerations(model, qpos[:256], qvel[:256])
    if call is not None:
        yield name, 256, call
    call = prepare_accelerations_in_cpp(model, qpos[:256], qvel[:256])
    if call is not None:
        yield f"{name}, C++", 256, call
    lanes = uk.lanes(robot.problem)
    acceleration = jax.jit(lambda t, q, v: lanes(t, q, v))
    q, v = jax.vmap(robot.state_from_mujoco)(jnp.asarray(qpos), jnp.asarray(qvel))
    for batch in batches:
        few = q[:batch], v[:batch]
        yield (
            f"ukjax, {batch}",
            batch,
            lambda few=few: jax.block_until_ready(acceleration(jnp.asarray(0.0), *few)),
        )


def measured(file: str, free_base: bool, batches: list[int], rounds: int) -> dict[str, float]:
    """Microseconds of processor time of one state."""
    every = list(cases(file, free_base, batches))
    for _, _, call in every:
        call()
    uk.optimize_now()
    found: dict[str, list[float]] = {name: [] for name, _, _ in every}
    with pinned(1):
        for _ in range(rounds):
            for name, count, call in every:
                begin, repeats = time.process_time(), max(1, 2048 // count)
                for _ in range(repeats):
                    call()
                found[name].append(1e6 * (time.process_time() - begin) / (repeats * count))
    return {name: float(np.median(times)) for name, times in found.items()}


def first(file: str, free_base: bool, limits: bool) -> dict[str, float]:
    """Seconds of processor time: to load, for the first run, and, without limits, for the first batch of 256."""
    begin = time.process_time()
    robot = uk.load(file, free_base=free_base, contact=["limits"] if limits else None)
    loaded = time.process_time()
    jax.block_until_ready(uk.simulate(robot.problem, t1=0.1).q)
    run = time.process_time()
    if limits:
        return {"load": loaded - begin, "first run, limits": run - loaded}
    q, v = (jnp.tile(x, (256, 1)) for x in (robot.problem.q0, robot.problem.v0))
    lanes = uk.lanes(robot.problem)
    jax.block_until_ready(jax.jit(lambda t, q, v: lanes(t, q, v))(jnp.asarray(0.0), q, v))
    end = time.process_time()
    return {"load": loaded - begin, "first run": run - loaded, "first batch": end - run}


def main() -> None:
    """Measures the files given."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--batch", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--free-base", action="store_true", help="for URDFs of walking robots")
    parser.add_argument("--first", action="store_true", help="first calls in place of later ones")
    parser.add_argument("--limits", action="store_true", help="first calls with the limits of joints")
    parser.add_argument("--one", action="store_true", help="the first calls here, printed as JSON")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    if given.one:
        print(json.dumps(first(given.files[0], given.free_base, given.limits)))
        return
    rows = {}
    for file in given.files:
        if given.first:
            options = [*["--free-base"] * given.free_base, *["--limits"] * given.limits]
            command = [sys.executable, __file__, file, "--one", *options]
            rows[file] = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout
            )
        else:
            rows[file] = measured(file, given.free_base, given.batch, given.rounds)
        print(Path(file).stem, {name: round(x, 2) for name, x in rows[file].items()}, flush=True)
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    print(machine())
    print(
        table(columns, {Path(file).stem: [row.get(x, np.nan) for x in columns] for file, row in rows.items()})
    )


if __name__ == "__main__":
    main()
