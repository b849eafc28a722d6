"""Contacts of shapes, many at once: those alike but for shapes, names and numbers are rows of one table.

A pile of 200 bodies has 20,000 pairs. What is made of them is made of columns, and never pair by pair.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._misc._modules import replace_unchecked
from .._misc._types import as_jax, is_traced, module_for
from ._contact_pairs import count_contacts
from ._contact_shapes import AbstractShape
from ._contacts import Contact
from ._vmap_by_structure import stack_trees

_COLUMNS = (
    "restitution",
    "friction",
    "second_friction",
    "torsion",
    "rolling",
    "stiffness",
    "damping",
    "direction",
)


class RowForm(NamedTuple):
    """How many tangential rows a contact has, how many of these of turning, and whether it has stiffness."""

    tangents: int
    turning: int
    soft: bool


@final
class ContactTable(eqx.Module):
    """Contacts that are alike but for shapes, names and numbers.

    - `stacked`: the numbers of all, stacked, in a contact without shapes.
    - `pairs`: of each the numbers of its shapes.
    - `names`: what each is called.
    - `places`: which of all contacts of a mechanism each is.
    """

    stacked: Contact
    pairs: tuple[tuple[int, int], ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    places: tuple[int, ...] = eqx.field(static=True)

    @property
    def form(self) -> RowForm:
        """The form of the rows."""
        slip = self.stacked.form
        return RowForm(slip.tangents, slip.turning, self.stacked.stiffness is not None)

    def counts(self, shapes: Sequence[AbstractShape]) -> np.ndarray:
        """How many places each contact has, of shapes by number."""
        kinds = {(type(x), x.dimension): x for x in shapes}
        number = {kind: i for i, kind in enumerate(kinds)}
        which = np.array([number[type(x), x.dimension] for x in shapes])[np.array(self.pairs)]
        several, each = np.unique(which @ [len(kinds), 1], return_inverse=True)
        of, count = list(kinds.values()), len(kinds)
        return np.array([count_contacts(of[k // count], of[k % count]) for k in several])[each]

    def contacts(self, shapes: Sequence[AbstractShape]) -> list[Contact]:
        """Each by itself, of shapes by number."""
        columns = {name: _rows_of(x) for name in _COLUMNS if (x := getattr(self.stacked, name)) is not None}
        return [
            replace_unchecked(
                self.stacked,
                shapes=(shapes[a], shapes[b]),
                name=self.names[i],
                **{name: column[i] for name, column in columns.items()},
            )
            for i, (a, b) in enumerate(self.pairs)
        ]


def _rows_of(x: Array) -> list[Array]:
    """The rows of an array; those that are equal once, where values are known."""
    if is_traced(x):
        return list(x)
    known = dict[bytes, Array]()
    rows = np.asarray(x)
    keys = [row.tobytes() for row in rows]
    return [
        known[key] if key in known else known.setdefault(key, as_jax(row))
        for key, row in zip(keys, rows, strict=True)
    ]


def _stack(column: Sequence[Any]) -> Array | None:
    first = column[0]
    if first is None:
        return None
    xp = module_for(*{id(x): x for x in column}.values())
    if all(x is first for x in column):
        return as_jax(xp.broadcast_to(xp.asarray(first)[None], (len(column), *first.shape)))
    return as_jax(xp.stack(column))


def tabulate(contacts: Sequence[Any]) -> tuple[tuple[AbstractShape, ...], tuple[ContactTable, ...]]:
    """The shapes of contacts, each once, and tables of those of shapes; others are left out."""
    numbers, shapes, groups = dict[int, int](), list[AbstractShape](), dict[Any, list[int]]()

    def number_of(x: AbstractShape) -> int:
        if id(x) not in numbers:
            numbers[id(x)] = len(shapes)
            shapes.append(x)
        return numbers[id(x)]

    pairs = dict[int, tuple[int, int]]()
    for place, x in enumerate(contacts):
        if isinstance(x, Contact):
            a, b = x.shapes
            pairs[place] = number_of(a), number_of(b)
            groups.setdefault((x.form, x.impact, x.stiffness is None), []).append(place)
    tables = []
    for places in groups.values():
        own = [contacts[place] for place in places]
        columns = {name: _stack([getattr(x, name) for x in own]) for name in _COLUMNS}
        stacked = replace_unchecked(own[0], shapes=(), name="", **columns)
        names = tuple(x.name for x in own)
        tables.append(ContactTable(stacked, tuple(pairs[place] for place in places), names, tuple(places)))
    return tuple(shapes), tuple(tables)


class TabulatedContacts(NamedTuple):
    """The contacts of one form, in the order of a mechanism.

    - `shapes`: of all contacts.
    - `tables`: with these.
    """

    shapes: Sequence[AbstractShape]
    tables: Sequence[ContactTable]

    @property
    def _order(self) -> np.ndarray:
        """Where each stands, table after table."""
        return np.argsort(np.concatenate([x.places for x in self.tables]))

    def each(self, of: Callable[[ContactTable], Sequence[Any]]) -> list[Any]:
        """What a function says of each contact of a table, in order."""
        every = [y for x in self.tables for y in of(x)]
        return [every[i] for i in self._order]

    def counts(self) -> np.ndarray:
        """How many places each has."""
        return np.concatenate([x.counts(self.shapes) for x in self.tables])[self._order]

    def firsts(self) -> list[np.ndarray]:
        """By table, of each the number of its first place among those of all."""
        order, counts = self._order, self.counts()
        first = np.empty(order.size, int)
        first[order] = np.cumsum([0, *counts])[:-1]
        return np.split(first, np.cumsum([len(x.places) for x in self.tables])[:-1])

    def row_names(self) -> tuple[str, ...]:
        """What reports call the places."""
        names = zip(self.each(lambda x: x.names), self.counts(), strict=True)
        return tuple(
            x for name, n in names for x in ([name] if n == 1 else [f"{name}[{i}]" for i in range(n)])
        )

    def column(self, what: str) -> Array:
        """Numbers of each place, by NumPy where values are known."""
        columns = [getattr(x.stacked, what) for x in self.tables]
        xp, which = module_for(*columns), np.repeat(self._order, self.counts())
        return as_jax(xp.concatenate([xp.asarray(x) for x in columns])[which])


class PairsOfShapes(NamedTuple):
    """Contacts of one kind.

    - `contact`: the numbers of all, stacked, without shapes.
    - `shapes`, `pairs`: all shapes, and of each contact the numbers of its two.
    - `names`, `bodies`: of bodies, and of each contact the places of its two among these.
    - `numbers`, `counts`: of each contact the number of its first place, and how many it has.
    """

    contact: Contact
    shapes: Sequence[AbstractShape]
    pairs: Sequence[tuple[int, int]]
    names: tuple[str, ...]
    bodies: tuple[tuple[int, int], ...]
    numbers: np.ndarray
    counts: np.ndarray


def take_rows(tree: Any, which: np.ndarray) -> Any:
    """A pytree with some rows of each array, by NumPy where values are known."""
    take = lambda x: as_jax(module_for(x).asarray(x)[which]) if eqx.is_array(x) else x
    return jax.tree.map(take, tree)


def stack_alike(shapes: Sequence[AbstractShape]) -> Any:
    """Shapes that are alike as one, their arrays stacked; many of them may be the same."""
    each = {id(x): x for x in shapes}
    number = {key: i for i, key in enumerate(each)}
    return take_rows(stack_trees([*each.values()]), np.array([number[id(x)] for x in shapes]))
