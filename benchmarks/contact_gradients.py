"""Gradients through impacts, beside those of other simulators: errors against closed forms.

The tasks are nimblephysics' issue 97 (two balls on a line), the three of diff_sim_grads (Zhong et al. 2023, "Improving
gradient computation for differentiable physics simulation with contacts": one bounce; ground and wall; two balls and a
force), a ball that bounces with restitution, and an oblique billiard. Others are run where they are installed, each with
1,000 steps: MJX with stiff contacts whose damping gives the restitution; Brax (`positional` and `spring`) with its
`elasticity`; nimblephysics by the Jacobians of its steps.
"""

import os
import platform
from collections.abc import Callable
from typing import NamedTuple

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
import _one_thread  # noqa: F401
import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk

jax.config.update("jax_enable_x64", True)
STEPS = 1000


class Task(NamedTuple):
    """Balls of mass 1 in a plane, x and y, with or without a floor y = 0 and a wall.

    - `start`: places and velocities, (balls, 2) each, one after the other.
    - `value`: what is differentiated, of the state at the end, by the state at the start.
    - `radius`, `e`, `gravity`, `end`: of the balls, of all impacts, downwards, and the time.
    - `floor`, `wall`: whether there is a floor, and where the wall is, if there is one.
    - `force`: on the first ball.
    """

    name: str
    start: tuple[float, ...]
    value: Callable
    radius: float
    e: float
    gravity: float
    end: float
    floor: bool = False
    wall: float | None = None
    force: tuple[float, float] = (0.0, 0.0)

    @property
    def balls(self) -> int:
        return len(self.start) // 4


