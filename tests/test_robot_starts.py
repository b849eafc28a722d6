"""Where robots start: the nearest state that is clear, against SciPy and MuJoCo; and what files may say of limits, welds,
bodies without mass, servos on balls, restitution and friction."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.optimize import minimize

import ukjax as uk
from ukjax._system._constraint import unilateral
from ukjax.robots._contact_selection import restitution_of

TRAY = """<mujoco><worldbody>
  <body name="tray" pos="0 0 1"><joint name="up" type="slide" axis="0 0 1" damping="20" stiffness="5000"/>
    <geom name="tray" type="box" size=".2 .2 .01" mass="1"/></body>
  <body name="ball" pos="0 0 1.0599"><freejoint/><geom name="ball" size=".05" mass=".1"/></body>
</worldbody></mujoco>"""
LEG = """<mujoco><compiler angle="radian"/><worldbody><geom name="floor" type="plane" size="0 0 1"/>
  <body name="trunk" pos="0 0 0.6"><freejoint/><geom name="trunk" size="0.1" mass="3"/>
    <body name="shin" pos="0 0 -0.1"><joint name="knee" axis="0 1 0" range="-2 0.1"/>
      <geom name="shin" type="capsule" fromto="0 0 -0.05 0.1 0 -0.18" size="0.04" mass="1"/>
      <body name="foot" pos="0.1 0 -0.18"><joint name="ankle" axis="0 1 0"/>
        <geom name="foot" pos="0.05 0 0" size="0.04" mass="0.3"/></body></body></body>
  </worldbody><keyframe><key qpos="0 0 0.315 1 0 0 0 0 0"/></keyframe></mujoco>"""


def _features(robot):
    return {(x.feature, x.status): x for x in robot.report.features}


def test_bodies_that_overlap_by_little_keep_their_contact():
    """By momentum each moves as the other's mass over both."""
    robot = uk.load(TRAY, contact=True)
    moved = _features(robot)["start beyond a gap", "approximated"]
    assert moved.names == ("tray-ball",)
    assert "tray-ball by 0.0001" in moved.why
    assert "ball free z by 9.09e-05" in moved.why
    np.testing.assert_allclose(robot.problem.q0[:4], [-1e-4 / 11, 0, 0, 1e-3 / 11], atol=1e-10)


@pytest.mark.slow
def test_a_ball_stays_on_its_tray():
    robot = uk.load(TRAY, contact=True)
    run = uk.simulate(robot.problem, t1=1.5, contact="steps", dt0=1e-3, ts=[1.5])
    np.testing.assert_allclose(run.q[-1, 3] - run.q[-1, 0], 1e-4, atol=1e-9)
    np.testing.assert_allclose(run.q[-1, 0], -1.1 * 9.81 / 5000, rtol=1e-3)


def test_nearest_start_is_that_of_scipy():
    """Two geoms both in the floor, of which equalities would ask the impossible."""
    robot, raw = uk.load(LEG, contact=True), uk.load(LEG, contact=True, start="as it is")
    assert _features(raw)["start beyond a gap", "used"].names == ("shin-floor[0]", "foot-floor")
    tree, q0 = raw.mechanism, np.asarray(raw.problem.q0)
    M = np.asarray(tree.mass_matrix(jnp.zeros(()), raw.problem.q0))
    N = np.zeros((9, 8))
    N[[0, 1, 2, 7, 8], [0, 1, 2, 6, 7]], N[[4, 5, 6], [3, 4, 5]] = 1.0, 0.5

    def posture(d):
        q = q0 + N @ d
        return jnp.concatenate([q[:3], q[3:7] / jnp.linalg.norm(q[3:7]), q[7:]])

    gaps = lambda d: jnp.concatenate([x.gaps(0.0, posture(d)) for x in unilateral(tree.constraints)])
    both = jax.jit(lambda d: (gaps(d), jax.jacfwd(gaps)(d)))
    clear = {"type": "ineq", "fun": lambda d: np.array(both(d)[0]), "jac": lambda d: np.array(both(d)[1])}
    best = minimize(
        lambda d: (0.5 * d @ M @ d, M @ d),
        np.zeros(8),
        jac=True,
        constraints=[clear],
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 200},
    )
    np.testing.assert_allclose(robot.problem.q0, posture(best.x), atol=1e-7)


