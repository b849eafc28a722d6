"""Scalar programs: vectors of numbers in, a vector of numbers out, mapped over members by one operation of JAX.

Their tangents, and the transposes of those, are programs again: traced from JAX's own rules for one number each, and
interpreted, so that zeros fold away there too.

How they compile: `_compiled`. Those above `LONGEST` LLVM compiles by itself (`_native`), or they run in parts, those that
repeat as loops (`_registers`).
"""

import copy
import functools
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._compiled import MOST_RESULTS
from ._expressions import Expression, evaluate, operations, reachable, weight
from ._interpret import Interpreter
from ._kept import worth_keeping
from ._moves import Scalars, filled
from ._native import HostFunction, can_compile
from ._on_host import OnHost
from ._primitive import program_p
from ._registers import Parts, parts
from ._scalars import Builder, copied
from ._whole_loops import are_loops_whole

LONGEST = 2_800
"""What a program compiled by XLA as one piece may weigh.

XLA splits a longer one into functions that compute again and again what they share, on a CPU: of 5,500 operations it
runs a thousand times slower.
"""

# The weight of pieces, and the operations above which loops are better: up to there they run ten times as long.
_PIECE, _MOST_IN_PIECES = 2_400, 10_000
# Operations XLA compiles as fast as LLVM by itself does, into no slower code; and members from which on LLVM gains more
# than a loop loses that is not compiled whole.
_FEW, _SEVERAL = 200, 8


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
        other.linearized = functools.cache(
            lambda varied: tuple(x.run_once() for x in self.linearized(varied))
        )
        other.transpose = functools.cache(lambda linear: self.transpose(linear).run_once())
        return other

    @functools.cached_property
    def can_be_native(self) -> bool:
        """Whether LLVM can compile it by itself, on a CPU, and it is long enough for that."""
        return self.size >= _FEW and can_compile(self.outputs, self.dtype)

    @property
    def native(self) -> Parts:
        """The parts it is compiled in as a foreign function."""
        return self._apart

    def is_native(self, members: int) -> bool:
        """Whether it is better a foreign function than operations of XLA, on a CPU.

        Where XLA compiles loops whole it does not do so around one, which short programs of few members gain more by.
        """
        worth_it = self.once or self._is_too_long or members >= _SEVERAL
        return self.can_be_native and (worth_it or not are_loops_whole())

    @property
    def _is_too_long(self) -> bool:
        return self._weight > LONGEST

    def parts(self) -> Parts | None:
        """The program in parts, if it is too long for XLA to compile as one piece."""
        if not self._is_too_long:
            return None
        return self._apart if self.size > _MOST_IN_PIECES else self._in_pieces

    @functools.cached_property
    def compiled(self) -> int:
        """The number of operations to compile, of it or of a derivative: what repeats counts once."""
        if self.size <= LONGEST:
            return self.size
        return sum(operations(x.outputs) for x in self._apart.parts)

    @functools.cached_property
    def on_host(self) -> HostFunction | OnHost:
        """The program on NumPy arrays: as machine code where that can be, else one operation of NumPy after the other."""
        if can_compile(self.outputs, self.dtype):
            return HostFunction(self._apart, self.counts, len(self.outputs), self.dtype)
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
        # Where functions have rules of their own, these are to be found in what is differentiated next.
        ruled = any(x.op == "ruled" for x in reachable(tangent._differentiated))
        kept = [] if ruled or self.size > LONGEST else worth_keeping(tangent.outputs, count)
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
                inputs = [x for i in range(len(self.counts)) for x in operands[i]]
                return evaluate(self._differentiated, inputs, self.dtype)

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
    return Program([x.item() for x in outputs], counts, dtype, derived=True)
