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
    passed, ends = _passed(nodes, outputs), np.cumsum([weight(x) for x in nodes])
    cuts = [0]
    while ends[-1] - (ends[cuts[-1] - 1] if cuts[-1] else 0) > longest:
        done = ends[cuts[-1] - 1] if cuts[-1] else 0
        # Halves of pieces at least, so that there are not many.
        first, last = np.searchsorted(ends, (done + longest / 2, done + longest), side="right")
        cuts.append(first + 1 + int(np.argmin(passed[first:last])) if last > first else cuts[-1] + 1)
    return [nodes[a:b] for a, b in zip(cuts, [*cuts[1:], len(nodes)], strict=True)]


def _passed(nodes: Sequence[Node], outputs: Sequence[Expression]) -> np.ndarray:
    """How many results of the operations up to each one are needed after it."""
    place = {x: i for i, x in enumerate(nodes)}
    last = np.arange(len(nodes))
    for i, node in enumerate(nodes):
        for x in node.args:
            if isinstance(x, Node) and x in place:
                last[place[x]] = i
    for x in outputs:
        if isinstance(x, Node) and x in place:
            last[place[x]] = len(nodes)
    change = np.zeros(len(nodes) + 2, int)
    np.add.at(change, np.arange(len(nodes)), 1)
    np.add.at(change, last, -1)
    return np.cumsum(change)[: len(nodes)]
