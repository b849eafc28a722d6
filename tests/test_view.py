"""Runs in space and in the browser: where bodies are shown, what files hold, and what a browser draws of them."""

import urllib.request

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from browser import CHROMIUM, coloured, opened
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._figures._meshes import mesh_of
from ukjax._figures._moving_parts import Curve, SceneNode
from ukjax._figures._page import FIELD, place_camera
from ukjax._figures._scene import Scene, scene_of
from ukjax._run._view import _name_runs, prepare_run
from ukjax.mechanisms._default_visuals import visuals_of

FRAMES = 20  # a second, which the saved times are made for: nothing is interpolated


def four_bar() -> uk.Problem:
    A, B, C, D = (0.0, 0.0), (0.0, 1.0), (1.5, 1.5), (1.5, 0.0)
    ends = {"A": ("ground", "crank", A), "B": ("crank", "coupler", B), "C": ("coupler", "rocker", C)}
    joints = [um.Revolute(name, *end) for name, end in (ends | {"D": ("ground", "rocker", D)}).items()]
    rods = [um.rod("crank", A, B, 1.0), um.rod("coupler", B, C, 2.0), um.rod("rocker", D, C, 1.0)]
    return um.problem(um.assemble(rods, joints, [um.Gravity()], name="four-bar"), rates={"A": 3.0}, t1=1.0)


def arm() -> uk.Problem:
    places = [(0.0, 0.0, 0.0), (0.0, 0.0, 0.4), (0.5, 0.0, 0.4), (0.9, 0.0, 0.4)]
    links = [um.rod(f"link {i}", places[i], places[i + 1], 2.0, 0.04) for i in range(3)]
    joints = [
        um.Revolute(f"q{i}", "ground" if i == 0 else f"link {i - 1}", f"link {i}", places[i], axis)
        for i, axis in enumerate([(0, 0, 1), (0, 1, 0), (0, 1, 0)])
    ]
    return um.problem(um.tree(links, joints, [um.Gravity()], name="arm"), rates={"q0": 2.0}, t1=1.0)


def hexapod() -> uk.Problem:
    """A platform on three pairs of legs, whose lengths the ground keeps: at rest but for its spring."""
    angle = np.deg2rad(np.arange(0, 360, 60))
    feet = np.stack([np.cos(angle + 0.2), np.sin(angle + 0.2), 0 * angle], axis=1)
    hips = np.stack([0.6 * np.cos(angle - 0.2), 0.6 * np.sin(angle - 0.2), 1 + 0 * angle], axis=1)
    points = {f"hip {i}": x for i, x in enumerate(hips)}
    platform = um.Body("platform", 5.0, (0.0, 0.0, 1.0), (0.3, 0.3, 0.6), points)
    legs = [
        um.SpringDamper(f"leg {i}", "ground", "platform", feet[i], hips[i], 500.0, 1.0, length=1.2)
        for i in range(6)
    ]
    return um.problem(um.assemble([platform], [], [um.Gravity(), *legs], name="hexapod"), t1=1.0)


MECHANISMS = {"four-bar": four_bar, "arm": arm, "hexapod": hexapod}


@pytest.fixture(scope="module", params=MECHANISMS)
def run(request) -> uk.Trajectory:
    return uk.simulate(MECHANISMS[request.param](), ts=FRAMES + 1)


def scene(*runs: uk.Trajectory, parts=(), **options) -> Scene:
    named = _name_runs(runs)
    return scene_of(
        [prepare_run(k, x, parts) for k, x in named.items()], **({"speed": 1.0, "fps": FRAMES} | options)
    )


def nodes(shown: Scene, run: str) -> dict[str, SceneNode]:
    return {part.name: part for part in shown.parts[run] if isinstance(part, SceneNode)}


def moved(node: SceneNode, frame: int, points: np.ndarray) -> np.ndarray:
    return points @ Rotation.from_quat(np.roll(node.wxyz[frame], -1)).as_matrix().T + node.position[frame]


