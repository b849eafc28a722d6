# %% [markdown]
# # An unknown force as a Gaussian process, and a mass with it
#
# The guide of a slider-crank rubs, and nobody knows by what law. The force is a Gaussian process of the slider's speed,
# and the slider's mass is unknown too. Both are found at once from noisy angles of the crank. Pins and guide stay exact
# rows, so the data need to tell the force only.

# %%
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optimistix as optx

import ukjax as uk

jax.config.update("jax_enable_x64", True)

STEP, NOISE = 0.02, 0.01  # of the runs [s], of measured angles [rad]

# %% [markdown]
# The mechanism: a motor turns the crank by a known moment, and a force along the guide depends on the slider's speed.


# %%
class Rubbed(uk.AbstractSystem):
    inner: uk.AbstractSystem
    law: Any
    phase: Any

    def mass_matrix(self, t, q):
        return self.inner.mass_matrix(t, q)

    def force(self, t, q, v):
        motor = 6.0 * jnp.sin(2.3 * t + self.phase) + 4.0 * jnp.sin(0.9 * t)
        return self.inner.force(t, q, v).at[2].add(motor).at[6].add(-self.law(v[6]))

    @property
    def constraints(self):
        return self.inner.constraints


def swing(law, mass, rate, phase, steps=40):
    """Coordinates and velocities after each step, from a rate of the crank."""
    start = uk.models.slider_crank(slider_mass=mass, rate=rate, angle=0.4)
    system = Rubbed(start.system, law, phase)
    advance = lambda y, t: (uk.step(system, t, *y, STEP, solver=dfx.Bosh3()),) * 2
    return jax.lax.scan(advance, (start.q0, start.v0), STEP * jnp.arange(steps))[1]


def stribeck(speed):
    """The truth: much friction when slow, less when faster, then more again."""
    return (2.0 + 3.0 * jnp.exp(-((speed / 0.8) ** 2))) * jnp.tanh(speed / 0.3) + 0.5 * speed


MASS = 1.7
STARTS = jnp.linspace(-8.0, 8.0, 10), jnp.arange(10.0)  # rates of the crank [rad/s] and phases of the moment
angles = jax.jit(jax.vmap(lambda *start: swing(stribeck, MASS, *start)[0][:, 2]))(*STARTS)
measured = angles + NOISE * jax.random.normal(jax.random.key(0), angles.shape)

# %% [markdown]
# The process: a smooth odd function of the speed, by its values at a few speeds. Its prior has a standard deviation of
# 5 N, and forgets within 0.4 m/s. Whitened values w are independent and standard normal before there are data.

# %%
SPEEDS = jnp.linspace(0.1, 5.0, 25)
alike = lambda a, b: (
    jnp.exp(-0.5 * ((a[:, None] - b) / 0.4) ** 2) - jnp.exp(-0.5 * ((a[:, None] + b) / 0.4) ** 2)
)
K = 5.0**2 * alike(SPEEDS, SPEEDS) + 1e-6 * jnp.eye(25)
weights = jnp.linalg.solve(K, jnp.linalg.cholesky(K))  # of w in the force


def law(w):
    return lambda speed: 5.0**2 * alike(jnp.reshape(speed, (1,)), SPEEDS)[0] @ weights @ w


# %% [markdown]
# Maximum of the posterior by least squares: residuals of the data and of the priors, that of the mass 1 kg, give or
# take a factor e. Derivatives go through the runs in forward mode.


# %%
def residuals(z, _=None):
    mass, w = jnp.exp(z[0]), z[1:]
    found = jax.vmap(lambda *start: swing(law(w), mass, *start)[0][:, 2])(*STARTS)
    return jnp.concatenate([((found - measured) / NOISE).ravel(), z])


search = optx.LevenbergMarquardt(1e-5, 1e-5)
z = optx.least_squares(residuals, search, jnp.zeros(26), max_steps=60).value
J = jax.jit(jax.jacfwd(residuals))(z)
covariance = jnp.linalg.inv(J.T @ J)  # Laplace's approximation
mass, deviation = jnp.exp(z[0]), jnp.exp(z[0]) * jnp.sqrt(covariance[0, 0])
print(f"mass of the slider: {mass:.3f} +- {deviation:.3f} kg, in truth {MASS}")

# %% [markdown]
# What it is worth: a motion from another start under another moment, four times as long, beside the truth.

# %%
held_out = jnp.asarray(5.0), jnp.asarray(4.5)
predict = jax.jit(lambda z: swing(law(z[1:]), jnp.exp(z[0]), *held_out, 150)[0])
predicted = predict(z)
true_q = swing(stribeck, MASS, *held_out, 150)[0]
without = swing(lambda speed: 0.0 * speed, MASS, *held_out, 150)[0]
rms = lambda q: float(jnp.sqrt(jnp.mean((q[:, 2] - true_q[:, 2]) ** 2)))
print(f"crank's angle, held out: error {rms(predicted):.4f} rad, without friction {rms(without):.2f} rad")
print(f"slider off its guide: {float(jnp.max(jnp.abs(predicted[:, 7]))):.1e} m")

# %%
speed = jnp.linspace(-4.0, 4.0, 201)
force = jax.vmap(law(z[1:]))(speed)
slope = jax.vmap(lambda s: jax.jacfwd(lambda w: law(w)(s))(z[1:]))(speed)
band = 2 * jnp.sqrt(jnp.einsum("ki,ij,kj->k", slope, covariance[1:, 1:], slope))
figure, (left, right) = plt.subplots(1, 2, layout="constrained", figsize=(9, 3.4))
left.fill_between(speed, force - band, force + band, alpha=0.25, lw=0, color="#0b5fa5")
left.plot(speed, force, color="#0b5fa5", label="learnt, with two deviations")
left.plot(speed, stribeck(speed), "--", color="#202020", label="truth")
left.set(
    xlabel="speed of the slider [m/s]", ylabel="friction [N]", title=f"mass {mass:.2f} ± {deviation:.2f} kg"
)
left.legend(fontsize="small")
times = STEP * np.arange(1, 151)
right.plot(times, without[:, 2], color="#c8452b", lw=1, label="without friction")
right.plot(times, predicted[:, 2], color="#0b5fa5", label="predicted")
right.plot(times[::3], true_q[::3, 2], ".", color="#202020", ms=4, label="truth")
right.set(xlabel="t [s]", ylabel="angle of the crank [rad]", title="A motion that was held out")
right.legend(fontsize="small")
figure.savefig("figure.png", dpi=100)

# %%
start = uk.models.slider_crank(slider_mass=mass, rate=held_out[0], angle=0.4)
learnt = Rubbed(start.system, law(z[1:]), held_out[1])
uk.simulate(learnt, start.q0, start.v0, t1=3.0, ts=46).animate("motion.gif", problem=start, fps=15)
