"""Pytrees of arrays of expressions, and what computes them."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._expressions import Program
from ._scalars import Builder


@final
class ExpressionPytree:
    """A pytree of arrays of expressions of a builder.

    - `arrays`: the pytree.
    - `counts`: how many inputs each operand holds.
    """

    def __init__(self, build: Builder, arrays: Any, counts: Sequence[int]):
        self.build, self.arrays, self.counts = build, arrays, counts

    @functools.cached_property
    def program(self) -> Program:
        """What computes all entries."""
        leaves = jax.tree.leaves(self.arrays)
        return Program(self.build, [x for leaf in leaves for x in leaf.reshape(-1)], self.counts)

    @functools.cached_property
    def layout(self) -> tuple[Any, list[tuple[int, int, tuple[int, ...]]]]:
        """The pytree's structure, and of each array where its entries begin and end, and its shape."""
        leaves, tree = jax.tree.flatten(self.arrays)
        ends = itertools.accumulate(x.size for x in leaves)
        return tree, [(end - x.size, end, x.shape) for end, x in zip(ends, leaves, strict=True)]

    @property
    def starts(self) -> tuple[int, ...]:
        """Where the entries of each array begin."""
        return tuple(start for start, _, _ in self.layout[1])

    def _parted(self, found: Any) -> Any:
        """The pytree, given its entries along the first axis; others come first in each array."""
        (tree, arrays), others = self.layout, found.shape[1:]
        return jax.tree.unflatten(tree, [found[i:j].T.reshape(*others, *shape) for i, j, shape in arrays])

    def on_host(self, *operands: np.ndarray) -> Any:
        """The pytree on NumPy arrays, with the members along the first axis of each array."""
        return self._parted(self.program.on_host(*operands))

    def by_numpy(self, *operands: np.ndarray) -> Any:
        """As `on_host`, by `Program.by_numpy`."""
        return self._parted(self.program.by_numpy(*operands))

    def __call__(self, *operands: Array) -> Any:
        """The pytree."""
        return self._parted(run(self.program, *operands))


def run(program: Program, *operands: Array) -> Array:
    """The outputs of a program of all numbers in some arrays, as a vector."""
    return program(*(jnp.reshape(x, -1).astype(program.dtype) for x in operands))
