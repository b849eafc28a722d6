"""Tables 7-12 of de Falco, Pennestri and Vita (2008) again: does the pseudoinverse method decide the outcome?

Five methods x three tolerances x four stabilizers x two starts of the parallelogram, 20 s, Dopri8. `--study adams` has
Tables 7 to 9 by an Adams method, as the paper's, from two more starts; it is `adams.py`.

    python experiments/pseudoinverse_dpv.py [--out out/pseudoinverse_dpv] [--quick] [--study gains | rcond | adams]
"""

import argparse
import csv
import dataclasses
import math
import time
from pathlib import Path

import jax
import numpy as np
from linkage import END, RIGHT, TIMES, Case, Outcome, closed_form, run
from paper_tables import Table
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import ukjax as uk
from ukjax._run import _options

METHODS = {
    "SVD": uk.SVD,
    "CompleteOrthogonal": uk.CompleteOrthogonal,
    "Greville": uk.Greville,
    "HouseholderQR": uk.HouseholderQR,
    "GramSchmidt": uk.GramSchmidt,
}
STARTS = {"rest": (math.pi / 3, 0.0), "spinning": (math.pi / 2, 1.0)}
TOLERANCES = (1e-10, 1e-8, 1e-6)
NONE, THEIRS, BETTER, PROJECTED = "no stabilizer", "squared(1000, 100)", "squared(100, 100)", "Projection"
GAINS = {NONE: (0.0, 0.0), THEIRS: (2000.0, 1e4), BETTER: (200.0, 1e4)}  # of psi' + alpha psi + beta phi


@dataclasses.dataclass(frozen=True)
class Paper:
    """A row of Tables 7-12: result, sum of squares of Psi, NFUNC, NSTEPS, CPU time [s] (Athlon 2600+)."""

    result: str
    violation: float | None = None
    functions: int | None = None
    steps: int | None = None
    cpu: float | None = None


