"""Makes pages of the gallery's examples while the site is built, and pictures for them before.

The examples are notebooks in jupytext's percent format. `mkdocs build` turns their cells into pages and runs nothing, so
it takes no longer; it shows the pictures that are there. To run all examples and keep what they draw and print (some
minutes):

    python docs/gallery/pages.py
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
    """The notebook as Markdown, with the pictures and the output that there are."""
    parts = [text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in cells(source)]
    printed = kept / name / "output.txt"
    if printed.exists():
        parts.append("It prints:\n\n```text\n" + printed.read_text().rstrip() + "\n```")
    for picture in ("figure.png", "motion.gif"):
        if (kept / name / picture).exists():
            parts.append(f"![{title(source)}](kept/{name}/{picture})")
    parts.append(f"Source: `docs/gallery/{name}.py`, a notebook for `jupytext --to ipynb`.")
    return "\n\n".join(parts) + "\n"


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
    for path in EXAMPLES:
        with tempfile.TemporaryDirectory() as folder:
            printed = run(path, Path(folder))
            kept = KEPT / path.stem
            kept.mkdir(parents=True, exist_ok=True)
            (kept / "output.txt").write_text(printed, encoding="utf-8")
            for picture in ("figure.png", "motion.gif"):
                if (Path(folder) / picture).exists():
                    shutil.copy(Path(folder) / picture, kept)
        print(path.stem, flush=True)


if __name__ == "__main__":
    main()
