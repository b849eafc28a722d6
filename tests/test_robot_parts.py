"""Equalities, tendons and actuators of robot files against MuJoCo's terms and exact constraints by NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

mujoco = pytest.importorskip("mujoco")

import mujoco_reference as reference  # noqa: E402

from ukjax.robots import load  # noqa: E402

CHAIN = """
<worldbody>
  <site name="base" pos="0 0.05 0.02"/>
  <body name="a" pos="0 0 0.1">
    <joint name="first" axis="0 1 0.2"/>
    <geom size="0.05 0.2" type="capsule" pos="0.1 0 0.2"/>
    <site name="on a" pos="0.05 0.02 0.3" euler="10 20 30"/>
    <geom name="drum" type="cylinder" size="0.06 0.1" pos="0.1 0.06 0.17" euler="80 10 0" contype="0"/>
    <body name="b" pos="0.2 0 0.4" euler="0 10 0">
      <joint name="second" axis="1 0 0.1" ref="20"/>
      <geom size="0.04 0.1 0.06" type="box" pos="0 0.1 0"/>
      <site name="on b" pos="0.02 0.1 0.03" euler="40 -20 10"/>
      <body name="c" pos="0.1 0.2 0">
        <joint name="third" type="slide" axis="0 1 0.3"/>
        <joint name="fourth" axis="0 0 1" pos="0.05 0 0"/>
        <geom size="0.05" pos="0.02 0.01 0.1" mass="0.7"/>
        <site name="on c" pos="0.01 0.02 0.05"/>
      </body>
    </body>
  </body>
  <body name="d" pos="0.6 0 0.3">
    <freejoint name="free"/>
    <geom size="0.05 0.08 0.1" type="box" pos="0.01 0.02 0.03" euler="10 20 30"/>
    <site name="on d" pos="-0.1 0.02 0" euler="20 40 60"/>
  </body>
</worldbody>
"""
FIXED = '<fixed name="split"><joint joint="first" coef="0.5"/><joint joint="third" coef="-0.8"/></fixed>'
SPATIAL = '<spatial name="cord"><site site="base"/><site site="on b"/><site site="on d"/></spatial>'

EQUALITIES = {
    "connect bodies": '<connect body1="c" body2="d" anchor="0.1 0 0.05"/>',
    "connect world": '<connect body1="d" anchor="0.1 0 0.05"/>',
    "connect sites": '<connect site1="on c" site2="on d"/>',
    "weld bodies": '<weld body1="d" body2="b" relpose="0.1 0.2 0 0.9 0.1 0.2 -0.3" anchor="0.02 0.1 0" '
    'torquescale="0.3"/>',
    "weld world": '<weld body1="d"/>',
    "weld sites": '<weld site1="on d" site2="on b"/>',
    "joint": '<joint joint1="first" joint2="second" polycoef="0.1 0.5 -0.3 0.2 0.1"/>',
    "one joint": '<joint joint1="second" polycoef="0.2 0 0 0 0"/>',
    "tendons": '<tendon tendon1="split" tendon2="cross" polycoef="0.05 0.7 0.2 0 0"/>',
    "one tendon": '<tendon tendon1="split" polycoef="0.05 0 0 0 0"/>',
    "paths": '<tendon tendon1="cord" tendon2="line" polycoef="0.02 -0.5 0.1 0 0"/>',
    "one path": '<tendon tendon1="cord" polycoef="0.03 0 0 0 0"/>',
    "dependent": '<connect site1="on c" site2="on d"/><weld site1="on d" site2="on c"/>',
}
TENDONS = {
    "fixed": '<fixed name="t" stiffness="30" damping="2" springlength="0.1"><joint joint="first" coef="0.5"/>'
    '<joint joint="third" coef="-0.8"/></fixed>',
    "dead band": '<fixed name="t" stiffness="30" springlength="-0.02 0.02"><joint joint="second" coef="1"/></fixed>',
    "spatial": '<spatial name="t" stiffness="30" damping="2" springlength="0.2"><site site="base"/><site site="on b"/>'
    '<site site="on d"/></spatial>',
    "pulleys": '<spatial name="t" stiffness="30" damping="2"><site site="base"/><site site="on b"/><pulley divisor="2"/>'
    '<site site="on b"/><site site="on c"/><pulley divisor="3"/><site site="on c"/><site site="on d"/></spatial>',
    "around": '<spatial name="t" stiffness="30" damping="2" springlength="0.1"><site site="base"/><geom geom="drum"/>'
    '<site site="on b"/></spatial>',
}
SERVO = '<general class="servo" {} gaintype="affine" gainprm="2 0.3 0.1" biastype="affine" biasprm="0.5 -3 -0.2"/>'
ACTUATORS = {
    "motor": '<motor joint="first" gear="3"/><motor joint="fourth" gear="-0.5"/>',
    "position": '<position joint="second" kp="20" kv="1" gear="2"/>',
    "velocity": '<velocity joint="third" kv="5"/>',
    "affine": '<general joint="second" gaintype="affine" gainprm="2 0.3 0.1" biastype="affine" biasprm="0.5 -3 -0.2"/>',
    "ranges": '<motor joint="first" gear="3" ctrllimited="true" ctrlrange="-0.3 0.2" forcelimited="true" '
    'forcerange="-0.1 0.4"/>',
    "free": '<motor joint="free" gear="1 2 3 0.4 0.5 0.6"/>',
    "in parent": '<general jointinparent="first" gear="2"/>',
    "fixed tendon": '<position tendon="split" kp="20" gear="2"/>',
    "spatial tendon": '<position tendon="cord" kp="20" kv="0.5" gear="2"/>',
    "site": '<motor site="on c" gear="1 2 3 0.1 0.2 0.3"/>',
    "site against site": '<position site="on c" refsite="on a" gear="1 2 3 0 0 0" kp="5"/>'
    '<motor site="on c" refsite="base" gear="1 2 3 0.1 0.2 0.3"/>',
    "crank": '<general cranksite="on b" slidersite="on a" cranklength="0.6" gear="3" '
    'biastype="affine" biasprm="0 -2 0"/>',
    "filter": '<general joint="first" dyntype="filter" dynprm="0.1" gear="3"/>',
    "integrator": '<intvelocity joint="second" kp="3" actrange="-2 2"/>',
}


def robot_of(*, equality="", tendon="", actuator="", world=CHAIN, option=""):
    """MuJoCo's model and ours."""
    text = (
        f'<mujoco><option gravity="0.5 0.2 -9.81">{option}</option>{world}<tendon>{tendon}</tendon>'
        f"<equality>{equality}</equality><actuator>{actuator}</actuator></mujoco>"
    )
    return mujoco.MjModel.from_xml_string(text), load(text)


