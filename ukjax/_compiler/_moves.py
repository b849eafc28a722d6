"""Arrays of expressions, and the operations that only move expressions about: slices, gathers, concatenations."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .._misc._errors import InputError
from .._misc._types import as_jax
from ._expressions import is_number
from ._scalars import TranslationError

Scalars = np.ndarray
"""An array of expressions, of dtype object."""


def scalars(values: Any) -> Scalars:
    """Numbers as an array of constant expressions."""
    array = np.asarray(values)
    return filled(array.shape, array.reshape(-1).tolist())


def filled(shape: tuple[int, ...], flat: Any) -> Scalars:
    """An array of that shape with the expressions of a flat list."""
    out = np.empty(len(flat), object)
    out[:] = flat
    return out.reshape(shape)


def is_constant(array: Scalars) -> bool:
    """Whether all entries are known."""
    return all(map(is_number, array.reshape(-1)))


def as_scalars(x: Any) -> Scalars:
    """An array of expressions as it is, one of numbers as constants."""
    return x if isinstance(x, np.ndarray) and x.dtype == object else scalars(x)


def shaped(x: Any, shape: tuple[int, ...]) -> Scalars:
    """x as an object array of a shape: NumPy hands out bare objects where a result has no dimensions."""
    if isinstance(x, np.ndarray):
        return np.broadcast_to(x, shape)
    return filled((), [x])


def numbers(x: Scalars, dtype: Any) -> Array:
    """Constants as an array."""
    return as_jax(np.asarray(x.tolist(), dtype))


def evaluated(equation: Any, inputs: list[Scalars]) -> list[Scalars]:
    """Constants in, constants out, by the operation itself."""
    with jax.ensure_compile_time_eval():
        arrays = [numbers(x, v.aval.dtype) for x, v in zip(inputs, equation.invars, strict=True)]
        results = equation.primitive.bind(*arrays, **equation.params)
    return [scalars(x) for x in (results if equation.primitive.multiple_results else [results])]


def evaluated_together(equation: Any, cases: list[list[Scalars]]) -> list[list[Scalars]]:
    """As `evaluated` for each of several cases, of an operation on numbers one by one."""
    shape = equation.outvars[0].aval.shape
    arrays = [
        np.stack([np.broadcast_to(np.asarray(x.tolist(), v.aval.dtype), shape) for x in column])
        for column, v in zip(zip(*cases, strict=True), equation.invars, strict=True)
    ]
    with jax.ensure_compile_time_eval():
        result = np.asarray(equation.primitive.bind(*map(jnp.asarray, arrays), **equation.params))
    return [[scalars(x)] for x in result]


def moved(inputs: list[Scalars], params: dict, primitive: Any) -> Scalars:
    """Index operations, carried out on the numbers of the expressions in place of the expressions."""
    count = OPERANDS[primitive.name]
    operands, indices = inputs[:count], inputs[count:]
    if not all(map(is_constant, indices)):
        raise TranslationError(f"'{primitive.name}' at places that are not known has no scalar code")
    flat = np.concatenate([x.reshape(-1) for x in operands])
    starts = np.cumsum([0, *(x.size for x in operands)])
    counted = [
        np.arange(start, start + x.size).reshape(x.shape) for start, x in zip(starts, operands, strict=False)
    ]
    known = [np.asarray(x.tolist(), int) for x in indices]
    found = _INDEXED[primitive.name](counted, known, params)
    if found.size and not (found.min() >= 0 and found.max() < len(flat)):
        raise TranslationError(f"'{primitive.name}' reaches out of bounds")
    return shaped(flat[found], found.shape)


def require_within(inputs: list[Scalars], sizes: Any) -> None:
    """Raises `InputError` for an index that is known and lies outside: JAX would take the entry next to it."""
    x, *starts = inputs
    for start, length, size in zip(starts, x.shape, sizes, strict=True):
        if size == 1 and is_constant(start) and not 0 <= (place := int(start[()])) < length:
            where = place - length if place < 0 else place
            raise InputError(
                f"a function of the system reads entry {where} of an axis of {length}: indices must lie between "
                f"{-length} and {length - 1}. (JAX takes the last or first entry in its place.)"
            )


def gather_entries(counted: list[np.ndarray], known: list[np.ndarray], params: dict) -> np.ndarray:
    """XLA's gather: windows of an operand from the places an array holds in its last axis; -1 for out of bounds."""
    (x,), (places,), dims = counted, known, params["dimension_numbers"]
    batch, sizes = places.shape[:-1], params["slice_sizes"]
    outside, index = np.zeros(batch, bool), []
    for axis, (length, size) in enumerate(zip(x.shape, sizes, strict=True)):
        start = np.zeros(batch, int)
        if axis in dims.start_index_map:
            start = places[..., dims.start_index_map.index(axis)]
        elif axis in dims.operand_batching_dims:
            along = dims.start_indices_batching_dims[dims.operand_batching_dims.index(axis)]
            start = np.indices(batch)[along]
        clipped = np.clip(start, 0, length - size)
        outside = outside | (clipped != start)
        window = np.arange(size).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        index.append(clipped.reshape(*batch, *[1] * x.ndim) + window)
    found = x[tuple(index)] if index else np.broadcast_to(x, batch)
    if params["mode"] == lax.GatherScatterMode.FILL_OR_DROP:
        found = np.where(outside.reshape(*batch, *[1] * x.ndim), -1, found)
    dropped = (*dims.collapsed_slice_dims, *dims.operand_batching_dims)
    found = found.squeeze(tuple(len(batch) + i for i in dropped))
    return np.moveaxis(found, range(len(batch), found.ndim), dims.offset_dims)


