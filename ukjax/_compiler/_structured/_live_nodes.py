"""What outputs need of a program, and where each node of it computes."""

import collections
import functools
import operator
from collections.abc import Iterable, Sequence
from typing import Any, final

from ._nodes import Node, Operand, Region, base_of, find_count, is_number

_BY_VISIT = frozenset(("output", "parameter", "loop", "branch", "rule", "attached"))


@final
class LiveNodes:
    """What outputs need of a program.

    - `nodes`: in the order in which they were made.
    - `within`: those of each region that compute there; parameters and outputs of control aside.
    - `live`: of each loop, which of the values it carries are needed.
    - `owner`: the node each region belongs to.
    - `outputs`: of each node that controls, those of its outputs that are needed.
    - `sunk`: of nodes that are computed in a deeper region than their own, that region.
    """

    def __init__(self, outputs: Sequence[Operand], values: bool = False):
        self._values = values  # whether derivatives are not asked for
        self.live: dict[Node, set[int]] = {}
        self.owner: dict[Region, Node] = {}
        self.outputs: dict[Node, list[Node]] = {}
        seen = self._seen = set[Node]()
        stack = self._stack = list[Node]()
        self._need(outputs)
        while stack:
            node = stack.pop()
            if node.op in _BY_VISIT:
                self._visit(node)
                continue
            for x in node.args:  # most nodes: without a call
                if x.__class__ is Node and x not in seen:
                    seen.add(x)
                    stack.append(x)
        self.nodes = sorted(seen, key=operator.attrgetter("number"))
        self.within: dict[Region, list[Node]] = {}
        sunk = self.sunk = _sink(self, outputs) if values else {}
        for node in self.nodes:
            if node.op == "output":
                self.outputs.setdefault(node.args[0], []).append(node)
            elif node.op != "parameter":
                self.within.setdefault(sunk.get(node, node.region), []).append(node)

    @functools.cached_property
    def outermost(self) -> list[Node]:
        """The nodes that compute outside of all loops and branches, in order."""
        outside = [x for region, nodes in self.within.items() if region not in self.owner for x in nodes]
        return sorted(outside, key=operator.attrgetter("number"))

    def _need(self, operands: Iterable[Any]) -> None:
        for x in operands:
            if x.__class__ is Node and x not in self._seen:
                self._seen.add(x)
                self._stack.append(x)

    def _visit(self, node: Node) -> None:
        if node.op == "output":
            (control,) = node.args
            self._need(node.args)
            if control.op == "loop":
                self._need_carried(control, node.data)
            elif control.op == "branch":
                self.owner.update(
                    dict.fromkeys(control.data.regions, control)
                )  # before its parameters are seen
                self._need(results[node.data] for results in control.data.results)
        elif node.op == "parameter":
            control = self.owner.get(node.region)
            if control is not None and control.op == "loop":
                self._need_carried(control, node.data)
            elif control is not None:
                self._need([control.args[1 + node.data]])
        elif node.op == "loop":
            self.owner[node.data.region] = node
            self.live.setdefault(node, set())
            self._need([node.data.condition])
        elif node.op == "branch":
            self._need([node.args[0]])
        else:  # the derivative of what it stands for is another's
            self._need(node.args[:1] if self._values else node.args)

    def _need_carried(self, loop: Node, k: int) -> None:
        live = self.live.setdefault(loop, set())
        if k not in live:
            live.add(k)
            self.owner[loop.data.region] = loop
            self._need([loop.args[k], loop.data.results[k], loop.data.region.params[k]])

    def __contains__(self, node: Node) -> bool:
        return node in self._seen

    def carried(self, loop: Node) -> list[int]:
        """Which of the values that a loop carries are needed, in order."""
        return sorted(self.live.get(loop, ()))

    def given(self, branch: Node) -> list[int]:
        """Which of the values that a branch is given are needed on either side, in order."""
        params = (p for region in branch.data.regions for p in region.params)
        return sorted({p.data for p in params if p in self._seen})

    def results(self, call: Node) -> tuple[int, ...]:
        """Which results of a call are needed, in order."""
        return tuple(sorted(x.data for x in self.outputs.get(call, ())))

    def asked(self, loop: Node) -> set[Node]:
        """The nodes of a loop's region that its condition depends on."""
        region, found = loop.data.region, set[Node]()
        stack = [loop.data.condition]
        while stack:
            x = stack.pop()
            if x.__class__ is not Node or x in found or x.region.depth < region.depth:
                continue
            found.add(x)
            stack += x.args
            if x.op in ("loop", "branch"):
                inner = [x.data.region] if x.op == "loop" else x.data.regions
                stack += [y for within in inner for y in self.of(within)]
        return found

    def of(self, region: Region) -> list[Node]:
        """The nodes of a region that compute, in order."""
        return self.within.get(region, [])


