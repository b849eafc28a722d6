# %% [markdown]
# # A pole swings up
#
# A pole hangs from a cart. A force on the cart, at most 20 N, is to bring it up and leave it at rest 1 m to the side:
# first with least effort, then in the least time. The pole is a rod of exact length between cart and mass, and stays so
# at every step of the plan.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
cart_pole = uk.models.light_cart_pole(cart=1.0, mass=0.3, length=0.5, angle=0.0)
top = jnp.array([1.0, 1.0, 0.5])
wanted = {
    "inputs": [[1.0], [0.0], [0.0]],  # a force on the cart
    "end": lambda t, q, v: jnp.concatenate([q - top, v]),
    "bounds": {"u": (-20.0, 20.0), "x": (-0.5, 1.5)},
}
gentle = uk.plan(cart_pole, lambda t, q, v, u: 0.01 * u[0] ** 2, t1=2.0, **wanted)
quick = uk.plan(
    cart_pole,
    lambda t, q, v, u: 1.0 + 1e-3 * u[0] ** 2,
    t1=(0.5, 3.0),
    previous=gentle,
    iterations=500,
    **wanted,
)
print(gentle, quick, sep="\n")

# %%
figure, axes = plt.subplots(2, 1, sharex=True, layout="constrained", figsize=(6, 4))
for plan, name in ((gentle, "least effort"), (quick, "least time")):
    axes[0].plot(plan.t, plan.q[:, 0], label=f"cart, {name}")
    axes[1].stairs(plan.u[:, 0], plan.t, baseline=None, label=name)
axes[0].set_ylabel("x [m]")
axes[1].set(xlabel="t [s]", ylabel="force [N]")
axes[0].legend()
axes[1].legend()
figure.savefig("figure.png", dpi=100)

# %%
uk.simulate(gentle.problem(feedback=True), ts=51).animate("motion.gif", fps=25)
