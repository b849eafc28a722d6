"""An Allegro hand that turns a cube in its palm by time steps, and derivatives of that.

The hand lies with its palm up. Springs and dampers in its joints close two fingers, whose tips push the cube about. After
some steps the derivative of its place and turn by a start angle of the finger, by a spring's target and by the friction is
taken by `contact="differentiated steps"`, and compared with central differences of the same steps, whose own error is told
by differences of half the length. Steps of the same modes of contact (closed, sliding) have a derivative; where a contact
changes its mode within a difference they have a kink, and the table says so.

    python benchmarks/allegro_cube.py FOLDER [--steps 1 5 20 100 300]

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
LENGTH = 1e-6  # of a difference


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
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 5, 20, 100])
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    robot = hand(given.folder)
    labels, p = robot.mechanism.labels, robot.problem
    before = uk.simulate(p, contact="steps", dt0=STEP, t1=BEFORE, ts=[BEFORE])
    times, finger, cube = STEP * np.array(given.steps), labels.index("joint_1.0"), labels.index("cube free z")
    friction = robot.parameters["friction"]
    names = [name for name in friction if "cube" in name]
    print(
        f"pushing from {BEFORE} s on; contacts: {[n for n, c in zip(before.contacts.names, before.contacts.closed[-1], strict=True) if c]}"
    )

    def moved(x: Any, contact: str = "differentiated steps") -> Any:
        """Place along the push and turn of the cube, of the start angle of the finger, its place and the friction."""
        own = robot.with_parameters(friction={name: friction[name] + x[2] for name in names})
        q0 = jnp.asarray(before.q_end).at[jnp.array([finger, cube])].add(x[:2])
        run = uk.simulate(
            own.problem.system, q0, before.v[-1], t1=float(times[-1]), ts=times, contact=contact, dt0=STEP
        )
        return jnp.stack([run.q[:, cube], 2 * run.q[:, cube + 2]], 1), (
            run.contacts.closed,
            run.contacts.sliding,
        )

    both = jax.jit(lambda x, d: jax.jvp(moved, (x,), (d,), has_aux=True))
    zero = jnp.zeros(3)
    print(
        "| by | steps | d place | less differences | d turn | less differences | error of differences | same modes |"
    )
    print("|---|---|---|---|---|---|---|---|")
    value = jax.jit(moved)
    for k, name in enumerate(("the finger's angle", "the cube's place", "friction")):
        d = jnp.eye(3)[k]
        _, slope, modes = both(zero, d)
        by = []
        for length in (LENGTH, 0.5 * LENGTH):
            ends = [value(zero + s * length * d) for s in (-1, 1)]
            by.append((ends[1][0] - ends[0][0]) / (2 * length))
        same = [
            all(np.array_equal(a[i], b[i]) for e in ends for a, b in zip(e[1], modes, strict=True))
            for i in range(len(times))
        ]
        for i, steps in enumerate(given.steps):
            off, own = np.abs(slope[i] - by[1][i]), np.abs(by[1][i] - by[0][i]).max()
            print(
                f"| {name} | {steps} | {slope[i, 0]:.6f} | {off[0]:.0e} | {slope[i, 1]:.6f} | {off[1]:.0e} | {own:.0e} | {same[i]} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
