"""Files of the site that nobody writes: MathJax, so that it can be read without a network, and llms.txt, a plain index.

MathJax 3 comes from a package of PyPI that holds its files (`django-static-mathjax`, which needs no Django): one script,
which draws formulas as SVG and loads nothing else. MkDocs calls `on_files`.
"""

import importlib.metadata
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

SCRIPT = "javascripts/tex-svg.js"


def mathjax() -> bytes:
    """The script, from the package."""
    try:
        files = importlib.metadata.files("django-static-mathjax") or []
    except importlib.metadata.PackageNotFoundError:
        raise PluginError("MathJax is missing: pip install -e '.[docs]'") from None
    (script,) = (x for x in files if x.as_posix().endswith("static/mathjax/es5/tex-svg.js"))
    return Path(str(script.locate())).read_bytes()


def entry(name: str, uri: str, text: str) -> str:
    """A line of llms.txt: the page's name, its address and its first sentence."""
    prose = [x for x in re.split(r"\n\s*\n", text) if x.strip() and not re.match(r"\s*(#|```|\||<|-|!)", x)]
    first = " ".join(prose[0].split()) if prose else name
    address = "" if uri == "index.md" else uri.removesuffix("index.md").removesuffix(".md").rstrip("/") + "/"
    return f"- [{name}]({address}): {re.split(r'(?<=[.:]) ', first)[0]}"


def pages(nav: list[Any]) -> list[tuple[str, str]]:
    """The pages of the navigation, flat."""
    found = []
    for item in nav:
        for name, inner in item.items():
            found += pages(inner) if isinstance(inner, list) else [(name, inner)]
    return found


def on_files(files: Files, config: Any) -> Files:
    """Adds both."""
    listed = [
        entry(name, uri, (Path(config["docs_dir"]) / uri).read_text(encoding="utf-8"))
        for name, uri in pages(config["nav"])
    ]
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", "", *listed, ""]
    files.append(File.generated(config, "llms.txt", content="\n".join(lines)))
    files.append(File.generated(config, SCRIPT, content=mathjax()))
    return files
