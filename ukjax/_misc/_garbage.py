"""Python's search for cycles of objects, which looks at all of them again and again while many are made that stay."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Without searches for cycles, of which scalar code has none: they take a fifth of the time it is written in, and
    some more of that in which it becomes machine code."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
