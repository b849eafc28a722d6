"""Mechanisms in space from blocks: against closed forms, Euler's equations and mechanisms known to be overconstrained."""

import functools

import diffrax as dfx
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from helpers import equations, rows_of
from scipy.spatial.transform import Rotation

import ukjax as uk
import ukjax.mechanisms as um
from ukjax import InputError

G = 9.81
Z = np.array([0.0, 0.0, 1.0])


def acceleration(system, q, v):
    """By Lagrange's equations of the first kind, which a singular M does not mind."""
    M, Q, rows = equations(system, 0.0, q, v)
    A = rows.A
    K = np.block([[M, A.T], [A, np.zeros((len(A), len(A)))]])
    return np.linalg.lstsq(K, np.concatenate([Q, rows.b]), rcond=1e-12)[0][: len(Q)]


def rigid(seed=0):
    """A motion of everything: rotation, shift and quaternion (scalar first)."""
    turn = Rotation.random(rng=np.random.default_rng(seed))
    return turn.as_matrix(), np.array([0.7, -0.2, 0.4]), turn.as_quat(scalar_first=True)


TWO = [
    um.Body("a", 1.0, (0.3, 0.1, 0.2), (0.2, 0.3, 0.4)),
    um.Body("b", 2.0, (1.0, -0.4, 0.1), [[0.3, 0.05, 0], [0.05, 0.2, 0], [0, 0, 0.25]]),
]
P, A = (0.5, 0.2, -0.1), (1.0, 2.0, -2.0)
SLEEVE = um.Cylindrical("sleeve", "a", "b", P, A)
JOINTS = {
    "revolute": (um.Revolute("revolute", "a", "b", P, A), 5),
    "prismatic": (um.Prismatic("prismatic", "a", "b", P, A), 5),
    "fixed": (um.Fixed("fixed", "a", "b", P), 6),
    "spherical": (um.Spherical("spherical", "a", "b", P), 3),
    "universal": (um.Universal("universal", "a", "b", P, A, (2, 1, 2)), 4),
    "cylindrical": (um.Cylindrical("cylindrical", "a", "b", P, A), 4),
    "screw": (um.Screw("screw", "a", "b", P, A, 0.1), 5),
    "distance": (um.Distance("distance", "a", "b", (0.3, 0.3, 0), (1.0, 0.0, 0.3)), 1),
    "gear": (um.Gear("gear", "a", "b", -2.0, axis=A, child_axis=(0, 0, 1)), 1),
    "ball": (um.Rolling("ball", "a", "b", (1.0, -0.4, -0.4), (1.0, -0.4, 0.1)), 3),
    "disc": (um.Rolling("disc", "a", "b", (1.0, -0.7, -0.3), (1.0, -0.4, 0.1), (0, 4, -3), Z), 3),
    "path": (um.PathMotion("path", "a", "b", P, lambda t: jnp.asarray(P)), 3),
    "guide": (um.Guide("guide", "a", "b", P, lambda x: x[0] - 0.5), 1),
    "driven hinge": (um.Drive("driven hinge", um.Revolute("pin", "a", "b", P, A), lambda t: 0.0 * t), 1),
    "driven sleeve": (um.Drive("driven sleeve", SLEEVE, lambda t: 0.0 * t), 1),
}


@functools.cache
def _rows_of_joints():
    """Of all of them together, in the reference posture and where both bodies have moved as one."""
    system = um.assemble(TWO, [joint for joint, _ in JOINTS.values()])
    R, shift, quaternion = rigid()
    parts = [np.concatenate([R @ body.centre + shift, quaternion]) for body in TWO]
    return [rows_of(system, 0.0, q, np.zeros(12)) for q in (system.q0, jnp.asarray(np.concatenate(parts)))]


@pytest.mark.parametrize("name", JOINTS)
def test_joints_have_the_rows_they_should(name: str) -> None:
    """Rows of full rank, zero in the reference posture and wherever both bodies have moved as one."""
    for rows in _rows_of_joints():
        own = [row.partition("[")[0].partition(",")[0] == name for row in rows.names]
        A, rank = np.asarray(rows.A)[own], JOINTS[name][1]
        assert A.shape == (rank, 12)
        assert np.linalg.matrix_rank(A) == rank
        np.testing.assert_allclose(np.asarray(rows.position_error)[own], 0, atol=1e-14)


