"""What repeats in a long program: stretches of operations done again and again on other numbers.

The elimination of one body of a chain is that of the next; in the order the operations were made, theirs come one
block after the other. Such a stretch becomes the body of a loop. It is compiled once, so that compilation grows with
the variety of a system and not with its size, while the operations are the same as written out.

Two places a period apart match if their operations are the same and so are the distances to their operands, except
for operands further back than a period: those are looked up in a table, pass by pass.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ._expressions import Node

_LONGEST_PERIOD = 1_024
_CODES = 16  # bits that hold any code of an operation
_DISTANCES = 11  # bits that hold any distance up to the longest period
_MOST_COMPARED = (
    10**8
)  # pairs of operations: a second or two; of longer programs only shorter periods are looked for
_FEWEST_PASSES = 4  # of a loop: of fewer the operations are written out
_SHORTEST = 48  # operations of a loop body, if there are as many: a pass costs some time by itself
_LONGEST = 1_000  # operations in one piece: compilation takes more than in proportion to what it passes on


class Stretch(NamedTuple):
    """Operations `start` to `start + period * passes`, which repeat after each period."""

    start: int
    period: int
    passes: int

    @property
    def starts(self) -> range:
        """Where the passes start."""
        return range(self.start, self.start + self.period * self.passes, self.period)


class _Sequence:
    """Operations in order, as arrays: a code for each, and how far back its operands are, 0 for leaves."""

    def __init__(self, nodes: Sequence[Node]):
        place = {node: i for i, node in enumerate(nodes)}
        codes: dict[tuple, int] = {}
        self.code = np.array([codes.setdefault((x.op, len(x.args)), len(codes)) for x in nodes], np.int64)
        self.back = np.zeros((3, len(nodes)), int)
        for i, node in enumerate(nodes):
            for slot, x in enumerate(node.args):
                if isinstance(x, Node) and x.op != "input":
                    self.back[slot, i] = i - place[x]

    def matches(self, start: int, end: int, periods: int) -> Iterator[tuple[int, np.ndarray]]:
        """For each period up to a number, which operations from `start` have their like a period later, before `end`."""
        kind, back = self.code[start:end].copy(), self.back[:, start:end]
        # One number says all that is compared: as the period grows, distances come to be near ones.
        slots, places = np.nonzero((back > 0) & (back <= periods))
        distances = back[slots, places]
        order = np.argsort(distances, kind="stable")
        slots, places, distances = slots[order], places[order], distances[order]
        ends = np.searchsorted(distances, np.arange(periods + 1), side="right")
        for period in range(1, periods + 1):
            near = slice(ends[period - 1], ends[period])
            np.add.at(kind, places[near], distances[near] << (_CODES + _DISTANCES * slots[near]))
            yield period, kind[:-period] == kind[period:]

    def longest(self, start: int, end: int) -> Stretch | None:
        """The stretch that covers most, among those between two places."""
        best, most = None, 2 * _SHORTEST - 1
        count = end - start
        periods = min(_LONGEST_PERIOD, count // _FEWEST_PASSES, _MOST_COMPARED // max(count, 1))
        for period, same in self.matches(start, end, periods):
            # Of the passes of a stretch all but the last match, and so all of a block of half as many operations.
            half = max((_FEWEST_PASSES - 1) * period, most + 1 - period) // 2
            if not same[: len(same) // half * half].reshape(-1, half).all(axis=1).any():
                continue
            edges = np.flatnonzero(np.diff(same, prepend=False, append=False))
            lengths = edges[1::2] - edges[::2]
            k = int(lengths.argmax())
            passes = int(lengths[k]) // period + 1
            if passes >= _FEWEST_PASSES and passes * period > most:
                best, most = Stretch(start + int(edges[2 * k]), period, passes), passes * period
        return best

    def cover(self, start: int, end: int) -> Iterator[Stretch]:
        """Stretches that together are all operations between two places."""
        found = self.longest(start, end)
        if found is None:
            yield from _pieces(start, end)
            return
        several = min(-(-_SHORTEST // found.period), found.passes // 2)
        passes = found.passes // several
        stop = found.start + passes * several * found.period
        yield from self.cover(start, found.start)
        yield Stretch(found.start, several * found.period, passes)
        yield from self.cover(stop, end)


def _pieces(start: int, end: int) -> Iterator[Stretch]:
    """Stretches of equal length without repeats."""
    edges = np.linspace(start, end, -(-(end - start) // _LONGEST) + 1).astype(int).tolist()
    yield from (Stretch(a, b - a, 1) for a, b in itertools.pairwise(edges) if b > a)


def stretches(nodes: Sequence[Node]) -> list[Stretch]:
    """Operations as stretches, in order.

    **Arguments:**

    - `nodes`: the operations, each after its operands.
    """
    return list(_Sequence(nodes).cover(0, len(nodes)))
