"""What is done with a loaded robot besides running it: postures, frames that stand, inverse dynamics, text."""

from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import rows_of
from numpy.testing import assert_allclose

import ukjax as uk
import ukjax.analysis as ua
import ukjax.mechanisms as um
from ukjax._cli._robot_files import robot_model
from ukjax.mechanisms._default_visuals import visuals_of

ROBOTS = Path(__file__).parent.parent / "experiments" / "robots"

ELASTIC = """
<mujoco>
  <option><flag contact="disable"/></option>
  <worldbody>
    <site name="wall" pos="0.4 0.1 0.2"/>
    <body name="post" pos="0 0 0.1"><geom type="sphere" size="0.1"/><site name="top" pos="0 0 0.3"/></body>
    <body name="upper"><joint name="shoulder" axis="0 1 0" stiffness="3" springref="20" damping="0.2"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.03"/>
      <body name="lower" pos="0 0 -0.5"><joint name="slide" type="slide" axis="0 0 1" damping="0.7"/>
        <joint name="elbow" axis="1 1 0" armature="0.01"/>
        <geom type="capsule" fromto="0 0 0 0.1 0 -0.4" size="0.02"/><site name="hand" pos="0 0 -0.4"/></body></body>
  </worldbody>
  <tendon>
    <fixed name="coupling" stiffness="5" damping="0.3"><joint joint="shoulder" coef="1"/>
      <joint joint="elbow" coef="-2"/></fixed>
    <spatial name="rope" stiffness="7" springlength="0.1"><site site="wall"/><site site="hand"/></spatial>
  </tendon>
  <actuator><motor joint="elbow"/></actuator>
  <keyframe><key qpos="0.3 0.05 -0.4" qvel="1 0.5 -2"/></keyframe>
</mujoco>
"""


def test_inverse_dynamics_with_springs_dampers_and_tendons_is_that_of_mujoco() -> None:
    robot, model = uk.load(ELASTIC), mujoco.MjModel.from_xml_string(ELASTIC)
    data, a = mujoco.MjData(model), np.array([2.0, -1.0, 3.0])
    mujoco.mj_resetDataKeyframe(model, data, 0)
    data.qacc[:] = a
    mujoco.mj_inverse(model, data)
    found = ua.inverse_dynamics(robot.problem, a, inputs=np.eye(3))
    assert_allclose(found.efforts, data.qfrc_inverse, rtol=1e-12)
    # Through the joint of the first body goes what accelerates both, less their weights and the rope's pull.
    mujoco.mj_forward(model, data)
    data.qacc[:] = a
    mujoco.mj_rnePostConstraint(model, data)
    masses = model.body_mass[[2, 3]]
    places = lambda q: jnp.stack([robot.mechanism.placements(0.0, q)[x].p for x in ("upper", "lower")])
    speed = lambda t: jax.jvp(
        places, (robot.problem.q0 + t * robot.problem.v0,), (robot.problem.v0 + t * a,)
    )[1]
    rates = (speed(1e-4) - speed(-1e-4)) / 2e-4
    pull = (
        7 * (0.1 - data.ten_length[1]) * np.array(data.site_xpos[2] - data.site_xpos[0]) / data.ten_length[1]
    )
    wanted = masses @ rates - masses.sum() * model.opt.gravity - pull
    assert_allclose(found.reactions["shoulder"].force, wanted, rtol=1e-6, atol=1e-6)


def test_frames_that_stand_have_a_jacobian_of_zero() -> None:
    robot = uk.load(ELASTIC)
    for name, place in (("wall", (0.4, 0.1, 0.2)), ("post", (0, 0, 0.1)), ("top", (0, 0, 0.4))):
        found = ua.jacobian(robot.problem, name)
        assert_allclose(found.frame.position, place, atol=1e-15)
        assert found.linear.shape == found.angular.shape == (3, 3)
        assert not np.any(np.concatenate([found.matrix.ravel(), found.bias]))


FINGERS = """
<mujoco>
  <worldbody><body name="palm"><geom size="0.02"/>
    <body name="left"><joint name="left" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -0.1" size="0.01"/></body>
    <body name="right"><joint name="right" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -0.1" size="0.01"/></body>
  </body></worldbody>
  <equality><joint joint1="right" joint2="left"/></equality>
</mujoco>
"""


@pytest.mark.parametrize(
    ("gripper", "left", "right"),
    [
        pytest.param(FINGERS, 0, 1, id="fingers"),
        pytest.param(str(ROBOTS / "robotiq_2f85.xml"), 0, 3, marks=pytest.mark.slow, id="robotiq_2f85"),
    ],
)
def test_one_side_follows_the_other(gripper: str, left: int, right: int) -> None:
    """Where one finger is put, the other goes by their equality."""
    name = "left" if gripper is FINGERS else "left_driver_joint"
    closing = um.problem(uk.load(gripper).problem, at={name: 0.3})
    assert_allclose(np.asarray(closing.q0)[[left, right]], 0.3, atol=1e-12)
    rows = rows_of(closing.system, jnp.zeros(()), closing.q0, closing.v0)
    assert_allclose(rows.position_error, 0, atol=1e-13)


