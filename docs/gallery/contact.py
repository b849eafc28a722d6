# %% [markdown]
# # A ball comes to rest
#
# A unilateral constraint with restitution 0.7: every impact is located, there are infinitely many, and after a
# time the ball lies on the floor, carried by a force. The height after half a second is differentiated through
# the impacts.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import ukjax as uk

jax.config.update("jax_enable_x64", True)


# %%
def fall(height, ts):
    floor = uk.Unilateral(lambda t, q: q[1], restitution=0.7, name="floor")
    ball = uk.System(jnp.eye(2), jnp.array([0.0, -9.81]), [floor])
    return uk.simulate(ball, jnp.stack([0.0 * height, height]), jnp.array([0.5, 0.0]), t1=3.5, ts=ts)


run = fall(jnp.asarray(1.0), 351)
print("impacts at", run.contacts.event_time[:5], "...")
print(run.contacts.told()[-1])
closed = np.sqrt(2 / 9.81) * (1 + 2 * 0.7 / (1 - 0.7))
print("rest by the geometric series:", closed, "s")

# %%
figure, axis = plt.subplots(layout="constrained", figsize=(6, 3))
axis.plot(run.q[:, 0], run.q[:, 1])
axis.set(xlabel="x [m]", ylabel="height [m]")
figure.savefig("figure.png", dpi=100)

# %%
shown = uk.Problem(run.problem.system, run.q[0], run.v[0], 0.0, 3.5, lambda t, q: {"ball": q})
run.animate("motion.gif", problem=shown, fps=12)
