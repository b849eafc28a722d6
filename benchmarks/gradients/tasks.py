"""The tasks: each a file (MJCF), a start, what is differentiated, and the Jacobian by something that is no simulator.

The start is (qpos, qvel), which moves with a few parameters p: (qpos + dqpos p, qvel + dqvel p). What is differentiated
by p, at p = 0, are some entries of (qpos, qvel) at the end of a run. References: closed forms where there are; else
variational equations by SciPy's DOP853 at 1e-13 in the fewest coordinates; for the robots MuJoCo's terms with exact
loops (tests/mujoco_reference.py), differenced.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

try:
    import jax
    import jax.numpy as jnp
except ImportError:  # in the interpreter of an engine without it: references are computed by that of run.py
    pass

G, ROOT = 9.81, Path(__file__).parents[2]
STIFFNESS = 1e5  # of contacts that have springs [N/m per kg]
STEPS = 1000  # a second, of engines that take steps


class Balls(NamedTuple):
    """Balls of 1 kg in the plane x, z: places and velocities at the start, all contacts without friction.

    - `radius`, `e`, `gravity`: of the balls, of all impacts, downwards.
    - `floor`, `wall`: whether there is a floor z = 0, and where a wall is, if there is one.
    - `force`: on the first ball.
    """

    start: tuple[float, ...]
    radius: float
    e: float
    gravity: float
    floor: bool = False
    wall: float | None = None
    force: tuple[float, float] = (0.0, 0.0)

    @property
    def number(self) -> int:
        return len(self.start) // 4


class Task(NamedTuple):
    """What an engine needs: `mjcf` (TIMESTEP stands for the step), the start, `rows` of (qpos, qvel); e of impacts.

    `exact(end)` is the Jacobian; `ends` are the lengths of runs [s]; `inputs` those of motors; `balls` says the same as
    the file to engines that read none.
    """

    mjcf: str
    qpos: np.ndarray
    qvel: np.ndarray
    dqpos: np.ndarray
    dqvel: np.ndarray
    rows: list[int]
    ends: tuple[float, ...]
    exact: Callable[[float], np.ndarray]
    e: float = 0.0
    inputs: tuple[float, ...] = ()
    balls: Balls | None = None


def file(bodies: str, gravity: str = f"0 0 {-G}", e: float = 0.0, more: str = "") -> str:
    """An MJCF, as hard as its steps allow; springs and dampers of contacts lose 1 - e of the speed."""
    log = np.log(max(e, 1e-3))
    damping = 2 * np.sqrt(STIFFNESS) * (-log / np.sqrt(np.pi**2 + log**2))
    hard = 'solimp="0.9999 0.9999 0.001"'
    return f"""<mujoco model="task"><compiler angle="radian"/>
<option timestep="TIMESTEP" gravity="{gravity}" iterations="10" ls_iterations="10"/>
<custom><numeric name="elasticity" data="{e}"/></custom>
<default><geom solref="{-STIFFNESS} {-damping}" {hard} condim="1"/><equality solref="0.002 1" {hard}/>
<joint solreffriction="0.002 1" solimpfriction="0.9999 0.9999 0.001"/></default>
<worldbody>{bodies}</worldbody>{more}</mujoco>"""


# ---- balls: parabolas, and at impacts the saltation matrix


def flight(balls: Balls, end: float) -> np.ndarray:
    """The Jacobian of the places by the whole start: roots of polynomials, and at impacts the saltation matrix."""
    m = 2 * balls.number
    a = np.tile([0.0, -balls.gravity], balls.number)
    a[:2] += balls.force
    gaps = [lambda q: q[1] - balls.radius] if balls.floor else []
    gaps += [lambda q: balls.wall - balls.radius - q[0]] if balls.wall is not None else []
    gaps += [lambda q: jnp.sum((q[2:4] - q[:2]) ** 2) - 4 * balls.radius**2] if balls.number == 2 else []

    def strike(gap, y):
        n = jax.grad(gap)(y[:m])
        return y.at[m:].add(-(1 + balls.e) * n * (n @ y[m:]) / (n @ n))

    def fly(y, t):
        return np.concatenate([y[:m] + y[m:] * t + a * t * t / 2, y[m:] + a * t])

    y, J, left = np.array(balls.start, float), np.eye(2 * m), end
    while True:
        first = (left, None)
        for gap in gaps:
            # along a parabola a gap is a polynomial of degree 4 at most: through five points
            points = np.linspace(0.0, 1.0, 5) * left
            values = [float(gap(fly(y, t)[:m])) for t in points]
            for root in np.roots(np.polyfit(points, values, 4)):
                t = root.real
                for _ in range(4):
                    z = fly(y, t)
                    t -= float(gap(z[:m])) / float(jax.grad(gap)(z[:m]) @ z[m:])
                z = fly(y, t)
                if abs(root.imag) < 1e-6 and 1e-7 < t < first[0] and jax.grad(gap)(z[:m]) @ z[m:] < 0:
                    first = (t, gap)
        t, gap = first
        y, left = fly(y, t), left - t
        J = np.block([[np.eye(m), t * np.eye(m)], [np.zeros((m, m)), np.eye(m)]]) @ J
        if gap is None:
            return J[:m]
        D, after = (
            np.asarray(jax.jacfwd(lambda y, gap=gap: strike(gap, y))(jnp.asarray(y))),
            strike(gap, jnp.asarray(y)),
        )
        n = np.append(np.asarray(jax.grad(gap)(jnp.asarray(y[:m]))), np.zeros(m))
        rate, later = np.append(y[m:], a), np.append(np.asarray(after)[m:], a)
        J = (D + np.outer(later - D @ rate, n) / (n @ rate)) @ J
        y = np.array(after)


def of_balls(balls: Balls, *ends: float, exact: Callable | None = None) -> Task:
    bodies = '<geom type="plane" size="0 0 1"/>' if balls.floor else ""
    if balls.wall is not None:
        bodies += f'<geom type="plane" size="0 0 1" pos="{balls.wall} 0 0" zaxis="-1 0 0"/>'
    for i in range(balls.number):
        x, z = balls.start[2 * i : 2 * i + 2]  # where coordinates are zero
        bodies += f"""<body pos="{x} 0 {z}">
