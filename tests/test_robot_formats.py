"""Robots from SDF, USD, model directives and URDFs with loops: beside the same mechanism in MJCF, and closed forms."""

from pathlib import Path

import jax.numpy as jnp
import mujoco
import mujoco_reference as reference
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.transform import Rotation

import ukjax as uk
import ukjax.mechanisms as um


def row_of(robot: uk.robots.Robot, feature: str) -> uk.robots.Feature:
    """The line of the report with this feature."""
    return next(x for x in robot.report.features if x.feature == feature)


# --- one four-bar in all formats: a crank, a coupler on it, a rocker, and the joint that closes them


def mjcf_body(name: str, place: str, x: float, inside: str = "", joint: str = "") -> str:
    return f"""<body name="{name}" pos="{place}"><joint name="{joint or name + " pin"}" axis="0 -1 0" damping="0.1"/>
      <inertial pos="{x / 2} 0 0" mass="{x}" diaginertia="0.02 0.025 0.03"/>{inside}</body>"""


END = '<site name="{} end" pos="{} 0 0"/><site name="{} end 2" pos="{} 0.1 0"/>'
FOUR_BAR = f"""<mujoco><worldbody>
  {mjcf_body("crank", "0 0 1", 0.2, mjcf_body("coupler", "0.2 0 0", 0.6, END.format("coupler", 0.6, "coupler", 0.6)))}
  {mjcf_body("rocker", "0.5 0 1", 0.4, END.format("rocker", 0.4, "rocker", 0.4))}
  </worldbody><equality><connect site1="coupler end" site2="rocker end"/>
    <connect site1="coupler end 2" site2="rocker end 2"/></equality></mujoco>"""


def urdf_link(name: str, x: float) -> str:
    return f"""<link name="{name}"><inertial><origin xyz="{x / 2} 0 0"/><mass value="{x}"/>
      <inertia ixx="0.02" iyy="0.025" izz="0.03" ixy="0" ixz="0" iyz="0"/></inertial></link>"""


def urdf_joint(name: str, parent: str, place: str) -> str:
    return f"""<joint name="{name} pin" type="continuous"><parent link="{parent}"/><child link="{name}"/>
      <origin xyz="{place}"/><axis xyz="0 -1 0"/><dynamics damping="0.1"/></joint>"""


URDF = f"""<robot name="four-bar"><link name="base"/>
  {urdf_link("crank", 0.2)}{urdf_link("coupler", 0.6)}{urdf_link("rocker", 0.4)}
  {urdf_joint("crank", "base", "0 0 1")}{urdf_joint("coupler", "crank", "0.2 0 0")}
  {urdf_joint("rocker", "base", "0.5 0 1")}%s</robot>"""
LOOPS = {
    "constraint": """<constraint name="end" type="revolute"><parent link="coupler"/><parent_origin xyz="0.6 0 0"/>
      <parent_axis xyz="0 1 0"/><child link="rocker"/><child_origin xyz="0.4 0 0" rpy="0 0 1.5707963267948966"/>
      <child_axis xyz="1 0 0"/></constraint>""",
    "loop": """<loop name="end" type="revolute"><predecessor link="coupler"/><successor link="rocker"/>
      <origin xyz="0.6 0 0"/><successor_origin xyz="0.4 0 0"/><axis xyz="0 1 0"/></loop>""",
    "loop of URDF+": """<loop name="end" type="revolute"><predecessor link="coupler"><origin xyz="0.6 0 0"/></predecessor>
      <successor link="rocker"><origin xyz="0.4 0 0"/></successor><axis xyz="0 1 0"/></loop>""",
    "ball": """<drake:ball_constraint><drake:ball_constraint_body_A name="coupler"/>
      <drake:ball_constraint_body_B name="rocker"/><drake:ball_constraint_p_AP value="0.6 0 0"/>
      <drake:ball_constraint_p_BQ value="0.4 0 0"/></drake:ball_constraint>""",
}


SECOND_PARENT = """<link name="pin"/><joint name="on coupler" type="fixed"><parent link="coupler"/><child link="pin"/>
  <origin xyz="0.6 0 0"/></joint><joint name="end" type="{}"><parent link="rocker"/><child link="pin"/>
  <origin xyz="0.4 0 0"/><axis xyz="0 1 0"/>{}</joint>"""


def sdf_link(name: str, x: float, place: str) -> str:
    return f"""<link name="{name}"><pose {place}</pose><inertial><pose>{x / 2} 0 0 0 0 0</pose><mass>{x}</mass>
      <inertia><ixx>0.02</ixx><iyy>0.025</iyy><izz>0.03</izz></inertia></inertial></link>"""


def sdf_joint(name: str, parent: str, child: str, further: str = "") -> str:
    return f"""<joint name="{name}" type="revolute"><parent>{parent}</parent><child>{child}</child>{further}
      <axis><xyz expressed_in="__model__">0 -1 0</xyz><dynamics><damping>0.1</damping></dynamics></axis></joint>"""


def sdf_four_bar(at: np.ndarray) -> str:
    """In a posture that closes it: joints of an SDF are whole where it has them."""
    cut = "<physics><simbody><must_be_loop_joint>true</must_be_loop_joint></simbody></physics>"
    end = sdf_joint("end", "coupler", "rocker", '<pose relative_to="rocker">0.4 0 0 0 0 0</pose>' + cut)
    crank, coupler, rocker = -np.degrees(at)
    return f"""<sdf version="1.11"><model name="four-bar"><frame name="pivots"><pose>0 0 1 0 0 0</pose></frame>
      {sdf_link("crank", 0.2, f'relative_to="pivots" degrees="true">0 0 0 0 {crank} 0')}
      {sdf_link("coupler", 0.6, f'relative_to="crank" degrees="true">0.2 0 0 0 {coupler} 0')}
      {sdf_link("rocker", 0.4, f'relative_to="pivots" degrees="true">0.5 0 0 0 {rocker} 0')}
      {sdf_joint("crank pin", "world", "crank")}{sdf_joint("coupler pin", "crank", "coupler")}
      {sdf_joint("rocker pin", "world", "rocker")}{end.replace("0.1</damping>", "0</damping>")}</model></sdf>"""


# In centimetres; %s: its bodies.
USD = """#usda 1.0
( metersPerUnit = 0.01; upAxis = "Z" )
def Xform "World"
{
    %s
    def PhysicsRevoluteJoint "crank_pin" { rel physics:body1 = </World/crank>; uniform token physics:axis = "Y"
        point3f physics:localPos0 = (0, 0, 100); point3f physics:localPos1 = (0, 0, 0)
        quatf physics:localRot0 = (0, 1, 0, 0); quatf physics:localRot1 = (0, 1, 0, 0)
    }
    def PhysicsRevoluteJoint "coupler_pin" { rel physics:body0 = </World/crank>; rel physics:body1 = </World/coupler>
        uniform token physics:axis = "Y"; point3f physics:localPos0 = (20, 0, 0); point3f physics:localPos1 = (0, 0, 0)
        quatf physics:localRot0 = (0, 1, 0, 0); quatf physics:localRot1 = (0, 1, 0, 0)
    }
    def PhysicsRevoluteJoint "rocker_pin" { rel physics:body1 = </World/rocker>; uniform token physics:axis = "Y"
        point3f physics:localPos0 = (50, 0, 100); point3f physics:localPos1 = (0, 0, 0)
        quatf physics:localRot0 = (0, 1, 0, 0); quatf physics:localRot1 = (0, 1, 0, 0)
    }
    def PhysicsRevoluteJoint "end" { rel physics:body0 = </World/coupler>; rel physics:body1 = </World/rocker>
        uniform token physics:axis = "Y"; uniform bool physics:excludeFromArticulation = true
        point3f physics:localPos0 = (60, 0, 0); point3f physics:localPos1 = (40, 0, 0)
    }
}
"""


