"""Explicit and implicit solvers on stiff and other systems: error over the time a compiled run takes.

A governor with stiff springs and dampers, a pendulum held by Baumgarte's stabilization with large gains, and Andrews'
squeezer, which is fast but not stiff.

    python experiments/stiff_solvers.py [--out out/stiff_solvers] [--quick] [--only governor|gains|andrews]
"""

import argparse
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optimistix as optx
from paper_tables import Table

import ukjax as uk
from ukjax._cli._benchmark import CASES, machine

MAX_STEPS = 3_000_000
GAIN = 1_000.0  # of Baumgarte.squared [1/s]
STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "font.size": 9,
}
EXPLICIT = (1e-4, 1e-6, 1e-8, 1e-10)
IMPLICIT = (1e-4, 1e-6, 1e-8)
FIRST_ORDER = (1e-3, 1e-4, 1e-5)


def newton() -> optx.AbstractRootFinder:
    """A Jacobian for each iteration, in place of Diffrax's one for each step."""
    return dfx.with_stepsize_controller_tols(optx.Newton)()


SOLVERS: dict[str, tuple[dfx.AbstractSolver, tuple[float, ...]]] = {
    "Tsit5": (dfx.Tsit5(), EXPLICIT),
    "Dopri5": (dfx.Dopri5(), EXPLICIT),
    "Dopri8": (dfx.Dopri8(), EXPLICIT),
    "ImplicitEuler": (dfx.ImplicitEuler(root_finder=newton()), FIRST_ORDER),
    "Kvaerno3": (dfx.Kvaerno3(root_finder=newton()), IMPLICIT),
    "Kvaerno4": (dfx.Kvaerno4(root_finder=newton()), IMPLICIT),
    "Kvaerno5": (dfx.Kvaerno5(root_finder=newton()), IMPLICIT),
    "Kvaerno5, chord": (dfx.Kvaerno5(), IMPLICIT),
}


@dataclasses.dataclass(frozen=True)
class Study:
    """A problem; its quantity and its reference come from the case of `ukjax bench`."""

    name: str
    case: str
    t1: float
    stabilizer: uk.AbstractStabilizer


@dataclasses.dataclass(frozen=True)
class Found:
    """One solver on one problem, an entry for each tolerance.

    - `error`: the largest at ten times.
    - `seconds`: of a run once compiled, the least of three.
    """

    solver: str
    tolerances: list[float]
    error: list[float]
    steps: list[int]
    seconds: list[float]


def studies(quick: bool) -> list[Study]:
    share = 0.1 if quick else 1.0
    return [
        Study("governor", "flyball_governor", share * 10.0, uk.Projection()),
        Study("gains", "pendulum", share * 10.0, uk.Baumgarte.squared(GAIN, GAIN)),
        Study("andrews", "andrews", 0.03, uk.Projection()),
    ]


def runner(study: Study, solver: dfx.AbstractSolver) -> Callable[[float], uk.Trajectory]:
    """A run as a function of the tolerance, which does not compile anew; its steps end at the times looked at."""
    problem, ts = CASES[study.case].build(), jnp.linspace(0.0, study.t1, 11)

    @eqx.filter_jit
    def run(problem: uk.Problem, tolerance: jax.Array) -> uk.Trajectory:
        controller = dfx.ClipStepSizeController(dfx.PIDController(tolerance, tolerance), step_ts=ts)
        return uk.simulate(
            problem, t1=study.t1, ts=ts, solver=solver, stepsize_controller=controller, dt0=1e-6 * study.t1,
            stabilizer=study.stabilizer, max_steps=MAX_STEPS,
        )  # fmt: skip

    return lambda tolerance: run(problem, jnp.asarray(tolerance))


def measured(study: Study, name: str) -> Found:
    case, (solver, tolerances) = CASES[study.case], SOLVERS[name]
    problem, expected = case.build(), case.reference(np.linspace(0.0, study.t1, 11))
    run, found = runner(study, solver), Found(name, [], [], [], [])
    for tolerance in tolerances:
        trajectory = jax.block_until_ready(run(tolerance))
        times = []
        for _ in range(3):
            start = time.perf_counter()
            jax.block_until_ready(run(tolerance))
            times.append(time.perf_counter() - start)
        error = np.abs(case.observe(problem, trajectory)[:11] - expected)
        found.tolerances.append(tolerance)
        found.error.append(float(np.nanmax(error)) if trajectory.ok else np.nan)
        found.steps.append(int(trajectory.stats["num_steps"]))
        found.seconds.append(min(times))
    return found