DEEP = """<mujoco><worldbody><geom name="floor" type="plane" size="0 0 1"/><geom name="roof" type="plane"
  size="0 0 1" pos="0 0 1" zaxis="0 0 -1"/><body name="a" pos="0 0 {z}"><joint name="up" type="slide" axis="0 0 1"/>
  <geom name="ball" size="{r}"/></body></worldbody></mujoco>"""


def test_where_nothing_is_clear_geoms_are_named():
    with pytest.raises(
        uk.InputError, match=r"beyond ball-floor by 0\.2, and no posture near it.*ball-roof by 0\.1"
    ):
        uk.load(DEEP.format(z=0.4, r=0.6), contact=True)
    with pytest.raises(uk.InputError, match="start must be"):
        uk.load(LEG, start="anywhere")
    for z in (0.04, 0.84):  # 16 cm deep
        robot = uk.load(DEEP.format(z=z, r=0.2), contact=True)
        np.testing.assert_allclose(robot.problem.q0[0], np.clip(z, 0.2, 0.8) - z, atol=1e-10)


def test_a_start_as_it_is_is_pushed_out_by_the_first_step():
    robot = uk.load(DEEP.format(z=0.04, r=0.2), contact=True, start="as it is")
    options = {"t1": 2e-3, "dt0": 1e-3, "contact": "steps", "ts": [0.0, 1e-3, 2e-3]}
    with pytest.raises(uk.InputError, match=r"penetrates ball-floor by 0\.16.*start_tolerance=inf"):
        uk.simulate(robot.problem, **options)
    run = uk.simulate(robot.problem, start_tolerance=np.inf, **options)
    np.testing.assert_allclose(run.contacts.gap[:, 0], [-0.16, 0.0, 0.0], atol=1e-9)


def test_overlaps_that_no_motion_changes_are_ignored():
    text = """<mujoco><worldbody><geom name="post" type="capsule" fromto="0 0 0 0 0 1" size=".05"/><body pos="0 0 1">
      <joint type="ball"/><geom name="arm" type="capsule" fromto="0 0 0 0 0 1" size=".05"/></body></worldbody></mujoco>"""
    lost = _features(uk.load(text, contact=True))["contact", "ignored"]
    assert lost.names == ("arm-post",)
    assert "no motion" in lost.why


def test_balls_about_one_point_are_parted():
    """Though their gap has no slope there: each moves as the other's mass over both, to a distance of both radii."""
    body = '<body pos="0 0 1"><freejoint/><geom name="{}" size="{}" mass="{}"/></body>'
    both = body.format("small", 0.04, 1.0) + body.format("large", 0.06, 3.0)
    robot = uk.load(f"<mujoco><worldbody>{both}</worldbody></mujoco>", contact=True)
    assert not [x for x in robot.report.features if (x.feature, x.status) == ("contact", "ignored")]
    small, large = robot.problem.q0[:3], robot.problem.q0[7:10]
    np.testing.assert_allclose(np.linalg.norm(small - large), 0.1, atol=1e-9)
    np.testing.assert_allclose(small, -3 * large, atol=1e-9)


SHELLS = """<mujoco><worldbody><geom name="floor" type="plane" size="0 0 1"/>
  <body name="trunk" pos="0 0 {}"><freejoint/><geom name="trunk" size="0.1" mass="3"/>
    <body name="hip" pos="0.03 0 0"><joint name="swing" axis="1 0 0"/><geom size="0.02" mass="0.1"/>
      <body name="thigh"><joint name="lift" axis="0 1 0"/><geom name="thigh" pos="0 0 -0.04" size="0.1" mass="1"/>
      </body></body></body></worldbody></mujoco>"""


