"""The tests of SimBenchmark (github.com/leggedrobotics/SimBenchmark) by ukjax and by MuJoCo: errors and time of a step.

    python benchmarks/sim_benchmark.py [CASE ...] [--steps 0.01 0.001] [--balls 8] [--anymal robot.urdf]
    python benchmarks/sim_benchmark.py --growth 8 16 27
    python benchmarks/sim_benchmark.py --derivatives

Each case is a function whose docstring has its closed form. Both programs read the same model, in one process and in
turn, and the same functions judge 41 states that each saves. MuJoCo has those of `SETTINGS` with the least error. Times
are processor time a step, ours the least of three runs of optimized code; of `contact="events"`, or of adaptive steps
where nothing touches, that of the whole run. Depths are those that MuJoCo finds in the saved states.

`--balls` is how many balls of 666 fall (there 6 x 6 x 6 = 216), `--growth` measures how that grows. `--anymal` is
SimBenchmark's `res/benchmark/ANYmal-PD-benchmark/ode-rai-dart/robot.urdf`; without it cases of ANYmal are left out.
`--derivatives` compares derivatives of steps with closed forms and with differences of steps.
"""

import argparse
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import _one_thread as _one_thread
import diffrax as dfx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import scipy.special
from _timing import machine
from scipy.integrate import solve_ivp

import ukjax as uk
import ukjax.mechanisms as um

G = 9.81
SAVED = 41
ANYMAL = (0.03, 0.4, -0.8, -0.03, 0.4, -0.8, 0.03, -0.4, 0.8, -0.03, -0.4, 0.8)
Errors = Callable[[np.ndarray, np.ndarray, np.ndarray], dict[str, float]]


@dataclass(frozen=True)
class Case:
    """A model for both programs, how long it moves, and errors of times, places and velocities in MuJoCo's order."""

    model: mujoco.MjModel
    seconds: float
    errors: Errors
    settings: tuple[str, ...]
    ctrl: Any = None
    restitution: float = 0.0
    events: bool = False
    touches: bool = True


# --- The two programs


RK4 = {"integrator": int(mujoco.mjtIntegrator.mjINT_RK4)}
ELASTIC = {  # springs without dampers that turn by so much in a step [rad]
    f"elastic {turn}{name}": (lambda step, turn=turn: (-((turn / step) ** 2), 0), options)
    for turn in (0.1, 0.3, 1.0)
    for name, options in (("", {}), (", RK4", RK4))
}
# `solref` of all geoms by the step, and options. Hard ones are as stiff as a step allows.
SETTINGS: dict[str, tuple[Callable[[float], tuple[float, float]] | None, dict[str, Any]]] = {
    f"{name}{also}": (solref, options)
    for name, solref in (("default", None), ("hard", lambda step: (2 * step, 1)))
    for also, options in (
        ("", {}),
        (", RK4", RK4),
        (", impratio 100", {"impratio": 100}),
        (", no slip", {"noslip_iterations": 20}),
    )
} | ELASTIC
SOFT = tuple(x for x in SETTINGS if x.endswith(("default", "hard", ", RK4")) and x not in ELASTIC)
ROUGH = tuple(x for x in SETTINGS if x not in ELASTIC and "RK4" not in x)


