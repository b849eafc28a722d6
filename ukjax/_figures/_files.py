"""Tables of named arrays with dimensions and units, to xarray and to files: npz, NetCDF or Zarr, never pickle."""

import io
import warnings
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .._misc._errors import InputError, MissingExtraError, needing
from .._misc._files import (
    AT_END,
    ATTRIBUTE,
    add_checksum,
    as_path,
    digest_of_folder,
    intact,
    read_npz,
    replacing,
    require_intact_folder,
    require_there,
    write_npz,
)
from .._misc._tables import Column, RunTable
from ._frames import write_csv

if TYPE_CHECKING:
    import xarray

Layout = dict[str, tuple[tuple[str, ...], str]]


def to_xarray(table: RunTable) -> "xarray.Dataset":
    """The table as an `xarray.Dataset`, with `units` in the attributes of each variable."""
    with needing("to_xarray()", "data"):
        import xarray
    variables = {
        name: xarray.Variable(column.dims, column.values, {"units": column.units})
        for name, column in table.columns.items()
    }
    time = variables.pop("t")
    # `row` lies along the dimension of its own name, `row_kind` beside it.
    labels = {
        name: (name.removesuffix("_kind"), np.asarray(values, dtype=object))
        for name, values in table.labels.items()
    }
    coordinates = {"time": ("time", time.values, time.attrs), **labels}
    return xarray.Dataset(variables, coords=coordinates, attrs=table.attributes)


def _from_xarray(dataset: "xarray.Dataset") -> RunTable:
    columns = {
        str(name): Column(tuple(map(str, x.dims)), x.values, str(x.attrs.get("units", "")))
        for name, x in dataset.data_vars.items()
    }
    columns["t"] = Column(("time",), dataset["time"].values, "s")
    names = {"row", "row_kind", *(str(name) for name in dataset.coords if name != "time")}
    labels = {name: [str(x) for x in dataset[name].values] for name in names}
    attributes = {str(name): x for name, x in dataset.attrs.items() if name != ATTRIBUTE}
    return RunTable(columns, labels, attributes)


def check_suffix(path: Path) -> str:
    if path.suffix not in (".npz", ".nc", ".zarr", ".csv"):
        raise InputError(
            f"cannot tell the format of '{path}': the name must end in .npz, .nc or .zarr, or, to be read by other "
            f"programs only, in .csv, or, to be looked at only, in .html."
        )
    return path.suffix


def save(table: RunTable, path: str | Path) -> Path:
    """Writes a table; the suffix (.npz, .nc, .zarr, .csv) chooses the format. A file of that name is replaced whole."""
    path = as_path("path", path)
    suffix = check_suffix(path)
    if suffix == ".csv":
        with replacing(path) as partial:
            write_csv(table, partial)
        return path
    if suffix == ".npz":
        header = {
            "columns": {name: [column.dims, column.units] for name, column in table.columns.items()},
            "labels": table.labels,
            "attributes": table.attributes,
        }
        write_npz(path, header, {name: column.values for name, column in table.columns.items()})
        return path
    dataset = to_xarray(table)
    with needing(f"saving to {suffix}", "data"):
        _write_netcdf(dataset, path) if suffix == ".nc" else _write_zarr(dataset, path)
    return path


def _write_netcdf(dataset: "xarray.Dataset", path: Path) -> None:
    content = io.BytesIO()  # in memory: HDF5 ends the process where a disk is full
    dataset.assign_attrs({ATTRIBUTE: AT_END}).to_netcdf(content, engine="h5netcdf")
    with replacing(path) as partial:
        partial.write_bytes(add_checksum(content.getvalue()))


def _write_zarr(dataset: "xarray.Dataset", path: Path) -> None:
    import zarr

    if path.is_dir() and any(path.iterdir()) and not (path / "zarr.json").exists():
        raise InputError(f"'{path}' is a folder, but not a Zarr store: choose another name.")
    with replacing(path) as partial:
        dataset.to_zarr(partial, mode="w", consolidated=False, zarr_format=3)
        attributes = zarr.open_group(partial, mode="r+").attrs
        attributes[ATTRIBUTE] = digest_of_folder(partial, dict(attributes))
        # Readers look for consolidated metadata first, and warn where there are none; Zarr, which does not yet count them
        # to its format, warns where they are written.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(partial)


def load(path: str | Path, columns: Layout, results: Container[str]) -> RunTable:
    """Reads a table written by `save`.

    **Raises:** `InputError` if there is none, or it is not such a file.
    """
    path = as_path("path", path)
    suffix = check_suffix(path)
    if suffix == ".csv":
        raise InputError(f"'{path}' lacks what a trajectory needs: save it as .npz, .nc or .zarr to read it.")
    require_there(path)
    try:
        table = _read(path, suffix)
        _require_layout(table, columns, results)
    except (InputError, MissingExtraError):
        raise
    except Exception as error:  # of damaged files xarray, HDF5 and Zarr raise whatever they stumble on
        raise InputError(f"'{path}' was not written by ukjax, or is damaged: {error!r}.") from error
    return table


def _read(path: Path, suffix: str) -> RunTable:
    if suffix == ".npz":
        header, arrays = read_npz(path)
        columns = {
            name: Column(tuple(dims), arrays[name], units)
            for name, (dims, units) in header["columns"].items()
        }
        return RunTable(columns, dict(header["labels"]), dict(header["attributes"]))
    with needing(f"loading {suffix}", "data"):
        import xarray
    if suffix == ".zarr":
        require_intact_folder(path)
        return _from_xarray(xarray.open_zarr(path, consolidated=False).load())
    intact(path)
    with xarray.open_dataset(path, engine="h5netcdf") as dataset:
        return _from_xarray(dataset.load())


def _require_layout(table: RunTable, columns: Layout, results: Container[str]) -> None:
    """Raises `KeyError` or `TypeError` unless all that a trajectory consists of is there, of its kind and size."""
    sizes = {"row": len(table.labels["row"])}
    for name, (dims, _) in columns.items():
        if name == "energy" and name not in table.columns:
            continue
        column = table.columns[name]
        values = np.asarray(column.values)
        if column.dims != dims or values.ndim != len(dims) or values.dtype.kind not in "fiu":
            raise TypeError(f"{name} must be numbers along {' and '.join(dims)}")
        for dim, size in zip(dims, values.shape, strict=True):
            if sizes.setdefault(dim, size) != size:
                raise TypeError(f"{name} has {size} entries along {dim}, others have {sizes[dim]}")
    for name in ("row", "row_kind"):
        labels = table.labels[name]
        if len(labels) != sizes["row"] or not all(isinstance(x, str) for x in labels):
            raise TypeError(f"{name} must be a word for each of {sizes['row']} rows")
    words = {"model", "result", "message"}
    for name in words | {"num_steps"} | table.attributes.keys():
        kind = str if name in words | {"event", "computed_by"} else int | float | np.number
        if not isinstance(table.attributes[name], kind):
            raise TypeError(f"{name} cannot be {table.attributes[name]!r}")
    if str(table.attributes["result"]) not in results:
        raise TypeError(f"there is no result {table.attributes['result']}")
