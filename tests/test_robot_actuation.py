"""Actuators with states, muscles and limits of total forces against MuJoCo: `mj_forward`, and runs with small steps."""

import jax
import jax.numpy as jnp
import mujoco
import mujoco_reference as reference
import numpy as np
import pytest
from numpy.testing import assert_allclose

import ukjax as uk
import ukjax.analysis as ua
import ukjax.mechanisms as um
from ukjax.robots import Robot

POLYNOMIALS = (
    int(mujoco.__version__.partition(".")[0]) >= 4
)  # actuators have damping and armature of their own

ARM = """
<worldbody>
  <site name="hook" pos="0.1 0 0.1" euler="10 20 30"/>
  <body name="upper" gravcomp="0.4"><joint name="shoulder" axis="0 1 0" damping="0.05" {shoulder}/>
    <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.03"/>
    <site name="grip" pos="0.02 0 -0.3" euler="40 0 20"/>
    <body name="lower" pos="0 0 -0.5" gravcomp="0.7"><joint name="elbow" axis="0 1 0" damping="0.05" {elbow}/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.02"/>
      <site name="hand" pos="0 0.1 -0.4" euler="5 6 7"/>
      <body name="tool" pos="0 0.2 -0.4" euler="20 0 40"><joint name="wrist" type="ball" damping="0.02" armature="0.01"/>
        <geom type="box" size="0.05 0.08 0.1" pos="0 0.1 0"/><site name="tip" pos="0.1 0.1 0" euler="60 5 4"/></body>
    </body></body>
  <body name="drone" pos="1 0 0" euler="10 0 20"><freejoint name="free"/><geom type="box" size="0.1 0.05 0.02"/></body>
</worldbody>
<tendon>
  <spatial name="cord" {cord}><site site="hook"/><site site="grip"/><site site="hand"/></spatial>
  <fixed name="split" {split}><joint joint="shoulder" coef="0.5"/><joint joint="elbow" coef="-0.8"/></fixed>
</tendon>"""
PLACES = ("shoulder", "elbow", "cord", "split")


def text_of(actuators: str, key: str = "", option: str = "", **places: str) -> str:
    flags = '<flag contact="disable"/>'
    world = ARM.format(**dict.fromkeys(PLACES, "") | places)
    return (
        f'<mujoco><option timestep="1e-3" integrator="RK4" {option}>{flags}</option>{world}'
        f"<actuator>{actuators}</actuator><keyframe><key {key}/></keyframe></mujoco>"
    )


def agree(text: str) -> Robot:
    """Accelerations and rates of activations are those of `mj_forward` at random states."""
    robot = uk.load(text)
    compare(mujoco.MjModel.from_xml_string(text), robot)
    return robot


def compare(model: mujoco.MjModel, robot: Robot) -> None:
    rng = np.random.default_rng(0)
    model.actuator_actearly[:] = 0  # which is about time steps
    for _ in range(4):
        qpos = reference.moved(model, model.qpos0, rng.normal(size=model.nv), 1.0)
        qvel, ctrl = rng.normal(size=model.nv), rng.normal(size=model.nu)
        act = rng.uniform(size=model.na)
        at = reference.data(model, qpos, qvel, ctrl, act)
        found = robot.acceleration(qpos, qvel, ctrl, act)
        assert np.abs(found - at.qacc).max() <= 1e-9 * np.abs(at.qacc).max()
        assert_allclose(robot.activation_rate(qpos, qvel, ctrl, act), at.act_dot, rtol=1e-9, atol=1e-9)


def stepped(text: str, t1: float, share: float = 1.0) -> np.ndarray:
    """Where steps of MuJoCo, of a share of the file's, end from the keyframe: qpos, qvel and act."""
    model = mujoco.MjModel.from_xml_string(text)
    model.actuator_actearly[:], model.opt.timestep = 0, share * model.opt.timestep
    at = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, at, 0)
    for _ in range(round(t1 / model.opt.timestep)):
        mujoco.mj_step(model, at)
    return np.concatenate([at.qpos, at.qvel, at.act])


