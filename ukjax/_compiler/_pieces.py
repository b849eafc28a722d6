"""Where to cut a long program into pieces that are compiled one by one."""

from collections.abc import Sequence

import numpy as np

from ._expressions import Expression, Node, weight


def pieces(nodes: Sequence[Node], outputs: Sequence[Expression], longest: float) -> list[Sequence[Node]]:
    """Operations in order, cut where few numbers are passed on.

    **Arguments:**

    - `nodes`: the operations, each after its operands.
    - `outputs`: of the program.
    - `longest`: the most a piece may weigh.
    """
    passed, ends = _passed(nodes, outputs), np.cumsum([0, *map(weight, nodes)])
    cuts = [0]
    while ends[-1] - ends[cuts[-1]] > longest:
        # Halves of pieces at least, so that there are not many.
        first, last = np.searchsorted(ends, ends[cuts[-1]] + np.array([longest / 2, longest]), side="right")
        cuts.append(first + int(np.argmin(passed[first:last])) if last > first else cuts[-1] + 1)
    return [nodes[a:b] for a, b in zip(cuts, [*cuts[1:], len(nodes)], strict=True)]


def _passed(nodes: Sequence[Node], outputs: Sequence[Expression]) -> np.ndarray:
    """How many results of the first 0, 1, ... operations are needed by later ones or as outputs."""
    place = {x: i for i, x in enumerate(nodes)}
    last = np.arange(len(nodes))
    for i, users in enumerate([*(x.args for x in nodes), outputs]):
        for x in users:
            if isinstance(x, Node) and x in place:
                last[place[x]] = i
    change = np.zeros(len(nodes) + 2, int)
    change[1:-1] = 1
    np.add.at(change, last + 1, -1)
    return np.cumsum(change)[:-1]
