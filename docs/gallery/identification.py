# %% [markdown]
# # A length from noisy data
#
# A pendulum's path was measured with an error of 1 cm. Its length is what makes the simulated path fit best: least
# squares through the simulation, with the derivative of the run. Its mass moves nothing, and the result says so.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
times = np.linspace(0.05, 2.0, 40)
swing = uk.simulate(uk.models.pendulum(length=1.2), t1=2.0, ts=times)  # in place of an experiment
measured = np.asarray(swing.q) + 0.01 * np.random.default_rng(0).normal(size=(40, 2))
result = uk.identify(
    uk.models.pendulum,
    uk.Recording(times, measured),
    {"length": 1.0, "mass": 1.0},
    bounds={"length": (0.0, None), "mass": (0.0, None)},
)
print(result)

# %% [markdown]
# `result.plot()` draws the same, and the residuals.

# %%
told = result.predict()
figure, axis = plt.subplots(layout="constrained", figsize=(6, 3))
for i, name in enumerate(result.channels):
    axis.plot(times, measured[:, i], ".", color="#202020", ms=3)
    axis.plot(times, told.y[:, i], label=name)
    axis.fill_between(times, told.low[:, i], told.high[:, i], alpha=0.2, lw=0)
axis.set(xlabel="t [s]", ylabel="place [m]")
axis.legend()
figure.savefig("figure.png", dpi=100)

# %%
uk.simulate(uk.models.pendulum(**result.parameters), t1=2.0, ts=101).animate("motion.gif", fps=12)
