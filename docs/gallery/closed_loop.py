# %% [markdown]
# # A leg of seven bodies
#
# Jansen's leg: a crank, four rods and two triangles, joined by ten pins into three closed loops. Nobody wrote its
# kinematics down; the pins are constraint rows, and the Udwadia-Kalaba equation finds the accelerations that keep
# them.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
problem = uk.models.strandbeest(rate=3.0, gravity=0.0)
leg = uk.simulate(problem, t1=8.0, ts=401)
print(uk.check(problem))
print("largest error of a pin:", float(leg.max_position_error), "m")

# %% [markdown]
# The path of the foot, flat where it walks:

# %%
foot = np.asarray(leg.points()["foot"])
figure, axis = plt.subplots(layout="constrained", figsize=(5, 3))
axis.plot(*foot.T)
axis.set(xlabel="x [m]", ylabel="y [m]", aspect="equal")
figure.savefig("figure.png", dpi=100)

# %%
leg.animate("motion.gif", speed=2.0, fps=12)
