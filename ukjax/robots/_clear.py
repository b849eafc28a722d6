"""A start that is clear: out of what it would penetrate, and beyond no limit."""

from collections.abc import Sequence
from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler import at_state
from .._misc._errors import InputError
from .._misc._types import Coordinates, Time, Velocities
from .._motion._project import project
from .._system._constraint import Holonomic, bilateral
from .._system._unilateral import Unilateral
from ..mechanisms import GROUND, Contact, Mechanism, TreeSystem
from ..mechanisms._contact_rows import unilateral_rows
from ._report import Feature

_CLEAR = 1e-10  # of a gap [m], [rad]: what a projection leaves is less
_TRIES = 10  # each adds what is newly penetrated; a few are many


@final
class _Some(eqx.Module):
    """Some of the gaps of a tree."""

    tree: TreeSystem
    which: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, t: Time, q: Coordinates) -> Array:
        return _gaps(self.tree, t, q)[np.array(self.which)]


def _rows(tree: TreeSystem) -> Sequence[Unilateral]:
    return [x for x in unilateral_rows(tree.places) if isinstance(x, Unilateral)]


def _gaps(tree: TreeSystem, t: Time, q: Coordinates) -> Array:
    return jnp.concatenate([x.gaps(t, q) for x in _rows(tree)])


def _gaps_at(tree: TreeSystem, q: Coordinates) -> np.ndarray:
    """By NumPy: nothing is compiled."""
    return at_state(_gaps, tree, np.zeros((), q.dtype), q)


def _with(tree: TreeSystem, contacts: tuple) -> TreeSystem:
    m = tree.mechanism
    return eqx.tree_at(
        lambda x: x.mechanism,
        tree,
        Mechanism(m.bodies, m.joints, m.loads, m.name, m.visuals, contacts, m.offsets),
    )


def without_contacts(tree: TreeSystem) -> TreeSystem:
    """A tree whose constraints all act in both directions.

    **Arguments:**

    - `tree`: the tree.
    """
    further = bilateral(tree.further)
    return eqx.tree_at(lambda x: x.further, _with(tree, ()), further)


def cleared(
    tree: TreeSystem, q: Coordinates, v: Velocities
) -> tuple[TreeSystem, Coordinates, Velocities, list[Feature]]:
    """A tree and a start that penetrates nothing, and what became of contacts for that.

    Moving bodies that overlap at the start do not touch each other: they are meant to overlap. Out of limits and of what
    stands still the start moves, as little as it can in the mass metric.

    **Arguments:**

    - `tree`: the tree.
    - `q`, `v`: the start, its loops closed.

    **Raises:** `InputError` where that does not come to an end.
    """
    if not _rows(tree):
        return tree, q, v, []
    names = [name for x in _rows(tree) for name in x.names]
    below = {name for name, gap in zip(names, _gaps_at(tree, q), strict=True) if gap < -_CLEAR}
    overlap = [
        x
        for x in tree.mechanism.contacts
        if isinstance(x, Contact) and GROUND not in x.bodies and below & set(x.row_names)
    ]
    tree = _with(tree, tuple(x for x in tree.mechanism.contacts if x not in overlap))
    features = [
        Feature("contact", tuple(x.name for x in overlap), "ignored", "the two overlap at the start"),
    ]
    if not _rows(tree):
        return tree, q, v, features
    names, held = [name for x in _rows(tree) for name in x.names], set[int]()
    smooth = without_contacts(tree)
    for _ in range(_TRIES):
        gaps = _gaps_at(tree, q)
        new = set(np.flatnonzero(gaps < -_CLEAR).tolist()) - held
        if not new:
            break
        held |= new
        rows = Holonomic(_Some(tree, tuple(sorted(held))), name="gaps that were negative")
        q, v = project(eqx.tree_at(lambda x: x.further, smooth, (*smooth.further, rows)), 0.0, q, v)
    if (gaps := _gaps_at(tree, q)).min() < -_CLEAR:
        worst = names[int(np.argmin(gaps))]
        raise InputError(
            f"the start is beyond '{worst}' by {-gaps.min():.2g}, and no posture near it is not: give another keyframe, "
            "or choose what touches by contact=[...]."
        )
    moved = tuple(names[i] for i in sorted(held))
    features.append(Feature("start beyond a gap", moved, "approximated", "moved onto it"))
    return tree, q, v, features
