"""A program of scalars as operations of JAX, closed under what JAX does with operations.

`scalars_p` computes a program; its `vmap` is itself with members along a second axis of its operands. `change_p` computes
the change of its results along changes of operands, in which it is linear; its transpose is the program pulled back.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src import dispatch  # JAX has no public way to ask for devices
from jax.core import ShapedArray
from jax.dtypes import canonicalize_dtype
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend import core
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import Array

from ..._misc._errors import InputError
from .._foreign import compiler_is_here, looks_for_nans
from .._gpu._call import kernels_run
from ._live_nodes import LiveNodes
from ._nodes import GROWING, Node, Operand, is_float
from ._program import Program
from ._table import OPERATIONS, TRUTHS
from ._trace import CONTROL

# --- Programs of scalars as operations of JAX: where no machine code of our own runs, as on another device or when
# exported
#
# Every scalar is an array over the members. Loops are `while_loop`s that go on until the last member has ended; those
# that have keep what they carry.
#
# What reverse mode keeps of a loop's passes grows elsewhere; XLA's arrays cannot. So they share a room that is set
# aside at once, and results of a member that needs more are NaN, as in kernels (`_thread`).
#
# XLA makes a kernel of each value that is carried or stored, with all that it is computed from, so that code grows by the
# square of a program: 20 GB for the gradient of a four-bar. It repeats no divisions. So a value with enough behind it is
# divided by a one that XLA does not know to be one, which changes no bit.

_ROOM = 1 << 30  # bytes of all growing arrays
_REPEATED = 32  # operations that a kernel may repeat of another
_COSTLY = ("div", "pow")  # XLA repeats neither


def evaluate(
    outputs: Sequence[Any], types: Sequence[str], params: Sequence[Node], operands: Sequence[Array]
) -> list[Array]:
    """The outputs of a program, each (entries, members)."""
    members = next((x.shape[1] for x in operands if x.ndim > 1), 1)
    flat = [x for out in outputs for x in ([out] if isinstance(out, Node) else out)]
    values = {p: x if x.ndim > 1 else x[:, None] for p, x in zip(params, operands, strict=True)}
    needed = LiveNodes(flat, values=True)
    tapes = _count_tapes(needed)
    room = max(_ROOM // (8 * tapes * members), 1) if tapes else 0
    run = _Evaluator(needed, values, members, room, {}, _hidden_one(operands))
    run.nodes(run.needed.outermost)
    found = []
    for out, t in zip(outputs, types, strict=True):
        rows = run.values[out] if isinstance(out, Node) else jnp.stack([run.typed(x, t) for x in out])
        for full in run.full:
            rows = jnp.where(full, jnp.asarray(float("nan") if is_float(t) else 0, t), rows)
        found.append(jnp.broadcast_to(rows, (rows.shape[0], members)))
    return found


def _count_tapes(needed: LiveNodes) -> int:
    """How many growing arrays there are, those of sub-programs once for each call."""
    calls = [x.data.needed(needed.results(x), values=True) for x in needed.nodes if x.op == "call"]
    return sum(x.op in ("tape", "zeros_like") for x in needed.nodes) + sum(map(_count_tapes, calls))


def _hidden_one(operands: Sequence[Array]) -> Any:
    """1, as no number has more than 64 bits set; for each member, for XLA takes the reciprocal of what all share."""
    for x in operands:
        if x.size and jnp.issubdtype(x.dtype, jnp.floating):
            bits = lax.bitcast_convert_type(x if x.ndim == 1 else x[0], f"uint{8 * x.dtype.itemsize}")
            return lax.population_count(bits[:1] if x.ndim == 1 else bits) <= 64
    return None


@final
class _Evaluator:
    """Computes nodes.

    - `room`: how many entries a growing array has.
    - `full`: which members have needed more, if there are such arrays.
    - `functions`: sub-programs as functions of JAX, which traces each once.
    - `one`: 1, which XLA does not know.
    """

    def __init__(
        self,
        needed: LiveNodes,
        values: dict[Node, Array],
        members: int,
        room: int,
        functions: dict[Any, Any],
        one: Any,
    ):
        self.needed, self.values, self.members, self.functions = needed, values, members, functions
        self.one, self.behind = one, dict[Any, frozenset[Node]]()  # what XLA may repeat with a value
        self.room, self.full = room, [jnp.zeros((members,), bool)] if room else []
        self.mask: Any = True

    def typed(self, x: Operand, t: str) -> Any:
        """An operand of a type."""
        return self.values[x] if isinstance(x, Node) else jnp.full((self.members,), x, canonicalize_dtype(t))

    def nodes(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if node.op == "loop":
                self._loop(node)
            elif node.op == "branch":
                self._branch(node)
            elif node.op == "call":
                self._call(node)
            else:
                self.values[node] = self._end_kernel(node, self._compute(node))

    def _end_kernel(self, node: Node, x: Array) -> Array:
        """A value behind which there is not too much."""
        if self.one is None:
            return x
        behind = frozenset([node]).union(*(self.behind.get(y, ()) for y in node.args))
        long = len(behind) > _REPEATED and is_float(node.type) and node.size is None
        self.behind[node] = frozenset() if long or node.op in _COSTLY else behind
        return x / self.one.astype(x.dtype) if long and self.one is not None else x

    def _compute(self, node: Node) -> Array:
        op, t, args = node.op, node.type, node.args
        if op in ("tape", "zeros_like"):
            return jnp.zeros((self.room, self.members), canonicalize_dtype(t))
        if op == "table":
            return jnp.asarray(np.asarray(node.data[0], t))[:, None]
        if op == "blank":
            return jnp.zeros((node.size or 0, self.members), canonicalize_dtype(t))
        if op == "fill":
            return jnp.broadcast_to(self.typed(args[0], t), (node.data, self.members))
        if op == "pack":
            return jnp.stack([jnp.broadcast_to(self.typed(x, t), (self.members,)) for x in args])
        if op == "load":
            array, index = self.values[args[0]], args[1]
            if not isinstance(index, Node):
                return jnp.broadcast_to(array[int(index)], (self.members,))
            whole = jnp.broadcast_to(array, (array.shape[0], self.members))
            return jnp.take_along_axis(whole, self.values[index][None], 0, mode="clip")[0]
        if op == "store" and node.size == GROWING:
            place = jnp.broadcast_to(self.typed(args[1], "int64"), (self.members,))
            stored = jnp.broadcast_to(self.mask, (self.members,))
            self.full = [x | (stored & (place >= self.room)) for x in self.full]
            place = jnp.where(stored, place, self.room)  # beyond the end nothing is stored
            array = self.values[args[0]]
            return array.at[place, jnp.arange(self.members)].set(self.typed(args[2], t), mode="drop")
        if op == "store":
            array = jnp.broadcast_to(self.values[args[0]], (node.size or 0, self.members))
            place = jnp.broadcast_to(self.typed(args[1], "int64"), (1, self.members))
            here = (jnp.arange(node.size or 0)[:, None] == place) & jnp.broadcast_to(
                self.mask, (1, self.members)
            )
            return jnp.where(here, jnp.broadcast_to(self.typed(args[2], t), array.shape), array)
        if op in ("rule", "refuse", "attached") or (op == "stop_gradient" and node.size is not None):
            return self.typed(args[0], t)
        if op == "convert":
            return lax.convert_element_type(self.typed(args[0], node.data), canonicalize_dtype(t))
        if op == "bitcast":
            return lax.bitcast_convert_type(self.typed(args[0], node.data), np.dtype(t))
        given = node.data if op in TRUTHS else t
        if op == "select":
            p, x, y = args
            return jnp.where(self.typed(p, "bool"), self.typed(x, t), self.typed(y, t))
        operation = getattr(lax, OPERATIONS[op].jax or op)
        shaped = [jnp.broadcast_to(self.typed(x, given), (self.members,)) for x in args]
        return operation(*shaped)

    def _carried(self, x: Operand, p: Node) -> Array:
        value = self.typed(x, p.type)
        if p.size is None:
            return jnp.broadcast_to(value, (self.members,))
        return jnp.broadcast_to(value, (self.room if p.size == GROWING else p.size, self.members))

    def _loop(self, node: Node) -> None:
        body, live = node.data, self.needed.carried(node)
        params, mine = [body.region.params[k] for k in live], self.needed.of(body.region)
        asked, around, outer = self.needed.asked(node), dict(self.values), self.mask

        def active(state: Sequence[Array]) -> Array:
            self.values, self.full = around | dict(zip(params, state, strict=False)), state[len(params) :]
            self.nodes([x for x in mine if x in asked])
            return jnp.broadcast_to(self.typed(body.condition, "bool") & outer, (self.members,))

        def advance(state: Sequence[Array]) -> list[Array]:
            go = active(state)
            self.mask = go
            self.nodes([x for x in mine if x not in asked])
            new = [self._carried(body.results[k], p) for k, p in zip(live, params, strict=True)]
            new, self.mask = [*new, *self.full], outer
            grows = [p.size == GROWING for p in params] + [False] * len(self.full)
            # What grows is stored to where members go on, and a choice would copy all of it.
            return [x if g else jnp.where(go, x, y) for x, y, g in zip(new, state, grows, strict=True)]

        first = [self._carried(node.args[k], p) for k, p in zip(live, params, strict=True)]
        last = lax.while_loop(lambda state: jnp.any(active(state)), advance, [*first, *self.full])
        self.values, self.full = around, last[len(live) :]
        place = dict(zip(live, last, strict=False))
        self.values.update({out: place[out.data] for out in self.needed.outputs.get(node, ())})

    def _call(self, node: Node) -> None:
        callee, results = node.data, self.needed.results(node)
        params = callee.region.params
        given = callee.given(results, values=True)
        if (callee, results) not in self.functions:

            def compute(
                mask: Any, full: list[Array], one: Any, *args: Array
            ) -> tuple[list[Array], list[Array]]:
                values = {params[i]: x for i, x in zip(given, args, strict=True)}
                needed = callee.needed(results, values=True)
                run = _Evaluator(needed, values, self.members, self.room, self.functions, one)
                run.mask, run.full = mask, full
                run.nodes(run.needed.outermost)
                return [run.values[callee.results[k]] for k in results], run.full

            self.functions[callee, results] = jax.jit(compute)
        args = [self.typed(node.args[i], params[i].type) for i in given]
        values, self.full = self.functions[callee, results](self.mask, self.full, self.one, *args)
        found = dict(zip(results, values, strict=True))
        self.values.update((out, found[out.data]) for out in self.needed.outputs[node])

    def _branch(self, node: Node) -> None:
        body, given = node.data, self.needed.given(node)
        outs = self.needed.outputs.get(node, [])
        which, around, outer = self.typed(node.args[0], "bool"), dict(self.values), self.mask
        sides = []
        for side, (region, results) in enumerate(zip(body.regions, body.results, strict=True)):
            params = [region.params[i] for i in given]
            inner = {p: self._carried(node.args[1 + i], p) for p, i in zip(params, given, strict=True)}
            self.values, self.mask = around | inner, outer & (which if side == 0 else ~which)
            self.nodes(self.needed.of(region))  # one after the other, so `full` of both
            sides.append([self._carried(results[x.data], x) for x in outs])
        self.values, self.mask = around, outer
        self.values.update({x: jnp.where(which, a, b) for x, a, b in zip(outs, *sides, strict=True)})


# --- Shapes of arrays around a program, by an operation whose members stay along the last axes, where programs have them
#
# JAX's own has them first: XLA would transpose each array before and after a program.


_reshape_p = core.Primitive("reshape_members")
_reshape_p.def_impl(lambda x, *, new_sizes: lax.reshape(x, new_sizes))
_reshape_p.def_abstract_eval(lambda x, *, new_sizes: x.update(shape=new_sizes, weak_type=False))
mlir.register_lowering(
    _reshape_p, mlir.lower_fun(lambda x, *, new_sizes: lax.reshape(x, new_sizes), multiple_results=False)
)
ad.deflinear2(_reshape_p, lambda change, x, **_: [reshape_members(change, x.aval.shape)])


def reshape_members(x: Array, shape: tuple[int, ...]) -> Array:
    """An array in another shape; under `vmap` its members are along the last axis."""
    return _reshape_p.bind(x, new_sizes=tuple(shape))


def _refuse_explicit(x: Array) -> None:
    """Raises `InputError` for members that an explicit mesh shares out: programs tell JAX no shardings."""
    sharding = jax.typeof(x).sharding
    kinds = dict(zip(sharding.mesh.axis_names, sharding.mesh.axis_types, strict=True))
    used = [name for part in sharding.spec for name in (part if isinstance(part, tuple) else (part,))]
    if any(kinds.get(name) is AxisType.Explicit for name in used):
        raise InputError(
            "vmap of a program of scalars over an array that is shared out along an Explicit axis of a mesh: make the "
            "mesh with axis_types=(jax.sharding.AxisType.Auto,), or map within jax.shard_map."
        )


def _reshape_batched(given: Sequence[Array], axes: Sequence[int], *, new_sizes: tuple[int, ...]) -> Any:
    _refuse_explicit(given[0])
    x = jnp.moveaxis(given[0], axes[0], -1)
    return reshape_members(x, (*new_sizes, x.shape[-1])), len(new_sizes)


batching.primitive_batchers[_reshape_p] = _reshape_batched


# --- The operation of JAX


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
    with jax.disable_jit(False):  # a program is one operation
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
        # Without a spec, as of numbers within `jax.set_mesh`, all devices have the same.
        spec = [*getattr(found[0].sharding, "spec", ()), *[None] * found[0].ndim][1 : found[0].ndim]
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
    for x in operands:
        _refuse_explicit(x)
    rank = max(x.ndim - (a is not None) for x, a in zip(operands, axes, strict=True))

    def place(x: Array, axis: Any) -> Array:
        if axis is None:
            return x if x.ndim == 1 else x[..., None]
        x = jnp.moveaxis(x, axis, -1)
        return x.reshape(x.shape[0], *(x.shape[1:-1] or (1,) * (rank - 1)), x.shape[-1])

    found = primitive.bind(*map(place, operands, axes), **params)
    return found, [rank] * len(found)


def _find_varied(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[int, ...]:
    """Which operands vary."""
    moves = lambda x, change: type(change) is not ad.Zero and jnp.issubdtype(x.dtype, jnp.floating)
    return tuple(i for i, x in enumerate(zip(primals, tangents, strict=True)) if moves(*x))


def _jvp(primals: Sequence[Array], tangents: Sequence[Any], *, program: Program) -> Any:
    varied = _find_varied(primals, tangents)
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
    count, outer = len(program.operands), _find_varied(primals, tangents)
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


def _without_unused(used: Sequence[bool], *rest: Any, wanted: Callable[[Program, list[int]], Any]) -> Any:
    """JAX drops results that nobody uses: so does the program."""
    eqn = rest[-1]  # JAX 0.12 tells before it which operands are live, which matters to references only
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
