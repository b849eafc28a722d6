"""Limits, dry friction and contacts that robots bring along: the report, pairs as MuJoCo finds them, and motions."""

from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukjax as uk
from ukjax._system._constraint import unilateral
from ukjax.robots._contact_selection import read_contact_selection
from ukjax.robots._geoms import contacts, list_touches
from ukjax.robots._reference import reference
from ukjax.robots._source import read

FILES = Path(__file__).parent.parent / "experiments" / "robots"
G, MASS, LENGTH, LOSS, STOP, START = 9.81, 1.3, 0.5, 0.4, 0.3, 1.2
PENDULUM = f"""
<mujoco>
  <option gravity="0 0 -{G}" timestep="0.0005"/>
  <compiler angle="radian"/>
  <worldbody>
    <body name="rod">
      <joint name="pin" axis="0 -1 0" range="{STOP} 2" frictionloss="{LOSS}"/>
      <inertial pos="0 0 -{LENGTH}" mass="{MASS}" diaginertia="1e-9 1e-9 1e-9"/>
    </body>
  </worldbody>
  <keyframe><key qpos="{START}"/></keyframe>
</mujoco>
"""
SEVERAL = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1"/>
    <geom name="post" type="cylinder" size="0.1 0.5" pos="3 0 0"/>
    <body name="trunk" pos="0 0 1.2"><freejoint/>
      <geom name="belly" type="sphere" size="0.2" friction="0.7"/>
      <geom name="back" type="box" size="0.1 0.1 0.1" pos="0.4 0 0" condim="4"/>
      <body name="thigh" pos="0 0 -0.3"><joint name="hip" range="-60 60" axis="0 1 0"/>
        <geom name="thigh" type="capsule" fromto="0 0 -0.1 0 0 -0.3" size="0.05"/>
        <body name="shin" pos="0 0 -0.4"><joint name="knee" range="-90 90" axis="0 1 0"/>
          <geom name="shin" type="capsule" fromto="0 0 0 0 0 -0.3" size="0.04" contype="2" conaffinity="3"/>
        </body>
      </body>
    </body>
    <body name="ball" pos="0.9 0 1.2"><freejoint/><geom type="sphere" size="0.1" priority="1" friction="0.2"/></body>
    <body name="egg" pos="0.9 0 2"><freejoint/><geom type="ellipsoid" size="0.1 0.2 0.3"/></body>
  </worldbody>
  <contact>
    <exclude body1="shin" body2="ball"/>
    <pair geom1="back" geom2="floor" friction="0.3 0.3" condim="4"/>
    <pair geom1="belly" geom2="floor" friction="0.3 0.4 0.02 0.001 0.001" condim="6"/>
  </contact>
