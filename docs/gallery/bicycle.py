# %% [markdown]
# # A bicycle without a rider's help
#
# Four bodies, two wheels that roll without slipping: nine velocities, six rows, some of them nonholonomic. Meijaard,
# Papadopoulos, Ruina and Schwab (2007) published its eigenvalues for small motions, to be compared with. Between
# 4.29 and 6.02 m/s the upright bicycle is stable by itself.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import ukjax as uk

jax.config.update("jax_enable_x64", True)


# %%
def state_matrix(speed):
    problem = uk.models.bicycle(speed=speed)
    return np.asarray(uk.analysis.linearize(problem, independent=["seat x", "seat y", "steer"]).A)


def eigenvalues(A):
    """Of lean and steer; the others are zero."""
    found = np.linalg.eigvals(A)
    return found[np.argsort(-abs(found))][:4]


at = {speed: state_matrix(speed) for speed in (3.0, 5.0, 7.0)}
published = [complex(-0.77534188219585, 4.46486771378823), -0.32286642900409, -14.07838969279822]
apart = [abs(eigenvalues(at[5.0]) - x).min() for x in published]
print("at 5 m/s, off the published ones by", ", ".join(f"{x:.0e}" for x in apart), "1/s")

# %% [markdown]
# Small motions obey M q'' + v C q' + (g K + v² L) q = 0, so the state matrix is a polynomial of second degree in the
# speed v, and three speeds give it for all. Where all real parts are negative, the bicycle straightens up.

# %%
speeds = np.linspace(0.0, 10.0, 1001)
powers = np.linalg.solve(np.vander(list(at)), np.stack(list(at.values())).reshape(3, -1))
matrices = (np.vander(speeds, 3) @ powers).reshape(-1, *at[5.0].shape)
real = np.array([np.sort(eigenvalues(A).real) for A in matrices])
stable = speeds[real.max(axis=1) < 0]
print(f"stable from {stable[0]:.2f} to {stable[-1]:.2f} m/s")

figure, axis = plt.subplots(layout="constrained", figsize=(6, 3.5))
axis.axvspan(stable[0], stable[-1], color="#e4e4e4")
axis.plot(speeds, real, ".", ms=2, color="#33527a")
axis.set(xlabel="speed [m/s]", ylabel="real part [1/s]", ylim=(-10, 10))
figure.savefig("figure.png", dpi=100)

# %% [markdown]
# A push sideways at 4.6 m/s:

# %%
pushed = uk.simulate(uk.models.bicycle(speed=4.6, roll_rate=0.5), t1=1.2, ts=151)
print(f"energy changes by {pushed.energy_drift:.0e} J of {pushed.energy[0]:.0f} J")

# %%
pushed.animate("motion.gif", speed=0.4, fps=12)