def end_of_run(text: str, t1: float) -> tuple[np.ndarray, uk.Trajectory]:
    robot = uk.load(text)
    run = uk.simulate(robot.problem, t1=t1, ts=5, rtol=1e-10, atol=1e-10)
    assert run.ok
    n = run.v.shape[1] - run.num_states
    return np.concatenate([*robot.state_to_mujoco(run.q_end, run.v_end), run.v_end[n:]]), run


def runs_agree(text: str, t1: float, tolerance: float) -> uk.Trajectory:
    """A run from the keyframe ends where steps of MuJoCo do."""
    own, run = end_of_run(text, t1)
    assert_allclose(own, stepped(text, t1), atol=tolerance, rtol=tolerance)
    return run


STATES = {
    "filters": '<general joint="shoulder" dyntype="filter" dynprm="0.1" gear="3" biastype="affine" biasprm="0.5 -3 -1"/>'
    '<general site="tip" dyntype="filterexact" dynprm="0.02" gear="1 2 3 1 2 3"/>',
    "integrators": '<intvelocity joint="elbow" kp="20" kv="1" actrange="-2 2"/>'
    '<intvelocity tendon="cord" kp="3" kv="0.1" ctrllimited="true" ctrlrange="-0.1 0.2" actrange="-5 5"/>',
    "muscles": '<muscle joint="shoulder" lengthrange="-1.5 1.5" force="40"/>'
    '<muscle tendon="cord" lengthrange="0.2 0.9" scale="200" timeconst="0.02 0.06" tausmooth="0.3" range="0.6 1.1" '
    'lmin="0.4" lmax="1.7" vmax="1.2" fpmax="1.4" fvmax="1.3"/>'
    '<general joint="elbow" gaintype="muscle" gainprm="0.75 1.05 20 200 0.5 1.6 1.5 1.3 1.2" lengthrange="-1 1"/>'
    '<general joint="elbow" gaintype="affine" gainprm="2 0.3 0.1" dyntype="muscle" dynprm="0.01 0.04 0"/>',
    "turns": '<position joint="wrist" gear="1 2 0.5" kp="5"/><intvelocity joint="wrist" gear="0 1 0" kp="5" kv="1" '
    'actrange="-3 3"/><position jointinparent="wrist" gear="1 2 0.5" kp="5"/>'
    '<motor jointinparent="free" gear="1 2 0.5 1 2 3"/><position site="tip" refsite="hand" gear="0 0 0 1 2 1" kp="5"/>'
    '<position site="hand" refsite="hook" gear="1 0 2 0 1 0" kp="5"/>',
}


@pytest.mark.parametrize("kind", STATES)
def test_forces_and_rates_of_activations(kind: str) -> None:
    robot = agree(text_of(STATES[kind]))
    assert not [x for x in robot.report.features if x.status != "used" and x.feature.startswith("actuator")]


MOTORS = {
    "motors": '<dcmotor joint="shoulder" motorconst="2.0" resistance="0.5"/>'
    '<dcmotor joint="elbow" motorconst="1.0" resistance="1.0" input="pos vel" controller="10 0 5"/>',
    "motors with states": '<dcmotor name="hot" joint="shoulder" motorconst="0.5" resistance="0.5" inductance="0 0.01" '
    'thermal="3 20 0 0.004 25 20" saturation="3 0 30" cogging="0.3 7 0.2"/>'
    '<dcmotor name="rough" joint="elbow" motorconst="0.5" resistance="2" lugre="100 1 0.5 0.8 0.1" '
    'input="pos vel ff voltage" controller="10 2 0.5 3 0.4 5" thermal="3 20 0 0.004 25 20"/>'
    '<dcmotor joint="elbow" motorconst="0.5" resistance="2" input="none"/>',
    "orientations": '<orientation joint="wrist" kp="3" kv="0.5"/><orientation site="tip" refsite="hook" kp="3"/>'
    '<orientation joint="wrist" kp="3" forcelimited="true" forcerange="0 0.4" input="quat"/>'
    '<general joint="wrist" gaintype="so3" biastype="so3" gainprm="2" biasprm="0 -2 -0.1" dyntype="integrator"/>',
    "controllers": '<pid joint="shoulder" kp="10" kv="2" ki="3" imax="0.4" slewmax="5" input="pos vel ff"/>'
    '<pid joint="wrist" gear="0 1 2" kp="10" kv="2" ki="1" slewmax="5" input="pos"/>'
    '<pid tendon="cord" kp="5" input="vel"/>',
}