places = lambda y: y[: y.size // 2]
TASKS = (
    Task("two balls on a line (nimble#97)", (0, 0, 0.52, 0, 1, 0, 0, 0), places, 0.1, 1.0, 0.0, 1.0),
    Task("one bounce (task 1)", (-1, 1, 2, -2), places, 0.1, 1.0, 0.0, 1.0, floor=True),
    Task(
        "ground and wall (task 2)", (-0.5, 1, 5, -5), lambda y: jnp.sum((y[:2] - jnp.array([-2.0, 1.5])) ** 2)[None],
        0.1, 0.92, 9.8, 0.6, floor=True, wall=1.75,
    ),
    Task(
        "two balls and a force (task 3)", (-2, -2, -1, -1, 0, 0, 0, 0), lambda y: jnp.sum(y[2:4] ** 2)[None],
        0.2, 1.0, 0.0, 1.0, force=(3.0, 3.0),
    ),
    Task("bouncing ball, e = 0.8", (0, 1, 0, 0), places, 0.0, 0.8, 9.81, 0.6, floor=True),
    Task("billiards, oblique", (0, 0, 0.6, 0.07, 1.5, 0, 0, 0), places, 0.1, 1.0, 0.0, 1.0),
)  # fmt: skip


# ---- closed forms, differentiated by JAX: balls fly on parabolas, and of one the floor comes before the wall


def flown(q, v, a, t):
    return q + v * t + a * t * t / 2, v + a * t


def zero_of(off):
    """The first zero of a function of time, by Newton's method from a place on a grid, so that JAX differentiates it."""
    grid = jnp.linspace(1e-6, 1.0, 100_001)
    t = grid[jnp.argmax(jax.vmap(off)(grid) <= 0)]
    for _ in range(6):
        t = t - off(t) / jax.jvp(off, (t,), (jnp.ones_like(t),))[1]
    return t


def exact(task):
    """The value at the end as a function of the start."""
    a = jnp.zeros((task.balls, 2)).at[:, 1].set(-task.gravity).at[0].add(jnp.array(task.force))

    def of(y):
        q, v = (x.reshape(-1, 2) for x in jnp.split(y, 2))
        left = task.end
        if task.balls == 2:
            apart = lambda t: flown(q, v, a, t)[0]
            t = zero_of(lambda t: jnp.sum((apart(t)[1] - apart(t)[0]) ** 2) - 4 * task.radius**2)
            q, v = flown(q, v, a, t)
            n = (q[1] - q[0]) / (2 * task.radius)
            swap = 0.5 * (1 + task.e) * ((v[1] - v[0]) @ n) * n
            v, left = v + jnp.stack([swap, -swap]), left - t
        else:
            gaps = [(1, lambda q: q[0, 1] - task.radius)]
            gaps += [] if task.wall is None else [(0, lambda q: task.wall - task.radius - q[0, 0])]
            for axis, gap in gaps:
                t = zero_of(lambda t, q=q, v=v, gap=gap: gap(flown(q, v, a, t)[0]))
                q, v = flown(q, v, a, t)
                v, left = v.at[0, axis].multiply(-task.e), left - t
        q, v = flown(q, v, a, left)
        return task.value(jnp.concatenate([q.ravel(), v.ravel()]))

    return of


# ---- simulators: each a function of a task that returns the Jacobian


def ours(task, **options):
    """By ukjax, in reverse mode."""
    n = task.balls
    gaps = []
    if n == 2:
        gaps.append(lambda t, q: jnp.linalg.norm(q[2:] - q[:2]) - 2 * task.radius)
    if task.floor:
        gaps.append(lambda t, q: q[1] - task.radius)
    if task.wall is not None:
        gaps.append(lambda t, q: task.wall - task.radius - q[0])
    force = np.zeros(2 * n)
    force[1::2], force[:2] = -task.gravity, force[:2] + task.force
    contacts = [uk.Unilateral(gap, restitution=task.e, name=f"contact {i}") for i, gap in enumerate(gaps)]
    system = uk.System(jnp.eye(2 * n), jnp.asarray(force), contacts)

    def end(y):
        run = uk.simulate(system, y[: 2 * n], y[2 * n :], t1=task.end, ts=[task.end], **options)
        return task.value(jnp.concatenate([run.q[-1], run.v[-1]]))

    return jax.jit(jax.jacrev(end))(jnp.asarray(task.start, float))


def by_events(task):
    return ours(task, rtol=1e-11, atol=1e-11)


def by_steps(task):
    return ours(task, contact="steps", dt0=task.end / STEPS)


def mjcf(task, contact):
    """The task as a file: balls on two slides each, x and z."""
    balls = "".join(
        f'<body name="b{i}"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>'
        f'<geom type="sphere" size="{max(task.radius, 1e-3)}" mass="1" {contact}/></body>'
        for i in range(task.balls)
    )
    floor = f'<geom type="plane" size="0 0 1" {contact}/>' if task.floor else ""
    wall = ""
    if task.wall is not None:
        wall = f'<geom type="plane" size="0 0 1" pos="{task.wall} 0 0" zaxis="-1 0 0" {contact}/>'
    custom = f'<custom><numeric name="elasticity" data="{task.e}"/></custom>'
    option = f'<option timestep="{task.end / STEPS}" gravity="0 0 {-task.gravity}" iterations="4" ls_iterations="8"/>'
    motors = '<actuator><motor joint="m0"/><motor joint="m1"/></actuator>'
    balls = balls.replace('<joint type="slide" axis="1 0 0"', '<joint name="m0" type="slide" axis="1 0 0"', 1)
    balls = balls.replace('<joint type="slide" axis="0 0 1"', '<joint name="m1" type="slide" axis="0 0 1"', 1)
    return f"<mujoco>{option}{custom}<worldbody>{floor}{wall}{balls}</worldbody>{motors}</mujoco>"


def lifted(task):
    """Where the centre of a ball of another simulator is, of a point that touches at zero height: by its radius."""
    return 1e-3 if task.radius == 0 else 0.0


def marched(task, begin, step, state):
    """The Jacobian of `STEPS` steps, in forward mode."""

    def end(y):
        raised = y.at[1].add(lifted(task))
        data = jax.lax.fori_loop(0, STEPS, lambda i, data: step(data), begin(raised))
        q, v = state(data)
        return task.value(jnp.concatenate([q.at[1].add(-lifted(task)), v]))

    return jax.jit(jax.jacfwd(end))(jnp.asarray(task.start, float))


def by_mjx(task):
    import mujoco
    from mujoco import mjx

    stiffness = 1e5
    log = np.log(task.e)
    ratio = -log / np.sqrt(
        np.pi**2 + log**2
    )  # of the damping of an oscillation that loses 1 - e in half a period
    damping = 2 * ratio * np.sqrt(stiffness)
    contact = f'condim="1" solref="{-stiffness} {-damping}" solimp="0.9999 0.9999 0.001"'
    model = mjx.put_model(mujoco.MjModel.from_xml_string(mjcf(task, contact)))
    n = 2 * task.balls
    begin = lambda y: mjx.make_data(model).replace(qpos=y[:n], qvel=y[n:], ctrl=jnp.array(task.force))
    return marched(task, begin, lambda d: mjx.step(model, d), lambda d: (d.qpos, d.qvel))


def by_brax(pipeline):
    def of(task):
        import importlib

        from brax.io import mjcf as reader

        module = importlib.import_module(f"brax.{pipeline}.pipeline")
        system = reader.loads(mjcf(task, 'friction="0 0 0"'))
        n = 2 * task.balls
        begin = lambda y: module.init(system, y[:n], y[n:])
        step = lambda state: module.step(system, state, jnp.array(task.force))
        return marched(task, begin, step, lambda s: (s.q, s.qd))

    return of


def by_nimble(task):
    from nimblephysics_libs import _nimblephysics as nimble

    world = nimble.simulation.World()
    world.setGravity([0, -task.gravity, 0])
    world.setTimeStep(task.end / STEPS)
    for _ in range(task.balls):
        ball = nimble.dynamics.Skeleton()
        _, body = ball.createTranslationalJoint2DAndBodyNodePair()
        shape = body.createShapeNode(nimble.dynamics.SphereShape(max(task.radius, 1e-3)))
        shape.createCollisionAspect()
        body.setFrictionCoeff(0.0)
        body.setRestitutionCoeff(task.e)
        body.setMass(1.0)
        world.addSkeleton(ball)
    walls = [([0, -0.5, 0], [20.0, 1.0, 20.0])] if task.floor else []
    walls += [([task.wall + 0.5, 0, 0], [1.0, 20.0, 20.0])] if task.wall is not None else []
    for place, size in walls:
        fixed = nimble.dynamics.Skeleton()
        joint, body = fixed.createWeldJointAndBodyNodePair()
        offset = nimble.math.Isometry3()
        offset.set_translation(place)
        joint.setTransformFromParentBodyNode(offset)
        body.createShapeNode(nimble.dynamics.BoxShape(size)).createCollisionAspect()
        body.setFrictionCoeff(0.0)
        body.setRestitutionCoeff(1.0)
        world.addSkeleton(fixed)
    start = np.array(task.start, float)
    start[1] += lifted(task)
    world.setState(start)
    jacobian, action = np.eye(start.size), np.zeros(world.getActionSize())
    action[:2] = task.force
    for _ in range(STEPS):
        world.setAction(action)
        jacobian = nimble.neural.forwardPass(world).getStateJacobian(world) @ jacobian
    end = jnp.asarray(world.getState()).at[1].add(-lifted(task))
    return jax.jacfwd(task.value)(end) @ jacobian


SIMULATORS = {
    "ukjax, events": by_events,
    "ukjax, steps": by_steps,
    "MJX": by_mjx,
    "Brax, positional": by_brax("positional"),
    "Brax, spring": by_brax("spring"),
    "nimblephysics": by_nimble,
}


def main():
    """Prints the table: the largest error of any entry of the Jacobian."""
    print(f"{platform.machine()}, jax {jax.__version__}, float64\n")
    print("| | largest entry |", " | ".join(SIMULATORS), "|")
    print("|---|---|" + "---|" * len(SIMULATORS))
    for task in TASKS:
        right, errors = jax.jacfwd(exact(task))(jnp.asarray(task.start, float)), []
        for name, of in SIMULATORS.items():
            try:
                errors.append(f"{np.abs(np.asarray(of(task)) - np.asarray(right)).max():.1e}")
            except ImportError:
                errors.append("")
            except Exception as error:
                print(name, task.name, type(error), str(error)[:400])
                errors.append("fails")
        print(f"| {task.name} | {np.abs(right).max():.2f} |", " | ".join(errors), "|", flush=True)


if __name__ == "__main__":
    main()