def top(coordinates):
    """`models.spinning_top` from blocks; its moments are given about the fixed point."""
    axis = np.array([0.0, -np.sin(np.pi / 3), 0.5])
    inertia = 0.25 * np.eye(3) + 0.25 * np.outer(axis, axis)
    body = um.Body("top", 1.0, axis, inertia)
    tip = um.Spherical("tip", "ground", "top", (0, 0, 0))
    system = um.assemble([body], [tip], [um.Gravity()], coordinates=coordinates)
    return um.problem(system, rates={"top": 0.5 * Z + 11.75 * axis}, t1=1.0)


@pytest.mark.parametrize("coordinates", ["quaternion", "euler parameters"])
def test_top_accelerates_by_its_euler_angles(coordinates: str) -> None:
    """Its centre, twice differentiated; the reaction at its tip is then m (a + g)."""
    problem = top(coordinates)
    a = acceleration(problem.system, problem.q0, problem.v0)[:3]
    x, rates = np.array([0, np.pi / 3, 0]), np.array([0.5, 0, 11.75])
    second = oracles.top_acceleration(x, rates)
    h = 1e-4
    moved = [oracles.top_rotation(x + s * h * rates + (s * h) ** 2 / 2 * second)[:, 2] for s in (1, 0, -1)]
    exact = (moved[0] - 2 * moved[1] + moved[2]) / h**2
    np.testing.assert_allclose(a, exact, atol=1e-6)
    if coordinates == "euler parameters":
        tip = um.reactions(problem.system, 0.0, problem.q0, problem.v0)["tip"]
        np.testing.assert_allclose(tip.force, a + G * Z, atol=1e-10)
        np.testing.assert_allclose(tip.torque, 0, atol=1e-10)
    np.testing.assert_allclose(
        problem.system.energy(0.0, problem.q0, problem.v0), oracles.top_conserved(x, rates)[0]
    )


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["quaternion", "euler parameters"])
def test_top_runs_like_its_euler_angles(coordinates: str) -> None:
    formula = uk.RangeForm() if coordinates == "euler parameters" else uk.UdwadiaKalaba()
    run = uk.simulate(top(coordinates), ts=3, solver=dfx.Tsit5(), rtol=1e-9, atol=1e-9, formula=formula)
    x, _ = oracles.integrate(oracles.top_acceleration, [0, np.pi / 3, 0], [0.5, 0, 11.75], run.t)
    np.testing.assert_allclose(run.q[:, :3], [oracles.top_rotation(at)[:, 2] for at in x], atol=1e-6)
    assert run.energy_drift < 1e-6
    assert run.max_position_error < 1e-12


def test_a_free_body_turns_as_euler_says() -> None:
    """J w' = -w x J w + torque in body axes, and the same accelerations of both kinds of coordinates."""
    J, torque, omega = np.array([0.2, 0.3, 0.4]), np.array([0.3, -0.1, 0.2]), np.array([1.0, -2.0, 0.5])
    body, load = um.Body("body", 2.0, (1, 0, 0), J), um.Torque("torque", "body", torque, frame="body")
    R, shift, quaternion = rigid(3)
    q = jnp.asarray(np.concatenate([shift, quaternion]))
    exact = (torque - np.cross(omega, J * omega)) / J

    system = um.assemble([body], [], [load, um.Gravity()])
    v = um.velocity(system, {"body": R @ omega}, q=q)
    np.testing.assert_allclose(v, [0, 0, 0, *omega], atol=1e-12)
    np.testing.assert_allclose(acceleration(system, q, v), [0, 0, -G, *exact], atol=1e-12)

    euler = um.assemble([body], [], [load, um.Gravity()], coordinates="euler parameters")
    rate = um.velocity(euler, {"body": R @ omega}, q=q)
    np.testing.assert_allclose(rate, system.kinematics(0.0, q, v), atol=1e-12)
    a = acceleration(euler, q, rate)
    # q'' from the angular acceleration: W q'' = w'.
    u, s = quaternion[1:], quaternion[0]
    hat = np.array([[0, -u[2], u[1]], [u[2], 0, -u[0]], [-u[1], u[0], 0]])
    W = 2 * np.column_stack([-u, s * np.eye(3) - hat])
    np.testing.assert_allclose(W @ a[3:], exact, atol=1e-11)
    np.testing.assert_allclose(quaternion @ a[3:], -np.asarray(rate[3:]) @ rate[3:], atol=1e-11)
    energies = system.energy(0.0, q, v), euler.energy(0.0, q, rate)
    np.testing.assert_allclose(energies, 0.5 * J @ omega**2 + 2.0 * G * shift[2], rtol=1e-12)