@pytest.mark.skipif(not POLYNOMIALS, reason="MuJoCo has them since 4.0")
@pytest.mark.parametrize("kind", MOTORS)
def test_motors_and_controllers_with_states(kind: str) -> None:
    robot = agree(text_of(MOTORS[kind]))
    assert len(robot.mechanism.state_labels) == {
        "motors with states": 6,
        "controllers": 4,
        "orientations": 3,
    }.get(kind, 0)


@pytest.mark.skipif(not POLYNOMIALS, reason="MuJoCo has them since 4.0")
def test_a_run_of_a_motor_with_current_and_heat() -> None:
    actuators = (
        '<dcmotor name="m" joint="elbow" motorconst="0.5" resistance="0.5" inductance="0 0.01" '
        'thermal="3 0.1 0 0.004 25 20"/><pid joint="shoulder" kp="30" kv="2" ki="3" input="pos vel"/>'
    )
    text = text_of(actuators, MOVED + ' act="5 1 0.1" ctrl="6 0.4 0"')
    own, run = end_of_run(text, 0.1)
    # MuJoCo takes the current by another rule, of first order.
    coarse, fine = (stepped(text, 0.1, share) for share in (0.1, 0.05))
    assert_allclose(own, 2 * fine - coarse, atol=1e-5, rtol=1e-5)
    assert list(run.states) == ["m temperature", "m current", "actuator 1 integral"]
    assert run.states["m temperature"][-1] > 10


def test_limits_of_total_forces_on_joints_and_tendons() -> None:
    limits = {
        "shoulder": 'actuatorfrclimited="true" actuatorfrcrange="-0.2 0.3" actuatorgravcomp="true"',
        "elbow": 'actuatorfrclimited="true" actuatorfrcrange="-2 2"',
        "cord": 'actuatorfrclimited="true" actuatorfrcrange="-1 1"',
        "split": 'actuatorfrclimited="true" actuatorfrcrange="-0.3 0.4"',
    }
    motors = '<motor joint="shoulder" gear="3"/><motor joint="shoulder" gear="-1"/><motor tendon="split" gear="2"/>'
    agree(text_of(motors, **limits))
    further = '<motor tendon="cord" gear="3"/><motor tendon="cord" gear="-1"/><motor site="tip" gear="1 2 3 1 2 3"/>'
    robot = agree(text_of(motors + further, **limits))
    model = mujoco.MjModel.from_xml_string(text_of(motors + further, **limits))
    model.body_mass[model.body("lower").id] = 3.0
    compare(model, robot.with_parameters(mass={"lower": 3.0}))


MOVED = 'qpos="0.3 -0.5 1 0 0 0 1 0 0 1 0 0 0"'


@pytest.mark.skipif(int(mujoco.__version__.partition(".")[0]) < 4, reason="MuJoCo 3 has no delays")
def test_inputs_that_are_functions_of_time_are_delayed() -> None:
    """v' = sin(3 (t - 0.1)) from then on, also in MuJoCo, by steps."""
    slide = '<body><joint name="{0}" type="slide" axis="{1}"/><geom size="0.1" mass="1" contype="0"/></body>'
    text = f"""<mujoco><option gravity="0 0 0" timestep="0.0005"/><worldbody>{slide.format("x", "1 0 0")}
      {slide.format("y", "0 1 0")}</worldbody><actuator><motor name="late" joint="x" delay="0.1" nsample="210"/>
      <motor joint="y"/></actuator></mujoco>"""
    ctrl = lambda t: jnp.stack([jnp.sin(3 * t), jnp.cos(t)])
    robot = uk.load(text, ctrl=ctrl)
    line = next(x for x in robot.report.features if x.feature == "actuator delay")
    assert (line.names, line.status) == (("late",), "approximated")
    found = uk.simulate(robot.problem, t1=0.5, ts=2, rtol=1e-9, atol=1e-9).v_end
    assert_allclose(found, [(1 - np.cos(1.2)) / 3, np.sin(0.5)], atol=1e-8)
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    for k in range(1000):
        data.ctrl[:] = np.sin(3 * 5e-4 * k), np.cos(5e-4 * k)
        mujoco.mj_step(model, data)
    assert_allclose(found, data.qvel, atol=1e-3)


