"""Programs run again, from zeros on, for as long as that brings positions nearer: one operation of JAX."""

import functools
from typing import final

import numpy as np
from jaxtyping import Array

from ._gpu._kernel import GpuKernel
from ._gpu._program_thread import ProgramThread
from ._native import HostFunction
from ._primitive import program_p
from ._program import Program
from ._registers import ProgramParts
from ._routine import MOST_CALLS, Again


@final
class Repeated:
    """A program that some of its outputs are given to again, as its last operand.

    It has no derivative.

    - `once`: the program.
    - `again`: how it is run again; None where its last operand holds nothing.
    - `last`: the outputs that take the place of that operand.
    - `outputs`, `dtype`: as those of the program.

    **Arguments:**

    - `once`, `again`: as above.
    """

    def __init__(self, once: Program, again: Again):
        self.once, self.outputs, self.dtype = once, once.outputs, once.dtype
        self.again, self._flag = again if again.size else None, again.flag
        self.last = slice(again.first, again.first + again.size)

    @property
    def has_machine_code(self) -> bool:
        """Whether LLVM can compile it by itself, on a CPU."""
        return self.once.has_machine_code

    @property
    def native(self) -> ProgramParts:
        """The parts it is compiled in as machine code."""
        return self.once.native

    @property
    def pieces(self) -> ProgramParts | None:
        """The program in pieces, if it is too long for XLA to compile as one."""
        return self.once.pieces

    @functools.cached_property
    def kernel(self) -> GpuKernel:
        """The program for GPUs."""
        return GpuKernel(ProgramThread(self.outputs, self.once.counts, self.dtype, self.again))

    def __call__(self, *operands: Array) -> Array:
        """The values of the outputs (outputs, *members).

        **Arguments:**

        - `operands`: those of the program, but for the last.
        """
        return program_p.bind(*(x for x in operands if x.shape[0]), program=self)

    @functools.cached_property
    def _by_machine_code(self) -> HostFunction:
        inputs = sum(self.once.counts) - (self.last.stop - self.last.start)
        return HostFunction(self.native, inputs, len(self.outputs), self.dtype, self.again)

    def on_host(self, *operands: np.ndarray) -> np.ndarray:
        """The same on NumPy arrays.

        **Arguments:** as of a call.
        """
        if self.has_machine_code:
            return self._by_machine_code(*operands)
        last = np.zeros((self.last.stop - self.last.start, max(x.shape[1] for x in operands)))
        for _ in range(MOST_CALLS - 1):
            found = self.once.on_host(*operands, last)
            goes_on = found[self._flag] > 0.5
            if not goes_on.any():
                return found
            last = np.where(goes_on, found[self.last], last)
        return self.once.on_host(*operands, last)
