"""Functions in plain JAX in place of what JAX itself leaves to LAPACK, to XLA or to C++.

Each stands for a primitive of JAX, with its operands, parameters and outputs. Those of linear algebra and sorting are in
`_dense`, special functions in `_special`; here are convolutions, windows, reductions, and whole numbers as bits.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from . import _dense, _special

# --- Convolutions, windows and reductions of small arrays


def _windows(
    x: Any, dimensions: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> list[tuple[tuple[int, ...], Any]]:
    """Of each place in a window, its index and the entries of all windows there."""
    reach = [step * (size - 1) for size, step in zip(dimensions, dilation, strict=True)]
    counts = [max((n - r - 1) // s + 1, 0) for n, r, s in zip(x.shape, reach, strides, strict=True)]

    def entries(place: tuple[int, ...]) -> Any:
        first = [k * step for k, step in zip(place, dilation, strict=True)]
        last = [f + max(s * (n - 1) + 1, 0) for f, s, n in zip(first, strides, counts, strict=True)]
        return lax.slice(x, first, last, strides)

    return [(place, entries(place)) for place in itertools.product(*map(range, dimensions))]


def _reduce_windows(
    combine: Callable[[Any, Any], Any],
    first: Callable[[Any], Any],
    x: Any,
    *,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int],
    window_dilation: Sequence[int],
    **_: Any,
) -> list[Any]:
    """What all windows of an array come to."""
    between = [(*pair, step - 1) for pair, step in zip(padding, base_dilation, strict=True)]
    x = lax.pad(x, jnp.asarray(first(x.dtype), x.dtype), between)
    found = _windows(x, window_dimensions, window_strides, window_dilation)
    return [functools.reduce(combine, (entries for _, entries in found))]


def _choose(better: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    """The better of two, NaN before all: the derivative is that of the first of equal ones, as JAX has it."""
    return jnp.where(better(x, y) | (x != x), x, y)


def _least(dtype: Any) -> Any:
    return -jnp.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min


def _most(dtype: Any) -> Any:
    return jnp.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).max


def conv_general_dilated(
    x: Any,
    kernel: Any,
    *,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: Any,
    feature_group_count: int,
    batch_group_count: int,
    **_: Any,
) -> list[Any]:
    """A sum, over the places of a kernel, of products of what lies there with its entries."""
    x = jnp.transpose(x, dimension_numbers.lhs_spec)  # batch, features, places
    kernel = jnp.transpose(kernel, dimension_numbers.rhs_spec)  # features out, features in, places
    between = [(*pair, step - 1) for pair, step in zip(padding, lhs_dilation, strict=True)]
    x = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), (0, 0, 0), *between])
    groups = feature_group_count * batch_group_count
    if batch_group_count > 1:  # a part of the batch for each part of the features
        x = jnp.concatenate(jnp.split(x, batch_group_count), 1)
    x = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    kernel = kernel.reshape(groups, -1, *kernel.shape[1:])
    ones = (1, 1, 1)
    found = _windows(x, (*ones, *kernel.shape[3:]), (*ones, *window_strides), (*ones, *rhs_dilation))
    multiply = lambda a, b: jnp.einsum("bgi...,goi->bgo...", a, b)
    total = functools.reduce(jnp.add, (multiply(x, kernel[(..., *place[3:])]) for place, x in found))
    total = total.reshape(x.shape[0], -1, *total.shape[3:])
    inverse = sorted(range(total.ndim), key=dimension_numbers.out_spec.__getitem__)
    return [jnp.transpose(total, inverse)]


def reduce(*operands: Any, **params: Any) -> list[Any]:
    """Arrays combined along axes by a function, one entry after the other."""
    jaxpr, dimensions = params["jaxpr"], params["dimensions"]
    arrays, state = operands[: len(operands) // 2], operands[len(operands) // 2 :]
    closed = jaxpr if hasattr(jaxpr, "jaxpr") else core.ClosedJaxpr(jaxpr, params.get("consts", ()))
    combine = core.jaxpr_as_fun(closed)
    kept = [i for i in range(arrays[0].ndim) if i not in dimensions]
    flat = [jnp.transpose(x, [*kept, *dimensions]).reshape(*(x.shape[i] for i in kept), -1) for x in arrays]
    for _ in kept:
        combine = jax.vmap(combine)
    state = [jnp.broadcast_to(x, rows.shape[:-1]) for x, rows in zip(state, flat, strict=True)]
    for k in range(flat[0].shape[-1]):
        state = combine(*state, *(rows[..., k] for rows in flat))
    return list(state)


def cumlogsumexp(x: Any, *, axis: int, reverse: bool) -> list[Any]:
    """Logarithms of sums of exponentials so far."""
    return [lax.associative_scan(jnp.logaddexp, x, reverse=reverse, axis=axis)]


def _accumulate_extremes(
    combine: Callable[[Any, Any], Any], x: Any, *, axis: int, reverse: bool
) -> list[Any]:
    """Extremes so far; in JAX's order, which tells the parts of equal entries in the derivative."""
    return [lax.associative_scan(combine, x, reverse=reverse, axis=axis)]


