"""The shape of the project: who imports whom, what an import does, how long files are, what is documented."""

import ast
import functools
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import equinox as eqx
import pytest

import ukjax
from ukjax.models import MODELS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "ukjax"

# From low to high: a room is a folder, and its files may import from rooms before it, and from their own.
ROOMS = [
    "_misc",
    "_compiler",
    "_pseudoinverse",
    "_system",
    "_formula",
    "_motion",
    "_contact",
    "mechanisms",
    "models",
    "robots",
    "analysis",
    "_figures",
    "_run",
    "_interop",
    "_sweep",
    "_tune",
    "__init__",
    "_cli",
    "__main__",
]
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
TEXTS = {path: (PACKAGE / path).read_text() for path in FILES}


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """Not as this file is imported, which every process of a run of the tests does."""
    return {path: ast.parse(text) for path, text in TEXTS.items()}


@functools.cache
def nodes() -> dict[Path, list[ast.AST]]:
    """To walk the trees takes as long as to parse them."""
    return {path: list(ast.walk(tree)) for path, tree in trees().items()}


@pytest.fixture(autouse=True, scope="module")
def parsed_for_this_file():
    """The trees are large, and nothing to the tests of other files."""
    yield
    nodes.cache_clear()
    trees.cache_clear()


def public_names(module: object) -> dict[str, object]:
    found = {k: getattr(module, k) for k in dir(module) if not k.startswith("_")}
    return {k: x for k, x in found.items() if not inspect.ismodule(x)}


PUBLIC = public_names(ukjax)
PUBLIC |= {name: getattr(ukjax, name) for name in sorted(ukjax._UNLISTED)}
PUBLIC |= {f"analysis.{name}": x for name, x in public_names(ukjax.analysis).items()}
PUBLIC |= {f"mechanisms.{name}": x for name, x in public_names(ukjax.mechanisms).items() if name != "GROUND"}


def room_of(path: Path) -> str:
    return path.parts[0] if len(path.parts) > 1 else path.stem


def imports_of(path: Path) -> set[Path]:
    """The files of the package that a file imports, `if TYPE_CHECKING:` aside."""
    typing_only = {
        id(node)
        for branch in nodes()[path]
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for statement in branch.body
        for node in ast.walk(statement)
    }
    found = set()
    for node in nodes()[path]:
        if not isinstance(node, ast.ImportFrom) or not node.level or id(node) in typing_only:
            continue
        folder = PACKAGE.joinpath(*path.parts[: len(path.parts) - node.level])
        module = folder.joinpath(*(node.module or "").split(".")) if node.module else folder
        for name in node.names:
            for candidate in (module / f"{name.name}.py", module / name.name / "__init__.py"):
                if candidate.exists():
                    break
            else:
                candidate = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
            assert candidate.exists(), f"{path}: cannot tell what `{ast.unparse(node)}` imports"
            found.add(candidate.relative_to(PACKAGE))
    return found


@functools.cache
def imports() -> dict[Path, set[Path]]:
    return {path: imports_of(path) for path in FILES}


def test_files_import_only_from_lower_rooms() -> None:
    for path, imported in imports().items():
        own = room_of(path)
        assert own in ROOMS, f"{path} is in no room: add it to ROOMS"
        for other in imported:
            theirs = room_of(other)
            assert theirs == own or ROOMS.index(theirs) < ROOMS.index(own), f"{path} imports {other}"


def test_files_of_a_folder_do_not_import_in_circles() -> None:
    graph = {path: {x for x in found if room_of(x) == room_of(path)} for path, found in imports().items()}
    graph = {path: {x for x in found if x != path} for path, found in graph.items()}
    while graph:
        free = [path for path, found in graph.items() if not found & graph.keys()]
        assert free, f"these import each other: {sorted(map(str, graph))}"
        graph = {path: found for path, found in graph.items() if path not in free}


def test_rooms_name_what_exists() -> None:
    assert set(ROOMS) == {room_of(path) for path in FILES}
    entries = [x for x in PACKAGE.iterdir() if x.name != "__pycache__"]
    assert len(entries) <= 20


