"""Scalar programs: vectors of numbers in, a vector of numbers out, mapped over members by one operation of JAX.

Their tangents, and the transposes of those, are programs again (`_derivative`), so that zeros fold away there too; of
functions with derivative rules of their own, traced by JAX.

On a CPU they are machine code (`_native`), on a GPU that takes them kernels (`_gpu`); elsewhere operations of XLA, long
ones in pieces (`_lowered`).
"""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._misc._garbage import collector_paused
from ._copies import copied
from ._derivative import Derivative
from ._expressions import CARRIERS, Expression, Node, evaluate, reachable, weight
from ._gpu._kernel import GpuKernel
from ._gpu._program_thread import ProgramThread
from ._interpret import Interpreter
from ._kept import worth_keeping
from ._moves import Scalars, filled
from ._native import HostFunction, can_compile
from ._on_host import OnHost
from ._primitive import program_p
from ._registers import ProgramParts, parts
from ._scalars import Builder

LONGEST = 2_800
"""What a program compiled by XLA as one piece may weigh.

XLA splits a longer one into functions that compute again and again what they share, on a CPU: of 5,500 operations it
runs a thousand times slower.
"""

_PIECE = 2_400  # the weight of pieces
MOST_KEPT = 1_000
"""Outputs above which a program keeps no numbers for its derivative: to write and read them takes longer."""


@collector_paused()
def _renumbered(outputs: Sequence[Expression]) -> tuple[list[Expression], list[Node]]:
    """The same expressions without carriers, and their nodes: made anew, in the order in which outputs need them."""
    nodes = reachable(outputs, values=True)
    if len({x.number for x in nodes}) < len(nodes):  # of several builders
        found = copied(outputs, {}, Builder())
        return found, sorted(reachable(found), key=lambda x: x.number)
    copies, kept = dict[Expression, Expression](), list[Node]()
    copy = lambda x: copies[x] if type(x) is Node else x
    for i, node in enumerate(nodes):
        if node.op in CARRIERS:
            copies[node] = copy(node.args[0])
        else:
            args = node.args if node.op == "input" else tuple(map(copy, node.args))
            copies[node] = made = Node(node.op, args, i)
            kept.append(made)
    return [copies[x] if type(x) is Node else x for x in outputs], kept


