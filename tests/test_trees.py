"""Kinematic trees against MuJoCo, Lagrange's equations, Newton and Euler by hand, and absolute coordinates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import central, state
from scipy.integrate import solve_ivp
from scipy.optimize import root
from scipy.spatial.transform import Rotation

import ukjax as uk
from ukjax import mechanisms, models
from ukjax._misc import _lie
from ukjax.mechanisms import (
    GROUND,
    Actuator,
    Body,
    Cylindrical,
    Distance,
    Fixed,
    Force,
    Free,
    Gravity,
    PlanarBody,
    PointMass,
    Prismatic,
    Revolute,
    Screw,
    Spherical,
    SpringDamper,
    Torque,
    Universal,
    assemble,
    reactions,
    rod,
    tree,
)


@eqx.filter_jit
def _terms(system, t, q, v):
    return system.mass_matrix(t, q), system.force(t, q, v), system.energy(t, q, v)


@eqx.filter_jit
def _accelerate(system, t, q, v):
    """Without constraints."""
    return jnp.linalg.solve(system.mass_matrix(t, q), system.force(t, q, v))


_acceleration = eqx.filter_jit(uk.UdwadiaKalaba().acceleration)
_points = eqx.filter_jit(lambda system, t, q: system.points(t, q))


def _random_state(system, seed):
    rng = np.random.default_rng(seed)
    q, v = rng.normal(size=system.q0.size), rng.normal(size=system.v0.size)
    for i, label in enumerate(system.labels):
        if label.endswith(" s"):
            q[i : i + 4] /= np.linalg.norm(q[i : i + 4])
    return state(0.0, q, v)


def _close(value, expected, tolerance):
    """Relative to the largest entry."""
    size = max(1.0, np.max(np.abs(expected), initial=0.0))
    np.testing.assert_allclose(value, expected, rtol=0, atol=tolerance * size)


# Random trees in space against MuJoCo


def _inertia(rng):
    A = rng.normal(size=(3, 3))
    return np.trace(A @ A.T) * np.eye(3) - A @ A.T


def _random_tree(seed, aligned):
    """6 to 12 bodies, every kind of joint MuJoCo has, in branches; joints listed in another order than bodies.

    - `aligned`: whether axes are those of coordinates.
    """
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 13))
    bodies, joints = [], []
    for i in range(n):
        point, name = rng.normal(size=3), f"b{i}"
        parent = GROUND if i == 0 else f"b{rng.integers(max(0, i - 3), i)}"
        bodies.append(Body(name, rng.uniform(0.5, 2.0), point + 0.3 * rng.normal(size=3), _inertia(rng)))
        ends, axes = (f"j{i}", parent, name, point), rng.normal(size=(2, 3))
        if aligned:
            axes = np.eye(3)[rng.permutation(3)[:2]] * rng.choice([-1.0, 1.0], size=(2, 1))
        joints.append(
            Free(f"j{i}", GROUND, name, point)
            if i == 4 and seed % 2
            else [
                lambda e=ends, a=axes: Revolute(*e, a[0]),
                lambda e=ends, a=axes: Prismatic(*e, a[0]),
                lambda e=ends: Spherical(*e),
                lambda e=ends, a=axes: Universal(*e, a[0], a[1]),
                lambda e=ends, a=axes: Cylindrical(*e, a[0]),
                lambda e=ends: Fixed(*e),
            ][rng.choice(6, p=[0.4, 0.12, 0.18, 0.12, 0.12, 0.06])]()
        )
    order = rng.permutation(n)
    return tree(bodies, [joints[i] for i in order], [Gravity((0.3, -1.0, -9.81))])


def _elements(joint):
    """MuJoCo's joints for one of ours."""
    match joint:
        case Revolute():
            return [("hinge", joint.axis)]
        case Prismatic():
            return [("slide", joint.axis)]
        case Universal():
            return [("hinge", joint.axis), ("hinge", joint.child_axis)]
        case Cylindrical():
            return [("hinge", joint.axis), ("slide", joint.axis)]
        case Spherical():
            return [("ball", None)]
        case Free():
            return [("free", None)]
    return []


def _numbers(values):
    return " ".join(repr(float(x)) for x in values)