</mujoco>
"""


def test_what_is_asked_for_is_used() -> None:
    robot = uk.load(SEVERAL)
    assert not unilateral(robot.mechanism.constraints)
    ignored = {x.feature: x for x in robot.report.of("ignored")}
    assert ignored["joint limit"].names == ("hip", "knee")
    assert "contact=True" in ignored["contact with what stands still"].why
    with pytest.raises(uk.InputError, match=r"joint limit \(ignored"):
        uk.load(SEVERAL, strict=True)
    robot = uk.load(SEVERAL, contact=["limits", ("ball", "trunk")])
    limits, touches = unilateral(robot.mechanism.constraints)
    assert limits.names == ("hip.lower", "hip.upper", "knee.lower", "knee.upper")
    assert touches.names == ("belly-ball", "back-ball")
    gaps = [jax.jit(lambda q, x=x: x.gaps(jnp.zeros(()), q))(robot.problem.q0) for x in (limits, touches)]
    np.testing.assert_allclose(gaps[0], np.pi * np.array([1 / 3, 1 / 3, 0.5, 0.5]), atol=1e-14)
    np.testing.assert_allclose(gaps[1], [0.6, 0.3], atol=1e-14)
    np.testing.assert_allclose(touches.friction, 0.2)


@pytest.mark.slow
def test_all_contacts_of_a_file_are_told() -> None:
    report = uk.load(SEVERAL, contact=True).report
    told = {(x.status, x.feature): set(x.names) for x in report.features}
    assert {"back-floor", "egg-floor", "belly-post", "ball-post"} <= told["used", "contact"]
    assert told["approximated", "friction of two directions"] == {"belly-floor"}
    assert not any("turning" in feature or "rolling" in feature for _, feature in told)


def test_what_cannot_be_is_said() -> None:
    for given, words in (
        ("all", "contact must be True, False, or a list"),
        ([("ball", "belly", "back")], "contact must be True"),
        ([("ball", "flor")], "unknown geom or body in contact: 'flor'; did you mean 'floor'"),
        ([("shin", "ball")], "'ball' and 'shin': by the file's contype"),
    ):
        with pytest.raises(uk.InputError, match=words):
            uk.load(SEVERAL, contact=given)


def test_pairs_are_those_of_mujoco() -> None:
    """With balls so large that all touch: those in MuJoCo's list, with its friction and dimension."""
    model = mujoco.MjModel.from_xml_string(SEVERAL)
    ours = {
        tuple(sorted(x.geoms)): (*x.friction, x.condim) for x in list_touches(reference(model, None, True))
    }
    model.geom_type[model.geom_type != mujoco.mjtGeom.mjGEOM_PLANE] = mujoco.mjtGeom.mjGEOM_SPHERE
    model.geom_rbound[model.geom_rbound > 0] = model.geom_size[:, 0] = 100.0
    model.geom_aabb[:, 3:] = 100.0
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    theirs = {tuple(sorted(x.geom.tolist())): (*x.friction, x.dim) for x in data.contact}
    assert theirs.keys() == ours.keys()
    for pair, of in ours.items():
        np.testing.assert_allclose(of, theirs[pair], rtol=1e-12)
    assert model.ngeom * (model.ngeom - 1) // 2 > len(ours)  # some are left out


def test_frictions_of_a_file_are_those_of_contacts() -> None:
    """By condim: turning and rolling, and two directions along the axes of MuJoCo's contact frame."""
    found = {x.name: x for x in uk.load(SEVERAL, contact=True).mechanism.mechanism.contacts}
    belly, back, shin = (found[f"{x}-floor"] for x in ("belly", "back", "shin"))
    np.testing.assert_allclose(belly.frictions, [0.3, 0.4, 0.02, 0.001, 0.001])
    np.testing.assert_allclose(back.frictions, [0.3, 0.3, 0.005])
    np.testing.assert_allclose(shin.frictions, [1.0, 1.0])
    model = mujoco.MjModel.from_xml_string(SEVERAL)
    data = mujoco.MjData(model)
    data.qpos[2] = 0.15
    mujoco.mj_forward(model, data)
    geoms = [mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, x) for x in ("floor", "belly")]
    (own,) = [x for x in data.contact if sorted(x.geom) == sorted(geoms)]
    np.testing.assert_allclose(belly.direction, np.abs(own.frame[3:6]))
    other = uk.load(SEVERAL, contact=True, friction=0.8).mechanism.mechanism.contacts
    np.testing.assert_allclose(
        {x.name: x for x in other if x.name == "belly-floor"}["belly-floor"].frictions[:3], [0.8, 0.8, 0.02]
    )


def test_a_pair_that_is_listed_twice_touches_once() -> None:
    pair = '<pair geom1="floor" geom2="ball"/>'
    text = f"""<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
      <body pos="0 0 1"><freejoint/><geom name="ball" size="0.1"/></body></worldbody>
      <contact>{pair}{pair}</contact></mujoco>"""
    robot = uk.load(text, contact=True)
    assert [x.name for x in robot.problem.system.mechanism.contacts] == ["ball-floor"]
    assert "contact listed again (1): ball-floor" in str(robot.report)


