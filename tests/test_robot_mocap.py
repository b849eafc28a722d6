"""Mocap bodies that follow a motion: against a pendulum on a moving pivot by SciPy, and in keyframes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
import scipy.integrate
from numpy.testing import assert_allclose
from scipy.spatial.transform import Rotation

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


def test_a_hand_follows_the_actions_of_an_environment() -> None:
    """Its velocity changes evenly, and so a ball on a rod swings as on a pivot of constant acceleration."""
    robot = uk.load(SCENE, mocap={"hand": jnp.array([0.0, 0.0, 1.0])})
    reward = lambda t, q, v, action: robot.points(t, q)["bob"][0]
    env = uk.Environment(robot.problem, robot.mocap_drive(), reward, dt=0.1, horizon=9, substeps=20)
    actions = jnp.array([[0.4, 0.0, 0.3, 0.0, 0.0, 1.5], [-0.2, 0.0, 0.1, 0.0, 0.0, 2.0]])

    @eqx.filter_jit
    def play(actions: jax.Array) -> tuple:
        state, before = env.reset(jax.random.key(0)), None
        for action in actions:
            before, (state, _, last, _) = state, env.step(state, action)
        return state, before, last

    state, before, last = play(actions)
    rates = robot.state_to_mujoco(state.q, state.v)[1]
    assert_allclose(rates[1:4], actions[1, :3], atol=1e-9)
    assert_allclose(robot.points(0.2, state.q)["hand"], [0.03, 0.0, 1.035], atol=1e-9)
    turns = [
        Rotation.from_quat(robot.state_to_mujoco(x.q, x.v)[0][4:8], scalar_first=True)
        for x in (before, state)
    ]
    assert_allclose([x.as_rotvec()[2] for x in turns], [0.075, 0.25], atol=1e-9)
    y = np.zeros(2)
    for x, z in ((4.0, 3.0), (-6.0, -2.0)):  # accelerations of the hand

        def swing(t: float, y: np.ndarray, x: float = x, z: float = z) -> list[float]:
            return [y[1], -L * ((9.81 + z) * np.sin(y[0]) + x * np.cos(y[0])) / (L**2 + 0.4 * R**2)]

        y = scipy.integrate.solve_ivp(swing, (0, 0.1), y, rtol=1e-11, atol=1e-12).y[:, -1]
    assert_allclose(last - 0.03, L * np.sin(y[0]), atol=1e-8)
    of_last = lambda a: play(a)[2]
    slope = jax.grad(of_last)(actions)
    d = jnp.zeros_like(actions).at[0, 0].set(1e-4)
    assert_allclose(slope[0, 0], (of_last(actions + d) - of_last(actions - d)) / 2e-4, rtol=1e-6)
    assert env.gymnasium_env(-1.0, 1.0).action_space.shape == (6,)
    with pytest.raises(
        uk.InputError, match=r"an action for mocap bodies \('hand',\) has shape \(3,\), not \(6,\)"
    ):
        env.step(env.reset(jax.random.key(0)), jnp.zeros(3))


def test_what_has_no_motion_is_refused(robot) -> None:
    with pytest.raises(uk.InputError, match="unknown mocap body: 'bob'"):
        uk.load(SCENE, mocap={"bob": swaying})
    with pytest.raises(uk.InputError, match="unknown mocap body with a motion: 'other'"):
        robot.mocap_drive("other")
    assert robot.mocap_drive("hand").size == 6
    with pytest.raises(uk.InputError, match="mocap needs a file, a text"):
        uk.load(mujoco.MjModel.from_xml_string(SCENE), mocap={"hand": swaying})
    with pytest.raises(uk.InputError, match=r"must be \(3,\), or \(7,\)"):
        uk.load(SCENE, mocap={"hand": np.zeros(4)})
    with pytest.raises(uk.InputError, match="unknown mocap body with a motion: 'other'"):
        robot.with_mocap({"other": swaying})