# As printed. Table 9 repeats Table 8's counts for LS-Householder, and Greville's NSTEPS exceeds its NFUNC there.
PAPER = {
    (NONE, 1e-10, "SVD"): Paper("Fails at 9.1 s", 3.7e-7),
    (NONE, 1e-10, "CompleteOrthogonal"): Paper("Fails at 8.0 s", 9.9e-2),
    (NONE, 1e-10, "Greville"): Paper("Correct up to 17.5 s", 4.5e-5, 2_961_955, 2_633_811, 0.93),
    (NONE, 1e-10, "HouseholderQR"): Paper("Correct up to 16.5 s", 2.3e-4, 6_131_159, 4_177_395, 11.57),
    (NONE, 1e-10, "GramSchmidt"): Paper("Correct up to 17.0 s", 1.1e-4, 3_749_766, 3_015_354, 36.85),
    (NONE, 1e-8, "SVD"): Paper("Fails at 12.07 s", 3.4e-6),
    (NONE, 1e-8, "CompleteOrthogonal"): Paper("Fails at 8.06 s", 9.9e-2),
    (NONE, 1e-8, "Greville"): Paper("Correct up to 17.5 s", 1.86e-4, 1_648_055, 1_422_689, 0.53),
    (NONE, 1e-8, "HouseholderQR"): Paper("Correct up to 18.0 s", 7.9e-4, 1_641_751, 1_422_297, 1.28),
    (NONE, 1e-8, "GramSchmidt"): Paper("Correct up to 18.0 s", 5.2e-4, 1_644_341, 1_424_864, 6.03),
    (NONE, 1e-6, "SVD"): Paper("Correct up to 17.5 s", 4.1e-4, 1_033_381, 847_294, 0.28),
    (NONE, 1e-6, "CompleteOrthogonal"): Paper("Fails at 7.3 s", 9.9e-2),
    (NONE, 1e-6, "Greville"): Paper("Correct up to 19.0 s", 9.7e-4, 1_017_558, 1_422_689, 0.37),
    (NONE, 1e-6, "HouseholderQR"): Paper("Correct", 7.9e-4, 1_641_751, 1_422_297, 0.76),
    (NONE, 1e-6, "GramSchmidt"): Paper("Correct", 6.9e-4, 1_013_795, 839_020, 3.40),
    (THEIRS, 1e-10, "SVD"): Paper("Fails at 1.17 s"),
    (THEIRS, 1e-10, "CompleteOrthogonal"): Paper("Correct", 4.5e-5, 78_491_398, 47_074_599, 11.4),
    (THEIRS, 1e-10, "Greville"): Paper("Correct", 2.1e-7, 74_043_990, 44_053_874, 18.3),
    (THEIRS, 1e-10, "HouseholderQR"): Paper("Correct", 3.3e-7, 73_707_588, 43_948_609, 51.5),
    (THEIRS, 1e-10, "GramSchmidt"): Paper("Correct", 4.1e-7, 73_910_268, 44_515_071, 241.0),
    (THEIRS, 1e-8, "SVD"): Paper("Fails at 0.17 s"),
    (THEIRS, 1e-8, "CompleteOrthogonal"): Paper("Fails at 14.97 s"),
    (THEIRS, 1e-8, "Greville"): Paper("Correct", 4.9e-7, 80_109_155, 55_569_995, 19.4),
    (THEIRS, 1e-8, "HouseholderQR"): Paper("Correct", 3.5e-7, 80_197_458, 54_468_468, 55.0),
    (THEIRS, 1e-8, "GramSchmidt"): Paper("Correct", 4.9e-7, 80_112_706, 54_604_452, 290.0),
    (THEIRS, 1e-6, "SVD"): Paper("Fails at 0.46 s"),
    (THEIRS, 1e-6, "CompleteOrthogonal"): Paper("Fails at 9.7 s"),
    (THEIRS, 1e-6, "Greville"): Paper("Correct", 1.9e-6, 80_483_163, 57_743_095, 19.5),
    (THEIRS, 1e-6, "HouseholderQR"): Paper("Correct", 1.14e-6, 80_689_071, 58_099_798, 55.0),
    (THEIRS, 1e-6, "GramSchmidt"): Paper("Correct", 1.06e-6, 80_636_983, 58_010_479, 291.0),
}
TABLE = {(NONE, 1e-10): 7, (NONE, 1e-8): 8, (NONE, 1e-6): 9}
TABLE |= {(THEIRS, 1e-10): 10, (THEIRS, 1e-8): 11, (THEIRS, 1e-6): 12}


