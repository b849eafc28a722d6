"""Mechanisms in the plane from blocks: against models written by hand, closed forms and Newton's laws."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from helpers import equations, rows_of, state, textbook

import ukjax as uk
import ukjax.mechanisms as um
from ukjax import InputError

G = 9.81
EYE = np.eye(2)


def acceleration(system, q, v):
    M, Q, rows = equations(system, 0.0, q, v)
    return textbook(M, Q, rows.A, rows.b).a


def slider_crank_parts():
    """Bodies and joints of `models.slider_crank`, its doubled wrist pin included."""
    c = 0.5 * np.array([np.cos(np.pi / 4), np.sin(np.pi / 4)])
    end = np.array([c[0] + np.sqrt(1.0 - c[1] ** 2), 0.0])
    bodies = [
        um.rod("crank", (0, 0), c, 1.0),
        um.rod("rod", c, end, 2.0),
        um.PlanarBody("slider", 1.0, end, 0.05),
    ]
    joints = [
        um.Revolute("ground pin", "ground", "crank", (0, 0)),
        um.Revolute("crank pin", "rod", "crank", c),
        um.Revolute("wrist pin", "slider", "rod", end),
        um.Revolute("wrist pin, second bearing", "slider", "rod", end),
        um.Prismatic("slider guide", "ground", "slider", end, (1, 0)),
    ]
    return bodies, joints


def slider_crank():
    return um.assemble(*slider_crank_parts(), [um.Gravity()])


def parallelogram():
    """`models.parallelogram` from blocks, at 60 deg."""
    up = np.array([0.5, np.sqrt(0.75)])
    feet = [np.array([i, 0.0]) for i in range(3)]
    links = [um.PlanarBody(f"link {i}", 1.0, foot + 0.5 * up, 0.1, np.pi / 3) for i, foot in enumerate(feet)]
    coupler = um.PlanarBody("coupler", 2.0, feet[1] + up, 0.2)
    ground = [um.Revolute(f"ground pin {i}", "ground", f"link {i}", foot) for i, foot in enumerate(feet)]
    top = [um.Revolute(f"coupler pin {i}", "coupler", f"link {i}", foot + up) for i, foot in enumerate(feet)]
    return um.assemble([*links, coupler], [*ground, *top], [um.Gravity()])


@pytest.fixture(scope="module", params=["slider_crank", "parallelogram"])
def pair(request):
    build = {"slider_crank": slider_crank, "parallelogram": parallelogram}[request.param]
    return build(), getattr(uk.models, request.param)()


def test_blocks_give_the_equations_of_the_models(pair) -> None:
    blocks, model = pair
    np.testing.assert_allclose(blocks.q0, model.q0, atol=1e-15)
    rng = np.random.default_rng(1)
    for _ in range(3):
        at = state(0.3, model.q0 + rng.normal(size=model.q0.size), rng.normal(size=model.v0.size))
        (M, Q, ours), (its_M, its_Q, theirs) = (equations(x, *at) for x in (blocks, model.system))
        for name in ("A", "b", "position_error", "velocity_error"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-12)
        np.testing.assert_allclose(M, its_M, atol=1e-15)
        np.testing.assert_allclose(Q, its_Q, atol=1e-12)
        E, its_E = (eqx.filter_jit(x.energy)(*at) for x in (blocks, model.system))
        np.testing.assert_allclose(E, its_E, rtol=1e-12)


M, K, C, X0 = 2.0, 50.0, 4.0, 0.1
"""A block on a spring and damper [kg], [N/m], [N s/m], and how far it starts from rest [m]."""


@pytest.fixture(scope="module")
def workshop():
    """The slider-crank and beside it a block on a spring, in one run."""
    bodies, joints = slider_crank_parts()
    block = um.box("block", (1.0, 3.0), (0.2, 0.2), M)
    slide = um.Prismatic("slide", "ground", "block", (1.0, 3.0), (1, 0))
    spring = um.SpringDamper("spring", "ground", "block", (0, 3), (1, 3), stiffness=K, damping=C)
    system = um.assemble([*bodies, block], [*joints, slide], [um.Gravity(), spring])
    problem = um.problem(system, q0=system.q0.at[9].add(X0), rates={"crank": 6.0}, t1=1.0)
    return problem, uk.simulate(problem, ts=5, solver=dfx.Tsit5(), rtol=1e-9, atol=1e-9)


def test_slider_crank_runs_as_in_minimal_coordinates(workshop) -> None:
    problem, run = workshop
    np.testing.assert_allclose(problem.v0[:9], uk.models.slider_crank().v0, atol=1e-12)
    x, rate = oracles.integrate(oracles.slider_crank_acceleration, np.pi / 4, 6.0, run.t)
    exact = [oracles.slider_crank_state(*state)[0] for state in zip(x[:, 0], rate[:, 0], strict=True)]
    np.testing.assert_allclose(run.q[:, :9], exact, atol=1e-7)
    assert run.max_position_error < 1e-12


def test_damped_oscillator(workshop) -> None:
    """x = x0 e^(-d t) (cos w t + d / w sin w t)."""
    run = workshop[1]
    d, w, t = C / (2 * M), np.sqrt(K / M - (C / (2 * M)) ** 2), np.asarray(run.t)
    exact = X0 * np.exp(-d * t) * (np.cos(w * t) + d / w * np.sin(w * t))
    np.testing.assert_allclose(run.q[:, 9] - 1.0, exact, atol=1e-8)


def test_reactions_along_a_run(workshop) -> None:
    """The block's slide bears its weight; who of two bearings bears the rod is a choice, and said to be."""
    problem, run = workshop
    found = um.reactions(problem.system, run)
    np.testing.assert_allclose(found["slide"].force, np.tile([0, M * G], (5, 1)), atol=1e-9)
    np.testing.assert_allclose(found["slide"].torque, 0, atol=1e-9)
    shared = {name for name, reaction in found.items() if not reaction.unique.any()}
    assert shared == {"wrist pin", "wrist pin, second bearing"}
    assert all(reaction.unique.all() for name, reaction in found.items() if name not in shared)
    assert "wrist pin[0], wrist pin, second bearing[0] depend on each other" in str(uk.check(problem))


