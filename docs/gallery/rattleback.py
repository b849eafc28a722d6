# %% [markdown]
# # The rattleback, a stone that turns back
#
# Nonholonomic: an ellipsoid rolls without slipping, its axes of inertia turned a little against its own. Spun the
# wrong way, it starts to rattle, stops, and turns back. Nothing is lost: the constraint force does no work.

# %%
import jax
import matplotlib.pyplot as plt

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
run = uk.simulate(uk.models.rattleback(), ts=601)
print("energy from", float(run.energy[0]), "to", float(run.energy[-1]), "J")

# %%
figure, (spin, tip) = plt.subplots(2, 1, layout="constrained", figsize=(6, 4), sharex=True)
spin.plot(run.t, run.v[:, 5])
tip.plot(run.t, run.v[:, 3:5], lw=0.7, label=["about x", "about y"])
tip.legend(fontsize=7)
spin.set_ylabel("about its axis [rad/s]")
tip.set(xlabel="t [s]", ylabel="across it [rad/s]")
figure.savefig("figure.png", dpi=100)

# %%
run.animate("motion.gif", speed=2.0, fps=12)
