"""The problem of contacts at one instant, of a list of contacts in memory: as many rows as are active when it runs.

With rows J of the contacts, the inverse inertia W they feel and contact velocities u' without impulses, find impulses p
and velocities u = J W J^T p + u' that obey Signorini's and Coulomb's laws, by Newton's method as in `_contact_newton`:
on G + e 1, where e pulls towards an earlier p. Loops run over the list, so the size of the code depends neither on how
many contacts there are nor on how many are active.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .._misc._blank import blank
from .._misc._derivatives import freeze
from .._misc._types import choose_by_precision
from ._contact_newton import (
    FIRST,
    GROW,
    IMPLICIT,
    LEAST,
    MOST,
    NEARER,
    ROUNDING,
    SHRINK,
    STEPS,
    TRIES,
)

# --- Loops over arrays in memory whose bounds are known when they run: what lists of contacts are computed by
#
# Arrays are flat, and places lie within them. Written this way, the size of a program does not grow with the list. Read
# an entry before another is put: what reads the former array later has it copied.

_READ = lax.GatherDimensionNumbers((), (0,), (0,))
_WRITE = lax.ScatterDimensionNumbers((), (0,), (0,))
_WITHIN = lax.GatherScatterMode.PROMISE_IN_BOUNDS


def entry(x: Array, place: Any) -> Array:
    """x[place] of a flat array."""
    return lax.gather(x, jnp.reshape(place, (1,)), _READ, (1,), mode=_WITHIN)


def put(x: Array, place: Any, value: Any) -> Array:
    """A flat array with x[place] replaced."""
    value = jnp.asarray(value).astype(x.dtype)
    return lax.scatter(x, jnp.reshape(place, (1,)), value, _WRITE, mode=_WITHIN)


def loop(count: Any, body: Callable[[Array, Any], Any], state: Any) -> Any:
    """The state after `body(i, state)` for each i below a count."""
    count = jnp.asarray(count)
    go = lambda c: c[0] < count
    return lax.while_loop(go, lambda c: (c[0] + 1, body(*c)), (jnp.zeros_like(count), state))[1]


def add_scaled(x: Array, to: Any, factor: Array, y: Array, of: Any, count: Any) -> Array:
    """x[to + i] + factor y[of + i] for each i below a count; nothing is done for a factor of zero."""
    add = lambda i, x: put(x, to + i, entry(x, to + i) + factor * entry(y, of + i))
    return loop(jnp.where(factor == 0, 0, count), add, x)


def add_scaled_within(x: Array, to: Any, factor: Array, of: Any, count: Any) -> Array:
    """x[to + i] + factor x[of + i], of entries of one array that do not overlap."""
    add = lambda i, x: put(x, to + i, entry(x, to + i) + factor * entry(x, of + i))
    return loop(jnp.where(factor == 0, 0, count), add, x)


def copy_entries(x: Array, y: Array, count: Any) -> Array:
    """x with its first entries from y."""
    return loop(count, lambda i, x: put(x, i, entry(y, i)), x)


def fill_entries(x: Array, to: Any, value: Any, count: Any) -> Array:
    """x with entries from a place on set to a value."""
    return loop(count, lambda i, x: put(x, to + i, value), x)


def item(x: Array, place: Any) -> Array:
    """x[place] along the first axis."""
    inner = tuple(range(x.ndim - 1))
    where = lax.GatherDimensionNumbers(inner, (0,), (0,))
    return lax.gather(x, jnp.reshape(place, (1,)), where, (1, *x.shape[1:]), mode=_WITHIN)


def put_item(x: Array, place: Any, value: Array) -> Array:
    """An array with x[place] replaced along the first axis."""
    window = tuple(range(x.ndim - 1))
    where = lax.ScatterDimensionNumbers(window, (0,), (0,))
    return lax.scatter(x, jnp.reshape(place, (1,)), value.astype(x.dtype), where, mode=_WITHIN)


# --- The problem of a list of contacts


class Inertia(NamedTuple):
    """The inverse inertia W that contacts feel: blocks, of velocities that only contacts join to others.

    - `velocities`: those of each block.
    - `respond`: R with W x from a place on, of x (n,) that is zero but in some blocks, at least there, from x, R, the
      place, and what loops over the numbers of these blocks.
    """

    velocities: tuple[tuple[int, ...], ...]
    respond: Callable[[Array, Array, Array, Callable[..., Any]], Array]

    def apply(self, x: Array) -> Array:
        """W x (n,)."""
        everywhere = lambda body, state: loop(len(self.velocities), body, state)
        return self.respond(x, blank(x.size, x.dtype), jnp.asarray(0), everywhere)

    def find_block(self, velocity: Array) -> Array:
        """The number of the block of a velocity."""
        numbers = np.zeros(sum(map(len, self.velocities)), int)
        for block, own in enumerate(self.velocities):
            numbers[list(own)] = block
        return entry(jnp.asarray(numbers), velocity)

    def over_block(self, block: Array, body: Callable[[Array, Any], Any], state: Any) -> Any:
        """The state after `body(velocity, state)` for each velocity of a block."""
        order = jnp.asarray(np.array([k for own in self.velocities for k in own]))
        begin = jnp.asarray(np.cumsum([0, *map(len, self.velocities)]))
        first, end = entry(begin, block), entry(begin, block + 1)
        return loop(end - first, lambda i, state: body(entry(order, first + i), state), state)


@final
class SparseRows(eqx.Module):
    """Rows of contacts by the velocities that move each.

    - `count`, `columns`: how many these are, and which; those of contact k begin at k times the room for them. One may be
      there twice.
    - `values`: of each row by these; row i begins at i times the room for them.
    - `room`: for the velocities of a contact.
    """

    count: Array
    columns: Array
    values: Array
    room: int = eqx.field(static=True)

    def begin(self, k: Array) -> "SparseRows":
        """With no velocity yet of contact k."""
        return SparseRows(put(self.count, k, 0), self.columns, self.values, self.room)

    def add(self, k: Array, row: Array, velocity: Any, values: Sequence[Array]) -> "SparseRows":
        """With one more velocity of contact k, and what it moves its rows by, the first of which is `row`."""
        at, written = entry(self.count, k), self.values
        for a, x in enumerate(values):
            written = put(written, (row + a) * self.room + at, x)
        columns = put(self.columns, k * self.room + at, velocity)
        return SparseRows(put(self.count, k, at + 1), columns, written, self.room)

    def over_columns(self, k: Any, body: Callable[[Array, Array, Any], Any], state: Any) -> Any:
        """The state after `body(c, velocity, state)` for column c of the rows of contact k, each."""
        own = k * self.room
        each = lambda c, state: body(c, entry(self.columns, own + c), state)
        return loop(entry(self.count, k), each, state)

    def multiply(self, k: Array, i: Array, v: Array, start: Array) -> Array:
        """A number with row i, of contact k, times v."""
        own = i * self.room
        return self.over_columns(k, lambda c, j, x: x + entry(self.values, own + c) * entry(v, j), start)

    def add_row(self, k: Array, i: Array, factor: Array, x: Array) -> Array:
        """x with row i, of contact k, times a factor."""
        own = i * self.room
        add = lambda c, j, x: put(x, j, entry(x, j) + factor * entry(self.values, own + c))
        return self.over_columns(k, add, x)


def empty_rows(contacts: int, rows: int, room: int, dtype: jnp.dtype) -> SparseRows:
    """Of no contacts yet."""
    whole = jnp.asarray(0).dtype
    return SparseRows(blank(contacts, whole), blank(contacts * room, whole), blank(rows * room, dtype), room)


class ContactList(NamedTuple):
    """Active contacts, one after the other, each with its rows: the normal one, if any, then tangential ones.

    - `contact`: which of all contacts each is.
    - `row`: its first row.
    - `normals`, `tangents`: how many normal and tangential rows it has.
    - `friction`, `limit`: Coulomb's mu, and what friction resists without being pressed.
    - `J`: rows.
    - `u`: of each row u'.
    - `p`: of each row a guess of the impulse.
    - `number`, `rows`: how many contacts and rows there are.
    """

    contact: Array
    row: Array
    normals: Array
    tangents: Array
    friction: Array
    limit: Array
    J: "SparseRows"
    u: Array
    p: Array
    number: Array
    rows: Array

    def over_rows(self, body: Callable[[Array, Array, Any], Any], state: Any) -> Any:
        """The state after `body(k, i, state)` for row i of contact k, each."""

        def of_contact(k: Array, state: Any) -> Any:
            first, count = entry(self.row, k), entry(self.normals, k) + entry(self.tangents, k)
            return loop(count, lambda a, state: body(k, first + a, state), state)

        return loop(self.number, of_contact, state)


class Room(NamedTuple):
    """How large a list may become.

    - `contacts`, `rows`: of contacts and of rows; one place more is kept for rows that a contact does not have.
    - `tangents`: the most tangential rows of a contact.
    - `velocities`: of the system.
    - `columns`: the most velocities that move a contact.
    """

    contacts: int
    rows: int
    tangents: int
    velocities: int
    columns: int

    @property
    def stride(self) -> int:
        """Rows with the one more."""
        return self.rows + 1


class ImpulseSolution(NamedTuple):
    """Impulses by row, what they change velocities by, modes by contact of the list, residual, and Newton steps."""

    p: Array
    change: Array
    closed: Array
    sliding: Array
    residual: Array
    steps: Array


def empty_list(room: Room, dtype: jnp.dtype) -> ContactList:
    """A list without contacts."""
    n, m, zero = max(room.contacts, 1), room.stride, jnp.asarray(0)
    whole, real = lambda: blank(n, zero.dtype), lambda count: blank(count, dtype)
    return ContactList(
        contact=whole(),
        row=whole(),
        normals=whole(),
        tangents=whole(),
        friction=real(n),
        limit=real(n),
        J=empty_rows(n, m, room.columns, dtype),
        u=real(m),
        p=real(m),
        number=zero,
        rows=zero,
    )


class _Rows(NamedTuple):
    """The rows of a contact: their places, where they are not there the last place of all, and which are there."""

    normal: Array
    has_normal: Array
    tangents: list[tuple[Array, Array]]


def _rows_of(contacts: ContactList, k: Array, room: Room) -> _Rows:
    row, normals, tangents = (entry(x, k) for x in (contacts.row, contacts.normals, contacts.tangents))
    there = [a < tangents for a in range(room.tangents)]
    first = row + normals
    places = [(jnp.where(on, first + a, room.rows), on) for a, on in enumerate(there)]
    return _Rows(jnp.where(normals > 0, row, room.rows), normals > 0, places)


class _Cut(NamedTuple):
    """P(y) of one contact at y = p - r (u + e (p - centre)): p - P(y), and what its derivative needs.

    - `normal`, `tangent`: of normal and tangential rows p - P(y).
    - `r_normal`, `r_tangent`: the sizes r.
    - `left`, `direction`: of tangential rows how much is left, and where it points if it slides.
    - `closed`, `slides`: the mode.
    """

    normal: Array
    tangent: list[Array]
    r_normal: Array
    r_tangent: Array
    left: Array
    direction: list[Array]
    closed: Array
    slides: Array


def _cut(
    rows: _Rows,
    laws: tuple[Array, Array],
    diagonal: Array,
    e: Array,
    place: tuple[Array, Array],
    centre: Array,
) -> _Cut:
    (p, u), (mu, c), s = place, laws, rows.normal
    at = lambda i, r: entry(p, i) - r * (entry(u, i) + e * (entry(p, i) - entry(centre, i)))
    r_normal = 1 / jnp.abs(entry(diagonal, s) + e)
    pressed = jnp.maximum(jnp.where(rows.has_normal, at(s, r_normal), 0), 0)
    closed = (pressed > 0) | ~rows.has_normal
    normal = jnp.where(rows.has_normal, entry(p, s) - pressed, 0)
    zero = jnp.zeros_like(e)
    total = sum((jnp.where(on, entry(diagonal, i) + e, 0) for i, on in rows.tangents), zero)
    number = sum((on.astype(e.dtype) for _, on in rows.tangents), zero)
    r_tangent = number / jnp.where(total == 0, 1, total)
    y = [jnp.where(on, at(i, r_tangent), 0) for i, on in rows.tangents]
    square, bound = sum((x * x for x in y), zero), mu * pressed + c
    slides = (number > 0) & ((square > bound * bound) | (bound <= 0))
    length = jnp.sqrt(jnp.where(square > 0, square, 1))
    left = jnp.where(slides, bound / length, 1)
    direction = [jnp.where(slides, x / length, 0) for x in y]
    tangent = [jnp.where(on, entry(p, i) - left * x, 0) for (i, on), x in zip(rows.tangents, y, strict=True)]
    return _Cut(normal, tangent, r_normal, r_tangent, left, direction, closed, slides)


class Coupling(NamedTuple):
    """Which rows of a linear system are coupled, also once others are eliminated: blocks of rows, each with the ranges of
    columns that are not zero in it, in order.

    - `number`, `room`: how many blocks there are, and at most.
    - `rows`: how many rows; ranges end there.
    - `size`: how many rows each has.
    - `ranges`: how many ranges each has; those of block k begin at k times the room.
    - `own`: which of them begins with the block itself.
    - `begin`, `end`: of all ranges.
    """

    number: Array
    room: int
    rows: Array
    size: Array
    ranges: Array
    own: Array
    begin: Array
    end: Array

    def block(self, k: Array) -> tuple[Array, Array]:
        """The first row of a block, and how many it has."""
        return entry(self.begin, k * self.room + entry(self.own, k)), entry(self.size, k)

    def over_ranges(self, k: Array, since: Any, body: Callable[[Array, Array, Any], Any], state: Any) -> Any:
        """The state after `body(begin, end, state)` for each range of block k from one on."""

        def of_range(r: Array, state: Any) -> Any:
            place = k * self.room + since + r
            return body(entry(self.begin, place), jnp.minimum(entry(self.end, place), self.rows), state)

        return loop(entry(self.ranges, k) - since, of_range, state)


def couple_all(m: Array) -> Coupling:
    """All rows with all others."""
    zero, one = jnp.zeros(1, m.dtype), jnp.ones(1, m.dtype)
    return Coupling(one[0], 1, m, put(zero, 0, m), one, zero, zero, put(zero, 0, m))


def _sizes(contacts: ContactList) -> Array:
    """How many rows each contact has."""
    set_size = lambda k, x: put(x, k, entry(contacts.normals, k) + entry(contacts.tangents, k))
    return loop(contacts.number, set_size, blank(contacts.row.size, contacts.row.dtype))


def _mark_by_entries(contacts: ContactList, size: Array, G: Array, width: Array) -> Array:
    """1 for each two contacts whose entries of a matrix are not all zero."""
    most = contacts.row.size

    def of_pair(a: Array, b: Array, marks: Array) -> Array:
        at = entry(contacts.row, a) * width + entry(contacts.row, b)
        of_row = lambda i, y: loop(
            entry(size, b), lambda j, y: jnp.where(entry(G, at + i * width + j) != 0, 1, y), y
        )
        return put(marks, a * most + b, loop(entry(size, a), of_row, jnp.zeros((), size.dtype)))

    of_contact = lambda a, marks: loop(contacts.number, functools.partial(of_pair, a), marks)
    return loop(contacts.number, of_contact, blank(most * most, size.dtype))


def _couple(contacts: ContactList, size: Array, marks: Array) -> Coupling:
    """The rows of contacts that act on each other, or will once others are eliminated; each contact is a block."""
    n, most, whole = contacts.number, contacts.row.size, size.dtype
    of_contacts, of_pairs = lambda: blank(most, whole), lambda: blank(most * most, whole)
    zero = jnp.zeros((), whole)
    marks = loop(n, lambda k, marks: put(marks, k * most + k, 1), marks)

    def eliminate(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        """What those after it are coupled with by a contact."""

        def add(b: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
            later, count = so_far
            return put(later, count, b), count + jnp.where(b > k, entry(marks, k * most + b), 0)

        marks, later = state
        later, count = loop(n, add, (later, zero))
        to = lambda a, marks: loop(
            count, lambda b, marks: put(marks, entry(later, a) * most + entry(later, b), 1), marks
        )
        return loop(count, to, marks), later

    marks, _ = loop(n, eliminate, (marks, of_contacts()))

    def find_ranges(k: Array, so_far: tuple[Array, ...]) -> tuple[Array, ...]:
        def add(b: Array, so_far: tuple[Array, ...]) -> tuple[Array, ...]:
            begin, end, own, count = so_far
            first, coupled = entry(contacts.row, b), entry(marks, k * most + b) > 0
            last = k * most + jnp.maximum(count - 1, 0)
            joins = (count > 0) & (b != k) & (entry(end, last) == first)
            count = count + (coupled & ~joins).astype(whole)
            place = k * most + jnp.maximum(count - 1, 0)
            begin = put(begin, place, jnp.where(coupled & ~joins, first, entry(begin, place)))
            end = put(end, place, jnp.where(coupled, first + entry(size, b), entry(end, place)))
            return begin, end, jnp.where(b == k, count - 1, own), count

        begins, ends, owns, counts = so_far
        begins, ends, own, count = loop(n, add, (begins, ends, zero, zero))
        return begins, ends, put(owns, k, own), put(counts, k, count)

    ranges = of_pairs(), of_pairs(), of_contacts(), of_contacts()
    begin, end, own, count = loop(n, find_ranges, ranges)
    return Coupling(n, most, contacts.rows, size, count, own, begin, end)


def subtract_solution(A: Array, b: Array, width: Array, p: Array, of: Coupling) -> tuple[Array, Array, Array]:
    """p less the solution of a linear system, by elimination with pivots as they come; and what becomes of A and b."""

    def below(k: Array, j: Array, A: Array, b: Array) -> tuple[Array, Array]:
        own, since = j * width, entry(of.own, k)
        pivot = entry(A, own + j)
        inverse = 1 / jnp.where(pivot == 0, 1, pivot)

        def scale(begin: Array, end: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
            begin = jnp.maximum(begin, j + 1)

            def by(c: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
                A, rest = so_far
                value = entry(A, own + begin + c) * inverse
                return put(A, own + begin + c, value), jnp.maximum(rest, jnp.abs(value))

            return loop(end - begin, by, so_far)

        def less(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            A, b = state
            factor = -entry(A, i * width + j)

            def along(begin: Array, end: Array, A: Array) -> Array:
                begin = jnp.maximum(begin, j + 1)
                # Rows of open contacts are zero beside their pivots.
                count = jnp.where(rest == 0, 0, end - begin)
                return add_scaled_within(A, i * width + begin, factor, own + begin, count)

            b = put(b, i, entry(b, i) + factor * entry(b, j))
            return of.over_ranges(k, since, along, A), b

        def rows(begin: Array, end: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            begin = jnp.maximum(begin, j + 1)
            return loop(end - begin, lambda i, state: less(begin + i, state), state)

        A, rest = of.over_ranges(k, since, scale, (A, jnp.zeros((), A.dtype)))
        b = put(b, j, entry(b, j) * inverse)
        return of.over_ranges(k, since, rows, (A, b))

    def above(k: Array, j: Array, b: Array) -> Array:
        def along(begin: Array, end: Array, x: Array) -> Array:
            begin = jnp.maximum(begin, j + 1)
            return loop(
                end - begin, lambda c, x: x - entry(A, j * width + begin + c) * entry(b, begin + c), x
            )

        return put(b, j, of.over_ranges(k, entry(of.own, k), along, entry(b, j)))

    def forward(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        first, count = of.block(k)
        return loop(count, lambda i, state: below(k, first + i, *state), state)

    def backward(back: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        k = of.number - 1 - back
        first, count = of.block(k)

        def one(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            b, p = state
            j = first + count - 1 - i
            b = above(k, j, b)
            return b, put(p, j, entry(p, j) - entry(b, j))

        return loop(count, one, state)

    A, b = loop(of.number, forward, (A, b))
    b, p = loop(of.number, backward, (b, p))
    return A, b, p


def substitute(A: Array, b: Array, width: Array, of: Coupling) -> Array:
    """The solution of a linear system whose matrix `subtract_solution` has eliminated; the matrix is held."""
    held = lambda place: freeze(entry(A, place))

    def product(k: Array, j: Array, first: Any, last: Any, b: Array) -> Array:
        """Of row j in block k, with the entries of b from one place to another."""

        def along(begin: Array, end: Array, x: Array) -> Array:
            begin, end = jnp.maximum(begin, first), jnp.minimum(end, last)
            add = lambda c, x: x + held(j * width + begin + c) * entry(b, begin + c)
            return loop(end - begin, add, x)

        return of.over_ranges(k, 0, along, jnp.zeros((), b.dtype))

    def below(k: Array, b: Array) -> Array:
        first, count = of.block(k)

        def one(i: Array, b: Array) -> Array:
            j = first + i
            pivot = held(j * width + j)
            left = entry(b, j) - product(k, j, 0, j, b)
            return put(b, j, left * (1 / jnp.where(pivot == 0, 1, pivot)))

        return loop(count, one, b)

    def above(back: Array, b: Array) -> Array:
        k = of.number - 1 - back
        first, count = of.block(k)

        def one(i: Array, b: Array) -> Array:
            j = first + count - 1 - i
            return put(b, j, entry(b, j) - product(k, j, j + 1, of.rows, b))

        return loop(count, one, b)

    return loop(of.number, above, loop(of.number, below, b))


class _State(NamedTuple):
    """Where the iteration is, with u = G p + u' of two places.

    - `p`, `u`: the place.
    - `centre`, `u_centre`: where e pulls to.
    - `best`: the best place so far.
    - `A`, `b`: the linear system of a step.
    - `e`, `tries`: how much it pulls, and steps with this e.
    - `steps`: all steps.
    - `residual`, `enough`: of the best place, and what rounding lets be.
    """

    p: Array
    u: Array
    centre: Array
    u_centre: Array
    best: Array
    A: Array
    b: Array
    e: Array
    tries: Array
    steps: Array
    residual: Array
    enough: Array


class _Iteration(NamedTuple):
    """A problem with u' of size 1 and the mean of G's diagonal 1.

    - `contacts`, `room`: the list, with laws in these units.
    - `of`, `mass`, `diagonal`: the Delassus operator, its unit, and its diagonal in these units.
    - `base`: u'.
    - `tolerance`: of the residual.
    """

    contacts: ContactList
    room: Room
    of: "DelassusRows"
    mass: Array
    diagonal: Array
    base: Array
    tolerance: Array | float

    def laws(self, k: Array) -> tuple[Array, Array]:
        """Mu and c of a contact."""
        return entry(self.contacts.friction, k), entry(self.contacts.limit, k)

    def cut(self, k: Array, e: Array, place: tuple[Array, Array], centre: Array) -> _Cut:
        """The cut of a contact."""
        return _cut(_rows_of(self.contacts, k, self.room), self.laws(k), self.diagonal, e, place, centre)

    def moved(self, u: Array, p: Array) -> Array:
        """u = G p + u'."""
        return self.of.apply(copy_entries(u, self.base, self.contacts.rows), p, self.mass)

    def violation(self, p: Array, u: Array) -> tuple[Array, Array]:
        """The largest violation, of normal rows, of the cone and, over the size of p, of maximum dissipation; and the
        residual that rounding lets be."""
        zero = jnp.zeros((), p.dtype)
        largest = lambda i, size: jnp.maximum(size, jnp.abs(entry(p, i)))
        size = 1 + loop(self.contacts.rows, largest, zero)

        def of_contact(k: Array, so_far: Array) -> Array:
            rows, (mu, c) = _rows_of(self.contacts, k, self.room), self.laws(k)
            pressed, parting = (jnp.where(rows.has_normal, entry(x, rows.normal), 0) for x in (p, u))
            so_far = jnp.maximum(so_far, jnp.abs(jnp.minimum(pressed, parting)))
            if not rows.tangents:
                return so_far
            bound = mu * pressed + c
            force, slip = ([jnp.where(on, entry(x, i), 0) for i, on in rows.tangents] for x in (p, u))
            length = lambda x: jnp.sqrt(sum((y * y for y in x), zero))
            power = sum((x * y for x, y in zip(force, slip, strict=True)), zero)
            off = jnp.maximum(length(force) - bound, jnp.abs(power + bound * length(slip)) / size)
            return jnp.maximum(so_far, jnp.where(rows.tangents[0][1], off, 0))

        violation = loop(self.contacts.number, of_contact, zero)
        return violation, jnp.maximum(self.tolerance, ROUNDING * jnp.finfo(p.dtype).eps * size)

    def errors(self, state: _State) -> tuple[Array, Array]:
        """The largest |p - P(y)| with the pull of e, and without."""
        place = state.p, state.u

        def of_contact(k: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
            cuts = (self.cut(k, state.e, place, centre) for centre in (state.centre, state.p))
            worst = lambda most, cut: max_of(most, cut.normal, *cut.tangent)
            max_of = lambda most, *x: most if not x else jnp.maximum(jnp.abs(x[0]), max_of(most, *x[1:]))
            return tuple(worst(most, cut) for most, cut in zip(so_far, cuts, strict=True))  # pyright: ignore[reportReturnType]

        zero = jnp.zeros_like(state.e)
        return loop(self.contacts.number, of_contact, (zero, zero))

    def slope(
        self, k: Array, e: Array, place: tuple[Array, Array], centre: Array
    ) -> tuple[_Cut, list[Array], list[list[Array]], list[Array]]:
        """The cut of a contact, the places of its rows, the derivative of P(y) by y there, and their sizes r."""
        rows, (mu, _) = _rows_of(self.contacts, k, self.room), self.laws(k)
        cut = self.cut(k, e, place, centre)
        closed = (cut.closed & rows.has_normal).astype(e.dtype)
        pressing = [jnp.where(cut.slides, closed * mu, 0) * x for x in cut.direction]
        shares = [[closed, *(jnp.zeros_like(e) for _ in rows.tangents)]]
        for a, along in enumerate(cut.direction):
            turning = [cut.left * (float(a == b) - along * other) for b, other in enumerate(cut.direction)]
            shares.append([pressing[a], *turning])
        sizes = [cut.r_normal, *(cut.r_tangent for _ in rows.tangents)]
        return cut, [rows.normal, *(i for i, _ in rows.tangents)], shares, sizes

    def linearized(
        self, A: Array, b: Array, e: Array, place: tuple[Array, Array], centre: Array
    ) -> tuple[Array, Array]:
        """A = 1 - P' (1 - r (G + e 1)) where rows are coupled, and b = p - P(y)."""
        G, width, coupling = self.of.G, self.of.width, self.of.coupling

        def of_contact(k: Array, system: tuple[Array, Array]) -> tuple[Array, Array]:
            A, b = system
            cut, places, shares, sizes = self.slope(k, e, place, centre)
            starts = [i * width for i in places]
            factors = [[x * r * self.mass for x, r in zip(row, sizes, strict=True)] for row in shares]

            def column(j: Array, A: Array) -> Array:
                of = [entry(G, start + j) for start in starts]
                for start, row in zip(starts, factors, strict=True):
                    taken = [f * x for f, x in zip(row, of, strict=True)]
                    A = put(A, start + j, sum(taken[1:], taken[0]))
                return A

            A = coupling.over_ranges(
                k, 0, lambda begin, end, A: loop(end - begin, lambda j, A: column(begin + j, A), A), A
            )
            for start, i, row, off in zip(starts, places, shares, [cut.normal, *cut.tangent], strict=True):
                for j, share, r in zip(places, row, sizes, strict=True):
                    A = put(A, start + j, entry(A, start + j) + share * (r * e - 1))
                A = put(A, start + i, entry(A, start + i) + 1)
                b = put(b, i, off)
            return A, b

        return loop(self.contacts.number, of_contact, (A, b))

    def step(self, state: _State) -> _State:
        """One of Newton's method, with another e where this one has done its part, or failed."""
        rows = self.contacts.rows
        p, u, centre, u_centre, best, A, b, e, tries, steps, residual, enough = state
        eps = jnp.finfo(p.dtype).eps
        size = 1 + loop(rows, lambda i, most: jnp.maximum(most, jnp.abs(entry(p, i))), jnp.zeros_like(e))
        error, whole = self.errors(state)
        done = error < jnp.maximum(NEARER * whole, ROUNDING * eps * size)
        failed = ~done & (tries >= TRIES)
        other = jnp.where(failed, jnp.minimum(e * GROW, MOST), e)
        e = jnp.where(done, jnp.maximum(e * SHRINK, choose_by_precision(p.dtype, *LEAST)), other)
        back, on = jnp.where(failed, rows, 0), jnp.where(done, rows, 0)
        p, u = copy_entries(p, centre, back), copy_entries(u, u_centre, back)
        centre, u_centre = copy_entries(centre, p, on), copy_entries(u_centre, u, on)
        A, b = self.linearized(A, b, e, (p, u), centre)
        A, b, p = subtract_solution(A, b, self.of.width, p, self.of.coupling)
        u = self.moved(u, p)
        violation, allowed = self.violation(p, u)
        better = violation < residual
        best = copy_entries(best, p, jnp.where(better, rows, 0))
        return _State(
            p,
            u,
            centre,
            u_centre,
            best,
            A,
            b,
            e,
            jnp.where(done | failed, 0, tries + 1),
            steps + 1,
            jnp.where(better, violation, residual),
            jnp.where(better, allowed, enough),
        )

    def run(self, p: Array) -> tuple[Array, Array, Array, Array]:
        """The best p found from a guess, u there, its residual, and how many steps that took."""
        rows, zero = self.contacts.rows, jnp.zeros((), p.dtype)
        new = lambda: blank(p.size, p.dtype)
        u = self.moved(new(), p)
        residual, enough = self.violation(p, u)
        centre, u_centre, best = (
            copy_entries(new(), p, rows),
            copy_entries(new(), u, rows),
            copy_entries(new(), p, rows),
        )
        A = blank(self.of.G.size, p.dtype)
        start = _State(p, u, centre, u_centre, best, A, new(), zero + FIRST, zero, zero, residual, enough)
        # False for what is not a number: nothing can be found there.
        goes_on = lambda s: (s.residual > s.enough) & (s.steps < STEPS)
        end = lax.while_loop(goes_on, self.step, start)
        return end.best, self.moved(end.u, end.best), end.residual, end.steps


class Support(NamedTuple):
    """Which velocities the impulses of each contact change: blocks of them.

    - `inertia`: which has the blocks.
    - `most`: how many blocks a contact may have.
    - `blocks`, `counts`: those of each contact; of contact k they begin at k times the most.
    """

    inertia: Inertia
    most: int
    blocks: Array
    counts: Array

    def over_blocks(self, k: Array, body: Callable[[Array, Any], Any], state: Any) -> Any:
        """The state after `body(block, state)` for each block of contact k."""
        each = lambda s, state: body(entry(self.blocks, k * self.most + s), state)
        return loop(entry(self.counts, k), each, state)

    def over_velocities(self, k: Array, body: Callable[[Array, Any], Any], state: Any) -> Any:
        """The state after `body(velocity, state)` for each velocity of these blocks."""
        return self.over_blocks(k, lambda block, x: self.inertia.over_block(block, body, x), state)


class Islands(NamedTuple):
    """Contacts of a list by islands: those of different ones have no block of velocities in common, and none of both has
    one with a third. So they are solved apart.

    - `number`: how many islands there are.
    - `order`: the contacts, island after island, each in the order of the list.
    - `begin`: where those of each begin, and the last ones end.
    """

    number: Array
    order: Array
    begin: Array

    def take(self, i: Array, contacts: ContactList, room: Room) -> ContactList:
        """The contacts of island i, as a list of their own."""
        J, first = contacts.J, entry(self.begin, i)
        whole, real = (lambda x, y, at, k: put(x, at, entry(y, k))), contacts.u.dtype

        def add(at: Array, own: ContactList) -> ContactList:
            k, row = entry(self.order, first + at), own.rows
            old, columns = entry(contacts.row, k), entry(J.count, k)
            size = entry(contacts.normals, k) + entry(contacts.tangents, k)
            copied = loop(
                columns,
                lambda c, x: put(x, at * J.room + c, entry(J.columns, k * J.room + c)),
                own.J.columns,
            )

            def copy_row(a: Array, so_far: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                values, u, p = so_far
                to, of = (row + a) * J.room, (old + a) * J.room
                values = loop(columns, lambda c, x: put(x, to + c, entry(J.values, of + c)), values)
                return (
                    values,
                    put(u, row + a, entry(contacts.u, old + a)),
                    put(p, row + a, entry(contacts.p, old + a)),
                )

            values, u, p = loop(size, copy_row, (own.J.values, own.u, own.p))
            return ContactList(
                contact=whole(own.contact, contacts.contact, at, k),
                row=put(own.row, at, row),
                normals=whole(own.normals, contacts.normals, at, k),
                tangents=whole(own.tangents, contacts.tangents, at, k),
                friction=whole(own.friction, contacts.friction, at, k),
                limit=whole(own.limit, contacts.limit, at, k),
                J=SparseRows(put(own.J.count, at, columns), copied, values, J.room),
                u=u,
                p=p,
                number=at + 1,
                rows=row + size,
            )

        return loop(entry(self.begin, i + 1) - first, add, empty_list(room, real))


def find_islands(contacts: ContactList, room: Room, inertia: Inertia) -> Islands:
    """The islands of a list, in the order of their first contacts."""
    n, whole, most = contacts.number, contacts.row.dtype, contacts.row.size
    support = _find_support(contacts, inertia, min(len(inertia.velocities), room.columns))
    none, new = jnp.zeros((), whole), lambda: blank(most + 1, whole)
    # By trees of contacts, each of which points to one before it, or to itself as the first of its island.
    free = lambda k, x: support.over_blocks(k, lambda block, x: put(x, block, most), x)
    owner = loop(n, free, blank(len(inertia.velocities), whole))

    def find(before: Array, k: Array) -> Array:
        return lax.while_loop(lambda k: entry(before, k) != k, lambda k: entry(before, k), k)

    def join(k: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
        def with_block(block: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
            before, owner = so_far
            other = jnp.minimum(entry(owner, block), k)
            a, b = find(before, other), find(before, k)
            return put(before, jnp.maximum(a, b), jnp.minimum(a, b)), put(owner, block, jnp.minimum(a, b))

        before, owner = so_far
        return support.over_blocks(k, with_block, (put(before, k, k), owner))

    before, _ = loop(n, join, (new(), owner))

    def count(k: Array, so_far: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        island, sizes, number = so_far
        root = find(before, k)
        is_new = root == k
        own = jnp.where(is_new, number, entry(island, jnp.where(is_new, 0, root)))
        sizes = put(sizes, own, jnp.where(is_new, 0, entry(sizes, own)) + 1)
        return put(island, k, own), sizes, number + is_new.astype(whole)

    island, sizes, number = loop(n, count, (put(new(), 0, 0), new(), none))

    def add(i: Array, so_far: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        begin, place, first = so_far
        return put(begin, i, first), put(place, i, first), first + entry(sizes, i)

    begin, place, end = loop(number, add, (new(), new(), none))

    def sort(k: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
        order, place = so_far
        own = entry(island, k)
        at = entry(place, own)
        return put(order, at, k), put(place, own, at + 1)

    order, _ = loop(n, sort, (new(), place))
    return Islands(number, order, put(begin, number, end))


class DelassusRows(NamedTuple):
    """R = J W in rows of velocities, where a contact changes these, and G = R J^T in rows of `width`, where rows are
    coupled."""

    R: Array
    G: Array
    width: Array
    coupling: Coupling
    support: Support | None

    def apply(self, y: Array, p: Array, factor: Array | float = 1.0) -> Array:
        """y + factor G p."""

        def of_contact(k: Array, y: Array) -> Array:
            first, count = self.coupling.block(k)

            def of_row(i: Array, y: Array) -> Array:
                j = first + i
                x, own = factor * entry(p, j), j * self.width
                add = lambda begin, end, y: add_scaled(y, begin, x, self.G, own + begin, end - begin)
                return self.coupling.over_ranges(k, 0, add, y)

            return loop(count, of_row, y)

        return loop(self.coupling.number, of_contact, y)

    def add_response(self, k: Array, i: Array, factor: Array, x: Array, *, held: bool = False) -> Array:
        """Velocities x with what an impulse on row i of contact k changes them by; how much that is, is held or not."""
        own, hold = i * x.size, freeze if held else lambda y: y
        add = lambda j, x: put(x, j, entry(x, j) + factor * hold(entry(self.R, own + j)))
        return self.support.over_velocities(k, add, x)  # pyright: ignore[reportOptionalMemberAccess]


def _find_support(contacts: ContactList, inertia: Inertia, most: int) -> Support:
    """The blocks of velocities that move each contact."""
    J, whole = contacts.J, contacts.row.dtype

    def of_contact(k: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
        size, row = entry(contacts.normals, k) + entry(contacts.tangents, k), entry(contacts.row, k)

        def of_column(c: Array, j: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
            blocks, count = so_far
            block = inertia.find_block(j)
            moves = loop(
                size, lambda a, y: y | (entry(J.values, (row + a) * J.room + c) != 0), jnp.asarray(False)
            )
            known = loop(count, lambda s, y: y | (entry(blocks, k * most + s) == block), jnp.asarray(False))
            new = (moves & ~known).astype(whole)
            add = lambda _, blocks: put(blocks, k * most + count, block)
            return loop(new, add, blocks), count + new

        blocks, counts = so_far
        blocks, count = J.over_columns(k, of_column, (blocks, jnp.zeros((), whole)))
        return blocks, put(counts, k, count)

    rooms = blank(contacts.row.size * most, whole), blank(contacts.row.size, whole)
    return Support(inertia, most, *loop(contacts.number, of_contact, rooms))


class Workspace(NamedTuple):
    """What `delassus` works in, and leaves as it was: so it takes no time for velocities that no contact of a list has.

    - `zeros`: zero for each velocity.
    - `last`: of each block of velocities no number of a contact.
    """

    zeros: Array
    last: Array


def empty_workspace(room: Room, inertia: Inertia, dtype: jnp.dtype) -> Workspace:
    """A workspace."""
    v, blocks, whole = room.velocities, len(inertia.velocities), jnp.asarray(0).dtype
    return Workspace(fill_entries(blank(v, dtype), 0, 0, v), fill_entries(blank(blocks, whole), 0, 0, blocks))


def delassus(
    contacts: ContactList, room: Room, inertia: Inertia, space: Workspace
) -> tuple[DelassusRows, Workspace]:
    """R and G of the rows of a list."""
    n, m, v, stride = contacts.number, contacts.rows, room.velocities, room.stride
    dtype, whole, most = contacts.u.dtype, contacts.row.dtype, contacts.row.size
    width, size = m + 1, _sizes(contacts)
    support = _find_support(contacts, inertia, min(len(inertia.velocities), room.columns))

    def of_row(k: Array, i: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
        """R of a row, by a vector that is zero before and after."""
        R, x = so_far
        x = contacts.J.add_row(k, i, jnp.ones((), dtype), x)
        R = inertia.respond(x, R, i * v, functools.partial(support.over_blocks, k))
        return R, contacts.J.over_columns(k, lambda _, j, x: put(x, j, 0), x)

    R, zeros = contacts.over_rows(of_row, (blank(stride * v, dtype), space.zeros))

    def mark(a: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
        """1 for each contact up to a one that has a block of it."""
        marks, last = so_far
        last = support.over_blocks(a, lambda block, last: put(last, block, a + 1), last)

        def of_other(b: Array, marks: Array) -> Array:
            same = lambda block, y: jnp.maximum(y, (entry(last, block) == a + 1).astype(whole))
            both = support.over_blocks(b, same, jnp.zeros((), whole))
            return put(put(marks, a * most + b, both), b * most + a, both)

        return loop(a + 1, of_other, marks), last

    marks, last = loop(n, mark, (blank(most * most, whole), space.last))
    forget = lambda a, last: support.over_blocks(a, lambda block, last: put(last, block, 0), last)
    last = loop(n, forget, last)

    def of_pair(b: Array, i: Array, x: Array, G: Array) -> Array:
        """G with products of the rows of contact b and W times row i."""

        def of_entry(a: Array, G: Array) -> Array:
            j = entry(contacts.row, b) + a
            value = contacts.J.multiply(b, j, x, jnp.zeros((), dtype))
            return put(put(G, i * width + j, value), j * width + i, value)

        return loop(entry(size, b), of_entry, G)

    def products(a: Array, i: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
        G, x = so_far
        x = support.over_velocities(a, lambda j, x: put(x, j, entry(R, i * v + j)), x)
        coupled = lambda b: entry(marks, a * most + b)
        G = loop(a + 1, lambda b, G: loop(coupled(b), lambda _, G: of_pair(b, i, x, G), G), G)
        return G, support.over_velocities(a, lambda j, x: put(x, j, 0), x)

    G = loop(m, lambda i, G: fill_entries(G, i * width, 0, m), blank(stride * stride, dtype))
    G, zeros = contacts.over_rows(products, (G, zeros))
    coupling = _couple(contacts, size, marks)
    return DelassusRows(R, without_rest(G, room, m), width, coupling, support), Workspace(zeros, last)


def without_rest(G: Array, room: Room, m: Array) -> Array:
    """G with zeros where rows are read that are not there."""
    return fill_entries(G, room.rows * (m + 1), 0, m)


def solve(
    contacts: ContactList,
    room: Room,
    of: DelassusRows,
    tolerance: float,
    enough: Array | float,
    change: Array,
) -> ImpulseSolution:
    """The impulses of a list of contacts, with what they change velocities by added to a change."""
    found = _solve(contacts, room, of, tolerance, enough)
    add = lambda k, i, x: of.add_response(k, i, entry(found.p, i), x)
    return found._replace(change=contacts.over_rows(add, change))


def solve_delassus(
    contacts: ContactList, room: Room, G: Array, width: Array, tolerance: float
) -> ImpulseSolution:
    """The impulses of a list of contacts whose Delassus operator is known; what they change is left out."""
    size = _sizes(contacts)
    coupling = _couple(contacts, size, _mark_by_entries(contacts, size, G, width))
    return _solve(
        contacts, room, DelassusRows(jnp.zeros(0, G.dtype), G, width, coupling, None), tolerance, 0.0
    )


def _solve(
    contacts: ContactList, room: Room, of: DelassusRows, tolerance: float, enough: Array | float
) -> ImpulseSolution:
    """The impulses of a list of contacts, to a tolerance of the residual of the scaled problem; velocities may be off by
    `enough` in any case."""
    # Of a list with others behind these.
    of = of._replace(coupling=of.coupling._replace(number=contacts.number, rows=contacts.rows))
    G, width = of.G, of.width
    m, dtype = contacts.rows, contacts.u.dtype
    zero = jnp.zeros((), dtype)

    def sizes(i: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
        trace, speed = so_far
        return trace + entry(G, i * width + i), jnp.maximum(speed, jnp.abs(entry(contacts.u, i)))

    trace, speed = loop(m, sizes, (zero, zero))
    mean, speed = trace / jnp.maximum(m, 1).astype(dtype), jnp.maximum(speed, enough / tolerance)
    scale, speed = (jnp.where(x > 0, x, 1) for x in (mean, speed))
    of_force, of_mass = scale / speed, 1 / scale
    by_row = lambda value: loop(m, lambda i, x: put(x, i, value(i)), blank(room.stride, dtype))
    diagonal = put(by_row(lambda i: of_mass * entry(G, i * width + i)), room.rows, 0)
    base = by_row(lambda i: entry(contacts.u, i) / speed)
    p = by_row(lambda i: entry(contacts.p, i) * of_force)
    limit = loop(contacts.number, lambda k, x: put(x, k, entry(x, k) * of_force), contacts.limit)
    problem = _Iteration(contacts._replace(limit=limit), room, of, of_mass, diagonal, base, tolerance)
    p, u, residual, steps = problem.run(p)

    def modes(k: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
        cut = problem.cut(k, zero, (p, u), p)
        closed, sliding = so_far
        return put(closed, k, cut.closed), put(sliding, k, cut.closed & cut.slides)

    by_contact = [blank(contacts.friction.size, dtype) for _ in range(2)]
    closed, sliding = loop(contacts.number, modes, (by_contact[0], by_contact[1]))
    p = loop(m, lambda i, p: put(p, i, entry(p, i) / of_force), p)
    return ImpulseSolution(p, jnp.zeros(0, dtype), closed, sliding, residual, steps)


# --- Derivatives of a solution: one step of Newton's method more, with its matrix held


_AGAIN = 7  # steps that make up for e: each by e beside the smallest positive eigenvalue of G


def linearize_solution(
    contacts: ContactList, room: Room, of: DelassusRows, u: Array
) -> Callable[[Array, Array], Array]:
    """What gives impulses the derivative of a solution, of a list of closed contacts with velocities u after impulses.

    It takes impulses and velocities of the same values, and returns p less A^-1 (p - P(y)) with A held: the derivative is
    that by velocities as they would change if impulses did not, and by the friction of the list.
    """
    m, width, dtype = contacts.rows, of.width, u.dtype
    by_row = lambda value: loop(m, lambda i, x: put(x, i, value(i)), blank(room.stride, dtype))
    diagonal = by_row(lambda i: freeze(entry(of.G, i * width + i)))
    trace = loop(m, lambda i, x: x + entry(diagonal, i), jnp.zeros((), dtype))
    e = IMPLICIT * jnp.where(trace > 0, trace / jnp.maximum(m, 1).astype(dtype), 1)
    one = jnp.ones((), dtype)
    problem = _Iteration(contacts, room, of, one, put(diagonal, room.rows, 0), u, one)
    at = contacts.p, by_row(lambda i: freeze(entry(u, i)))
    A, b = problem.linearized(blank(of.G.size, dtype), blank(room.stride, dtype), e, at, at[0])
    A = subtract_solution(A, b, width, blank(room.stride, dtype), of.coupling)[0]
    solve = lambda b: substitute(A, b, width, of.coupling)

    def pull(x: Array) -> Array:
        """What e adds to the residual of a change."""

        def of_contact(k: Array, y: Array) -> Array:
            _, places, shares, sizes = problem.slope(k, e, at, at[0])
            for i, row in zip(places, shares, strict=True):
                terms = [freeze(s * r * e) * entry(x, j) for s, r, j in zip(row, sizes, places, strict=True)]
                y = put(y, i, sum(terms[1:], terms[0]))
            return y

        x = put(x, room.rows, 0)
        return loop(contacts.number, of_contact, blank(room.stride, dtype))

    def follow(p: Array, u: Array) -> Array:
        def residual(k: Array, b: Array) -> Array:
            rows, cut = _rows_of(contacts, k, room), problem.cut(k, e, (p, u), p)
            places = [rows.normal, *(i for i, _ in rows.tangents)]
            for i, off in zip(places, [cut.normal, *cut.tangent], strict=True):
                b = put(b, i, off)
            return b

        def again(_: Array, x: Array) -> Array:
            more = solve(pull(x))
            return by_row(lambda i: entry(first, i) + entry(more, i))

        first = solve(loop(contacts.number, residual, blank(room.stride, dtype)))
        change = loop(jnp.asarray(_AGAIN), again, by_row(lambda i: entry(first, i)))
        return by_row(lambda i: entry(p, i) - entry(change, i))

    return follow
