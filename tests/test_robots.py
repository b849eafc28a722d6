"""Robots from files: motion, energies, places and states against MuJoCo; what files lose; what is done with robots."""

import dataclasses
import json
import math
from pathlib import Path

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import mujoco_reference as reference
import numpy as np
import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

import ukjax as uk
import ukjax.analysis as ua
from ukjax._cli._commands import app
from ukjax._cli._robot_files import _contact

ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
POLYNOMIALS = int(mujoco.__version__.partition(".")[0]) >= 4  # of springs and dampers
STIFF, DAMPED = ("4 5 6", "1 2 3") if POLYNOMIALS else ("4", "1")
MOTOR = 'armature="0.3" damping="0.4 0.5"' if POLYNOMIALS else ""

# All kinds of joints, several on a body, reference angles, springs and dampers on all of them, fixed bodies.
ALL_KINDS = f"""
<mujoco>
  <worldbody>
    <body name="base" pos="0 0 1" euler="20 30 40" gravcomp="0.5">
      <joint type="free" damping="{DAMPED}" stiffness="{STIFF}"/>
      <geom type="capsule" size="0.1 0.2"/>
      <body name="arm" pos="0.3 0 0" euler="10 20 0">
        <joint name="shoulder" type="ball" pos="0 0.1 0" damping="{DAMPED}" stiffness="{STIFF}"/>
        <geom type="capsule" size="0.1 0.3"/>
        <body name="hand" pos="0.2 0.1 0" gravcomp="1">
          <joint name="reach" type="slide" axis="1 1 0" damping="0.3" stiffness="10" springref="0.3"/>
          <joint name="turn" axis="0 1 0" ref="20" armature="0.1" damping="0.1" stiffness="{STIFF}" springref="13"/>
          <joint name="bend" axis="1 0 0.3" pos="0 0 0.2"/>
          <geom type="capsule" size="0.1 0.3"/>
          <site name="tip" pos="0 0 1"/>
          <body name="camera" pos="0.1 0.2 0.3" euler="30 0 20" gravcomp="0.7">
            <geom type="box" size="0.1 0.2 0.3"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="turn" gear="2" {MOTOR}/></actuator>
</mujoco>
"""

ARM = """
<mujoco>
  <worldbody>
    <body name="upper"><joint name="shoulder" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.03"/>
      <body name="lower" pos="0 0 -0.5"><joint name="elbow" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.02"/><site name="hand" pos="0 0 -0.4"/></body></body>
  </worldbody>
  <keyframe><key name="home"/><key name="raised" qpos="1 -0.5" qvel="0.1 0.2"/></keyframe>
</mujoco>
"""

LINK = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="{}" ixy="0" ixz="0" iyz="0"/></inertial>'
URDF = f"""
<robot name="urdf">
  <link name="base">{LINK.format(1)}</link>
  <link name="first">{LINK.format(1.5)}<visual><geometry><mesh filename="package://nowhere/first.dae"/></geometry></visual>
    <collision><geometry><mesh filename="package://nowhere/first.stl"/></geometry></collision></link>
  <link name="second">{LINK.format(1.5)}</link>
  <link name="cover"><collision><geometry><box size="0.1 0.1 0.1"/></geometry></collision></link>
  <joint name="lead" type="revolute"><parent link="base"/><child link="first"/><axis xyz="0 1 0"/>
    <limit effort="10" velocity="3" lower="-1" upper="1"/><dynamics damping="0.1" friction="0.2"/></joint>
  <joint name="follow" type="continuous"><parent link="first"/><child link="second"/><axis xyz="0 1 0"/>
    <origin xyz="0 0 1"/><mimic joint="lead" multiplier="2" offset="0.1"/></joint>
  <joint name="screwed" type="fixed"><parent link="second"/><child link="cover"/></joint>
  <transmission name="belt"/>
</robot>
"""