def test_runs_with_activations() -> None:
    actuators = (
        '<intvelocity name="turn" joint="shoulder" kp="20" kv="1" actrange="-9 9"/>'
        '<general name="lag" joint="elbow" dyntype="filter" dynprm="0.08" gainprm="0.5"/>'
        '<muscle name="biceps" tendon="cord" force="30" lengthrange="0.5 1.1" timeconst="0.02 0.06"/>'
    )
    text = text_of(actuators, MOVED + ' act="0.1 0.2 0.3" ctrl="1.5 1 0.7"')
    run = runs_agree(text, 0.3, 1e-7)
    assert run.velocity_names[-3:] == ("turn activation", "lag activation", "biceps activation")
    assert_allclose(run.states["turn activation"], 0.1 + 1.5 * run.t, rtol=1e-9)
    assert_allclose(run.states["lag activation"], 1 - 0.8 * np.exp(-run.t / 0.08), rtol=1e-7)


def test_an_activation_stays_at_the_end_of_its_range() -> None:
    # MuJoCo's stages go on beyond it, so it is no reference.
    integrator = '<intvelocity name="turn" joint="shoulder" kp="20" kv="1" actrange="-0.4 0.3"/>'
    robot = uk.load(
        text_of(integrator, MOVED + ' act="0.1" ctrl="1.5"'), ctrl=lambda t: 1.5 * jnp.cos(4 * t)[None]
    )
    run = uk.simulate(robot.problem, t1=1.0, ts=41, rtol=1e-9, atol=1e-9)
    z, h = [0.1], 1e-4
    for i in range(10000):
        z.append(np.clip(z[-1] + h * 1.5 * np.cos(4 * (i + 0.5) * h), -0.4, 0.3))
    assert_allclose(run.states["turn activation"], z[::250], atol=2e-4)
    assert run.v[:, -1].max() < 0.3 + 1e-6


def test_derivatives_of_runs_with_activations() -> None:
    actuators = (
        '<intvelocity joint="shoulder" kp="20" kv="1" actrange="-9 9"/>'
        '<muscle tendon="cord" force="30" lengthrange="0.5 1.1"/>'
    )
    robot = uk.load(text_of(actuators, MOVED + ' act="0.1 0.3"'))

    def end(ctrl: jax.Array, z: jax.Array) -> jax.Array:
        problem = robot.with_inputs(ctrl).problem
        v0 = problem.v0.at[-2:].set(z)
        return uk.simulate(problem, v0=v0, t1=0.2, ts=2, rtol=1e-11, atol=1e-11, max_steps=512).q_end[1]

    at = jnp.array([0.5, 0.7]), jnp.array([0.1, 0.3])
    found, h = jax.grad(end, argnums=(0, 1))(*at), 1e-5
    for k in range(2):
        for i in range(2):
            step = [h * jnp.eye(2)[i] if j == k else jnp.zeros(2) for j in range(2)]
            ahead, behind = (end(at[0] + s * step[0], at[1] + s * step[1]) for s in (1, -1))
            assert_allclose(found[k][i], (ahead - behind) / (2 * h), rtol=1e-4, atol=1e-8)


