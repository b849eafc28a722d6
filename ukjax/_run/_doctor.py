"""Says in plain words what a set of constraints does at a state: which rows depend on others, and whether it
can be satisfied, and whether the motion and the multipliers are unique.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._compiler import evaluate_at_state, evaluate_at_states
from .._contact._history import name_rows
from .._contact._rows import ContactLayout, kinematics, layout_of
from .._formula._acceleration import Equations
from .._formula._equations import equations_at
from .._formula._servo import Servoed
from .._misc._arguments import require_between, require_instance
from .._misc._display import html_of
from .._misc._errors import InputError
from .._misc._tolerances import IN_SINGLE_PRECISION, nearly_dependent
from .._misc._types import Coordinates, Numbers, Time, Velocities, choose_by_precision, is_traced
from .._motion._project import project
from .._pseudoinverse import DEFAULT_RCOND, unit_rows_on_host
from .._system._constraint import AbstractConstraint, bilateral, unilateral
from .._system._labels import Labels, make_indexed_names
from .._system._problem import Problem, resolve_state
from .._system._rows import Level, collect_levels, constraint_rows
from .._system._stabilize import AbstractStabilizer, NoStabilizer
from .._system._system import AbstractSystem, innermost, names_of, states_of
from ._results import append_end

if TYPE_CHECKING:
    from ..mechanisms import Contact
    from ._trajectory import Trajectory


# --- Which contacts are closed at a state, and which of their rows depend on each other and on the constraints


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


class ContactPair(NamedTuple):
    """Two shapes that touch at a state; also a stop that is reached, or another gap that is closed.

    - `name`: of the contact.
    - `bodies`: of two shapes their bodies; else empty.
    - `depth`: how deep they penetrate where they do so most, zero where they only touch.
    - `unit`: of the depth, `"m"` or `"rad"`.
    - `places`: at how many places they touch.
    """

    name: str
    bodies: tuple[str, ...]
    depth: float
    unit: str
    places: int

    def __str__(self) -> str:
        deep = f" by {self.depth:.3g} {self.unit}" if self.depth else ""
        places = f" at {self.places} places" if self.places > 1 else ""
        named = not self.bodies or sorted(self.name.split("-")) == sorted(self.bodies)
        return f"{self.name}{deep}{places}" + ("" if named else f" ({', '.join(self.bodies)})")


def contacts_of_shapes(system: AbstractSystem) -> "dict[str, Contact]":
    """The contacts of shapes of a mechanism, by the names of their places; of other systems none."""
    mechanism = getattr(innermost(system), "mechanism", None)
    if mechanism is None:
        return {}
    from ..mechanisms import Contact  # a run of other systems loads none of it

    every = (x for x in getattr(mechanism, "contacts", ()) if isinstance(x, Contact))
    return {name: x for x in every for name in x.row_names}


def find_contact_pairs(
    system: AbstractSystem, layout: ContactLayout, gap: np.ndarray, zero: float
) -> tuple[ContactPair, ...]:
    """What touches, the deepest first."""
    shapes, found = contacts_of_shapes(system), dict[str, ContactPair]()
    for name, (has_gap, _), angle, is_rigid, g in zip(*layout[:3], layout.is_rigid, gap, strict=True):
        if has_gap and g <= zero:
            contact = shapes.get(name)
            pair, bodies = (name, ()) if contact is None else (contact.name, contact.bodies[::-1])
            before, depth = found.get(pair), -float(g) if is_rigid and g < -zero else 0.0
            deepest, places = (depth, 1) if before is None else (max(depth, before.depth), before.places + 1)
            found[pair] = ContactPair(pair, bodies, deepest, "rad" if angle else "m", places)
    return tuple(sorted(found.values(), key=lambda x: -x.depth))


_LISTED = 10  # pairs that are named, of many


def list_pairs(pairs: Sequence[ContactPair]) -> str:
    """The first of some pairs in words; the others are counted."""
    more = f" and {len(pairs) - _LISTED} more" if len(pairs) > _LISTED else ""
    return ", ".join(map(str, pairs[:_LISTED])) + more


def find_closed_contacts(
    system: AbstractSystem, t: Time, q: Coordinates, v: Velocities, rows: np.ndarray, rcond: float
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], dict[str, float], tuple[ContactPair, ...]]:
    """The contacts that are closed, dry friction among them, sets of their rows that depend on each other, by how much
    contacts penetrate, and the same by pairs.
    """
    if not unilateral(system.constraints):
        return (), (), {}, ()
    gap, J = evaluate_at_state(_rows, system, t, q, v)
    layout = layout_of(system, t, q, v)[0]
    zero = rounding_of_gaps(q)
    closed, sunk = gap <= zero, (gap < -zero) & layout.is_rigid
    deep = {name: -g for name, g, x in zip(layout.names, gap, sunk, strict=True) if x}
    words = name_rows(layout.names, layout.contacts, layout.turning)
    # Springs share what they bear by their stiffness.
    bears = layout.is_rigid[layout.owner] | ~layout.is_normal
    own = np.flatnonzero(closed[layout.owner] & bears)
    unit = np.concatenate([rows, unit_rows_on_host(J[own])[0]])
    names = tuple(f"row {i}" for i in range(len(rows))) + tuple(words[i] for i in own)
    found = groups(unit @ np.linalg.pinv(unit, rcond=rcond), names, (10 * rcond) ** 2)
    of_contacts = (tuple(name for name in group if name in words) for group in found)
    which = tuple(name for name, on in zip(layout.names, closed, strict=True) if on)
    pairs = find_contact_pairs(system, layout, np.asarray(gap), zero)
    return which, tuple(group for group in of_contacts if group), deep, pairs


# --- Whether what a constraint says of velocities and accelerations is the rate of what it says of positions
#
# A kind of the user's own may write its velocity error and its rows out. Rows that are not the rates of the errors move
# a mechanism otherwise than its constraints: projection brings it back at each step, at the cost of the wrong motion.

_METHODS = (
    ("position_error", "position_errors"),
    ("position_jacobians",),
    ("velocity_error", "velocity_errors"),
    ("acceleration_rows", "all_acceleration_rows"),
)
_WORDS = {
    "jacobian": "its Jacobian is not the derivative of its position error",
    "velocity": "its velocity error is not the rate of its position error",
    "A": "its A is not the derivative of its velocity error by v",
    "b": "its b is not minus the rest of the rate of its velocity error",
}


def _levels(
    parameters: tuple[AbstractSystem, tuple[AbstractConstraint, ...]], t: Array, q: Array, v: Array
) -> list[dict[str, Level]]:
    system, constraints = parameters
    return [collect_levels(system, c, t, q, v) for c in constraints]


def _constraints(system: AbstractSystem) -> tuple[AbstractConstraint, ...]:
    """The user's own that write out more than one level; of a closed loop also the servo constraints."""
    servo = system.law.servo_constraints if isinstance(system, Servoed) else ()
    every = (*bilateral(getattr(system, "constraints", None)), *servo)
    return tuple(
        c
        for c in every
        if c.kind != "position"
        and _is_users(c)
        and sum(any(_has(c, x) for x in level) for level in _METHODS) > 1
    )


