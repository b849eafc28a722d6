"""Two robots carry a load (Liu 2015, section V) along the path of least effort: optimal control by shooting.

Servo control makes the load follow a path in position and orientation, from the model's start to a place 1 m higher,
0.4 m to the left and turned by 0.6 rad, in 1 s and from rest to rest. The naive path is straight, with the quintic
that starts and ends at rest; polynomials with the same ends are added to it, three for each of x, y and angle. Their
nine coefficients minimize the effort, the integral of u . u over the six torques, through the closed loop: BFGS, with
the gradient by forward-mode differentiation through `uk.step` and `uk.with_servo`.

The check shares no code with it: five rows on five angles, so that the motion is algebraic. Inverse kinematics and
dynamics in numpy, differentiated by differences, minimized by SciPy from another start.

    python experiments/optimal_control.py [--out out/optimal_control] [--quick]
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from paper_tables import Table
from rollout import rollout
from scipy.integrate import simpson
from scipy.optimize import OptimizeResult, minimize

import ukjax as uk
from ukjax._figures._plot import STYLE

T = 1.0
START, END = np.array([1.5, 0.0, 0.0]), np.array([1.1, 1.0, 0.6])  # of the load: x, y [m], angle [rad]
DEGREES = 3  # polynomials added to each of x, y and angle
GRAVITY = 9.8
REACH = np.array(
    [[1.0] * i + [0.5] + [0.0] * (4 - i) for i in range(5)]
)  # links that carry each centre of mass
INPUTS = np.array(  # torques of the six joints on the five angles (Liu 2015, eq. (70))
    [
        [1, -1, 0, 0, 0, 0],
        [0, 1, -1, 0, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 0, -1, 1, 0],
        [0, 0, 0, 0, -1, 1],
    ],
    float,
)
COLOURS = ("#9aa4ad", "#0b5fa5", "#c8452b")


def legendre(s):
    """1, x and (3 x^2 - 1) / 2 with x = 2 s - 1."""
    x = 2.0 * s - 1.0
    return [1.0 + 0.0 * x, x, 0.5 * (3.0 * x * x - 1.0)]


def load_path(coefficients, t):
    """x, y and angle of the load at time t; of numpy's or JAX's arrays."""
    s = t / T
    quintic = s**3 * (10.0 - 15.0 * s + 6.0 * s * s)
    bump = 64.0 * (s * (1.0 - s)) ** 3
    added = [sum(c * p for c, p in zip(row, legendre(s), strict=True)) * bump for row in coefficients]
    return [a + (b - a) * quintic + extra for a, b, extra in zip(START, END, added, strict=True)]


# --- Through the closed loop


def off_path(coefficients: jax.Array, robots: uk.AbstractSystem, t: jax.Array, q: jax.Array) -> jax.Array:
    """How far the load is off its path: x, y [m] and angle [rad]."""
    return jnp.append(robots.load(q), q[2]) - jnp.stack(load_path(coefficients, t))


def closed_loop(coefficients: jax.Array) -> uk.Servoed:
    """The robots under the servo control that follows the path."""
    robots = uk.models.coordinated_robots().system
    row = uk.Holonomic(jax.tree_util.Partial(off_path, coefficients, robots), name="load")
    return uk.with_servo(robots, robots.input_matrix, row, stabilizer=uk.Baumgarte(20.0, 100.0))


def motion(coefficients: jax.Array, steps: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Times (k,), angles (k, 5) and torques (k, 6) of the closed loop."""
    problem, servoed = uk.models.coordinated_robots(), closed_loop(coefficients)
    q, v = rollout(servoed, problem.q0, problem.v0, T / steps, steps)
    t = jnp.linspace(0.0, T, steps + 1)
    return t, q, jax.vmap(servoed.control)(t, q, v)


