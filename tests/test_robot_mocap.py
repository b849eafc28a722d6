"""Mocap bodies that follow a motion: against a pendulum on a moving pivot by SciPy, and in keyframes."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
import scipy.integrate
from numpy.testing import assert_allclose

import ukjax as uk
from ukjax.robots import Robot

A, W, L, R = 0.1, 3.0, 0.5, 0.1
SCENE = f"""
<mujoco><worldbody>
  <body name="before"><joint name="turn"/><geom size="0.1" pos="0.1 0 0.2"/></body>
  <body name="hand" mocap="true" pos="0 0 1"><geom size="0.02" contype="0" conaffinity="0"/></body>
  <body name="bob" pos="0 0 {1 - L}"><freejoint/><geom size="{R}" mass="2"/></body>
  <body name="other" mocap="true"/>
</worldbody>
<equality><connect body1="bob" body2="hand" anchor="0 0 {L}"/></equality>
<keyframe><key qpos="0.3 0 0 {1 - L} 1 0 0 0" mpos="0 0 1 3 3 3" mquat="1 0 0 0 1 0 0 0"/></keyframe></mujoco>"""


def swaying(t: jax.Array) -> jax.Array:
    return jnp.stack([A * jnp.sin(W * t) ** 2, 0 * t, 1 + 0 * t])


@pytest.fixture(scope="module")
def robot() -> Robot:
    return uk.load(SCENE, mocap={"hand": swaying})


def test_a_pendulum_on_a_moving_pivot(robot) -> None:
    assert_allclose(robot.problem.q0[:4], [0.3, 0.0, 0.0, 0.0], atol=1e-12)
    said = {(x.feature, x.status): x.names for x in robot.report.features}
    assert said["mocap body", "used"] == ("hand",)
    assert said["mocap body", "approximated"] == ("other",)

    def sway(t: float, y: np.ndarray) -> list[float]:
        pivot = 2 * A * W**2 * np.cos(2 * W * t)  # x'' of A sin^2 W t
        return [y[1], -L * (9.81 * np.sin(y[0]) + pivot * np.cos(y[0])) / (L**2 + 0.4 * R**2)]

    wanted = scipy.integrate.solve_ivp(sway, (0, 1), [0.0, 0.0], rtol=1e-11, atol=1e-12).y[0, -1]
    run = uk.simulate(robot.problem, t1=1.0, ts=3, rtol=1e-10, atol=1e-10)
    places = robot.points(1.0, run.q_end)
    assert_allclose(places["hand"], swaying(run.t_end), atol=1e-12)
    assert_allclose(places["bob"] - places["hand"], [L * np.sin(wanted), 0.0, -L * np.cos(wanted)], atol=1e-8)


def test_other_motions_turn_and_have_derivatives(robot) -> None:
    turning = lambda t: jnp.stack([0 * t, 0 * t, 1 + 0 * t, jnp.cos(t), 0 * t, jnp.sin(t), 0 * t])
    run = uk.simulate(robot.with_mocap({"hand": turning}).problem, t1=0.5, ts=2)
    qpos, qvel = robot.state_to_mujoco(run.q_end, run.v_end)
    assert_allclose(qpos[1:8], turning(jnp.asarray(0.5)), atol=1e-10)
    assert_allclose(qvel[4:7], [0.0, 2.0, 0.0], atol=1e-10)

    def end(size: jax.Array | float) -> jax.Array:
        moved = robot.with_mocap({"hand": lambda t: size * swaying(t)}).problem
        return uk.simulate(moved, t1=0.3, ts=2, max_steps=400, rtol=1e-10, atol=1e-10).q_end[8]

    assert_allclose(jax.grad(end)(1.0), (end(1.0001) - end(0.9999)) / 2e-4, rtol=1e-5)


def test_what_has_no_motion_is_refused(robot) -> None:
    with pytest.raises(uk.InputError, match="unknown mocap body: 'bob'"):
        uk.load(SCENE, mocap={"bob": swaying})
    with pytest.raises(uk.InputError, match="mocap needs a file, a text"):
        uk.load(mujoco.MjModel.from_xml_string(SCENE), mocap={"hand": swaying})
    with pytest.raises(uk.InputError, match=r"must be \(3,\), or \(7,\)"):
        uk.load(SCENE, mocap={"hand": np.zeros(4)})
    with pytest.raises(uk.InputError, match="unknown mocap body with a motion: 'other'"):
        robot.with_mocap({"other": swaying})
