"""Limits, dry friction and contacts of mechanisms: gaps against MuJoCo's distances, slips against differences, and
motions against closed forms."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._contact import _rows
from ukjax._contact._kinds import Instant, Motion, kinds_of
from ukjax._contact._rows import layout_of

G = 9.81
kinematics = eqx.filter_jit(_rows.kinematics)
frames_of = eqx.filter_jit(um.contact_frames)


def at_random(seed: int, bodies: int) -> tuple[np.ndarray, np.ndarray]:
    """Displacements and unit quaternions of free bodies, and their velocities."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(bodies, 7))
    q[:, 3:] /= np.linalg.norm(q[:, 3:], axis=1)[:, None]
    return q.reshape(-1), rng.normal(size=6 * bodies)


SHAPES = {  # of ours, and of MuJoCo's geoms
    "sphere": (lambda body: um.Sphere(body, (0, 0, 0), 0.2), 'type="sphere" size="0.2"'),
    "capsule": (
        lambda body: um.Capsule(body, (0, -0.5, 0), (0, 0.5, 0), 0.15),
        'type="capsule" fromto="0 -0.5 0 0 0.5 0" size="0.15"',
    ),
    "box": (lambda body: um.Cuboid(body, (0, 0, 0), (0.6, 0.4, 0.2)), 'type="box" size="0.3 0.2 0.1"'),
    "plane": (lambda body: um.HalfSpace(body, (0, 0, 0)), 'type="plane" size="0 0 1"'),
}


def pair(first: str, second: str, **contact: float) -> um.AbsoluteSystem:
    """Two free bodies with their shapes at their centres; a plane is the ground's."""
    bodies = [um.Body(name, 1.0, (0, 0, 0), (0.1, 0.2, 0.25)) for name in ("a", "b")]
    shapes = [
        SHAPES[kind][0]("ground" if kind == "plane" else name) for kind, name in ((first, "a"), (second, "b"))
    ]
    return um.assemble(bodies, contacts=[um.Contact(*shapes, name="pair", **contact)])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *(("plane", x) for x in ("sphere", "capsule", "box")),
        *((x, "sphere") for x in ("sphere", "box", "capsule")),
        ("capsule", "capsule"),
    ],
)
def test_gaps_are_those_of_mujoco(first: str, second: str) -> None:
    system = pair(first, second)
    body = lambda kind: (
        f"<geom {SHAPES[kind][1]}/>"
        if kind == "plane"
        else f'<body><freejoint/><geom {SHAPES[kind][1]} mass="1"/></body>'
    )
    model = mujoco.MjModel.from_xml_string(
        f"<mujoco><worldbody>{body(first)}{body(second)}</worldbody></mujoco>"
    )
    data, worst = mujoco.MjData(model), 0.0
    gaps = jax.jit(lambda q, v: kinematics(system, jnp.zeros(()), q, v).gap)
    for seed in range(40):
        q, v = at_random(seed, 2)
        data.qpos[:] = q[-model.nq :]
        mujoco.mj_kinematics(model, data)
        distance = mujoco.mj_geomDistance(model, data, 0, 1, 10.0, None)
        found = float(gaps(jnp.asarray(q), jnp.asarray(v)).min())
        if distance > 0:  # what penetrates MuJoCo measures by other rules
            worst = max(worst, abs(found - distance))
    assert worst < 1e-6  # to which MuJoCo iterates


@pytest.mark.parametrize(
    ("first", "second"),
    [("plane", "capsule"), ("box", "sphere"), ("capsule", "capsule"), ("sphere", "sphere")],
)
def test_velocities_are_those_of_material_points(first: str, second: str) -> None:
    """Against the places, a moment later, of the two material points that are at the contact."""
    from scipy.spatial.transform import Rotation

    system, h = pair(first, second, friction=0.5), 1e-6
    q, v = at_random(3, 2)
    t, given = jnp.zeros(()), (jnp.asarray(q), jnp.asarray(v))
    u = np.asarray(kinematics(system, t, *given).u).reshape(-1, 3)
    frames = frames_of(system, t, given[0])

    def moved(body: str, x: np.ndarray, dt: float) -> np.ndarray:
        if body == "ground":
            return x
        i = "ab".index(body)
        p, R = q[7 * i : 7 * i + 3], Rotation.from_quat(q[7 * i + 3 : 7 * i + 7], scalar_first=True)
        velocity, omega = v[6 * i : 6 * i + 3], v[6 * i + 3 : 6 * i + 6]
        return p + dt * velocity + (R * Rotation.from_rotvec(dt * omega)).apply(R.inv().apply(x - p))

    assert list(frames) == list(layout_of(system, t, *given)[0].names)
    for frame, rates in zip(frames.values(), u, strict=True):
        axes, x = np.asarray(frame.axes), np.asarray(frame.point)
        np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-12)
        of = [(moved(body, x, h) - moved(body, x, -h)) / (2 * h) for body in frame.bodies]
        np.testing.assert_allclose(axes @ (of[1] - of[0]), rates, atol=1e-8)