def test_links_that_are_built_into_each_other_lose_their_contact():
    """Middles of trunk and thigh are 7 cm apart at most, their radii 20 cm together; the floor stays."""
    robot = uk.load(SHELLS.format(1.0), contact=True)
    lost = _features(robot)["contact", "ignored"]
    assert lost.names == ("trunk-thigh",)
    assert "trunk-thigh by 0.15" in lost.why
    assert [x.name for x in robot.mechanism.mechanism.contacts if "thigh" in x.name] == ["thigh-floor"]
    with pytest.raises(uk.InputError, match="trunk-thigh"):
        uk.load(SHELLS.format(1.0), contact=True, strict=True)


def test_ranges_without_an_end():
    text = """<mujoco><worldbody><body><joint name="{0}" axis="0 1 0" limited="true" range="{1}"/>
      <geom size=".1" pos=".2 0 0"/></body></worldbody></mujoco>"""
    assert not unilateral(uk.load(text.format("a", "-inf inf"), contact=True).mechanism.constraints)
    (stops,) = unilateral(uk.load(text.format("a", "-90 inf"), contact=True).mechanism.constraints)
    assert stops.names == ("a.lower",)


def test_quaternions_of_mujoco_are_of_unit_length():
    robot = uk.load('<mujoco><worldbody><body><freejoint/><geom size=".1"/></body></worldbody></mujoco>')
    qpos, _ = robot.state_to_mujoco([0, 0, 0, 1.0, 0.1, 0.2, 0.0], np.zeros(6))
    np.testing.assert_allclose(qpos[3:], np.array([1.0, 0.1, 0.2, 0.0]) / np.sqrt(1.05), rtol=1e-14)


def test_weld_half_a_turn_apart():
    text = """<mujoco><option gravity="0 0 0"><flag contact="disable"/></option><worldbody>
      <body name="a"><freejoint/><geom size=".1"/></body>
      <body name="b" quat="0 1 0 0"><freejoint/><geom size=".1"/></body>
      </worldbody><equality><weld name="w" body1="a" body2="b" relpose="0 0 0 1 0 0 0"/></equality></mujoco>"""
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(data.qacc, 0, atol=1e-9)  # nothing turns it
    robot = uk.load(text)
    assert _features(robot)["weld half a turn apart at the start", "approximated"].names == ("w",)
    q, _ = robot.state_to_mujoco(robot.problem.q0, np.zeros(12))
    np.testing.assert_allclose(abs(q[3:7] @ q[10:14]), 1.0, rtol=1e-12)


def _urdf(axes):
    inertial = """<inertial><origin xyz="0 0 -.5"/><mass value="1"/>
      <inertia ixx=".1" iyy=".1" izz=".05" ixy="0" ixz="0" iyz="0"/></inertial>"""
    joints = "".join(
        f'<joint name="j{i}" type="continuous"><parent link="l{i}"/><child link="l{i + 1}"/><axis xyz="{axis}"/></joint>'
        for i, axis in enumerate(axes)
    )
    links = "".join(f'<link name="l{i}"/>' for i in range(len(axes)))
    return f'<robot name="r">{links}<link name="l{len(axes)}">{inertial}</link>{joints}</robot>'


