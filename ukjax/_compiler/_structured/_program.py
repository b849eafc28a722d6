"""A program of scalars: what it is given, what it gives, and its derivatives, which are programs again."""

import collections
import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from ..._misc import _cache as cache
from ..._misc._errors import Untranslatable
from ..._misc._garbage import undisturbed
from ..._misc._progress import COMPILING, say
from .._foreign import address_of, compile_engine, register_foreign_function
from .._machine_code import AT_ONCE, WATCH, Code, width_for
from ._arrays import LONG, StoredArray, Value, is_known, settle, to_memory, to_scalars, without_repeats
from ._builder import Builder
from ._forward_mode import push_forward
from ._identity import Given, derive_identity, identity
from ._inner_loops import split_inner_loops
from ._instructions import ArrayOperand
from ._jaxprs import type_of
from ._kernel import Kernel
from ._lanes import Lanes
from ._live_nodes import LiveNodes
from ._llvm import write_function
from ._moves import fill_array
from ._nodes import Batch, Node, Operand, Region, is_float, is_number
from ._rebuild import Rebuilder
from ._reverse_mode import pull_back
from ._text import as_text
from ._trace import Interpreter

MOST_MADE = 1_000_000
"""Operations that are made for a program, most of which its outputs may not need."""
_MOST_REPEATED = 1_500  # operations of all members of a batch that are written out one after the other
_MOST = 400_000  # operations of a program: tracing and LLVM take half a minute for half as many


