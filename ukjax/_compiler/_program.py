"""Expressions of numbered inputs as one operation of JAX: vectors of numbers in, a vector of numbers out."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._expressions import CARRIERS, Expression, reachable
from ._on_host import OnHost
from ._structured import _expressed, _program
from ._structured._primitive import scalars_p


class Again(NamedTuple):
    """How a program is run again: while one output is above a half, with others in place of its last operand.

    That operand is zero at first, and is none that the program is called with.

    - `flag`: the output that says so.
    - `first`, `size`: which outputs take the operand's place, and how many.
    """

    flag: int
    first: int
    size: int


@final
class Program:
    """Expressions of numbered inputs, all of one floating-point type.

    - `outputs`: the expressions.
    - `counts`: how many inputs each operand holds; those without any are left out.
    - `dtype`: of inputs and outputs.
    - `again`: how it is run again, if it is. Its derivative is then that of the last time.
    """

    def __init__(
        self, outputs: Sequence[Expression], counts: Sequence[int], dtype: Any, again: Again | None = None
    ):
        self.outputs, self.dtype = tuple(outputs), np.dtype(dtype)
        self.counts = tuple(x for x in counts if x)
        self.again = again if again and again.size else None

    @functools.cached_property
    def size(self) -> int:
        """The number of operations."""
        return sum(x.op not in ("input", *CARRIERS) for x in reachable(self.outputs, values=True))

    @functools.cached_property
    def scalars(self) -> _program.Program:
        """What computes it."""
        return _expressed.program_of(self)

    @functools.cached_property
    def by_numpy(self) -> OnHost:
        """As `on_host`, one operation of NumPy after the other: what is asked once or a few times is not compiled.

        It is not run again.
        """
        return OnHost(self.outputs, sum(self.counts), self.dtype)

    def on_host(self, *operands: np.ndarray) -> np.ndarray:
        """The outputs (outputs, members) on NumPy arrays, by machine code."""
        members = np.broadcast_shapes(*(x.shape[1:] for x in operands))[0]
        if not self.outputs:
            return np.zeros((0, members), self.dtype)
        columns = np.concatenate([np.broadcast_to(x, (len(x), members)) for x in operands])
        ends = itertools.accumulate(n for _, n in self.scalars.operands)
        return self.scalars.of_members(np.split(columns, [*ends][:-1]))[0]

    def __call__(self, *operands: Array) -> Array:
        """The values of the outputs."""
        if not self.outputs:
            return jnp.zeros(0, self.dtype)
        return scalars_p.bind(*(x for x in operands if x.size), program=self.scalars)[0]
