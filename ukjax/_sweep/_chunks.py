"""How a sweep is cut: chunks of runs of one shape, which are the chunks of the arrays they are written to."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from jaxtyping import Int

Region = tuple[slice, ...]

# Larger batches are no faster, and all their members wait for the slowest.
_LARGEST = {"cpu": 4_096, "gpu": 131_072, "tpu": 131_072}
# Copies of its largest array that one run is taken to need, until the compiler has told.
_COPIES = 8


def chunk_shape(sizes: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """The shape of chunks of at most `limit` runs: whole trailing dimensions and an even part of the one before."""
    shape, room = [1] * len(sizes), max(1, limit)
    for i in reversed(range(len(sizes))):
        parts = math.ceil(sizes[i] / room)
        shape[i] = math.ceil(sizes[i] / parts)
        if parts > 1:
            break
        room //= sizes[i]
    return tuple(shape)


class Chunks(NamedTuple):
    """Runs cut into chunks of one shape, numbered with the last dimension fastest; those at the ends may be smaller."""

    sizes: tuple[int, ...]  # of the dimensions of the sweep
    shape: tuple[int, ...]  # of a chunk

    @property
    def grid(self) -> tuple[int, ...]:
        """How many chunks there are along each dimension."""
        return tuple(math.ceil(size / step) for size, step in zip(self.sizes, self.shape, strict=True))

    def place(self, number: int) -> Region:
        """Where a chunk lies in the grid of chunks."""
        return tuple(slice(int(i), int(i) + 1) for i in np.unravel_index(number, self.grid))

    def region(self, number: int) -> Region:
        """Where the runs of a chunk lie."""
        return tuple(
            slice(at.start * step, min(at.stop * step, size))
            for at, step, size in zip(self.place(number), self.shape, self.sizes, strict=True)
        )

    def unfinished(self, results: Int[np.ndarray, "..."], not_run: int) -> list[int]:
        """The chunks with a run that was not made."""
        left = results == not_run
        for axis, (size, step) in enumerate(zip(self.sizes, self.shape, strict=True)):
            left = np.logical_or.reduceat(left, range(0, size, step), axis)
        return np.flatnonzero(left).tolist()


def extent(region: Region) -> tuple[int, ...]:
    """The shape of a region."""
    return tuple(part.stop - part.start for part in region)


def values_in(
    coordinates: dict[str, tuple[tuple[str, ...], Any]], dims: Iterable[str], region: Region, batch: int
) -> dict[str, np.ndarray]:
    """The values of the runs of a chunk, by name (batch, ...), the last ones repeated, so that every chunk runs by the
    same compiled program.
    """
    places, values = dict(zip(dims, region, strict=True)), {}
    for name, (along, x) in coordinates.items():
        part = np.asarray(x[tuple(places.get(dim, slice(None)) for dim in along)])
        inner = part.shape[sum(dim in places for dim in along) :]
        spread = [n if dim in along else 1 for dim, n in zip(places, extent(region), strict=True)]
        part = np.broadcast_to(part.reshape(*spread, *inner), (*extent(region), *inner)).reshape(-1, *inner)
        values[name] = np.concatenate([part, np.repeat(part[-1:], batch - len(part), 0)])
    return values


def _inner(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    yield jaxpr
    for equation in jaxpr.eqns:
        for parameter in equation.params.values():
            for x in parameter if isinstance(parameter, tuple | list) else (parameter,):
                x = getattr(x, "jaxpr", x)
                if isinstance(x, Jaxpr):
                    yield from _inner(x)


def bytes_of_run(program: ClosedJaxpr) -> int:
    """An estimate of the memory one run takes: what it returns, and some copies of its largest array."""
    size = lambda x: math.prod(x.shape) * x.dtype.itemsize if hasattr(x, "dtype") else 0
    returned = sum(size(x) for x in program.out_avals)
    largest = max((size(x.aval) for j in _inner(program.jaxpr) for e in j.eqns for x in e.outvars), default=0)
    return returned + _COPIES * largest


def runs_at_once(program: ClosedJaxpr, memory: float, platform: str) -> int:
    """How many runs go into the memory."""
    return max(1, min(int(memory / max(1, bytes_of_run(program))), _LARGEST.get(platform, 4_096)))
