"""Windows of arrays that begin at places which may be known only when a program runs: slices, gathers, scatters."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

from ..._misc._errors import InputError
from ._arrays import LONG, StoredArray, Value, is_known, tabulate, to_memory, to_scalars
from ._builder import Builder
from ._jaxprs import type_of
from ._moves import Scalars, fill_array, gather_entries, read_window
from ._nodes import Operand, is_float, is_integer, is_number

SELECTED = 8
"""Entries up to which a place that is not known is found by comparing, not in memory."""


def require_within(e: Any, inputs: list[Value]) -> None:
    """Raises `InputError` for an index that is known and lies outside: JAX would take the entry next to it."""
    for start, length, size in zip(inputs[1:], inputs[0].shape, e.params["slice_sizes"], strict=True):
        if size == 1 and is_known(start) and not 0 <= (place := int(start[()])) < length:
            where = place - length if place < 0 else place
            raise InputError(
                f"a function of the system reads entry {where} of an axis of {length}: indices must lie between "
                f"{-length} and {length - 1}. (JAX takes the last or first entry in its place.)"
            )


@functools.cache
def _offsets(shape: tuple[int, ...], window: tuple[int, ...]) -> np.ndarray:
    """Of each entry of a window, how far from its first in a flat array."""
    offsets = np.zeros(1, int)
    for i, size in enumerate(window):
        offsets = np.add.outer(offsets, math.prod(shape[i + 1 :]) * np.arange(size)).reshape(-1)
    return offsets


def _starts(
    at: tuple[int, ...], place: Scalars, axes: Any, batching: Any, along: Any, ndim: int
) -> list[Operand]:
    starts: list[Operand] = [0] * ndim
    for axis, start in zip(axes, place, strict=True):
        starts[axis] = start
    for axis, k in zip(batching, along, strict=True):
        starts[axis] = at[k]
    return starts


def _flat_start(
    b: Builder,
    starts: Sequence[Operand],
    shape: Sequence[int],
    sizes: Sequence[int],
    t: str,
    mode: Any = None,
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
            place = b.convert(start, t, "int64")
            if mode != lax.GatherScatterMode.PROMISE_IN_BOUNDS:
                place = b.apply("min", "int64", b.apply("max", "int64", place, 0), most)
        flat = flat * length + place
    return flat


def _inside(starts: Sequence[Operand], shape: Sequence[int], sizes: Sequence[int]) -> Operand:
    """Whether a window lies within an array."""
    inside: Operand = True
    for start, length, size in zip(starts, shape, sizes, strict=True):
        inside = inside & (start >= 0) & (start <= length - size)
    return inside


def _place_in(b: Builder, offsets: np.ndarray) -> Callable[[Operand], Operand]:
    """The offset of an entry of a window, by its number, which a loop counts."""
    if np.array_equal(offsets, np.arange(offsets.size)):
        return lambda i: i
    table = b.pack(offsets.tolist(), "int64")
    return lambda i: b.load(table, i)


def _read(b: Builder, x: Value, t: str, start: Operand, offsets: np.ndarray) -> list[Operand]:
    """Entries of an array from a place on."""
    if not isinstance(x, StoredArray) and x.size <= SELECTED and not is_number(start):
        flat, most = x.reshape(-1), x.size - 1 - int(offsets.max(initial=0))
        read = []
        for offset in offsets:
            value = flat[int(offset)]
            for k in range(1, most + 1):
                value = b.select(b.compare("eq", start, k, "int64"), flat[k + int(offset)], value, t)
            read.append(value)
        return read
    node = to_memory(b, x, t).node
    return [b.load(node, start + int(k)) for k in offsets]


def _write(
    b: Builder, x: Value, t: str, start: Operand, offsets: np.ndarray, values: Sequence[Operand]
) -> Value:
    """The array with entries replaced from a place on."""
    if not isinstance(x, StoredArray) and (x.size <= SELECTED or is_number(start)):
        flat, most = x.reshape(-1).copy(), x.size - 1 - int(offsets.max(initial=0))
        for offset, value in zip(offsets, values, strict=True):
            if is_number(start):
                flat[int(start) + int(offset)] = value
                continue
            for k in range(most + 1):
                here = b.compare("eq", start, k, "int64")
                flat[k + int(offset)] = b.select(here, value, flat[k + int(offset)], t)
        return flat.reshape(x.shape)
    stored = to_memory(b, x, t)
    node = stored.node
    for offset, value in zip(offsets, values, strict=True):
        node = b.store(node, start + int(offset), value)
    return StoredArray(node, stored.shape)


def _keep_long(b: Builder, x: Value, t: str, longest: float) -> Value:
    """An array that is to be changed: of many entries in memory, so that the others are not written out."""
    return to_memory(b, x, t) if x.size > longest else x


def _write_long(
    b: Builder, x: StoredArray, t: str, start: Operand, offsets: np.ndarray, update: StoredArray
) -> StoredArray:
    """The array with a window replaced by an array in memory, as a loop."""
    place = _place_in(b, offsets)
    write = lambda i, array: [b.store(array, start + place(i), b.load(update.node, i))]
    return StoredArray(b.count_up(update.size, [x.node], [(t, x.node.size)], write)[0], x.shape)


def _slice(b: Builder, e: Any, inputs: list[Value]) -> Value:
    x, sizes, t = inputs[0], e.params["slice_sizes"], type_of(e.outvars[0].aval)
    starts = [to_scalars(b, s)[()] for s in inputs[1:]]
    if all(map(is_number, starts)) and not isinstance(x, StoredArray):
        return x[read_window(x, starts, sizes)]
    start = _flat_start(b, starts, x.shape, sizes, type_of(e.invars[1].aval) if starts else "int64")
    offsets = _offsets(x.shape, sizes)
    if isinstance(x, StoredArray) and offsets.size > LONG:
        place = _place_in(b, offsets)
        read = lambda i: b.load(x.node, start + place(i))
        return tabulate(b, tuple(sizes), t, read)
    return fill_array(sizes, _read(b, x, t, start, offsets))


@functools.cache
def _fill_of(t: str) -> Any:
    """What stands for an entry outside of an array of a type."""
    if is_float(t):
        return math.nan
    return (np.iinfo(t).min if t[0] == "i" else np.iinfo(t).max) if is_integer(t) else True


def _gather(b: Builder, e: Any, inputs: list[Value]) -> Value:
    x, places = inputs[0], to_scalars(b, inputs[1])
    p, t = e.params, type_of(e.outvars[0].aval)
    fill = _fill_of(t) if p["fill_value"] is None else p["fill_value"]
    if is_known(places):
        counted = np.arange(x.size).reshape(x.shape)
        found = gather_entries([counted], [np.asarray(places.tolist(), int).reshape(places.shape)], p)
        if isinstance(x, StoredArray):
            read = lambda i: fill if i < 0 else b.load(x.node, int(i))
        else:
            flat = x.reshape(-1)
            read = lambda i: fill if i < 0 else flat[int(i)]
        return fill_array(found.shape, [read(i) for i in found.reshape(-1)])
    dims, sizes = p["dimension_numbers"], p["slice_sizes"]
    index_type, batch = type_of(e.invars[1].aval), places.shape[:-1]
    offsets = _offsets(x.shape, sizes)
    out = np.empty((*batch, len(offsets)), object)
    drops = p["mode"] == lax.GatherScatterMode.FILL_OR_DROP
    for at in np.ndindex(batch):
        starts = _starts(
            at,
            places[at],
            dims.start_index_map,
            dims.operand_batching_dims,
            dims.start_indices_batching_dims,
            x.ndim,
        )
        start = _flat_start(b, starts, x.shape, sizes, index_type, p["mode"])
        read = _read(b, x, t, start, offsets)
        if drops:
            inside = _inside(starts, x.shape, sizes)
            read = [b.select(inside, y, fill, t) for y in read]
        out[at] = fill_array((len(read),), read)
    dropped = (*dims.collapsed_slice_dims, *dims.operand_batching_dims)
    found = out.reshape(*batch, *sizes).squeeze(tuple(len(batch) + i for i in dropped))
    return np.moveaxis(found, range(len(batch), found.ndim), dims.offset_dims)


def update_slice(b: Builder, e: Any, inputs: list[Value], longest: float) -> Value:
    """An array with a window replaced. One of more than `longest` entries is put into memory, if it is not yet."""
    if e.invars[1].aval.shape == e.outvars[0].aval.shape:  # a start is moved so that the update fits
        return inputs[1]
    t, update = type_of(e.outvars[0].aval), inputs[1]
    x = _keep_long(b, inputs[0], t, longest)
    starts = [to_scalars(b, s)[()] for s in inputs[2:]]
    start = _flat_start(b, starts, x.shape, update.shape, type_of(e.invars[2].aval) if starts else "int64")
    offsets = _offsets(x.shape, update.shape)
    if isinstance(update, StoredArray) and offsets.size > LONG:
        return _write_long(b, to_memory(b, x, t), t, start, offsets, update)
    return _write(b, x, t, start, offsets, to_scalars(b, update).reshape(-1).tolist())


def scatter(
    b: Builder,
    e: Any,
    inputs: list[Value],
    longest: float,
    combine: Callable[[Operand, Operand], Operand] | None,
) -> Value:
    """An array whose entries are combined with updates; without `combine` these take their places."""
    p, t = e.params, type_of(e.outvars[0].aval)
    x = _keep_long(b, inputs[0], t, longest)
    places, updates = to_scalars(b, inputs[1]), to_scalars(b, inputs[2])
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
    offsets, index_type = _offsets(x.shape, sizes), type_of(e.invars[1].aval)
    modes = lax.GatherScatterMode
    inside_already = p["mode"] in (modes.CLIP, modes.PROMISE_IN_BOUNDS)
    value: Value = x
    for at in np.ndindex(batch):
        starts = _starts(
            at,
            places[at],
            dims.scatter_dims_to_operand_dims,
            dims.operand_batching_dims,
            dims.scatter_indices_batching_dims,
            x.ndim,
        )
        inside = True if inside_already else _inside(starts, x.shape, sizes)
        if inside is False:
            continue
        start = _flat_start(b, starts, x.shape, sizes, index_type, p["mode"])
        row = updates[at].tolist()
        if combine or inside is not True:
            old = _read(b, value, t, start, offsets)
            row = list(map(combine, old, row)) if combine else row
            row = [b.select(inside, z, y, t) for y, z in zip(old, row, strict=True)]
        value = _write(b, value, t, start, offsets, row)
    return value


READS: dict[str, Callable[[Builder, Any, list[Value]], Value]] = {"dynamic_slice": _slice, "gather": _gather}
