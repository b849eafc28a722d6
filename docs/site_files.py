"""Parts of the site that nobody writes: MathJax, so that it can be read without a network, llms.txt, a plain index, and
the list of all public names on the page of the interface.

MathJax 3 comes from a package of PyPI that holds its files (`django-static-mathjax`, which needs no Django): one script,
which draws formulas as SVG and loads nothing else. Pages without formulas do not load it. MkDocs calls what begins with
`on_`.
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


def public_names(nav: list[Any], docs: Path) -> str:
    """The names of each page of the interface, linked. Each has the anchor that it had when all were on this page."""
    lines = []
    for title, uri in pages(nav):
        if not uri.startswith("api/"):
            continue
        names = re.findall(r"^::: (.+)$", (docs / uri).read_text(encoding="utf-8"), re.MULTILINE)
        links = (f'<a id="{x}"></a>[`{x.rpartition(".")[2]}`]({uri}#{x})' for x in names)
        lines += [f"## [{title}]({uri})", "", " · ".join(links), ""]
    return "\n".join(lines)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Adds the names to the page of the interface."""
    if page.file.src_uri != "api.md":
        return markdown
    return f"{markdown}\n{public_names(config['nav'], Path(config['docs_dir']))}"


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Takes MathJax from pages that have no formula."""
    if 'class="arithmatex"' in output:
        return output
    return re.sub(r'<script src="[^"]*javascripts/(?:mathjax|tex-svg)\.js"></script>', "", output)


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
