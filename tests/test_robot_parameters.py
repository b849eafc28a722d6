"""Robots with other numbers: against MuJoCo's model changed likewise, and gradients of whole runs against differences."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import mujoco
import mujoco_reference as reference
import numpy as np
import pytest

import ukjax as uk

FILES = Path(__file__).parent.parent / "experiments" / "robots"
LINK = '<geom type="capsule" fromto="{}" size="0.02"/>'
# A four-bar on a slide, in axes of its own; several joints on a body, springs, dampers, compensation, a fixed part.
FILE = f"""
<mujoco>
  <worldbody>
    <body name="cart" pos="0 0 1" euler="10 20 30">
      <joint name="along" type="slide" axis="1 0 0" stiffness="30" damping="2"/>
      <geom type="box" size="0.1 0.1 0.1"/>
      <body name="crank" gravcomp="0.4"><joint name="crank" axis="1 0 0" armature="0.01"/>
        {LINK.format("0 0 0 0 0.4 0.3")}
        <body name="coupler" pos="0 0.4 0.3" euler="0 0 180"><joint name="pin" axis="1 0 0" damping="0.1"/>
          {LINK.format("0 0 0 0 -1.5 0.2")}
          <body name="rocker" pos="0 -1.5 0.2"><joint name="end" axis="1 0 0" stiffness="2"/>
            {LINK.format("0 0 0 0 0 -1.2")}
            <body name="weight" pos="0 0 -0.6"><geom type="sphere" size="0.05"/></body>
          </body>
        </body>
      </body>
      <body name="arm" pos="-0.5 0 0" euler="40 0 0">
        <joint name="swing" axis="0 1 0"/><joint name="roll" axis="1 0 0" damping="0.3"/>
        {LINK.format("0 0 0 0.1 0 -0.5")}
      </body>
    </body>
  </worldbody>
  <equality><connect name="close" body1="rocker" body2="cart" anchor="0 0 -1.2"/></equality>
</mujoco>
"""


def body(model: mujoco.MjModel, name: str) -> int:
    return model.body(name).id


def set_mass(model: mujoco.MjModel, name: str, value: float) -> None:
    model.body_mass[body(model, name)] = value


def set_position(model: mujoco.MjModel, name: str, value: Any) -> None:
    model.body_pos[body(model, name)] = value


def set_centre(model: mujoco.MjModel, name: str, value: Any) -> None:
    model.body_ipos[body(model, name)] = value


def set_inertia(model: mujoco.MjModel, name: str, value: np.ndarray) -> None:
    moments, axes = np.linalg.eigh(value)
    axes[:, 0] *= np.linalg.det(axes)
    model.body_inertia[body(model, name)] = moments
    mujoco.mju_mat2Quat(model.body_iquat[body(model, name)], axes.ravel())


def set_anchor(model: mujoco.MjModel, name: str, value: Any) -> None:
    model.eq_data[model.equality(name).id][:6] = np.ravel(value)


def set_of_joint(model: mujoco.MjModel, field: str, name: str, value: float) -> None:
    joint = model.joint(name)
    number = joint.id if field == "jnt_stiffness" else joint.dofadr[0]
    getattr(model, field)[number] = value


SKEW = np.array([[0.05, 0.01, 0.0], [0.01, 0.06, 0.02], [0.0, 0.02, 0.04]])
CHANGES: dict[str, tuple[str, Any, Callable[..., None]]] = {
    "mass": ("crank", 3.0, set_mass),
    "centre": ("arm", np.array([0.1, 0.2, -0.3]), set_centre),
    "inertia": ("arm", SKEW, set_inertia),
    "position": ("rocker", np.array([0.0, -1.4, 0.25]), set_position),
    "anchor": ("close", np.array([[0.0, 0.02, -1.1], [0.0, 1.85, -0.75]]), set_anchor),
    "damping": ("roll", 0.7, lambda *x: set_of_joint(x[0], "dof_damping", *x[1:])),
    "stiffness": ("end", 5.0, lambda *x: set_of_joint(x[0], "jnt_stiffness", *x[1:])),
    "armature": ("swing", 0.2, lambda *x: set_of_joint(x[0], "dof_armature", *x[1:])),
}


@pytest.fixture(scope="module")
def loaded() -> tuple[uk.robots.Robot, mujoco.MjModel]:
    model = mujoco.MjModel.from_xml_string(FILE)
    return uk.load(model), model


def changed(model: mujoco.MjModel, kinds: list[str]) -> mujoco.MjModel:
    """MuJoCo's model with the same changes; what is on a body stays there, the second anchor of a loop as well."""
    found = copy.copy(model)
    anchors = model.eq_data.copy()
    for kind in kinds:
        if kind != "anchor":
            CHANGES[kind][2](found, *CHANGES[kind][:2])
    mujoco.mj_setConst(found, mujoco.MjData(found))
    found.eq_data[:] = anchors
    found.qpos_spring[:] = model.qpos_spring
    if "anchor" in kinds:
        CHANGES["anchor"][2](found, *CHANGES["anchor"][:2])
    return found


