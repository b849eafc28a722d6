"""What is given as a function: lengths, paths, drives and loads; what a drive does; and further constraints."""

import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
import ukjax.mechanisms as um

ROD = um.rod("rod", (0.0, 0.0), (2.0, 0.0), 3.0)
PIN = um.Revolute("pin", "ground", "rod", (0.0, 0.0))


def test_a_winch_pulls_with_weight_and_acceleration() -> None:
    """A mass on a rope of length l(t) = 2 - 0.3 t^2 straight below: z = -l, and the rope pulls with m (g + 0.6)."""
    load = um.PointMass("load", 4.0, (0.0, 0.0, -2.0))
    rope = um.Distance("rope", "ground", "load", (0, 0, 0), (0, 0, -2), lambda t: 2.0 - 0.3 * t**2)
    system = um.assemble([load], [rope], [um.Gravity()])
    run = uk.simulate(um.problem(system, t1=1.0), ts=3)
    np.testing.assert_allclose(run.q[:, 2], -2.0 + 0.3 * run.t**2, atol=1e-12)
    pull = um.reactions(system, run)["rope"].force
    np.testing.assert_allclose(pull, np.broadcast_to([0.0, 0.0, 4.0 * (9.81 + 0.6)], (3, 3)), atol=1e-9)


@pytest.mark.parametrize("kind", ["absolute", "tree"])
@pytest.mark.parametrize("rate", [pytest.param(2.0, marks=pytest.mark.slow), -2.0])
def test_effort_and_power_of_a_motor(kind: str, rate: float) -> None:
    """A rod turned at a constant rate: the motor carries the weight, m g L/2 cos(angle), whichever way it turns."""
    drive = um.Drive("motor", "pin" if kind == "absolute" else PIN, lambda t: rate * t)
    if kind == "absolute":
        system = um.assemble([ROD], [PIN, drive], [um.Gravity()])
    else:
        system = um.tree([ROD], [PIN], [um.Gravity()], loops=[drive])
    start = um.problem(system, at={"pin": 2.4}, v0=np.zeros(3 if kind == "absolute" else 1), t0=2.4 / rate)
    v = um.velocity(system, {"pin": rate}, 2.4 / rate, start.q0)
    motor = um.reactions(system, 2.4 / rate, start.q0, v)["motor"]
    np.testing.assert_allclose(motor.effort, 3.0 * 9.81 * np.cos(2.4), rtol=1e-11)
    np.testing.assert_allclose(motor.power, motor.effort * rate, rtol=1e-11)
    assert um.reactions(system, 2.4 / rate, start.q0, v)["pin"].effort is None


@pytest.mark.parametrize("make", [um.assemble, um.tree])
def test_effort_in_space(make) -> None:
    """A lift that starts upwards with 2 m/s^2; and a wheel about a tilted axis spun up with 3 rad/s^2."""
    cage = um.box("cage", (0, 0, 0), (1, 1, 1), 5.0)
    guide = um.Prismatic("guide", "ground", "cage", (0, 0, 0), (0, 0, 1))
    wheel = um.disk("wheel", (0, 0, 0), 0.5, 2.0, axis=(0, 1, -1))
    hub = um.Revolute("hub", "cage", "wheel", (0, 0, 0), (0, -1, 1))
    drives = [um.Drive("lift", guide, lambda t: t**2), um.Drive("spin", hub, lambda t: 1.5 * t**2)]
    if make is um.assemble:
        system = um.assemble([cage, wheel], [guide, hub, *drives], [um.Gravity()])
    else:
        system = um.tree([cage, wheel], [guide, hub], [um.Gravity()], loops=drives)
    found = um.reactions(system, 0.0, system.q0, np.zeros(12 if make is um.assemble else 2))
    np.testing.assert_allclose(found["lift"].effort, 7.0 * (9.81 + 2.0), rtol=1e-11)
    np.testing.assert_allclose(found["spin"].effort, 0.5 * 2.0 * 0.5**2 * 3.0, rtol=1e-11)


