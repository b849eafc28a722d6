"""Programs without the host callbacks by which Equinox raises errors from compiled code.

JAX keeps no program that has one in its cache of compiled programs, and exports none.
"""

import contextlib
import sys
import types
from collections.abc import Iterator
from functools import partial

import equinox.internal as eqxi


@contextlib.contextmanager
def cacheable() -> Iterator[None]:
    """All checks of what is traced within turned into NaN, as Equinox's variable EQX_ON_ERROR=nan does.

    Where Equinox has changed, only the cache is lost.
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


@contextlib.contextmanager
def arguments_checked() -> Iterator[None]:
    """Only Diffrax's checks of its own arguments turned into NaN: `simulate` has checked times and first step.

    Checks in a user's system still raise. Where Diffrax has changed, only the cache is lost.
    """
    integrate = sys.modules.get("diffrax._integrate")
    if getattr(integrate, "eqxi", None) is None:
        yield
        return
    quiet = types.SimpleNamespace(**vars(eqxi))
    quiet.error_if = partial(eqxi.error_if, on_error="nan")
    setattr(integrate, "eqxi", quiet)  # noqa: B010
    try:
        yield
    finally:
        setattr(integrate, "eqxi", eqxi)  # noqa: B010