<joint name="x{i}" type="slide" axis="1 0 0"/><joint name="z{i}" type="slide" axis="0 0 1"/>
<geom type="sphere" size="{balls.radius}" mass="1"/></body>"""
    motors = '<actuator><motor joint="x0"/><motor joint="z0"/></actuator>' if any(balls.force) else ""
    y, m = np.array(balls.start, float), 2 * balls.number
    return Task(
        file(bodies, f"0 0 {-balls.gravity}", balls.e, motors), np.zeros(m), y[m:], *np.split(np.eye(2 * m), 2),
        [*range(m)], ends, exact or (lambda end: flight(balls, end)), balls.e, balls.force if motors else (), balls,
    )  # fmt: skip


# ---- smooth motions: variational equations by SciPy


def integrate(rate: Callable, y: list[float], end: float) -> np.ndarray:
    """d y(end) / d y(0) of y' = rate(y)."""
    from scipy.integrate import solve_ivp

    n = len(y)
    both = jax.jit(lambda y: (rate(y), jax.jacfwd(rate)(y)))

    def rates(t, z):
        f, J = both(z[:n])
        return np.append(f, np.asarray(J) @ z[n:].reshape(n, n))

    start = np.append(y, np.eye(n))
    found = solve_ivp(rates, (0.0, end), start, method="DOP853", rtol=1e-13, atol=1e-13)
    return found.y[n:, -1].reshape(n, n)


def free_body() -> Task:
    """Without forces, near the axis of the middle moment of inertia: angular velocities by angular velocities."""
    inertia, w = np.array([1.0, 2.0, 3.0]), [0.1, 2.0, 0.1]
    euler = lambda w: -jnp.cross(w, inertia * w) / inertia
    body = '<body name="body"><freejoint/><inertial pos="0 0 0" mass="1" diaginertia="1 2 3"/></body>'
    dqvel = np.concatenate([np.zeros((3, 3)), np.eye(3)])
    qvel = np.append(np.zeros(3), w)
    still = np.array([0, 0, 0, 1.0, 0, 0, 0])
    exact = lambda end: integrate(euler, w, end)
    return Task(
        file(body, "0 0 0"), still, qvel, np.zeros((7, 3)), dqvel, [10, 11, 12], (1.0, 4.0, 16.0), exact
    )


def crank_motion(places: Callable, inertias: np.ndarray, y: list[float], end: float) -> np.ndarray:
    """Of a mechanism of rods of 1 kg with one freedom, by its angle: `places(angle)` are x, y, turn of the rods."""
    slopes = jax.jacfwd(places)
    inertia = lambda x: jnp.sum(slopes(x) ** 2 * jnp.stack([1 + 0 * inertias, 1 + 0 * inertias, inertias], 1))
    height = lambda x: G * jnp.sum(places(x)[:, 1])
    rate = lambda y: jnp.stack(
        [y[1], -(jax.grad(inertia)(y[0]) * y[1] ** 2 / 2 + jax.grad(height)(y[0])) / inertia(y[0])]
    )
    return integrate(rate, y, end)