def test_links_without_mass_between_others():
    """As MuJoCo's three hinges on one body; where a link can turn alone there is no acceleration."""
    axes = ("1 0 0", "0 1 0", "0 0 1")
    robot = uk.load(_urdf(axes))
    hinges = "".join(f'<joint axis="{axis}"/>' for axis in axes)
    model = mujoco.MjModel.from_xml_string(
        f"""<mujoco><worldbody><body>{hinges}<inertial pos="0 0 -.5" mass="1" diaginertia=".1 .1 .05"/></body>
        </worldbody></mujoco>"""
    )
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = (0.3, -0.5, 0.8), (1.0, 2.0, -1.5)
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(robot.acceleration(data.qpos, data.qvel), data.qacc, rtol=1e-11)
    with pytest.raises(uk.InputError, match="without mass, 'l1', 'l2', some can move"):
        uk.load(_urdf(("1 0 0", "1 0 0", "0 0 1")))


def test_position_servo_on_a_ball():
    text = """<mujoco><worldbody><body quat="1 2 3 4"><joint name="b" type="ball"/><geom size=".1" pos=".3 0 .1"/></body>
      </worldbody><actuator><position joint="b" kp="200" kv="3" gear="1 -2 .5 0 0 0"/></actuator></mujoco>"""
    robot, model = uk.load(text), mujoco.MjModel.from_xml_string(text)
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    for _ in range(3):
        data.qpos[:], data.qvel[:], data.ctrl[:] = rng.normal(size=4), rng.normal(size=3), rng.normal(size=1)
        mujoco.mj_normalizeQuat(model, data.qpos)
        mujoco.mj_forward(model, data)
        ours = robot.acceleration(data.qpos, data.qvel, data.ctrl)
        np.testing.assert_allclose(ours, data.qacc, rtol=1e-10, atol=1e-10 * np.abs(data.qacc).max())


DROP = """<mujoco><option timestep="1e-4"/><worldbody>
  <geom name="floor" type="plane" size="0 0 1" solref="{0}"/>
  <body name="ball" pos="0 0 .2"><freejoint/><geom name="ball" size=".1" mass="1" solref="{0}"/></body>
  <body name="leg" pos="9 0 0"><joint name="hip" axis="0 1 0" range="-90 90" frictionloss=".3" ref="10"/>
    <geom name="leg" type="capsule" fromto="0 0 3 0 0 4" size=".01" condim="1"/></body></worldbody>
  <tendon><fixed name="strap" frictionloss=".1"><joint joint="hip" coef="2"/></fixed></tendon>
  <actuator><position name="servo" joint="hip" kp="20" gear="3"/><motor name="winch" tendon="strap" gear="2"/></actuator>
</mujoco>"""


@pytest.mark.parametrize(("zeta", "tolerance"), [(0.0, 1e-3), (0.1, 5e-3), (0.3, 1e-2)])
def test_solref_is_a_restitution(zeta, tolerance):
    """As MuJoCo's ball bounces, whose contact is nearly as hard as the law takes it to be."""
    text = DROP.format(f"-1e5 {-2 * zeta * np.sqrt(1e5)}")
    model = mujoco.MjModel.from_xml_string(text)
    data, before = mujoco.MjData(model), 0.0
    while not (before and not data.ncon):
        mujoco.mj_step(model, data)
        before = before or (-data.qvel[2] if data.ncon else 0.0)
    e = float(restitution_of(np.array([-1e5, -2 * zeta * np.sqrt(1e5)])))
    np.testing.assert_allclose(e, data.qvel[2] / before, atol=tolerance)
    np.testing.assert_allclose(restitution_of(np.array([0.01, zeta])), e, rtol=1e-12)
    robot = uk.load(text, contact=[("ball", "floor")])
    np.testing.assert_allclose(robot.parameters["restitution"]["ball-floor"], e)