def test_start_is_moved_out_of_what_it_penetrates() -> None:
    """A foot below the floor, and a joint beyond its limit; moving bodies that overlap do not touch."""
    text = """
    <mujoco><compiler angle="radian"/><worldbody><geom name="floor" type="plane" size="0 0 1"/>
      <body name="leg" pos="0 0 0.15"><joint name="up" type="slide" axis="0 0 1"/>
        <geom name="leg" type="sphere" size="0.2" mass="1"/>
        <body name="foot"><joint name="in" axis="0 1 0"/><geom size="0.01" mass="0.1" pos="1 0 1"/>
          <body name="toe"><joint name="toe" axis="1 0 0" range="0.1 1"/>
            <geom type="sphere" size="0.1" pos="0 1 1" mass="1"/>
            <body name="tip"><joint name="tip" axis="1 0 0"/><geom name="tip" size="0.1" mass="1" pos="0 0.01 0"/></body>
          </body>
        </body>
      </body></worldbody></mujoco>"""
    robot = uk.load(text, contact=True)
    told = {(x.feature, x.status): x.names for x in robot.report.features}
    assert set(told["start beyond a gap", "approximated"]) == {"leg-floor", "toe.lower"}
    assert told["contact", "ignored"] == ("leg-tip",)
    np.testing.assert_allclose(robot.problem.q0[jnp.array([0, 2])], [0.05, 0.1], atol=1e-12)


def fallen() -> tuple[float, float]:
    """The pendulum's moment of inertia, and its energy at its stop: what its weight gave and friction left."""
    work = MASS * G * LENGTH * (np.cos(STOP) - np.cos(START)) - LOSS * (START - STOP)
    return MASS * LENGTH**2 + 1e-9, work


@pytest.mark.slow
def test_pendulum_with_a_limit_and_frictionloss() -> None:
    """It falls onto its stop with the energy that friction leaves, and rests there; MuJoCo's, which is soft, nearly."""
    robot = uk.load(PENDULUM, contact=True)
    run = uk.simulate(robot.problem, t1=1.0)
    inertia, work = fallen()
    speed = np.sqrt(2 * work / inertia)
    assert run.contacts.names == ("pin friction", "pin.lower", "pin.upper")
    (struck,) = np.flatnonzero(np.asarray(run.contacts.impulse[:, 1]) > 1e-3)
    np.testing.assert_allclose(run.contacts.impulse[struck, 1], inertia * speed, rtol=1e-7)
    assert run.contacts.told()[struck].endswith(f"{inertia * speed:.4g} N m s and closes")
    np.testing.assert_allclose(run.q[-1], STOP, atol=1e-10)
    np.testing.assert_allclose(run.contacts.force[-1, :2].sum(), MASS * G * LENGTH * np.sin(STOP), rtol=1e-9)
    model = mujoco.MjModel.from_xml_string(PENDULUM)
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    while data.qpos[0] > 0.5 * (START + STOP):
        mujoco.mj_step(model, data)
    passed = np.interp(-0.5 * (START + STOP), -np.asarray(run.q[:, 0]), np.asarray(run.t))
    assert abs(data.time - passed) < 0.01 * passed
    mujoco.mj_step(model, data, nstep=int((1 - data.time) / model.opt.timestep))
    assert abs(data.qpos[0] - STOP) < 0.02


@pytest.mark.slow
def test_stiff_springs_and_dampers_need_no_short_steps() -> None:
    """A damper with c h / I = 10 creeps by tan(x / 2) = tan(x0 / 2) exp(-m g l t / c); a spring with w h = 3 keeps its
    energy to rounding, as by the implicit midpoint rule."""
    text = """<mujoco><option gravity="0 0 -9.81"/><compiler angle="radian"/><worldbody>
      <body name="a"><joint name="a" axis="0 1 0" damping="1" range="-3 3"/>
        <inertial pos="0 0 -0.1" mass="0.01" diaginertia="1e-9 1e-9 1e-9"/></body>
      <body name="b"><joint name="b" type="slide" axis="1 0 0" stiffness="1e5" range="-3 3"/>
        <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/></body></worldbody></mujoco>"""
    robot = uk.load(text, contact=["limits"])
    x0, h = 1.0, 1e-3
    run = uk.simulate(robot.mechanism, [x0, 0.0], [0.0, 0.0], t1=5.0, dt0=h, contact="steps", ts=[1.0, 5.0])
    exact = 2 * np.arctan(np.tan(x0 / 2) * np.exp(-0.01 * 9.81 * 0.1 / 1.0 * np.array([1.0, 5.0])))
    np.testing.assert_allclose(run.q[:, 0], exact, atol=1e-5)
    ends = 1e-2 * np.arange(101)
    swing = uk.simulate(robot.mechanism, [0.0, 0.1], [0.0, 0.0], t1=1.0, dt0=1e-2, contact="steps", ts=ends)
    energy = 0.5 * 1e5 * swing.q[:, 1] ** 2 + 0.5 * swing.v[:, 1] ** 2
    np.testing.assert_allclose(energy, 500.0, rtol=1e-9)


