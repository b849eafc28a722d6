"""What the entries of q, v and u are called, and what a run is: the one place that plots, tables and reports ask."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .._misc._errors import InputError


class Labels(NamedTuple):
    """Names of the n_q coordinates and the n velocities of a system."""

    coordinates: tuple[str, ...]
    velocities: tuple[str, ...]


def make_indexed_names(symbol: str, count: int) -> tuple[str, ...]:
    """Names of what has none: `q[0]`, `q[1]`, ..."""
    return tuple(f"{symbol}[{i}]" for i in range(count))


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names with a number behind those that were there before."""
    found = dict[str, None]()
    for name in names:
        again = 2
        unique = name
        while unique in found:
            unique, again = f"{name} {again}", again + 1
        found[unique] = None
    return tuple(found)


def own_labels(owner: Any, what: str, count: int) -> tuple[str, ...]:
    """The names an object gives in a field or property; none where it has no such attribute."""
    labels = getattr(owner, what, ())
    text = isinstance(labels, tuple | list) and all(isinstance(x, str) for x in labels)
    if not text or (labels and len(labels) != count):
        raise InputError(
            f"`{what}` of {type(owner).__name__} must be a tuple of {count} names, such as "
            f"{make_indexed_names('q', count)[:2]}, got {labels!r}."
        )
    if twice := [x for x in labels if list(labels).count(x) > 1]:
        raise InputError(f"`{what}` of {type(owner).__name__} has {twice[0]!r} twice: names must differ.")
    return tuple(labels)


def labels_of(system: Any, coordinates: int, velocities: int, *, quasi: bool) -> Labels:
    """The names of a system's coordinates and velocities, from its `labels` and `velocity_labels` where it has them."""
    of_q, states = own_labels(system, "labels", coordinates), tuple(getattr(system, "state_labels", ()))
    of_v = own_labels(system, "velocity_labels", velocities) or (() if quasi else of_q)
    of_v = of_v or (*make_indexed_names("v", velocities - len(states)), *states)
    return Labels(of_q or make_indexed_names("q", coordinates), of_v)


def title_of(system: Any) -> str:
    """What a run of a system is called: its `title`, or the name of its class."""
    title = getattr(system, "title", None)
    return title if isinstance(title, str) and title else type(system).__name__
