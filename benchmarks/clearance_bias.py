"""How far a clearance R, which smooths the change of rank at the parallelogram's flat position, bends the motion.

python benchmarks/clearance_bias.py [--clearances 1 0.1]
"""

import argparse

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from _timing import machine, table
from scipy.integrate import solve_ivp

import ukjax as uk

CLEARANCES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4)
ANGLE, RATE, END, STEP = 0.2, -1.0, 0.4, 0.005
ALPHA, BETA = 200.0, 1e4


def exact(gravity: float) -> float:
    """The links' angle at the end in the one coordinate there is: 3.05 angle'' = -3.5 g cos(angle)."""

    def rates(t, x):
        return [x[1], -3.5 * gravity * np.cos(x[0]) / 3.05]

    return solve_ivp(rates, (0, END), [ANGLE, RATE], rtol=1e-12, atol=1e-13).y[0, -1]


def angle(gravity: jax.Array, clearance: jax.Array) -> jax.Array:
    """The first link's angle at the end of a run through the flat position."""
    run = uk.simulate(
        uk.models.parallelogram(angle=ANGLE, rate=RATE, gravity=gravity), t1=END, dt0=STEP, ts=2,
        formula=uk.Recursive(clearance=clearance), stabilizer=uk.Baumgarte(ALPHA, BETA), solver=dfx.Tsit5(),
        stepsize_controller=dfx.ConstantStepSize(), adjoint=dfx.ForwardMode(), max_steps=100,
    )  # fmt: skip
    return run.q[-1, 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clearances", type=float, nargs="+", default=CLEARANCES, help="[1/kg]")
    clearances = parser.parse_args().clearances
    jax.config.update("jax_enable_x64", True)
    both = jax.jit(lambda g, R: jax.jvp(lambda g: angle(g, R), (g,), (jnp.ones(()),)))
    slope = (exact(9.81 + 1e-3) - exact(9.81 - 1e-3)) / 2e-3
    rows = {}
    for R in clearances:
        value, change = (float(x) for x in both(jnp.asarray(9.81), jnp.asarray(R)))
        rows[f"{R:g}"] = [abs(value - exact(9.81)), abs(change / slope - 1)]
    print(f"Baumgarte({ALPHA:g}, {BETA:g}), {END} s, Tsit5 at {STEP} s, float64. {machine()}.\n")
    print(table(["error of the angle [rad]", "relative error of its derivative by gravity"], rows))


if __name__ == "__main__":
    main()
