"""Contacts in memory: loops over arrays, and lists of contacts with as many rows as are active when a program runs.

Loops run over the list, so the size of the code depends neither on how many contacts there are nor on how many are
active.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .._misc._blank import blank

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


# --- Lists of contacts


class Inertia(NamedTuple):
    """The inverse inertia W that contacts feel: blocks, of velocities that only contacts join to others."""

    velocities: tuple[tuple[int, ...], ...]  # those of each block
    # `respond`: R with W x from a place on, of x (n,) that is zero but in some blocks, at least there, from
    # x, R, the place, and what loops over the numbers of these blocks.
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
    """Rows of contacts by the velocities that move each."""

    # `count`, `columns`: how many these are, and which; those of contact k begin at k times the room for
    # them. One may be there twice.
    count: Array
    columns: Array
    values: Array  # of each row by these; row i begins at i times the room for them
    room: int = eqx.field(static=True)  # for the velocities of a contact

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
    """Active contacts, one after the other, each with its rows: the normal one, if any, then tangential ones."""

    contact: Array  # which of all contacts each is
    row: Array  # its first row
    # `normals`, `tangents`: how many normal and tangential rows it has.
    normals: Array
    tangents: Array
    # `friction`, `limit`: Coulomb's mu, and what friction resists without being pressed.
    friction: Array
    limit: Array
    J: "SparseRows"  # rows
    u: Array  # of each row u'
    p: Array  # of each row a guess of the impulse
    # `number`, `rows`: how many contacts and rows there are.
    number: Array
    rows: Array

    def over_rows(self, body: Callable[[Array, Array, Any], Any], state: Any) -> Any:
        """The state after `body(k, i, state)` for row i of contact k, each."""

        def of_contact(k: Array, state: Any) -> Any:
            first, count = entry(self.row, k), entry(self.normals, k) + entry(self.tangents, k)
            return loop(count, lambda a, state: body(k, first + a, state), state)

        return loop(self.number, of_contact, state)


class Room(NamedTuple):
    """How large a list may become."""

    # `contacts`, `rows`: of contacts and of rows; one place more is kept for rows that a contact does not
    # have.
    contacts: int
    rows: int
    tangents: int  # the most tangential rows of a contact
    velocities: int  # of the system
    columns: int  # the most velocities that move a contact

    @property
    def stride(self) -> int:
        """Rows with the one more."""
        return self.rows + 1


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
