"""A table of named arrays, from which figures, files, and the tables of other libraries are made."""

from typing import NamedTuple

import numpy as np


class Column(NamedTuple):
    """One array with the names of its dimensions and its unit."""

    dims: tuple[str, ...]
    values: np.ndarray
    units: str


class RunTable(NamedTuple):
    """Columns by name, labels along dimensions (`row` -> row names, `row_kind` -> their kinds), and attributes of the
    whole."""

    columns: dict[str, Column]
    labels: dict[str, list[str]]
    attributes: dict[str, str | int | float]
