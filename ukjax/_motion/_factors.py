"""Factors X = L D L^T of symmetric matrices of expressions, in an order of low fill-in."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from .._compiler._scalars import (
    Entries,
    Expression,
    Vector,
    as_vector,
    dot,
    entries,
    freeze,
    is_zero,
    times,
    total,
)
from .._compiler._scalars import product as product_of
from .._compiler._structured._nodes import Node, is_number
from .._system._system import TreeInertia


class Factors(NamedTuple):
    """X = L D L^T in the given order of rows: `lower[i]` the entries of L in row i left of the diagonal,
    by column; `inverse[i]` is 1 / D_i, or zero for a row left out."""

    order: list[int]
    lower: list[Entries]
    inverse: Vector

    def forward(self, x: Vector) -> Vector:
        """L^-1 x, in the order of the factors."""
        out = list[Expression]()
        for i, row in zip(self.order, self.lower, strict=True):
            out.append(_less(x[i], [entry * out[c] for c, entry in row.items()]))
        return as_vector(out)

    def backward(self, y: Vector) -> Vector:
        """L^-T y, of y in the order of the factors, in the original order."""
        out = list(y)
        for row in reversed(range(len(out))):
            for column, entry in self.lower[row].items():
                out[column] = out[column] - entry * out[row]
        unordered = np.full(len(out), 0.0, object)
        unordered[self.order] = as_vector(out)
        return unordered

    def frozen(self) -> "Factors":
        """The same factors, constant to a differentiation."""
        return self.with_values(freeze(self.values()))

    def values(self, like: "Factors | None" = None) -> Vector:
        """All entries that are not structurally zero, here or in others of the same order."""
        rows = zip(self.lower, (like or self).lower, strict=True)
        lower = [own.get(c, 0.0) for own, row in rows for c in row]
        return as_vector([*lower, *self.inverse])

    def with_values(self, values: Iterable[Expression]) -> "Factors":
        """Factors of the same structure, of other values."""
        left = iter(values)
        return Factors(self.order, [{c: next(left) for c in row} for row in self.lower], as_vector(left))


def _low_fill(neighbours: list[set[int]]) -> list[int]:
    """An elimination order by least degree, then by how many wait for each other, given who meets whom."""
    neighbours = [set(x) - {i} for i, x in enumerate(neighbours)]
    left, order, waits = set(range(len(neighbours))), [], [0] * len(neighbours)
    while left:
        i = min(left, key=lambda i: (len(neighbours[i]), waits[i], i))
        left.remove(i)
        order.append(i)
        for j in neighbours[i]:
            waits[j] = max(waits[j], waits[i] + 1)
            neighbours[j] |= neighbours[i] - {j}
            neighbours[j].discard(i)
    return order


def order_of(X: np.ndarray) -> list[int]:
    """An order of low fill-in for the factors of a symmetric matrix."""
    k = X.shape[0]
    return _low_fill([{j for j in range(k) if not is_zero(X[max(i, j), min(i, j)])} for i in range(k)])


def _less(x: Expression, terms: Sequence[Expression]) -> Expression:
    """x less the sum of terms, the last of which is known last."""
    return x - total(terms[:-1]) - terms[-1] if terms else x


Rule = Callable[..., tuple[Expression, ...]]
"""Of a pivot, of the diagonal entry of its row, of what tells how large a pivot rounding may be (L_ij^2 times the
diagonal entry of row j over its pivot, summed), and of what else is given of the row: 1 / D_i, or zero for a row that is
left out; and what else is wanted of the row."""


def factor(
    X: np.ndarray, rule: Rule, order: list[int] | None = None, *given: Vector
) -> tuple[Factors, list[tuple[Expression, ...]]]:
    """The factors of a symmetric matrix of expressions, of which only one triangle is read, and what the rule tells else
    of each row, in the order of the factors."""
    order = order_of(X) if order is None else order
    n = range(len(order))
    X = np.array([[X[max(order[i], order[j]), min(order[i], order[j])] for j in n] for i in n], object)
    filled = _fill_in(X)
    below, known = np.sum(filled, 0), all(map(is_number, X.flat))
    written_out = known or np.sum(below * (below + 1)) <= 2 * WRITTEN_OUT
    lower, told = (_eliminate if written_out else _eliminate_by_loops)(
        X, filled, rule, [as_vector(x[i] for i in order) for x in given]
    )
    return Factors(order, lower, as_vector(inverse for inverse, *_ in told)), [x[1:] for x in told]


WRITTEN_OUT = 2_000
"""Products of an elimination up to which each is an operation of its own; more are those of a loop."""


def _fill_in(X: np.ndarray) -> np.ndarray:
    """Which entries of L, below its diagonal, are not structurally zero."""
    filled = np.tril(~np.vectorize(is_zero, otypes=[bool])(X), -1) if len(X) else np.zeros((0, 0), bool)
    for c, column in enumerate(filled.T):
        filled[c + 1 :, c + 1 :] |= np.tril(np.outer(column[c + 1 :], column[c + 1 :]), -1)
    return filled


def _eliminate(
    X: np.ndarray, filled: np.ndarray, rule: Rule, given: Sequence[Vector]
) -> tuple[list[Entries], list[tuple[Expression, ...]]]:
    """L by rows, and what the rule tells of each row."""
    lower: list[Entries] = [{} for _ in X]
    scaled: list[Entries] = [{} for _ in X]  # L D
    told = list[tuple[Expression, ...]]()
    for i, places in enumerate(map(np.flatnonzero, filled)):
        for j in map(int, places):
            both = sorted(scaled[i].keys() & lower[j].keys())
            entry = _less(X[i, j], [scaled[i][c] * lower[j][c] for c in both])
            if not is_zero(entry):
                scaled[i][j] = entry
                lower[i][j] = entry * told[j][0]
        taken = {c: x * lower[i][c] for c, x in scaled[i].items()}
        carried = functools.partial(
            lambda taken: total(x * (X[c, c] * told[c][0]) for c, x in taken.items()), taken
        )
        told.append(rule(_less(X[i, i], list(taken.values())), X[i, i], carried, *(x[i] for x in given)))
    return lower, told


def _eliminate_by_loops(
    X: np.ndarray, filled: np.ndarray, rule: Rule, given: Sequence[Vector]
) -> tuple[list[Entries], list[tuple[Expression, ...]]]:
    """As `_eliminate`, in memory: by columns, each of which changes those after it in the rows where it is not zero.

    So a row that is left out costs next to nothing, and rows of which few can be independent cost little.
    """
    k = len(X)
    b = next(x for x in X.flat if x.__class__ is Node).region.build
    t = b.real
    diagonal, *rest = (b.pack(list(x), t) for x in (np.diag(X), *given))
    count = len(rule(1.0, 1.0, lambda: 0.0, *[1.0] * len(rest)))  # of what it tells

    def column(c: Expression, A: Node, carried: Node, *told: Node) -> list[Expression]:
        size = b.load(diagonal, c)
        taken = b.load(carried, c)
        values = rule(b.load(A, c * (k + 1)), size, lambda: taken, *(b.load(x, c) for x in rest))
        inverse = values[0]

        def row(i: Expression, A: Node, carried: Node) -> list[Expression]:
            i = i + c + 1
            x = b.load(A, i * k + c)
            entry = x * inverse
            # L^T stands above the diagonal, so that the innermost loop goes along rows.
            A = b.store(b.store(A, i * k + c, entry), c * k + i, entry)
            carried = b.store(carried, i, b.load(carried, i) + x * entry * (size * inverse))
            less = lambda j, A: [
                b.store(A, i * k + c + 1 + j, b.load(A, i * k + c + 1 + j) - x * b.load(A, c * k + c + 1 + j))
            ]
            count = b.select(b.compare("ne", entry, 0.0, t), i - c, 0, "int64")
            return [b.count_up(count, [A], [(t, k * k)], less)[0], carried]

        A, carried = b.count_up(k - 1 - c, [A, carried], [(t, k * k), (t, k)], row)
        return [A, carried, *(b.store(x, c, y) for x, y in zip(told, values, strict=True))]

    arrays = b.pack(list(X.flat), t), *(b.fill(0.0, k, t) for _ in range(1 + count))
    A, _, *told = b.count_up(k, arrays, [(t, x.size) for x in arrays], column)
    lower = [{int(j): b.load(A, i * k + int(j)) for j in np.flatnonzero(row)} for i, row in enumerate(filled)]
    return lower, [tuple(b.load(x, i) for x in told) for i in range(k)]


def solve_by_factors(factors: Factors, x: Vector) -> Vector:
    """X^-1 x, but for rows left out."""
    return factors.backward(factors.inverse * factors.forward(x))


# --- The mass matrix of a kinematic tree as expressions: products with it and factors of it in proportion to its size
#
# From the leaves to the ground, with I the inertia of all that hangs on velocity k if what lies behind it gives way
# (its articulated inertia) and s its axis,
#
# U = I s,    D = s.U + a,    I' = I - U U^T / D,
#
# with the armature a, where I', in axes of the velocity before and about its point, adds to the inertia there
# (Featherstone 2008, section 7.3). That is an elimination: M = L D L^T in that order, and L, though full, takes a vector
# from link to link by g = U / D alone.


class Link(NamedTuple):
    """One velocity: its place, that before it (-1 for the ground), its axis (6,), the arm to its point (3,), and its axes
    in those of the velocity before (3, 3); None where they are the same."""

    place: int
    parent: int
    axis: Vector
    arm: Vector
    turn: np.ndarray | None


def _links(M: TreeInertia) -> list[Link]:
    """From the leaves to the ground."""
    turns = {} if M.turns is None else {k: np.asarray(x) for k, x in enumerate(M.turns) if not _is_unit(x)}
    axes, arms = np.asarray(M.axes), np.asarray(M.arms)
    return [Link(k, M.parents[k], axes[k], arms[k], turns.get(k)) for k in reversed(M.outwards())]


def _is_unit(turn: np.ndarray) -> bool:
    return all(is_number(x) and x == (i == j) for (i, j), x in np.ndenumerate(turn))


def _cross(x: Vector, y: Vector) -> Vector:
    return as_vector(x[i] * y[j] - x[j] * y[i] for i, j in ((1, 2), (2, 0), (0, 1)))


def _shift_twist(link: Link, twist: Vector) -> Vector:
    """A twist in axes and about the point of the velocity before, in those of the link."""
    turned, moved = twist[:3], twist[3:] + _cross(twist[:3], link.arm)
    if link.turn is not None:
        turned, moved = times(link.turn.T, turned), times(link.turn.T, moved)
    return np.concatenate([turned, moved])


def _shift_wrench(link: Link, wrench: Vector) -> Vector:
    """A wrench in axes and about the point of the link, in those of the velocity before."""
    torque, force = wrench[:3], wrench[3:]
    if link.turn is not None:
        torque, force = times(link.turn, torque), times(link.turn, force)
    return np.concatenate([torque + _cross(link.arm, force), force])


def _turn_tensor(R: np.ndarray, X: np.ndarray, symmetric: bool) -> np.ndarray:
    """R X R^T."""
    half, found = product_of(R, X), np.empty((3, 3), object)
    for a, b in np.ndindex(3, 3):
        found[a, b] = found[b, a] if symmetric and b < a else dot(half[a], R[b])
    return found


def _turn_inertia(R: np.ndarray, given: np.ndarray) -> np.ndarray:
    """An inertia [J, H; H^T, m] in axes that the columns of R give in others, in those."""
    found = np.empty((6, 6), object)
    found[:3, :3] = _turn_tensor(R, given[:3, :3], symmetric=True)
    found[3:, 3:] = _turn_tensor(R, given[3:, 3:], symmetric=True)
    found[:3, 3:] = _turn_tensor(R, given[:3, 3:], symmetric=False)
    found[3:, :3] = found[:3, 3:].T
    return found


def _shift_inertia(link: Link, given: np.ndarray) -> np.ndarray:
    """An inertia [J, H; H^T, m] in axes and about the point of the link, in those of the velocity before."""
    arm = link.arm
    if link.turn is not None:
        given = _turn_inertia(link.turn, given)
    if all(map(is_zero, arm)):
        return given
    found = given.copy()
    for c in range(3):
        found[:3, 3 + c] = given[:3, 3 + c] + _cross(arm, given[3:, 3 + c])
    found[3:, :3] = found[:3, 3:].T
    for a in range(3):
        right = _cross(arm, found[a, 3:])
        for c in range(a, 3):
            left = _cross(arm, given[c, 3:])[a]
            found[a, c] = found[c, a] = total([given[a, c], left, right[c]])
    return found


def _symmetric(given: np.ndarray) -> np.ndarray:
    """A matrix by its upper triangle alone: expressions that are equal need not be the same."""
    upper = np.triu(np.ones(given.shape, bool))
    return np.where(upper, given, given.T)


def _armature(M: TreeInertia) -> Sequence[Expression]:
    return [0.0] * len(M.parents) if M.armature is None else list(M.armature)


_NONE = np.full(6, 0.0, object)
"""No twist, or no wrench."""


class TreeFactors(NamedTuple):
    """M = L D L^T of a tree, from the leaves to the ground: `links`, the `gain` g (6,) and `inverse` 1 / D of each."""

    links: list[Link]
    gain: list[Vector]
    inverse: Vector

    @property
    def order(self) -> list[int]:
        """The velocities in the order of the factors."""
        return [link.place for link in self.links]

    def forward(self, x: Vector) -> Vector:
        """L^-1 x, in the order of the factors."""
        out, wrenches = list[Expression](), dict[int, Vector]()
        for link, gain in zip(self.links, self.gain, strict=True):
            wrench = wrenches.get(link.place, _NONE)
            out.append(x[link.place] - dot(link.axis, wrench))
            if link.parent >= 0:
                through = _shift_wrench(link, wrench + out[-1] * gain)
                before = wrenches.get(link.parent)
                wrenches[link.parent] = through if before is None else before + through
        return as_vector(out)

    def backward(self, y: Vector) -> Vector:
        """L^-T y, of y in the order of the factors, in the original order."""
        out, twists = np.full(len(y), 0.0, object), {-1: _NONE}
        for link, gain, value in reversed(list(zip(self.links, self.gain, y, strict=True))):
            twist = _shift_twist(link, twists[link.parent])
            x = out[link.place] = value - dot(gain, twist)
            twists[link.place] = twist + x * link.axis
        return out

    def frozen(self) -> "TreeFactors":
        """The same factors, constant to a differentiation."""
        constant = lambda x: x if x is None else freeze(x)
        links = [
            x._replace(axis=freeze(x.axis), arm=freeze(x.arm), turn=constant(x.turn)) for x in self.links
        ]
        return TreeFactors(links, list(map(freeze, self.gain)), freeze(self.inverse))


def factor_mass_matrix(
    M: np.ndarray | TreeInertia, invert: Callable[[Expression, Expression], Expression]
) -> Factors | TreeFactors:
    """The factors of a mass matrix."""
    if not isinstance(M, TreeInertia):
        return factor(M, lambda pivot, size, *_: (invert(pivot, size),))[0]
    links, articulated = _links(M), [_symmetric(x) for x in np.asarray(M.inertia)]
    axes, armature = {link.place: link.axis for link in links}, _armature(M)
    gains, inverses, taken = list[Vector](), list[Expression](), dict[int, Expression]()
    for link in links:
        own = articulated[link.place]
        U = times(own, link.axis)
        D = dot(link.axis, U) + armature[link.place]
        inverse = invert(D, D + taken.get(link.place, 0.0))
        gain = inverse * U
        inverses.append(inverse)
        gains.append(gain)
        if link.parent < 0:
            continue
        still = _still_along(link.axis) if is_zero(armature[link.place]) else None
        for a, b in zip(*np.triu_indices(6), strict=True):
            share = gain[a] * U[b]
            own[a, b] = own[b, a] = 0.0 if still in (a, b) else own[a, b] - share
        moved, before = _shift_inertia(link, own), articulated[link.parent]
        for a, b in zip(*np.triu_indices(6), strict=True):
            before[a, b] = before[b, a] = before[a, b] + moved[a, b]
        along = dot(U, _shift_twist(link, axes[link.parent]))
        taken[link.parent] = taken.get(link.parent, 0.0) + inverse * (along * along)
    return TreeFactors(links, gains, as_vector(inverses))


def _still_along(axis: Vector) -> int | None:
    """The entry of a wrench that is all its axis sees: what gives way along it has no inertia there."""
    places = list(entries(axis).items())
    return places[0][0] if len(places) == 1 and is_number(places[0][1]) else None


def product(M: np.ndarray | TreeInertia, x: Vector) -> Vector:
    """M x, of a matrix given by its entries or as that of a tree."""
    if not isinstance(M, TreeInertia):
        return times(M, x)
    links, armature, out, twists = _links(M), _armature(M), x.copy(), {-1: _NONE}
    for link in reversed(links):
        moved = x[link.place] * link.axis
        twists[link.place] = _shift_twist(link, twists[link.parent]) + moved
    wrenches = dict[int, Vector]()
    for link in links:
        wrench = times(_symmetric(np.asarray(M.inertia[link.place])), twists[link.place])
        wrench = wrench + wrenches.get(link.place, _NONE)
        own = armature[link.place] * x[link.place]
        out[link.place] = dot(link.axis, wrench) + own
        if link.parent >= 0:
            through = _shift_wrench(link, wrench)
            wrenches[link.parent] = through + wrenches.get(link.parent, _NONE)
    return out


def extend_mass_matrix(M: np.ndarray | TreeInertia, more: int) -> np.ndarray | TreeInertia:
    """M with a unit matrix beside it: for a tree, as many more links of unit inertia on the ground."""
    if isinstance(M, TreeInertia):
        room = lambda x: np.concatenate([x, np.zeros((more, *x.shape[1:]), object) + 0.0])
        axes, inertia, arms = room(M.axes), room(M.inertia), room(M.arms)
        axes[len(M.parents) :, 3] = inertia[len(M.parents) :, 3, 3] = 1.0
        armature = None if M.armature is None else room(M.armature)
        turns = None
        if M.turns is not None:
            turns = np.concatenate([M.turns, np.broadcast_to(np.eye(3), (more, 3, 3))])
        return TreeInertia(axes, inertia, arms, (*M.parents, *(-1,) * more), armature, turns)
    whole = np.zeros((len(M) + more,) * 2, object) + 0.0
    whole[: len(M), : len(M)] = M
    whole[range(len(M), len(whole)), range(len(M), len(whole))] = 1.0
    return whole