def test_restitution_and_friction_by_name():
    text = DROP.format(".004 1")
    told = _features(uk.load(text, contact=True))["solref of a contact", "ignored"]
    assert not told.moves
    assert "ball-floor" in told.names
    given = {"restitution": {"floor": 0.3, ("ball", "floor"): 0.7, "hip": 0.2}, "friction": {"leg": 2.0}}
    known = uk.load(text, contact=True, **given).parameters
    assert {k: float(x) for k, x in known["restitution"].items()} == {
        "hip": 0.2,
        "ball-floor": 0.7,
        "leg-floor": 0.3,
        "ball-leg": 0.0,
    }
    assert {k: float(x) for k, x in known["friction"].items()} == {
        "ball-floor": 1,
        "leg-floor": 2,
        "ball-leg": 2,
    }
    for wrong, words in (
        ({"restitution": 1.5}, "from 0 to 1, got 1.5"),
        ({"restitution": {"flor": 0.1}}, "did you mean 'floor'"),
        ({"friction": {("a", "b", "c"): 0.1}}, "got the name"),
        ({"friction": -1.0}, "at least 0"),
    ):
        with pytest.raises(uk.InputError, match=words):
            uk.load(text, contact=True, **wrong)


def test_parameters_of_contacts_and_actuators():
    """They are what they were set to; gains, biases and gears act as in MuJoCo's model with these."""
    robot, deg = uk.load(DROP.format(".02 1"), contact=True), np.pi / 180
    np.testing.assert_allclose(robot.parameters["limit"]["hip"], [-90 * deg, 90 * deg])
    changes = {
        "friction": {"leg-floor": 0.4},
        "restitution": {"ball-floor": 0.6, "hip": 0.2},
        "frictionloss": {"hip": 0.5, "strap": 0.2},
        "limit": {"hip": [-0.5, 0.7]},
        "gain": {"servo": [30.0, 0.0, 0.0]},
        "bias": {"servo": [0.0, -30.0, -1.0]},
        "gear": {"servo": 2.0, "winch": 1.5},
    }
    other = robot.with_parameters(**changes)
    for kind, values in changes.items():
        for name, x in values.items():
            np.testing.assert_allclose(other.parameters[kind][name], x, rtol=1e-14)
    limits = next(x for x in unilateral(other.mechanism.constraints) if x.name == "limits")
    np.testing.assert_allclose(
        limits.gaps(0.0, other.problem.q0), np.array([0.5, 0.7]) + np.array([1, -1]) * 10 * deg
    )
    changed = (
        DROP.format(".02 1")
        .replace('kp="20" gear="3"', 'kp="30" kv="1" gear="2"')
        .replace('"strap" gear="2"', '"strap" gear="1.5"')
    )
    model = mujoco.MjModel.from_xml_string(changed)
    for flag in ("CONTACT", "LIMIT", "FRICTIONLOSS"):
        model.opt.disableflags |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}"))
    data = mujoco.MjData(model)
    data.qpos[7], data.qvel[:], data.ctrl[:] = 0.4, 0.3, (0.3, 0.4)
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(
        other.acceleration(data.qpos, data.qvel, data.ctrl), data.qacc, rtol=1e-9, atol=1e-9
    )
    for wrong, words in (
        ({"restitution": {"hip": 2.0}}, "at most 1"),
        ({"limit": {"hip": [1.0, 0.0]}}, "lower < upper"),
        ({"limit": {"hip": [0.0, np.inf]}}, "as finite as"),
    ):
        with pytest.raises(uk.InputError, match=words):
            robot.with_parameters(**wrong)
    e = jax.jit(lambda e: robot.with_parameters(restitution={"hip": e}).parameters["restitution"]["hip"])
    np.testing.assert_allclose(e(0.3), 0.3)


def test_a_start_with_dry_friction_of_joints_moves_clear() -> None:
    """The ball is 0.1 m too deep."""
    robot = uk.load(
        """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
        <body pos="0 0 0.1"><joint name="slide" type="slide" axis="0 0 1" frictionloss="1"/>
        <geom name="ball" size="0.2" mass="1"/></body></worldbody></mujoco>""",
        contact=True,
    )
    (told,) = (x for x in robot.report.features if x.feature == "start beyond a gap")
    assert told.names == ("ball-floor",)
    np.testing.assert_allclose(robot.problem.q0, [0.1], atol=1e-9)
