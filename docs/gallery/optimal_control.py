# %% [markdown]
# # Optimal control: the push that just gets there
#
# A mass on a rod hangs at rest. A horizontal force, given at eight times and linear between them, is to bring it to
# the side and leave it there at rest, with little effort. Gradients come through the run itself.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
pendulum = uk.models.pendulum(angle=0.0)


class Pushed(uk.AbstractSystem):
    inner: uk.AbstractSystem
    forces: jax.Array  # along x, each for a quarter of a second

    def mass_matrix(self, t, q):
        return self.inner.mass_matrix(t, q)

    def force(self, t, q, v):
        knots = 0.25 * jnp.arange(8.0) + 0.125
        push = jnp.interp(t, knots, self.forces)
        return self.inner.force(t, q, v) + jnp.stack([push, 0.0 * push])

    @property
    def constraints(self):
        return self.inner.constraints


def end(forces):
    run = uk.simulate(
        Pushed(pendulum.system, forces), pendulum.q0, pendulum.v0, t1=2.0, ts=2, rtol=1e-6, atol=1e-6
    )
    return jnp.concatenate([run.q_end - jnp.array([1.0, 0.0]), run.v_end])


cost = lambda forces: 1e3 * jnp.sum(end(forces) ** 2) + 0.01 * jnp.sum(forces**2)
slope = jax.jit(jax.value_and_grad(cost))
found = minimize(
    lambda x: [np.asarray(y, float) for y in slope(jnp.asarray(x))], np.ones(8), jac=True, method="BFGS"
)
print(found.x, "off by", float(jnp.linalg.norm(end(jnp.asarray(found.x)))))

# %%
run = uk.simulate(Pushed(pendulum.system, jnp.asarray(found.x)), pendulum.q0, pendulum.v0, t1=2.0, ts=101)
run = run.with_problem(pendulum)
figure, axis = plt.subplots(layout="constrained", figsize=(6, 3))
axis.plot(run.t, run.q)
axis.legend(["x", "y"])
axis.set(xlabel="t [s]", ylabel="place [m]")
figure.savefig("figure.png", dpi=100)

# %%
run.animate("motion.gif", fps=12)
