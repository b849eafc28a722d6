"""Names of files that a user hands in, and files that are there whole or not at all."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ._errors import InputError, format_value

_LONGEST = 240  # of a name; most file systems take 255 bytes, and `replacing` adds some


def _is_name(text: str) -> bool:
    path = Path(text)
    return "\0" not in text and path.name not in ("", "..") and max(map(len, path.parts)) <= _LONGEST


def as_path(name: str, value: Any) -> Path:
    """A path to a file or a folder with a name.

    **Raises:** `InputError` for anything else.
    """
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
    """A name beside a path, to write to: moved there at the end, so that an interruption never leaves half a file.

    **Raises:** `InputError` where it cannot be written.
    """
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        with writing(path):
            yield partial
            if partial.is_dir() and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            partial.replace(path)
    finally:
        with contextlib.suppress(OSError, ValueError):
            if partial.is_dir():
                shutil.rmtree(partial)
            else:
                partial.unlink()


def require_there(path: Path) -> None:
    """Raises `InputError` unless there is a file or folder of that name."""
    try:
        path.stat()
    except (OSError, ValueError) as error:
        raise InputError(f"there is no file '{path}': {error}.") from error