def test_points_of_bodies_are_shown_where_the_motion_has_them(run):
    shown, found = nodes(scene(run), run.name), run.points()
    system = run.problem.system
    for body in system.bodies:
        for name, place in {"": body.centre, **body.points}.items():
            own = np.resize(np.append(place, 0.0), 3)
            at = np.asarray(found[f"{body.name}.{name}" if name else body.name])
            for frame in (0, 7, FRAMES):
                at_frame = moved(shown[body.name], frame, own)
                np.testing.assert_allclose(at_frame[: at.shape[1]], at[frame], atol=1e-12)


def test_springs_and_forces_reach_from_point_to_point():
    run = uk.simulate(hexapod(), ts=FRAMES + 1)
    leg = nodes(scene(run), "hexapod")["leg 2"]
    foot = run.problem.system.loads[3].parent_point
    for frame in (0, 5, FRAMES):
        ends = moved(leg, frame, np.array([[0, 0, -0.5], [0, 0, 0.5]]) * leg.scale[frame])
        np.testing.assert_allclose(ends, [foot, run.points()["platform.hip 2"][frame]], atol=1e-12)
    run = uk.simulate(arm(), ts=FRAMES + 1)
    shown, reaction = scene(run, parts=("reactions",)), run.reactions()["q1"]
    arrow = nodes(shown, "arm")["forces/q1"]
    ends = moved(arrow, 9, np.array([[0, 0, -0.5], [0, 0, 0.5]]) * arrow.scale[9])
    np.testing.assert_allclose(ends[0], reaction.point[9], atol=1e-12)
    per_newton = float(shown.captions[0][0].split()[-2])  # arm; arrows: 1 m is 123 N
    np.testing.assert_allclose((ends[1] - ends[0]) * per_newton, reaction.force[9], rtol=5e-3, atol=0.1)


def test_frames_between_saved_times_are_interpolated():
    """A free disc turns at a steady rate about a fixed axis, further than half a turn between first and last."""
    disc = um.disk("disc", (0.0, 0.0, 0.0), 0.5, 1.0, axis=(0.0, 0.6, 0.8))
    spin = 4.0 * np.array([0.0, 0.6, 0.8])
    problem = um.problem(um.assemble([disc]), v0=np.array([1.0, 0.0, 0.0, *spin]), t1=3.0)
    run = uk.simulate(problem, ts=np.linspace(0.0, 3.0, 101))
    shown = scene(run, fps=47, speed=0.5)
    node = nodes(shown, run.name)["disc"]
    assert shown.times.size == 3.0 / 0.5 * 47 + 1
    assert shown.seconds == 6.0
    for frame in (0, 33, 140, 282):
        expected = Rotation.from_rotvec(spin * shown.times[frame]).apply([0.5, 0.0, 0.0])
        expected[0] += shown.times[frame]
        np.testing.assert_allclose(moved(node, frame, np.array([0.5, 0.0, 0.0])), expected, atol=2e-3)


def test_bodies_made_of_a_shape_are_shown_as_it():
    axis = np.array([1.0, 2.0, 2.0]) / 3
    made = [
        um.box("box", (1.0, 2.0, 3.0), (0.3, 0.1, 0.2), 2.0),
        um.ball("ball", (0.0, 0.0, 1.0), 0.3, 4.0),
        um.disk("disk", (0.0, 1.0, 0.0), 0.4, 3.0, axis),
        um.rod("rod", (0.0, 0.0, 0.0), (1.0, 2.0, 2.0), 1.0, 0.25),
    ]
    first = {visual.body: visual for visual in reversed(visuals_of(um.assemble(made)))}
    box, ball, disk, rod = (first[body.name] for body in made)
    assert [box.kind, ball.kind, disk.kind, rod.kind] == ["box", "sphere", "cylinder", "capsule"]
    np.testing.assert_allclose(np.abs(box.rotation) @ box.size, [0.3, 0.1, 0.2], rtol=1e-12)
    np.testing.assert_allclose(ball.size, [0.3], rtol=1e-12)
    np.testing.assert_allclose(disk.size[0], 0.4, rtol=1e-12)
    np.testing.assert_allclose(np.abs(disk.rotation[:, 2] @ axis), 1.0, rtol=1e-12)
    np.testing.assert_allclose(rod.size, [0.25, 3.0], rtol=1e-12)
    np.testing.assert_allclose(rod.rotation[:, 2], axis, atol=1e-12)
    for visual, body in zip((box, ball, disk, rod), made, strict=True):
        np.testing.assert_allclose(visual.position, body.centre, atol=1e-12)
    plane = um.assemble([um.box("box", (1.0, 2.0), (0.3, 0.1), 2.0), um.disk("disk", (0.0, 0.0), 0.4, 1.0)])
    flat = {visual.body: visual for visual in reversed(visuals_of(plane))}
    np.testing.assert_allclose(flat["box"].size[:2], [0.3, 0.1])
    np.testing.assert_allclose(flat["disk"].size[0], 0.4)