def usd_body(name: str, x: float, place: tuple[float, float]) -> str:
    return f"""def Xform "{name}" ( prepend apiSchemas = ["PhysicsRigidBodyAPI", "PhysicsMassAPI"] ) {{
        double3 xformOp:translate = ({place[0]}, 0, {place[1]}); uniform token[] xformOpOrder = ["xformOp:translate"]
        float physics:mass = {x}; point3f physics:centerOfMass = ({50 * x}, 0, 0)
        float3 physics:diagonalInertia = (200, 250, 300); quatf physics:principalAxes = (1, 0, 0, 0)
    }}
    """


def in_mjcf(robot: uk.robots.Robot) -> list[int]:
    """Where the joints of a robot are among crank, coupler and rocker."""
    names = [name.split()[0].split("_")[0] for name in robot.names.joints]
    return [("crank", "coupler", "rocker").index(name) for name in names]


def closed_four_bar(crank: float, rates: float) -> tuple[mujoco.MjModel, np.ndarray, np.ndarray]:
    model = mujoco.MjModel.from_xml_string(FOUR_BAR)
    qpos, qvel = reference.closed(model, np.array([crank, 0.4, 1.9]), rates * np.array([1.0, -0.3, 0.2]))
    return model, qpos, qvel


def four_bar(kind: str, tmp_path: Path) -> tuple[uk.robots.Robot, np.ndarray]:
    """The four-bar from a file of a kind, and the positions in MJCF where its own are zero."""
    zero = np.zeros(3)
    if kind == "sdf":
        _, at, _ = closed_four_bar(0.7, 0.0)
        return uk.load(sdf_four_bar(at)), at
    if kind == "usd":
        pytest.importorskip("pxr")
        bodies = (("crank", 0.2, (0, 100)), ("coupler", 0.6, (20, 100)), ("rocker", 0.4, (50, 100)))
        (tmp_path / "four_bar.usda").write_text(USD % "".join(usd_body(*x) for x in bodies))
        return uk.load(tmp_path / "four_bar.usda"), zero
    if kind == "second parent":
        return uk.load(URDF % SECOND_PARENT.format("continuous", "")), zero
    return uk.load(URDF % LOOPS[kind]), zero


@pytest.mark.parametrize("kind", [*LOOPS, "second parent", "sdf", "usd"])
def test_a_four_bar_moves_as_in_mjcf(kind: str, tmp_path: Path) -> None:
    robot, zero = four_bar(kind, tmp_path)
    tolerance = 1e-9 if kind != "usd" else 1e-6  # its places have 32 bits
    places = in_mjcf(robot)
    for crank, rate in ((0.3, 0.0), (1.1, 2.0)):
        model, qpos, qvel = closed_four_bar(crank, rate)
        if kind == "usd":
            model.dof_damping[:] = 0.0
        expected = reference.acceleration(model, qpos, qvel)
        found = robot.acceleration((qpos - zero)[places], qvel[places])
        assert_allclose(found, expected[places], rtol=tolerance, atol=tolerance * np.abs(expected).max())
        q, v = robot.state_from_mujoco((qpos - zero)[places], qvel[places])
        residuals = [c.position_error(jnp.asarray(0.0), q) for c in robot.mechanism.constraints]
        assert max(np.abs(x).max() for x in residuals) < (1e-9 if kind != "usd" else 1e-7)
        at = reference.data(reference.smooth(model), qpos, qvel)
        M = reference.mass_matrix(model, at)[np.ix_(places, places)]
        assert_allclose(robot.mechanism.mass_matrix(jnp.asarray(0.0), q), M, atol=tolerance * M.max())
        force = (at.qfrc_passive - at.qfrc_bias)[places]
        assert_allclose(robot.mechanism.force(jnp.asarray(0.0), q, v), force, atol=20 * tolerance)


def test_a_loop_of_a_file_stays_closed() -> None:
    robot = uk.load(URDF % LOOPS["constraint"])
    run = uk.simulate(robot.problem, t1=0.3)
    assert run.position_error.max() < 1e-10
    assert row_of(robot, "revolute joint that closes a loop").names == ("end",)
    moved = row_of(robot, "start moved onto the loops")  # from zero, where the file has all joints
    assert set(moved.names) == set(robot.mechanism.labels)
    assert f"by at most {np.abs(robot.problem.q0).max():.2g} rad" in moved.why


def test_parts_of_a_urdf_that_are_not_read_are_told() -> None:
    loop = LOOPS["constraint"].replace(
        '<parent link="coupler"/>', '<parent link="coupler"><origin/></parent><safety/>'
    )
    urdf = (URDF % loop).replace('<dynamics damping="0.1"/>', '<dynamics dampng="0.1"/><spring k="1"/>')
    robot = uk.load(urdf.replace('<mass value="0.4"/>', '<mass value="0.4" unit="kg"/>'))
    pins = ("crank pin", "coupler pin", "rocker pin")
    unread = {x.feature: x.names for x in robot.report.of("ignored") if x.why == "not read"}
    assert unread == {
        "origin of <parent>": ("end",),
        "safety of <constraint>": ("end",),
        "unit of <mass>": ("rocker",),
        "spring of <joint>": pins,
        "dampng of <dynamics>": pins,
    }


def test_a_joint_that_mimics_itself_is_refused() -> None:
    urdf = (URDF % "").replace('<dynamics damping="0.1"/>', '<mimic joint="crank pin"/>', 1)
    with pytest.raises(uk.InputError, match="'crank pin' of this URDF mimics itself"):
        uk.load(urdf)


def closing_angle(qpos: np.ndarray) -> float:
    """That of the rocker against the coupler, about the axis of the other joints."""
    angle = float(qpos[2] - qpos[0] - qpos[1])
    return np.arctan2(np.sin(angle), np.cos(angle))


