"""Sensors of robot files: every kind against MuJoCo's `sensordata`, runs against statics, and what is told of the rest.

MuJoCo's constraints are soft, so the acceleration is one of MuJoCo's own, handed to both, unless a test says otherwise.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import mujoco_reference as reference
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.interpolate import CubicSpline

import ukjax as uk

FRAMES = "".join(
    f"""
    <framepos objtype="{kind}" objname="{name}"/> <framepos objtype="{kind}" objname="{name}" {ref}/>
    <framequat objtype="{kind}" objname="{name}"/> <framequat objtype="{kind}" objname="{name}" {ref}/>
    <framexaxis objtype="{kind}" objname="{name}"/> <frameyaxis objtype="{kind}" objname="{name}" {ref}/>
    <framezaxis objtype="{kind}" objname="{name}"/>
    <framelinvel objtype="{kind}" objname="{name}"/> <framelinvel objtype="{kind}" objname="{name}" {ref}/>
    <frameangvel objtype="{kind}" objname="{name}"/> <frameangvel objtype="{kind}" objname="{name}" {ref}/>
    <framelinacc objtype="{kind}" objname="{name}"/> <frameangacc objtype="{kind}" objname="{name}"/>"""
    for kind, name, ref in (
        ("body", "hand", 'reftype="site" refname="post"'),
        ("xbody", "hand", 'reftype="body" refname="base"'),
        ("geom", "finger", 'reftype="camera" refname="eye"'),
        ("site", "tip", 'reftype="xbody" refname="arm"'),
        ("camera", "eye", 'reftype="geom" refname="finger"'),
        ("site", "post", 'reftype="site" refname="tip"'),
    )
)
EVERY_FRAME = f"""
<mujoco>
  <option gravity="0.3 -0.2 -9.5" magnetic="0.1 0.4 -0.3"/>
  <worldbody>
    <site name="post" pos="0.2 0.3 0.1" euler="10 20 30"/>
    <body name="base" pos="0 0 1" euler="20 30 40">
      <freejoint/>
      <inertial pos="0.01 0.02 0.03" mass="2" fullinertia="0.02 0.03 0.04 0.001 0.002 0.003"/>
      <site name="imu" pos="0.1 0.2 -0.1" euler="40 10 0"/>
      <body name="arm" pos="0.3 0 0" euler="10 20 0">
        <joint name="shoulder" type="ball" pos="0 0.1 0"/>
        <geom type="capsule" size="0.1 0.3"/>
        <camera name="eye" pos="0 0.1 0.2" euler="30 20 10" fovy="40" resolution="640 480"/>
        <camera name="sharp" euler="10 0 0" resolution="320 200" focal="0.01 0.012" sensorsize="0.02 0.015"/>
        <body name="hand" pos="0.2 0.1 0">
          <joint name="reach" type="slide" axis="1 1 0"/>
          <joint name="turn" axis="0 1 0" ref="20"/>
          <geom name="finger" type="box" pos="0.1 0 0" euler="0 30 0" size="0.1 0.05 0.02"/>
          <site name="tip" pos="0 0 1" euler="5 6 7"/>
          <body name="cap" pos="0.1 0.2 0.3" euler="30 0 20">
            <geom type="box" size="0.1 0.2 0.3"/> <site name="wrist" pos="0 0.1 0" euler="0 0 50"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <sensor>
    <gyro site="imu"/> <accelerometer name="acc" site="imu"/> <velocimeter site="imu"/> <magnetometer site="imu"/>
    <gyro site="post"/> <accelerometer site="post"/>
    <force site="tip"/> <torque site="tip"/> <force site="wrist"/> <torque site="wrist"/>
    <force site="imu"/> <torque site="imu"/> <force site="post"/> <torque site="post"/>
    <jointpos joint="reach"/> <jointpos joint="turn"/> <jointvel joint="turn"/>
    <ballquat joint="shoulder"/> <ballangvel joint="shoulder"/>
    <subtreecom body="hand"/> <subtreelinvel body="hand"/> <subtreeangmom body="hand"/>
    <subtreecom body="cap"/> <subtreelinvel body="cap"/> <subtreeangmom body="cap"/>
    <subtreecom body="base"/> <subtreeangmom body="base"/> <subtreelinvel body="world"/>
    <camprojection site="tip" camera="eye"/> <camprojection site="imu" camera="sharp"/>
    <clock/> <e_potential/> <e_kinetic/> {FRAMES}
  </sensor>
