"""Which contacts are closed at a state, and which of their rows depend on each other and on the constraints."""

import jax
import numpy as np
from jaxtyping import Array

from .._compiler import evaluate_at_state
from .._contact._rows import kinematics, layout_of
from .._misc._types import Coordinates, Time, Velocities, choose_by_precision
from .._pseudoinverse import unit_rows_on_host
from .._system._constraint import unilateral
from .._system._system import AbstractSystem


def rounding_of_gaps(q: Array) -> float:
    """How far from zero a gap may be by rounding of what the user computed q from: so far below, a run may start."""
    return choose_by_precision(q.dtype, 1e-9, 1e-4) * (1 + np.max(np.abs(np.asarray(q)), initial=0))


def groups(projector: np.ndarray, names: tuple[str, ...], tolerance: float) -> tuple[tuple[str, ...], ...]:
    """Rows that a dependency connects: I - A A^+ is block diagonal over them (zero rows stand alone)."""
    complement = np.eye(len(names)) - projector
    left = [i for i in range(len(names)) if complement[i, i] > tolerance]
    found = []
    while left:
        group, frontier = set(), {left[0]}
        while frontier:
            group |= frontier
            frontier = {j for i in frontier for j in left if abs(complement[i, j]) > tolerance} - group
        found.append(tuple(names[i] for i in sorted(group)))
        left = [i for i in left if i not in group]
    return tuple(found)


def _rows(system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> tuple[Array, Array]:
    """Gaps (n,), and the rows of contact velocities (m, n_v)."""
    rates = lambda v: kinematics(system, t, q, v).u
    return kinematics(system, t, q, v).gap, jax.jacfwd(rates)(v)


def find_closed_contacts(
    system: AbstractSystem, t: Time, q: Coordinates, v: Velocities, rows: np.ndarray, rcond: float
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], dict[str, float]]:
    """The contacts that are closed, dry friction among them, sets of their rows that depend on each other, and by how
    much contacts penetrate.
    """
    if not unilateral(system.constraints):
        return (), (), {}
    gap, J = evaluate_at_state(_rows, system, t, q, v)
    layout = layout_of(system, t, q, v)[0]
    zero = rounding_of_gaps(q)
    closed, deep = gap <= zero, {name: -g for name, g in zip(layout.names, gap, strict=True) if g < -zero}
    words = [
        name + word
        for name, (normal, tangents) in zip(layout.names, layout.contacts, strict=True)
        for word in ([" normal"] * normal + [f" tangent {i + 1}" for i in range(tangents)])
    ]
    own = np.flatnonzero(closed[layout.owner])
    unit = np.concatenate([rows, unit_rows_on_host(J[own])[0]])
    names = tuple(f"row {i}" for i in range(len(rows))) + tuple(words[i] for i in own)
    found = groups(unit @ np.linalg.pinv(unit, rcond=rcond), names, (10 * rcond) ** 2)
    of_contacts = (tuple(name for name in group if name in words) for group in found)
    which = tuple(name for name, on in zip(layout.names, closed, strict=True) if on)
    return which, tuple(group for group in of_contacts if group), deep