@pytest.mark.parametrize("kind", ["second parent", "loop", "sdf"])
def test_springs_and_dampers_of_a_joint_that_closes_a_loop(kind: str) -> None:
    """A fixed tendon on the other joints is the same."""
    k = 0.0
    if kind == "sdf":
        k, zero = 5.0, closed_four_bar(0.7, 0.0)[1]
        spring = "<spring_stiffness>5</spring_stiffness><spring_reference>0.2</spring_reference>"
        robot = uk.load(sdf_four_bar(zero).replace("0</damping>", f"0.2</damping>{spring}"))
    else:
        laws, zero = '<dynamics damping="0.2"/>', np.zeros(3)
        loop = LOOPS["loop"].replace("</loop>", f"{laws}</loop>")
        robot = uk.load(URDF % (loop if kind == "loop" else SECOND_PARENT.format("continuous", laws)))
    places, rest = in_mjcf(robot), 0.2 + closing_angle(zero)
    model, qpos, qvel = closed_four_bar(1.1, 2.0)
    joints = zip(("crank pin", "coupler pin", "rocker pin"), (-1, -1, 1), strict=True)
    tendon = f"""<tendon><fixed stiffness="{k}" damping="0.2" springlength="{rest}">
      {"".join(f'<joint joint="{name}" coef="{c}"/>' for name, c in joints)}</fixed></tendon>"""
    model = mujoco.MjModel.from_xml_string(FOUR_BAR.replace("<equality>", f"{tendon}<equality>"))
    expected = reference.acceleration(model, qpos, qvel)
    found = robot.acceleration((qpos - zero)[places], qvel[places])
    assert_allclose(found, expected[places], rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_a_joint_that_closes_a_loop_has_stops_and_dry_friction() -> None:
    laws = '<limit lower="-3" upper="{}"/><dynamics friction="{}"/>'
    robot = uk.load(URDF % SECOND_PARENT.format("revolute", laws.format(3, 1000)), contact=["friction"])
    left = row_of(robot, "limits of a joint that closes a loop")
    assert (left.names, left.why[:9]) == (("end",), "not asked")
    held = uk.simulate(robot.problem, t1=0.02, contact="steps", dt0=1e-3)
    assert_allclose(held.q_end, robot.problem.q0, atol=1e-9)
    angle = closing_angle(np.asarray(robot.problem.q0)[in_mjcf(robot)])
    robot = uk.load(URDF % SECOND_PARENT.format("revolute", laws.format(angle + 0.05, 0)), contact=["limits"])
    assert row_of(robot, "limits of a joint that closes a loop").status == "used"
    fall = uk.simulate(robot.problem, t1=0.5, ts=51, contact="steps", dt0=1e-3)
    angles = np.array([closing_angle(q[in_mjcf(robot)]) for q in np.asarray(fall.q)])
    assert_allclose(fall.contacts.gap[:, 1], angle + 0.05 - angles, atol=1e-9)
    assert abs(angle + 0.05 - angles.max()) < 1e-9
    assert fall.position_error.max() < 1e-9


def test_a_joint_that_closes_a_loop_starts_where_it_is_told() -> None:
    robot = uk.load(URDF % SECOND_PARENT.format("continuous", ""))
    told = um.problem(robot.problem, at={"end": -0.8})
    assert_allclose(closing_angle(np.asarray(told.q0)[in_mjcf(robot)]), -0.8, atol=1e-9)


# --- SDF


def test_joints_of_all_kinds_in_sdf_move_as_in_mjcf() -> None:
    axis = "<axis><xyz>{}</xyz><dynamics><damping>{}</damping></dynamics></axis>"
    universal = axis.format("1 0 0", 0.2) + axis.format("0 1 0", 0.3).replace("axis>", "axis2>")
    screw = axis.format("0 0 1", 0.1) + "<screw_thread_pitch>0.5</screw_thread_pitch>"
    slide = (
        axis.format("0 1 0", 0.4)
        .replace(
            "</damping>",
            "</damping><spring_stiffness>5</spring_stiffness><spring_reference>0.2</spring_reference>",
        )
        .replace("</axis>", "<limit><lower>-1</lower><upper>1e16</upper></limit></axis>")
    )
    joint = """<joint name="{0} joint" type="{1}"><pose>0 0 {3} 0 0 0</pose><parent>{2}</parent>
      <child>{0}</child>{4}</joint>"""
    links = "".join(
        sdf_link(name, x, f">{x} 0 {x} 0 0 0") for name, x in (("a", 0.3), ("b", 0.5), ("c", 0.7), ("d", 0.9))
    )
    robot = uk.load(f"""<sdf version="1.12"><world name="w"><gravity>0 1 -9</gravity><model name="all">{links}
      {joint.format("a", "universal", "world", -0.1, universal)}{joint.format("b", "screw", "a", 0, screw)}
      {joint.format("c", "ball", "b", 0.1, "")}{joint.format("d", "prismatic", "c", 0, slide)}</model></world></sdf>""")
    inside = ""
    for name, x, place, joints in reversed(
        (
            (
                "a",
                0.3,
                "0.3 0 0.3",
                """<joint name="u1" axis="1 0 0" pos="0 0 -0.1" damping="0.2"/>
                <joint name="u2" axis="0 1 0" pos="0 0 -0.1" damping="0.3"/>""",
            ),
            (
                "b",
                0.5,
                "0.2 0 0.2",
                """<joint name="turn" axis="0 0 1" damping="0.1"/>
                <joint name="slide" type="slide" axis="0 0 1"/>""",
            ),
            ("c", 0.7, "0.2 0 0.2", '<joint name="ball" type="ball" pos="0 0 0.1"/>'),
            (
                "d",
                0.9,
                "0.2 0 0.2",
                """<joint name="p" type="slide" axis="0 1 0" damping="0.4" stiffness="5"
                springref="0.2" range="-1 100"/>""",
            ),
        )
    ):
        inside = f"""<body name="{name}" pos="{place}">{joints}
          <inertial pos="{x / 2} 0 0" mass="{x}" diaginertia="0.02 0.025 0.03"/>{inside}</body>"""
    model = mujoco.MjModel.from_xml_string(f"""<mujoco><option gravity="0 1 -9"/><worldbody>{inside}</worldbody>
      <equality><joint joint1="slide" joint2="turn" polycoef="0 {0.5 / (2 * np.pi)} 0 0 0"/></equality></mujoco>""")
    rng = np.random.default_rng(0)
    for _ in range(3):
        qpos, qvel = reference.closed(model, rng.normal(size=model.nq) / 2, rng.normal(size=model.nv))
        expected = reference.acceleration(model, qpos, qvel)
        assert_allclose(robot.acceleration(qpos, qvel), expected, atol=1e-9 * np.abs(expected).max())
    assert row_of(robot, "joint limit").names == ("d joint",)


LIMIT = '<limit lower="-1" upper="1" effort="2" velocity="3"/>'
TURNING = f"""<robot name="r"><link name="base"/><link name="arm"><inertial><mass value="2"/><origin xyz="0.1 0 0"/>
  <inertia ixx="0.1" iyy="0.3" izz="0.3" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="turn" type="revolute"><parent link="base"/><child link="arm"/><axis xyz="0 1 0"/>{LIMIT}</joint></robot>"""
OF_DRAKE = """<link name="tip"/><drake:joint xmlns:drake="http://drake.mit.edu" name="{}" type="ball"><parent link="arm"/>
  <child link="tip"/><dynamics damping="{}"/></drake:joint>"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('lower="-1"', 'lower="low"', "joint 'turn': limit: lower: could not convert"),
        ('effort="2"', 'effort="nan"', "joint 'turn': limit: effort needs 1 numbers, got 'nan'"),
        (LIMIT, LIMIT + '<mimic joint="turn" offset="1 2"/>', "mimic: offset needs 1 numbers"),
        ('value="2"', 'value="-2"', "body 'arm' has the mass -2, which is negative"),
        ('value="2"', 'value="inf"', "link 'arm': mass value must be finite, got 'inf'"),
        ('iyy="0.3"', 'iyy="nan"', "link 'arm': inertia: iyy needs 1 numbers"),
        ('type="revolute"', 'type="floating"', "floating: its parent must be called 'world', not 'base'"),
        ('<link name="base"/>', '<link name="base"/><link name="arm"/>', "has link 'arm' twice"),
        ("</robot>", OF_DRAKE.format("turn", 1) + "</robot>", "has joint 'turn' twice"),
        (
            "</robot>",
            OF_DRAKE.format("other", "inf") + "</robot>",
            "'other': axis and damping must be finite",
        ),
    ],
)
def test_a_urdf_that_makes_no_sense_is_refused(old, new, words):
    assert old in TURNING
    with pytest.raises(uk.InputError, match=words):
        uk.load(TURNING.replace(old, new), contact=["limits"])


def test_a_joint_that_follows_one_that_is_not_there_is_free():
    """MuJoCo makes an equality of it that holds the joint still."""
    robot = uk.load(TURNING.replace(LIMIT, LIMIT + '<mimic joint="gone"/>'))
    assert row_of(robot, "mimic").why == "'gone' is no joint of the tree"
    expected = 2 * 9.81 * 0.1 / (0.3 + 2 * 0.1**2)
    assert_allclose(robot.acceleration(np.zeros(1), np.zeros(1)), [expected], rtol=1e-12)


def test_limits_the_wrong_way_round_are_reported():
    robot = uk.load(TURNING.replace('lower="-1"', 'lower="2"'), contact=["limits"])
    assert row_of(robot, "limit without play").names == ("turn",)


COUPLED = {
    "gearbox": """<joint name="gear" type="gearbox"><parent>small</parent><child>large</child>
      <gearbox_ratio>-0.5</gearbox_ratio><gearbox_reference_body>base</gearbox_reference_body>
      <axis><xyz>0 0 1</xyz></axis><axis2><xyz>0 0 1</xyz></axis2></joint>""",
    "mimic": "",
}


@pytest.mark.parametrize("kind", COUPLED)
def test_coupled_joints_share_a_motion(kind: str) -> None:
    """Two wheels about upright axes: with theta_2 = n theta_1 a torque of the spring moves I_1 + n^2 I_2."""
    mimic = (
        '<mimic joint="first"><multiplier>0.5</multiplier><offset>0</offset><reference>0</reference></mimic>'
    )
    robot = uk.load(f"""<sdf version="1.11"><model name="gears"><static>0</static>{sdf_link("base", 1, ">0 0 0 0 0 0")}
      {sdf_link("small", 0.2, ">0 0 0 0 0 0")}{sdf_link("large", 0.4, ">1 0 0 0 0 0")}
      <joint name="stand" type="fixed"><parent>world</parent><child>base</child></joint>
      <joint name="first" type="continuous"><parent>base</parent><child>small</child><axis><xyz>0 0 1</xyz>
        <dynamics><spring_stiffness>7</spring_stiffness></dynamics></axis></joint>
      <joint name="second" type="continuous"><parent>base</parent><child>large</child><axis><xyz>0 0 1</xyz>
        {mimic if kind == "mimic" else ""}</axis></joint>{COUPLED[kind]}</model></sdf>""")
    inertia = (0.03 + 0.2 * 0.1**2) + 0.25 * (0.03 + 0.4 * 0.2**2)
    found = robot.acceleration(np.array([0.4, 0.2]), np.zeros(2))
    assert_allclose(found, -7 * 0.4 / inertia * np.array([1.0, 0.5]), rtol=1e-12)


def place(
    x: float, y: float, z: float, roll: float = 0.0, pitch: float = 0.0, yaw: float = 0.0
) -> np.ndarray:
    found = np.eye(4)
    found[:3, :3], found[:3, 3] = Rotation.from_euler("xyz", (roll, pitch, yaw)).as_matrix(), (x, y, z)
    return found


def write_part(folder: Path) -> None:
    (folder / "part").mkdir()
    (folder / "part" / "model.config").write_text('<model><sdf version="1.8">part.sdf</sdf></model>')
    (folder / "part" / "part.sdf").write_text(f"""<sdf version="1.8"><model name="part">
      {sdf_link("body", 0.1, ">0 0 1 0 0.2 0")}
      <frame name="tip" attached_to="body"><pose>0 0.2 0 0 0 0</pose></frame></model></sdf>""")


@pytest.mark.parametrize("kind", ["include", "placement frame", "merge", "nested"])
def test_frames_of_sdf(kind: str, tmp_path: Path) -> None:
    write_part(tmp_path)
    pose = '<pose relative_to="F">0.1 0 0 0.3 0 0</pose>'
    further = "<placement_frame>tip</placement_frame>" if kind == "placement frame" else ""
    merge = ' merge="true"' if kind == "merge" else ""
    part = f"<include{merge}><uri>model://part</uri><name>left</name>{pose}{further}</include>"
    if kind == "nested":
        part = f"""<model name="left">{pose}{sdf_link("body", 0.1, ">0 0 1 0 0.2 0")}
          <frame name="tip" attached_to="body"><pose>0 0.2 0 0 0 0</pose></frame></model>"""
    prefix = "" if kind == "merge" else "left::"
    (tmp_path / "top.sdf").write_text(f"""<sdf version="1.10"><model name="top"><pose>0 0 5 0 0 0.7</pose>
      {sdf_link("base", 1.0, ">0.5 0 0 0 0 0")}<frame name="F" attached_to="base"><pose>1 2 3 0 0 0.5</pose></frame>{part}
      <joint name="pin" type="continuous"><pose>0 0 0.1 0 0 0</pose><parent>F</parent><child>{prefix}tip</child>
        <axis><xyz expressed_in="F">0 0 1</xyz></axis></joint></model></sdf>""")
    robot = uk.load(tmp_path / "top.sdf")
    frame = place(0, 0, 5, 0, 0, 0.7) @ place(0.5, 0, 0) @ place(1, 2, 3, 0, 0, 0.5)
    body, tip = place(0, 0, 1, 0, 0.2, 0), place(0, 0.2, 0)
    here = frame @ place(0.1, 0, 0, 0.3, 0, 0)
    end = here if kind == "placement frame" else here @ body @ tip
    points = robot.points(0.0, robot.problem.q0)
    assert_allclose(points[f"{prefix}tip"], end[:3, 3], atol=1e-12)
    assert_allclose(points["F"], frame[:3, 3], atol=1e-12)
    joint = next(x for x in robot.mechanism.joints if x.name == "pin")
    assert_allclose(joint.point, (end @ [0, 0, 0.1, 1])[:3], atol=1e-12)
    assert_allclose(joint.axis, frame[:3, 2], atol=1e-12)


def test_a_planar_joint_of_drake_in_an_sdf_lets_frames_move_in_a_plane() -> None:
    """Coordinates count from where the frames meet: closed forms."""
    joint = """<drake:joint name="slab" type="planar"><drake:parent>world</drake:parent><drake:child>foot</drake:child>
      <drake:damping>0.5 0.25 0</drake:damping></drake:joint>"""
    robot = uk.load(f"""<sdf version="1.9"><model name="m">{sdf_link("slab", 0.4, ">0.2 -0.3 0.1 0 0 0.6")}
      <frame name="foot" attached_to="slab"><pose>0 0 -0.1 0 0 0</pose></frame>{joint}</model></sdf>""")
    assert robot.names.joints == ("slab", "slab 2", "slab 3")
    assert_allclose(robot.problem.q0, [0.2, -0.3, 0.6], atol=1e-12)
    assert_allclose(robot.points(0.0, robot.problem.q0)["foot"], [0.2, -0.3, 0.0], atol=1e-12)
    found = robot.acceleration(np.zeros(3), np.array([1.0, 2.0, 0.0]))
    M = np.array([[0.4, 0.0, 0.0], [0.0, 0.4, 0.08], [0.0, 0.08, 0.03 + 0.4 * 0.2**2]])
    assert_allclose(found, np.linalg.solve(M, [-0.5, -0.5, 0.0]), rtol=1e-12)


def test_what_an_sdf_has_that_is_not_read_is_told() -> None:
    shape = "<geometry><{}</geometry>"
    text = f"""<sdf version="1.9"><world name="w"><plugin name="p" filename="f.so"/>
      <model name="m">{sdf_link("a", 1, ">0 0 0 0 0 0").replace("</link>", "")}
        <sensor name="imu" type="imu"/><collision name="c">{shape.format("heightmap/>")}</collision>
        <collision name="ball">{shape.format("sphere><radius>0.1</radius></sphere>")}
          <surface><bounce><restitution_coefficient>0.5</restitution_coefficient></bounce></surface></collision>
        <visual name="v">{shape.format("box><size>1 2 3</size></box>")}</visual>
        <visual name="lost">{shape.format("mesh><uri>model://no/mesh.dae</uri></mesh>")}</visual></link></model></world></sdf>"""
    robot = uk.load(text, contact=["ground"])
    ignored = {x.feature for x in robot.report.of("ignored")}
    assert {
        "plugin",
        "sensor",
        "collision of a heightmap",
        "restitution of a surface",
        "visual geometry",
    } <= ignored
    assert row_of(robot, "free joint").count == 1
    (box,) = robot.mechanism.mechanism.visuals
    assert_allclose(box.size, (1, 2, 3))
    with pytest.raises(uk.InputError, match="plugin"):
        uk.load(text, contact=False, strict=True)


def test_bodies_of_a_model_do_not_touch_unless_it_says_so() -> None:
    ball = "<collision name='c'><geometry><sphere><radius>0.1</radius></sphere></geometry></collision></link>"
    links = [
        sdf_link(name, 1, f">{x} 0 1 0 0 0").replace("</link>", ball) for name, x in (("a", 0), ("b", 1))
    ]
    text = '<sdf version="1.9"><model name="m">{}{}</model></sdf>'
    apart = uk.load(text.format("", "".join(links)), contact=True)
    assert not apart.mechanism.mechanism.contacts
    together = uk.load(text.format("<self_collide>1</self_collide>", "".join(links)), contact=True)
    assert [x.name for x in together.mechanism.mechanism.contacts] == ["a c-b c"]


# --- URDF


def turntable(further: str) -> str:
    return f"""<robot name="table"><link name="base"/>{urdf_link("disc", 0.2)}<joint name="pin" type="continuous">
      <parent link="base"/><child link="disc"/><axis xyz="0 0 1"/></joint>{further}</robot>"""


TRANSMISSIONS = {
    "ros": """<transmission name="t"><type>transmission_interface/SimpleTransmission</type>
      <joint name="pin"><hardwareInterface>hardware_interface/EffortJointInterface</hardwareInterface></joint>
      <actuator name="motor"><mechanicalReduction>50</mechanicalReduction></actuator></transmission>""",
    "pr2": """<transmission type="pr2_mechanism_model/SimpleTransmission" name="t"><actuator name="motor"/>
      <joint name="pin"/><mechanicalReduction>50</mechanicalReduction></transmission>""",
    "ros2": """<ros2_control name="c" type="system"><joint name="pin"><command_interface name="effort"/></joint>
      <transmission name="t"><plugin>transmission_interface/SimpleTransmission</plugin><actuator name="motor"/>
      <joint name="pin"><mechanical_reduction>50</mechanical_reduction></joint></transmission></ros2_control>""",
    "drake": """<transmission><type>SimpleTransmission</type><joint name="pin"/><actuator name="motor">
      <mechanicalReduction>50</mechanicalReduction><drake:gear_ratio value="50"/><drake:rotor_inertia value="1e-4"/>
      </actuator></transmission>""",
}


@pytest.mark.parametrize("kind", TRANSMISSIONS)
def test_transmissions_are_motors(kind: str) -> None:
    robot = uk.load(turntable(TRANSMISSIONS[kind]))
    assert robot.names.actuators == ("motor",)
    inertia = 0.03 + 0.2 * 0.1**2 + (50**2 * 1e-4 if kind == "drake" else 0.0)
    found = robot.acceleration(np.zeros(1), np.zeros(1), ctrl=np.array([0.3]))
    assert_allclose(found, [50 * 0.3 / inertia], rtol=1e-12)


def test_frames_of_a_urdf_are_points() -> None:
    robot = uk.load(turntable('<frame name="rim" link="disc" xyz="0.1 0 0.2" rpy="0 0 1"/>'))
    assert_allclose(robot.points(0.0, jnp.array([np.pi / 2]))["rim"], [0, 0.1, 0.2], atol=1e-12)
    assert "frame" not in {x.feature for x in robot.report.features}
    with pytest.raises(uk.InputError, match="link of frame 'rim': 'disk'; did you mean 'disc'"):
        uk.load(turntable('<frame name="rim" link="disk"/>'))


def test_other_transmissions_are_told() -> None:
    robot = uk.load(
        turntable("""<transmission name="t"><type>transmission_interface/DifferentialTransmission</type>
          <joint name="pin"/><joint name="other"/></transmission><coupling name="c"/><bushing name="b"/>""")
    )
    ignored = {x.feature for x in robot.report.of("ignored")}
    assert {"transmission", "coupling", "bushing"} <= ignored


def test_joints_of_drake_in_a_urdf_move_as_in_mjcf() -> None:
    joint = """<drake:joint name="{0} joint" type="{2}"><parent link="{1}"/><child link="{0}"/>
      <origin xyz="0.1 0.2 0.3" rpy="0.4 0 0.1"/>{3}</drake:joint>"""
    links = "".join(urdf_link(name, x) for name, x in (("a", 0.3), ("b", 0.5), ("c", 0.7), ("d", 0.9)))
    robot = uk.load(f"""<robot name="all"><link name="base"/>{links}
      {joint.format("a", "base", "planar", '<axis xyz="0 1 0"/><dynamics damping="0.1 0.2 0.3"/>')}
      {joint.format("b", "a", "universal", '<dynamics damping="0.4"/>')}
      {joint.format("c", "b", "ball", '<dynamics damping="0.5"/>')}
      {joint.format("d", "c", "screw", '<axis xyz="0 0 2"/><drake:screw_thread_pitch value="0.5"/>')}</robot>""")
    inside = ""
    for name, x, joints in (
        ("d", 0.9, '<joint name="turn" axis="0 0 1"/><joint name="slide" type="slide" axis="0 0 1"/>'),
        ("c", 0.7, '<joint type="ball" damping="0.5"/>'),
        ("b", 0.5, '<joint axis="1 0 0" damping="0.4"/><joint axis="0 1 0" damping="0.4"/>'),
        (
            "a",
            0.3,
            """<joint type="slide" axis="1 0 0" damping="0.1"/><joint type="slide" axis="0 0 -1" damping="0.2"/>
            <joint axis="0 1 0" damping="0.3"/>""",
        ),
    ):
        inside = f"""<body name="{name}" pos="0.1 0.2 0.3" euler="0.4 0 0.1">{joints}
          <inertial pos="{x / 2} 0 0" mass="{x}" diaginertia="0.02 0.025 0.03"/>{inside}</body>"""
    model = mujoco.MjModel.from_xml_string(f"""<mujoco><compiler angle="radian" eulerseq="XYZ"/><worldbody>{inside}
      </worldbody><equality><joint joint1="slide" joint2="turn" polycoef="0 {0.5 / (2 * np.pi)} 0 0 0"/></equality>
      </mujoco>""")
    rng = np.random.default_rng(0)
    qpos, qvel = reference.closed(
        model, model.qpos0 + 0.3 * rng.normal(size=model.nq), rng.normal(size=model.nv)
    )
    expected = reference.acceleration(model, qpos, qvel)
    found = robot.acceleration(qpos, qvel)
    assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    with pytest.raises(uk.InputError, match="type 'curvilinear' is not read; planar, ball"):
        uk.load(f"""<robot name="rail"><link name="base"/>{urdf_link("a", 0.3)}
          {joint.format("a", "base", "curvilinear", "")}</robot>""")


CONSTANTS = {"torque_stiffness": "1 2 3", "torque_damping": "0.4 0.5 0.6", "force_stiffness": "7 8 9",
             "force_damping": "0.7 0.8 0.9"}  # fmt: skip


@pytest.mark.parametrize("kind", ["urdf", "sdf"])
def test_linear_bushings_push_as_those_of_drake(kind: str) -> None:
    """By the definition of `LinearBushingRollPitchYaw`, with wrenches on MuJoCo's bodies."""
    if kind == "urdf":
        laws = "".join(f'<drake:bushing_{x} value="{y}"/>' for x, y in CONSTANTS.items())
        robot = uk.load(
            turntable(f"""{urdf_link("a", 0.3)}<frame name="A" link="disc" xyz="0.1 0.2 0.3" rpy="0 0.3 0"/>
            <drake:joint name="a joint" type="ball"><parent link="disc"/><child link="a"/></drake:joint>
            <frame name="C" link="a" xyz="0 0.1 0" rpy="0.1 0 0.4"/><drake:linear_bushing_rpy>{laws}
            <drake:bushing_frameA name="A"/><drake:bushing_frameC name="C"/></drake:linear_bushing_rpy>""")
        )
    else:
        laws = "".join(f"<drake:bushing_{x}>{y}</drake:bushing_{x}>" for x, y in CONSTANTS.items())
        robot = uk.load(f"""<sdf version="1.9"><model name="m">{sdf_link("disc", 0.2, ">0 0 0 0 0 0")}
          {sdf_link("a", 0.3, ">0 0 0 0 0 0")}<frame name="A" attached_to="disc"><pose>0.1 0.2 0.3 0 0.3 0</pose></frame>
          <frame name="C" attached_to="a"><pose>0 0.1 0 0.1 0 0.4</pose></frame>
          <joint name="pin" type="continuous"><parent>world</parent><child>disc</child>
          <axis><xyz>0 0 1</xyz></axis></joint>
          <joint name="a joint" type="ball"><parent>disc</parent><child>a</child></joint>
          <drake:linear_bushing_rpy>{laws}<drake:bushing_frameA>A</drake:bushing_frameA>
          <drake:bushing_frameC>C</drake:bushing_frameC></drake:linear_bushing_rpy></model></sdf>""")
    assert row_of(robot, "linear bushing").status == "used"
    quat = " ".join(map(str, Rotation.from_euler("xyz", [0.1, 0, 0.4]).as_quat(scalar_first=True)))
    model = mujoco.MjModel.from_xml_string(f"""<mujoco><worldbody><body name="disc"><joint axis="0 0 1"/>
      <inertial pos="0.1 0 0" mass="0.2" diaginertia="0.02 0.025 0.03"/><site name="A" pos="0.1 0.2 0.3"
      quat="{np.cos(0.15)} 0 {np.sin(0.15)} 0"/><body name="a"><joint type="ball"/>
      <inertial pos="0.15 0 0" mass="0.3" diaginertia="0.02 0.025 0.03"/>
      <site name="C" pos="0 0.1 0" quat="{quat}"/>
      </body></body></worldbody></mujoco>""")
    rng, data = np.random.default_rng(1), mujoco.MjData(model)
    k, d = (
        [np.fromstring(CONSTANTS[f"{x}_{y}"], sep=" ") for x in ("torque", "force")]
        for y in ("stiffness", "damping")
    )
    for _ in range(3):
        data.qpos[1:] = [1, *0.4 * rng.normal(size=3)]
        data.qpos[1:] /= np.linalg.norm(data.qpos[1:])
        data.qpos[0], data.qvel[:], data.xfrc_applied[:] = rng.normal(), rng.normal(size=4), 0
        mujoco.mj_forward(model, data)
        (A, C), (start, end) = (
            x.reshape(2, *shape) for x, shape in ((data.site_xmat, (3, 3)), (data.site_xpos, (3,)))
        )
        moves = np.zeros((2, 6))
        for i in (0, 1):
            mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_SITE, i, moves[i], 0)
        (omega_A, v_A), (omega_C, v_C) = moves.reshape(2, 2, 3)
        turn, x = Rotation.from_matrix(A.T @ C), end - start
        roll, pitch, yaw = turn.as_euler("xyz")
        cy, sy, cp = np.cos(yaw), np.sin(yaw), np.cos(pitch)
        E = np.array(
            [[cy * cp, -sy, 0], [sy * cp, cy, 0], [-np.sin(pitch), 0, 1]]
        )  # omega in A = E (roll', pitch', yaw')
        rates = np.linalg.solve(E, A.T @ (omega_C - omega_A))
        B = A @ Rotation.from_rotvec(0.5 * turn.as_rotvec()).as_matrix()
        along = B.T @ (v_C - v_A - np.cross((omega_A + omega_C) / 2, x))
        torque = A @ np.linalg.solve(E.T, -k[0] * [roll, pitch, yaw] - d[0] * rates)
        force, middle = B @ (-k[1] * (B.T @ x) - d[1] * along), (start + end) / 2
        for body, sign in ((1, -1), (2, 1)):
            moment = torque + np.cross(middle - data.xipos[body], force)
            data.xfrc_applied[body] = sign * np.concatenate([force, moment])
        qpos, qvel = data.qpos.copy(), data.qvel.copy()
        mujoco.mj_forward(model, data)
        assert_allclose(robot.acceleration(qpos, qvel), data.qacc, rtol=1e-9, atol=1e-9)