</mujoco>
"""

DRIVEN = """
<mujoco>
  <option><flag contact="disable"/></option>
  <worldbody>
    <geom type="box" size="0.1 0.1 0.1" mass="3" pos="0 0 0.5"/>
    <site name="wall" pos="0.4 0 0.5"/>
    <body name="stand" pos="1 0 0"><geom type="sphere" size="0.1"/></body>
    <body pos="0 0 1">
      <joint name="hinge" axis="0 1 0" range="-20 30" armature="0.1" stiffness="3" springref="10" limited="true"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.05"/> <site name="elbow" pos="0.1 0 -0.3"/>
      <body pos="0 0 -0.5">
        <joint name="slide" type="slide" axis="1 0 0" range="-0.1 0.1" margin="0.03" limited="true"/>
        <geom type="sphere" size="0.1"/> <site name="ball" pos="0 0.1 0"/>
        <body pos="0 0 -0.3"><joint name="loose" type="ball" range="0 25" limited="true" margin="0.1"/>
          <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.04"/> <site name="toe" pos="0 0 -0.3"/></body>
      </body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="sum" range="-0.2 0.1" limited="true" stiffness="2"><joint joint="hinge" coef="0.5"/>
      <joint joint="slide" coef="-2"/></fixed>
    <spatial name="rope" range="0.1 0.5" limited="true" margin="0.05" stiffness="5" springlength="0.2">
      <site site="wall"/> <site site="elbow"/> <site site="ball"/></spatial>
  </tendon>
  <actuator>
    <motor name="motor" joint="hinge" gear="3"/>
    <position name="servo" joint="slide" kp="20" kv="2" forcerange="-3 3"/>
    <motor name="pull" tendon="rope" gear="2"/>
    <motor name="pulled" tendon="sum"/> <motor name="second" tendon="rope" gear="-1"/>
    <motor name="thrust" site="toe" gear="1 2 3 0.1 0.2 0.3"/>
    <motor name="twist" joint="loose" gear="1 2 3"/>
  </actuator>
  <sensor>
    <tendonpos tendon="sum"/> <tendonvel tendon="sum"/> <tendonpos tendon="rope"/> <tendonvel tendon="rope"/>
    <actuatorpos actuator="motor"/> <actuatorvel actuator="motor"/> <actuatorfrc actuator="motor"/>
    <actuatorpos actuator="servo"/> <actuatorvel actuator="servo"/> <actuatorfrc actuator="servo"/>
    <actuatorpos actuator="pull"/> <actuatorvel actuator="pull"/> <actuatorfrc actuator="pull"/>
    <actuatorpos actuator="thrust"/> <actuatorvel actuator="thrust"/> <actuatorfrc actuator="thrust"/>
    <actuatorpos name="angle" actuator="twist"/> <actuatorvel actuator="twist"/>
    <jointactuatorfrc joint="hinge"/> <jointactuatorfrc joint="slide"/>
    <tendonactuatorfrc tendon="rope"/> <tendonactuatorfrc tendon="sum"/>
    <jointlimitpos joint="hinge"/> <jointlimitvel joint="hinge"/>
    <jointlimitpos joint="slide"/> <jointlimitvel joint="slide"/>
    <jointlimitpos joint="loose"/> <jointlimitvel joint="loose"/>
    <tendonlimitpos tendon="sum"/> <tendonlimitvel tendon="sum"/>
    <tendonlimitpos tendon="rope"/> <tendonlimitvel tendon="rope"/>
    <e_potential/> <e_kinetic/> <subtreecom body="world"/>
  </sensor>
</mujoco>
"""

TETRAHEDRON = 'vertex="0 0 0 0.4 0 0 0 0.4 0 0 0 0.5" face="0 2 1 0 1 3 1 2 3 0 3 2"'
SHAPES = "plane", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh"
SEEN = f"""
<mujoco>
  <asset><mesh name="pyramid" {TETRAHEDRON}/></asset>
  <worldbody>
    <geom type="plane" size="3 2 0.1" pos="0 0 -1"/>
    <geom type="sphere" size="0.3" pos="2 0.3 0"/> <geom type="capsule" size="0.2 0.5" pos="0 2 0" euler="30 0 0"/>
    <geom type="ellipsoid" size="0.2 0.5 0.3" pos="-2 0 0" euler="10 20 30"/>
    <geom type="cylinder" size="0.4 0.2" pos="0 -2 0" euler="40 20 0"/>
    <geom type="box" size="0.2 0.3 0.4" pos="0.3 0.3 2" euler="20 20 0"/>
    <geom type="mesh" mesh="pyramid" pos="1.2 1.2 0.2"/>
    <geom type="sphere" size="0.4" pos="1 -1 0" rgba="0 0 0 0"/>
    <body name="head"><freejoint/><geom type="sphere" size="0.2"/>
      {"".join(f'<site name="ray {i}" pos="0.05 0 0" euler="{37 * i} {53 * i} 0"/>' for i in range(30))}</body>
  </worldbody>
  <sensor>
    {"".join(f'<rangefinder name="far {i}" site="ray {i}"/>' for i in range(30))}
    <rangefinder name="near" site="ray 3" cutoff="0.5"/>
  </sensor>
</mujoco>
"""

ROUND = "sphere", "capsule", "ellipsoid", "cylinder", "box"
ZONE = 'size="0.2 0.3 0.15" pos="0.1 0 0.2" euler="20 10 40"'
INSIDE = f"""
<mujoco>
  <worldbody>{"".join(f'<site name="{x}" type="{x}" {ZONE}/>' for x in ROUND)}
    <body name="fly" pos="0.1 0 0.2"><freejoint/><geom type="sphere" size="0.01"/></body></worldbody>
  <sensor>
    {"".join(f'<insidesite objtype="xbody" objname="fly" site="{x}"/>' for x in ROUND)}
  </sensor>
