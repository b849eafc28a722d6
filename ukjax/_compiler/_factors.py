"""Factors X = L D L^T of symmetric matrices of expressions, in an order of low fill-in."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .._system._system import TreeInertia
from ._scalars import Builder, Entries, Expression, Vector, dot, is_zero, plus, scale_vector, times

Taken = dict[int, tuple[Expression, Expression]]


class Factors(NamedTuple):
    """X = L D L^T in the given order of rows: `lower[i]` the entries of L in row i left of the diagonal,
    by column; `inverse[i]` is 1 / D_i, or zero for a row left out."""

    order: list[int]
    lower: list[Entries]
    inverse: Vector

    def forward(self, build: Builder, x: Sequence[Expression]) -> Vector:
        """L^-1 x, in the order of the factors."""
        out: Vector = []
        for i, row in zip(self.order, self.lower, strict=True):
            terms = [build.apply("mul", entry, out[c]) for c, entry in row.items()]
            out.append(build.apply("sub", x[i], build.total(terms)))
        return out

    def backward(self, build: Builder, y: Sequence[Expression]) -> Vector:
        """L^-T y, of y in the order of the factors, in the original order."""
        out: Vector = list(y)
        for row in reversed(range(len(out))):
            for column, entry in self.lower[row].items():
                out[column] = build.apply("sub", out[column], build.apply("mul", entry, out[row]))
        unordered: Vector = [0.0] * len(out)
        for i, x in zip(self.order, out, strict=True):
            unordered[i] = x
        return unordered

    def frozen(self, build: Builder) -> "Factors":
        """The same factors, constant to a differentiation."""
        lower = [dict(zip(row, build.frozen(row.values()), strict=True)) for row in self.lower]
        return Factors(self.order, lower, build.frozen(self.inverse))


def _low_fill(neighbours: list[set[int]]) -> list[int]:
    """An elimination order by least degree, given who meets whom."""
    neighbours = [set(x) - {i} for i, x in enumerate(neighbours)]
    left, order = set(range(len(neighbours))), []
    while left:
        i = min(left, key=lambda i: (len(neighbours[i]), i))
        left.remove(i)
        order.append(i)
        for j in neighbours[i]:
            neighbours[j] |= neighbours[i] - {j}
            neighbours[j].discard(i)
    return order


def order_of(X: np.ndarray) -> list[int]:
    """An order of low fill-in for the factors of a symmetric matrix."""
    k = X.shape[0]
    return _low_fill([{j for j in range(k) if not is_zero(X[max(i, j), min(i, j)])} for i in range(k)])


def factor(
    build: Builder,
    X: np.ndarray,
    invert: Callable[[Expression, int, Taken], Expression],
    order: list[int] | None = None,
) -> Factors:
    """The factors of a symmetric matrix of expressions, of which only one triangle is read."""
    k, order = X.shape[0], order_of(X) if order is None else order
    lower: list[Entries] = [{} for _ in range(k)]
    scaled: list[Entries] = [{} for _ in range(k)]  # L D
    inverse: Vector = []
    for row, i in enumerate(order):
        for column in range(row):
            j = order[column]
            known = build.dot(scaled[row], lower[column])
            entry = build.apply("sub", X[max(i, j), min(i, j)], known)
            if not is_zero(entry):
                scaled[row][column] = entry
                lower[row][column] = build.apply("mul", entry, inverse[column])
        taken = {order[c]: (build.apply("mul", x, lower[row][c]), inverse[c]) for c, x in scaled[row].items()}
        pivot = build.apply("sub", X[i, i], build.total(x for x, _ in taken.values()))
        inverse.append(invert(pivot, i, taken))
    return Factors(order, lower, inverse)


def solve_by_factors(build: Builder, factors: Factors, x: Sequence[Expression]) -> Vector:
    """X^-1 x, but for rows left out."""
    z = factors.forward(build, x)
    return factors.backward(build, [build.apply("mul", *y) for y in zip(factors.inverse, z, strict=True)])


# --- The mass matrix of a kinematic tree as expressions: products with it and factors of it in proportion to its size
#
# From the leaves to the ground, with I the inertia of all that hangs on velocity k if what lies behind it gives way
# (its articulated inertia) and s its axis,
#
# U = I s,    D = s.U + a,    I' = I - U U^T / D,
#
# with the armature a, where I', about the point of the velocity before, adds to the inertia there (Featherstone 2008,
# section 7.3). That is an elimination: M = L D L^T in that order, and L, though full, takes a vector from link to link
# by g = U / D alone.


class Link(NamedTuple):
    """One velocity: its place, that before it (-1 for the ground), its axis (6,) and the arm to its point (3,)."""

    place: int
    parent: int
    axis: Vector
    arm: Vector


def _links(M: TreeInertia) -> list[Link]:
    """From the leaves to the ground."""
    return [Link(k, M.parents[k], list(M.axes[k]), list(M.arms[k])) for k in reversed(M.outwards())]


def _cross(build: Builder, x: Vector, y: Vector) -> Vector:
    parts = ((1, 2), (2, 0), (0, 1))
    mul = functools.partial(build.apply, "mul")
    return [build.apply("sub", mul(x[i], y[j]), mul(x[j], y[i])) for i, j in parts]


def _shift_twist(build: Builder, arm: Vector, twist: Vector) -> Vector:
    """A twist about the point at the start of the arm, about that at its end."""
    return [*twist[:3], *plus(build, twist[3:], _cross(build, twist[:3], arm))]


def _shift_wrench(build: Builder, arm: Vector, wrench: Vector) -> Vector:
    """A wrench about the point at the end of the arm, about that at its start."""
    return [*plus(build, wrench[:3], _cross(build, arm, wrench[3:])), *wrench[3:]]


def _shift_inertia(build: Builder, arm: Vector, given: np.ndarray) -> np.ndarray:
    """An inertia [J, H; H^T, m] about the point at the end of the arm, about that at its start."""
    if all(map(is_zero, arm)):
        return given
    found = given.copy()
    for c in range(3):
        found[:3, 3 + c] = plus(build, list(given[:3, 3 + c]), _cross(build, arm, list(given[3:, 3 + c])))
    found[3:, :3] = found[:3, 3:].T
    for a in range(3):
        right = _cross(build, arm, list(found[a, 3:]))
        for c in range(a, 3):
            left = _cross(build, arm, list(given[c, 3:]))[a]
            found[a, c] = found[c, a] = build.total([given[a, c], left, right[c]])
    return found


def _symmetric(given: np.ndarray) -> np.ndarray:
    """A matrix by its upper triangle alone: expressions that are equal need not be the same."""
    upper = np.triu(np.ones(given.shape, bool))
    return np.where(upper, given, given.T)


def _armature(M: TreeInertia) -> Sequence[Expression]:
    return [0.0] * len(M.parents) if M.armature is None else list(M.armature)


class TreeFactors(NamedTuple):
    """M = L D L^T of a tree, from the leaves to the ground: `links`, the `gain` g (6,) and `inverse` 1 / D of each."""

    links: list[Link]
    gain: list[Vector]
    inverse: Vector

    @property
    def order(self) -> list[int]:
        """The velocities in the order of the factors."""
        return [link.place for link in self.links]

    def forward(self, build: Builder, x: Sequence[Expression]) -> Vector:
        """L^-1 x, in the order of the factors."""
        out: Vector = []
        wrenches: dict[int, Vector] = {}
        for link, gain in zip(self.links, self.gain, strict=True):
            wrench = wrenches.get(link.place, [0.0] * 6)
            out.append(build.apply("sub", x[link.place], dot(build, link.axis, wrench)))
            if link.parent >= 0:
                through = _shift_wrench(
                    build, link.arm, plus(build, wrench, scale_vector(build, out[-1], gain))
                )
                before = wrenches.get(link.parent)
                wrenches[link.parent] = through if before is None else plus(build, before, through)
        return out

    def backward(self, build: Builder, y: Sequence[Expression]) -> Vector:
        """L^-T y, of y in the order of the factors, in the original order."""
        out: Vector = [0.0] * len(y)
        twists: dict[int, Vector] = {-1: [0.0] * 6}
        for link, gain, value in reversed(list(zip(self.links, self.gain, y, strict=True))):
            twist = _shift_twist(build, link.arm, twists[link.parent])
            x = out[link.place] = build.apply("sub", value, dot(build, gain, twist))
            twists[link.place] = plus(build, twist, scale_vector(build, x, link.axis))
        return out

    def frozen(self, build: Builder) -> "TreeFactors":
        """The same factors, constant to a differentiation."""
        links = [x._replace(axis=build.frozen(x.axis), arm=build.frozen(x.arm)) for x in self.links]
        return TreeFactors(links, [build.frozen(x) for x in self.gain], build.frozen(self.inverse))


def factor_mass_matrix(
    build: Builder, M: np.ndarray | TreeInertia, invert: Callable[[Expression, Expression], Expression]
) -> Factors | TreeFactors:
    """The factors of a mass matrix."""
    if not isinstance(M, TreeInertia):
        return factor(build, M, lambda pivot, i, _: invert(pivot, M[i, i]))
    links, articulated = _links(M), [_symmetric(x) for x in np.asarray(M.inertia)]
    axes, armature = {link.place: link.axis for link in links}, _armature(M)
    found = TreeFactors(links, [], [])
    taken: dict[int, Expression] = {}
    for link in links:
        own = articulated[link.place]
        U = times(build, own, link.axis)
        D = build.apply("add", dot(build, link.axis, U), armature[link.place])
        inverse = invert(D, build.apply("add", D, taken.get(link.place, 0.0)))
        gain = scale_vector(build, inverse, U)
        found.inverse.append(inverse)
        found.gain.append(gain)
        if link.parent < 0:
            continue
        for a, b in zip(*np.triu_indices(6), strict=True):
            own[a, b] = own[b, a] = build.apply("sub", own[a, b], build.apply("mul", gain[a], U[b]))
        moved, before = _shift_inertia(build, link.arm, own), articulated[link.parent]
        for a, b in zip(*np.triu_indices(6), strict=True):
            before[a, b] = before[b, a] = build.apply("add", before[a, b], moved[a, b])
        along = dot(build, U, _shift_twist(build, link.arm, axes[link.parent]))
        given = build.apply("mul", inverse, build.apply("mul", along, along))
        taken[link.parent] = build.apply("add", taken.get(link.parent, 0.0), given)
    return found


def product(build: Builder, M: np.ndarray | TreeInertia, x: Sequence[Expression]) -> Vector:
    """M x, of a matrix given by its entries or as that of a tree."""
    if not isinstance(M, TreeInertia):
        return times(build, M, x)
    links, armature, out = _links(M), _armature(M), list(x)
    twists: dict[int, Vector] = {-1: [0.0] * 6}
    for link in reversed(links):
        moved = scale_vector(build, x[link.place], link.axis)
        twists[link.place] = plus(build, _shift_twist(build, link.arm, twists[link.parent]), moved)
    wrenches: dict[int, Vector] = {}
    for link in links:
        wrench = times(build, _symmetric(np.asarray(M.inertia[link.place])), twists[link.place])
        wrench = plus(build, wrench, wrenches.get(link.place, [0.0] * 6))
        own = build.apply("mul", armature[link.place], x[link.place])
        out[link.place] = build.apply("add", dot(build, link.axis, wrench), own)
        if link.parent >= 0:
            through = _shift_wrench(build, link.arm, wrench)
            wrenches[link.parent] = plus(build, through, wrenches.get(link.parent, [0.0] * 6))
    return out


def extend_mass_matrix(M: np.ndarray | TreeInertia, more: int) -> np.ndarray | TreeInertia:
    """M with a unit matrix beside it: for a tree, as many more links of unit inertia on the ground."""
    if isinstance(M, TreeInertia):
        room = lambda x: np.concatenate([x, np.zeros((more, *x.shape[1:]), object) + 0.0])
        axes, inertia, arms = room(M.axes), room(M.inertia), room(M.arms)
        axes[len(M.parents) :, 3] = inertia[len(M.parents) :, 3, 3] = 1.0
        armature = None if M.armature is None else room(M.armature)
        return TreeInertia(axes, inertia, arms, (*M.parents, *(-1,) * more), armature)
    whole = np.zeros((len(M) + more,) * 2, object) + 0.0
    whole[: len(M), : len(M)] = M
    whole[range(len(M), len(whole)), range(len(M), len(whole))] = 1.0
    return whole
