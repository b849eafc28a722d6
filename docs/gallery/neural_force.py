# %% [markdown]
# # A neural force on an exact rod
#
# Air drag of a pendulum is unknown. A small network learns it from the path, inside a model whose rod stays exact
# whatever the network says.

# %%
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
start = uk.models.pendulum()


class Dragged(uk.AbstractSystem):
    inner: uk.AbstractSystem
    drag: Any

    def mass_matrix(self, t, q):
        return self.inner.mass_matrix(t, q)

    def force(self, t, q, v):
        return self.inner.force(t, q, v) + self.drag(v)

    @property
    def constraints(self):
        return self.inner.constraints


def path(drag):
    advance = lambda y, t: (uk.step(Dragged(start.system, drag), t, *y, 0.05, solver=dfx.Bosh3()),) * 2
    return jax.lax.scan(advance, (start.q0, start.v0), 0.05 * jnp.arange(40))[1][0]


truth = path(lambda v: -0.5 * v)
network = eqx.nn.MLP(2, 2, width_size=8, depth=1, activation=jnp.tanh, key=jax.random.key(1))
slope = eqx.filter_jit(eqx.filter_value_and_grad(lambda drag: jnp.mean((path(drag) - truth) ** 2)))
optimizer = optax.adam(2e-2)
state, losses = optimizer.init(eqx.filter(network, eqx.is_array)), []
for _ in range(150):
    loss, gradient = slope(network)
    losses.append(float(loss))
    change, state = optimizer.update(gradient, state)
    network = eqx.apply_updates(network, change)
learnt = path(network)
print("misfit from", losses[0], "to", losses[-1])
print("error of the rod:", float(abs(jnp.linalg.norm(learnt, axis=1) - 1).max()), "m")

# %%
figure, axis = plt.subplots(layout="constrained", figsize=(6, 3))
axis.plot(0.05 * jnp.arange(1, 41), learnt, label=["x, learnt", "y, learnt"])
axis.plot(0.05 * jnp.arange(1, 41), truth, ".", color="#202020", ms=3, label=["truth", None])
axis.legend()
axis.set(xlabel="t [s]", ylabel="place [m]")
figure.savefig("figure.png", dpi=100)
swing = uk.simulate(Dragged(start.system, network), start.q0, start.v0, t1=2.0, ts=101)

# %%
swing.animate("motion.gif", problem=start, fps=12)
