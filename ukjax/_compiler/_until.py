"""A scalar program repeated until it says that it is done, as one operation of JAX: on a CPU, by machine code.

The first of three programs makes of what is given numbers that stay, a state, and whether to go on, as 1 or 0. The second
makes of those that stay and a state the next state, and whether to go on. The third makes the result of the last state.
Members that are done keep their state; a vector of members goes on until all of them are done, but waits for no other, as
a loop of XLA over a batch does.

It has no derivative.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.extend import core
from jax.interpreters import batching, mlir
from jaxtyping import Array

from ._foreign import dimension, kind_for, registered
from ._llvm_text import Writer
from ._lowered import flat, members_of
from ._machine_code import Kind
from ._primitive import with_members
from ._program import Program
from ._routine import Routine, Rows, texts


@final
class Until:
    """A program that is repeated, between two that are not.

    **Arguments:**

    - `begin`: of any operands; its outputs are what stays, the state, and whether it goes on.
    - `step`: of two operands, what stays and the state; its outputs are the next state and whether it goes on.
    - `end`: of the same operands; its outputs are the result.
    """

    def __init__(self, begin: Program, step: Program, end: Program):
        self.begin, self.step, self.end = begin, step, end
        self.fixed, self.size = step.counts
        self.found = len(end.outputs)
        self.text = functools.cache(self._text)

    @property
    def has_machine_code(self) -> bool:
        """Whether LLVM can compile it."""
        return all(x.has_machine_code for x in (self.begin, self.step, self.end))

    def __call__(self, *given: Array) -> Array:
        """The result (found,).

        **Arguments:**

        - `given`: the operands of the first program.
        """
        return until_p.bind(*given, until=self)

    def _text(self, kind: Kind) -> tuple[str, int]:
        """The function `compute` of rows, results, how many members there are, and the operands; and how many numbers
        these rows have."""
        w, rows, count = Writer(), Rows(kind), self.fixed + self.size
        routines = begin, step, end = [
            Routine(name, getattr(self, name), rows) for name in ("begin", "step", "end")
        ]
        begun = rows.new(count)
        unsettled, found = rows.new(1), rows.new(max(self.size + 1, self.found))
        for routine in routines:
            routine.begin(w)
        blocks = w.apply("udiv", "i64", w.apply("add", "i64", "%members", kind.width - 1), kind.width)
        last = w.apply("sub", "i64", "%members", kind.width)
        with w.loop(blocks) as k:
            start = w.apply("mul", "i64", k, kind.width)
            fits = w.apply("icmp ult", "i64", start, last)
            start = w(
                f"select i1 {fits}, i64 {start}, i64 {last}"
            )  # some members twice rather than fewer at a time
            ends = itertools.accumulate(self.begin.counts, initial=begin.inputs)
            for i, (row, size) in enumerate(zip(ends, self.begin.counts, strict=False)):
                _moved(w, rows, row, (f"%given{i}", start), size)
            begin.run(w, begun)
            rows.copy(w, step.inputs, begun, count)
            with w.when(rows.any(w, unsettled)), w.repeat() as going:
                step.run(w, found)
                rows.blend(w, step.inputs + self.fixed, found, unsettled, self.size)
                rows.store(w, rows.product(w, rows.load(w, unsettled), found + self.size), unsettled)
                going.append(rows.any(w, unsettled))
            rows.copy(w, end.inputs, step.inputs, count)
            end.run(w, found)
            _moved(w, rows, found, ("%found", start), self.found, out=True)
        given = "".join(f", ptr %given{i}" for i in range(len(self.begin.counts)))
        function = w.function("compute", f"ptr %rows, ptr %found, i64 %members{given}", internal=False)
        return "\n".join([*rows.functions(), texts(routines, kind), function]), rows.size * kind.width


def _moved(w: Writer, rows: Rows, row: int, array: tuple[str, str], count: int, *, out: bool = False) -> None:
    """Moves rows from an array (count, members), at some member, or to it."""
    kind, (name, start) = rows.kind, array
    with w.loop(count) as k:
        own = w.at(kind.vector, rows.place(w, row), k)
        place = w.at(kind.number, name, w.apply("add", "i64", w.apply("mul", "i64", k, "%members"), start))
        of, to = (own, place) if out else (place, own)
        w.store(kind.vector, w.load(kind.vector, of, rows.aligned), to, rows.aligned)


until_p = core.Primitive("repeated_program")


@until_p.def_abstract_eval
def _abstract(*given: Any, until: Until) -> Any:
    return given[0].update(shape=(until.found, *members_of(given)), weak_type=False)


@functools.partial(jax.jit, static_argnames="until")
def _run(*given: Array, until: Until) -> Array:
    return until_p.bind(*given, until=until)


@until_p.def_impl
def _impl(*given: Array, until: Until) -> Array:
    return _run(*given, until=until)


def _batched(operands: Sequence[Array], axes: Sequence[Any], *, until: Until) -> tuple[Array, int]:
    placed, rank = with_members(operands, axes)
    return until_p.bind(*placed, until=until), rank


def _called(*given: Array, until: Until) -> Array:
    members, dtype = members_of(given), given[0].dtype
    count = math.prod(members)
    kind = kind_for(dtype, count)
    code, numbers = until.text(kind)
    operands = "".join(f", ptr %in{i}" for i in range(len(given)))
    call = f"  call void @compute(ptr %out1, ptr %out0, i64 %members{operands})"
    name = registered(code, f"{dimension('out0', 1, 'members')}\n{call}", len(given), 2)
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((until.found, count), (numbers,))]
    found = jax.ffi.ffi_call(name, shapes)(*(flat(x, members) for x in given))[0]
    return found.reshape(until.found, *members)


def _on_arrays(*given: Array, until: Until) -> Array:
    """The same as a loop of XLA, for what leaves this process."""
    fixed, n = until.fixed, until.size

    def next_one(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        state, goes = carry
        found = until.step(stays, state)
        return jnp.where(goes, found[:n], state), goes & (found[n] > 0.5)

    begun = until.begin(*given)
    stays, start = begun[:fixed], (begun[fixed : fixed + n], begun[fixed + n] > 0.5)
    return until.end(stays, jax.lax.while_loop(lambda carry: jnp.any(carry[1]), next_one, start)[0])


batching.primitive_batchers[until_p] = _batched
mlir.register_lowering(until_p, mlir.lower_fun(_on_arrays, multiple_results=False))


def _on_cpu(ctx: Any, *operands: Any, until: Until) -> Any:
    here = until.has_machine_code and not ctx.module_context.lowering_parameters.for_export
    return mlir.lower_fun(_called if here else _on_arrays, multiple_results=False)(
        ctx, *operands, until=until
    )


mlir.register_lowering(until_p, _on_cpu, platform="cpu")
