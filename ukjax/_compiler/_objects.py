"""Machine code kept on disk for other processes, where JAX keeps what XLA compiled and on the same terms."""

import contextlib
import functools
import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from .._misc._compilation_cache import cache_folder

_FOLDER = "machine_code"
_DIGEST = hashlib.sha256().digest_size
_PARTIAL = ".partial"
_ABANDONED = 3600.0  # s; a file is written in far less


def objects(name: Sequence[object], count: int, compile: Callable[[Callable[[bytes], None]], Any]) -> Any:
    """The contents of `count` object files that were kept; or what `compile` returns, which hands them to be kept.

    `name` is all that they depend on.
    """
    folder = _folder()
    if folder is None:
        return compile(lambda _: None)
    key = hashlib.sha256("\0".join(map(str, name)).encode()).hexdigest()
    files, made = [folder / f"{key}-{i}.o" for i in range(count)], list[bytes]()
    kept = [_read(path) for path in files]
    if None not in kept:
        return kept
    start = time.perf_counter()
    result = compile(made.append)
    least = jax.config.jax_persistent_cache_min_compile_time_secs  # pyright: ignore[reportAttributeAccessIssue]
    if time.perf_counter() - start >= least:
        for path, contents in zip(files, made, strict=True):
            _write(path, contents)
    return result


def _folder() -> Path | None:
    """None where JAX keeps nothing, or not in a folder of this machine."""
    told, on = cache_folder(), jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    return Path(told, _FOLDER) if told and on and "://" not in told else None


def _digest(path: Path, contents: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + contents).digest()


def _read(path: Path) -> bytes | None:
    """None where there is no such file, or it is not as it was written: LLVM crashes on damaged files, or runs them."""
    try:
        file = path.read_bytes()
    except OSError:
        return None
    digest, contents = file[:_DIGEST], file[_DIGEST:]
    if digest == _digest(path, contents):
        return contents
    with contextlib.suppress(OSError):
        path.unlink()
    return None


def _write(path: Path, contents: bytes) -> None:
    """Writes a file at once, so that no other process reads a part of it. One that cannot be is compiled again."""
    own = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}{_PARTIAL}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        _tidy(path.parent)
        try:
            own.write_bytes(_digest(path, contents) + contents)
            own.replace(path)
        finally:
            own.unlink(missing_ok=True)  # half a file, of a full disk


@functools.cache
def _tidy(folder: Path) -> None:
    """Removes what processes left that were killed while they wrote."""
    for path in folder.glob(f"*{_PARTIAL}"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED:
                path.unlink()
