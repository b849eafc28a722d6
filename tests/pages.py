"""The pages that show what `experiments/` prints, and whether they still do."""

import importlib.util
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "experiments" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def load(file: Path) -> Any:
    """A script as a module, its folder kept off the path."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tables = load(ROOT / "experiments" / "paper_tables.py")


def check_figures(printed: str, least: int) -> None:
    """Every figure that was printed and stands in a page too is the same there; so many do at least."""
    each = [tables.differences(printed, page.read_text()) for page in PAGES]
    assert not [x for _, found in each for x in found]
    assert sum(count for count, _ in each) >= least