def test_a_robot_starts_where_its_joints_are_put() -> None:
    """From the keyframe on, not from the reference posture: what is not named stays."""
    robot = uk.load(ELASTIC)
    moved = um.problem(robot.problem, at={"elbow": 7.0}, rates={"slide": 0.5}, t1=3.0)
    assert_allclose(moved.q0, [0.3, 0.05, 7.0], atol=1e-12)
    assert_allclose(moved.v0, [0, 0.5, 0], atol=1e-12)
    assert (moved.t1, moved.name) == (3.0, robot.problem.name)
    assert_allclose(moved.points(0.0, moved.q0)["wall"], (0.4, 0.1, 0.2))
    assert_allclose(um.problem(robot.problem, t1=1.0).v0, robot.problem.v0)  # nothing else is asked for


def test_a_robot_prints_as_one_line_and_its_points_are_one_computation() -> None:
    robot = uk.load(ELASTIC)
    assert (
        str(robot) == repr(robot) == "Robot 'MuJoCo Model': 2 bodies, 3 velocities, 0 constraints, 1 inputs"
    )
    q = robot.problem.q0
    known, traced = robot.points(0.0, q), jax.jit(lambda q: robot.points(0.0, q))(q)
    assert list(known) == ["post", "upper", "lower", "wall", "top", "hand"]
    for name, place in known.items():
        assert_allclose(place, traced[name], atol=1e-15)


def test_a_sweep_names_joints() -> None:
    """An angle and its rate by the joint's name, against the closed form of a hinge without weight."""
    spin = """<mujoco><option gravity="0 0 0"/><worldbody><body name="wheel"><joint name="axle" axis="0 0 1"/>
      <geom type="sphere" size="0.1"/></body></worldbody></mujoco>"""
    table = uk.sweep(uk.load(spin).problem, {"axle": [0.1, 0.2], "axle'": [1.0, -3.0, 4.0]}, t1=0.5, ts=2)
    wanted = np.array([[0.1], [0.2]]) + 0.5 * np.array([1.0, -3.0, 4.0])
    assert_allclose(table.q_end[..., 0], wanted, rtol=1e-12)
    with pytest.raises(uk.InputError, match="unknown parameter 'axel'; did you mean 'axle'"):
        uk.sweep(uk.load(spin).problem, {"axel": [0.1, 0.2]})


@pytest.mark.slow
def test_the_command_line_puts_a_joint_of_a_loop_where_it_is_set() -> None:
    """Exactly there, with the loops closed; within `jit`, as in a sweep, too."""
    model = robot_model(str(ROBOTS / "robotiq_2f85.xml"))
    start = model(left_driver_joint=0.3, left_driver_joint_rate=0.5)
    assert_allclose(np.asarray([start.q0[0], start.v0[0]]), [0.3, 0.5], atol=1e-14)
    rows = uk.constraint_rows(start.system, 0.0, start.q0, start.v0)
    assert_allclose(rows.position_error, 0, atol=1e-13)
    assert_allclose(rows.velocity_error, 0, atol=1e-13)
    traced = jax.jit(lambda x: model(left_driver_joint=x).q0)(0.3)
    assert_allclose(traced, start.q0, atol=1e-9)


def _distance(x: np.ndarray, line: np.ndarray) -> float:
    """From a point to a line through points."""
    a, b = line[:-1], line[1:]
    along = np.clip(np.sum((x - a) * (b - a), 1) / np.maximum(np.sum((b - a) ** 2, 1), 1e-300), 0, 1)
    return float(np.linalg.norm(a + along[:, None] * (b - a) - x, axis=1).min())


def test_links_whose_meshes_are_missing_are_shown_from_joint_to_joint() -> None:
    """Also the followers, which still have their pads."""
    gripper = uk.load(ROBOTS / "robotiq_2f85.xml")
    drawn = jax.jit(lambda q: gripper.mechanism.drawing(0.0, q))(gripper.mechanism.q0)
    for body in gripper.mechanism.bodies:
        ends = [j.point for j in gripper.mechanism.mechanism.joints if body.name in j.bodies]
        (line,) = (
            x.vertices for x in visuals_of(gripper.mechanism) if x.body == body.name and x.kind == "line"
        )
        assert len(ends) > 1
        for end in ends:
            assert _distance(np.asarray(end), line) < 1e-7  # of single precision
            assert _distance(np.asarray(end), np.asarray(drawn[body.name])) < 1e-12
    assert {x.body for x in visuals_of(gripper.mechanism) if x.kind == "box"} == {
        "left_follower",
        "right_follower",
    }