def test_spherical_pendulum_of_a_point_mass() -> None:
    """A Distance to the ground and a Guide on the sphere hold a point mass like the model does."""
    model = uk.models.spherical_pendulum()
    q0, v0 = model.q0, model.v0
    mass = um.PointMass("mass", 1.0, q0)
    sphere = um.Guide("sphere", "ground", "mass", q0, lambda x: jnp.sum(x**2) - 1.0)
    exact = acceleration(model.system, q0, v0)
    for joint in (um.Distance("string", "ground", "mass", (0, 0, 0), q0), sphere):
        system = um.assemble([mass], [joint], [um.Gravity()])
        np.testing.assert_allclose(acceleration(system, q0, v0), exact, atol=1e-12)
    pull = um.reactions(system, 0.0, q0, v0)["sphere"].force
    np.testing.assert_allclose(pull, exact + G * Z, atol=1e-12)


CORNERS = np.array([(0, 0, 0), (1, 0, 0), (1, -1, 0), (1, -1, 1), (0, -1, 1), (0, 0, 1)], float)
AXES = np.eye(3)[[1, 2, 0, 1, 2, 0]]


def bricard(radius=0.0):
    """Five rods between six corners; the ground is the sixth rod (IFToMM library)."""
    names = ["ground", *(f"rod {i}" for i in range(1, 6)), "ground"]
    rods = [um.rod(names[i], CORNERS[i - 1], CORNERS[i], 1.0, radius) for i in range(1, 6)]
    hinges = [um.Revolute(f"hinge {i}", names[i], names[i + 1], CORNERS[i], AXES[i]) for i in range(6)]
    return um.assemble(rods, hinges, [um.Gravity((0, -G, 0))])


@pytest.mark.slow
def test_bricard_moves_although_it_has_no_freedom_by_count() -> None:
    """30 rows of rank 29; from rest it accelerates along its one motion by Lagrange's equation.

    No hinge's load is unique.
    """
    system = bricard()
    still = jnp.zeros(30)
    M, Q, rows = equations(system, 0.0, system.q0, still)
    assert rows.A.shape == (30, 30)
    assert np.linalg.matrix_rank(rows.A, tol=1e-6) == 29
    motion = np.linalg.svd(rows.A)[2][-1]
    exact = motion * (motion @ Q) / (motion @ M @ motion)
    np.testing.assert_allclose(acceleration(system, system.q0, still), exact, atol=1e-9)
    loads = um.reactions(system, 0.0, system.q0, still, formula=uk.RangeForm())
    assert not any(hinge.unique for hinge in loads.values())


def test_slender_rods_need_the_range_form() -> None:
    """Without inertia about its axis M is singular, which the error says; hinged, the motion is unique."""
    rod = um.rod("rod", (0, 0, 0), (1, 0, 0), 3.0)
    system = um.assemble([rod], [um.Revolute("hinge", "ground", "rod", (0, 0, 0), (0, 1, 0))], [um.Gravity()])
    still = jnp.zeros(6)
    with pytest.raises(InputError, match=r"not positive definite .*RangeForm"):
        um.reactions(system, 0.0, system.q0, still)
    found = uk.RangeForm().acceleration(system, 0.0, system.q0, still)
    np.testing.assert_allclose(found.a, [0, 0, -0.75 * G, 0, 1.5 * G, 0], atol=1e-10)
    hinge = um.reactions(system, 0.0, system.q0, still, formula=uk.RangeForm())["hinge"]
    np.testing.assert_allclose(hinge.force, [0, 0, 3.0 * G / 4], atol=1e-10)


@pytest.mark.slow
def test_bricard_keeps_its_energy() -> None:
    system = bricard()
    run = uk.simulate(system, system.q0, jnp.zeros(30), t1=1.0, ts=5, formula=uk.RangeForm())
    assert run.ok
    assert run.energy_drift < 1e-6
    assert set(np.asarray(run.rank)) == {29}
    assert run.max_position_error < 1e-10
    assert not um.reactions(system, run)["hinge 0"].unique.any()


def test_screw_under_gravity() -> None:
    """z'' = -m g / (m + J (2 pi / p)^2), and a full turn advances by the pitch."""
    m, r, pitch = 2.0, 0.1, 0.05
    nut = um.disk("nut", (0, 0, 1), r, m)
    screw = um.Screw("screw", "ground", "nut", (0, 0, 0), Z, pitch)
    system = um.assemble([nut], [screw], [um.Gravity()])
    a = acceleration(system, system.q0, jnp.zeros(6))
    exact = -m * G / (m + 0.5 * m * r**2 * (2 * np.pi / pitch) ** 2)
    np.testing.assert_allclose(a, [0, 0, exact, 0, 0, exact * 2 * np.pi / pitch], atol=1e-10)
    for turns in (0.25, 1.0, 3.5):
        half = np.pi * turns
        q = jnp.asarray([0, 0, 1 + turns * pitch, np.cos(half), 0, 0, np.sin(half)])
        np.testing.assert_allclose(system.constraints[0].fn(jnp.zeros(()), q), 0, atol=1e-14)