@dataclasses.dataclass(frozen=True)
class Row:
    """One run, and the CPU time it takes once compiled [s]."""

    stabilizer: str
    start: str
    tolerance: float
    method: str
    outcome: Outcome
    cpu: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to run; a quick plan proves that the script works."""

    methods: tuple[str, ...] = tuple(METHODS)
    gains: tuple[str, ...] = (NONE, THEIRS, BETTER)
    tolerances: tuple[float, ...] = TOLERANCES
    starts: tuple[str, ...] = tuple(STARTS)
    max_steps: int = 15_000


QUICK = Plan(("GramSchmidt",), (BETTER,), (1e-10,), ("rest",))


def _seconds_per_step(pinv: uk.AbstractPseudoinverse, projection: bool) -> float:
    """CPU time of a step of one trajectory by itself, compiled before."""
    cases = [Case(*STARTS["rest"], 1e-6, *GAINS[BETTER])]
    run(cases, pinv, projection=projection, max_steps=2_500)
    start = time.process_time()
    outcome = run(cases, pinv, projection=projection, max_steps=2_500)[0]
    return (time.process_time() - start) / outcome.steps


def rows_of(method: str, plan: Plan) -> list[Row]:
    """All runs of one method: those with gains (none are zero) in one loop, the projected ones in another."""
    pinv = METHODS[method]()
    grid = [(start, tol) for tol in plan.tolerances for start in plan.starts]
    result = []
    for projection, names in ((False, plan.gains), (True, (PROJECTED,))):
        keys = [(name, start, tol) for name in names for start, tol in grid]
        cases = [Case(*STARTS[start], tol, *GAINS.get(name, (0.0, 0.0))) for name, start, tol in keys]
        outcomes = run(cases, pinv, projection=projection, max_steps=plan.max_steps)
        second = _seconds_per_step(pinv, projection)
        pairs = zip(keys, outcomes, strict=True)
        result += [Row(*key, method, outcome, second * outcome.steps) for key, outcome in pairs]
    return result


def table(start: str, tolerance: float, rows: list[Row]) -> Table:
    """All methods and stabilizers from one start at one tolerance, beside the paper where it has that stabilizer."""
    result = Table(
        "ΣΨ²: sum of squares of the position violation at the end; error: the worst of θ [rad]",
        f"from {start} at {tolerance:.0e}: method", "stabilizer", "result", "ΣΨ²", "NFUNC", "CPU [s]",
        "error of θ", "the paper: result", "its ΣΨ²", "its NFUNC", "its CPU [s]", names=2,
    )  # fmt: skip
    for row in rows:
        o, p = row.outcome, PAPER.get((row.stabilizer, tolerance, row.method), Paper(""))
        error = "-" if o.kind == "wrong branch" else f"{o.error:.0e}"
        ours = (
            str(o).lower(),
            f"{o.violation:.0e}",
            f"{o.evaluations:,}",
            f"{row.cpu:.2g}",
            error,
        )
        violation = "" if p.violation is None else f"{p.violation:.1e}"
        functions = "" if p.functions is None else f"{p.functions:,}"
        theirs = p.result.lower(), violation, functions, "" if p.cpu is None else f"{p.cpu:g}"
        result.add_row(row.method, row.stabilizer, *ours, *theirs)
    return result


def summary(rows: list[Row]) -> Table:
    """One line per stabilizer: over methods, tolerances and starts."""
    columns = "correct", "gave up", "wrong branch", "drifted", "steps", "error of θ [rad]"
    result = Table(
        "All methods, tolerances and starts; steps and errors of the correct runs", "stabilizer", *columns
    )
    for name in dict.fromkeys(row.stabilizer for row in rows):
        outcomes = [row.outcome for row in rows if row.stabilizer == name]
        right = [o for o in outcomes if o.kind == "right"]
        counts = [sum(o.kind == kind for o in outcomes) for kind in ("gave up", "wrong branch", "drifted")]
        steps = f"{min(o.steps for o in right):,} to {max(o.steps for o in right):,}" if right else "-"
        errors = f"{min(o.error for o in right):.0e} to {max(o.error for o in right):.0e}" if right else "-"
        result.add_row(name, f"{len(right)} of {len(outcomes)}", *counts, steps, errors)
    return result


def gains() -> Table:
    """Gains tried with GramSchmidt from rest: alpha = beta in the squared convention, and Xu-Liu's once."""
    tolerances = (1e-6, 1e-8)
    tried = {f"squared({a}, {a})": (2.0 * a, float(a * a)) for a in (10, 20, 50, 100, 200, 500)}
    tried |= {"squared(1000, 100)": GAINS[THEIRS], "Baumgarte(100, 100)": (100.0, 100.0)}
    cases = [Case(*STARTS["rest"], tol, *pair) for pair in tried.values() for tol in tolerances]
    outcomes = iter(run(cases, uk.GramSchmidt(), projection=False, max_steps=6_000))
    title = "Baumgarte's gains: error of θ [rad] and steps, at most 6,000"
    result = Table(title, "gains", *(f"TOL {tol:.0e}" for tol in tolerances))
    for name in tried:
        both = next(outcomes), next(outcomes)
        result.add_row(
            name, *(f"{o.error:.0e} {o.steps:,}" if o.kind == "right" else str(o).lower() for o in both)
        )
    return result