def pendulum(mass=2.0, length=1.5, angle=0.4, **more):
    """A rod hinged at the origin, its angle from the vertical."""
    end = length * np.array([np.sin(angle), -np.cos(angle)])
    hinge = um.Revolute("hinge", "ground", "rod", (0, 0))
    return um.assemble([um.rod("rod", (0, 0), end, mass)], [hinge], [um.Gravity(), *more.get("loads", [])])


def test_reaction_of_a_pendulum() -> None:
    """Along the rod m (l w^2 / 2 + g cos), across m g sin / 4: a rod turns with 3/2 g sin / l."""
    m, length, angle, w = 2.0, 1.5, 0.4, 3.0
    system = pendulum(m, length, angle)
    problem = um.problem(system, rates={"hinge": w})
    hinge = um.reactions(system, 0.0, problem.q0, problem.v0)["hinge"]
    up, right = np.array([-np.sin(angle), np.cos(angle)]), np.array([np.cos(angle), np.sin(angle)])
    np.testing.assert_allclose(up @ hinge.force, m * (length / 2 * w**2 + G * np.cos(angle)), rtol=1e-12)
    np.testing.assert_allclose(right @ hinge.force, m * G * np.sin(angle) / 4, rtol=1e-12)
    np.testing.assert_allclose(hinge.torque, 0, atol=1e-12)
    np.testing.assert_allclose(hinge.point, 0, atol=1e-15)
    assert hinge.unique
    # In axes that turn with the rod: the same while it is where it was drawn, turned by the angle later.
    np.testing.assert_allclose(hinge.body_force, hinge.force, atol=1e-12)
    turned = um.problem(system, q0=jnp.asarray([0.0, -length / 2, -np.pi / 2]), rates={"hinge": w})
    hinge = um.reactions(system, 0.0, turned.q0, turned.v0)["hinge"]
    np.testing.assert_allclose(hinge.force, [0, m * (length / 2 * w**2 + G)], atol=1e-12)
    np.testing.assert_allclose(hinge.body_force, np.linalg.norm(hinge.force) * up, atol=1e-12)


