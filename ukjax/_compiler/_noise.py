"""Rows that are zero but for rounding, told by the terms that cancel in them."""

import numpy as np

from .._misc._tolerances import ROW_NOISE
from ._scalars import Builder, Expression, is_zero
from ._structured._ir import Node
from ._vectors import dot


def _terms(x: Expression) -> list[Expression]:
    """The terms of a sum, one of anything else."""
    if isinstance(x, Node) and x.op == "neg":
        return _terms(x.args[0])
    return [z for y in x.args for z in _terms(y)] if isinstance(x, Node) and x.op in ("add", "sub") else [x]


def without_noise(build: Builder, A: np.ndarray, eps: float) -> np.ndarray:
    """Rows, of which those are zero in which all terms cancel, if all rows consist of sums only.

    What is rounding beside other rows, the rank rule leaves out. These may have none beside them: the unit norm of a
    quaternion moved by angular velocities, whose row is zero.
    """
    terms = [[_terms(x) for x in row if not is_zero(x)] for row in A]
    if not all(len(some) > 1 for row in terms for some in row):
        return A
    apply, out = build.apply, A.copy()
    for i, (row, each) in enumerate(zip(A, terms, strict=True)):
        sizes = [apply("square", build.total([apply("abs", x) for x in some])) for some in each]
        least = apply("mul", (ROW_NOISE * eps) ** 2, build.total(sizes))
        known = apply("gt", dot(build, row, row), least)
        out[i] = [x if is_zero(x) else apply("select", known, x, 0.0) for x in row]
    return out
