"""A cart-pole that is heavier than planned, swung up by plans that are made anew while it moves.

The plan (`ukjax.plan`) is of a cart of 1 kg and a mass of 0.3 kg on a rod; the mechanism has 0.33 kg. It is driven by the
plan alone, by the plan with its feedback, and by plans from where it is every 0.1 s, each started from the one before,
the last 0.3 s by the feedback.

    python experiments/receding_horizon.py [--out out/receding_horizon] [--quick]
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from paper_tables import Table

import ukjax as uk
from ukjax._figures._plot import STYLE

jax.config.update("jax_enable_x64", True)
T, EVERY, LAST = 2.0, 0.1, 0.3
TOP = np.array([1.0, 1.0, 0.5])
INPUTS = jnp.array([[1.0], [0.0], [0.0]])
PLANNED, TRUE = (
    uk.models.light_cart_pole(cart=1.0, mass=mass, length=0.5, angle=0.0) for mass in (0.3, 0.33)
)


def effort(t, q, v, u):
    return 0.01 * u[0] ** 2


def at_rest_on_top(t, q, v):
    return jnp.concatenate([q - TOP, v])


def plan(steps: int, **options) -> uk.PlanResult:
    bounds = {"u": (-20.0, 20.0)}
    return uk.plan(
        PLANNED, effort, inputs=INPUTS, steps=steps, t1=T, end=at_rest_on_top, bounds=bounds, **options
    )


@jax.jit
def drive(t, q, v, u, gain, x, h):
    """A step of the true mechanism."""
    u = jnp.clip(u + gain @ (jnp.concatenate([q, v]) - x), -20.0, 20.0)
    force = lambda t, q, v: TRUE.system.force(t, q, v) + INPUTS @ u
    system = uk.System(TRUE.system.mass_matrix, force, TRUE.system.constraints)
    return uk.step(system, t, q, v, h)


def follow(first: uk.PlanResult, feedback: bool, again: bool) -> tuple[np.ndarray, list[float], list[int]]:
    """Coordinates over time, and times and iterations of later plans."""
    now, q, v, path, times, iterations = first, first.q[0], first.v[0], [first.q[0]], [], []
    steps = len(first.u)
    h, every = T / steps, round(EVERY * steps / T)
    for k in range(steps):
        t = k * h
        if again and k and k % every == 0 and t <= T - LAST:
            begun = time.perf_counter()
            now = plan(steps, q0=q, v0=v, t0=t, previous=now)
            times.append(time.perf_counter() - begun)
            iterations.append(now.iterations)
        i = min(int(np.searchsorted(now.t, t + 1e-9, side="right")) - 1, steps - 1)
        gain, x = now.gains[i] * feedback, np.concatenate([now.q[i], now.v[i]])
        q, v = drive(t, q, v, now.u[i], gain, x, h)
        path.append(np.asarray(q))
    return np.stack(path), times, iterations


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/receding_horizon"), help="folder of the figure")
    parser.add_argument("--quick", action="store_true", help="steps of 0.04 s in place of 0.02 s")
    options = parser.parse_args(arguments)
    plt.switch_backend("agg")
    options.out.mkdir(parents=True, exist_ok=True)
    first = plan(50 if options.quick else 100)
    print(first)
    shown = Table(
        "", "driven by", "miss at the end [m]", "plans", "iterations", "ms each, the first left out"
    )
    misses = {}
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(layout="constrained", figsize=(6, 4))
        for name, how in {
            "the plan": (False, False), "the plan and its feedback": (True, False), "plans made anew": (True, True),
        }.items():  # fmt: skip
            path, times, iterations = follow(first, *how)
            misses[name] = float(np.linalg.norm(path[-1] - TOP))
            later = f"{1e3 * np.median(times[1:]):.0f}" if times else ""
            shown.add_row(name, f"{misses[name]:.4f}", str(len(times)), f"{sum(iterations)}", later)
            axis.plot(path[:, 1], path[:, 2], label=name)
        axis.set(xlabel="x [m]", ylabel="y [m]", aspect="equal")
        axis.legend()
        figure.savefig(options.out / "receding_horizon.png", dpi=160)
    print(shown)
    return misses


if __name__ == "__main__":
    main()
