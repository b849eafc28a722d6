"""Names a user gives, and what the parameters of a user's function are by their names."""

import difflib
import inspect
from collections.abc import Iterable
from typing import Any

from ._errors import InputError

_MOST_LISTED, _ALIKE = (
    50,
    12,
)  # names in a message: a robot has hundreds, and the one that is meant is near the given one
_KINDS = {kind.__name__: kind for kind in (float, int, bool, str)}


def kind_of(parameter: inspect.Parameter) -> type | None:
    """What a function's parameter is, float, int, bool or str, by its annotation, else its default; None if it is open.

    An integer for a default leaves it open: `length=1` may as well be 1.5.
    """
    annotation = parameter.annotation
    annotation = getattr(
        annotation, "__name__", annotation
    )  # a string, under `from __future__ import annotations`
    if isinstance(annotation, str) and annotation in _KINDS:
        return _KINDS[annotation]
    default = type(parameter.default)
    return default if default in (float, bool, str) else None


def unknown_name(kind: str, name: Any, known: Iterable[str]) -> InputError:
    """The error for a name that is not known, with the closest one that is, and all there are; of many those most alike.

    **Arguments:**

    - `kind`: what is named, such as `"model"`.
    - `name`: what was given.
    - `known`: the names there are.
    """
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else "."
    if len(known) <= _MOST_LISTED:
        return InputError(f"unknown {kind} '{name}'{hint} Known: {', '.join(known)}.")
    alike = difflib.get_close_matches(str(name), known, n=_ALIKE, cutoff=0)
    rest = len(known) - len(alike)
    return InputError(f"unknown {kind} '{name}'{hint} Known: {', '.join(alike)} and {rest} more.")
