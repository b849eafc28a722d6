"""A program made again, node by node: what derives another of it changes some of its methods."""

from collections.abc import Callable, Sequence
from typing import Any

from ._builder import Builder
from ._live_nodes import LiveNodes
from ._nodes import Node, Operand, is_number
from ._table import convert_number

Extra = tuple[Operand, tuple[str, int | None]]  # a first value and its type
Within = Callable[[Sequence[Operand]], Callable[[], Sequence[Operand]]]


_AS_THEY_ARE = frozenset(("table", "absent", "attached", "convert", "bitcast"))


class Rebuilder:
    """Makes the nodes of a program again with another builder.

    - `values`: of each node, what it became.
    """

    def __init__(self, builder: Builder, needed: LiveNodes, values: dict[Any, Any]):
        self.b, self.needed, self.values = builder, needed, values

    def get(self, x: Any) -> Any:
        return self.values.get(x, x) if x.__class__ is Node else x

    def nodes(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if node.op == "loop":
                self.loop(node)
            elif node.op == "branch":
                self.branch(node)
            elif node.op == "call":
                self.call(node)
            else:
                self.values[node] = self.scalar(node)

    def call(self, node: Node) -> None:
        args, callee = [self.get(x) for x in node.args], node.data
        # As the changes of what does not vary are, where only some entries of an array do.
        more_known = any(is_number(y) and not is_number(x) for x, y in zip(node.args, args, strict=True))
        if more_known and (special := callee.for_numbers(args)):
            results = self.b.call(special, [x for x in args if not is_number(x)])
        else:
            results = self.b.results(callee, args)
        self.values.update((out, results[out.data]) for out in self.needed.outputs.get(node, ()))

    def scalar(self, node: Node) -> Any:
        """A node that does not control, of what its operands became."""
        b, op, t, args = self.b, node.op, node.type, [self.get(x) for x in node.args]
        if op == "load":
            return b.load(args[0], args[1])
        if op == "store":
            return b.store(args[0], args[1], args[2])
        if op == "pack":
            return b.pack(args, t)
        if op == "fill":
            return b.fill(args[0], node.size, t)  # pyright: ignore[reportArgumentType]
        if op == "tape":
            return b.tape(t)
        if op == "blank":
            return b.blank(node.size, t)  # pyright: ignore[reportArgumentType]
        if op == "zeros_like":
            return b.zeros_like(args[0])
        if op == "rule":
            return b.rule(args[0], t, *node.data, inputs=args[1:])
        if op == "refuse":
            return b.refuse(args[0], *node.data, inputs=args[1:])
        if op == "convert" and is_number(args[0]):
            return convert_number(args[0], t)
        if op in _AS_THEY_ARE or (op == "stop_gradient" and node.size is not None):
            return b.node(op, t, *args, data=node.data, size=node.size)
        return b.apply(op, node.data if t == "bool" and node.data else t, *args)

    def _loop(self, node: Node, extra: Sequence[Extra], within: Within) -> list[Node]:
        """A loop that carries what it did, and more.

        **Returns:** what it carries besides, at the end.
        """
        body, live = node.data, self.needed.carried(node)
        params, mine = [body.region.params[k] for k in live], self.needed.of(body.region)
        asked = self.needed.asked(node)
        first = [self.get(node.args[k]) for k in live]
        types = [(p.type, p.size) for p in params]

        def step(carried: Sequence[Operand]) -> Any:
            self.values.update(zip(params, carried, strict=False))
            finish = within(carried[len(params) :])
            self.nodes([x for x in mine if x in asked])

            def advance() -> list[Operand]:
                self.nodes([x for x in mine if x not in asked])
                return [*(self.get(body.results[k]) for k in live), *finish()]

            return self.get(body.condition), advance

        first, types = [*first, *(x for x, _ in extra)], [*types, *(t for _, t in extra)]
        outputs = self.b.loop(first, types, step, body.at)
        place = {k: i for i, k in enumerate(live)}
        for out in self.needed.outputs.get(node, ()):
            self.values[out] = outputs[place[out.data]]
        return outputs[len(live) :]

    def loop(self, node: Node) -> None:
        self._loop(node, [], lambda more: list)

    def branch(self, node: Node) -> None:
        self._branch(node, [], [], lambda side, more: list)

    def _branch(
        self,
        node: Node,
        extra: Sequence[Extra],
        gives: Sequence[tuple[str, int | None]],
        within: Callable[[int, Sequence[Operand]], Callable[[], Sequence[Operand]]],
        values: bool = True,
    ) -> list[Node]:
        """A branch that is given more, and gives what it did, if `values`, and more, of the types `gives`."""
        body, given = node.data, self.needed.given(node)
        outs = self.needed.outputs.get(node, []) if values else []
        types = [(body.regions[0].params[i].type, body.regions[0].params[i].size) for i in given]

        def side(k: int) -> Callable[..., Any]:
            def run(carried: Sequence[Operand]) -> list[Operand]:
                self.values.update(zip([body.regions[k].params[i] for i in given], carried, strict=False))
                finish = within(k, carried[len(given) :])
                self.nodes(self.needed.of(body.regions[k]))
                return [*(self.get(body.results[k][x.data]) for x in outs), *finish()]

            return run

        first = [*(self.get(node.args[1 + i]) for i in given), *(x for x, _ in extra)]
        out_types = [*((x.type, x.size) for x in outs), *gives]
        in_types = [*types, *(t for _, t in extra)]
        made = self.b.branch(self.get(node.args[0]), first, (side(0), side(1)), out_types, in_types)
        self.values.update(zip(outs, made, strict=False))
        return made[len(outs) :]
