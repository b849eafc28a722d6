# %% [markdown]
# # Modes of a chain
#
# Three masses on a string: equilibrium, linearization and natural modes of a constrained system, constraints
# eliminated.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
problem = uk.models.n_pendulum(3)
hanging = uk.analysis.equilibrium(problem)
modes = uk.analysis.modes(uk.analysis.linearize(problem, q=hanging.q, v=0.0 * problem.v0))
print(modes)

# %% [markdown]
# The frequencies of a hanging chain of equal masses and lengths are $\sqrt{g x / l}$ with x the zeros of a
# Laguerre polynomial:

# %%
exact = np.sqrt(9.81 * np.polynomial.laguerre.lagroots([0, 0, 0, 1])) / (2 * np.pi)
print(exact)
swing = uk.simulate(problem, t1=4.0, ts=201)
figure, axis = plt.subplots(layout="constrained", figsize=(6, 3))
axis.plot(swing.t, swing.q[:, ::2])
axis.set(xlabel="t [s]", ylabel="x of each mass [m]")
figure.savefig("figure.png", dpi=100)

# %%
swing.animate("motion.gif", fps=12)
