"""Scalar programs as one JAX operation: vectors of numbers in, a vector of numbers out, mapped over members.

The operation is closed under what JAX does with operations. Its `vmap` is itself, with the members along further axes
of its operands. Its tangent, and the transpose of that, are programs again: traced from JAX's own rules for one number
each, and interpreted, so that zeros fold away there too.

How it compiles: `_compiled`. Programs above `longest` run in parts, those that repeat as loops (`_registers`), or as a
table of operations (`_tape`).
"""

import copy
import functools
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from .._whole_loops import are_loops_whole
from ._compiled import MOST_RESULTS, in_one_loop, lowering, members_of, separately
from ._expressions import Expression, evaluate, operations, reachable, weight
from ._interpret import Interpreter
from ._kept import worth_keeping
from ._moves import Scalars, filled
from ._on_host import OnHost
from ._registers import Parts, parts
from ._scalars import Builder, copied
from ._tape import Tape, fits, tape

# Numbers that pass through a program for all members, above which it is cut: what a run's loop around it accesses is some
# fifty times as much, and above ten megabytes XLA does not compile it whole.
_MOST_WHOLE = 25_000
# The weight of pieces where loops are not compiled whole, and the operations above which loops are better: up to there
# they run ten times as long.
_PIECE, _MOST_IN_PIECES = 2_400, 10_000
# Members, and operations, from which on a program is as fast by its table and takes seconds less to compile. (Of
# derivatives, with more numbers to pass on, one is as fast.) Fewer operations compile in no time anyhow.
_MANY, _LONG, _FEW = 16, 5_000, 200


def longest(derived: bool = False, whole: bool | None = None) -> int:
    """What a program compiled as one piece may weigh.

    Where loops are not compiled whole, XLA splits a longer one into functions that compute again and again what they
    share, on a CPU: bricard's 3,200 operations run at half the speed, arm_6r's 5,500 a thousand times slower. Where
    they are, 8,000 take 3 s to compile and run faster than in pieces, which 16,000 do not.

    **Arguments:**

    - `derived`: whether the program is for a derivative, which passes on more numbers and is longer to compile.
    - `whole`: whether loops are compiled whole; by default whether `compile_loops_whole` was called.
    """
    whole = are_loops_whole() if whole is None else whole
    return 2_800 if not whole else 3_000 if derived else 10_000