@pytest.mark.slow
def test_gripper_closes_on_a_ball() -> None:
    """Held by two pads at rest, each pressing as the other; loops stay closed, and nothing is penetrated."""
    spec = mujoco.MjSpec.from_file(str(FILES / "robotiq_2f85.xml"))
    spec.option.gravity = [0, 0, 0]
    ball = spec.worldbody.add_body(name="ball", pos=[0, 0, 0.142])
    ball.add_freejoint()
    ball.add_geom(name="ball", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.03, 0, 0], mass=0.05)
    robot = uk.load(spec, contact=[("left_pad1", "ball"), ("right_pad1", "ball")], ctrl=jnp.array([0.0]))
    run = uk.simulate(robot.problem, t1=0.5, contact="steps", dt0=1e-3, ts=np.linspace(0.02, 0.5, 25))
    assert run.ok
    assert int(run.stats["num_unsolved_steps"]) == 0
    assert np.abs(run.position_error).max() < 1e-12
    assert run.contacts.gap.min() > -1e-10
    assert run.contacts.closed[-1].all()
    pressing = run.contacts.force[-1, :: run.contacts.contacts[0][1] + 1]
    assert pressing.min() > 1.0
    np.testing.assert_allclose(pressing[0], pressing[1], rtol=1e-2)
    assert np.abs(run.v[-1]).max() < 1e-2


@pytest.mark.slow
def test_cassie_is_dropped() -> None:
    """From 3 cm onto its feet, without motors: loops stay closed, and the feet on or above the floor."""
    spec = mujoco.MjSpec.from_file(str(FILES / "cassie.xml"))
    plane = mujoco.mjtGeom.mjGEOM_PLANE
    spec.worldbody.add_geom(name="floor", type=plane, size=[0, 0, 1], conaffinity=15, condim=3)
    robot = uk.load(spec, contact=[("left-foot", "floor"), ("right-foot", "floor")])
    (moved,) = [x.names for x in robot.report.features if x.feature == "start beyond a gap"]
    assert len(moved) == 4  # the feet of its home posture are in the floor
    q0 = robot.problem.q0.at[2].add(0.03)
    run = uk.simulate(
        robot.mechanism,
        q0,
        robot.problem.v0,
        t1=0.3,
        dt0=1e-3,
        contact="steps",
        ts=np.linspace(0.01, 0.3, 30),
    )
    assert run.ok
    assert int(run.stats["num_unsolved_steps"]) == 0
    assert np.abs(run.position_error).max() < 1e-12
    assert run.contacts.gap.min() > -1e-10
    fall = np.sqrt(2 * 0.03 / G)  # its feet move little against it while it falls
    assert abs(run.contacts.event_time[0] - fall) < 0.1 * fall


