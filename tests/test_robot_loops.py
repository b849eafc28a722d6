"""Robots with closed loops: closure and energy of long motions, and what is done with robots."""

import dataclasses
from pathlib import Path

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import ukjax as uk

FILES = Path(__file__).parent.parent / "experiments" / "robots"
LINK = '<geom type="capsule" fromto="{}" size="0.02"/>'
FOUR_BAR = f"""
<mujoco>
  <worldbody>
    <body name="crank"><joint name="crank" axis="1 0 0"/>{LINK.format("0 0 0 0 0.4 0.3")}
      <body name="coupler" pos="0 0.4 0.3"><joint name="pin" axis="1 0 0"/>{LINK.format("0 0 0 0 1.5 0.2")}
        <body name="rocker" pos="0 1.5 0.2"><joint name="end" axis="1 0 0"/>{LINK.format("0 0 0 0 0 -1.2")}</body>
      </body>
    </body>
  </worldbody>
  <equality><connect body1="rocker" anchor="0 0 -1.2"/></equality>
</mujoco>
"""
# Of a file: where to start, velocities before they are projected, and how many rows are independent.
PASSIVE = {
    "four-bar": (FOUR_BAR, {0: 3.0}, 2),
    "robotiq_2f85": (FILES / "robotiq_2f85.xml", {0: 2.0}, 5),
}


def compiled(source: Path | str) -> mujoco.MjModel:
    from_path, from_text = mujoco.MjModel.from_xml_path, mujoco.MjModel.from_xml_string
    return from_path(str(source)) if isinstance(source, Path) else from_text(source)


def passive(source: Path | str) -> uk.robots.Robot:
    """Without dampers and actuators: its energy is constant."""
    model = compiled(source)
    model.dof_damping[:] = 0.0
    if hasattr(model, "dof_dampingpoly"):
        model.dof_dampingpoly[:] = 0.0
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ACTUATION)
    return uk.load(model)


def closes_and_keeps_its_energy(source: Path | str, rates: dict[int, float], rank: int) -> None:
    robot = passive(source)
    v = jnp.zeros(len(robot.mechanism.velocity_labels))
    for i, rate in rates.items():
        v = v.at[i].set(rate)
    q, v = uk.project(robot.mechanism, 0.0, robot.problem.q0, v)
    run = uk.simulate(robot.mechanism, q, v, t1=10.0, rtol=1e-11, atol=1e-11, max_steps=100_000)
    assert run.ok
    assert np.ptp(run.energy) <= 1e-8 * np.abs(run.energy).max()
    assert (run.rank == rank).all()
    # MuJoCo's own residuals of the equalities, at postures along the motion.
    model = compiled(source)
    at = mujoco.MjData(model)
    for q, v in zip(run.q[::20], run.v[::20], strict=True):
        at.qpos[:] = robot.state_to_mujoco(q, v)[0]
        mujoco.mj_fwdPosition(model, at)
        equal = np.asarray(at.efc_type) == mujoco.mjtConstraint.mjCNSTR_EQUALITY
        assert np.abs(at.efc_pos[equal]).max() < 1e-12


@pytest.mark.parametrize("name", ["four-bar", pytest.param("robotiq_2f85", marks=pytest.mark.slow)])
def test_ten_seconds_close_and_keep_their_energy(name: str) -> None:
    closes_and_keeps_its_energy(*PASSIVE[name])


@pytest.mark.slow
def test_ten_seconds_of_cassie() -> None:
    closes_and_keeps_its_energy(FILES / "cassie.xml", {5: 1.0, 9: -1.0, 22: 1.0}, 10)


MOTOR = """
<mujoco>
  <worldbody>
    <body name="upper"><joint name="shoulder" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.03"/>
      <body name="lower" pos="0 0 -0.5"><joint name="elbow" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.02"/><site name="hand" pos="0 0 -0.4"/></body></body>
  </worldbody>
  <actuator><motor joint="shoulder" gear="2" ctrlrange="-5 5"/><position joint="elbow" kp="3"/></actuator>
</mujoco>
"""


