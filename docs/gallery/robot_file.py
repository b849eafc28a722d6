# %% [markdown]
# # A robot from a file
#
# An arm written as MJCF, read through MuJoCo's parser into a tree of bodies (`pip install "ukjax[robots]"`).
# Without actuation it falls and swings; `uk.load` says what of the file is used.

# %%
from pathlib import Path

import jax
import matplotlib.pyplot as plt

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
ARM = """
<mujoco model="arm">
  <worldbody>
    <body name="upper" pos="0 0 1">
      <joint name="shoulder" type="hinge" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.03" mass="1"/>
      <body name="lower" pos="0.4 0 0">
        <joint name="elbow" type="hinge" axis="0 1 0" damping="0.05"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.025" mass="0.6"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
Path("arm.xml").write_text(ARM)
robot = uk.load("arm.xml")
print(robot.report)
run = uk.simulate(robot.problem, t1=3.0, ts=151)

# %%
figure, axis = plt.subplots(layout="constrained", figsize=(6, 3))
axis.plot(run.t, run.q)
axis.legend(run.names.coordinates)
axis.set(xlabel="t [s]", ylabel="angle [rad]")
figure.savefig("figure.png", dpi=100)

# %%
run.animate("motion.gif", fps=12)