def test_universal_joint_turns_unevenly() -> None:
    """w2 / w1 = cos b / (1 - sin^2 b cos^2 angle) for shafts at an angle b (Cardan, Hooke)."""
    b, angle = 0.5, 0.7
    out = np.array([np.cos(b), np.sin(b), 0])
    # The fork on the first shaft lies in its plane at the given angle from the normal z of both shafts.
    fork = np.array([0, -np.sin(angle), np.cos(angle)])
    other = np.cross(out, fork)
    first = um.Body("first", 1.0, (-1, 0, 0), (0.1, 0.1, 0.1))
    second = um.Body("second", 1.0, out, (0.1, 0.1, 0.1))
    joints = [
        um.Revolute("in", "ground", "first", (-1, 0, 0), (1, 0, 0)),
        um.Revolute("out", "ground", "second", out, out),
        um.Universal("cross", "first", "second", (0, 0, 0), fork, other),
    ]
    system = um.assemble([first, second], joints)
    v = um.velocity(system, {"in": 2.0})
    ratio = np.linalg.norm(v[9:]) / 2.0
    np.testing.assert_allclose(ratio, np.cos(b) / (1 - np.sin(b) ** 2 * np.sin(angle) ** 2), rtol=1e-10)


def test_bevel_gears_and_a_redundant_door() -> None:
    """Shafts at a right angle turn at their ratio; two hinges of a door share what one could bear."""
    bodies = [um.disk("pinion", (0, 0, 1), 0.1, 1.0), um.disk("wheel", (1, 0, 0), 0.2, 1.0, (1, 0, 0))]
    joints = [
        um.Revolute("upright", "ground", "pinion", (0, 0, 1), Z),
        um.Revolute("level", "ground", "wheel", (1, 0, 0), (1, 0, 0)),
        um.Gear("bevel", "pinion", "wheel", -0.5, axis=Z, child_axis=(1, 0, 0)),
    ]
    system = um.assemble(bodies, joints)
    v = um.velocity(system, {"pinion": 4.0 * Z})
    np.testing.assert_allclose(v, [0, 0, 0, 0, 0, 4, 0, 0, 0, -2, 0, 0], atol=1e-12)

    door = um.box("door", (0.5, 0, 1), (1, 0.05, 2), 20.0)
    hinges = [um.Revolute(name, "ground", "door", (0, 0, z), Z) for name, z in (("low", 0.2), ("high", 1.8))]
    system = um.assemble([door], hinges, [um.Gravity()])
    found = um.reactions(system, 0.0, system.q0, jnp.zeros(6))
    low, high = found["low"], found["high"]
    np.testing.assert_allclose(low.force + high.force, [0, 0, 20 * G], atol=1e-9)
    moment = low.torque + high.torque + np.cross((0, 0, 0.2), low.force) + np.cross((0, 0, 1.8), high.force)
    np.testing.assert_allclose(moment + np.cross((0.5, 0, 1), (0, 0, -20 * G)), 0, atol=1e-9)
    assert not low.unique
    assert not high.unique


def test_clamped_beam() -> None:
    """A weld bears the weight and its moment; in body axes it does so turned."""
    beam = um.box("beam", (1, 0, 0), (2, 0.1, 0.1), 3.0)
    system = um.assemble([beam], [um.Fixed("weld", "ground", "beam", (0, 0, 0))], [um.Gravity()])
    weld = um.reactions(system, 0.0, system.q0, jnp.zeros(6))["weld"]
    np.testing.assert_allclose(weld.force, [0, 0, 3 * G], atol=1e-10)
    np.testing.assert_allclose(weld.torque, [0, -3 * G, 0], atol=1e-10)
    assert weld.unique


