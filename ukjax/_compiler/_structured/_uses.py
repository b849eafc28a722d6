"""What is asked of a program before it is written out: what is used where, in which order, and how often."""

import collections
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, final

from ._live_nodes import LiveNodes, reads_or_repeats
from ._nodes import GROWING, Node, Operand, Region, base_of, find_count, is_number


@final
class Uses:
    """How often nodes are used, and when arrays are last.

    - `count`: how often each is.
    - `last`: of arrays, the number of the node that uses it last; at the end what a region gives.
    - `furthest`: of what is stored to growing arrays, by where it starts and in which region, how far.
    """

    def __init__(self, needed: LiveNodes, outputs: Sequence[Operand]):
        self.last: dict[Node, float] = {}
        self.furthest: dict[Any, int] = {}
        self.count = collections.Counter[Node]()

        def use(x: Any, number: float, region: Region) -> None:
            if x.__class__ is not Node:
                return
            self.count[x] += 1
            if x.size is None:
                return
            x = base_of(x)
            while (
                region is not x.region and region in needed.owner
            ):  # it is read when the loop or branch runs
                control = needed.owner[region]
                number, region = (
                    control.number + 0.5,
                    control.region,
                )  # after what the control itself takes over
            self.last[x] = max(self.last.get(x, 0), number)

        for node in needed.nodes:
            if node.op == "output":
                continue
            if node.op == "store" and node.size == GROWING:
                base, offset = apart(node.args[1])
                key = base, node.region
                self.furthest[key] = max(self.furthest.get(key, 0), offset)
                if base is not None:
                    self.count[base] += 1  # by `reserve`
            if node.op == "loop":
                use(node.data.condition, math.inf, node.data.region)
                for k in needed.carried(node):
                    use(node.args[k], node.number, node.region)
                    use(node.data.results[k], math.inf, node.data.region)
                continue
            here = needed.sunk.get(node, node.region)
            for x in node.args[:1] if node.op in ("rule", "attached") else node.args:
                use(x, node.number, here)
            if node.op == "branch":
                for region, results in zip(node.data.regions, node.data.results, strict=True):
                    for out in needed.outputs.get(node, ()):
                        use(results[out.data], math.inf, region)
        for x in outputs:
            use(x, math.inf, Region(0))

    def ends_at(self, array: Node, by: Node) -> bool:
        """Whether nothing reads an array any more once a node has."""
        return array.region is by.region and self.last[array] <= by.number


def find_in_place(
    node: Node, needed: LiveNodes, may_overwrite: Callable[[Node, Node], bool]
) -> dict[int, int]:
    """Of arrays that both sides make of the same one, which nobody reads later, the number of that one."""
    body, given = node.data, node.args[1:]
    found: dict[int, int] = {}
    for k in (x.data for x in needed.outputs.get(node, ()) if x.size is not None):
        roots = [_root(results[k]) for results in body.results]
        if not all(
            x.op == "parameter" and x.region is region for x, region in zip(roots, body.regions, strict=True)
        ):
            continue
        i = roots[0].data
        alone = sum(x is given[i] for x in given) == 1 and i not in found.values()
        if roots[1].data == i and alone and may_overwrite(given[i], node):
            found[k] = i
    return found


def count_passes(loop: Node) -> int:
    """How many passes a loop makes, if it counts up to a number; else 1."""
    more = loop.data.condition
    return (more.__class__ is Node and more.op == "lt" and bound_passes(loop)) or 1


def bound_passes(loop: Node) -> int | None:
    """How many passes a loop makes at most, where one of its conditions counts up to a number; else None."""
    conditions, bounds = [loop.data.condition], list[int]()
    while conditions:
        x = conditions.pop()
        if is_number(x):
            continue
        if x.op == "and" and x.type == "bool":
            conditions += x.args
        elif x.op in ("lt", "le", "gt", "ge"):
            counter, end = x.args if x.op[0] == "l" else x.args[::-1]
            if is_number(end) and isinstance(end, int) and (steps := find_count(loop, counter)):
                first, by = steps
                bounds.append(max(-(-(int(end) + (x.op[1] == "e") - first) // by), 0))
    return min(bounds, default=None)


def is_plain(node: Node) -> bool:
    """Whether a node computes a scalar of scalars."""
    return node.size is None and node.op not in ("loop", "branch", "call", "load")


def may_wait(node: Node) -> bool:
    """Whether a node is as well computed later, where nothing is stored before and no loop or branch runs."""
    if node.op == "call":
        return not reads_or_repeats(node)
    return is_plain(node) or (node.op == "load" and is_number(node.args[1]))


def _computed_of(node: Node) -> list[Operand]:
    """What a node takes, calls in place of what they give."""
    return [x.args[0] if x.__class__ is Node and x.op == "output" else x for x in node.args]


def depth_first(nodes: list[Node]) -> list[Node]:
    """Nodes that may wait, each soon after what it is computed of: LLVM then has fewer numbers to keep, and what a
    function has left is used before it is called again. What is read comes first: straight code is in one piece."""
    ordered = [x for x in nodes if x.op == "load"]
    # Of the others, whether what they are computed of is not asked for.
    left = dict.fromkeys((x for x in nodes if x.op != "load"), True)
    of = _computed_of if any(x.op == "call" for x in left) else operator.attrgetter("args")
    used = {x for node in left for x in of(node) if x in left}
    for last in list(left):
        stack = [last] if last not in used else []
        while stack:
            node = stack[-1]
            if left.get(node):
                left[node] = False
                if waiting := [x for x in of(node) if x in left]:
                    stack += reversed(waiting)
                    continue
            stack.pop()
            if left.pop(node, None) is not None:
                ordered.append(node)
    return ordered


def apart(index: Operand) -> tuple[Node | None, int]:
    """A place as a node and how far behind."""
    if is_number(index):
        return None, int(index)
    x, y = index.args if index.op == "add" else (0, index)
    return (y, x) if is_number(x) else (index, 0)


def _root(array: Any) -> Node:
    """The array that another was made of by changing entries."""
    while array.op == "store" or (array.op == "output" and array.args[0].op == "loop"):
        array = array.args[0] if array.op == "store" else array.args[0].args[array.data]
    return array
