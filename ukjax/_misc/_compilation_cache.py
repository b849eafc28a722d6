"""Programs that XLA compiled, kept on disk for other processes."""

import contextlib
import os
from pathlib import Path

import jax


def cache_folder() -> str | None:
    """Where JAX was told to keep compiled programs."""
    return jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]


def use_compilation_cache(folder: str | None = None) -> None:
    """Lets JAX keep compiled programs, unless UKJAX_CACHE is 0; without a folder to write to there is no cache.

    JAX tells processors apart: several kinds may share a folder.

    **Arguments:**

    - `folder`: where; by default where JAX was told to, else ukjax's folder in the user's cache.
    """
    if os.environ.get("UKJAX_CACHE") == "0":
        return
    told = cache_folder()
    root = Path(folder or told or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ukjax")
    with contextlib.suppress(OSError):
        root.mkdir(parents=True, exist_ok=True)
        if told != str(root):
            jax.config.update("jax_compilation_cache_dir", str(root))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
