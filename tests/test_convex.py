"""Gaps of convex shapes against MuJoCo, finite differences and closed forms; and bodies that rest, slide and stack."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._compiler import AtStates
from ukjax._contact._kinds import Instant, kinds_of, seek_anew
from ukjax._contact._rows import gaps_and_bends
from ukjax.mechanisms._contact_pairs import meet
from ukjax.mechanisms._placement import Placement

KINDS = ("box", "cylinder", "ellipsoid", "capsule", "hull")
PAIRS = [
    *(
        (a, b)
        for a, b in itertools.combinations_with_replacement(KINDS, 2)
        if (a, b) != ("capsule", "capsule")
    ),
    ("cylinder", "sphere"),
    ("ellipsoid", "sphere"),
    ("hull", "sphere"),
    ("mesh", "mesh"),
]


def measures(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Of a random shape."""
    if kind in ("hull", "mesh"):
        x = rng.normal(size=(24 if kind == "hull" else 300, 3))
        x *= rng.uniform(0.1, 0.4, 3) / np.linalg.norm(x, axis=1)[:, None]
        return x.astype(np.float32).astype(float)  # as MuJoCo keeps them
    return rng.uniform(0.05, 0.4, {"sphere": 1, "cylinder": 2, "capsule": 2}.get(kind, 3))


def shape(kind: str, body: str, x: np.ndarray) -> um.AbstractShape:
    """A shape about the origin, as MuJoCo measures it."""
    zero, along = np.zeros(3), np.array([0, 0, x.flat[-1]])
    made = {
        "box": lambda: um.Cuboid(body, zero, 2 * x),
        "cylinder": lambda: um.Cylinder(body, -along, along, x[0]),
        "ellipsoid": lambda: um.Ellipsoid(body, zero, x),
        "capsule": lambda: um.Capsule(body, -along, along, x[0]),
        "sphere": lambda: um.Sphere(body, zero, x[0]),
        "hull": lambda: um.ConvexHull(body, x),
        "mesh": lambda: um.ConvexHull(body, x),
    }
    return made[kind]()


def rotation(rng: np.random.Generator) -> np.ndarray:
    """A random one."""
    Q, R = np.linalg.qr(rng.normal(size=(3, 3)))
    Q = Q * np.sign(np.diagonal(R))
    return Q * np.linalg.det(Q)


def distances(kinds: tuple[str, str], count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Ours and MuJoCo's of random poses, and whether the bodies overlap."""
    mujoco = pytest.importorskip("mujoco")
    rng = np.random.default_rng(seed)
    given = [measures(kind, rng) for kind in kinds]
    first, second = sorted(zip(kinds, given, "ab", strict=True), key=lambda x: shape(x[0], x[2], x[1]).order)
    spec = mujoco.MjSpec()
    for kind, x, name in (first, second):
        body = spec.worldbody.add_body(name=name, mocap=True)
        if kind in ("hull", "mesh"):
            convex = mujoco.mjtMeshInertia.mjMESH_INERTIA_CONVEX
            spec.add_mesh(name=name, uservert=x.reshape(-1).tolist(), inertia=convex)
            body.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname=name)
        else:
            size = [*x, *[0.0] * (3 - x.size)]
            body.add_geom(type=getattr(mujoco.mjtGeom, f"mjGEOM_{kind.upper()}"), size=size)
    spec.option.ccd_tolerance, spec.option.ccd_iterations = 1e-14, 200
    model = spec.compile()
    data, a, b = mujoco.MjData(model), *(shape(kind, name, x) for kind, x, name in (first, second))
    at = lambda R, p: Placement(R, p, jnp.zeros(3))
    gap = uk.scalarize(lambda R, S, p: meet(a, b, at(R, jnp.zeros(3)), at(S, p)).gap)
    reach, found = sum(np.abs(x).max() for x in given), []
    for _ in range(count):
        R, S, p = rotation(rng), rotation(rng), rng.normal(size=3)
        p *= rng.uniform(0.1, 1.4) * reach / np.linalg.norm(p)
        for i, (turn, place) in enumerate(((R, np.zeros(3)), (S, p))):
            data.mocap_pos[i] = place
            mujoco.mju_mat2Quat(data.mocap_quat[i], turn.reshape(-1))
        mujoco.mj_kinematics(model, data)
        found.append((np.min(gap(R, S, p)), mujoco.mj_geomDistance(model, data, 0, 1, 10.0, None)))
    ours, theirs = np.array(found).T
    return ours, theirs


