"""Scalar programs as one operation of JAX, closed under what JAX does with operations.

Its `vmap` is itself, with the members along further axes of its operands. Its tangent, and the transpose of that, are
programs again, which the program makes itself.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from ._compiled import in_one_loop, lowering, members_of, separately

program_p = core.Primitive("scalar_program")


@program_p.def_abstract_eval
def _abstract(*operands: Any, program: Any) -> Any:
    shape = (len(program.outputs), *members_of(operands))
    return operands[0].update(shape=shape, dtype=program.dtype, weak_type=False)


@functools.partial(jax.jit, static_argnames="program")
def _run(*operands: Array, program: Any) -> Array:
    return program_p.bind(*operands, program=program)


@program_p.def_impl
def _impl(*operands: Array, program: Any) -> Array:
    return _run(*operands, program=program)


def _batched(operands: Sequence[Array], axes: Sequence[Any], *, program: Any) -> tuple[Array, int]:
    """The new members along a last axis; operands that are the same for all members stay as they are."""
    rank = max(x.ndim - (a is not None) for x, a in zip(operands, axes, strict=True))

    def placed(x: Array, axis: Any) -> Array:
        if axis is None:
            return x if x.ndim == 1 else x[..., None]
        x = jnp.moveaxis(x, axis, -1)
        return x.reshape(x.shape[0], *(x.shape[1:-1] or (1,) * (rank - 1)), x.shape[-1])

    return program_p.bind(*map(placed, operands, axes), program=program), rank


def _jvp(primals: Sequence[Array], tangents: Sequence[Any], *, program: Any) -> tuple[Array, Array]:
    varied = tuple(i for i, x in enumerate(tangents) if type(x) is not ad.Zero)
    keeping, change = program.linearized(varied)
    found = program_p.bind(*primals, program=keeping)
    value, kept = found[: len(program.outputs)], found[len(program.outputs) :]
    given = [*primals, *([kept] if kept.shape[0] else []), *(tangents[i] for i in varied)]
    return value, program_p.bind(*given, program=change)


def _transposed(cotangent: Any, *operands: Any, program: Any) -> list[Any]:
    linear = tuple(i for i, x in enumerate(operands) if ad.is_undefined_primal(x))
    if type(cotangent) is ad.Zero:
        return [ad.Zero(x.aval) if ad.is_undefined_primal(x) else None for x in operands]
    known = [x for x in operands if not ad.is_undefined_primal(x)]
    pulled = program_p.bind(*known, cotangent, program=program.transpose(linear))
    ends = np.cumsum([operands[i].aval.shape[0] for i in linear])
    parts = jnp.split(pulled, ends[:-1])
    found: list[Any] = [None] * len(operands)
    for i, x in zip(linear, parts, strict=True):
        shape = operands[i].aval.shape
        if len(shape) < x.ndim:
            x = jnp.sum(x, tuple(range(1, x.ndim)))
        wide = tuple(k for k in range(1, len(shape)) if shape[k] != x.shape[k])
        found[i] = jnp.sum(x, wide, keepdims=True)
    return found


_as_separate, _as_one_loop = lowering(separately), lowering(in_one_loop)
_as_native = lowering(in_one_loop, native=True)


def _on_cpu(ctx: Any, *operands: Any, program: Any) -> Any:
    # Partitioned by XLA, the reduction itself could be split among devices; under shard_map it is local.
    alone = getattr(ctx.module_context.axis_context, "num_devices", 1) in (None, 1)
    empty = 0 in members_of(ctx.avals_in)
    if empty or not alone:
        return _as_separate(ctx, *operands, program=program)
    # What is exported is to run where this process and its machine code are not.
    to_stay = not ctx.module_context.lowering_parameters.for_export
    return (_as_native if to_stay else _as_one_loop)(ctx, *operands, program=program)


batching.primitive_batchers[program_p] = _batched
ad.primitive_jvps[program_p] = _jvp
ad.primitive_transposes[program_p] = _transposed
mlir.register_lowering(program_p, _as_separate)
mlir.register_lowering(program_p, _on_cpu, platform="cpu")
