"""Python's search for cycles of objects, which looks at all of them again and again while many are made that stay."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Without searches for cycles, of which scalar code has none: they take a fifth of the time it is written in, and
    some more of that in which it becomes machine code.

    What was made counts as old afterwards, so that no search for young cycles goes through it either.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():  # else someone wants objects left alone, which this would undo
                gc.freeze()
                gc.unfreeze()
            gc.enable()