def compare(kinds: tuple[str, str], count: int, seed: int, deep: float) -> None:
    """Against MuJoCo, whose own accuracy on curved shapes is some 1e-10; depths of more than 3 cm to `deep` of them."""
    ours, theirs = distances(kinds, count, seed)
    # MuJoCo keeps the vertices of meshes about their middle in single precision; of a box and a capsule that overlap it
    # gives another measure, also positive ones.
    tolerance = 1e-7 if {"hull", "mesh"} & set(kinds) else 1e-9
    if set(kinds) == {"box", "capsule"}:
        ours, theirs = ours[ours > 1e-6], theirs[ours > 1e-6]
    apart, shallow = theirs > 1e-6, (theirs <= 1e-6) & (theirs > -0.03)
    assert apart.any()
    np.testing.assert_allclose(ours[apart], theirs[apart], atol=tolerance)
    np.testing.assert_allclose(ours[shallow], theirs[shallow], atol=max(tolerance, 1e-8))
    rest = ~(apart | shallow)
    np.testing.assert_allclose(ours[rest], theirs[rest], atol=tolerance, rtol=deep)


def test_parts_that_were_nearest_before_lead_to_the_gap() -> None:
    """Boxes some micrometres apart, whose nearest parts are sought from where they were before both turned by degrees."""
    mujoco = pytest.importorskip("mujoco")
    half = np.array([[0.1, 0.15, 0.05], [0.1, 0.1, 0.1]])
    bodies = [um.box(name, (0, 0, 0), 2 * x, 1.0) for name, x in zip("ab", half, strict=True)]
    shapes = [um.Cuboid(name, (0, 0, 0), 2 * x) for name, x in zip("ab", half, strict=True)]
    system = um.assemble(bodies, contacts=[um.Contact(*shapes)])
    spec = mujoco.MjSpec()
    for x in half:
        spec.worldbody.add_body(mocap=True).add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=x)
    spec.option.ccd_tolerance, spec.option.ccd_iterations = 1e-14, 200
    model = spec.compile()
    data, ends = mujoco.MjData(model), np.zeros(6)

    def distance(q: np.ndarray) -> float:
        data.mocap_pos[:], data.mocap_quat[:] = np.split(q.reshape(2, 7), [3], axis=1)
        mujoco.mj_kinematics(model, data)
        return mujoco.mj_geomDistance(model, data, 0, 1, 10.0, ends)

    t, v = jnp.zeros(()), jnp.zeros(12)
    (kind,) = (
        x.everywhere() for x in kinds_of(system, None, t, jnp.zeros(14).at[jnp.array([3, 10])].set(1), v)
    )

    @jax.jit
    def gap(before: jax.Array, q: jax.Array) -> jax.Array:
        kept = seek_anew(kind, Instant(t, before))
        kept = kind.seek(Instant(t, q), kind.unsought(Instant(t, q), kept))
        return jnp.min(kind.gaps(Instant(t, q), kept, jnp.full(5, jnp.inf)))

    rng = np.random.default_rng(0)
    with_units = lambda q: q / np.where(np.arange(7) < 3, 1, np.linalg.norm(q[:, 3:], axis=1, keepdims=True))
    for _ in range(60):
        q = with_units(rng.normal(size=(2, 7)))
        away = distance(q)
        n = (ends[3:] - ends[:3]) / away
        q[1, :3] -= (away - rng.uniform(1e-6, 6e-5)) * n
        before = with_units(q + np.where(np.arange(7) < 3, 0, rng.normal(size=(2, 7)) * 0.02))
        np.testing.assert_allclose(gap(before.ravel(), q.ravel()), distance(q), atol=1e-9)


