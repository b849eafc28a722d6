# %% [markdown]
# # Joints with clearance
#
# A parallel robot as a hierarchy of levels (Orsino 2017). Its platform pins get a clearance R: they yield in
# proportion to their force, as springs would. As R goes to zero they become the ideal joints.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
problem = uk.models.planar_3rrr()
levels = problem.system.levels


@jax.jit
def force(R):
    formula = uk.Recursive(levels, dict.fromkeys(levels[2], R))
    found = formula.acceleration(problem.system, 0.0, problem.q0, problem.v0)
    return jnp.linalg.norm(found.multipliers)


R = np.logspace(-8, 2, 21)
forces = np.array([force(jnp.asarray(r)) for r in R])
print(forces[0], forces[-1])

# %%
figure, axis = plt.subplots(layout="constrained", figsize=(6, 3))
axis.semilogx(R, forces)
axis.set(xlabel="R [1/kg]", ylabel="norm of all multipliers [N]")
figure.savefig("figure.png", dpi=100)

# %%
uk.simulate(problem, ts=101).animate("motion.gif")
