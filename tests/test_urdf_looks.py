"""Visual elements of URDFs: where the file's numbers put them, and what is told of those that cannot be shown."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import ukjax as uk

INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
ROBOT = f"""
<robot name="shown">
  <material name="red"><color rgba="1 0 0 0.5"/></material>
  <link name="base">{INERTIAL}<visual><geometry><box size="1 2 3"/></geometry></visual></link>
  <link name="arm">{INERTIAL}
    <visual><origin xyz="0.1 0.2 0.3" rpy="0.3 -0.4 0.5"/><material name="red"/>
      <geometry><mesh filename="package://shown/part.obj" scale="2 1 1"/></geometry></visual>
    <visual><geometry><mesh filename="part.dae"/></geometry></visual>
    <visual><geometry><cylinder radius="0.1" length="0.7"/></geometry>
      <material name="own"><color rgba="0 1 0 1"/></material></visual>
    <collision><geometry><sphere radius="4"/></geometry></collision></link>
  <link name="hidden">{INERTIAL}<visual><geometry><mesh filename="broken.obj"/></geometry></visual></link>
  <joint name="pin" type="continuous"><origin xyz="0 0 1" rpy="0 0.2 0"/><parent link="base"/><child link="arm"/>
    <axis xyz="0 1 0"/></joint>
  <joint name="end" type="continuous"><parent link="arm"/><child link="hidden"/><axis xyz="0 1 0"/></joint>
</robot>
"""
VERTICES = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 3.0]])
FACES = "f 1 3 2\nf 1 4 3\nf 1 2 4\nf 2 3 4\n"


@pytest.fixture
def robot(tmp_path: Path) -> uk.robots.Robot:
    folder = tmp_path / "shown"
    folder.mkdir()
    (folder / "part.obj").write_text("".join(f"v {x} {y} {z}\n" for x, y, z in VERTICES) + FACES)
    (folder / "broken.obj").write_text("no mesh")
    (folder / "shown.urdf").write_text(ROBOT)
    return uk.load(folder / "shown.urdf")


def test_shapes_are_where_the_file_has_them(robot: uk.robots.Robot) -> None:
    box, mesh, cylinder = robot.mechanism.mechanism.visuals  # no geom of a collision stands in for them
    assert [x.body for x in (box, mesh, cylinder)] == ["ground", "arm", "arm"]
    assert (box.kind, box.size.tolist(), box.colour) == ("box", [1, 2, 3], None)
    assert (cylinder.kind, cylinder.size.tolist(), cylinder.colour.tolist()) == (
        "cylinder",
        [0.1, 0.7],
        [0, 1, 0, 1],
    )
    joint, own = Rotation.from_euler("xyz", [0, 0.2, 0]), Rotation.from_euler("xyz", [0.3, -0.4, 0.5])
    in_link = own.apply(VERTICES * (2, 1, 1)) + np.array([0.1, 0.2, 0.3])
    wanted = joint.apply(in_link) + np.array([0, 0, 1])
    found = mesh.vertices @ mesh.rotation.T + mesh.position
    order = lambda x: x[np.lexsort(x.T.round(5))]
    np.testing.assert_allclose(
        order(found), order(wanted), atol=1e-6
    )  # MuJoCo keeps vertices in single precision
    assert mesh.colour.tolist() == [1, 0, 0, 0.5]


def test_the_report_tells_what_is_not_shown(robot: uk.robots.Robot) -> None:
    told = {x.status: x.names for x in robot.report.features if x.feature == "visual geometry"}
    assert told == {"used": ("base", "arm"), "ignored": ("arm", "hidden")}
