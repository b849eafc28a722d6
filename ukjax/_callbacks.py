"""Programs without the host callbacks by which Equinox raises errors from compiled code."""

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def cacheable() -> Iterator[None]:
    """JAX keeps no program with host callbacks, and Diffrax's check of the times to save at is one.

    `simulate` has checked those times before, so for this run Equinox turns such checks into NaN, as its
    variable EQX_ON_ERROR=nan does. Where Equinox has changed, only the cache is lost.
    """
    errors = sys.modules.get("equinox._errors")
    before = getattr(errors, "EQX_ON_ERROR", None)
    if before != "raise":
        yield
        return
    setattr(errors, "EQX_ON_ERROR", "nan")  # noqa: B010
    try:
        yield
    finally:
        setattr(errors, "EQX_ON_ERROR", before)  # noqa: B010