def rod(at: str, turn: float, length: float, child: str = "", name: str = "") -> str:
    i = length**2 / 12
    return f"""<body name="{name}" pos="{at}" euler="0 0 {turn}"><joint axis="0 0 1"/>
<inertial pos="{length / 2} 0 0" mass="1" diaginertia="{i} {i} {i}"/>{child}</body>"""


def four_bar() -> Task:
    """From rest; the crank's angle and rate by their start."""
    a, b, c, d, start = 0.4, 1.0, 0.8, 1.0, 1.0

    def angles(x, xp=jnp):
        """Of coupler and rocker."""
        to = xp.stack([d - a * xp.cos(x), -a * xp.sin(x)])
        length = xp.sqrt(to @ to)
        coupler = xp.arctan2(to[1], to[0]) + xp.arccos((b * b + length**2 - c * c) / (2 * b * length))
        tip = xp.stack([a * xp.cos(x) + b * xp.cos(coupler) - d, a * xp.sin(x) + b * xp.sin(coupler)])
        return coupler, xp.arctan2(tip[1], tip[0])

    def places(x):
        (u, w), cos, sin = angles(x), jnp.cos, jnp.sin
        crank = jnp.stack([a / 2 * cos(x), a / 2 * sin(x), x])
        coupler = jnp.stack([a * cos(x) + b / 2 * cos(u), a * sin(x) + b / 2 * sin(u), u])
        return jnp.stack([crank, coupler, jnp.stack([d + c / 2 * cos(w), c / 2 * sin(w), w])])

    u, w = angles(start, np)
    turns = np.linalg.solve(
        [[-b * np.sin(u), c * np.sin(w)], [b * np.cos(u), -c * np.cos(w)]],
        [a * np.sin(start), -a * np.cos(start)],
    )
    along = np.array([1.0, turns[0] - 1, turns[1]])  # joints' angles by the crank's
    bodies = rod("0 0 0", start, a, rod(f"{a} 0 0", u - start, b, name="coupler")) + rod(
        f"{d} 0 0", w, c, name="rocker"
    )
    loop = f'<equality><connect body1="coupler" body2="rocker" anchor="{b} 0 0"/></equality>'
    still, zero = np.zeros(3), np.zeros((3, 1))
    along = along[:, None]
    return Task(
        file(bodies, f"0 {-G} 0", more=loop), still, still, np.hstack([along, zero]), np.hstack([zero, along]),
        [0, 3], (0.5, 1.0, 2.0), lambda end: crank_motion(places, np.array([a, b, c]) ** 2 / 12, [start, 0.0], end),
    )  # fmt: skip


def parallelogram() -> Task:
    """Three equal cranks and a coupler: one row too many in every position, and two more in the flat one it passes."""
    a, d, start, rate = 0.5, 1.0, -0.5, 4.0

    def places(x):
        tip = jnp.stack([jnp.cos(x), jnp.sin(x), 0 * x])
        turn = jnp.array([0, 0, 1.0]) * x
        cranks = [jnp.array([k * d / 2, 0, 0]) + a / 2 * tip + turn for k in range(3)]
        return jnp.stack([*cranks, jnp.array([d / 2, 0, 0]) + a * tip])

    bodies = rod("0 0 0", start, a, rod(f"{a} 0 0", -start, d, name="coupler"))
    bodies += rod(f"{d / 2} 0 0", start, a, name="middle") + rod(f"{d} 0 0", start, a, name="last")
    loops = "".join(
        f'<connect body1="coupler" body2="{x}" anchor="{at} 0 0"/>'
        for x, at in (("middle", d / 2), ("last", d))
    )
    along, zero = np.array([[1.0, -1.0, 1.0, 1.0]]).T, np.zeros((4, 1))
    return Task(
        file(bodies, f"0 {-G} 0", more=f"<equality>{loops}</equality>"), np.zeros(4), rate * along[:, 0],
        np.hstack([along, zero]), np.hstack([zero, along]), [0, 4], (0.05, 0.25, 1.0, 2.0),
        lambda end: crank_motion(places, np.array([a, a, a, d]) ** 2 / 12, [start, rate], end),
    )  # fmt: skip


# ---- friction


