"""How a scalar program becomes operations of XLA.

On a CPU it compiles to one loop over the members. XLA would otherwise make a loop of each output and compute what the
outputs share once in each: three to seven times the work, and as much more to compile. The constructs of XLA whose body
yields several numbers and is computed once are reductions; of those only a reduction over windows is kept when there is
one number to reduce. So the members are windows of one, and the body evaluates the program on it. No loop is left
within that over the members, which then runs on vectors.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import mlir
from jaxtyping import Array

from ._expressions import Expression, evaluate
from ._registers import rows, run
from ._trigonometry import by_polynomials

MOST_RESULTS = 1_000
"""XLA aborts on a CPU if the body of a reduction has more."""

_BLOCK = 16  # members at a time of long programs on a CPU


def members_of(operands: Sequence[Any]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(x.shape[1:] for x in operands))


def lowering(one: Callable[..., list[Array]]) -> Any:
    """How a program becomes operations of XLA, given how expressions do."""

    def compute(*operands: Array, program: Any) -> Array:
        members = members_of(operands)

        def flat(x: Array) -> Array:
            apart = x.reshape(x.shape[0], *(x.shape[1:] or (1,) * len(members)))
            return jnp.broadcast_to(apart, (x.shape[0], *members)).reshape(x.shape[0], math.prod(members))

        inputs = [row for x in operands for row in rows(flat(x))]
        parts = program.parts
        if parts is None:
            found = one(program.outputs, inputs, program.dtype)
        else:
            by_blocks = one is in_one_loop and any(len(x.reads) > 1 for x in parts.parts)
            in_parts = lambda x: run(parts, x, program.dtype, one)
            found = (_by_blocks if by_blocks else lambda f, x: f(x))(in_parts, inputs)
        return jnp.stack(found).reshape(-1, *members)

    return mlir.lower_fun(compute, multiple_results=False)


def _by_blocks(function: Callable[[list[Array]], list[Array]], inputs: list[Array]) -> list[Array]:
    """A function of numbers of members on blocks of members, so that their registers stay in the cache."""
    members = inputs[0].size
    if members <= _BLOCK:
        return function(inputs)
    whole = jnp.pad(jnp.stack(inputs), ((0, 0), (0, -members % _BLOCK)), mode="edge")
    blocks = jnp.swapaxes(whole.reshape(len(inputs), -1, _BLOCK), 0, 1)
    found = lax.map(lambda x: jnp.stack(function(rows(x))), blocks)
    return rows(jnp.swapaxes(found, 0, 1).reshape(found.shape[1], -1)[:, :members])


def separately(outputs: Sequence[Expression], inputs: Sequence[Array], dtype: Any) -> list[Array]:
    """Expressions as separate operations: numbers of all members each."""
    return evaluate(outputs, inputs, dtype)


def in_one_loop(outputs: Sequence[Expression], inputs: Sequence[Array], dtype: Any) -> list[Array]:
    """Expressions as windows of one member: numbers of all members each."""
    wide = max(len(inputs), len(outputs))
    if wide >= MOST_RESULTS:
        return separately(outputs, inputs, dtype)

    def body(_: Sequence[Array], member: Sequence[Array]) -> tuple[Array, ...]:
        found = evaluate(outputs, member[: len(inputs)], dtype, by_polynomials())
        return (*found, *member[len(outputs) :])

    operands = (*inputs, *[inputs[0]] * (wide - len(inputs)))
    found = lax.reduce_window(operands, (jnp.zeros((), dtype),) * wide, body, (1,), (1,), "VALID")
    return list(found[: len(outputs)])