def test_reactions_of_a_double_pendulum_are_those_of_newton_and_euler() -> None:
    """Lagrange's two equations give the accelerations, Newton's laws then the forces."""
    (m1, l1, a1, w1), (m2, l2, a2, w2) = (1.0, 1.0, 0.7, 2.0), (2.0, 0.5, -0.3, -1.0)
    along, across = (
        (lambda a: np.array([np.sin(a), -np.cos(a)])),
        (lambda a: np.array([np.cos(a), np.sin(a)])),
    )
    c, s = np.cos(a1 - a2), np.sin(a1 - a2)
    M = np.array([[(m1 / 3 + m2) * l1**2, m2 * l1 * l2 * c / 2], [m2 * l1 * l2 * c / 2, m2 * l2**2 / 3]])
    Q = np.array(
        [
            -m2 * l1 * l2 * s * w2**2 / 2 - (m1 / 2 + m2) * G * l1 * np.sin(a1),
            m2 * l1 * l2 * s * w1**2 / 2 - m2 * G * l2 / 2 * np.sin(a2),
        ]
    )
    e1, e2 = np.linalg.solve(M, Q)
    elbow = l1 * (e1 * across(a1) - w1**2 * along(a1))
    gravity = np.array([0.0, -G])
    f2 = m2 * (elbow + l2 / 2 * (e2 * across(a2) - w2**2 * along(a2)) - gravity)
    f1 = f2 + m1 * (elbow / 2 - gravity)

    knee, end = l1 * along(a1), l1 * along(a1) + l2 * along(a2)
    bodies = [um.rod("upper", (0, 0), knee, m1), um.rod("lower", knee, end, m2)]
    joints = [um.Revolute("hip", "ground", "upper", (0, 0)), um.Revolute("knee", "upper", "lower", knee)]
    system = um.assemble(bodies, joints, [um.Gravity()])
    problem = um.problem(system, rates={"upper": w1, "lower": w2})
    found = um.reactions(system, 0.0, problem.q0, problem.v0)
    np.testing.assert_allclose(found["hip"].force, f1, rtol=1e-10)
    np.testing.assert_allclose(found["knee"].force, f2, rtol=1e-10)


TWO = [um.PlanarBody("a", 1.0, (0.3, 0.1), 0.2, 0.5), um.PlanarBody("b", 2.0, (1.0, -0.4), 0.1)]
PLANAR_JOINTS = {
    "revolute": (um.Revolute("j", "a", "b", (0.5, 0.2)), 2),
    "prismatic": (um.Prismatic("j", "a", "b", (0.5, 0.2), (1, 2)), 2),
    "fixed": (um.Fixed("j", "a", "b", (0.5, 0.2)), 3),
    "distance": (um.Distance("j", "a", "b", (0.3, 0.3), (1.0, 0.0)), 1),
    "spherical": (um.Spherical("j", "a", "b", (0.5, 0.2)), 2),
    "gear": (um.Gear("j", "a", "b", -2.0), 1),
    "rolling": (um.Rolling("j", "a", "b", (0.4, -0.4), (1.0, -0.4)), 2),
    "path": (um.PathMotion("j", "a", "b", (0.5, 0.2), lambda t: jnp.asarray([0.5, 0.2])), 2),
    "guide": (um.Guide("j", "a", "b", (0.6, 0.8), lambda x: jnp.sum(x**2) - 1.0), 1),
    "drive": (um.Drive("j", um.Revolute("pin", "a", "b", (0.5, 0.2)), lambda t: 0.0 * t), 1),
}


