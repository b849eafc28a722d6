"""Bodies of all shapes that fall into a box without a lid, by time stepping, beside MuJoCo.

    python benchmarks/piles.py [--bodies 3 6 10] [--shapes box cylinder ellipsoid capsule sphere mesh] [--seconds 1]
                               [--optimized]

Both read the same file and take steps of 1 ms, in one process and in turn; times are processor time a step, medians of
three runs of each after a first one, and "ratio" is the median of ukjax's time over MuJoCo's in the same turn. MuJoCo has
its defaults, with elliptic cones, so that both have Coulomb's friction; its least gap is that after any step, ours that
of 51 saved times. With `--optimized` these runs are by optimized code, as those of long runs are (`uk.optimize_now`).
"load" is without the import of `uk.load`, which is told above the table, as it is once a process.
"contacts" are those closed at the end, of all that there may be; "lost" is the energy that is lost in all.
"""

import argparse
import time
from typing import Any

import _one_thread as _one_thread
import jax
import mujoco
import numpy as np
from _timing import machine

import ukjax as uk

STEP, WALL = 1e-3, 0.35
TURNS = 3


def pile(count: int, shapes: list[str]) -> str:
    """A file with some bodies above a floor, between four walls; they do not overlap at the start."""
    rng = np.random.default_rng(0)
    ball = rng.normal(size=(20, 3))
    vertices = 0.07 * ball / np.linalg.norm(ball, axis=1)[:, None]
    words = lambda x: " ".join(f"{y:.6g}" for y in np.ravel(x))
    bodies = []
    for i in range(count):
        kind = shapes[i % len(shapes)]
        size = rng.uniform(0.04, 0.06, {"sphere": 1, "cylinder": 2, "capsule": 2}.get(kind, 3))
        geom = 'type="mesh" mesh="stone"' if kind == "mesh" else f'type="{kind}" size="{words(size)}"'
        place = (0.22 * (i % 3 - 1), 0.22 * (i // 3 % 3 - 1), 0.15 + 0.22 * (i // 9))
        bodies.append(
            f'<body pos="{words(place)}" quat="{words(rng.normal(size=4))}"><freejoint/><geom {geom}/></body>'
        )
    walls = [
        f'<geom type="plane" size="3 3 .1" pos="{x} {y} 0" zaxis="{-np.sign(x)} {-np.sign(y)} 0"/>'
        for x, y in ((WALL, 0), (-WALL, 0), (0, WALL), (0, -WALL))
    ]
    return f"""<mujoco><option timestep="{STEP}" cone="elliptic"/><default><geom friction=".5"/></default>
      <asset><mesh name="stone" vertex="{words(vertices)}"/></asset>
      <worldbody><geom type="plane" size="5 5 .1"/>{"".join(walls)}{"".join(bodies)}</worldbody></mujoco>"""


def by_mujoco(text: str, steps: int) -> tuple[float, float]:
    """Processor time a step, and the least distance of any contact after any step."""
    model = mujoco.MjModel.from_xml_string(text)
    data, least, spent = mujoco.MjData(model), 0.0, 0.0
    for _ in range(steps):
        began = time.process_time()
        mujoco.mj_step(model, data)
        spent += time.process_time() - began
        least = min(least, min((x.dist for x in data.contact[: data.ncon]), default=0.0))
    return spent / steps, least


def measure(count: int, shapes: list[str], seconds: float, optimized: bool) -> dict[str, Any]:
    """Of one pile."""
    text, steps = pile(count, shapes), round(seconds / STEP)
    began = time.process_time()
    robot = uk.load(text, contact=True, t1=seconds)
    read = time.process_time()
    times = np.linspace(0.0, seconds, 51)
    go = lambda: uk.simulate(robot.problem, contact="steps", dt0=STEP, ts=times)
    go()
    first = time.process_time() - read
    if optimized:
        uk.optimize_now()
    ours, theirs, run, least = list[float](), list[float](), go(), 0.0
    for _ in range(TURNS):
        spent, least = by_mujoco(text, steps)
        ran = time.process_time()
        run = go()
        ours.append((time.process_time() - ran) / steps)
        theirs.append(spent)
    assert run.contacts is not None
    return {
        "bodies": count,
        "contacts": f"{int(np.sum(run.contacts.closed[-1]))} of {len(run.contacts.names)}",
        "load [s]": f"{read - began:.1f}",
        "first run [s]": f"{first:.1f}",
        "step [us]": f"{1e6 * np.median(ours):.0f}",
        "MuJoCo [us]": f"{1e6 * np.median(theirs):.0f}",
        "ratio": f"{np.median(np.divide(ours, theirs)):.2f}",
        "least gap [m]": f"{np.min(run.contacts.gap):.0e}",
        "MuJoCo's [m]": f"{least:.0e}",
        "most gain of energy [J]": f"{max(np.max(np.diff(run.energy)), 0.0):.0e}",
        "lost [J]": f"{run.energy[0] - run.energy[-1]:.0f}",
        "unsolved steps": int(run.stats["num_unsolved_steps"]),
    }


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = ["box", "cylinder", "ellipsoid", "capsule", "sphere", "mesh"]
    parser.add_argument("--bodies", type=int, nargs="+", default=[3, 6, 10], help="how many")
    parser.add_argument("--shapes", nargs="+", default=kinds, choices=kinds, help="one after the other")
    parser.add_argument("--seconds", type=float, default=1.0, help="of motion")
    parser.add_argument("--optimized", action="store_true", help="time optimized code")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    began = time.process_time()
    assert callable(uk.load)  # imported where it is used first
    print(f"{machine()}; import of uk.load {time.process_time() - began:.1f} s")
    rows = [measure(count, given.shapes, given.seconds, given.optimized) for count in given.bodies]
    print("| " + " | ".join(rows[0]) + " |\n" + "|---" * len(rows[0]) + "|")
    for row in rows:
        print("| " + " | ".join(map(str, row.values())) + " |")


if __name__ == "__main__":
    main()
