"""Makes pages of the gallery's examples while the site is built, and pictures for them before.

The examples are notebooks in jupytext's percent format. `mkdocs build` turns their cells into pages and runs nothing, so
it takes no longer; it shows the pictures in `kept/`. To run examples anew, all or some by their names, and keep what they
draw and print (all: some minutes):

    python docs/gallery/pages.py [bicycle ...]
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
KEPT = HERE / "kept"
PICTURES = ("motion.gif", "figure.png")
EXAMPLES = sorted(path for path in HERE.glob("*.py") if path != Path(__file__))


def cells(source: str) -> list[tuple[str, str]]:
    """The cells of a notebook, each ("markdown" or "code", text)."""
    found = []
    for head, body in re.findall(r"^# %%(.*)\n((?:(?!# %%).*\n?)*)", source, re.MULTILINE):
        text = body.strip("\n")
        if "[markdown]" in head:
            found.append(("markdown", re.sub(r"^# ?", "", text, flags=re.MULTILINE)))
        else:
            found.append(("code", text))
    return found


def title(source: str) -> str:
    """Its first heading."""
    return cells(source)[0][1].splitlines()[0].removeprefix("# ")


def page(name: str, source: str, kept: Path = KEPT) -> str:
    """The notebook as Markdown, its film under the title, and at the end what it draws and prints."""
    (_, first), *others = cells(source)
    head, _, rest = first.partition("\n")
    shown = {x: f"![{title(source)}](kept/{name}/{x})" for x in PICTURES if (kept / name / x).exists()}
    film = shown.pop("motion.gif", "")
    parts = [head, film, rest.strip()]
    parts += [text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in others]
    printed = kept / name / "output.txt"
    if printed.exists():
        parts.append("It prints:\n\n```text\n" + printed.read_text().rstrip() + "\n```")
    parts += shown.values()
    parts.append(f"Source: `docs/gallery/{name}.py`, a notebook for `jupytext --to ipynb`.")
    return "\n\n".join(filter(None, parts)) + "\n"


def with_thumbnails(index: str, kept: Path = KEPT) -> str:
    """The index with each list of examples as a table whose first column has their films."""

    def table(found: re.Match) -> str:
        rows = ["| | |", "|---|---|"]
        for line in found[0].strip().splitlines():
            name = re.search(r"\((\w+)\.md\)", line)[1]
            film = f"![](kept/{name}/motion.gif)" if (kept / name / "motion.gif").exists() else ""
            rows.append(f"| {film} | {line.removeprefix('- ')} |")
        return "\n".join(rows) + "\n"

    return re.sub(r"(?:^- \[.*\n)+", table, index, flags=re.MULTILINE)


def on_page_markdown(markdown, page, config, files):
    """Called by MkDocs for each page: the gallery's index gets its pictures."""
    return with_thumbnails(markdown) if page.file.src_uri == "gallery/index.md" else markdown


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


def on_files(files, config):
    """Called by MkDocs: adds a page for each example."""
    from mkdocs.structure.files import File

    for path in EXAMPLES:
        source = path.read_text(encoding="utf-8")
        uri = f"gallery/{path.stem}.md"
        files.append(File.generated(config, uri, content=page(path.stem, source)))
    return files


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
