"""Tests run in float64, with silent broadcasting of ranks and silent promotion of dtypes as errors.

Most of their time is compilation. So what is compiled is kept in `.pytest_cache`, for the other processes of a run and
for the next run, and it is compiled quickly. A test that is about what users get asks for the fixture `optimized`.
"""

import ctypes
import gc
import inspect
import itertools
import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import jaxlib
import jaxtyping
import pytest
from shapes import check_shapes

# Also as variables of the environment, for commands that tests start. By default JAX keeps only what took more than a
# second to compile: 10 of some 200 programs of a file. Source lines in programs are of no use here.
KEPT = Path(__file__).parents[1] / ".pytest_cache"
SETTINGS = {
    "jax_compilation_cache_dir": str(KEPT / "compiled"),
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
    "jax_disable_most_optimizations": True,
    "jax_traceback_in_locations_limit": 0,
}
# XLA's older code generator: without optimization it compiles in 40 % of the time of the newer one; and one module for
# LLVM in place of up to 32 that are compiled at the same time, which takes three quarters of the processor time. XLA
# ends a process that gives it a flag it does not know.
FLAGS = {"xla_cpu_use_fusion_emitters": "false", "xla_cpu_parallel_codegen_split_count": "1"}
# JAX makes many small objects as it traces. Python looks for unused ones after every 700 new ones by default, which
# takes a sixth of the time.
OBJECTS = 100_000
TESTS_BETWEEN_COUNTS = 8
# To forget programs takes 3 s. Two processes of this size fit into the memory of a usual machine, 16 GB.
# Cases that took more than a second and a half, by their names.
MEASURED = Path(__file__).with_name("slow.txt")
MAPS, MEMORY = 40_000, 4 * 2**30
_tests = itertools.count()


def _known_to_xla() -> list[str]:
    """Those of the flags that the library names as such; of flags that are gone, their names remain in descriptions."""
    library = Path(next(iter(jaxlib.__path__)), "libjax_common.so")
    if not library.exists():
        return []
    with library.open() as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return [name for name in FLAGS if text.find(f"\0{name}\0".encode()) >= 0]


def _prepare() -> None:
    os.environ.setdefault("UKJAX_CACHE", str(KEPT / "ukjax"))
    for name, value in SETTINGS.items():
        if name.upper() not in os.environ:
            os.environ[name.upper()] = str(value).lower() if value is True else str(value)
            jax.config.update(name, value)
    given = os.environ.get("XLA_FLAGS", "")
    added = [f"--{name}={FLAGS[name]}" for name in _known_to_xla() if name not in given]
    os.environ["XLA_FLAGS"] = " ".join([given, *added]).strip()
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    gc.set_threshold(OBJECTS, 50, 50)


def pytest_collection() -> None:
    """Not in the process that only hands tests to others (pytest-xdist), which wait for it to start."""
    check_shapes()  # before anything imports ukjax
    _prepare()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks as slow what is listed, before pytest chooses by marks, and skips what needs a GPU where there is none."""
    listed = set(MEASURED.read_text().splitlines())
    for item in items:
        if item.nodeid.removeprefix("tests/") in listed:
            listed.discard(item.nodeid.removeprefix("tests/"))
            item.add_marker("slow")
    if listed and config.args == config.getini("testpaths"):
        raise pytest.UsageError(f"there are no tests as {MEASURED.name} names them: {sorted(listed)}")
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and jax.default_backend() != "gpu":
        skip = pytest.mark.skip(reason="needs a GPU")
        for item in marked:
            item.add_marker(skip)


def many_maps() -> bool:
    """Whether compiled programs should go: each maps some pages, and at 65,530 maps of a process Linux gives no more."""
    maps = Path("/proc/self/maps")
    return maps.exists() and maps.read_bytes().count(b"\n") > MAPS


def much_memory() -> bool:
    """Whether they should go because of their size; also where that is not known."""
    pages = Path("/proc/self/statm")
    return not pages.exists() or int(pages.read_text().split()[1]) * mmap.PAGESIZE > MEMORY


def forget_programs() -> None:
    """Their memory goes back to the system too: glibc would keep half of it, and `much_memory` be true ever after."""
    from ukjax import clear_caches

    clear_caches()
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def pytest_collection_finish() -> None:
    """What imports made stays to the end: no search for unused objects need look at it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def shapes_where_they_are_right(request):
    """No shapes are checked by annotations in tests of what ukjax itself says of wrong ones."""
    refuses = "InputError" in inspect.getsource(request.function)
    wrong = refuses or request.node.get_closest_marker("wrong_shapes") is not None
    jaxtyping.config.update("jaxtyping_disable", wrong)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True, scope="module")
def bounded_memory():
    """Compiled programs of one file are of little use to the next."""
    yield
    if much_memory():
        forget_programs()


@pytest.fixture(autouse=True)
def bounded_maps():
    """To count them takes 10 ms."""
    yield
    if next(_tests) % TESTS_BETWEEN_COUNTS == 0 and many_maps():
        forget_programs()


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A new folder as the current one. No module from there stays, for the next test may have one of its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name, module in list(sys.modules.items()):
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", [])]
        if any(Path(place).is_relative_to(tmp_path) for place in places if place):
            del sys.modules[name]


@pytest.fixture
def optimized():
    """Programs as users get them: for what is about precision, and for long runs."""


@pytest.fixture(autouse=True)
def optimization(request):
    """Off or, for tests that ask for `optimized`, on. JAX would take programs that it has, so they go at each change."""
    off = "optimized" not in request.fixturenames
    if jax.config.read("jax_disable_most_optimizations") != off:
        jax.clear_caches()
        jax.config.update("jax_disable_most_optimizations", off)
