# %% [markdown]
# # A linkage that should not move
#
# Bennett's linkage: four hinges in space whose axes do not meet. Counting says -2 degrees of freedom; it has one.
# Five rows close the loop, of which two are independent: the accelerations are unique all the same, the reactions
# in single hinges are not.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
problem = uk.models.bennett()
print(uk.check(problem))
run = uk.simulate(problem, t1=6.0, ts=301)

# %% [markdown]
# The first two angles keep a product of tangents all the way round (Bennett 1903):

# %%
beta = np.arcsin(1.5 * np.sin(np.pi / 6))
product = np.sin((beta + np.pi / 6) / 2) / np.sin((beta - np.pi / 6) / 2)
theta = 1.0 + np.asarray(run.q[:, 0])
phi = 2 * np.arctan(product / np.tan(0.5)) - np.asarray(run.q[:, 1])
print(np.abs(np.tan(theta / 2) * np.tan(phi / 2) - product).max())

figure, axis = plt.subplots(layout="constrained", figsize=(5, 3))
axis.plot(run.t, run.q)
axis.legend(["hinge 1", "hinge 2", "hinge 3"])
axis.set(xlabel="t [s]", ylabel="angle [rad]")
figure.savefig("figure.png", dpi=100)

# %%
run.animate("motion.gif", fps=12)