</mujoco>
"""


SIZES = {
    "plane": 'size="0 0 1" pos="0 0 -1"',
    "sphere": 'size="0.2"',
    "capsule": 'size="0.1 0.2" pos="0.1 0 0"',
    "box": 'size="0.2 0.1 0.15"',
    "ellipsoid": 'size="0.2 0.3 0.15"',
    "cylinder": 'size="0.15 0.2"',
    "mesh": 'mesh="pyramid"',
}


def apart(kinds: tuple[str, ...]) -> str:
    """Each of some shapes on a body of its own, and how far each is from each other."""
    geom = lambda kind: f'<geom name="{kind}" type="{kind}" {SIZES[kind]} mass="1"/>'
    bodies = [
        f'<body name="{kind}" pos="{i} 0 {0.2 * i}"><freejoint/>{geom(kind)}</body>'
        if kind != "plane"
        else geom(kind)
        for i, kind in enumerate(kinds)
    ]
    sensors = [
        f'<{what} geom1="{a}" geom2="{b}" cutoff="{cutoff}"/>'
        for a, b in itertools.permutations(kinds, 2)
        for what in ("distance", "normal", "fromto")
        for cutoff in (9, 0.5)
    ]
    both = f'<distance body1="{kinds[1]}" body2="{kinds[2]}" cutoff="3"/>'
    return f"""<mujoco><asset><mesh name="pyramid" {TETRAHEDRON}/></asset>
      <worldbody>{"".join(bodies)}</worldbody><sensor>{both}{"".join(sensors)}</sensor></mujoco>"""


def states(model: mujoco.MjModel, count: int, spread: float = 0.3):
    """Random states near the reference posture, with random inputs."""
    rng = np.random.default_rng(0)
    for i in range(count):
        data = mujoco.MjData(model)
        data.time = 0.5 + i
        mujoco.mj_integratePos(model, data.qpos, rng.normal(size=model.nv), spread)
        data.qvel[:], data.ctrl[:] = rng.normal(size=model.nv), rng.normal(size=model.nu)
        mujoco.mj_forward(model, data)
        yield data


def reading(robot: uk.robots.Robot, data: mujoco.MjData, **given):
    q, v = robot.state_from_mujoco(data.qpos, data.qvel)
    a = robot.conversion.velocities(np.array(data.qacc))
    return robot.with_inputs(data.ctrl).sensors(data.time, q, v, a, **given)


def theirs(model: mujoco.MjModel, data: mujoco.MjData, robot: uk.robots.Robot) -> dict[str, np.ndarray]:
    """MuJoCo's readings by name."""
    starts = zip(robot.names.sensors, model.sensor_adr, model.sensor_dim, strict=True)
    return {name: np.array(data.sensordata[i : i + n]) for name, i, n in starts}


@pytest.mark.parametrize("merge_fixed", [True, False])
@pytest.mark.parametrize(
    "text", [EVERY_FRAME, DRIVEN, SEEN, INSIDE], ids=["frames", "driven", "rays", "zones"]
)
def test_readings_are_those_of_mujoco(text: str, merge_fixed: bool) -> None:
    model = mujoco.MjModel.from_xml_string(text)
    robot = uk.load(text, merge_fixed=merge_fixed)
    refused = {"angle"} if text is DRIVEN else set()
    assert {name for name, *_ in robot.table.refused} == refused
    for data in states(model, 4):
        own, other = reading(robot, data), theirs(model, data, robot)
        assert own.keys() == other.keys() - refused
        for name, x in own.items():
            kind = robot.sensors.kinds[name]
            assert_allclose(np.ravel(x), other[name], rtol=1e-9, atol=1e-9, err_msg=f"{kind} {name}")


@pytest.mark.parametrize("kinds", [("plane", "sphere", "capsule"), tuple(SIZES)], ids=["some", "all"])
def test_distances_of_geoms_are_those_of_mujoco(kinds: tuple[str, ...]) -> None:
    """Of some shapes MuJoCo finds the places by iteration, to 1e-6 m: the distances are exact."""
    model = mujoco.MjModel.from_xml_string(apart(kinds))
    robot = uk.load(apart(kinds))
    assert robot.table.refused == ()
    for data in states(model, 2, spread=0.5):
        own = reading(robot, data)
        for name, x in theirs(model, data, robot).items():
            atol = 1e-9 if robot.sensors.kinds[name] == "distance" else 1e-5
            assert_allclose(np.ravel(own[name]), x, rtol=0, atol=atol, err_msg=name)


# --- Forces of contacts and of loops

