"""Scalar programs as one operation of JAX, closed under what JAX does with operations.

Its `vmap` is itself, with the members along further axes of its operands. Its tangent, and the transpose of that, are
programs again, which the program makes itself.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import dispatch  # JAX has no public way to ask for devices
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend import core
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array

from ._lowered import by_kernel, members_of, natively, separately


def needs_devices(primitive: core.Primitive) -> None:
    """Has JAX lower an operation with its devices known, as custom partitioning asks for."""
    dispatch.prim_requires_devices_during_lowering.add(primitive)


def is_alone(ctx: Any) -> bool:
    """Whether what is lowered is for one device, as it also is under `shard_map`."""
    return getattr(ctx.module_context.axis_context, "num_devices", 1) in (None, 1)


program_p = core.Primitive("scalar_program")
needs_devices(program_p)


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


def with_members(operands: Sequence[Array], axes: Sequence[Any]) -> tuple[list[Array], int]:
    """Operands with the members of a new axis along a last one, and which that is; of operands that are the same for all
    members it is 1 long, or they stay vectors.

    **Arguments:**

    - `operands`: arrays (count, *members), or (count,).
    - `axes`: the new axis of each; None where there is none.
    """
    rank = max(x.ndim - (a is not None) for x, a in zip(operands, axes, strict=True))

    def placed(x: Array, axis: Any) -> Array:
        if axis is None:
            return x if x.ndim == 1 else x[..., None]
        x = jnp.moveaxis(x, axis, -1)
        return x.reshape(x.shape[0], *(x.shape[1:-1] or (1,) * (rank - 1)), x.shape[-1])

    return list(map(placed, operands, axes)), rank


def _batched(operands: Sequence[Array], axes: Sequence[Any], *, program: Any) -> tuple[Array, int]:
    placed, rank = with_members(operands, axes)
    return program_p.bind(*placed, program=program), rank


def _jvp(primals: Sequence[Array], tangents: Sequence[Any], *, program: Any) -> tuple[Array, Array]:
    if not hasattr(program, "linearized"):  # it is run again with what it returns: this is what is kept
        found = program_p.bind(*primals, program=program)
        last = [x for x in [found[program.last]] if x.shape[0]]
        still = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in last]
        return found, _jvp((*primals, *last), (*tangents, *still), program=program.once)[1]
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
        found[i] = jnp.sum(x, wide, keepdims=True) if wide else x
    return found


def _over_devices(*operands: Array, program: Any) -> Array:
    """The same where XLA shares arrays between devices: each computes its own members, with all their numbers."""
    members = members_of(operands)

    def own(x: Array) -> list[bool]:
        """Which axes of an operand, after the first, are those of the members."""
        return [size == whole > 1 for size, whole in zip(x.shape[1:], members, strict=False)]

    axes = [
        [f"x{i}", *(f"m{k}" if it else f"x{i}_{k}" for k, it in enumerate(own(x)))]
        for i, x in enumerate(operands)
    ]
    axes.append(["y", *(f"m{k}" for k in range(len(members)))])
    *given, result = map(" ".join, axes)

    def split(mesh: Any, arrays: Sequence[Any], found: Any) -> Any:
        spec = [*found.sharding.spec, *[None] * found.ndim][1 : found.ndim]
        parts = [[s if it else None for s, it in zip(spec, own(x), strict=False)] for x in arrays]
        *args, found = (NamedSharding(mesh, PartitionSpec(None, *part)) for part in [*parts, spec])
        return mesh, compute, found, tuple(args)

    def compute(*operands: Array) -> Array:
        return program_p.bind(*operands, program=program)

    shared = custom_partitioning(compute)
    not_split = tuple(name for each in axes for name in each if name[0] != "m")
    shared.def_partition(
        split, sharding_rule=f"{', '.join(given)} -> {result}", need_replication_factors=not_split
    )
    return shared(*operands)


_split = mlir.lower_fun(_over_devices, multiple_results=False)


def _lowered(
    exists: Callable[[Any], bool], own: Callable[..., Any], ctx: Any, *operands: Any, program: Any
) -> Any:
    # What is exported is to run where this process and its machine code are not.
    exported = ctx.module_context.lowering_parameters.for_export
    if exported or 0 in members_of(ctx.avals_in) or not exists(program):
        return separately(ctx, *operands, program=program)
    return (own if is_alone(ctx) else _split)(ctx, *operands, program=program)


batching.primitive_batchers[program_p] = _batched
ad.primitive_jvps[program_p] = _jvp
ad.primitive_transposes[program_p] = _transposed
mlir.register_lowering(program_p, separately)
_on_cpu = functools.partial(_lowered, lambda program: program.has_machine_code, natively)
_on_gpu = functools.partial(_lowered, lambda program: program.kernel.runs_here(), by_kernel)
mlir.register_lowering(program_p, _on_cpu, platform="cpu")
mlir.register_lowering(program_p, _on_gpu, platform="cuda")
