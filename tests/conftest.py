"""Tests run in float64, with silent broadcasting of ranks and silent promotion of dtypes as errors.

What XLA compiles is kept in a folder, for the other files and processes of a run, and for the next run: most of the
time of the tests is compilation.
"""

import gc
import os
from pathlib import Path

import jax
import jaxtyping
import pytest
from shapes import check_shapes

check_shapes()  # before anything imports ukjax

os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "compiled")
)  # also for commands that tests start
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and jax.default_backend() != "gpu":
        skip = pytest.mark.skip(reason="needs a GPU")
        for item in marked:
            item.add_marker(skip)


def forget_programs() -> None:
    """Frees compiled programs: each maps some pages, and at 65,530 maps of a process Linux gives no more."""
    jax.clear_caches()
    gc.collect()


@pytest.fixture(autouse=True)
def shapes_where_they_are_right(request):
    """No shapes are checked by annotations in tests of what ukjax itself says of wrong ones."""
    jaxtyping.config.update("jaxtyping_disable", request.node.get_closest_marker("wrong_shapes") is not None)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True, scope="module")
def bounded_memory():
    """Compiled programs of one file are of no use to the next, and would fill the memory."""
    yield
    forget_programs()


@pytest.fixture(autouse=True)
def bounded_maps():
    """Those of a long file may be too many before its end."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        forget_programs()


@pytest.fixture(scope="module")
def compiled_quickly():
    """For what runs once and takes less time than its compilation."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
