"""Parts of a mechanism that only contacts join are stepped one after the other: they move as each does alone."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import ukjax as uk
import ukjax.mechanisms as um

STEPS = {"contact": "steps", "dt0": 1e-3, "ts": np.linspace(0, 0.3, 7), "t1": 0.3}


def _four_bar(name, x, length):
    """Bodies, joints, loops and a stop of a four-bar whose ground pivots are at x and x + 2."""
    a, b = (x, 0.0), (x + 2.0, 0.0)
    c, d = (x, 1.0), (x + length, 1.0)
    middle = lambda p, q: tuple(0.5 * (s + t) for s, t in zip(p, q, strict=True))
    bodies = [
        um.PlanarBody(f"{name}{i}", 1.0 + 0.2 * i, middle(*ends), 0.05)
        for i, ends in enumerate([(a, c), (c, d), (b, d)])
    ]
    joints = [
        um.Revolute(f"{name} pin", "ground", f"{name}0", a),
        um.Revolute(f"{name} knee", f"{name}0", f"{name}1", c),
        um.Revolute(f"{name} other", "ground", f"{name}2", b),
    ]
    loops = [um.Revolute(f"{name} loop", f"{name}1", f"{name}2", d)]
    return bodies, joints, loops, [um.Limit(f"{name} pin", lower=-0.1, restitution=0.5)]


def _run(parts):
    bodies, joints, loops, stops = ([*itertools.chain(*own)] for own in zip(*parts, strict=True))
    system = um.tree(bodies, joints, [um.Gravity((5.0, -9.81))], loops=loops, contacts=stops)
    return uk.simulate(system, q0=system.q0, v0=0 * system.v0, **STEPS)


def _parts(*which):
    found = [_four_bar("a", 0.0, 1.8), _four_bar("b", 5.0, 1.7), _four_bar("c", 10.0, 1.9)]
    return [found[i] for i in which]


def test_loops_that_are_alike_move_as_each_does_alone():
    together, alone = _run(_parts(0, 1, 2)), [_run(_parts(i)) for i in range(3)]
    np.testing.assert_allclose(together.q, np.concatenate([x.q for x in alone], axis=1), atol=1e-10)
    np.testing.assert_allclose(together.energy, sum(x.energy for x in alone), rtol=1e-10)
    assert together.contacts.num_events > 0


def _ball(name, x, mass, radius):
    return um.Body(name, mass, (x, 0, radius), (0.4 * mass * radius**2,) * 3)


@pytest.mark.parametrize("coordinates", ["absolute", "tree"])
def test_balls_by_loops_fall_roll_and_stop_as_balls_do(coordinates):
    """Five balls that slide over a plane end by rolling at 5/7 of their speed, whatever mass and size they have."""
    masses, radii, speeds = [1.0, 2.0, 0.5, 1.5, 3.0], [0.1, 0.2, 0.15, 0.3, 0.25], [1.0, 2.0, 0.5, 1.5, 0.7]
    names = [f"ball {i}" for i in range(5)]
    bodies = [_ball(*x) for x in zip(names, [0, 2, 4, 6, 8], masses, radii, strict=True)]
    balls = [um.Sphere(b.name, b.centre, r) for b, r in zip(bodies, radii, strict=True)]
    floor = um.HalfSpace("ground", (0, 0, 0), (0, 0, 1))
    touches = [um.Contact(floor, x, friction=0.6) for x in balls]
    touches += [um.Contact(x, y) for i, x in enumerate(balls) for y in balls[:i]]
    if coordinates == "absolute":
        system = um.assemble(bodies, loads=[um.Gravity()], contacts=touches)
    else:
        free = [um.Free(f"{b.name} free", "ground", b.name, b.centre) for b in bodies]
        system = um.tree(bodies, free, [um.Gravity()], contacts=touches)
    v0 = np.zeros((5, 6))
    v0[:, 1] = speeds  # across the row, so that none meets another
    run = uk.simulate(system, q0=system.q0, v0=v0.ravel(), contact="steps", dt0=1e-3, ts=[1.0], t1=1.0)
    v = np.asarray(run.v).reshape(5, 6)
    np.testing.assert_allclose(v[:, 1], 5 / 7 * np.array(speeds), atol=2e-4)
    # Energy is lost by sliding alone: 2/7 of what there was.
    lost = 0.5 * np.array(masses) @ (np.array(speeds) ** 2) * 2 / 7
    weight = 9.81 * np.array(masses) @ np.array(radii)
    np.testing.assert_allclose(
        run.energy[-1] - weight, 0.5 * np.array(masses) @ np.square(speeds) - lost, rtol=1e-3
    )


def test_derivatives_by_loops_are_those_of_steps():
    """Two pendulums with stops, alike but for their lengths: derivatives by both, beside differences."""

    def end(lengths):
        bodies = [
            um.PlanarBody(f"p{i}", 1.0, jnp.stack([2.0 * i + x, 0.0 * x]), 0.02)
            for i, x in enumerate(lengths)
        ]
        joints = [um.Revolute(f"pin {i}", "ground", f"p{i}", (2.0 * i, 0.0)) for i in range(2)]
        stops = [um.Limit(f"pin {i}", lower=-3.0) for i in range(2)]
        system = um.tree(bodies, joints, [um.Gravity()], contacts=stops)
        options = STEPS | {"contact": "differentiated steps"}
        return uk.simulate(system, q0=jnp.zeros(2), v0=jnp.zeros(2), **options).q_end

    x, h = jnp.array([0.7, 0.9]), 1e-5
    J = jax.jacfwd(end)(x)
    differences = [(end(x + h * e) - end(x - h * e)) / (2 * h) for e in np.eye(2)]
    np.testing.assert_allclose(J, np.stack(differences, axis=1), atol=1e-7)
    assert abs(J[0, 1]) == abs(J[1, 0]) == 0


def test_what_no_contact_asks_for_may_move_by_more_velocities():
    """Of a chain the first link strikes a floor; a contact of the last, which never touches, changes nothing."""
    bodies = [um.Body(f"link {i}", 1.0, (0.5 + i, 0, 0), (0.01, 0.1, 0.1)) for i in range(3)]
    names = ["ground", *(b.name for b in bodies)]
    joints = [um.Revolute(f"pin {i}", names[i], names[i + 1], (i, 0, 0), (0, 1, 0)) for i in range(3)]
    touch = lambda height, i: um.Contact(
        um.HalfSpace("ground", (0, 0, height), (0, 0, 1)), um.Sphere(f"link {i}", (1.0 + i, 0, 0), 0.05)
    )
    runs = []
    for contacts in ([touch(-0.2, 0)], [touch(-0.2, 0), touch(-9.0, 2)]):
        system = um.tree(bodies, joints, [um.Gravity()], contacts=contacts)
        runs.append(uk.simulate(system, q0=system.q0, v0=0 * system.v0, **STEPS))
    np.testing.assert_allclose(runs[0].q, runs[1].q, atol=1e-12)
    assert runs[0].contacts.closed[-1, 0] or runs[0].contacts.num_events > 0


_ARM = """
<body name="upper" pos="0 0 1">
  <joint name="shoulder" axis="0 1 0" damping="0.3" armature="0.01" range="-100 100" limited="true"/>
  <geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.03" contype="0" conaffinity="0"/>
  <body name="lower" pos="0.4 0 0">
    <joint name="elbow" axis="0 1 0" stiffness="2" springref="20"/>
    <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.02" contype="0" conaffinity="0"/>
    <body name="hand" pos="0.3 0 0">
      <joint name="wrist" axis="0 1 0"/>
      <geom name="palm" type="sphere" size="0.05"/>
    </body>
  </body>
