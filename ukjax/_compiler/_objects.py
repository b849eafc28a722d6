"""Machine code kept on disk for other processes, where JAX keeps what XLA compiled and on the same terms."""

import contextlib
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


def objects(name: Sequence[object], count: int, compile: Callable[[Callable[[bytes], None]], Any]) -> Any:
    """Object files that were kept, or what compiles them, after they are.

    **Arguments:**

    - `name`: all that they depend on.
    - `count`: how many there are.
    - `compile`: makes them, and hands each to the function it is given.

    **Returns:** the contents of the files; or what `compile` returns.
    """
    folder = _folder()
    if folder is None:
        return compile(lambda _: None)
    key = hashlib.sha256("\0".join(map(str, name)).encode()).hexdigest()
    files, made = [folder / f"{key}-{i}.o" for i in range(count)], list[bytes]()
    with contextlib.suppress(OSError):  # none is there
        return [x.read_bytes() for x in files]
    start = time.perf_counter()
    found = compile(made.append)
    least = jax.config.jax_persistent_cache_min_compile_time_secs  # pyright: ignore[reportAttributeAccessIssue]
    if time.perf_counter() - start >= least:
        for path, contents in zip(files, made, strict=True):
            _write(path, contents)
    return found


def _folder() -> Path | None:
    """None where JAX keeps nothing, or not in a folder of this machine."""
    told, on = cache_folder(), jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    return Path(told, _FOLDER) if told and on and "://" not in told else None


def _write(path: Path, contents: bytes) -> None:
    """Writes a file at once, so that no other process reads a part of it. One that cannot be is compiled again."""
    own = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        own.write_bytes(contents)
        own.replace(path)
