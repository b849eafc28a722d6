"""How a scalar program becomes operations of XLA: a call of code of our own, on a CPU or a GPU, or an operation each."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import mlir
from jaxtyping import Array

from ._expressions import evaluate
from ._native import run
from ._routine import MOST_CALLS


def members_of(operands: Sequence[Any]) -> tuple[int, ...]:
    """The axes of the members.

    **Arguments:**

    - `operands`: arrays (count, *members), or (count,).
    """
    return np.broadcast_shapes(*(x.shape[1:] for x in operands))


def flat(x: Array, members: tuple[int, ...]) -> Array:
    """An operand with all members along one axis."""
    apart = x.reshape(x.shape[0], *(x.shape[1:] or (1,) * len(members)))
    return jnp.broadcast_to(apart, (x.shape[0], *members)).reshape(x.shape[0], math.prod(members))


def _natively(*operands: Array, program: Any) -> Array:
    members = members_of(operands)
    apart = [x if x.ndim == 1 else flat(x, members) for x in operands]
    found = run(program.native, apart, len(program.outputs), math.prod(members), program.again)
    return found.reshape(-1, *members)


def _by_kernel(*operands: Array, program: Any) -> Array:
    members = members_of(operands)
    given = [x[:, None] if x.ndim == 1 else flat(x, members) for x in operands]
    shape = jax.ShapeDtypeStruct((len(program.outputs), max(x.shape[1] for x in given)), program.dtype)
    (found,) = program.kernel(given, shape.shape[1:], [shape])
    return found.reshape(-1, *members)


def separately_computed(*operands: Array, program: Any) -> Array:
    """The outputs of a program (outputs, *members), an operation of JAX for each of it.

    **Arguments:**

    - `operands`: as those of the program.
    - `program`: the program.
    """
    if program.again:
        return _until_done(operands, program)
    members = members_of(operands)
    inputs = [row for x in operands for row in _rows(flat(x, members))]
    pieces = program.pieces
    if pieces is None:
        found = evaluate(program.outputs, inputs, program.dtype)
    else:
        known = [*(jnp.full_like(inputs[0], x) for x in pieces.constants), *inputs]
        for piece in pieces.parts:
            known += evaluate(piece.outputs, [known[i] for i in piece.reads[0]], program.dtype)
        found = [known[i] for i in pieces.outputs]
    return jnp.stack(found).reshape(-1, *members)


def _until_done(operands: Sequence[Array], program: Any) -> Array:
    (flag, first, count), members = program.again, members_of(operands)

    def goes_on(state: tuple[Array, Array, Array]) -> Array:
        return jnp.any(state[1][flag] > 0.5) & (state[0] < MOST_CALLS)

    def once(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        calls, found, last = state
        last = jnp.where(found[flag] > 0.5, found[first : first + count], last)
        return calls + 1, separately_computed(*operands, last, program=program.once), last

    last = jnp.zeros((count, *members), program.dtype)
    start = separately_computed(*operands, last, program=program.once)
    return lax.while_loop(goes_on, once, (jnp.ones((), int), start, last))[1]


def _rows(x: Array) -> list[Array]:
    """The rows of an array, without the operations that indexing takes."""
    return [lax.squeeze(row, (0,)) for row in lax.split(x, (1,) * len(x))]


natively, by_kernel, separately = (
    mlir.lower_fun(x, multiple_results=False) for x in (_natively, _by_kernel, separately_computed)
)
"""Lowering rules of a program: as machine code, as a kernel, and as operations of XLA."""
