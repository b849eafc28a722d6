"""Pinocchio on the benchmark mechanisms: constraint dynamics with Baumgarte's correction, from C++ and from Python."""

import functools
import importlib
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from _peer_cases import Batch, Case, Single, error, member_steps, steps_of
from _peer_mechanisms import GROUND, Mechanism, Spring
from _pinocchio_cpp import CompiledRobot, load_library

Array = np.ndarray


def _spatial(pin: Any, point: tuple[float, float]) -> Any:
    return pin.SE3(np.eye(3), np.array([*point, 0.0]))


def _tree(mechanism: Mechanism, pin: Any) -> Any:
    """Hinges about z; body i moves with joint i + 1."""
    model = pin.Model()
    model.gravity.linear = np.array([0.0, -mechanism.gravity, 0.0])
    for i, body in enumerate(mechanism.bodies):
        model.addJoint(body.parent + 1, pin.JointModelRZ(), _spatial(pin, body.pivot), f"hinge {i}")
        centre, moments = np.array([*body.centre, 0.0]), np.diag([body.inertia] * 3)
        model.appendBodyToJoint(i + 1, pin.Inertia(body.mass, centre, moments), pin.SE3.Identity())
    return model


def pull(spring: Spring, pivot: tuple[float, float], angle: float) -> float:
    """The moment of a spring about the hinge of its body, which is on the ground [N m]."""
    c, s = math.cos(angle), math.sin(angle)
    x, y = c * spring.point[0] - s * spring.point[1], s * spring.point[0] + c * spring.point[1]
    dx, dy = spring.anchor[0] - pivot[0] - x, spring.anchor[1] - pivot[1] - y
    tension = spring.stiffness * (1.0 - spring.rest / math.hypot(dx, dy))
    return tension * (x * dy - y * dx)


def acceleration(mechanism: Mechanism, gain: float) -> Callable[[Array, Array], Array]:
    """(q, v) -> a of the hinges, by proximal constraint dynamics, for loops may be redundant.

    **Arguments:**

    - `mechanism`: its bodies and loops.
    - `gain`: Baumgarte's, critically damped [1/s].
    """
    pin: Any = importlib.import_module("pinocchio")
    model = _tree(mechanism, pin)
    loops, states = pin.StdVec_RigidConstraintModel(), pin.StdVec_RigidConstraintData()
    for x in mechanism.loops:
        places = _spatial(pin, x.point), _spatial(pin, x.other_point)
        loop = pin.RigidConstraintModel(
            pin.ContactType.CONTACT_3D, model, x.body + 1, places[0], x.other + 1, places[1]
        )
        loop.setBaumgarteCorrectorParameters(pin.BaumgarteCorrectorParameters(gain**2, 2 * gain))
        loops.append(loop)
        states.append(loop.createData())
    data, settings, solve = model.createData(), pin.ProximalSettings(1e-6, 1e-12, 5), pin.constraintDynamics
    pin.initConstraintDynamics(model, data, loops, states)
    tau, spring = np.zeros(model.nv), mechanism.spring
    tau[0] = mechanism.torque
    if spring is None:
        return lambda q, v: solve(model, data, q, v, tau, loops, states, settings)
    i, pivot = spring.body, mechanism.bodies[spring.body].pivot
    assert mechanism.bodies[i].parent == GROUND

    def with_spring(q: Array, v: Array) -> Array:
        tau[i] = pull(spring, pivot, q[i])
        return solve(model, data, q, v, tau, loops, states, settings)

    return with_spring


def run(accelerate: Callable[[Array, Array], Array], q: Array, v: Array, h: float, steps: int) -> Array:
    """The angles after that many steps of RK4, in place, for at 3 us an evaluation NumPy's own time counts."""
    n = q.size
    y, moved, step = np.concatenate([q, v]), np.empty(2 * n), np.empty(2 * n)
    slopes = np.empty((4, 2 * n))
    weights, stages = np.array([1.0, 2.0, 2.0, 1.0]) * (h / 6.0), (0.5 * h, 0.5 * h, h)
    moved_q, moved_v = moved[:n], moved[n:]
    rates, accelerations = [k[:n] for k in slopes], [k[n:] for k in slopes]
    add, multiply, dot = np.add, np.multiply, np.dot
    for _ in range(steps):
        moved[:] = y
        for i in range(4):
            rates[i][:] = moved_v
            accelerations[i][:] = accelerate(moved_q, moved_v)
            if i < 3:
                multiply(slopes[i], stages[i], out=step)
                add(y, step, out=moved)
        dot(weights, slopes, out=step)
        y += step
    return y[:n]


