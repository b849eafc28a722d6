"""Scalar programs repeated until they say that they are done, as one operation of JAX: on a CPU, by machine code.

A program takes numbers that stay and numbers of a state, and gives the next state and whether it is to go on, as 1 or 0.
Members that are done keep their state; a vector of members goes on until all of them are done, but waits for no other, as
a loop of XLA over a batch does.

It has no derivative.
"""

import functools
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
    """A program that is repeated.

    **Arguments:**

    - `program`: of two operands, what stays and the state; its outputs are the next state and whether it goes on.
    """

    def __init__(self, program: Program):
        self.program = program
        self.fixed, self.size = program.counts
        self.text = functools.cache(self._text)

    def __call__(self, fixed: Array, state: Array) -> Array:
        """The last state (size,).

        **Arguments:**

        - `fixed`: what stays.
        - `state`: the first one.
        """
        return until_p.bind(fixed, state, until=self)

    def _text(self, kind: Kind) -> tuple[str, int]:
        """The function `compute` of rows, last states, how many members there are, what stays and first states; and how
        many numbers these rows have."""
        w, rows = Writer(), Rows(kind)
        routine = Routine("step", self.program, rows)
        found, unsettled = rows.new(self.size + 1), rows.new(1)
        state = routine.inputs + self.fixed
        routine.begin(w)
        blocks = w.apply("udiv", "i64", w.apply("add", "i64", "%members", kind.width - 1), kind.width)
        last = w.apply("sub", "i64", "%members", kind.width)
        with w.loop(blocks) as k:
            start = w.apply("mul", "i64", k, kind.width)
            fits = w.apply("icmp ult", "i64", start, last)
            start = w(
                f"select i1 {fits}, i64 {start}, i64 {last}"
            )  # some members twice rather than fewer at a time
            _moved(w, rows, routine.inputs, ("%fixed", start), self.fixed)
            _moved(w, rows, state, ("%first", start), self.size)
            rows.store(w, 1.0, unsettled)
            with w.repeat() as going:
                routine.run(w, found)
                rows.blend(w, state, found, unsettled, self.size)
                rows.store(w, rows.product(w, rows.load(w, unsettled), found + self.size), unsettled)
                going.append(rows.any(w, unsettled))
            _moved(w, rows, state, ("%last", start), self.size, out=True)
        given = "ptr %rows, ptr %last, i64 %members, ptr %fixed, ptr %first"
        lines = [*rows.functions(), texts([routine], kind), w.function("compute", given, internal=False)]
        return "\n".join(lines), rows.size * kind.width


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
def _abstract(fixed: Any, state: Any, *, until: Until) -> Any:
    return state.update(shape=(until.size, *members_of((fixed, state))), weak_type=False)


@functools.partial(jax.jit, static_argnames="until")
def _run(fixed: Array, state: Array, *, until: Until) -> Array:
    return until_p.bind(fixed, state, until=until)


@until_p.def_impl
def _impl(fixed: Array, state: Array, *, until: Until) -> Array:
    return _run(fixed, state, until=until)


def _batched(operands: Sequence[Array], axes: Sequence[Any], *, until: Until) -> tuple[Array, int]:
    placed, rank = with_members(operands, axes)
    return until_p.bind(*placed, until=until), rank


def _called(fixed: Array, state: Array, *, until: Until) -> Array:
    members = members_of((fixed, state))
    count = math.prod(members)
    kind = kind_for(state.dtype, count)
    code, numbers = until.text(kind)
    call = "  call void @compute(ptr %out1, ptr %out0, i64 %members, ptr %in0, ptr %in1)"
    name = registered(code, f"{dimension('out0', 1, 'members')}\n{call}", 2, 2)
    shapes = [jax.ShapeDtypeStruct(shape, state.dtype) for shape in ((until.size, count), (numbers,))]
    found = jax.ffi.ffi_call(name, shapes)(flat(fixed, members), flat(state, members))[0]
    return found.reshape(until.size, *members)


def _on_arrays(fixed: Array, state: Array, *, until: Until) -> Array:
    """The same as a loop of XLA, for what leaves this process."""
    members, n = members_of((fixed, state)), until.size

    def next_one(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        state, goes = carry
        found = until.program(fixed, state)
        return jnp.where(goes, found[:n], state), goes & (found[n] > 0.5)

    start = jnp.broadcast_to(state.reshape(n, *(state.shape[1:] or (1,) * len(members))), (n, *members))
    return jax.lax.while_loop(lambda carry: jnp.any(carry[1]), next_one, (start, jnp.ones(members, bool)))[0]


batching.primitive_batchers[until_p] = _batched
mlir.register_lowering(until_p, mlir.lower_fun(_on_arrays, multiple_results=False))


def _on_cpu(ctx: Any, *operands: Any, until: Until) -> Any:
    here = until.program.has_machine_code and not ctx.module_context.lowering_parameters.for_export
    return mlir.lower_fun(_called if here else _on_arrays, multiple_results=False)(
        ctx, *operands, until=until
    )


mlir.register_lowering(until_p, _on_cpu, platform="cpu")
