# %% [markdown]
# # The same sweep on several processes
#
# With `executor=2` chunks are tasks on two processes of this machine; with a Dask client or a Ray cluster they
# are tasks there. What is stored is equal to the last bit, and a sweep that was interrupted goes on where it
# stopped. Here 2,000 pendulums of random length and amplitude swing for a second.

# %%
import jax
import matplotlib.pyplot as plt

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
samples = uk.samples.LatinHypercube({"angle": (0.1, 2.5), "length": (0.5, 1.5)}, 2_000, seed=1)
if __name__ == "__main__":  # the processes read this file, too
    runs = uk.sweep(
        uk.models.pendulum, samples, outputs=["q_end"], t1=1.0, store="swings.zarr", chunk=500, executor=2
    )
    print(runs)
    figure, axis = plt.subplots(layout="constrained", figsize=(5, 3.5))
    ends = axis.scatter(*runs.q_end.values.T, c=runs.length, s=4)
    figure.colorbar(ends, label="length [m]")
    axis.set(xlabel="x after a second [m]", ylabel="y [m]", aspect="equal")
    figure.savefig("figure.png", dpi=100)
    uk.simulate(uk.models.pendulum(angle=1.5), t1=2.0, ts=101).animate("motion.gif", fps=12)