def test_rates_of_twists_are_their_differences() -> None:
    """Of bodies behind a free joint, a hinge, a slide and a ball joint, along a motion with accelerations."""
    text = """<mujoco><worldbody><geom type="plane" size="5 5 .1"/><body pos="0 0 1"><freejoint/><geom size=".1"/>
      <body pos=".2 0 .1"><joint axis="0 1 .3"/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".03"/>
        <body pos=".3 0 .05"><joint type="slide" axis="1 .2 0"/><joint axis="0 0 1" pos=".02 .01 0"/>
          <geom size=".05" pos=".1 .02 .03"/>
          <body pos=".1 0 .1"><joint type="ball"/><geom size=".05" pos=".1 .02 .03"/></body></body></body></body>
      </worldbody></mujoco>"""
    problem, rng, t = uk.load(text, contact=True).problem, np.random.default_rng(0), jnp.zeros(())
    system: Any = problem.system
    q = jnp.asarray(problem.q0 + 0.2 * rng.normal(size=problem.q0.size))
    v, a = (jnp.asarray(rng.normal(size=problem.v0.size)) for _ in range(2))
    (kind, *_), rate = kinds_of(system, None, t, q, v), system.kinematics(t, q, v)
    moving = lambda q, v: kind.moving(Motion(Instant(t, q), v, system.kinematics(t, q, v), a))
    before, after = (moving(q + h * rate, v + h * a).twists for h in (-1e-5, 1e-5))
    np.testing.assert_allclose(moving(q, v).rates, (after - before) / 2e-5, atol=1e-8)


def test_what_is_not_offered_is_refused() -> None:
    box, ball = um.Cuboid("a", (0, 0, 0), (1, 1, 1)), um.Sphere("b", (0, 0, 0), 0.1)
    two = [um.ball(name, (0, 0, 0), 0.1, 1.0) for name in ("a", "b")]
    for shapes, words in (
        (
            (um.Cuboid("a", (0, 0), (1, 1)), um.Capsule("b", (0, 0), (0, 1), 0.1)),
            "a Cuboid and a Capsule are not offered; there are HalfSpace and",
        ),
        ((um.Surface("ground", lambda x: x[2]), box), "a Surface and a Cuboid are not offered"),
        ((ball, um.Sphere("b", (0, 0, 1), 0.1)), "of 'b' with itself"),
        ((um.Surface("ground", lambda x: x[2]), ball), "points touch a Surface"),
        ((um.HalfSpace("ground", (0, 0)), ball), "one shape in the plane and one in space"),
    ):
        with pytest.raises(uk.InputError, match=words):
            um.Contact(*shapes)
    for contacts, words in (
        ([um.Contact(box, um.Sphere("c", (0, 0, 0), 0.1))], "unknown body in contact 'a-c': 'c'"),
        ([um.Limit("elbow", 0.0, 1.0)], "unknown joint with a position, of 'elbow'"),
        ([um.Contact(box, ball), um.Contact(box, ball)], "2 contact names are 'a-b'"),
    ):
        with pytest.raises(uk.InputError, match=words):
            um.assemble(two, contacts=contacts)
    for make, words in (
        (lambda: um.Limit("elbow"), "has no stop"),
        (lambda: um.Limit("elbow", 1.0, 0.0), "needs lower < upper"),
        (lambda: um.Limit("elbow", 1.0, restitution=1.5), "must be at most 1"),
        (lambda: um.JointFriction("elbow", -1.0), "must not be negative"),
    ):
        with pytest.raises(uk.InputError, match=words):
            make()