def _is_users(x: eqx.Module) -> bool:
    """Whether its class, or that of a part of it such as a joint, is not one of this package."""
    parts = jax.tree.leaves(vars(x), is_leaf=lambda y: isinstance(y, eqx.Module))
    foreign = type(x).__module__.partition(".")[0] != __name__.partition(".")[0]
    return foreign or any(_is_users(y) for y in parts if isinstance(y, eqx.Module))


def _has(c: AbstractConstraint, method: str) -> bool:
    own, inherited = (
        getattr(getattr(x, method), "__func__", getattr(x, method)) for x in (type(c), AbstractConstraint)
    )
    return own is not inherited


def rows_that_do_not_fit(system: AbstractSystem, t: Any, q: Any, v: Any) -> dict[str, str]:
    """By constraint, what is not the derivative of what, and by how much, at a state that has values."""
    if not (constraints := _constraints(system)):
        return {}
    t, q, v = map(np.asarray, (t, q, v))
    parameters = system, constraints
    A = np.concatenate(
        [level["A"].derived for level in evaluate_at_state(_levels, parameters, t, q, v) if "A" in level]
    )
    further = np.random.default_rng(0).normal(size=v.size).astype(v.dtype)
    v = v + (further - np.linalg.pinv(A) @ (A @ further) if len(A) else further)
    tolerance = float(np.finfo(q.dtype).eps) ** 0.4
    unfit = {}
    for c, levels in zip(constraints, evaluate_at_state(_levels, parameters, t, q, v), strict=True):
        for what in (x for x in _WORDS if x in levels):
            written, derived, size = levels[what]
            off = np.abs(written - derived)
            if not np.all(off <= tolerance * size):
                unfit[c.name] = f"{_WORDS[what]}: off by {off.max():.1e}"
                break
    return unfit


