"""Programs of scalars as operations of JAX: where no machine code of our own runs, as on another device or when exported.

Every scalar is an array over the members. Loops are `while_loop`s that go on until the last member has ended; those that
have keep what they carry.
"""

from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..._misc._errors import Untranslatable
from ._ir import GROWING, OPERATIONS, TRUTHS, Needed, Node, Operand


def evaluate(
    outputs: Sequence[Any], types: Sequence[str], params: Sequence[Node], operands: Sequence[Array]
) -> list[Array]:
    """The outputs of a program, each (entries, members).

    **Raises:** `Untranslatable` for reverse mode through loops, whose tape has no size beforehand.
    """
    members = next((x.shape[1] for x in operands if x.ndim > 1), 1)
    flat = [x for out in outputs for x in ([out] if isinstance(out, Node) else out)]
    values = {p: x if x.ndim > 1 else x[:, None] for p, x in zip(params, operands, strict=True)}
    run = _Evaluator(Needed(flat, values=True), values, members, {})
    run.nodes(run.needed.outermost)
    found = []
    for out, t in zip(outputs, types, strict=True):
        rows = run.values[out] if isinstance(out, Node) else jnp.stack([run.typed(x, t) for x in out])
        found.append(jnp.broadcast_to(rows, (rows.shape[0], members)))
    return found


@final
class _Evaluator:
    """Computes nodes.

    - `functions`: sub-programs as functions of JAX, which traces each once.
    """

    def __init__(self, needed: Needed, values: dict[Node, Array], members: int, functions: dict[Any, Any]):
        self.needed, self.values, self.members, self.functions = needed, values, members, functions
        self.mask: Any = True

    def typed(self, x: Operand, t: str) -> Any:
        """An operand of a type."""
        return self.values[x] if isinstance(x, Node) else jnp.full((self.members,), x, np.dtype(t))

    def nodes(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if node.op == "loop":
                self._loop(node)
            elif node.op == "branch":
                self._branch(node)
            elif node.op == "call":
                self._call(node)
            else:
                self.values[node] = self._compute(node)

    def _compute(self, node: Node) -> Array:
        op, t, args = node.op, node.type, node.args
        if op in ("tape", "zeros_like") or node.size == GROWING:
            raise Untranslatable("reverse mode through a loop needs machine code, of a CPU or of a kernel")
        if op == "table":
            return jnp.asarray(np.asarray(node.data[0], t))[:, None]
        if op == "blank":
            return jnp.zeros((node.size or 0, self.members), np.dtype(t))
        if op == "fill":
            return jnp.broadcast_to(self.typed(args[0], t), (node.data, self.members))
        if op == "pack":
            return jnp.stack([jnp.broadcast_to(self.typed(x, t), (self.members,)) for x in args])
        if op == "load":
            array, index = self.values[args[0]], args[1]
            if not isinstance(index, Node):
                return jnp.broadcast_to(array[int(index)], (self.members,))
            whole = jnp.broadcast_to(array, (array.shape[0], self.members))
            return jnp.take_along_axis(whole, self.values[index][None], 0, mode="clip")[0]
        if op == "store":
            array = jnp.broadcast_to(self.values[args[0]], (node.size or 0, self.members))
            place = jnp.broadcast_to(self.typed(args[1], "int64"), (1, self.members))
            here = (jnp.arange(node.size or 0)[:, None] == place) & jnp.broadcast_to(
                self.mask, (1, self.members)
            )
            return jnp.where(here, jnp.broadcast_to(self.typed(args[2], t), array.shape), array)
        if op in ("rule", "refuse", "attached"):
            return self.typed(args[0], t)
        if op == "convert":
            return lax.convert_element_type(self.values[args[0]], np.dtype(t))
        if op == "bitcast":
            return lax.bitcast_convert_type(self.values[args[0]], np.dtype(t))
        given = node.data if op in TRUTHS else t
        if op == "select":
            p, x, y = args
            return jnp.where(self.typed(p, "bool"), self.typed(x, t), self.typed(y, t))
        operation = getattr(lax, OPERATIONS[op].jax or op)
        shaped = [jnp.broadcast_to(self.typed(x, given), (self.members,)) for x in args]
        return operation(*shaped)

    def _carried(self, x: Operand, p: Node) -> Array:
        value = self.typed(x, p.type)
        return jnp.broadcast_to(value, (self.members,) if p.size is None else (p.size, self.members))

    def _loop(self, node: Node) -> None:
        body, live = node.data, self.needed.carried(node)
        params, mine = [body.region.params[k] for k in live], self.needed.of(body.region)
        if any(p.size == GROWING for p in params):
            raise Untranslatable("reverse mode through a loop needs machine code, of a CPU or of a kernel")
        asked, around, outer = self.needed.asked(node), dict(self.values), self.mask

        def active(state: Sequence[Array]) -> Array:
            self.values = around | dict(zip(params, state, strict=True))
            self.nodes([x for x in mine if x in asked])
            return jnp.broadcast_to(self.typed(body.condition, "bool") & outer, (self.members,))

        def advance(state: Sequence[Array]) -> list[Array]:
            go = active(state)
            self.mask = go
            self.nodes([x for x in mine if x not in asked])
            new = [self._carried(body.results[k], p) for k, p in zip(live, params, strict=True)]
            self.mask = outer
            return [jnp.where(go, x, y) for x, y in zip(new, state, strict=True)]

        first = [self._carried(node.args[k], p) for k, p in zip(live, params, strict=True)]
        last = lax.while_loop(lambda state: jnp.any(active(state)), advance, first)
        self.values = around
        place = dict(zip(live, last, strict=True))
        self.values.update({out: place[out.data] for out in self.needed.outputs.get(node, ())})

    def _call(self, node: Node) -> None:
        callee, results = node.data, self.needed.results(node)
        params = callee.region.params
        given = callee.given(results, values=True)
        if (callee, results) not in self.functions:

            def compute(mask: Any, *args: Array) -> list[Array]:
                values = {params[i]: x for i, x in zip(given, args, strict=True)}
                run = _Evaluator(callee.needed(results, values=True), values, self.members, self.functions)
                run.mask = mask
                run.nodes(run.needed.outermost)
                return [run.values[callee.results[k]] for k in results]

            self.functions[callee, results] = jax.jit(compute)
        args = [self.typed(node.args[i], params[i].type) for i in given]
        found = dict(zip(results, self.functions[callee, results](self.mask, *args), strict=True))
        self.values.update((out, found[out.data]) for out in self.needed.outputs[node])

    def _branch(self, node: Node) -> None:
        body, given = node.data, self.needed.given(node)
        outs = self.needed.outputs.get(node, [])
        which, around, outer = self.typed(node.args[0], "bool"), dict(self.values), self.mask
        sides = []
        for side, (region, results) in enumerate(zip(body.regions, body.results, strict=True)):
            params = [region.params[i] for i in given]
            inner = {p: self._carried(node.args[1 + i], p) for p, i in zip(params, given, strict=True)}
            self.values, self.mask = around | inner, outer & (which if side == 0 else ~which)
            self.nodes(self.needed.of(region))
            sides.append([self._carried(results[x.data], x) for x in outs])
        self.values, self.mask = around, outer
        self.values.update({x: jnp.where(which, a, b) for x, a, b in zip(outs, *sides, strict=True)})
