"""Placements, velocities and inertia of many bodies from their coordinates, of those that are alike at once."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from jaxtyping import Array

from .._misc._types import Coordinates, Forces, Velocities
from ._alike import each
from ._coordinates import AbstractCoordinates
from ._placement import AnyPlacement, Twist


def _of_each(
    function: Callable[..., Any],
    parts: Iterable[AbstractCoordinates],
    q: Coordinates,
    v: Velocities | None = None,
) -> list[Any]:
    """A function of each body's coordinates and its own part of q and v, of those that are alike at once."""
    items = []
    for part in parts:
        i, j, (n_q, n) = part.q_start, part.v_start, part.sizes
        alone = dataclasses.replace(part, q_start=0, v_start=0)
        items.append((alone, q[i : i + n_q], None if v is None else v[j : j + n]))
    return each(function, items)


def placements_of(parts: Iterable[AbstractCoordinates], q: Coordinates) -> list[AnyPlacement]:
    """Where bodies are.

    **Arguments:**

    - `parts`: the coordinates of each.
    - `q`: of all bodies.
    """
    return _of_each(lambda part, q, _: part.placement(q), parts, q)


def twists_of(parts: Iterable[AbstractCoordinates], q: Coordinates, v: Velocities) -> list[Twist]:
    """How bodies move.

    **Arguments:**

    - `parts`: the coordinates of each.
    - `q`, `v`: of all bodies.
    """
    return _of_each(lambda part, q, v: part.twist(q, v), parts, q, v)


def inertias_of(parts: Iterable[AbstractCoordinates], q: Coordinates) -> list[Array]:
    """The blocks of the mass matrix.

    **Arguments:** as `placements_of`.
    """
    return _of_each(lambda part, q, _: part.inertia(q), parts, q)


def gyroscopic_of(parts: Iterable[AbstractCoordinates], q: Coordinates, v: Velocities) -> list[Forces]:
    """What the force has that is quadratic in v.

    **Arguments:** as `twists_of`.
    """
    return _of_each(lambda part, q, v: part.gyroscopic(q, v), parts, q, v)


def rates_of(parts: Iterable[AbstractCoordinates], q: Coordinates, v: Velocities) -> list[Coordinates]:
    """q' of bodies.

    **Arguments:** as `twists_of`.
    """
    return _of_each(lambda part, q, v: part.rate(q, v), parts, q, v)
