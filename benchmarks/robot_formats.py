"""Robot files of all formats: which load, and why others do not.

Tries `uk.load` on every SDF, USD, URDF and YAML file below some folders, and prints how many of each kind load, how many
have nothing that moves, and the reasons of the others. Nothing is simulated.

    python benchmarks/robot_formats.py FOLDER... [--all] [--kilobytes 1000]
    python benchmarks/robot_formats.py FOLDER... --drake

With `--drake` it compares SDF files with Drake's parser (`pip install drake`) instead, at random angles and slides: the
mass matrix and the forces of gravity on hinges and slides, relative to the largest. And it compares accelerations of a
URDF with each of Drake's own joints, and a linear bushing.

Where to get files: clones of RobotLocomotion/drake, gazebosim/gz-sim, gazebosim/sdformat, newton-physics/newton and
Gepetto/example-parallel-robots.
"""

import argparse
import collections
import contextlib
import re
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk
import ukjax.mechanisms as um

ENDINGS = (".sdf", ".usd", ".usda", ".usdc", ".urdf", ".dmd.yaml", "robot.yaml")
IMMOBILE = ("has no joint", "has no link", "has no rigid body")


def outcome(path: Path) -> str:
    """What became of a file, in words."""
    try:
        uk.load(path)
    except uk.InputError as error:
        words = str(error).replace(str(path), "it")
        return "nothing moves" if any(x in words for x in IMMOBILE) else words
    return "loads"


def beside_drake(path: Path, folder: Path) -> float | None:
    """The largest difference of masses and gravity forces; None where one of both does not load, or nothing turns or
    slides."""
    from pydrake.multibody.parsing import Parser
    from pydrake.multibody.plant import MultibodyPlant

    plant = MultibodyPlant(0.0)
    parser = Parser(plant)
    for package in folder.rglob("package.xml"):
        with contextlib.suppress(RuntimeError):  # two of the same name
            parser.package_map().AddPackageXml(str(package))
    try:
        parser.AddModels(str(path))
        plant.Finalize()
        robot = uk.load(path)
    except (uk.InputError, RuntimeError):
        return None
    tree, context = robot.mechanism, plant.CreateDefaultContext()
    q, q_drake = np.array(tree.q0), plant.GetPositions(context).copy()
    ours, theirs, rng = [], [], np.random.default_rng(0)
    for index in plant.GetJointIndices():
        joint = plant.get_joint(index)
        model = plant.GetModelInstanceName(joint.model_instance())
        names = {joint.name(), f"{model}::{joint.name()}"} & set(tree.labels)
        if joint.type_name() not in ("revolute", "prismatic") or len(names) != 1:
            continue
        label = names.pop()
        q[tree.labels.index(label)] = q_drake[joint.position_start()] = rng.uniform(-0.5, 0.5)
        ours.append(tree.velocity_labels.index(label))
        theirs.append(joint.velocity_start())
    if not ours:
        return None
    plant.SetPositions(context, q_drake)
    zero, still = jnp.asarray(0.0), jnp.zeros(len(tree.velocity_labels))
    by_gravity = next((x for x in tree.loads if x.name == "gravity"), None)
    bare = um.tree(tree.bodies, tree.joints[: len(tree.bodies)], [] if by_gravity is None else [by_gravity])
    M, Q = bare.mass_matrix(zero, jnp.asarray(q)), bare.force(zero, jnp.asarray(q), still)
    plant.mutable_gravity_field().set_gravity_vector([0, 0, 0] if by_gravity is None else by_gravity.g)
    M_drake, Q_drake = plant.CalcMassMatrix(context), plant.CalcGravityGeneralizedForces(context)
    pairs = (M[np.ix_(ours, ours)], M_drake[np.ix_(theirs, theirs)]), (Q[np.array(ours)], Q_drake[theirs])
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1.0)) for a, b in pairs)


