"""Tests run in float64, with silent broadcasting of ranks and silent promotion of dtypes as errors."""

import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and jax.default_backend() != "gpu":
        skip = pytest.mark.skip(reason="needs a GPU")
        for item in marked:
            item.add_marker(skip)


@pytest.fixture(autouse=True, scope="module")
def bounded_memory():
    """Compiled programs of one file are of no use to the next, and would fill the memory."""
    yield
    jax.clear_caches()
