"""What README and docs show must run: Python blocks as they stand, command lines up to the simulation itself."""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from typer.testing import CliRunner

import ukjax
from ukjax import InputError
from ukjax._cli import _commands as cli
from ukjax._cli._options import METHODS
from ukjax.models import MODELS

ROOT = Path(__file__).parent.parent
ROBOTS = ROOT / "experiments" / "robots"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, *languages: str) -> list[str]:
    return [
        body
        for language, body in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        if language in languages
    ]


OWN_MODEL = blocks(ROOT / "docs" / "cli.md", "python")[0]

# Pages whose blocks train, tune, differentiate or are many: up to half a minute of compilation each.
SLOW = (
    "README.md",
    "impacts.md",
    "recipes.md",
    "analysis.md",
    "choosing.md",
    "cluster.md",
    "coming-from.md",
    "concepts.md",
    "embedding.md",
    "contact.md",
    "extending.md",
    "gpu.md",
    "gradients.md",
    "identify.md",
    "index.md",
    "learning.md",
    "mechanisms.md",
    "out-of-python.md",
    "performance.md",
    "plan.md",
    "robots.md",
    "sweeps.md",
    "tuning.md",
    "tutorial.md",
    "viewer.md",
)
WITH_PYTHON = [page for page in PAGES if blocks(page, "python")]
LINES = [
    line.partition("ukjax ")[2]
    for page in PAGES
    for block in blocks(page, "bash", "console")
    for line in block.splitlines()
    if re.search(r"(^|/|\$ )ukjax ", line)
]
# Some stand on several pages. To start a robot with limits takes more than a second; others load it so, or start it.
COMMANDS = [
    pytest.param(shlex.split(line), marks=[pytest.mark.slow] * ("contact=limits" in line), id=line)
    for line in dict.fromkeys(LINES)
]

# In a process of their own, since tests switch JAX to stricter rules than users have, and with fewer searches for unused
# objects, as the tests have. What a page switches on is off again for the next.
RUN = """
import contextlib, gc, io, json, os, sys
gc.set_threshold(100_000, 50, 50)
import jax
for folder in sys.argv[1:]:
    print(folder, file=sys.stderr)
    os.chdir(folder)
    jax.config.update("jax_enable_x64", False)
    names, printed = {"__name__": "__main__"}, []
    for block in json.load(open("blocks.json")):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(block, "blocks.py", "exec"), names)
        printed.append(out.getvalue())
    json.dump(printed, open("printed.json", "w"))
"""
NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?")
ROUNDING = 1e-9  # numbers below differ from machine to machine


def says_the_same(shown: str, printed: str) -> bool:
    """Whether a text is what was printed, numbers to a thousandth."""
    texts = [re.sub(r"[\s\[\]]+", "", NUMBER.sub("#", x)) for x in (shown, printed)]
    pairs = zip(*([float(x) for x in NUMBER.findall(text)] for text in (shown, printed)), strict=False)
    return texts[0] == texts[1] and all(abs(a - b) <= 1e-3 * max(abs(a), abs(b)) + ROUNDING for a, b in pairs)


TOGETHER = tuple(page for page in WITH_PYTHON if page.name not in SLOW)
APART = [page for page in WITH_PYTHON if page.name in SLOW]


@pytest.mark.parametrize(
    "pages",
    [
        pytest.param(TOGETHER, id="short ones"),
        *(pytest.param((page,), marks=pytest.mark.slow, id=page.name) for page in APART),
    ],
)
def test_python_blocks_run(pages: tuple[Path, ...], tmp_path: Path) -> None:
    folders = [tmp_path / page.stem for page in pages]
    for page, folder in zip(pages, folders, strict=True):
        folder.mkdir()
        (folder / "blocks.json").write_text(json.dumps(blocks(page, "python")))
        (folder / "experiments").symlink_to(ROOT / "experiments")
        for robot in ROBOTS.glob("*.xml"):
            shutil.copy(robot, folder)
    # What trains or tunes runs longer than it compiles.
    environment = os.environ | ({} if pages == TOGETHER else {"JAX_DISABLE_MOST_OPTIMIZATIONS": "false"})
    done = subprocess.run(
        [sys.executable, "-c", RUN, *folders], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for page, folder in zip(pages, folders, strict=True):
        pairs = zip(shown_output(page), json.loads((folder / "printed.json").read_text()), strict=True)
        wrong = [(shown, printed) for shown, printed in pairs if shown and not says_the_same(shown, printed)]
        assert not wrong, f"{page.name} shows and prints: {wrong[0]}"


def shown_output(page: Path) -> list[str]:
    """What a page shows under each of its blocks, empty where it shows nothing."""
    text = page.read_text()
    return re.findall(r"^```python\n.*?^```\n(?:\n```text\n(.*?)^```)?", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(
    command: list[str], monkeypatch: pytest.MonkeyPatch, own_folder: Path
) -> None:
    def stop(*args, **kwargs):
        raise InputError("so far so good")

    (own_folder / "mymodel.py").write_text(OWN_MODEL)
    for robot in ROBOTS.glob("*.xml"):
        shutil.copy(robot, own_folder)
    for name in ("simulate", "check", "tune", "sweep", "bench", "to_c", "to_fmu", "to_page"):
        monkeypatch.setattr(ukjax, name, stop)
    if command[0] == "cache":
        monkeypatch.setenv("UKJAX_CACHE", str(own_folder / "kept"))  # not that of the tests
    result = CliRunner().invoke(cli.app, command)
    if command[0] in ("list", "load", "cache", "doctor"):
        assert result.exit_code == 0
    else:
        assert (result.exit_code, result.stderr) == (2, "error: so far so good\n")


def test_there_are_commands_and_blocks() -> None:
    assert len(COMMANDS) > 8
    assert {page.name for page in WITH_PYTHON} >= {"README.md", "index.md", "concepts.md"}


def test_pages_list_every_model_and_method() -> None:
    models, choosing = ((ROOT / "docs" / page).read_text() for page in ("models.md", "choosing.md"))
    for name in MODELS:
        assert f"| `{name}` |" in models
    for name, method in METHODS.items():
        assert re.search(rf"^\| `{method}`.*\| `{name}` \|", choosing, re.MULTILINE)
    assert f"`{type(ukjax.UdwadiaKalaba().pinv).__name__}`, that of `UdwadiaKalaba()`" in choosing


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 700


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:]]
    assert [page for page in pages if f": {page}\n" not in navigation] == []


