# %% [markdown]
# # Through singular positions
#
# Two parallelograms side by side, upright at the start. Whenever all rods lie in one line, the rows lose rank,
# and the motion could branch. A run goes straight through, and `uk.passages` tells when that was.

# %%
import jax
import matplotlib.pyplot as plt

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
problem = uk.models.four_bars(2)
run = uk.simulate(problem, t1=4.0, ts=401)
for passage in uk.passages(run):
    print(f"{passage.t:.6f} s: rank {passage.rank_before}, {passage.rank_at}, {passage.rank_after}")
print("change of energy:", float(run.energy_drift), "J of", float(run.energy[0]))

# %%
figure, axis = plt.subplots(layout="constrained", figsize=(6, 3))
axis.plot(run.t, run.points()["B0"], label=["x", "y"])
for k, passage in enumerate(uk.passages(run)):
    axis.axvline(passage.t, color="#c8452b", lw=0.8, label=None if k else "flat position")
axis.legend()
axis.set(xlabel="t [s]", ylabel="first top pin [m]")
figure.savefig("figure.png", dpi=100)

# %%
run.animate("motion.gif", fps=12)
