# %% [markdown]
# # Two sevenths: a ball on a turntable
#
# A uniform ball on a turntable runs round a circle at 2/7 of its rate, wherever it is and whatever its size. The
# turntable is driven: a constraint that depends on time, which does work.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
run = uk.simulate(uk.models.turntable_ball(rate=3.0), t1=2 * np.pi / (2 / 7 * 3.0), ts=201)
ball = np.asarray(run.points()["ball"])
print("after one turn it is back to", np.linalg.norm(ball[-1] - ball[0]), "m")

# %%
figure, axis = plt.subplots(layout="constrained", figsize=(4, 4))
axis.plot(ball[:, 0], ball[:, 1])
axis.set(xlabel="x [m]", ylabel="y [m]", aspect="equal")
figure.savefig("figure.png", dpi=100)

# %%
run.animate("motion.gif", speed=2.0, fps=12)
