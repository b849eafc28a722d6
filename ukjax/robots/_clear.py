"""A start that is clear: the nearest one that penetrates nothing and is beyond no limit."""

import functools
from collections.abc import Sequence
from typing import Any, Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler import evaluate_at_state
from .._compiler._structured._scalarize import scalarize
from .._contact._kinds import Instant, Motion, kinds_of, known_kinds, seek_anew
from .._contact._rows import Contacts, gaps_and_bends
from .._formula._contact_list import entry, put
from .._misc._errors import InputError
from .._misc._types import Coordinates, Time, Velocities, as_jax, choose_by_precision
from .._motion._project import (
    Projection,
    compute_position_terms,
    entries,
    project_known,
    tolerance_of,
)
from .._pseudoinverse import GramSchmidt, unit_rows_on_host
from .._system._constraint import AbstractUnilateral, Unilateral, bilateral, unilateral
from ..mechanisms import Mechanism, TreeSystem
from ..mechanisms._contact_rows import unilateral_rows
from ..mechanisms._contacts import AnyContact, Contact
from ..mechanisms._postures import with_unit_quaternions
from ._report import Feature

Start = Literal["nearest", "as it is"]

_CLEAR = (1e-10, 1e-5)  # of a gap [m], [rad]: a run takes ten times that for zero
_NEAR = (1e-7, 1e-4)  # what steps towards the nearest posture end with
# Steps towards the nearest posture, then towards any: far from gaps' linear range the first may go round in circles.
_NEAREST, _TRIES = 20, 40
_FARTHEST = 0.5  # that a coordinate moves in one step [m], [rad]
# Of the largest row: so gaps that cannot be opened together are missed by little. What others are missed by goes with
# its square, and a last step mends it.
_SLACK = 1e-4
_CONSTANT = (1e-9, 1e-5)  # a slope of a gap [m/m], [m/rad] of what no motion changes
_BESIDE = 1e-4  # how far from a start gaps are looked at that have no slope there [m], [rad]
_SHOWN = 5  # coordinates and gaps in a sentence


def _gap_rows(tree: TreeSystem) -> Sequence[Unilateral]:
    return [x for x in unilateral_rows(tree.places) if isinstance(x, Unilateral)]


def _mark_gaps(rows: Sequence[AbstractUnilateral]) -> np.ndarray:
    """Of all contacts: those of dry friction have none."""
    return np.concatenate([np.full(len(x.names), isinstance(x, Unilateral)) for x in rows])


@final
class _Slopes(eqx.Module):
    """Of the rows of contacts the first of each, by all velocities: what others have is not computed."""

    values: Array
    velocities: int = eqx.field(static=True)

    def begin(self, k: Array) -> "_Slopes":
        """As of `SparseRows`, like `add`."""
        return self

    def add(self, k: Array, row: Array, velocity: Any, values: Sequence[Array]) -> "_Slopes":
        at = k * self.velocities + velocity
        return _Slopes(put(self.values, at, entry(self.values, at) + values[0]), self.velocities)


def _evaluate_gaps(
    tree: TreeSystem, contacts: Contacts, t: Time, q: Coordinates
) -> tuple[Array, Array, tuple[Any, ...]]:
    """Gaps, also of dry friction, their slopes along velocities, and the same of what holds in both directions, with
    inertia."""
    still = jnp.zeros(len(tree.velocity_labels), q.dtype)
    at = Instant(t, q)
    motion = Motion(at, still, tree.kinematics(t, q, still), still)
    all_kinds = kinds_of(*contacts, t, q, still)
    kinds = [kind for kind in all_kinds if kind.has_gap]
    n = sum(len(kind.contacts) for kind in all_kinds)
    # Of what is far apart nothing is filled in.
    gaps, slopes = jnp.ones(n, q.dtype), _Slopes(jnp.zeros(n * still.size, q.dtype), still.size)
    for kind in kinds:
        kept, which = seek_anew(kind, at), jnp.asarray(np.array(kind.contacts))
        gaps, moving = kind.gaps(at, kept, gaps), kind.moving(motion)

        def write(i: Array, slopes: Any, kind: Any = kind, of: tuple = (moving, kept, which)) -> Any:
            moving, kept, which = of
            return kind.write(kind.rows(moving, kept, i), slopes, entry(which, i), jnp.asarray(0))

        slopes = kind.each(kept, write, slopes)
    return gaps, slopes.values.reshape(n, still.size), compute_position_terms(without_contacts(tree), t, q)


def with_contacts(tree: TreeSystem, contacts: tuple[AnyContact, ...]) -> TreeSystem:
    """A tree with other limits, contacts and dry friction."""
    m = tree.mechanism
    other = Mechanism(m.bodies, m.joints, m.loads, m.name, m.visuals, contacts, m.offsets)
    return eqx.tree_at(lambda x: x.mechanism, tree, other)


