"""A contact problem whose Delassus operator is known, solved over a list of its contacts; what `solution` takes.

A contact without friction has no tangential rows in the list.
"""

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler._structured._scalarize import scalarize
from .._formula._contact_list import Room, blank, empty_list, entry, loop, put, solve_delassus
from .._formula._contact_newton import ContactSolution, Layout, rows_in


def solve_by_list(layout: Layout, tolerance: float, given: Array, guess: Array) -> ContactSolution:
    """The solution of a problem, as one program of scalars."""
    return ContactSolution(*_program(layout, tolerance)(given, guess))


@functools.cache
def _program(layout: Layout, tolerance: float):
    return scalarize(functools.partial(_solve_over_list, layout, tolerance))


def _solve_over_list(layout: Layout, tolerance: float, given: Array, guess: Array) -> tuple[Array, ...]:
    n, m, dtype = len(layout), rows_in(layout), given.dtype
    room = Room(n, m, max(tangents for _, tangents in layout), 0)
    sizes = [int(normal) + tangents for normal, tangents in layout]
    tables = np.cumsum([0, *sizes])[:-1], [int(normal) for normal, _ in layout], [t for _, t in layout]
    starts, normals, tangents = (jnp.asarray(np.array(x)) for x in tables)
    u, mu, c = (lambda i, first=first: entry(given, first + i) for first in (m * m, m * m + m, m * m + m + n))

    def add(k: Array, so_far: tuple) -> tuple:
        contacts, places = so_far
        row, count = contacts.rows, jnp.where((mu(k) > 0) | (c(k) > 0), entry(tangents, k), 0)
        count = count + entry(normals, k)
        first = entry(starts, k)

        def own(a: Array, x: tuple) -> tuple:
            return (
                put(x[0], row + a, u(first + a)),
                put(x[1], row + a, entry(guess, first + a)),
                put(x[2], row + a, first + a),
            )

        of_u, of_p, places = loop(count, own, (contacts.u, contacts.p, places))
        contacts = contacts._replace(
            contact=put(contacts.contact, k, k),
            row=put(contacts.row, k, row),
            normals=put(contacts.normals, k, entry(normals, k)),
            tangents=put(contacts.tangents, k, count - entry(normals, k)),
            friction=put(contacts.friction, k, mu(k)),
            limit=put(contacts.limit, k, c(k)),
            u=of_u,
            p=of_p,
            number=k + 1,
            rows=row + count,
        )
        return contacts, places

    contacts, places = loop(n, add, (empty_list(room, dtype), blank(room.stride, starts.dtype)))
    rows, width = contacts.rows, contacts.rows + 1

    def of_row(i: Array, G: Array) -> Array:
        first = entry(places, i) * m
        return loop(rows, lambda j, G: put(G, i * width + j, entry(given, first + entry(places, j))), G)

    G = loop(rows, of_row, blank(room.stride**2, dtype))
    found = solve_delassus(contacts, room, G, width, tolerance)
    copy = lambda i, p: put(p, entry(places, i), entry(found.p, i))
    p = loop(rows, copy, jnp.zeros(m, dtype))
    modes = (loop(n, lambda k, y, x=x: put(y, k, entry(x, k)), jnp.zeros(n, dtype)) for x in found[2:4])
    return p, found.residual, found.steps, *modes
