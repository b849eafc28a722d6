"""Machine code that comes at once is optimized where it has run for long, and gives the same bits."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._compiler import _tiers


@pytest.fixture(autouse=True)
def _optimizing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As for users; the tests' own setting compiles without optimization throughout."""
    monkeypatch.setenv("UKJAX_CACHE", "0")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


def runs(dtype: Any) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        problem = uk.models.four_bars(1)
        start = (jnp.asarray(y, dtype) for y in (problem.q0, problem.v0))
        q, v = start
        return uk.simulate(problem.system, q, x[0] * v, t1=0.2, ts=2, rtol=1e-5, atol=1e-5).q_end

    return run


def of_arrays(x: Any) -> Any:
    """Loops over arrays in memory, which become vectors where LLVM tries."""
    y = jnp.outer(jnp.sin(jnp.linspace(0, 1, 80, dtype=x.dtype)), x).reshape(-1)
    return jnp.sort(jnp.exp(y)[::2] ** 1.3) / (1 + y[:160] ** 2), jnp.sum(y * y)


def of_small_matrices(x: Any) -> Any:
    A = jnp.outer(x, x) + jnp.eye(4, dtype=x.dtype)
    return jnp.linalg.eigh(A), jnp.linalg.solve(A, jnp.tan(x)), jnp.linalg.svd(A + jnp.diag(x))


FUNCTIONS = {"arrays": lambda _: of_arrays, "small matrices": lambda _: of_small_matrices, "a run": runs}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_both_tiers_give_the_same_bits(name: str, dtype: Any) -> None:
    f = uk.scalarize(FUNCTIONS[name](dtype))
    x = jnp.asarray([0.9, -0.3, 0.7, 1.1], dtype)
    slopes = uk.scalarize(lambda x: jax.grad(lambda x: sum(map(jnp.sum, jax.tree.leaves(f(x)))))(x))
    calls = [lambda: f(x), lambda: slopes(x), lambda: jax.vmap(f)(jnp.stack([x, 1.1 * x, 0.9 * x]))]
    at_once = [[np.asarray(y).tobytes() for y in jax.tree.leaves(call())] for call in calls]
    due = len(_tiers._optimizer().due)
    before = len(_tiers._optimizer().optimized)
    uk.optimize_now()
    assert len(_tiers._optimizer().optimized) == before + due
    assert due > 0
    assert [[np.asarray(y).tobytes() for y in jax.tree.leaves(call())] for call in calls] == at_once


def test_what_has_run_for_long_is_optimized_by_itself() -> None:
    f = uk.scalarize(lambda x: jax.lax.fori_loop(0, 1_000_000, lambda _, y: jnp.cos(y), x))
    assert abs(float(f(1.0)) - 0.7390851332151607) < 1e-15
    own, end = max(_tiers._optimizer().due, default=0), time.monotonic() + 60
    while own in _tiers._optimizer().due and time.monotonic() < end:
        f(1.0)
    assert own not in _tiers._optimizer().due


ENDS = """
import time
import jax, jax.numpy as jnp
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", False)
import ukjax as uk
from ukjax._compiler import _machine_code, _tiers
begun, usual = [], _machine_code._compiled
def slow(code, level):
    for part in usual(code, level):
        begun.append(level)
        if level:
            time.sleep(0.5)
        yield part
_machine_code._compiled = slow
problem = uk.models.four_bars(1)
run = jax.jit(lambda v: uk.simulate(problem.system, problem.q0, v, t1=1.0, ts=2).q_end)
while 1 not in begun:
    run(problem.v0)
print(run(problem.v0))
"""


def test_a_process_ends_while_something_is_optimized() -> None:
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert time.monotonic() - start < 200


def test_a_long_run_begins_anew_with_optimized_code() -> None:
    """It is one call, which could not change its code on the way; a short one is not worth it."""
    uk.clear_caches()  # of programs that other tests had compiled without
    before = len(_tiers._optimizer().optimized)
    uk.simulate(uk.models.pendulum(length=1.1), t1=10.0, ts=2)
    assert len(_tiers._optimizer().optimized) == before
    run = uk.simulate(uk.models.pendulum(length=1.2), t1=1500.0, ts=2)
    assert len(_tiers._optimizer().optimized) == before + 1
    assert run.ok
    assert run.stats["num_steps"] > 10_000
    np.testing.assert_allclose(run.energy[-1], run.energy[0], atol=1e-4)
    short = uk.simulate(uk.models.pendulum(length=1.2), t1=1500.0, ts=2, max_steps=11_000)
    assert int(short.stats["num_steps"]) == 11_000
    assert short.result_name == "max_steps_reached"