FEET = """
<mujoco>
  <option timestep="0.001"/>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1"/> <body name="fixed"><site name="pillar"/></body>
    <body name="trunk" pos="0 0 0.5" euler="0 4 3"><freejoint/>
      <geom name="trunk" type="box" size="0.3 0.2 0.05" contype="0" conaffinity="0"/>
      <site name="imu" pos="0.1 0 0"/>
      <body name="left" pos="0.2 0.1 -0.25"><joint name="left" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0.2 0 0 0" size="0.03" contype="0" conaffinity="0"/>
        <body name="sole" pos="0 0 -0.2" euler="0 4 0"> <site name="sole" euler="30 0 0"/>
          <geom name="toe" type="sphere" size="0.05" pos="0.05 0 0"/>
          <geom name="heel" type="sphere" size="0.05" pos="-0.05 0 0"/>
          <site name="toe" type="sphere" size="0.06" pos="0.05 0 0"/>
          <site name="heel" type="box" size="0.06 0.06 0.06" pos="-0.05 0 0"/>
        </body></body>
      <body name="right" pos="-0.2 -0.1 -0.25"><joint name="right" axis="1 0 0"/> <site name="leg" euler="10 20 30"/>
        <geom name="foot" type="sphere" size="0.06" pos="0 0 -0.18"/>
        <site name="foot" type="ellipsoid" size="0.1 0.1 0.1" pos="0 0 -0.3"/>
      </body>
    </body>
  </worldbody>
  <sensor>
    <touch name="toe" site="toe"/> <touch name="heel" site="heel"/> <touch name="foot" site="foot"/>
    <touch name="none" site="leg"/> <force name="sole" site="sole"/> <torque site="sole"/>
    <force site="leg"/> <torque site="leg"/> <force site="imu"/> <torque site="imu"/>
    <accelerometer name="imu" site="imu"/> <force site="pillar"/>
  </sensor>
</mujoco>
"""


def contact_forces(robot: uk.robots.Robot, model: mujoco.MjModel, data: mujoco.MjData, q) -> np.ndarray:
    """MuJoCo's contact forces on our rows, of contacts with one row of forces for each pair of geoms."""
    frames = uk.mechanisms.contact_frames(robot.mechanism, 0.0, q)
    rows = {name: np.zeros(3) for name in frames}
    for i, contact in enumerate(data.contact[: data.ncon]):
        names = [model.geom(int(x)).name for x in contact.geom]
        force = np.zeros(6)
        mujoco.mj_contactForce(model, data, i, force)
        world = contact.frame.reshape(3, 3).T @ force[:3]
        name = next(x for x in frames if set(x.split("-")) == set(names))
        assert_allclose(frames[name].point, contact.pos, atol=1e-9)
        rows[name] = np.asarray(frames[name].axes) @ world * (1 if frames[name].axes[0, 2] > 0 else -1)
    return np.concatenate(list(rows.values()))


@pytest.mark.parametrize("merge_fixed", [True, False])
def test_forces_of_contacts_are_felt_as_in_mujoco(merge_fixed: bool) -> None:
    model = mujoco.MjModel.from_xml_string(FEET)
    robot, data = uk.load(FEET, contact=True, merge_fixed=merge_fixed), mujoco.MjData(model)
    touched = set()
    for k in range(600):
        mujoco.mj_step(model, data)
        if k % 120:
            continue
        mujoco.mj_forward(model, data)
        q, _ = robot.state_from_mujoco(data.qpos, data.qvel)
        own = reading(robot, data, contacts=contact_forces(robot, model, data, q))
        for name, x in theirs(model, data, robot).items():
            assert_allclose(np.ravel(own[name]), x, rtol=1e-9, atol=1e-8, err_msg=f"{k} {name}")
        touched |= {name for name in ("toe", "heel", "foot") if own[name] > 0}
        assert own["none"] == 0
    assert touched == {"toe", "heel", "foot"}


EVERY_PART = 'data="found force torque dist pos normal tangent linvel angvel"'
MATCHED = f"""
    <contact name="toe touches" geom1="toe" geom2="floor" {EVERY_PART} num="2"/>
    <contact name="floor touches" geom1="floor" geom2="toe" {EVERY_PART}/>
    <contact name="nearest touches" body1="sole" {EVERY_PART} num="3" reduce="mindist"/>
    <contact name="strongest touches" body2="sole" data="found force pos" reduce="maxforce"/>
    <contact name="all touches" subtree1="trunk" body2="world" data="found force torque dist pos normal tangent" num="2"
      reduce="netforce"/>
    <contact name="any touches" data="force torque pos" reduce="netforce"/>
    <contact name="zone touches" site="toe" data="found force pos" num="3" reduce="maxforce"/>
    <contact name="part touches" site="toe" body2="sole" data="found force" reduce="mindist"/>
    <contact name="never touches" geom1="trunk" data="found pos" num="2"/>
"""


