"""What impulses of a list of contacts do: the velocities they change, the Delassus operator G, and islands of contacts.

Contacts are coupled where they have a block of velocities in common. An island is taken in the order in which its
contacts are met from one to those coupled with it, of these the ones first that are coupled with few; from the one that
is met last if this is done from any; and backwards (Cuthill and McKee 1969, reversed). So contacts far apart there are
not coupled: of each row of G there is one range of columns that may not be zero. Beyond it rows are zero after an
elimination too, of which fewer reach far back than in the order forwards.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .._misc._blank import blank
from .._misc._derivatives import freeze
from ._contact_list import (
    ContactList,
    Inertia,
    Room,
    SparseRows,
    add_scaled,
    copy_entries,
    empty_list,
    entry,
    fill_entries,
    loop,
    put,
)


class Support(NamedTuple):
    """Which velocities the impulses of each contact change: blocks of them."""

    inertia: Inertia  # which has the blocks
    most: int  # how many blocks a contact may have
    # `blocks`, `counts`: those of each contact; of contact k they begin at k times the most.
    blocks: Array
    counts: Array

    def over_all(self, number: Array, body: Callable[[Array, Array, Any], Any], state: Any) -> Any:
        """The state after `body(k, place, state)` for each place of contact k, of the first ones."""
        of_contact = lambda k, x: self.over_places(k, functools.partial(body, k), x)
        return loop(number, of_contact, state)

    def over_places(self, k: Array, body: Callable[[Array, Any], Any], state: Any) -> Any:
        """The state after `body(place, state)` for the place of each block of contact k."""
        return loop(entry(self.counts, k), lambda s, state: body(k * self.most + s, state), state)

    def over_blocks(self, k: Array, body: Callable[[Array, Any], Any], state: Any) -> Any:
        """The state after `body(block, state)` for each block of contact k."""
        return self.over_places(k, lambda place, state: body(entry(self.blocks, place), state), state)

    def over_velocities(self, k: Array, body: Callable[[Array, Any], Any], state: Any) -> Any:
        """The state after `body(velocity, state)` for each velocity of these blocks."""
        return self.over_blocks(k, lambda block, x: self.inertia.over_block(block, body, x), state)


def _find_support(contacts: ContactList, inertia: Inertia, room: Room) -> Support:
    """The blocks of velocities that move each contact."""
    J, whole, most = contacts.J, contacts.row.dtype, min(len(inertia.velocities), room.columns)

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


class _Chains(NamedTuple):
    """The contacts of each block, the last one first."""

    support: Support  # blocks of contacts
    # `last`: of each block one more than the place of its last contact among the blocks of all; zero without
    # any.
    last: Array
    former: Array  # of each of these places one more than that of the contact before, in the same block
    # `owner`, `oldest`: the contact that has the place, and the first one of its block.
    owner: Array
    oldest: Array

    def follow(self, link: Array, body: Callable[[Array, Any], Any], state: Any) -> Any:
        """The state after `body(k, state)` for each contact k from a link on: one more than its place."""

        def one(so_far: tuple[Array, Any]) -> tuple[Array, Any]:
            place = so_far[0] - 1
            return entry(self.former, place), body(entry(self.owner, place), so_far[1])

        return lax.while_loop(lambda x: x[0] > 0, one, (link, state))[1]

    def forget(self, number: Array) -> Array:
        """What `last` was before the first contacts were chained."""
        clear = lambda _, place, last: put(last, entry(self.support.blocks, place), 0)
        return self.support.over_all(number, clear, self.last)


def _chain(support: Support, number: Array, last: Array) -> _Chains:
    """The chains of the first contacts; none of their blocks has a last one yet."""
    new = lambda: blank(support.blocks.size, support.blocks.dtype)

    def link(k: Array, place: Array, so_far: tuple[Array, ...]) -> tuple[Array, ...]:
        last, former, owner, oldest = so_far
        block = entry(support.blocks, place)
        before = entry(last, block)
        first = jnp.where(before > 0, entry(oldest, jnp.maximum(before - 1, 0)), k)
        return (
            put(last, block, place + 1),
            put(former, place, before),
            put(owner, place, k),
            put(oldest, place, first),
        )

    return _Chains(support, *support.over_all(number, link, (last, new(), new(), new())))


class Islands(NamedTuple):
    """Contacts of a list by islands: those of different ones have no block of velocities in common, and none of both has
    one with a third. So they are solved apart."""

    number: Array  # how many islands there are
    order: Array  # the contacts, island after island, each before one that it is coupled with
    begin: Array  # where those of each begin, and the last ones end

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


class _Visit(NamedTuple):
    """Contacts in the order in which they are met, of which those of one island follow each other."""

    number: Array  # how many islands were met
    order: Array
    begin: Array  # where islands begin
    # `met`, `looked`: how many contacts were met, and were looked at for those coupled with them.
    met: Array
    looked: Array
    first: Array  # where those begin that are coupled with the one looked at
    known: Array  # 1 for those met
    last: Array  # the last ones of blocks, zero once all of a block were met


def find_islands(contacts: ContactList, room: Room, inertia: Inertia) -> Islands:
    """The islands of a list, in the order of their first contacts."""
    n, whole, most = contacts.number, contacts.row.dtype, contacts.row.size
    blocks, none, new = len(inertia.velocities), jnp.zeros((), whole), lambda: blank(most + 1, whole)
    zeros = lambda: fill_entries(blank(blocks, whole), 0, 0, blocks)
    support = _find_support(contacts, inertia, room)
    chains = _chain(support, n, zeros())
    count = lambda _, place, x: put(
        x, entry(support.blocks, place), entry(x, entry(support.blocks, place)) + 1
    )
    sizes = support.over_all(n, count, zeros())
    coupled = lambda k: support.over_blocks(k, lambda block, x: x + entry(sizes, block), none)
    degrees = loop(n, lambda k, x: put(x, k, coupled(k)), new())

    def meet(k: Array, x: _Visit) -> _Visit:
        """Before those of the same contact that are coupled with more."""
        is_new, own = 1 - entry(x.known, k), entry(degrees, k)

        def insert(_: Array, order: Array) -> Array:
            before = lambda at, order: entry(order, jnp.maximum(at - 1, 0))
            has_more = lambda c: (c[0] > x.first) & (entry(degrees, before(*c)) > own)
            at, order = lax.while_loop(
                has_more, lambda c: (c[0] - 1, put(c[1], c[0], before(*c))), (x.met, order)
            )
            return put(order, at, k)

        order = loop(is_new, insert, x.order)
        return x._replace(order=order, met=x.met + is_new, known=put(x.known, k, jnp.ones((), whole)))

    def look(x: _Visit) -> _Visit:
        """Meets the contacts coupled with the next one."""

        def of_block(block: Array, x: _Visit) -> _Visit:
            link = entry(x.last, block)
            return chains.follow(link, meet, x._replace(last=put(x.last, block, 0)))

        k = entry(x.order, x.looked)
        return support.over_blocks(k, of_block, x._replace(looked=x.looked + 1, first=x.met))

    def visit(_: Array, found: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        """The contacts from the last one of an order on."""

        def seek(i: Array, x: _Visit) -> _Visit:
            k = entry(found[1], n - 1 - i)
            begin, is_new = put(x.begin, x.number, x.met), 1 - entry(x.known, k)
            x = meet(k, x._replace(begin=begin, number=x.number + is_new, first=x.met))
            return lax.while_loop(lambda x: x.looked < x.met, look, x)

        order, known = copy_entries(new(), found[1], n), fill_entries(new(), 0, 0, n)
        return loop(n, seek, _Visit(none, order, new(), none, none, none, known, chains.last))[:3]

    backwards = lambda x, count, value: loop(
        count, lambda i, y: put(y, i, value(entry(x, count - 1 - i))), new()
    )
    start = none, loop(n, lambda i, x: put(x, i, n - 1 - i), new()), new()
    number, order, begin = loop(2, visit, start)
    begin = backwards(put(begin, number, n), number + 1, lambda at: n - at)
    return Islands(number, backwards(order, n, lambda k: k), begin)


class DelassusRows(NamedTuple):
    """R = J W in rows of velocities, where a contact changes these, and the symmetric G = R J^T."""

    R: Array  # row after row
    G: Array  # in rows of `width`, where they may not be zero: from `begin` to `end` of each row
    width: Array
    begin: Array
    end: Array
    rows: Array  # how many there are
    support: Support  # which velocities contacts change

    def apply(self, y: Array, p: Array, factor: Array | float = 1.0) -> Array:
        """y + factor G p."""

        def of_row(j: Array, y: Array) -> Array:
            first, x = entry(self.begin, j), factor * entry(p, j)
            return add_scaled(y, first, x, self.G, j * self.width + first, entry(self.end, j) - first)

        return loop(self.rows, of_row, y)

    def add_response(self, k: Array, i: Array, factor: Array, x: Array, *, held: bool = False) -> Array:
        """Velocities x with what an impulse on row i of contact k changes them by; how much that is, is held or not."""
        own, hold = i * x.size, freeze if held else lambda y: y
        add = lambda j, x: put(x, j, entry(x, j) + factor * hold(entry(self.R, own + j)))
        return self.support.over_velocities(k, add, x)


class KnownDelassus(NamedTuple):
    """G as it is given, whole: between forces and accelerations it is not symmetric where contacts slide."""

    G: Array  # in rows of `width`
    width: Array
    # `begin`, `end`: of each row, the first and the last of all.
    begin: Array
    end: Array
    rows: Array  # how many there are

    def apply(self, y: Array, p: Array, factor: Array | float = 1.0) -> Array:
        """y + factor G p."""

        def of_row(i: Array, y: Array) -> Array:
            add = lambda j, x: x + factor * entry(p, j) * entry(self.G, i * self.width + j)
            return put(y, i, loop(self.rows, add, entry(y, i)))

        return loop(self.rows, of_row, y)


class Workspace(NamedTuple):
    """What `delassus` works in and leaves as it was: velocities that no contact of a list has take no time."""

    zeros: Array  # zero for each velocity
    last: Array  # zero for each block of velocities


def empty_workspace(room: Room, inertia: Inertia, dtype: jnp.dtype) -> Workspace:
    """A workspace."""
    v, blocks, whole = room.velocities, len(inertia.velocities), jnp.asarray(0).dtype
    return Workspace(fill_entries(blank(v, dtype), 0, 0, v), fill_entries(blank(blocks, whole), 0, 0, blocks))


def _ranges(contacts: ContactList, chains: _Chains, room: Room) -> tuple[Array, Array]:
    """Of each row the columns that are not zero, also once rows before it are eliminated."""
    n, whole = contacts.number, contacts.row.dtype
    row_of = lambda k: jnp.where(k < n, entry(contacts.row, jnp.minimum(k, n - 1)), contacts.rows)

    def of_contact(k: Array, so_far: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        begins, ends, last = so_far

        def of_place(place: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
            first, last = so_far
            newest = entry(chains.last, entry(chains.support.blocks, place)) - 1
            oldest = jnp.minimum(first, entry(chains.oldest, place))
            return oldest, jnp.maximum(last, entry(chains.owner, newest))

        first, last = chains.support.over_places(k, of_place, (k, jnp.maximum(last, k)))
        begin, end = row_of(first), row_of(last + 1)
        row, size = entry(contacts.row, k), entry(contacts.normals, k) + entry(contacts.tangents, k)
        set_rows = lambda a, x: (put(x[0], row + a, begin), put(x[1], row + a, end))
        return *loop(size, set_rows, (begins, ends)), last

    new = lambda: blank(room.stride, whole)
    return loop(n, of_contact, (new(), new(), jnp.zeros((), whole)))[:2]


def delassus(
    contacts: ContactList, room: Room, inertia: Inertia, space: Workspace
) -> tuple[DelassusRows, Workspace]:
    """R and G of the rows of a list."""
    n, m, v, stride = contacts.number, contacts.rows, room.velocities, room.stride
    dtype, whole, width = contacts.u.dtype, contacts.row.dtype, m + 1
    support = _find_support(contacts, inertia, room)
    chains = _chain(support, n, space.last)
    begin, end = _ranges(contacts, chains, room)
    clear = lambda i, G: fill_entries(G, i * width + entry(begin, i), 0, entry(end, i) - entry(begin, i))
    G = loop(m, clear, blank(stride * stride, dtype))

    def find_coupled(k: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        """The contacts up to k that have a block of it, and how many these are; and for which k each was found last."""

        def add(other: Array, so_far: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            coupled, count, seen = so_far
            is_new = (entry(seen, other) <= k).astype(whole)
            return put(coupled, count, other), count + is_new, put(seen, other, k + 1)

        coupled, seen = so_far
        of_place = lambda place, so_far: chains.follow(place + 1, add, so_far)
        return support.over_places(k, of_place, (coupled, jnp.zeros((), whole), seen))

    def of_pair(other: Array, i: Array, x: Array, G: Array) -> Array:
        """G with products of the rows of a contact and W times row i."""
        first, size = (
            entry(contacts.row, other),
            entry(contacts.normals, other) + entry(contacts.tangents, other),
        )

        def of_entry(a: Array, G: Array) -> Array:
            j = first + a
            value = contacts.J.multiply(other, j, x, jnp.zeros((), dtype))
            return put(put(G, i * width + j, value), j * width + i, value)

        return loop(size, of_entry, G)

    def of_contact(k: Array, so_far: tuple) -> tuple:
        R, G, zeros, *coupled = so_far
        coupled, count, seen = find_coupled(k, tuple(coupled))
        row, size = entry(contacts.row, k), entry(contacts.normals, k) + entry(contacts.tangents, k)

        def of_row(a: Array, so_far: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            """By a vector that is zero before and after."""
            (R, G, x), i = so_far, row + a
            x = contacts.J.add_row(k, i, jnp.ones((), dtype), x)
            R = inertia.respond(x, R, i * v, functools.partial(support.over_blocks, k))
            x = support.over_velocities(k, lambda j, x: put(x, j, entry(R, i * v + j)), x)
            G = loop(count, lambda b, G: of_pair(entry(coupled, b), i, x, G), G)
            return R, G, support.over_velocities(k, lambda j, x: put(x, j, 0), x)

        return *loop(size, of_row, (R, G, zeros)), coupled, seen

    seen = fill_entries(blank(contacts.row.size, whole), 0, 0, n)
    start = blank(stride * v, dtype), G, space.zeros, blank(contacts.row.size, whole), seen
    R, G, zeros, *_ = loop(n, of_contact, start)
    of = DelassusRows(R, without_rest(G, room, m), width, begin, end, m, support)
    return of, Workspace(zeros, chains.forget(n))


def without_rest(G: Array, room: Room, m: Array) -> Array:
    """G with zeros where rows are read that are not there."""
    return fill_entries(G, room.rows * (m + 1), 0, m)