def top_k(x: Any, *, k: int, axis: int = -1, **_: Any) -> list[Any]:
    """The largest entries along an axis, and where they are; the first of equal ones first."""
    order = lax.slice_in_dim(jnp.argsort(x, axis, stable=True, descending=True), 0, k, axis=axis)
    return [jnp.take_along_axis(x, order, axis), order.astype(jnp.int32)]


def approx_top_k(x: Any, *, k: int, reduction_dimension: int, is_max_k: bool, **_: Any) -> list[Any]:
    """The same, or the smallest ones: exactly."""
    if is_max_k:
        return top_k(x, k=k, axis=reduction_dimension)
    order = jnp.argsort(x, reduction_dimension, stable=True)
    order = lax.slice_in_dim(order, 0, k, axis=reduction_dimension)
    return [jnp.take_along_axis(x, order, reduction_dimension), order.astype(jnp.int32)]


# --- Whole numbers as bits, and the random words that JAX makes of them


def population_count(x: Any) -> list[Any]:
    """How many bits of a whole number are set: of pairs, of fours, and so on."""
    bits = jnp.iinfo(x.dtype).bits
    unsigned = lax.bitcast_convert_type(x, jnp.dtype(f"uint{bits}"))
    width = 1
    while width < bits:
        mask = jnp.asarray(sum(((1 << width) - 1) << k for k in range(0, bits, 2 * width)), unsigned.dtype)
        unsigned = (unsigned & mask) + ((unsigned >> jnp.asarray(width, unsigned.dtype)) & mask)
        width *= 2
    return [lax.bitcast_convert_type(unsigned, x.dtype)]


def clz(x: Any) -> list[Any]:
    """How many bits are zero before the first that is set."""
    bits = jnp.iinfo(x.dtype).bits
    unsigned = lax.bitcast_convert_type(x, jnp.dtype(f"uint{bits}"))
    width = 1
    while width < bits:  # all after it are set too
        unsigned = unsigned | (unsigned >> jnp.asarray(width, unsigned.dtype))
        width *= 2
    (count,) = population_count(unsigned)
    return [lax.bitcast_convert_type(jnp.asarray(bits, count.dtype) - count, x.dtype)]


def threefry2x32(k1: Any, k2: Any, x1: Any, x2: Any) -> list[Any]:
    """Random words: Threefry of 20 rounds (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)."""
    keys = k1, k2, k1 ^ k2 ^ jnp.asarray(0x1BD11BDA, jnp.uint32)
    x1, x2 = x1 + k1, x2 + k2
    turned = lambda x, k: (x << jnp.asarray(k, jnp.uint32)) | (x >> jnp.asarray(32 - k, jnp.uint32))
    for i in range(5):
        for k in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x1 = x1 + x2
            x2 = turned(x2, k) ^ x1
        x1, x2 = x1 + keys[(i + 1) % 3], x2 + keys[(i + 2) % 3] + jnp.asarray(i + 1, jnp.uint32)
    return [x1, x2]


def iota_2x32_shape(*, shape: Sequence[int]) -> list[Any]:
    """The places of entries in an array, by the upper and the lower word."""
    places = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    return [jnp.zeros_like(places), places]


REPLACEMENTS: dict[str, Callable[..., Any]] = {
    **_dense.FUNCTIONS,
    **_special.FUNCTIONS,
    "conv_general_dilated": conv_general_dilated,
    "reduce_window_sum": functools.partial(_reduce_windows, jnp.add, lambda dtype: 0),
    "reduce_window_max": functools.partial(_reduce_windows, functools.partial(_choose, lax.ge), _least),
    "reduce_window_min": functools.partial(_reduce_windows, functools.partial(_choose, lax.le), _most),
    "reduce": reduce,
    "cummax": functools.partial(_accumulate_extremes, jnp.maximum),
    "cummin": functools.partial(_accumulate_extremes, jnp.minimum),
    "cumlogsumexp": cumlogsumexp,
    "top_k": top_k,
    "approx_top_k": approx_top_k,
    "population_count": population_count,
    "clz": clz,
    "threefry2x32": threefry2x32,
    "iota_2x32_shape": iota_2x32_shape,
}

DIFFERENTIATED_BY_JAX = frozenset(
    ("qr", "eigh", "svd", "scatter-min", "scatter-max", *_special.DIFFERENTIATED_BY_JAX)
)
"""What has a derivative of its own: that of an iteration would be another where it stops early, and that of extremes
another where more than two are equal."""