def states(model, robot, count=2):
    """Random states that meet the equalities, with inputs and activations."""
    rng = np.random.default_rng(3)
    start = np.array(robot.state_to_mujoco(robot.problem.q0, robot.problem.v0)[0])
    for _ in range(count):
        qpos = reference.moved(model, start, rng.normal(size=model.nv), 0.1)
        qpos, qvel = reference.closed(model, qpos, rng.normal(size=model.nv))
        yield qpos, qvel, rng.normal(size=model.nu), rng.normal(size=model.na)


def agree(model, robot, tolerance=1e-9):
    """Accelerations agree with the reference."""
    for qpos, qvel, ctrl, act in states(model, robot):
        right, free = reference.accelerations(model, qpos, qvel, ctrl, act)
        own = np.asarray(robot.acceleration(qpos, qvel, ctrl, act))
        assert np.abs(own - right).max() <= tolerance * max(np.abs(free).max(), np.abs(right).max())


def statuses(robot):
    return {x.feature: x.status for x in robot.report.features}


# Each by itself in the slow suite: what is traced of a robot takes a second. The dependent ones are between sites.
TOGETHER = {
    "connections": ("connect bodies", "connect world", "joint", "one tendon"),
    "welds": ("weld bodies", "one joint", "tendons", "paths"),
    "to the world": ("weld world", "one path"),
    "dependent": ("dependent",),
}
BETWEEN_SITES = {"connect sites", "weld sites"}
EACH = [pytest.param((kind,), marks=pytest.mark.slow, id=kind) for kind in EQUALITIES if kind != "dependent"]


def test_every_equality_is_in_a_group() -> None:
    assert {kind for kinds in TOGETHER.values() for kind in kinds} == set(EQUALITIES) - BETWEEN_SITES


@pytest.mark.parametrize(
    "kinds",
    [
        *(
            pytest.param(x, id=name, marks=[pytest.mark.slow] * (name == "to the world"))
            for name, x in TOGETHER.items()
        ),
        *EACH,
    ],
)
def test_equalities_are_exact_and_give_the_accelerations_of_the_formula(kinds):
    cross = '<fixed name="cross"><joint joint="second" coef="0.4"/><joint joint="fourth" coef="1.2"/></fixed>'
    line = '<spatial name="line"><site site="on a"/><site site="on c"/></spatial>'
    equality = "".join(EQUALITIES[kind] for kind in kinds)
    tendon = FIXED + cross + SPATIAL + line if "tendon" in equality else ""
    model, robot = robot_of(equality=equality, tendon=tendon)
    assert len(robot.mechanism.constraints) == model.neq
    agree(model, robot)
    qpos = np.array(robot.state_to_mujoco(robot.problem.q0, robot.problem.v0)[0])
    residual = reference.rows(reference.smooth(model), qpos)[1]
    np.testing.assert_allclose(residual, 0.0, atol=1e-12)


def names(text, name):
    """The text of a tendon with that name."""
    return text.replace('name="t"', f'name="{name}"')


def together(kinds):
    """All at once, which is one mechanism; each by itself in the slow suite."""
    return [
        pytest.param(tuple(kinds), id="together"),
        *(pytest.param((kind,), marks=pytest.mark.slow, id=kind) for kind in kinds),
    ]


