"""Frames, Jacobians, mass properties and inverse dynamics, against MuJoCo and closed forms."""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukjax as uk
import ukjax.analysis as ua
import ukjax.mechanisms as um

XML = """
<mujoco><option gravity="0 0 -9.81" timestep="1e-3"><flag contact="disable"/></option><worldbody>
<body name="torso"><freejoint/><inertial pos=".1 0 .05" mass="3" diaginertia=".1 .2 .25"/>
 <body name="arm" pos=".2 0 .1"><joint name="shoulder" axis="0 1 0"/>
 <inertial pos=".3 0 0" mass="1" diaginertia=".01 .03 .03"/>
  <body name="hand" pos=".6 0 0"><joint type="ball"/><inertial pos=".2 .05 0" mass=".5" diaginertia=".002 .003 .004"/>
   <site name="tip" pos=".3 0 .02"/></body></body></body>
</worldbody><actuator><motor joint="shoulder"/></actuator></mujoco>
"""
X, Y, Z = np.eye(3)


@functools.cache
def robot() -> um.TreeSystem:
    """The same mechanism, described in the world."""
    bodies = [
        um.Body("torso", 3.0, (0.1, 0.0, 0.05), (0.1, 0.2, 0.25)),
        um.Body("arm", 1.0, (0.5, 0.0, 0.1), (0.01, 0.03, 0.03)),
        um.Body("hand", 0.5, (1.0, 0.05, 0.1), (0.002, 0.003, 0.004), points={"tip": (1.1, 0.0, 0.12)}),
    ]
    joints = [
        um.Free("free", "ground", "torso", (0.0, 0.0, 0.0)),
        um.Revolute("shoulder", "torso", "arm", (0.2, 0.0, 0.1), Y),
        um.Spherical("wrist", "arm", "hand", (0.8, 0.0, 0.1)),
    ]
    return um.tree(bodies, joints, [um.Gravity(), um.Actuator("motor", "shoulder")])