def _gain(h: float) -> float:
    """Baumgarte's, from trials: of no influence on four-bars, needed by the parallelogram, harmful to the squeezer."""
    return min(0.5 / h, 1000.0)


def singles(case: Case, quick: bool) -> Iterator[Single]:
    """The case at several steps."""
    sizes = (0.02, 5e-3) if quick else (0.04, 0.02, 0.01, 5e-3, 2e-3, 1e-3)
    for h, steps in steps_of(case, sizes):

        def make(h: float = h, steps: int = steps) -> Callable[[], Array]:
            accelerate = acceleration(case.mechanism, _gain(h))
            return lambda: run(accelerate, *case.mechanism.start, h, steps)

        yield Single("Pinocchio", f"RK4 h = {h:.3g}", make, error(case, 1), case.mechanism.drift)


def batches(case: Case, size: int) -> Iterator[Batch]:
    """One after the other, for there is no call that runs several."""
    mechanism, _ = case.moving()
    q, v = mechanism.start
    for h, _ in steps_of(case, (0.02, 1e-3)):
        steps = member_steps(size, 1.2e4)

        def make(h: float = h, steps: int = steps) -> Callable[[], list[Array]]:
            accelerate = acceleration(mechanism, _gain(h))
            return lambda: [run(accelerate, q, x * v, h, steps) for x in case.speeds(size)]

        yield Batch("Pinocchio", f"RK4 h = {h:.3g}", h, steps, make)


def _compile_mechanism(mechanism: Mechanism, gain: float, threads: int = 1) -> CompiledRobot:
    """The mechanism in C++; redundant loops need two iterations, others gain nothing by more than one."""
    pin: Any = importlib.import_module("pinocchio")
    model = _tree(mechanism, pin)
    loops = [
        (x.body + 1, _spatial(pin, x.point), x.other + 1, _spatial(pin, x.other_point))
        for x in mechanism.loops
    ]
    torques: dict[str, Any] = {"constant": mechanism.torque * (np.arange(model.nv) == 0)}
    if mechanism.spring is not None:
        spring, pivot = mechanism.spring, mechanism.bodies[mechanism.spring.body].pivot
        anchor = np.subtract(spring.anchor, pivot)
        torques["spring"] = [spring.body, *anchor, *spring.point, spring.stiffness, spring.rest]
    redundant = 2 * len(loops) >= len(mechanism.bodies) and mechanism.spring is None
    return CompiledRobot(model, loops, gain, 2 if redundant else 1, threads, **torques)


def cpp_singles(case: Case, quick: bool) -> Iterator[Single]:
    """From C++: RK4 at several steps, and pairs with error control, whose gains are what trials found to work."""
    if load_library() is None:
        return
    start = np.concatenate(case.mechanism.start)[None]
    sizes, tolerances = (
        ((0.02, 5e-3), (1e-6,)) if quick else ((0.04, 0.02, 0.01, 5e-3, 2e-3), (1e-4, 1e-6, 1e-8, 1e-10))
    )
    ways = [(4, "RK4 h =", h, _gain(h)) for h, _ in steps_of(case, sizes)]
    gains = (20.0, 100.0) if case.scale == 1.0 else (100.0, 1000.0)
    for gain, (order, name), size in itertools.product(gains, ((5, "Dopri5"), (8, "Fehlberg78")), tolerances):
        ways.append((order, f"{name}, gain {gain:g}, tolerance", size, gain))
    for order, name, size, gain in ways:

        def make(order: int = order, size: float = size, gain: float = gain) -> Callable[[], Array]:
            robot = _compile_mechanism(case.mechanism, gain)
            return lambda: robot.run(start, case.t1, order, size)[0, : robot.nq]

        yield Single("Pinocchio C++", f"{name} {size:.3g}", make, error(case, 1), case.mechanism.drift)


def cpp_batches(case: Case, size: int) -> Iterator[Batch]:
    """RK4 from C++, on one core and with two threads on two."""
    if load_library() is None:
        return
    mechanism, _ = case.moving()
    q, v = mechanism.start
    starts = np.hstack([np.tile(q, (size, 1)), case.speeds(size)[:, None] * v])
    for (h, _), threads in itertools.product(steps_of(case, (0.02, 1e-3)), (1, 2) if size > 1 else (1,)):
        steps = member_steps(size, 2e5)

        def make(h: float = h, steps: int = steps, threads: int = threads) -> Callable[[], Array]:
            robot = _compile_mechanism(mechanism, _gain(h), threads)
            return functools.partial(robot.run, starts, steps * h, 4, h)

        yield Batch("Pinocchio C++", f"RK4 h = {h:.3g}", h, steps, make, threads)
