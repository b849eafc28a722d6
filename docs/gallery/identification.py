# %% [markdown]
# # A length from noisy data
#
# A pendulum's path was measured with an error of 1 cm. Its length is what makes the simulated path fit best:
# least squares through the simulation, with the derivative of the run.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
times = jnp.linspace(0.05, 2.0, 40)


def path(length):
    problem = uk.models.pendulum(length=length)
    return uk.simulate(problem, t1=2.0, ts=times).q[:40]


measured = path(jnp.asarray(1.2)) + 0.01 * jax.random.normal(jax.random.key(0), (40, 2))
slope = jax.jit(jax.jacfwd(path))
length = jnp.asarray(1.0)
for _ in range(6):  # Gauss and Newton
    off, J = (path(length) - measured).ravel(), slope(length).ravel()
    length = length - J @ off / (J @ J)
deviation = float(jnp.sqrt(off @ off / (off.size - 1) / (J @ J)))
print(f"{float(length):.5f} m, give or take {deviation:.5f}")

# %%
figure, axis = plt.subplots(layout="constrained", figsize=(6, 3))
axis.plot(times, path(length))
axis.plot(times, measured, ".", color="#202020", ms=3)
axis.set(xlabel="t [s]", ylabel="place [m]")
figure.savefig("figure.png", dpi=100)

# %%
uk.simulate(uk.models.pendulum(length=length), t1=2.0, ts=101).animate("motion.gif", fps=12)
