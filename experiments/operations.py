"""How many operations one acceleration takes as scalar code, of some models: the table of docs/performance.md.

python experiments/operations.py
"""

import argparse

import jax
from paper_tables import Table

import ukjax as uk

MODELS = ("pendulum", "four_bars", "parallelogram", "planar_4rrr", "arm_6r")


def main(arguments: list[str] | None = None) -> dict[str, int]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three models")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    counts, table = {}, Table("", "model", "rows, velocities", "operations of an acceleration", names=2)
    for name in MODELS[:3] if options.quick else MODELS:
        problem = uk.models.get(name)
        m, n = uk.constraint_rows(problem.system, 0.0, problem.q0, problem.v0).A.shape
        counts[name] = sum(uk.lanes(problem).operations(0.0, problem.q0, problem.v0).values())
        table.add_row(f"`uk.models.{name}()`", f"{m}, {n}", f"{counts[name]:,}")
    print(table)
    return counts


if __name__ == "__main__":
    main()
