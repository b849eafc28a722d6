"""Tasks for policies: a cart swings its pole up, Gymnasium's hopper, half-cheetah and ant run, Cassie walks.

Floors are hard (contacts and stops of joints by impulses); the hopper has a soft one too.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from cassie_walk import Walk, cassie

import ukjax as uk


class Task(NamedTuple):
    """An environment and the number of its actions, which are within -1 and 1."""

    environment: uk.Environment | Walk
    actions: int


# --- A cart with a pole: the rod is an exact row


def cart_pole() -> Task:
    """The pole hangs at first; 5 s are to be spent upright and in the middle."""
    problem = uk.models.light_cart_pole(cart=1.0, mass=0.3, length=0.5, angle=0.0)

    def reward(t, q, v, action):
        x, y = q[1] - q[0], q[2]
        angle, rate = jnp.arctan2(x, y), (y * (v[1] - v[0]) - x * v[2]) / 0.5**2
        off = angle**2 + 0.1 * rate**2 + 0.1 * q[0] ** 2 + 0.1 * v[0] ** 2
        return 1 - 0.1 * off - 0.01 * action @ action

    def sample(key):
        x, angle = jax.random.normal(key, (2,)) * jnp.array([0.2, 0.3])
        q = jnp.stack([x, x + 0.5 * jnp.sin(angle), -0.5 * jnp.cos(angle)])
        return q, jnp.zeros(3)

    def observe(t, q, v):
        return jnp.concatenate([q[:1], (q[1:] - jnp.stack([q[0], 0 * q[0]])) / 0.5, v])

    far = lambda t, q, v: jnp.abs(q[0]) > 3.0
    push = jnp.array([[15.0], [0.0], [0.0]])
    options = {"dt": 0.025, "horizon": 200, "sample": sample, "observe": observe, "done": far}
    return Task(uk.Environment(problem, push, reward, **options), 1)


# --- Gymnasium's hopper

FOOT = 0.06  # radius of its capsule [m]
# The soft floor: stiffness [N/m], damping by the depth's rate [s/m], friction, and the slip it needs [m/s].
STIFFNESS, DAMPING, FRICTION, SLIP = 2e4, 1.0, 1.0, 0.2
STOP = 500.0  # stiffness of soft stops of joints [N m]


ASSETS = Path(gymnasium.__file__).parent / "envs/mujoco/assets"


def _specification() -> mujoco.MjSpec:
    """The file of Gymnasium, with sites at both ends of the foot."""
    spec = mujoco.MjSpec.from_file(str(ASSETS / "hopper.xml"))
    model = spec.copy().compile()
    foot = model.geom("foot_geom").id
    turned = np.zeros(9)
    mujoco.mju_quat2Mat(turned, model.geom_quat[foot])
    along = turned.reshape(3, 3)[:, 2] * model.geom_size[foot][1]
    for name, sign in (("toe", 1), ("heel", -1)):
        spec.body("foot").add_site(name=name, pos=model.geom_pos[foot] + sign * along)
    return spec


def _soft_floor(robot: uk.robots.Robot, low: jax.Array, high: jax.Array) -> Callable:
    """Forces of actuators, of springs under toe and heel with friction that grows with slip, and of soft stops."""

    def ends(q):
        places = robot.points(0.0, q)
        return jnp.stack([places[name][jnp.array([0, 2])] for name in ("toe", "heel")])

    def apply(t, q, v, action):
        (places, rates), pull = jax.jvp(ends, (q,), (v,)), jax.vjp(ends, q)[1]
        depth = FOOT - places[:, 1]
        normal = STIFFNESS * jnp.maximum(depth, 0) * jnp.maximum(1 - DAMPING * rates[:, 1], 0)
        friction = -FRICTION * normal * jnp.tanh(rates[:, 0] / SLIP)
        stops = STOP * (jnp.maximum(low - q[3:], 0) - jnp.maximum(q[3:] - high, 0))
        forces = robot.apply(t, q, v, action) + pull(jnp.stack([friction, normal], axis=1))[0]
        return forces.at[3:].add(stops)

    return apply


def hopper(floor: str = "hard", substeps: int = 8) -> Task:
    """Gymnasium's hopper, 8 s; contacts and stops by impulses ("hard") or by springs ("soft", in so many substeps).

    The reward is smooth, after Xu et al. 2022: speed, height and an upright trunk.
    """
    spec = _specification()
    if floor == "hard":
        robot = uk.load(spec, contact=["ground", "limits"])
        apply, substeps = robot.apply, 4
    else:
        robot = uk.load(spec)
        ranges = [spec.joint(name).range for name in ("thigh_joint", "leg_joint", "foot_joint")]
        apply = _soft_floor(robot, *np.radians(np.transpose(ranges)))

    def reward(t, q, v, action):
        low = jnp.maximum(1.05 - (1.25 + q[1]), 0)
        return v[0] + 1 - (q[2] / 0.5) ** 2 - 20 * low**2 - 0.05 * action @ action

    def sample(key):
        one, two = jax.random.split(key)
        q = robot.problem.q0 + 0.02 * jax.random.normal(one, (6,))
        return q.at[1].add(0.05), 0.05 * jax.random.normal(two, (6,))

    observe = lambda t, q, v: jnp.concatenate([q[1:], v])
    fallen = lambda t, q, v: (1.25 + q[1] < 0.7) | (jnp.abs(q[2]) > 0.8)
    options = {"dt": 0.016, "horizon": 500, "sample": sample, "observe": observe, "done": fallen}
    return Task(uk.Environment(robot.problem, apply, reward, substeps=substeps, **options), 3)


# --- Gymnasium's half-cheetah and ant, with its rewards, starts and steps of 50 ms, for 10 s


def half_cheetah() -> Task:
    """All its parts may touch the floor."""
    robot = uk.load(str(ASSETS / "half_cheetah.xml"), contact=["ground", "limits"])

    def reward(t, q, v, action):
        return v[0] - 0.1 * action @ action

    def sample(key):
        one, two = jax.random.split(key)
        q = robot.problem.q0 + jax.random.uniform(one, (9,), minval=-0.1, maxval=0.1)
        return q, 0.1 * jax.random.normal(two, (9,))

    observe = lambda t, q, v: jnp.concatenate([q[1:], v])
    options = {"dt": 0.05, "horizon": 200, "sample": sample, "observe": observe, "substeps": 10}
    return Task(uk.Environment(robot.problem, robot.apply, reward, **options), 6)


def ant() -> Task:
    """Its four feet touch the floor; an episode ends before anything else does, but for the hips of one that tilts."""
    spec = mujoco.MjSpec.from_file(str(ASSETS / "ant.xml"))
    feet = [(f"{leg}_ankle_geom", "floor") for leg in ("left", "right", "third", "fourth")]
    robot = uk.load(spec, contact=[*feet, "limits"])
    start = spec.numeric("init_qpos").data
    q0 = jnp.asarray(robot.state_from_mujoco(np.array(start), np.zeros(14))[0])

    def reward(t, q, v, action):
        return v[0] + 1 - 0.5 * action @ action

    def sample(key):
        one, two = jax.random.split(key)
        q = q0 + jax.random.uniform(one, (15,), minval=-0.1, maxval=0.1)
        return q, 0.1 * jax.random.normal(two, (14,))

    height = lambda q: 0.75 + q[2]
    observe = lambda t, q, v: jnp.concatenate([height(q)[None], q[3:], v])
    fallen = lambda t, q, v: (height(q) < 0.2) | (height(q) > 1.0)
    options = {"dt": 0.05, "horizon": 200, "sample": sample, "observe": observe, "done": fallen}
    return Task(uk.Environment(robot.problem, robot.apply, reward, substeps=5, **options), 8)


TASKS: dict[str, Callable[[], Task]] = {
    "cart-pole": cart_pole,
    "hopper": hopper,
    "soft hopper": lambda: hopper("soft"),
    "half-cheetah": half_cheetah,
    "ant": ant,
    "Cassie": lambda: Task(*cassie()),
}