@final
class Program:
    """Expressions of numbered inputs, all of one floating-point type.

    - `outputs`: the expressions.
    - `differentiated`: the same with what carries their derivatives, as other programs of them need it.
    - `counts`: how many inputs each operand holds; those without any are left out.
    - `dtype`: of inputs and outputs.
    """

    again: ClassVar[None] = None  # it is run once; another time by `Repeated`

    def __init__(self, outputs: Sequence[Expression], counts: Sequence[int], dtype: Any):
        renumbered, self._nodes = _renumbered(outputs)  # inputs and operations, each after its operands
        self.outputs, self.dtype = tuple(renumbered), jnp.dtype(dtype)
        self.counts = tuple(x for x in counts if x)
        self.differentiated = tuple(outputs)
        self.linearized = functools.cache(self._linearized)
        self.transpose = functools.cache(self._transpose)

    @functools.cached_property
    def size(self) -> int:
        """The number of operations."""
        return sum(x.op != "input" for x in self._nodes)

    @functools.cached_property
    def _weight(self) -> int:
        return sum(map(weight, self._nodes))

    @functools.cached_property
    def has_machine_code(self) -> bool:
        """Whether LLVM can compile it by itself, on a CPU."""
        return can_compile(self._nodes, self.dtype)

    @functools.cached_property
    def kernel(self) -> GpuKernel:
        """The program for GPUs."""
        return GpuKernel(ProgramThread(self.outputs, self.counts, self.dtype))

    @functools.cached_property
    def native(self) -> ProgramParts:
        """The parts it is compiled in as machine code."""
        return parts(self.outputs, sum(self.counts), nodes=self._nodes)

    @functools.cached_property
    def pieces(self) -> ProgramParts | None:
        """The program in pieces, if it is too long for XLA to compile as one."""
        if self._weight <= LONGEST:
            return None
        return parts(self.outputs, sum(self.counts), longest=_PIECE, nodes=self._nodes)

    @functools.cached_property
    def on_host(self) -> HostFunction | OnHost:
        """The program on NumPy arrays: as machine code where that can be, else one operation of NumPy after the other."""
        if self.has_machine_code:
            return HostFunction(self.native, sum(self.counts), len(self.outputs), self.dtype)
        return self.by_numpy

    @functools.cached_property
    def by_numpy(self) -> OnHost:
        """As `on_host`, one operation of NumPy after the other: what is asked once or a few times is not compiled."""
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

    def _numbers(self, operands: Sequence[int]) -> list[int]:
        """Those of the inputs of some operands."""
        ends = np.cumsum(self.counts)
        return [i for k in operands for i in range(ends[k] - self.counts[k], ends[k])]

    def _linearized(self, varied: tuple[int, ...]) -> tuple["Program", "Program"]:
        """The program with what its change needs among its outputs, and that change.

        It takes the operands, what was kept, and the changes of the operands `varied`.
        """
        tangent, count = self._tangent(varied), sum(self.counts)
        # Where functions have rules of their own, these are to be found in what is differentiated next.
        ruled = any(x.op == "ruled" for x in reachable(tangent.differentiated))
        kept = [] if ruled or self.size > LONGEST else worth_keeping(tangent.outputs, count)
        if not kept or len(self.outputs) + len(kept) >= MOST_KEPT:
            return self, tangent
        build = Builder()
        replaced = {node: build.input(count + i) for i, node in enumerate(kept)}
        for node in reachable(tangent.outputs):
            if node.op == "input" and node.args[0] >= count:
                replaced[node] = build.input(node.args[0] + len(kept))
        change = copied(tangent.outputs, replaced, build)
        counts = (*self.counts, len(kept), *tangent.counts[len(self.counts) :])
        keeping = Program((*self.differentiated, *kept), self.counts, self.dtype)
        return keeping, Program(change, counts, self.dtype)

    def _tangent(self, varied: tuple[int, ...]) -> "Program":
        """The change of the outputs, from the operands and the changes of those `varied`."""
        count = sum(self.counts)
        if not any(x.op == "ruled" for x in reachable(self.differentiated)):
            of = Derivative(self.differentiated, self._numbers(varied), {}, self.dtype)
            found = of.changes([of.build.input(count + i) for i in range(len(self._numbers(varied)))])
            counts = (*self.counts, *(self.counts[i] for i in varied))
            return Program(found, counts, self.dtype)

        def change(*args: Array) -> list[Array]:
            operands = self._split(args[:count])

            def moved(*numbers: Array) -> list[Array]:
                left = list(numbers)
                for i in varied:
                    operands[i], left = left[: self.counts[i]], left[self.counts[i] :]
                return evaluate(self.differentiated, [x for each in operands for x in each], self.dtype)

            return jax.jvp(moved, tuple(x for i in varied for x in operands[i]), args[count:])[1]

        return traced(change, (*self.counts, *(self.counts[i] for i in varied)), self.dtype)

    def _transpose(self, linear: tuple[int, ...]) -> "Program":
        """Cotangents of the operands `linear`, from the other operands and the cotangent of the outputs."""
        others = [i for i in range(len(self.counts)) if i not in linear]
        known = sum(self.counts[i] for i in others)
        if not any(x.op == "ruled" for x in reachable(self.differentiated)):
            order = [*self._numbers(others), *self._numbers(linear)]  # which then are not there
            of = Derivative(
                self.differentiated, self._numbers(linear), {x: i for i, x in enumerate(order)}, self.dtype
            )
            found = of.cotangents([of.build.input(known + i) for i in range(len(self.outputs))])
            return Program(found, (*(self.counts[i] for i in others), len(self.outputs)), self.dtype)

        def pulled(*args: Array) -> Sequence[Array]:
            given = list(args[:known])
            fixed = {i: [given.pop(0) for _ in range(self.counts[i])] for i in others}

            def partial(*numbers: Array) -> list[Array]:
                left = iter(numbers)
                free = {i: [next(left) for _ in range(self.counts[i])] for i in linear}
                operands = fixed | free
                inputs = [x for i in range(len(self.counts)) for x in operands[i]]
                return evaluate(self.differentiated, inputs, self.dtype)

            number = jax.ShapeDtypeStruct((), self.dtype)
            free = sum(self.counts[i] for i in linear)
            return jax.linear_transpose(partial, *[number] * free)(list(args[known:]))

        return traced(pulled, (*(self.counts[i] for i in others), len(self.outputs)), self.dtype)


def program_of(function: Any, shapes: Sequence[Any], dtype: Any) -> Program:
    """The program of a function of arrays: of all their numbers to all numbers of what it returns.

    **Arguments:**

    - `function`: made of JAX operations.
    - `shapes`: of its arguments, pytrees, each an operand; truths and integers are given and returned as numbers.
    - `dtype`: of the program.

    **Raises:** `TranslationError`.
    """
    closed, build, count = jax.make_jaxpr(function)(*shapes), Builder(), itertools.count()

    def inputs(x: Any) -> Scalars:
        flat = [build.input(next(count)) for _ in range(x.size)]
        return filled(x.shape, [build.apply("ne", i, 0.0) for i in flat] if x.dtype == jnp.bool_ else flat)

    outputs = Interpreter(build).run(closed.jaxpr, closed.consts, list(map(inputs, closed.in_avals)))
    found = [
        build.number(x, aval.dtype == jnp.bool_)
        for aval, array in zip(closed.out_avals, outputs, strict=True)
        for x in array.reshape(-1)
    ]
    return Program(found, [sum(x.size for x in jax.tree.leaves(each)) for each in shapes], dtype)


def traced(function: Any, counts: Sequence[int], dtype: Any) -> Program:
    """The program of a function of numbers that returns numbers.

    **Arguments:**

    - `function`: made of JAX operations.
    - `counts`: how many of its arguments each operand holds.
    - `dtype`: of all.
    """
    shapes = [[jax.ShapeDtypeStruct((), dtype)] * count for count in counts]
    return program_of(lambda *operands: function(*itertools.chain(*operands)), shapes, dtype)
