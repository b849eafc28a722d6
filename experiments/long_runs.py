"""Energy over long runs: a pendulum over 1e5 periods, a four-bar linkage over 1e3 s, by several methods.

Explicit Runge-Kutta methods with projection, the same with the energy of the start kept, and RATTLE, which is
symplectic, by itself and composed to order 8. Errors are those against the closed forms (elliptic functions).

    python experiments/long_runs.py [--out out/long_runs] [--quick] [--only pendulum|four_bars]
"""

import argparse
import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from paper_tables import Table
from rattle import COMPOSED, PLAIN, rattle
from scipy.special import ellipj, ellipk, ellipkinc

import ukjax as uk
from ukjax._cli._benchmark import machine

GRAVITY = 9.81
PERIOD = (
    4 * ellipk(math.sin(math.pi / 6) ** 2) / math.sqrt(GRAVITY)
)  # of the pendulum of 1 m, from 60 degrees
SAVED = 201
STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "font.size": 9,
}


@dataclasses.dataclass(frozen=True)
class Study:
    """A motion: what moves, for how long, and where it ought to be.

    - `position`: of coordinates (k, n_q) (k, 2).
    - `expected`: of times (k,) the same.
    - `energy`: by which energy errors are divided [J].
    - `step`: of the methods with fixed steps of order five [s].
    """

    name: str
    problem: uk.Problem
    t1: float
    position: Callable[[np.ndarray], np.ndarray]
    expected: Callable[[np.ndarray], np.ndarray]
    energy: float
    step: float


def swinging(t: np.ndarray) -> np.ndarray:
    """The mass of the pendulum let go at 60 degrees."""
    k2, w = math.sin(math.pi / 6) ** 2, math.sqrt(GRAVITY)
    sn, _, dn, _ = ellipj(np.fmod(w * t, 4 * ellipk(k2)) + ellipk(k2), k2)
    angle = 2 * np.arctan2(math.sqrt(k2) * sn, dn)
    return np.stack([np.sin(angle), -np.cos(angle)], axis=1)


def turning(t: np.ndarray) -> np.ndarray:
    """The first coupler's pin of a four-bar that starts upright at -1 rad/s: (5/3) angle'' = -2 g cos(angle)."""
    w2 = GRAVITY * 2 / (5 / 3)
    k2 = 1 / (4 * w2) + 1  # of the angle from hanging, pi at the start
    m, w = 1 / k2, math.sqrt(w2 * k2)
    u = ellipkinc(math.pi / 2, m) - w * t
    turns = np.round(u / (2 * ellipk(m)))
    angle = 2 * (ellipj(u - 2 * ellipk(m) * turns, m)[3] + math.pi * turns) - math.pi / 2
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def studies(quick: bool) -> list[Study]:
    share = 1e-3 if quick else 1.0
    mass, pin = lambda q: q[:, :2], lambda q: 2 * q[:, :2]
    periods = share * 1e5 + 0.25  # to end where it moves
    pendulum = ("pendulum", uk.models.pendulum(), periods * PERIOD, mass, swinging)
    linkage = ("four_bars", uk.models.four_bars(), max(share, 1e-2) * 1e3, pin, turning)
    # Both energies are those of a fall from the highest to the lowest position of the motion.
    return [Study(*pendulum, GRAVITY / 2, PERIOD / 64), Study(*linkage, 4 * GRAVITY, 0.01)]


def by_simulate(study_problem: uk.Problem, ts: jax.Array, solver, controller, dt0):
    run = uk.simulate(
        study_problem, t1=ts[-1], ts=ts, solver=solver, stepsize_controller=controller, dt0=dt0,
        max_steps=100_000_000,
    )  # fmt: skip
    return run.q, run.energy, run.stats["num_steps"]


@eqx.filter_jit
def by_rattle(problem: uk.Problem, ts: jax.Array, gammas: jax.Array, steps: jax.Array):
    h = (ts[1] - ts[0]) / steps

    def part(state, _):
        state = jax.lax.fori_loop(0, steps, lambda _, y: rattle(problem.system, *y, h, gammas), state)
        return state, state

    start = problem.q0, problem.v0
    q, v = jax.lax.scan(part, start, length=ts.size - 1)[1]
    q, v = (jnp.concatenate([x[None], y]) for x, y in zip(start, (q, v), strict=True))
    return q, jax.vmap(lambda q, v: problem.system.energy(jnp.zeros(()), q, v))(q, v), steps * (ts.size - 1)


@dataclasses.dataclass(frozen=True)
class Found:
    """What a method did.

    - `energy`: relative errors at the saved times (k,).
    - `error`: of the position at the end [m].
    """

    method: str
    t: np.ndarray
    energy: np.ndarray
    error: float
    steps: int
    seconds: float


Run = Callable[[uk.Problem, jax.Array], tuple[jax.Array, jax.Array, jax.Array | int]]


