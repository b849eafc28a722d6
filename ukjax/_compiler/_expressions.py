"""Expressions as programs: numbers from numbers, as one operation of JAX and as part of other programs.

Several programs may share what they compute: their outputs are expressions of one builder, whose inputs all of them take.
"""

import functools
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._foreign import machine_code_runs
from ._scalars import Builder, Expression, TranslationError, as_number
from ._structured import _program
from ._structured._arrays import Value, to_scalars
from ._structured._builder import Builder as NodeBuilder
from ._structured._identity import identity_of_nodes
from ._structured._live_nodes import LiveNodes
from ._structured._moves import fill_array
from ._structured._nodes import MARKS, Node, Operand, Region, is_number
from ._structured._primitive import scalars_p
from ._structured._rebuild import Rebuilder
from ._structured._subprogram import WORTH_OWN_CODE, Subprogram
from ._structured._table import OPERATIONS
from ._structured._trace import Interpreter
from ._trigonometry import cosine, sine, turn

# --- Scalar programs by NumPy, for states before and after a run: nothing is compiled for what is asked a few times
#
# Where no function of C is called, NumPy gives the very bits of machine code: both round each operation once, and sine
# and cosine are the same polynomials.

_MOST_NUMBERS = 2**23  # held at a time: 64 MB in float64


