"""Derivatives of expressions, as expressions: changes from inputs to outputs, cotangents from outputs to inputs.

An operation of numbers changes by a factor times the change of each operand; the same factor takes a cotangent back. Of
most operations the factors come from JAX's own rules, traced once for each.
"""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import jax

from ._copies import copied
from ._expressions import BOOLEAN, OPERATIONS, Expression, Node, is_zero, reachable
from ._interpret import Interpreter
from ._moves import filled
from ._scalars import Builder

_STEPS = frozenset((*BOOLEAN, "sign", "floor", "ceil", "stop_gradient"))
"""Operations that do not change, or jump."""

Factor = Callable[[Builder, Expression, Sequence[Expression], Expression], Expression]
"""What a factor makes of a change or cotangent, given the operands and the result."""

_FACTORS: dict[tuple[str, int], Factor | None] = {
    ("add", 0): lambda build, t, x, y: t,
    ("add", 1): lambda build, t, x, y: t,
    ("sub", 0): lambda build, t, x, y: t,
    ("sub", 1): lambda build, t, x, y: build.apply("neg", t),
    ("neg", 0): lambda build, t, x, y: build.apply("neg", t),
    ("mul", 0): lambda build, t, x, y: build.apply("mul", t, x[1]),
    ("mul", 1): lambda build, t, x, y: build.apply("mul", t, x[0]),
    ("div", 0): lambda build, t, x, y: build.apply("div", t, x[1]),
    ("div", 1): lambda build, t, x, y: build.apply("neg", build.apply("mul", t, build.apply("div", y, x[1]))),
    ("sqrt", 0): lambda build, t, x, y: build.apply("mul", t, build.apply("div", 0.5, y)),
    ("select", 0): None,
    ("select", 1): lambda build, t, x, y: build.apply("select", x[0], t, 0.0),
    ("select", 2): lambda build, t, x, y: build.apply("select", x[0], 0.0, t),
    ("attached", 0): None,
    ("attached", 1): lambda build, t, x, y: t,
}


@functools.cache
def _traced(op: str, i: int, count: int, dtype: Any) -> Any:
    """JAX's change of an operation by one of its operands: of that operand's change and of all operands."""
    number = jax.ShapeDtypeStruct((), dtype)

    def change(t: Any, *args: Any) -> Any:
        return jax.jvp(lambda x: OPERATIONS[op](*args[:i], x, *args[i + 1 :]), (args[i],), (t,))[1]

    return jax.make_jaxpr(change)(*[number] * (1 + count))


@final
class Derivative:
    """The derivative of expressions, none of which have rules of their own.

    **Arguments:**

    - `outputs`: expressions.
    - `varied`: the numbers of the inputs to differentiate by.
    - `replaced`: the numbers that inputs are to have; those left out keep theirs.
    - `dtype`: of all.
    """

    def __init__(
        self, outputs: Sequence[Expression], varied: Sequence[int], replaced: Mapping[int, int], dtype: Any
    ):
        self.build, self._outputs, self._dtype = Builder(), outputs, dtype
        nodes = reachable(outputs)
        inputs = {x: self.build.input(replaced.get(x.args[0], x.args[0])) for x in nodes if x.op == "input"}
        # Factors are of values without carriers: what is constant to this differentiation is not to the next.
        self._values = dict(zip(nodes, copied(nodes, inputs, self.build), strict=True))
        # Several nodes may stand for one input: outputs need not come from one builder.
        numbered: dict[int, list[Node]] = {i: [] for i in varied}
        for x in inputs:
            numbered.get(x.args[0], []).append(x)
        self._inputs = list(numbered.values())
        changing = set(itertools.chain(*self._inputs))
        self._changing: list[tuple[Node, list[tuple[int, Node]]]] = []
        for node in nodes:
            moved = [] if node.op in ("input", *_STEPS) else list(enumerate(node.args))
            moved = [(i, x) for i, x in moved if isinstance(x, Node) and x in changing]
            moved = [(i, x) for i, x in moved if _FACTORS.get((node.op, i), _traced) is not None]
            if moved:
                changing.add(node)
                self._changing.append((node, moved))

    def _times(self, t: Expression, node: Node, i: int) -> Expression:
        """The factor of an operand times a change or cotangent."""
        args = [self._values.get(x, x) if isinstance(x, Node) else x for x in node.args]
        factor = _FACTORS.get((node.op, i))
        if factor is not None:
            return factor(self.build, t, args, self._values[node])
        closed = _traced(node.op, i, len(args), self._dtype)
        (found,) = Interpreter(self.build).run(
            closed.jaxpr, closed.consts, [filled((), [x]) for x in (t, *args)]
        )
        return found.item()

    def changes(self, of: Sequence[Expression]) -> list[Expression]:
        """The changes of the outputs.

        **Arguments:**

        - `of`: those of the inputs `varied`.
        """
        found: dict[Any, Expression] = {
            node: x for nodes, x in zip(self._inputs, of, strict=True) for node in nodes
        }
        for node, moved in self._changing:
            terms = [self._times(found[x], node, i) for i, x in moved]
            found[node] = functools.reduce(functools.partial(self.build.apply, "add"), terms)
        return [found.get(x, 0.0) if isinstance(x, Node) else 0.0 for x in self._outputs]

    def cotangents(self, of: Sequence[Expression]) -> list[Expression]:
        """The cotangents of the inputs `varied`.

        **Arguments:**

        - `of`: those of the outputs.
        """
        found: dict[Any, Expression] = {}

        def add(x: Any, t: Expression) -> None:
            found[x] = self.build.apply("add", found[x], t) if x in found else t

        for x, t in zip(self._outputs, of, strict=True):
            if isinstance(x, Node):
                add(x, t)
        for node, moved in reversed(self._changing):
            t = found.get(node, 0.0)
            if not is_zero(t):
                for i, x in moved:
                    add(x, self._times(t, node, i))
        add_up = functools.partial(functools.reduce, functools.partial(self.build.apply, "add"))
        return [add_up([found.get(x, 0.0) for x in nodes], 0.0) for nodes in self._inputs]