def test_steps_with_contacts_carry_activations() -> None:
    actuators = '<general joint="shoulder" dyntype="filter" dynprm="2e-4" gainprm="0.5"/>'
    text = text_of(actuators, MOVED + ' act="0.2" ctrl="1"', shoulder='range="-20 40"')
    robot = uk.load(text, contact=["limits"])
    exact = uk.simulate(uk.load(text).problem, t1=0.05, ts=2, rtol=1e-9, atol=1e-9)
    # The filter is far faster than the steps, which take it implicitly.
    run = uk.simulate(robot.problem, t1=0.05, contact="steps", dt0=1e-3, ts=2)
    assert_allclose(run.q_end, exact.q_end, atol=2e-4)
    assert_allclose(run.v_end[-1], 1.0, atol=1e-3)


def test_linearization_check_and_environment_know_activations() -> None:
    text = text_of('<general name="lag" joint="elbow" dyntype="filter" dynprm="0.08" gainprm="0.5"/>', MOVED)
    robot = uk.load(text)
    linear = ua.linearize(robot.problem)
    assert linear.states[-1] == "lag activation"
    assert len(linear.states) == 2 * 11 + 1
    assert_allclose(linear.A[-1], [0.0] * 22 + [-1 / 0.08])
    assert_allclose(linear.B[:, 0], [0.0] * 22 + [1 / 0.08])
    asked = ua.inverse_dynamics(
        robot.problem, {"elbow": 2.0}, inputs=list(robot.mechanism.labels[:2]), throw=False
    )
    assert_allclose(asked.residual[-1], 0.0, atol=1e-12)
    # Of a muscle the rates of activation depend on the activation.
    muscle = uk.load(
        text_of('<muscle joint="elbow" lengthrange="-1 1"/>', MOVED + ' act="0.3" ctrl="0.8"')
    ).problem
    slope = ua.linearize(muscle, 0.0, muscle.q0, muscle.v0.at[-1].set(0.6)).B[-1, 0]
    wanted = [
        mujoco.mju_muscleDynamics(u, 0.6, np.array([0.01, 0.04, 0.0])) for u in (0.8 - 1e-6, 0.8 + 1e-6)
    ]
    assert_allclose(slope, (wanted[1] - wanted[0]) / 2e-6, rtol=1e-6)
    said = str(uk.check(robot.problem))
    assert "11 velocities" in said
    assert "States of first order: lag activation" in said
    reward = lambda t, q, v, u: -v[-1]
    world = uk.Environment(robot.problem, robot.apply, reward, dt=0.08, horizon=3, substeps=4)
    state, seen, got, _ = world.step(world.reset(jax.random.key(0)), jnp.array([1.0]))
    assert_allclose(state.v[-1], 1 - np.exp(-1), rtol=1e-4)
    assert seen.shape == (13 + 12,)
    assert_allclose(got, -state.v[-1])


def test_postures_and_equilibria_leave_activations_as_they_are() -> None:
    text = text_of('<general name="lag" joint="elbow" dyntype="filter" dynprm="0.08" gainprm="0.5"/>', MOVED)
    text = text.replace(
        '<body name="drone" pos="1 0 0" euler="10 0 20"><freejoint name="free"/>', '<body name="drone">'
    )
    text = text.replace("1 0 0 0 1 0 0 1 0 0 0", "1 0 0 0")
    problem = uk.load(text).problem
    lifted = um.problem(problem, at={"shoulder": 0.4}, rates={"lag activation": 0.7})
    assert_allclose(lifted.v0[-1], 0.7)
    assert_allclose(um.problem(lifted, at={"shoulder": 0.5}).v0[-1], 0.7)
    rest = ua.equilibrium(um.problem(problem, at={"shoulder": 0.1}, rates={"lag activation": 0.7}))
    force = problem.system.force(jnp.asarray(0.0), rest.q, jnp.zeros(6).at[-1].set(0.7))
    assert_allclose(force[:-1], 0.0, atol=1e-6)
    assert rest.multipliers.shape == (0,)


