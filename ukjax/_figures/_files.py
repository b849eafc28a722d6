"""Tables of named arrays with dimensions and units, to xarray and to files: npz, NetCDF or Zarr, never pickle."""

import json
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .._misc._errors import InputError, missing_extra
from ._frames import write_csv
from ._table import Column, Table

if TYPE_CHECKING:
    import xarray


def to_xarray(table: Table) -> "xarray.Dataset":
    """The table as an `xarray.Dataset`, with `units` in the attributes of each variable.

    **Arguments:**

    - `table`: the table.

    **Raises:** `MissingExtraError` without xarray.
    """
    try:
        import xarray
    except ImportError as error:
        raise missing_extra("to_xarray()", "data") from error
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


def _from_xarray(dataset: "xarray.Dataset") -> Table:
    columns = {
        name: Column(tuple(map(str, x.dims)), x.values, x.attrs.get("units", ""))
        for name, x in dataset.data_vars.items()
    }
    columns["t"] = Column(("time",), dataset["time"].values, "s")
    names = {"row", "row_kind", *(str(name) for name in dataset.coords if name != "time")}
    labels = {name: [str(x) for x in dataset[name].values] for name in names}
    return Table({str(k): v for k, v in columns.items()}, labels, dict(dataset.attrs))


def checked_suffix(path: Path) -> str:
    if path.suffix not in (".npz", ".nc", ".zarr", ".csv"):
        raise InputError(
            f"cannot tell the format of '{path}': the name must end in .npz, .nc or .zarr, or, to be read by other "
            f"programs only, in .csv."
        )
    return path.suffix


def save(table: Table, path: str | Path) -> Path:
    """Writes a table; the suffix (.npz, .nc, .zarr, .csv) chooses the format. A file of that name is replaced whole.

    **Arguments:**

    - `table`: the table.
    - `path`: where to.

    **Returns:** the path.

    **Raises:** `InputError` for another suffix, `MissingExtraError` without the format's library.
    """
    path = Path(path)
    suffix = checked_suffix(path)
    # Written beside the target and moved, so that an interrupted save never leaves half a file.
    partial = path.with_name(f".{path.stem}.partial{suffix}")
    if suffix == ".csv":
        write_csv(table, partial)
    elif suffix == ".npz":
        header = {
            "columns": {name: [column.dims, column.units] for name, column in table.columns.items()},
            "labels": table.labels,
            "attributes": table.attributes,
        }
        arrays = {name: column.values for name, column in table.columns.items()}
        np.savez_compressed(partial, allow_pickle=False, header=np.array(json.dumps(header)), **arrays)
    else:
        dataset = to_xarray(table)
        try:
            if suffix == ".nc":
                dataset.to_netcdf(partial, engine="h5netcdf")
            else:
                # Format 2, of which consolidated metadata are a part: others open it without a warning.
                dataset.to_zarr(partial, mode="w", zarr_format=2, consolidated=True)
        except ImportError as error:
            raise missing_extra(f"saving to {suffix}", "data") from error
    if path.is_dir():
        shutil.rmtree(path)
    partial.replace(path)
    return path


def load(path: str | Path) -> Table:
    """Reads a table written by `save`.

    **Arguments:**

    - `path`: the file (or Zarr folder).

    **Raises:** `InputError` if there is none, or it is not such a file.
    """
    path = Path(path)
    suffix = checked_suffix(path)
    if suffix == ".csv":
        raise InputError(f"'{path}' lacks what a trajectory needs: save it as .npz, .nc or .zarr to read it.")
    if not path.exists():
        raise InputError(f"there is no file '{path}'.")
    try:
        return _read(path, suffix)
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise InputError(f"'{path}' was not written by ukjax, or is damaged: {error}") from error


def _read(path: Path, suffix: str) -> Table:
    if suffix != ".npz":
        try:
            import xarray
        except ImportError as error:
            raise missing_extra(f"loading {suffix}", "data") from error
        if suffix == ".zarr":
            return _from_xarray(xarray.open_zarr(path, consolidated=False).load())
        with xarray.open_dataset(path, engine="h5netcdf") as dataset:
            return _from_xarray(dataset.load())
    with np.load(path, allow_pickle=False) as file:
        header = json.loads(str(file["header"]))
        columns = {
            name: Column(tuple(dims), file[name], units) for name, (dims, units) in header["columns"].items()
        }
    return Table(columns, header["labels"], header["attributes"])