def test_further_constraints_are_rows_like_any() -> None:
    """A bead on the parabola y = x^2, by a function of the coordinates and by a guide."""
    bead = um.PointMass("bead", 2.0, (1.0, 1.0))
    wire = uk.Holonomic(lambda t, q: q[0] ** 2 - q[1], name="wire")
    own = um.assemble([bead], [], [um.Gravity()], constraints=[wire])
    guided = um.assemble(
        [bead], [um.Guide("wire", "ground", "bead", (1, 1), lambda x: x[0] ** 2 - x[1])], [um.Gravity()]
    )
    v = jnp.asarray([0.5, 1.0])
    a, b = (uk.UdwadiaKalaba().acceleration(x, 0.0, x.q0, v) for x in (own, guided))
    np.testing.assert_allclose(a.a, b.a, rtol=1e-13)
    # x'' (1 + 4 x^2) + 4 x x'^2 + 2 g x = 0
    np.testing.assert_allclose(a.a[0], -(4 * 0.25 + 2 * 9.81) / 5, rtol=1e-13)
    assert uk.constraint_rows(own, 0.0, own.q0, v).names == ("wire",)


def accelerate(*loads, joints=(PIN,)):
    system = um.assemble([ROD], joints, loads)
    return uk.UdwadiaKalaba().acceleration(system, 0.0, system.q0, jnp.zeros(3))


END = um.PathMotion("path", "ground", "rod", (2.0, 0.0), lambda t: (t, t, t))
BAD = {
    "force": (
        lambda: accelerate(um.Force("push", "rod", (2, 0), lambda t, x, v: (0, 0, 1))),
        "force 'push' returned shape (3,); it must return shape (2,).",
    ),
    "force of no numbers": (
        lambda: accelerate(um.Force("push", "rod", (2, 0), lambda t, x, v: "up")),
        "what force 'push' returns must be an array of numbers",
    ),
    "force of time alone": (
        lambda: um.Force("push", "rod", (2, 0), lambda t: (0, 1)),
        "force 'push' must be a function of (t, x, v); this one takes (t)",
    ),
    "torque": (
        lambda: accelerate(um.Torque("twist", "rod", lambda t, turned, omega: (0, 0, 1))),
        "torque 'twist' returned shape (3,); it must return a scalar.",
    ),
    "actuator": (
        lambda: accelerate(um.Actuator("motor", PIN, lambda t, s, rate: jnp.ones(1))),
        "the drive of actuator 'motor' returned shape (1,); it must return a scalar.",
    ),
    "path": (lambda: accelerate(joints=[END]), "the path of joint 'path' returned shape (3,)"),
    "path of nothing": (
        lambda: um.PathMotion("path", "ground", "rod", (2, 0), lambda: (0, 0)),
        "the path of joint 'path' must be a function of (t)",
    ),
    "drive": (
        lambda: accelerate(joints=[PIN, um.Drive("motor", PIN, lambda t: jnp.ones(2))]),
        "the motion of drive 'motor' returned shape (2,); it must return a scalar.",
    ),
    "a number to drive by": (
        lambda: um.Drive("motor", PIN, 3.0),
        "the motion of drive 'motor' must be a function of (t), got 3.0.",
    ),
    "length": (
        lambda: accelerate(joints=[um.Distance("rope", "ground", "rod", (0, 1), (2, 0), lambda t: (t, t))]),
        "the length of joint 'rope' returned shape (2,); it must return a scalar.",
    ),
    "constraints": (
        lambda: um.assemble([ROD], [PIN], constraints=lambda t, q: q[0]),
        "constraints must be a tuple of Holonomic(fn)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_line(name: str) -> None:
    build, words = BAD[name]
    with pytest.raises(uk.InputError) as error:
        build()
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_reactions_of_another_mechanism() -> None:
    one, two = (um.assemble([ROD], [um.Revolute(x, "ground", "rod", (0, 0))]) for x in ("pin", "hinge"))
    run = uk.simulate(um.problem(one, v0=np.zeros(3), t1=0.1), ts=2)
    assert set(um.reactions(one, run)) == {"pin"}
    with pytest.raises(
        uk.InputError, match=r"not one of this mechanism: .* rows pin\[0\], pin\[1\]; here are 3"
    ):
        um.reactions(two, run)
    with pytest.raises(uk.InputError, match=r"it has 3 coordinates .* here are 1 and \(none\)"):
        um.reactions(um.tree([ROD], [PIN]), run)