def test_an_sdf_joint_in_a_urdf_closes_a_loop() -> None:
    gazebo = """<gazebo><joint name="end" type="revolute"><parent>coupler</parent><child>rocker</child>
      <pose>{} 0 0 0 0 0</pose><axis><xyz>0 1 0</xyz></axis></joint></gazebo><gazebo reference="crank"/>"""
    flat = URDF.replace(
        'xyz="0.5 0 1"', 'xyz="0.8 0 1.4" rpy="0 1.5707963267948966 0"'
    )  # its end is there at q = 0
    robot = uk.load(flat % gazebo.format(0.4))
    assert row_of(robot, "revolute joint that closes a loop").names == ("end",)
    assert_allclose(robot.problem.q0, 0, atol=1e-12)
    assert {"gazebo"} <= {x.feature for x in robot.report.of("ignored")}


def test_a_floor_for_a_urdf() -> None:
    text = """<robot name="ball"><link name="ball"><inertial><mass value="1"/>
      <inertia ixx="0.004" iyy="0.004" izz="0.004" ixy="0" ixz="0" iyz="0"/></inertial>
      <collision><geometry><sphere radius="0.1"/></geometry></collision></link></robot>"""
    robot = uk.load(text, free_base=True, floor=-0.2)
    assert row_of(robot, "contact").names == ("ball-floor",)
    run = uk.simulate(robot.problem, t1=0.5, contact="steps", dt0=1e-3)
    assert_allclose(run.q_end[:3], [0, 0, -0.1], atol=1e-9)
    bare = uk.load(text, free_base=True, floor=True, contact=False)
    assert not bare.mechanism.mechanism.contacts
    with pytest.raises(uk.InputError, match="a geom 'floor' already"):
        uk.load(
            "<mujoco><worldbody><geom name='floor' type='plane' size='1 1 1'/></worldbody></mujoco>",
            floor=True,
        )
    with pytest.raises(uk.InputError, match="floor must have shape"):
        uk.load(text, floor=[1.0, 2.0])
    with pytest.raises(uk.InputError, match="floor needs a file"):
        uk.load(mujoco.MjModel.from_xml_string(FOUR_BAR), floor=True)


