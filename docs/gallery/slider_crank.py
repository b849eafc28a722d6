# %% [markdown]
# # A slider-crank in space
#
# The spatial rigid slider-crank of the IFToMM library: the crank turns about the x axis, the slider moves along it, and
# a rod with a ball joint and a universal joint couples them. The slider's place follows from the crank's angle,
# which is a check of the closed loop.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
problem = uk.models.spatial_slider_crank()
print(uk.check(problem))
run = uk.simulate(problem, t1=2.0, ts=201)
angle = np.asarray(run.q[:, 0])
pin = np.stack([0.1 - 0.08 * np.sin(angle), 0.12 + 0.08 * np.cos(angle)])
slider = np.asarray(run.points()["slider"])[:, 0]
print(
    "slider off its place by the crank's angle:",
    np.abs(slider - np.sqrt(0.3**2 - (pin**2).sum(axis=0))).max(),
    "m",
)
print("change of energy:", float(run.energy_drift), "J")

# %%
figure, (turning, sliding) = plt.subplots(2, 1, layout="constrained", figsize=(6, 4), sharex=True)
turning.plot(run.t, angle)
sliding.plot(run.t, slider)
turning.set_ylabel("crank [rad]")
sliding.set(xlabel="t [s]", ylabel="slider [m]")
figure.savefig("figure.png", dpi=100)

# %%
run.animate("motion.gif", speed=0.5, fps=12)