OWN = """<robot name="own">{}
  <joint name="root" type="fixed"><parent link="world"/><child link="base"/></joint>
  <drake:joint name="plane" type="planar"><parent link="base"/><child link="a"/>
    <origin xyz="0.1 0.2 0.3" rpy="0.4 0 0.1"/><axis xyz="0 1 0"/><dynamics damping="0.1 0.2 0.3"/></drake:joint>
  <drake:joint name="cross" type="universal"><parent link="a"/><child link="b"/>
    <origin xyz="0.1 0.2 0.3" rpy="0.4 0 0.1"/><dynamics damping="0.4"/></drake:joint>
  <drake:joint name="ball" type="ball"><parent link="b"/><child link="c"/><origin xyz="0.1 0.2 0.3"/>
    <dynamics damping="0.5"/></drake:joint>
  <drake:joint name="screw" type="screw"><parent link="c"/><child link="d"/><axis xyz="0 0 2"/>
    <drake:screw_thread_pitch value="0.5"/></drake:joint>
  <frame name="A" link="a" xyz="0.1 0.2 0.3" rpy="0 0.3 0"/><frame name="C" link="d" xyz="0 0.1 0" rpy="0.1 0 0.4"/>
  <drake:linear_bushing_rpy><drake:bushing_frameA name="A"/><drake:bushing_frameC name="C"/>
    <drake:bushing_torque_stiffness value="1 2 3"/><drake:bushing_torque_damping value="0.4 0.5 0.6"/>
    <drake:bushing_force_stiffness value="7 8 9"/><drake:bushing_force_damping value="0.7 0.8 0.9"/>
  </drake:linear_bushing_rpy></robot>"""
LINK = """<link name="{0}"><inertial><origin xyz="{1} 0 0"/><mass value="{1}"/>
  <inertia ixx="0.02" iyy="0.025" izz="0.03" ixy="0" ixz="0" iyz="0"/></inertial></link>"""


def own_elements_of_drake() -> float:
    """The largest difference of accelerations, of a URDF with Drake's own joints and a linear bushing."""
    from pydrake.multibody.parsing import Parser
    from pydrake.multibody.plant import MultibodyPlant
    from scipy.spatial.transform import Rotation

    masses = {"base": 0.2, "a": 0.3, "b": 0.5, "c": 0.7, "d": 0.9}
    text, plant = OWN.format("".join(LINK.format(*x) for x in masses.items())), MultibodyPlant(0.0)
    Parser(plant).AddModelsFromString(text, "urdf")
    plant.Finalize()
    context, rng = plant.CreateDefaultContext(), np.random.default_rng(0)
    q, v = 0.3 * rng.normal(size=9), rng.normal(size=9)  # plane 3, cross 2, ball 3, screw 1
    plant.SetPositions(context, q)
    plant.SetVelocities(context, v)
    theirs = plant.get_generalized_acceleration_output_port().Eval(context)
    ball, advance = Rotation.from_euler("xyz", q[5:8]), 0.5 / (2 * np.pi)
    qpos = [*q[:5], *ball.as_quat(scalar_first=True), q[8], advance * q[8]]
    qvel = [*v[:5], *ball.inv().apply(v[5:8]), v[8], advance * v[8]]
    ours = np.array(uk.load(text).acceleration(np.array(qpos), np.array(qvel)))
    return float(np.abs(np.concatenate([ours[:5], ball.apply(ours[5:8]), ours[8:9]]) - theirs).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--all", action="store_true", help="print every reason, with its file")
    parser.add_argument("--kilobytes", type=int, default=1000, help="leave out larger files of SDF and URDF")
    parser.add_argument("--drake", action="store_true", help="compare SDF files with Drake's parser")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    if arguments.drake:
        print(f"Drake's own joints and a bushing: accelerations differ by {own_elements_of_drake():.0e}")
    for folder in arguments.folders:
        files = sorted(x for x in folder.rglob("*") if x.name.endswith(ENDINGS))
        heavy = lambda x: x.suffix in (".sdf", ".urdf") and x.stat().st_size > 1000 * arguments.kilobytes
        files = [x for x in files if not heavy(x)]
        if arguments.drake:
            found = {x: beside_drake(x, folder) for x in files if x.suffix == ".sdf"}
            off = {x: error for x, error in found.items() if error is not None}
            print(
                f"{folder.name}: {len(off)} files compared, {sum(x < 1e-12 for x in off.values())} agree to 1e-12"
            )
            for x, error in off.items():
                if not error < 1e-12:
                    print(f"  {error:.1e}  {x}")
            continue
        by_kind: dict[str, collections.Counter[str]] = {}
        for file in files:
            words = outcome(file)
            if arguments.all and words not in ("loads", "nothing moves"):
                print(f"{file}: {words}")
            brief = (
                words if words in ("loads", "nothing moves") else re.sub(r"'[^']*'|/[^ ]*", "...", words)[:60]
            )
            by_kind.setdefault(next(x for x in ENDINGS if file.name.endswith(x)), collections.Counter())[
                brief
            ] += 1
        for kind, counts in by_kind.items():
            print(f"{folder.name} {kind}: {sum(counts.values())} files")
            for words, count in counts.most_common(8):
                print(f"  {count:4d}  {words}")


if __name__ == "__main__":
    main()