def roll() -> Task:
    """A ball rolls down a fixed cylinder: place by angle and rate at the start; 7/5 (R + r) angle'' = g sin(angle)."""
    R, r, angle, rate = 1.0, 0.1, 0.2, 0.3
    cos, sin = np.cos(angle), np.sin(angle)
    bodies = f"""<geom type="capsule" size="{R}" fromto="0 -1 0 0 1 0" friction="1 0 0" condim="3"/>
<body name="body" pos="{(R + r) * sin} 0 {(R + r) * cos}"><freejoint/>
<geom type="sphere" size="{r}" mass="1" friction="1 0 0" condim="3"/></body>"""
    dqpos, dqvel = np.zeros((7, 2)), np.zeros((6, 2))
    dqpos[[0, 2], 0] = (R + r) * np.array([cos, -sin])
    dqvel[[0, 2], 0] = (R + r) * rate * np.array([-sin, -cos])
    dqvel[[0, 2, 4], 1] = (R + r) * np.array([cos, -sin, 1 / r])
    qpos = np.array([(R + r) * sin, 0, (R + r) * cos, 1, 0, 0, 0])

    def exact(end):
        fall = lambda y: jnp.stack([y[1], 5 / 7 * G / (R + r) * jnp.sin(y[0])])
        from scipy.integrate import solve_ivp

        at = solve_ivp(
            lambda t, y: np.array(fall(y)), (0, end), [angle, rate], "DOP853", rtol=1e-13, atol=1e-13
        ).y[0, -1]
        return (R + r) * np.outer([np.cos(at), -np.sin(at)], integrate(fall, [angle, rate], end)[0])

    return Task(file(bodies), qpos, rate * dqvel[:, 1], dqpos, dqvel, [0, 2], (0.125, 0.25, 0.5), exact)


def slide_and_roll() -> Task:
    """A ball slides on the floor until it rolls at 2 v / (7 mu g): place by speed, 5/7 t + 4 v / (49 mu g)."""
    mu, r, v = 0.2, 0.1, 2.0
    bodies = f"""<geom type="plane" size="0 0 1" friction="{mu} 0 0" condim="3"/>
<body name="body" pos="0 0 {r}"><freejoint/>
<geom type="sphere" size="{r}" mass="1" friction="{mu} 0 0" condim="3"/></body>"""
    qpos = np.array([0, 0, r, 1, 0, 0, 0])
    right = lambda t: np.array([[5 / 7 * t + 4 * v / (49 * mu * G) if t > 2 * v / (7 * mu * G) else t]])
    along = np.eye(6)[:, :1]
    return Task(
        file(bodies), qpos, v * along[:, 0], np.zeros((7, 1)), along, [0], (0.2, 0.5, 1.0, 2.0), right
    )


def stick_slip() -> Task:
    """A block with dry friction, pulled by a spring that another block draws: its place by spring and speed at the start.

    Between events the motion is linear: matrix exponentials. Where a slip ends, its speed no longer depends on anything.
    """
    k, limit, v = 10.0, 2.0, 1.0

    def exact(end):
        from scipy.linalg import expm
        from scipy.optimize import brentq

        def mode(slip):  # of xa, s, va, vs, 1
            A = np.zeros((5, 5))
            A[0, 2] = A[1, 3] = 1.0
            A[2, [1, 4]] = (k, -slip * limit) if slip else (0.0, 0.0)
            A[3] = -A[2]
            A[3, 1] -= k
            return A

        z, J, slip, t = np.array([0.0, 0.0, 0.0, v, 1.0]), np.eye(5), 0, 0.0
        while t < end:
            A = mode(slip)
            off = lambda h, A=A, z=z, slip=slip: (
                slip * (expm(A * h) @ z)[2] if slip else limit - k * abs((expm(A * h) @ z)[1])
            )
            times = [h for h in np.arange(1e-3, end - t, 1e-3) if off(h) < 0][:1]
            h = brentq(off, times[0] - 1e-3 + 1e-9, times[0], xtol=1e-15) if times else end - t
            z, J, t = expm(A * h) @ z, expm(A * h) @ J, t + h
            if times and slip:
                J[3] += J[2]  # the other block's speed goes on
                J[2] = z[2] = 0.0
                slip = 0 if k * abs(z[1]) < limit else -slip
            elif times:
                slip = int(np.sign(z[1]))
        return J[:1, [1, 3]]

    mass = '<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>'
    bodies = f"""<body><joint type="slide" axis="1 0 0" frictionloss="{limit}"/>{mass}
<body><joint type="slide" axis="1 0 0" stiffness="{k}"/>{mass}</body></body>"""
    pick = np.array([[0, 0], [1.0, 0]]), np.array([[0, 0], [0, 1.0]])
    return Task(file(bodies, "0 0 0"), np.zeros(2), np.array([0, v]), *pick, [0], (0.5, 1.0, 2.0, 4.0), exact)


