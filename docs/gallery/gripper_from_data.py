# %% [markdown]
# # A gripper identified from data
#
# A Robotiq 2F-85 gripper, read from its file, closes and opens. Its fingers are four-bar linkages with springs; seven
# rows of rank five close the loops exactly. A camera has seen where a finger pad was, with an error of 0.2 mm. From that
# follow the length of a link, the stiffness of the springs and the inertia of the drives' rotors: least squares through
# the simulation, with the derivatives of the whole run.

# %%
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import least_squares

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# The file is in `experiments/robots/`; meshes need not be there. The input pulls on a tendon that drives both sides.

# %%
folder = Path(uk.__file__).parents[1] / "experiments" / "robots"  # of a copy of the project
gripper = uk.load(folder / "robotiq_2f85.xml", ctrl=lambda t: jnp.where(t < 0.2, jnp.array([0.06]), 0.0))
known = gripper.parameters
times = np.linspace(0.0, 0.4, 41)


def identified(x):
    """The gripper with three numbers, as multiples of those of the file."""
    length, stiffness, inertia = x
    link = jnp.array([length, length, 1.0])  # the loops lie in the plane of the first two axes
    return gripper.with_parameters(
        position={
            f"{side}_follower": known["position"][f"{side}_follower"] * link for side in ("left", "right")
        },
        stiffness={name: stiffness * k for name, k in known["stiffness"].items()},
        armature={f"{side}_driver_joint": inertia * 0.005 for side in ("left", "right")},
    )


def motion(x):
    return uk.simulate(identified(x).problem, t1=0.4, ts=times, max_steps=512)


def pad(x):
    """Where the left pad is at the times of the pictures [m]."""
    return jax.vmap(lambda q: identified(x).points(0.0, q)["left_pad"][::2])(motion(x).q[: times.size])


# %%
true = jnp.array([1.02, 0.7, 1.5])
noise = 2e-4 * np.random.default_rng(0).normal(size=(times.size, 2))
measured = np.asarray(jax.jit(pad)(true)) + noise
residuals = jax.jit(lambda x: (pad(x) - measured).reshape(-1) / 2e-4)
slopes = jax.jit(jax.jacfwd(residuals))
found = least_squares(residuals, np.ones(3), lambda x: np.asarray(slopes(x)), bounds=(0.2, 5.0))
deviations = np.sqrt(np.diag(np.linalg.inv(found.jac.T @ found.jac)))
for name, value, deviation, wanted in zip(
    ("length", "stiffness", "inertia"), found.x, deviations, true, strict=True
):
    print(f"{name}: {value:.4f} +- {deviation:.4f} times the file's (the data were made with {wanted:.4f})")
print(f"{found.nfev} steps; the pad is {np.sqrt(np.mean(found.fun**2)) * 0.2:.2f} mm off")

# %% [markdown]
# A link that is 2 % longer is told to a hundredth of that. How stiff the springs are is hardly told by these pictures, as
# its deviation says.

# %%
figure, axes = plt.subplots(1, 2, layout="constrained", figsize=(8, 3), sharex=True)
for axis, k, name in zip(axes, (0, 1), ("across", "along"), strict=True):
    axis.plot(times, 1e3 * measured[:, k], ".", color="#202020", ms=3, label="measured")
    axis.plot(times, 1e3 * np.asarray(pad(jnp.ones(3)))[:, k], label="the file's numbers")
    axis.plot(times, 1e3 * np.asarray(pad(jnp.asarray(found.x)))[:, k], label="identified")
    axis.set(xlabel="t [s]", ylabel=f"pad {name} the gripper [mm]")
axes[0].legend()
figure.savefig("figure.png", dpi=100)

# %%
uk.simulate(identified(found.x).problem, t1=0.4, ts=times).animate("motion.gif", fps=15, speed=0.2)
