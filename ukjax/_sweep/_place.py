"""Where a store lies: a local folder, or the URL of one that several machines reach."""

import abc
import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, final

from .._misc._errors import InputError, needing
from .._misc._files import as_path, writing
from ._lease import acquire_lease

_T = TypeVar("_T")
ROOT = "zarr.json"
MADE_BY = "ukjax.sweep"

PATIENCE = 120.0
"""How long a store that cannot be reached is waited for [s]: file servers restart within a minute or two."""
# Errors that waiting does not mend.
_FINAL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG}


def zarr() -> Any:
    """The package, or `MissingExtraError`."""
    with needing("sweep(store=...)", "sweep"):
        import zarr
    return zarr


class AbstractPlace(abc.ABC):
    """Where a store lies."""

    name: str  # as a message calls it

    @abc.abstractmethod
    def zarr_store(self) -> Any:
        """What Zarr and xarray open."""

    @abc.abstractmethod
    def exists(self) -> bool:
        """Whether there is something of that name."""

    @abc.abstractmethod
    def create(self, lay_out: Callable[[Any], None], replace: bool) -> contextlib.ExitStack:
        """Makes the store, which `lay_out` writes to what Zarr opens: it is there whole and locked, or not at all."""

    @abc.abstractmethod
    def locked(self) -> contextlib.ExitStack:
        """Holds a lock that no other process has, until it is closed or the process ends."""

    @abc.abstractmethod
    def in_use(self) -> bool:
        """Whether a process holds the lock."""

    @abc.abstractmethod
    def tidy(self) -> None:
        """Removes what was left of files that were being written."""

    @abc.abstractmethod
    def keys(self) -> set[str]:
        """The files there are, by their paths in the store."""

    @abc.abstractmethod
    def read(self, key: str) -> bytes:
        """What a file holds."""

    @abc.abstractmethod
    def put(self, files: dict[str, bytes]) -> None:
        """Writes files, each as a whole or not at all."""

    @abc.abstractmethod
    def remove(self, keys: set[str]) -> None:
        """Removes those files that are there."""

    def group(self, mode: Any) -> Any:
        """The group of Zarr, to be read ("r"), or written, too ("r+")."""
        return zarr().open_group(self.zarr_store(), mode=mode, use_consolidated=False)

    def attributes(self) -> dict[str, Any] | None:
        """The attributes of a sweep's store; None where there is none of that name."""
        if not self.patiently(self.exists):
            return None
        try:
            attributes = dict(self.group("r").attrs)
        except Exception:  # it is something else, or damaged: Zarr raises many kinds
            attributes = {}
        if attributes.get("made_by") != MADE_BY:
            raise InputError(
                f"'{self.name}' already exists, and no sweep made it, or its {ROOT} is damaged: choose another name."
            )
        return attributes

    def patiently(self, act: Callable[[], _T]) -> _T:
        """What `act` returns, which reads or writes the store, all or nothing; again while that cannot be reached."""
        end, pause = time.monotonic() + PATIENCE, 0.5
        while True:
            try:
                return act()
            except Exception as error:
                if isinstance(error, InputError):
                    raise
                if isinstance(error, OSError) and _innermost(error).errno in _FINAL:
                    raise InputError(f"'{self.name}' cannot be written: {_innermost(error)}.") from error
                if not isinstance(error, OSError) and isinstance(error, ValueError | TypeError | LookupError):
                    raise
                if time.monotonic() > end:
                    told = f"{type(error).__name__}: {error}"
                    raise InputError(f"'{self.name}' cannot be reached: {told}.") from error
            time.sleep(pause)
            pause = min(2 * pause, 8.0)


def _innermost(error: OSError) -> OSError:
    """The error of the system that another one was raised from."""
    while error.errno is None and isinstance(error.__cause__ or error.__context__, OSError):
        error = error.__cause__ or error.__context__  # pyright: ignore[reportAssignmentType]
    return error


