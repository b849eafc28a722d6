"""Lines for a report while a file is read, and frames of what is in it."""

from collections.abc import Iterable

import numpy as np

from ._reference import Reference, remove_rounding
from ._report import Feature

Row = tuple[str, str, str, str]
"""A feature, the name of what has it, its status and why, as in `Feature`; `"off"` for what the file turns off."""


class RefusedError(Exception):
    """A part of a file that cannot be used: why."""


def features(rows: Iterable[Row]) -> tuple[Feature, ...]:
    """What has the same feature, status and reason together."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for feature, name, status, why in rows:
        found.setdefault((feature, status, why), []).append(name)
    return tuple(
        Feature(feature, tuple(names), "ignored" if status == "off" else status, why, status != "off")  # pyright: ignore[reportArgumentType]
        for (feature, status, why), names in found.items()
    )


def frame_of(at: Reference, kind: str, number: int) -> tuple[str, np.ndarray, np.ndarray]:
    """What carries a body, site or geom, its place in the reference posture [m], and its axes there as columns."""
    if kind == "site":
        return at.site(number)
    if kind == "body":
        return (*at.point(number), at.rotation(number))
    point, axes = at.data.geom_xpos[number], at.data.geom_xmat[number].reshape(3, 3)
    return at.carriers[at.model.geom_bodyid[number]], remove_rounding(point), remove_rounding(axes)