# --- YAML


def write_arm(folder: Path) -> None:
    (folder / "arm.urdf").write_text(f"""<robot name="arm">{urdf_link("base", 1.0)}{urdf_link("hand", 0.2)}
      <joint name="pin" type="continuous"><parent link="base"/><child link="hand"/><origin xyz="0.3 0 0"/>
      <axis xyz="0 -1 0"/></joint></robot>""")


def test_model_directives(tmp_path: Path) -> None:
    write_arm(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "more.dmd.yaml").write_text("""
directives:
- add_model: {name: second, file: package://robots/arm.urdf, default_joint_positions: {pin: [-0.7]}}
- add_frame: {name: mount, X_PF: {base_frame: second::hand, translation: [0, 0, 0.5]}}
""")
    (tmp_path / "robots").symlink_to(tmp_path)
    file = tmp_path / "station.dmd.yaml"
    file.write_text("""
directives:
- add_model: {name: first, file: package://robots/arm.urdf}
- add_frame: {name: table, X_PF: {base_frame: world, translation: [1, 2, 3], rotation: !Rpy {deg: [0, 0, 90]}}}
- add_weld: {parent: table, child: first::base}
- add_directives: {file: package://robots/deep/more.dmd.yaml, model_namespace: right}
- add_weld:
    parent: first::hand
    child: right::second::base
    X_PC: {translation: [0.2, 0, 0], rotation: !AngleAxis {angle_deg: 180, axis: [0, 0, 2]}}
- add_model: {name: loose, file: package://robots/arm.urdf}
- add_collision_filter_group:
    {name: g, members: [first::hand, loose::base], ignored_collision_filter_groups: [g]}
""")
    robot = uk.load(file)
    body = """<body name="{}" pos="{}" euler="{}">{}<inertial pos="0.5 0 0" mass="1" diaginertia="0.02 0.025 0.03"/>
      <body pos="0.3 0 0"><joint name="{}" axis="0 -1 0"/><inertial pos="0.1 0 0" mass="0.2"
      diaginertia="0.02 0.025 0.03"/>{}</body></body>"""
    second = body.format("b", "0.2 0 0", "0 0 180", "", "q2", "")
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody>"
        + body.format("a", "1 2 3", "0 0 90", "", "q1", second)
        + body.format("c", "0 0 0", "0 0 0", "<freejoint/>", "q3", "")
        + "</worldbody></mujoco>"
    )
    rng = np.random.default_rng(1)
    qpos, qvel = np.array(model.qpos0), rng.normal(size=model.nv)
    qpos[[0, 1, -1]] = rng.normal(size=3)
    assert_allclose(
        robot.acceleration(qpos, qvel),
        reference.acceleration(model, qpos, qvel),
        atol=1e-9 * np.abs(qvel).max() ** 2,
    )
    assert robot.names.joints[:2] == ("first::pin", "right::second::pin")
    assert_allclose(robot.problem.q0[:2], [0, -0.7], atol=1e-14)
    turned = (
        place(1, 2, 3, 0, 0, np.pi / 2) @ place(0.5, 0, 0) @ place(0, 0, 0, 0, 0, np.pi) @ place(0.3, 0, 0)
    )
    expected = turned @ place(0, 0, 0, 0, 0.7, 0) @ [0, 0, 0.5, 1]
    points = robot.points(0.0, robot.problem.q0)
    assert_allclose(points["right::second::mount"], expected[:3], atol=1e-12)
    assert row_of(robot, "contact exclusion").names == ("first::hand-loose::base",)