def _xml(system):
    """The same tree in MuJoCo's words: the frame of each body at its joint's point, along the world's axes."""
    by_parent = {}
    for joint in system.joints:
        by_parent.setdefault(joint.parent, []).append(joint)
    bodies = {body.name: body for body in system.bodies}

    def written(joint, origin):
        body = bodies[joint.child]
        moments = np.asarray(body.inertia)[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
        words = [f'<body name="{body.name}" pos="{_numbers(joint.point - origin)}">']
        for k, (kind, axis) in enumerate(_elements(joint)):
            along = "" if axis is None else f' axis="{_numbers(axis)}"'
            words.append(f'<joint name="{joint.name}/{k}" type="{kind}"{along}/>')
        words.append(
            f'<inertial pos="{_numbers(body.centre - joint.point)}" mass="{float(body.mass)!r}" '
            f'fullinertia="{_numbers(moments)}"/>'
        )
        return "".join([*words, *(written(x, joint.point) for x in by_parent.get(body.name, [])), "</body>"])

    inside = "".join(written(joint, np.zeros(3)) for joint in by_parent[GROUND])
    return f'<mujoco><option gravity="0.3 -1 -9.81"/><worldbody>{inside}</worldbody></mujoco>'


def _engine(mujoco, system, q, v):
    """MuJoCo at our state, and where our coordinates and velocities are among its own."""
    model = mujoco.MjModel.from_xml_string(_xml(system))
    data = mujoco.MjData(model)
    of_q, of_v, shift = [], [], np.zeros(model.nq)
    for joint in system.joints:
        for k, (kind, _) in enumerate(_elements(joint)):
            number = model.joint(f"{joint.name}/{k}").id
            i, j = model.jnt_qposadr[number], model.jnt_dofadr[number]
            of_q += range(i, i + {"ball": 4, "free": 7}.get(kind, 1))
            of_v += range(j, j + {"ball": 3, "free": 6}.get(kind, 1))
            if kind == "free":
                shift[i : i + 3] = joint.point
    data.qpos[of_q] = q
    data.qpos[:] += shift
    data.qvel[of_v] = v
    mujoco.mj_forward(model, data)
    mujoco.mj_rnePostConstraint(model, data)
    return model, data, np.array(of_v)


@eqx.filter_jit
def _all_terms(system, t, q, v):
    a = _accelerate(system, t, q, v)
    wrenches = system.joint_wrenches(t, q, v, a, jnp.zeros(0))
    still = system.force(t, q, jnp.zeros_like(v))
    return *_terms(system, t, q, v)[:2], still, a, system.placements(t, q), wrenches


SEEDS = [11, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 2, 3, 7, 8, 10, 13))]


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_trees_equal_mujoco(seed, aligned):
    """Mass matrix, gravity, Coriolis terms, inverse dynamics, placements and the reactions at all joints."""
    mujoco = pytest.importorskip("mujoco")
    system = _random_tree(seed, aligned)
    assert system.order.layout.aligned == aligned  # then all is computed in axes of the frames
    t, q, v = _random_state(system, seed)
    model, data, own = _engine(mujoco, system, q, v)
    M, Q, gravity, a, placements, wrenches = _all_terms(system, t, q, v)

    full = np.zeros((model.nv, model.nv))
    for column, unit in zip(full, np.eye(model.nv), strict=True):
        mujoco.mj_mulM(model, data, column, unit)
    _close(M, full[np.ix_(own, own)], 1e-12)
    _close(Q, -data.qfrc_bias[own], 1e-12)
    _close(a, data.qacc[own], 1e-10)
    _close(uk.lanes(system).one(t, q, v), data.qacc[own], 1e-10)
    _close(system.tree_inertia(t, q).dense(), M, 1e-12)
    _close(system.required_force(t, q, v, v), M @ v - Q, 1e-12)
    for joint in system.joints:
        number, place = model.body(joint.child).id, placements[joint.child]
        _close(place.p, data.xipos[number], 1e-13)
        _close(place.R, data.xmat[number].reshape(3, 3), 1e-13)
        torque, force = np.split(data.cfrc_int[number], 2)
        arm = data.subtree_com[model.body_rootid[number]] - data.xipos[number]
        _close(wrenches[joint.name].velocity, force, 1e-11)
        _close(wrenches[joint.name].omega, torque + np.cross(arm, force), 1e-11)

    data.qvel[:] = 0.0
    mujoco.mj_forward(model, data)
    _close(gravity, -data.qfrc_bias[own], 1e-12)