def clouds() -> dict[str, np.ndarray]:
    """Points whose hulls have many corners, flat sides with many of them, next to no thickness, or corners that are
    nearly one."""
    rng = np.random.default_rng(5)
    ball = rng.normal(size=(400, 3))
    ball /= np.linalg.norm(ball, axis=1)[:, None]
    angle = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    ring = np.stack([np.cos(angle), np.sin(angle), np.ones(64)], 1)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 5)] * 3), -1).reshape(-1, 3)
    return {
        "ball": ball,
        "drum": np.concatenate([ring, ring * [1, 1, -1]]),
        "cone": np.concatenate([ring, [[0, 0, -1]]]),
        "cube": grid,
        "leaf": ball * [1, 1, 1e-7],
        "needle": ball * [1e-4, 1e-4, 1],
        "cut ball": np.clip(ball, -1, [1, 1, 0.3]),
        "twins": np.concatenate([ball[:40], ball[:40] + 1e-7 * rng.normal(size=(40, 3))]),
        "clusters": np.concatenate([ball[:20] + 1e-12 * rng.normal(size=(20, 3)) for _ in range(15)]),
        "read in single precision": ball.astype(np.float32),
    }


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", clouds())
def test_farthest_points_of_hulls(name: str, dtype: type) -> None:
    """Along any direction and from any point on, alone and in batches, as far as the farthest of all."""
    from scipy.spatial import ConvexHull

    points, rng = clouds()[name], np.random.default_rng(6)
    real = lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x
    core = jax.tree.map(real, um.ConvexHull("body", points).core())
    normals = ConvexHull(points).equations[:, :3]
    d = np.concatenate([normals[:200], np.eye(3), -np.eye(3), rng.normal(size=(200, 3))]).astype(dtype)
    near = rng.integers(len(core.points), size=len(d))
    farthest = uk.scalarize(core.farthest)
    heights = np.asarray(core.points, float) @ d.T.astype(float)
    small = 8 * np.finfo(dtype).eps * np.abs(core.points).max() * np.abs(d).sum(1)
    for found in (
        np.array(jax.vmap(farthest)(d, near)),
        np.array([farthest(*x) for x in zip(d[:40], near[:40], strict=True)]),
    ):
        reached = heights[found, np.arange(len(found))]
        assert np.all(reached >= (heights.max(0) - small)[: len(found)])