# ---- robots


def robot(name: str, ends: tuple[float, ...], moving: dict[int, float]) -> Task:
    """Without contacts and limits, from rates that its loops allow: qpos by how fast all moves."""
    import mujoco
    from scipy.integrate import solve_ivp

    sys.path.insert(0, str(ROOT / "tests"))
    import mujoco_reference as reference

    text = (ROOT / "experiments" / "robots" / f"{name}.xml").read_text()
    off = '<option timestep="TIMESTEP"><flag contact="disable" limit="disable" frictionloss="disable"/></option></mujoco>'
    text = off.join(text.rsplit("</mujoco>", 1))
    model = mujoco.MjModel.from_xml_string(text.replace("TIMESTEP", "0.001"))
    at = model.key_qpos[0] if model.nkey else model.qpos0
    qvel = np.zeros(model.nv)
    qvel[[*moving]] = [*moving.values()]
    qpos, qvel = reference.closed(model, at, qvel)

    def run(speed, end):
        """In the tangent coordinates u of MuJoCo, from the start on: qpos = start + u."""

        def rates(t, y):
            q, v = y[: model.nq].copy(), y[model.nq :]
            mujoco.mj_normalizeQuat(model, q)
            change = (reference.moved(model, q, v, 1e-4) - reference.moved(model, q, v, -1e-4)) / 2e-4
            return np.append(change, reference.acceleration(model, q, v))

        start = np.append(qpos, speed * qvel)
        return solve_ivp(rates, (0, end), start, "DOP853", rtol=1e-12, atol=1e-12).y[: model.nq, -1]

    def exact(end, h=4e-3):
        one, two = (run(1 + k * h, end) - run(1 - k * h, end) for k in (1, 2))
        return ((8 * one - two) / (12 * h))[:, None]

    return Task(text, qpos, qvel, np.zeros((model.nq, 1)), qvel[:, None], [*range(model.nq)], ends, exact)


def landed(t: float) -> np.ndarray:
    """Of a ball that has come to rest on the floor without friction: x by x and its rate, z by nothing."""
    return np.array([[1.0, 0.0, t, 0.0], [0.0, 0.0, 0.0, 0.0]])


TASKS: dict[str, Callable[[], Task]] = {
    "free body": free_body,
    "loop: four-bar": four_bar,
    "dependent rows: parallelogram, through flat positions": parallelogram,
    "rolling down a cylinder": roll,
    "event: slides until it rolls": slide_and_roll,
    "stick-slip": stick_slip,
    "impact: one bounce": lambda: of_balls(Balls((-1, 1, 2, -2), 0.1, 1.0, 0.0, floor=True), 1.0),
    "impacts: bouncing ball, e = 0.8": lambda: of_balls(
        Balls((0, 1.1, 0, 0), 0.1, 0.8, G, floor=True), 0.6, 1.3, 2.6
    ),
    "impacts: two balls on a line": lambda: of_balls(Balls((0, 0, 0.52, 0, 1, 0, 0, 0), 0.1, 1.0, 0.0), 1.0),
    "impacts: ground and wall": lambda: of_balls(
        Balls((-0.5, 1, 5, -5), 0.1, 0.92, 9.8, floor=True, wall=1.75), 0.6
    ),
    "impacts: two balls and a force": lambda: of_balls(
        Balls((-2, -2, -1, -1, 0, 0, 0, 0), 0.2, 1.0, 0.0, force=(3, 3)), 1.0
    ),
    "impacts: billiards, oblique": lambda: of_balls(
        Balls((0, 0, 0.6, 0.07, 1.5, 0, 0, 0), 0.1, 1.0, 0.0), 1.0
    ),
    "resting contact: lands, e = 0": lambda: of_balls(
        Balls((0, 0.2, 1, 0), 0.1, 0.0, G, floor=True), 0.25, 0.5, 1.0, exact=landed
    ),
    "robot: Robotiq 2F-85": lambda: robot("robotiq_2f85", (0.05, 0.1, 0.2), {0: 2.0}),
    "robot: Cassie": lambda: robot("cassie", (0.025, 0.05, 0.1), {5: 1.0, 9: -1.0, 22: 1.0}),
}