def test_coordinates_agree_on_limits() -> None:
    """A hinge in space, a slide and a ball joint, in a tree and in absolute coordinates at the same posture."""
    bodies = [
        um.Body(name, 1.0, (x, 0, 0), (0.1, 0.2, 0.25)) for name, x in (("a", 0.5), ("b", 1.5), ("c", 2.5))
    ]
    joints = [
        um.Revolute("hinge", "ground", "a", (0, 0, 0), (0, 0, 1)),
        um.Prismatic("slide", "a", "b", (1, 0, 0), (1, 1, 0)),
        um.Spherical("ball", "b", "c", (2, 0, 0)),
    ]
    contacts = [
        um.Limit("hinge", -1.0, 2.0),
        um.Limit("slide", upper=0.3),
        um.Limit("ball", upper=1.2),
        um.JointFriction("slide", 3.0),
    ]
    tree, absolute = (
        um.tree(bodies, joints, contacts=contacts),
        um.assemble(bodies, joints, contacts=contacts),
    )
    half = 0.35
    q = jnp.array([0.7, -0.2, np.cos(half), np.sin(half) * 0.6, 0.0, np.sin(half) * 0.8])
    t, rates = jnp.zeros(()), np.zeros(tree.v0.size)
    at = jax.device_get(jax.jit(lambda q: tree.placements(0.0, q))(q))
    rates[:2] = 0.4, 0.9
    found = kinematics(tree, t, q, jnp.asarray(rates))
    np.testing.assert_allclose(found.gap[:4], [1.7, 1.3, 0.5, 1.2 - 2 * half], atol=1e-14)
    np.testing.assert_allclose(found.u, [0.4, -0.4, -0.9, 0.0, 0.9], atol=1e-14)
    same = jnp.asarray(np.concatenate([x for name in "abc" for x in (at[name].p, _quaternion(at[name].R))]))
    np.testing.assert_allclose(
        kinematics(absolute, t, same, absolute_rest(absolute)).gap, found.gap, atol=1e-13
    )
    names = ("hinge.lower", "hinge.upper", "slide.upper", "ball.upper", "slide friction")
    for system, state in ((tree, (q, tree.v0)), (absolute, (same, absolute_rest(absolute)))):
        layout = layout_of(system, t, *state)[0]
        assert layout.names == names
        assert layout.angles == (True, True, False, True, False)


def absolute_rest(system: um.AbsoluteSystem) -> jax.Array:
    return jnp.zeros(len(system.velocity_labels))


def _quaternion(R: np.ndarray) -> np.ndarray:
    from scipy.spatial.transform import Rotation

    return Rotation.from_matrix(R).as_quat(scalar_first=True)


@pytest.mark.slow
def test_point_leaves_a_ball() -> None:
    """Without friction, from the top with speed v: where cos theta = 2/3 + v^2 / (3 g r)."""
    speed, radius = 0.5, 1.3
    top = um.Surface("ground", lambda x: x @ x - radius**2)
    contact = um.Contact(um.Sphere("bead", (0.0, radius)), top)
    bead = um.assemble([um.PointMass("bead", 0.7, (0.0, radius))], loads=[um.Gravity()], contacts=[contact])
    run = uk.simulate(um.problem(bead, v0=jnp.array([speed, 0.0]), t1=2.0), t1=1.5)
    assert run.contacts.names == ("bead-ground",)
    np.testing.assert_allclose(run.contacts.force[0, 0], 0.7 * (G - speed**2 / radius), rtol=1e-9)
    left = int(np.argmax(~np.asarray(run.contacts.closed[:, 0])))
    t = float(run.contacts.event_time[0])
    assert run.t[left - 1] <= t <= run.t[left]
    there = uk.simulate(um.problem(bead, v0=jnp.array([speed, 0.0])), t1=t)
    np.testing.assert_allclose(there.q_end[1] / radius, 2 / 3 + speed**2 / (3 * G * radius), rtol=1e-8)


@pytest.mark.slow
def test_ball_slides_until_it_rolls() -> None:
    """Case 4 with sidespin: the slip ends after 2 |u| / (7 mu g), and does not turn."""
    mu, r, v, w = 0.2, 0.11, np.array([3.0, 0.5, 0.0]), np.array([-25.0, -10.0, 7.0])
    contact = um.Contact(um.HalfSpace("ground", (0, 0, 0)), um.Sphere("ball", (0, 0, r), r), friction=mu)
    system = um.assemble([um.ball("ball", (0, 0, r), r, 1.0)], loads=[um.Gravity()], contacts=[contact])
    run = uk.simulate(um.problem(system, v0=jnp.array([*v, *w])), t1=2.0, ts=[0.2, 2.0])
    u = v + np.cross(w, [0, 0, -r])
    end, along = 2 * np.linalg.norm(u) / (7 * mu * G), u / np.linalg.norm(u)
    np.testing.assert_allclose(run.contacts.event_time[0], end, atol=1e-9)
    slid = v * end - 0.5 * mu * G * along * end**2
    np.testing.assert_allclose(run.q[0, :2], (v * 0.2 - 0.5 * mu * G * along * 0.04)[:2], atol=1e-8)
    np.testing.assert_allclose(run.q[1, :2], (slid + (v - mu * G * along * end) * (2.0 - end))[:2], atol=1e-8)


