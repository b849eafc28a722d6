# %% [markdown]
# # A report on a run
#
# What was solved, by what, and how far to trust it: the error is estimated by a second run, and derivatives are
# compared with differences.

# %%
import jax
import matplotlib.pyplot as plt

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
run = uk.simulate(uk.models.spherical_pendulum(), t1=4.0, ts=101)
report = run.certify("report.md")
print(report)

# %%
figure, axis = plt.subplots(layout="constrained", figsize=(6, 3))
axis.bar(range(len(report.position_error)), report.position_error)
axis.set(xlabel="coordinate", ylabel="estimated error", yscale="log")
figure.savefig("figure.png", dpi=100)

# %%
run.animate("motion.gif", fps=12)
