"""What runs where a condition holds, and what is computed for it, beside the same by JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from numpy.testing import assert_allclose

import ukjax as uk
from ukjax._compiler._structured._live_nodes import LiveNodes


def _if(there: Any, body: Callable[[Any], Any], x: Any) -> Any:
    """What `body` makes of x where a condition holds, as a loop of one pass or none."""
    count = there.astype(int)
    return lax.while_loop(lambda c: c[0] < count, lambda c: (c[0] + 1, body(c[1])), (0 * count, x))[1]


def _within(x: Any) -> Any:
    return _if(x > 1, lambda y: y + jnp.cos(jnp.sin(x) * 3), x)


def _also_after(x: Any) -> Any:
    a = jnp.exp(-x)
    return _if(x > 1, lambda y: y * jnp.cos(a), x) + a


def _nested(x: Any) -> Any:
    a, b = jnp.exp(-x), jnp.sin(2 * x)
    return _if(x > 1, lambda y: _if(y > 2, lambda z: z + a * b, y) - b, x)


def _two(x: Any) -> Any:
    a = jnp.sin(x) + 2
    return _if(x > 1, lambda y: y * a, x) + _if(x < 2, lambda y: y + a, x)


def _asked(x: Any) -> Any:
    a = jnp.sin(3 * x)
    return _if(a > 0, lambda y: y + a * jnp.cos(a), x)


def _in_a_loop(x: Any) -> Any:
    def add(k: Any, y: Any) -> Any:
        a = jnp.sin(x + k)
        return _if(a > 0.3, lambda z: z + jnp.exp(a), y)

    return lax.fori_loop(0, 50, add, x)


@jax.jit
def _long(x: Any) -> Any:
    return jnp.sum(jnp.sin(jnp.outer(x + jnp.arange(9.0), jnp.arange(1.0, 31.0))))


def _called(x: Any) -> Any:
    a = _long(x)
    return _if(x > 1, lambda y: y + a, x) + _if(x < 2, lambda y: y - jnp.cos(a), x)


CASES = (_within, _also_after, _nested, _two, _asked, _in_a_loop, _called)


@pytest.mark.parametrize("f", CASES, ids=lambda f: f.__name__)
def test_conditions_are_those_of_jax(f: Callable[[Any], Any]) -> None:
    x = jnp.linspace(0.1, 3.0, 13)
    g = uk.scalarize(f)
    wanted, slope = jax.jit(jax.vmap(lambda y: jax.jvp(f, (y,), (jnp.ones_like(y),))))(x)
    assert_allclose([g(y) for y in x], wanted, rtol=1e-12)
    assert_allclose(jax.vmap(g)(x), wanted, rtol=1e-12)
    assert_allclose(jax.vmap(jax.grad(g))(x), slope, rtol=1e-12)


@pytest.mark.parametrize("f", [_within, _in_a_loop], ids=lambda f: f.__name__)
def test_what_a_condition_alone_needs_is_computed_in_it(f: Callable[[Any], Any]) -> None:
    program = uk.scalarize(f)._trace_for((jnp.asarray(1.0),), {})[1].program  # pyright: ignore
    needed = LiveNodes(np.concatenate([np.ravel(x) for x in program.outputs]).tolist(), values=True)
    deepest = max(needed.within, key=lambda region: region.depth)
    assert {x.op for x in needed.within[deepest]} & {"cos", "exp"}