@final
class LocalFolder(AbstractPlace):
    """A folder."""

    def __init__(self, path: Path):
        self.path, self.name = path, str(path)

    def zarr_store(self) -> Path:
        return self.path

    def exists(self) -> bool:
        with writing(self.path):
            return self.path.exists() or self.path.is_symlink()

    def create(self, lay_out: Callable[[Any], None], replace: bool) -> contextlib.ExitStack:
        with self.locked() if replace else contextlib.nullcontext(), writing(self.path):
            new = self.path.with_name(f".{self.path.name}.new")
            shutil.rmtree(new, ignore_errors=True)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.ExitStack() as failed:
                failed.callback(shutil.rmtree, new, ignore_errors=True)
                lay_out(new)
                lock = LocalFolder(new).locked()
                failed.callback(lock.close)
                if replace:
                    shutil.rmtree(self.path)
                new.rename(self.path)
                failed.pop_all()
            return lock

    def locked(self) -> contextlib.ExitStack:
        held = contextlib.ExitStack()
        with contextlib.suppress(ImportError):  # where there is no such lock
            import fcntl

            file = held.enter_context((self.path / ROOT).open())  # it moves with the folder
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                held.close()
                raise InputError(f"another process is writing to '{self.path}'.") from None
        return held

    def in_use(self) -> bool:
        try:
            import fcntl
        except ImportError:
            return False
        with (self.path / ROOT).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    def tidy(self) -> None:
        for rest in self.path.rglob("*.partial"):
            rest.unlink(missing_ok=True)

    def keys(self) -> set[str]:
        folders = ((Path(folder).relative_to(self.path), names) for folder, _, names in os.walk(self.path))
        return {(folder / name).as_posix() for folder, names in folders for name in names}

    def read(self, key: str) -> bytes:
        return (self.path / key).read_bytes()

    def put(self, files: dict[str, bytes]) -> None:
        for key, x in files.items():
            path = self.path / key
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f"{path.name}.partial")
            partial.write_bytes(x)
            partial.replace(path)

    def remove(self, keys: set[str]) -> None:
        for key in keys:
            (self.path / key).unlink(missing_ok=True)


@final
class Remote(AbstractPlace):
    """A URL that fsspec knows, such as s3://bucket/runs.zarr."""

    def __init__(self, url: str):
        self.name = url.rstrip("/")

    def _files(self) -> tuple[Any, str]:
        try:
            import fsspec

            files, path = fsspec.core.url_to_fs(self.name)
        except ImportError as error:
            raise InputError(f"'{self.name}' needs a package that is not installed: {error}.") from error
        except ValueError as error:
            raise InputError(f"store is no URL that fsspec knows: {error}.") from error
        files.invalidate_cache()
        return files, path

    def zarr_store(self) -> Any:
        return zarr().storage.FsspecStore.from_url(self.name)

    def exists(self) -> bool:
        files, path = self._files()
        return files.exists(f"{path}/{ROOT}")

    def create(self, lay_out: Callable[[Any], None], replace: bool) -> contextlib.ExitStack:
        laid: dict[str, Any] = {}
        lay_out(zarr().storage.MemoryStore(laid))
        lock = self.locked()
        try:
            self.patiently(lambda: self._put({key: x.to_bytes() for key, x in laid.items()}, replace))
        except BaseException:
            lock.close()
            raise
        return lock

    def _put(self, laid: dict[str, bytes], replace: bool) -> None:
        """Writes the files, the one that makes it a store last; what is replaced stops to be one first."""
        files, path = self._files()
        found = self.keys()
        if replace and found:
            if ROOT in found:
                files.rm_file(f"{path}/{ROOT}")
            files.rm(path, recursive=True)
        elif found - laid.keys():
            raise InputError(f"'{self.name}' already exists, and no sweep made it: choose another name.")
        self.put({key: laid[key] for key in sorted(laid, key=lambda key: key == ROOT)})

    def keys(self) -> set[str]:
        files, path = self._files()
        return {key.removeprefix(f"{path}/") for key in files.find(path)}

    def read(self, key: str) -> bytes:
        files, path = self._files()
        return files.cat_file(f"{path}/{key}")

    def put(self, files: dict[str, bytes]) -> None:
        there, path = self._files()
        for key, x in files.items():
            there.pipe_file(f"{path}/{key}", x)

    def remove(self, keys: set[str]) -> None:
        files, path = self._files()
        for key in keys & self.keys():
            files.rm_file(f"{path}/{key}")

    def locked(self) -> contextlib.ExitStack:
        files, path = self._files()
        return acquire_lease(files, f"{path}.driver", self.name)

    def in_use(self) -> bool:
        files, path = self._files()
        return files.exists(f"{path}.driver")

    def tidy(self) -> None:
        """Nothing: what is put to a URL is there as a whole, or not at all."""


def place_of(store: Any) -> AbstractPlace:
    """The place that a user names."""
    if isinstance(store, str) and "://" in store and not store.startswith("file://"):
        return Remote(store)
    return LocalFolder(as_path("store", store.removeprefix("file://") if isinstance(store, str) else store))
