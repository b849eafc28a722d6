"""The folder that what was compiled is kept in, for other processes of this user.

`UKJAX_CACHE` is another folder for it, or `0` or `off`: nothing is kept. Each file begins with a digest of its name and
of what it holds, and is written at once, so that none is read that is damaged, cut or half written.
"""

import contextlib
import functools
import hashlib
import os
import stat
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ._errors import CacheWarning

VARIABLE = "UKJAX_CACHE"
MOST_BYTES = 2**30
"""What all files together may hold; those that were not used for longest go first."""

_FOLDER, _KEPT, _PARTIAL = "programs", ".kept", ".partial"
_BY_XLA = "-cache"  # JAX's, where it keeps programs in the same folder, with the time of its last use in another file
_DIGEST = hashlib.sha256().digest_size
_ABANDONED = 3600.0  # s; a file is written in far less
_USED_AGAIN = 3600.0  # s; a use within is not noted: that is a write
_LEFT = 0.75  # of the room, after files went
_BETWEEN_LOOKS = 2**26  # bytes that a process writes before it looks again how full the folder is

_written = 0
_off = 0


@contextlib.contextmanager
def without_cache() -> Iterator[None]:
    """Within, nothing is read or written, in whatever thread."""
    global _off
    _off += 1
    try:
        yield
    finally:
        _off -= 1


def root() -> Path | None:
    """The folder; None where nothing is to be kept."""
    told = os.environ.get(VARIABLE, "")
    if told.lower() in ("0", "off"):
        return None
    if told:
        return Path(told).expanduser().absolute()
    import platformdirs

    return platformdirs.user_cache_path("ukjax", appauthor=False)


def name_of(*of: object) -> str:
    """A name for what depends on these, and on nothing else."""
    return hashlib.sha256("\0".join(map(str, of)).encode()).hexdigest()


def read(name: str) -> list[bytes] | None:
    """What was written by that name; None where there is no such file, or it is not as it was written."""
    folder = None if _off else _folder(root())
    if folder is None:
        return None
    path = folder / (name + _KEPT)
    try:
        with path.open("rb") as file:
            told = os.fstat(file.fileno())
            if not _is_own(told):
                return None
            contents = file.read()
    except OSError:
        return None
    digest, held = contents[:_DIGEST], memoryview(contents)[_DIGEST:]
    if digest != _digest(name, held):
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    if time.time() - told.st_mtime > _USED_AGAIN:
        with contextlib.suppress(OSError):
            os.utime(path)
    return _split_entries(held)


def write(name: str, parts: Sequence[bytes]) -> None:
    """Keeps some bytes by a name. Where that is not possible, on a full disk, they are made again."""
    global _written
    folder = None if _off else _folder(root())
    if folder is None:
        return
    lengths = [len(parts), *map(len, parts)]
    held = b"".join([*(n.to_bytes(8, "little") for n in lengths), *parts])
    with contextlib.suppress(OSError):
        if _written == 0 or _written % _BETWEEN_LOOKS + len(held) > _BETWEEN_LOOKS:
            tidy(folder.parent)
        _written += len(held)
        folder.mkdir(mode=0o700, exist_ok=True)  # which anyone may delete, at any time
        descriptor, own = tempfile.mkstemp(_PARTIAL, dir=folder)  # which only this user can read
        try:
            with open(descriptor, "wb") as file:
                file.write(_digest(name, held))
                file.write(held)
            os.replace(own, folder / (name + _KEPT))
        finally:
            Path(own).unlink(missing_ok=True)  # half a file, of a full disk


def _digest(name: str, held: bytes | memoryview) -> bytes:
    made = hashlib.sha256(name.encode())
    made.update(held)
    return made.digest()


def _split_entries(held: memoryview) -> list[bytes]:
    count, *_ = numbers = held[: 8 * (1 + int.from_bytes(held[:8], "little"))].cast("Q").tolist()
    found, start = [], 8 * (1 + count)
    for n in numbers[1:]:
        found.append(bytes(held[start : start + n]))
        start += n
    return found


# --- the folder -------------------------------------------------------------------------------------------------------


def _folder(root: Path | None) -> Path | None:
    """Where files are; None where none are to be."""
    return None if root is None else make_trusted_folder(root / _FOLDER)


@functools.cache
def make_trusted_folder(folder: Path) -> Path | None:
    """A folder, made if it was not there; None where it is not this user's alone or cannot be made, which is said."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        told = folder.stat()
    except OSError as error:
        return _say(f"the folder {folder} cannot be made ({error.strerror or error})")
    if not _is_own(told):
        of = "belongs to another user" if told.st_uid != os.geteuid() else "may be written to by others"
        return _say(f"the folder {folder} {of}, and machine code from there would be run")
    return folder


def _is_own(told: os.stat_result) -> bool:
    """Whether a file is this user's, and no one else may write to it."""
    others = stat.S_IWGRP | stat.S_IWOTH
    return not hasattr(os, "geteuid") or (told.st_uid == os.geteuid() and not told.st_mode & others)


def _say(why: str) -> None:
    warnings.warn(
        f"nothing that is compiled is kept: {why}. Set {VARIABLE} to another folder, or to 0.",
        CacheWarning,
        stacklevel=2,
    )


class _Entry(NamedTuple):
    """A file: when it was last used, its size, and where it is."""

    used: float
    size: int
    path: Path


def _entries(root: Path) -> Iterator[_Entry]:
    """The files of what is kept, those that XLA compiled among them, and those that are not whole."""
    for folder, endings in ((root / _FOLDER, (_KEPT, _PARTIAL)), (root, (_BY_XLA,))):
        with contextlib.suppress(OSError), os.scandir(folder) as found:
            for file in found:
                if file.name.endswith(endings):
                    with contextlib.suppress(OSError):  # another process may have removed it
                        told = file.stat()
                        used = max(told.st_mtime, told.st_atime if file.name.endswith(_BY_XLA) else 0.0)
                        yield _Entry(used, told.st_size, Path(file.path))


def tidy(root: Path, most: int | None = None) -> None:
    """Removes what killed processes left, and what was not used for longest where there is more than may be."""
    most = MOST_BYTES if most is None else most
    whole, now = list[_Entry](), time.time()
    for entry in _entries(root):
        if not entry.path.name.endswith(_PARTIAL):
            whole.append(entry)
        elif now - entry.used > _ABANDONED:
            _remove([entry])
    total = sum(x.size for x in whole)
    if total > most:
        for entry in sorted(whole):
            total -= entry.size
            _remove([entry])
            if total <= _LEFT * most:
                break


def _remove(entries: Iterable[_Entry]) -> None:
    for entry in entries:
        with contextlib.suppress(OSError):
            entry.path.unlink()
            if entry.path.name.endswith(_BY_XLA):
                entry.path.with_name(entry.path.name.removesuffix(_BY_XLA) + "-atime").unlink()


def size(root: Path) -> tuple[int, int]:
    """How many files there are, and how many bytes they hold."""
    sizes = [x.size for x in _entries(root)]
    return len(sizes), sum(sizes)


def clear(root: Path) -> None:
    """Removes all files that are kept; what other processes have read of them stays with those."""
    _remove(_entries(root))
