# %% [markdown]
# # Restitution and friction of a thrown ball, as a posterior
#
# A ball that does not spin is thrown onto a floor and filmed until it rolls. How well do noisy places tell restitution
# and friction? The No-U-Turn sampler draws from the posterior. Its gradients go through the impacts, whose times move
# with both numbers. A grid of runs has the same posterior.
#
# This needs BlackJAX: `pip install 'ukjax[learn]'`.

# %%
import blackjax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import ukjax as uk

jax.config.update("jax_enable_x64", True)

RADIUS, NOISE = 0.1, 0.03  # [m]
TIMES = np.linspace(0.04, 1.6, 40)

# %% [markdown]
# The model. Coordinates are the places x and y of the middle, and the angle.


# %%
def throw(restitution, friction):
    floor = uk.Unilateral(
        lambda t, q: q[1] - RADIUS,
        slip=lambda t, q, v: v[0] + RADIUS * v[2],
        restitution=restitution,
        friction=friction,
        name="floor",
    )
    inertia = jnp.diag(jnp.array([1.0, 1.0, 0.4 * RADIUS**2]))  # of a solid ball
    ball = uk.System(inertia, jnp.array([0.0, -9.81, 0.0]), [floor])
    return uk.Problem(ball, jnp.array([0.0, 0.8, 0.0]), jnp.array([6.0, 0.0, 0.0]), 0.0, 1.6)


def places(coefficients, ts=TIMES):
    return uk.simulate(throw(*coefficients), ts=ts, contact="events").q[:, :2]


TRUTH = jnp.array([0.6, 0.12])
measured = places(TRUTH) + NOISE * jax.random.normal(jax.random.key(0), (40, 2))

# %% [markdown]
# Least squares first: the best fit and its covariance. Thrown at 3 m/s, the ball would roll after the first impact with
# any friction above 0.15, and from a first guess there `identify` says that no output tells friction.

# %%
fit = uk.identify(
    throw,
    uk.Recording(TIMES, {"place": measured}),
    {"restitution": 0.5, "friction": 0.1},
    measure=lambda q: {"place": q[:2]},
    noise=NOISE,
    bounds={"restitution": (0.0, 1.0), "friction": (0.0, 1.0)},
    contact="events",
)
print(fit)

# %% [markdown]
# Both numbers lie between 0 and 1, with equal probability. The sampler moves z, of which they are the logistic function.
# Of two parameters, forward mode is cheaper than reverse mode: the density brings its own gradient.


# %%
def log_density(z):
    coefficients = jax.nn.sigmoid(z)
    prior = jnp.sum(jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z))  # of z, if theirs is flat
    return prior - 0.5 * jnp.sum((places(coefficients) - measured) ** 2) / NOISE**2


@jax.custom_vjp
def density(z):
    return log_density(z)


def value_and_slope(z):
    slope, value = jax.jacfwd(lambda z: (log_density(z),) * 2, has_aux=True)(z)
    return value, slope


density.defvjp(value_and_slope, lambda slope, change: (change * slope,))


# %% [markdown]
# Four chains start around the fit. Its covariance is the sampler's metric, so there is nothing left to tune.

# %%
best = jnp.array([fit.parameters["restitution"], fit.parameters["friction"]])
rate = best * (1 - best)  # of the logistic function
covariance = jnp.asarray(fit.covariance) / jnp.outer(rate, rate)
middle = jnp.log(best / (1 - best))
sampler = blackjax.nuts(density, 0.7, covariance, max_num_doublings=5)


@jax.jit
def sample(key):
    def step(states, key):
        states, info = jax.vmap(sampler.step)(jax.random.split(key, 4), states)
        return states, (states.position, info.is_divergent)

    start, draw = jax.random.split(key)
    starts = jax.random.multivariate_normal(start, middle, 2 * covariance, (4,))
    z, divergent = jax.lax.scan(step, jax.vmap(sampler.init)(starts), jax.random.split(draw, 400))[1]
    return jnp.swapaxes(jax.nn.sigmoid(z[50:]), 0, 1), jnp.sum(divergent[50:])


draws, divergent = sample(jax.random.key(1))  # (chains, draws, 2)
samples = np.asarray(draws).reshape(-1, 2)
print("restitution, friction:", samples.mean(axis=0).round(4), "+-", samples.std(axis=0).round(4))
print("R-hat:", blackjax.diagnostics.potential_scale_reduction(draws).round(3), "divergent:", int(divergent))
print("effective samples:", blackjax.diagnostics.effective_sample_size(draws).round(0))

# %% [markdown]
# The same on a grid: no sampler, no gradients.

# %%
mean, spread = samples.mean(axis=0), samples.std(axis=0)
axes = [np.clip(m + s * np.linspace(-5, 5, 41), 1e-3, 1) for m, s in zip(mean, spread, strict=True)]
grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
misfits = jax.jit(jax.vmap(lambda c: jnp.sum((places(c) - measured) ** 2)))(grid.reshape(-1, 2))
weights = np.exp(-0.5 * (misfits - misfits.min()) / NOISE**2).reshape(41, 41)
weights /= weights.sum()
mean = np.einsum("ij,ijk->k", weights, grid)
deviation = np.sqrt(np.einsum("ij,ijk->k", weights, (grid - mean) ** 2))
print("by the grid:          ", mean.round(4), "+-", deviation.round(4))

# %%
figure, (left, right) = plt.subplots(1, 2, layout="constrained", figsize=(9, 3.4))
path = jax.jit(lambda c: places(c, np.linspace(0, 1.6, 321)))
for coefficients in samples[::70]:
    left.plot(*np.asarray(path(coefficients)).T, color="#0b5fa5", lw=0.8, alpha=0.4)
left.plot(*measured.T, ".", color="#202020", ms=4)
left.set(xlabel="x [m]", ylabel="y [m]", title="Measured places, and runs of 20 samples")
right.plot(*samples.T, ".", ms=2, color="#0b5fa5", alpha=0.5)
levels = weights.max() * np.exp(-0.5 * np.array([9.0, 4.0, 1.0]))
right.contour(*axes, weights.T, levels=levels, colors="#202020", linewidths=0.9)
right.plot(*TRUTH, "+", color="#c8452b", ms=12, mew=2)
right.set(xlabel="restitution", ylabel="friction", title="Samples; the grid at 1, 2, 3 deviations")
figure.savefig("figure.png", dpi=100)

# %%
run = uk.simulate(throw(*TRUTH), ts=161, contact="events")
drawn = lambda t, q: {"ball": q[:2], "mark": q[:2] + RADIUS * jnp.stack([jnp.sin(q[2]), jnp.cos(q[2])])}
shown = uk.Problem(run.problem.system, run.q[0], run.v[0], 0.0, 1.6, drawn)
run.animate("motion.gif", problem=shown, fps=15)