def shapes_in_space() -> dict[str, um.AbstractShape]:
    """One of each kind, somewhere and turned, with a body of its name."""
    turn = Rotation.from_euler("xyz", [0.3, -0.5, 1.1]).as_matrix()
    ends = (0.1, 0.2, 0.9), (0.4, -0.1, 1.2)
    corners = np.random.default_rng(0).normal(size=(20, 3))
    return {
        "sphere": um.Sphere("sphere", (1.0, 0.5, 1.0), 0.2),
        "capsule": um.Capsule("capsule", *ends, 0.1),
        "cylinder": um.Cylinder("cylinder", *ends, 0.1),
        "box": um.Cuboid("box", (0.3, 0.1, 2.0), (0.2, 0.4, 0.6), turn),
        "ellipsoid": um.Ellipsoid("ellipsoid", (2.0, 0.1, 2.0), (0.1, 0.2, 0.3), turn),
        "mesh": um.ConvexHull("mesh", corners),
    }


def test_shapes_that_touch_are_what_bodies_look_like():
    """Bodies of which only inertia is known: a picture's triangles reach as far, in any direction, as the shapes do by
    their formulas, and enclose their volume."""
    shapes = shapes_in_space()
    bodies = [um.Body(name, 1.0, (0, 0, 0), (1, 1, 1)) for name in shapes]
    floor = um.HalfSpace("ground", (0, 0, -3))
    system = um.assemble(bodies, contacts=[um.Contact(x, floor) for x in shapes.values()])
    seen = {visual.body: visual for visual in visuals_of(system)}
    assert {name: x.kind for name, x in seen.items()} == {name: name for name in shapes}
    s, ends = shapes, [np.asarray(shapes["capsule"].start), np.asarray(shapes["capsule"].end)]
    along = (ends[1] - ends[0]) / np.linalg.norm(ends[1] - ends[0])
    reach = {
        "sphere": lambda n: s["sphere"].centre @ n + 0.2,
        "capsule": lambda n: max(x @ n for x in ends) + 0.1,
        "cylinder": lambda n: max(x @ n for x in ends) + 0.1 * np.sqrt(1 - (along @ n) ** 2),
        "box": lambda n: s["box"].centre @ n + np.abs(s["box"].rotation.T @ n) @ np.array([0.1, 0.2, 0.3]),
        "ellipsoid": lambda n: (
            s["ellipsoid"].centre @ n + np.linalg.norm(s["ellipsoid"].radii * (s["ellipsoid"].rotation.T @ n))
        ),
        "mesh": lambda n: np.max(s["mesh"].points @ n),
    }
    length = np.linalg.norm(ends[1] - ends[0])
    volume = {
        "sphere": 4 / 3 * np.pi * 0.2**3,
        "capsule": np.pi * 0.1**2 * length + 4 / 3 * np.pi * 0.1**3,
        "cylinder": np.pi * 0.1**2 * length,
        "box": 0.2 * 0.4 * 0.6,
        "ellipsoid": 4 / 3 * np.pi * 0.1 * 0.2 * 0.3,
        "mesh": ConvexHull(np.asarray(s["mesh"].points)).volume,
    }
    for name, visual in seen.items():
        vertices, faces = mesh_of(visual)
        for n in np.random.default_rng(1).normal(size=(20, 3)):
            n /= np.linalg.norm(n)
            np.testing.assert_allclose(np.max(vertices @ n), reach[name](n), atol=0.01)
        a, b, c = np.moveaxis(vertices[faces].astype(float), 1, 0)
        # Positive where all faces are counterclockwise from outside; polyhedra have less than what is round.
        enclosed = np.sum(np.cross(a, b) * c) / 6
        np.testing.assert_allclose(enclosed, volume[name], rtol=0.1)


