"""Fast, thin and spinning bodies by time steps: none passes through another, and impacts make no energy."""

import jax
import mujoco
import numpy as np
import pytest

import ukjax as uk
import ukjax.mechanisms as um

H, STEPS = 1e-3, 20


def simulated(system, q0, v0, times=(STEPS * H,)):
    """Runs of a batch of starts."""

    def run(q, v):
        found = uk.simulate(system, q, v, t1=STEPS * H, ts=np.array(times), contact="steps", dt0=H)
        return found.q, found.v, found.energy, found.contacts.gap, found.stats

    return jax.device_get(jax.jit(jax.vmap(run))(np.asarray(q0), np.asarray(v0)))


def body(name, mass=1.0, at=(0.0, 0.0, 0.0)):
    return um.Body(name, mass, at, 1e-3 * np.eye(3))


def still(x):
    """Positions and quaternions."""
    return np.concatenate([np.concatenate([p, [1.0, 0, 0, 0]]) for p in x])


def moving(*velocities):
    return np.concatenate([np.concatenate([u, np.zeros(3)]) for u in velocities])


@pytest.mark.parametrize("speed", [10.0, 50.0, 200.0])
def test_a_thin_plate_stops_a_ball(speed):
    """It comes back by the way it came, whatever part of a step it strikes in: 8 mm thick together, 20 cm in a step."""
    radius, half = 0.003, 0.001
    plate = um.Cuboid("ground", (0.0, 0.0, 0.0), (1.0, 1.0, 2 * half))
    touch = um.Contact(plate, um.Sphere("ball", (0.0, 0.0, 0.0), radius), restitution=1.0)
    system = um.assemble([body("ball")], contacts=[touch])
    heights = 0.01 + speed * H * np.linspace(0.3, 2.3, 16)
    times = np.linspace(0, STEPS * H, 7 * STEPS + 1)
    starts = [still([(0.1, 0.0, z)]) for z in heights]
    q, v, energy, gap, stats = simulated(system, starts, [moving((0.0, 0.0, -speed))] * 16, times)
    off = np.abs(heights[:, None] - speed * times - radius - half) + radius + half
    np.testing.assert_allclose(q[:, :, 2], off, atol=1.5 * H * speed)  # of first order in the step
    np.testing.assert_allclose(v[:, -1, 2], speed, rtol=1e-12)
    np.testing.assert_allclose(energy[:, -1], energy[:, 0], rtol=1e-12)
    assert gap.min() > -1e-10
    assert stats["num_passing_steps"].max() == 0
    assert stats["num_accepted_steps"].max() > STEPS


def test_balls_exchange_their_velocities():
    """Off the middle too: what they have along the line of centres, and nothing else."""
    balls = [um.Sphere(name, (0.0, 0.0, 0.0), 0.01) for name in ("one", "other")]
    touch = um.Contact(*balls, restitution=1.0)
    system = um.assemble([body("one"), body("other")], contacts=[touch])
    aside, before = np.linspace(-0.015, 0.015, 16), np.linspace(0.03, 0.15, 16)
    starts = [still([(-x, y, 0.0), (0.0, 0.0, 0.0)]) for x, y in zip(before, aside, strict=True)]
    _, v, energy, _, _ = simulated(system, starts, [moving((100.0, 0.0, 0.0), np.zeros(3))] * 16)
    np.testing.assert_allclose(energy[:, 0], 0.5 * 100.0**2, rtol=1e-12)
    one, other = v[:, -1, :3], v[:, -1, 6:9]
    np.testing.assert_allclose(one + other, [[100.0, 0.0, 0.0]] * 16, atol=1e-10)
    assert np.linalg.norm(other, axis=1).min() > 1.0
    along = other / np.linalg.norm(other, axis=1)[:, None]
    np.testing.assert_allclose((one * along).sum(1), 0, atol=1e-9)  # all of it has gone over
    np.testing.assert_allclose(along[:, 1], -aside / 0.02, atol=0.15)


