"""Whole numbers as bits, and the random words that JAX makes of them, in plain JAX."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax


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


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "population_count": population_count,
    "clz": clz,
    "threefry2x32": threefry2x32,
    "iota_2x32_shape": iota_2x32_shape,
}