def test_loops_of_a_urdf_from_yaml(tmp_path: Path) -> None:
    frames = "".join(
        f'<link name="{name}"/><joint name="{name}" type="fixed"><parent link="{link}"/><child link="{name}"/>'
        f'<origin xyz="{x} 0 0"/></joint>'
        for name, link, x in (("end_A", "coupler", 0.6), ("end_B", "rocker", 0.4))
    )
    (tmp_path / "robot.urdf").write_text(URDF % frames)
    (tmp_path / "robot.yaml").write_text(
        "closed_loop: [['end_A', 'end_B']]\ntype: ['3d']\nname_mot: ['crank pin']\n"
    )
    robot = uk.load(tmp_path / "robot.yaml")
    model, qpos, qvel = closed_four_bar(0.3, 1.0)
    places = in_mjcf(robot)
    expected = reference.acceleration(model, qpos, qvel)[places]
    assert_allclose(
        robot.acceleration(qpos[places], qvel[places]), expected, atol=1e-9 * np.abs(expected).max()
    )
    assert row_of(robot, "name_mot").status == "ignored"


# --- USD

PENDULUM = """#usda 1.0
( metersPerUnit = 1; upAxis = "Z"; kilogramsPerUnit = 2 )
def PhysicsScene "scene" { vector3f physics:gravityDirection = (0, 0, -1); float physics:gravityMagnitude = 5
}
def Xform "World"
{
    def Plane "ground" ( prepend apiSchemas = ["PhysicsCollisionAPI"] ) { uniform token axis = "Z"
        double3 xformOp:translate = (0, 0, -1); uniform token[] xformOpOrder = ["xformOp:translate"]
    }
    def Xform "rod" ( prepend apiSchemas = ["PhysicsRigidBodyAPI", "PhysicsMassAPI", "OtherAPI"] ) {
        float physics:density = 250
        double3 xformOp:translate = (0.25, 0, 0); uniform token[] xformOpOrder = ["xformOp:translate"]
        def Cube "box" ( prepend apiSchemas = ["PhysicsCollisionAPI"] ) { double size = 1
            float3 xformOp:scale = (0.5, 0.1, 0.1); uniform token[] xformOpOrder = ["xformOp:scale"]
        }
        def Sphere "look" { double radius = 0.3
            double3 xformOp:translate = (0.1, 0, 0); uniform token[] xformOpOrder = ["xformOp:translate"]
        }
    }
    def PhysicsRevoluteJoint "pin" ( prepend apiSchemas = ["PhysicsDriveAPI:angular"] ) { rel physics:body1 = </World/rod>
        uniform token physics:axis = "Y"; point3f physics:localPos1 = (-0.25, 0, 0)
        float physics:lowerLimit = -90; float physics:upperLimit = 45
        float drive:angular:physics:stiffness = 0.1; float drive:angular:physics:damping = 0.02
        float drive:angular:physics:targetPosition = 30; float drive:angular:physics:targetVelocity = 10
    }
}
"""


