"""Where the results of a sweep go as they come: arrays in memory, or a Zarr store that survives being killed.

The store is complete from the first moment, with `result` at -1 (not run) everywhere. A chunk of runs is written to
Zarr chunks of its own, each there as a whole or not at all, and `result` last: a chunk whose results are there is
done, any other is run again. Zarr reads what is missing as NaN, so a driver that takes a store looks at its files, and
removes `result` where another one is lost or damaged.
"""

import abc
import contextlib
import json
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from .._misc._errors import InputError, needing
from ._chunks import Chunks, values_in
from ._member import RESULT
from ._place import ROOT, AbstractPlace, zarr
from ._template import Template

if TYPE_CHECKING:
    import xarray


def _xarray() -> Any:
    with needing("sweep()", "sweep"):
        import xarray
    return xarray


def check_installed(store: bool) -> None:
    """Raises `MissingExtraError` where what a result is kept in is not installed."""
    _xarray()
    if store:
        zarr()


class AbstractTarget(abc.ABC):
    """Takes the results of chunks of runs."""

    chunks: Chunks  # how the sweep is cut
    dims: Sequence[str]  # of the sweep
    arrays: dict[str, Any]  # by name
    coordinates: dict[str, tuple[tuple[str, ...], Any]]  # dimensions and values of the parameters
    of_chunks: Sequence[str]  # the arrays with an entry for each chunk

    def values(self, number: int, batch: int) -> dict[str, np.ndarray]:
        """The values of the parameters of a chunk, (batch, ...); the last run is repeated."""
        return values_in(self.coordinates, self.dims, self.chunks.region(number), batch)

    def write(self, number: int, values: dict[str, Any]) -> None:
        """Keeps the results of a chunk by name, of runs in its shape: all or none."""
        place, region = self.chunks.place(number), self.chunks.region(number)
        for name in sorted(values, key=lambda name: name == RESULT):
            if name in self.of_chunks:
                self.arrays[name][place] = np.asarray(values[name])[(None,) * len(place)]
            else:
                self.arrays[name][region] = values[name]

    @abc.abstractmethod
    def results(self, region: Any = ...) -> np.ndarray:
        """The codes of some runs, by default all; -1 for those not made."""

    @abc.abstractmethod
    def dataset(self) -> "xarray.Dataset":
        """What there is of each run."""

    @abc.abstractmethod
    def close(self) -> None:
        """Lets others at it."""


@final
class Memory(AbstractTarget):
    """Arrays in memory."""

    def __init__(self, template: Template, chunks: Chunks):
        self._xarray, self._template, self.chunks, self.dims = (
            _xarray(),
            template,
            chunks,
            list(template.sizes),
        )
        self.of_chunks = template.of_chunks()
        columns = template.columns.items()
        self.arrays = {name: np.full(template.shape(name, chunks), x.fill, x.dtype) for name, x in columns}
        self.coordinates = {
            name: template.coordinates[name][:2] for name in template.attributes["parameters"]
        }

    def results(self, region: Any = ...) -> np.ndarray:
        return self.arrays[RESULT][region]

    def dataset(self) -> "xarray.Dataset":
        of = self._template
        variables = {
            name: (of.dims(name), x, of.columns[name].attributes)
            for name, x in self.arrays.items()
            if name not in self.of_chunks
        }
        return self._xarray.Dataset(variables, of.coordinates, of.attributes)

    def close(self) -> None:
        pass


def differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    """What differs between a store and a sweep, as a message says it; nothing where they are the same."""
    differing = [name for name in new if old.get(name) != new[name]]
    if differing == ["program"]:
        return "the code of the model, or a constant in it"
    return "; ".join(f"{name} (there {old.get(name)}, here {new[name]})" for name in differing)