def _is_at_most_one(x: Operand) -> bool:
    if is_number(x):
        return 0 <= x <= 1
    if x.op == "convert":
        return x.data == "bool"
    return x.op in ("select", "mul") and all(map(_is_at_most_one, x.args[-2:]))


def _runs_once(loop: Node) -> bool:
    """Whether a loop makes one pass or none: it counts from zero up to a truth."""
    more = loop.data.condition
    if is_number(more) or more.op != "lt":
        return False
    counter, end = more.args
    return find_count(loop, counter) == (0, 1) and _is_at_most_one(end)


_STAYS = frozenset(("parameter", "output", "loop", "branch"))


def reads_or_repeats(call: Node) -> bool:
    """Whether a call is to run where it stands: arrays may be changed later, and loops run on elsewhere."""
    return call.data.repeats or any(x.__class__ is Node and x.size is not None for x in call.args)


def _sink(needed: LiveNodes, outputs: Sequence[Operand]) -> dict[Node, Region]:
    """Where nodes are computed that stand before a loop of one pass or none and are only used in it."""
    once = {loop.data.region for loop in needed.live if _runs_once(loop)}
    if not once:
        return {}
    owner, meet, sunk, asked = needed.owner, dict[Node, Region](), dict[Node, Region](), set[Node]()

    def common(x: Region, y: Region) -> Region:
        """The deepest region around both."""
        while x is not y:
            if x.depth < y.depth:
                x, y = y, x
            x = owner[x].region
        return x

    def use(x: Operand, region: Region) -> None:
        if x.__class__ is Node:
            x = x.args[0] if x.op == "output" and x.args[0].op == "call" else x
            known = meet.get(x, region)
            meet[x] = region if known is region else common(known, region)

    replaced = collections.defaultdict[Node, list[int]](list)  # of arrays, when their place may be taken
    for node in needed.nodes:
        if node.op in ("store", "loop", "branch"):
            for x in node.args:
                if x.__class__ is Node and x.size is not None:
                    replaced[base_of(x)].append(node.number)

    def may_wait(load: Node, inner: Region) -> bool:
        """Whether an array is there still when a control runs that stands beside a load."""
        array, control = base_of(load.args[0]), owner[inner]
        return array.region is not load.region or not any(
            load.number < x <= control.number for x in replaced[array]
        )

    top = [x.region for x in needed.nodes[:1]]
    while top and top[0] in owner:
        top = [owner[top[0]].region]
    for x in outputs:
        use(x, top[0])
    for node in reversed(needed.nodes):
        op, region = node.op, node.region
        if op == "parameter" or op == "output":
            continue
        if op == "loop":
            if node.data.region in once:  # what its condition needs is computed before
                asked |= needed.asked(node)
            use(node.data.condition, node.data.region)
            for k in needed.carried(node):
                use(node.data.results[k], node.data.region)
                use(node.args[k], region)
            continue
        if op == "branch":
            for results, inner in zip(node.data.results, node.data.regions, strict=True):
                for x in results:
                    use(x, inner)
        elif op not in _STAYS and node.size is None and not (op == "call" and reads_or_repeats(node)):
            deepest, path = meet.get(node, region), list[Region]()
            while deepest.depth > region.depth:
                path.append(deepest)
                deepest = owner[deepest].region
            for inner in reversed(path):
                if inner not in once or (op == "load" and not may_wait(node, path[-1])):
                    break
                region = sunk[node] = inner
        if node in asked:
            region = owner[region].region
        for x in node.args[:1] if op in ("rule", "attached") else node.args:
            use(x, region)
    return sunk