@pytest.mark.parametrize("kind", ["all", *(pytest.param(x, marks=pytest.mark.slow) for x in CHANGES)])
def test_it_moves_as_the_file_with_these_numbers(
    kind: str, loaded: tuple[uk.robots.Robot, mujoco.MjModel]
) -> None:
    """Accelerations on the constraints, and places, by an independent formula on MuJoCo's terms."""
    robot, model = loaded
    kinds = list(CHANGES) if kind == "all" else [kind]
    other, model = (
        robot.with_parameters(**{x: {CHANGES[x][0]: CHANGES[x][1]} for x in kinds}),
        changed(model, kinds),
    )
    for x in kinds:
        np.testing.assert_allclose(other.parameters[x][CHANGES[x][0]], CHANGES[x][1], atol=1e-14)
    qvel = np.random.default_rng(0).normal(size=model.nv)
    start = other.state_to_mujoco(other.problem.q0, other.problem.v0)[0]
    qpos, qvel = reference.closed(model, np.asarray(start) + 0.1 * qvel, qvel)
    wanted = reference.acceleration(model, qpos, qvel)
    np.testing.assert_allclose(other.acceleration(qpos, qvel), wanted, atol=1e-9 * np.abs(wanted).max())
    at = reference.data(model, qpos, qvel)
    q, _ = other.state_from_mujoco(qpos, qvel)
    for name, place in other.points(0.0, q).items():
        np.testing.assert_allclose(place, at.body(name).xpos, atol=1e-12)
    # its start closes the loop that a change opened
    assert np.abs(reference.rows(model, np.asarray(start))[1]).max() < 1e-12


@pytest.mark.slow
def test_its_own_numbers_change_nothing(loaded: tuple[uk.robots.Robot, mujoco.MjModel]) -> None:
    robot, model = loaded
    same = robot.with_parameters(**robot.parameters)
    qpos, qvel = np.asarray(robot.state_to_mujoco(robot.problem.q0, robot.problem.v0))[:, : model.nq]
    qvel = np.random.default_rng(0).normal(size=model.nv)
    qpos, qvel = reference.closed(model, qpos, qvel)
    first, second = (x.acceleration(qpos, qvel) for x in (robot, same))
    np.testing.assert_allclose(first, second, rtol=1e-10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": {"crank": 1.0}}, "unknown parameter 'weight'"),
        ({"mass": {"krank": 1.0}}, "did you mean 'crank'"),
        ({"mass": {"weight": 1.0}}, "unknown name of a mass: 'weight'"),
        ({"mass": 1.0}, "mass must map names to values"),
        ({"position": {"rocker": 1.0}}, r"the position of 'rocker' must have shape \(3,\), got \(\)"),
        ({"stiffness": {"crank": 1.0}}, "unknown name of a stiffness: 'crank'"),
        ({"mass": {"crank": "heavy"}}, "mass of 'crank' must be"),
        ({"mass": {"crank": -1.0}}, "mass of 'crank' must be greater than 0"),
        pytest.param(
            {"position": {"rocker": [0.0, 9.0, 0.0]}}, "no consistent state", marks=pytest.mark.slow
        ),
    ],
)
def test_what_is_refused(changes: dict, message: str, loaded: tuple[uk.robots.Robot, mujoco.MjModel]) -> None:
    with pytest.raises(uk.InputError, match=message):
        loaded[0].with_parameters(**changes)