def adaptive(solver, tolerance: float) -> Run:
    """The solver at a tolerance, its steps ending at the saved times."""

    def run(problem: uk.Problem, ts: jax.Array):
        controller = dfx.ClipStepSizeController(dfx.PIDController(tolerance, tolerance), step_ts=ts)
        return by_simulate(problem, ts, solver, controller, None)

    return run


def steady(solver, step: float) -> Run:
    """The solver at steps of about `step` [s], a whole number of them between saved times."""

    def run(problem: uk.Problem, ts: jax.Array):
        spacing = float(ts[1] - ts[0])
        steps = max(1, round(spacing / step))
        return by_simulate(problem, ts, solver, dfx.ConstantStepSize(), jnp.asarray(spacing / steps))

    return run


def symplectic(gammas: np.ndarray, step: float) -> Run:
    """RATTLE at steps of about `step` [s]."""

    def run(problem: uk.Problem, ts: jax.Array):
        steps = max(1, round(float(ts[1] - ts[0]) / step))
        return by_rattle(problem, ts, jnp.asarray(gammas), jnp.asarray(steps))

    return run


def methods(study: Study) -> dict[str, Run]:
    h, kept = study.step, uk.EnergyProjection
    found = {f"Dopri8, {x:.0e}": adaptive(dfx.Dopri8(), x) for x in (1e-6, 1e-8, 1e-10, 1e-12)}
    found |= {f"Dopri8, {x:.0e}, kept": adaptive(kept(dfx.Dopri8()), x) for x in (1e-6, 1e-8, 1e-10)}
    found[f"Dopri5, {h:.2g} s"] = steady(dfx.Dopri5(), h)
    found[f"Tsit5, {h:.2g} s"] = steady(dfx.Tsit5(), h)
    found[f"Tsit5, {h:.2g} s, kept"] = steady(kept(dfx.Tsit5()), h)
    found[f"RATTLE, {h:.2g} s"] = symplectic(PLAIN, h)
    if study.name == "pendulum":  # the linkage is lost at its flat positions, whatever the order
        found[f"RATTLE of order 8, {2 * h:.2g} s"] = symplectic(COMPOSED, 2 * h)
    return found


def measured(study: Study, method: str, run: Run) -> Found:
    """A run, and its time once compiled: a shorter one, at as many times, was compiled before."""
    ts = jnp.linspace(0.0, study.t1, SAVED)
    jax.block_until_ready(run(study.problem, 1e-3 * ts))
    start = time.perf_counter()
    q, energy, steps = jax.block_until_ready(run(study.problem, ts))
    seconds = time.perf_counter() - start
    expected = study.expected(np.asarray(ts[-1:]))
    error = float(np.abs(study.position(np.asarray(q))[-1] - expected[0]).max())
    change = np.asarray((energy - energy[0]) / study.energy)[:SAVED]
    return Found(method, np.asarray(ts), change, error, int(steps), seconds)


def table(study: Study, found: list[Found]) -> Table:
    columns = "steps", "wall [s]", "energy error", "error of the position at the end [m]"
    made = Table("", f"{study.name}, {study.t1:.6g} s", *columns)
    for x in found:
        figures = f"{x.steps:,}", f"{x.seconds:.2g}", f"{np.abs(x.energy).max():.1e}", f"{x.error:.1e}"
        made.add_row(x.method, *figures)
    return made


def draw(axis, study: Study, found: list[Found]) -> None:
    for i, x in enumerate(found):
        style = "--" if "kept" in x.method else ":" if "RATTLE" in x.method else "-"
        largest = np.maximum.accumulate(np.abs(x.energy))[1:]
        axis.loglog(x.t[1:], np.maximum(largest, 1e-17), style, color=f"C{i % 10}", lw=1.2, label=x.method)
    axis.set(xlabel="time [s]", ylabel="largest energy error so far, relative", ylim=(1e-16, 10))
    axis.set_title(study.name, loc="left")
    axis.legend(fontsize=6, ncols=2)


def main(arguments: list[str] | None = None) -> dict[str, list[Found]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/long_runs"), help="folder of the figure")
    parser.add_argument("--quick", action="store_true", help="100 periods and 10 s")
    parser.add_argument("--only", choices=("pendulum", "four_bars"), help="one of the two")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    plt.switch_backend("agg")
    options.out.mkdir(parents=True, exist_ok=True)
    about, all_found = machine(), {}
    chosen = [x for x in studies(options.quick) if options.only in (None, x.name)]
    for study in chosen:
        all_found[study.name] = [measured(study, name, run) for name, run in methods(study).items()]
        print(table(study, all_found[study.name]))
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(
            1, len(chosen), figsize=(6.0 * len(chosen), 4.5), layout="constrained", squeeze=False
        )
        for axis, study in zip(axes[0], chosen, strict=True):
            draw(axis, study, all_found[study.name])
        fig.savefig(options.out / "long_runs.png", dpi=160)
        plt.close(fig)
    print(f"{about['processor']}, {about['cores']} cores, load {about['load']:.1f}, JAX {about['jax']}")
    print(f"CPU time {time.process_time():.0f} s; wrote {options.out / 'long_runs.png'}")
    return all_found


if __name__ == "__main__":
    main()
