"""What `gpu.py` measured, as a table and a figure, beside what was expected."""

import math
from pathlib import Path
from typing import Any

_LEAST = 0.3  # of an estimate, which is an upper bound: latencies and divergence may take as much, not more


def estimates(page: Path) -> dict[tuple[str, str, str], float]:
    """Estimated steps a second by model, type and steps, from the table of the documentation.

    **Arguments:**

    - `page`: docs/measurements.md.
    """
    rows = [[x.strip() for x in line.strip("| \n").split("|")] for line in page.read_text().splitlines()]
    heads = [row for row in rows if row[0] == "model"]
    if not heads:
        raise SystemExit(f"{page} has no table of estimates: run gpu_static.py.")
    place = next(i for i, x in enumerate(heads[0]) if x.startswith("estimate"))
    listed = [row for row in rows if len(row) == len(heads[0]) and row[1].startswith("float")]
    return {(row[0], row[1], row[2]): float(row[place]) for row in listed}


class Report:
    """Rows as they come.

    **Arguments:**

    - `expected`: as `estimates` gives them.
    """

    def __init__(self, expected: dict[tuple[str, str, str], float]):
        self._expected, self._notes = expected, list[str]()
        self._rates: dict[tuple[str, str, str], dict[int, float]] = {}
        self._differences: dict[tuple[str, str, str], str] = {}

    def note(self, text: str) -> None:
        """A line of its own."""
        self._notes.append(text)
        print(text, flush=True)

    def compared(self, way: Any, off: float, same: float, tolerance: float) -> None:
        """How far the device is from the CPU.

        **Arguments:**

        - `way`: how the model was run.
        - `off`: the largest difference, relative to the largest number.
        - `same`: the share of runs with as many steps.
        - `tolerance`: of the difference.
        """
        wrong = "" if off <= tolerance and same > 0.9 else " WRONG"
        self._differences[tuple(way)] = f"{off:.1e}, {100 * same:.0f} %{wrong}"
        print(f"{' '.join(way)}: differs from the CPU by {self._differences[tuple(way)]}", flush=True)

    def measured(self, way: Any, runs: int, rate: float) -> None:
        """Steps a second of a batch.

        **Arguments:**

        - `way`: how the model was run.
        - `runs`: how many.
        - `rate`: NaN where there was none.
        """
        self._rates.setdefault(tuple(way), {})[runs] = rate
        print(f"{' '.join(way)}, {runs:,} runs: {rate:.2e} steps/s", flush=True)

    def _verdict(self, way: tuple[str, str, str]) -> tuple[str, str]:
        """The estimate, and the best rate in parts of it."""
        expected, best = self._expected.get(way), _best(self._rates[way])
        if expected is None or math.isnan(best):
            return "", ""
        share = best / expected
        wrong = " (too low: an upper bound)" if share > 1 else " (too high)" if share < _LEAST else ""
        return f"{expected:.1e}", f"{share:.2f}{wrong}"

    def text(self) -> str:
        """All of it, in Markdown."""
        sizes = sorted({runs for rates in self._rates.values() for runs in rates})
        head = [
            "model",
            "type",
            "steps",
            *(f"{x:,} runs" for x in sizes),
            "estimate",
            "best / estimate",
            "off the CPU",
        ]
        lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        for way, rates in self._rates.items():
            cells = [_shown(rates.get(x, math.nan)) for x in sizes]
            row = [*way, *cells, *self._verdict(way), self._differences.get(way, "")]
            lines.append(f"| {' | '.join(row)} |")
        wrong = [way for way in self._rates if "(" in self._verdict(way)[1]]
        told = (
            [f"Estimates that were wrong: {', '.join(map(' '.join, wrong)) or 'none'}."]
            if self._expected
            else []
        )
        return "\n\n".join(["Steps a second.", *self._notes, "\n".join(lines), *told]) + "\n"

    def draw(self, path: Path) -> None:
        """Steps a second over the number of runs, one panel for a model.

        **Arguments:**

        - `path`: of the figure.
        """
        import matplotlib

        matplotlib.use("agg")
        import matplotlib.pyplot as plt

        models = list(dict.fromkeys(way[0] for way in self._rates))
        figure, axes = plt.subplots(
            1, len(models), figsize=(3.2 * len(models), 3), sharey=True, squeeze=False
        )
        for model, axis in zip(models, axes[0], strict=True):
            for way, rates in self._rates.items():
                if way[0] == model:
                    axis.loglog(list(rates), list(rates.values()), ".-", label=" ".join(way[1:]))
            axis.set(title=model, xlabel="runs")
        axes[0, 0].set_ylabel("steps a second")
        axes[0, 0].legend(fontsize="x-small")
        figure.savefig(path, dpi=120, bbox_inches="tight")
        plt.close(figure)


def _best(rates: dict[int, float]) -> float:
    return max((x for x in rates.values() if not math.isnan(x)), default=math.nan)


def _shown(rate: float) -> str:
    return "-" if math.isnan(rate) else f"{rate:.1e}"