@final
class OnHost:
    """Nodes evaluated by NumPy, for one or more members.

    - `exact`: whether machine code gives the same bits.
    """

    @staticmethod
    def takes(needed: LiveNodes, t: str) -> bool:
        """Whether nodes are operations on numbers of a type and on truths alone; of branches both sides are computed."""
        plain = (*MARKS, "parameter", "convert", "branch", "output", *OPERATIONS)
        from_others = lambda x: x.op == "output" and x.args[0].op != "branch"
        own = lambda x: x.op == "branch" or (x.type in (t, "bool") and x.size is None)
        return all(x.op in plain and own(x) and not from_others(x) for x in needed.nodes)

    def __init__(self, needed: LiveNodes, outputs: Sequence[Operand], params: Sequence[Node], dtype: Any):
        nodes = [x for x in needed.nodes if x.op not in ("parameter", "branch")]
        self.exact = not any(x.op in OPERATIONS and OPERATIONS[x.op].llvm.endswith("()") for x in nodes)
        self._dtype, self._count, self._size = dtype, len(params), len(params) + len(nodes)
        places: dict[Any, int] = {x: i for i, x in enumerate((*params, *nodes))}
        self._constants: list[Any] = []

        def place(x: Operand) -> int:
            """Where a value stands: inputs first, then one operation after the other, then constants."""
            while isinstance(x, Node) and x.op == "parameter" and x not in places:  # what a branch is given
                x = needed.owner[x.region].args[1 + x.data]
            if isinstance(x, Node):
                return places[x]
            self._constants.append(x)
            return self._size + len(self._constants) - 1

        def args(x: Node) -> Sequence[Operand]:
            if x.op == "output":
                branch = x.args[0]
                return branch.args[0], *(results[x.data] for results in branch.data.results)
            return x.args[:1] if x.op in MARKS else x.args

        self._steps = [(_operation(x), [place(y) for y in args(x)]) for x in nodes]
        self._outputs = [place(x) for x in outputs]

    def __call__(self, *operands: np.ndarray) -> np.ndarray:
        """The outputs (outputs, members), of inputs (count, members), or (count, 1) where all members have the same."""
        members = np.broadcast_shapes(*(x.shape[1:] for x in operands))[0]
        rows = [row for x in operands for row in x.astype(self._dtype, copy=False)]
        found = np.empty((len(self._outputs), members), self._dtype)
        block = max(1, _MOST_NUMBERS // max(self._size, 1))
        for start in range(0, members, block):
            here = slice(start, start + block)
            values: list[Any] = [row if row.size == 1 else row[here] for row in rows]
            values += [None] * len(self._steps) + self._constants
            with np.errstate(all="ignore"):
                for i, (compute, places) in enumerate(self._steps, self._count):
                    values[i] = compute(*[values[k] for k in places])
            for row, place in zip(found, self._outputs, strict=True):
                row[here] = values[place]
        return found


def _operation(x: Node) -> Callable[..., Any]:
    if x.op in MARKS:
        return lambda value: value
    if x.op == "convert":
        return lambda value: np.asarray(value).astype(x.type)
    op = "select" if x.op == "output" else x.op
    if op in ("sin", "cos"):  # as machine code has them
        of = sine if op == "sin" else cosine
        return lambda value: of(turn(np.asarray(value), x.type, np), np)
    return OPERATIONS[op].numpy


# --- Programs


MOST_CALLS = 16
"""How many times a program is run at most: each brings positions nearer, and two or three are usual."""
_TO_COMPILE = 5e-5  # s an operation
_PASSED_ON = MARKS - {"stop_gradient"}  # with a derivative of its own, or none


class FixedPointIteration(NamedTuple):
    """How a program is run again: while one output is above a half, with others in place of its last operand.

    That operand is zero at first, and is none that the program is called with.

    - `flag`: the output that says so.
    - `first`, `size`: which outputs take the operand's place, and how many.
    """

    flag: int
    first: int
    size: int


@final
class Program:
    """Expressions of the inputs of a builder, all of one floating-point type.

    - `outputs`: the expressions.
    - `counts`: how many inputs each operand holds; those without any are left out.
    - `dtype`: of inputs and outputs.
    - `again`: how it is run again, if it is. Its derivative is then that of the last time.
    """

    def __init__(
        self,
        build: Builder,
        outputs: Sequence[Expression],
        counts: Sequence[int],
        again: FixedPointIteration | None = None,
    ):
        self.build, self.outputs, self.dtype = build, tuple(map(as_number, outputs)), np.dtype(build.type)
        self.counts = tuple(x for x in counts if x)
        self.again = again if again and again.size else None
        self._alone = Subprogram(build.nodes.top, self.outputs)

    def divide(self, late: Sequence[int]) -> None:
        """Into what does not depend on some inputs, which calls share that differ in these, and the rest."""
        self._alone.divide(tuple(late))

    def operations(self) -> list[str]:
        """The operations of its values."""
        nodes = self._alone.needed(values=True).nodes
        return [x.op for x in nodes if x.op not in ("parameter", "output", *_PASSED_ON)]

    @functools.cached_property
    def size(self) -> int:
        """The number of operations."""
        return len(self.operations())

    @functools.cached_property
    def scalars(self) -> _program.Program:
        """What computes it."""
        t, sizes = self.build.type, self.counts[:-1] if self.again else self.counts

        def make() -> tuple[Region, list[Any]]:
            build = NodeBuilder(_program.MOST_MADE)
            params = [build.parameter(build.top, t, n) for n in sizes]
            inputs = [
                fill_array((n,), [build.load(x, i) for i in range(n)])
                for x, n in zip(params, sizes, strict=True)
            ]
            (found,) = self._write_into(Interpreter(build), inputs)
            return build.top, [tuple(found.tolist())]

        identity = functools.partial(identity_of_nodes, self._alone, (self.counts, self.again))
        operands, results = [(t, n) for n in sizes], [(t, len(self.outputs))]
        return _program.Program(
            make, operands, results, identity, self._write_into, repeats=self.again is not None
        )

    def _write_into(self, interpreter: Interpreter, inputs: Sequence[Value]) -> list[Value]:
        """The outputs as part of another program, member by member."""
        arrays = [to_scalars(interpreter.b, x) for x in inputs]
        members = np.broadcast_shapes(*(x.shape[1:] for x in arrays))
        columns = np.concatenate([_program.spread_members(x, members) for x in arrays]).T
        outputs = np.empty((len(self.outputs), len(columns)), object)
        for k, column in enumerate(columns):
            outputs[:, k] = (self._repeat if self.again else self._call)(interpreter, column.tolist())
        return [outputs.reshape(-1, *members)]

    def _call(self, interpreter: Interpreter, inputs: list[Operand]) -> list[Operand]:
        """By a call, unless it is short."""
        if self._alone.size < interpreter.least_called:
            return self._rebuild(interpreter.b, inputs)
        if any(map(is_number, inputs)) and not self._alone.parts:
            again, types = (
                lambda inner, flat: self._rebuild(inner.b, flat),
                [(self.build.type, None)] * len(inputs),
            )
            found = interpreter.specialize(self, inputs, types, again)
            if found is None:
                return self._rebuild(interpreter.b, inputs)
            if found[0].size < WORTH_OWN_CODE * self._alone.size:
                return interpreter.b.call(*found)
        return interpreter.b.call(self._alone, inputs)

    def _rebuild(self, b: NodeBuilder, inputs: Sequence[Operand]) -> list[Operand]:
        needed = self._alone.needed()
        rebuilt = Rebuilder(b, needed, dict(zip(self._alone.region.params, inputs, strict=True)))
        rebuilt.nodes(needed.outermost)
        return list(map(rebuilt.get, self.outputs))

    def _repeat(self, interpreter: Interpreter, inputs: list[Operand]) -> list[Operand]:
        """Their derivatives are those of the last time, as of any point that a function leaves fixed."""
        assert self.again
        t, b, (flag, first, size) = self.build.type, interpreter.b, self.again
        once = lambda before: self._call(interpreter, [*inputs, *before[first : first + size]])

        def step(carried: Sequence[Operand]) -> Any:
            calls, before = carried[0], list(carried[1:])
            goes_on, few = b.compare("gt", before[flag], 0.5, t), b.compare("lt", calls, MOST_CALLS, "int64")
            return b.both(goes_on, few, "bool"), lambda: [b.add(calls, 1, "int64"), *once(before)]

        start = [0.0] * len(self.outputs)
        start[flag] = 1.0  # so that there is a first time
        found = b.loop([0, *start], [("int64", None), *[(t, None)] * len(start)], step)[1:]
        return [b.apply("attached", t, *pair) for pair in zip(found, once(found), strict=True)]

    @functools.cached_property
    def _by_numpy(self) -> OnHost | None:
        needed = LiveNodes(self.outputs, values=True)
        if self.again or not OnHost.takes(needed, self.build.type):
            return None
        return OnHost(needed, self.outputs, self._alone.region.params, self.dtype)

    @functools.cached_property
    def _time_left(self) -> float:
        """For NumPy [s]."""
        return _TO_COMPILE * self.size if self._by_numpy and self._by_numpy.exact else 0.0

    def by_numpy(self, *operands: np.ndarray) -> np.ndarray:
        """As `on_host`, one operation of NumPy after the other where it has no loops: what is asked once or a few times
        is not compiled."""
        return (self._by_numpy or self.on_host)(*operands)

    def on_host(self, *operands: np.ndarray) -> np.ndarray:
        """The outputs (outputs, members) on NumPy arrays (count, members), or (count, 1) where all members have the same.

        By NumPy, until that has taken as long as it takes to make machine code, of which the numbers are the same.
        """
        if not self.outputs:
            members = np.broadcast_shapes(*(x.shape[1:] for x in operands))[0]
            return np.zeros((0, members), self.dtype)
        if self._time_left > 0:
            start = time.perf_counter()
            found = self._by_numpy(*operands)  # pyright: ignore[reportOptionalCall]
            self._time_left -= time.perf_counter() - start
            return found
        return self.by_machine_code(*operands)

    def by_machine_code(self, *operands: np.ndarray) -> np.ndarray:
        """As `on_host`."""
        members = np.broadcast_shapes(*(x.shape[1:] for x in operands))[0]
        columns = np.concatenate([np.broadcast_to(x, (len(x), members)) for x in operands])
        ends = itertools.accumulate(n for _, n in self.scalars.operands)
        return self.scalars.of_members(np.split(columns, [*ends][:-1]))[0]

    def __call__(self, *operands: Array) -> Array:
        """The values of the outputs, of vectors of inputs."""
        if not self.outputs:
            return jnp.zeros(0, self.dtype)
        return scalars_p.bind(*(x for x in operands if x.size), program=self.scalars)[0]


# --- Pytrees of arrays of expressions, and what computes them


@final
class ExpressionPytree:
    """A pytree of arrays of expressions of a builder.

    - `arrays`: the pytree.
    - `counts`: how many inputs each operand holds.
    """

    def __init__(self, build: Builder, arrays: Any, counts: Sequence[int]):
        self.build, self.arrays, self.counts = build, arrays, counts

    @functools.cached_property
    def program(self) -> Program:
        """What computes all entries."""
        leaves = jax.tree.leaves(self.arrays)
        return Program(self.build, [x for leaf in leaves for x in leaf.reshape(-1)], self.counts)

    @functools.cached_property
    def layout(self) -> tuple[Any, list[tuple[int, int, tuple[int, ...]]]]:
        """The pytree's structure, and of each array where its entries begin and end, and its shape."""
        leaves, tree = jax.tree.flatten(self.arrays)
        ends = itertools.accumulate(x.size for x in leaves)
        return tree, [(end - x.size, end, x.shape) for end, x in zip(ends, leaves, strict=True)]

    @property
    def starts(self) -> tuple[int, ...]:
        """Where the entries of each array begin."""
        return tuple(start for start, _, _ in self.layout[1])

    def _partition(self, found: Any) -> Any:
        """The pytree, given its entries along the first axis; others come first in each array."""
        (tree, arrays), others = self.layout, found.shape[1:]
        return jax.tree.unflatten(tree, [found[i:j].T.reshape(*others, *shape) for i, j, shape in arrays])

    def on_host(self, *operands: np.ndarray) -> Any:
        """The pytree on NumPy arrays, with the members along the first axis of each array."""
        return self._partition(self.program.on_host(*operands))

    def by_numpy(self, *operands: np.ndarray) -> Any:
        """As `on_host`, by `Program.by_numpy`."""
        return self._partition(self.program.by_numpy(*operands))

    def __call__(self, *operands: Array) -> Any:
        """The pytree."""
        return self._partition(run(self.program, *operands))


def run(program: Program, *operands: Array) -> Array:
    """The outputs of a program of all numbers in some arrays, as a vector."""
    return program(*(jnp.reshape(x, -1).astype(program.dtype) for x in operands))


# --- How long programs may be

LARGEST = 10_000
"""More operations than this XLA does not compile: it would take minutes. LLVM alone takes some seconds for each 50,000,
however many they are."""

MOST = 1_000_000
"""More operations than this are not even written out: each takes some four kilobytes of memory until it is compiled."""


def builder_of(dtype: Any) -> Builder:
    """What writes out programs of a type.

    **Raises:** `TranslationError` for other types than LLVM has.
    """
    if np.dtype(dtype).name not in ("float64", "float32"):
        raise TranslationError(f"numbers of type {np.dtype(dtype).name} have no scalar code")
    return Builder(dtype, MOST)


def short_enough(program: Program) -> Program:
    """The program, or an error if its compilation would take too long."""
    # Not `machine_code_is_wanted`: the code is kept for whoever asks next.
    if not machine_code_runs() and program.size > LARGEST:
        raise TranslationError(
            f"{program.size} operations are more than the {LARGEST} that XLA compiles in reasonable time; "
            "LLVM does on a CPU, and a mechanism takes fewer in the coordinates of a tree"
        )
    return program