@final
class Program:
    """Expressions of numbered inputs, all of one floating-point type.

    - `outputs`: the expressions.
    - `counts`: how many inputs each operand holds; those without any are left out.
    - `dtype`: of inputs and outputs.
    - `derived`: whether it is for a derivative.
    - `once`: whether it is run once or twice in all a function does, so that it is not worth much compilation.
    """

    once = False

    def __init__(
        self, outputs: Sequence[Expression], counts: Sequence[int], dtype: Any, derived: bool = False
    ):
        self.outputs, self.dtype = tuple(copied(outputs, {}, Builder())), jnp.dtype(dtype)
        self.derived = derived
        self.counts = tuple(x for x in counts if x)
        self._differentiated = tuple(outputs)
        self.linearized = functools.cache(self._linearized)
        self.transpose = functools.cache(self._transpose)

    @functools.cached_property
    def size(self) -> int:
        """The number of operations."""
        return operations(self.outputs)

    @functools.cached_property
    def _weight(self) -> int:
        return sum(map(weight, reachable(self.outputs)))

    @functools.cached_property
    def _apart(self) -> Parts:
        return parts(self.outputs, sum(self.counts))

    @functools.cached_property
    def _in_pieces(self) -> Parts:
        return parts(self.outputs, sum(self.counts), longest=_PIECE)

    def run_once(self) -> "Program":
        """The same program, for where it and its derivatives are run once or twice."""
        other = copy.copy(self)
        other.once = True
        other.__dict__.pop("tape", None)
        other.linearized = functools.cache(
            lambda varied: tuple(x.run_once() for x in self.linearized(varied))
        )
        other.transpose = functools.cache(lambda linear: self.transpose(linear).run_once())
        return other

    @functools.cached_property
    def tape(self) -> Tape:
        """The program as a table of operations."""
        return tape(self.outputs, sum(self.counts), self.once)

    def is_worked_off(self, members: int) -> bool:
        """Whether it is better run by its table, on a CPU: compilation takes no time, but few members take longer."""
        if not are_loops_whole() or self.size < _FEW:
            return False
        many, long = members >= _MANY, self._weight > _LONG
        long = (long and self.derived) or (many and (long or self._is_too_long(members)))
        return (self.once or long) and fits(self.tape)

    @property
    def needs_loop(self) -> bool:
        """Whether it can be one piece only within a loop that XLA compiles whole."""
        return self._weight > longest(whole=False)

    def _is_in_whole_loop(self, members: int) -> bool:
        return are_loops_whole() and members * (sum(self.counts) + len(self.outputs)) < _MOST_WHOLE

    def _is_too_long(self, members: int) -> bool:
        return self._weight > longest(self.derived, self._is_in_whole_loop(members))

    def parts(self, members: int) -> Parts | None:
        """The program in parts, if it is too long to be compiled as one piece for so many members."""
        if not self._is_too_long(members):
            return None
        in_loops = self._is_in_whole_loop(members) or self.size > _MOST_IN_PIECES
        return self._apart if in_loops else self._in_pieces

    @functools.cached_property
    def compiled(self) -> int:
        """The number of operations to compile, of it or of a derivative: what repeats counts once."""
        if self.size <= longest(derived=True):
            return self.size
        return sum(operations(x.outputs) for x in self._apart.parts)

    @functools.cached_property
    def on_host(self) -> OnHost:
        """The program by NumPy."""
        return OnHost(self.outputs, sum(self.counts), self.dtype)

    def __call__(self, *operands: Array) -> Array:
        """The values of the outputs (outputs, *members).

        **Arguments:**

        - `operands`: vectors of inputs (count, *members); of those that are the same for all members (count,).
        """
        kept = [x for x in operands if x.shape[0]]
        return program_p.bind(*kept, program=self)

    def evaluate(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs as separate JAX operations.

        **Arguments:**

        - `inputs`: arrays of one shape, one for each number.
        """
        return evaluate(self.outputs, inputs, self.dtype)

    def _split(self, numbers: Sequence[Any]) -> list[list[Any]]:
        """Numbers by the operands they belong to."""
        ends = np.cumsum(self.counts)
        return [list(numbers[end - count : end]) for end, count in zip(ends, self.counts, strict=True)]

    def _linearized(self, varied: tuple[int, ...]) -> tuple["Program", "Program"]:
        """The program with what its change needs among its outputs, and that change.

        It takes the operands, what was kept, and the changes of the operands `varied`.
        """
        tangent, count = self._tangent(varied), sum(self.counts)
        kept = worth_keeping(tangent.outputs, count) if self.size <= longest(derived=True) else []
        if not kept or len(self.outputs) + len(kept) >= MOST_RESULTS:
            return self, tangent
        build = Builder()
        replaced = {node: build.input(count + i) for i, node in enumerate(kept)}
        for node in reachable(tangent.outputs):
            if node.op == "input" and node.args[0] >= count:
                replaced[node] = build.input(node.args[0] + len(kept))
        change = copied(tangent.outputs, replaced, build)
        counts = (*self.counts, len(kept), *tangent.counts[len(self.counts) :])
        keeping = Program((*self._differentiated, *kept), self.counts, self.dtype, derived=True)
        return keeping, Program(change, counts, self.dtype, derived=True)

    def _tangent(self, varied: tuple[int, ...]) -> "Program":
        """The change of the outputs, from the operands and the changes of those `varied`."""
        count = sum(self.counts)

        def change(*args: Array) -> list[Array]:
            operands = self._split(args[:count])

            def moved(*numbers: Array) -> list[Array]:
                left = list(numbers)
                for i in varied:
                    operands[i], left = left[: self.counts[i]], left[self.counts[i] :]
                return evaluate(self._differentiated, [x for each in operands for x in each], self.dtype)

            return jax.jvp(moved, tuple(x for i in varied for x in operands[i]), args[count:])[1]

        return traced(change, (*self.counts, *(self.counts[i] for i in varied)), self.dtype)

    def _transpose(self, linear: tuple[int, ...]) -> "Program":
        """Cotangents of the operands `linear`, from the other operands and the cotangent of the outputs."""
        others = [i for i in range(len(self.counts)) if i not in linear]
        known = sum(self.counts[i] for i in others)

        def pulled(*args: Array) -> Sequence[Array]:
            given = list(args[:known])
            fixed = {i: [given.pop(0) for _ in range(self.counts[i])] for i in others}

            def partial(*numbers: Array) -> list[Array]:
                left = iter(numbers)
                free = {i: [next(left) for _ in range(self.counts[i])] for i in linear}
                operands = fixed | free
                return self.evaluate([x for i in range(len(self.counts)) for x in operands[i]])

            number = jax.ShapeDtypeStruct((), self.dtype)
            free = sum(self.counts[i] for i in linear)
            return jax.linear_transpose(partial, *[number] * free)(list(args[known:]))

        return traced(pulled, (*(self.counts[i] for i in others), len(self.outputs)), self.dtype)


def traced(function: Any, counts: Sequence[int], dtype: Any) -> Program:
    """The program of a function of numbers that returns numbers.

    **Arguments:**

    - `function`: made of JAX operations.
    - `counts`: how many of its arguments each operand holds.
    - `dtype`: of all.
    """
    closed = jax.make_jaxpr(function)(*[jax.ShapeDtypeStruct((), dtype)] * sum(counts))
    build = Builder()
    inputs: list[Scalars] = [filled((), [build.input(i)]) for i in range(sum(counts))]
    outputs = Interpreter(build).run(closed.jaxpr, closed.consts, inputs)
    return Program([x[()] for x in outputs], counts, dtype, derived=True)


program_p = core.Primitive("scalar_program")


@program_p.def_abstract_eval
def _abstract(*operands: Any, program: Program) -> Any:
    shape = (len(program.outputs), *members_of(operands))
    return operands[0].update(shape=shape, dtype=program.dtype, weak_type=False)


@functools.partial(jax.jit, static_argnames="program")
def _run(*operands: Array, program: Program) -> Array:
    return program_p.bind(*operands, program=program)


@program_p.def_impl
def _impl(*operands: Array, program: Program) -> Array:
    return _run(*operands, program=program)


def _batched(operands: Sequence[Array], axes: Sequence[Any], *, program: Program) -> tuple[Array, int]:
    """The new members along a last axis; operands that are the same for all members stay as they are."""
    rank = max(x.ndim - (a is not None) for x, a in zip(operands, axes, strict=True))

    def placed(x: Array, axis: Any) -> Array:
        if axis is None:
            return x if x.ndim == 1 else x[..., None]
        x = jnp.moveaxis(x, axis, -1)
        return x.reshape(x.shape[0], *(x.shape[1:-1] or (1,) * (rank - 1)), x.shape[-1])

    return program_p.bind(*map(placed, operands, axes), program=program), rank


def _jvp(primals: Sequence[Array], tangents: Sequence[Any], *, program: Program) -> tuple[Array, Array]:
    varied = tuple(i for i, x in enumerate(tangents) if type(x) is not ad.Zero)
    keeping, change = program.linearized(varied)
    found = program_p.bind(*primals, program=keeping)
    value, kept = found[: len(program.outputs)], found[len(program.outputs) :]
    given = [*primals, *([kept] if kept.shape[0] else []), *(tangents[i] for i in varied)]
    return value, program_p.bind(*given, program=change)


def _transposed(cotangent: Any, *operands: Any, program: Program) -> list[Any]:
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


def _on_cpu(ctx: Any, *operands: Any, program: Program) -> Any:
    # Partitioned by XLA, the reduction itself could be split among devices; under shard_map it is local.
    alone = getattr(ctx.module_context.axis_context, "num_devices", 1) in (None, 1)
    empty = 0 in members_of(ctx.avals_in)
    return (_as_separate if empty or not alone else _as_one_loop)(ctx, *operands, program=program)


batching.primitive_batchers[program_p] = _batched
ad.primitive_jvps[program_p] = _jvp
ad.primitive_transposes[program_p] = _transposed
mlir.register_lowering(program_p, _as_separate)
mlir.register_lowering(program_p, _on_cpu, platform="cpu")
