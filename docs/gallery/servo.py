# %% [markdown]
# # Two robots carry a bar
#
# Servo constraints (Liu 2015): the bar is to go up and down by a given law. `with_servo` finds the joint torques
# that make it do so, here six for a mechanism of five angles, by least norm.

# %%
import jax
import matplotlib.pyplot as plt

import ukjax as uk

jax.config.update("jax_enable_x64", True)

# %%
problem = uk.models.coordinated_robots()
robots = problem.system
held = uk.with_servo(problem, robots.input_matrix, robots.servo_constraints)
run = uk.simulate(held, ts=201)
servo = run.servo()
print("tracking error:", float(abs(servo.position_error).max()))

# %%
figure, axis = plt.subplots(layout="constrained", figsize=(6, 3))
axis.plot(run.t, servo.inputs)
axis.legend([f"motor {k}" for k in range(1, 7)], ncols=2, fontsize=7)
axis.set(xlabel="t [s]", ylabel="torque [N m]")
figure.savefig("figure.png", dpi=100)

# %%
run.animate("motion.gif", problem=problem, speed=1.5, fps=12)
