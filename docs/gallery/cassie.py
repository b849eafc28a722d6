# %% [markdown]
# # Cassie's legs in motion
#
# The two legs of Agility's Cassie, from its file. In each, two rods close loops through springs: twelve rows of rank ten.
# The file leaves them 2 mm open; here the start is closed first, and stays closed. The pelvis is held in a stand, and the
# ten motors follow sines.

# %%
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
folder = Path(uk.__file__).parents[1] / "experiments" / "robots"  # of a copy of the project
text = (folder / "cassie.xml").read_text()
held = text.replace("<freejoint/>", "").replace('qpos="0 0 1.0059301 1 0 0 0 ', 'qpos="')
amplitude = 0.1 * np.array([4.5, 4.5, 12.2, 12.2, 0.9] * 2)  # a tenth of what the motors can do [N m]
phase = np.repeat([0.0, np.pi], 5)  # one leg after the other
cassie = uk.load(held, ctrl=lambda t: amplitude * jnp.sin(4 * jnp.pi * t + phase))
run = uk.simulate(cassie.problem, t1=1.0, ts=101)
places = jax.jit(jax.vmap(lambda q: cassie.points(0.0, q)))(run.q)
print(run.computed_by)
print(f"loops open by {float(jnp.abs(run.position_error).max()):.0e} m at most")
print(f"{int(run.rank.min())} of {run.multipliers.shape[1]} rows are independent")

# %% [markdown]
# The rods carry what the loops ask of them: multipliers of least norm, since rows depend on each other.

# %%
figure, axes = plt.subplots(1, 2, layout="constrained", figsize=(8, 3))
for side in ("left", "right"):
    foot = np.asarray(places[f"{side}-foot"])
    axes[0].plot(foot[:, 0], foot[:, 2], label=f"{side} foot")
    rows = [i for i, name in enumerate(run.row_names) if f"{side}-achilles-rod" in name]
    axes[1].plot(
        run.t, np.linalg.norm(np.asarray(run.multipliers)[:, rows], axis=1), label=f"{side} achilles rod"
    )
axes[0].set(xlabel="ahead [m]", ylabel="height [m]", aspect="equal")
axes[1].set(xlabel="t [s]", ylabel="force [N]")
for axis in axes:
    axis.legend()
figure.savefig("figure.png", dpi=100)

# %%
run.animate("motion.gif", fps=15, speed=0.4)