def test_gaps_of_hulls_with_many_points():
    """Of drums one over the other, asked for at a state: more numbers than are passed on one by one."""
    drum, height = clouds()["drum"], np.cumsum([0.0, *2.0 + np.random.default_rng(7).uniform(size=7)])
    bodies = [um.box(str(i), (0.0, 0.0, z), (1.0, 1.0, 1.0), mass=1.0) for i, z in enumerate(height)]
    hulls = [um.ConvexHull(str(i), drum + np.array([0.0, 0.0, z])) for i, z in enumerate(height)]
    contacts = [um.Contact(a, b) for a, b in itertools.pairwise(hulls)]
    system = um.assemble(bodies, contacts=contacts, name="drums")
    q = um.problem(system, t1=1.0).q0
    gaps = AtStates(gaps_and_bends, (system, None)).one(jnp.zeros(()), q, jnp.zeros(6 * len(bodies)))[0]
    assert sum(x.points.size for x in hulls) > 2_000
    np.testing.assert_allclose(gaps.reshape(len(contacts), -1).min(1), np.diff(height) - 2, atol=1e-14)


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_distances_and_depths(kinds: tuple[str, str]) -> None:
    compare(kinds, 60, 1, 1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_ten_thousand_poses(kinds: tuple[str, str]) -> None:
    """The search for depths ends with 128 corners: of flat ellipsoids deep in others it may miss the least a little."""
    for seed in range(10):
        compare(kinds, 1000, 10 + seed, 2e-3)


@pytest.mark.parametrize(
    "kinds",
    [("box", "cylinder"), ("ellipsoid", "ellipsoid"), ("hull", "hull"), ("hull", "ellipsoid")],
    ids="-".join,
)
def test_derivatives(kinds: tuple[str, str]) -> None:
    """First and second ones along a motion of both bodies, against central differences."""
    rng = np.random.default_rng(3)
    a, b = sorted(
        (shape(k, n, measures(k, rng)) for k, n in zip(kinds, "ab", strict=True)), key=lambda x: x.order
    )

    def turn(w: jax.Array) -> jax.Array:
        angle = jnp.sqrt(w @ w)
        K = jnp.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]]) / angle
        return jnp.eye(3) + jnp.sin(angle) * K + (1 - jnp.cos(angle)) * K @ K

    @uk.scalarize
    def gap(x: jax.Array) -> jax.Array:
        first, second = (Placement(turn(w), p, jnp.zeros(3)) for w, p in ((x[:3], x[3:6]), (x[6:9], x[9:])))
        return meet(a, b, first, second).gap[0]

    for _ in range(8):
        x, d = rng.normal(size=12), rng.normal(size=12)
        slope = lambda x, d=d: jax.jvp(gap, (x,), (d,))[1]
        steps = [np.asarray(gap(x + k * 1e-5 * d)) for k in (-1, 1)]
        assert slope(x) == pytest.approx((steps[1] - steps[0]) / 2e-5, abs=2e-8)
        slopes = [np.asarray(slope(x + k * 1e-5 * d)) for k in (-1, 1)]
        bend = jax.jvp(slope, (x,), (d,))[1]
        assert bend == pytest.approx((slopes[1] - slopes[0]) / 2e-5, rel=1e-5, abs=1e-5)


def test_derivatives_by_measures() -> None:
    """Of the gap of a ball in the corner region of an ellipsoid by its radii."""
    ball = um.Sphere("ball", (0.4, 0.2, 0.3), 0.05)
    still = Placement(jnp.eye(3), jnp.zeros(3), jnp.zeros(3))

    @uk.scalarize
    def gap(radii: jax.Array) -> jax.Array:
        return meet(um.Ellipsoid("e", jnp.zeros(3), radii), ball, still, still).gap[0]

    radii = np.array([0.2, 0.1, 0.15])
    slope = jax.jacfwd(gap)(radii)
    steps = [(gap(radii + d) - gap(radii - d)) / 2e-6 for d in 1e-6 * np.eye(3)]
    np.testing.assert_allclose(slope, steps, atol=1e-8)


def test_a_box_on_a_box_has_the_corners_of_what_they_share() -> None:
    lower = um.Cuboid("a", (0, 0, 0), (0.2, 0.4, 0.6))
    upper = um.Cuboid("b", (0, 0, 0), (0.3, 0.2, 0.2))
    first = Placement(jnp.eye(3), jnp.zeros(3), jnp.zeros(3))
    for shift, middle, size in (((0, 0), (0, 0), (0.2, 0.2)), ((0.15, 0.25), (0.05, 0.175), (0.1, 0.05))):
        second = Placement(jnp.eye(3), jnp.array([*shift, 0.4]), jnp.zeros(3))
        met = uk.scalarize(lambda p: meet(lower, upper, first, p))(second)
        there = np.asarray(met.gap) < 0.1
        corners = np.array(middle) + 0.5 * np.array(size) * np.array([(-1, -1), (-1, 1), (1, -1), (1, 1)])
        found = np.asarray(met.point)[there]
        np.testing.assert_allclose(np.asarray(met.gap)[there], 0, atol=1e-12)
        np.testing.assert_allclose(found[:, 2], 0.3, atol=1e-12)
        assert sorted(map(tuple, found[:, :2].round(6))) == sorted(map(tuple, corners.round(6)))


# --- Motions

FLOOR = um.HalfSpace("ground", (0.0, 0.0, 0.0))
TABLE = um.Cuboid("ground", (0.0, 0.0, -0.5), (6.0, 6.0, 1.0))


