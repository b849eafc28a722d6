"""Tables 7 to 9 and Figure 2 of de Falco, Pennestri and Vita (2008) by a variable-order Adams method, as they had it.

The five methods without a stabilizer (and for Figure 2 with the paper's gains), integrated by SciPy's VODE: Adams
methods of order 1 to 12 with functional iteration, the family of the paper's DIVPAG. As in the paper the rank
threshold is the tolerance of the integrator; `--rcond` gives another. The paper does not state its start: from 60
degrees at rest the linkage swings through its flat position, from -60 it never lies flat. A run ends where a link has
left the closed form, or where one interval of 0.05 s takes more than `--most` steps.

    python experiments/adams.py [--out out/adams] [--most 3000] [--rcond 1e-4] [--longest 1.4e-5]
        [--method SVD Greville] [--angle -60]
"""

import argparse
import math
import warnings
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from linkage import END, RIGHT, TIMES, closed_form
from paper_tables import Table
from pseudoinverse_dpv import METHODS, NONE, PAPER
from scipy.integrate import ode

import ukjax as uk

ANGLES = (60, -60)


class Run(NamedTuple):
    """Times reached, sums of squares of the position violation there, how it ended, evaluations."""

    t: np.ndarray
    violation: np.ndarray
    ended: str
    evaluations: int


def integrate(
    method: str,
    tolerance: float,
    rcond: float,
    gains: tuple[float, float] | None,
    most: int,
    longest: float = 0.0,
    angle: float = 60.0,
) -> Run:
    """From links at `angle` degrees, at rest, to 20 s."""
    start = math.radians(angle)
    problem = uk.models.parallelogram(angle=start, rate=0.0)
    formula = uk.UdwadiaKalaba(METHODS[method](rcond))
    stabilizer = uk.NoStabilizer() if gains is None else uk.Baumgarte.squared(*gains)

    @jax.jit
    def rate(t, y):
        moved = formula.acceleration(problem.system, t, y[:12], y[12:], stabilizer=stabilizer)
        return jnp.concatenate([y[12:], moved.a])

    phi = jax.jit(lambda t, q: uk.constraint_rows(problem.system, t, q, jnp.zeros(12)).position_error)
    evaluations = 0

    def counted(t, y):
        nonlocal evaluations
        evaluations += 1
        return np.asarray(rate(t, y))

    solver = ode(counted).set_integrator(
        "vode",
        method="adams",
        rtol=tolerance,
        atol=tolerance,
        nsteps=most,
        first_step=min(0.66e-2, longest or 1.0),
        max_step=longest,
    )
    solver.set_initial_value(np.concatenate([problem.q0, problem.v0]), 0.0)
    exact, reached, violation = closed_form(start, 0.0), [0.0], [0.0]
    ended = "correct"
    for t, expected in zip(TIMES[1:], exact[1:], strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # VODE's, where it fails or is given up
            y = solver.integrate(t)
        if not solver.successful() or not np.all(np.isfinite(y)):
            ended = f"{'stuck' if solver.get_return_code() == -1 else 'failed'} at {solver.t:.2f} s"
            break
        reached.append(t)
        violation.append(float(np.sum(np.asarray(phi(t, y[:12])) ** 2)))
        if np.max(np.abs(y[[2, 5, 8]] - expected)) > RIGHT:
            ended = f"correct up to {reached[-2]:.2f} s"
            break
    return Run(np.array(reached), np.array(violation), ended, evaluations)


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


def main(arguments: list[str] | None = None) -> dict[tuple[str, float, int], Run]:
    parser = argparse.ArgumentParser(description="Tables 7-9 and Figure 2 of DPV 2008 by Adams methods")
    parser.add_argument("--out", type=Path, default=Path("out/adams"), help="folder of the figure")
    parser.add_argument(
        "--most", type=int, default=3_000, help="steps in 0.05 s after which a run is given up"
    )
    parser.add_argument("--longest", type=float, default=0.0, help="longest step [s]; 0 for any")
    parser.add_argument(
        "--rcond", type=float, help="rank threshold; by default the tolerance, as in the paper"
    )
    parser.add_argument("--method", nargs="+", default=list(METHODS))
    parser.add_argument("--tolerance", nargs="+", type=float, default=[1e-6, 1e-8, 1e-10])
    parser.add_argument("--angle", nargs="+", type=int, default=list(ANGLES), help="starts [deg], at rest")
    parser.add_argument("--quick", action="store_true", help="SVD at 1e-6, and no figure")
    options = parser.parse_args(arguments)
    if options.quick:
        options.method, options.tolerance = ["SVD"], [1e-6]
    jax.config.update("jax_enable_x64", True)
    plt.switch_backend("agg")
    runs = {}
    rule = "rcond = TOL" if options.rcond is None else f"rcond = {options.rcond:g}"
    heads = [f"from {angle}°: {x}" for angle in options.angle for x in ("result", "ΣΨ²", "NFUNC")]
    table = Table(
        "Tables 7 to 9: no stabilizer, Adams methods of order 1 to 12",
        f"TOL, {rule}", "method", *heads, "the paper: result", "its ΣΨ²", "its NFUNC", names=2,
    )  # fmt: skip
    for tolerance in options.tolerance:
        for method in options.method:
            cells = []
            for angle in options.angle:
                run = runs[method, tolerance, angle] = integrate(
                    method, tolerance, options.rcond or tolerance, None, options.most, options.longest, angle
                )
                cells += [run.ended, f"{run.violation[-1]:.0e}", f"{run.evaluations:,}"]
            printed = PAPER[NONE, tolerance, method]
            functions = "-" if printed.functions is None else f"{printed.functions:,}"
            paper = printed.result.lower(), f"{printed.violation:.1e}", functions
            table.add_row(f"{tolerance:.0e}", method, *cells, *paper)
    print(table)
    if options.quick:
        return runs
    method, drawn = options.method[-1], {}
    drawn[f"{method}, no stabilizer, 1e-6"] = integrate(
        method, 1e-6, options.rcond or 1e-6, None, options.most
    )
    for gains in ((1000.0, 100.0), (100.0, 100.0)):
        label = f"{method}, squared({gains[0]:g}, {gains[1]:g}), 1e-6"
        drawn[label] = integrate(method, 1e-6, options.rcond or 1e-6, gains, options.most, options.longest)
    figure(drawn, options.out)
    print(f"Figure 2, from 60°, in {options.out}/violation.png:")
    for label, run in drawn.items():
        print(f"- {label}: {run.ended}")
    return runs


if __name__ == "__main__":
    main()