def test_a_usd_with_shapes_and_a_drive(tmp_path: Path) -> None:
    pytest.importorskip("pxr")
    (tmp_path / "pendulum.usda").write_text(PENDULUM)
    robot = uk.load(tmp_path / "pendulum.usda", contact=True)
    mass = 2 * 250 * 0.5 * 0.1 * 0.1
    inertia = mass * (0.25**2 + (0.5**2 + 0.1**2) / 12)
    k, c = 2 * 0.1 * 180 / np.pi, 2 * 0.02 * 180 / np.pi  # a file's are by degrees, and in its units of mass
    x, v = 0.2, 0.3
    drive = k * (np.pi / 6 - x) + c * (np.pi / 18 - v)
    expected = (drive + mass * 5 * 0.25 * np.cos(x)) / inertia
    assert_allclose(robot.acceleration(np.array([x]), np.array([v])), [expected], rtol=1e-6)
    limit = next(x for x in robot.mechanism.mechanism.contacts if isinstance(x, um.Limit))
    assert_allclose([limit.lower, limit.upper], [-np.pi / 2, np.pi / 4], rtol=1e-6)
    assert "contact" in {x.feature for x in robot.report.of("used")}
    assert row_of(robot, "schema OtherAPI").names == ("rod",)
    (look,) = robot.mechanism.mechanism.visuals
    assert look.body == "rod"
    assert_allclose(look.position, [0.35, 0, 0], atol=1e-6)


# In centimetres; %s: least and largest distance.
HUNG = """#usda 1.0
( metersPerUnit = 0.01; upAxis = "Z" )
def PhysicsScene "scene" { vector3f physics:gravityDirection = (0, 0, -1); float physics:gravityMagnitude = 500
}
def Xform "World"
{
    def Xform "ball" ( prepend apiSchemas = ["PhysicsRigidBodyAPI", "PhysicsMassAPI"] ) {
        float physics:mass = 2; float3 physics:diagonalInertia = (80, 80, 80)
        double3 xformOp:translate = (100, 0, 20); uniform token[] xformOpOrder = ["xformOp:translate"]
    }
    def PhysicsDistanceJoint "rope" { rel physics:body1 = </World/ball>; point3f physics:localPos0 = (0, 0, 20)
        %s
    }
}
"""


def test_a_distance_joint_of_a_usd_is_a_rod(tmp_path: Path) -> None:
    """Released at the side with a speed v upwards, it pulls with m v^2 / r."""
    pytest.importorskip("pxr")
    both = "float physics:minDistance = 100; float physics:maxDistance = 100"
    (tmp_path / "rod.usda").write_text(HUNG % both)
    robot = uk.load(tmp_path / "rod.usda")
    assert row_of(robot, "distance joint").names == ("rope",)
    found = robot.acceleration(np.array([1.0, 0, 0.2, 1, 0, 0, 0]), np.array([0, 0, 2.0, 0, 0, 0]))
    assert_allclose(found, [-4.0, 0, -5.0, 0, 0, 0], atol=1e-6)


