# %% [markdown]
# # Forces in the legs of a platform
#
# A Stewart platform whose six legs have given lengths: six rows that depend on time leave no freedom, and the
# multipliers are the forces the legs must bear. Inverse dynamics without a formula of its own.

# %%
import jax
import matplotlib.pyplot as plt

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
run = uk.simulate(uk.models.stewart(), ts=201)
print(
    "the largest push:",
    float(run.multipliers.max()),
    "N, the largest pull:",
    float(run.multipliers.min()),
    "N",
)

# %%
figure, axis = plt.subplots(layout="constrained", figsize=(6, 3))
axis.plot(run.t, run.multipliers)
axis.legend(run.row_names, ncols=3, fontsize=7)
axis.set(xlabel="t [s]", ylabel="force [N]")
figure.savefig("figure.png", dpi=100)

# %%
run.animate("motion.gif", speed=2.0, fps=12)
