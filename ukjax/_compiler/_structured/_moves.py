"""Operations that only move the entries of arrays about: slices, gathers, concatenations, on arrays of any entries."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

Scalars = np.ndarray
"""An array of expressions, of dtype object."""


def scalars(values: Any) -> Scalars:
    """Numbers as an array of constant expressions."""
    array = np.asarray(values)
    return fill_array(array.shape, array.reshape(-1).tolist())


def fill_array(shape: tuple[int, ...], flat: Any) -> Scalars:
    """An array of that shape with the expressions of a flat list."""
    out = np.empty(len(flat), object)
    out[:] = flat
    return out.reshape(shape)


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


MOVES: dict[str, Callable[[list[Scalars], dict], list[Scalars]]] = {
    "broadcast_in_dim": _broadcast,
    "iota": _iota,
    **dict.fromkeys(("reshape", "reshape_members"), lambda x, p: [x[0].reshape(p["new_sizes"])]),
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