@pytest.mark.slow
def test_a_hinged_rod_turns_back_at_a_peg():
    """0.7 rad in a step, and a peg that is 0.03 rad wide."""
    rod = um.rod("rod", (0.0, 0.0, 0.0), (0.3, 0.0, 0.0), mass=1.0, radius=0.002)
    hinge = um.Revolute("hinge", "ground", "rod", point=(0.0, 0.0, 0.0), axis=(0, 0, 1))
    peg = um.Capsule("ground", (0.0, 0.25, -0.1), (0.0, 0.25, 0.1), 0.002)
    own = um.Capsule("rod", (0.0, 0.0, 0.0), (0.3, 0.0, 0.0), 0.002)
    system = um.tree([rod], [hinge], contacts=[um.Contact(peg, own, restitution=1.0)])
    starts = np.pi / 2 - np.linspace(0.1, 1.5, 16)[:, None]
    q, v, _, _, _ = simulated(system, starts, np.full((16, 1), 700.0), (10 * H, STEPS * H))
    stop = np.pi / 2 - np.arcsin(0.004 / 0.25)
    assert q.max() < stop + 1e-3
    np.testing.assert_allclose(np.abs(v), 700.0, rtol=1e-9)


@pytest.mark.slow
def test_hulls_that_turn_strike_a_plate():
    """With both ways of a corner that meets it, and of energy none is made."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(12, 3))
    points *= 0.02 / np.linalg.norm(points, axis=1)[:, None]
    plate = um.Cuboid("ground", (0.0, 0.0, 0.0), (1.0, 1.0, 0.002))
    touch = um.Contact(plate, um.ConvexHull("hull", points), restitution=1.0)
    system = um.assemble([body("hull")], contacts=[touch])
    turns = rng.normal(size=(16, 4))
    turns /= np.linalg.norm(turns, axis=1)[:, None]
    starts = np.concatenate([np.array([[0.0, 0.0, 1.0]]) * rng.uniform(0.03, 0.13, (16, 1)), turns], axis=1)
    spins = np.concatenate([np.array([[0.0, 0.0, -50.0]] * 16), 30 * rng.normal(size=(16, 3))], axis=1)
    q, v, energy, _, _ = simulated(system, starts, spins, (0.0, STEPS * H))
    assert q[:, -1, 2].min() > 0
    assert (v[:, -1, 2] != -50.0).all()
    np.testing.assert_allclose(energy[:, -1], energy[:, 0], rtol=1e-9)


@pytest.mark.slow
def test_hills_stop_a_ball():
    """A height field at which a ball of 5 mm is thrown at 200 m/s."""
    x = np.linspace(0, 20, 41)
    field = um.HeightField("ground", (0.0, 0.0, 0.0), 0.02 * np.sin(x)[:, None] * np.cos(x)[None], (1.0, 1.0))
    touch = um.Contact(field, um.Sphere("ball", (0.0, 0.0, 0.0), 0.005))
    system = um.assemble([body("ball")], contacts=[touch])
    starts = [
        still([(0.2 * np.sin(k), 0.2 * np.cos(k), z)]) for k, z in enumerate(np.linspace(0.05, 0.4, 16))
    ]
    q, *_ = simulated(system, starts, [moving((0.0, 0.0, -200.0))] * 16)
    assert q[:, -1, 2].min() > -0.02


def test_an_end_that_rises_is_not_held_by_the_impact_of_the_other():
    """A bar strikes with one end, while the other rises out of the floor: one after the other both bounce.

    Its ends move by -1 and 0.5 m/s. The first impulse, m / 2, leaves (1, -0.5), the second one (0.5, 0.5).
    """
    bar = um.rod("bar", (-0.5, 0.0), (0.5, 0.0), mass=1.0)
    own = um.Capsule("bar", (-0.5, 0.0), (0.5, 0.0), 0.0)
    touch = um.Contact(um.HalfSpace("ground", (0.0, 0.0)), own, restitution=1.0)
    system = um.assemble([bar], contacts=[touch])
    start = [0.0, -5e-4, -1e-3], [0.0, -0.25, 1.5]
    options = {"contact": "steps", "dt0": H, "start_tolerance": np.inf}
    run = uk.simulate(system, *start, t1=STEPS * H, ts=[STEPS * H], **options)
    np.testing.assert_allclose(run.v[-1], [0.0, 0.5, 0.0], atol=1e-2)
    np.testing.assert_allclose(run.energy[-1], 0.125, rtol=1e-9)


def test_steps_with_derivatives_say_that_bodies_may_have_passed():
    """They are not taken in parts."""
    plate = um.Cuboid("ground", (0.0, 0.0), (1.0, 0.002))
    touch = um.Contact(plate, um.Sphere("disc", (0.0, 0.0), 0.003))
    system = um.assemble([um.PlanarBody("disc", 1.0, (0.0, 0.0), 1e-5)], contacts=[touch])
    given = system, [0.0, 0.12, 0.0], [0.0, -50.0, 0.0]
    options = {"t1": 5 * H, "ts": [5 * H], "dt0": H}
    with pytest.warns(uk.ContactWarning, match="in 1 steps bodies moved so far"):
        run = uk.simulate(*given, contact="differentiated steps", **options)
    assert run.q_end[1] < 0
    split = uk.simulate(*given, contact="steps", **options)
    assert split.q_end[1] > 0


def test_joints_that_stand_still_by_friction_are_no_problem():
    """In free fall their slips are rounding errors, which obey no law."""
    hand = um.Body("hand", 0.7, (0.0, 0.0, 0.0), np.diag([1e-3, 2e-3, 3e-3]))
    fingers = [
        um.Body(f"finger {k}", 0.02, (0.1, 0.05 * k, 0.03), np.diag([1e-5, 2e-5, 3e-5])) for k in (-1, 1)
    ]
    slides = [
        um.Prismatic(f"slide {k}", "hand", f"finger {k}", point=(0.0, 0.0, 0.0), axis=(0.1, k, 0.2))
        for k in (-1, 1)
    ]
    free = um.Free("base", "ground", "hand", point=(0.0, 0.0, 0.0))
    rubs = [um.JointFriction(x, 0.5) for x in slides]
    tree = um.tree([hand, *fingers], [free, *slides], loads=[um.Gravity()], contacts=rubs)
    run = uk.simulate(um.problem(tree, t1=0.05), contact="steps", dt0=H, ts=[0.05])
    assert int(run.stats["num_unsolved_steps"]) == 0
    np.testing.assert_allclose(run.contacts.residual, 0, atol=1e-9)
    np.testing.assert_allclose(run.q_end[-2:], 0, atol=1e-15)


CHAIN = """<mujoco><worldbody><geom type="plane" size="5 5 .1"/>
<body pos="0 0 .25"><freejoint/><geom type="box" size=".05 .04 .03"/>
<body pos=".06 0 0"><joint type="ball"/><geom type="capsule" fromto="0 0 0 .15 0 0" size=".02"/>
<body pos=".16 0 0"><joint type="hinge" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .15 0 0" size=".02"/></body>
</body></body>
</worldbody></mujoco>"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ukjax.ContactWarning")
def test_steps_that_end_in_penetration_are_taken_in_parts():
    """A chain whirls on a floor in steps of 10 ms, as long as a fifth of a turn: MuJoCo tells how deep it is."""
    model = mujoco.MjModel.from_xml_string(CHAIN)
    data, robot = mujoco.MjData(model), uk.load(CHAIN, contact=True, t1=0.5)
    v0 = np.asarray(robot.problem.v0) + 8 * np.random.default_rng(10).normal(size=len(robot.problem.v0))
    run = uk.simulate(
        robot.problem.system,
        robot.problem.q0,
        v0,
        t1=0.5,
        contact="steps",
        dt0=0.01,
        ts=np.linspace(0, 0.5, 51),
    )
    assert run.result == uk.RESULTS.successful
    assert run.stats["num_rejected_steps"] > 0
    least = []
    for q, v in zip(run.q, run.v, strict=True):
        data.qpos[:], data.qvel[:] = robot.state_to_mujoco(np.asarray(q), np.asarray(v))
        mujoco.mj_kinematics(model, data)
        least.append(min(mujoco.mj_geomDistance(model, data, 0, k, 1.0, None) for k in (1, 2, 3)))
    assert min(least) > -1e-6
