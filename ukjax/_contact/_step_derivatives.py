"""Derivatives of a time step with contacts: those of the equations that hold after it, with the modes of contacts held.

Closed contacts obey p = P(p - r u), and those that were pushed out have a gap of zero (implicit function theorem). So a
change of a step is one more step of Newton's method for each of its two problems, over a list of the contacts that are
closed, or were pushed, with the matrices held. What the equations are taken from is differentiated by the compiler.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .._formula._contact_list import (
    ContactList,
    Room,
    SparseRows,
    empty_list,
    empty_rows,
    entry,
    fill_entries,
    loop,
    put,
)
from .._formula._contact_operator import DelassusRows, delassus, empty_workspace
from .._formula._contact_solver import linearize_solution
from .._misc._blank import blank
from .._misc._derivatives import freeze, with_tangent_of
from ._kinds import ContactKind, Instant, Motion
from ._moreau import ContactStep
from ._rows import Coefficients
from ._step_states import StepContacts, StepRecord, StepState

# How often displacements are linearized about where they are: each time what is left goes with their size and the step.
_LINEARIZED = 3


class _Closed(NamedTuple):
    """Contacts that are closed, by kinds.

    - `contacts`: the list, with its impulses.
    - `own`: of each, which of its kind it is.
    - `begin`: where those of each kind begin, and the last ones end.
    """

    contacts: ContactList
    own: Array
    begin: list[Array]


class _Rows(NamedTuple):
    """Rows of a list, and by row contact velocities at rest, and on normal rows gaps where asked for."""

    J: SparseRows
    drift: Array
    gap: Array


class SmoothStep(NamedTuple):
    """A step, and the same without derivatives: none for one that is to have none.

    - `step`: of a model.
    - `held`: of the model held.
    """

    step: ContactStep
    held: ContactStep | None

    def before(self, t: Array, q: Array, v: Array) -> StepState:
        """What there is before a first step."""
        if self.held is None:
            return self.step.before(t, q, v)
        return self.held.before(*lax.stop_gradient((t, q, v)))._replace(q=q, v=v)

    def solve(
        self,
        t: Array,
        h: Array,
        last: StepState,
        coefficients: Coefficients,
        looks: Array,
        into: StepContacts,
    ) -> tuple[StepState, StepRecord | None]:
        """What a step leaves, without derivatives, as `ContactStep` gives it; with a record if it is to have some."""
        if self.held is None:
            return self.step(t, h, last, coefficients, looks, into)[0], None
        t, h, q, v, coefficients = lax.stop_gradient((t, h, last.q, last.v, coefficients))
        return self.held(t, h, last._replace(q=q, v=v), coefficients, looks, into)

    def share_without_passing(self, t: Array, h: Array, last: StepState, after: StepState) -> Array:
        """How much of a step may be taken, as `ContactStep` says."""
        of = (self.held or self.step).share_without_passing
        return of(*lax.stop_gradient((t, h, last._replace(kept=[]), after, last.kept)))

    def differentiate(
        self,
        t: Array,
        h: Array,
        last: StepState,
        coefficients: Coefficients,
        after: StepState,
        record: StepRecord | None,
    ) -> StepState:
        """What a step leaves, with derivatives."""
        if record is None:
            return after
        told = self.step, (t, h), last, coefficients
        closed = _spread(self.step, after.contacts)
        # Impulses and displacements stand in the first derivative. For the second one they have derivatives themselves.
        _, p, of_once = _differentiate(*told, after, closed, record)
        still = lambda x: loop(x.size, lambda i, y: put(y, i, freeze(entry(x, i))), blank(x.size, x.dtype))
        closed, record = (
            closed._replace(p=still(p)),
            record._replace(push=still(of_once.push), d=freeze(of_once.d)),
        )
        state, p, _ = _differentiate(*told, after, closed, record)
        take = lambda _, at, i, x: put(x, at, entry(p, i))
        own = blank(after.contacts.p.size, p.dtype)
        return state._replace(
            contacts=after.contacts._replace(p=self.step.over_rows(after.contacts, take, own))
        )


class _Spread(NamedTuple):
    """What a step leaves of contacts, in the places of all: impulses on all rows, and one place more (m + 1,), and 1 for
    contacts that are closed, and closed fast (n,)."""

    p: Array
    closed: Array
    struck: Array


def _spread(step: ContactStep, of: StepContacts) -> _Spread:
    n, dtype = len(step.layout.contacts), of.p.dtype
    p = step.over_rows(of, lambda _, at, i, x: put(x, i, entry(of.p, at)), jnp.zeros(step.rows + 1, dtype))
    place = lambda j, so_far: tuple(
        put(x, entry(of.contact, j), entry(y, j)) for x, y in zip(so_far, (of.closed, of.struck), strict=True)
    )
    return _Spread(p, *loop(of.number, place, (jnp.zeros(n, dtype), jnp.zeros(n, dtype))))


def _differentiate(
    step: ContactStep,
    span: tuple[Array, Array],
    last: StepState,
    coefficients: Coefficients,
    after: StepState,
    spread: _Spread,
    record: StepRecord,
) -> tuple[StepState, Array, StepRecord]:
    """What a step from time t of length h leaves, as `after`, `spread` and `record` that have no derivatives, with
    derivatives: the state, impulses on all rows, and the record."""
    (t, h), (q, v), room, dtype = span, (last.q, last.v), step.room, last.q.dtype
    free = step.free(t, q, v, h)
    none_of = lambda rows: fill_entries(blank(rows, dtype), 0, 0, rows)
    no_impulses = none_of(room.stride)

    def write(closed: _Closed, at: Instant, kept: Sequence[Any], *, gaps: bool) -> tuple[ContactList, _Rows]:
        kept = [kind.unsought(at, x) for kind, x in zip(step.kinds, kept, strict=True)]
        motion = Motion(at, free.v, step.kinematics(at.t, at.q, free.v), free.a)
        moving = [kind.moving(motion) for kind in step.kinds]
        rows = _write_rows(step.kinds, room, closed, moving, kept, gaps=gaps)
        return closed.contacts._replace(J=rows.J), rows

    # Velocities, by the contacts that are closed
    closed = _list_closed(step, spread.closed, spread.p, (coefficients.friction, coefficients.limit * h))
    contacts, rows = write(closed, Instant(free.t, free.q), record.middle, gaps=True)
    space = empty_workspace(room, free.inertia, dtype)
    of, space = delassus(contacts, room, free.inertia, space)
    of = step.soften(of, contacts, coefficients, h)
    change = free.inertia.apply(_sum_rows(contacts, room, contacts.p))
    u = _add_rates(contacts, free.end + change, rows.drift)
    before = _add_rates(contacts, v, rows.drift)
    by_impulse, by_gap = coefficients.soften(h)

    def add_laws(k: Array, u: Array) -> Array:
        row, of_contact = entry(contacts.row, k), lambda x: entry(x, entry(contacts.contact, k))
        is_rigid, gap = (
            entry(jnp.asarray(step.layout.is_rigid), entry(contacts.contact, k)),
            entry(rows.gap, row),
        )
        restored = of_contact(spread.struck) * of_contact(coefficients.restitution)
        ahead = jnp.where(is_rigid & (restored == 0), jnp.maximum(gap, 0) / h, 0)
        more = restored * entry(before, row) + ahead
        if step.layout.soft:
            more += of_contact(by_gap) * gap
            more += of_contact(by_impulse) * entry(contacts.p, row)
        return loop(entry(contacts.normals, k), lambda _, u: put(u, row, entry(u, row) + more), u)

    u = loop(contacts.number, add_laws, u)
    p = linearize_solution(contacts, room, of, u)(contacts.p, u)
    v_end = _add_response(free.end + change, contacts, of, contacts.p, p)
    push, impulses = _sum_rows(contacts, room, p) / h, _place(step, contacts, p, none_of(step.rows + 1))

    # Positions, by those that were pushed
    d, pi = record.d, record.push
    if len(step.layout.normals):
        pushed = lambda k, x: put(x, k, entry(record.push, entry(jnp.asarray(step.starts), k)) > 0)
        pushed = loop(len(step.starts), pushed, jnp.zeros_like(spread.closed))
        closed = _list_closed(step, pushed, record.push, None)

        def write_at(d: Array) -> tuple[ContactList, _Rows]:
            at = Instant(t + h, step.arrive(q, v + v_end, v_end, d, t, h, free)[0][0])
            return write(closed, at, record.end, gaps=True)

        held = write_at(freeze(d))[0]
        of, _ = delassus(held, room, free.inertia, space)
        follow = linearize_solution(held, room, of, no_impulses)

        def nearer(_: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
            d, p = so_far
            contacts, rows = write_at(d)
            off = free.inertia.apply(_sum_rows(contacts, room, p)) - d
            u = _mark(no_impulses, _add_rates(contacts, off, rows.gap))
            after = follow(p, u)
            d = _add_response(d + off, contacts, of, p, after)
            return with_tangent_of(record.d, d, stays=True), _mark(held.p, after)

        some = (held.rows > 0).astype(held.rows.dtype)
        d, p = loop(_LINEARIZED * some, nearer, (d, held.p))
        pi = _place(step, held, p, pi)
    (q_end, v_end), _ = step.arrive(q, v + v_end, v_end, d, t, h, free)
    state = after._replace(
        q=with_tangent_of(after.q, q_end, stays=True),
        v=with_tangent_of(after.v, v_end, stays=True),
        push=with_tangent_of(after.push, push, stays=True),
    )
    p = _mark(spread.p, impulses)
    return state, p, record._replace(push=_mark(record.push, pi), d=with_tangent_of(record.d, d, stays=True))


def _list_closed(step: ContactStep, takes_part: Array, p: Array, laws: tuple[Array, Array] | None) -> _Closed:
    """The contacts for which `takes_part` is positive (n,), with impulses from the places of all; normal rows alone
    without laws of friction."""
    starts, dtype = jnp.asarray(step.starts), p.dtype

    def of_kind(kind: ContactKind, so_far: tuple[ContactList, Array]) -> tuple[ContactList, Array]:
        which, normals = jnp.asarray(np.array(kind.contacts)), int(kind.has_gap)

        def look(i: Array, so_far: tuple) -> tuple:
            k = entry(which, i)

            def add(_: Array, so_far: tuple) -> tuple:
                contacts, own = so_far
                at, row, tangents = contacts.number, contacts.rows, jnp.asarray(0)
                if laws is not None:
                    mu, c = (entry(x, k) for x in laws)
                    tangents = jnp.where((mu > 0) | (c > 0), kind.tangents, 0)
                copy = lambda a, x: put(x, row + a, entry(p, entry(starts, k) + a))
                contacts = contacts._replace(
                    contact=put(contacts.contact, at, k),
                    row=put(contacts.row, at, row),
                    normals=put(contacts.normals, at, normals),
                    tangents=put(contacts.tangents, at, tangents),
                    p=loop(normals + tangents, copy, contacts.p),
                    number=at + 1,
                    rows=row + normals + tangents,
                )
                return contacts, put(own, at, i)

            # A run has ended where they do not fit.
            fits = so_far[0].number < step.room.contacts
            return loop(((entry(takes_part, k) > 0) & fits).astype(i.dtype), add, so_far)

        return loop(len(kind.contacts), look, so_far)

    contacts = empty_list(step.room, dtype)
    own, begin = jnp.zeros_like(contacts.contact), [contacts.number]
    for kind in step.kinds:
        contacts, own = of_kind(kind, (contacts, own))
        begin.append(contacts.number)
    take = lambda x: loop(
        contacts.number, lambda j, y: put(y, j, entry(x, entry(contacts.contact, j))), blank(own.size, dtype)
    )
    friction, limit = map(take, laws or [jnp.zeros_like(takes_part)] * 2)
    return _Closed(contacts._replace(friction=friction, limit=limit), own, begin)


def _write_rows(
    kinds: Sequence[ContactKind],
    room: Room,
    closed: _Closed,
    moving: Sequence[Any],
    kept: Sequence[Any],
    *,
    gaps: bool,
) -> _Rows:
    """The rows of a list."""
    dtype = closed.contacts.p.dtype
    J = empty_rows(closed.own.size, room.stride, room.columns, dtype)
    rows = _Rows(J, *(blank(room.stride, dtype) for _ in range(2)))

    def of_kind(number: int, rows: _Rows) -> _Rows:
        kind, of, own = kinds[number], moving[number], kept[number]
        first, normals = closed.begin[number], int(kind.has_gap)

        def write(j: Array, so_far: _Rows) -> _Rows:
            i, row = (entry(x, first + j) for x in (closed.own, closed.contacts.row))
            found = kind.rows(of, own, i)
            J = kind.write(found, so_far.J, first + j, row)
            rest, drift, gap = kind.drift(found), so_far.drift, so_far.gap
            for a in range(normals + kind.tangents):
                drift = put(drift, row + a, rest[1 - normals + a])
                gap = put(gap, row + a, kind.motion(of, own, i).gap if gaps and not a and normals else 0)
            return _Rows(J, drift, gap)

        return loop(closed.begin[number + 1] - first, write, rows)

    for number in range(len(kinds)):
        rows = of_kind(number, rows)
    return rows


def _sum_rows(contacts: ContactList, room: Room, p: Array) -> Array:
    """J^T p (n_v,)."""
    add = lambda k, i, x: contacts.J.add_row(k, i, entry(p, i), x)
    return contacts.over_rows(add, jnp.zeros(room.velocities, p.dtype))


def _add_rates(contacts: ContactList, v: Array, u: Array) -> Array:
    """U + J v, by row."""
    add = lambda k, i, y: put(y, i, contacts.J.multiply(k, i, v, entry(u, i)))
    return contacts.over_rows(add, blank(u.size, u.dtype))


def _add_response(x: Array, contacts: ContactList, of: DelassusRows, p: Array, after: Array) -> Array:
    """Velocities with what a change of impulses adds; how much that is, is held."""
    add = lambda k, i, x: of.add_response(k, i, entry(after, i) - entry(p, i), x, held=True)
    return contacts.over_rows(add, x)


def _place(step: ContactStep, contacts: ContactList, p: Array, to: Array) -> Array:
    """Impulses of a list in the places of all contacts."""
    starts = jnp.asarray(step.starts)

    def place(k: Array, to: Array) -> Array:
        first, row = entry(starts, entry(contacts.contact, k)), entry(contacts.row, k)
        width = entry(contacts.normals, k) + entry(contacts.tangents, k)
        return loop(width, lambda a, to: put(to, first + a, entry(p, row + a)), to)

    return loop(contacts.number, place, to)


def _mark(x: Array, carrier: Array) -> Array:
    """An array with the derivatives of another, entry by entry."""
    mark = lambda i, y: put(y, i, with_tangent_of(entry(x, i), entry(carrier, i), stays=True))
    return loop(x.size, mark, blank(x.size, x.dtype))
