"""Makes pages and notebooks of the gallery's examples while the site is built, and pictures for them before.

The examples are notebooks in jupytext's percent format. `mkdocs build` turns their cells into pages and into Jupyter's
format, and the tutorial and README's examples too; it runs nothing, so it takes no longer, and shows the pictures in
`kept/`. To run examples anew, all or some by their names, and keep what they draw and print (all: some minutes):

    python docs/gallery/pages.py [bicycle ...]
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jupytext
from nbformat import NotebookNode

HERE = Path(__file__).parent
KEPT = HERE / "kept"
PICTURES = ("motion.gif", "figure.png")
BY_FIGURE = (
    *("certificate", "identification", "neural_force", "optimal_control", "posterior", "sweep", "tuning"),
    *("unknown_friction", "workers"),
)
"""Examples whose figure says more than the film of their pendulum."""
EXAMPLES = sorted(path for path in HERE.glob("*.py") if path != Path(__file__))


def cells(source: str) -> list[tuple[str, str]]:
    """The cells of a notebook, each ("markdown" or "code", text)."""
    return [(x.cell_type, x.source) for x in jupytext.reads(source, "py:percent").cells]


def title(source: str) -> str:
    """Its first heading."""
    return cells(source)[0][1].splitlines()[0].removeprefix("# ")


def pictures(name: str, kept: Path) -> list[str]:
    """What an example drew, as Markdown links to it, first what its page opens with."""
    order = reversed(PICTURES) if name in BY_FIGURE else PICTURES
    return [f"kept/{name}/{x}" for x in order if (kept / name / x).exists()]


def page(name: str, source: str, kept: Path = KEPT) -> str:
    """The notebook as Markdown, its film or figure under the title, and at the end what else it draws and prints."""
    (_, first), *others = cells(source)
    head, _, rest = first.partition("\n")
    cover, *further = [f"![{title(source)}]({x})" for x in pictures(name, kept)] or [""]
    parts = [head, cover, rest.strip(), _download(name)]
    parts += [text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in others]
    printed = kept / name / "output.txt"
    if printed.exists():
        parts.append("It prints:\n\n```text\n" + printed.read_text().rstrip() + "\n```")
    parts += further
    parts.append(f"Source: `docs/gallery/{name}.py`.")
    return "\n\n".join(filter(None, parts)) + "\n"


def with_thumbnails(index: str, kept: Path = KEPT) -> str:
    """The index with each list of examples as a table, their pictures before them and their notebooks behind."""

    def table(found: re.Match) -> str:
        rows = ["| | | |", "|---|---|---|"]
        for line in found[0].strip().splitlines():
            name = re.search(r"\((\w+)\.md\)", line)[1]
            cover = "".join(f"![]({x})" for x in pictures(name, kept)[:1])
            rows.append(f"| {cover} | {line.removeprefix('- ')} | [notebook]({name}.ipynb) |")
        return "\n".join(rows) + "\n"

    return re.sub(r"(?:^- \[.*\n)+", table, index, flags=re.MULTILINE)


# --- Notebooks, of examples and of pages


def _download(name: str) -> str:
    return f"[Download notebook]({name}.ipynb)"


def _before_sections(text: str, added: str) -> str:
    """A page with a paragraph before its first section, or at its end."""
    head, mark, rest = text.partition("\n## ")
    return f"{head.rstrip()}\n\n{added.strip()}\n{mark}{rest}".rstrip()


_INSTALL = """**To run it:** Python 3.11 or newer, and in a copy of the project

```bash
pip install -e '.[all]' jupyterlab
```"""
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def as_ipynb(notebook: NotebookNode, promise: str) -> str:
    """A notebook as Jupyter's JSON; its first cell says what there is in the end, and how to install what it needs."""
    notebook.cells[0].source = _before_sections(notebook.cells[0].source, f"{promise}\n\n{_INSTALL}")
    for i, cell in enumerate(notebook.cells):
        cell.id = f"cell-{i + 1}"  # by default random, and the site new each time
    notebook.metadata = _METADATA
    return jupytext.writes(notebook, "ipynb")


def of_example(path: Path) -> str:
    """An example's notebook; what it has in the end, the index says."""
    (shown,) = re.findall(rf"\({path.stem}\.md\): (.*)", (HERE / "index.md").read_text(encoding="utf-8"))
    promise = f"**At the end you have:** {shown}; a figure, `figure.png`, and a film, `motion.gif`."
    return as_ipynb(jupytext.reads(path.read_text(encoding="utf-8"), "py:percent"), promise)


def of_page(text: str, promise: str) -> str:
    """The notebook of a page: without what it prints, its pictures, and links, which lead nowhere from there."""
    text = re.sub(r"^```text\n.*?^```\n", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^!\[.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r" \(\[[^\]]+\]\([^)]+\)\)", "", text)  # links in brackets
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    text = re.sub(r"\\[()]", "$", text)  # formulas, as Jupyter knows them
    return as_ipynb(jupytext.reads(text, "md"), promise)


def notebooks() -> Iterator[tuple[str, str]]:
    """All of them by where they are on the site."""
    for path in EXAMPLES:
        yield f"gallery/{path.stem}.ipynb", of_example(path)
    tutorial = (HERE.parent / "tutorial.md").read_text(encoding="utf-8")
    yield "tutorial.ipynb", of_page(tutorial, "")
    readme = (HERE.parents[1] / "README.md").read_text(encoding="utf-8")
    examples = re.search(r"^## A mechanism.*?(?=^## What others)", readme, re.MULTILINE | re.DOTALL)[0]
    promise = (
        "**At the end you have:** a film of a linkage, the derivative of a gripper's motion by a spring, and a thousand "
        "gradients at once. Start Jupyter in the project's folder, where the robot's file is."
    )
    yield "examples.ipynb", of_page(f"# ukjax in three examples\n\n{examples}", promise)


# --- What MkDocs calls


def on_page_markdown(markdown, page, config, files):
    """For each page: the gallery's index gets its pictures, and the tutorial its notebook."""
    if page.file.src_uri == "tutorial.md":
        return _before_sections(markdown, _download("tutorial"))
    return with_thumbnails(markdown) if page.file.src_uri == "gallery/index.md" else markdown


def on_files(files, config):
    """Adds a page for each example, and the notebooks."""
    from mkdocs.structure.files import File

    for path in EXAMPLES:
        source = path.read_text(encoding="utf-8")
        uri = f"gallery/{path.stem}.md"
        files.append(File.generated(config, uri, content=page(path.stem, source)))
    for uri, content in notebooks():
        files.append(File.generated(config, uri, content=content))
    return files


# --- Running examples


def run(path: Path, folder: Path) -> str:
    """Runs an example in a folder, which is where it writes its pictures to.

    **Returns:** what it prints. **Raises:** `RuntimeError` where it fails.
    """
    environment = os.environ | {"MPLBACKEND": "agg", "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")}
    done = subprocess.run(
        [sys.executable, path], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{path.name} failed:\n{done.stderr}")
    return done.stdout


def main() -> None:
    for path in (x for x in EXAMPLES if x.stem in (sys.argv[1:] or [x.stem])):
        with tempfile.TemporaryDirectory() as folder:
            printed = run(path, Path(folder))
            kept = KEPT / path.stem
            kept.mkdir(parents=True, exist_ok=True)
            (kept / "output.txt").write_text(printed, encoding="utf-8")
            for picture in PICTURES:
                if (Path(folder) / picture).exists():
                    shutil.copy(Path(folder) / picture, kept)
        print(path.stem, flush=True)


if __name__ == "__main__":
    main()
