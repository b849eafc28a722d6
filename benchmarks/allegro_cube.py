"""An Allegro hand that turns a cube in its palm by time steps, and derivatives of that.

The hand lies with its palm up. Springs and dampers in its joints close two fingers, whose tips push the cube about. From
when one pushes on, the derivative of the cube's turn after some steps by the finger's angle, by the cube's place and by
the friction is taken by `contact="differentiated steps"`, beside forward and backward differences of the same steps.
Where contacts open, close, stick or slide at other steps a moment later, steps have a kink, and no derivative.

    python benchmarks/allegro_cube.py FOLDER [--steps 1 2 5 20 50]

FOLDER has the package `example-robot-data`, unpacked, as for `robot_files.py`.
"""

import argparse
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk

FILE = "cmeel.prefix/share/example-robot-data/robots/allegro_hand_description/urdf/allegro_right_hand.urdf"
HALF, STEP = 0.03, 1e-3
CLOSED = {
    "joint_1.0": 0.3,
    "joint_2.0": 1.7,
    "joint_3.0": 1.2,
    "joint_5.0": 0.2,
    "joint_6.0": 1.4,
    "joint_7.0": 0.8,
}
PAIRS = [(part, "cube") for part in ("palm_link", "link_3.0_tip", "link_7.0_tip")]
BEFORE = 0.11  # when a finger pushes [s]
LENGTH = 1e-6  # of a difference, in each unit


def hand(folder: Path) -> Any:
    """The hand with a cube on its palm."""
    import mujoco

    root = ElementTree.parse(next(folder.rglob(Path(FILE).name))).getroot()
    for link in root.findall("link"):
        for visual in link.findall("visual"):
            link.remove(visual)
    extension = ElementTree.SubElement(root, "mujoco")
    ElementTree.SubElement(extension, "compiler", fusestatic="false", balanceinertia="true")
    spec = mujoco.MjSpec.from_string(ElementTree.tostring(root, encoding="unicode"))
    spec.option.gravity = [-9.81, 0, 0]
    for joint in spec.joints:
        joint.stiffness, joint.damping = [2.0, 0, 0], [0.1, 0, 0]
        joint.springref = CLOSED.get(joint.name, 0.0)
    cube = spec.worldbody.add_body(name="cube", pos=[0.0111 + HALF, 0.02, -0.005])
    cube.add_freejoint()
    cube.add_geom(name="cube", type=mujoco.mjtGeom.mjGEOM_BOX, size=[HALF] * 3, mass=0.1)
    for geom in spec.geoms:
        geom.friction = [0.2, 0, 0]
    return uk.load(spec.compile(), contact=PAIRS, t1=0.5)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 2, 5, 20, 50])
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    robot = hand(given.folder)
    labels, p = robot.mechanism.labels, robot.problem
    before = uk.simulate(p, contact="steps", dt0=STEP, t1=BEFORE, ts=[BEFORE])
    times, finger, cube = STEP * np.array(given.steps), labels.index("joint_1.0"), labels.index("cube free z")
    friction = robot.parameters["friction"]
    names = [name for name in friction if "cube" in name]

    def moved(x: Any) -> Any:
        """The turn of the cube after some steps, by changes of a start angle, of its place and of the friction; and which
        contacts are closed and slide."""
        own = robot.with_parameters(friction={name: friction[name] + x[2] for name in names})
        q0 = jnp.asarray(before.q_end).at[jnp.array([finger, cube])].add(x[:2])
        options = {"t1": float(times[-1]), "ts": times, "contact": "differentiated steps", "dt0": STEP}
        run = uk.simulate(own.problem.system, q0, before.v[-1], **options)
        return 2 * run.q[:, cube + 2], (run.contacts.closed.astype(float), run.contacts.sliding.astype(float))

    value, both = jax.jit(moved), jax.jit(lambda x, d: jax.jvp(moved, (x,), (d,)))
    print("| by | steps | derivative | forward difference | backward | modes change |")
    print("|---|---|---|---|---|---|")
    for k, name in enumerate(("the finger's angle", "the cube's place [rad/m]", "friction")):
        d = jnp.eye(3)[k]
        (here, modes), (slope, _) = both(jnp.zeros(3), d)
        ends = {sign: value(sign * LENGTH * d) for sign in (1, -1)}
        for i, steps in enumerate(given.steps):
            found = [f"{sign * (end[i] - here[i]) / LENGTH:.5f}" for sign, (end, _) in ends.items()]
            other = any(
                np.any(x[i] != y[i]) for _, own in ends.values() for x, y in zip(own, modes, strict=True)
            )
            print(
                f"| {name} | {steps} | {slope[i]:.5f} | {' | '.join(found)} | {'yes' * other} |", flush=True
            )


if __name__ == "__main__":
    main()
