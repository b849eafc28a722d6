"""Cassie walks at 0.5 m/s: its rods are exact loops, its feet meet the ground by steps with contact.

A law written by hand sets the swinging foot where the capture point will be at the end of the step, less an offset that
keeps up speed (Koolen et al. 2012), and holds the trunk and the length of the standing leg by PD control. Policies move
what it aims at: the foothold, the height and lean of the trunk. The task starts with random speeds, from which the law
alone falls now and then.

    python experiments/cassie_walk.py [--starts 32] [--seconds 10] [--policy "out/policies/Cassie PPO 0.eqx"]

shows how many walks end upright, and how fast they were, by the law alone or with a policy of `policies.py`.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jaxtyping import Array

import ukjax as uk

FILE = Path(__file__).parent / "robots" / "cassie.xml"
SPEED = 0.5  # [m/s]
STEP, WIDTH, CLEARANCE, SINK = 0.27, 0.2, 0.12, 0.02  # of a stride [s, m, m, m]
RATE = 3.4  # of the inverted pendulum [1/s], sqrt(g / 0.85 m)
HEIGHT, CENTRE, SOLE = 1.0, -0.018, 0.02  # of the pelvis; of mass, from it; of the foot's middle [m]
AHEAD = (SPEED + 0.06) * STEP / (np.exp(RATE * STEP) - 1)  # foothold behind the capture point [m]
ASIDE = WIDTH / (np.exp(RATE * STEP) + 1)
# Angles of knee and of the line from hip to sole by its length, 0.5 to 0.97 m, fitted to within 4 mrad.
KNEE = np.array([10.27430636, -26.28926993, 26.05228919, -9.43894415, np.pi / 4 - 1.33060278])
LEAN = np.array([5.19110568, -13.68944745, 14.19007203, -5.80677282, -0.09493809])
LEVEL = -1.1003  # sum of the angles of hip and foot where the sole is level
# Gains of a swinging leg: hip roll, yaw and pitch, knee, foot [N m/rad, N m s/rad].
STIFFNESS, DAMPING = np.array([400.0, 200, 600, 800, 60]), np.array([12.0, 6, 15, 15, 2])
JOINTS = ("hip-roll", "hip-yaw", "hip-pitch", "knee", "foot")
GEAR, STRONGEST = np.array([25, 25, 16, 16, 50.0]), np.array([4.5, 4.5, 12.2, 12.2, 0.9])
# How far a policy moves the foothold [m], the pelvis [m], and roll and pitch of the trunk [rad].
REACH = np.array([0.15, 0.15, 0.05, 0.1, 0.1])


def load() -> uk.robots.Robot:
    """Its file on a floor that the feet touch, with a site in the middle of each sole."""
    spec = mujoco.MjSpec.from_file(str(FILE))
    plane = mujoco.mjtGeom.mjGEOM_PLANE
    spec.worldbody.add_geom(name="floor", type=plane, size=[0, 0, 1], conaffinity=15, condim=3)
    for side in ("left", "right"):
        spec.body(f"{side}-foot").add_site(name=f"{side}-sole", pos=[0.0085, 0.0412, 0])
    return uk.load(spec, contact=[("left-foot", "floor"), ("right-foot", "floor")])


def attitude(q: Array) -> Array:
    """Roll, pitch and yaw of the pelvis [rad]."""
    w, x, y, z = q[3:7]
    roll = jnp.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    yaw = jnp.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return jnp.stack([roll, jnp.arcsin(jnp.clip(2 * (w * y - z * x), -0.99, 0.99)), yaw])


def walk(robot: uk.robots.Robot) -> Callable:
    """Inputs of the ten motors as a function of (t, q, v, wish); the wish, of ones, moves what the law aims at."""
    labels, rates = robot.mechanism.labels, robot.mechanism.velocity_labels
    names = [[f"{side}-{x}" for x in JOINTS] for side in ("left", "right")]
    angles, speeds = (np.array([[of.index(x) for x in leg] for leg in names]) for of in (labels, rates))

    def law(t, q, v, wish):
        wish = REACH * wish
        roll, pitch, yaw = attitude(q)
        places = robot.points(t, q)
        of = lambda name: jnp.stack([places[f"{side}-{name}"] for side in ("left", "right")])
        soles, pitches, rolls = of("sole"), of("hip-pitch"), of("hip-roll")
        count = jnp.floor(t / STEP)
        phase, stands = t / STEP - count, count % 2 == 0  # whether on the left
        choose = lambda x: (jnp.where(stands, x[0], x[1]), jnp.where(stands, x[1], x[0]))
        (foot, sole), (hip, high), (_, side) = choose(soles), choose(pitches), choose(rolls)
        (standing, swinging), (rate, swing_rate) = choose(q[angles]), choose(v[speeds])
        sign = jnp.where(stands, 1.0, -1.0)

        # Where the capture point will be, and the foothold behind and outside it, never across the other leg.
        capture = places["cassie-pelvis"][:2] + jnp.array([CENTRE, 0.0]) + v[:2] / RATE
        capture = foot[:2] + (capture - foot[:2]) * jnp.exp(RATE * STEP * (1 - phase))
        x = jnp.clip(capture[0] - AHEAD + wish[0] - foot[0], -0.5, 0.5)
        y = jnp.clip(sign * (foot[1] - capture[1]) + ASIDE + wish[1], 0.1, 0.45)
        part = jnp.clip(phase / 0.7, 0, 1)
        part = part**2 * (3 - 2 * part)
        aim = sole[:2] + part * (foot[:2] + jnp.stack([x, -sign * y]) - sole[:2])
        level = SOLE + CLEARANCE * jnp.sin(jnp.pi * phase) - SINK * phase

        # Joints of the swinging leg that lead there.
        ahead, below = aim[0] - high[0], high[2] - level
        length = jnp.clip(jnp.sqrt(ahead**2 + below**2), 0.5, 0.97)
        turn = jnp.arctan2(ahead, below) + pitch - jnp.polyval(LEAN, length)
        spread = jnp.arctan2(aim[1] - side[1], side[2] - level) - roll
        goal = jnp.stack([spread, 0 * turn, turn, jnp.polyval(KNEE, length), LEVEL - turn + pitch])
        swing = STIFFNESS * (goal - swinging) - DAMPING * swing_rate

        # The standing leg carries the trunk, and takes it over as the step begins.
        begun = jnp.clip(phase / 0.15, 0, 1)
        length = jnp.hypot(HEIGHT + wish[2] - 0.09 - SOLE, foot[0] - hip[0])
        bend = jnp.polyval(KNEE, jnp.clip(length, 0.5, 0.97))
        stance = jnp.stack(
            [
                begun * (800 * (roll - wish[3]) + 60 * v[3] + sign * 30 * begun),
                begun * (200 * yaw + 15 * v[5]),
                begun * (-800 * (pitch - wish[4]) - 60 * v[4]),
                2000 * (bend - standing[3]) - 50 * rate[3],
                60 * (LEVEL - standing[2] + pitch - standing[4]) - 4 * rate[4],
            ]
        )
        torques = jnp.where(stands, jnp.stack([stance, swing]), jnp.stack([swing, stance]))
        return jnp.clip(torques / GEAR, -STRONGEST, STRONGEST).ravel()

    return law


class Walk(eqx.Module):
    """Episodes of an inner environment, whose steps are those of the law: an action is held over many of them."""

    inner: uk.Environment
    start: uk.EnvironmentState
    law: Callable
    held: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)

    def reset(self, key: Array) -> uk.EnvironmentState:
        """Both feet on the ground, the whole robot at a random speed of some 0.3 m/s: loops keep closed so."""
        key, draw = jax.random.split(key)
        v = self.start.v.at[:2].set(0.3 * jax.random.normal(draw, (2,)))
        return eqx.tree_at(lambda s: (s.v, s.key), self.start, (v, key))

    def observation(self, state: uk.EnvironmentState) -> Array:
        return self.inner.observation(state)

    def advance(self, state: uk.EnvironmentState, action: Array) -> tuple:
        def one(state: uk.EnvironmentState, _: None) -> tuple:
            inputs = self.law(state.t, state.q, state.v, action)
            return self.inner.advance(state, inputs)[0], None

        after = jax.lax.scan(one, state, length=self.held)[0]
        finite = jnp.all(jnp.isfinite(after.q)) & jnp.all(jnp.isfinite(after.v))
        # An episode ends before a step that float32 cannot take, in a fall.
        state = jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, state)
        done = self.inner.done(state.t, state.q, state.v) | ~finite
        late = after.steps >= self.held * self.horizon
        return state, self.inner.reward(state.t, state.q, state.v, action), done, late


def cassie() -> tuple[Walk, int]:
    """10 s of walking, and the number of wishes."""
    robot = load()

    def reward(t, q, v, action):
        turned = attitude(q)
        return (
            1
            - 2 * (v[0] - SPEED) ** 2
            - v[1] ** 2
            - 0.5 * q[1] ** 2
            - turned @ turned
            - 0.01 * action @ action
        )

    def observe(t, q, v):
        stride = jnp.pi * t / STEP
        return jnp.concatenate([jnp.stack([jnp.sin(stride), jnp.cos(stride)]), q[1:], v])

    fallen = lambda t, q, v: 1.1 + q[2] < 0.7
    options = {"dt": 0.002, "horizon": 5000, "observe": observe, "done": fallen}
    inner = uk.Environment(robot.problem, robot.apply, reward, **options)
    return Walk(inner, inner.reset(jax.random.key(0)), walk(robot), 15, 333), REACH.size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--policy", type=Path, help="a file that policies.py has kept")
    options = parser.parse_args()
    task, wishes = cassie()
    wish = lambda seen: jnp.zeros(wishes)
    if options.policy:
        import policies  # which imports this file

        learner = policies.begin(policies.Task(task, wishes), policies.PPO(), jax.random.key(0))
        actor, scale = eqx.tree_deserialise_leaves(options.policy, (learner.actor, learner.scale))
        wish = lambda seen: jnp.tanh(actor.mean(scale(seen)))
    steps = round(options.seconds / (task.held * task.inner.dt))

    def episode(key: Array) -> tuple[Array, Array]:
        """Whether it fell, and how far it came."""

        def one(carry: tuple, _: None) -> tuple:
            state, fallen = carry
            after, _, over, _ = task.advance(state, wish(task.observation(state)))
            return (after, fallen | over), None

        start = task.reset(key)
        (state, fallen), _ = jax.lax.scan(one, (start, jnp.asarray(False)), length=steps)
        return fallen, state.q[0] - start.q[0]

    keys = jax.random.split(jax.random.key(1000), options.starts)
    fallen, far = (np.asarray(x) for x in jax.jit(jax.vmap(episode))(keys))
    speed = far[~fallen] / options.seconds
    print(f"{np.sum(~fallen)} of {fallen.size} are upright after {options.seconds:g} s")
    if speed.size:
        print(f"mean speed {speed.mean():.2f} m/s, from {speed.min():.2f} to {speed.max():.2f}")


if __name__ == "__main__":
    main()
