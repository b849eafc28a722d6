"""The table of docs/measurements.md. `python tests/gradient_table.py` measures every case and writes it."""

import argparse
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
from gradient_cases import ADJOINTS, AXES, CASES, STEPS, Case, Errors, measure

PAGE = Path(__file__).parent.parent / "docs" / "measurements.md"
COLUMNS = (*ADJOINTS, *STEPS)
START, STOP = "<!-- table: tests/gradient_table.py -->", "<!-- end of table -->"


def cells() -> dict[tuple[str, str], list[Case]]:
    """The cases behind each cell, by (row, column); cells without a case are missing."""
    found: dict[tuple[str, str], list[Case]] = {}
    for case in CASES:
        for row in (case.model, case.formula, case.method, case.stabilizer):
            for column in (case.adjoint, case.steps):
                found.setdefault((row, column), []).append(case)
    return found


def table(errors: Mapping[Case, Errors]) -> str:
    """The worst relative error of the cases of each cell, forward or in reverse, in Markdown."""
    worst = {case: np.nanmax(found[:2]) for case, found in errors.items()}
    agree = np.nanmax([found.disagreement for found in errors.values()])
    tested = cells()
    lines = [
        f"{len(errors)} cases; the largest error is {max(worst.values()):.0e}, and forward and reverse mode "
        f"differ by {agree:.0e} at most.",
        "",
        "| | " + " | ".join(f"`{c}`" if c in ADJOINTS else c for c in COLUMNS) + " |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    for axis in ("model", "formula", "method", "stabilizer"):
        for row in AXES[axis]:
            shown = [tested.get((row, column), []) for column in COLUMNS]
            entries = (f"{max(worst[c] for c in x):.0e}" if x else "" for x in shown)
            lines.append(f"| {row} | " + " | ".join(entries) + " |")
    return "\n".join(lines)


def written() -> dict[tuple[str, str], float]:
    """What the page says, by (row, column)."""
    body = PAGE.read_text().partition(START)[2].partition(STOP)[0]
    rows = [[x.strip() for x in line.split("|")[1:-1]] for line in body.splitlines() if line.startswith("| ")]
    return {(row[0], c): float(x) for row in rows[1:] for c, x in zip(COLUMNS, row[1:], strict=True) if x}


def write(errors: Mapping[Case, Errors]) -> None:
    """Puts the table between the page's markers."""
    before, _, rest = PAGE.read_text().partition(START)
    after = rest.partition(STOP)[2]
    PAGE.write_text(f"{before}{START}\n{table(errors)}\n\n{STOP}{after}")


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)
    errors = {}
    for case in CASES:
        errors[case] = measure(case)
        print(case.name, *(f"{x:.1e}" for x in errors[case]), flush=True)
        jax.clear_caches()
    write(errors)


if __name__ == "__main__":
    main()
