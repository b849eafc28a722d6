"""Contacts of a list of which other impulses obey the laws as well; see `_modes`, which says what that means."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from .._formula._contact_list import ContactList, Room, entry, fill_entries, loop, put
from .._formula._contact_operator import DelassusRows
from .._formula._contact_solver import ImpulseSolution, LinearSystem
from .._misc._blank import blank
from .._misc._types import choose_by_precision
from ._modes import COUNTS, still
from ._rows import PASSES, PULL


class ListedImpulses(NamedTuple):
    """Contacts of a list after a step.

    - `contacts`, `room`: the list, with its impulses `p` and the contact velocities `u` after them.
    - `delassus`: its operator.
    - `found`: impulses and modes.
    - `all_rows`: how many rows all contacts have.
    - `may_stay`: whether a contact of the list touched before and did not part.
    """

    contacts: ContactList
    room: Room
    delassus: DelassusRows
    found: ImpulseSolution
    all_rows: int
    may_stay: Callable[[Array], Array]

    @property
    def G(self) -> Array:
        """The Delassus operator."""
        return self.delassus.G

    @property
    def width(self) -> Array:
        """Of its rows."""
        return self.delassus.width

    @property
    def closed(self) -> Array:
        """1 for closed contacts of the list."""
        return self.found.closed

    @property
    def sliding(self) -> Array:
        """1 for those that slide."""
        return self.found.sliding


def _largest(x: Array, count: Array) -> Array:
    return loop(count, lambda i, most: jnp.maximum(most, jnp.abs(entry(x, i))), jnp.zeros((), x.dtype))


def _apply_delassus(of: ListedImpulses, x: Array) -> Array:
    """G x."""
    return of.delassus.apply(fill_entries(blank(x.size, x.dtype), 0, 0, of.contacts.rows), x)


def _slip(of: ListedImpulses, k: Array) -> tuple[list[tuple[Array, Array]], Array]:
    """Of a contact its tangential rows with the direction of slip along them, and the slip's square."""
    contacts, room = of.contacts, of.room
    first, tangents = entry(contacts.row, k) + entry(contacts.normals, k), entry(contacts.tangents, k)
    places = [jnp.where(a < tangents, first + a, room.rows) for a in range(room.tangents)]
    u = [jnp.where(a < tangents, entry(contacts.u, i), 0) for a, i in enumerate(places)]
    square = sum((x * x for x in u), jnp.zeros((), contacts.u.dtype))
    length = jnp.sqrt(jnp.where(square > 0, square, 1))
    return [(i, x / length) for i, x in zip(places, u, strict=True)], square


def _apply_force_map(of: ListedImpulses, x: Array) -> Array:
    """S x: forces on the rows held, with the friction of sliding contacts that goes with normal ones."""
    y = fill_entries(blank(x.size, x.dtype), 0, 0, of.contacts.rows)

    def one(k: Array, y: Array) -> Array:
        row, normals = entry(of.contacts.row, k), entry(of.contacts.normals, k)
        closed, slides = entry(of.closed, k), entry(of.sliding, k) > 0
        pressing = jnp.where(normals > 0, entry(x, row), 0) * closed
        y = put(y, jnp.where(normals > 0, row, of.room.rows), pressing)
        rubs = entry(of.contacts.friction, k) * pressing
        for i, along in _slip(of, k)[0]:
            y = put(y, i, jnp.where(slides, -rubs * along, closed * entry(x, i)))
        return y

    return loop(of.contacts.number, one, y)


def _restrict_to_held(of: ListedImpulses, x: Array) -> Array:
    """x on the rows held, else zero: normal rows of closed contacts, tangential ones of those that stick."""
    y = fill_entries(blank(x.size, x.dtype), 0, 0, of.contacts.rows)

    def one(k: Array, y: Array) -> Array:
        row, normals, tangents = (
            entry(a, k) for a in (of.contacts.row, of.contacts.normals, of.contacts.tangents)
        )
        closed, slides = entry(of.closed, k) > 0, entry(of.sliding, k) > 0
        count = jnp.where(closed, normals + jnp.where(slides, 0, tangents), 0)
        return loop(count, lambda a, y: put(y, row + a, entry(x, row + a)), y)

    return loop(of.contacts.number, one, y)


