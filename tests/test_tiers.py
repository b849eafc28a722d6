"""Machine code that comes at once is optimized where it has run for long, and gives the same bits."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._compiler import _machine_code


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


def of_members(x: Any) -> Any:
    """A batch within a program, whose members are side by side in vectors."""

    def one(a: Any) -> Any:
        b = jnp.sin(a * x)
        return jnp.linalg.solve(jnp.outer(x, x) + a * jnp.eye(4, dtype=x.dtype), b), jax.lax.fori_loop(
            0, 3, lambda _, y: jnp.where(y[0] > 0, 0.5 * y + a, jnp.tan(y)), b
        )

    return jax.vmap(uk.scalarize(one))(jnp.linspace(1.0, 2.0, 50, dtype=x.dtype))


FUNCTIONS = {
    "members": lambda _: of_members,
    "arrays": lambda _: of_arrays,
    "small matrices": lambda _: of_small_matrices,
    "a run": runs,
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_both_tiers_give_the_same_bits(name: str, dtype: Any) -> None:
    f = uk.scalarize(FUNCTIONS[name](dtype))
    x = jnp.asarray([0.9, -0.3, 0.7, 1.1], dtype)
    slopes = uk.scalarize(lambda x: jax.grad(lambda x: sum(map(jnp.sum, jax.tree.leaves(f(x)))))(x))
    calls = [lambda: f(x), lambda: slopes(x), lambda: jax.vmap(f)(jnp.stack([x, 1.1 * x, 0.9 * x]))]
    _machine_code._optimizer().due.clear()  # what other tests compiled is not optimized here
    at_once = [[np.asarray(y).tobytes() for y in jax.tree.leaves(call())] for call in calls]
    due = len(_machine_code._optimizer().due)
    before = len(_machine_code._optimizer().optimized)
    uk.optimize_now()
    assert len(_machine_code._optimizer().optimized) == before + due
    assert due > 0
    assert [[np.asarray(y).tobytes() for y in jax.tree.leaves(call())] for call in calls] == at_once


def test_what_has_run_for_long_is_optimized_by_itself() -> None:
    f = uk.scalarize(lambda x: jax.lax.fori_loop(0, 1_000_000, lambda _, y: jnp.cos(y), x))
    assert abs(float(f(1.0)) - 0.7390851332151607) < 1e-15
    own, end = max(_machine_code._optimizer().due, default=0), time.monotonic() + 60
    while own in _machine_code._optimizer().due and time.monotonic() < end:
        f(1.0)
    assert own not in _machine_code._optimizer().due


ENDS = """
import time
import jax, jax.numpy as jnp
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", False)
import ukjax as uk
from ukjax._compiler import _machine_code, _machine_code
begun, usual = [], _machine_code._compile_objects
def slow(code, level):
    for part in usual(code, level):
        begun.append(level)
        if level:
            time.sleep(0.5)
        yield part
_machine_code._compile_objects = slow
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


def anew(*, optimize: bool) -> None:
    """What is compiled from now on is compiled for the first time."""
    jax.config.update("jax_disable_most_optimizations", not optimize)
    uk.clear_caches()
    jax.clear_caches()


def simulated(t1: Any) -> Any:
    run = uk.simulate(uk.models.pendulum(length=1.2), t1=t1, ts=2, max_steps=10**8)
    return run.q_end, run.stats["num_steps"]


def ended_by_an_event(t1: Any) -> Any:
    problem = uk.models.four_bars(1)
    event = dfx.Event(lambda t, y, args, **_: t - t1)
    settings = {"t1": 2 * t1, "ts": 2, "max_steps": 10**8, "event": event}
    return jax.jit(lambda v: uk.simulate(problem.system, problem.q0, v, **settings).q_end)(problem.v0)


def of_a_batch(t1: Any) -> Any:
    problem = uk.models.four_bars(1)
    settings = {"t1": t1, "ts": 2, "max_steps": 10**8}
    end = lambda s: uk.simulate(problem.system, problem.q0, s * problem.v0, **settings).q_end
    return jax.jit(jax.vmap(end))(jnp.linspace(0.5, 1.0, 6))


def of_small_loops(n: Any) -> Any:
    """A loop of numbers, and within it rotations that end when they do."""
    step = lambda _, x: jnp.linalg.svd(jnp.outer(x, jnp.cos(x)) + jnp.eye(3))[1]
    return uk.scalarize(lambda n, x: jax.lax.fori_loop(0, n, step, x))(int(n), jnp.array([0.3, 0.4, 0.5]))


LONG_CALLS = [(simulated, 3e3), (ended_by_an_event, 3e2), (of_a_batch, 1e2), (of_small_loops, 3e3)]


@pytest.mark.parametrize(("call", "length"), LONG_CALLS)
def test_one_long_call_begins_anew_with_optimized_code(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[Any], Any], length: float
) -> None:
    """Code asks at its first pass here, and goes on until it is optimized; what it had done is dropped."""
    monkeypatch.setattr(_machine_code, "_PER_BYTE", 0)
    monkeypatch.setattr(_machine_code, "_AGAIN", 1)
    done = before = len(_machine_code._optimizer().optimized)
    while done == before:
        length *= 4
        anew(optimize=True)
        found = call(length)
        done = len(_machine_code._optimizer().optimized)
    anew(optimize=False)
    for x, y in zip(*map(jax.tree.leaves, (found, call(length))), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_code_is_optimized_while_it_runs_as_long_as_that_takes() -> None:
    f = uk.scalarize(lambda n, x: jax.lax.fori_loop(0, n, lambda _, y: 0.999 * jnp.cos(y), x))
    before = len(_machine_code._optimizer().optimized)
    f(1000, 1.0)
    assert len(_machine_code._optimizer().optimized) == before
    value = float(f(50_000_000, 1.0))
    assert len(_machine_code._optimizer().optimized) == before + 1
    assert abs(value - 0.999 * np.cos(value)) < 1e-15


def test_runs_that_differ_in_max_steps_share_their_code() -> None:
    pendulum = uk.models.pendulum(length=1.2)
    assert uk.simulate(pendulum, t1=1.0, ts=2).ok
    due = len(_machine_code._optimizer().due)
    short = uk.simulate(pendulum, t1=1.0, ts=2, max_steps=3)
    assert int(short.stats["num_steps"]) == 3
    assert short.result_name == "max_steps_reached"
    assert len(_machine_code._optimizer().due) == due