def meeting_all(bodies: list, shapes: list, floor: um.AbstractShape, **laws: float) -> um.AbsoluteSystem:
    """Bodies that all may touch each other and the floor."""
    pairs = [*((floor, x) for x in shapes), *itertools.combinations(shapes, 2)]
    return um.assemble(bodies, loads=[um.Gravity()], contacts=[um.Contact(*x, **laws) for x in pairs])


def test_a_stack_stands() -> None:
    """A box on a box, and a cylinder that lies on both: they fall by little and stay where they are."""
    bodies = [
        um.box("a", (0, 0, 0.11), (0.4, 0.4, 0.2), 1.0),
        um.box("b", (0.05, 0, 0.32), (0.2, 0.3, 0.2), 0.5),
        um.rod("c", (0.05, -0.1, 0.48), (0.05, 0.1, 0.48), 0.5, radius=0.05),
    ]
    shapes = [
        um.Cuboid("a", (0, 0, 0.11), (0.4, 0.4, 0.2)),
        um.Cuboid("b", (0.05, 0, 0.32), (0.2, 0.3, 0.2)),
        um.Cylinder("c", (0.05, -0.1, 0.48), (0.05, 0.1, 0.48), 0.05),
    ]
    start = um.problem(meeting_all(bodies, shapes, FLOOR, friction=0.5), t1=0.5)
    run = uk.simulate(start, contact="steps", dt0=1e-3, ts=np.linspace(0, 0.5, 11))
    assert run.contacts is not None
    heights = run.q_end.reshape(3, 7)[:, 2]
    np.testing.assert_allclose(heights, (0.1, 0.3, 0.45), atol=1e-9)
    np.testing.assert_allclose(run.v_end, 0, atol=1e-5)  # a cylinder may still roll
    assert run.contacts.gap.min() > -1e-10
    # What a carries and what b carries, as the floor and the boxes feel it.
    names = np.array([x.split("[")[0] for x in run.contacts.names])
    normal = run.contacts.force[-1].reshape(-1, 3)[:, 0]
    for name, weight in (("ground-a", 2.0), ("a-b", 1.0), ("b-c", 0.5)):
        assert normal[names == name].sum() == pytest.approx(9.81 * weight, rel=1e-6)


def test_a_stack_that_lands_comes_to_rest() -> None:
    """Three boxes, each 1 cm off the one below, fall by 0, 1 and 2 cm: none is moved sideways, none goes on rocking."""
    places = [(0.01 * i, 0, 0.1 + 0.21 * i) for i in range(3)]
    bodies = [um.box(f"b{i}", x, (0.2, 0.2, 0.2), 1.0) for i, x in enumerate(places)]
    shapes = [um.Cuboid(f"b{i}", x, (0.2, 0.2, 0.2)) for i, x in enumerate(places)]
    start = um.problem(meeting_all(bodies, shapes, FLOOR, friction=1.0), t1=0.4)
    run = uk.simulate(start, contact="steps", dt0=2e-3, ts=np.linspace(0, 0.4, 21))
    np.testing.assert_allclose(
        run.q_end.reshape(3, 7)[:, :3], [(0.01 * i, 0, 0.1 + 0.2 * i) for i in range(3)], atol=1e-4
    )
    np.testing.assert_allclose(run.v_end, 0, atol=1e-8)
    assert np.diff(run.energy).max() < 1e-9


@pytest.mark.parametrize("floor", [FLOOR, TABLE], ids=["half-space", "box"])
def test_a_cylinder_slides_on_its_end_as_far_as_friction_says(floor: um.AbstractShape) -> None:
    body, shape = (
        um.rod("c", (0, 0, 0), (0, 0, 0.1), 1.0, radius=0.2),
        um.Cylinder("c", (0, 0, 0), (0, 0, 0.1), 0.2),
    )
    system = meeting_all([body], [shape], floor, friction=0.3)
    start = um.problem(system, v0=[1.0, 0, 0, 0, 0, 0], t1=0.5)
    run = uk.simulate(start, contact="steps", dt0=5e-4, ts=[0.5])
    assert run.q_end[0] == pytest.approx(1.0 / (2 * 0.3 * 9.81), rel=2e-3)
    np.testing.assert_allclose(run.q_end[1:3], (0, 0.05), atol=1e-9)


