"""Copies of expressions by another builder: without carriers, others in the place of nodes."""

from collections.abc import Mapping, Sequence
from typing import Any

from .._misc._garbage import collector_paused
from ._expressions import CARRIERS, Expression, Node, reachable
from ._scalars import Builder


@collector_paused()
def copied(
    outputs: Sequence[Expression], replaced: Mapping[Node, Expression], build: Builder
) -> list[Expression]:
    """The same expressions without carriers, made anew."""
    made: dict[Any, Expression] = {**replaced}
    copy = lambda x: made[x] if type(x) is Node else x
    for node in reachable(outputs):
        if node in made:
            continue
        if node.op == "input":
            made[node] = build.input(node.args[0])
        elif node.op in CARRIERS:
            made[node] = copy(node.args[0])
        else:
            made[node] = build.apply(node.op, *map(copy, node.args))
    return list(map(copy, outputs))