def _exchangeable(of: ListedImpulses) -> Array:
    """1 for dependent contacts of the list among which forces may be exchanged, so that the motion changes."""
    m, width, dtype = of.contacts.rows, of.width, of.G.dtype
    counts, size, zero = choose_by_precision(dtype, *COUNTS), of.contacts.u.size, jnp.zeros((), dtype)
    new = lambda: blank(size, dtype)
    number = lambda i: i.astype(dtype)
    some = _restrict_to_held(of, loop(m, lambda i, x: put(x, i, 1 + 0.5 * jnp.cos(number(i) ** 2)), new()))
    applied = lambda x: _restrict_to_held(of, _apply_delassus(of, _apply_force_map(of, x)))
    # K in rows, column by column.
    K = blank(of.G.size, dtype)

    def column(j: Array, K: Array) -> Array:
        unit = put(fill_entries(new(), 0, 0, m), j, 1)
        of_unit = applied(_restrict_to_held(of, unit))
        return loop(m, lambda i, K: put(K, i * m + j, entry(of_unit, i)), K)

    K = loop(m, column, K)
    trace = loop(m, lambda i, x: x + entry(K, i * m + i), zero)
    mean = trace / of.all_rows
    pull = choose_by_precision(dtype, *PULL) * jnp.where(mean > 0, mean, 1)
    K = loop(m, lambda i, K: put(K, i * m + i, entry(K, i * m + i) + pull), K)
    whole = lambda value: fill_entries(blank(size, m.dtype), 0, value, m)
    pulled, b = LinearSystem(K, new(), m, whole(0), whole(m)).eliminate(), applied(some)

    def nearer(_: Array, p: Array) -> Array:
        off = applied(p)
        x = pulled.solve(loop(m, lambda i, x: put(x, i, entry(off, i) - entry(b, i)), new()))
        return loop(m, lambda i, p: put(p, i, entry(p, i) - entry(x, i)), p)

    p = loop(jnp.asarray(PASSES), nearer, fill_entries(new(), 0, 0, m))
    none = loop(m, lambda i, x: put(x, i, entry(some, i) - entry(p, i)), new())
    size_of, moved = _largest(none, m), _largest(_apply_delassus(of, _apply_force_map(of, none)), m)
    most = loop(m, lambda i, x: jnp.maximum(x, entry(of.G, i * width + i)), zero)
    moves = (size_of > counts) & (moved > counts * size_of * most)

    def flag(k: Array, flags: Array) -> Array:
        row, count = entry(of.contacts.row, k), entry(of.contacts.normals, k) + entry(of.contacts.tangents, k)
        share = loop(count, lambda a, x: x + jnp.abs(entry(none, row + a)), zero)
        return put(flags, k, moves & (share > counts * size_of))

    return loop(of.contacts.number, flag, blank(of.closed.size, dtype))


def ambiguous(of: ListedImpulses) -> Array:
    """1 for contacts of the list of which other impulses obey the laws as well, and would move the system otherwise."""
    dtype, contacts, width = of.G.dtype, of.contacts, of.width
    counts, fastest = choose_by_precision(dtype, *COUNTS), 1 + _largest(contacts.u, contacts.rows)

    def flag(k: Array, flags: Array) -> Array:
        row, (slip, square) = entry(contacts.row, k), _slip(of, k)
        touches = (entry(of.closed, k) == 0) | (entry(of.sliding, k) > 0)
        slides = touches & (square > still(dtype) ** 2) & (entry(contacts.normals, k) > 0)
        own = entry(of.G, row * width + row)
        coupling = [
            jnp.where(slides, entry(of.G, jnp.where(i < of.room.rows, i, row) * width + row), 0) * x
            for i, x in slip
        ]
        response = own - entry(contacts.friction, k) * sum(coupling, jnp.zeros((), dtype))
        leaving = (1 - entry(of.closed, k)) * entry(contacts.u, row)
        free = leaving - response * entry(contacts.p, row)  # how fast it would leave without its own impulse
        also_open = slides & of.may_stay(k) & (response < -counts * own) & (free > counts**2 * fastest)
        return put(flags, k, jnp.maximum(entry(flags, k), also_open.astype(dtype)))

    return loop(contacts.number, flag, _exchangeable(of))