def effort(flat: jax.Array, steps: int) -> tuple[jax.Array, tuple]:
    """The integral of u . u [N^2 m^2 s], by Simpson's rule; and the motion."""
    t, q, u = motion(flat.reshape(3, DEGREES), steps)
    weights = jnp.ones(steps + 1).at[1:-1:2].set(4.0).at[2:-1:2].set(2.0) * T / (3.0 * steps)
    return jnp.dot(weights, jnp.sum(u * u, axis=1)), (t, q, u)


# --- The check, in numpy


def angles_of(coefficients: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The five angles (k, 5) by inverse kinematics, both elbows up as at the start."""
    x, y, turn = load_path(coefficients, t)

    def arm(px, py):
        with np.errstate(invalid="ignore"):
            bend, along = np.arccos(0.5 * np.hypot(px, py)), np.arctan2(py, px)
        return along + bend, along - bend

    left = arm(x - 0.5 * np.cos(turn), y - 0.5 * np.sin(turn))
    right = arm(3.0 - x - 0.5 * np.cos(turn), -y - 0.5 * np.sin(turn))
    return np.stack([*left, turn, *right], axis=-1)


def effort_in_numpy(flat: np.ndarray, points: int = 41) -> float:
    """The same by inverse dynamics: u of least norm with N (M a - Q - B u) = 0, N off the closing rows."""
    c, t, h = np.asarray(flat).reshape(3, DEGREES), np.linspace(0.0, T, points), 1e-4
    before, q, after = (angles_of(c, t + dt) for dt in (-h, 0.0, h))
    if not np.isfinite(after + before).all():
        return 1e6  # out of reach
    v, a = (after - before) / (2 * h), (after - 2 * q + before) / h**2
    coupling, difference = REACH.T @ REACH, q[:, :, None] - q[:, None, :]
    M = coupling * np.cos(difference) + np.eye(5)
    inertial = np.einsum("tij,tj->ti", M, a) + np.einsum("tij,tj->ti", coupling * np.sin(difference), v**2)
    needed = inertial + GRAVITY * REACH.sum(axis=0) * np.cos(q)
    closing = np.stack([-np.sin(q), np.cos(q)], axis=1)
    off = np.eye(5) - np.linalg.pinv(closing) @ closing
    u = np.einsum(
        "tij,tj->ti", np.linalg.pinv(off @ INPUTS, rcond=1e-9), np.einsum("tij,tj->ti", off, needed)
    )
    return float(simpson(np.sum(u * u, axis=1), x=t))


# --- The experiment


class Found(NamedTuple):
    """Efforts of the naive and the best path, as simulated and in numpy, and how good the optimum is.

    `gradient`: its norm at the optimum, over that at the start. `miss`: of the load's place at the end [m, rad].
    """

    naive: float
    best: float
    in_numpy: tuple[float, float]
    elsewhere: float
    gradient: float
    miss: float
    evaluations: int
    coefficients: np.ndarray


def shoot(steps: int, iterations: int) -> tuple[OptimizeResult, list, list]:
    """BFGS from the naive path; also the motions of the naive and the best path, and the history of efforts."""
    both = lambda flat: (lambda value, aux: (value, (value, aux)))(*effort(flat, steps))
    compiled = jax.jit(jax.jacfwd(both, has_aux=True))

    def value_and_slope(flat):
        slope, (value, _) = compiled(jnp.asarray(flat))
        return float(value), np.asarray(slope)

    start, history = np.zeros(3 * DEGREES), []
    keep = lambda intermediate_result: history.append(float(intermediate_result.fun))
    options = {"maxiter": iterations, "gtol": 1e-5}
    result = minimize(value_and_slope, start, jac=True, method="BFGS", callback=keep, options=options)
    slope, (value, naive) = compiled(jnp.asarray(start))
    result.naive, result.first_gradient = float(value), float(np.linalg.norm(slope))
    best = compiled(jnp.asarray(result.x))[1][1]
    runs = [tuple(np.asarray(x) for x in run) for run in (naive, best)]
    return result, runs, [float(value), *history]


def figure(found: Found, runs: list, history: list, file: Path) -> None:
    robots = uk.models.coordinated_robots().system
    load = jax.vmap(robots.load)
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(1, 3, figsize=(12.0, 4.2), layout="constrained", width_ratios=(1.3, 1, 1))
        t, q, _ = runs[1]
        for k in np.linspace(0, t.size - 1, 6).round().astype(int):
            for name, bar in robots.drawing(jnp.asarray(t[k]), jnp.asarray(q[k])).items():
                colour = COLOURS[2] if name == "load" else "#404040"
                axes[0].plot(*np.asarray(bar).T, "o-", color=colour, ms=2, alpha=0.2 + 0.8 * k / t.size)
        for (t, q, u), name, colour in zip(runs, ("naive", "best"), COLOURS, strict=False):
            axes[0].plot(
                *np.asarray(load(jnp.asarray(q))).T, color=colour, lw=2.5, label=f"load, {name} path"
            )
            axes[1].plot(t, np.sum(u * u, axis=1), color=colour, label=name)
        axes[0].set(xlabel="x [m]", ylabel="y [m]", aspect="equal", ylim=(-0.3, 2.3))
        axes[0].set_title("The best path", loc="left")
        axes[0].legend(fontsize="small", loc="upper right")
        axes[1].set(xlabel="t [s]", ylabel="u . u [N²m²]")
        axes[1].set_title("Effort over time", loc="left")
        axes[1].legend()
        axes[2].plot(
            np.array(history) / found.naive, "o-", ms=3, color=COLOURS[1], label="through the simulation"
        )
        other = found.elsewhere / found.naive
        axes[2].axhline(other, color=COLOURS[2], ls="--", lw=1.0, label="numpy, from another start")
        axes[2].set(xlabel="iteration", ylabel="effort / that of the naive path")
        axes[2].set_title("The search", loc="left")
        axes[2].legend(fontsize="small")
        fig.savefig(file, dpi=160)
        plt.close(fig)


def table(found: Found, steps: int) -> Table:
    shown = Table(
        "", f"effort [N² m² s], {steps} steps", "through the simulation", "inverse dynamics in numpy"
    )
    shown.add_row("naive path", f"{found.naive:.4f}", f"{found.in_numpy[0]:.4f}")
    shown.add_row("best path", f"{found.best:.4f}", f"{found.in_numpy[1]:.4f}")
    shown.add_row("the best that SciPy finds from another start", "", f"{found.elsewhere:.4f}")
    shown.add_row(
        "best / naive", f"{found.best / found.naive:.4f}", f"{found.elsewhere / found.in_numpy[0]:.4f}"
    )
    shown.add_row("gradient at the optimum / at the start", f"{found.gradient:.1e}", "")
    shown.add_row("miss of the end [m, rad]", f"{found.miss:.1e}", "")
    return shown


def main(arguments: list[str] | None = None) -> Found:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/optimal_control"), help="folder of the figure")
    parser.add_argument(
        "--quick", action="store_true", help="half the steps, and no search from another start"
    )
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    plt.switch_backend("agg")
    options.out.mkdir(parents=True, exist_ok=True)
    steps = 40 if options.quick else 80
    result, runs, history = shoot(steps, 60)
    elsewhere = np.nan
    if not options.quick:
        start = np.random.default_rng(0).uniform(-0.15, 0.15, size=3 * DEGREES)
        elsewhere = minimize(effort_in_numpy, start, method="BFGS", options={"gtol": 0.1, "eps": 1e-4}).fun
    end = angles_of(result.x.reshape(3, DEGREES), np.array([T]))[0]
    found = Found(
        result.naive,
        float(result.fun),
        (effort_in_numpy(np.zeros(3 * DEGREES)), effort_in_numpy(result.x)),
        float(elsewhere),
        float(np.linalg.norm(result.jac) / result.first_gradient),
        float(np.abs(runs[1][1][-1] - end).max()),
        int(result.nfev),
        result.x,
    )
    print(table(found, steps))
    figure(found, runs, history, options.out / "optimal_control.png")
    print(f"{found.evaluations} runs, CPU time {time.process_time():.0f} s")
    return found


if __name__ == "__main__":
    main()