def test_inputs_are_replaced() -> None:
    robot, u = uk.load(MOTOR), jnp.array([1.0, 0.5])
    q, v = jnp.array([0.1, 0.2]), jnp.array([0.3, 0.1])
    np.testing.assert_allclose(robot.apply(0.0, q, v, u), [2.0, 1.5], rtol=1e-14)
    force = eqx.filter_jit(lambda mechanism: mechanism.force(0.0, q, v))
    other = force(uk.load(MOTOR, ctrl=u).mechanism)
    np.testing.assert_allclose(force(robot.with_inputs(u).mechanism), other, rtol=1e-14)
    with pytest.raises(uk.InputError, match=r"ctrl has shape \(3,\)"):
        robot.with_inputs(np.zeros(3))


def held(model: mujoco.MjModel, ctrl: np.ndarray, duration: float) -> np.ndarray:
    """Where MuJoCo's acceleration under constant controls leads from rest, by SciPy."""
    at, n = mujoco.MjData(model), model.nv

    def rates(t: float, y: np.ndarray) -> np.ndarray:
        at.qpos[:], at.qvel[:], at.ctrl[:] = y[:n], y[n:], ctrl
        mujoco.mj_forward(model, at)
        return np.concatenate([y[n:], at.qacc])

    found = solve_ivp(rates, (0.0, duration), np.zeros(2 * n), "DOP853", rtol=1e-12, atol=1e-12)
    return found.y[:n, -1]


def test_an_environment_of_a_robot() -> None:
    robot = uk.load(MOTOR)
    reward = lambda t, q, v, u: -(q[0] ** 2)
    actions = jnp.array([[1.0, 0.5], [0.0, 0.1]])
    ends = [held(compiled(MOTOR), np.asarray(u), 0.02) for u in actions]
    environment = uk.Environment(robot.problem, robot.apply, reward, dt=0.02, horizon=5, substeps=5)
    state = environment.reset(jax.random.key(0))
    after = jax.jit(jax.vmap(lambda u: environment.step(state, u)[0]))(actions)
    np.testing.assert_allclose(after.q, np.stack(ends), atol=1e-10)
    np.testing.assert_allclose(after.t, 0.02)


@pytest.mark.slow
def test_gains_of_a_robot_are_tuned() -> None:
    robot = passive(FOUR_BAR)
    start = dataclasses.replace(robot.problem, q0=robot.problem.q0 + 1e-3)
    found = uk.tune(
        start.system, uk.Baumgarte(1.0, 100.0), q0=start.q0, v0=start.v0,
        dt0=0.01, t1=0.5, starts=4, iterations=3, stepsize_controller=dfx.ConstantStepSize(),
    )  # fmt: skip
    assert found.loss < found.history.loss[0]


HANGING = """
<mujoco><worldbody>
  <body name="bar" pos="0 0 1"><freejoint/><geom type="capsule" fromto="0 0 0 0.5 0 0" size="0.02"/></body>
  <body name="link"><joint name="pin" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 0.9" size="0.02"/></body>
</worldbody>
<equality>
  <connect body1="bar" body2="world" anchor="0.5 0 0"/><connect body1="link" body2="bar" anchor="0 0 0.9"/>
</equality>
<keyframe><key qpos="0.1 -0.1 1 0.9 0.1 -0.2 0.3 0.1"/></keyframe></mujoco>
"""


def test_a_start_put_onto_loops_has_quaternions_of_length_one() -> None:
    """To first order a step onto the loops keeps their length; not to second."""
    robot = uk.load(HANGING)
    np.testing.assert_allclose(np.linalg.norm(robot.problem.q0[3:7]), 1.0, rtol=0, atol=1e-15)


@pytest.mark.slow
def test_a_start_put_onto_longer_loops_has_them_too() -> None:
    robot = uk.load(HANGING)
    longer = robot.with_parameters(position={"link": [0.0, 0.05, 0.1]})
    np.testing.assert_allclose(np.linalg.norm(longer.problem.q0[3:7]), 1.0, rtol=0, atol=1e-15)
    errors = uk.constraint_rows(longer.mechanism, 0.0, longer.problem.q0, longer.problem.v0).position_error
    np.testing.assert_allclose(errors, 0.0, atol=1e-12)
