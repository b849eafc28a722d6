"""Placements, velocities and inertia of many bodies from their coordinates, of those that are alike at once."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxtyping import Array

from ._alike import each
from ._coordinates import AbstractCoordinates


def of_each(method: str, parts: Mapping[Any, AbstractCoordinates], *motion: Array) -> dict[Any, Any]:
    """What a method of each body's coordinates returns, by the keys of the bodies."""
    items = []
    for part in parts.values():
        alone = dataclasses.replace(part, q_start=0, v_start=0)
        starts = zip(motion, (part.q_start, part.v_start), part.sizes, strict=False)
        items.append((alone, *(x[i : i + n] for x, i, n in starts)))
    return dict(zip(parts, each(lambda part, *own: getattr(part, method)(*own), items), strict=True))
