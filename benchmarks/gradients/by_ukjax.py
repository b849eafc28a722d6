"""ukjax: event by event at tolerances of 1e-11, and the derivatives of its time steps."""

import jax
import jax.numpy as jnp
import numpy as np
from tasks import STEPS

import ukjax as uk

jax.config.update("jax_enable_x64", True)


def by_events(task):
    return jacobian(task, rtol=1e-11, atol=1e-11)


def by_steps(task):
    return jacobian(task, contact="differentiated steps", dt0=1 / STEPS)


def jacobian(task, **options):
    ctrl = np.array(task.inputs) if task.inputs else None
    robot = uk.load(task.mjcf.replace("TIMESTEP", "0.001"), contact=True, restitution=task.e, ctrl=ctrl)
    if "contact" in options and not any(
        isinstance(x, (uk.Unilateral, uk.DryFriction)) for x in robot.mechanism.constraints
    ):
        raise NotImplementedError("has no contacts: nothing to step")

    def outputs(p, end):
        q, v = robot.state_from_mujoco(task.qpos + task.dqpos @ p, task.qvel + task.dqvel @ p)
        run = uk.simulate(robot.mechanism, q, v, t1=end, ts=[end], **options)
        return jnp.concatenate(robot.state_to_mujoco(run.q[-1], run.v[-1]))[jnp.array(task.rows)]

    forward = jax.jit(jax.jacfwd(outputs), static_argnums=1)
    return lambda end: np.asarray(forward(jnp.zeros(task.dqpos.shape[1]), end))


ENGINES = {"ukjax, events": by_events, "ukjax, steps": by_steps}
