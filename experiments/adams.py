"""Tables 7 to 9 and Figure 2 of de Falco, Pennestri and Vita (2008) by a variable-order Adams method, as they had it.

The five methods without a stabilizer (and for Figure 2 with the paper's gains), integrated by SciPy's VODE: Adams
methods of order 1 to 12 with functional iteration, the family of the paper's DIVPAG. As in the paper the rank
threshold is the tolerance of the integrator; `--rcond` gives another. A run ends where a link has left the closed
form, or its evaluations are used up.

    python experiments/adams.py [--out out/adams] [--most 400000] [--rcond 1e-4] [--longest 1.4e-5]
        [--method SVD Greville]
"""

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from linkage import END, RIGHT, TIMES, closed_form
from pseudoinverse_dpv import METHODS, NONE, PAPER
from rich.console import Console
from rich.table import Table
from scipy.integrate import ode

import ukjax as uk


class Run(NamedTuple):
    """Times reached, sums of squares of the position violation there, how it ended, evaluations."""

    t: np.ndarray
    violation: np.ndarray
    ended: str
    evaluations: int


class _SpentError(Exception):
    """The evaluations are used up."""


def integrate(
    method: str,
    tolerance: float,
    rcond: float,
    gains: tuple[float, float] | None,
    most: int,
    longest: float = 0.0,
) -> Run:
    """From 60 degrees at rest to 20 s."""
    problem = uk.models.parallelogram(angle=math.pi / 3, rate=0.0)
    formula = uk.UdwadiaKalaba(METHODS[method](rcond))
    stabilizer = uk.NoStabilizer() if gains is None else uk.Baumgarte.squared(*gains)

    @jax.jit
    def rate(t, y):
        found = formula.acceleration(problem.system, t, y[:12], y[12:], stabilizer=stabilizer)
        return jnp.concatenate([y[12:], found.a])

    phi = jax.jit(lambda t, q: uk.constraint_rows(problem.system, t, q, jnp.zeros(12)).position_error)
    evaluations, latest = 0, 0.0

    def counted(t, y):
        nonlocal evaluations, latest
        evaluations, latest = evaluations + 1, t
        if evaluations > most:
            raise _SpentError
        return np.asarray(rate(t, y))

    solver = ode(counted).set_integrator(
        "vode",
        method="adams",
        rtol=tolerance,
        atol=tolerance,
        nsteps=10**8,
        first_step=min(0.66e-2, longest or 1.0),
        max_step=longest,
    )
    solver.set_initial_value(np.concatenate([problem.q0, problem.v0]), 0.0)
    exact, reached, violation = closed_form(math.pi / 3, 0.0), [0.0], [0.0]
    for t, angle in zip(TIMES[1:], exact[1:], strict=True):
        try:
            y = solver.integrate(t)
        except _SpentError:
            return Run(np.array(reached), np.array(violation), f"stuck at {latest:.2f} s", evaluations)
        if not solver.successful() or not np.all(np.isfinite(y)):
            return Run(np.array(reached), np.array(violation), f"failed at {solver.t:.2f} s", evaluations)
        reached.append(t)
        violation.append(float(np.sum(np.asarray(phi(t, y[:12])) ** 2)))
        if np.max(np.abs(y[[2, 5, 8]] - angle)) > RIGHT:
            ended = f"correct up to {reached[-2]:.2f} s"
            return Run(np.array(reached), np.array(violation), ended, evaluations)
    return Run(np.array(reached), np.array(violation), "correct", evaluations)


def figure(runs: dict[str, Run], out: Path) -> None:
    """Figure 2: the violation over time."""
    out.mkdir(parents=True, exist_ok=True)
    fig, axis = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    for label, run in runs.items():
        axis.semilogy(run.t[1:], np.maximum(run.violation[1:], 1e-32), label=f"{label}: {run.ended}")
    axis.set(xlabel="$t$ [s]", ylabel=r"$\sum \Psi_i^2$ [m$^2$]", xlim=(0, END))
    axis.legend(fontsize=7, frameon=False)
    fig.savefig(out / "violation.png", dpi=200)
    plt.close(fig)


def main(arguments: list[str] | None = None) -> dict[tuple[str, float], Run]:
    parser = argparse.ArgumentParser(description="Tables 7-9 and Figure 2 of DPV 2008 by Adams methods")
    parser.add_argument("--out", type=Path, default=Path("out/adams"), help="folder of the figure")
    parser.add_argument("--most", type=int, default=400_000, help="evaluations after which a run is given up")
    parser.add_argument("--longest", type=float, default=0.0, help="longest step [s]; 0 for any")
    parser.add_argument(
        "--rcond", type=float, help="rank threshold; by default the tolerance, as in the paper"
    )
    parser.add_argument("--method", nargs="+", default=list(METHODS))
    parser.add_argument("--tolerance", nargs="+", type=float, default=[1e-10, 1e-8, 1e-6])
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    plt.switch_backend("agg")
    console, runs, drawn = Console(width=140), {}, {}
    table = Table(title="Tables 7 to 9: no stabilizer, Adams methods of order 1 to 12")
    for column in ("TOL", "method", "result", "Psi^2", "NFUNC", "the paper", "Psi^2", "NFUNC"):
        table.add_column(column, no_wrap=True)
    for tolerance in options.tolerance:
        for method in options.method:
            run = runs[method, tolerance] = integrate(
                method, tolerance, options.rcond or tolerance, None, options.most, options.longest
            )
            printed = PAPER[NONE, tolerance, method]
            ours = f"{tolerance:.0e}", method, run.ended, f"{run.violation[-1]:.1e}", f"{run.evaluations:,}"
            console.print(*ours)
            table.add_row(*ours, printed.result, f"{printed.violation:.1e}", f"{printed.functions or 0:,}")
    method, tolerance = options.method[-1], options.tolerance[-1]
    drawn[f"{method}, no stabilizer, {tolerance:.0e}"] = runs[method, tolerance]
    for gains in ((1000.0, 100.0), (100.0, 100.0)):
        label = f"{method}, squared({gains[0]:g}, {gains[1]:g})"
        drawn[label] = integrate(
            method, tolerance, options.rcond or tolerance, gains, options.most, options.longest
        )
    console.print(table)
    figure(drawn, options.out)
    console.print(f"wrote violation.png to {options.out}: ", {k: r.ended for k, r in drawn.items()})
    return runs


if __name__ == "__main__":
    main()
