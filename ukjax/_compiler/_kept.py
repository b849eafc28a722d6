"""What a computation keeps for its derivative: the numbers that cost more to compute again than to pass on.

The derivative of a program needs numbers met on the way, above all the factors of the linear systems. Which of them
to keep is a minimum cut: a number the derivative needs is either kept, which costs a write and a read, or computed
again, which costs its operation and needs its operands in turn.
"""

from collections.abc import Sequence

import numpy as np

from ._expressions import Expression, Node, is_truth, reachable

KEEPING = 20
"""Operations that passing a number on takes as long as, by the time of gradients of pendulum, scara, parallelogram."""

COSTS = {"div": 8, "sqrt": 8, "sin": 25, "cos": 25}
"""Operations that those beyond 1 take as long as."""

_ENDLESS = 10**6  # more than all other capacities of the cut together


def _by_changes(nodes: Sequence[Node], count: int) -> set[Node]:
    """Of nodes, each after its operands, those that depend on an input from number `count` on."""
    found: set[Node] = set()
    for node in nodes:
        if node.args[0] >= count if node.op == "input" else any(x in found for x in node.args):
            found.add(node)
    return found


def worth_keeping(outputs: Sequence[Expression], count: int) -> list[Node]:
    """The nodes to keep, each a function of the first `count` inputs.

    **Arguments:**

    - `outputs`: of the derivative, whose inputs are those of the program and, from number `count` on, their changes.
    - `count`: how many inputs the program has.
    """
    from scipy.sparse import (
        csr_matrix,
    )  # a fifth of the time `import ukjax` would take, for derivatives alone
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    nodes = reachable(outputs)
    changes = _by_changes(nodes, count)
    own = [x for x in nodes if x not in changes]
    place = {
        x: 2 * i for i, x in enumerate(own)
    }  # where it is needed; the next place, where it is computed again
    source, sink = 2 * len(own), 2 * len(own) + 1
    edges: list[tuple[int, int, int]] = []
    for node in nodes:
        operands = [] if node.op == "input" else [place[x] for x in node.args if x in place]
        if node in changes:
            edges += [(source, x, _ENDLESS) for x in operands]
        elif node.op != "input":
            needed = place[node]
            keeping = _ENDLESS if is_truth(node) else KEEPING  # results are numbers
            edges += [(needed, needed + 1, keeping), (needed + 1, sink, COSTS.get(node.op, 1))]
            edges += [(needed + 1, x, _ENDLESS) for x in operands]
    edges += [(source, place[x], _ENDLESS) for x in outputs if x in place]
    if not edges:
        return []
    start, end, capacity = np.array(sorted(set(edges)), np.int32).T
    graph = csr_matrix((capacity, (start, end)), shape=(sink + 1, sink + 1))
    left = graph - maximum_flow(graph, source, sink).flow
    left.data = np.maximum(left.data, 0)
    left.eliminate_zeros()
    reached = set(breadth_first_order(left, source, return_predecessors=False).tolist())
    return [x for x, i in place.items() if x.op != "input" and i in reached and i + 1 not in reached]
