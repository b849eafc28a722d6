"""Scalar programs by NumPy, for the states before and after a run, where LLVM cannot compile them."""

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from ._expressions import OPERATIONS, Expression, Node, reachable

_MOST_NUMBERS = 2**23  # held at a time: 64 MB in float64

_NAMES = {
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "neg": "negative",
    "max": "maximum",
    "min": "minimum",
    "rem": "fmod",
    "pow": "power",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
    "abs": "absolute",
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "atan2": "arctan2",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "is_finite": "isfinite",
    "and": "logical_and",
    "or": "logical_or",
    "xor": "logical_xor",
    "not": "logical_not",
    "select": "where",
}
_OWN: dict[str, Callable[..., Any]] = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "stop_gradient": lambda x: x,
    "attached": lambda x, carrier: x,
}


def operation(op: str) -> Callable[..., Any]:
    """How NumPy computes an operation; what it does not know (the error function), JAX does.

    **Arguments:**

    - `op`: a key of `OPERATIONS`.
    """
    own = _OWN.get(op) or getattr(np, _NAMES.get(op, op), None)
    return own or (lambda *x: np.asarray(OPERATIONS[op](*x)))


@final
class OnHost:
    """Expressions evaluated by NumPy, for one or more members."""

    def __init__(self, outputs: Sequence[Expression], count: int, dtype: Any):
        self._dtype, self._count = dtype, count
        nodes = [x for x in reachable(outputs) if x.op != "input"]
        self._size = count + len(nodes)
        places: dict[Any, int] = {x: count + i for i, x in enumerate(nodes)}
        constants: list[Any] = []

        def place(x: Expression) -> int:
            """Where a value stands: inputs first, then one operation after the other, then constants."""
            if isinstance(x, Node):
                return x.args[0] if x.op == "input" else places[x]
            constants.append(x)
            return self._size + len(constants) - 1

        self._steps = [(operation(x.op), [place(y) for y in x.args]) for x in nodes]
        self._outputs = [place(x) for x in outputs]
        self._constants = constants

    def __call__(self, *operands: np.ndarray) -> np.ndarray:
        """The outputs (outputs, members).

        **Arguments:**

        - `operands`: inputs (count, members), or (count, 1) where all members have the same.
        """
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