# Of a file: what is changed, with the directions in which loops still fit, and how long and by which steps it runs.
RUNS: dict[str, tuple[dict[str, dict[str, Any]], float, float]] = {
    "robotiq_2f85": (
        {
            "mass": {"left_driver": 1.0},
            "position": {"left_follower": (0.6, -0.8, 0.0)},
            "damping": {"left_driver_joint": 1.0, "right_follower_joint": 1.0},
            "stiffness": {"left_spring_link_joint": 1.0},
            "armature": {"left_driver_joint": 1.0},
        },
        0.1,
        1e-3,
    ),
    "cassie": (
        {
            "mass": {"cassie-pelvis": 1.0, "left-shin": 1.0},
            "position": {"left-tarsus": (0.6, 0.8, 0.0)},
            "anchor": {"connect left-achilles-rod left-heel-spring": ((0.6, 0.8, 0.0), (0.0, 0.6, 0.8))},
            "damping": {"left-knee": 1.0},
        },
        0.02,
        5e-4,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_gradients_of_a_whole_run(name: str) -> None:
    """By masses, a link's length, dampers, springs, and the initial state; against differences of order four."""
    directions, t1, dt0 = RUNS[name]
    robot = uk.load(FILES / f"{name}.xml")
    sizes = [x.size for x in (robot.problem.q0, robot.problem.v0)]
    weights = jax.random.normal(jax.random.key(0), (2, max(sizes)))

    def end(changes: dict, dq: jax.Array, dv: jax.Array) -> jax.Array:
        """A weighted sum of the state a run ends at."""
        other = robot.with_parameters(**changes)
        run = uk.simulate(
            other.mechanism, other.problem.q0 + dq, other.problem.v0 + dv, t1=t1, ts=2, dt0=dt0,
            solver=dfx.Tsit5(), stepsize_controller=dfx.ConstantStepSize(), max_steps=256,
        )  # fmt: skip
        return weights[0, : sizes[0]] @ run.q[-1] + weights[1, : sizes[1]] @ run.v[-1]

    known = robot.parameters
    given = {kind: {x: known[kind][x] for x in own} for kind, own in directions.items()}
    at = (given, jnp.zeros(sizes[0]), jnp.zeros(sizes[1]))
    value = jax.jit(jax.value_and_grad(end, argnums=(0, 1, 2)))
    starts, tree = jax.tree.flatten(at)
    # the state moves along the loops, and quaternions keep their length
    problem = robot.problem
    _, dv = uk.project(
        robot.mechanism, 0.0, problem.q0, jnp.asarray(np.random.default_rng(0).normal(size=sizes[1]))
    )
    dq = robot.mechanism.kinematics(jnp.asarray(0.0), problem.q0, dv)
    moves = [np.asarray(x) for own in sorted(directions) for _, x in sorted(directions[own].items())]
    kinds = [kind for kind in sorted(directions) for _ in directions[kind]]
    gradients = jax.tree.leaves(value(*at)[1])
    for i, (x, move, gradient) in enumerate(zip(starts, [*moves, dq, dv], gradients, strict=True)):
        # Lengths bend Cassie's motion most; of the state, whose changes start at zero, short steps are lost in rounding.
        relative = 3e-4 if i < len(kinds) and kinds[i] in ("anchor", "position") else 1e-3
        h = relative * max(float(jnp.max(jnp.abs(x))), 1e-2) if i < len(kinds) else 1e-4

        def moved(s: float, i: int = i, move: Any = move, h: float = h) -> float:
            changed = [*starts[:i], starts[i] + s * h * move, *starts[i + 1 :]]
            return float(value(*jax.tree.unflatten(tree, changed))[0])

        difference = (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12 * h)
        np.testing.assert_allclose(np.sum(gradient * move), difference, rtol=1e-7)