def test_an_ellipsoid_bounces_alike_on_a_half_space_and_on_a_box() -> None:
    """By events, with exact impacts; without friction and losses its energy stays."""
    radii, ends = np.array([0.1, 0.2, 0.05]), []
    squares = np.sum(radii**2) - radii**2
    for floor in (FLOOR, TABLE):
        body = um.Body("e", 1.0, (0, 0, 0.3), np.diag(squares / 5))
        system = meeting_all([body], [um.Ellipsoid("e", (0, 0, 0.3), radii)], floor, restitution=1.0)
        start = um.problem(system, v0=[0, 0, 0, 1.0, 2.0, 0.5], t1=0.7)
        run = uk.simulate(start, ts=np.linspace(0, 0.7, 8))
        assert run.contacts is not None
        assert len(run.contacts.told()) >= 2
        np.testing.assert_allclose(run.energy, run.energy[0], rtol=1e-7)
        ends.append(run.q_end)
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-7)


def test_gaps_of_bodies_far_apart_are_their_distances() -> None:
    """An ellipsoid and a capsule whose balls are nearer than they are themselves, along a run by steps."""
    places = {"a": (0, 0, 1.0), "b": (0, 0, 0.4)}
    bodies = [um.Body(name, 1.0, at, np.eye(3)) for name, at in places.items()]
    first = um.Ellipsoid("a", places["a"], (0.3, 0.2, 0.05))
    second = um.Capsule("b", (-0.2, 0, 0.4), (0.2, 0, 0.4), 0.05)
    system = um.assemble(bodies, loads=[um.Gravity()], contacts=[um.Contact(first, second)])
    run = uk.simulate(um.problem(system, t1=0.1), contact="steps", dt0=1e-2, ts=np.linspace(0, 0.1, 3))
    assert run.contacts is not None
    np.testing.assert_allclose(run.contacts.gap, 0.5, rtol=1e-9)


def test_derivative_of_a_slide_by_steps() -> None:
    """How far a box slides on a box, by its first speed: v / (mu g)."""
    body, shape = (
        um.box("a", (0, 0, 0.025), (0.1, 0.2, 0.05), 1.0),
        um.Cuboid("a", (0, 0, 0.025), (0.1, 0.2, 0.05)),
    )
    system = meeting_all([body], [shape], TABLE, friction=0.3)

    def place(speed: jax.Array) -> jax.Array:
        start = um.problem(system, v0=jnp.zeros(6).at[0].set(speed), t1=0.4)
        return uk.simulate(start, contact="differentiated steps", dt0=2e-3, ts=[0.4]).q_end[0]

    slope = jax.jacfwd(place)(jnp.asarray(1.0))
    assert slope == pytest.approx(1.0 / (0.3 * 9.81), rel=5e-3)


def test_a_batch_is_its_members() -> None:
    body, shape = (
        um.box("a", (0, 0, 0.1), (0.1, 0.2, 0.05), 1.0),
        um.Cuboid("a", (0, 0, 0.1), (0.1, 0.2, 0.05)),
    )
    system = meeting_all([body], [shape], TABLE, friction=0.3)
    start = um.problem(system, t1=0.2)

    def end(speed: jax.Array) -> jax.Array:
        v = jnp.zeros(6).at[3].set(speed)
        return uk.simulate(system, start.q0, v, t1=0.2, contact="steps", dt0=1e-3, ts=[0.2]).q_end

    speeds = jnp.linspace(0.0, 5.0, 9)
    found = jax.jit(jax.vmap(end))(speeds)
    np.testing.assert_array_equal(found, np.stack([end(x) for x in speeds]))


# --- What is refused