@pytest.mark.slow
def test_cassie_stands() -> None:
    """For 5 s, its joints held at the home posture. With leaf springs that is unstable however stiff the motors are, so
    ankles answer to where the pelvis is and how it leans forwards, hips to where it is sideways."""
    spec = mujoco.MjSpec.from_file(str(FILES / "cassie.xml"))
    plane = mujoco.mjtGeom.mjGEOM_PLANE
    spec.worldbody.add_geom(name="floor", type=plane, size=[0, 0, 1], conaffinity=15, condim=3)
    robot = uk.load(spec, contact=[("left-foot", "floor"), ("right-foot", "floor")])
    joints = [
        f"{side}-{x}"
        for side in ("left", "right")
        for x in ("hip-roll", "hip-yaw", "hip-pitch", "knee", "foot")
    ]
    labels, rates = robot.mechanism.labels, robot.mechanism.velocity_labels
    at, moving = (np.array([names.index(x) for x in joints]) for names in (labels, rates))
    q0, gear = robot.problem.q0, np.array([25, 25, 16, 16, 50] * 2, float)
    stiffness, damping = np.array([1e3, 5e2, 1.5e3, 2e3, 1e2] * 2), np.array([30.0, 20, 40, 50, 5] * 2)
    ankles, hips = np.array([0, 0, 0, 0, 1.0] * 2), np.array([1.0, 0, 0, 0, 0] * 2)

    def law(t, q, v):
        forwards = -1000 * (q[0] - q0[0] - 0.02) - 150 * v[0] - 200 * q[5] - 10 * v[4]
        sideways = 2000 * q[1] + 200 * v[1]
        return (
            stiffness * (q0[at] - q[at]) - damping * v[moving] + forwards * ankles + sideways * hips
        ) / gear

    ts = np.linspace(0.05, 5.0, 100)
    standing = robot.with_inputs(law).mechanism
    run = uk.simulate(standing, q0, robot.problem.v0, t1=5.0, dt0=1e-3, contact="steps", ts=ts)
    assert run.ok
    assert int(run.stats["num_unsolved_steps"]) == 0
    assert np.abs(run.position_error).max() < 1e-12
    assert run.contacts.gap.min() > -1e-10
    assert run.contacts.closed[20:].all()
    pelvis = np.asarray(run.q[:, :7])
    assert np.abs(pelvis[:, :2] - np.asarray(q0[:2])).max() < 0.05
    assert np.ptp(pelvis[20:, 2]) < 5e-3
    assert np.abs(pelvis[:, 4:]).max() < 0.02  # of the quaternion


@pytest.mark.slow
def test_humanoid_falls() -> None:
    """With its limits, head, trunk, feet and hands on the floor: it ends lying there."""
    import gymnasium

    file = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "humanoid.xml"
    touching = ("head", "torso1", "butt", "right_foot", "left_foot", "right_hand", "left_hand")
    robot = uk.load(str(file), contact=["limits", *((name, "floor") for name in touching)])
    run = uk.simulate(robot.problem, t1=1.0, dt0=1e-3, contact="steps", ts=np.linspace(0.05, 1.0, 20))
    assert run.ok
    assert int(run.stats["num_unsolved_steps"]) == 0
    assert run.contacts.gap.min() > -1e-10
    assert robot.points(0.0, run.q[-1])["torso"][2] < 0.6


ROPES = f"""
<mujoco>
  <option gravity="0 0 -{G}"/>
  <compiler angle="radian"/>
  <worldbody>
    <site name="hook" pos="0.3 0 2"/>
    <body name="rod"><joint name="pin" axis="0 -1 0"/>
      <inertial pos="0 0 -{LENGTH}" mass="{MASS}" diaginertia="1e-9 1e-9 1e-9"/></body>
    <body name="weight" pos="0.3 0 1"><joint name="fall" type="slide" axis="0 0 1"/>
      <inertial pos="0 0 0" mass="2" diaginertia="1 1 1"/><site name="ring"/></body>
  </worldbody>
  <tendon>
    <fixed name="strap" limited="true" range="{2 * STOP} 4" frictionloss="{LOSS / 2}">
      <joint joint="pin" coef="2"/></fixed>
    <spatial name="rope" limited="true" range="0.1 1.5" frictionloss="3"><site site="hook"/><site site="ring"/></spatial>
  </tendon>
  <keyframe><key qpos="{START} 0"/></keyframe>
</mujoco>
"""


