# %% [markdown]
# # The same sweep on several processes
#
# With `executor=2` chunks are tasks on two processes of this machine; with a Dask client or a Ray cluster they
# are tasks there. What is stored is equal to the last bit, and a sweep that was interrupted goes on where it
# stopped.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import ukjax as uk

jax.config.update("jax_enable_x64", True)


# %%
def drop(height, drag):
    fall = lambda i, v: v + 0.01 * (9.81 - drag * v * v)
    return {"speed": jax.lax.fori_loop(0, 100, fall, jnp.sqrt(height))}


samples = uk.samples.LatinHypercube({"height": (0.0, 2.0), "drag": (0.1, 1.0)}, 2_000, seed=1)
if __name__ == "__main__":  # the processes read this file, too
    runs = uk.sweep(drop, samples, store="drops.zarr", chunk=500, executor=2)
    figure, axis = plt.subplots(layout="constrained", figsize=(5, 3))
    axis.scatter(runs.drag, runs.speed, c=runs.height, s=4)
    axis.set(xlabel="drag", ylabel="speed after a second [m/s]")
    figure.savefig("figure.png", dpi=100)