# --- Which rows are on the verge of dependence, and how near: there motions may branch, and steps are refused

_INVOLVED = 0.1  # of the row that takes part most
# Of the rank rule's threshold: a motion that would take rows beyond it, and is held, has steps refused there.
_HELD_BACK = 0.1
_AWAY = 1e-2  # of the size of the coordinates, by which a state near by is moved: far above the rank rule's threshold


def _jacobian(system: AbstractSystem, t: Array, q: Array, v: Array) -> Array:
    return constraint_rows(system, t, q, v).A


def _unit_rows(system: AbstractSystem, *states: Any) -> np.ndarray:
    """The rows of A at states, of unit norm (k, m, n)."""
    return np.stack([unit_rows_on_host(A)[0] for A in evaluate_at_states(_jacobian, system, *states)])


def least_sine(unit: np.ndarray, rank: int) -> tuple[float, np.ndarray]:
    """The least singular value of rows of a rank, beside the largest: the sine by which they are independent; and which
    rows take part in it. If others count as dependent, but by far not to rounding, the sine by which these are not.
    """
    U, s, _ = np.linalg.svd(unit, full_matrices=False)
    which = int(_nearest(s[None], rank)[1][0])
    part = np.abs(U[:, which])
    return float(_nearest(s[None], rank)[0][0]), np.flatnonzero(part >= _INVOLVED * part.max())


