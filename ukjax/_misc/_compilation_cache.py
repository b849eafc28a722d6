"""Programs that XLA compiled, kept on disk for other processes."""

import contextlib
from pathlib import Path

import jax

from ._cache import make_trusted_folder, root


def cache_folder() -> str | None:
    """Where JAX was told to keep compiled programs."""
    return jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]


def use_compilation_cache(folder: str | None = None) -> None:
    """Lets JAX keep compiled programs, unless nothing is to be kept; without a folder to write to there is no cache.

    JAX tells processors apart: several kinds may share a folder.
    """
    own, told = root(), cache_folder()
    if own is None:
        return
    if not folder and not told and make_trusted_folder(own) is None:
        return
    chosen = Path(folder or told or own)
    with contextlib.suppress(OSError):
        chosen.mkdir(parents=True, exist_ok=True)
        if told != str(chosen):
            jax.config.update("jax_compilation_cache_dir", str(chosen))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