def thresholds(quick: bool) -> Table:
    """Rank thresholds of the default scalar code without projection, over four starts: which pass flat positions."""
    tolerances = (1e-6,) if quick else (1e-5, 1e-6, 1e-8, 1e-10)
    starts = (*STARTS.values(), (-1.4, 5.0), (math.pi / 6, 0.0))
    title = "Right of 4 starts, worst error of θ [rad], median steps; at most 40,000"
    result = Table(
        title, "rcond", "gains, without projection", *(f"TOL {x:.0e}" for x in tolerances), names=2
    )
    shipped = _options.WITHOUT_PROJECTION
    for rcond in (1e-3,) if quick else (1e-2, 3e-3, 1e-3, 3e-4, 1e-4):
        _options.WITHOUT_PROJECTION = rcond  # of the default way, which takes no threshold
        uk.clear_caches()
        for gains in (1000.0, 100.0), (100.0, 100.0), (20.0, 20.0):
            stabilizer, cells = uk.Baumgarte.squared(*gains), []
            for tolerance in tolerances:
                right = [x for x in (_error(*s, tolerance, stabilizer) for s in starts) if x[0] < RIGHT]
                worst, steps = max((x[0] for x in right), default=0), [x[1] for x in right]
                cells.append(f"{len(right)} {worst:.0e} {int(np.median(steps)) if steps else 0:,}")
            result.add_row(f"{rcond:.0e}", f"({gains[0]:g}, {gains[1]:g})", *cells)
    _options.WITHOUT_PROJECTION = shipped
    return result


def _error(angle: float, rate: float, tolerance: float, stabilizer: uk.Baumgarte) -> tuple[float, int]:
    """The largest error of a link's angle [rad], infinite where a run gave up, and its steps."""
    problem = uk.models.parallelogram(angle=angle, rate=rate)
    limits = {"rtol": tolerance, "atol": tolerance, "max_steps": 40_000}
    found = uk.simulate(problem, t1=END, ts=TIMES, stabilizer=stabilizer, **limits)
    if not found.ok:
        return math.inf, int(found.stats["num_steps"])
    exact = closed_form(angle, rate)[:, None]
    return float(np.max(np.abs(np.asarray(found.q)[:, [2, 5, 8]] - exact))), int(found.stats["num_steps"])


def write(rows: list[Row], path: Path) -> None:
    """All rows as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        outcome = [f.name for f in dataclasses.fields(Outcome)]
        writer.writerow(["stabilizer", "start", "tolerance", "method", "cpu", *outcome])
        for row in rows:
            key = row.stabilizer, row.start, row.tolerance, row.method, f"{row.cpu:.3f}"
            writer.writerow([*key, *dataclasses.astuple(row.outcome)])


def main(arguments: list[str] | None = None) -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/pseudoinverse_dpv"))
    parser.add_argument("--quick", action="store_true", help="one method, one tolerance, one start")
    parser.add_argument("--study", choices=["tables", "gains", "rcond", "adams"], default="tables")
    parser.add_argument("--max-steps", type=int, help="steps after which a run gives up")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    plan = QUICK if options.quick else Plan()
    if options.max_steps:
        plan = dataclasses.replace(plan, max_steps=options.max_steps)
    if options.study == "adams":
        from adams import main as by_adams  # which takes the paper's tables from here

        by_adams(["--out", str(options.out), *(["--quick"] if options.quick else [])])
        return []
    if options.study != "tables":
        print(gains() if options.study == "gains" else thresholds(options.quick))
        return []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    rows: list[Row] = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(plan.methods))
        for method in plan.methods:
            progress.update(task, description=method)
            rows += rows_of(method, plan)
            progress.advance(task)
    rows.sort(key=lambda row: (*GAINS, PROJECTED).index(row.stabilizer))
    for tolerance in plan.tolerances:
        for start in plan.starts:
            print(table(start, tolerance, [r for r in rows if (r.start, r.tolerance) == (start, tolerance)]))
    if not options.quick:
        print(summary(rows))
    write(rows, options.out / "runs.csv")
    print(f"wrote {options.out / 'runs.csv'}; gave up: {plan.max_steps:,} steps taken")
    return rows


if __name__ == "__main__":
    main()