@pytest.mark.parametrize("name", PLANAR_JOINTS)
def test_joints_have_the_rows_they_should(name: str) -> None:
    """Rows of full rank, zero in the reference posture and wherever both bodies have moved as one."""
    joint, rank = PLANAR_JOINTS[name]
    system = um.assemble(TWO, [joint])
    turn, shift = 0.8, np.array([0.7, -0.2])
    R = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    if name == "gear":  # against the ground, which has not moved with them
        R, turn = EYE, 0.0
    parts = [np.append(R @ body.centre + shift, body.angle + turn) for body in TWO]
    for q in (system.q0, jnp.concatenate([jnp.asarray(part) for part in parts])):
        rows = rows_of(system, 0.0, q, jnp.zeros(6))
        assert rows.A.shape == (rank, 6)
        assert np.linalg.matrix_rank(rows.A) == rank
        np.testing.assert_allclose(rows.position_error, 0, atol=1e-14)


def test_torsional_spring_and_actuator_on_a_hinge() -> None:
    """J a = -k (s - s0) - c w + torque of the motor, of a rod about its end."""
    m, length, k, c, rest, w = 2.0, 1.5, 3.0, 0.5, 0.2, 1.2
    loads = [
        um.TorsionalSpring("spring", "hinge", k, c, rest),
        um.Actuator("motor", "hinge", lambda t, s, rate: 2.0 * s - 0.1 * rate + 1.0),
        um.Torque("torque", "rod", 0.7),
    ]
    hinge = um.Revolute("hinge", "ground", "rod", (0, 0))
    system = um.assemble([um.rod("rod", (0, 0), (length, 0), m)], [hinge], loads)
    s = 0.9
    q = jnp.asarray([length / 2 * np.cos(s), length / 2 * np.sin(s), s])
    v = um.velocity(system, {"hinge": w}, q=q)
    torque = -k * (s - rest) - c * w + 2.0 * s - 0.1 * w + 1.0 + 0.7
    np.testing.assert_allclose(acceleration(system, q, v)[2], torque / (m * length**2 / 3), rtol=1e-12)
    np.testing.assert_allclose(um.input_matrix(system)(0.0, q), [[0], [0], [1]], atol=1e-15)


def test_servo_control_by_an_actuator() -> None:
    """The motor that holds a pendulum at a constant rate bears its weight's moment."""
    m, length, angle = 2.0, 1.5, 0.4
    system = pendulum(m, length, angle, loads=[um.Actuator("motor", "hinge")])
    steady = uk.Holonomic(Turning(), name="steady")
    v = um.velocity(system, {"hinge": 2.0})
    control = uk.servo_control(system, um.input_matrix(system, "motor"), [steady], 0.0, system.q0, v)
    np.testing.assert_allclose(control.u, [m * G * length / 2 * np.sin(angle)], rtol=1e-10)
    assert control.realizable


class Turning(eqx.Module):
    def __call__(self, t, q):
        return q[2] - 2.0 * t


def test_gears_share_a_torque() -> None:
    """T = (J1 + n^2 J2) a1, a2 = n a1."""
    J1, J2, n, T = 0.5 * 1.0 * 0.2**2, 0.5 * 3.0 * 0.4**2, -0.5, 0.3
    bodies = [um.disk("pinion", (0, 0), 0.2, 1.0), um.disk("wheel", (0.6, 0), 0.4, 3.0)]
    joints = [
        um.Revolute("first bearing", "ground", "pinion", (0, 0)),
        um.Revolute("second bearing", "ground", "wheel", (0.6, 0)),
        um.Gear("gear", "pinion", "wheel", n),
    ]
    system = um.assemble(bodies, joints, [um.Torque("motor", "pinion", T)])
    a = acceleration(system, system.q0, jnp.zeros(6))
    np.testing.assert_allclose(a[[2, 5]], np.array([1, n]) * T / (J1 + n**2 * J2), rtol=1e-12)
    np.testing.assert_allclose(um.velocity(system, {"pinion": 3.0})[5], 3.0 * n, rtol=1e-12)