@final
class Program:
    """Arrays from arrays, each of them flat. What it consists of is made where it is first asked for.

    - `operands`, `results`: (type, size) of each.
    - `identity`: what determines it, with derivatives up to an order; None where that is not known.
    - `repeats`: whether it is known to have loops.

    **Arguments:**

    - `make`: its region, and of each result its entries or the node of the array.
    - `write`: how another program computes with it, if not by the same nodes.
    """

    def __init__(
        self,
        make: Callable[[], tuple[Region, Sequence[Any]]],
        operands: Sequence[tuple[str, int]],
        results: Sequence[tuple[str, int]],
        identity: Callable[[int], str | None],
        write: Callable[[Interpreter, Sequence[Value]], list[Value]] | None = None,
        *,
        repeats: bool = False,
    ):
        self._make: Any = make
        self._write, self.repeats = write, repeats
        self.operands, self.results = tuple(operands), tuple(results)
        self.identity = functools.cache(identity)
        self.push_forward = functools.cache(self._push_forward)
        self.pull_back = functools.cache(self._pull_back)
        self.part = functools.cache(self._part)
        self.kernel = functools.cache(self._kernel)
        self._targets = dict[Any, str]()

    @functools.cached_property
    @undisturbed
    def _made(self) -> tuple[Region, tuple[Any, ...]]:
        with np.errstate(all="ignore"):  # of entries that are known, and not selected
            region, outputs = self._make()
        self._make = None  # which holds what it is made of
        assert self.operands == tuple((x.type, x.size) for x in region.params)
        return region, tuple(outputs)

    def ready(self) -> "Program":
        """The program, made unless this or another process could make it, so that it is known that it can be.

        **Raises:** `Untranslatable`.
        """
        self.zeros  # noqa: B018
        return self

    @functools.cached_property
    def zeros(self) -> frozenset[int]:
        """Which results are zero, whatever the operands are."""
        known = self.identity(0)
        name = known and cache.name_of("zeros of what can be made", known)
        found = name and cache.read(name)
        if not found:
            zeros = [k for k, x in enumerate(self.outputs) if _is_zero(x)]
            if name:
                cache.write(name, [np.array(zeros, np.int64).tobytes()])
            return frozenset(zeros)
        return frozenset(np.frombuffer(found[0], np.int64).tolist())

    @property
    def params(self) -> tuple[Node, ...]:
        """The nodes of the arrays given."""
        return tuple(self._made[0].params)

    @property
    def outputs(self) -> tuple[Any, ...]:
        """Of each array that it gives its entries, or the node of the array."""
        return self._made[1]

    @property
    def flat(self) -> list[Operand]:
        """All that it gives, entry by entry, arrays as they are."""
        return [x for out in self.outputs for x in ([out] if isinstance(out, Node) else out)]

    def as_text(self) -> str:
        """The program as a person reads it."""
        return as_text(self.flat)

    @functools.cached_property
    def size(self) -> int:
        """How many operations it has."""
        return sum(self.operations().values())

    def operations(self) -> dict[str, int]:
        """How many of each kind it has; those of what it calls are not counted."""
        nodes = LiveNodes(self.flat).nodes
        return dict(collections.Counter(x.op for x in nodes if x.op not in ("parameter", "output")))

    @functools.cached_property
    def length(self) -> int:
        """How many operations it has, those of what it calls once."""
        programs, seen = [LiveNodes(self.flat)], set[Any]()
        total = 0
        while programs:
            nodes = programs.pop().nodes
            total += len(nodes)
            for callee in {x.data for x in nodes if x.op == "call"} - seen:
                seen.add(callee)
                programs.append(callee.needed())
        return total

    def _push_forward(self, varied: tuple[int, ...]) -> "Program":
        """The changes of real results, from all operands and the changes of those varied."""
        operands = [*self.operands, *(self.operands[i] for i in varied)]
        results = [self.results[k] for k in self.real_results]
        return self._derived(push_forward, varied, operands, results)

    def _pull_back(self, varied: tuple[int, ...]) -> "Program":
        """The cotangents of operands varied, from all operands and the cotangents of real results."""
        operands = [*self.operands, *(self.results[k] for k in self.real_results)]
        return self._derived(pull_back, varied, operands, [self.operands[i] for i in varied])

    def _derived(
        self, way: Callable[..., Any], varied: tuple[int, ...], operands: Any, results: Any
    ) -> "Program":
        identity = lambda order: derive_identity(way.__name__, self.identity(order + 1), varied)
        return Program(lambda: way(self, varied), operands, results, identity).ready()

    def _part(self, wanted: tuple[int, ...]) -> "Program":
        """The program of some of its results alone."""
        if len(wanted) == len(self.results):
            return self
        made = lambda: (self._made[0], [self.outputs[k] for k in wanted])
        identity = lambda order: derive_identity("part", self.identity(order), wanted)
        return Program(made, self.operands, [self.results[k] for k in wanted], identity)

    def write_out(self, interpreter: Interpreter, inputs: Sequence[Value]) -> list[Value]:
        """Its results as part of another program, flat; its members one after the other, by a loop if they are many."""
        if self._write:
            return self._write(interpreter, inputs)
        b, needed = interpreter.b, LiveNodes(self.flat)
        members = np.broadcast_shapes(*(x.shape[1:] for x in inputs))
        count, types = math.prod(members), [t for t, _ in self.operands]
        inputs = [_share(settle(b, x)) for x in inputs]

        def results_of(operands: Sequence[Value]) -> list[Any]:
            """Of one member; the entries of each, or the node of the array."""
            given = [to_memory(b, x, t).node for x, t in zip(operands, types, strict=True)]
            rebuilt = Rebuilder(b, needed, dict(zip(self.params, given, strict=True)))
            rebuilt.nodes(needed.outermost)
            return [
                rebuilt.get(x) if isinstance(x, Node) else list(map(rebuilt.get, x)) for x in self.outputs
            ]

        def as_value(x: Any) -> Value:
            return StoredArray(x, (x.size,)) if isinstance(x, Node) else fill_array((len(x),), x)

        def spread(x: Value) -> Value:
            return x if x.ndim == 1 else spread_members(to_scalars(b, x), members)

        if not members:
            return list(map(as_value, results_of(inputs)))
        if count * self.length > _MOST_REPEATED and not interpreter.written_out:
            whole = [
                to_memory(b, x if x.shape[1:] == members else spread(x), t)
                for x, t in zip(inputs, types, strict=True)
            ]
            return self._loop_over_members(b, whole, members, results_of)
        columns = list(map(spread, inputs))
        _divide_calls(needed, [p for p, x in zip(self.params, columns, strict=True) if x.ndim > 1])
        each = [results_of([x if x.ndim == 1 else x[:, i] for x in columns]) for i in range(count)]
        stacked = [
            np.stack([to_scalars(b, as_value(x)) for x in same], 1) for same in zip(*each, strict=True)
        ]
        return [x.reshape(len(x), *members) for x in stacked]

    def _loop_over_members(
        self, b: Builder, operands: Sequence[StoredArray], members: tuple[int, ...], results_of: Any
    ) -> list[Value]:
        count, kinds = math.prod(members), [(t, n * math.prod(members)) for t, n in self.results]

        def own(x: StoredArray, i: Operand) -> Value:
            if x.ndim == 1:
                return x
            return fill_array(x.shape[:1], [b.load(x.node, i + k * count) for k in range(x.shape[0])])

        def one(i: Operand, *so_far: Node) -> list[Operand]:
            stored = list[Operand]()
            for array, found, (_, n) in zip(
                so_far, results_of([own(x, i) for x in operands]), self.results, strict=True
            ):
                for k in range(n):
                    entry = b.load(found, k) if isinstance(found, Node) else found[k]
                    array = b.store(array, i + k * count, entry)
                stored.append(array)
            return stored

        made = b.count_up(count, [b.blank(n, t) for t, n in kinds], kinds, one)
        shared = tuple(x.ndim == 1 for x in operands)
        batch = Batch(self, tuple(x.node for x in operands), shared, count)
        (loop,) = made[0].args
        loop.data = loop.data._replace(batch=batch)
        return [StoredArray(x, (n, *members)) for x, (_, n) in zip(made, self.results, strict=True)]

    @property
    def real_results(self) -> list[int]:
        """Which results have derivatives."""
        return [k for k, (t, _) in enumerate(self.results) if is_float(t)]

    def arrays(self, shared: tuple[bool, ...]) -> tuple[list[ArrayOperand], list[ArrayOperand]]:
        given = [ArrayOperand(t, n, s) for (t, n), s in zip(self.operands, shared, strict=True)]
        return given, [ArrayOperand(t, n, shared=False) for t, n in self.results]

    def _kernel(self, shared: tuple[bool, ...]) -> Kernel:
        """For a GPU, with those operands `shared` by all members."""
        return Kernel(self.outputs, *self.arrays(shared), self.params)

    def target(self, shared: tuple[bool, ...], members: int) -> str:
        """The name of the foreign function that computes it for so many members."""
        width = self.width(members)
        key = shared, width
        if key not in self._targets:
            arrays = [f"ptr %out{i}" for i in range(len(self.results))]
            arrays += [f"ptr %in{i}" for i in range(len(self.operands))]
            count = """  %members.place = getelementptr i64, ptr %out0.shape, i64 1
  %members = load i64, ptr %members.place"""
            call = f"{count}\n  call void @call(i64 %members, {', '.join(arrays)})"
            known, write = self.identity(0), functools.cache(functools.partial(self._code, shared))
            name = register_foreign_function(
                lambda level: write(1 if level == AT_ONCE else width),
                call,
                len(self.operands),
                len(self.results),
                known and f"{known} {shared} {width}",
                width,
            )
            self._targets[key] = name
        return self._targets[key]

    @property
    def _target_of_one(self) -> str:
        return self.target((True,) * len(self.operands), 1)

    @functools.cached_property
    def _of_one(self) -> Any:
        """The machine code for one member, as a function of places in memory."""
        places = [ctypes.c_void_p] * (len(self.results) + len(self.operands))
        return ctypes.CFUNCTYPE(None, ctypes.c_int64, *places)(address_of("call", self._target_of_one))

    def on_host(self, places: Sequence[int]) -> list[np.ndarray]:
        """The results for one member, by machine code that Python itself calls."""
        results = [np.empty(n, t) for t, n in self.results]
        self._of_one(1, *[x.ctypes.data for x in results], *places)
        return results

    def width(self, members: int) -> int:
        """How many members are side by side in a vector."""
        reals = [t for t, _ in (*self.operands, *self.results) if is_float(t)] or ["float64"]
        return width_for(min(reals, key=lambda t: np.dtype(t).itemsize), members)

    @functools.cached_property
    def _of_members(self) -> tuple[Any, Any]:
        """Machine code for members, made in a quarter of the time: it is called a few times."""
        own = (False,) * len(self.operands)
        known = self.identity(0)
        engine = compile_engine(lambda: self._code(own, 1), known and f"{known} {own} 1")
        places = [ctypes.c_void_p] * (len(self.results) + len(self.operands))
        address = engine.get_function_address("compute")
        return engine, ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int64, *places)(address)

    def of_members(self, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results (entries, members), by machine code that Python itself calls."""
        members = operands[0].shape[1]
        if members == 1:
            one = [
                np.ascontiguousarray(x[:, 0], t) for x, (t, _) in zip(operands, self.operands, strict=True)
            ]
            return [x[:, None] for x in self.on_host([x.ctypes.data for x in one])]
        given = [np.ascontiguousarray(x, t) for x, (t, _) in zip(operands, self.operands, strict=True)]
        results = [np.empty((n, members), t) for t, n in self.results]
        self._of_members[1](ctypes.addressof(WATCH), members, *[x.ctypes.data for x in (*results, *given)])
        return results

    @undisturbed
    def _code(self, shared: tuple[bool, ...], width: int) -> Code:
        units = dict[str, None]()
        machine = Lanes(width, batches=width == 1)
        code, _ = write_function(self.outputs, *self.arrays(shared), self.params, machine, units)
        if width == 1 and (split := split_inner_loops(code)).functions:
            return Code(split.functions, split.text, loops=True, units=tuple(units))
        return Code(code, units=tuple(units))


def _divide_calls(needed: LiveNodes, own: Sequence[Node]) -> None:
    """Divides what is called, so that members share what does not depend on their own parameters."""
    late = set(own)
    for x in needed.nodes:
        if not late.isdisjoint(x.args):
            late.add(x)
            if x.op == "call":
                x.data.divide(tuple(i for i, y in enumerate(x.args) if y in late))


def _is_zero(result: Any) -> bool:
    if isinstance(result, Node):
        return result.op == "fill" and result.args[0] == 0
    return all(is_number(x) and x == 0 for x in result)


def program_of(closed: Any, is_operand: Callable[[Any], bool]) -> tuple[Program, list[Any], Sequence[Any]]:
    """The program of a closed jaxpr, what it closes over that the program takes as operands, and the shapes of outputs.

    Arrays without entries are neither operands nor results.

    **Raises:** `Untranslatable`.
    """
    taken = [x for x in closed.consts if is_operand(x)]
    # What another transformation traces is not kept, but its shape.
    consts = [Given(jnp.shape(x), jax.typeof(x).dtype) if is_operand(x) else x for x in closed.consts]
    jaxpr = closed.jaxpr  # the program holds this alone
    operands = [*closed.in_avals, *(x for x in consts if isinstance(x, Given))]
    results = [(type_of(v), v.size) for v in closed.out_avals if v.size]
    program = Program(
        lambda: _translate_jaxpr(jaxpr, consts),
        [(type_of(v), v.size) for v in operands if v.size],
        results,
        lambda order: identity(jaxpr, consts, order),
    )
    return program.ready(), taken, closed.out_avals


@say(COMPILING)
def _translate_jaxpr(jaxpr: Any, consts: Sequence[Any]) -> tuple[Region, list[Any]]:
    build = Builder(MOST_MADE)
    interpreter = Interpreter(build)

    def given(aval: Any) -> Value:
        if aval.size == 0:
            return fill_array(aval.shape, [])
        node = build.parameter(build.top, type_of(aval), aval.size)
        if aval.size > LONG:
            return StoredArray(node, aval.shape)
        return fill_array(aval.shape, [build.load(node, i) for i in range(aval.size)])

    inputs = [given(v.aval) for v in jaxpr.invars]
    known = [given(x) if isinstance(x, Given) else x for x in consts]
    outputs = interpreter.whole(jaxpr, known, inputs)

    def flatten(x: Value, t: str) -> Any:
        if (
            not isinstance(x, StoredArray) and x.size > LONG and is_known(x)
        ):  # filled or copied, not entry by entry
            x = to_memory(build, x, t)
        return x.node if isinstance(x, StoredArray) else tuple(x.reshape(-1).tolist())

    flat = [flatten(x, type_of(v.aval)) for x, v in zip(outputs, jaxpr.outvars, strict=True) if v.aval.size]
    if len(LiveNodes([x for out in flat for x in (out if isinstance(out, tuple) else [out])]).nodes) > _MOST:
        raise Untranslatable(f"it takes more than {_MOST:,} operations, too many to write out")
    return build.top, flat


def _share(x: Value) -> Value:
    """An operand (entries,) where all members have the same."""
    is_shared = isinstance(x, np.ndarray) and without_repeats(x)[:1].size == 1
    return x[(slice(None), *[0] * (x.ndim - 1))] if is_shared else x


def spread_members(x: Any, members: tuple[int, ...]) -> Any:
    """An operand (entries, *members), or (entries,) where all share it, with all members along one axis."""
    whole = x if x.ndim > 1 else x.reshape(-1, *[1] * len(members))
    return np.broadcast_to(whole, (len(x), *members)).reshape(len(x), -1)