@pytest.mark.slow
def test_a_crate_comes_to_rest() -> None:
    """Its corners carry its weight where they are; tables and figures tell of it."""
    floor = um.HalfSpace("ground", (0.0, 0.0))
    corners = um.Contact(um.Cuboid("crate", (0.0, 1.0), (0.6, 0.4)), floor, friction=0.5)
    crate = um.box("crate", (0.0, 1.0), (0.6, 0.4), 2.0)
    system = um.assemble([crate], loads=[um.Gravity()], contacts=[corners])
    start = um.problem(system, v0=[1.0, 0.0, 3.0])
    run = uk.simulate(start, t1=2.0, contact="steps", dt0=1e-3, ts=np.linspace(0.1, 2.0, 20))
    names = [f"crate-ground[{i}]" for i in range(4)]
    told = run.to_xarray(parts="contacts")
    force = np.stack([told[f"contact_{name}"].values[-1] for name in names])
    np.testing.assert_allclose(force.sum(axis=0), [0.0, 2.0 * G], atol=1e-9)
    places = np.stack([np.asarray(um.contact_frames(system, 0.0, run.q_end)[name].point) for name in names])
    np.testing.assert_allclose(
        places[[0, 2]] - np.asarray(run.q)[-1, :2], [[-0.3, -0.2], [0.3, -0.2]], atol=1e-9
    )
    by_title = {axes.get_title(loc="left"): axes for axes in run.plot().axes}
    (gaps,), (forces,) = (
        [x for t, x in by_title.items() if t.startswith(w)] for w in ("Gaps", "Normal forces")
    )
    assert [x.get_label() for x in forces.lines][:1] == ["crate-ground"]  # its four corners are one line
    np.testing.assert_allclose(forces.lines[0].get_ydata()[-1], 2.0 * G, atol=1e-9)
    np.testing.assert_allclose(gaps.lines[0].get_ydata()[-1], 0.0, atol=1e-9)
    with pytest.raises(uk.InputError, match="contacts"):
        uk.simulate(um.problem(um.assemble([crate]), t1=0.1)).to_xarray(parts="contacts")


def test_plots_show_contacts_that_come_near() -> None:
    """Of 14 point masses 12 fall from up to 0.5 m within 0.4 s (0.78 m) and land, two are 50 m high: ten are shown."""
    heights = [*np.linspace(0.1, 0.5, 12), 50.0, 51.0]
    drops = [um.PointMass(f"drop {i}", 1.0, (1.0 * i, h)) for i, h in enumerate(heights)]
    floor = um.HalfSpace("ground", (0.0, 0.0))
    touching = [um.Contact(um.Sphere(x.name, x.centre), floor) for x in drops]
    system = um.assemble(drops, loads=[um.Gravity()], contacts=touching)
    run = uk.simulate(um.problem(system, t1=0.4), contact="steps", dt0=1e-2, ts=21)
    by_title = {axes.get_title(loc="left"): axes for axes in run.plot().axes}
    gaps = by_title["Gaps [m]: 10 of 12 that come near, 2 do not"]
    shown = [x for x in gaps.lines if x.get_label().startswith("drop")]
    assert len(shown) == 10
    for line in shown:
        number = int(line.get_label().split("-")[0].split()[1])
        np.testing.assert_allclose(line.get_ydata()[0], heights[number], atol=1e-9)


