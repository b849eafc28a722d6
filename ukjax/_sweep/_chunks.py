"""How a sweep is cut: blocks of runs of one shape, aligned with the chunks of the arrays they are written to."""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from jaxtyping import Int

Region = tuple[slice, ...]

# Larger batches are no faster, and all their members wait for the slowest.
_LARGEST = {"cpu": 4_096, "gpu": 131_072, "tpu": 131_072}
# Copies of its largest array that one run is taken to need, until the compiler has told.
_COPIES = 8


class Block(NamedTuple):
    """Some runs: where they lie along the dimensions of the sweep, and their numbers."""

    region: Region
    runs: Int[np.ndarray, " b"]


def block_shape(sizes: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """The shape of blocks of at most `limit` runs: whole trailing dimensions and an even part of the one before.

    **Arguments:**

    - `sizes`: of the dimensions of the sweep.
    - `limit`: the most runs of a block.
    """
    shape, room = [1] * len(sizes), max(1, limit)
    for i in reversed(range(len(sizes))):
        parts = math.ceil(sizes[i] / room)
        shape[i] = math.ceil(sizes[i] / parts)
        if parts > 1:
            break
        room //= sizes[i]
    return tuple(shape)


def blocks(sizes: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[Block]:
    """All blocks, first to last.

    **Arguments:**

    - `sizes`: of the dimensions of the sweep.
    - `shape`: of a block; those at the ends may be smaller.
    """
    starts = (range(0, size, step) for size, step in zip(sizes, shape, strict=True))
    for corner in itertools.product(*starts):
        ends = (min(a + b, size) for a, b, size in zip(corner, shape, sizes, strict=True))
        region = tuple(slice(a, b) for a, b in zip(corner, ends, strict=True))
        places = np.ix_(*(np.arange(s.start, s.stop) for s in region))
        yield Block(region, np.ravel_multi_index(places, sizes).ravel())


def padded(runs: Int[np.ndarray, " b"], batch: int) -> Int[np.ndarray, " batch"]:
    """The numbers with the last one repeated, so that every block runs by the same compiled program.

    **Arguments:**

    - `runs`: numbers of runs.
    - `batch`: how many there are to be.
    """
    return np.append(runs, np.full(batch - runs.size, runs[-1]))


def _inner(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    yield jaxpr
    for equation in jaxpr.eqns:
        for parameter in equation.params.values():
            for x in parameter if isinstance(parameter, tuple | list) else (parameter,):
                x = getattr(x, "jaxpr", x)
                if isinstance(x, Jaxpr):
                    yield from _inner(x)


def bytes_of_run(program: ClosedJaxpr) -> int:
    """An estimate of the memory one run takes: what it returns, and some copies of its largest array.

    **Arguments:**

    - `program`: of one run.
    """
    size = lambda x: math.prod(x.shape) * x.dtype.itemsize if hasattr(x, "dtype") else 0
    returned = sum(size(x) for x in program.out_avals)
    largest = max((size(x.aval) for j in _inner(program.jaxpr) for e in j.eqns for x in e.outvars), default=0)
    return returned + _COPIES * largest


def runs_at_once(program: ClosedJaxpr, memory: float, platform: str) -> int:
    """How many runs go into the memory.

    **Arguments:**

    - `program`: of one run.
    - `memory`: to use [bytes].
    - `platform`: what they run on.
    """
    return max(1, min(int(memory / max(1, bytes_of_run(program))), _LARGEST.get(platform, 4_096)))