def test_shapes_are_shown_once_and_beside_other_looks_on_request():
    """A shape in two contacts; a body that has a look of its own; one that has none, and one on the ground."""
    crate = um.Cuboid("crate", (0.0, 1.0), (0.6, 0.4))
    wheel, step = um.Sphere("wheel", (2.0, 1.0), 0.3), um.Cuboid("ground", (3.0, 0.1), (0.4, 0.2))
    floor, ramp = um.HalfSpace("ground", (0.0, 0.0)), um.HalfSpace("ground", (3.3, 0.0), (-1.0, 1.0))
    touching = [um.Contact(crate, floor), um.Contact(wheel, floor, name="a")]
    touching += [um.Contact(wheel, ramp, name="b"), um.Contact(wheel, step, name="c")]
    bodies = [um.box("crate", (0.0, 1.0), (0.5, 0.3), 2.0), um.PlanarBody("wheel", 1.0, (2.0, 1.0), 0.1)]
    system = um.assemble(bodies, loads=[um.Gravity()], contacts=touching)
    run = uk.simulate(um.problem(system, t1=0.05), ts=3)
    usual, asked = (nodes(scene(run, parts=parts), run.name) for parts in ((), ("shapes",)))
    assert set(usual) == {"crate", "wheel", "ground", "ground/half-space"}
    assert [(x.kind, *x.size[:1]) for x in usual["wheel"].visuals] == [("cylinder", 0.3)]
    np.testing.assert_allclose(usual["ground"].visuals[0].size[:2], [0.4, 0.2])
    assert set(asked) - set(usual) == {"crate/contact shapes"}
    np.testing.assert_allclose(asked["crate/contact shapes"].visuals[0].size[:2], [0.6, 0.4])
    level, _ = usual["ground/half-space"].visuals
    low, high = (
        level.position + level.rotation @ (end * level.size / 2) for end in (-np.eye(3)[0], np.eye(3)[0])
    )
    right = max(low, high, key=lambda x: x[0])
    np.testing.assert_allclose(right[:1], [3.3], atol=1e-9)  # where the two meet