@pytest.mark.skipif(int(mujoco.__version__.partition(".")[0]) < 4, reason="MuJoCo 3 has fewer parts")
def test_contact_sensors_read_what_mujoco_reads() -> None:
    """At times when all of MuJoCo's contacts push."""
    text = FEET.replace("</sensor>", f"{MATCHED}</sensor>")
    model = mujoco.MjModel.from_xml_string(text)
    robot, data, counts = uk.load(text, contact=True), mujoco.MjData(model), set()
    sensors = robot.sensors.only("contact")
    for k in range(1, 600):
        mujoco.mj_step(model, data)
        if k not in (60, 180, 480, 540):
            continue
        mujoco.mj_forward(model, data)
        state = robot.state_from_mujoco(data.qpos, data.qvel)
        own = sensors(0.0, *state, contacts=contact_forces(robot, model, data, state[0]))
        for name, x in own.items():
            assert_allclose(x, data.sensor(name).data, rtol=1e-9, atol=1e-9, err_msg=f"{k} {name}")
        counts.add(tuple(int(own[f"{x} touches"][0]) for x in ("nearest", "all", "zone")))
    assert counts == {(1, 1, 1), (1, 2, 1), (2, 3, 1), (1, 2, 0)}


def loop(kind: str) -> str:
    """Two cranks on the ground and a coupler, closed by a connect or a weld to a knob on the second crank."""
    hinge = '<joint name="knob" axis="0 1 0"/>' if kind == "weld" else ""
    closing = {
        "connect": '<connect body1="knob" body2="coupler" anchor="0 0 0"/>',
        "weld": '<weld body1="knob" body2="coupler"/>',
    }[kind]
    sensor = '<force name="{0}" site="{0}"/><torque name="{0} torque" site="{0}"/>'
    return f"""
    <mujoco>
      <option><flag contact="disable"/></option>
      <worldbody>
        <body name="crank"><joint name="crank" axis="0 1 0" damping="0.3" armature="0.02"/> <site name="crank"/>
          <geom type="capsule" fromto="0 0 0 0 0 0.5" size="0.03"/>
          <body name="coupler" pos="0 0 0.5"><joint name="coupler" axis="0 1 0" stiffness="2"/> <site name="coupler"/>
            <geom type="capsule" fromto="0 0 0 1 0 0" size="0.03"/></body></body>
        <body name="rocker" pos="1 0 0"><joint name="rocker" axis="0 1 0"/> <site name="rocker"/>
          <geom type="capsule" fromto="0 0 0 0 0 0.5" size="0.03"/>
          <body name="knob" pos="0 0 0.5">{hinge}<geom type="box" size="0.05 0.02 0.03"/><site name="knob"/></body></body>
      </worldbody>
      <equality>{closing}</equality>
      <actuator><motor name="motor" joint="crank"/></actuator>
      <sensor>{"".join(map(sensor.format, ("crank", "coupler", "rocker", "knob")))}</sensor>
    </mujoco>"""


