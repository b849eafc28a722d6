"""Parts of a mechanism that only contacts join are stepped one after the other: they move as each does alone."""

import itertools

import jax
import jax.numpy as jnp
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
