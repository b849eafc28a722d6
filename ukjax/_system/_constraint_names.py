"""What constraints are called: as they were named, as their functions are, or by kind and number; and their kinds."""

import itertools
from collections.abc import Callable, Sequence
from typing import Literal

from .._misc._arguments import require_function
from .._misc._errors import InputError

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


def names_by_kind(names: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """The names, but for functions that have none their kind and number, such as `holonomic 2`; and what several are
    called is numbered too, such as `rod 1` and `rod 2`: functions of one loop have one name.

    **Arguments:**

    - `names`: of the constraints of a system, in their order.
    - `kinds`: of these.
    """
    found, counts = [], dict.fromkeys(kinds, 0)
    for name, kind in zip(names, kinds, strict=True):
        counts[kind] += 1
        found.append(f"{kind} {counts[kind]}" if name == _UNNAMED else name)
    alike = {name: itertools.count(1) for name in found if found.count(name) > 1}
    return [f"{name} {next(alike[name])}" if name in alike else name for name in found]