def test_loads_work_by_their_power_in_axes_of_frames():
    """Of a spring between bodies that slide and turn: what it adds to Q, along v, is its effort times its rate."""
    points = np.random.default_rng(1).normal(size=(4, 3))
    bodies = [Body(f"b{i}", 1.0 + i, point + 0.2, 0.1 * np.eye(3)) for i, point in enumerate(points)]
    joints = [
        Prismatic("j0", GROUND, "b0", points[0], (0.0, 1.0, 0.0)),
        Revolute("j1", "b0", "b1", points[1], (1.0, 0.0, 0.0)),
        Cylindrical("j2", "b1", "b2", points[2], (0.0, 0.0, 1.0)),
        Revolute("j3", GROUND, "b3", points[3], (0.0, 0.0, 1.0)),
    ]
    spring = SpringDamper("spring", "b2", "b3", points[2] + 0.5, points[3] - 0.4, 30.0, 2.0)
    systems = [tree(bodies, joints, loads) for loads in ([], [spring])]
    assert systems[1].order.layout.aligned
    t, q, v = _random_state(systems[1], 4)
    without, under = (system.force(t, q, v) for system in systems)
    _close(jnp.dot(under - without, v), mechanisms.efforts(systems[1], t, q, v)["spring"].power, 1e-13)


# Lagrange's equations and models written by hand


