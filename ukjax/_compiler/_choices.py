"""Integers that are not known, but each one of few: where a search in a table ends, the largest of several numbers.

Such an integer is an expression too: a tree of selections with known integers for leaves. An operation on it is done on
each leaf, with the types JAX has, and the results are the leaves of a tree of the same conditions. So reading a table of
n entries at such a place takes n - 1 selections.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ._expressions import Expression, Node, is_number
from ._moves import Scalars, filled, is_constant
from ._scalars import Builder

_MOST = 4096  # of a tree: longer tables are read faster on arrays, and sums of many truths are no tree


class Choices(NamedTuple):
    """Ways in which arrays of integers may come out.

    - `tree`: (condition, tree where it holds, tree where not), or the number of a case.
    - `cases`: the arrays of each case, all known.
    """

    tree: Any
    cases: list[list[Scalars]]


class _TooManyError(Exception):
    """More cases than are worth telling apart."""


def _is_choice(x: Expression, known: dict[Node, bool]) -> bool:
    """Whether an expression is a tree of selections of known numbers."""
    if not isinstance(x, Node):
        return True
    if x not in known:
        known[x] = x.op == "select" and all(_is_choice(y, known) for y in x.args[1:])
    return known[x]


def _given(x: Expression, condition: Node, holds: bool, known: dict[Node, Expression]) -> Expression:
    """What a tree is where a condition is known; built anew only where that changes it."""
    if not isinstance(x, Node):
        return x
    if x not in known:
        which, yes, no = x.args
        if which is condition:
            known[x] = _given(yes if holds else no, condition, holds, known)
        else:
            parts = [_given(y, condition, holds, known) for y in (yes, no)]
            same = all(a is b for a, b in zip(parts, (yes, no), strict=True))
            known[x] = x if same else Node("select", (which, *parts), x.number)
    return known[x]


def _restricted(array: Scalars, condition: Node, holds: bool) -> Scalars:
    known: dict[Node, Expression] = {}
    return filled(array.shape, [_given(x, condition, holds, known) for x in array.reshape(-1)])


def choices(arrays: Sequence[Scalars]) -> Choices | None:
    """All ways in which arrays of integers may come out; None if that is not known, or they are too many."""
    known: dict[Node, bool] = {}
    if not all(_is_choice(x, known) for array in arrays for x in array.reshape(-1)):
        return None
    cases: list[list[Scalars]] = []

    def told_apart(arrays: list[Scalars]) -> Any:
        unknown = next((x for array in arrays for x in array.reshape(-1) if not is_number(x)), None)
        if unknown is None:
            if len(cases) == _MOST:
                raise _TooManyError
            cases.append(arrays)
            return len(cases) - 1
        condition = unknown.args[0]
        each = (
            told_apart([x if is_constant(x) else _restricted(x, condition, holds) for x in arrays])
            for holds in (True, False)
        )
        return (condition, *each)

    try:
        return Choices(told_apart(list(arrays)), cases)
    except _TooManyError:
        return None


def selected(build: Builder, tree: Any, results: Sequence[Sequence[Scalars]]) -> list[Scalars]:
    """The outputs of an operation, from its outputs in each case."""
    if isinstance(tree, int):
        return list(results[tree])
    condition, *sides = tree
    yes, no = (selected(build, side, results) for side in sides)
    select: Any = np.frompyfunc(lambda x, y: build.apply("select", condition, x, y), 2, 1)
    return [
        filled(y.shape, np.asarray(select(y, n), object).reshape(-1)) for y, n in zip(yes, no, strict=True)
    ]


def place_of_most(build: Builder, better: str, row: Sequence[Expression]) -> Expression:
    """The place of the largest or least of some numbers, of equal ones the first, of NaN the last, as JAX has it."""
    place, best = 0, row[0]
    for i, x in enumerate(row[1:], 1):
        taken = build.apply("or", build.apply(better, x, best), build.apply("ne", x, x))
        place, best = build.apply("select", taken, i, place), build.apply("select", taken, x, best)
    return place


def total_order(build: Builder, x: Expression, y: Expression) -> Expression:
    """x < y in the order of numbers that has NaN last."""
    last = build.apply("and", build.apply("eq", x, x), build.apply("ne", y, y))
    return build.apply("or", build.apply("lt", x, y), last)
