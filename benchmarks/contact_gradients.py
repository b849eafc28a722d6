"""Gradients through impacts, beside those of other simulators: errors against closed forms.

The tasks are nimblephysics' issue 97 (two balls on a line), the three of diff_sim_grads (Zhong et al. 2023, "Improving
gradient computation for differentiable physics simulation with contacts": one bounce; ground and wall; two balls and a
force), a ball that bounces with restitution, and an oblique billiard. Others are run where they are installed, each with
1,000 steps: MJX with stiff contacts whose damping gives the restitution; Brax (`positional` and `spring`) with its
`elasticity`; nimblephysics by the Jacobians of its steps, and Warp 1.9 (the last one with a simulator) by its tape, each
in an interpreter of its own, which the environment variables NIMBLE_PYTHON and WARP_PYTHON name.
"""

import json
import os
import platform
import subprocess
from pathlib import Path

import _one_thread  # noqa: F401
import jax
import jax.numpy as jnp
import numpy as np
from _contact_tasks import STEPS, TASKS

import ukjax as uk

jax.config.update("jax_enable_x64", True)


def value(task, y):
    """What is differentiated of the state at the end."""
    n = 2 * task.balls
    return y[:n] if task.goal is None else jnp.sum((y[n - 2 : n] - jnp.array(task.goal, float)) ** 2)[None]


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
        return value(task, jnp.concatenate([q.ravel(), v.ravel()]))

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
    force[1::2] = -task.gravity
    force[:2] += task.force
    contacts = [uk.Unilateral(gap, restitution=task.e, name=f"contact {i}") for i, gap in enumerate(gaps)]
    system = uk.System(jnp.eye(2 * n), jnp.asarray(force), contacts)

    def end(y):
        run = uk.simulate(system, y[: 2 * n], y[2 * n :], t1=task.end, ts=[task.end], **options)
        return value(task, jnp.concatenate([run.q[-1], run.v[-1]]))

    return jax.jit(jax.jacrev(end))(jnp.asarray(task.start, float))


def by_events(task):
    return ours(task, rtol=1e-11, atol=1e-11)


def by_steps(task):
    return ours(task, contact="differentiated steps", dt0=task.end / STEPS)


def mjcf(task, contact):
    """The task as a file: balls on two slides each, x and z."""
    balls = "".join(
        f'<body name="b{i}"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>'
        f'<geom type="sphere" size="{task.radius or task.lift}" mass="1" {contact}/></body>'
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


def marched(task, begin, step, state):
    """The Jacobian of `STEPS` steps, in forward mode."""

    def end(y):
        raised = y.at[1].add(task.lift)
        data = jax.lax.fori_loop(0, STEPS, lambda i, data: step(data), begin(raised))
        q, v = state(data)
        return value(task, jnp.concatenate([q.at[1].add(-task.lift), v]))

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


def elsewhere(script, variable):
    """All Jacobians by each simulator of a script, run by the interpreter that a variable of the environment names."""
    if variable not in os.environ:
        return {}
    command = [os.environ[variable], str(Path(__file__).parent / script)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(told.splitlines()[-1])  # Warp tells of a missing GPU before
    return {name: [np.array(x) for x in of] for name, of in found.items()}


SIMULATORS = {
    "ukjax, events": by_events,
    "ukjax, steps": by_steps,
    "MJX": by_mjx,
    "Brax, positional": by_brax("positional"),
    "Brax, spring": by_brax("spring"),
}


def main():
    """Prints the table: the largest error of any entry of the Jacobian."""
    print(f"{platform.machine()}, jax {jax.__version__}, float64\n")
    others = elsewhere("_gradients_nimble.py", "NIMBLE_PYTHON") | elsewhere(
        "_gradients_warp.py", "WARP_PYTHON"
    )
    names = [*SIMULATORS, *others]
    print("| | largest entry |", " | ".join(names), "|")
    print("|---|---|" + "---|" * len(names))
    for i, task in enumerate(TASKS):
        right = np.asarray(jax.jacfwd(exact(task))(jnp.asarray(task.start, float)))
        found = [attempted(of, task) for of in SIMULATORS.values()] + [x[i] for x in others.values()]
        cells = ["" if x is None else f"{np.abs(x - right).max():.1e}" for x in found]
        print(f"| {task.name} | {np.abs(right).max():.2f} |", " | ".join(cells), "|", flush=True)


def attempted(of, task):
    """A Jacobian; None where the simulator is not installed."""
    try:
        return np.asarray(of(task))
    except ImportError:
        return None


if __name__ == "__main__":
    main()
