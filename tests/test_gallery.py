"""The gallery: every example runs and draws, its page has all its cells, and the index lists it."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "gallery"
_spec = importlib.util.spec_from_file_location("gallery_pages", FOLDER / "pages.py")
assert _spec is not None
assert _spec.loader is not None
pages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pages)


def test_there_are_examples_and_the_index_lists_them() -> None:
    index = (FOLDER / "index.md").read_text()
    assert len(pages.EXAMPLES) >= 15
    for path in pages.EXAMPLES:
        source = path.read_text()
        assert f"- [{pages.title(source)}]({path.stem}.md): " in index
        assert '"figure.png"' in source
        assert 'animate("motion.gif"' in source


@pytest.mark.parametrize("path", pages.EXAMPLES, ids=lambda x: x.stem)
def test_a_page_has_the_whole_notebook(path: Path, tmp_path: Path) -> None:
    """Every line of code is on it, in order, and the pictures that are kept."""
    source = path.read_text()
    cells = pages.cells(source)
    assert [kind for kind, _ in cells[:2]] == ["markdown", "code"]
    code = [line for kind, text in cells if kind == "code" for line in text.splitlines()]
    plain = [line for line in source.splitlines() if line and not line.startswith("# ")]
    assert [line for line in code if line and not line.startswith("# ")] == [x for x in plain if x != "#"]
    (tmp_path / path.stem).mkdir()
    (tmp_path / path.stem / "figure.png").touch()
    page = pages.page(path.stem, source, tmp_path)
    assert page.startswith("# ")
    assert f"(kept/{path.stem}/figure.png)" in page
    assert "motion.gif)" not in page
    assert page.count("```") % 2 == 0


def test_pages_and_index_show_what_is_kept() -> None:
    """Each example has its film and figure in the repository, the page begins with the film, and the index has it too."""
    index = pages.with_thumbnails((FOLDER / "index.md").read_text())
    for path in pages.EXAMPLES:
        for name in pages.PICTURES:
            assert 0 < (pages.KEPT / path.stem / name).stat().st_size < 500_000
        text = pages.page(path.stem, path.read_text())
        assert text.splitlines()[2] == f"![{pages.title(path.read_text())}](kept/{path.stem}/motion.gif)"
        assert f"| ![](kept/{path.stem}/motion.gif) | [" in index


@pytest.mark.slow
@pytest.mark.parametrize("path", pages.EXAMPLES, ids=lambda x: x.stem)
def test_an_example_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And draws a figure that is no blank, and a film of several frames."""
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setenv(
        "JAX_DISABLE_MOST_OPTIMIZATIONS", "false"
    )  # what trains or tunes runs longer than it compiles
    pages.run(path, tmp_path)
    with image.open(tmp_path / "figure.png") as figure:
        assert len(figure.convert("RGB").getcolors(1 << 24)) > 10
    with image.open(tmp_path / "motion.gif") as film:
        assert film.n_frames > 20


def test_pages_are_notebooks() -> None:
    """As jupytext reads them: nothing stands before the first cell, which is the heading."""
    for path in pages.EXAMPLES:
        assert path.read_text().startswith("# %% [markdown]\n# # ")
