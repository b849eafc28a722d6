"""A program of scalars as operations of JAX, closed under what JAX does with operations.

`scalars_p` computes a program; its `vmap` is itself with members along a second axis of its operands. `change_p` computes
the change of its results along changes of operands, in which it is linear; its transpose is the program pulled back.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import dispatch  # JAX has no public way to ask for devices
from jax.core import ShapedArray
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend import core
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array

from .._availability import compiler_is_here, looks_for_nans
from .._gpu._call import kernels_run
from ._by_jax import evaluate
from ._program import Program
from ._trace import CONTROL

scalars_p = core.Primitive("scalars")
scalars_p.multiple_results = True
dispatch.prim_requires_devices_during_lowering.add(scalars_p)  # custom partitioning asks for them
change_p = core.Primitive("scalars_change")
change_p.multiple_results = True


def _members(operands: Sequence[Any]) -> tuple[int, ...]:
    """The axes of the members, of operands (entries, *members), or (entries,) of those that all share; an axis may be 1
    long where an operand is the same along it."""
    return np.broadcast_shapes(*(x.shape[1:] for x in operands))


def _flat(x: Array, members: tuple[int, ...]) -> Array:
    """An operand with all members along one axis, or none."""
    return x if x.ndim == 1 else jnp.broadcast_to(x, (x.shape[0], *members)).reshape(x.shape[0], -1)


@scalars_p.def_abstract_eval
def _abstract(*operands: Any, program: Program) -> Any:
    members = _members(operands)
    return [ShapedArray((n, *members), np.dtype(t)) for t, n in program.results]


@functools.partial(jax.jit, static_argnames="program")
def _run(*operands: Array, program: Program) -> Any:
    return scalars_p.bind(*operands, program=program)


@scalars_p.def_impl
def _now(*operands: Array, program: Program) -> Any:
    # JAX asks for what gave a NaN once more, one operation after the other.
    return (_separately if looks_for_nans() else _run)(*operands, program=program)


def _find_shared(operands: Sequence[Any]) -> tuple[bool, ...]:
    return tuple(x.ndim == 1 for x in operands)


def _call(by: Callable[..., Sequence[Array]], *operands: Array, program: Program) -> Any:
    """As one call, of a foreign function or of a kernel, with all members along one axis."""
    members = _members(operands)
    count = math.prod(members)
    if count == 0:
        return [jnp.zeros((n, *members), t) for t, n in program.results]
    found = by(program, [_flat(x, members) for x in operands], count)
    return [x.reshape(n, *members) for x, (_, n) in zip(found, program.results, strict=True)]


def _foreign_function(program: Program, operands: Sequence[Array], count: int) -> Sequence[Array]:
    shapes = [jax.ShapeDtypeStruct((n, count), np.dtype(t)) for t, n in program.results]
    return jax.ffi.ffi_call(program.target(_find_shared(operands), count), shapes)(*operands)


def _kernel(program: Program, operands: Sequence[Array], count: int) -> Sequence[Array]:
    return program.kernel(_find_shared(operands))(operands, count)


def _separately(*operands: Array, program: Program) -> Any:
    """As operations of JAX, one for each of the program."""
    members = _members(operands)
    types = [t for t, _ in program.results]
    found = evaluate(program.outputs, types, program.params, [_flat(x, members) for x in operands])
    return [x.reshape(x.shape[0], *members) for x in found]


def _run_over_devices(*operands: Array, program: Program) -> Any:
    """The same where XLA shares arrays between devices: each computes its own members."""
    members = _members(operands)

    def own(x: Array) -> list[bool]:
        """Which axes of an operand, after the first, are those of the members."""
        return [size == whole > 1 for size, whole in zip(x.shape[1:], members, strict=False)]

    def names(i: int, x: Array) -> str:
        return " ".join([f"x{i}", *(f"m{k}" if it else f"x{i}_{k}" for k, it in enumerate(own(x)))])

    given = [names(i, x) for i, x in enumerate(operands)]
    taken = [
        " ".join([f"y{k}", *(f"m{k}" for k in range(len(members)))]) for k in range(len(program.results))
    ]

    def split(mesh: Any, arrays: Sequence[Any], found: Sequence[Any]) -> Any:
        spec = [*found[0].sharding.spec, *[None] * found[0].ndim][1 : found[0].ndim]
        parts = [[s if it else None for s, it in zip(spec, own(x), strict=False)] for x in arrays]
        placed = lambda part: NamedSharding(mesh, PartitionSpec(None, *part))
        return mesh, compute, tuple(placed(spec) for _ in found), tuple(map(placed, parts))

    def compute(*operands: Array) -> Any:
        return tuple(scalars_p.bind(*operands, program=program))

    shared = custom_partitioning(compute)
    rule = f"{', '.join(given)} -> {', '.join(taken)}"
    not_split = tuple(name for each in (*given, *taken) for name in each.split() if name[0] != "m")
    shared.def_partition(split, sharding_rule=rule, need_replication_factors=not_split)
    return list(shared(*operands))


_by_jax, _by_foreign_function, _by_kernel, _split = (
    mlir.lower_fun(x, multiple_results=True)
    for x in (
        _separately,
        functools.partial(_call, _foreign_function),
        functools.partial(_call, _kernel),
        _run_over_devices,
    )
)


def _is_alone(ctx: Any) -> bool:
    """Whether what is lowered is for one device, as it also is under `shard_map`."""
    return getattr(ctx.module_context.axis_context, "num_devices", 1) in (None, 1)


def _stays_here(ctx: Any) -> bool:
    """What is exported is to run where this process and its machine code are not."""
    return not ctx.module_context.lowering_parameters.for_export


def _lower_for_cpu(ctx: Any, *operands: Any, program: Program) -> Any:
    here = _stays_here(ctx) and compiler_is_here()
    if here and not _is_alone(ctx):
        return _split(ctx, *operands, program=program)
    return (_by_foreign_function if here else _by_jax)(ctx, *operands, program=program)


def _lower_for_gpu(ctx: Any, *operands: Any, program: Program) -> Any:
    here = _stays_here(ctx) and kernels_run() and program.kernel(_find_shared(ctx.avals_in)).exists
    if here and not _is_alone(ctx):
        return _split(ctx, *operands, program=program)
    return (_by_kernel if here else _by_jax)(ctx, *operands, program=program)


mlir.register_lowering(scalars_p, _by_jax)
mlir.register_lowering(scalars_p, _lower_for_cpu, platform="cpu")
mlir.register_lowering(scalars_p, _lower_for_gpu, platform="cuda")


def _batch_members(primitive: Any, operands: Sequence[Array], axes: Sequence[Any], **params: Any) -> Any:
    """The members of a new axis along a last one."""
    rank = max(x.ndim - (a is not None) for x, a in zip(operands, axes, strict=True))

    def place(x: Array, axis: Any) -> Array:
        if axis is None:
            return x if x.ndim == 1 else x[..., None]
        x = jnp.moveaxis(x, axis, -1)
        return x.reshape(x.shape[0], *(x.shape[1:-1] or (1,) * (rank - 1)), x.shape[-1])

    found = primitive.bind(*map(place, operands, axes), **params)
    return found, [rank] * len(found)


def _jvp(primals: Sequence[Array], tangents: Sequence[Any], *, program: Program) -> Any:
    varied = tuple(
        i
        for i, x in enumerate(tangents)
        if type(x) is not ad.Zero and jnp.issubdtype(primals[i].dtype, jnp.floating)
    )
    values = scalars_p.bind(*primals, program=program)
    changes = (
        change_p.bind(*primals, *(tangents[i] for i in varied), program=program, varied=varied)
        if varied
        else []
    )
    return values, _with_zeros(program, values, changes)


def _with_zeros(program: Program, values: Sequence[Any], changes: Sequence[Any]) -> list[Any]:
    given = dict(zip(program.real_results, changes, strict=False))
    return [given[k] if k in given else ad.Zero(x.aval.to_tangent_aval()) for k, x in enumerate(values)]


ad.primitive_jvps[scalars_p] = _jvp
batching.primitive_batchers[scalars_p] = functools.partial(_batch_members, scalars_p)


@change_p.def_abstract_eval
def _abstract_change(*operands: Any, program: Program, varied: tuple[int, ...]) -> Any:
    members = _members(operands)
    return [
        ShapedArray((program.results[k][1], *members), np.dtype(program.results[k][0]))
        for k in program.real_results
    ]


def _as_program(*operands: Array, program: Program, varied: tuple[int, ...]) -> Any:
    return scalars_p.bind(*operands, program=program.push_forward(varied))


change_p.def_impl(_as_program)
mlir.register_lowering(change_p, mlir.lower_fun(_as_program, multiple_results=True))
batching.primitive_batchers[change_p] = functools.partial(_batch_members, change_p)


def _change_jvp(
    primals: Sequence[Array], tangents: Sequence[Any], *, program: Program, varied: tuple[int, ...]
) -> Any:
    count = len(program.operands)
    outer = tuple(
        i
        for i, x in enumerate(tangents)
        if type(x) is not ad.Zero and jnp.issubdtype(primals[i].dtype, jnp.floating)
    )
    values = change_p.bind(*primals, program=program, varied=varied)
    if not outer:
        return values, [ad.Zero(x.aval.to_tangent_aval()) for x in values]
    if all(i >= count for i in outer):  # along changes alone it is linear
        moved = [
            tangents[i] if i in outer else jnp.zeros_like(primals[i]) for i in range(count, len(primals))
        ]
        return values, change_p.bind(*primals[:count], *moved, program=program, varied=varied)
    change = program.push_forward(varied)
    return values, change_p.bind(*primals, *(tangents[i] for i in outer), program=change, varied=outer)


def _change_transposed(
    cotangents: Sequence[Any], *operands: Any, program: Program, varied: tuple[int, ...]
) -> list[Any]:
    count = len(program.operands)
    known = operands[:count]
    if any(ad.is_undefined_primal(x) for x in known):
        raise NotImplementedError("a change is transposed by operands that it is not linear in")
    linear = [i for i, x in enumerate(operands[count:]) if ad.is_undefined_primal(x)]
    given = [k for k, x in enumerate(cotangents) if type(x) is not ad.Zero]
    part = program.part(tuple(program.real_results[k] for k in given))
    pull = part.pull_back(tuple(varied[i] for i in linear))
    found: list[Any] = [ad.Zero(x.aval) if ad.is_undefined_primal(x) else None for x in operands]
    moved = [k for k in range(len(linear)) if k not in pull.zeros]  # zeros would be pulled on, to zeros
    if not moved:
        return found
    pulled = scalars_p.bind(*known, *(cotangents[k] for k in given), program=pull.part(tuple(moved)))
    for i, x in zip((linear[k] for k in moved), pulled, strict=True):
        shape = operands[count + i].aval.shape
        if len(shape) < x.ndim:
            x = jnp.sum(x, tuple(range(1, x.ndim)))
        wide = tuple(k for k in range(1, len(shape)) if shape[k] != x.shape[k])
        found[count + i] = jnp.sum(x, wide, keepdims=True) if wide else x
    return found


def _without_unused(used: Sequence[bool], eqn: Any, wanted: Callable[[Program, list[int]], Any]) -> Any:
    """JAX drops results that nobody uses: so does the program."""
    if not any(used) and not eqn.effects:
        return [False] * len(eqn.invars), None
    if all(used):
        return [True] * len(eqn.invars), eqn
    kept = [k for k, it in enumerate(used) if it]
    params = eqn.params | {"program": wanted(eqn.params["program"], kept)}
    return [True] * len(eqn.invars), eqn.replace(outvars=[eqn.outvars[k] for k in kept], params=params)


pe.dce_rules[scalars_p] = functools.partial(
    _without_unused, wanted=lambda program, kept: program.part(tuple(kept))
)
pe.dce_rules[change_p] = functools.partial(
    _without_unused, wanted=lambda program, kept: program.part(tuple(program.real_results[k] for k in kept))
)
ad.primitive_jvps[change_p] = _change_jvp
ad.primitive_transposes[change_p] = _change_transposed

CONTROL["scalars"] = lambda interpreter, e, inputs: e.params["program"].write_out(interpreter, inputs)
CONTROL["scalars_change"] = lambda interpreter, e, inputs: (
    e.params["program"].push_forward(e.params["varied"]).write_out(interpreter, inputs)
)
