"""Height fields: gaps beside MuJoCo's, bodies that roll and slide over edges as on a plane, and rough ground."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._compiler import AtStates
from ukjax._contact._rows import gaps_and_bends
from ukjax.mechanisms._default_visuals import draw_contact_shapes

G, R = 9.81, 0.1
SIZE, ELEVATION, DEPTH, MARGIN = (2.0, 1.5), 0.3, 0.5, 0.05
UP = np.array([0.0, 0.0, 1.0])
SHAPES = {
    "sphere": ("0.12", lambda x: um.Sphere("body", x, 0.12)),
    "capsule": ("0.06 0.15", lambda x: um.Capsule("body", x - 0.15 * UP, x + 0.15 * UP, 0.06)),
    "box": ("0.15 0.1 0.05", lambda x: um.Cuboid("body", x, (0.3, 0.2, 0.1))),
    "cylinder": ("0.1 0.08", lambda x: um.Cylinder("body", x - 0.08 * UP, x + 0.08 * UP, 0.1)),
    "ellipsoid": ("0.15 0.1 0.05", lambda x: um.Ellipsoid("body", x, (0.15, 0.1, 0.05))),
}


def rough(rows=7, columns=9):
    return np.random.default_rng(0).random((rows, columns))


def moved(ground, shape, place, inertia=0.004, friction=0.5):
    body = um.Body("body", 1.0, place, inertia * np.eye(3))
    contact = um.Contact(ground, shape(np.asarray(place, float)), friction=friction)
    return um.assemble([body], loads=[um.Gravity()], contacts=[contact], name="moved")


def in_mujoco(kind, size, heights):
    rows, columns = heights.shape
    text = " ".join(f"{x:.17g}" for x in heights.ravel())
    half = f"{SIZE[0] / 2} {SIZE[1] / 2} {ELEVATION} {DEPTH}"
    model = mujoco.MjModel.from_xml_string(f"""<mujoco>
      <asset><hfield name="hill" nrow="{rows}" ncol="{columns}" size="{half}" elevation="{text}"/></asset>
      <worldbody><geom name="hill" type="hfield" hfield="hill"/>
        <body name="body"><freejoint/><geom type="{kind}" size="{size}" margin="{MARGIN}"/></body></worldbody>
      </mujoco>""")
    return model, mujoco.MjData(model)


@pytest.mark.parametrize("kind", SHAPES)
def test_gaps_are_those_of_mujoco(kind):
    """Of bodies that are apart, at random; those that overlap have the depth of the field, not that of one prism."""
    size, shape = SHAPES[kind]
    model, data = in_mujoco(kind, size, rough())
    heights = model.hfield_size[0, 2] * model.hfield_data.reshape(7, 9).astype(float)
    turn, off = Rotation.from_rotvec([0.3, -0.5, 0.8]), np.array([0.3, -0.2, 0.4])  # of the whole, in ours
    ground = um.HeightField("ground", off, heights, SIZE, DEPTH, turn.as_matrix())
    gaps = AtStates(gaps_and_bends, (moved(ground, shape, (0.0, 0.0, 0.0)), None))
    rng, seen = np.random.default_rng(1), 0
    for _ in range(150):
        place = np.array([rng.uniform(-0.8, 0.8), rng.uniform(-0.5, 0.5), rng.uniform(0.2, 0.5)])
        own = Rotation.random(random_state=rng)
        data.qpos[:3], data.qpos[3:] = place, own.as_quat(scalar_first=True)
        mujoco.mj_fwdPosition(model, data)
        least = min((x.dist for x in data.contact), default=1.0)
        if -1e-4 < least < 0.98 * MARGIN:
            q = np.concatenate([off + turn.apply(place), (turn * own).as_quat(scalar_first=True)])
            found = np.asarray(gaps.one(jnp.zeros(()), jnp.asarray(q), jnp.zeros(6))[0])
            np.testing.assert_allclose(found.min(), least, atol=1e-9 if least > 0 else 1e-6)
            seen += 1
    assert seen >= 15


@pytest.mark.parametrize("slope", [0.0, 0.1])
def test_a_ball_rolls_over_edges_as_on_a_plane(slope):
    """It slides until it rolls at 5/7 of its speed; down a slope its acceleration is 5/7 of g sin a."""
    x = np.linspace(-1.0, 1.0, 11)
    steep = np.hypot(1.0, slope)
    ground = um.HeightField("ground", (0, 0, 0), slope * x[None] * np.ones((11, 1)), (2.0, 2.0))
    place = (0.013, 0.021, 0.013 * slope + R * steep)
    ball = moved(ground, lambda x: um.Sphere("body", x, R), place)
    v0 = np.zeros(6) if slope else [0.5, 0.3, 0.0, 0.0, 0.0, 0.0]
    start = um.problem(ball, v0=v0, t1=0.6)
    run = uk.simulate(start, contact="steps", dt0=1e-3)
    if slope:
        a = 5 / 7 * G * slope / steep
        np.testing.assert_allclose(np.linalg.norm(run.v_end[:3]), a * 0.6, rtol=1e-9)
        np.testing.assert_allclose(np.linalg.norm(run.q_end[:3] - start.q0[:3]), a * 0.18, rtol=1e-9)
    else:
        np.testing.assert_allclose(run.v_end[:3], [5 / 7 * 0.5, 5 / 7 * 0.3, 0.0], atol=1e-9)


def test_a_box_slides_over_edges_as_far_as_on_a_plane():
    """v^2 / (2 mu g), with its sides along the grid and its corners on it."""
    ground = um.HeightField("ground", (0, 0, 0), np.zeros((11, 11)), (2.0, 2.0))
    box = moved(ground, lambda x: um.Cuboid("body", x, (0.4, 0.2, 0.1)), (0.0, 0.0, 0.05))
    run = uk.simulate(um.problem(box, v0=[1.0, 0.4, 0, 0, 0, 0], t1=0.4), contact="steps", dt0=1e-3)
    far = np.array([1.0, 0.4]) * np.hypot(1.0, 0.4) / (2 * 0.5 * G)
    np.testing.assert_allclose(run.q_end[:2], far, atol=1e-5)
    np.testing.assert_allclose(run.q_end[2:], [0.05, 1, 0, 0, 0], atol=1e-9)
    np.testing.assert_allclose(run.v_end, 0.0, atol=1e-9)


@pytest.mark.parametrize("kind", ["sphere", "box"])
def test_bodies_come_to_rest_on_rough_ground(kind):
    """They never sink in, and lose energy, but for what a push out of the ground adds for one step."""
    ground = um.HeightField("ground", (0, 0, 0), 0.1 * rough(21, 21), (2.0, 2.0))
    body = moved(ground, SHAPES[kind][1], (0.013, 0.021, 0.3))
    start = um.problem(body, v0=[0.3, 0.2, 0, 3, 2, 1], t1=2.0)
    run = uk.simulate(start, contact="steps", dt0=1e-3, ts=np.linspace(0, 2.0, 201))
    assert int(run.stats["num_unsolved_steps"]) == 0
    assert run.contacts.gap.min() > -1e-9
    energy = np.asarray(run.energy)
    assert np.diff(energy).max() < 5e-3
    assert energy[-1] < energy[0] - 1.0
    if kind == "box":
        np.testing.assert_allclose(run.v_end, 0.0, atol=1e-9)
        assert run.contacts.closed[-1].sum() >= 3


def test_gaps_have_derivatives():
    """Of the least one, on arrays, as of scalar code; beside differences."""
    ground = um.HeightField("ground", (0, 0, 0), ELEVATION * rough(), SIZE, DEPTH)
    system = moved(ground, SHAPES["sphere"][1], (0.0, 0.0, 0.0))
    (gaps,), scalar, at = system.constraints, AtStates(gaps_and_bends, (system, None)), jnp.zeros(())
    of = jax.jit(lambda q: jnp.min(gaps.gaps(at, q)))
    slope, rng, seen = jax.jit(jax.jacfwd(of)), np.random.default_rng(3), 0
    for _ in range(60):
        q = jnp.asarray(
            [rng.uniform(-0.5, 0.5), rng.uniform(-0.3, 0.3), rng.uniform(0.3, 0.4), 1.0, 0.0, 0.0, 0.0]
        )
        least = np.asarray(scalar.one(at, q, jnp.zeros(6))[0]).min()
        if 0 < least < 1e-3:
            np.testing.assert_allclose(of(q), least, atol=1e-12)
            differences = [(of(q + x) - of(q - x)) / 2e-6 for x in 1e-6 * np.eye(7)]
            np.testing.assert_allclose(slope(q), differences, atol=1e-6)
            seen += 1
    assert seen >= 1


def test_a_robot_walks_on_the_field_of_its_file():
    """Heights of MuJoCo's hfield, as a shape of the ground and in pictures."""
    robot = uk.load(
        """<mujoco><asset><hfield name="hill" nrow="2" ncol="3" size="1 2 0.5 0.1" elevation="0 1 0 0 1 0"/></asset>
      <worldbody><geom name="hill" type="hfield" hfield="hill" pos="0 0 0.3"/>
        <body name="ball" pos="0.5 0 1"><freejoint/><geom name="ball" size="0.1"/></body></worldbody></mujoco>""",
        contact=True,
    )
    assert not [x for x in robot.report.features if x.status == "ignored" and x.moves]
    (contact,) = robot.mechanism.mechanism.contacts
    ground = contact.shapes[0]
    assert isinstance(ground, um.HeightField)
    np.testing.assert_allclose(ground.heights, [[0.0, 0.5, 0.0], [0.0, 0.5, 0.0]])
    drawn = draw_contact_shapes(robot.mechanism.mechanism, 0.01, {"ground": 0.0, "ball": 0.0})
    (picture,) = [x for x in drawn if x.kind == "mesh"]
    assert picture.body == "ground"
    x, y, z = np.asarray(picture.vertices).T
    np.testing.assert_allclose(z, 0.3 + 0.5 * (1 - np.abs(x)), atol=1e-12)
    np.testing.assert_allclose([y.min(), y.max()], [-2.0, 2.0])
    a, b, c = np.moveaxis(np.asarray(picture.vertices)[picture.faces], 1, 0)
    assert (np.cross(b - a, c - a)[:, 2] > 0).all()
    run = uk.simulate(robot.problem, t1=0.5, contact="steps", dt0=1e-3)
    out = run.q_end[:3] + np.array([0.5, 0.0, 0.2])  # from the ridge; the side falls by 1/2
    np.testing.assert_allclose(np.dot(out, [0.5, 0.0, 1.0]) / np.hypot(0.5, 1.0), 0.1, atol=1e-9)
    assert run.v_end[0] > 0.3


def test_what_makes_no_sense_is_refused():
    for heights, more, words in (
        (np.zeros(3), {}, "rows, columns"),
        (np.zeros((1, 3)), {}, "at least 2 by 2"),
        (-2.0 * np.ones((2, 2)), {}, "below its depth"),
        (np.zeros((2, 2)), {"size": (1.0, 0.0)}, "must be positive"),
    ):
        with pytest.raises(uk.InputError, match=words):
            um.HeightField("ground", (0, 0, 0), heights, **{"size": (1.0, 1.0)} | more)
    ground = um.HeightField("ground", (0, 0, 0), np.zeros((2, 2)), (1.0, 1.0))
    with pytest.raises(uk.InputError, match="not offered"):
        um.Contact(ground, um.HalfSpace("body", (0, 0, 0)))
    ball = moved(ground, lambda x: um.Sphere("body", x, R), (0, 0, R))
    with pytest.raises(uk.InputError, match="followed from event to event"):
        uk.simulate(um.problem(ball, t1=0.1))
