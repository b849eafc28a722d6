# %% [markdown]
# # Gains found by gradient descent
#
# Baumgarte's gains bring a pendulum back that starts 1 % off its rod's length. `uk.tune` differentiates through
# the simulation.

# %%
import diffrax as dfx
import jax
import matplotlib.pyplot as plt

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
problem = uk.models.pendulum(rate=0.5)
off = 1.01 * problem.q0
fixed = {"dt0": 0.01, "stepsize_controller": dfx.ConstantStepSize()}
result = uk.tune(problem, uk.Baumgarte(0.5, 200.0), q0=off, t1=1.0, **fixed)
print(result.gains)

# %%
figure, axis = plt.subplots(layout="constrained", figsize=(6, 3))
for name, gains in (("before", uk.Baumgarte(0.5, 200.0)), ("after", result.gains)):
    run = uk.simulate(problem, off, t1=1.0, ts=201, stabilizer=gains)
    axis.semilogy(run.t, abs(run.position_error) + 1e-12, label=name)
axis.legend()
axis.set(xlabel="t [s]", ylabel="error of the length")
figure.savefig("figure.png", dpi=100)

# %%
run.animate("motion.gif", speed=0.4, fps=12)
