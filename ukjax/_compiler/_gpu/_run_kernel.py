"""Whole runs as kernels: one thread is one run."""

import functools
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._machine_code import Kind
from .._run_layout import COUNTED, OPERANDS, Control, Method, MotionPrograms
from ._call import kernels_run, launched
from ._functions import is_known
from ._ptx import ptx, writes_ptx
from ._texts import KernelText, gpu_text
from ._thread import Thread


@final
class RunKernel:
    """Runs of one motion by one method under one control, for GPUs."""

    def __init__(self, motion: MotionPrograms, method: Method, control: Control):
        self._size, self._dtype = motion.size, np.dtype(motion.field.dtype).name
        self._parts = motion, method, control

    @functools.cached_property
    def _thread(self) -> Thread:
        return Thread(*self._parts, Kind(self._dtype, 1))

    @functools.cached_property
    def exists(self) -> bool:
        """Whether LLVM can write it: with functions that are known here."""
        return writes_ptx() and all(map(is_known, self._thread.called))

    @property
    def text(self) -> KernelText:
        """What one thread computes."""
        return self._thread.text

    @functools.cached_property
    def ptx(self) -> str:
        """The same for a GPU."""
        return ptx(gpu_text(self.text))

    def runs_here(self) -> bool:
        """Whether it is there, and a GPU of this process that takes it."""
        return self.exists and kernels_run()

    def __call__(self, *operands: Array) -> tuple[Array, Array]:
        """The saved states (runs, saves, n) and the ends (runs, 5 + n).

        **Arguments:**

        - `operands`: arrays (runs, count), or (1, count) where all runs have the same, as `OPERANDS` lists them.
        """
        runs, saves = max(x.shape[0] for x in operands), operands[OPERANDS.index("times")].shape[1]
        shapes = (saves, self._size, runs), (len(COUNTED) + self._size, runs)
        found = [jax.ShapeDtypeStruct(x, self._dtype) for x in shapes]
        saved, ends = launched(self.ptx, [x.T for x in operands], (runs, saves), found)
        return jnp.moveaxis(saved, -1, 0), ends.T