def states(model: mujoco.MjModel, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    random, found = np.random.default_rng(0), []
    for _ in range(count):
        moved = reference.moved(model, model.qpos0, random.normal(size=model.nv), 1.0)
        found.append((moved, random.normal(size=model.nv)))
    return found


MODELS = {
    "all kinds": (ALL_KINDS, True),
    "all kinds, fixed bodies kept": (ALL_KINDS, False),
    **{name: (str(ASSETS / f"{name}.xml"), True) for name in ("hopper", "ant", "swimmer")},
}


@pytest.mark.parametrize("name", [pytest.param(x, marks=[pytest.mark.slow] * (x == "ant")) for x in MODELS])
def test_a_robot_moves_as_in_mujoco(name: str) -> None:
    source, merged = MODELS[name]
    read = mujoco.MjModel.from_xml_string if "<" in source else mujoco.MjModel.from_xml_path
    model = reference.smooth(read(source))
    model.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    robot = uk.load(model, merge_fixed=merged)

    @jax.jit
    def told(q, v):
        return robot.state_to_mujoco(q, v), robot.points(0.0, q), robot.mechanism.energies(0.0 * q[0], q, v)

    heights = []
    for qpos, qvel in states(model, 3):
        at = reference.data(model, qpos, qvel)
        wanted = reference.acceleration(model, qpos, qvel)
        assert_allclose(robot.acceleration(qpos, qvel), wanted, rtol=0, atol=1e-10 * np.abs(wanted).max())
        q, v = robot.state_from_mujoco(qpos, qvel)
        back, places, energies = jax.device_get(told(q, v))
        for mine, its in zip(back, (qpos, qvel), strict=True):
            assert_allclose(mine, its, rtol=0, atol=1e-13)
        for i in range(1, model.nbody):
            assert_allclose(places[robot.names.bodies[i]], at.xpos[i], rtol=0, atol=1e-12)
        for i in range(model.nsite):
            assert_allclose(places[robot.names.sites[i]], at.site_xpos[i], rtol=0, atol=1e-12)
        kinetic = sum(x for part, x in energies.items() if part.startswith("kinetic"))
        assert_allclose(kinetic, at.energy[1], rtol=1e-12)
        # MuJoCo's energy leaves the compensation of weights out.
        of_mujoco = [part for part in energies if part.startswith("potential") and "compensation" not in part]
        heights.append((sum(energies[part] for part in of_mujoco), at.energy[0]))
    mine, its = np.array(heights).T
    assert_allclose(np.diff(mine), np.diff(its), rtol=1e-10, atol=1e-10)


def test_names_are_those_of_the_file() -> None:
    robot = uk.load(ALL_KINDS)
    assert robot.mechanism.velocity_labels[-6:] == (
        "shoulder wx", "shoulder wy", "shoulder wz", "reach", "turn", "bend",
    )  # fmt: skip
    assert robot.mechanism.labels[:4] == ("base free x", "base free y", "base free z", "base free qw")
    assert robot.names.bodies == ("ground", "base", "arm", "hand", "camera")
    assert set(robot.points(0.0, robot.problem.q0)) == {"base", "arm", "hand", "camera", "tip"}
    assert [body.name for body in robot.mechanism.bodies] == ["base", "arm", "hand"]


@pytest.mark.slow
def test_a_passive_robot_keeps_its_energy() -> None:
    robot = uk.load(str(ASSETS / "ant.xml"))
    undamped = dataclasses.replace(
        robot.mechanism,
        on_coordinates=tuple(x for x in robot.mechanism.on_coordinates if x.name != "joint damping"),
    )
    v0 = jnp.linspace(-1.0, 1.0, 14)
    run = uk.simulate(undamped, robot.problem.q0, v0, t1=1.0, rtol=1e-10, atol=1e-10)
    assert run.ok
    assert run.computed_by.startswith("scalar code")
    assert np.ptp(run.energy) < 1e-8 * np.abs(run.energy[0])
    assert not uk.simulate(robot.mechanism, robot.problem.q0, v0, t1=0.1).energy[-1] >= run.energy[0]


def test_keyframes() -> None:
    raised = uk.load(ARM, keyframe="raised").problem
    assert_allclose((raised.q0, raised.v0), ([1.0, -0.5], [0.1, 0.2]))
    assert_allclose(uk.load(ARM, keyframe=1).problem.q0, raised.q0)
    assert_allclose(uk.load(ARM).problem.q0, 0.0)
    with pytest.raises(uk.InputError, match="unknown keyframe 'raise'; did you mean 'raised'"):
        uk.load(ARM, keyframe="raise")


def test_every_lost_feature_is_told() -> None:
    told = uk.load(str(ASSETS / "hopper.xml")).report
    status = {x.feature: x.status for x in told.features}
    assert status["joint damping"] == status["armature"] == "used"
    assert status["joint limit"] == status["contact with what stands still"] == status["camera"] == "ignored"
    assert "ignored: joint limit (3): thigh_joint" in str(told)
    with pytest.raises(uk.InputError, match=r"joint limit \(ignored"):
        uk.load(str(ASSETS / "hopper.xml"), strict=True)
    uk.load(ARM.replace("<geom ", '<geom contype="0" conaffinity="0" '), strict=True)


@pytest.mark.parametrize("name", ["robotiq_2f85", pytest.param("cassie", marks=pytest.mark.slow)])
def test_strict_is_for_use(name: str) -> None:
    """Exact equalities and rigid stops are no loss; what is left out on purpose is none either."""
    file = str(Path(__file__).parent.parent / "experiments" / "robots" / f"{name}.xml")
    robot = uk.load(file, strict=True, contact=False)
    told = {x.feature: x for x in robot.report.features}
    assert (told["equality connect"].status, told["equality connect"].why) == ("used", "exact, not soft")
    assert (told["joint limit"].status, told["joint limit"].moves) == ("ignored", False)
    outcome = CliRunner().invoke(app, ["load", file, "--strict", "--contact", "limits,self"])
    assert outcome.exit_code == 0
    assert CliRunner().invoke(app, ["load", file, "--strict", "--contact", "none"]).exit_code == 0


def test_what_mujoco_loses_of_a_urdf() -> None:
    robot = uk.load(URDF)
    told = {x.feature: x for x in robot.report.features}
    assert told["velocity limit"].names == told["joint frictionloss"].names == ("lead",)
    assert told["collision mesh"].names == told["visual geometry"].names == ("first",)
    assert (told["mass from geometry"].names, told["mass from geometry"].status) == (
        ("cover",),
        "approximated",
    )
    assert told["transmission"].names == ("belt",)
    (mimic,) = robot.mechanism.constraints
    q = jnp.array([0.3, 0.7])  # follow = 2 lead + 0.1
    assert_allclose(mimic.position_error(jnp.asarray(0.0), q), 0.0, atol=1e-15)
    assert robot.names.bodies[1:] == ("base", "first", "second", "cover")
    assert_allclose(robot.mechanism.bodies[1].mass, 1.0 + 1000 * 0.1**3)

    free = uk.load(URDF, free_base=True)
    assert free.mechanism.velocity_labels[:3] == ("base free x", "base free y", "base free z")
    assert_allclose(free.mechanism.bodies[0].mass, 1.0)
    with pytest.raises(
        uk.InputError, match="free_base needs one body that is fixed to the world; there are 0"
    ):
        uk.load(ALL_KINDS, free_base=True)


def test_inertias_that_no_body_can_have_are_taken_with_a_warning() -> None:
    origin = '<inertial><origin xyz="0 0 0.1" rpy="0.3 0.2 0.1"/>'
    with pytest.warns(UserWarning, match="no body can have the moments of inertia of first"):
        robot = uk.load(URDF.replace(LINK.format(1.5), LINK.format(2.5).replace("<inertial>", origin), 1))
    R = np.zeros(9)
    mujoco.mju_euler2Quat(turned := np.zeros(4), np.array([0.3, 0.2, 0.1]), "XYZ")
    mujoco.mju_quat2Mat(R, turned)
    R = R.reshape(3, 3)
    assert_allclose(robot.mechanism.bodies[0].inertia, R @ np.diag([1.0, 1.0, 2.5]) @ R.T, atol=1e-14)


def test_meshes_that_are_not_there(tmp_path: Path) -> None:
    body = '<body name="a"><joint/>{}<geom type="mesh" mesh="lost"/></body>'
    text = f'<mujoco><asset><mesh name="lost" file="lost.stl"/></asset><worldbody>{body}</worldbody></mujoco>'
    file = tmp_path / "robot.xml"
    file.write_text(text.format('<inertial pos="0 0 -1" mass="2" diaginertia="1 1 1"/>'))
    robot = uk.load(file)
    assert {x.feature: x.names for x in robot.report.features}["missing file of a mesh"] == ("lost",)
    assert_allclose(robot.mechanism.bodies[0].mass, 2.0)
    told = {x.feature: x.names for x in uk.load(file, contact=True).report.of("ignored")}
    assert told["shape that touches"] == ("a",)
    file.write_text(text.format(""))
    with pytest.raises(uk.InputError, match="the mass of body 'a' follows from mesh 'lost'"):
        uk.load(file)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.xml", "there is no file 'nowhere.xml'"),
        (str(ASSETS), "is a folder"),
        (str(ASSETS.parent / "ant_v5.py"), "MuJoCo cannot read"),
        ("<mujoco><worldbdy/></mujoco>", "MuJoCo cannot read a text: .*worldbdy"),
        ("<mujoco/>", "nothing can move"),
        ("<robot name='r'><link name='a'/><link name='b'/></robot>", "one root link"),
        (3, "a robot must be something like the path"),
    ],
)
def test_what_is_no_robot(source: object, message: str) -> None:
    with pytest.raises(uk.InputError, match=message):
        uk.load(source)