def test_a_connect_is_felt_as_in_mujoco() -> None:
    """Its forces are MuJoCo's, handed to both."""
    text = loop("connect").replace('anchor="0 0 0"', 'anchor="0 0 0.02"')
    model = mujoco.MjModel.from_xml_string(text)
    robot = uk.load(text)
    for data in states(model, 3, spread=0.2):
        data.qpos[:], data.qvel[:] = reference.closed(model, data.qpos, data.qvel)
        mujoco.mj_forward(model, data)
        rows = np.asarray(data.efc_type) == mujoco.mjtConstraint.mjCNSTR_EQUALITY
        own = reading(robot, data, multipliers=-data.efc_force[rows])
        assert np.abs(data.efc_force[rows]).max() > 1
        for name, x in theirs(model, data, robot).items():
            assert_allclose(own[name], x, rtol=1e-9, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("kind", ["connect", "weld"])
def test_torques_about_joints_are_what_acts_on_them(kind: str) -> None:
    """About its axis a joint carries its motor, spring, damper and rotor, and nothing else."""
    robot = uk.load(loop(kind), ctrl=np.array([0.7]))
    closing = uk.mechanisms.problem(robot.problem, at={"crank": 0.3}, rates={"crank": 1.5})
    q, v = closing.q0, closing.v0
    qpos, qvel = robot.state_to_mujoco(q, v)
    each = zip(q, v, robot.acceleration(qpos, qvel), strict=True)
    state = dict(zip(robot.mechanism.labels, each, strict=True))
    torque = {name: x[1] for name, x in robot.sensors(0.0, q, v).items()}
    _, rate, acceleration = state["crank"]
    assert_allclose(torque["crank torque"], 0.7 - 0.3 * rate - 0.02 * acceleration, rtol=1e-9)
    assert_allclose(torque["coupler torque"], -2.0 * state["coupler"][0], rtol=1e-9)
    assert_allclose(torque["rocker torque"], 0.0, atol=1e-9)
    if kind == "weld":
        assert_allclose(torque["knob torque"], 0.0, atol=1e-9)


def test_torques_are_those_of_joints_while_a_loop_lies_on_the_floor() -> None:
    """The coupler falls on a floor: its forces and those of the loop are felt, and about hinges nothing else."""
    text = loop("connect").replace('<flag contact="disable"/>', "")
    text = text.replace("<worldbody>", '<worldbody><geom type="plane" size="0 0 1" pos="0 0 0.3"/>')
    upright = 'fromto="0 0 0 0 0 0.5" size="0.03"'
    robot = uk.load(
        text.replace(upright, f'{upright} contype="0" conaffinity="0"'),
        contact=["ground"],
        ctrl=np.array([3.0]),
    )
    run = uk.simulate(robot.problem, t1=0.8, ts=5, contact="steps", dt0=1e-3)
    assert run.contacts.force[-1].max() > 1
    torque = robot.sensors.along(run)
    crank = robot.mechanism.velocity_labels.index("crank")
    motor = 3.0 - 0.3 * run.v[:, crank] - 0.02 * run.a[:, crank]
    assert_allclose(torque["crank torque"][:, 1], motor, rtol=1e-9)
    assert_allclose(torque["rocker torque"][:, 1], 0.0, atol=1e-9)


# --- Along runs, under JAX, and what is told

REST = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1"/>
    <body name="ball" pos="0 0 0.2"><freejoint/><site name="ball" type="sphere" size="0.25"/>
      <geom name="ball" type="sphere" size="0.2" mass="2"/></body>
    <body name="arm" pos="3 0 2"><joint name="stop" axis="0 1 0" range="-90 0" limited="true"/><site name="arm"/>
      <geom type="sphere" size="0.1" pos="0.5 0 0" mass="3"/></body>
  </worldbody>
  <sensor>
    <touch name="touch" site="ball"/> <accelerometer name="ball" site="ball"/> <force name="arm" site="arm"/>
    <jointlimitfrc name="stop" joint="stop"/> <gyro name="gyro" site="arm"/>
    <contact name="ground" body2="ball" data="found force dist normal" reduce="maxforce"/>
  </sensor>
</mujoco>
"""


def test_a_contact_sensor_reads_gaps_that_have_derivatives() -> None:
    robot = uk.load(REST, contact=[("ball", "floor")])
    ground, p = robot.sensors.only("ground"), robot.problem
    gap = lambda q: ground(0.0, q, p.v0, contacts=jnp.array([5.0, 0.0, 0.0]))["ground"][4]
    slope = jax.grad(gap)(p.q0)
    assert_allclose(slope, np.eye(p.q0.size)[robot.mechanism.labels.index("ball free z")], atol=1e-12)


@pytest.mark.parametrize("how", ["events", "steps"])
def test_what_rests_is_felt_along_a_run(how: str) -> None:
    """Statics: weights are carried by the floor, and by the stop with its arm."""
    robot = uk.load(REST, contact=True)
    options = {"dt0": 1e-3} if how == "steps" else {}
    run = uk.simulate(robot.problem, t1=0.02, ts=3, contact=how, **options)
    read = robot.sensors.along(run)
    later = {name: np.asarray(x)[1:] for name, x in read.items()}
    weight = 2 * 9.81, 3 * 9.81
    assert_allclose(later["touch"], weight[0], rtol=1e-6)
    assert_allclose(later["ground"], [[1, weight[0], 0, 0, 0, 0, 0, 1]] * 2, atol=2e-5)
    assert_allclose(later["ball"], [[0, 0, 9.81]] * 2, atol=1e-5)
    assert_allclose(later["stop"], 0.5 * weight[1], rtol=1e-6)
    assert_allclose(later["arm"], [[0, 0, weight[1]]] * 2, atol=1e-5)


PLAIN = """
<mujoco>
  <worldbody>
    <body name="upper"><joint name="shoulder" axis="0 1 0.2"/><geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.03"/>
      <body name="lower" pos="0 0 -0.5"><joint name="elbow" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.02"/><site name="hand" pos="0 0 -0.4"/></body></body>
    <geom type="sphere" size="0.2" pos="0 0 -2"/>
  </worldbody>
  <actuator><motor name="motor" joint="elbow"/></actuator>
  <sensor>
    <accelerometer name="acc" site="hand" noise="0.1"/> <velocimeter name="speed" site="hand" cutoff="0.2"/>
    <gyro name="gyro" site="hand"/> <framequat objtype="site" objname="hand" name="turn" noise="0.05"/>
    <framezaxis objtype="site" objname="hand" name="axis" noise="0.05"/>
    <rangefinder name="ray" site="hand"/> <framelinvel name="v" objtype="site" objname="hand"/>
    <user name="own" dim="2"/>
  </sensor>
</mujoco>
"""
MOVING = {"q0": [0.3, -0.5], "v0": [0.7, 1.1]}


def moving_arm() -> tuple[uk.robots.Robot, uk.Problem]:
    robot = uk.load(PLAIN)
    return robot, uk.mechanisms.problem(robot.problem, **MOVING)


def test_an_accelerometer_is_the_change_of_the_velocity_along_a_run() -> None:
    robot, problem = moving_arm()
    run = uk.simulate(problem, t1=0.2, ts=401, rtol=1e-10, atol=1e-12)
    read = robot.sensors.along(run)
    change = CubicSpline(run.t, read["v"]).derivative()(np.asarray(run.t))
    axes = jax.vmap(lambda q: uk.analysis.frames(problem, 0.0, q)["lower.hand"].rotation)(run.q)
    felt = np.einsum("kba,kb->ka", axes, change + np.array([0, 0, 9.81]))
    assert_allclose(np.asarray(read["acc"])[5:-5], felt[5:-5], atol=1e-6)


def test_jit_vmap_and_single_states_agree() -> None:
    robot, problem = moving_arm()
    run = uk.simulate(problem, t1=0.1, ts=3)
    along = robot.sensors.along(run)
    mapped = jax.vmap(jax.jit(robot.sensors))(run.t, run.q, run.v)
    compiled = eqx.filter_jit(robot.sensors.along)(run)
    for i in range(3):
        one = robot.sensors(run.t[i], run.q[i], run.v[i])
        for name, x in one.items():
            for other in (along, mapped, compiled):
                assert_allclose(other[name][i], x, rtol=1e-11, atol=1e-12, err_msg=name)
    stacked = np.concatenate([np.ravel(x) for x in one.values()])
    assert_allclose(robot.sensors.vector(run.t[2], run.q[2], run.v[2]), stacked)
    assert len(robot.sensors.labels) == stacked.size


def test_derivatives_are_those_of_differences() -> None:
    robot, _ = moving_arm()
    some = robot.sensors.only("acc", "turn", "ray", "gyro")

    def read(x: jax.Array) -> jax.Array:
        own = robot.with_parameters(mass={"lower": 1.0 + x[4]}).sensors.only(*some.names)
        return own.vector(0.0, x[:2], x[2:4])

    x = jnp.array([0.0, 0.0, *MOVING["v0"], 0.1]).at[0].set(0.05)
    slopes = jax.jacfwd(read)(x)
    assert_allclose(jax.jacrev(read)(x), slopes, rtol=1e-9, atol=1e-9)
    h = 1e-6
    for i in range(5):
        step = jnp.zeros(5).at[i].set(h)
        assert_allclose(slopes[:, i], (read(x + step) - read(x - step)) / (2 * h), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("text", [DRIVEN, SEEN], ids=["driven", "rays"])
def test_derivatives_are_finite_in_the_reference_posture(text: str) -> None:
    robot = uk.load(text)
    slopes = jax.jacrev(robot.sensors.vector, argnums=(1, 2))(0.0, robot.problem.q0, robot.problem.v0)
    assert all(np.isfinite(x).all() for x in slopes)


def test_noise_is_added_with_a_key_only_and_readings_end_at_their_cutoff() -> None:
    robot, problem = moving_arm()
    at = 0.0, problem.q0, problem.v0
    plain, speed = robot.sensors(*at), robot.sensors.only("v")(*at)["v"]
    assert np.abs(speed).max() > 0.2 == np.abs(plain["speed"]).max()
    assert robot.sensors.noise == {"acc": 0.1, "turn": 0.05, "axis": 0.05}
    assert robot.sensors.cutoff == {"speed": 0.2}
    noisy = jax.vmap(lambda key: robot.sensors(*at, key=key))(jax.random.split(jax.random.key(0), 4000))
    off = np.asarray(noisy["acc"]) - np.asarray(plain["acc"])[None]
    assert_allclose(off.std(axis=0), 0.1, rtol=0.05)
    assert_allclose(off.mean(axis=0), 0.0, atol=0.01)
    assert_allclose(noisy["gyro"], np.broadcast_to(plain["gyro"], (4000, 3)))
    for name in ("turn", "axis"):
        assert_allclose(np.linalg.norm(noisy[name], axis=1), 1.0, rtol=1e-12)
    angles = 2 * np.arccos(np.clip(np.abs(np.asarray(noisy["turn"]) @ np.asarray(plain["turn"])), 0, 1))
    assert_allclose(np.mean(angles**2), 3 * 0.05**2, rtol=0.1)


def test_parameters_change_readings_as_the_file_would() -> None:
    heavy = '<geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.02"'
    long = PLAIN.replace('name="lower" pos="0 0 -0.5"', 'name="lower" pos="0.1 0 -0.7"')
    model = mujoco.MjModel.from_xml_string(long.replace(heavy, f'{heavy} mass="2"'))
    robot = uk.load(PLAIN)
    own = robot.parameters
    scale = 2.0 / own["mass"]["lower"]
    robot = robot.with_parameters(
        mass={"lower": 2.0},
        inertia={"lower": scale * own["inertia"]["lower"]},
        position={"lower": [0.1, 0, -0.7]},
    )
    data = next(states(model, 1))
    acceleration = robot.with_inputs(data.ctrl).acceleration(data.qpos, data.qvel)
    assert_allclose(acceleration, data.qacc, rtol=1e-9)
    q, v = robot.state_from_mujoco(data.qpos, data.qvel)
    read = robot.with_inputs(data.ctrl).sensors(0.0, q, v)
    for name, x in theirs(model, data, robot).items():
        if name != "own":
            assert_allclose(np.ravel(read[name]), x, rtol=1e-8, atol=1e-9, err_msg=name)


def test_an_environment_observes_them() -> None:
    robot, problem = moving_arm()
    seen = robot.sensors.only("gyro", "turn")
    env = uk.Environment(
        problem, robot.apply, lambda t, q, v, u: -jnp.sum(u**2), dt=0.01, horizon=3, observe=seen.vector
    )
    state = env.reset(jax.random.key(0))
    state, observed, *_ = eqx.filter_jit(env.step)(state, jnp.zeros(1))
    assert_allclose(observed, seen.vector(state.t, state.q, state.v), rtol=1e-12)


def test_what_is_not_built_is_named() -> None:
    robot = uk.load(PLAIN)
    lines = {x.feature: x for x in robot.report.features if "sensor" in x.feature}
    assert lines["sensor user"].status == "ignored"
    assert "callback" in lines["sensor user"].why
    assert lines["sensor noise"].names == ("acc", "turn", "axis")
    assert "key" in lines["sensor noise"].why
    assert "own" not in robot.sensors.names
    assert robot.names.sensors[-1] == "own"
    with pytest.raises(
        uk.InputError, match="'own', a sensor user, is not there: it is computed by a callback"
    ):
        robot.sensors.only("own")
    with pytest.raises(uk.InputError, match="did you mean 'gyro'"):
        robot.sensors.only("gyros")
    with pytest.raises(uk.InputError, match=r"v has shape \(3,\); this robot needs \(2,\)"):
        robot.sensors(0.0, robot.problem.q0, np.zeros(3))
    assert uk.load(PLAIN, contact=False, strict=True).report  # sensors change no motion


ODD = """
<mujoco>
  <asset><hfield name="hill" nrow="2" ncol="2" size="1 1 1 0.1"/></asset>
  <worldbody>
    <geom type="hfield" hfield="hill"/>
    <body name="ball"><joint name="pin" pos="0 0 1"/><geom size="0.1"/><site name="site"/>
      <camera name="eye" mode="targetbody" target="ball"/></body>
  </worldbody>
  <actuator><adhesion name="glue" body="ball" ctrlrange="0 1"/></actuator>
  <sensor>
    <rangefinder name="ray" site="site"/> <rangefinder name="place" site="site" data="point"/>
    <framepos name="seen" objtype="camera" objname="eye"/> <actuatorfrc name="pull" actuator="glue"/>
    <contact name="hits" body1="ball"/>
  </sensor>
</mujoco>
"""


@pytest.mark.skipif(int(mujoco.__version__.partition(".")[0]) < 4, reason="MuJoCo 3 has fewer of these")
def test_why_is_told_of_each() -> None:
    robot = uk.load(ODD)
    assert {name: why for name, _, why in robot.table.refused} == {
        "place": "of rangefinders the distance from a site is built, no pictures and no places",
        "seen": "its camera follows something",
        "pull": "its actuator is not used",
    }
    hits = next(x for x in robot.report.features if x.names == ("hits",))
    assert (hits.status, hits.why[:13]) == ("ignored", "it finds none")
    ray = next(x for x in robot.report.features if x.names == ("ray",))
    assert (ray.status, ray.why) == ("approximated", "it does not see hfield")


def test_delays_are_told_and_a_file_without_sensors_reads_nothing() -> None:
    body = '<worldbody><body><joint name="pin"/><geom size="0.1"/><site name="site"/></body></worldbody>'
    late = '<sensor><gyro name="late" site="site" delay="0.02" nsample="5"/></sensor>'
    if int(mujoco.__version__.partition(".")[0]) >= 4:
        lines = {x.feature: x for x in uk.load(f"<mujoco>{body}{late}</mujoco>").report.features}
        assert lines["sensor delay, interval or history"].names == ("late",)
    robot = uk.load(f"<mujoco>{body}</mujoco>")
    at = 0.0, robot.problem.q0, robot.problem.v0
    assert robot.sensors(*at) == {}
    assert robot.sensors.vector(*at).shape == (0,)


def test_what_contacts_decide_has_to_be_given() -> None:
    robot = uk.load(REST, contact=True)
    at = 0.0, robot.problem.q0, robot.problem.v0
    with pytest.raises(uk.InputError, match=r"ball, arm need the acceleration, which .* decide too: give a"):
        robot.sensors(*at)
    with pytest.raises(uk.InputError, match="touch, arm, stop need contacts: give the forces of contacts"):
        robot.sensors(*at, np.zeros(7))
    with pytest.raises(uk.InputError, match=r"contacts has shape \(2,\); this robot needs \(11,\)"):
        robot.sensors(*at, np.zeros(7), np.zeros(2))
    assert robot.sensors.only("gyro")(*at)["gyro"].shape == (3,)
    report = {x.feature: x for x in uk.load(REST).report.features}
    assert "without contacts of its body" in report["sensor touch"].why
    assert "without this stop" in report["sensor jointlimitfrc"].why
    closed = uk.load(loop("connect"))
    with pytest.raises(uk.InputError, match="need multipliers: give those of the run that has a"):
        closed.sensors(0.0, closed.problem.q0, closed.problem.v0, np.zeros(3))