def by_mujoco(
    case: Case, setting: str, step: float, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Places and velocities at the saved times, and the processor time of a step."""
    model = copy.copy(case.model)
    solref, options = SETTINGS[setting]
    if solref:
        model.geom_solref[:], model.geom_solimp[:, :2] = solref(step), 0.99999
    for name, value in {"timestep": step, **options}.items():
        setattr(model.opt, name, value)
    data = mujoco.MjData(model)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    if model.nu:
        data.ctrl[:] = case.ctrl
    qpos, qvel, spent = [data.qpos.copy()], [data.qvel.copy()], 0.0
    each = round((times[1] - times[0]) / step)
    for _ in times[1:]:
        began = time.process_time()
        mujoco.mj_step(model, data, nstep=each)
        spent += time.process_time() - began
        qpos.append(data.qpos.copy())
        qvel.append(data.qvel.copy())
    return np.array(qpos), np.array(qvel), spent / each / (len(times) - 1)


@dataclass
class Ours:
    """A case as ukjax reads it."""

    case: Case

    def __post_init__(self) -> None:
        began = time.process_time()
        self.robot = uk.load(
            self.case.model,
            contact=self.case.touches,
            restitution=self.case.restitution if self.case.touches else None,
            ctrl=self.case.ctrl,
            t1=self.case.seconds,
        )
        self.load = time.process_time() - began

    def run(self, times: np.ndarray, **options: Any) -> tuple[np.ndarray, np.ndarray, float, float]:
        """Places and velocities, and the processor time of a first run and the least of three of optimized code."""
        seconds = []
        for _ in range(4):
            began = time.process_time()
            run = uk.simulate(self.robot.problem, ts=times, **options)
            jax.block_until_ready(run.q)
            seconds.append(time.process_time() - began)
            uk.optimize_now()
        states = [self.robot.state_to_mujoco(q, v) for q, v in zip(run.q, run.v, strict=True)]
        qpos, qvel = (np.array(x) for x in zip(*states, strict=True))
        return qpos, qvel, seconds[0], min(seconds[1:])


def watch(model: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, float]:
    """The energy of each state, and the largest depth of any contact in all of them."""
    data, energies, deepest = mujoco.MjData(model), [], 0.0
    for q, v in zip(qpos, qvel, strict=True):
        data.qpos[:], data.qvel[:] = q, v
        mujoco.mj_forward(model, data)
        mujoco.mj_energyPos(model, data)
        mujoco.mj_energyVel(model, data)
        energies.append(data.energy.sum())
        deepest = max(deepest, -min(data.contact.dist, default=0.0))
    return np.array(energies), deepest


# --- Cases


def _model(body: str, option: str = "", more: str = "") -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(
        f'<mujoco><option gravity="0 0 {-G}" cone="elliptic" {option}/><worldbody>{body}</worldbody>{more}</mujoco>'
    )


FLOOR = '<geom name="floor" type="plane" size="50 50 1" friction="{mu}" contype="0" conaffinity="3"/>'


def _rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


def rolling(side: int = 3) -> Case:
    """Balls of m = 1 kg stand on a box of M = 10 kg, which F = 150 N draws in the direction of 60 deg (there 25 balls).

    With n balls that roll, (M + 2/7 n m) a = F - mu (M + n m) g of the box, and 2/7 a of each ball, mu = 0.4.
    """
    mu, mass, F, count = 0.4, 10.0, 150.0, side**2
    F *= (mass + count) / 35.0  # as far above the friction as there
    along = np.array([0.5, np.sqrt(0.75)])
    shapes = f"""<default><default class="box"><geom type="box" size="10 10 .5" mass="{mass}" friction="{mu}"/></default>
      <default class="ball"><geom type="sphere" size=".5" mass="1" friction=".8"/></default></default>"""
    box = '<body pos="0 0 .5"><freejoint name="box"/><geom class="box" contype="1" conaffinity="4"/></body>'
    ball = '<body pos="{} {} 1.5"><freejoint/><geom class="ball" contype="4" conaffinity="0"/></body>'
    places = 2.0 * (np.arange(side) - (side - 1) / 2)
    balls = "".join(ball.format(x, y) for x in places for y in places)
    pull = f'<actuator><motor joint="box" gear="{F * along[0]} {F * along[1]} 0 0 0 0"/></actuator>'
    model = _model(FLOOR.format(mu=mu) + box + balls, more=shapes + pull)
    a = (F - mu * (mass + count) * G) / (mass + 2 / 7 * count)

    def errors(t: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> dict[str, float]:
        v = qvel.reshape(len(t), -1, 6)[:, :, :3]
        expected = t[:, None, None] * a * np.array([*along, 0.0]) * np.array([1, *[2 / 7] * count])[:, None]
        return {"velocity [m/s]": _rms(np.linalg.norm(v - expected, axis=2))}

    return Case(model, 4.0, errors, ROUGH, ctrl=[1.0])


def cone() -> Case:
    """A box that slides in the direction of 30 deg with v = 3 m/s.

    It stops after v / (mu g) at v^2 / (2 mu g), in a straight line, without turning.
    """
    mu, v = 0.4, 3.0
    along = np.array([np.sqrt(0.75), 0.5])
    box = '<body pos="0 0 .1"><freejoint/><geom type="box" size=".2 .3 .1" mass="2" friction=".4"/></body>'
    key = f'<keyframe><key qvel="{v * along[0]} {v * along[1]} 0 0 0 0"/></keyframe>'
    model = _model(FLOOR.format(mu=mu) + box, more=key)

    def errors(t: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> dict[str, float]:
        s = np.minimum(t, v / (mu * G))
        expected = (v * s - mu * G * s**2 / 2)[:, None] * along
        return {"place [m]": _rms(np.linalg.norm(qpos[:, :2] - expected, axis=1))}

    return Case(model, 2.0, errors, ROUGH, events=True)


def bouncing() -> Case:
    """A ball of 10 kg and R = 0.1 m falls from 5 m without any loss (there 49 that do not meet).

    With T = sqrt(2 (5 - R) / g) and s = (t + T) mod 2 T - T its height is 5 - g s^2 / 2, its energy m g 5.
    """
    ball = '<body pos="0 0 5"><freejoint/><geom type="sphere" size=".1" mass="10" friction="0"/></body>'
    model = _model(FLOOR.format(mu=0) + ball)

    def errors(t: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> dict[str, float]:
        fall = np.sqrt(2 * 4.9 / G)
        s = (t + fall) % (2 * fall) - fall
        energies, _ = watch(model, qpos, qvel)
        return {
            "energy / m g H": _rms(energies / (10 * G * 5) - 1),
            "height [m]": _rms(qpos[:, 2] - (5 - G * s**2 / 2)),
        }

    return Case(model, 20.0, errors, tuple(ELASTIC), restitution=1.0, events=True)


def _cube(count: int, height: float) -> mujoco.MjModel:
    """The lowest balls of a cube."""
    side = int(np.ceil(count ** (1 / 3) - 1e-9))
    cells = np.argwhere(np.ones((side, side, side)))[:count, ::-1]
    at = 0.21 * cells + 0.001 * np.random.default_rng(42).uniform(size=(count, 3)) + [0, 0, height]
    ball = '<body pos="{} {} {}"><freejoint/><geom size=".1" mass="10" contype="3" friction="0"/></body>'
    return _model(FLOOR.format(mu=0) + "".join(ball.format(*x) for x in at))


def balls(count: int = 8) -> Case:
    """A cube of balls of R = 0.1 m, not quite in line, falls apart, without friction and restitution (there 6 x 6 x 6).

    Rigid balls do not overlap: |x_i - x_j| >= 2 R and z_i >= R. The depth is the error. No energy is made.
    """
    model = _cube(count, 0.101)

    def errors(t: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> dict[str, float]:
        energies, deepest = watch(model, qpos, qvel)
        return {"depth [m]": deepest, "energy gained [J]": float(max(0.0, np.max(np.diff(energies))))}

    return Case(model, 2.0, errors, SOFT)


def elastic_balls(count: int = 8) -> Case:
    """The same cube falls from 1 m, without friction and any loss: its energy stays what it was."""
    model = _cube(count, 1.101)

    def errors(t: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> dict[str, float]:
        energies, deepest = watch(model, qpos, qvel)
        return {"energy / energy": _rms(energies / energies[0] - 1), "depth [m]": deepest}

    return Case(model, 2.0, errors, tuple(ELASTIC), restitution=1.0)


def _anymal(
    file: str, height: float, ball: bool = False, servo: bool = False, gravity: float = G
) -> mujoco.MjModel:
    """ANYmal over a floor, without contacts of its links among each other."""
    spec = mujoco.MjSpec.from_file(file)
    spec.option.gravity, spec.option.cone = [0, 0, -gravity], mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.worldbody.bodies[0].add_freejoint()
    for x in spec.geoms:
        x.contype, x.conaffinity = 1, 0
    plane = {"type": mujoco.mjtGeom.mjGEOM_PLANE, "size": [0, 0, 1], "friction": [0.8, 0, 0]}
    spec.worldbody.add_geom(name="floor", **plane)
    q, v = [0.0, 0.0, height, 1.0, 0.0, 0.0, 0.0, *ANYMAL], [0.0] * 18
    if ball:
        body = spec.worldbody.add_body(name="ball", pos=[0, -5, height])
        body.add_freejoint()
        body.add_geom(size=[0.2, 0, 0], mass=10.0, contype=0)
        q, v = [*q, 0.0, -5.0, height, 1.0, 0.0, 0.0, 0.0], [*v, 0.0, 5.0, 0.0, 0.0, 0.0, 0.0]
    if servo:
        for joint in spec.joints[1:]:
            motor = spec.add_actuator(target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            motor.set_to_position(kp=40.0, kv=1.0)
    spec.add_key(qpos=q, qvel=v)
    return spec.compile()


def standing(file: str) -> Case:
    """ANYmal falls by 5 mm or so on its feet, held by servos of 40 N m / rad and 1 N m s / rad, and stands.

    Where friction holds its feet it comes to rest: its base does not move in the last two seconds of twelve.
    """

    def errors(t: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> dict[str, float]:
        last = t > t[-1] - 2.0
        drift = np.linalg.norm(qpos[last][0, :3] - qpos[last][-1, :3])
        return {"drift of the base [m]": float(drift)}

    return Case(_anymal(file, 0.545, servo=True), 12.0, errors, ROUGH, ctrl=ANYMAL)


def falling(file: str) -> Case:
    """ANYmal falls without servos, on all its links: no depth, and no energy is made."""
    model = _anymal(file, 0.7)

    def errors(t: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> dict[str, float]:
        energies, deepest = watch(model, qpos, qvel)
        return {"depth [m]": deepest, "energy gained [J]": float(max(0.0, np.max(np.diff(energies))))}

    return Case(model, 2.0, errors, SOFT)


def momentum(file: str) -> Case:
    """A ball of 10 kg strikes ANYmal with 5 m/s, without gravity: momentum stays (0, 50, 0) kg m/s.

    So does the moment of momentum about where the ball started.
    """
    model = _anymal(file, 2.0, ball=True, gravity=0.0)

    def errors(t: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> dict[str, float]:
        data, found, turn = mujoco.MjData(model), [], []
        for q, v in zip(qpos, qvel, strict=True):
            data.qpos[:], data.qvel[:] = q, v
            mujoco.mj_forward(model, data)
            mujoco.mj_subtreeVel(model, data)
            found.append(data.subtree_linvel[0] * model.body_subtreemass[0])
            turn.append(data.subtree_angmom[0] + np.cross(data.subtree_com[0], found[-1]))
        return {
            "momentum [kg m/s]": _rms(np.linalg.norm(np.array(found) - [0, 50, 0], axis=1)),
            "its moment [kg m2/s]": _rms(np.linalg.norm(np.array(turn) - turn[0], axis=1)),
        }

    return Case(model, 2.0, errors, SOFT)


def energy(file: str) -> Case:
    """ANYmal is thrown up with 9.81 m/s, its joints turning by 1 rad/s, touches nothing and falls for 2 s.

    Its energy stays what it was, and its centre of mass is on a parabola.
    """
    model = _anymal(file, 2.0)
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    model.key_qvel[0] = [0, 0, 9.81, 0, 0, 0, *np.resize([1.0, -1.0], 12)]

    def errors(t: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> dict[str, float]:
        data, places, speeds = mujoco.MjData(model), [], []
        for q, v in zip(qpos, qvel, strict=True):
            data.qpos[:], data.qvel[:] = q, v
            mujoco.mj_forward(model, data)
            mujoco.mj_subtreeVel(model, data)
            places.append(data.subtree_com[0].copy())
            speeds.append(data.subtree_linvel[0].copy())
        expected = places[0] + t[:, None] * speeds[0] - t[:, None] ** 2 / 2 * np.array([0, 0, G])
        energies, _ = watch(model, qpos, qvel)
        return {
            "energy [J]": _rms(energies - energies[0]),
            "centre of mass [m]": _rms(np.linalg.norm(places - expected, axis=1)),
        }

    return Case(model, 2.0, errors, ("default", "default, RK4"), touches=False)


# --- Derivatives of steps


def slides(mu: float, v: float) -> float:
    """Where a block stops that slides on its face with v: v^2 / (2 mu g)."""
    return v**2 / (2 * mu * G)


def tips(mu: float, rate: float, t: float = 0.3) -> float:
    """The place of a block, 0.2 m wide and 0.4 m high, that tips over its lower edge, which sticks.

    With phi between the vertical and r from the edge to the centre, phi'' = w^2 sin(phi), w^2 = m g r / I: a pendulum
    that turns over, so that (phi + pi) / 2 is the amplitude am(F(psi / 2 | k^2) + t sqrt((E + w^2) / 2) | k^2), with
    psi = phi(0) + pi, E = rate^2 / 2 - w^2 cos(psi), k^2 = 2 w^2 / (E + w^2).
    """
    b, h = 0.2, 0.4
    r = np.hypot(b, h) / 2
    square = G * r / ((b**2 + h**2) / 12 + r**2)
    psi = np.pi - np.arctan2(b, h)
    E = rate**2 / 2 - square * np.cos(psi)
    m = 2 * square / (E + square)
    amplitude = scipy.special.ellipj(scipy.special.ellipkinc(psi / 2, m) + t * np.sqrt((E + square) / 2), m)[
        3
    ]
    return b / 2 - r * np.sin(2 * amplitude)


def rolls(mu: float, rate: float, t: float = 0.5) -> float:
    """The place of an ellipsoid that rolls about its middle axis, y, from its lowest position on.

    At an angle s its centre is at h(s) = sqrt(a^2 sin(s)^2 + c^2 cos(s)^2) and h'(s) behind the contact, so energy gives
    (I + m (h^2 + h'^2)) s'^2 / 2 + m g h = const, and it moves by x' = h s'.
    """
    a, _, c = EGG
    inertia = (a**2 + c**2) / 5

    def rates(t: float, y: np.ndarray) -> list[float]:
        h = np.hypot(a * np.sin(y[0]), c * np.cos(y[0]))
        slope = (a**2 - c**2) * np.sin(y[0]) * np.cos(y[0]) / h
        square = (inertia + c**2) * rate**2 + 2 * G * (c - h)
        turn = np.sqrt(square / (inertia + h**2 + slope**2))
        return [turn, h * turn]

    return solve_ivp(rates, (0, t), [0, 0], rtol=1e-12, atol=1e-13, method="DOP853").y[1, -1]


EGG = (0.12, 0.11, 0.1)
BLOCK = [(x, y, z) for x in (-0.1, 0.1) for y in (-0.15, 0.15) for z in (0.0, 0.4)]


def _egg() -> tuple[um.AbstractBody, um.Ellipsoid]:
    a, b, c = EGG
    inertia = np.array([b**2 + c**2, a**2 + c**2, a**2 + b**2]) / 5
    return um.Body("egg", 1.0, (0, 0, c), inertia), um.Ellipsoid("egg", (0, 0, c), EGG)


def _block() -> tuple[um.AbstractBody, um.ConvexHull]:
    return um.box("block", (0, 0, 0.2), (0.2, 0.3, 0.4), mass=1.0), um.ConvexHull("block", BLOCK)


# Body and shape, mu and speed at the start, what this speed is of all velocities, the end, and the closed form.
MOTIONS = {
    "a hull slides": (_block, (0.3, 2.0), (1, 0, 0, 0, 0, 0), 1.0, slides),
    "a hull tips": (_block, (2.0, 3.0), (0.2, 0, 0.1, 0, 1, 0), 0.3, tips),
    "an ellipsoid rolls": (_egg, (1.0, 8.0), (EGG[2], 0, 0, 0, 1, 0), 0.5, rolls),
}


def derivatives(name: str, step: float) -> str:
    """A row of the table."""
    parts, p, along, t1, closed = MOTIONS[name]
    body, shape = parts()

    def place(p: jax.Array) -> jax.Array:
        ground = um.HalfSpace("ground", (0.0, 0.0, 0.0))
        contact = um.Contact(shape, ground, friction=p[0])
        system = um.assemble([body], loads=[um.Gravity()], contacts=[contact])
        problem = um.problem(system, v0=p[1] * jnp.array(along, float), t1=t1)
        return uk.simulate(problem, contact="differentiated steps", dt0=step, ts=[t1]).q_end[0]

    apart = 1e-6 * np.eye(2)
    change = lambda f: np.array([float(f(p + d) - f(p - d)) for d in apart]) / 2e-6
    exact, slope = closed(*p), change(lambda p: closed(*p))
    found = np.array(jax.jacfwd(place)(jnp.array(p)))
    differences = change(lambda p: place(jnp.asarray(p)))
    words = [f"{place(jnp.array(p)) - exact:.0e}", *(f"{x:.5f}" for x in slope), *(f"{x:.5f}" for x in found)]
    return (
        f"| {name} | {1e3 * step:g} | "
        + " | ".join([*words, f"{np.max(np.abs(differences - found)):.0e}"])
        + " |"
    )


# --- Tables


ALONE = {"rolling": rolling, "cone": cone, "bouncing": bouncing}
COUNTED = {"balls": balls, "elastic balls": elastic_balls}
OF_ANYMAL = {"standing": standing, "falling": falling, "momentum": momentum, "energy": energy}


def measure(name: str, case: Case, steps: list[float]) -> None:
    """Prints rows: each error of a case at each step."""
    times, ours = np.linspace(0.0, case.seconds, SAVED), Ours(case)
    for step in steps:
        options: dict[str, Any] = {"contact": "steps"}
        if not case.touches:
            options = {"solver": dfx.Tsit5(), "stepsize_controller": dfx.ConstantStepSize()}
        qpos, qvel, _, seconds = ours.run(times, dt0=step, **options)
        ours_found = case.errors(times, qpos, qvel)
        best: tuple[Any, ...] = (np.inf,)
        for setting in case.settings:
            *states, spent = by_mujoco(case, setting, step, times)
            found = case.errors(times, *states)
            best = min(best, (next(iter(found.values())), setting, found, spent), key=lambda x: x[0])
        _, setting, theirs, spent = best
        for error, value in ours_found.items():
            took = f"{1e6 * seconds * step / case.seconds:.1f} | {1e6 * spent:.1f}"
            row = f"| {name} | {error} | {1e3 * step:g} | {value:.0e} | {theirs[error]:.0e} | {took} | {setting} |"
            print(row, flush=True)
    if case.events or not case.touches:
        qpos, qvel, _, seconds = ours.run(times)
        for error, value in case.errors(times, qpos, qvel).items():
            kind = "events" if case.touches else "adaptive"
            print(
                f"| {name} | {error} | {kind} | {value:.0e} | | {1e3 * seconds:.1f} ms in all | | |",
                flush=True,
            )


def grow(count: int, step: float = 1e-3) -> str:
    """A row of the table: what so many balls of 666 cost."""
    case = balls(count)
    times, ours = np.linspace(0.0, case.seconds, SAVED), Ours(case)
    qpos, qvel, first, second = ours.run(times, contact="steps", dt0=step)
    *states, spent = by_mujoco(case, "hard", step, times)
    depths = case.errors(times, qpos, qvel)["depth [m]"], case.errors(times, *states)["depth [m]"]
    took = f"{ours.load:.1f} | {first:.1f} | {1e6 * second * step / case.seconds:.0f} | {1e6 * spent:.0f}"
    return f"| {count} | {count * (count + 1) // 2} | {took} | {depths[0]:.0e} | {depths[1]:.0e} |"


def main() -> None:
    """Prints a table."""
    summary = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=summary)
    cases = [*ALONE, *COUNTED, *OF_ANYMAL]
    parser.add_argument("only", nargs="*", metavar="CASE", help=f"by default all: {', '.join(cases)}")
    parser.add_argument("--steps", type=float, nargs="+", default=[0.01, 0.001], help="[s]")
    parser.add_argument("--balls", type=int, default=8, help="how many, in cases of balls")
    parser.add_argument("--anymal", help="robot.urdf of SimBenchmark")
    parser.add_argument("--growth", type=int, nargs="+", help="numbers of balls, in place of cases")
    parser.add_argument("--derivatives", action="store_true", help=f"in place of cases: {', '.join(MOTIONS)}")
    given = parser.parse_args()
    known = [*MOTIONS] if given.derivatives else cases
    if unknown := set(given.only) - set(known):
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(known)}")
    only = given.only or known
    jax.config.update("jax_enable_x64", True)
    print(f"{machine()}, MuJoCo {mujoco.__version__}\n")
    if given.growth:
        print(
            "| balls | contacts | load [s] | first run [s] | step [us] | MuJoCo [us] | depth [m] | MuJoCo [m] |"
        )
        print("|---" * 8 + "|")
        for count in given.growth:
            print(grow(count), flush=True)
    elif given.derivatives:
        print(
            "| motion | step [ms] | error [m] | d/d mu | d/d v | of steps, d/d mu | d/d v | less differences |"
        )
        print("|---" * 8 + "|")
        for name in only:
            for step in given.steps:
                print(derivatives(name, step), flush=True)
    else:
        print("| case | error | step [ms] | ukjax | MuJoCo | ukjax [us] | MuJoCo [us] | MuJoCo's settings |")
        print("|---" * 8 + "|")
        for name in only:
            if name in ALONE:
                measure(name, ALONE[name](), given.steps)
            elif name in COUNTED:
                measure(name, COUNTED[name](given.balls), given.steps)
            elif given.anymal:
                measure(name, OF_ANYMAL[name](given.anymal), given.steps)
            else:
                print(f"| {name} | left out: it needs --anymal | | | | | | |")


if __name__ == "__main__":
    main()
