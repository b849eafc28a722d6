"""Placements, velocities and inertia of many bodies from their coordinates, of those that are alike at once."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxtyping import Array

from ._coordinates import AbstractCoordinates
from ._vmap_by_structure import vmap_by_structure


def call_each_body(method: str, parts: Mapping[Any, AbstractCoordinates], *motion: Array) -> dict[Any, Any]:
    """What a method of each body's coordinates returns, by the keys of the bodies."""
    items = []
    for part in parts.values():
        alone = dataclasses.replace(part, q_start=0, v_start=0)
        starts = zip(motion, (part.q_start, part.v_start), part.sizes, strict=False)
        items.append((alone, *(x[i : i + n] for x, i, n in starts)))
    return dict(
        zip(parts, vmap_by_structure(lambda part, *own: getattr(part, method)(*own), items), strict=True)
    )