def test_links_outside_the_site_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("*/README.md")]
    links = [(x, y) for x in pages for y in re.findall(r"\]\((?!https?:)([^)#]+)", x.read_text())]
    assert len(links) > 30
    assert [(x.name, link) for x, link in links if not (x.parent / link).exists()] == []


class Linked(HTMLParser):
    """A page of the site: where its links lead, and what links may lead to."""

    def __init__(self, page: Path):
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag, attrs):
        self.anchors |= {x for name, x in attrs if name in ("id", "name") and x}
        self.links |= {x for name, x in attrs if name in ("href", "src") and x}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Linked]:
    """The pages of the site, built anew, by their files; but the live ones, which are programs."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site").resolve()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    subprocess.run(command, cwd=ROOT, check=True)
    return {x: Linked(x) for x in folder.rglob("index.html")}


def targets(page: Path, linked: Linked) -> dict[str, tuple[Path, str]]:
    """The file and the anchor of each link to the site itself."""
    found = {}
    for link in linked.links:
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = unquote(link).partition("#")
            file = (page.parent / path.partition("?")[0]).resolve() if path else page
            found[link] = file / "index.html" if file.is_dir() else file, anchor
    return found


@pytest.mark.slow
def test_no_link_of_the_site_is_dead(site: dict[Path, Linked]) -> None:
    links = [(page, *x) for page, linked in site.items() for x in targets(page, linked).values()]
    assert len(links) > 5000
    assert {(page, x) for page, x, _ in links if not x.exists()} == set()
    assert {(page, x, y) for page, x, y in links if y and x in site and y not in site[x].anchors} == set()


@pytest.mark.slow
def test_every_public_name_is_two_clicks_from_any_page(site: dict[Path, Linked]) -> None:
    (interface,) = (x for x in site if x.parent.name == "api")
    for page, linked in site.items():
        assert interface in {x for x, _ in targets(page, linked).values()}
    listed = {anchor for _, anchor in targets(interface, site[interface]).values()}
    names = [name for name in dir(ukjax) if not name.startswith("_") and name not in ukjax._MODULES]
    assert len(names) > 100
    assert [x for x in names if not any(y.rpartition(".")[2] == x for y in listed)] == []


BEGINNING = 16  # of a text, which no line of code parts; files without it are not parsed


def test_errors_of_troubleshooting_are_those_of_the_code() -> None:
    """What it quotes is somewhere in a string of the package, between what is filled in."""
    quoted = re.findall(r'\*\*"([^"]+)"\*\*', (ROOT / "docs" / "troubleshooting.md").read_text())
    parts = [part for text in quoted for part in (x.strip(" ';") for x in text.split("...")) if part]
    files = [path.read_text() for path in (ROOT / "ukjax").rglob("*.py")]
    texts = [
        node.value
        for file in files
        if any(part[:BEGINNING] in file for part in parts)
        for node in ast.walk(ast.parse(file))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert len(quoted) > 25
    assert [part for part in parts if not any(part in text for text in texts)] == []


def test_the_pages_of_the_interface_list_every_public_name_once() -> None:
    listed = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    names = [name for name in dir(ukjax) if not name.startswith("_") and name not in ukjax._MODULES]
    names += [f"models.{name}" for name in MODELS]
    for room in ("analysis", "mechanisms", "robots"):
        public = {k: x for k, x in vars(getattr(ukjax, room)).items() if not k.startswith("_")}
        names += [f"{room}.{k}" for k, x in public.items() if callable(x) and k not in names]
    assert [name for name in names if listed.count(f"::: ukjax.{name}\n") != 1] == []


@pytest.mark.parametrize("command", ["simulate", "tune", "sweep", "bench"])
def test_the_page_of_the_command_line_lists_every_option(command: str) -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    options = set(re.findall(r"--[\w-]+", CliRunner().invoke(cli.app, [command, "--help"]).stdout))
    assert {x for x in options if f"`{x}" not in page} <= {"--help", "--progress", "--no-progress"}


def test_pages_name_no_machine() -> None:
    for page in (*PAGES, ROOT / "CHANGELOG.md"):
        assert not re.search(r"(?<![\w.])/(home|root|work|tmp)/", page.read_text())
