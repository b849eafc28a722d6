"""MuJoCo XLA: forward mode through steps of 1 ms; RK4 where nothing touches."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjx
from tasks import STEPS

jax.config.update("jax_enable_x64", True)


def jacobian(task):
    model = mujoco.MjModel.from_xml_string(task.mjcf.replace("TIMESTEP", f"{1 / STEPS}"))
    if model.ngeom == 0 and model.neq == 0 and not model.dof_frictionloss.any():
        model.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    ctrl = jnp.array(task.inputs or [0.0] * model.nu)
    model = mjx.put_model(model)

    def outputs(p, steps):
        data = mjx.make_data(model).replace(
            qpos=task.qpos + task.dqpos @ p, qvel=task.qvel + task.dqvel @ p, ctrl=ctrl
        )
        data = jax.lax.fori_loop(0, steps, lambda i, data: mjx.step(model, data), data)
        return jnp.concatenate([data.qpos, data.qvel])[jnp.array(task.rows)]

    forward = jax.jit(jax.jacfwd(outputs))
    return lambda end: np.asarray(forward(jnp.zeros(task.dqpos.shape[1]), round(end * STEPS)))


ENGINES = {"MJX": jacobian}
