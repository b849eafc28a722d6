"""Tables with one column for each number: a `pandas.DataFrame`, and files of comma-separated values."""

import csv
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .._misc._errors import needing
from .._misc._tables import Column, RunTable
from .._system._labels import make_indexed_names, unique_names

if TYPE_CHECKING:
    import pandas


def _places(dim: str, size: int, table: RunTable) -> list[str]:
    """What stands in brackets: labels, or numbers where there are none of one's own."""
    labels = table.labels.get(dim)
    if labels is None or any(labels == list(make_indexed_names(x, size)) for x in "qvu"):
        return [str(i) for i in range(size)]
    return list(unique_names(labels))


def _flat(name: str, column: Column, table: RunTable) -> dict[str, np.ndarray]:
    dims, values = column.dims[1:], column.values
    places = [_places(dim, size, table) for dim, size in zip(dims, values.shape[1:], strict=True)]
    names = [f"{name}[{', '.join(place)}]" if place else name for place in itertools.product(*places)]
    return dict(zip(names, values.reshape(len(values), -1).T, strict=True))


def _all_flat(table: RunTable) -> dict[str, np.ndarray]:
    """Columns (k,) by names such as `q[0]`, `q[crank theta]`, `multipliers[pin]`, `energy`; `t` first."""
    columns: dict[str, np.ndarray] = {}
    for name, column in table.columns.items():
        if column.dims[0] == "time":  # not what happened between saved times
            columns |= _flat(name, column, table)
    return {"t": columns.pop("t")} | columns


def to_pandas(table: RunTable) -> "pandas.DataFrame":
    """The table as a data frame over time, its attributes in `attrs`."""
    with needing("to_pandas()", "data"):
        import pandas
    columns = _all_flat(table)
    frame = pandas.DataFrame(columns, index=pandas.Index(columns.pop("t"), name="t"))
    frame.attrs.update(table.attributes)
    return frame


def write_csv(table: RunTable, path: Path) -> None:
    """Writes comma-separated values: a line of names, then one for each time, every number to its last digit."""
    columns = _all_flat(table)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(x.tolist() for x in columns.values()), strict=True))
