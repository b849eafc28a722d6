"""Where the results of a sweep go as they come: arrays in memory, or a Zarr folder that survives being killed.

The folder is complete from the first moment, with `result` at -1 (not run) everywhere. A block of runs is written to
chunks of its own, each by a file that is renamed when whole, and `result` last: a block whose results are there is
done, any other is run again.
"""

import abc
import contextlib
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from .._misc._errors import InputError, missing_extra
from .._misc._paths import writing
from ._chunks import Region
from ._member import RESULT

if TYPE_CHECKING:
    import xarray

NOT_RUN = -1
MADE_BY = "ukjax.sweep"


def _xarray() -> Any:
    try:
        import xarray
    except ImportError as error:
        raise missing_extra("sweep()", "sweep") from error
    return xarray


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise missing_extra("sweep(store=...)", "sweep") from error
    return zarr


def check_installed(store: bool) -> None:
    """Raises `MissingExtraError` where what a result is kept in is not installed.

    **Arguments:**

    - `store`: whether it is kept in a folder.
    """
    _xarray()
    if store:
        _zarr()


class ArraySpec(NamedTuple):
    """One array of the result: dimensions, shape, type, and attributes."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    attributes: dict[str, Any]

    @property
    def fill(self) -> Any:
        """What stands where nothing was run."""
        return np.nan if np.issubdtype(self.dtype, np.inexact) else NOT_RUN


class Template(NamedTuple):
    """All a result consists of but its values."""

    columns: dict[str, ArraySpec]
    coordinates: dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, Any]]]
    attributes: dict[str, Any]


class AbstractTarget(abc.ABC):
    """Takes the results of blocks of runs."""

    arrays: dict[str, Any]

    def write(self, region: Region, values: dict[str, np.ndarray]) -> None:
        """Keeps the results of a block, all or none.

        **Arguments:**

        - `region`: where the block lies.
        - `values`: by name.
        """
        for name in sorted(values, key=lambda name: name == RESULT):
            self.arrays[name][region] = values[name]

    @abc.abstractmethod
    def results(self) -> np.ndarray:
        """The codes of all runs, -1 for those not made."""

    @abc.abstractmethod
    def dataset(self) -> "xarray.Dataset":
        """What there is."""

    @abc.abstractmethod
    def close(self) -> None:
        """Lets others at it."""


@final
class Memory(AbstractTarget):
    """Arrays in memory."""

    def __init__(self, template: Template):
        self._xarray, self._template = _xarray(), template
        self.arrays = {name: np.full(x.shape, x.fill, x.dtype) for name, x in template.columns.items()}

    def results(self) -> np.ndarray:
        return self.arrays[RESULT]

    def dataset(self) -> "xarray.Dataset":
        columns = self._template.columns
        variables = {name: (x.dims, self.arrays[name], x.attributes) for name, x in columns.items()}
        return self._xarray.Dataset(variables, self._template.coordinates, self._template.attributes)

    def close(self) -> None:
        pass


def attributes_of(path: Path) -> dict[str, Any] | None:
    """The attributes of a sweep's folder; None where there is none of that name.

    **Arguments:**

    - `path`: the folder.

    **Raises:** `InputError` where something else lies there.
    """
    with writing(path):
        if not path.exists() and not path.is_symlink():
            return None
    try:
        attributes = dict(_zarr().open_group(path, mode="r").attrs)
    except Exception:  # it is something else, or damaged: Zarr raises many kinds
        attributes = {}
    if attributes.get("made_by") != MADE_BY:
        raise InputError(f"'{path}' already exists, and no sweep made it: choose another name.")
    return attributes


def require_same(path: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Raises `InputError`, saying what differs, where a folder is not of the same sweep.

    **Arguments:**

    - `path`: the folder.
    - `old`: its attributes.
    - `new`: those of the sweep to be made.
    """
    differing = [name for name in new if old.get(name) != new[name]]
    if not differing:
        return
    shown = [f"{name} (there {old.get(name)}, here {new[name]})" for name in differing]
    if differing == ["program"]:
        shown = ["the code of the model, or a constant in it"]
    raise InputError(
        f"'{path}' is the store of another sweep, which differs in {'; '.join(shown)}. "
        "Give another name, or overwrite=True."
    )


def _create(path: Path, template: Template, chunk: tuple[int, ...], replace: bool) -> contextlib.ExitStack:
    """Makes the folder, with nothing run; it is there as a whole, and locked, or not at all."""
    xarray, new = _xarray(), path.with_name(f".{path.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    empty = xarray.Dataset(coords=template.coordinates, attrs=template.attributes)
    empty.to_zarr(new, mode="w", zarr_format=3, consolidated=False)
    group = _zarr().open_group(new, mode="r+")
    for name, x in template.columns.items():
        group.create_array(
            name,
            shape=x.shape,
            chunks=(*chunk, *(max(1, size) for size in x.shape[len(chunk) :])),
            dtype=x.dtype,
            fill_value=x.fill,
            dimension_names=x.dims,
            attributes=x.attributes,
        )
    with warnings.catch_warnings():
        # Readers look for consolidated metadata first, and warn where there are none; Zarr, which does not yet count
        # them to its format 3, warns where there are. Nothing changes them later.
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        _zarr().consolidate_metadata(new)
    lock = _locked(new)
    if replace:
        shutil.rmtree(path)
    try:
        new.rename(path)
    except OSError:
        lock.close()
        shutil.rmtree(new, ignore_errors=True)
        raise
    return lock


@final
class Folder(AbstractTarget):
    """A Zarr folder."""

    def __init__(self, path: Path, template: Template, chunk: tuple[int, ...], overwrite: bool):
        self._path, old = path, attributes_of(path)
        if old is None:
            with writing(path):
                self._lock = _create(path, template, chunk, replace=False)
        elif overwrite:
            with _locked(path), writing(path):
                self._lock = _create(path, template, chunk, replace=True)
        else:
            require_same(path, old, template.attributes)
            self._lock = _locked(path)
        for rest in path.rglob("*.partial"):  # of files that were being written
            rest.unlink()
        group = _zarr().open_group(path, mode="r+")
        self.arrays = {name: group[name] for name in template.columns}

    def results(self) -> np.ndarray:
        return self.arrays[RESULT][...]

    def dataset(self) -> "xarray.Dataset":
        return _xarray().open_zarr(self._path, consolidated=False, chunks=None)[list(self.arrays)]

    def close(self) -> None:
        self._lock.close()


def _locked(path: Path) -> contextlib.ExitStack:
    """Holds a lock that no other process has, until it is closed or the process ends; it moves with the folder."""
    held = contextlib.ExitStack()
    with contextlib.suppress(ImportError):  # where there is no such lock
        import fcntl

        file = held.enter_context((path / "zarr.json").open())
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            held.close()
            raise InputError(f"another process is writing to '{path}'.") from None
    return held
