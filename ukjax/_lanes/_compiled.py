"""How a scalar program becomes operations of XLA.

On a CPU it compiles to one loop over the members. XLA would otherwise make a loop of each output and compute what the
outputs share once in each: three to seven times the work, and as much more to compile. The one construct of XLA whose
body yields several numbers and is computed once is the body of a reduction, so the members are reduced two by two, by
a body that evaluates the program on the next member and passes the results of the one before.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import mlir
from jaxtyping import Array

from ._expressions import Expression, evaluate
from ._registers import run

MOST_RESULTS = 1_000
"""XLA aborts on a CPU if the body of a reduction has more."""

_BLOCK = 16  # members at a time of long programs on a CPU


def members_of(operands: Sequence[Any]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(x.shape[1:] for x in operands))


def lowering(one: Callable[..., Array]) -> Any:
    """How a program becomes operations of XLA, given how expressions do."""

    def compute(*operands: Array, program: Any) -> Array:
        members = members_of(operands)

        def flat(x: Array) -> Array:
            apart = x.reshape(x.shape[0], *(x.shape[1:] or (1,) * len(members)))
            return jnp.broadcast_to(apart, (x.shape[0], *members)).reshape(x.shape[0], math.prod(members))

        rows = list(map(flat, operands))
        if program.parts is None:
            found = one(program.outputs, rows, program.dtype)
        else:
            in_parts = functools.partial(run, program.parts, one=one)
            inputs = jnp.concatenate(rows)
            found = _by_blocks(in_parts, inputs) if one is reduced else in_parts(inputs)
        return found.reshape(-1, *members)

    return mlir.lower_fun(compute, multiple_results=False)


def _by_blocks(function: Callable[[Array], Array], inputs: Array) -> Array:
    """A function of (count, members) on blocks of members, so that their registers stay in the cache."""
    count, members = inputs.shape
    if members <= _BLOCK:
        return function(inputs)
    whole = jnp.pad(inputs, ((0, 0), (0, -members % _BLOCK)), mode="edge").reshape(count, -1, _BLOCK)
    found = lax.map(function, jnp.swapaxes(whole, 0, 1))
    return jnp.swapaxes(found, 0, 1).reshape(found.shape[1], -1)[:, :members]


def separately(outputs: Sequence[Expression], inputs: Sequence[Array], dtype: Any) -> Array:
    """Expressions as separate operations: (outputs, members) from inputs (count, members)."""
    return jnp.stack(evaluate(outputs, [row for x in inputs for row in x], dtype))


def reduced(outputs: Sequence[Expression], inputs: Sequence[Array], dtype: Any) -> Array:
    """Expressions as the reduction of pairs of members: (outputs, members) from inputs (count, members)."""
    size, count = inputs[0].shape[1], len(outputs)
    if max(2 * count, sum(map(len, inputs))) >= MOST_RESULTS:
        return separately(outputs, inputs, dtype)
    pairs: list[Array] = []
    for x in inputs:
        if size == 1:  # XLA removes a reduction over a single one
            x = lax.broadcast_in_dim(x, (len(x), 2, 1), (0, 2))
        else:
            x = jnp.pad(x, ((0, 0), (0, size % 2)), mode="edge") if size % 2 else x
            x = lax.reshape(x, (len(x), 2, x.shape[1] // 2))
        pairs += lax.split(x, (1,) * len(x))
    numbers = len(pairs)
    pairs += [pairs[0]] * (2 * count - numbers)

    def body(before: Sequence[Array], member: Sequence[Array]) -> tuple[Array, ...]:
        found = evaluate(outputs, member[:numbers], dtype)
        return (*before[count : 2 * count], *found, *member[2 * count :])

    found = lax.reduce(tuple(pairs), (jnp.zeros((), dtype),) * len(pairs), body, (1,))
    # All results count as used: a pass that looks for what unused ones need takes exponential time on such a body.
    found = lax.optimization_barrier(found)
    second = lax.concatenate(found[count : 2 * count], 0)
    if size == 1:
        return second
    both = lax.concatenate([lax.concatenate(found[:count], 0), second], 1)
    return both if both.shape[1] == size else lax.slice_in_dim(both, 0, size, axis=1)
