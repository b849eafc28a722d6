"""Starts by name: joints, bodies and points at given positions, against the geometry of linkages in closed form."""

import functools
import itertools
import warnings

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import ukjax as uk
import ukjax.mechanisms as um

A, B, C, D = (0.0, 0.0), (0.0, 1.0), (1.5, 1.5), (1.5, 0.0)
BODIES = [um.rod("crank", A, B, 1.0), um.rod("coupler", B, C, 2.0), um.rod("rocker", D, C, 1.0)]
PINS = [
    um.Revolute("A", "ground", "crank", A),
    um.Revolute("B", "crank", "coupler", B),
    um.Revolute("C", "coupler", "rocker", C),
    um.Revolute("D", "ground", "rocker", D),
]
FOUR_BARS = {
    "absolute": um.assemble(BODIES, PINS),
    "tree": um.tree(BODIES, [PINS[0], PINS[1], PINS[3]], loops=[PINS[2]]),
}
points = eqx.filter_jit(lambda system, q: system.points(0.0, q))
placements = eqx.filter_jit(lambda system, q: system.placements(0.0, q))
STILL = {"absolute": np.zeros(9), "tree": np.zeros(3)}  # what is not asked for need not be compiled


def ends(angle: float, side: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """B and C of the four-bar: C is where circles about B and D meet, on the side it is drawn on or the other."""
    b, coupler, rocker = np.array([-np.sin(angle), np.cos(angle)]), np.hypot(1.5, 0.5), 1.5
    apart = np.hypot(*(D - b))
    along, x = (D - b) / apart, (coupler**2 - rocker**2 + apart**2) / (2 * apart)
    return b, b + along * x + side * np.array([-along[1], along[0]]) * np.sqrt(coupler**2 - x**2)


@functools.cache
def turned(kind: str, angle: float) -> np.ndarray:
    """The coordinates where the crank is turned by so much."""
    return um.problem(FOUR_BARS[kind], at={"A": angle}, v0=STILL[kind]).q0


@pytest.mark.parametrize("angles", [(0.5, 5.0), pytest.param((-1.0, 2.5), marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", FOUR_BARS)
def test_a_four_bar_closes_as_it_is_drawn(kind: str, angles: tuple[float, ...]) -> None:
    system = FOUR_BARS[kind]
    for angle in angles:
        b, c = ends(angle)
        found = points(system, turned(kind, angle))
        np.testing.assert_allclose(found["crank.end"], b, atol=1e-14)
        np.testing.assert_allclose([found["coupler.end"], found["rocker.end"]], [c, c], atol=1e-13)
        assert np.abs(c - ends(angle, side=-1.0)[1]).max() > 0.5


def test_bodies_and_points_may_be_named() -> None:
    system, still = FOUR_BARS["absolute"], STILL["absolute"]
    c = ends(0.5)[1]
    by_joint = turned("absolute", 0.5)
    np.testing.assert_allclose(um.problem(system, at={"coupler.end": c}, v0=still).q0, by_joint, atol=1e-13)
    rocker = np.arctan2(*(c - D)[::-1]) - np.pi / 2
    np.testing.assert_allclose(um.problem(system, at={"rocker": rocker}, v0=still).q0, by_joint, atol=1e-13)


def test_rates_are_of_that_posture() -> None:
    system = FOUR_BARS["absolute"]
    problem = um.problem(system, at={"A": 0.5}, rates={"A": 2.0})
    speed = jax.jvp(lambda q: points(system, q)["coupler.end"], (problem.q0,), (problem.v0,))[1]
    by_differences = (ends(0.5 + 2e-6)[1] - ends(0.5 - 2e-6)[1]) / 2e-6
    np.testing.assert_allclose(speed, by_differences, rtol=1e-8)
    run = uk.simulate(problem, t1=0.1, ts=2)
    np.testing.assert_allclose(run.q[0], problem.q0, atol=1e-14)  # nothing is moved again


def test_the_same_within_jit_and_its_derivative() -> None:
    system, still = FOUR_BARS["absolute"], STILL["absolute"]

    def place(angle):
        return system.points(0.0, um.problem(system, at={"A": angle}, v0=still).q0)["coupler.end"]

    found, slope = jax.jit(lambda x: jax.jvp(place, (x,), (1.0,)))(0.5)
    np.testing.assert_allclose(found, ends(0.5)[1], atol=1e-13)
    np.testing.assert_allclose(slope, (ends(0.5 + 1e-6)[1] - ends(0.5 - 1e-6)[1]) / 2e-6, rtol=1e-8)


@pytest.mark.parametrize(
    "angles", [(-2.0,), pytest.param((1.0, 3.0), marks=pytest.mark.slow)], ids=["back", "forward"]
)
def test_a_slider_crank_in_closed_form(angles: tuple[float, ...]) -> None:
    r, length = 0.5, 1.3
    parts = [um.rod("crank", (0, 0), (r, 0), 1.0), um.rod("rod", (r, 0), (r + length, 0), 1.0)]
    parts += [um.box("slider", (r + length, 0), (0.1, 0.1), 1.0)]
    joints = [um.Revolute("main", "ground", "crank", (0, 0)), um.Revolute("pin", "crank", "rod", (r, 0))]
    joints += [um.Revolute("wrist", "rod", "slider", (r + length, 0))]
    slide = um.Prismatic("slide", "ground", "slider", (r + length, 0), (1, 0))
    system = um.assemble(parts, [*joints, slide])
    for angle in angles:
        q = um.problem(system, at={"main": angle}, v0=np.zeros(9)).q0
        x = r * np.cos(angle) + np.sqrt(length**2 - (r * np.sin(angle)) ** 2)
        np.testing.assert_allclose(points(system, q)["slider"], (x, 0.0), atol=1e-13)


def scalar_first(rotation: Rotation) -> np.ndarray:
    return rotation.as_quat()[[3, 0, 1, 2]]


BOX = um.box("box", (0.5, 0, 0), (1, 0.1, 0.2), 1.0)
ARM = um.box("arm", (1.5, 0, 0), (1, 0.1, 0.2), 1.0)
TURN = Rotation.from_rotvec([1.0, 2.0, -0.5])


@pytest.mark.parametrize(
    ("angle", "turn"),
    [
        pytest.param(0.4, TURN, marks=pytest.mark.slow),
        (2.9, Rotation.from_rotvec([np.pi, 0, 0])),
        pytest.param(4.5, TURN.inv(), marks=pytest.mark.slow),
    ],
    ids=["near", "half a turn", "far"],
)
@pytest.mark.parametrize("make", [um.assemble, um.tree])
def test_orientations_in_space(make, angle: float, turn: Rotation) -> None:
    hinge = um.Revolute("hinge", "ground", "box", (0, 0, 0), (0, 1, 1))
    system = make([BOX, ARM], [hinge, um.Spherical("ball", "box", "arm", (1, 0, 0))])
    still = np.zeros(12 if make is um.assemble else 4)
    at = {"hinge": angle, "ball": -scalar_first(turn)}  # of the two quaternions either
    found = placements(system, um.problem(system, at=at, v0=still).q0)
    box = Rotation.from_rotvec(angle * np.array([0, 1, 1]) / np.sqrt(2)).as_matrix()
    np.testing.assert_allclose(found["box"].R, box, atol=1e-13)
    np.testing.assert_allclose(found["arm"].R, box @ turn.as_matrix(), atol=1e-13)


def test_coordinates_of_a_tree() -> None:
    """All of a tree's own joints together are its coordinates."""
    free = um.Free("free", "ground", "box", (0, 0, 0))
    cross = um.Universal("cross", "box", "arm", (1, 0, 0), (0, 0, 1), (0, 1, 0))
    system = um.tree([BOX, ARM], [free, cross])
    place = np.concatenate([[1.0, -2.0, 0.5], scalar_first(TURN)])
    q = um.problem(system, at={"free": place, "cross": (0.7, -1.1)}, v0=np.zeros(8)).q0
    np.testing.assert_allclose(q, [*place, 0.7, -1.1], atol=1e-13)


FREE = um.tree([BOX], [um.Free("free", "ground", "box", (0, 0, 0))])
BALL = um.tree([BOX], [um.Spherical("ball", "ground", "box", (0, 0, 0))])
HUNG = um.assemble([BOX], [um.Distance("rope", "ground", "box", (0, 0, 1), (0, 0, 0))])
FOUR_BAR = FOUR_BARS["absolute"]
BAD = {
    "unknown": (FOUR_BAR, {"crnak": 1.0}, "unknown joint, body or point 'crnak'; did you mean 'crank'?"),
    "a list": (FOUR_BAR, [0.5], "at must be a dict of values by name, such as {'crank': 0.5}, got [0.5]"),
    "two numbers": (FOUR_BAR, {"A": (0.5, 1.0)}, "the value of 'A' in at must have shape (), got (2,)."),
    "not finite": (FOUR_BAR, {"A": np.nan}, "the value of 'A' in at must be finite"),
    "no number": (FOUR_BAR, {"A": "up"}, "the value of 'A' in at must be an array of numbers"),
    "ball": (BALL, {"ball": 0.5}, "the value of 'ball' in at must have shape (4,), got ()."),
    "free": (FREE, {"free": (0, 0, 1)}, "the value of 'free' in at must have shape (7,), got (3,)."),
    "no rotation": (BALL, {"ball": (1, 1, 0, 0)}, "must end in a unit quaternion, scalar first"),
    "no position": (HUNG, {"rope": 2.0}, "joint 'rope' (Distance) has no position to start at"),
}


@pytest.mark.parametrize(("system", "at", "words"), BAD.values(), ids=BAD)
def test_bad_input_is_one_clear_line(system, at, words: str) -> None:
    with pytest.raises(uk.InputError) as error:
        um.problem(system, at=at)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_what_cannot_be_closed_is_named_by_rows() -> None:
    with pytest.raises(uk.InputError, match=r"cannot be closed at C = 3.0: still off are .*B\[0\] \("):
        um.problem(FOUR_BAR, at={"C": 3.0}, v0=STILL["absolute"])


def test_a_way_of_ever_shorter_steps_ends(monkeypatch) -> None:
    """Newton's method finds the second slide for steps of some 1e-4 m only, all along the way of 1 m."""
    monkeypatch.setattr("ukjax.mechanisms._postures._POSTURES", 20)
    bodies = [um.PlanarBody(f"on {name}", 1.0, (0.0, 0.0), 1.0) for name in ("one", "other")]
    slides = [
        um.Prismatic(name, "ground", f"on {name}", point=(0.0, 0.0), axis=(1.0, 0.0))
        for name in ("one", "other")
    ]
    follows = uk.Holonomic(
        lambda t, q: jax.numpy.arctan(1e6 * (q[1] - 0.1 * jax.numpy.sin(50 * q[0]))), name="follows"
    )
    tree = um.tree(bodies, slides, constraints=[follows])
    with pytest.raises(uk.InputError, match=r"cannot be closed at one = 1.0: still off are one, as given"):
        um.problem(tree, at={"one": 1.0})


def test_more_than_a_turn_is_asked_about() -> None:
    """It is legal, and goes where as many turns less go; a slide of 90 m, or a turn by 6 rad, needs no word."""
    arm = um.rod("arm", A, B, 1.0)
    swing = um.tree([arm], [um.Revolute("hinge", "ground", "arm", A)])
    with pytest.warns(UserWarning, match=r"'hinge' in at is to turn by 90 rad, 14.3 turns: .* 1.571 rad"):
        turned = um.problem(swing, at={"hinge": 90}, v0=[0.0])
    end = swing.points(0.0, turned.q0)["arm.end"]
    np.testing.assert_allclose(end, [-np.sin(90), np.cos(90)], atol=1e-12)
    slide = um.tree([arm], [um.Prismatic("slide", "ground", "arm", A, (1.0, 0.0))])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        um.problem(swing, at={"hinge": -6.0}, v0=[0.0])
        um.problem(slide, at={"slide": 90.0}, v0=[0.0])


def test_one_start_at_a_time() -> None:
    with pytest.raises(uk.InputError, match="give q0 or at, not both"):
        um.problem(FOUR_BAR, q0=FOUR_BAR.q0, at={"A": 0.5})
    with pytest.raises(
        uk.InputError, match=r"rates must be a dict of values by name, such as .*, got \[1.0\]"
    ):
        um.problem(FOUR_BAR, rates=[1.0])
    for other in (uk.models.pendulum(), uk.models.pendulum().system, BODIES, None):
        with pytest.raises(
            uk.InputError, match=r"the system must be something like assemble\(bodies, joints"
        ):
            um.problem(other)


# --- Stretched arms, and what is not named


def make_arm(build, bend: float):
    """Two links of 1 m, the second turned by `bend` from the first where it is drawn."""
    tip = (1 + np.cos(bend), np.sin(bend))
    links = [um.rod("upper", (0, 0), (1, 0), 1.0), um.rod("fore", (1, 0), tip, 1.0)]
    return build(
        links, [um.Revolute("S", "ground", "upper", (0, 0)), um.Revolute("E", "upper", "fore", (1, 0))]
    )


def joint_angles(system, q) -> np.ndarray:
    """S and E of an arm, from where its points are."""
    found = {name: np.asarray(x) for name, x in points(system, q).items()}
    upper, fore = found["upper.end"], found["fore.end"] - found["upper.end"]
    return np.arctan2(*upper[::-1]), np.arctan2(upper[0] * fore[1] - upper[1] * fore[0], upper @ fore)


BENDS, TARGETS = (0.0, 1e-6, 0.02, 0.5), ((1.5, 0.0), (1.0, 1.0), (-1.9, 0.1), (1.999, 0.01))
# Each bend and each target once a kind of coordinates; the other pairs are slow.
PAIRED = [(um.assemble, *x) for x in zip(BENDS, TARGETS, strict=True)]
PAIRED += [(um.tree, *x) for x in zip(BENDS, (*TARGETS[1:], TARGETS[0]), strict=True)]
BENT = [
    pytest.param(*x, marks=() if x in PAIRED else pytest.mark.slow)
    for x in itertools.product((um.assemble, um.tree), BENDS, TARGETS)
]


@pytest.mark.parametrize(("build", "bend", "target"), BENT)
def test_a_stretched_arm_bends(build, bend: float, target: tuple[float, float]) -> None:
    """The law of cosines; by no more than a turn; and to the side on which it is drawn, if that is to be seen."""
    system = make_arm(build, bend)
    q = um.problem(system, at={"fore.end": target}).q0
    assert np.abs(q).max() < 2 * np.pi
    S, E = joint_angles(system, q)
    elbow = np.arccos(np.dot(target, target) / 2 - 1)
    if target[0] < 1.9 and bend > 1e-3:
        np.testing.assert_allclose(E, elbow, atol=1e-10)
    np.testing.assert_allclose(abs(E), elbow, atol=1e-10)
    turned = np.arctan2(*target[::-1]) - E / 2  # of links of the same length
    np.testing.assert_allclose((np.cos(S), np.sin(S)), (np.cos(turned), np.sin(turned)), atol=1e-10)


@pytest.mark.parametrize("target", [(2.5, 0.0), (3.0, 1.0)])
@pytest.mark.parametrize("build", [um.assemble, um.tree])
def test_what_an_arm_cannot_reach_is_said(build, target: tuple[float, float]) -> None:
    with pytest.raises(uk.InputError, match=r"cannot be closed at fore.end = .*fore.end, as given"):
        um.problem(make_arm(build, 0.0), at={"fore.end": target})


@pytest.mark.parametrize("build", [um.assemble, um.tree])
def test_an_arm_reaches_its_limit(build) -> None:
    system = make_arm(build, 0.5)
    end = points(system, um.problem(system, at={"fore.end": (0.0, -2.0)}).q0)["fore.end"]
    np.testing.assert_allclose(end, (0.0, -2.0), atol=1e-11)


@pytest.mark.parametrize("build", [um.assemble, um.tree])
def test_what_is_not_named_stays(build) -> None:
    """The elbow, and in space a hinge across; a pendulum on the coupler of a four-bar, which is in no loop."""
    system = make_arm(build, 0.3)
    turned = um.problem(system, at={"S": 0.5}, rates={"S": 2.0})
    np.testing.assert_allclose(joint_angles(system, turned.q0), (0.5, 0.3), atol=1e-14)
    moving = jax.jvp(lambda q: points(system, q)["fore.end"], (turned.q0,), (turned.v0,))[1]
    end = points(system, turned.q0)["fore.end"]
    np.testing.assert_allclose(moving, 2.0 * np.array([-end[1], end[0]]), atol=1e-13)

    hinges = [um.Revolute("h", "ground", "box", (0, 0, 0), (0, 0, 1))]
    hinges += [um.Revolute("e", "box", "arm", (1, 0, 0), (0, 1, 0))]
    system = build([BOX, ARM], hinges)
    found = placements(
        system, um.problem(system, at={"h": 2.5}, v0=np.zeros(12 if build is um.assemble else 2)).q0
    )
    np.testing.assert_allclose(found["arm"].R, found["box"].R, atol=1e-13)


@pytest.mark.parametrize("build", [um.assemble, um.tree])
def test_a_branch_outside_a_loop_stays(build) -> None:
    bodies = [*BODIES, um.rod("bob", B, (0.0, 0.5), 1.0)]
    joints = [*PINS, um.Revolute("hook", "coupler", "bob", B)]
    if build is um.assemble:
        system = um.assemble(bodies, joints)
    else:
        system = um.tree(bodies, [x for x in joints if x.name != "C"], loops=[PINS[2]])
    turned = um.problem(system, at={"A": 0.5}, rates={"A": 1.0})
    found = placements(system, turned.q0)
    np.testing.assert_allclose(found["bob"].angle, found["coupler"].angle, atol=1e-13)
    np.testing.assert_allclose(points(system, turned.q0)["coupler.end"], ends(0.5)[1], atol=1e-13)
    twists = system.twists(0.0, turned.q0, turned.v0)
    np.testing.assert_allclose(twists["bob"].omega, twists["coupler"].omega, atol=1e-13)
    assert abs(twists["coupler"].omega) > 0.1
