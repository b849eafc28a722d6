"""What a result consists of but its values: arrays of runs and of chunks, coordinates and attributes."""

from typing import Any, NamedTuple

import numpy as np

from ._chunks import Chunks

NOT_RUN = -1
PROCESSOR = "processor"
"""What made each chunk."""


class ArraySpec(NamedTuple):
    """One array of the result: its dimensions and shape for one run or one chunk, type, and attributes."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    attributes: dict[str, Any]
    of_chunk: bool = False

    @property
    def fill(self) -> Any:
        """What stands where nothing was run."""
        if self.dtype.kind == "T":
            return ""
        return np.nan if np.issubdtype(self.dtype, np.inexact) else NOT_RUN


class Template(NamedTuple):
    """All a result consists of but its values."""

    sizes: dict[str, int]  # of the dimensions of the sweep
    columns: dict[str, ArraySpec]  # the arrays
    # `coordinates`: dimensions, values and attributes.
    coordinates: dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, Any]]]
    attributes: dict[str, Any]  # of all

    def of_chunks(self) -> list[str]:
        """The arrays with an entry for each chunk."""
        return [name for name, x in self.columns.items() if x.of_chunk]

    def dims(self, name: str) -> tuple[str, ...]:
        """The dimensions of an array."""
        x = self.columns[name]
        return (*(f"chunk_{dim}" if x.of_chunk else dim for dim in self.sizes), *x.dims)

    def shape(self, name: str, chunks: Chunks) -> tuple[int, ...]:
        """The shape of an array."""
        x = self.columns[name]
        return (*(chunks.grid if x.of_chunk else chunks.sizes), *x.shape)
