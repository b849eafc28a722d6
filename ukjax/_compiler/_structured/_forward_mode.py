"""Forward mode: programs of tangents beside values, which can be differentiated again."""

from collections.abc import Callable, Sequence
from typing import Any, final

from ._activity import find_active, find_varied_parameters, is_left_out
from ._builder import Builder
from ._derivative_rules import find_partials, push_forward_by_rule, refusal
from ._live_nodes import LiveNodes
from ._nodes import GROWING, Node, Operand, Region
from ._rebuild import Rebuilder
from ._subprogram import Subprogram


@final
class _Forward(Rebuilder):
    """Makes values and tangents; what has none is not in `tangents`."""

    def __init__(self, builder: Builder, needed: LiveNodes, values: dict, varied: set[Node]):
        super().__init__(builder, needed, values)
        self.varied, self.tangents = varied, dict[Node, Any]()
        self._by_rule: dict[Any, Any] = {}

    def tangent(self, x: Any) -> Any:
        """The tangent of an operand; zero where it has none."""
        if x.__class__ is Node and x in self.tangents:
            return self.tangents[x]
        if x.__class__ is Node and x.size is not None:
            return self.b.tape(x.type) if x.size == GROWING else self.b.fill(0.0, x.size, x.type)
        return 0.0

    def scalar(self, node: Node) -> Any:
        value = self.get(node.args[0]) if is_left_out(node) else super().scalar(node)
        if node in self.varied:
            self.tangents[node] = self._change(node, value)
        return value

    def _change(self, node: Node, value: Any) -> Any:
        b, op, t = self.b, node.op, node.type
        args = [self.get(x) for x in node.args]
        if op == "load":
            return b.load(self.tangent(node.args[0]), args[1])
        if op == "store":
            return b.store(self.tangent(node.args[0]), args[1], self.tangent(node.args[2]))
        if op == "pack":
            return b.pack([self.tangent(x) for x in node.args], t)
        if op == "fill":
            return b.fill(self.tangent(node.args[0]), node.size, t)  # pyright: ignore[reportArgumentType]
        if op == "refuse":
            message, backward = node.data
            if not backward:
                raise refusal(message)
            return b.refuse(self.tangent(node.args[0]), message, backward)
        if op == "rule":
            rule, k, i = node.data
            key = (rule, node.args[1:])
            if key not in self._by_rule:
                moved = [self.tangents.get(x) if x.__class__ is Node else None for x in node.args[1:]]
                self._by_rule[key] = push_forward_by_rule(b, rule, args[1:], moved)
            return self._by_rule[key][k][i]
        if op == "convert":
            return b.convert(self.tangent(node.args[0]), node.data, t)
        if op == "select":
            return b.select(args[0], self.tangent(node.args[1]), self.tangent(node.args[2]), t)
        terms = []
        for x, slope in zip(node.args, find_partials(b, node, args, value), strict=True):
            if x in self.varied and slope is not None:
                terms.append(b.mul(slope, self.tangent(x), t))
        return b.total(terms, t)

    def loop(self, node: Node) -> None:
        body = node.data
        moving = [k for k in self.needed.carried(node) if body.region.params[k] in self.varied]
        params = [body.region.params[k] for k in moving]

        def within(more: Sequence[Operand]) -> Any:
            self.tangents.update(zip(params, more, strict=True))
            return lambda: [self.tangent(body.results[k]) for k in moving]

        extra = [(self.tangent(node.args[k]), (p.type, p.size)) for k, p in zip(moving, params, strict=True)]
        outputs = dict(zip(moving, self._loop(node, extra, within), strict=True))
        for out in self.needed.outputs.get(node, ()):
            if out.data in outputs:
                self.tangents[out] = outputs[out.data]

    def call(self, node: Node) -> None:
        varied, outs = find_varied_parameters(node, self.varied), self.needed.outputs.get(node, ())
        moving = [x for x in outs if x in self.varied]
        if not moving:
            return super().call(node)
        callee = _push_callee_forward(
            node.data, varied, tuple(x.data for x in outs), tuple(x.data for x in moving)
        )
        changes = [self.tangent(node.args[i]) for i in varied]
        outputs = self.b.call(callee, [*map(self.get, node.args), *changes])
        self.values.update(zip(outs, outputs, strict=False))
        self.tangents.update(zip(moving, outputs[len(outs) :], strict=True))
        return None

    def branch(self, node: Node) -> None:
        body = node.data
        moving = [i for i in self.needed.given(node) if node.args[1 + i] in self.varied]
        outs = [x for x in self.needed.outputs.get(node, ()) if x in self.varied]

        def within(side: int, more: Sequence[Operand]) -> Any:
            self.tangents.update(zip([body.regions[side].params[i] for i in moving], more, strict=True))
            return lambda: [self.tangent(body.results[side][x.data]) for x in outs]

        params = [body.regions[0].params[i] for i in moving]
        extra = [
            (self.tangent(node.args[1 + i]), (p.type, p.size)) for i, p in zip(moving, params, strict=True)
        ]
        found = self._branch(node, extra, [(x.type, x.size) for x in outs], within)
        self.tangents.update(zip(outs, found, strict=True))


def _run_forward(
    needed: LiveNodes, params: Sequence[Node], varied: Sequence[int], find: Callable[[set[Node]], set[Node]]
) -> _Forward:
    """Values and tangents, from parameters and the tangents of those varied; `find` tells which nodes vary with them."""
    build, seeds = Builder(), [params[i] for i in varied]
    values = {p: build.parameter(build.top, p.type, p.size) for p in params}
    maker = _Forward(build, needed, values, find(set(seeds)))
    maker.tangents.update({p: build.parameter(build.top, p.type, p.size) for p in seeds})
    maker.nodes(needed.outermost)
    return maker


def _push_callee_forward(
    callee: Subprogram, varied: tuple[int, ...], wanted: tuple[int, ...], moving: tuple[int, ...]
) -> Subprogram:
    """A sub-program of some results and of the changes of some, from parameters and the changes of those varied."""
    key = "forward", varied, wanted, moving
    if key not in callee.derivatives:
        needed, results = callee.needed(wanted), [callee.results[k] for k in moving]
        active = lambda seeds: find_active(needed, seeds, results)
        maker = _run_forward(needed, callee.region.params, varied, active)
        outputs = [maker.get(callee.results[k]) for k in wanted] + [maker.tangent(x) for x in results]
        callee.derivatives[key] = Subprogram(maker.b.top, outputs)
    return callee.derivatives[key]


def push_forward(program: Any, varied: Sequence[int]) -> tuple[Region, list[Any]]:
    """What a program of the changes of real results consists of: it takes all operands, and changes of those varied."""
    needed = LiveNodes(program.flat)
    active = lambda seeds: find_active(needed, seeds, program.flat)
    maker = _run_forward(needed, program.params, varied, active)
    outputs = [
        maker.tangent(out) if isinstance(out, Node) else tuple(maker.tangent(x) for x in out)
        for out in (program.outputs[k] for k in program.real_results)
    ]
    return maker.b.top, outputs