def test_disc_rolls_down_a_slope() -> None:
    """It gains 2/3 g sin(slope), held by a friction of m g sin(slope) / 3."""
    m, r, slope = 2.0, 0.5, 0.3
    disk = um.disk("disc", (0, r), r, m)
    rolling = um.Rolling("contact", "ground", "disc", (0, 0), (0, r))
    system = um.assemble([disk], [rolling], [um.Gravity(G * np.array([np.sin(slope), -np.cos(slope)]))])
    v = jnp.asarray([1.0, 0.0, -1.0 / r])
    gain = 2 / 3 * G * np.sin(slope)
    np.testing.assert_allclose(acceleration(system, system.q0, v), [gain, 0, -gain / r], atol=1e-12)
    contact = um.reactions(system, 0.0, system.q0, v)["contact"]
    np.testing.assert_allclose(
        contact.force, m * G * np.array([-np.sin(slope) / 3, np.cos(slope)]), rtol=1e-12
    )
    np.testing.assert_allclose(contact.torque, 0, atol=1e-12)


class Circle(eqx.Module):
    radius: float = 0.5

    def __call__(self, t):
        return self.radius * jnp.stack([jnp.cos(2.0 * t), jnp.sin(2.0 * t)])


def test_given_motions() -> None:
    """A point carried on a circle needs m r w^2; a hinge driven at a rate has it."""
    mass = um.PointMass("mass", 3.0, (0.5, 0.0))
    path = um.PathMotion("path", "ground", "mass", (0.5, 0.0), Circle())
    system = um.assemble([mass], [path])
    v = jnp.asarray([0.0, 1.0])
    np.testing.assert_allclose(um.reactions(system, 0.0, system.q0, v)["path"].force, [-6.0, 0.0], atol=1e-12)

    hinge = um.Revolute("hinge", "ground", "rod", (0, 0))
    drive = um.Drive("drive", "hinge", lambda t: 3.0 * t + 0.5 * t**2)
    system = um.assemble([um.rod("rod", (0, 0), (1, 0), 1.0)], [hinge, drive])
    v = um.velocity(system, {})
    np.testing.assert_allclose(v, [0, 1.5, 3.0], atol=1e-12)
    np.testing.assert_allclose(acceleration(system, system.q0, v)[2], 1.0, rtol=1e-12)
    # The drive's reaction is the torque that accelerates the rod.
    np.testing.assert_allclose(um.reactions(system, 0.0, system.q0, v)["drive"].torque, 1 / 3, rtol=1e-12)


def test_forces_turn_with_the_body_if_asked() -> None:
    body = um.PlanarBody("body", 2.0, (0, 0), 0.5)
    loads = [
        um.Force("world", "body", (1, 0), (0, 3.0)),
        um.Force("body", "body", (0, 1), (5.0, 0), frame="body"),
        um.Force("drag", "body", (0, 0), lambda t, x, v: -0.5 * v),
    ]
    system = um.assemble([body], [], loads)
    q, v = jnp.asarray([0.0, 0.0, np.pi / 2]), jnp.asarray([4.0, 0.0, 0.0])
    # At a right angle the body's x is the world's y; the first force acts at (0, 1), the second at (-1, 0).
    np.testing.assert_allclose(system.force(0.0, q, v), [-2.0, 3.0 + 5.0, 0.0 - 5.0], atol=1e-12)


def pull_of_a_rod(mass, x):
    """How a rod that turns about a pin at x pulls at it."""
    foot = jnp.stack([x, jnp.zeros_like(x)])
    pin = um.Revolute("D", "ground", "rocker", foot)
    system = um.assemble([um.rod("rocker", foot, (1.5, 1.5), mass)], [pin], [um.Gravity()])
    problem = um.problem(system, rates={"D": 1.0})
    return um.reactions(problem.system, 0.0, problem.q0, problem.v0)["D"].force[0]