def test_a_distance_joint_of_a_usd_is_a_rope(tmp_path: Path) -> None:
    pytest.importorskip("pxr")
    (tmp_path / "rope.usda").write_text(HUNG % "float physics:maxDistance = 120")
    robot = uk.load(tmp_path / "rope.usda", contact=["limits"])
    run = uk.simulate(robot.problem, t1=0.6, ts=61, contact="steps", dt0=1e-3)
    far = np.linalg.norm(np.asarray(run.q)[:, :3] + [1, 0, 0], axis=1)  # coordinates count from the start
    free = np.sqrt(1 + (2.5 * np.asarray(run.t) ** 2) ** 2)  # it falls until the rope is tight
    assert_allclose(far, np.minimum(free, 1.2), atol=3e-3)
    assert_allclose(far.max(), 1.2, atol=1e-6)


def test_bodies_of_a_usd_start_where_the_file_has_them(tmp_path: Path) -> None:
    pytest.importorskip("pxr")
    turned = PENDULUM.replace(
        'double3 xformOp:translate = (0.25, 0, 0); uniform token[] xformOpOrder = ["xformOp:translate"]',
        """double3 xformOp:translate = (0, 0, 0.25); float xformOp:rotateY = -90
        uniform token[] xformOpOrder = ["xformOp:translate", "xformOp:rotateY"]""",
    )
    (tmp_path / "pendulum.usda").write_text(turned)
    assert_allclose(uk.load(tmp_path / "pendulum.usda").problem.q0, [-np.pi / 2], atol=1e-6)


# --- parts of one's own around a robot


def test_an_arm_turns_a_crank_of_ones_own() -> None:
    arm = """<body name="upper" pos="0 0 0.5"><joint name="shoulder" axis="0 -1 0" damping="0.5"/>
      <geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.03" mass="2"/><body name="lower" pos="0.4 0 0">
      <joint name="elbow" axis="0 -1 0" armature="0.1"/><geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.03" mass="1"/>
      <site name="tip" pos="0.4 0 0"/></body></body>"""
    crank = """<body name="crank" pos="0.5 0 0.2"><joint name="axle" axis="0 -1 0"/><inertial pos="0.05 0 0" mass="1.5"
      diaginertia="0.01 0.01 0.01"/><site name="pin" pos="0.1 0 0"/></body>"""
    motor = '<actuator><motor name="m" joint="shoulder"/></actuator>'
    whole = uk.load(
        f"""<mujoco><worldbody>{arm}{crank}</worldbody>{motor}<equality><connect site1="tip" site2="pin"/></equality>
      </mujoco>""",
        ctrl=np.array([3.0]),
    )
    robot = uk.load(f"<mujoco><worldbody>{arm}</worldbody>{motor}</mujoco>", ctrl=np.array([3.0]))
    own = um.Body("crank", 1.5, (0.55, 0, 0.2), (0.01, 0.01, 0.01))
    system = um.tree(
        [robot, own],
        [um.Revolute("axle", "ground", "crank", (0.5, 0, 0.2), (0, -1, 0))],
        loops=[um.Connect("grip", "lower", "crank", (0.8, 0, 0.5), (0.6, 0, 0.2))],
        armature={"axle": 0.2},
    )
    assert system.labels == ("shoulder", "elbow", "axle")
    problem = um.problem(system, at={"axle": 0.3})
    q0, zero = problem.q0, jnp.asarray(0.0)
    v0 = um.velocity(problem, {"axle": 1.0})
    extra = np.diag([0.0, 0.0, 0.2])
    assert_allclose(system.mass_matrix(zero, q0), whole.mechanism.mass_matrix(zero, q0) + extra, atol=1e-12)
    assert_allclose(system.force(zero, q0, v0), whole.mechanism.force(zero, q0, v0), atol=1e-10)
    (grip,) = system.constraints
    (connect,) = whole.mechanism.constraints
    assert_allclose(jnp.abs(grip.position_error(zero, q0)), 0, atol=1e-12)
    A, b = grip.acceleration_rows(zero, q0, v0)
    A2, b2 = connect.acceleration_rows(zero, q0, v0)
    assert_allclose(A, A2, atol=1e-12)
    assert_allclose(b, b2, atol=1e-12)
    with pytest.raises(uk.InputError, match="only the first"):
        um.tree([robot, robot])
    with pytest.raises(uk.InputError, match="write tree"):
        um.assemble([robot, own])


# --- files with mistakes

MODEL = '<sdf version="1.9"><model name="m"><link name="a"/>{}</model></sdf>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<sdf/>", "one <world> or one <model>, and this one has 0"),
        (MODEL.format('<link name="a"/>'), "model 'm' has two elements 'a'"),
        (MODEL.format("<link/>"), "model 'm' has a <link> without a name"),
        (MODEL.format('<joint name="j" type="hinge"/>'), "type of joint 'j' in model 'm': 'hinge'"),
        (MODEL.format('<joint name="j" type="ball"><parent>b</parent><child>a</child></joint>'), "'b'"),
        (
            MODEL.format('<joint name="j" type="revolute"><parent>world</parent><child>a</child></joint>'),
            "joint 'j' of type 'revolute' has no <axis>",
        ),
        (
            MODEL.format('<frame name="f" attached_to="g"/><frame name="g" attached_to="f"/>'),
            "the poses of 'f', 'g' refer to each other in a circle",
        ),
        (MODEL.format('<link name="b"><pose>1 2 x</pose></link>'), "the pose of link 'b'"),
        (
            MODEL.format("<include><uri>model://none</uri></include>"),
            "includes 'model://none', and there is no such file",
        ),
        (
            URDF % '<constraint name="c" type="gimbal"/>',
            "constraint 'c' of type 'gimbal' cannot close a loop",
        ),
        (
            URDF % '<constraint name="c" type="ball"><parent link="no"/><child link="crank"/></constraint>',
            "<parent> link of constraint 'c': 'no'",
        ),
        (
            turntable(TRANSMISSIONS["ros"].replace(">50<", ">fast<")),
            "<mechanicalReduction> of 'motor' is no number",
        ),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(uk.InputError) as told:
        uk.load(text)
    assert message in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("directives: [", "is no YAML"),
        ("robots: []", "neither 'directives'"),
        ("directives: [{add_robot: {}}]", "directive in"),
        ("directives: [{add_model: {name: a}}]", "lacks 'file'"),
        (
            "directives: [{add_model: {name: a, file: none.urdf}}]",
            "names 'none.urdf', and there is no such file",
        ),
        (
            "directives: [{add_model: {name: a, file: arm.urdf}}, {add_weld: {parent: world, child: 'a::nose'}}]",
            "frame of a weld: 'a::nose'",
        ),
        (
            "directives: [{add_model: {name: a, file: arm.urdf, default_joint_positions: {elbow: [1]}}}]",
            "joint in default_joint_positions: 'a::elbow'",
        ),
        ("closed_loop: [[base, nose]]\ntype: [3d]", "'nose'"),
    ],
)
def test_mistakes_in_yaml_are_named(text: str, message: str, tmp_path: Path) -> None:
    write_arm(tmp_path)
    (tmp_path / "arm.yaml").write_text(text)
    with pytest.raises(uk.InputError) as told:
        uk.load(tmp_path / "arm.yaml")
    assert message in str(told.value)
    assert "\n" not in str(told.value)


def test_mistakes_in_usd_are_named(tmp_path: Path) -> None:
    pytest.importorskip("pxr")
    (tmp_path / "bad.usda").write_text(PENDULUM.replace("physics:axis", "physics axis"))
    with pytest.raises(uk.InputError, match=r"bad\.usda is no USD: line"):
        uk.load(tmp_path / "bad.usda")
    (tmp_path / "empty.usda").write_text("#usda 1.0\n")
    with pytest.raises(uk.InputError, match="no rigid body"):
        uk.load(tmp_path / "empty.usda")


def test_xml_is_read_as_simulators_read_it() -> None:
    link = sdf_link("a", 1, ">0 0 1 0 0 0").replace("</link>", "<drake:own/></link>")
    robot = uk.load(f"""<!-- a -- b --><sdf version="1.9"><model name="m">{link}<!-- -- --></model></sdf>""")
    assert row_of(robot, "extension of a simulator").status == "ignored"