FLUIDS = {
    "boxes": ("", 'density="1000" viscosity="0.3" wind="1 -2 3"'),
    "ellipsoids": ('fluidshape="ellipsoid"', 'density="1000" viscosity="0.3" wind="1 -2 3"'),
    "air": ('fluidshape="ellipsoid" fluidcoef="0.3 0.2 1.2 0.7 1.1"', 'density="1.2"'),
    "oil": ('fluidshape="ellipsoid"', 'viscosity="5"'),
}
SHAPES = """
<worldbody>
  <body pos="0 0 1" euler="10 20 30"><joint type="ball"/><geom type="box" size="0.1 0.2 0.3" pos="0 0.1 0.2"/>
    <body pos="0.3 0 0" euler="0 40 0"><joint/><geom type="capsule" size="0.1 0.2" pos="0.1 0 0" euler="20 0 4" {fluid}/>
      <geom type="sphere" size="0.1" pos="0.1 0 0" {fluid}/>
      <geom type="cylinder" size="0.1 0.05" pos="0.1 0 0.4" euler="20 0 4" {fluid}/>
      <body pos="0.1 0 0.1" euler="10 20 0"><geom type="ellipsoid" size="0.1 0.05 0.2" euler="10 20 30"/></body>
    </body></body>
  <body><freejoint/><geom size="0.1 0.15 0.2" type="box" {fluid}/></body>
</worldbody>"""


@pytest.mark.parametrize("kind", FLUIDS)
def test_fluids_and_wind(kind: str) -> None:
    fluid, option = FLUIDS[kind]
    flags = '<flag contact="disable"/>'
    text = f"<mujoco><option {option}>{flags}</option>{SHAPES.format(fluid=fluid)}</mujoco>"
    robot = agree(text)
    assert "fluid" in [x.feature for x in robot.report.features if x.status == "used"]


def test_a_fluid_around_bodies_without_geoms() -> None:
    inertial = '<inertial pos="0.1 0 0.2" mass="1" diaginertia="0.1 0.2 0.25"/>'
    bodies = f'<worldbody><body><joint type="ball"/>{inertial}</body></worldbody>'
    agree(f'<mujoco><option density="1000" viscosity="0.3"/>{bodies}</mujoco>')


def test_a_run_in_water() -> None:
    flags = '<flag contact="disable"/>'
    option = 'density="1000" viscosity="0.3" wind="1 -2 3" timestep="1e-3" integrator="RK4"'
    text = f"<mujoco><option {option}>{flags}</option>{SHAPES.format(fluid=FLUIDS['ellipsoids'][0])}"
    runs_agree(text + "<keyframe><key/></keyframe></mujoco>", 0.1, 1e-7)


def test_what_tendons_move() -> None:
    motors = (
        '<motor tendon="cord" gear="3" armature="0.1" damping="0.2"/><motor tendon="split" armature="0.3"/>'
        '<motor joint="elbow" gear="2" armature="0.05" damping="0.3"/><motor joint="elbow" gear="2" armature="0.1"/>'
    )
    motors = motors if POLYNOMIALS else '<motor tendon="cord" gear="3"/>'
    text = text_of(motors, MOVED, cord='armature="0.7" damping="0.3"', split='armature="0.4"')
    robot = agree(text)
    model = mujoco.MjModel.from_xml_string(text)
    model.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    qvel = np.linspace(-1, 2, model.nv)
    at = reference.data(model, model.key_qpos[0], qvel)
    q, v = robot.state_from_mujoco(model.key_qpos[0], qvel)
    kinetic = [x for name, x in robot.mechanism.energies(q[0], q, v).items() if name.startswith("kinetic")]
    assert_allclose(sum(map(float, kinetic)), at.energy[1], rtol=1e-12)
    runs_agree(text, 0.1, 1e-8)
    # Forces of inertia that a path passes on to bodies leave no torque along a hinge.
    free = text_of('<motor joint="elbow"/>', MOVED, cord='armature="0.7"').replace(' damping="0.05"', "")
    run = uk.simulate(uk.load(free).problem, t1=0.1, ts=3)
    torque = run.reactions()["shoulder"].torque
    assert np.abs(torque[:, 0]).max() > 0.5
    assert_allclose(torque[:, 1], 0.0, atol=1e-12)
