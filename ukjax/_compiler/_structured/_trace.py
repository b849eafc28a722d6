"""Traced JAX programs (jaxprs) as programs of scalars.

A small array becomes a NumPy array of operands; what only moves its entries makes no nodes. An array that is indexed at
run time, or is large where a loop carries it, stays an array (`Stored`). `while_loop`, `scan` and `cond` become loops and
branches; those that are short, of a length known now, are written out.

What JAX leaves to LAPACK or to a sorting routine is traced again from functions in plain JAX (`_dense`).
"""

import functools
import itertools
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from ..._misc._errors import InputError, Untranslatable
from ._dense import DIFFERENTIATED_BY_JAX, REPLACED
from ._ir import (
    OPERATIONS,
    Builder,
    DerivativeRule,
    Node,
    Operand,
    Subprogram,
    convert_number,
    is_float,
    is_integer,
    is_number,
    zero,
)
from ._moves import MOVES, Scalars, filled, gather_entries, pad_entries, read_window

_WRITTEN_OUT = 1_500  # operations that a loop may become whose number of passes is found as it is traced
_SHORT = 400  # operations that a scan may become; more stay a loop
_MOST_PASSES = 64
_MOST_WRITTEN_OUT = 256  # passes of a scan, of what is to be written out
_LARGEST_MATRIX = (
    128  # parameters in a factor; products with more are sooner compiled, and as fast, on arrays
)
_SELECTED = 8  # entries up to which a place that is not known is found by comparing, not in memory
_AWAITED = 1024  # entries of an array in memory up to which what is computed of it may be computed later
_SOURCES = 8  # arrays that such an array may be computed of
_CARRIED = 40  # entries above which what a loop carries stays an array
LONG = 64  # entries of an array in memory above which an operation on it is a loop
CALLED = 200
"""Operations from which on a function is a sub-program; fewer are written out where they are used."""
_BRANCHES = 60  # operations up to which both sides of a branch are computed
MATERIALIZED = 2_000
"""Entries of an array that become scalars; a larger one can only be indexed."""


class Stored(NamedTuple):
    """An array in memory, in rows.

    - `node`: the array.
    - `shape`: its shape.
    """

    node: Node
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many entries."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """How many axes."""
        return len(self.shape)


Value = Any
"""An array of scalars, or one in memory. Type checkers cannot follow which of the two."""


def shaped(x: Any, shape: tuple[int, ...]) -> Scalars:
    """x as an array: NumPy hands out bare objects where a result has no axes."""
    return np.broadcast_to(x, shape) if isinstance(x, np.ndarray) else filled((), [x])


def constants(values: Any) -> Scalars:
    """Numbers as an array of operands."""
    array = np.asarray(values)
    if array.size > 1 and not any(array.strides):
        return np.broadcast_to(filled((), [array.flat[0].item()]), array.shape)
    return filled(array.shape, array.reshape(-1).tolist())


def is_known(x: Value) -> bool:
    """Whether all entries are numbers."""
    if isinstance(x, Stored | Lazy):
        return False
    if x.size > 1 and not any(x.strides):
        return is_number(x.flat[0])
    return all(y.__class__ is not Node for y in x.flat)


def type_of(aval: Any) -> str:
    """The type of an array's entries."""
    name = (
        np.dtype(aval.dtype).name if not jnp.issubdtype(aval.dtype, jax.dtypes.extended) else str(aval.dtype)
    )
    if name not in _TYPES:
        hint = ": draw random numbers outside, and pass them" if name.startswith("key<") else ""
        raise Untranslatable(f"numbers of type {name} have no scalar code{hint}")
    return name


_TYPES = frozenset(
    ("float64", "float32", "bool", *(f"{s}int{k}" for s in ("", "u") for k in (8, 16, 32, 64)))
)