def test_arrows_at_contacts_are_forces_with_their_friction():
    """A block slides down a slope: m g cos(a) along its normal and mu times that uphill, on the block at its contacts."""
    angle, mu, mass = 0.5, 0.3, 2.0
    normal, up = np.array([-np.sin(angle), 0.0, np.cos(angle)]), np.array([np.cos(angle), 0.0, np.sin(angle)])
    turn = np.stack([up, [0.0, 1.0, 0.0], normal], axis=1)
    block = um.Cuboid("block", 0.1 * normal, (0.4, 0.4, 0.2), turn)
    slope = um.HalfSpace("ground", (0.0, 0.0, 0.0), normal)
    system = um.assemble(
        [um.Body("block", mass, 0.1 * normal, (0.1, 0.1, 0.1))],
        loads=[um.Gravity()],
        contacts=[um.Contact(block, slope, friction=mu)],
    )
    run = uk.simulate(um.problem(system, t1=0.2), contact="steps", dt0=1e-3, ts=FRAMES // 5 + 1)
    shown = scene(run, parts=("contacts",))
    per_newton = float(shown.captions[0][0].split()[-2])
    found = nodes(shown, run.name)
    total = {"force": np.zeros(3), "friction": np.zeros(3)}
    for name, node in found.items():
        if (kind := name.rpartition("/")[2]) in total:
            ends = moved(node, 2, np.array([[0, 0, -0.5], [0, 0, 0.5]]) * node.scale[2])
            total[kind] += (ends[1] - ends[0]) * per_newton
            assert abs(ends[0] @ normal) < 1e-6
    pressed = mass * 9.81 * np.cos(angle)
    np.testing.assert_allclose(total["force"], pressed * (normal + mu * up), rtol=0.01, atol=0.05)
    np.testing.assert_allclose(total["friction"], pressed * mu * up, rtol=0.01, atol=0.05)
    assert sum(name.endswith("/place") for name in found) == 4  # of eight corners


def test_pictures_do_not_change_what_is_compiled():
    """A visual is compared by its numbers, and a mechanism made anew with the same ones is the same to JAX."""

    def swing(width: float) -> um.AbsoluteSystem:
        look = um.Visual("bob", "box", (width, 0.1, 0.1), (0.0, -1.0))
        bob = um.PlanarBody("bob", 1.0, (0.0, -1.0), 0.1)
        return um.assemble([bob], [um.Revolute("pin", "ground", "bob", (0.0, 0.0))], visuals=[look])

    structure = lambda system: jax.tree.structure(system)
    assert structure(swing(0.1)) == structure(swing(0.1))
    assert structure(swing(0.1)) != structure(swing(0.2))
    assert [x.kind for x in visuals_of(swing(0.1))] == ["box"]
    rods = [um.rod("rod", (0.0, 0.0), (0.0, length), 1.0) for length in (1.0, 2.0)]
    assert structure(rods[0]) == structure(rods[1])


def test_runs_stand_side_by_side_and_end_when_they_end():
    fast, slow = (uk.simulate(uk.models.pendulum(), t1=t1, ts=11) for t1 in (0.5, 1.0))
    shown = scene(fast, slow, fps=10)
    assert list(shown.parts) == ["pendulum 1", "pendulum 2"]
    first, second = (nodes(shown, name)["rod/1"] for name in shown.parts)
    np.testing.assert_allclose(first.position[5:], np.tile(first.position[5], (6, 1)))
    apart = second.position[:6] - first.position[:6]
    np.testing.assert_allclose(
        apart, np.tile(apart[:1], (6, 1)), atol=1e-3
    )  # by linear interpolation of the fast one
    assert apart[0, 0] > 0
    assert shown.up.tolist() == [0.0, 1.0, 0.0]
    inside = np.concatenate([x.position for x in (first, second)])
    assert np.all(inside >= shown.low)
    assert np.all(inside <= shown.high)


def test_curves_are_drawn_through_their_points():
    problem = uk.models.rolling_disk()
    run = uk.simulate(problem, t1=0.5, ts=11)
    drawing = problem.system.drawing(run.t[4], run.q[4])
    curves = {x.name: x for x in scene(run, fps=20).parts[run.name] if isinstance(x, Curve)}
    assert curves
    for name, curve in curves.items():
        np.testing.assert_allclose(curve.points[4], drawing[name], atol=1e-12)


def test_a_servo_controlled_mechanism_is_shown_as_it_is():
    link = um.rod("link", (0.0, 0.0, 0.4), (0.5, 0.0, 0.4), 2.0, 0.04)
    turn = um.Revolute("q", "ground", "link", (0.0, 0.0, 0.4), (0, 1, 0))
    driven = um.tree([link], [turn], [um.Gravity(), um.Actuator("motor", "q")], name="arm")
    hold = uk.Holonomic(lambda t, q: q - 0.3 * t, name="steady")
    held = uk.with_servo(um.problem(driven, t1=0.2), um.input_matrix(driven), [hold])
    run = uk.simulate(held, ts=3)
    np.testing.assert_allclose(
        moved(nodes(scene(run), run.name)["link"], 4, np.array([0.5, 0.0, 0.4])),
        run.points()["link.end"][-1],
        atol=1e-9,
    )


def test_live_view_is_served_until_it_is_closed(capsys, tmp_path):
    run = uk.simulate(four_bar(), ts=3)
    with run.view(fps=5) as view:
        assert capsys.readouterr() == ("", f"view: {view.address}\n")
        with urllib.request.urlopen(view.address, timeout=10) as answer:
            page = answer.read().decode()
        assert view.save(tmp_path / "view.html").read_text() == page
        assert "<title>four-bar</title>" in page
        assert "<iframe" in view._repr_html_()
    view.wait()  # it is closed
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(view.address, timeout=10)


def test_what_cannot_be_shown():
    run = uk.simulate(four_bar(), ts=3)
    free = uk.simulate(uk.System(jnp.eye(1), lambda t, q, v: -q), jnp.ones(1), jnp.ones(1), t1=1.0, ts=3)
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), run)
    cases = [
        (lambda: uk.view([]), "at least one"),
        (lambda: uk.view([3]), "runs"),
        (lambda: uk.view(free), "nothing to show"),
        (lambda: uk.view(batch), "batch of runs"),
        (
            lambda: run.view(parts="energies"),
            "can be shown are 'points', 'reactions', 'contacts' and 'shapes', not 'energies'",
        ),
        (lambda: run.view(speed=0.0), "speed"),
        (lambda: run.view(port=-1), "port"),
        (lambda: run.save("nowhere/run.html"), "cannot be written"),
        (lambda: um.Visual("a", "cube"), "kind"),
        (lambda: um.Visual("a", "box", (1.0, 2.0)), "shape \\(3,\\)"),
        (lambda: um.Visual("a", "sphere", -1.0), "negative"),
        (lambda: um.Visual("a", "box", (1.0, 1.0, 1.0), rotation=2 * np.eye(3)), "rotation matrix"),
        (
            lambda: um.Visual("a", "mesh", vertices=np.zeros((3, 3)), faces=[[0, 1, 3]]),
            "number its 3 vertices",
        ),
        (lambda: um.Visual("a", "mesh", vertices=np.zeros((3, 3))), "needs faces"),
        (lambda: um.Visual("a", "sphere", 1.0, colour=(2.0, 0.0, 0.0)), "from 0 to 1"),
        (
            lambda: um.assemble([um.ball("a", (0, 0, 0), 1, 1)], visuals=[um.Visual("b", "sphere", 1)]),
            "visual",
        ),
        (lambda: um.Body("a", 1.0, (0, 0, 0), (1, 1, 1), shape="cube"), "shape"),
        (lambda: um.PlanarBody("a", 1.0, (0, 0), 1.0, shape="box"), "edges"),
    ]
    for call, words in cases:
        with pytest.raises(uk.InputError, match=words):
            call()
    with pytest.raises(uk.InputError, match="traces"):
        jax.jit(lambda r: um.Visual("a", "sphere", r).size)(1.0)