def test_check_names_pairs_the_deepest_first() -> None:
    """Balls and a box in the floor, as deep as they were put there: ten are named. A crate that only touches counts once,
    with all its corners."""
    floor = um.HalfSpace("ground", (0.0, 0.0, 0.0))
    depths = 0.01 * np.arange(1, 13)
    names = [f"ball {i}" for i in range(12)]
    balls = [um.ball(name, (3.0 * i, 0.0, 0.5 - depths[i]), 0.5, 1.0) for i, name in enumerate(names)]
    shapes = [um.Sphere(x.name, x.centre, 0.5) for x in balls]
    crate = um.Cuboid("crate", (0.0, 5.0, 0.2), (0.6, 0.6, 0.4))
    sunk = um.Cuboid("sunk", (9.0, 5.0, 0.15), (0.6, 0.6, 0.4))
    bodies = [
        *balls,
        um.box("crate", crate.centre, crate.size, 2.0),
        um.box("sunk", sunk.centre, sunk.size, 2.0),
    ]
    contacts = [um.Contact(x, floor, name=f"{x.body} below") for x in shapes]
    system = um.assemble(bodies, contacts=[*contacts, um.Contact(crate, floor), um.Contact(sunk, floor)])
    report = uk.check(um.problem(system))
    pairs = report.contact_pairs
    expected = {f"ball {i} below": depths[i] for i in range(12)} | {"sunk-ground": 0.05, "crate-ground": 0.0}
    assert {x.name: round(x.depth, 12) for x in pairs} == {k: round(x, 12) for k, x in expected.items()}
    assert [x.depth for x in pairs] == sorted((x.depth for x in pairs), reverse=True)
    assert {x.name: x.places for x in pairs if x.places > 1} == {"crate-ground": 4, "sunk-ground": 4}
    lines = str(report).splitlines()
    named = [x for x in lines if x.startswith("Penetrates: ")]
    assert named[0] == "Penetrates: ball 11 below by 0.12 m (ball 11, ground)."
    assert len(named) == 10
    assert "Penetrate besides: 3 more, none of them deeper." in lines
    assert "Touches: crate-ground at 4 places." in lines
    with pytest.raises(uk.InputError, match=r"ball 11 below.* by 0\.12 m.* and 3 more: gaps"):
        uk.simulate(um.problem(system, t1=0.1), contact="steps", dt0=1e-3)


def test_check_names_redundant_contacts() -> None:
    """A box on the floor: four corners bear what three can; lifted at two, its other two are independent."""
    floor = um.HalfSpace("ground", (0.0, 0.0, 0.0))
    corners = um.Contact(um.Cuboid("crate", (0.0, 0.0, 0.2), (0.6, 0.6, 0.4)), floor)
    box = um.box("crate", (0.0, 0.0, 0.2), (0.6, 0.6, 0.4), 2.0)
    system = um.assemble([box], loads=[um.Gravity()], contacts=[corners])
    found = uk.check(system, system.q0, jnp.zeros(6))
    below = tuple(f"crate-ground[{i}]" for i in (0, 2, 4, 6))
    assert found.closed_contacts == below
    assert found.redundant_contacts == (tuple(f"{name} normal" for name in below),)
    assert "only the resultant is unique" in str(found)
    angle = 0.1
    height = 0.3 * np.sin(angle) + 0.2 * np.cos(angle)
    tilted = jnp.array([0.0, 0.0, height, np.cos(angle / 2), np.sin(angle / 2), 0.0, 0.0])
    found = uk.check(system, tilted, jnp.zeros(6))
    assert len(found.closed_contacts) == 2
    assert found.redundant_contacts == ()


def test_shapes_of_many_contacts_are_held_once() -> None:
    """A hull has many points: what JAX takes of a mechanism does not grow with its contacts, and each has its numbers."""
    points = np.random.default_rng(0).normal(size=(200, 3))
    hull = um.ConvexHull("stone", points)
    stone = um.Body("stone", 1.0, (0, 0, 0), np.eye(3))
    balls = [um.Body(f"ball {i}", 1.0, (4.0 * i, 9, 0), np.eye(3)) for i in range(1, 6)]
    others = [um.Sphere(x.name, x.centre, 0.1) for x in balls]
    contacts = [um.Contact(hull, x, friction=0.1 * i) for i, x in enumerate(others)]
    mechanism = um.Mechanism([stone, *balls], contacts=contacts)
    sizes = [x.size for x in jax.tree.leaves(mechanism)]
    assert sum(n == hull.points.size for n in sizes) == 1
    assert [float(x.friction) for x in mechanism.contacts] == pytest.approx([0.1 * i for i in range(5)])
    assert all(hull in x.shapes for x in mechanism.contacts)
    friction = lambda m: m.tables[1].stacked.friction  # of those that have some
    changed = eqx.tree_at(friction, mechanism, friction(mechanism).at[1].set(0.7))
    assert [float(x.friction) for x in changed.contacts] == pytest.approx([0.0, 0.1, 0.7, 0.3, 0.4])