def without_contacts(tree: TreeSystem) -> TreeSystem:
    """A tree whose constraints all act in both directions."""
    return eqx.tree_at(lambda x: x.further, with_contacts(tree, ()), bilateral(tree.further))


def _solve_least_norm(A: np.ndarray, b: np.ndarray, B: np.ndarray, h: np.ndarray, rcond: float) -> np.ndarray:
    """x of least norm with A x = b and B x >= h, which is missed by little where nothing else does.

    Inequalities by a dual problem of least squares over signs (Lawson and Hanson 1974, section 23.4, LDP).
    """
    from scipy.optimize import nnls

    unit, norms = unit_rows_on_host(A)
    inverse = np.linalg.pinv(unit, rcond=rcond)
    x = inverse @ (b / norms)
    h, free = h - B @ x, B - (B @ inverse) @ unit
    size = h.max(initial=0)
    slack = _SLACK * np.sqrt(np.sum(free**2, axis=1).max(initial=0)) or 1.0
    # Of thousands of inequalities few bear: those that the ones before leave missed are added until none is.
    y, bears = np.zeros_like(x), np.zeros(len(h), bool)
    while np.any(more := (free @ y < h) & ~bears):
        bears |= more
        rows = np.concatenate([free[bears], np.diag(np.full(np.sum(bears), slack))], axis=1)
        E = np.concatenate([rows.T, h[None, bears] / size])
        miss = E @ nnls(E, np.eye(len(E))[-1])[0] - np.eye(len(E))[-1]
        y = -size * miss[: x.size] / miss[-1]
    return x + y