def test_a_pendulum_on_a_cross_moves_as_lagrange_says():
    """In axes of its frames, with an armature: (m l^2 c2^2 + J + A) a1 = ..., of angles about x, then y."""
    m, length, J, A, g = 2.0, 0.7, 0.3, 0.1, 9.81
    bob = Body("bob", m, (0.0, 0.0, -length), J * np.eye(3))
    cross = Universal("cross", GROUND, "bob", (0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
    system = tree([bob], [cross], [Gravity()], armature=np.array([A, 0.0]))
    assert system.order.layout.aligned
    t, q, v = state(0.0, [0.4, -0.9], [1.3, 0.8])
    (s1, s2), (c1, c2) = np.sin(q), np.cos(q)
    a1 = (2 * m * length**2 * s2 * c2 * v[0] * v[1] - m * g * length * s1 * c2) / (
        m * length**2 * c2**2 + J + A
    )
    a2 = (-m * length**2 * s2 * c2 * v[0] ** 2 - m * g * length * c1 * s2) / (m * length**2 + J)
    _close(uk.lanes(system).one(t, q, v), [a1, a2], 1e-14)
    _close(system.required_force(t, q, v, jnp.array([a1, a2])), [0.0, 0.0], 1e-13)


def _frame(twists, q, at_rest):
    """g(q) of a serial chain (Xu-Liu 2017, eq. (15))."""
    g = at_rest
    for xi, x in zip(reversed(twists), reversed(q), strict=True):
        g = _lie.exp_twist(xi, x) @ g
    return g


def _body_jacobian(twists, q, at_rest):
    """Its columns are the joint twists as the frame sees them (Murray, Li and Sastry 1994, section 3.4)."""
    seen = [_lie.inverse_adjoint(_frame(twists[j:], q[j:], at_rest)) @ xi for j, xi in enumerate(twists)]
    return jnp.stack(seen, axis=1)


class _XuLiu(eqx.Module):
    """L of a serial chain, Xu-Liu 2017, eqs. (15)-(20): body Jacobians of the product of exponentials."""

    twists: jax.Array
    centres: jax.Array
    masses: jax.Array
    inertias: jax.Array
    g: jax.Array

    def __call__(self, t, q, v):
        total = 0.0
        for i in range(len(q)):
            at_rest = _lie.rigid_motion(jnp.eye(3), self.centres[i])
            chain = (list(self.twists[: i + 1]), list(q[: i + 1]), at_rest)
            twist = _body_jacobian(*chain) @ v[: i + 1]
            turning = twist[3:] @ self.inertias[i] @ twist[3:]
            height = _frame(*chain)[:3, 3] @ self.g
            total += 0.5 * (self.masses[i] * twist[:3] @ twist[:3] + turning) + self.masses[i] * height
        return total


@pytest.mark.slow
def test_a_chain_equals_the_lagrangian_form():
    """A hinge, a screw and a slide; also the energy."""
    rng = np.random.default_rng(7)
    points, centres, axes = rng.normal(size=(3, 3, 3))
    axes /= np.linalg.norm(axes, axis=1)[:, None]
    masses, inertias, pitch = rng.uniform(1, 2, size=3), [_inertia(rng) for _ in range(3)], 0.7
    g = np.array([1.0, 2.0, -9.0])
    chain = tree(
        [Body(f"b{i}", masses[i], centres[i], inertias[i]) for i in range(3)],
        [
            Revolute("hinge", GROUND, "b0", points[0], 2.0 * axes[0]),
            Screw("screw", "b0", "b1", points[1], axes[1], pitch),
            Prismatic("slide", "b1", "b2", points[2], axes[2]),
        ],
        [Gravity(g)],
    )
    turning = [np.concatenate([-np.cross(w, p), w]) for w, p in zip(axes, points, strict=True)]
    turning[1][:3] += pitch / (2 * np.pi) * axes[1]
    twists = np.stack([turning[0], turning[1], np.concatenate([axes[2], np.zeros(3)])])
    arrays = (jnp.asarray(x) for x in (twists, centres, masses, np.stack(inertias), g))
    lagrangian = uk.lagrangian_system(_XuLiu(*arrays))
    now = _random_state(chain, 0)
    for ours, theirs in zip(_terms(chain, *now), _terms(lagrangian, *now), strict=True):
        _close(ours, theirs, 1e-12)


def _scara():
    up, along = (0.0, 0.0, 1.0), lambda y: (0.0, y, 0.0)
    links = [("upper", 20.0, 0.1, 0.27), ("fore", 15.0, 0.325, 0.31), ("wrist", 15.0, 0.45, 0.02)]
    return tree(
        [Body(name, m, along(y), (Iz, Iz, Iz)) for name, m, y, Iz in [*links, ("tool", 0.5, 0.45, 1e-4)]],
        [
            Revolute("q1", GROUND, "upper", along(0.0), up),
            Revolute("q2", "upper", "fore", along(0.2), up),
            Revolute("q3", "fore", "wrist", along(0.45), up),
            Prismatic("q4", "wrist", "tool", along(0.45), up),
        ],
        [Gravity((0.0, 0.0, -9.8))],
    )


def test_scara_from_blocks_equals_the_model():
    blocks, model = _scara(), models.scara().system
    for seed in range(4):
        t, q, v = _random_state(blocks, seed)
        for ours, theirs in zip(_terms(blocks, t, q, v), _terms(model, t, q, v), strict=True):
            _close(ours, theirs, 1e-13)
        np.testing.assert_allclose(_points(blocks, t, q)["tool"], _points(model, t, q)["tool"], atol=1e-14)


def test_coordinated_robots_from_blocks_equal_the_model():
    """Liu's absolute angles are the sums of those of the joints."""
    problem = models.coordinated_robots()
    model, angles = problem.system, np.asarray(problem.q0)
    ends = np.concatenate([[[0.0, 0.0]], np.cumsum(np.stack([np.cos(angles), np.sin(angles)], 1), axis=0)])
    names = [GROUND, "1", "2", "load", "4", "5"]
    blocks = tree(
        [PlanarBody(names[i + 1], 1.0, ends[i : i + 2].mean(0), 1.0, angles[i]) for i in range(5)],
        [Revolute(f"joint {i}", names[i], names[i + 1], ends[i]) for i in range(5)],
        [Gravity((0.0, -9.8))],
        loops=[Revolute("closing", GROUND, "5", ends[5])],
    )
    sums = np.tril(np.ones((5, 5)))
    rows = eqx.filter_jit(uk.constraint_rows)
    for seed in range(3):
        t, q, v = _random_state(blocks, seed)
        there = state(0.0, angles + sums @ q, sums @ v)
        (M, Q, energy), (own_M, own_Q, own_energy) = _terms(model, *there), _terms(blocks, t, q, v)
        ours, theirs = rows(blocks, t, q, v), rows(model, *there)
        _close(own_M, sums.T @ M @ sums, 1e-13)
        _close(own_Q, sums.T @ Q, 1e-13)
        _close(own_energy, energy, 1e-13)
        _close(ours.A, theirs.A @ sums, 1e-13)
        for name in ("b", "position_error", "velocity_error"):
            _close(getattr(ours, name), getattr(theirs, name), 1e-13)


# Against absolute coordinates


@pytest.fixture(scope="module")
def four_bars():
    """A four-bar as tree and loop, and in absolute coordinates."""
    bars = [
        rod("crank", (0.0, 0.0), (0.0, 1.0), 1.0),
        rod("coupler", (0.0, 1.0), (2.0, 1.5), 2.0),
        rod("rocker", (1.5, 0.0), (2.0, 1.5), 1.5),
    ]
    pins = [
        Revolute("A", GROUND, "crank", (0.0, 0.0)),
        Revolute("B", "crank", "coupler", (0.0, 1.0)),
        Revolute("C", GROUND, "rocker", (1.5, 0.0)),
    ]
    closing = Revolute("D", "coupler", "rocker", (2.0, 1.5))
    loads = [
        Gravity(),
        Force("push", "coupler", (1.0, 1.2), (3.0, 1.0), frame="body"),
        SpringDamper("spring", "crank", "rocker", (0.0, 0.5), (1.8, 0.9), 20.0, 0.3),
        Actuator("motor", pins[1], lambda t, s, rate: 2.0 * jnp.cos(t) - 0.2 * rate),
        Torque("torque", "rocker", 0.7),
    ]
    return tree(bars, pins, loads, loops=[closing]), assemble(bars, [*pins, closing], loads)


def _run(system, q0, v0, ts):
    """By SciPy, without any stabilizer; nothing drifts far at this tolerance."""
    n = q0.size

    @jax.jit
    def rate(t, y):
        q, v = y[:n], y[n:]
        return jnp.concatenate([system.kinematics(t, q, v), _acceleration(system, t, q, v).a])

    start, of_one_type = np.concatenate([q0, v0]), lambda t, y: rate(np.float64(t), y)
    return solve_ivp(of_one_type, (0.0, ts[-1]), start, "DOP853", ts, rtol=1e-12, atol=1e-12).y.T


@pytest.mark.slow
def test_a_four_bar_as_tree_and_loop_moves_as_in_absolute_coordinates(four_bars):
    ts = np.linspace(0.0, 2.0, 9)
    found = []
    for system in four_bars:
        v0 = mechanisms.velocity(system, {"A": 1.3})
        y = _run(system, system.q0, v0, ts)
        points = jax.jit(jax.vmap(system.points))(jnp.asarray(ts), jnp.asarray(y[:, : system.q0.size]))
        found.append(points)
    ours, theirs = found
    assert ours.keys() == theirs.keys()
    assert np.ptp(ours["coupler.end"], axis=0).max() > 0.3
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-9)


def test_planar_trees_are_absolute_coordinates_restricted_to_them():
    """Slides, welds, free bodies, point masses, branches: M = J^T M' J and Q = J^T (Q' - M' J' v)."""
    bodies = [
        PlanarBody("cart", 2.0, (0.3, 0.1), 0.4),
        PlanarBody("arm", 1.0, (0.5, -0.6), 0.2, 0.3),
        PlanarBody("lamp", 0.6, (0.9, -1.0), 0.1),
        PointMass("bob", 0.7, (1.2, -1.1)),
        PlanarBody("kite", 1.5, (2.0, 1.0), 0.5),
        PointMass("tail", 0.3, (2.2, 1.1)),
    ]
    joints = [
        Revolute("hinge", "cart", "arm", (0.3, -0.2)),
        Prismatic("rail", GROUND, "cart", (0.0, 0.0), (2.0, 1.0)),
        Fixed("weld", "arm", "lamp", (0.8, -0.9)),
        Spherical("hook", "lamp", "bob", (1.2, -1.1)),
        Free("sky", GROUND, "kite", (1.9, 0.8)),
        Free("loose", "kite", "tail", (2.2, 1.1)),
    ]
    loads = [Gravity(), SpringDamper("line", "bob", "kite", (1.2, -1.1), (2.1, 0.9), 30.0, 0.4)]
    small, large = tree(bodies, joints, loads), assemble(bodies, joints, loads)
    assert small.labels == ("hinge", "rail", "sky x", "sky y", "sky angle", "loose x", "loose y")
    t, q, v = _random_state(small, 0)

    def absolute(q):
        placements = small.placements(t, q)
        parts = []
        for body in bodies:
            place = placements[body.name]
            parts += [place.p] if isinstance(body, PointMass) else [place.p, (place.angle + body.angle)[None]]
        return jnp.concatenate(parts)

    place, (J, J_rate) = jax.jit(lambda q: (absolute(q), jax.jvp(jax.jacfwd(absolute), (q,), (v,))))(q)
    M, Q, energy = _terms(large, t, place, J @ v)
    for ours, theirs in zip(
        _terms(small, t, q, v), (J.T @ M @ J, J.T @ (Q - M @ (J_rate @ v)), energy), strict=True
    ):
        _close(ours, theirs, 1e-14)


# Energy, transforms


def test_a_free_tree_keeps_its_energy():
    system = _random_tree(11, aligned=False)
    assert any(isinstance(joint, Free) for joint in system.joints)
    assert any(isinstance(joint, Spherical) for joint in system.joints)
    t, q, v = _random_state(system, 5)
    n = q.size

    @jax.jit
    def rate(t, y):
        q, v = y[:n], y[n:]
        return jnp.concatenate([system.kinematics(t, q, v), _accelerate(system, t, q, v)])

    of_one_type = lambda t, y: rate(np.float64(t), y)
    y = solve_ivp(of_one_type, (0.0, 0.5), np.concatenate([q, v]), "DOP853", rtol=1e-12, atol=1e-12).y
    before, after = (_terms(system, *state(0.0, x[:n], x[n:]))[2] for x in (y[:, 0], y[:, -1]))
    kinetic = 0.5 * v @ _terms(system, t, q, v)[0] @ v
    assert np.linalg.norm(y[:n, -1] - y[:n, 0]) > 0.5
    np.testing.assert_allclose(after, before, atol=1e-9 * float(kinetic))


def _pendulums(mass, point, axis):
    """Two bodies in space, the second on a hinge at `point` about `axis`, held by a rod at its end."""
    return tree(
        [
            Body("upper", 1.2, (0.0, 0.3, -0.5), (0.1, 0.12, 0.05)),
            Body("lower", mass, (0.1, 0.3, -1.4), (0.2, 0.15, 0.1)),
        ],
        [
            Spherical("ball", GROUND, "upper", (0.0, 0.0, 0.0)),
            Revolute("knee", "upper", "lower", point, axis),
        ],
        [Gravity()],
        loops=[Distance("rod", GROUND, "lower", (1.0, 1.0, 0.0), (0.2, 0.3, -1.8))],
    )


_POINT, _AXIS = (0.1, 0.3, -1.0), (0.3, 1.0, 0.2)


@pytest.mark.slow
def test_derivatives_by_mass_point_and_axis():
    """Backward, which is forward transposed, against central differences."""
    parameters = (jnp.asarray(2.0), jnp.asarray(_POINT), jnp.asarray(_AXIS))
    _, q, v = _random_state(_pendulums(*parameters), 3)
    rng = np.random.default_rng(1)
    weights = jnp.asarray(rng.normal(size=v.shape))

    def weighted(*parameters):
        return weights @ uk.UdwadiaKalaba().acceleration(_pendulums(*parameters), 0.0, q, v).a

    f, gradient = jax.jit(weighted), jax.jit(jax.grad(weighted, argnums=(0, 1, 2)))(*parameters)
    for which, part in enumerate(gradient):
        direction = jnp.asarray(rng.normal(size=part.shape))

        def moved(s, which=which, direction=direction):
            return f(*(x + s * direction if i == which else x for i, x in enumerate(parameters)))

        _close(jnp.sum(part * direction), central(moved), 1e-8)


def test_batches():
    system = _pendulums(2.0, _POINT, _AXIS)
    states = [_random_state(system, seed) for seed in range(3)]
    t, q, v = (jnp.stack(x) for x in zip(*states, strict=True))
    batch = jax.jit(jax.vmap(lambda t, q, v: system.force(t, q, v)))(t, q, v)
    for row, now in zip(batch, states, strict=True):
        np.testing.assert_allclose(row, _terms(system, *now)[1], rtol=1e-13, atol=1e-13)


# Reactions


def test_reactions_of_two_links_are_those_of_newton_and_euler():
    """By hand in numpy: momentum by central differences along the motion, forces from the end to the ground."""
    rng = np.random.default_rng(4)
    masses, inertias, spring = (1.3, 0.8), [_inertia(rng), _inertia(rng)], np.array([0.4, -2.0, 1.0])
    points, centres, axes = rng.normal(size=(3, 2, 3))
    axes /= np.linalg.norm(axes, axis=1)[:, None]
    system = tree(
        [Body(str(i), masses[i], centres[i], inertias[i]) for i in range(2)],
        [Revolute(f"hinge {i}", (GROUND, "0")[i], str(i), points[i], axes[i]) for i in range(2)],
        [Gravity((0.0, 0.0, -9.81)), Force("push", "1", centres[1], spring)],
    )
    t, q, v = _random_state(system, 1)
    a = np.asarray(_accelerate(system, t, q, v))

    def moved(x):
        """Rotations, joints' points and centres in numpy."""
        first = Rotation.from_rotvec(x[0] * axes[0])
        second = first * Rotation.from_rotvec(x[1] * axes[1])
        elbow = points[0] + first.apply(points[1] - points[0])
        tips = points[0] + first.apply(centres[0] - points[0]), elbow + second.apply(centres[1] - points[1])
        return (first, second), (points[0], elbow), tips

    def at(s):
        return np.asarray(q) + s * np.asarray(v) + 0.5 * s * s * a

    def angular_velocities(s):
        turned = moved(at(s))[0][0].apply(axes[1])
        rates = np.asarray(v) + s * a
        return rates[0] * axes[0], rates[0] * axes[0] + rates[1] * turned

    def spins(s):
        R, omega = moved(at(s))[0], angular_velocities(s)
        return np.stack([R[i].apply(inertias[i] @ R[i].inv().apply(omega[i])) for i in range(2)])

    (R, joints, tips), torque = moved(np.asarray(q)), central(spins)
    accelerations = central(lambda s: central(lambda u: np.stack(moved(at(s + u))[2])))
    forces = [masses[i] * (accelerations[i] - [0.0, 0.0, -9.81]) - (0, spring)[i] for i in range(2)]
    moment = torque[1] + np.cross(tips[1] - joints[1], forces[1])
    both = moment + np.cross(joints[1] - joints[0], forces[1]) + torque[0]
    both = both + np.cross(tips[0] - joints[0], forces[0])

    found = reactions(system, t, q, v)
    for i, (force, about) in enumerate([(forces[0] + forces[1], both), (forces[1], moment)]):
        reaction = found[f"hinge {i}"]
        np.testing.assert_allclose(reaction.force, force, atol=1e-7)
        np.testing.assert_allclose(reaction.torque, about, atol=1e-7)
        np.testing.assert_allclose(reaction.body_force, R[i].inv().apply(force), atol=1e-7)
        np.testing.assert_allclose(reaction.body_torque, R[i].inv().apply(about), atol=1e-7)
        np.testing.assert_allclose(reaction.point, joints[i], atol=1e-14)
        assert abs(reaction.torque @ moved(np.asarray(q))[0][0].apply(axes[i])) < 1e-12
        assert reaction.unique


@pytest.mark.slow
def test_reactions_of_loops_equal_those_in_absolute_coordinates(four_bars):
    found = []
    for system in four_bars:
        v0 = mechanisms.velocity(system, {"A": 1.3})
        found.append(reactions(system, 0.0, system.q0, v0))
    ours, theirs = found
    for name in "ABCD":
        for part in ("force", "torque", "body_force", "point", "unique"):
            np.testing.assert_allclose(getattr(ours[name], part), getattr(theirs[name], part), atol=1e-11)


# The 6R arm


def _tool(q, problem):
    """Where the tool is, from the axes in numpy."""
    R, p = Rotation.identity(), np.zeros(3)
    for angle, joint in zip(q, problem.system.joints, strict=False):
        point, turn = np.array(joint.point), Rotation.from_rotvec(angle * np.array(joint.axis))
        p = p + R.apply(point - turn.apply(point))
        R = R * turn
    return R, p + R.apply(np.array(problem.system.loops[0].point))


def _posture(t, problem, guess):
    """Inverse kinematics by SciPy, of the path written out once more."""
    s = 3.0 * t
    swing = np.sin(s)
    tip = np.array([0.43, 0.15, 0.66 + 0.43 - 0.16]) + 0.12 * np.array([np.cos(s) - 1.0, swing, swing**2])
    turned = Rotation.from_euler("ZX", [0.8 * swing, 0.4 * swing])

    def miss(q):
        R, p = _tool(q, problem)
        return np.concatenate([p - tip, (turned.inv() * R).as_rotvec()])

    found = root(miss, guess + 0.01, tol=1e-13)  # where guess is zero, so is the first step
    assert np.abs(found.fun).max() < 1e-11
    return found.x


@pytest.mark.parametrize("t", [0.0, 0.3, *(pytest.param(t, marks=pytest.mark.slow) for t in (0.9, 1.7))])
def test_arm_6r_moves_as_inverse_kinematics_say(t):
    """Six rows on six joints: position, velocity and acceleration are algebraic."""
    problem = models.arm_6r()
    system, guess = problem.system, np.zeros(6)
    np.testing.assert_allclose(problem.q0, _posture(0.0, problem, guess), atol=1e-10)
    for s in np.linspace(0.0, t, 1 + round(10 * t)):
        guess = _posture(s, problem, guess)

    def rate(s):
        return central(lambda u: _posture(t + s + u, problem, guess))

    v, a = rate(0.0), central(rate)
    found = _acceleration(system, *state(t, guess, v))
    np.testing.assert_allclose(found.a, a, atol=1e-4)
    assert found.rank == 6
    if t == 0.0:
        np.testing.assert_allclose(problem.v0, v, atol=1e-8)
    end = _points(system, jnp.asarray(t), jnp.asarray(guess))["tool.end"]
    np.testing.assert_allclose(end, _tool(guess, problem)[1], atol=1e-13)


@pytest.mark.slow
def test_arm_6r_follows_its_path():
    problem = models.arm_6r()
    trajectory = uk.simulate(problem, t1=2.0, ts=np.linspace(0.0, 2.0, 41))
    assert trajectory.max_position_error < 1e-12
    guess = np.zeros(6)
    for t, q in zip(np.asarray(trajectory.t), np.asarray(trajectory.q), strict=True):
        guess = _posture(t, problem, guess)
        np.testing.assert_allclose(q, guess, atol=1e-8)


# What is no tree


def _bars():
    return [
        rod("crank", (0, 0), (0, 1), 1.0),
        rod("coupler", (0, 1), (2, 1), 1.0),
        rod("rocker", (2, 0), (2, 1), 1.0),
    ]


_A = Revolute("A", GROUND, "crank", (0, 0))
_B = Revolute("B", "crank", "coupler", (0, 1))
_C = Revolute("C", GROUND, "rocker", (2, 0))
_D = Revolute("D", "coupler", "rocker", (2, 1))


@pytest.mark.parametrize(
    ("joints", "says"),
    [
        (
            [_A, _B, _C, _D],
            "joints 'B', 'A', 'C', 'D' form a cycle.* put one of them, such as 'D', into `loops`",
        ),
        ([_A, _B, _C, Revolute("A2", GROUND, "crank", (0, 0))], "joints 'A', 'A2' form a cycle"),
        ([_A, _B], "nothing joins body 'rocker' to the ground; where it moves freely add Free"),
        ([_A, _B, Revolute("C", "rocker", GROUND, (2, 0))], "exchange parent and child of joint 'C'"),
        ([_A, _D, Revolute("C", "rocker", GROUND, (2, 0))], "exchange parent and child of joint 'C'"),
        (
            [_C, _D, Revolute("B", "coupler", "crank", (0, 1))],
            "'C' and 'D' both lead to 'rocker': exchange",
        ),
        (
            [_A, _B, Distance("D", "coupler", "rocker", (0, 1), (2, 1))],
            r"'D' \(Distance\) cannot carry a body of a tree",
        ),
        (
            [Fixed(x, GROUND, x, (0, 0)) for x in ("crank", "coupler", "rocker")],
            "no joint of the tree leaves any freedom",
        ),
    ],
)
def test_what_is_no_tree_is_refused_in_one_line(joints, says):
    with pytest.raises(uk.InputError, match=says) as raised:
        tree(_bars(), joints)
    assert "\n" not in str(raised.value)