</body>"""
_BALLS = "".join(
    f'<body name="ball{i}" pos="{1 + i} 0 {0.3 + 0.1 * i}"><freejoint/>'
    f'<geom type="sphere" size="{0.1 + 0.02 * i}"/></body>'
    for i in range(3)
)
_DRIVES = """
<equality><joint joint1="wrist" joint2="elbow" polycoef="0.1 -0.5 0 0 0"/></equality>
<actuator>
  <position name="servo" joint="shoulder" kp="20" kv="1"/>
  <general name="slow" joint="elbow" dyntype="filter" dynprm="0.05" gainprm="3"/>
</actuator>"""


def _scene(bodies, further=""):
    text = f'<mujoco><worldbody><geom type="plane" size="9 9 1"/>{bodies}</worldbody>{further}</mujoco>'
    return mujoco.MjModel.from_xml_string(text)


def _load(*model, ctrl=None):
    return uk.load(_scene(*model), contact=True, ctrl=ctrl)


def _moved(robot):
    return uk.simulate(robot.problem, **STEPS)


def _follow(t, q, v):
    return jnp.stack([0.4 * jnp.sin(5 * t) - 0.1 * q[1], 1.0 - v[0]])


def test_an_arm_with_motors_moves_as_it_does_without_balls():
    """A servo, an activation, a spring, damping, an equality and an input that follows the arm stay with the arm."""
    together = _load(_ARM + _BALLS, _DRIVES, ctrl=_follow)
    assert sorted(map(len, together.problem.system.members())) == [1, 3]
    arm, found = _moved(_load(_ARM, _DRIVES, ctrl=_follow)), _moved(together)
    np.testing.assert_allclose(found.q[:, :3], arm.q, atol=1e-10)
    own = np.array([0, 1, 2, -1])  # the activation is behind all others
    np.testing.assert_allclose(found.v[:, own], arm.v, atol=1e-10)
    assert np.ptp(arm.v[:, 3]) > 0.5  # it moves
    heights = np.array([0.3, 0.4, 0.5]) + found.q[-1, 5::7]
    np.testing.assert_allclose(heights, [0.1, 0.12, 0.14], atol=1e-9)  # the balls lie on the floor


def test_an_action_moves_an_arm_among_balls_as_one_that_it_sees():
    """Steps under an action, by parts, are those of a robot whose inputs are the same and follow a ball."""
    follow = lambda t, q, v: jnp.stack(
        [0.5 + 0.1 * q[5], 1.0 - v[1] + 0.2 * q[5]]
    )  # the height of the first ball
    robot = _load(_ARM + _BALLS, _DRIVES)
    apply = lambda t, q, v, action: robot.apply(t, q, v, action * follow(t, q, v))
    environment = uk.Environment(robot.problem, apply, lambda t, q, v, action: q[0], dt=1e-3, horizon=300)
    steps = lambda state, action: jax.lax.scan(
        lambda x, _: (environment.step(x, action)[0], None), state, length=300
    )[0]
    state = eqx.filter_jit(steps)(environment.reset(jax.random.key(0)), jnp.ones(2))
    seen = _load(_ARM + _BALLS, _DRIVES, ctrl=follow)
    assert sorted(map(len, seen.problem.system.members())) == [1, 2]
    run = _moved(seen)
    np.testing.assert_allclose(state.q, run.q[-1], atol=1e-10)
    np.testing.assert_allclose(state.v, run.v[-1], atol=1e-9)
    assert np.ptp(run.q[:, 5]) > 0.1


@pytest.mark.parametrize(
    ("ctrl", "parts"),
    [
        (lambda t, q, v: jnp.stack([0.1 * q[0], t]), [1, 3]),
        (lambda t, q, v: jnp.stack([0.1 * q[3], t]), [1, 2]),  # the first ball is seen by the arm
        (lambda t, q, v: jnp.stack([jnp.sum(q), t]), []),
    ],
    ids=["the arm", "a ball", "all"],
)
def test_what_inputs_follow_is_no_other_part(ctrl, parts):
    system = _load(_ARM + _BALLS, _DRIVES, ctrl=ctrl).problem.system
    assert sorted(map(len, system.members())) == parts