def _find_nearest_clear(
    tree: TreeSystem, contacts: Contacts, q: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The posture nearest to q, in the mass metric there, that is clear, and its gaps; negative where none was reached;
    and which gaps no motion changes.

    Displacements are G y with G G^T = N M^-1 N^T, and each step is the least |y| for gaps and constraints linear in y.
    """
    at = scalarize(functools.partial(_evaluate_gaps, tree, contacts), fallback="xla")
    t, turning = np.zeros((), q.dtype), tree.quaternions
    rcond, clear = GramSchmidt().threshold(q.dtype), choose_by_precision(q.dtype, *_CLEAR)
    start, moved, any_will_do = q, np.inf, False
    M, N, root, G, y, slopes, gap = (np.zeros((0, 0)),) * 7
    own = _mark_gaps(unilateral(tree.constraints))
    for i in range(_TRIES):
        gap, slope, (phi, J, M, *rates) = jax.tree.map(np.asarray, at(t, q))  # pyright: ignore[reportArgumentType]
        gap, slope = gap[own], slope[own]
        if not i:
            M = entries(M)
            least = np.finfo(M.dtype).eps * np.trace(M) * np.eye(len(M))  # of bodies without inertia
            root, N = np.linalg.inv(np.linalg.cholesky(M + least)).T, rates[0] if rates else np.eye(len(M))
            G, y, slopes = N @ root, np.zeros(len(M), M.dtype), np.zeros((gap.size, len(M)), M.dtype)
            # Of shapes about one point gaps have slopes only beside it, unless no motion of theirs parts them.
            hidden = (gap < -clear) & ~np.any(
                np.abs(slope) > choose_by_precision(q.dtype, *_CONSTANT), axis=1
            )
            beside = N @ (_BESIDE * np.cos(np.arange(len(M)) ** 2))
            if hidden.any():
                q_beside = np.asarray(with_unit_quaternions(tree, q + beside), q.dtype)  # pyright: ignore
                slope = np.where(hidden[:, None], np.asarray(at(t, q_beside)[1])[own], slope)  # pyright: ignore
        good = gap.min() >= -clear and np.max(np.abs(phi), initial=0) <= tolerance_of(q.dtype)
        near = moved <= choose_by_precision(q.dtype, *_NEAR)
        if (any_will_do and (good or moved <= clear)) or not np.all(np.isfinite(gap)):
            break
        any_will_do |= near or i >= _NEAREST
        D = np.eye(q.size)
        for k in turning:  # quaternions keep their length
            p, raw = q[k : k + 4], (start + G @ y)[k : k + 4]
            D[k : k + 4, k : k + 4] -= np.outer(p, p)
            D[k : k + 4, k : k + 4] /= np.linalg.norm(raw)
        # Along velocities of the first posture: the velocities here that move q in the same way.
        slopes = slope @ (np.linalg.pinv(rates[0]) if rates else np.eye(slope.shape[1])) @ D @ N
        slopes = np.where(np.abs(slopes) > choose_by_precision(q.dtype, *_CONSTANT), slopes, 0)
        A, B, home = J @ D @ G, slopes @ root, y if any_will_do else 0 * y
        d = home + _solve_least_norm(A, A @ (y - home) - phi, B, B @ (y - home) - gap, rcond) - y
        far = np.max(np.abs(G @ d), initial=0)
        y = y + d * min(1.0, _FARTHEST / max(far, _FARTHEST))
        before, q = q, np.asarray(with_unit_quaternions(tree, start + G @ y), start.dtype)  # pyright: ignore
        moved = np.max(np.abs(q - before), initial=0)
    return q, gap, ~np.any(slopes, axis=1)


def _format_largest(what: dict[str, float]) -> str:
    largest = sorted(what.items(), key=lambda x: -abs(x[1]))
    more = f" and {len(largest) - _SHOWN} more" if len(largest) > _SHOWN else ""
    return ", ".join(f"{name} by {x:.3g}" for name, x in largest[:_SHOWN]) + more


def _are_of_one_robot(tree: TreeSystem, contact: Contact) -> bool:
    mechanism = tree.mechanism  # its first joints carry the bodies, others close loops
    carriers = {joint.child: joint.parent for joint in mechanism.joints[: len(mechanism.bodies)]}

    def root(body: str) -> str:
        while carriers.get(body, "ground") != "ground":
            body = carriers[body]
        return body

    one, other = map(root, contact.bodies)
    return one == other != "ground"


def resolve_start_penetration(
    tree: TreeSystem, q: Coordinates, v: Velocities, start: Start
) -> tuple[TreeSystem, Coordinates, Velocities, list[Feature]]:
    """A tree and a start that penetrates nothing, and what is to be said of it."""
    gap_rows, rows = _gap_rows(tree), unilateral(tree.constraints)
    if not gap_rows:
        return tree, q, v, []
    clear = choose_by_precision(q.dtype, *_CLEAR)

    def below(rows: Sequence[AbstractUnilateral], gaps: np.ndarray) -> dict[str, float]:
        names = [name for x in rows for name in x.names]
        return {name: -gap for name, gap in zip(names, gaps, strict=True) if not gap >= -clear}

    # The same function as before a run, which finds it compiled.
    t = as_jax(np.zeros((), q.dtype))
    contacts = tree.without_shapes(), known_kinds(tree, t, q, v)
    gaps_at_start = evaluate_at_state(gaps_and_bends, contacts, t, q, v)[0]
    deep = below(gap_rows, gaps_at_start[_mark_gaps(rows)])
    if not deep:
        return tree, q, v, []
    if start == "as it is":
        why = f"as it is, by {_format_largest(deep)}: simulate(contact='steps', start_tolerance=inf) starts there"
        return tree, q, v, [Feature("start beyond a gap", tuple(deep), why=why)]
    nearest, gaps, constant = _find_nearest_clear(tree, contacts, np.asarray(q))
    names, left = [name for x in gap_rows for name in x.names], below(gap_rows, gaps)
    stuck = {name for name, still in zip(names, constant, strict=True) if still}
    lost = [x for x in tree.mechanism.contacts if left.keys() & x.row_names and stuck.issuperset(x.row_names)]
    why = "no motion changes their overlap"
    if not lost:
        # As makers' files have them: shells about joints, in each other in all postures.
        same = [x for x in tree.mechanism.contacts if isinstance(x, Contact) and _are_of_one_robot(tree, x)]
        lost = [x for x in same if left.keys() & x.row_names and deep.keys() & x.row_names]
        why = f"links of one robot, and no posture near the start parts them: overlap by {_format_largest(deep)}"
    if lost:
        kept = tuple(x for x in tree.mechanism.contacts if x not in lost)
        of_lost = Feature("contact", tuple(x.name for x in lost), "ignored", why)
        tree, q, v, features = resolve_start_penetration(with_contacts(tree, kept), q, v, start)
        return tree, q, v, [of_lost, *features]
    if left:
        raise InputError(
            f"the start is beyond {_format_largest(deep)}, and no posture near it is not: at best it is beyond "
            f"{_format_largest(left)}. Give another keyframe, choose what touches by contact=[...], or start='as it is'."
        )
    moves = zip(tree.labels, nearest - np.asarray(q), strict=True)
    moved = _format_largest({label: x for label, x in moves if abs(x) > clear})
    why = f"by {_format_largest(deep)}; the nearest posture that is not moves {moved}"
    q = as_jax(nearest)
    if bilateral(tree.constraints):
        q, v = project_known(Projection(), without_contacts(tree), t, q, v, tolerance_of(q.dtype))
    return tree, q, v, [Feature("start beyond a gap", tuple(deep), "approximated", why)]