def pull_of_a_four_bar(mass, x):
    """How a four-bar pulls at its right pin, which stands at x, with its crank turning."""
    foot, left, right = jnp.stack([x, jnp.zeros_like(x)]), (0.0, 1.0), (1.5, 1.5)
    bodies = [
        um.rod("crank", (0, 0), left, mass),
        um.rod("coupler", left, right, 1.0),
        um.rod("rocker", foot, right, 1.0),
    ]
    joints = [
        um.Revolute("A", "ground", "crank", (0, 0)),
        um.Revolute("B", "crank", "coupler", left),
        um.Revolute("C", "coupler", "rocker", right),
        um.Revolute("D", "ground", "rocker", foot),
    ]
    problem = um.problem(um.assemble(bodies, joints, [um.Gravity()]), rates={"A": 1.0})
    return um.reactions(problem.system, 0.0, problem.q0, problem.v0)["D"].force[0]


@pytest.mark.parametrize(
    "pull", [pull_of_a_rod, pytest.param(pull_of_a_four_bar, marks=pytest.mark.slow)], ids=["rod", "four-bar"]
)
def test_derivatives_by_mass_and_by_the_place_of_a_joint(pull) -> None:
    at, steps = np.array([1.2, 1.6]), np.array([-2.0, -1.0, 1.0, 2.0]) * 1e-3
    weights = np.array([1.0, -8.0, 8.0, -1.0]) / 12e-3
    near = at + np.concatenate([np.outer(steps, [1.0, 0.0]), np.outer(steps, [0.0, 1.0]), np.zeros((1, 2))])
    pulls, slopes = map(np.asarray, jax.jit(jax.vmap(jax.value_and_grad(lambda x: pull(*x))))(near))
    np.testing.assert_allclose(slopes[-1], [weights @ pulls[:4], weights @ pulls[4:8]], rtol=1e-6)