def test_rolling_obeys_newton_and_euler() -> None:
    """A leaning, turning disc: forces from Newton's law at the contact turn it as Euler says, and it does not slip."""
    m, r, lean = 2.0, 0.5, 0.4
    axle = np.array([0, np.cos(lean), np.sin(lean)])
    down = np.array([0, np.sin(lean), -np.cos(lean)])  # from the centre to the contact
    centre = -r * down
    disc = um.disk("disc", centre, r, m, axle)
    rolling = um.Rolling("contact", "ground", "disc", (0, 0, 0), centre, axle, Z)
    system = um.assemble([disc], [rolling], [um.Gravity()])
    omega = np.array([0.3, -2.0, 1.1])
    v = um.velocity(system, {"disc": omega})
    np.testing.assert_allclose(v, [*np.cross(omega, -r * down), *omega], atol=1e-12)

    a = acceleration(system, system.q0, v)
    contact = um.reactions(system, 0.0, system.q0, v)["contact"].force
    np.testing.assert_allclose(m * a[:3], contact - m * G * Z, atol=1e-11)
    J = np.asarray(disc.inertia)
    turning = J @ a[3:] + np.cross(omega, J @ omega)
    np.testing.assert_allclose(turning, np.cross(r * down, contact), atol=1e-11)
    # The centre is r w x (-down) always: differentiate, with the lowest direction turning about the plane's normal.
    up = Z - (Z @ axle) * axle
    axle1 = np.cross(omega, axle)
    up1 = -(Z @ axle1) * axle - (Z @ axle) * axle1
    size = np.linalg.norm(up)
    direction1 = up1 / size - up * (up @ up1) / size**3
    np.testing.assert_allclose(
        a[:3], r * (np.cross(a[3:], up / size) + np.cross(omega, direction1)), atol=1e-11
    )


def test_ball_and_upright_disc_roll_down_a_slope() -> None:
    """5/7 and 2/3 of g sin(slope)."""
    m, r, slope = 2.0, 0.5, 0.3
    gravity = um.Gravity(G * np.array([np.sin(slope), 0, -np.cos(slope)]))
    centre = np.array([0, 0, r])
    bodies = (um.Body("b", m, centre, np.full(3, 0.4 * m * r**2)), um.disk("b", centre, r, m, (0, 1, 0)))
    for body, axis, part in zip(bodies, (None, (0, 1, 0)), (5 / 7, 2 / 3), strict=True):
        rolling = um.Rolling("contact", "ground", "b", (0, 0, 0), centre, axis)
        system = um.assemble([body], [rolling], [gravity])
        v = jnp.asarray([3.0 * r, 0, 0, 0, 3.0, 0])
        gain = part * G * np.sin(slope)
        np.testing.assert_allclose(
            acceleration(system, system.q0, v), [gain, 0, 0, 0, gain / r, 0], atol=1e-11
        )


BAD = {
    "asymmetric": (
        lambda: um.Body("a", 1.0, (0, 0, 0), [[1, 0.1, 0], [0, 1, 0], [0, 0, 1]]),
        "symmetric matrix",
    ),
    "negative": (lambda: um.Body("a", 1.0, (0, 0, 0), (-1, 1, 1)), "no negative principal moment, got -1."),
    "triangle": (
        lambda: um.Body("a", 1.0, (0, 0, 0), (1, 1, 3)),
        "the inertia of body 'a' violates the triangle inequality: its principal moments 1 and 1 must together",
    ),
    "radius": (
        lambda: um.rod("a", (0, 0, 0), Z, 1.0, radius=-0.1),
        "the radius of rod 'a' must not be negative, got -0.1.",
    ),
    "disc": (
        lambda: um.disk("a", (0, 0, 0), 1.0, 1.0, axis=(0, 0, 0)),
        "the axis of disc 'a' must not be the zero vector",
    ),
    "no axis": (lambda: um.Revolute("j", "a", "b", (0, 0, 0)), "the axis of joint 'j' is missing"),
    "parallel": (
        lambda: um.Universal("j", "a", "b", (0, 0, 0), Z, -Z),
        "the two axes of joint 'j' are parallel",
    ),
    "pitch": (lambda: um.Screw("j", "a", "b", (0, 0, 0), Z, 0), "the pitch of joint 'j' must not be 0"),
    "flat": (lambda: um.Rolling("j", "a", "b", (0, 0, 0), Z, Z), "the disc of joint 'j' lies flat"),
    "carrier": (lambda: um.Gear("j", "a", "b", 2.0, "a"), "must be carried by a third body"),
    "planar gear": (lambda: um.assemble(TWO, [um.Gear("j", "a", "b", 2.0)]), "joint 'j' is in the plane"),
    "drive": (
        lambda: um.Drive("j", um.Spherical("s", "a", "b", P), lambda t: t),
        "the joint of drive 'j' must be",
    ),
    "path": (lambda: um.PathMotion("j", "a", "b", P, P), "the path of joint 'j' must be a function"),
    "frame": (
        lambda: um.Torque("t", "a", P, frame="local"),
        "the frame of torque 't' must be 'world' or 'body'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_line(name: str) -> None:
    build, message = BAD[name]
    with pytest.raises(InputError) as error:
        build()
    assert message in str(error.value)
    assert "\n" not in str(error.value)