def test_shapes_are_checked() -> None:
    with pytest.raises(uk.InputError, match=r"qpos has shape \(3,\); this robot needs \(2,\)"):
        uk.load(ARM).acceleration(np.zeros(3), np.zeros(2))


def test_many_states_at_once() -> None:
    robot, model = uk.load(ARM), mujoco.MjModel.from_xml_string(ARM)
    qpos, qvel = map(np.stack, zip(*states(model, 4), strict=True))
    found = jax.jit(jax.vmap(robot.acceleration))(qpos, qvel)
    wanted = [reference.acceleration(model, *state) for state in zip(qpos, qvel, strict=True)]
    assert_allclose(found, wanted, rtol=1e-11)


@pytest.mark.slow
def test_the_derivative_of_a_run_by_a_mass() -> None:
    robot = uk.load(ARM)

    def end(mass: jax.Array) -> jax.Array:
        system = eqx.tree_at(lambda x: x.mechanism.bodies[1].mass, robot.mechanism, mass)
        run = uk.simulate(system, jnp.array([1.0, 0.5]), jnp.zeros(2), t1=0.5, rtol=1e-10, atol=1e-10)
        return robot.points(0.5, run.q[-1])["hand"][0]

    mass, h = robot.mechanism.bodies[1].mass, 1e-4
    wanted = (end(mass + h) - end(mass - h)) / (2 * h)
    assert_allclose(jax.grad(end)(mass), wanted, rtol=1e-6)


