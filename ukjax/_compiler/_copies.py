"""Copies of expressions by another builder: without carriers, others in the place of inputs, once for each member."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._misc._garbage import collector_paused
from ._expressions import CARRIERS, Expression, Node, reachable
from ._scalars import Builder


class _Copies:
    """Copies of nodes without carriers, made anew.

    **Arguments:**

    - `replaced`: nodes in whose place others are to stand, inputs among them.
    - `build`: makes the copies.
    """

    def __init__(self, replaced: Mapping[Node, Expression], build: Builder):
        self._made, self._build = dict(replaced), build
        self._other = set(replaced)  # their copy is not the same operation: what uses them may become simpler

    def of(self, x: Expression) -> Expression:
        return self._made[x] if type(x) is Node else x

    def put(self, replaced: Mapping[Node, Expression]) -> None:
        """Others to stand in the place of nodes; what depends on them is to be made again."""
        self._made |= replaced

    def make(self, nodes: Sequence[Node]) -> None:
        """Copies nodes, each after its operands."""
        made, other, build, copy = self._made, self._other, self._build, self.of
        other.difference_update(nodes)
        for node in nodes:
            if node.op == "input":
                made[node] = build.input(node.args[0])
            elif node.op in CARRIERS:
                made[node] = copy(node.args[0])
                other.add(node)
            elif other.isdisjoint(node.args):
                made[node] = build.repeated(node.op, *map(copy, node.args))
            else:
                found = made[node] = build.apply(node.op, *map(copy, node.args))
                if type(found) is not Node or found.op != node.op:
                    other.add(node)


@collector_paused()
def copied(
    outputs: Sequence[Expression], replaced: Mapping[Node, Expression], build: Builder
) -> list[Expression]:
    """The same expressions without carriers, made anew.

    **Arguments:**

    - `outputs`: expressions.
    - `replaced`: nodes in whose place others are to stand, inputs among them.
    - `build`: makes the copies.
    """
    copies = _Copies(replaced, build)
    copies.make([x for x in reachable(outputs) if x not in replaced])
    return list(map(copies.of, outputs))


@collector_paused()
def inlined(program: Any, operands: Sequence[np.ndarray], build: Builder) -> np.ndarray:
    """The outputs of a program (outputs, *members) of expressions, as part of another one.

    **Arguments:**

    - `program`: with `outputs`, the expressions of its inputs.
    - `operands`: its inputs (count, *members), or (count,).
    - `build`: makes the expressions.
    """
    members = np.broadcast_shapes(*(x.shape[1:] for x in operands))
    apart = [x.reshape(len(x), *(x.shape[1:] or (1,) * len(members))) for x in operands]
    given = np.concatenate([np.broadcast_to(x, (len(x), *members)).reshape(len(x), -1) for x in apart])
    nodes = reachable(program.outputs)
    inputs = [x for x in nodes if x.op == "input"]
    own = {x for x in inputs if any(y is not given[x.args[0], 0] for y in given[x.args[0]])}  # of each member
    again = []
    for node in (rest := [x for x in nodes if x.op != "input"]):
        if not own.isdisjoint(node.args):
            own.add(node)
            again.append(node)
    copies = _Copies({x: given[x.args[0], 0] for x in inputs}, build)
    found = np.empty((len(program.outputs), given.shape[1]), object)
    for k, column in enumerate(given.T):
        copies.put({x: column[x.args[0]] for x in inputs})
        copies.make(rest if k == 0 else again)
        for i, x in enumerate(program.outputs):
            found[i, k] = copies.of(x)
    return found.reshape(-1, *members)
