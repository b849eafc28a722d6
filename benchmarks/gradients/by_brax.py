"""Brax: forward mode through steps of 1 ms, by each of its pipelines."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
from brax.io import mjcf
from tasks import STEPS

jax.config.update("jax_enable_x64", True)


def jacobian(pipeline):
    def of(task):
        if "<equality>" in task.mjcf:
            raise NotImplementedError("has no loops")
        if "frictionloss=" in task.mjcf:
            raise NotImplementedError("has no dry friction of joints")
        module = importlib.import_module(f"brax.{pipeline}.pipeline")
        system = mjcf.loads(task.mjcf.replace("TIMESTEP", f"{1 / STEPS}"))

        def outputs(p, steps):
            state = module.init(system, task.qpos + task.dqpos @ p, task.qvel + task.dqvel @ p)
            step = lambda i, state: module.step(system, state, jnp.array(task.inputs))
            state = jax.lax.fori_loop(0, steps, step, state)
            return jnp.concatenate([state.q, state.qd])[jnp.array(task.rows)]

        forward = jax.jit(jax.jacfwd(outputs))
        return lambda end: np.asarray(forward(jnp.zeros(task.dqpos.shape[1]), round(end * STEPS)))

    return of


ENGINES = {f"Brax, {x}": jacobian(x) for x in ("generalized", "positional", "spring")}
