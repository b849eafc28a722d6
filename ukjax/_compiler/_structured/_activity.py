"""Which nodes depend on what is varied, and which of these outputs depend on."""

from collections.abc import Iterable, Sequence
from typing import Any

from ._live_nodes import LiveNodes
from ._nodes import Node, is_float
from ._subprogram import Subprogram

LINEAR = frozenset(("add", "sub", "neg", "convert", "pack", "fill"))  # whose derivatives need no values
_WITHOUT = frozenset(
    ("floor", "ceil", "round", "sign", "stop_gradient", "table", "tape", "zeros_like", "absent", "blank")
)  # no derivative


def find_varied(needed: LiveNodes, seeds: set[Node]) -> set[Node]:
    """The real nodes that depend on some, by more than steps."""
    varied = set(seeds)

    def visit(nodes: Sequence[Node]) -> None:
        for node in nodes:
            if node.op == "loop":
                body, live = node.data, needed.carried(node)
                params = [(k, body.region.params[k]) for k in live if is_float(body.region.params[k].type)]
                varied.update(p for k, p in params if node.args[k] in varied)
                more = True
                while more:
                    visit(needed.of(body.region))
                    found = {p for k, p in params if body.results[k] in varied} - varied
                    varied.update(found)
                    more = bool(found)
                outs = needed.outputs.get(node, ())
                varied.update(x for x in outs if body.region.params[x.data] in varied)
            elif node.op == "branch":
                for region_, results in zip(node.data.regions, node.data.results, strict=True):
                    given = needed.given(node)
                    varied.update(region_.params[i] for i in given if node.args[1 + i] in varied)
                    visit(needed.of(region_))
                    varied.update(x for x in needed.outputs.get(node, ()) if results[x.data] in varied)
            elif node.op == "call":
                moving = find_varied_results(node.data, find_varied_parameters(node, varied))
                varied.update(x for x in needed.outputs.get(node, ()) if x.data in moving)
            elif any(x in varied for x in _find_differentiable_operands(node)):
                varied.add(node)

    visit(needed.outermost)
    return varied


def _find_differentiable_operands(node: Node) -> Sequence[Any]:
    """The operands that a node which does not control may have a derivative by."""
    if not is_float(node.type) or node.op in _WITHOUT:
        return ()
    return node.args[1:] if node.op in ("attached", "rule") else node.args


def find_active(needed: LiveNodes, seeds: set[Node], results: Iterable[Any]) -> set[Node]:
    """The nodes that depend on some and that results have a derivative by: what a way back is of."""
    varied, reached, stack = find_varied(needed, seeds), set[Node](), list(results)
    while stack:
        x = stack.pop()
        if x not in varied or x in reached:
            continue
        reached.add(x)
        if x.op == "parameter":
            owner = needed.owner.get(x.region)
            if owner is not None and owner.op == "loop":
                stack += [owner.args[x.data], owner.data.results[x.data]]
            elif owner is not None:
                stack.append(owner.args[1 + x.data])
            continue
        if x.op != "output":
            stack += _find_differentiable_operands(x)
            continue
        (control,) = x.args
        if control.op == "loop":
            stack += [control.args[x.data], control.data.results[x.data], control.data.region.params[x.data]]
        elif control.op == "branch":
            stack += [results[x.data] for results in control.data.results]
        else:
            stack += control.args
    return reached


def find_varied_parameters(call: Node, varied: set[Node]) -> tuple[int, ...]:
    """Which parameters of a sub-program vary where it is called."""
    return tuple(i for i, x in enumerate(call.args) if x in varied)


def find_varied_results(callee: Subprogram, parameters: tuple[int, ...]) -> list[int]:
    """Which results of a sub-program vary with some parameters, in order."""
    key = "varied", parameters
    if key not in callee.derivatives:
        seeds = {callee.region.params[i] for i in parameters}
        varied = find_varied(callee.needed(), seeds)
        callee.derivatives[key] = [k for k, x in enumerate(callee.results) if x in varied]
    return callee.derivatives[key]


def is_left_out(node: Node) -> bool:
    """Whether what is attached to a value is so for one differentiation alone."""
    return node.op == "attached" and not node.data