def state(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    q, v, a = rng.normal(size=12), rng.normal(size=10), rng.normal(size=10)
    q[3:7] /= np.linalg.norm(q[3:7])
    q[8:12] /= np.linalg.norm(q[8:12])
    return q, v, a


def in_mujoco(q: np.ndarray, v: np.ndarray) -> tuple[mujoco.MjModel, mujoco.MjData]:
    model = mujoco.MjModel.from_xml_string(XML)
    data = mujoco.MjData(model)
    data.qpos, data.qvel = q, v
    mujoco.mj_forward(model, data)
    return model, data


@pytest.mark.parametrize("frame", ["hand", "hand.tip", "arm", "torso"])
def test_frames_and_jacobians_are_mujocos(frame: str) -> None:
    q, v, _ = state()
    model, data = in_mujoco(q, v)
    body, point = frame.partition(".")[::2]
    number = model.body(body).id
    place = data.site("tip").xpos if point else data.xipos[number]
    linear, angular, linear_rate, angular_rate = np.zeros((4, 3, 10))
    mujoco.mj_jac(model, data, linear, angular, place, number)
    mujoco.mj_jacDot(model, data, linear_rate, angular_rate, place, number)
    found = ua.jacobian(robot(), frame, 0.0, q, v)
    np.testing.assert_allclose(found.frame.position, place, atol=1e-13)
    np.testing.assert_allclose(found.frame.rotation, data.body(body).xmat.reshape(3, 3), atol=1e-13)
    np.testing.assert_allclose(found.angular, angular, atol=1e-13)
    np.testing.assert_allclose(found.linear, linear, atol=1e-13)
    np.testing.assert_allclose(found.velocity, np.concatenate([angular, linear]) @ v, atol=1e-12)
    np.testing.assert_allclose(found.bias, np.concatenate([angular_rate, linear_rate]) @ v, atol=1e-12)
    every = ua.frames(robot(), q=q)
    np.testing.assert_allclose(every[frame].position, place, atol=1e-13)
    assert list(every) == ["torso", "arm", "hand", "hand.tip"]


def test_absolute_coordinates_have_the_same_frames() -> None:
    """A hinge in 12 velocities of which one is free, and in one: J v and J v' + J' v are the same."""
    arm = um.rod("arm", (0.0, 0.0, 0.0), (1.0, 0.0, 0.0), 1.0, radius=0.1)
    hinge = um.Revolute("hinge", "ground", "arm", (0.0, 0.0, 0.0), Z)
    c, s = np.cos(0.7), np.sin(0.7)
    turned = (
        [c / 2, s / 2, 0, np.cos(0.35), 0, 0, np.sin(0.35)],
        [-s, c, 0, 0, 0, 2],
        [-2 * c, -2 * s, 0, 0, 0, 0],
    )
    found = []
    for make, (q, v, a) in ((um.tree, ([0.7], [2.0], [0.0])), (um.assemble, turned)):
        tip = ua.jacobian(make([arm], [hinge]), "arm.end", q=np.array(q), v=np.array(v, float))
        found.append(
            (tip.frame.position, tip.frame.rotation, tip.velocity, tip.matrix @ np.array(a) + tip.bias)
        )
    known = (
        (c, s, 0),
        ((c, -s, 0), (s, c, 0), (0, 0, 1)),
        (0, 0, 2, -2 * s, 2 * c, 0),
        (0, 0, 0, -4 * c, -4 * s, 0),
    )
    for ours in found:
        for x, exact in zip(ours, known, strict=True):
            np.testing.assert_allclose(x, exact, atol=1e-12)


def test_points_of_a_problem_without_bodies() -> None:
    problem = uk.models.pendulum()
    name = next(iter(problem.points(0.0, problem.q0)))
    q, v = jnp.array([0.6, -0.8]), jnp.array([0.8, 0.6])
    found = ua.jacobian(problem, name, q=q, v=v)
    by_q = jax.jacobian(lambda q: problem.points(0.0, q)[name])(q)
    np.testing.assert_allclose(found.matrix, by_q)
    np.testing.assert_allclose(found.velocity, by_q @ v)
    assert (found.frame.rotation, found.angular.shape) == (None, (0, 2))


def test_mass_properties_are_mujocos() -> None:
    q, v, _ = state(1)
    model, data = in_mujoco(q, v)
    mujoco.mj_subtreeVel(model, data)
    linear, M = np.zeros((3, 10)), np.zeros((10, 10))
    for column, unit in zip(M, np.eye(10), strict=True):
        mujoco.mj_mulM(model, data, column, unit)
    for name, bodies in {"torso": None, "arm": ["arm", "hand"]}.items():
        number = model.body(name).id
        mujoco.mj_jacSubtreeCom(model, data, linear, number)
        found = ua.mass_properties(robot(), 0.0, q, v, bodies=bodies)
        np.testing.assert_allclose(found.mass, model.body_subtreemass[number])
        np.testing.assert_allclose(found.centre, data.subtree_com[number], atol=1e-13)
        np.testing.assert_allclose(found.velocity, data.subtree_linvel[number], atol=1e-13)
        np.testing.assert_allclose(found.jacobian, linear, atol=1e-13)
        np.testing.assert_allclose(found.angular_momentum, data.subtree_angmom[number], atol=1e-12)
        np.testing.assert_allclose(
            found.momentum_matrix @ v, [*found.angular_momentum, *found.momentum], atol=1e-12
        )
        np.testing.assert_allclose(found.mass_matrix, M, atol=1e-12)
    whole = ua.mass_properties(robot(), 0.0, q, v)
    np.testing.assert_allclose(whole.kinetic_energy, v @ M @ v / 2)


def test_composite_inertia_is_that_of_turning_as_one() -> None:
    """T = 1/2 omega . I omega where a free torso turns about a fixed point and no joint moves (Steiner)."""
    q, omega, about = state(2)[0], np.array([0.3, -0.5, 0.7]), np.array([0.2, 0.1, -0.4])
    R = np.asarray(ua.frames(robot(), q=q)["torso"].rotation)
    v = np.concatenate([np.cross(omega, q[:3] - about), R.T @ omega, np.zeros(4)])
    found = ua.mass_properties(robot(), 0.0, q, v, about=about)
    np.testing.assert_allclose(found.kinetic_energy, omega @ found.inertia @ omega / 2)
    np.testing.assert_allclose(found.angular_momentum, found.inertia @ omega)


def test_inverse_dynamics_is_mujocos() -> None:
    q, v, a = state(3)
    model, data = in_mujoco(q, v)
    data.qacc = a
    mujoco.mj_inverse(model, data)
    found = ua.inverse_dynamics(robot(), a, 0.0, q, v, inputs=np.eye(10))
    np.testing.assert_allclose(found.efforts, data.qfrc_inverse, atol=1e-11)


def test_what_motors_cannot_do_is_told() -> None:
    bodies = [um.PlanarBody("torso", 3.0, (0.0, 0.0), 0.2), um.PlanarBody("arm", 1.0, (0.5, 0.0), 0.05)]
    joints = [um.Free("free", "ground", "torso", (0.0, 0.0))]
    joints += [um.Revolute("shoulder", "torso", "arm", (0.2, 0.0))]
    flat = um.tree(bodies, joints, [um.Gravity(), um.Actuator("motor", "shoulder")])
    at = np.ones(4), 0.0, flat.q0, np.zeros(4)
    with pytest.raises(uk.InputError, match=r"the inputs motor cannot give this acceleration: .* free x \("):
        ua.inverse_dynamics(flat, *at)
    missed = ua.inverse_dynamics(flat, *at, throw=False)
    assert not missed.realizable
    assert np.abs(missed.residual).max() > 0.1


A, B, C, D = (0.0, 0.0), (0.0, 1.0), (1.5, 1.5), (1.5, 0.0)
RODS = [um.rod("crank", A, B, 1.0), um.rod("coupler", B, C, 2.0), um.rod("rocker", D, C, 1.0)]
PINS = [
    um.Revolute("A", "ground", "crank", A),
    um.Revolute("B", "crank", "coupler", B),
    um.Revolute("C", "coupler", "rocker", C),
    um.Revolute("D", "ground", "rocker", D),
]
FOUR_BARS = {
    "absolute": um.assemble(RODS, PINS, [um.Gravity()]),
    "tree": um.tree(RODS, [PINS[0], PINS[1], PINS[3]], [um.Gravity()], loops=[PINS[2]]),
}


@pytest.mark.parametrize("name", ["absolute", pytest.param("tree", marks=pytest.mark.slow)])
def test_motors_of_a_four_bar_bring_its_power(name: str) -> None:
    """At a steady rate, effort times rate is the change of the energy; three motors share it by least squares."""
    system = FOUR_BARS[name]
    at = functools.cache(lambda s: um.problem(system, at={"A": -0.4 + s}, rates={"A": 2.0}))
    energy = lambda s: float(system.energy(0.0, at(s).q0, at(s).v0))
    power = (energy(1e-4) - energy(-1e-4)) / 1e-4  # at 2 rad/s
    one = ua.inverse_dynamics(at(0.0), {"A": 0.0}, inputs=["A"])
    np.testing.assert_allclose(2.0 * one.efforts, [power], rtol=1e-6)
    rates = np.array(
        [2.0, *(ua.jacobian(at(0.0), x).angular[0] @ at(0.0).v0 for x in ("crank", "coupler", "rocker"))]
    )
    relative = np.array([rates[1], rates[2] - rates[1], rates[3]])
    three = ua.inverse_dynamics(at(0.0), {"A": 0.0}, inputs=["A", "B", "D"])
    np.testing.assert_allclose(three.efforts, relative * power / (relative @ relative), rtol=1e-6)
    assert three.names == ("A", "B", "D")
    force = sum(np.asarray(one.reactions[x].force) for x in "AD")
    momentum = lambda s: np.asarray(ua.mass_properties(at(s)).momentum)
    change = (momentum(1e-4) - momentum(-1e-4)) / 1e-4 - 4.0 * np.array([0.0, -9.81])
    np.testing.assert_allclose(force, change, rtol=1e-5)  # what the ground exerts, less the weight


def test_the_coriolis_matrix_of_two_links_is_the_textbooks() -> None:
    """Spong, Hutchinson and Vidyasagar: h = -m2 l1 c2 sin(q2), C = [[h q2', h (q1' + q2')], [-h q1', 0]]."""
    l1, c2, m2 = 0.7, 0.3, 1.7
    links = [um.PlanarBody("upper", 2.0, (0.4, 0.0), 0.1), um.PlanarBody("lower", m2, (l1 + c2, 0.0), 0.05)]
    hinges = [um.Revolute("A", "ground", "upper", (0.0, 0.0)), um.Revolute("B", "upper", "lower", (l1, 0.0))]
    arm = um.tree(links, hinges)
    q, v = np.array([0.4, -1.1]), np.array([0.9, 1.6])
    h = -m2 * l1 * c2 * np.sin(q[1])
    want = [[h * v[1], h * (v[0] + v[1])], [-h * v[0], 0.0]]
    np.testing.assert_allclose(ua.coriolis_matrix(arm, 0.0, q, v), want, rtol=0, atol=1e-14)
    with pytest.raises(uk.InputError, match="are not the rates of its coordinates"):
        ua.coriolis_matrix(robot())


def test_an_acceleration_that_breaks_rows_is_refused() -> None:
    start = um.problem(FOUR_BARS["tree"], rates={"A": 2.0})
    with pytest.raises(
        uk.InputError, match=r"breaks constraint rows: C\[0\] by .*; give accelerations by name"
    ):
        ua.inverse_dynamics(start, np.ones(3))
    with pytest.raises(
        uk.InputError, match="no motion of the mechanism has the accelerations given for A, D: off by"
    ):
        ua.inverse_dynamics(start, {"A": 1.0, "D": -1.0})


@pytest.mark.slow
def test_derivatives_batches_and_single_precision() -> None:
    """By differences; two of a batch alone; and float32 near float64."""
    q, v, a = (jnp.asarray(x) for x in state(4))

    def numbers(q):
        tip = ua.jacobian(robot(), "hand.tip", 0.0, q, v)
        whole = ua.mass_properties(robot(), 0.0, q, v)
        effort = ua.inverse_dynamics(robot(), a.astype(q.dtype), 0.0, q, v.astype(q.dtype), inputs=np.eye(10))
        return jnp.concatenate([tip.bias, whole.angular_momentum, effort.efforts])

    step = jnp.zeros(12).at[7].set(1e-6)  # of the shoulder
    differences = (numbers(q + step) - numbers(q - step)) / 2e-6
    np.testing.assert_allclose(jax.jit(jax.jacobian(numbers))(q)[:, 7], differences, atol=1e-6)
    many = jax.vmap(numbers)(jnp.stack([q, q + 1e5 * step]))
    np.testing.assert_allclose(many[1], numbers(q + 1e5 * step), atol=1e-10)
    single = ua.jacobian(robot(), "hand.tip", 0.0, q.astype("f4"), v.astype("f4"))
    assert single.matrix.dtype == jnp.float32
    np.testing.assert_allclose(single.matrix, ua.jacobian(robot(), "hand.tip", 0.0, q, v).matrix, atol=1e-5)


BAD = {
    "frame": (lambda: ua.jacobian(robot(), "hnad"), "unknown body or point 'hnad'; did you mean 'hand'?"),
    "no bodies": (lambda: ua.mass_properties(uk.models.pendulum()), "has no bodies: this needs a mechanism"),
    "no points": (lambda: ua.jacobian(uk.models.pendulum().system, "x", q=[0.0, 1.0]), "has no named points"),
    "a word": (
        lambda: ua.mass_properties(robot(), bodies="arm"),
        "give the names of one body or more in a list",
    ),
    "about": (lambda: ua.mass_properties(robot(), about=(0.0, 1.0)), "about must have shape (3,), got (2,)"),
    "joint": (
        lambda: ua.inverse_dynamics(robot(), np.zeros(10), inputs=["knee"]),
        "unknown actuator or joint 'knee'",
    ),
    "short": (lambda: ua.inverse_dynamics(robot(), np.zeros(9)), "a must have shape (10,), got (9,)"),
    "columns": (
        lambda: ua.inverse_dynamics(robot(), np.zeros(10), inputs=np.eye(3)),
        "inputs has shape (3, 3)",
    ),
}


@pytest.mark.parametrize(("call", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_one_clear_line(call, words: str) -> None:
    with pytest.raises(uk.InputError) as error:
        call()
    assert words in str(error.value)
    assert "\n" not in str(error.value)


SLOPE = uk.Holonomic(lambda t, q: q[1] - 0.5 * q[0], name="slope")


@pytest.mark.parametrize("constraints", [[], [SLOPE]], ids=["falls", "slides"])
def test_what_falls_without_end_has_no_equilibrium(constraints):
    """Nothing is stiff, so nothing tells how far the equilibrium is."""
    weight = uk.System(jnp.eye(2), jnp.array([0.0, -9.81]), constraints)
    with pytest.raises(
        uk.InputError, match=r"no equilibrium within reach of this start: .* along v\[[01]\] \(-"
    ):
        ua.equilibrium(weight, q=jnp.zeros(2))
    assert not jax.jit(lambda q: ua.equilibrium(weight, q=q).found)(jnp.zeros(2))
    floating = ua.equilibrium(uk.System(jnp.eye(2), jnp.zeros(2), constraints), q=jnp.array([2.0, 1.0]))
    np.testing.assert_array_equal(floating.q, [2.0, 1.0])


def test_an_equilibrium_far_away_is_reached():
    far = uk.System(jnp.eye(1), lambda t, q, v: 3e9 - q)
    np.testing.assert_allclose(ua.equilibrium(far, q=jnp.zeros(1)).q, [3e9], rtol=1e-15)


def test_what_is_undamped_has_a_damping_of_zero():
    spring = uk.System(jnp.eye(1), lambda t, q, v: -4.0 * q)
    assert "-0" not in str(ua.modes(ua.linearize(spring, q=jnp.zeros(1))))
