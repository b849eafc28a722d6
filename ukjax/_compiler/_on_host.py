"""Scalar programs by NumPy, for the states before and after a run, where LLVM cannot compile them."""

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from ._expressions import CARRIERS, Expression, Node, reachable
from ._structured._ir import OPERATIONS

_MOST_NUMBERS = 2**23  # held at a time: 64 MB in float64
_COMPOSED: dict[str, Callable[..., Any]] = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
}


def operation(op: str) -> Callable[..., Any]:
    """How NumPy computes an operation."""
    return _COMPOSED.get(op) or OPERATIONS[op].numpy


@final
class OnHost:
    """Expressions evaluated by NumPy, for one or more members."""

    def __init__(self, outputs: Sequence[Expression], count: int, dtype: Any):
        self._dtype, self._count = dtype, count
        nodes = [x for x in reachable(outputs, values=True) if x.op not in ("input", *CARRIERS)]
        self._size = count + len(nodes)
        places: dict[Any, int] = {x: count + i for i, x in enumerate(nodes)}
        constants: list[Any] = []

        def place(x: Expression) -> int:
            """Where a value stands: inputs first, then one operation after the other, then constants."""
            while isinstance(x, Node) and x.op in CARRIERS:
                x = x.args[0]
            if isinstance(x, Node):
                return x.args[0] if x.op == "input" else places[x]
            constants.append(x)
            return self._size + len(constants) - 1

        self._steps = [(operation(x.op), [place(y) for y in x.args]) for x in nodes]
        self._outputs = [place(x) for x in outputs]
        self._constants = constants

    def __call__(self, *operands: np.ndarray) -> np.ndarray:
        """The outputs (outputs, members)."""
        members = np.broadcast_shapes(*(x.shape[1:] for x in operands))[0]
        rows = [row for x in operands for row in x.astype(self._dtype, copy=False)]
        found = np.empty((len(self._outputs), members), self._dtype)
        block = max(1, _MOST_NUMBERS // self._size)
        for start in range(0, members, block):
            here = slice(start, start + block)
            values = [row if row.size == 1 else row[here] for row in rows]
            values += [None] * len(self._steps) + self._constants
            with np.errstate(all="ignore"):
                for i, (compute, places) in enumerate(self._steps, self._count):
                    values[i] = compute(*[values[k] for k in places])
            for row, place in zip(found, self._outputs, strict=True):
                row[here] = values[place]
        return found
