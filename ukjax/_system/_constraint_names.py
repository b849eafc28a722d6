"""What constraints are called: as they were named, as their functions are, or by kind and number; and their kinds."""

from collections.abc import Callable, Sequence
from typing import Literal

from .._misc._arguments import require_function
from .._misc._errors import InputError
from ._labels import unique_names

Kind = Literal["holonomic", "nonholonomic", "acceleration", "position"]
OF_POSITIONS: tuple[Kind, ...] = ("holonomic", "position")
"""The kinds of rows that have a position error."""
OF_VELOCITIES: tuple[Kind, ...] = (*OF_POSITIONS, "nonholonomic")
"""The kinds of rows that have a velocity error."""

_UNNAMED = "<lambda>"
"""What Python calls a function that has no name."""


def constraint_name(fn: Callable, name: str | None, takes: str = "t, q, v") -> str:
    """The name given, or the function's own; raises `InputError` for what is no name, or no such function."""
    if name is None:
        name = getattr(fn, "__name__", type(fn).__name__)
    if not isinstance(name, str):
        raise InputError(f"the name of a constraint must be a string, got {name!r}.")
    require_function(f"constraint '{name}'", fn, takes)
    return name


def names_by_kind(names: Sequence[str], kinds: Sequence[str]) -> tuple[str, ...]:
    """The names, but for functions that have none their kind and number, such as `holonomic 2`; and a number behind
    those that were there before, such as `rod` and `rod 2`: functions made in a loop have one name.
    """
    found, counts = [], dict.fromkeys(kinds, 0)
    for name, kind in zip(names, kinds, strict=True):
        counts[kind] += 1
        found.append(f"{kind} {counts[kind]}" if name == _UNNAMED else name)
    return unique_names(found)