def require_same(place: AbstractPlace, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Raises `InputError`, saying what differs, where a store is not of the same sweep."""
    if differs := differences(old, new):
        raise InputError(
            f"'{place.name}' is the store of another sweep, which differs in {differs}. "
            "Give another name, or overwrite=True."
        )


def _lay_out(store: Any, template: Template, chunks: Chunks) -> None:
    """Writes a store in which nothing was run."""
    empty = _xarray().Dataset(coords=template.coordinates, attrs=template.attributes)
    empty.to_zarr(store, mode="w", zarr_format=3, consolidated=False)
    group = zarr().open_group(store, mode="r+")
    for name, x in template.columns.items():
        group.create_array(
            name,
            shape=template.shape(name, chunks),
            chunks=(
                *((1,) * len(chunks.shape) if x.of_chunk else chunks.shape),
                *(max(1, n) for n in x.shape),
            ),
            dtype=str if x.dtype.kind == "T" else x.dtype,
            compressors=zarr().codecs.ZstdCodec(
                checksum=True
            ),  # without, a changed byte can read as another number
            fill_value=x.fill,
            dimension_names=template.dims(name),
            attributes=x.attributes,
        )
    with warnings.catch_warnings():
        # Readers look for consolidated metadata first, and warn where there are none; Zarr, which does not yet count
        # them to its format 3, warns where there are. Nothing changes them later.
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        zarr().consolidate_metadata(store)


def claim_store(
    place: AbstractPlace, template: Template, chunks: Chunks, overwrite: bool
) -> contextlib.ExitStack:
    """The lock of a store, which is made where there is none."""
    old = place.attributes()
    if old is None or overwrite:
        return place.create(lambda store: _lay_out(store, template, chunks), replace=old is not None)
    require_same(place, old, template.attributes)
    lock = place.locked()
    try:
        place.patiently(lambda: _restore(place, template, chunks))
    except BaseException:
        lock.close()
        raise
    return lock


def _parse_json(text: bytes) -> Any:
    """What JSON says; None for what is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _restore(place: AbstractPlace, template: Template, chunks: Chunks) -> None:
    """Writes again what a store lost of its layout: descriptions of arrays, and values of parameters."""
    laid: dict[str, Any] = {}
    _lay_out(zarr().storage.MemoryStore(laid), template, chunks)
    keys = place.keys()
    # Not the root: the lock lies on its file, and who got here has read its attributes.
    described = {key: x.to_bytes() for key, x in laid.items() if key.endswith(f"/{ROOT}")}
    place.put(
        {
            key: x
            for key, x in described.items()
            if key not in keys or _parse_json(place.read(key)) != json.loads(x)
        }
    )
    group = place.group("r+")
    for name, (_, values, _) in template.coordinates.items():
        if not _is_readable(group[name], ...) or not np.array_equal(group[name][...], values):
            group[name][...] = values


def _is_readable(array: Any, region: Any) -> bool:
    """Whether files hold what was written to them, as far as they are there."""
    try:
        array[region]
    except (RuntimeError, ValueError):  # of the codecs
        return False
    return True


_READ_AT_ONCE = 2**26
"""How much of a store is read at a time to look for damage [bytes]."""


@final
class Store(AbstractTarget):
    """A Zarr store that is there already, with the attributes of its sweep, and the lock of the one process that may give
    out chunks."""

    def __init__(
        self, place: AbstractPlace, attributes: dict[str, Any], lock: contextlib.ExitStack | None = None
    ):
        self.place, self.attributes, self._lock = place, attributes, lock
        self.of_chunks = attributes["chunk_variables"]
        # A file for each chunk, even where it holds nothing but NaN: one that is not there was lost.
        with zarr().config.set({"array.write_empty_chunks": True}):
            group = place.patiently(self._require_own)
            names = (*attributes["outputs"], *self.of_chunks)
            try:
                self.arrays = {name: group[name] for name in names}
            except (LookupError, ValueError) as error:
                raise InputError(
                    f"'{place.name}' lost the description of an array ({error}): the sweep that made it restores it."
                ) from error
        result = self.arrays[RESULT]
        self.dims = result.metadata.dimension_names
        self.chunks = Chunks(result.shape, tuple(attributes["chunk"]))
        parameters = {name: group[name] for name in attributes["parameters"]}
        self.coordinates = {name: (x.metadata.dimension_names, x) for name, x in parameters.items()}
        if lock is not None:
            place.tidy()
            marks = {self._file(RESULT, number) for number in self.incomplete()}
            place.patiently(lambda: place.remove(marks))

    def _require_own(self) -> Any:
        """The group, which must be that of this sweep: what lies there may have been replaced."""
        group = self.place.group("r+")
        require_same(self.place, dict(group.attrs), self.attributes)
        return group

    def incomplete(self) -> list[int]:
        """The chunks of which a file is missing or damaged."""
        keys, numbers = self.place.patiently(self.place.keys), range(math.prod(self.chunks.grid))
        found: set[int] = set()
        for name, x in self.arrays.items():
            if x.size:
                found.update(number for number in numbers if self._file(name, number) not in keys)
                found.update(self._damaged(name))
        return sorted(found)

    def _file(self, name: str, number: int) -> str:
        """The key of a chunk of an array."""
        x, place = self.arrays[name], tuple(part.start for part in self.chunks.place(number))
        return f"{name}/{x.metadata.encode_chunk_key((*place, *(0,) * (x.ndim - len(place))))}"

    def _damaged(self, name: str) -> Iterator[int]:
        """The chunks of an array that cannot be read."""
        x, numbers = self.arrays[name], np.arange(math.prod(self.chunks.grid)).reshape(self.chunks.grid)
        region = self.chunks.place if name in self.of_chunks else self.chunks.region
        readable = lambda at: self.place.patiently(lambda: _is_readable(x, at))
        together = max(1, _READ_AT_ONCE * len(numbers) // x.nbytes)
        for i in range(0, len(numbers), together):
            part = numbers[i : i + together].ravel().tolist()
            if not readable(slice(region(part[0])[0].start, region(part[-1])[0].stop)):
                yield from (number for number in part if not readable(region(number)))

    def values(self, number: int, batch: int) -> dict[str, np.ndarray]:
        def read() -> dict[str, np.ndarray]:
            values = AbstractTarget.values(self, number, batch)
            if not all(
                np.all(np.isfinite(x)) for x in values.values()
            ):  # Zarr's fill values for missing files
                raise FileNotFoundError(f"'{self.place.name}' lacks values of parameters")
            return values

        return self.place.patiently(read)

    def write(self, number: int, values: dict[str, Any]) -> None:
        def write() -> None:
            self._require_own()
            AbstractTarget.write(self, number, values)

        self.place.patiently(write)

    def results(self, region: Any = ...) -> np.ndarray:
        return self.place.patiently(lambda: self.arrays[RESULT][region])

    def dataset(self) -> "xarray.Dataset":
        stored = _xarray().open_zarr(self.place.zarr_store(), consolidated=False, chunks=None)
        return stored[[name for name in self.arrays if name not in self.of_chunks]]

    def close(self) -> None:
        self.place.tidy()
        if self._lock is not None:
            self._lock.close()
