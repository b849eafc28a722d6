"""Sub-programs that are called once, written out where they are: numbers that they are given fold with theirs."""

import collections
from collections.abc import Iterable, Sequence
from typing import Any

from ._builder import Builder
from ._live_nodes import LiveNodes
from ._nodes import MARKS, Node
from ._rebuild import Rebuilder
from ._subprogram import Subprogram


def inline(programs: Sequence[tuple[Sequence[Node], Sequence[Any]]]) -> list[tuple[list[Node], list[Any]]]:
    """The parameters and the outputs of programs without the calls of what only one of them calls, and once."""
    found, needed = (
        list[tuple[list[Node], list[Any]]](),
        [LiveNodes(flat, values=True) for _, flat in programs],
    )
    counts = _count_calls(needed)
    for (params, flat), mine in zip(programs, needed, strict=True):
        build = Builder()
        given = [build.parameter(build.top, x.type, x.size) for x in params]
        copies = _Inliner(build, mine, dict(zip(params, given, strict=True)), counts)
        copies.nodes(mine.outermost)
        found.append((given, [copies.get(x) for x in flat]))
    return found


def _count_calls(needed: Iterable[LiveNodes]) -> collections.Counter[Subprogram]:
    """How often each sub-program is called; what others call counts once for each of these."""
    counts, waiting = collections.Counter[Subprogram](), list(needed)
    while waiting:
        for call in (x for x in waiting.pop().nodes if x.op == "call"):
            if not counts[call.data]:
                waiting.append(call.data.needed(values=True))
            counts[call.data] += 1
    return counts


class _Inliner(Rebuilder):
    """Makes a program again, without derivatives."""

    def __init__(self, builder: Builder, needed: LiveNodes, values: dict[Any, Any], counts: Any):
        super().__init__(builder, needed, values)
        self._counts = counts

    def call(self, node: Node) -> None:
        callee: Subprogram = node.data
        if self._counts[callee] > 1:
            super().call(node)
            return
        values = dict(zip(callee.region.params, map(self.get, node.args), strict=True))
        within = _Inliner(self.b, callee.needed(self.needed.results(node), values=True), values, self._counts)
        within.nodes(within.needed.outermost)
        for out in self.needed.outputs.get(node, ()):
            self.values[out] = within.get(callee.results[out.data])

    def scalar(self, node: Node) -> Any:
        return self.get(node.args[0]) if node.op in MARKS else super().scalar(node)
