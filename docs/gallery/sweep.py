# %% [markdown]
# # A thousand pendulums
#
# The period of a pendulum by its amplitude and length: a sweep over a grid, whose result is an `xarray.Dataset`
# with named axes.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import ellipk

import ukjax as uk

jax.config.update("jax_enable_x64", True)


# %%
def period(run):
    i = jnp.argmax(run.q[:, 0] < 0)
    return 4 * (run.t[i] - run.q[i, 0] / run.v[i, 0])


grid = {"angle": np.linspace(0.1, 2.5, 50), "length": np.linspace(0.5, 1.0, 20)}
runs = uk.sweep(uk.models.pendulum, grid, outputs=[period, "max_position_error"], t1=2.5, ts=401)
exact = 4 * np.sqrt(runs.length / 9.81) * ellipk(np.sin(runs.angle / 2) ** 2)
print(runs)
print("largest relative error:", float(abs(runs.period / exact - 1).max()))

# %%
figure, axis = plt.subplots(layout="constrained", figsize=(5, 3.5))
runs.period.plot(ax=axis)
figure.savefig("figure.png", dpi=100)

# %%
uk.simulate(uk.models.pendulum(angle=2.5), t1=2.5, ts=101).animate("motion.gif", fps=12)