def test_events_refuse_contacts_that_come_and_go() -> None:
    body, shape = (
        um.box("a", (0, 0, 0.1), (0.1, 0.2, 0.05), 1.0),
        um.Cuboid("a", (0, 0, 0.1), (0.1, 0.2, 0.05)),
    )
    with pytest.raises(uk.InputError, match=r"ground-a.*contact='steps'"):
        uk.simulate(um.problem(meeting_all([body], [shape], TABLE), t1=0.1))


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.eye(3), "shape"),
        (np.array([(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)]), "one plane"),
        (np.full((5, 3), np.nan), "finite"),
    ],
)
def test_hulls_without_a_volume(points: np.ndarray, message: str) -> None:
    with pytest.raises(uk.InputError, match=message):
        um.ConvexHull("a", points)


def test_points_within_a_hull_are_left_out() -> None:
    rng = np.random.default_rng(0)
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=3)))
    assert len(um.ConvexHull("a", np.concatenate([corners, rng.uniform(-0.9, 0.9, (20, 3))])).points) == 8


def test_boxes_in_the_plane_are_refused() -> None:
    with pytest.raises(uk.InputError, match="not offered"):
        um.Contact(um.Cuboid("a", (0, 0), (1, 1)), um.Cuboid("b", (0, 2), (1, 1)))


@pytest.mark.parametrize("seed", [0, 3])
def test_a_can_falls_flat(seed: int) -> None:
    """While its end comes down, the lowest place of the rim runs about it: no step may leave it in the floor."""
    rng = np.random.default_rng(seed)
    can, ground = um.Cylinder("can", (0, 0, 0), (0, 0, 0.1), 0.05), um.HalfSpace("ground", (0, 0, 0))
    body = um.Body("can", 1.0, (0, 0, 0.05), np.diag([0.0015, 0.0015, 0.00125]))
    contact = um.Contact(can, ground, friction=0.5)
    falling = um.assemble([body], loads=[um.Gravity()], contacts=[contact])
    x, y = 0.03 * rng.normal(size=2)
    q0 = np.array([0, 0, 0.07, np.sqrt(1 - x * x - y * y), x, y, 0])
    v0 = np.array([0.1, 0, 0, *0.5 * rng.normal(size=3)])
    thrown = dataclasses.replace(um.problem(falling), q0=q0, v0=v0, t1=0.5)
    run = uk.simulate(thrown, contact="steps", dt0=1e-3, ts=np.linspace(0, 0.5, 501))
    assert run.contacts is not None
    assert np.min(run.contacts.gap) > -1e-10
    np.testing.assert_allclose(run.v[-1], 0, atol=1e-10)
    np.testing.assert_allclose(run.q[-1, 2], 0.05, atol=1e-10)


@pytest.mark.parametrize("turned", [False, True])
def test_long_bodies_that_come_near_late_are_met(turned: bool) -> None:
    """Balls about them overlap all the time, so only how far they have moved tells when they are looked at."""
    bodies = [um.Body(name, 1.0, (0, 0, z), 0.1 * np.eye(3)) for name, z in (("low", 0.0), ("high", 0.5))]
    boxes = [um.Cuboid(x.name, x.centre, (2.0, 0.1, 0.1)) for x in bodies]
    two = um.assemble(bodies, contacts=[um.Contact(*boxes)])
    start = um.problem(two)
    if turned:  # the upper one turns about its middle until one of its ends strikes
        v0 = np.array([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1.0, 0])
        time = next(x for x in np.linspace(0.3, 0.6, 30001) if np.sin(x) + 0.05 * np.cos(x) >= 0.45)
    else:
        v0, time = np.array([0, 0, 0, 0, 0, 0, 0, 0, -1.0, 0, 0, 0]), 0.4
    run = uk.simulate(
        dataclasses.replace(start, v0=v0, t1=0.8), contact="steps", dt0=1e-3, ts=np.linspace(0, 0.8, 81)
    )
    assert run.contacts is not None
    assert run.contacts.num_events >= 1
    np.testing.assert_allclose(run.contacts.event_time[0], time, atol=1.1e-3)
    assert np.min(run.contacts.gap) > -1e-9
    np.testing.assert_allclose(run.v[-1, [2, 8]].sum(), v0[[2, 8]].sum(), atol=1e-12)
