"""Robots from SDF, USD, model directives and URDFs with loops: beside the same mechanism in MJCF, and closed forms."""

import warnings
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

GRAVITY = 9.81


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
    "ball": """<drake:ball_constraint><drake:ball_constraint_body_A name="coupler"/>
      <drake:ball_constraint_body_B name="rocker"/><drake:ball_constraint_p_AP value="0.6 0 0"/>
      <drake:ball_constraint_p_BQ value="0.4 0 0"/></drake:ball_constraint>""",
}


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
( metersPerUnit = 0.01  upAxis = "Z" )
def Xform "World"
{
    %s
    def PhysicsRevoluteJoint "crank_pin" { rel physics:body1 = </World/crank>  uniform token physics:axis = "Y"
        point3f physics:localPos0 = (0, 0, 100)  point3f physics:localPos1 = (0, 0, 0)
        quatf physics:localRot0 = (0, 1, 0, 0)  quatf physics:localRot1 = (0, 1, 0, 0) }
    def PhysicsRevoluteJoint "coupler_pin" { rel physics:body0 = </World/crank>  rel physics:body1 = </World/coupler>
        uniform token physics:axis = "Y"  point3f physics:localPos0 = (20, 0, 0)  point3f physics:localPos1 = (0, 0, 0)
        quatf physics:localRot0 = (0, 1, 0, 0)  quatf physics:localRot1 = (0, 1, 0, 0) }
    def PhysicsRevoluteJoint "rocker_pin" { rel physics:body1 = </World/rocker>  uniform token physics:axis = "Y"
        point3f physics:localPos0 = (50, 0, 100)  point3f physics:localPos1 = (0, 0, 0)
        quatf physics:localRot0 = (0, 1, 0, 0)  quatf physics:localRot1 = (0, 1, 0, 0) }
    def PhysicsRevoluteJoint "end" { rel physics:body0 = </World/coupler>  rel physics:body1 = </World/rocker>
        uniform token physics:axis = "Y"  uniform bool physics:excludeFromArticulation = true
        point3f physics:localPos0 = (60, 0, 0)  point3f physics:localPos1 = (40, 0, 0) }
}
"""


def usd_body(name: str, x: float, place: tuple[float, float]) -> str:
    return f"""def Xform "{name}" ( prepend apiSchemas = ["PhysicsRigidBodyAPI", "PhysicsMassAPI"] ) {{
        double3 xformOp:translate = ({place[0]}, 0, {place[1]})  uniform token[] xformOpOrder = ["xformOp:translate"]
        float physics:mass = {x}  point3f physics:centerOfMass = ({50 * x}, 0, 0)
        float3 physics:diagonalInertia = (200, 250, 300)  quatf physics:principalAxes = (1, 0, 0, 0) }}
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
        extra = """<link name="pin"/><joint name="on coupler" type="fixed"><parent link="coupler"/><child link="pin"/>
          <origin xyz="0.6 0 0"/></joint><joint name="end" type="continuous"><parent link="rocker"/><child link="pin"/>
          <origin xyz="0.4 0 0"/><axis xyz="0 1 0"/></joint>"""
        return uk.load(URDF % extra), zero
    return uk.load(URDF % LOOPS[kind]), zero


@pytest.mark.parametrize("kind", ["constraint", "loop", "ball", "second parent", "sdf", "usd"])
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