def test_limits_and_friction_of_tendons_are_rows() -> None:
    """Gaps from MuJoCo's lengths, rates from its Jacobians; not asked for they are in the report."""
    told = {x.feature: x for x in uk.load(ROPES).report.of("ignored")}
    for feature, word in (("tendon limits", "limits"), ("tendon frictionloss", "friction")):
        assert told[feature].names == ("strap", "rope")
        assert f"contact=['{word}']" in told[feature].why
    robot, model = uk.load(ROPES, contact=["limits", "friction"]), mujoco.MjModel.from_xml_string(ROPES)
    assert {"tendon limits", "tendon frictionloss"} <= {x.feature for x in robot.report.of("used")}
    stops, rubs = unilateral(robot.mechanism.constraints)
    assert stops.names == ("strap.lower", "strap.upper", "rope.lower", "rope.upper")
    assert (stops.angle, rubs.names) == ((True, True, False, False), ("strap friction", "rope friction"))
    data, (qpos, qvel) = mujoco.MjData(model), ([0.7, -0.2], [1.0, 2.0])
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_forward(model, data)
    q, v = robot.state_from_mujoco(qpos, qvel)
    gaps, rates = jax.jit(lambda q, v: (stops.gaps(0.0, q), rubs.rates(0.0, q, v)))(q, v)
    ends = model.tendon_range
    np.testing.assert_allclose(gaps[::2], data.ten_length - ends[:, 0], rtol=1e-14)
    np.testing.assert_allclose(gaps[1::2], ends[:, 1] - data.ten_length, rtol=1e-14)
    np.testing.assert_allclose(rates, data.ten_velocity, rtol=1e-14)
    np.testing.assert_allclose(rubs.limit, model.tendon_frictionloss)


@pytest.mark.slow
def test_tendons_stop_and_rub() -> None:
    """A strap around a pin with the stop and the friction of a joint; a rope that a falling weight pulls taut."""
    robot = uk.load(ROPES, contact=True)
    run = uk.simulate(robot.problem, t1=1.0)
    inertia, work = fallen()
    drop, rub = 0.5, 3.0
    names = run.contacts.names
    impulses = dict(zip(names, np.asarray(run.contacts.impulse).max(axis=0), strict=True))
    # On the strap's length, twice the angle, works half the moment.
    np.testing.assert_allclose(impulses["strap.lower"], np.sqrt(2 * work * inertia) / 2, rtol=1e-7)
    np.testing.assert_allclose(impulses["rope.upper"], 2 * np.sqrt(2 * drop * (G - rub / 2)), rtol=1e-7)
    np.testing.assert_allclose(run.q[-1], [STOP, -drop], atol=1e-10)


def _stl(points: np.ndarray, faces: np.ndarray) -> bytes:
    """A binary STL."""
    corners = [np.concatenate([np.zeros((1, 3)), points[face]]) for face in faces]
    body = b"".join(np.asarray(x, "<f4").tobytes() + bytes(2) for x in corners)
    return bytes(80) + len(faces).to_bytes(4, "little") + body


def test_collision_meshes_of_a_urdf_touch_where_asked(tmp_path: Path) -> None:
    """As hulls of what the files hold; what is not there, or text, is told of."""
    points = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
    (tmp_path / "tip.stl").write_bytes(_stl(points, np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])))
    (tmp_path / "text.stl").write_text("solid\n" + 20 * "facet\n" + "endsolid\n")
    mesh = '<collision><geometry><mesh filename="{}"/></geometry></collision>'.format
    mass = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    file = tmp_path / "robot.urdf"
    file.write_text(
        f'<robot name="a"><link name="base">{mass}{mesh("tip.stl")}</link>'
        f'<link name="hand">{mass}{mesh("tip.stl")}{mesh("text.stl")}{mesh("lost.stl")}</link>'
        '<joint name="slide" type="prismatic"><parent link="base"/><child link="hand"/><axis xyz="0 0 1"/>'
        '<limit lower="-9" upper="9" effort="1" velocity="1"/><origin xyz="0 0 2"/></joint></robot>'
    )
    asked, unasked = (read_contact_selection(x, None, None) for x in (True, None))
    found = read(str(file), False, asked)
    (contact,) = contacts(reference(found.model, None, True), asked).contacts
    hulls = {shape.body: np.asarray(shape.points) for shape in contact.shapes}
    by_place = lambda x: x[np.lexsort(x.round(6).T)]
    np.testing.assert_allclose(by_place(hulls["ground"]), by_place(points), atol=1e-7)
    np.testing.assert_allclose(by_place(hulls["hand"]), by_place(points + 2 * np.eye(3)[-1]), atol=1e-7)
    told = {x.feature: (x.names, x.why) for x in found.features}
    assert told["collision mesh"] == (("hand",), "its mesh is not there, or of a kind that is not read")
    told = {x.feature: (x.names, x.why) for x in read(str(file), False, unasked).features}
    assert (names := told["collision mesh"][0]) == ("base", "hand"), names
