"""The gallery: every notebook runs and draws, the example's page has all its cells, and the index lists it."""

import importlib.util
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "gallery"
_spec = importlib.util.spec_from_file_location("gallery_pages", FOLDER / "pages.py")
assert _spec is not None
assert _spec.loader is not None
pages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pages)
NOTEBOOKS = dict(pages.notebooks())


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
    assert f"\n\n[Download notebook]({path.stem}.ipynb)\n\n" in page
    assert f"(kept/{path.stem}/figure.png)" in page
    assert "motion.gif)" not in page
    assert page.count("```") % 2 == 0


def test_pages_and_index_show_what_is_kept() -> None:
    """Each example has its film and figure in the repository; its page and the index begin with one of them."""
    index = pages.with_thumbnails((FOLDER / "index.md").read_text())
    for path in pages.EXAMPLES:
        for name in pages.PICTURES:
            assert 0 < (pages.KEPT / path.stem / name).stat().st_size < 500_000
        text = pages.page(path.stem, path.read_text())
        cover = "figure.png" if path.stem in pages.BY_FIGURE else "motion.gif"
        assert text.splitlines()[2] == f"![{pages.title(path.read_text())}](kept/{path.stem}/{cover})"
        assert f"| ![](kept/{path.stem}/{cover}) | [" in index


def test_pages_are_notebooks() -> None:
    """As jupytext reads them: nothing stands before the first cell, which is the heading."""
    for path in pages.EXAMPLES:
        assert path.read_text().startswith("# %% [markdown]\n# # ")


def test_notebooks_have_the_code_of_their_sources_and_say_what_they_give() -> None:
    sources = {f"gallery/{path.stem}.ipynb": path for path in pages.EXAMPLES}
    for uri, text in NOTEBOOKS.items():
        notebook = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
        nbformat.validate(notebook)
        first, *others = notebook.cells
        assert first.cell_type == "markdown"
        assert first.source.startswith("# ")
        assert "At the end " in first.source
        assert "\npip install " in first.source
        code = [cell.source for cell in others if cell.cell_type == "code"]
        if uri in sources:
            cells = pages.cells(sources[uri].read_text())
            assert code == [text for kind, text in cells if kind == "code"]
        else:
            page = ROOT / {"tutorial.ipynb": "docs/tutorial.md", "examples.ipynb": "README.md"}[uri]
            blocks = re.findall(r"^```python\n(.*?)\n```$", page.read_text(), re.DOTALL | re.MULTILINE)
            assert code == blocks
            prose = "\n".join(cell.source for cell in others if cell.cell_type == "markdown")
            assert not re.search(
                r"\]\(|```text|\\\(", prose
            )  # links, outputs, formulas that Jupyter does not know
    assert dict(pages.notebooks()) == NOTEBOOKS  # the same each time


@pytest.mark.slow
@pytest.mark.parametrize("uri", NOTEBOOKS)
def test_a_notebook_runs(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom; an example's draws a figure that is no blank, and a film of several frames."""
    image = pytest.importorskip("PIL.Image")
    # What trains or tunes runs longer than it compiles.
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "false")
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    notebook = nbformat.reads(NOTEBOOKS[uri], as_version=nbformat.NO_CONVERT)
    NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert "(viser)" not in nbformat.writes(notebook)  # which writes past what Python prints
    if not uri.startswith("gallery/"):
        assert any(tmp_path.glob("*.gif"))
        return
    with image.open(tmp_path / "figure.png") as figure:
        assert len(figure.convert("RGB").getcolors(1 << 24)) > 10
    with image.open(tmp_path / "motion.gif") as film:
        assert film.n_frames > 20


@pytest.mark.slow
def test_an_example_runs_as_a_script(tmp_path: Path) -> None:
    """The one whose processes read the file that they are started from."""
    pages.run(FOLDER / "workers.py", tmp_path)
    assert (tmp_path / "motion.gif").exists()