def pixel(shown: Scene, place: np.ndarray, width: int, height: int) -> tuple[int, int]:
    """Column and row of a place in a window, by a camera without distortion."""
    position, middle = place_camera(shown)
    ahead = (middle - position) / np.linalg.norm(middle - position)
    right = np.cross(ahead, shown.up)
    right /= np.linalg.norm(right)
    x, y, z = np.stack([right, np.cross(ahead, right), ahead]) @ (place - position)
    focal = height / 2 / np.tan(FIELD / 2)
    return round(width / 2 + focal * x / z), round(height / 2 + focal * y / z)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_browser_without_a_network_draws_bodies_where_they_are(name, tmp_path):
    """It asks for no address but the file's own, and complains of nothing. The run is too short to see it move."""
    run = uk.simulate(MECHANISMS[name](), t1=1e-3, ts=2)
    shown, path = scene(run), run.save(tmp_path / "run.html")
    with opened(path.as_uri(), tmp_path / "profile") as page:
        picture = page.until_drawn()
        asked = {address.split(":")[0] for address in page.requests}
    assert asked <= {"file", "data", "blob"}
    assert page.complaints == []
    for body in run.problem.system.bodies:
        node = nodes(shown, run.name)[body.name]
        visual = node.visuals[0]
        own = visual.position if visual.vertices is None else visual.vertices[:2].mean(axis=0)
        place = moved(node, 0, own)
        column, row = pixel(shown, place, *picture.shape[1::-1])
        assert coloured(picture)[row - 3 : row + 4, column - 3 : column + 4].any(), node.name