@pytest.mark.parametrize("kinds", together(TENDONS))
def test_springs_and_dampers_of_tendons(kinds):
    model, robot = robot_of(tendon="".join(names(TENDONS[kind], kind) for kind in kinds))
    assert statuses(robot)["tendon spring or damper"] == "used"
    agree(model, robot)


def test_the_energy_of_tendons_is_that_of_mujoco():
    model, robot = robot_of(tendon="".join(names(TENDONS[kind], kind) for kind in TENDONS))
    model.opt.gravity[:] = 0.0
    energies = jax.jit(lambda q, v: robot.mechanism.energies(0.0, q, v))
    for qpos, qvel, *_ in states(model, robot):
        at = reference.data(model, qpos, qvel)
        mujoco.mj_energyPos(model, at)
        own = energies(*robot.state_from_mujoco(qpos, qvel))
        potential = sum(float(x) for name, x in own.items() if name.startswith("potential_tendon"))
        assert potential == pytest.approx(at.energy[0], rel=1e-12)


@pytest.mark.parametrize("kinds", together(ACTUATORS))
def test_actuators(kinds):
    actuator = "".join(ACTUATORS[kind] for kind in kinds)
    tendon = FIXED + SPATIAL if "tendon" in actuator else ""
    model, robot = robot_of(actuator=actuator, tendon=tendon)
    agree(model, robot)


def test_limits_of_the_total_force_on_a_joint():
    world = CHAIN.replace(
        'name="first"', 'name="first" actuatorfrclimited="true" actuatorfrcrange="-0.2 0.3"'
    )
    motors = '<motor joint="first" gear="3"/><motor joint="first" gear="-1"/><motor tendon="split" gear="2"/>'
    model, robot = robot_of(actuator=motors, tendon=FIXED, world=world)
    assert statuses(robot)["joint actuatorfrcrange"] == "used"
    agree(model, robot)


def test_what_the_file_turns_off_is_off_and_said():
    active = '<joint joint1="first" joint2="second"/><connect body1="d" anchor="0 0 0" active="false"/>'
    model, robot = robot_of(equality=active)
    assert len(robot.mechanism.constraints) == 1
    assert ("equality connect", "ignored") in [(x.feature, x.status) for x in robot.report.features]
    agree(model, robot)
    model, robot = robot_of(
        equality=active, option='<flag equality="disable" clampctrl="disable" spring="disable"/>'
    )
    assert not robot.mechanism.constraints
    agree(model, robot)
    model, robot = robot_of(actuator=ACTUATORS["motor"], option='<flag actuation="disable"/>')
    assert statuses(robot)["actuator on joint"] == "ignored"
    agree(model, robot)


def test_inputs_are_constant_or_functions_or_tables():
    table = uk.Tabulated(jnp.array([0.0, 1.0]), jnp.array([[0.0, 0.0], [2.0, 4.0]]))
    laws = (
        np.array([1.0, 2.0]),
        lambda t: t * jnp.array([2.0, 4.0]),
        lambda t, q, v: jnp.array([1.0, 2.0]) + 0 * q[1],
        table,
    )
    force = eqx.filter_jit(lambda system: system.force(jnp.asarray(0.5), system.q0, system.v0))
    forces = []
    for law in laws:
        text = f"<mujoco>{CHAIN}<actuator>{ACTUATORS['motor']}</actuator></mujoco>"
        system = load(text, ctrl=law).problem.system
        forces.append(force(system))
    np.testing.assert_allclose(forces, [forces[0]] * 4, rtol=1e-14)
    with pytest.raises(uk.InputError, match=r"ctrl has shape \(3,\); this robot needs \(2,\)"):
        load(f"<mujoco>{CHAIN}<actuator>{ACTUATORS['motor']}</actuator></mujoco>", ctrl=np.zeros(3))
    with pytest.raises(uk.InputError, match="ctrl must be a function of"):
        load(f"<mujoco>{CHAIN}<actuator>{ACTUATORS['motor']}</actuator></mujoco>", ctrl=lambda t, q: t)


ADHESION = '<adhesion body="a" ctrlrange="0 1"/><motor joint="second"/>'
REFUSED = {
    "adhesion": ({"actuator": ADHESION}, "actuator on body", "it works on 'body'"),
    "a limit of a tendon": (
        {"tendon": FIXED.replace("name=", 'limited="true" range="-1 1" name=')},
        "tendon limits",
        "",
    ),
    "friction of a tendon": (
        {"tendon": FIXED.replace("name=", 'frictionloss="1" name=')},
        "tendon frictionloss",
        "",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_is_not_used_is_named(case):
    given, feature, why = case
    _, robot = robot_of(**given)
    (found,) = [x for x in robot.report.features if x.feature == feature and x.status == "ignored"]
    assert why in found.why
    parts = "".join(f"<{kind}>{text}</{kind}>" for kind, text in given.items())
    text = f"<mujoco>{CHAIN}{parts}</mujoco>"
    with pytest.raises(uk.InputError, match=feature):
        load(text, strict=True)
