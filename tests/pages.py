"""The pages that show what `experiments/` prints, and whether they still do."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "experiments"))

import tables as tables  # noqa: E402

PAGES = [ROOT / "experiments" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def check_figures(printed: str, least: int) -> None:
    """Every figure that was printed and stands in a page too is the same there; so many do at least."""
    each = [tables.differences(printed, page.read_text()) for page in PAGES]
    assert not [x for _, found in each for x in found]
    assert sum(count for count, _ in each) >= least