calls: list[None] = []


class Counted(uk.AbstractSystem):
    """A system that counts the evaluations of its force; one with its Jacobian counts as one."""

    inner: uk.AbstractSystem

    @property
    def constraints(self):
        return self.inner.constraints

    def mass_matrix(self, t, q):
        return self.inner.mass_matrix(t, q)

    def force(self, t, q, v):
        jax.debug.callback(lambda t: calls.append(None), t)
        return self.inner.force(t, q, v)


def count() -> None:
    """Evaluations by which Kvaerno5 brings the governor through 10 s, compiled fast and run slowly."""
    jax.config.update("jax_disable_most_optimizations", True)
    case = CASES["flyball_governor"]
    problem, expected = case.build(), case.reference(np.linspace(0.0, 10.0, 11))
    solver = dfx.Kvaerno5(root_finder=newton())
    for tolerance in (3e-8, 1e-6):
        calls.clear()
        start = Counted(problem.system), problem.q0, problem.v0
        run = uk.simulate(*start, t1=10.0, ts=11, solver=solver, rtol=tolerance, atol=tolerance)
        jax.effects_barrier()
        error = np.abs(case.observe(problem, run)[:11] - expected).max()
        steps = int(run.stats["num_steps"])
        print(f"{tolerance:.0e}: error {error:.1e} m, {steps} steps, {len(calls)} evaluations")


def table(study: Study, all_found: list[Found]) -> Table:
    case = CASES[study.case]
    columns = f"{study.name}, {study.t1:g} s", "tolerance", f"error [{case.unit}]", "steps", "wall [ms]"
    made = Table(case.quantity, *columns, names=2)
    for x in all_found:
        for row in zip(x.tolerances, x.error, x.steps, x.seconds, strict=True):
            made.add_row(x.solver, f"{row[0]:.0e}", f"{row[1]:.1e}", f"{row[2]:,}", f"{1e3 * row[3]:.2g}")
    return made


def figure(found: dict[str, list[Found]], file: Path) -> None:
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(
            1, len(found), figsize=(4.2 * len(found), 3.8), layout="constrained", squeeze=False
        )
        for axis, (name, all_found) in zip(axes[0], found.items(), strict=True):
            for x in all_found:
                style = "o-" if x.solver in ("Tsit5", "Dopri5", "Dopri8") else "s--"
                axis.loglog(x.seconds, np.maximum(x.error, 1e-15), style, ms=3, lw=1, label=x.solver)
            axis.set(xlabel="wall time, compiled [s]", ylabel="largest error")
            axis.set_title(name, loc="left")
        axes[0, 0].legend(fontsize="x-small")
        fig.savefig(file, dpi=160)
        plt.close(fig)


def main(arguments: list[str] | None = None) -> dict[str, list[Found]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/stiff_solvers"), help="folder of the figure")
    parser.add_argument("--quick", action="store_true", help="the first tenth, where runs are long")
    parser.add_argument("--only", choices=("governor", "gains", "andrews"), help="one of the three")
    parser.add_argument("--solvers", nargs="+", choices=SOLVERS, default=list(SOLVERS))
    parser.add_argument(
        "--count", action="store_true", help="only count Kvaerno5's evaluations on the governor"
    )
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    plt.switch_backend("agg")
    options.out.mkdir(parents=True, exist_ok=True)
    about, found = machine(), {}
    if options.count:
        count()
        return found
    for study in studies(options.quick):
        if options.only in (None, study.name):
            found[study.name] = [measured(study, name) for name in options.solvers]
            print(table(study, found[study.name]))
    figure(found, options.out / "stiff_solvers.png")
    print(f"{about['processor']}, {about['cores']} cores, load {about['load']:.1f}, JAX {about['jax']}")
    print(f"CPU time {time.process_time():.0f} s; wrote {options.out / 'stiff_solvers.png'}")
    return found


if __name__ == "__main__":
    main()