@pytest.mark.slow
def test_a_sweep_of_a_robot() -> None:
    problem = uk.load(ARM).problem
    runs = uk.sweep(
        lambda elbow: dataclasses.replace(problem, q0=problem.q0.at[1].set(elbow)),
        {"elbow": np.linspace(0.1, 0.5, 3)},
        t1=0.2,
    )
    assert runs.sizes["elbow"] == 3
    assert (runs["result"] == 0).all()


def test_the_command_line_takes_files(tmp_path: Path) -> None:
    file = tmp_path / "arm.xml"
    file.write_text(ARM)
    told = CliRunner().invoke(app, ["load", str(file), "--json"])
    assert json.loads(told.stdout)["coordinates"] == ["shoulder", "elbow"]
    run = CliRunner().invoke(
        app, ["simulate", str(file), "--set", "shoulder=1", "--set", "elbow_rate=2", "--t1", "0.1", "--json"]
    )
    figures = json.loads(run.stdout)
    assert figures["result"] == "successful"
    assert math.hypot(*figures["points"]["lower"]) == pytest.approx(0.5)


def test_a_linear_model_has_the_files_actuators_as_inputs():
    """B of joints, a servo and a site against differences of the acceleration; frames by the names of sites."""
    robot = uk.load(
        """
        <mujoco><worldbody>
          <body name="upper"><joint name="shoulder" axis="0 1 0"/>
            <geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.03"/><site name="tip" pos="0.3 0 0"/>
          </body>
        </worldbody><actuator>
          <motor name="lift" joint="shoulder" gear="20"/>
          <position name="bend" joint="shoulder" kp="30"/>
          <motor name="push" site="tip" gear="0 0 1 0 0 0"/>
        </actuator></mujoco>"""
    )
    given, h = np.array([0.3, 0.2, -0.1]), 1e-4
    robot = robot.with_inputs(given)
    found = ua.linearize(robot.problem, outputs=["tip"])
    assert found.inputs == ("lift", "bend", "push")
    qpos, qvel = robot.state_to_mujoco(robot.problem.q0, robot.problem.v0)
    qacc = lambda ctrl: np.asarray(robot.acceleration(qpos, qvel, ctrl=ctrl))
    wanted = np.array([(qacc(given + h * e) - qacc(given - h * e)) / (2 * h) for e in np.eye(3)]).T
    np.testing.assert_allclose(found.B[1:], wanted, rtol=1e-8)
    np.testing.assert_array_equal(
        found.C, np.hstack([ua.jacobian(robot.problem, "tip").linear, np.zeros((3, 1))])
    )


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", None), ("none", False), ("False", False), ("all", True), ("true", True), ("limits", ["limits"]),
        ('["limits", "friction"]', ["limits", "friction"]), ("foot:floor", [("foot", "floor")]), ("[]", []),
    ],
)  # fmt: skip
def test_words_of_the_command_line_are_those_of_load(text, kept):
    assert _contact(text) == kept