def _nearest(s: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Of singular values (k, m) those nearest to the border between rows that count and rows that depend, and which."""
    s = np.abs(s) / np.maximum(s[:, :1], np.finfo(s.dtype).tiny)
    which = np.full(len(s), rank - 1)
    if rank < s.shape[1]:
        which += s[:, rank] > _HELD_BACK * choose_by_precision(s.dtype, DEFAULT_RCOND, IN_SINGLE_PRECISION)
    return s[np.arange(len(s)), which], which


def rank_nearby(system: AbstractSystem, t: Array, q: Array, v: Array, kernel: np.ndarray) -> int | None:
    """The rank of the rows a little further along some motion they allow: None where there is no such state.

    Rows that depend on each other everywhere, as those of an overconstrained mechanism, do so there as well.
    """
    if not len(kernel):
        return None
    along = np.random.default_rng(0).normal(size=len(kernel)) @ kernel
    rate = np.asarray(system.kinematics(t, q, np.asarray(along, q.dtype)))  # pyright: ignore[reportArgumentType]
    largest = np.abs(rate).max(initial=0)
    if not largest > 0:
        return None
    by = _AWAY * max(1.0, float(np.abs(q).max())) / largest
    try:
        there, _ = project(system, t, np.asarray(q + by * rate, q.dtype), 0 * v)
    except InputError:
        return None
    (unit,) = _unit_rows(system, *(np.asarray(x)[None] for x in (t, there, v)))
    s = np.linalg.svd(unit, compute_uv=False)
    return int(np.sum(s > DEFAULT_RCOND * s.max(initial=0)))


def find_nearly_dependent_rows(run: "Trajectory") -> tuple[float | None, tuple[str, ...]]:
    """The least sine of the rows at the saved times of a run, and their names; None where there is nothing to explain:
    the rank stayed and few steps were refused, or no rows are nearly dependent.
    """
    rejected, accepted = (int(run.stats.get(f"num_{kind}_steps", 0)) for kind in ("rejected", "accepted"))
    refused = 2 * rejected > accepted
    if run.problem is None or not run.row_names or not (refused or bool(run.rank_changed)):
        return None, ()
    columns = [np.asarray(x) for x in append_end(run, "t", "q", "v")]
    finite = np.all([np.isfinite(x).reshape(len(x), -1).all(axis=1) for x in columns], axis=0)
    rank = int(run.rank_max)
    if not rank or not finite.any():
        return None, ()
    unit = _unit_rows(run.problem.system, *(x[finite] for x in columns))
    s = np.linalg.svd(unit, compute_uv=False)
    if unit.shape[1] != len(run.row_names) or rank > s.shape[1]:
        return None, ()
    least, _ = _nearest(s, rank)
    sine, involved = least_sine(unit[int(np.argmin(least))], rank)
    if not sine < nearly_dependent(run.q.dtype):
        return None, ()
    return sine, tuple(run.row_names[i] for i in involved)


# --- What `check` says


@final
class Report(eqx.Module):
    """The result of `check`; `str(report)` says it in words.

    - `rows`: the names of the m rows.
    - `rank`: the rank of A, rows scaled to unit norm, by the relative threshold `rcond`.
    - `singular_values`: of those scaled rows, largest first.
    - `redundant`: sets of rows that depend on each other; one or more of each could be left out.
    - `inconsistent`: rows that no acceleration satisfies with the others, with the residual of the best one.
    - `unique_multipliers`: the rows whose multiplier is unique.
    - `mass_rank`: the rank of the mass matrix, n where it is positive definite.
    - `unique_acceleration`: whether [M; A] has rank n, so that the acceleration is unique.
    - `position_error`, `velocity_error`: the violation, row by row.
    - `consistent_state`: the nearest (q, v) on the constraints, or None where none was found.
    - `n`: the number of velocities, states of first order included.
    - `states`: the names of the latter.
    - `labels`: the names of coordinates and velocities.
    - `closed_contacts`: the contacts whose gap is zero, and all dry friction.
    - `redundant_contacts`: sets of their rows of which, with the constraints, only resultants of forces are unique.
    - `penetration`: of contacts whose gap is negative, by how much: a run cannot start there.
    - `contact_pairs`: what touches or penetrates, a `ContactPair` each with its depth, the deepest first.
    - `least_sine`: by how much the independent rows are so, beside rows of unit norm; 1 without rows. Where others count
      as dependent that are so by far not to rounding, by how much these are not.
    - `nearly_dependent`: the rows of which this is the sine, where it is small (0.03, in float32 0.1): a run may take
      many steps near by.
    - `rank_nearby`: the rank at a state near by that the rows allow, where rows are redundant and such a state was found;
      if it is larger than `rank`, the position is singular: motions may branch there.
    - `unfit`: constraints whose own velocity error or rows are not the rate of what they say of positions, and how.
    - `problem`: the system, with the state examined as its start.
    """

    rows: tuple[str, ...]
    rank: int
    singular_values: np.ndarray
    redundant: tuple[tuple[str, ...], ...]
    inconsistent: dict[str, float]
    unique_multipliers: tuple[str, ...]
    mass_rank: int
    unique_acceleration: bool
    position_error: np.ndarray
    velocity_error: np.ndarray
    consistent_state: tuple[np.ndarray, np.ndarray] | None
    n: int
    labels: Labels
    closed_contacts: tuple[str, ...] = ()
    redundant_contacts: tuple[tuple[str, ...], ...] = ()
    penetration: dict[str, float] = dataclasses.field(default_factory=dict)
    contact_pairs: tuple[ContactPair, ...] = ()
    unfit: dict[str, str] = dataclasses.field(default_factory=dict)
    least_sine: float = 1.0
    nearly_dependent: tuple[str, ...] = ()
    rank_nearby: int | None = None
    problem: Problem | None = None
    states: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the rows fit their errors and one acceleration satisfies them, uniquely. Redundant rows are fine."""
        return (
            not (self.inconsistent or self.unfit)
            and self.unique_acceleration
            and self.consistent_state is not None
        )

    @property
    def degrees_of_freedom(self) -> int:
        """n - rank, states of first order not counted."""
        return self.n - len(self.states) - self.rank

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return html_of(self)

    def __str__(self) -> str:
        m = len(self.rows)
        lines = [
            f"{self.n - len(self.states)} velocities, {m} constraint rows of rank {self.rank}: "
            f"{self.degrees_of_freedom} degree{'' if self.degrees_of_freedom == 1 else 's'} of freedom."
        ]
        if self.states:
            lines.append(f"States of first order: {', '.join(self.states)}.")
        if self.rank:
            smallest = self.singular_values[self.rank - 1] / self.singular_values[0]
            lines.append(f"Conditioning of the independent rows: {1 / smallest:.1e}.")
        for group in self.redundant:
            says = "depend on each other" if len(group) > 1 else "asks nothing of the acceleration"
            lines.append(f"Redundant: {', '.join(group)} {says}.")
        if self.nearly_dependent:
            names = ", ".join(self.nearly_dependent)
            lines.append(
                f"Nearly dependent: {names}, by a sine of {self.least_sine:.1e}; a run may take many steps."
            )
        if (near := self.rank_nearby or 0) > self.rank:
            lines.append(
                f"Singular position: near by the rows have rank {near}, here {self.rank}. Motions may branch, and "
                "a run may take many steps until it has left."
            )
        for name, residual in self.inconsistent.items():
            lines.append(f"Inconsistent: {name} cannot be satisfied (residual {residual:.1e}).")
        lines += [f"Wrong: of constraint '{name}', {why}." for name, why in self.unfit.items()]
        lines.append(_mass_line(self.mass_rank, self.n, self.unique_acceleration))
        if len(self.unique_multipliers) < m:
            unique = ", ".join(self.unique_multipliers) or "none"
            lines.append(f"Multipliers that are unique: {unique}; of the others, only the total force is.")
        lines += _contact_lines(self.contact_pairs)
        for group in self.redundant_contacts:
            lines.append(f"Redundant contacts: of {', '.join(group)} only the resultant is unique.")
        worst = np.maximum(np.abs(self.position_error), np.abs(self.velocity_error))
        for name, phi, psi in zip(self.rows, self.position_error, self.velocity_error, strict=True):
            if max(abs(phi), abs(psi)) > 1e-9:
                lines.append(f"Violated: {name} by {phi:.3e}, its rate by {psi:.3e}.")
        if self.consistent_state is None:
            lines.append("No consistent state was found nearby.")
        elif m and worst.max() > 1e-9:
            q, v = map(_state, self.labels, "qv", self.consistent_state)
            lines.append(f"The nearest consistent state is {q}, {v}.")
        return "\n".join(lines)


def _contact_lines(pairs: Sequence[ContactPair]) -> list[str]:
    deep, touching = [x for x in pairs if x.depth], [x for x in pairs if not x.depth]
    lines = [f"Penetrates: {x}." for x in deep[:_LISTED]]
    if len(deep) > _LISTED:
        lines.append(f"Penetrate besides: {len(deep) - _LISTED} more, none of them deeper.")
    return [*lines, *([f"Touches: {list_pairs(touching)}."] if touching else [])]


def _state(labels: tuple[str, ...], symbol: str, x: np.ndarray) -> str:
    """An array of the state, by names where it has such."""
    if labels == make_indexed_names(symbol, x.size):
        return f"{symbol} = {np.array2string(x, precision=6)}"
    return f"{symbol}: " + ", ".join(f"{label} = {y:.6g}" for label, y in zip(labels, x, strict=True))


def _mass_line(mass_rank: int, n: int, unique: bool) -> str:
    mass = "positive definite" if mass_rank == n else f"singular, of rank {mass_rank} of {n}"
    if unique:
        return f"The mass matrix is {mass}; the acceleration is unique."
    return f"The mass matrix is {mass}, and [M; A] has rank below {n}: the acceleration is NOT unique."


def inconsistent_rows(equations: Equations, a: np.ndarray | Array) -> dict[str, float]:
    """The rows an acceleration leaves unsatisfied by more than one per cent of their own terms.

    **Returns:** the residual by row name.
    """
    A, b, M, Q, a = (np.asarray(x) for x in (equations.rows.A, equations.rows.b, equations.M, equations.Q, a))
    residual = A @ a - b
    scale = np.abs(A) @ np.abs(a) + np.abs(b)
    if np.all(np.abs(residual) <= 1e-2 * scale):
        return {}
    free = np.linalg.lstsq(M, Q)[0]
    limit = 1e-2 * scale + 1e-6 * np.max(scale + np.abs(A) @ np.abs(free), initial=0)
    each = zip(equations.rows.names, equations.rows.of_accelerations, residual, limit, strict=True)
    return {name: float(r) for name, asks, r, most in each if asks and abs(r) > most}


def _require_finite_equations(equations: Equations) -> None:
    rows = equations.rows
    for what, array in (("mass matrix", equations.M), ("force", equations.Q)):
        if not np.all(np.isfinite(array)):
            raise InputError(f"the {what} is not finite.")
    each = zip(rows.names, rows.A, rows.b, rows.position_error, rows.velocity_error, strict=True)
    bad = [name for name, *values in each if not all(np.all(np.isfinite(x)) for x in values)]
    if bad:
        raise InputError(f"the constraint rows {', '.join(bad)} are not finite at this state.")


def _state_given(state: tuple, named: dict[str, Any]) -> list[Any]:
    """t, q and v from what is given by position, (q0, v0) or (t, q, v), and by name; None where not given."""
    several = bool(state) and (isinstance(state[0], list | tuple) or getattr(state[0], "ndim", 0) > 0)
    if several and len(state) == 3:
        raise InputError(
            f"t has shape {np.shape(state[0])}; it must be a scalar: give check(system, t, q, v), or "
            "check(system, q0, v0, t0=t)."
        )
    order = ("q", "v") if several else ("t", "q", "v")
    if len(state) > len(order):
        raise InputError(
            f"check takes (system, q0, v0) or (system, t, q, v), got {len(state)} after the system."
        )
    given = [*zip(order, state, strict=False), *((name.removesuffix("0"), x) for name, x in named.items())]
    by_name = {}
    for name, x in given:
        if x is not None and by_name.setdefault(name, x) is not x:
            raise InputError(f"{name} is given twice: as {by_name[name]} and as {x}.")
    return [by_name.get(name) for name in ("t", "q", "v")]


def check(
    system: AbstractSystem | Problem,
    *state: Any,
    t0: Time | float | None = None,
    q0: Numbers | None = None,
    v0: Numbers | None = None,
    t: Time | float | None = None,
    q: Numbers | None = None,
    v: Numbers | None = None,
    stabilizer: AbstractStabilizer = NoStabilizer(),
    rcond: float = DEFAULT_RCOND,
) -> Report:
    """Examines the constraints at one state, and names what is redundant, inconsistent or not unique.

    Uniqueness: a is unique iff [M; A] has rank n (Udwadia and Phohomsiri 2006); the multiplier of row i is
    unique iff (A A^+)_ii = 1.

    **Arguments:**

    - `system`: the mechanical system, or a `Problem`, which brings its initial state.
    - `state`: (q0, v0), as `simulate` takes them, or (t, q, v), as `project` does.
    - `t0`, `t`: time [s], by either name.
    - `q0`, `q`: generalized coordinates (n_q,), by either name.
    - `v0`, `v`: generalized velocities (n,), by either name.
    - `stabilizer`: gives the b to enforce; by default the constraints' own.
    - `rcond`: the relative threshold that decides rank, on rows of unit norm.

    **Returns:** `Report`.

    **Raises:** `InputError` for wrong shapes, non-finite values, a state given twice, and calls within `jit`.
    """
    require_between("rcond", rcond, 0, 1)
    require_instance("stabilizer", stabilizer, AbstractStabilizer, "NoStabilizer()")
    if is_traced(system, state, t0, q0, v0, t, q, v):
        raise InputError(
            "check needs numbers, and JAX has none while it traces: call it outside jit, vmap and grad."
        )
    names = {"t0": t0, "q0": q0, "v0": v0, "t": t, "q": q, "v": v}
    given = system
    system, time, position, velocity = resolve_state(system, *_state_given(state, names))
    report = _examine_state(system, time, position, velocity, stabilizer, rcond)
    if isinstance(given, Problem):
        problem = dataclasses.replace(given, q0=position, v0=velocity, t0=time, t1=time)
    else:
        problem = Problem(system, position, velocity, time, time)
    return dataclasses.replace(report, problem=problem)


def _consistent(
    system: AbstractSystem, equations: Equations, t: Time, q: Coordinates, v: Velocities
) -> tuple[np.ndarray, np.ndarray] | None:
    """The nearest state on the constraints: the one given, where it is on them but for rounding."""
    errors = np.concatenate([equations.rows.position_error, equations.rows.velocity_error])
    if np.abs(errors).max(initial=0) <= 1e3 * np.finfo(errors.dtype).eps:
        return np.asarray(q), np.asarray(v)
    try:
        q, v = project(system, t, q, v)
    except InputError:
        return None
    return np.asarray(q), np.asarray(v)


def _examine_state(
    system: AbstractSystem,
    t: Time,
    q: Coordinates,
    v: Velocities,
    stabilizer: AbstractStabilizer,
    rcond: float,
) -> Report:
    equations = equations_at(system, stabilizer, t, q, v)
    M, A, b = (np.asarray(x) for x in (equations.M, equations.rows.A, equations.rows.b))
    names = equations.rows.names
    _require_finite_equations(equations)
    unit, norms = unit_rows_on_host(A)
    U, singular_values, V = np.linalg.svd(unit, full_matrices=False)
    rank = int(np.sum(singular_values > rcond * singular_values.max(initial=0)))
    inverse = V[:rank].T / singular_values[:rank] @ U[:, :rank].T
    projector = unit @ inverse
    tolerance = (10 * rcond) ** 2  # 1 - p_ii is the square of what the others share of row i
    scaled = M / max(np.abs(M).max(initial=0), np.finfo(M.dtype).tiny)
    mass_rank = int(np.sum(np.linalg.eigvalsh(scaled) > M.shape[0] * np.finfo(M.dtype).eps))
    stacked = np.concatenate([scaled, unit])
    eps = np.finfo(M.dtype).eps
    unique = mass_rank == v.size or bool(np.linalg.matrix_rank(stacked, tol=1e3 * eps) == v.size)
    consistent = _consistent(system, equations, t, q, v)
    sine, involved = least_sine(unit, rank) if rank else (1.0, [])
    involved = involved if sine < nearly_dependent(M.dtype) else ()
    kernel = np.linalg.svd(unit)[2][rank:] if rank < len(names) else V[:0]
    closed, redundant, deep, pairs = find_closed_contacts(system, t, q, v, unit, rcond)
    return Report(
        rows=names,
        rank=rank,
        singular_values=singular_values,
        redundant=groups(projector, names, tolerance),
        inconsistent=inconsistent_rows(equations, inverse @ (b / norms)),
        unique_multipliers=tuple(
            x for x, p in zip(names, np.diag(projector), strict=True) if 1 - p <= tolerance
        ),
        mass_rank=mass_rank,
        unique_acceleration=unique,
        position_error=np.asarray(equations.rows.position_error),
        velocity_error=np.asarray(equations.rows.velocity_error),
        consistent_state=consistent,
        n=v.size,
        states=states_of(system),
        labels=names_of(system, q, v),
        closed_contacts=closed,
        redundant_contacts=redundant,
        penetration=deep,
        contact_pairs=pairs,
        least_sine=sine,
        nearly_dependent=tuple(names[i] for i in involved),
        rank_nearby=rank_nearby(system, t, q, v, kernel),
        unfit=rows_that_do_not_fit(system, t, *((q, v) if consistent is None else consistent)),
    )