BODY = um.rod("rod", (0, 0), (1, 0), 1.0)
PIN = um.Revolute("pin", "ground", "rod", (0, 0))
BAD = {
    "mass": (lambda: um.PointMass("a", 0.0, (0, 0)), "the mass of body 'a' must be greater than 0, got 0."),
    "finite": (lambda: um.PlanarBody("a", np.nan, (0, 0), 1.0), "the mass of body 'a' must be finite"),
    "planar inertia": (
        lambda: um.PlanarBody("a", 1.0, (0, 0), -1.0),
        "the inertia of body 'a' must be greater",
    ),
    "length": (lambda: um.rod("a", (1, 1), (1, 1), 1.0), "rod 'a' has no length"),
    "size": (
        lambda: um.box("a", (0, 0), (-1, 1), 1.0),
        "the size of box 'a' must not be negative, got (-1, 1).",
    ),
    "ground": (lambda: um.PointMass("ground", 1.0, (0, 0)), "a body cannot be called 'ground'"),
    "itself": (lambda: um.Revolute("j", "a", "a", (0, 0)), "joint 'j' joins 'a' to itself"),
    "axis": (
        lambda: um.Prismatic("j", "a", "b", (0, 0), (0, 0)),
        "the axis of joint 'j' must not be the zero",
    ),
    "planar axis": (
        lambda: um.Revolute("j", "a", "b", (0, 0), (0, 0, 1)),
        "lies in the plane and takes no axis",
    ),
    "distance": (lambda: um.Distance("j", "a", "b", (1, 0), (1, 0)), "the points of joint 'j' coincide"),
    "unknown body": (
        lambda: um.assemble([BODY], [um.Revolute("pin", "ground", "rad", (0, 0))]),
        "unknown body in joint 'pin': 'rad'; did you mean 'rod'? Known: rod, ground.",
    ),
    "unknown body of a load": (
        lambda: um.assemble([BODY], [PIN], [um.Torque("t", "rd", 1.0)]),
        "unknown body in load 't': 'rd'; did you mean 'rod'?",
    ),
    "unknown joint": (
        lambda: um.assemble([BODY], [PIN], [um.Actuator("motor", "pim")]),
        "'pim'; did you mean 'pin'?",
    ),
    "twice": (lambda: um.assemble([BODY, BODY]), "2 body names are 'rod'"),
    "dimension": (
        lambda: um.assemble([BODY, um.PointMass("m", 1.0, (0, 0, 0))]),
        "body 'm' is in space but body 'rod' is in the plane",
    ),
    "joint dimension": (
        lambda: um.assemble([BODY], [um.Spherical("ball", "ground", "rod", (0, 0, 0))]),
        "joint 'ball' is in space",
    ),
    "gravity": (lambda: um.assemble([BODY], [], [um.Gravity((0, 0, -9.81))]), "load 'gravity' is in space"),
    "no body": (lambda: um.assemble([]), "a mechanism needs at least one body."),
    "not a list": (lambda: um.assemble(BODY), "bodies must be a list"),
    "a class": (lambda: um.assemble([BODY], [um.Revolute]), "an instance is needed, not the class"),
    "coordinates": (lambda: um.assemble([BODY], coordinates="euler"), "coordinates must be 'quaternion' or"),
    "point mass turns": (
        lambda: um.assemble([um.PointMass("m", 1.0, (0, 0))], [um.Revolute("j", "ground", "m", (0, 0))]),
        "concerns the orientation of 'm', a point mass",
    ),
    "point mass elsewhere": (
        lambda: um.assemble([um.PointMass("m", 1.0, (0, 0))], [um.Spherical("j", "ground", "m", (1, 0))]),
        "must hold point mass 'm' at its place",
    ),
    "rates": (
        lambda: um.velocity(um.assemble([BODY], [PIN]), {"pin": 1.0, "rod": 2.0}),
        "no motion of the mechanism has the rates given for pin, rod",
    ),
    "a dead centre": (
        lambda: um.problem(
            um.assemble(
                [BODY],
                [PIN, um.Drive("motor", "pin", lambda t: t), um.Drive("other", "pin", lambda t: 2 * t)],
            )
        ),
        "no motion of the mechanism meets the rows motor, other at t = 0.0: off by 5.0e-01.",
    ),
    "unknown rate": (
        lambda: um.velocity(um.assemble([BODY], [PIN]), {"rod.ende": 1.0}),
        "unknown joint, body or point 'rod.ende'; did you mean 'rod.end'?",
    ),
    "no actuators": (lambda: um.input_matrix(um.assemble([BODY], [PIN])), "this mechanism has no actuators"),
    "reactions": (
        lambda: um.reactions(uk.models.pendulum().system, 0.0),
        "the system must be something like",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_line(name: str) -> None:
    build, message = BAD[name]
    with pytest.raises(InputError) as error:
        build()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("make", [um.assemble, um.tree])
def test_called_at_values_a_mechanism_says_what_it_says_within_jit(make):
    bodies = [um.rod("one", (0, 0), (1, 0), 2.0), um.rod("two", (1, 0), (1.5, 0), 1.0)]
    joints = [um.Revolute("A", "ground", "one", (0, 0)), um.Revolute("B", "one", "two", (1, 0))]
    system = make(bodies, joints, [um.Gravity()])
    q = system.q0 + 0.1
    v = jnp.arange(1.0, 1.0 + len(system.velocity_labels))
    asked = [
        lambda s, t, q, v: s.mass_matrix(t, q),
        lambda s, t, q, v: s.force(t, q, v),
        lambda s, t, q, v: s.energy(t, q, v),
        lambda s, t, q, v: s.energies(t, q, v),
        lambda s, t, q, v: s.points(t, q),
        lambda s, t, q, v: s.placements(t, q),
        lambda s, t, q, v: s.twists(t, q, v),
    ]
    for x in asked:
        told, within = x(system, 0.0, q, v), jax.jit(x)(system, 0.0, q, v)
        assert jax.tree.structure(told) == jax.tree.structure(within)
        assert all(isinstance(y, jax.Array) for y in jax.tree.leaves(told))
        jax.tree.map(lambda y, z: np.testing.assert_allclose(y, z, rtol=1e-13, atol=1e-14), told, within)
    momentum = jax.grad(system.energy, argnums=2)(0.0, q, v)
    np.testing.assert_allclose(momentum, system.mass_matrix(t=0.0, q=q) @ v, rtol=1e-13)
