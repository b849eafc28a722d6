"""Programs of scalars as operations of JAX: where no machine code of our own runs, as on another device or when exported.

Every scalar is an array over the members. Loops are `while_loop`s that go on until the last member has ended; those that
have keep what they carry.

What reverse mode keeps of a loop's passes grows elsewhere; XLA's arrays cannot. So they share a room that is set aside at
once, and results of a member that needs more are NaN, as in kernels (`_thread`).
"""

from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ._ir import GROWING, OPERATIONS, TRUTHS, Needed, Node, Operand, is_float

_ROOM = 1 << 30  # bytes of all growing arrays


def evaluate(
    outputs: Sequence[Any], types: Sequence[str], params: Sequence[Node], operands: Sequence[Array]
) -> list[Array]:
    """The outputs of a program, each (entries, members)."""
    members = next((x.shape[1] for x in operands if x.ndim > 1), 1)
    flat = [x for out in outputs for x in ([out] if isinstance(out, Node) else out)]
    values = {p: x if x.ndim > 1 else x[:, None] for p, x in zip(params, operands, strict=True)}
    needed = Needed(flat, values=True)
    tapes = _count_tapes(needed)
    room = max(_ROOM // (8 * tapes * members), 1) if tapes else 0
    run = _Evaluator(needed, values, members, room, {})
    run.nodes(run.needed.outermost)
    found = []
    for out, t in zip(outputs, types, strict=True):
        rows = run.values[out] if isinstance(out, Node) else jnp.stack([run.typed(x, t) for x in out])
        for full in run.full:
            rows = jnp.where(full, jnp.asarray(float("nan") if is_float(t) else 0, t), rows)
        found.append(jnp.broadcast_to(rows, (rows.shape[0], members)))
    return found


def _count_tapes(needed: Needed) -> int:
    """How many growing arrays there are, those of sub-programs once for each call."""
    calls = [x.data.needed(needed.results(x), values=True) for x in needed.nodes if x.op == "call"]
    return sum(x.op in ("tape", "zeros_like") for x in needed.nodes) + sum(map(_count_tapes, calls))


@final
class _Evaluator:
    """Computes nodes.

    - `room`: how many entries a growing array has.
    - `full`: which members have needed more, if there are such arrays.
    - `functions`: sub-programs as functions of JAX, which traces each once.
    """

    def __init__(
        self,
        needed: Needed,
        values: dict[Node, Array],
        members: int,
        room: int,
        functions: dict[Any, Any],
    ):
        self.needed, self.values, self.members, self.functions = needed, values, members, functions
        self.room, self.full = room, [jnp.zeros((members,), bool)] if room else []
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
        if op in ("tape", "zeros_like"):
            return jnp.zeros((self.room, self.members), jax.dtypes.canonicalize_dtype(t))
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
        if op == "store" and node.size == GROWING:
            place = jnp.broadcast_to(self.typed(args[1], "int64"), (self.members,))
            stored = jnp.broadcast_to(self.mask, (self.members,))
            self.full = [x | (stored & (place >= self.room)) for x in self.full]
            place = jnp.where(stored, place, self.room)  # beyond the end nothing is stored
            array = self.values[args[0]]
            return array.at[place, jnp.arange(self.members)].set(self.typed(args[2], t), mode="drop")
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
        if p.size is None:
            return jnp.broadcast_to(value, (self.members,))
        return jnp.broadcast_to(value, (self.room if p.size == GROWING else p.size, self.members))

    def _loop(self, node: Node) -> None:
        body, live = node.data, self.needed.carried(node)
        params, mine = [body.region.params[k] for k in live], self.needed.of(body.region)
        asked, around, outer = self.needed.asked(node), dict(self.values), self.mask

        def active(state: Sequence[Array]) -> Array:
            self.values, self.full = around | dict(zip(params, state, strict=False)), state[len(params) :]
            self.nodes([x for x in mine if x in asked])
            return jnp.broadcast_to(self.typed(body.condition, "bool") & outer, (self.members,))

        def advance(state: Sequence[Array]) -> list[Array]:
            go = active(state)
            self.mask = go
            self.nodes([x for x in mine if x not in asked])
            new = [self._carried(body.results[k], p) for k, p in zip(live, params, strict=True)]
            new, self.mask = [*new, *self.full], outer
            grows = [p.size == GROWING for p in params] + [False] * len(self.full)
            # What grows is stored to where members go on, and a choice would copy all of it.
            return [x if g else jnp.where(go, x, y) for x, y, g in zip(new, state, grows, strict=True)]

        first = [self._carried(node.args[k], p) for k, p in zip(live, params, strict=True)]
        last = lax.while_loop(lambda state: jnp.any(active(state)), advance, [*first, *self.full])
        self.values, self.full = around, last[len(live) :]
        place = dict(zip(live, last, strict=False))
        self.values.update({out: place[out.data] for out in self.needed.outputs.get(node, ())})

    def _call(self, node: Node) -> None:
        callee, results = node.data, self.needed.results(node)
        params = callee.region.params
        given = callee.given(results, values=True)
        if (callee, results) not in self.functions:

            def compute(mask: Any, full: list[Array], *args: Array) -> tuple[list[Array], list[Array]]:
                values = {params[i]: x for i, x in zip(given, args, strict=True)}
                needed = callee.needed(results, values=True)
                run = _Evaluator(needed, values, self.members, self.room, self.functions)
                run.mask, run.full = mask, full
                run.nodes(run.needed.outermost)
                return [run.values[callee.results[k]] for k in results], run.full

            self.functions[callee, results] = jax.jit(compute)
        args = [self.typed(node.args[i], params[i].type) for i in given]
        values, self.full = self.functions[callee, results](self.mask, self.full, *args)
        found = dict(zip(results, values, strict=True))
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
            self.nodes(self.needed.of(region))  # one after the other, so `full` of both
            sides.append([self._carried(results[x.data], x) for x in outs])
        self.values, self.mask = around, outer
        self.values.update({x: jnp.where(which, a, b) for x, a, b in zip(outs, *sides, strict=True)})
