"""What of a call's arguments a user may change in place, so that what is remembered of them no longer holds."""

from typing import Any

import jax
import numpy as np


def changeable_in(given: Any) -> list[tuple[Any, Any]]:
    """All in a pytree whose contents can change, each with what it holds now: dictionaries, lists, arrays of NumPy's."""
    containers = lambda x: isinstance(x, list | dict)
    parts = [x for x in jax.tree.leaves(given, is_leaf=containers) if isinstance(x, list | dict | np.ndarray)]
    within = [changeable_in(tuple(x.values() if isinstance(x, dict) else x)) for x in parts if containers(x)]
    return [(x, _contents(x)) for x in parts] + [pair for each in within for pair in each]


def _contents(x: Any) -> Any:
    return x.copy() if isinstance(x, np.ndarray) else [*x, *x.values()] if isinstance(x, dict) else list(x)


def is_unchanged(x: Any, before: Any) -> bool:
    """Whether something holds what it held."""
    if isinstance(x, np.ndarray):
        return np.array_equal(x, before, equal_nan=True)
    now = _contents(x)
    return len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True))