def _remembered(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of jaxprs, which knows those it has seen as long as they live."""
    known = weakref.WeakKeyDictionary[Any, Any]()

    def remembering(jaxpr: Any) -> Any:
        if jaxpr not in known:
            known[jaxpr] = function(jaxpr)
        return known[jaxpr]

    return remembering


@_remembered
def weight(jaxpr: Any) -> int:
    """About how many operations a jaxpr becomes, loops counted once."""
    total = 0
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        inner = [core_jaxpr(x) for x in _jaxprs(equation.params)]
        if inner:
            total += sum(map(weight, inner)) + (_SHORT if name == "while" else 0)
        elif name == "dot_general":
            axes = equation.params["dimension_numbers"][0][0]
            shape = equation.invars[0].aval.shape
            total += 2 * equation.outvars[0].aval.size * math.prod(shape[i] for i in axes)
        elif name in REPLACED:
            total += equation.invars[0].aval.size ** 2
        elif name not in MOVES:
            total += max((v.aval.size for v in (*equation.outvars, *equation.invars)), default=0)
    return total


class Strided(NamedTuple):
    """Entries of an array in memory at even distances along each axis, or one number at all places.

    - `node`: the array; None for a number, which is `value`.
    - `first`, `steps`: the first place, and how far it is to the next along each axis: 0 where entries are repeated.
    """

    node: Node | None
    value: Operand
    first: int
    steps: tuple[int, ...]


class Lazy(NamedTuple):
    """An array that is computed where it is read, so that what is done to each entry is one loop.

    - `shape`, `type`: of it.
    - `sources`: arrays of that shape in memory.
    - `entry`: an entry from those of the sources at its place; None for the source itself.
    """

    shape: tuple[int, ...]
    type: str
    sources: tuple[Strided, ...]
    entry: Callable[[Sequence[Operand]], Operand] | None = None

    @property
    def size(self) -> int:
        """How many entries."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """How many axes."""
        return len(self.shape)

    def moved(self, move: Callable[[np.ndarray], np.ndarray]) -> "Lazy | None":
        """The same entries in other places; None where these are at no even distances."""
        sources, shape = [], self.shape
        for x in self.sources:
            places = move(_places(self.shape, x))
            steps, shape = _even_steps(places), places.shape
            if steps is None:
                return None
            sources.append(x._replace(first=int(places.flat[0]), steps=steps))
        return Lazy(shape, self.type, tuple(sources), self.entry)


def _places(shape: Sequence[int], x: Strided) -> np.ndarray:
    """Where in memory each entry is."""
    places = np.full((1,) * len(shape), x.first)
    for axis, (size, step) in enumerate(zip(shape, x.steps, strict=True)):
        places = places + step * np.arange(size).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return places


def _even_steps(places: np.ndarray) -> tuple[int, ...] | None:
    """How far it is to the next place along each axis; None where that differs."""
    found = []
    for axis, size in enumerate(places.shape):
        apart = np.diff(places, axis=axis)
        if size > 1 and np.any(apart != apart.flat[0]):
            return None
        found.append(int(apart.flat[0]) if size > 1 else 0)
    return tuple(found)


def _rows_first(shape: Sequence[int]) -> tuple[int, ...]:
    """The steps of an array that is whole in memory."""
    return tuple(math.prod(shape[i + 1 :]) if n > 1 else 0 for i, n in enumerate(shape))


def core_jaxpr(x: Any) -> Any:
    """A jaxpr without the constants it may come with."""
    return x.jaxpr if hasattr(x, "jaxpr") else x


def _jaxprs(params: dict) -> list[Any]:
    values = itertools.chain.from_iterable(x if isinstance(x, tuple | list) else [x] for x in params.values())
    return [x for x in values if hasattr(x, "eqns") or hasattr(x, "jaxpr")]


class LargeProductError(Untranslatable):
    """A product with a large matrix of parameters, which is better left to arrays."""


class Interpreter:
    """Interprets jaxprs with one `Builder`.

    - `callees`: shared by those of one program: what functions that it calls became.
    - `written_out`: whether all is to be scalars as far as it can be, so that structural zeros are seen: nothing is
      called, scans are passes, arrays stay out of memory.

    **Arguments:**

    - `parameters`: how many of the first parameters of the builder's program are such of a system, of which products
      with large matrices raise `LargeProductError`.
    """

    def __init__(
        self,
        builder: Builder,
        callees: "Callees | None" = None,
        *,
        written_out: bool = False,
        parameters: int = 0,
    ):
        self.b, self.callees, self.written_out = builder, callees or Callees(), written_out
        self._parameters, self._passes = parameters, 0  # how many loops, written out, this is within
        self._debug_info: Any = None
        self._opened: list[Any] = []  # operations that are being traced by their own functions

    # --- values

    def scalars(self, x: Value) -> Scalars:
        """An array as scalars."""
        if isinstance(x, Lazy):
            return filled(x.shape, [self._entry(x, i) for i in range(x.size)])
        if not isinstance(x, Stored):
            return x
        if x.size > MATERIALIZED:
            raise Untranslatable(f"an array of {x.size:,} entries is too large to be written out as scalars")
        return filled(x.shape, [self.b.load(x.node, i) for i in range(x.size)])

    def stored(self, x: Value, t: str) -> Stored:
        """An array in memory; the one it was read from, where it is that as it stands."""
        if isinstance(x, Lazy):
            return self.settled(x)
        if isinstance(x, Stored):
            return x
        if x.size and not any(x.strides) and is_number(x.flat[0]):
            return Stored(self.b.fill(x.flat[0], x.size, t), x.shape)
        if x.size > LONG and x.strides[0] == 0:
            return self._repeat_row(x, t)
        flat = x.reshape(-1)
        first = flat[0] if x.size else 0
        if (
            isinstance(first, Node)
            and first.op == "load"
            and first.args[0].size == x.size
            and all(
                isinstance(y, Node) and y.op == "load" and y.args == (first.args[0], i)
                for i, y in enumerate(flat)
            )
        ):
            return Stored(first.args[0], x.shape)
        return Stored(self.b.pack(flat.tolist(), t), x.shape)

    def settled(self, x: Value) -> Value:
        """An array that is computed where it is read, computed now; others as they are."""
        if not isinstance(x, Lazy):
            return x
        if x.entry is None:
            node, _, first, steps = x.sources[0]
            if node is not None and not first and steps == _rows_first(x.shape) and node.size == x.size:
                return Stored(node, x.shape)
        node = self.b.blank(x.size, x.type)
        return Stored(self._written(x, Strided(node, 0, 0, _rows_first(x.shape))), x.shape)

    def lazy(self, x: Value, t: str) -> Lazy:
        """An array as one that is computed where it is read."""
        if isinstance(x, Lazy):
            return x
        if isinstance(x, Stored):
            return Lazy(x.shape, t, (Strided(x.node, 0, 0, _rows_first(x.shape)),))
        if x.size and not any(x.strides):
            return Lazy(x.shape, t, (Strided(None, x.flat[0], 0, (0,) * x.ndim),))
        own = x[tuple(slice(None) if k else slice(1) for k in x.strides)]
        steps = zip(_rows_first(own.shape), x.strides, strict=True)
        return Lazy(
            x.shape, t, (Strided(self.stored(own, t).node, 0, 0, tuple(n if k else 0 for n, k in steps)),)
        )

    def _repeat_row(self, x: Scalars, t: str) -> Stored:
        """An array in memory whose rows are all the same."""
        row = x[:1].reshape(-1).tolist()

        def step(carried: Sequence[Any]) -> Any:
            start, array = carried

            def write() -> list[Operand]:
                node = array
                for k, y in enumerate(row):
                    node = self.b.store(node, self.b.add(start, k, "int64"), y)
                return [self.b.add(start, len(row), "int64"), node]

            return self.b.compare("lt", start, x.size, "int64"), write

        carried = [("int64", None), (t, x.size)]
        return Stored(self.b.loop([0, self.b.fill(zero(t), x.size, t)], carried, step)[1], x.shape)

    def tabulate(
        self, shape: tuple[int, ...], t: str, entry: Callable[[Operand], Operand], into: Any = None
    ) -> Stored:
        """An array in memory, of which a loop computes each entry from its place; or those that follow a place in one."""
        node, start = into or (self.b.blank(math.prod(shape), t), 0)
        count = math.prod(shape)

        def step(carried: Sequence[Any]) -> Any:
            i, array = carried
            place = self.b.add(i, start, "int64")
            write = lambda: [self.b.add(i, 1, "int64"), self.b.store(array, place, entry(i))]
            return self.b.compare("lt", i, count, "int64"), write

        return Stored(self.b.loop([0, node], [("int64", None), (t, node.size)], step)[1], shape)

    def _move_stored(self, e: Any, inputs: list[Value]) -> list[Value]:
        """Slices, joins and the like of arrays in memory: of few entries as scalars, else in other places, or copied."""
        starts = np.cumsum([0, *(x.size for x in inputs)])
        numbered = [np.arange(a, a + x.size).reshape(x.shape) for a, x in zip(starts, inputs, strict=False)]
        outputs = []
        for k, variable in enumerate(e.outvars):
            move = lambda arrays, k=k: np.asarray(MOVES[e.primitive.name](arrays, e.params)[k])
            places, t, shape = move(numbered).reshape(-1), type_of(variable.aval), variable.aval.shape
            if (
                len(inputs) == 1
                and isinstance(inputs[0], Stored)
                and np.array_equal(places, np.arange(inputs[0].size))
            ):
                outputs.append(Stored(inputs[0].node, shape))
                continue
            if places.size <= LONG:
                owner = np.searchsorted(starts, places, "right") - 1
                flat = [
                    self._entry(inputs[k], int(i - starts[k])) for k, i in zip(owner, places, strict=True)
                ]
                outputs.append(filled(shape, flat))
                continue
            moved = None
            if len(inputs) == 1:
                x = self.lazy(inputs[0], t)
                if x.entry is not None and places.size > x.size:
                    x = self.lazy(self.settled(x), t)
                moved = x.moved(lambda of, move=move, shape=shape: move([of]).reshape(shape))
            if moved is not None and self._may_wait(moved):
                outputs.append(moved)
            else:
                outputs.append(Stored(self._moved_by_loops(inputs, starts, places, t, shape), shape))
        return outputs

    def _moved_by_loops(
        self, inputs: list[Value], starts: Any, places: np.ndarray, t: str, shape: tuple[int, ...]
    ) -> Node:
        """An array of the entries of others that stand at some places, one after the other."""
        node = self.b.blank(places.size, t)
        if len(inputs) == 1:
            moved = self.lazy(inputs[0], t).moved(
                lambda of: of.reshape(-1)[places - starts[0]].reshape(shape)
            )
            if moved is None:
                return self._join(inputs, starts, places, t)
            return self._written(moved, Strided(node, 0, 0, _rows_first(shape)))
        # Where each entry of the others goes to, if each is taken once.
        order = np.argsort(places, kind="stable")
        if not np.array_equal(places[order], np.arange(places.size)):
            return self._join(inputs, starts, places, t)
        parts = [
            (x, order[a : a + x.size].reshape(x.shape))
            for x, a in zip(inputs, starts, strict=False)
            if x.size
        ]
        steps = [_even_steps(to) for _, to in parts]
        if None in steps:
            return self._join(inputs, starts, places, t)
        for (x, to), k in zip(parts, steps, strict=True):
            if isinstance(x, np.ndarray) and x.size <= _CARRIED:
                for i, y in zip(to.reshape(-1), x.reshape(-1), strict=True):
                    node = self.b.store(node, int(i), y)
            else:
                assert k is not None
                node = self._written(self.lazy(x, t), Strided(node, 0, int(to.flat[0]), k))
        return node

    def _entry(self, x: Value, i: int) -> Operand:
        if isinstance(x, Lazy):
            at = np.unravel_index(i, x.shape)
            place = lambda y: y.first + sum(int(k) * n for k, n in zip(at, y.steps, strict=True))
            values = [y.value if y.node is None else self.b.load(y.node, place(y)) for y in x.sources]
            return x.entry(values) if x.entry else values[0]
        return self.b.load(x.node, i) if isinstance(x, Stored) else x.reshape(-1)[i]

    def _join(self, inputs: list[Value], starts: Any, places: np.ndarray, t: str) -> Node:
        """An array of runs of entries of others."""
        breaks = np.flatnonzero((np.diff(places) != 1) | np.isin(places[1:], starts)) + 1
        node = self.b.blank(places.size, t)
        for a, z in zip([0, *breaks], [*breaks, places.size], strict=True):
            k = int(np.searchsorted(starts, places[a], "right") - 1)
            first, x = int(places[a] - starts[k]), inputs[k]
            if z - a <= 8:
                for i in range(a, z):
                    node = self.b.store(node, i, self._entry(x, int(first + i - a)))
            else:
                source = self.stored(x, t).node
                read = lambda i, source=source, first=first: self.b.load(
                    source, self.b.add(i, first, "int64")
                )
                node = self.tabulate((int(z - a),), t, read, into=(node, int(a))).node
        return node

    def _entry_by_entry(self, e: Any, inputs: list[Value]) -> list[Value]:
        """An operation on each entry of arrays in memory."""
        aval, given = e.outvars[0].aval, []
        for x, v in zip(inputs, e.invars, strict=True):
            x = self.lazy(x, type_of(v.aval))
            lacking = (0,) * (len(aval.shape) - x.ndim)
            steps = lambda y, x=x, lacking=lacking: (
                *lacking,
                *(k if n > 1 else 0 for n, k in zip(x.shape, y.steps, strict=True)),
            )
            given.append(x._replace(sources=tuple(y._replace(steps=steps(y)) for y in x.sources)))

        def entry(values: Sequence[Operand]) -> Operand:
            rest, own = iter(values), []
            for x in given:
                mine = list(itertools.islice(rest, len(x.sources)))
                own.append(filled((), [x.entry(mine) if x.entry else mine[0]]))
            return self._each_rule(e, own).reshape(())[()]

        found = Lazy(aval.shape, type_of(aval), tuple(y for x in given for y in x.sources), entry)
        return [found if self._may_wait(found) else self.settled(found)]

    def _may_wait(self, x: Lazy) -> bool:
        """Whether an array may be computed where it is read: arrays that are changed meanwhile are copied for it."""
        return len(x.sources) <= _SOURCES and all(
            y.node is None or y.node.size <= _AWAITED for y in x.sources
        )

    def _written(self, x: Lazy, target: Strided) -> Node:
        """An array in memory with entries of another, by loops along its axes; of a few, one after the other."""
        b, arrays = self.b, (*x.sources, target)
        axes: list[tuple[int, tuple[int, ...]]] = []  # how many, and the steps in each array
        for axis, size in enumerate(x.shape):
            steps = tuple(y.steps[axis] for y in arrays)
            if axes and axes[-1][1] == tuple(size * k for k in steps):
                axes[-1] = axes[-1][0] * size, steps
            elif size > 1:
                axes.append((size, steps))

        def along(axis: int, places: Sequence[Operand], node: Node) -> Node:
            """What is left to do along some axes. What these do not change is read before them, as all nodes are."""
            if axis == len(axes):
                at = [b.add(place, y.first, "int64") for place, y in zip(places, arrays, strict=True)]
                values = [
                    y.value if y.node is None else b.load(y.node, i)
                    for y, i in zip(x.sources, at, strict=False)
                ]
                return b.store(node, at[-1], x.entry(values) if x.entry else values[0])
            count, steps = axes[axis]

            def step(carried: Sequence[Any]) -> Any:
                i, array = carried

                def write() -> list[Operand]:
                    further = lambda place, by: b.add(place, b.mul(i, by, "int64"), "int64") if by else place
                    moved = [further(*pair) for pair in zip(places, steps, strict=True)]
                    return [b.add(i, 1, "int64"), along(axis + 1, moved, array)]

                return b.compare("lt", i, count, "int64"), write

            return b.loop([0, node], [("int64", None), (x.type, node.size)], step)[1]

        assert target.node is not None
        return along(0, [0] * len(arrays), target.node)

    def _reduce_stored(self, op: str, x: Value, t: str, axes: Sequence[int]) -> Value:
        """A reduction of an array in memory: of all of it as a loop, of some axes as loops over the others."""
        x = self.lazy(x, t)
        kept = [i for i in range(x.ndim) if i not in axes]
        shape, count = tuple(x.shape[i] for i in kept), math.prod(x.shape[i] for i in axes)
        if math.prod(shape) == 1:
            node = self.settled(x).node

            def step(carried: Sequence[Any]) -> Any:
                i, so_far = carried
                more = lambda: [self.b.add(i, 1, "int64"), self.b.apply(op, t, so_far, self.b.load(node, i))]
                return self.b.compare("lt", i, count, "int64"), more

            first = zero(t) if op == "add" else _of_none(op, t)
            return filled(shape, [self.b.loop([0, first], [("int64", None), (t, None)], step)[1]])
        if count > LONG:
            x = self.settled(x)
            return self._reduce(lambda row: self._fold(op, row, t), self.scalars(x), axes)
        rows = [self._summand(x, axes, kept, place) for place in np.ndindex(*(x.shape[i] for i in axes))]
        return self._folded(rows, shape, t, lambda row: self._fold(op, row, t))

    @staticmethod
    def _summand(x: Lazy, axes: Sequence[int], kept: Sequence[int], place: Sequence[int]) -> Lazy:
        """An array at one place along some axes."""
        sources = tuple(
            y._replace(
                first=y.first + sum(i * y.steps[axis] for i, axis in zip(place, axes, strict=True)),
                steps=tuple(y.steps[i] for i in kept),
            )
            for y in x.sources
        )
        return x._replace(shape=tuple(x.shape[i] for i in kept), sources=sources)

    def _folded(
        self, rows: Sequence[Lazy], shape: Sequence[int], t: str, fold: Callable[[list[Operand]], Operand]
    ) -> Value:
        """What becomes of the entries of arrays at each place."""

        def entry(values: Sequence[Operand]) -> Operand:
            rest, own = iter(values), []
            for x in rows:
                mine = list(itertools.islice(rest, len(x.sources)))
                own.append(x.entry(mine) if x.entry else mine[0])
            return fold(own)

        found = self.settled(Lazy(tuple(shape), t, tuple(y for x in rows for y in x.sources), entry))
        return found if found.size > LONG else self.scalars(found)

    def _fold(self, op: str, row: list[Operand], t: str) -> Operand:
        if op == "add":
            return self.b.total(row, t)
        return functools.reduce(lambda x, y: self.b.apply(op, t, x, y), row)

    def each(self, function: Callable[..., Operand], *arrays: Scalars) -> Scalars:
        """A function of scalars, of each entry."""
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
        apply: Any = np.frompyfunc(function, len(arrays), 1)
        with np.errstate(all="ignore"):  # NumPy would warn of constants that are infinite or no number
            return shaped(apply(*arrays), shape)

    # --- jaxprs

    def whole(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Value]) -> list[Value]:
        """The outputs of a whole program's jaxpr, whose functions are called."""
        self.callees.count(jaxpr)
        return list(map(self.settled, self.run(jaxpr, consts, inputs)))

    def closed(self, closed: Any, inputs: Sequence[Value], *, waits: bool = False) -> list[Value]:
        """The outputs of a jaxpr, closed or not, which may be computed later where it `waits`."""
        found = self.run(core_jaxpr(closed), getattr(closed, "consts", ()), inputs)
        return found if waits else list(map(self.settled, found))

    def function(
        self, function: Callable[..., Any], avals: Sequence[Any], inputs: Sequence[Value]
    ) -> list[Value]:
        """The outputs of a function in plain JAX."""
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in avals]
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            closed = jax.make_jaxpr(function)(*shapes)
        return self.closed(closed, inputs)

    def run(
        self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Value], of: Sequence[Any] | None = None
    ) -> list[Value]:
        """The outputs of a jaxpr, or some of its variables."""
        wanted = jaxpr.outvars if of is None else of
        self._debug_info = jaxpr.debug_info
        values: dict[Any, Value] = dict(zip(jaxpr.constvars, map(self.constant, consts), strict=True))
        values |= dict(zip(jaxpr.invars, inputs, strict=True))
        for variable, x in zip(jaxpr.invars, inputs, strict=True):
            values[variable] = self._read_once(jaxpr, variable, x)

        def read(x: Any) -> Value:
            return constants(x.val) if isinstance(x, core.Literal) else values[x]

        for equation in live_equations(jaxpr, wanted):
            outputs = self.equation(equation, [read(x) for x in equation.invars])
            for variable, output in zip(equation.outvars, outputs, strict=True):
                output = self._read_once(jaxpr, variable, output)
                if not isinstance(output, Stored | Lazy) and output.shape != variable.aval.shape:
                    assert output.size == variable.aval.size, (equation, output.shape)
                    output = output.reshape(variable.aval.shape)
                values[variable] = output
        return [read(x) for x in wanted]

    def _read_once(self, jaxpr: Any, variable: Any, x: Value) -> Value:
        """What is computed where it is read, if that is in one place only, and else computed now."""
        if not isinstance(x, Lazy) or x.entry is None:
            return x
        readers = sum(variable in e.invars for e in jaxpr.eqns) + sum(y is variable for y in jaxpr.outvars)
        return self.settled(x) if readers > 1 else x

    def constant(self, x: Any) -> Value:
        """An array that a jaxpr closes over."""
        return (
            x if isinstance(x, Stored) or (isinstance(x, np.ndarray) and x.dtype == object) else constants(x)
        )

    def equation(self, e: Any, inputs: list[Value]) -> list[Value]:
        """The outputs of one equation."""
        name, params = e.primitive.name, e.params
        if name in _INLINED:
            return self._called(e, inputs)
        waits = any(isinstance(x, Lazy) for x in inputs)
        if waits and not (
            name in MOVES or name in _REDUCTIONS or name == "dot_general" or self._is_of_entries(name)
        ):
            inputs = list(map(self.settled, inputs))
        if name == "custom_jvp_call":
            return self._with_rule(e, inputs, self.closed(params["call_jaxpr"], inputs))
        if name.startswith("custom_vjp_call"):
            return [
                self._without_derivative(x, type_of(v.aval), _CUSTOM_VJP)
                for x, v in zip(self._called(e, inputs), e.outvars, strict=True)
            ]
        if name == "custom_linear_solve":
            sizes, solve = params["const_lengths"], params["jaxprs"].solve
            start = sizes.matvec + sizes.vecmat
            given = [*inputs[start : start + sizes.solve], *inputs[sum(sizes) :]]
            return self._with_rule(e, inputs, self.closed(solve, given))
        if name == "attached":
            t = type_of(e.outvars[0].aval)
            return [
                self.each(
                    lambda x, y: x if is_number(x) else self.b.node("attached", t, x, y),
                    *map(self.scalars, inputs),
                )
            ]
        if (
            name in _EVALUATED
            and inputs
            and all(map(is_known, inputs))
            and not any(map(_calls_back, _jaxprs(params)))
        ):
            return self._known_outputs(e, inputs)
        if name in CONTROL:
            return CONTROL[name](self, e, inputs)
        if name in (
            "dynamic_slice",
            "dynamic_update_slice",
            "gather",
            "scatter",
            "scatter-add",
            "scatter_add",
        ):
            return [_INDEXED[name](self, e, inputs)]
        if name in MOVES and any(isinstance(x, Stored | Lazy) for x in inputs):
            return self._move_stored(e, inputs)
        if name == "empty" and e.outvars[0].aval.size > _SELECTED:
            aval = e.outvars[0].aval
            return [Stored(self.b.blank(aval.size, type_of(aval)), aval.shape)]
        if name in _PASSED:
            return [inputs[_PASSED[name]]]
        if name in _REFUSED:
            x = self.scalars(inputs[0])
            message, backward = (
                params.get("msg") or params.get("message") or name,
                name == "nondifferentiable_backward",
            )
            return [self.each(lambda y: self.b.refuse(y, str(message), backward), x)]
        if name in MOVES:
            outputs = MOVES[name]([self.scalars(x) for x in inputs], params)
            return [shaped(x, v.aval.shape) for x, v in zip(outputs, e.outvars, strict=True)]
        if name in REPLACED:
            function = functools.partial(REPLACED[name], **params)
            outputs = self.function(function, [v.aval for v in e.invars], inputs)
            return self._with_rule(e, inputs, outputs) if name in DIFFERENTIATED_BY_JAX else outputs
        long = [isinstance(x, Stored | Lazy) and x.size > LONG for x in inputs]
        if self._is_of_entries(name) and (any(long) or (not self.written_out and _spreads(e, inputs))):
            return self._entry_by_entry(e, inputs)
        if long == [True] and name in _REDUCTIONS:
            axes = e.params.get("axes", range(inputs[0].ndim))
            return [self._reduce_stored(_REDUCTIONS[name], inputs[0], type_of(e.invars[0].aval), axes)]
        if name == "dot_general" and any(long) and not any(map(is_known, inputs)):
            product = self._product_by_loop(e, inputs)
            if product is not None:
                return [product]
        if name in _RULES or self._is_of_entries(name):
            return [self._each_rule(e, [self.scalars(self.settled(x)) for x in inputs])]
        return self._by_its_own_function(e, inputs)

    def _known_outputs(self, e: Any, inputs: list[Value]) -> list[Value]:
        """What JAX makes of numbers that are known."""
        given = [np.asarray(x.tolist(), v.aval.dtype) for x, v in zip(inputs, e.invars, strict=True)]
        with jax.ensure_compile_time_eval():
            found = e.primitive.bind(*map(jnp.asarray, given), **e.params)
        return list(map(constants, found if e.primitive.multiple_results else [found]))

    def _called(self, e: Any, inputs: list[Value]) -> list[Value]:
        called = e.params.get("jaxpr") or e.params.get("call_jaxpr") or e.params.get("fun_jaxpr")
        # Arrays in memory are not passed on to a sub-program, nor taken from it: functions of them are written out.
        if any(isinstance(x, Stored | Lazy) for x in inputs) or not self._is_called(called):
            return self.closed(called, inputs, waits=True)

        def trace(inner: "Interpreter", flat: Sequence[Operand]) -> list[Operand] | None:
            outputs = inner.closed(called, _unflatten(flat, [x.shape for x in inputs]))
            if any(isinstance(x, Stored) for x in outputs):
                return None
            return [y for x in outputs for y in x.reshape(-1)]

        types = [t for v, x in zip(e.invars, inputs, strict=True) for t in [type_of(v.aval)] * x.size]
        flat = self.call(called, [y for x in inputs for y in x.reshape(-1)], types, trace)
        if flat is None:
            return self.closed(called, inputs, waits=True)
        return _unflatten(flat, [v.aval.shape for v in e.outvars])

    def _is_called(self, function: Any) -> bool:
        return (
            not self.written_out and self.callees.calls(function) and weight(core_jaxpr(function)) >= CALLED
        )

    def call(
        self, function: Any, inputs: Sequence[Operand], types: Sequence[str], trace: Callable[..., Any]
    ) -> list[Operand] | None:
        """The outputs of a function by a call of a sub-program; None where it is to be written out."""
        # What is known is part of the sub-program, so that zeros vanish there as they do where it is written out.
        key = (
            function,
            tuple(
                (x.__class__, x) if is_number(x) else (Node, t) for x, t in zip(inputs, types, strict=True)
            ),
        )
        if key not in self.callees.known:
            self.callees.known[key] = self._subprogram(inputs, types, trace)
        callee = self.callees.known[key]
        return callee and self.b.call(callee, [x for x in inputs if isinstance(x, Node)])

    def _subprogram(
        self, inputs: Sequence[Operand], types: Sequence[str], trace: Callable[..., Any]
    ) -> Subprogram | None:
        build = self.b.another()
        flat = [
            x if is_number(x) else build.parameter(build.top, t) for x, t in zip(inputs, types, strict=True)
        ]
        outputs = trace(Interpreter(build, self.callees), flat)
        if outputs is None:
            return None
        callee = Subprogram(build.top, outputs)
        return callee if callee.size >= CALLED else None

    def _without_derivative(self, x: Value, t: str, reason: str) -> Value:
        """What a function gives whose rule for derivatives is not looked at."""
        if not is_float(t):
            return x
        refuse = lambda y: self.b.refuse(y, reason, False)
        return (
            self.tabulate(x.shape, t, lambda i: refuse(self.b.load(x.node, i)))
            if isinstance(x, Stored)
            else self.each(refuse, x)
        )

    def _is_of_entries(self, name: str) -> bool:
        """Whether an operation is one on each entry."""
        return name in _OF_ENTRIES or (name not in _RULES and _NAMES.get(name, name) in OPERATIONS)

    def _each_rule(self, e: Any, flat: list[Scalars]) -> Scalars:
        name = e.primitive.name
        if name in _RULES:
            return _RULES[name](self, e, flat)
        types = [type_of(v.aval) for v in e.invars]
        op: str = _NAMES.get(name) or name
        op = {"div": "quotient", "rem": "remainder"}.get(op, op) if is_integer(types[0]) else op
        t = types[-1] if op == "select" else types[0]
        return self.each(lambda *x: self.b.apply(op, t, *x), *flat)

    def _by_its_own_function(self, e: Any, inputs: list[Value]) -> list[Value]:
        """The outputs of an operation that others defined in terms of JAX's: Equinox, Lineax, Optimistix."""
        function = getattr(e.primitive, "impl", None)
        own = isinstance(function, functools.partial)  # JAX's own are partials
        if e.effects or function is None or own or e.primitive in self._opened:
            raise Untranslatable(f"'{e.primitive.name}' has no scalar code")
        for v in (*e.invars, *e.outvars):
            type_of(v.aval)
        shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in e.invars]
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            closed = jax.make_jaxpr(lambda *x: function(*x, **e.params))(*shapes)
        self._opened.append(e.primitive)
        outputs = self.closed(closed, inputs)
        self._opened.pop()
        return outputs

    def _with_rule(self, e: Any, inputs: list[Value], values: list[Value]) -> list[Value]:
        """The values of a function whose author gave its derivative, marked as such."""
        if all(map(is_known, inputs)):
            return values
        if sum(x.size for x in (*inputs, *values) if isinstance(x, Stored)) > MATERIALIZED:
            return [
                self._without_derivative(x, type_of(v.aval), _LONG_RULE)
                for x, v in zip(values, e.outvars, strict=True)
            ]
        values = list(map(self.scalars, values))
        given = {
            v: self.scalars(x)
            for v, x in zip(e.invars, inputs, strict=True)
            if not isinstance(v, core.Literal)
        }
        alone = core.Jaxpr((), [*given], e.outvars, [e], debug_info=self._debug_info)
        function = core.jaxpr_as_fun(core.ClosedJaxpr(alone, ()))
        rule = DerivativeRule(function, tuple(v.aval for v in given))
        flat = [x for array in given.values() for x in array.reshape(-1)]

        def marked(k: int, array: Any) -> Scalars:
            if not is_float(type_of(e.outvars[k].aval)):
                return array
            return filled(
                array.shape, [self.b.rule(x, rule, k, i, flat) for i, x in enumerate(array.reshape(-1))]
            )

        return [marked(k, x) for k, x in enumerate(values)]

    # --- loops and branches

    def _while(self, e: Any, inputs: list[Value]) -> list[Value]:
        p = e.params
        nc, nb = p["cond_nconsts"], p["body_nconsts"]
        condition_consts, body_consts, first = inputs[:nc], inputs[nc : nc + nb], inputs[nc + nb :]
        goes_on = lambda x: self.scalars(self.closed(p["cond_jaxpr"], [*condition_consts, *x])[0])[()]
        advance = lambda x: self.closed(p["body_jaxpr"], [*body_consts, *x])
        body = core_jaxpr(p["body_jaxpr"])
        fixed = [body.outvars[i] is v for i, v in enumerate(body.invars[nb:])]  # what no pass changes
        written = self._write_out(weight(body), first, goes_on, advance)
        return written or self._loop(
            first, [v.aval for v in e.outvars], fixed, goes_on, advance, {body, core_jaxpr(p["cond_jaxpr"])}
        )

    def _write_out(self, each: int, first: list[Value], goes_on: Any, advance: Any) -> list[Value] | None:
        """The passes of a loop one after the other, if their number is known and they are short once written out.

        How short is not known before: constants fold, as the zeros of a tableau do.
        """
        if each > _WRITTEN_OUT:
            return None
        state, most = first, self.b.count + _WRITTEN_OUT
        self._passes += 1
        try:
            for _ in range(_MOST_PASSES + 1):
                go = goes_on(state)
                if not is_number(go) or self.b.count > most:
                    return None
                if not go:
                    return state
                state = advance(state)
        finally:
            self._passes -= 1
        return None

    def _loop(
        self,
        first: list[Value],
        avals: Sequence[Any],
        fixed: Sequence[bool],
        goes_on: Any,
        advance: Any,
        within: set,
    ) -> list[Value]:
        """A loop as it is: large arrays and those indexed in it stay arrays, all else is carried as scalars."""
        indexed = set().union(*map(_indexed_shapes, within))
        flat: list[Operand] = []
        types: list[tuple[str, int | None]] = []
        plan: list[tuple[int, str, tuple[int, ...], bool] | None] = []
        for x, aval, same in zip(first, avals, fixed, strict=True):
            if same:
                plan.append(None)
                continue
            t = type_of(aval)
            as_array = (
                isinstance(x, Stored) or x.size > _CARRIED or (aval.shape in indexed and x.size > _SELECTED)
            )
            plan.append((len(flat), t, aval.shape, as_array))
            if as_array:
                flat.append(self.stored(x, t).node)
                types.append((t, max(aval.size, 1)))
            else:
                flat += self.scalars(x).reshape(-1).tolist()
                types += [(t, None)] * x.size

        def pack(values: Sequence[Operand]) -> list[Value]:
            packed: list[Value] = []
            for x, place in zip(first, plan, strict=True):
                if place is None:
                    packed.append(x)
                    continue
                start, _, shape, as_array = place
                if as_array:
                    packed.append(Stored(values[start], shape))  # pyright: ignore[reportArgumentType]
                else:
                    packed.append(filled(shape, list(values[start : start + math.prod(shape)])))
            return packed

        def unpack(values: Sequence[Value]) -> list[Operand]:
            unpacked: list[Operand] = []
            for x, place in zip(values, plan, strict=True):
                if place is None:
                    continue
                if place[3]:
                    unpacked.append(self.stored(x, place[1]).node)
                else:
                    unpacked += self.scalars(x).reshape(-1).tolist()
            return unpacked

        def step(carried: Sequence[Operand]) -> Any:
            state = pack(carried)
            return goes_on(state), lambda: unpack(advance(state))

        return pack(self.b.loop(flat, types, step))

    def _scan(self, e: Any, inputs: list[Value]) -> list[Value]:
        p = e.params
        length, fixed, kept = p["length"], p["num_consts"], p["num_carry"]
        consts, carry, columns = inputs[:fixed], inputs[fixed : fixed + kept], inputs[fixed + kept :]
        body, outs = core_jaxpr(p["jaxpr"]), [v.aval for v in e.outvars]
        index = lambda i: self.b.sub(length - 1, i, "int64") if p["reverse"] else i
        short = length * max(weight(body), 1) <= _SHORT and length <= _MOST_PASSES
        if short or (self.written_out and length <= _MOST_WRITTEN_OUT):
            rows_of = [self.scalars(x) for x in columns]
            collected: dict[int, list[Scalars]] = {}
            self._passes += 1
            for i in range(length)[:: -1 if p["reverse"] else 1]:
                rows = [shaped(x[i], x.shape[1:]) for x in rows_of]
                outputs = self.closed(p["jaxpr"], [*consts, *carry, *rows])
                carry, collected[i] = outputs[:kept], [self.scalars(x) for x in outputs[kept:]]
            self._passes -= 1
            if not length:
                return [*carry, *(constants(np.zeros(v.shape, v.dtype)) for v in outs[kept:])]
            return [*carry, *(np.stack(x) for x in zip(*(collected[i] for i in range(length)), strict=True))]
        rows_of = [
            self.stored(x, type_of(v.aval)) for x, v in zip(columns, e.invars[fixed + kept :], strict=True)
        ]
        saved = [
            Stored(self.b.fill(zero(type_of(v)), max(v.size, 1), type_of(v)), v.shape) for v in outs[kept:]
        ]
        counter = jax.ShapeDtypeStruct((), np.int64)

        def advance(state: list[Value]) -> list[Value]:
            i, buffers = self.scalars(state[0])[()], state[1 + kept :]
            rows: list[Value] = []
            for x in rows_of:
                size = math.prod(x.shape[1:])
                start = self.b.mul(index(i), size, "int64")
                rows.append(
                    filled(
                        x.shape[1:], [self.b.load(x.node, self.b.add(start, k, "int64")) for k in range(size)]
                    )
                )
            outputs = self.closed(p["jaxpr"], [*consts, *state[1 : 1 + kept], *rows])
            written: list[Value] = []
            for buffer, row in zip(buffers, outputs[kept:], strict=True):
                node, size = buffer.node, math.prod(buffer.shape[1:])  # pyright: ignore[reportAttributeAccessIssue]
                start = self.b.mul(index(i), size, "int64")
                for k, y in enumerate(self.scalars(row).reshape(-1)):
                    node = self.b.store(node, self.b.add(start, k, "int64"), y)
                written.append(Stored(node, buffer.shape))
            return [filled((), [self.b.add(i, 1, "int64")]), *outputs[:kept], *written]

        same = [body.outvars[k] is v for k, v in enumerate(body.invars[fixed : fixed + kept])]
        goes_on = lambda state: self.b.compare("lt", self.scalars(state[0])[()], length, "int64")
        first = [filled((), [0]), *carry, *saved]
        avals = [counter, *outs]
        return self._loop(first, avals, [False, *same, *[False] * len(saved)], goes_on, advance, {body})[1:]

    def _cond(self, e: Any, inputs: list[Value]) -> list[Value]:
        index, given, branches = self.scalars(inputs[0])[()], inputs[1:], e.params["branches"]
        if is_number(index):
            return self.closed(branches[min(max(int(index), 0), len(branches) - 1)], given)
        raising = [_raises(core_jaxpr(x)) for x in branches]
        if any(raising):
            return self._error(e, index, given, branches, raising)
        avals, given_avals = [v.aval for v in e.outvars], [v.aval for v in e.invars[1:]]
        return self._choose(index, branches, 0, given, given_avals, avals)

    def _choose(
        self,
        index: Operand,
        branches: Any,
        k: int,
        given: list[Value],
        given_avals: list[Any],
        avals: list[Any],
    ) -> list[Value]:
        """The outputs of branch `index`, which is not before branch k."""
        if k == len(branches) - 1:
            return self.closed(branches[k], given)
        here = self.b.compare("le", index, k, "int32")
        cheap = all(weight(core_jaxpr(x)) <= _BRANCHES for x in branches[k:])
        if cheap and not any(isinstance(x, Stored) or x.size > _CARRIED for x in given):
            yes = self.closed(branches[k], given)
            no = self._choose(index, branches, k + 1, given, given_avals, avals)
            if not any(isinstance(x, Stored) for x in (*yes, *no)):
                return [
                    self.each(lambda x, y, t=type_of(v): self.b.select(here, x, y, t), a, b)
                    for a, b, v in zip(yes, no, avals, strict=True)
                ]
        flat: list[Operand] = [index]
        types: list[tuple[str, int | None]] = [("int32", None)]
        plan: list[Any] = []
        for x, v in zip(given, given_avals, strict=True):
            t = type_of(v)
            if isinstance(x, Stored) or (x.size > _CARRIED and not is_known(x)):
                plan.append(len(flat))
                flat.append(self.stored(x, t).node)
                types.append((t, max(v.size, 1)))
            else:
                places = []
                for y in x.reshape(-1):
                    places.append(len(flat) if isinstance(y, Node) else None)
                    if isinstance(y, Node):
                        flat.append(y)
                        types.append((t, None))
                plan.append(places)
        kept = [isinstance(x, Stored) for x in given]
        outs = [(type_of(v), v.shape, v.size > _CARRIED or (any(kept) and v.size > _SELECTED)) for v in avals]

        def inside(params: Sequence[Operand]) -> list[Value]:
            return [
                Stored(params[place], v.shape)  # pyright: ignore[reportArgumentType]
                if isinstance(place, int)
                else filled(
                    v.shape,
                    [y if i is None else params[i] for y, i in zip(x.reshape(-1), place, strict=True)],
                )  # pyright: ignore[reportAttributeAccessIssue]
                for x, v, place in zip(given, given_avals, plan, strict=True)
            ]

        def flatten(values: list[Value]) -> list[Operand]:
            flat: list[Operand] = []
            for x, (t, _, as_array) in zip(values, outs, strict=True):
                flat += [self.stored(x, t).node] if as_array else self.scalars(x).reshape(-1).tolist()
            return flat

        sides = (
            lambda params: flatten(self.closed(branches[k], inside(params))),
            lambda params: flatten(
                self._choose(params[0], branches, k + 1, inside(params), given_avals, avals)
            ),
        )
        out_types = [
            x
            for t, shape, as_array in outs
            for x in ([(t, max(math.prod(shape), 1))] if as_array else [(t, None)] * math.prod(shape))
        ]
        results = iter(self.b.branch(here, flat, sides, out_types, types))
        return [
            Stored(next(results), shape)
            if as_array
            else filled(shape, [next(results) for _ in range(math.prod(shape))])
            for _, shape, as_array in outs
        ]

    def _error(
        self, e: Any, index: Operand, given: list[Value], branches: Any, raising: list[bool]
    ) -> list[Value]:
        """An error that Equinox would raise: its outputs become NaN there, as by Equinox's own `EQX_ON_ERROR=nan`."""
        if self.written_out:  # of a system, whose checks are to raise
            raise Untranslatable("a check that raises has no scalar code")
        passed = self.closed(branches[raising.index(False)], given)
        wrong: Operand = False
        for k, it in enumerate(raising):
            if it:
                wrong = self.b.either(wrong, self.b.compare("eq", index, k, "int32"), "bool")
        poisoned = []
        for x, v in zip(passed, e.outvars, strict=True):
            t = type_of(v.aval)
            mark = lambda y, t=t: self.b.select(wrong, math.nan, y, t)
            if not is_float(t):
                poisoned.append(x)
            elif isinstance(x, Stored):
                poisoned.append(self._poison(wrong, x, t))
            else:
                poisoned.append(self.each(mark, x))
        return poisoned

    def _poison(self, wrong: Operand, x: Stored, t: str) -> Stored:
        """An array in memory, filled with NaN where something is wrong, and not touched otherwise."""
        fill = lambda given: [self.tabulate(x.shape, t, lambda i: math.nan, into=(given[0], 0)).node]
        kind = (t, x.node.size)
        return Stored(self.b.branch(wrong, [x.node], (fill, list), [kind], [kind])[0], x.shape)

    # --- places that are not known

    def _flat_start(
        self, starts: Sequence[Operand], shape: Sequence[int], sizes: Sequence[int], t: str, mode: Any = None
    ) -> Operand:
        """Where a window begins in a flat array, moved to lie within it, unless `mode` promises that it does."""
        flat: Operand = 0
        for start, length, size in zip(starts, shape, sizes, strict=True):
            most = length - size
            if is_number(start):
                place: Operand = min(max(int(start), 0), most)
            elif most == 0:
                place = 0
            else:
                place = self.b.convert(start, t, "int64")
                if mode != lax.GatherScatterMode.PROMISE_IN_BOUNDS:
                    place = self.b.apply("min", "int64", self.b.apply("max", "int64", place, 0), most)
            flat = self.b.add(self.b.mul(flat, length, "int64"), place, "int64")
        return flat

    def _offsets(self, shape: Sequence[int], window: Sequence[int]) -> np.ndarray:
        """Of each entry of a window, how far from its first in a flat array."""
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        grids = np.indices(window).reshape(len(window), -1) if window else np.zeros((0, 1), int)
        return np.asarray(
            sum((s * g for s, g in zip(strides, grids, strict=True)), np.zeros(grids.shape[1], int))
        )

    def _read(self, x: Value, t: str, start: Operand, offsets: np.ndarray) -> list[Operand]:
        """Entries of an array from a place on."""
        if not isinstance(x, Stored) and x.size <= _SELECTED and not is_number(start):
            flat, most = x.reshape(-1), x.size - 1 - int(offsets.max(initial=0))
            read = []
            for offset in offsets:
                value = flat[int(offset)]
                for k in range(1, most + 1):
                    value = self.b.select(
                        self.b.compare("eq", start, k, "int64"), flat[k + int(offset)], value, t
                    )
                read.append(value)
            return read
        node = self.stored(x, t).node
        return [self.b.load(node, self.b.add(start, int(k), "int64")) for k in offsets]

    def _write(
        self, x: Value, t: str, start: Operand, offsets: np.ndarray, values: Sequence[Operand]
    ) -> Value:
        """The array with entries replaced from a place on."""
        if not isinstance(x, Stored) and (x.size <= _SELECTED or is_number(start)):
            flat, most = x.reshape(-1).copy(), x.size - 1 - int(offsets.max(initial=0))
            for offset, value in zip(offsets, values, strict=True):
                if is_number(start):
                    flat[int(start) + int(offset)] = value
                    continue
                for k in range(most + 1):
                    here = self.b.compare("eq", start, k, "int64")
                    flat[k + int(offset)] = self.b.select(here, value, flat[k + int(offset)], t)
            return flat.reshape(x.shape)
        stored = self.stored(x, t)
        node = stored.node
        for offset, value in zip(offsets, values, strict=True):
            node = self.b.store(node, self.b.add(start, int(offset), "int64"), value)
        return Stored(node, stored.shape)

    def _dynamic_slice(self, e: Any, inputs: list[Value]) -> Value:
        x, sizes, t = inputs[0], e.params["slice_sizes"], type_of(e.outvars[0].aval)
        starts = [self.scalars(s)[()] for s in inputs[1:]]
        if self.written_out and not self._passes:
            _require_within(starts, x.shape, sizes)
        if all(map(is_number, starts)) and not isinstance(x, Stored):
            return x[read_window(x, starts, sizes)]
        start = self._flat_start(starts, x.shape, sizes, type_of(e.invars[1].aval) if starts else "int64")
        offsets = self._offsets(x.shape, sizes)
        if isinstance(x, Stored) and offsets.size > LONG:
            place = self._place_in(offsets)
            read = lambda i: self.b.load(x.node, self.b.add(start, place(i), "int64"))
            return self.tabulate(tuple(sizes), t, read)
        return filled(sizes, self._read(x, t, start, offsets))

    def _place_in(self, offsets: np.ndarray) -> Callable[[Operand], Operand]:
        """The offset of an entry of a window, by its number, which a loop counts."""
        if np.array_equal(offsets, np.arange(offsets.size)):
            return lambda i: i
        table = self.b.pack(offsets.tolist(), "int64")
        return lambda i: self.b.load(table, i)

    def _long_in_memory(self, x: Value, t: str) -> Value:
        """An array that is to be changed: of many entries in memory, so that the others are not written out."""
        return self.stored(x, t) if x.size > LONG and not self.written_out else x

    def _dynamic_update_slice(self, e: Any, inputs: list[Value]) -> Value:
        if e.invars[1].aval.shape == e.outvars[0].aval.shape:  # a start is moved so that the update fits
            return inputs[1]
        t, update = type_of(e.outvars[0].aval), inputs[1]
        x = self._long_in_memory(inputs[0], t)
        starts = [self.scalars(s)[()] for s in inputs[2:]]
        start = self._flat_start(
            starts, x.shape, update.shape, type_of(e.invars[2].aval) if starts else "int64"
        )
        offsets = self._offsets(x.shape, update.shape)
        if isinstance(update, Stored) and offsets.size > LONG:
            return self._write_long(self.stored(x, t), t, start, offsets, update)
        return self._write(x, t, start, offsets, self.scalars(update).reshape(-1).tolist())

    def _write_long(self, x: Stored, t: str, start: Operand, offsets: np.ndarray, update: Stored) -> Stored:
        """The array with a window replaced by an array in memory, as a loop."""
        place = self._place_in(offsets)

        def step(carried: Sequence[Any]) -> Any:
            i, array = carried
            at = lambda: self.b.add(start, place(i), "int64")
            write = lambda: [
                self.b.add(i, 1, "int64"),
                self.b.store(array, at(), self.b.load(update.node, i)),
            ]
            return self.b.compare("lt", i, update.size, "int64"), write

        return Stored(self.b.loop([0, x.node], [("int64", None), (t, x.node.size)], step)[1], x.shape)

    def _gather(self, e: Any, inputs: list[Value]) -> Value:
        x, places = inputs[0], self.scalars(inputs[1])
        p, t = e.params, type_of(e.outvars[0].aval)
        fill = p["fill_value"]
        if fill is None:
            fill = (
                math.nan
                if is_float(t)
                else np.iinfo(t).min
                if t[0] == "i"
                else np.iinfo(t).max
                if is_integer(t)
                else True
            )
        if is_known(places):
            counted = np.arange(x.size).reshape(x.shape)
            found = gather_entries([counted], [np.asarray(places.tolist(), int).reshape(places.shape)], p)
            if isinstance(x, Stored):
                read = lambda i: fill if i < 0 else self.b.load(x.node, int(i))
            else:
                flat = x.reshape(-1)
                read = lambda i: fill if i < 0 else flat[int(i)]
            return filled(found.shape, [read(i) for i in found.reshape(-1)])
        dims, sizes = p["dimension_numbers"], p["slice_sizes"]
        index_type, batch = type_of(e.invars[1].aval), places.shape[:-1]
        offsets = self._offsets(x.shape, sizes)
        out = np.empty((*batch, len(offsets)), object)
        drops = p["mode"] == lax.GatherScatterMode.FILL_OR_DROP
        for at in np.ndindex(batch):
            starts = self._starts(
                at,
                places[at],
                dims.start_index_map,
                dims.operand_batching_dims,
                dims.start_indices_batching_dims,
                x.ndim,
            )
            start = self._flat_start(starts, x.shape, sizes, index_type, p["mode"])
            read = self._read(x, t, start, offsets)
            if drops:
                inside = self._inside(starts, x.shape, sizes, index_type)
                read = [self.b.select(inside, y, fill, t) for y in read]
            out[at] = filled((len(read),), read)
        dropped = (*dims.collapsed_slice_dims, *dims.operand_batching_dims)
        found = out.reshape(*batch, *sizes).squeeze(tuple(len(batch) + i for i in dropped))
        return np.moveaxis(found, range(len(batch), found.ndim), dims.offset_dims)

    def _starts(
        self, at: tuple[int, ...], place: Scalars, axes: Any, batching: Any, along: Any, ndim: int
    ) -> list[Operand]:
        starts: list[Operand] = [0] * ndim
        for axis, start in zip(axes, place, strict=True):
            starts[axis] = start
        for axis, k in zip(batching, along, strict=True):
            starts[axis] = at[k]
        return starts

    def _inside(
        self, starts: Sequence[Operand], shape: Sequence[int], sizes: Sequence[int], t: str
    ) -> Operand:
        """Whether a window lies within an array."""
        inside: Operand = True
        for start, length, size in zip(starts, shape, sizes, strict=True):
            if is_number(start):
                inside = self.b.both(inside, 0 <= int(start) <= length - size, "bool")
            else:
                inside = self.b.both(inside, self.b.compare("ge", start, 0, t), "bool")
                inside = self.b.both(inside, self.b.compare("le", start, length - size, t), "bool")
        return inside

    def _scatter(self, e: Any, inputs: list[Value]) -> Value:
        p, t, adds = e.params, type_of(e.outvars[0].aval), e.primitive.name != "scatter"
        x, places, updates = (
            self._long_in_memory(inputs[0], t),
            self.scalars(inputs[1]),
            self.scalars(inputs[2]),
        )
        dims = p["dimension_numbers"]
        alone = {*dims.inserted_window_dims, *dims.operand_batching_dims}
        windows = iter(updates.shape[i] for i in dims.update_window_dims)
        sizes = tuple(1 if i in alone else next(windows) for i in range(x.ndim))
        batch = places.shape[:-1]
        updates = (
            np.moveaxis(updates, dims.update_window_dims, range(len(batch), updates.ndim))
            if dims.update_window_dims
            else updates
        )
        updates = updates.reshape(*batch, -1)
        offsets, index_type = self._offsets(x.shape, sizes), type_of(e.invars[1].aval)
        modes = lax.GatherScatterMode
        inside_already = p["mode"] in (modes.CLIP, modes.PROMISE_IN_BOUNDS)
        value: Value = x
        for at in np.ndindex(batch):
            starts = self._starts(
                at,
                places[at],
                dims.scatter_dims_to_operand_dims,
                dims.operand_batching_dims,
                dims.scatter_indices_batching_dims,
                x.ndim,
            )
            inside = True if inside_already else self._inside(starts, x.shape, sizes, index_type)
            if inside is False:
                continue
            start = self._flat_start(starts, x.shape, sizes, index_type, p["mode"])
            row = updates[at].tolist()
            if adds or inside is not True:
                old = self._read(value, t, start, offsets)
                row = [self.b.add(y, z, t) for y, z in zip(old, row, strict=True)] if adds else row
                row = [self.b.select(inside, z, y, t) for y, z in zip(old, row, strict=True)]
            value = self._write(value, t, start, offsets, row)
        return value

    # --- reductions, products, conversions

    def _reduce(self, fold: Callable[[list[Operand]], Operand], x: Scalars, axes: Sequence[int]) -> Scalars:
        kept = [i for i in range(x.ndim) if i not in axes]
        shape, count = tuple(x.shape[i] for i in kept), math.prod(x.shape[i] for i in axes)
        rows = np.transpose(x, [*kept, *axes]).reshape(math.prod(shape), count)
        return filled(shape, [fold(list(row)) for row in rows])

    def _reduction(self, e: Any, inputs: list[Scalars]) -> Scalars:
        op, t = _REDUCTIONS[e.primitive.name], type_of(e.invars[0].aval)
        axes = e.params.get("axes", range(inputs[0].ndim))
        if op == "add":
            return self._reduce(lambda row: self.b.total(row, t), inputs[0], axes)
        none = _of_none(op, t)
        one_by_one = lambda row: (
            functools.reduce(lambda x, y: self.b.apply(op, t, x, y), row) if row else none
        )
        return self._reduce(one_by_one, inputs[0], axes)

    def _place_of_most(self, e: Any, inputs: list[Scalars]) -> Scalars:
        better, t = {"argmax": "gt", "argmin": "lt"}[e.primitive.name], type_of(e.invars[0].aval)
        if t == "bool":
            inputs, t = [self.each(lambda x: self.b.convert(x, "bool", "int32"), inputs[0])], "int32"
        out = type_of(e.outvars[0].aval)

        def place(row: list[Operand]) -> Operand:
            found, best = 0, row[0]
            for i, x in enumerate(row[1:], 1):
                taken = self.b.compare(better, x, best, t)
                if is_float(t):
                    taken = self.b.both(
                        self.b.compare("eq", best, best, t),
                        self.b.either(taken, self.b.compare("ne", x, x, t), "bool"),
                        "bool",
                    )
                found, best = self.b.select(taken, i, found, out), self.b.select(taken, x, best, t)
            return found

        return self._reduce(place, inputs[0], e.params["axes"])

    def _cumulative(self, e: Any, inputs: list[Scalars]) -> Scalars:
        op, t = _CUMULATIVE[e.primitive.name], type_of(e.outvars[0].aval)
        x = np.moveaxis(inputs[0], e.params["axis"], -1)
        x = x[..., ::-1] if e.params["reverse"] else x
        columns = [x[..., :1]]
        for i in range(1, x.shape[-1]):
            columns.append(self.each(lambda a, b: self.b.apply(op, t, a, b), columns[-1], x[..., i : i + 1]))
        out = np.concatenate(columns[::-1] if e.params["reverse"] else columns, axis=-1)
        return np.moveaxis(out, -1, e.params["axis"])

    def _dot_general(self, e: Any, inputs: list[Scalars]) -> Scalars:
        (contract_x, contract_y), (batch_x, batch_y) = e.params["dimension_numbers"]
        t = type_of(e.outvars[0].aval)

        def arranged(x: Scalars, batch: Any, contract: Any) -> tuple[Scalars, list[int]]:
            free = [i for i in range(x.ndim) if i not in (*batch, *contract)]
            count = [math.prod(x.shape[i] for i in axes) for axes in (batch, free, contract)]
            return np.transpose(x, [*batch, *free, *contract]).reshape(count), [x.shape[i] for i in free]

        x, free_x = arranged(inputs[0], batch_x, contract_x)
        y, free_y = arranged(inputs[1], batch_y, contract_y)
        flat: list[Operand] = []
        for xs, ys in zip(x, y, strict=True):
            self._require_small(xs)
            self._require_small(ys)
            flat += itertools.chain.from_iterable(self._product(xs, ys, t))
        return filled((*(inputs[0].shape[i] for i in batch_x), *free_x, *free_y), flat)

    def _require_small(self, matrix: Scalars) -> None:
        if not self._parameters or min(matrix.shape) < 2 or matrix.size <= _LARGEST_MATRIX:
            return
        given = self.b.top.params[: self._parameters]
        is_parameter = lambda x: isinstance(x, Node) and x.op == "parameter" and x.data < len(given)
        if sum(is_parameter(x) and x.region is self.b.top for x in matrix.flat) > _LARGEST_MATRIX:
            shape = " x ".join(map(str, matrix.shape))
            raise LargeProductError(f"products with a {shape} matrix of parameters are better left to arrays")

    def _product_by_loop(self, e: Any, inputs: list[Value]) -> Value | None:
        """A product with a long array in memory as a loop over what is summed; None where it is no such simple one."""
        (contract_x, contract_y), (batch, _) = e.params["dimension_numbers"]
        t, out = type_of(e.outvars[0].aval), e.outvars[0].aval
        if batch or len(contract_x) != 1:
            return None
        if out.size > LONG:
            return self._matrix_product(inputs, contract_x[0], contract_y[0], out.shape, t)

        def entries(x: Value, axis: int) -> tuple[Stored, list[int], int]:
            """An array in memory, where in it the sums begin, and how far it is to the next summand."""
            x = x if isinstance(x, Lazy) and x.entry is None else self.lazy(self.settled(x), t)
            source = x.sources[0]
            places = np.moveaxis(_places(x.shape, source), axis, -1).reshape(-1, x.shape[axis])
            if source.node is None:
                return self.stored(self.settled(x), t), *entries_of_whole(x.shape, axis)
            return Stored(source.node, x.shape), places[:, 0].tolist(), source.steps[axis]

        def entries_of_whole(shape: Sequence[int], axis: int) -> tuple[list[int], int]:
            places = np.moveaxis(np.arange(math.prod(shape)).reshape(shape), axis, -1).reshape(
                -1, shape[axis]
            )
            return places[:, 0].tolist(), math.prod(shape[axis + 1 :])

        (x, xs, step_x), (y, ys, step_y) = map(entries, inputs, (contract_x[0], contract_y[0]))

        def step(carried: Sequence[Any]) -> Any:
            k, *sums = carried

            def add() -> list[Operand]:
                read = lambda of, starts, step: [
                    self.b.load(of.node, self.b.add(self.b.mul(k, step, "int64"), i, "int64")) for i in starts
                ]
                pairs = itertools.product(read(x, xs, step_x), read(y, ys, step_y))
                more = [self.b.add(z, self.b.mul(*pair, t), t) for z, pair in zip(sums, pairs, strict=True)]
                return [self.b.add(k, 1, "int64"), *more]

            return self.b.compare("lt", k, inputs[0].shape[contract_x[0]], "int64"), add

        sums = self.b.loop([0, *[zero(t)] * out.size], [("int64", None), *[(t, None)] * out.size], step)[1:]
        return filled(out.shape, list(sums))

    def _matrix_product(
        self, inputs: list[Value], of_x: int, of_y: int, shape: Sequence[int], t: str
    ) -> Value | None:
        """A product of arrays in memory as loops over its entries, each a sum that is written out."""
        if inputs[0].shape[of_x] > LONG:
            return None
        x, y = (
            z if z.entry is None else self.lazy(self.settled(z), t) for z in (self.lazy(z, t) for z in inputs)
        )
        free_x, free_y = ([i for i in range(z.ndim) if i != axis] for z, axis in ((x, of_x), (y, of_y)))

        def parts(z: Lazy, axis: int, free: list[int], before: int, after: int) -> list[Lazy]:
            found = [self._summand(z, [axis], free, [k]) for k in range(z.shape[axis])]
            wide = lambda source: source._replace(steps=(*[0] * before, *source.steps, *[0] * after))
            return [
                part._replace(shape=tuple(shape), sources=tuple(map(wide, part.sources))) for part in found
            ]

        rows = parts(x, of_x, free_x, 0, len(free_y))
        columns = parts(y, of_y, free_y, len(free_x), 0)

        def total(row: list[Operand]) -> Operand:
            pairs = zip(row[: len(rows)], row[len(rows) :], strict=True)
            return self.b.total([self.b.mul(*pair, t) for pair in pairs], t)

        return self._folded([*rows, *columns], shape, t, total)

    def _product(self, xs: Scalars, ys: Scalars, t: str) -> list[list[Operand]]:
        """The products of rows with rows; only what is structurally zero in neither is looked at."""
        entries = lambda row: {k: v for k, v in enumerate(row) if v.__class__ is Node or v != 0}
        columns: dict[int, dict[int, Operand]] = {}
        for j, row in enumerate(ys):
            for k, v in entries(row).items():
                columns.setdefault(k, {})[j] = v
        product = []
        for row in xs:
            pairs: dict[int, list[Operand]] = {}
            for k, v in entries(row).items():
                for j, w in columns.get(k, {}).items():
                    pairs.setdefault(j, []).append(self.b.mul(v, w, t))
            product.append([self.b.total(pairs[j], t) if j in pairs else zero(t) for j in range(len(ys))])
        return product

    def _select_n(self, e: Any, inputs: list[Scalars]) -> Scalars:
        which, *cases = inputs
        t, kind = type_of(e.outvars[0].aval), type_of(e.invars[0].aval)
        if kind == "bool":
            no, yes = cases
            return self.each(
                lambda p, x, y: self.b.select(p, x, y, t), np.broadcast_to(which, yes.shape), yes, no
            )

        def choose(p: Operand, *x: Operand) -> Operand:
            value = x[-1]
            for k in range(len(x) - 2, -1, -1):
                value = self.b.select(self.b.compare("le", p, k, kind), x[k], value, t)
            return value

        return self.each(choose, np.broadcast_to(which, cases[0].shape), *cases)

    def _convert(self, e: Any, inputs: list[Scalars]) -> Scalars:
        source, target = type_of(e.invars[0].aval), type_of(e.outvars[0].aval)
        return (
            self.each(lambda x: self.b.convert(x, source, target), inputs[0])
            if source != target
            else inputs[0]
        )

    def _next_after(self, e: Any, inputs: list[Scalars]) -> Scalars:
        """By S. M. Rump et al., "Computing predecessor and successor in rounding to nearest", BIT 49, 2009."""
        b, t = self.b, type_of(e.outvars[0].aval)
        info = np.finfo(t)
        unit, most, least = float(info.eps) / 2, float(info.max), float(info.tiny)

        def after(x: Operand, y: Operand) -> Operand:
            if is_number(x) and is_number(y):
                return np.nextafter(np.dtype(t).type(x), np.dtype(t).type(y)).item()
            size = b.apply("min", t, b.apply("abs", t, x), most)
            step = b.apply("max", t, b.mul(unit * (1 + 2 * unit), size, t), least)
            up = b.apply("max", t, b.add(x, step, t), -most)
            down = b.apply("min", t, b.sub(x, step, t), most)
            back = b.select(b.compare("gt", x, y, t), down, b.add(x, y, t), t)
            other = b.select(b.compare("eq", x, y, t), y, back, t)
            return b.select(b.compare("lt", x, y, t), up, other, t)

        return self.each(after, *inputs)

    def _pad(self, e: Any, inputs: list[Scalars]) -> Scalars:
        x, fill = inputs
        places = pad_entries([np.arange(x.size).reshape(x.shape), np.asarray(x.size)], [], e.params)
        flat = [*x.reshape(-1), fill[()]]
        return filled(places.shape, [flat[int(i)] for i in places.reshape(-1)])

    def _clamp(self, e: Any, inputs: list[Scalars]) -> Scalars:
        t = type_of(e.outvars[0].aval)
        low, x, high = inputs
        return self.each(
            lambda least, y, most: self.b.apply("min", t, self.b.apply("max", t, y, least), most),
            *np.broadcast_arrays(low, x, high),
        )

    def _integer_pow(self, e: Any, inputs: list[Scalars]) -> Scalars:
        t = type_of(e.outvars[0].aval)
        return self.each(lambda x: self.b.power(x, e.params["y"], t), inputs[0])

    def _composed(self, e: Any, inputs: list[Scalars]) -> Scalars:
        t = type_of(e.outvars[0].aval)
        return self.each(lambda *x: COMPOSED[e.primitive.name](self.b, t, *x), *inputs)

    def _round(self, e: Any, inputs: list[Scalars]) -> Scalars:
        b, t = self.b, type_of(e.outvars[0].aval)
        if e.params["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN:
            return self.each(lambda x: b.apply("round", t, x), inputs[0])
        away = lambda x: b.mul(
            b.apply("sign", t, x), b.apply("floor", t, b.add(b.apply("abs", t, x), 0.5, t)), t
        )
        return self.each(away, inputs[0])

    def _bitcast(self, e: Any, inputs: list[Scalars]) -> Scalars:
        source, target = type_of(e.invars[0].aval), type_of(e.outvars[0].aval)
        if np.dtype(source).itemsize != np.dtype(target).itemsize:
            raise Untranslatable(f"a bit cast from {source} to {target} has no scalar code")
        known = lambda x: np.dtype(source).type(x).view(target).item()
        return self.each(
            lambda x: known(x) if is_number(x) else self.b.node("bitcast", target, x, data=source), inputs[0]
        )

    def _total_order(self, e: Any, inputs: list[Scalars]) -> Scalars:
        b, t = self.b, type_of(e.invars[0].aval)
        strict = e.primitive.name == "lt_to"

        def less(x: Operand, y: Operand) -> Operand:
            found = b.compare("lt", x, y, t)
            if not is_float(t):
                return found
            last = b.both(b.compare("eq", x, x, t), b.compare("ne", y, y, t), "bool")
            return b.either(last, found, "bool")

        return self.each(less if strict else lambda x, y: b.invert(less(y, x), "bool"), *inputs)


class Callees:
    """Which functions a program calls, and what sub-programs they became.

    - `known`: sub-programs, by function and known inputs; None of those that are written out.
    """

    def __init__(self):
        self.known = dict[Any, Subprogram | None]()
        self._uses = dict[Any, int]()
        self._repeats = dict[Any, bool]()  # whether a function has loops

    def count(self, jaxpr: Any) -> bool:
        """Counts the uses of functions in a jaxpr, each of which is looked into once; whether it has loops."""
        repeats = False
        for e in jaxpr.eqns:
            repeats |= e.primitive.name in ("while", "scan")
            for inner in _jaxprs(e.params):
                if self._use(inner) == 1:
                    self._repeats[inner] = self.count(core_jaxpr(inner))
                repeats |= self._repeats[inner]
            if e.primitive.name == "scalars":
                repeats |= e.params["program"].repeats
        return repeats

    def _use(self, function: Any) -> int:
        self._uses[function] = self._uses.get(function, 0) + 1
        return self._uses[function]

    def calls(self, function: Any) -> bool:
        """Whether a function is to be a sub-program, if it is large enough."""
        # Also what is used once: LLVM takes less time for two functions than for one of both, and finds better code, and
        # derivatives use it more than once. But reverse mode runs a sub-program again, so what repeats is to be worth it.
        least = 2 if self._repeats.get(function) else 1
        return self._uses.get(function, 0) >= least


def _spreads(e: Any, inputs: Sequence[Value]) -> bool:
    """Whether an operation makes many entries of few that repeat and are all unknown: there are no zeros to spare."""
    out = e.outvars[0].aval
    if out.size <= LONG:
        return False
    whole = False
    for x in inputs:
        if isinstance(x, Stored | Lazy) or x.size == 1 or not any(x.strides):
            continue
        own = x[tuple(slice(None) if k else slice(1) for k in x.strides)]
        if own.size == out.size or not all(y.__class__ is Node for y in own.flat):
            return False
        whole = True
    return whole


def _unflatten(flat: Sequence[Operand], shapes: Sequence[tuple[int, ...]]) -> list[Scalars]:
    """Arrays of these shapes, with the operands of a list one after the other."""
    rest = iter(flat)
    return [filled(shape, list(itertools.islice(rest, math.prod(shape)))) for shape in shapes]


def live_equations(jaxpr: Any, of: Sequence[Any]) -> list[Any]:
    """The equations that some variables need, or that have effects."""
    needed, kept = {v for v in of if not isinstance(v, core.Literal)}, []
    for e in reversed(jaxpr.eqns):
        if e.effects or any(v in needed for v in e.outvars):
            kept.append(e)
            needed.update(v for v in e.invars if not isinstance(v, core.Literal))
    return kept[::-1]


def _require_within(starts: Sequence[Operand], shape: Sequence[int], sizes: Sequence[int]) -> None:
    """Raises `InputError` for an index that is known and lies outside: JAX would take the entry next to it."""
    for start, length, size in zip(starts, shape, sizes, strict=True):
        if size == 1 and is_number(start) and not 0 <= (place := int(start)) < length:
            where = place - length if place < 0 else place
            raise InputError(
                f"a function of the system reads entry {where} of an axis of {length}: indices must lie between "
                f"{-length} and {length - 1}. (JAX takes the last or first entry in its place.)"
            )


@_remembered
def _indexed_shapes(jaxpr: Any) -> set[tuple[int, ...]]:
    """The shapes of arrays that a jaxpr indexes at places it does not know."""
    shapes: set[tuple[int, ...]] = set()
    for e in jaxpr.eqns:
        name = e.primitive.name
        places = (
            e.invars[1:]
            if name in ("dynamic_slice", "gather")
            else e.invars[2:]
            if name == "dynamic_update_slice"
            else e.invars[1:2]
        )
        if name in ("dynamic_slice", "gather", "dynamic_update_slice", "scatter", "scatter-add") and not all(
            isinstance(x, core.Literal) for x in places
        ):
            shapes.add(e.invars[0].aval.shape)
        if name == "maybe_set":
            shapes.add(e.invars[1].aval.shape)
        for inner in _jaxprs(e.params):
            shapes |= _indexed_shapes(core_jaxpr(inner))
    return shapes


def _calls_back(jaxpr: Any) -> bool:
    """Whether something in a jaxpr calls Python, as checks that raise do."""
    return any(
        e.effects or e.primitive.name == "pure_callback" or any(map(_calls_back, _jaxprs(e.params)))
        for e in core_jaxpr(jaxpr).eqns
    )


def _raises(jaxpr: Any) -> bool:
    """Whether a branch does nothing but raise, as `equinox.error_if` has it."""
    return any(
        e.primitive.name == "pure_callback" and "_error.<locals>" in str(e.params.get("callback"))
        for e in jaxpr.eqns
    )


def _of_none(op: str, t: str) -> Operand:
    """What a reduction gives of no numbers."""
    if op in ("and", "or"):
        return (op == "and") if t == "bool" else convert_number(-1 if op == "and" else 0, t)
    if op == "mul":
        return convert_number(1, t)
    if t == "bool":
        return op == "min"
    if is_float(t):
        return -math.inf if op == "max" else math.inf
    return int(np.iinfo(t).min if op == "max" else np.iinfo(t).max)


_INLINED = frozenset(
    (
        "jit",
        "pjit",
        "closed_call",
        "core_call",
        "remat",
        "remat2",
        "checkpoint",
        "custom_lin",
    )
)
_LONG_RULE = f"a rule for derivatives (jax.custom_jvp) of arrays of more than {MATERIALIZED:,} entries has no scalar code"
_CUSTOM_VJP = "rules by jax.custom_vjp are not looked at (of Diffrax's adjoints, ForwardMode() has none)"
CONTROL: dict[str, Callable[..., list[Value]]] = {
    "while": Interpreter._while,
    "scan": Interpreter._scan,
    "cond": Interpreter._cond,
}
_EVALUATED = frozenset(("while", "scan", *REPLACED))
"""What JAX does with numbers that are known."""
_INDEXED: dict[str, Callable[..., Value]] = {
    "dynamic_slice": Interpreter._dynamic_slice,
    "dynamic_update_slice": Interpreter._dynamic_update_slice,
    "gather": Interpreter._gather,
    **dict.fromkeys(("scatter", "scatter-add", "scatter_add"), Interpreter._scatter),
}
# Passed on as they are: members of a batch that have ended are masked by the loop itself, so Equinox's need not be.
_PASSED = {
    "select_if_vmap": 1,
    **dict.fromkeys(
        ("nonbatchable", "copy", "copy_p", "reduce_precision", "device_put", "sharding_constraint", "pvary"),
        0,
    ),
}
_REFUSED = frozenset(("nondifferentiable", "nondifferentiable_backward", "not_differentiable"))
_NAMES = {"add_any": "add"}
_REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "mul",
    "reduce_and": "and",
    "reduce_or": "or",
    "unvmap_max": "max",
    "unvmap_all": "and",
    "unvmap_any": "or",  # of Equinox, over all entries
}
_CUMULATIVE = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}
COMPOSED: dict[str, Callable[..., Operand]] = {
    "square": lambda b, t, x: b.mul(x, x, t),
    "rsqrt": lambda b, t, x: b.div(1.0, b.apply("sqrt", t, x), t),
    "logistic": lambda b, t, x: b.div(1.0, b.add(1.0, b.apply("exp", t, b.neg(x, t)), t), t),
}
_RULES: dict[str, Callable[..., Scalars]] = {
    "select_n": Interpreter._select_n,
    "convert_element_type": Interpreter._convert,
    "nextafter": Interpreter._next_after,
    "clamp": Interpreter._clamp,
    "pad": Interpreter._pad,
    "integer_pow": Interpreter._integer_pow,
    "dot_general": Interpreter._dot_general,
    "round": Interpreter._round,
    "bitcast_convert_type": Interpreter._bitcast,
    **dict.fromkeys(COMPOSED, Interpreter._composed),
    **dict.fromkeys(("argmax", "argmin"), Interpreter._place_of_most),
    **dict.fromkeys(("lt_to", "le_to"), Interpreter._total_order),
    **dict.fromkeys(_REDUCTIONS, Interpreter._reduction),
    **dict.fromkeys(_CUMULATIVE, Interpreter._cumulative),
}


def _platform(interpreter: Interpreter, e: Any, inputs: list[Scalars]) -> Scalars:
    """Which of several ways JAX takes: that of a CPU, or the default."""
    ways = e.params["platforms"]
    default = next((k for k, names in enumerate(ways) if names is None), 0)
    return constants(np.int32(next((k for k, names in enumerate(ways) if names and "cpu" in names), default)))


def empty(aval: Any) -> Scalars:
    """An array whose entries nobody reads, as zeros."""
    return constants(np.broadcast_to(np.zeros((), aval.dtype), aval.shape))


_OF_ENTRIES = frozenset(
    (
        *COMPOSED,
        "select_n",
        "convert_element_type",
        "nextafter",
        "clamp",
        "integer_pow",
        "round",
        "lt_to",
        "le_to",
    )
)
_RULES["platform_index"] = _platform
for _name in ("empty", "empty2"):
    _RULES[_name] = lambda interpreter, e, inputs: empty(e.outvars[0].aval)