def test_rooms_are_listed_for_contributors() -> None:
    """In the order of `ROOMS`, each with the first line of its docstring, which is one sentence."""
    lines = [
        (
            room,
            (ast.get_docstring(trees()[Path(room, "__init__.py")]) or "").splitlines()[0],
        )
        for room in ROOMS
        if (PACKAGE / room).is_dir()
    ]
    assert all(line.endswith(".") for _, line in lines)
    listed = re.findall(r"^\| `(\w+)` \| (.*) \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert listed == lines


def test_modules_say_what_they_are() -> None:
    assert [path for path, tree in trees().items() if not ast.get_docstring(tree)] == []


def test_dependencies_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = [
        *project["dependencies"],
        *extras["plot"],
        *extras["data"],
        *extras["progress"],
        *extras["sweep"],
        *extras["gym"],
        *extras["sb3"],
        *extras["export"],
        *extras["fmu"],
        *extras["torch"],
        *extras["cluster"],
        *extras["ray"],
        *extras["robots"],
        *extras["usd"],
        *extras["view"],
    ]
    names = {re.match(r"[\w-]+", x).group().replace("-", "_") for x in declared}
    used = set()
    for found in nodes().values():
        for node in found:
            if isinstance(node, ast.Import):
                used |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                used.add(node.module.partition(".")[0])
    used = {{"PIL": "pillow", "yaml": "pyyaml", "pxr": "usd_core"}.get(name, name) for name in used}
    assert used - set(sys.stdlib_module_names) - {"ukjax"} <= names  # the command line names what users name
    lazily = {"jaxlib", "zarr", "h5netcdf", "h5py", "tqdm"}  # used by what we import
    assert names - lazily <= used


IMPORT_EFFECTS = """
import sys
import jax
before = dict(jax.config.values)
import ukjax
for name in dir(ukjax):
    getattr(ukjax, name)  # names are loaded when they are first used
from jax._src import xla_bridge
assert dict(jax.config.values) == before, "importing ukjax changed JAX's configuration"
assert not xla_bridge._backends, "importing ukjax started a backend"
print(*(x for x in ("matplotlib", "xarray", "zarr", "h5netcdf", "tqdm", "typer") if x in sys.modules))
import ukjax._cli._commands
assert dict(jax.config.values) == before, "importing ukjax._cli._commands changed JAX's configuration"
assert not xla_bridge._backends, "importing ukjax._cli._commands started a backend"
"""


def test_importing_does_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_EFFECTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "", f"importing ukjax imports {done.stdout}"


def test_loading_of_names_and_what_type_checkers_see_agree() -> None:
    tree = trees()[Path("__init__.py")]
    (seen,) = [x for x in tree.body if isinstance(x, ast.If) and ast.unparse(x.test) == "TYPE_CHECKING"]
    imports, renamed = (
        [x for x in seen.body if isinstance(x, kind)] for kind in (ast.ImportFrom, ast.Assign)
    )
    found = {alias.name: node.module or alias.name for node in imports for alias in node.names}
    rooms = {
        name: name if home == name else f"{home}.{name}" for name, home in found.items() if name[0] == "_"
    }
    named = {ast.unparse(x.targets[0]): ast.unparse(x.value) for x in renamed}
    homes = ukjax._HOME | ukjax._MODULES
    assert homes.keys() - ukjax._UNLISTED == set(dir(ukjax)) == set(ukjax.__all__)
    public = {name: home for name, home in found.items() if name not in rooms}
    assert public | {name: rooms[x] for name, x in named.items() if x in rooms} == homes
    assert {name: x for name, x in named.items() if x not in rooms} == ukjax._FORMER
    assert all(getattr(ukjax, name) is getattr(ukjax, x) for name, x in ukjax._FORMER.items())
    assert ukjax.samples.Grid is ukjax.Grid
    assert ukjax.hierarchy.Module is ukjax.Module
    assert [name for name in homes if not hasattr(ukjax, name)] == []
    with pytest.raises(AttributeError, match="module 'ukjax' has no attribute 'simulat'"):
        _ = ukjax.simulat


LIGHT = """
import sys
from typer.testing import CliRunner
from ukjax._cli._commands import app
for command in (["--help"], ["--version"], ["list"], ["list", "--json"], ["simulate", "--help"], ["sweep", "--help"],
                ["tune", "--help"], ["check", "--help"], ["bench", "--help"]):
    assert CliRunner().invoke(app, command).exit_code == 0
    assert "jax" not in sys.modules, f"ukjax {' '.join(command)} loads JAX"
import ukjax
ukjax.simulate
for heavy in ("optax", "scipy.stats", "scipy.sparse", "ukjax._tune", "ukjax._cli._benchmark", "ukjax._sweep"):
    assert heavy not in sys.modules, f"ukjax.simulate loads {heavy}"
"""


def test_what_is_not_used_is_not_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def explained(x: object) -> str:
    """The docstring; of a class with those of its constructor and of what it inherits from."""
    docs = [inspect.getdoc(x) or ""]
    if inspect.isclass(x):
        docs += [inspect.getdoc(x.__init__) or ""]
    return "\n".join(docs)


def arguments_of(x: object) -> list[str]:
    if inspect.isclass(x) and issubclass(x, BaseException):
        return []
    if inspect.isclass(x) and issubclass(x, eqx.Module):
        return [] if inspect.isabstract(x) else list(inspect.signature(x).parameters)
    if inspect.isclass(x):
        return []
    return list(inspect.signature(x).parameters)


def undocumented(names: Iterable[str], doc: str) -> list[str]:
    return [name for name in names if f"`{name}`" not in doc]


def test_public_names_are_many() -> None:
    assert len(PUBLIC) > 30


@pytest.mark.parametrize("name", PUBLIC)
def test_public_arguments_are_documented(name: str) -> None:
    x = PUBLIC[name]
    assert inspect.getdoc(x)
    assert undocumented(arguments_of(x), explained(x)) == []


# What the theory is written in, and what a formula, a stabilizer, a pseudoinverse method, a joint and a load work on.
SELF_EVIDENT = {"system", "t", "q", "v", "equations", "rows", "constraints"}
SELF_EVIDENT |= {"bodies", "placement", "placements", "twist", "twists"}
METHODS = {
    f"{name}.{method}": getattr(member, "__func__", member)
    for name, x in PUBLIC.items()
    if inspect.isclass(x) and issubclass(x, eqx.Module)
    for method, member in vars(x).items()
    if callable(getattr(x, method)) and not method.startswith("_")
}


@pytest.mark.parametrize("name", METHODS)
def test_arguments_of_public_methods_are_documented(name: str) -> None:
    method = METHODS[name]
    names = inspect.signature(method).parameters.keys() - {"self", "cls", *SELF_EVIDENT}
    assert undocumented(names, inspect.getdoc(method) or "") == []


@pytest.mark.parametrize("name", [*MODELS, "get"])
def test_models_are_documented(name: str) -> None:
    model = getattr(ukjax.models, name)
    assert undocumented(list(inspect.signature(model).parameters), inspect.getdoc(model) or "") == []
    if name != "get":
        assert MODELS[name]().citation


def test_continuous_integration_runs_what_the_readme_says() -> None:
    readme = (ROOT / "README.md").read_text()
    (command,) = re.findall(r"^(python3 -m venv .*-m pytest.*)$", readme, re.MULTILINE)
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()
    public = (ROOT / ".github" / "workflows" / "checks.yml").read_text().splitlines()
    assert {"      - run: .ci/run", f"      - run: {command} -m slow"} <= set(public)


def test_versions_agree() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    released = re.search(
        rf"^version: {version}\ndate-released: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M
    )
    assert f"\n## [{version}] - {released[1]}\n" in (ROOT / "CHANGELOG.md").read_text()
    assert (PACKAGE / "py.typed").exists()


def test_readme_has_two_setup_commands() -> None:
    assert len(re.findall(r"^python3 -m venv ", (ROOT / "README.md").read_text(), re.MULTILINE)) == 2


def test_private_names_of_jax() -> None:
    """They are asked for in one file, and these; a new JAX that lacks one fails here first."""
    asked = {
        path: sorted(set(re.findall(r"from jax\._src import (\w+)", text)))
        for path, text in TEXTS.items()
        if "jax._src" in text
    }
    assert asked == {Path("_compiler/_structured/_primitive.py"): ["dispatch"]}
    from jax._src import dispatch

    assert isinstance(dispatch.prim_requires_devices_during_lowering, set)
