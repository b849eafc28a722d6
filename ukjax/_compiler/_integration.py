"""Whole runs: machine code that XLA calls, or Python itself on NumPy arrays."""

import ctypes
import functools
import itertools
import math
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._misc._garbage import collector_paused
from ._foreign import Code, compiled, kind_for, registered
from ._gpu._kernel import GpuKernel
from ._gpu._thread import Thread
from ._machine_code import Kind
from ._pullback import Pullback
from ._pushforward import carrying_change
from ._run_layout import COUNTED, OPERANDS, Control, Method, MotionPrograms, RunLayout
from ._runs import runs_p, sizes
from ._whole_run import WholeRun


@final
class Integration:
    """Runs of one motion by one method under one control."""

    def __init__(self, motion: MotionPrograms, method: Method, control: Control):
        self.size, self.dtype = motion.size, motion.field.dtype
        self._parts = motion, method, control
        self._written = functools.cache(self._written_for)
        self._on_host = functools.cache(self._compiled_for)

    @property
    def has_machine_code(self) -> bool:
        """Whether LLVM can compile all of it, on a CPU."""
        motion, method, control = self._parts
        programs = motion.field, motion.projection, method.weights, control.step
        return all(x.has_machine_code for x in programs if x is not None)

    @functools.cached_property
    def kernel(self) -> GpuKernel:
        """The same for GPUs."""
        return GpuKernel(Thread(*self._parts, Kind(np.dtype(self.dtype).name, 1)))

    @functools.cached_property
    def pullback(self) -> Pullback:
        """What gives cotangents."""
        return Pullback(*self._parts)

    @functools.cached_property
    def pushforward(self) -> "Integration":
        """The same of a state that carries its change along."""
        motion, method, control = self._parts
        motion, control = carrying_change(motion, control)
        return Integration(motion, method, control)

    def _written_for(self, width: int, settled: bool) -> tuple[str, int]:
        """The text for so many lanes, and how many numbers it works on."""
        layout = RunLayout(*self._parts, kind_for(self.dtype, width))
        return WholeRun(layout, settled).text(), layout.rows.size * width

    @collector_paused()
    def _compiled_for(self, width: int) -> tuple[Any, Any]:
        engine = compiled(Code(self._written(width, True)[0]))
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        kinds = [pointer] * 3 + [integer] * 2 + [pointer, integer] * len(OPERANDS)
        return engine, ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address("integrate"))

    def shapes(self, runs: int, saves: int) -> list[tuple[int, ...]]:
        """Those of what runs give: saved states, and ends."""
        return [(runs, saves, self.size), (runs, len(COUNTED) + self.size)]

    def __call__(self, *operands: Array) -> tuple[Array, Array]:
        """The saved states (runs, saves, n), and the ends (runs, 5 + n): `COUNTED` and the state.

        **Arguments:**

        - `operands`: arrays (runs, count), or (1, count) where all runs have the same, as `OPERANDS` lists them.
        """
        saved, ends = runs_p.bind(*operands, program=self)
        return saved, ends

    def on_host(self, *operands: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same, at once, and all saved states are projected if steps are.

        **Arguments:** as of a call.
        """
        runs, saves = sizes(operands)
        width = kind_for(self.dtype, runs).width
        shapes = [(self._written(width, True)[1],), *self.shapes(runs, saves)]
        ends = list(itertools.accumulate([*map(math.prod, shapes), *(x.size for x in operands)]))
        # All in one array: to ask for the place of another takes as long as to fill it.
        numbers = np.empty(ends[-1], self.dtype)
        for x, end in zip(operands, ends[3:], strict=True):
            numbers[end - x.size : end] = x.reshape(-1)
        first = numbers.ctypes.data
        places = [first + numbers.itemsize * end for end in (0, *ends[:-1])]
        strides = [0 if len(x) == 1 else x.shape[1] for x in operands]
        _, integrate = self._on_host(width)
        integrate(*places[:3], runs, saves, *itertools.chain(*zip(places[3:], strides, strict=True)))
        saved, left = numbers[ends[0] : ends[1]], numbers[ends[1] : ends[2]]
        return saved.reshape(shapes[1]), left.reshape(shapes[2])

    def called(self, *operands: Array) -> tuple[Array, Array]:
        """The call of the foreign function.

        **Arguments:** as of a call.
        """
        runs, saves = sizes(operands)
        width = kind_for(self.dtype, runs).width
        text, numbers = self._written(width, False)
        name = registered(lambda: Code(text), WholeRun.call(), len(operands), 3, "integration")
        shapes = [jax.ShapeDtypeStruct(x, self.dtype) for x in (*self.shapes(runs, saves), (numbers,))]
        saved, ends, _ = jax.ffi.ffi_call(name, shapes)(*operands)
        return saved, ends

    def by_kernel(self, *operands: Array) -> tuple[Array, Array]:
        """The call of the kernel.

        **Arguments:** as of a call.
        """
        found = [jax.ShapeDtypeStruct((*x[1:], x[0]), self.dtype) for x in self.shapes(*sizes(operands))]
        saved, ends = self.kernel([x.T for x in operands], sizes(operands), found)
        return jnp.moveaxis(saved, -1, 0), ends.T
