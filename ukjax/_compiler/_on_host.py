"""Scalar programs by NumPy, for states before and after a run: nothing is compiled for what is asked a few times.

Where no function of C is called, NumPy gives the very bits of machine code: both round each operation once, and sine and
cosine are the same polynomials.
"""

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from ._structured._ir import OPERATIONS, Needed, Node, Operand
from ._trigonometry import cosine, sine

_MOST_NUMBERS = 2**23  # held at a time: 64 MB in float64
_PASSED_ON = frozenset(("rule", "attached", "refuse", "stop_gradient"))


@final
class OnHost:
    """Nodes evaluated by NumPy, for one or more members.

    - `exact`: whether machine code gives the same bits.
    """

    @staticmethod
    def takes(needed: Needed, t: str) -> bool:
        """Whether nodes are operations on numbers of a type and on truths alone."""
        plain = (*_PASSED_ON, "parameter", "convert", *OPERATIONS)
        return all(x.op in plain and x.type in (t, "bool") and x.size is None for x in needed.nodes)

    def __init__(self, needed: Needed, outputs: Sequence[Operand], params: Sequence[Node], dtype: Any):
        nodes = [x for x in needed.nodes if x.op != "parameter"]
        self.exact = not any(x.op in OPERATIONS and OPERATIONS[x.op].llvm.endswith("()") for x in nodes)
        self._dtype, self._count, self._size = dtype, len(params), len(params) + len(nodes)
        places: dict[Any, int] = {x: i for i, x in enumerate((*params, *nodes))}
        self._constants: list[Any] = []

        def place(x: Operand) -> int:
            """Where a value stands: inputs first, then one operation after the other, then constants."""
            if isinstance(x, Node):
                return places[x]
            self._constants.append(x)
            return self._size + len(self._constants) - 1

        args = lambda x: x.args[:1] if x.op in _PASSED_ON else x.args
        self._steps = [(_operation(x), [place(y) for y in args(x)]) for x in nodes]
        self._outputs = [place(x) for x in outputs]

    def __call__(self, *operands: np.ndarray) -> np.ndarray:
        """The outputs (outputs, members), of inputs (count, members), or (count, 1) where all members have the same."""
        members = np.broadcast_shapes(*(x.shape[1:] for x in operands))[0]
        rows = [row for x in operands for row in x.astype(self._dtype, copy=False)]
        found = np.empty((len(self._outputs), members), self._dtype)
        block = max(1, _MOST_NUMBERS // max(self._size, 1))
        for start in range(0, members, block):
            here = slice(start, start + block)
            values: list[Any] = [row if row.size == 1 else row[here] for row in rows]
            values += [None] * len(self._steps) + self._constants
            with np.errstate(all="ignore"):
                for i, (compute, places) in enumerate(self._steps, self._count):
                    values[i] = compute(*[values[k] for k in places])
            for row, place in zip(found, self._outputs, strict=True):
                row[here] = values[place]
        return found


def _operation(x: Node) -> Callable[..., Any]:
    if x.op in _PASSED_ON:
        return lambda value: value
    if x.op == "convert":
        return lambda value: np.asarray(value).astype(x.type)
    return {"sin": sine, "cos": cosine}.get(x.op, OPERATIONS[x.op].numpy)