def read_window(x: np.ndarray, starts: list[np.ndarray], sizes: Any) -> tuple[slice, ...]:
    """A block of an array, moved to lie within it."""
    first = [int(np.clip(s, 0, n - k)) for s, n, k in zip(starts, x.shape, sizes, strict=True)]
    return tuple(slice(s, s + k) for s, k in zip(first, sizes, strict=True))


def _updated(counted: list[np.ndarray], known: list[np.ndarray], params: dict) -> np.ndarray:
    x, update = counted
    out = x.copy()
    out[read_window(x, known, update.shape)] = update
    return out


def pad_entries(counted: list[np.ndarray], known: list[np.ndarray], params: dict) -> np.ndarray:
    """By NumPy: JAX would compile it anew for every shape."""
    x, padding = counted
    for axis, (low, high, between) in enumerate(params["padding_config"]):
        length = x.shape[axis]
        dilated = length + max(length - 1, 0) * between
        source = np.arange(low + dilated + high) - low
        inside = (source >= 0) & (source < dilated) & (source % (between + 1) == 0)
        shape = [*x.shape[:axis], source.size, *x.shape[axis + 1 :]]
        moved = np.full(shape, padding)
        which = [slice(None)] * axis
        moved[(*which, inside)] = x[(*which, source[inside] // (between + 1))]
        x = moved
    return x


def places(equation: Any, inputs: list[Scalars]) -> list[int]:
    """Where a scatter puts each of its updates, -1 for nowhere: from there a gather with its windows would take them."""
    operand, indices, updates = inputs
    if not is_constant(indices):
        raise TranslationError(f"'{equation.primitive.name}' at places that are not known has no scalar code")
    dims = equation.params["dimension_numbers"]
    alone = {*dims.inserted_window_dims, *dims.operand_batching_dims}
    windows = iter(updates.shape[i] for i in dims.update_window_dims)
    as_gather = lax.GatherDimensionNumbers(
        offset_dims=dims.update_window_dims,
        collapsed_slice_dims=dims.inserted_window_dims,
        start_index_map=dims.scatter_dims_to_operand_dims,
        operand_batching_dims=dims.operand_batching_dims,
        start_indices_batching_dims=dims.scatter_indices_batching_dims,
    )
    sizes = tuple(1 if i in alone else next(windows) for i in range(operand.ndim))
    params = {"dimension_numbers": as_gather, "slice_sizes": sizes, "mode": equation.params["mode"]}
    counted = np.arange(operand.size).reshape(operand.shape)
    return gather_entries([counted], [np.asarray(indices.tolist(), int)], params).reshape(-1).tolist()


def scatter(equation: Any, inputs: list[Scalars]) -> Scalars:
    """An array with updates put where a scatter puts them."""
    operand, _, updates = inputs
    out = operand.reshape(-1).copy()
    for source, place in enumerate(places(equation, inputs)):
        if place >= 0:
            out[place] = updates.reshape(-1)[source]
    return out.reshape(operand.shape)


def _broadcast(inputs: list[Scalars], params: dict) -> list[Scalars]:
    shape = [1] * len(params["shape"])
    for i, d in enumerate(params["broadcast_dimensions"]):
        shape[d] = inputs[0].shape[i]
    return [np.broadcast_to(inputs[0].reshape(shape), params["shape"])]


def _slice(inputs: list[Scalars], params: dict) -> list[Scalars]:
    strides = params["strides"] or [1] * inputs[0].ndim
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    x = inputs[0][tuple(slice(*b) for b in bounds)]
    return [x]


def _iota(inputs: list[Scalars], params: dict) -> list[Scalars]:
    return [scalars(np.indices(params["shape"])[params["dimension"]].astype(params["dtype"]))]


def _split(inputs: list[Scalars], params: dict) -> list[Scalars]:
    return np.split(inputs[0], np.cumsum(params["sizes"])[:-1], axis=params["axis"])


_INDEXED: dict[str, Callable[..., np.ndarray]] = {
    "gather": gather_entries,
    "dynamic_slice": lambda x, known, p: x[0][read_window(x[0], known, p["slice_sizes"])],
    "dynamic_update_slice": _updated,
    "pad": pad_entries,
}

OPERANDS = {"gather": 1, "dynamic_slice": 1, "dynamic_update_slice": 2, "pad": 2}
"""How many operands of an index operation hold values; the rest are places."""

MOVES: dict[str, Callable[[list[Scalars], dict], list[Scalars]]] = {
    "broadcast_in_dim": _broadcast,
    "iota": _iota,
    "reshape": lambda x, p: [x[0].reshape(p["new_sizes"])],
    "squeeze": lambda x, p: [np.squeeze(x[0], tuple(p["dimensions"])) if p["dimensions"] else x[0]],
    "expand_dims": lambda x, p: [np.expand_dims(x[0], tuple(p["dimensions"]))],
    "transpose": lambda x, p: [np.transpose(x[0], p["permutation"])],
    "rev": lambda x, p: [np.flip(x[0], tuple(p["dimensions"]))],
    "slice": _slice,
    "split": _split,
    "concatenate": lambda x, p: [np.concatenate(x, axis=p["dimension"])],
    "stack": lambda x, p: [np.stack(x, axis=p["axis"])],
    "unstack": lambda x, p: list(np.moveaxis(x[0], p["axis"], 0)),
    "tile": lambda x, p: [np.tile(x[0], p["reps"])],
    "copy": lambda x, p: [x[0]],
    "copy_p": lambda x, p: [x[0]],
    "reduce_precision": lambda x, p: [x[0]],
}
