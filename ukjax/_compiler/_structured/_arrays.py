"""Arrays of scalars, and arrays in memory: what a value of a jaxpr is while it is interpreted.

A small array is a NumPy array of operands. One in memory is `StoredArray`; what is computed of such arrays entry by entry
may be `Lazy`: it is computed where it is read, so that many operations are one loop.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..._misc._errors import Untranslatable
from ._builder import Builder
from ._jaxprs import type_of
from ._moves import MOVES, Scalars, fill_array
from ._nodes import Node, Operand, is_number, is_same

LONG = 64
"""Entries of an array in memory above which an operation on it is a loop."""
CARRIED = 40
"""Entries above which what a loop carries stays an array."""
MATERIALIZED = 2_000
"""Entries of an array that become scalars; a larger one can only be indexed."""
_AWAITED = 1024  # entries of an array in memory up to which what is computed of it may be computed later
SOURCES = 8  # arrays that such an array may be computed of


class StoredArray(NamedTuple):
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


class StridedArray(NamedTuple):
    """Entries of an array in memory at even distances along each axis, or one number at all places.

    - `node`: the array; None for a number, which is `value`.
    - `first`, `steps`: the first place, and how far it is to the next along each axis: 0 where entries are repeated.
    """

    node: Node | None
    value: Operand
    first: int
    steps: tuple[int, ...]


def places_of(shape: Sequence[int], x: StridedArray) -> np.ndarray:
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


class Lazy(NamedTuple):
    """An array that is computed where it is read, so that what is done to each entry is one loop.

    - `shape`, `type`: of it.
    - `sources`: arrays of that shape in memory.
    - `entry`: an entry from those of the sources at its place; None for the source itself.
    """

    shape: tuple[int, ...]
    type: str
    sources: tuple[StridedArray, ...]
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
            places = move(places_of(self.shape, x))
            steps, shape = _even_steps(places), places.shape
            if steps is None:
                return None
            sources.append(x._replace(first=int(places.flat[0]), steps=steps))
        return Lazy(shape, self.type, tuple(sources), self.entry)


Value = Any
"""An array of scalars, or one in memory. Type checkers cannot follow which of the two."""


# --- arrays of scalars ------------------------------------------------------------------------------------------------


def as_object_array(x: Any, shape: tuple[int, ...]) -> Scalars:
    """x as an array: NumPy hands out bare objects where a result has no axes."""
    if not isinstance(x, np.ndarray):
        return fill_array((), [x])
    return x if x.shape == shape else np.broadcast_to(x, shape)


def constants(values: Any) -> Scalars:
    """Numbers as an array of operands."""
    array = np.asarray(values)
    if array.size > 1 and not any(array.strides):
        return np.broadcast_to(fill_array((), [array.flat[0].item()]), array.shape)
    return fill_array(array.shape, array.reshape(-1).tolist())


def is_known(x: Value) -> bool:
    """Whether all entries are numbers."""
    if isinstance(x, StoredArray | Lazy):
        return False
    if x.size > 1 and not any(x.strides):
        return is_number(x.flat[0])
    return all(y.__class__ is not Node for y in x.flat)


_ARE_SAME: Any = np.frompyfunc(is_same, 2, 1)


def without_repeats(x: Scalars) -> Scalars:
    """An array without the axes along which its entries repeat: of each of these the first place."""
    own = _without_strides_of_zero(x)

    def repeats(axis: int, size: int) -> bool:
        place = lambda k: own.take([k], axis)
        return size > 1 and all(np.all(_ARE_SAME(place(0), place(k))) for k in range(1, size))

    return own[(..., *(slice(1) if repeats(*x) else slice(None) for x in enumerate(own.shape)))]


def _without_strides_of_zero(x: Scalars) -> Scalars:
    return x if all(x.strides) else x[(..., *(slice(None) if k else slice(1) for k in x.strides))]


def map_entries(function: Callable[..., Operand], *arrays: Scalars) -> Scalars:
    """A function of scalars, of each entry."""
    shapes = {x.shape for x in arrays}
    shape = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)
    if not shape and any(x[()].__class__ is Node for x in arrays):  # most are single numbers
        return fill_array((), [function(*[x[()] for x in arrays])])
    apply: Any = np.frompyfunc(function, len(arrays), 1)
    with np.errstate(all="ignore"):  # NumPy would warn of constants that are infinite or no number
        return as_object_array(apply(*map(_without_strides_of_zero, arrays)), shape)


# --- reading, writing -------------------------------------------------------------------------------------------------


def read_entry(b: Builder, x: Value, i: int) -> Operand:
    """One entry of an array."""
    if isinstance(x, Lazy):
        at = np.unravel_index(i, x.shape)
        place = lambda y: y.first + sum(int(k) * n for k, n in zip(at, y.steps, strict=True))
        values = [y.value if y.node is None else b.load(y.node, place(y)) for y in x.sources]
        return x.entry(values) if x.entry else values[0]
    return b.load(x.node, i) if isinstance(x, StoredArray) else x.reshape(-1)[i]


def entry_along(b: Builder, x: Lazy, i: Operand) -> Operand:
    """The entry of an array with one axis at a place that is not known."""
    values = [y.value if y.node is None else b.load(y.node, i * y.steps[0] + y.first) for y in x.sources]
    return x.entry(values) if x.entry else values[0]


def write_entries(b: Builder, x: Lazy, target: StridedArray) -> Node:
    """An array in memory with entries of another, by loops along its axes; of a few, one after the other."""
    arrays = (*x.sources, target)
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
            at = [place + y.first for place, y in zip(places, arrays, strict=True)]
            values = [
                y.value if y.node is None else b.load(y.node, i) for y, i in zip(x.sources, at, strict=False)
            ]
            return b.store(node, at[-1], x.entry(values) if x.entry else values[0])
        count, steps = axes[axis]

        def write(i: Operand, array: Node) -> list[Operand]:
            moved = [place + i * by if by else place for place, by in zip(places, steps, strict=True)]
            return [along(axis + 1, moved, array)]

        return b.count_up(count, [node], [(x.type, node.size)], write)[0]

    assert target.node is not None
    return along(0, [0] * len(arrays), target.node)


def tabulate(
    b: Builder, shape: tuple[int, ...], t: str, entry: Callable[[Operand], Operand], into: Any = None
) -> StoredArray:
    """An array in memory, of which a loop computes each entry from its place; or those that follow a place in one."""
    node, start = into or (b.blank(math.prod(shape), t), 0)
    write = lambda i, array: [b.store(array, i + start, entry(i))]
    return StoredArray(b.count_up(math.prod(shape), [node], [(t, node.size)], write)[0], shape)


# --- from one kind of array to another --------------------------------------------------------------------------------


def settle(b: Builder, x: Value) -> Value:
    """An array that is computed where it is read, computed now; others as they are."""
    if not isinstance(x, Lazy):
        return x
    if x.entry is None:
        node, _, first, steps = x.sources[0]
        if node is not None and not first and steps == _rows_first(x.shape) and node.size == x.size:
            return StoredArray(node, x.shape)
    node = b.blank(x.size, x.type)
    return StoredArray(write_entries(b, x, StridedArray(node, 0, 0, _rows_first(x.shape))), x.shape)


def is_too_long(x: Value) -> bool:
    """Whether an array in memory is not to become scalars."""
    return isinstance(x, StoredArray | Lazy) and x.size > MATERIALIZED


def to_scalars(b: Builder, x: Value) -> Scalars:
    """An array as scalars."""
    if isinstance(x, Lazy):
        return fill_array(x.shape, [read_entry(b, x, i) for i in range(x.size)])
    if not isinstance(x, StoredArray):
        return x
    if is_too_long(x):
        raise Untranslatable(f"an array of {x.size:,} entries is too large to be written out as scalars")
    return fill_array(x.shape, [b.load(x.node, i) for i in range(x.size)])


def to_memory(b: Builder, x: Value, t: str) -> StoredArray:
    """An array in memory; the one it was read from, where it is that as it stands."""
    if isinstance(x, Lazy):
        return settle(b, x)
    if isinstance(x, StoredArray):
        return x
    if x.size and not any(x.strides) and is_number(x.flat[0]):
        return StoredArray(b.fill(x.flat[0], x.size, t), x.shape)
    own = without_repeats(x) if x.size > LONG else x
    if own.size == 1 < x.size:
        return StoredArray(b.fill(own.item(), x.size, t), x.shape)
    if own.size < x.size:
        return settle(b, to_lazy(b, x, t))
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
        return StoredArray(first.args[0], x.shape)
    return StoredArray(b.pack(flat.tolist(), t), x.shape)


def to_lazy(b: Builder, x: Value, t: str) -> Lazy:
    """An array as one that is computed where it is read."""
    if isinstance(x, Lazy):
        return x
    if isinstance(x, StoredArray):
        return Lazy(x.shape, t, (StridedArray(x.node, 0, 0, _rows_first(x.shape)),))
    own = without_repeats(x)
    if own.size == 1:
        return Lazy(x.shape, t, (StridedArray(None, own.item(), 0, (0,) * x.ndim),))
    return Lazy(x.shape, t, (StridedArray(to_memory(b, own, t).node, 0, 0, _rows_first(own.shape)),))


def split_last(x: Lazy, parts: int) -> list[Lazy]:
    """An array in parts along its last axis."""
    ends = [x.shape[-1] * i // parts for i in range(parts + 1)]
    return [
        x._replace(
            shape=(*x.shape[:-1], end - begin),
            sources=tuple(y._replace(first=y.first + begin * y.steps[-1]) for y in x.sources),
        )
        for begin, end in itertools.pairwise(ends)
    ]


# --- arrays as operands of loops, branches and calls ------------------------------------------------------------------


class Form(NamedTuple):
    """How an array is given: in memory, as one operand, or entry by entry.

    - `shape`, `type`: of it.
    - `size`: how many entries it has in memory; None where they are given one by one.
    """

    shape: tuple[int, ...]
    type: str
    size: int | None = None

    @property
    def operands(self) -> list[tuple[str, int | None]]:
        """The type of each operand, and of an array its size."""
        return [(self.type, self.size)] * (math.prod(self.shape) if self.size is None else 1)


def form_of(aval: Any, *, in_memory: bool) -> Form:
    """That of an array of a shape and type."""
    return Form(aval.shape, type_of(aval), max(aval.size, 1) if in_memory else None)


def flatten(b: Builder, values: Sequence[Value], forms: Sequence[Form]) -> list[Operand]:
    """Arrays as operands."""
    flat = list[Operand]()
    for x, form in zip(values, forms, strict=True):
        if form.size is None:
            flat += to_scalars(b, x).reshape(-1).tolist()
        else:
            flat.append(to_memory(b, x, form.type).node)
    return flat


def unflatten(flat: Sequence[Operand], forms: Sequence[Form]) -> list[Value]:
    """Arrays of operands."""
    rest = iter(flat)
    return [
        fill_array(x.shape, list(itertools.islice(rest, math.prod(x.shape))))
        if x.size is None
        else StoredArray(next(rest), x.shape)
        for x in forms
    ]


# --- operations on arrays in memory -----------------------------------------------------------------------------------


def _may_wait(x: Lazy) -> bool:
    """Whether an array may be computed where it is read: arrays that are changed meanwhile are copied for it."""
    return len(x.sources) <= SOURCES and all(y.node is None or y.node.size <= _AWAITED for y in x.sources)


def compute_entries(
    b: Builder, e: Any, inputs: list[Value], rule: Callable[[list[Scalars]], Scalars]
) -> Value:
    """An operation on each entry of arrays in memory."""
    aval, given = e.outvars[0].aval, []
    for x, v in zip(inputs, e.invars, strict=True):
        x = to_lazy(b, x, type_of(v.aval))
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
            own.append(fill_array((), [x.entry(mine) if x.entry else mine[0]]))
        return rule(own).reshape(())[()]

    found = Lazy(aval.shape, type_of(aval), tuple(y for x in given for y in x.sources), entry)
    return found if _may_wait(found) else settle(b, found)


def take_place(x: Lazy, axes: Sequence[int], kept: Sequence[int], place: Sequence[int]) -> Lazy:
    """An array at one place along some axes."""
    sources = tuple(
        y._replace(
            first=y.first + sum(i * y.steps[axis] for i, axis in zip(place, axes, strict=True)),
            steps=tuple(y.steps[i] for i in kept),
        )
        for y in x.sources
    )
    return x._replace(shape=tuple(x.shape[i] for i in kept), sources=sources)


def fold_places(
    b: Builder, rows: Sequence[Lazy], shape: Sequence[int], t: str, fold: Callable[[list[Operand]], Operand]
) -> Value:
    """What becomes of the entries of arrays at each place."""

    def entry(values: Sequence[Operand]) -> Operand:
        rest, own = iter(values), []
        for x in rows:
            mine = list(itertools.islice(rest, len(x.sources)))
            own.append(x.entry(mine) if x.entry else mine[0])
        return fold(own)

    found = settle(b, Lazy(tuple(shape), t, tuple(y for x in rows for y in x.sources), entry))
    return found if found.size > LONG else to_scalars(b, found)


def _join(b: Builder, inputs: list[Value], starts: Any, places: np.ndarray, t: str) -> Node:
    """An array of runs of entries of others."""
    breaks = np.flatnonzero((np.diff(places) != 1) | np.isin(places[1:], starts)) + 1
    node = b.blank(places.size, t)
    for a, z in zip([0, *breaks], [*breaks, places.size], strict=True):
        k = int(np.searchsorted(starts, places[a], "right") - 1)
        first, x = int(places[a] - starts[k]), inputs[k]
        if z - a <= 8:
            for i in range(a, z):
                node = b.store(node, i, read_entry(b, x, int(first + i - a)))
        else:
            source = to_memory(b, x, t).node
            read = lambda i, source=source, first=first: b.load(source, i + first)
            node = tabulate(b, (int(z - a),), t, read, into=(node, int(a))).node
    return node


def _move_by_loops(
    b: Builder, inputs: list[Value], starts: Any, places: np.ndarray, t: str, shape: tuple[int, ...]
) -> Node:
    """An array of the entries of others that stand at some places, one after the other."""
    node = b.blank(places.size, t)
    if len(inputs) == 1:
        moved = to_lazy(b, inputs[0], t).moved(lambda of: of.reshape(-1)[places - starts[0]].reshape(shape))
        if moved is None:
            return _join(b, inputs, starts, places, t)
        return write_entries(b, moved, StridedArray(node, 0, 0, _rows_first(shape)))
    # Where each entry of the others goes to, if each is taken once.
    order = np.argsort(places, kind="stable")
    if not np.array_equal(places[order], np.arange(places.size)):
        return _join(b, inputs, starts, places, t)
    parts = [
        (x, order[a : a + x.size].reshape(x.shape)) for x, a in zip(inputs, starts, strict=False) if x.size
    ]
    steps = [_even_steps(to) for _, to in parts]
    if None in steps:
        return _join(b, inputs, starts, places, t)
    for (x, to), k in zip(parts, steps, strict=True):
        if isinstance(x, np.ndarray) and x.size <= CARRIED:
            for i, y in zip(to.reshape(-1), x.reshape(-1), strict=True):
                node = b.store(node, int(i), y)
        else:
            assert k is not None
            node = write_entries(b, to_lazy(b, x, t), StridedArray(node, 0, int(to.flat[0]), k))
    return node


def move_in_memory(b: Builder, e: Any, inputs: list[Value]) -> list[Value]:
    """Slices, joins and the like of arrays in memory: of few entries as scalars, else in other places, or copied."""
    starts = np.cumsum([0, *(x.size for x in inputs)])
    numbered = [np.arange(a, a + x.size).reshape(x.shape) for a, x in zip(starts, inputs, strict=False)]
    outputs = []
    for k, variable in enumerate(e.outvars):
        move = lambda arrays, k=k: np.asarray(MOVES[e.primitive.name](arrays, e.params)[k])
        places, t, shape = move(numbered).reshape(-1), type_of(variable.aval), variable.aval.shape
        if (
            len(inputs) == 1
            and isinstance(inputs[0], StoredArray)
            and np.array_equal(places, np.arange(inputs[0].size))
        ):
            outputs.append(StoredArray(inputs[0].node, shape))
            continue
        if places.size <= LONG:
            owner = np.searchsorted(starts, places, "right") - 1
            flat = [read_entry(b, inputs[k], int(i - starts[k])) for k, i in zip(owner, places, strict=True)]
            outputs.append(fill_array(shape, flat))
            continue
        moved = None
        if len(inputs) == 1:
            x = to_lazy(b, inputs[0], t)
            if x.entry is not None and places.size > x.size:
                x = to_lazy(b, settle(b, x), t)
            moved = x.moved(lambda of, move=move, shape=shape: move([of]).reshape(shape))
        if moved is not None and _may_wait(moved):
            outputs.append(moved)
        else:
            outputs.append(StoredArray(_move_by_loops(b, inputs, starts, places, t, shape), shape))
    return outputs
