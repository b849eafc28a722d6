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

# %% [markdown]
# The chain at both ends of each mode's swing:

# %%
figure, axes = plt.subplots(1, 3, layout="constrained", figsize=(6, 3.5), sharex=True, sharey=True)
for k, axis in enumerate(axes):
    for q in modes.motion(hanging.q, mode=k, amplitude=0.6, phases=np.array([0.0, np.pi])):
        axis.plot([0.0, *q[::2]], [0.0, *q[1::2]], "o-", ms=4)
    axis.set(title=f"{modes.frequencies[k]:.3f} Hz", xlabel="x [m]", aspect="equal")
axes[0].set_ylabel("y [m]")
figure.savefig("figure.png", dpi=100)

# %% [markdown]
# Let go from the horizontal, the chain swings in all three modes and far beyond them:

# %%
uk.simulate(problem, t1=4.0, ts=201).animate("motion.gif", fps=12)
