"""Files: names that a user hands in, files that are there whole or not at all, checksums, and arrays in .npz files."""

import contextlib
import io
import json
import os
import shutil
import time
import zipfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import InputError, format_value

# --- Names of files that a user hands in, and files that are there whole or not at all

_LONGEST = 240  # of a name; most file systems take 255 bytes, and `replacing` adds some


def _is_name(text: str) -> bool:
    path = Path(text)
    return "\0" not in text and path.name not in ("", "..") and max(map(len, path.parts)) <= _LONGEST


def as_path(name: str, value: Any) -> Path:
    """A path to a file or a folder with a name."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not _is_name(text):
        raise InputError(
            f"{name} must be the name of a file, such as 'results/run1', got {format_value(value)}."
        )
    return Path(text)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what the system objects to, such as a missing folder or a full disk, into one `InputError`."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, RuntimeError) as error:  # the last is how HDF5 fails
        raise InputError(f"'{path}' cannot be written: {error}.") from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside a path, to write to: moved there at the end, so that an interruption never leaves half a file."""
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        with writing(path):
            yield partial
            if partial.is_dir() and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            partial.replace(path)
    finally:
        with contextlib.suppress(OSError, ValueError):
            _remove(partial)


def _remove(path: Path) -> None:
    """Removes a file, or a folder into which threads of Zarr may still write after an error in one of them."""
    if not path.is_dir():
        path.unlink()
    for wait in (0.01, 0.1, 1.0):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            break
        time.sleep(wait)


def require_there(path: Path) -> None:
    """Raises `InputError` unless there is a file or folder of that name."""
    try:
        path.stat()
    except (OSError, ValueError) as error:
        raise InputError(f"there is no file '{path}': {error}.") from error


# --- Checksums of files, compared before anything else is read: parsers of damaged files crash, hang or notice nothing
#
# A file has its checksum at its end: HDF5 and FlatBuffers, which say themselves where they end, are read by others as
# before. A Zarr folder has it among its attributes.

ATTRIBUTE = "checksum"
"""The name of the attribute by which a file of a known format tells that it has one."""
_LINE = b"\nukjax_sha256 "
_LENGTH = len(_LINE) + 64

AT_END = "ukjax_sha256_at_the_end_of_the_file"
"""To be written somewhere in a file that gets a checksum, so that one that lost it is known to have had it."""


def _make_damage_error(path: Path) -> InputError:
    return InputError(
        f"'{path}' is damaged, or was changed after ukjax wrote it: its checksum is another, or is missing."
    )


def _line(content: bytes) -> bytes:
    return _LINE + sha256(content).hexdigest().encode()


def add_checksum(content: bytes) -> bytes:
    """A file's content, which holds `AT_END`, with its checksum at the end."""
    return content + _line(content)


def intact(path: Path) -> bytes:
    """What is in a file, without its checksum; a file that never had one, such as of an earlier version, as it is."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {error}.") from error
    if content[-_LENGTH:].startswith(_LINE):
        content, line = content[:-_LENGTH], content[-_LENGTH:]
        if line != _line(content):
            raise _make_damage_error(path)
    elif AT_END.encode() in content:
        raise _make_damage_error(path)
    return content


def digest_of_folder(path: Path, attributes: dict[str, Any]) -> str:
    """A digest of all files of a Zarr folder, and of its attributes but for the checksum."""
    own = {name: x for name, x in attributes.items() if name != ATTRIBUTE}
    hashed = sha256(json.dumps(own, sort_keys=True).encode())
    for file in sorted(x for x in path.rglob("*") if x.is_file() and x != path / "zarr.json"):
        hashed.update(f"{file.relative_to(path).as_posix()} {file.stat().st_size}\n".encode())
        hashed.update(file.read_bytes())
    return hashed.hexdigest()


def require_intact_folder(path: Path) -> None:
    """Raises `InputError` for a Zarr folder whose files are not those it was written with, where it has a checksum."""
    attributes = json.loads((path / "zarr.json").read_bytes())["attributes"]
    if ATTRIBUTE in attributes and attributes[ATTRIBUTE] != digest_of_folder(path, attributes):
        raise _make_damage_error(path)


# --- Named arrays with a header in an .npz file, which NumPy alone reads, never by pickle

_HEADER = "header"


def write_npz(path: Path, header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays, whole or not at all."""
    with replacing(path) as partial:
        named: dict[str, Any] = {_HEADER: np.array(json.dumps(header)), **arrays}
        np.savez_compressed(partial, allow_pickle=False, **named)


def _array(content: bytes) -> np.ndarray:
    return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)


def read_npz(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays."""
    require_there(path)
    try:
        with zipfile.ZipFile(path) as file:
            # Whole, so that their checksums are compared before NumPy makes arrays of whatever shape they say.
            members = {name.removesuffix(".npy"): file.read(name) for name in file.namelist()}
        arrays = {name: _array(content) for name, content in members.items()}
        header = json.loads(str(arrays.pop(_HEADER)))
        if not isinstance(header, dict):
            raise TypeError("its header is no table of names")
    except Exception as error:  # of damaged files zipfile, zlib and NumPy raise some ten kinds
        raise InputError(f"'{path}' was not written by ukjax, or is damaged: {error!r}.") from error
    return header, arrays
