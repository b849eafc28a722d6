"""The report on a run as an object: numbers by section, written as Markdown or JSON."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from .._misc._errors import InputError
from .._misc._files import as_path, replacing

_SHOWN = 12  # of a list, in a line of a table; JSON has all
_LABELS = {
    "start_and_end": "start and end [s]",
    "digest_of_all_numbers": "digest of all numbers, start included",
    "step": "step [s]",
    "time_of_event": "time of event [s]",
    "tightened_by": "tolerances or step of the second run, times",
    "largest_at_t": "largest at t [s]",
    "energy": "energy [J]",
    "start_moved": "start moved by, of a coordinate and of a velocity",
    "at_the_start": "at the start [J]",
    "at_the_end": "at the end [J]",
    "largest_change": "largest change [J]",
    "num_steps": "steps",
    "num_accepted_steps": "accepted steps",
    "num_rejected_steps": "rejected steps",
    "num_evaluations": "evaluations of the acceleration",
}
"""How Markdown names what its key does not say in full: units, above all. Coordinates have units of their own."""
_VERDICTS = {True: "holds", False: "FAILS", None: "undecided"}


@final
@dataclass(frozen=True, repr=False)
class Certificate:
    """What `Trajectory.certify` found out about a run; `str(certificate)` is its report in Markdown.

    The errors are estimated by a second run, at tolerances a hundredth of the first's, or at a quarter of its fixed step:
    |y - y2|, the largest at the saved times. If the second run's own error is r times the first's, the true error is at
    most 1 / (1 - r) times the estimate: 1.1 times for r = 0.1, which adaptive runs keep below; 1.33 times for r = 0.25,
    Euler's at fixed steps. Where a motion is chaotic the estimate grows with it, and says so.

    - `sections`: plain numbers, texts and lists by section: `problem`, `method`, `errors`, `constraints`, `energy`,
      `rank`, `derivatives`, `software`.
    - `checks`: what was checked, each True, False, or None where it could not be decided.
    """

    sections: dict[str, dict[str, Any]]
    checks: dict[str, bool | None]

    @property
    def ok(self) -> bool:
        """Whether no check fails. One that could not be decided is no failure: look at `checks`."""
        return False not in self.checks.values()

    @property
    def position_error(self) -> np.ndarray:
        """The estimated error of each coordinate (n_q,), the largest at the saved times; NaN where there is none."""
        return np.array(self.sections["errors"]["coordinates"], float)

    @property
    def velocity_error(self) -> np.ndarray:
        """The estimated error of each velocity (n,)."""
        return np.array(self.sections["errors"]["velocities"], float)

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{name}: {_VERDICTS[x]}" for name, x in self.checks.items())
        return f"Certificate '{self.sections['problem']['name']}' ({verdicts})"

    def __str__(self) -> str:
        return self.to_markdown()

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def to_json(self) -> str:
        """All sections and checks as JSON; numbers that are not finite are null."""
        return json.dumps(_finite({"checks": self.checks, **self.sections}), allow_nan=False, indent=1)

    def to_markdown(self) -> str:
        """The report for people: a table for each section."""
        lines = [f"# Report on the run '{self.sections['problem']['name']}'", ""]
        lines += _table({name: _VERDICTS[x] for name, x in self.checks.items()}, ("check", "verdict"))
        for name, section in self.sections.items():
            lines += ["", f"## {name.capitalize()}", "", *_table(section, ("", ""))]
        return "\n".join(lines) + "\n"

    def save(self, path: str | Path) -> Path:
        """Writes the report.

        **Arguments:**

        - `path`: its suffix chooses: .md for Markdown, .json for JSON.

        **Returns:** the path. **Raises:** `InputError` for another suffix, and where it cannot be written.
        """
        path = require_suffix(path)
        text = self.to_json() if path.suffix == ".json" else self.to_markdown()
        with replacing(path) as partial:
            partial.write_text(text, encoding="utf-8")
        return path


def require_suffix(path: str | Path) -> Path:
    """A path a report can be written to."""
    path = as_path("path", path)
    if path.suffix not in (".md", ".json"):
        raise InputError(f"a report is written to a .md or a .json file, got '{path}'.")
    return path


def _finite(x: Any) -> Any:
    if isinstance(x, dict):
        return {str(name): _finite(y) for name, y in x.items()}
    if isinstance(x, list):
        return [_finite(y) for y in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x


def _format_value(x: Any) -> str:
    if isinstance(x, float):
        return f"{x:.6g}"
    if isinstance(x, list):
        more = f" and {len(x) - _SHOWN} more" if len(x) > _SHOWN else ""
        return (", ".join(map(_format_value, x[:_SHOWN])) or "none") + more
    if isinstance(x, dict):
        return "; ".join(f"{name} {_format_value(y)}" for name, y in x.items())
    return "-" if x is None else str(x).replace("|", "\\|").replace("\n", " ")


def _table(rows: dict[str, Any], head: tuple[str, str]) -> list[str]:
    lines = [f"| {head[0]} | {head[1]} |", "|---|---|"]
    return lines + [
        f"| {_LABELS.get(name, name.replace('_', ' '))} | {_format_value(x)} |" for name, x in rows.items()
    ]
