"""How a scalar program becomes operations of XLA.

On a CPU it compiles to one loop over the members. XLA would otherwise make a loop of each output and compute what the
outputs share once in each: three to seven times the work, and as much more to compile. The constructs of XLA whose body
yields several numbers and is computed once are reductions.

Many members are windows of one number each, and the body evaluates the program on them: no loop is left within that
over the members, so it runs on vectors, if LLVM may check that no result overlaps another or an operand. For few
members, or too many such checks, an ordinary reduction is compiled together with what makes its operands, in a function
less per operand; there has to be something to reduce, so each is there twice, of which LLVM removes one.

What is too long for that, or needs no loop of XLA around it, LLVM compiles by itself: `_native`.
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
from ._native import run as run_native
from ._registers import rows, run
from ._trigonometry import by_polynomials
from ._whole_loops import MOST_CHECKS

MOST_RESULTS = 1_000
"""XLA aborts on a CPU if the body of a reduction has more."""

# Members from which on a loop over them runs on vectors, for fewer LLVM does not check what has to be checked first; and
# members at a time of programs in loops, on a CPU.
_VECTOR, _BLOCK = 16, 8


def members_of(operands: Sequence[Any]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(x.shape[1:] for x in operands))


def lowering(one: Callable[..., list[Array]], native: bool = False) -> Any:
    """How a program becomes operations of XLA, given how expressions do, and whether it may be a foreign function."""

    def compute(*operands: Array, program: Any) -> Array:
        members = members_of(operands)

        def flat(x: Array) -> Array:
            apart = x.reshape(x.shape[0], *(x.shape[1:] or (1,) * len(members)))
            return jnp.broadcast_to(apart, (x.shape[0], *members)).reshape(x.shape[0], math.prod(members))

        count = math.prod(members)
        if native and program.is_native(count):
            apart = [x if x.ndim == 1 else flat(x) for x in operands]
            found = run_native(program.native, apart, len(program.outputs), count)
            return found.reshape(-1, *members)
        inputs = [row for x in operands for row in rows(flat(x))]
        parts = program.parts()
        if parts is None:
            found = one(program.outputs, inputs, program.dtype)
        elif one is in_one_loop and any(len(x.reads) > 1 for x in parts.parts):
            by_parts = lambda x: jnp.stack(run(parts, rows(x), program.dtype, one))
            found = rows(_by_blocks(by_parts, jnp.stack(inputs), len(program.outputs)))
        else:
            found = run(parts, inputs, program.dtype, one)
        return jnp.stack(found).reshape(-1, *members)

    return mlir.lower_fun(compute, multiple_results=False)


def _by_blocks(function: Callable[[Array], Array], inputs: Array, count: int) -> Array:
    """A function with so many results on blocks of members, so that their registers stay in the cache."""
    members = inputs.shape[1]
    if members <= _BLOCK:
        return function(inputs)
    # The last block ends where the members do: some of them are computed twice rather than padded.
    start = lambda i: jnp.minimum(i * _BLOCK, members - _BLOCK)

    def after(i: Array, found: Array) -> Array:
        some = function(lax.dynamic_slice_in_dim(inputs, start(i), _BLOCK, 1))
        return lax.dynamic_update_slice_in_dim(found, some, start(i), 1)

    return lax.fori_loop(0, math.ceil(members / _BLOCK), after, jnp.zeros((count, members), inputs.dtype))


def separately(outputs: Sequence[Expression], inputs: Sequence[Array], dtype: Any) -> list[Array]:
    """Expressions as separate operations: numbers of all members each."""
    return evaluate(outputs, inputs, dtype)


def in_one_loop(outputs: Sequence[Expression], inputs: Sequence[Array], dtype: Any) -> list[Array]:
    """Expressions as one reduction: numbers of all members each."""
    wide, members = max(len(inputs), len(outputs)), inputs[0].size
    if wide >= MOST_RESULTS:
        return separately(outputs, inputs, dtype)
    checks = len(outputs) * (len(inputs) + len(outputs) / 2)
    on_vectors = members >= _VECTOR and checks <= MOST_CHECKS
    instead = by_polynomials() if on_vectors else {}

    def body(_: Sequence[Array], member: Sequence[Array]) -> tuple[Array, ...]:
        found = evaluate(outputs, member[: len(inputs)], dtype, instead)
        return (*found, *member[len(outputs) :])

    operands = (*inputs, *[inputs[0]] * (wide - len(inputs)))
    zeros = (jnp.zeros((), dtype),) * wide
    if on_vectors:
        found = lax.reduce_window(operands, zeros, body, (1,), (1,), "VALID")
    else:
        twice = tuple(lax.broadcast_in_dim(x, (2, members), (1,)) for x in operands)
        found = lax.reduce(twice, zeros, body, (0,))
        # All results count as used: a pass that looks for what unused ones need takes exponential time on such a body.
        found = lax.optimization_barrier(found)
    return list(found[: len(outputs)])
