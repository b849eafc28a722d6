"""Cotangents of whole runs: machine code that XLA calls."""

import functools
from typing import final

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ._foreign import Code, kind_for, registered
from ._program import Program
from ._run_backward import Backward
from ._run_layout import Control, Method, MotionPrograms, RunLayout
from ._runs import runs_p, sizes
from ._scalars import TranslationError

_MOST_KEPT = 2**28  # bytes of the steps of one vector of runs: times alone take 16 a step and lane


def _pullback(program: Program, parameters: int, size: int) -> Program:
    """By parameters, q and v, of a program of these and more, of whose outputs the first are a state."""
    first = 1 if parameters else 0
    return program.pullback((*range(first), first + 1, first + 2), size)


@final
class Pullback:
    """Cotangents of runs, by the steps taken.

    **Arguments:**

    - `motion`, `method`, `control`: as of the `Integration`.
    """

    def __init__(self, motion: MotionPrograms, method: Method, control: Control):
        self.dtype, self._parts = motion.field.dtype, (motion, method, control)
        self._written = functools.cache(self._written_for)

    @functools.cached_property
    def _numbers(self) -> tuple[int, int]:
        """How many parameters the field and the projection have."""
        return RunLayout(*self._parts, kind_for(self.dtype, 1)).numbers[:2]

    @functools.cached_property
    def _programs(self) -> tuple[Program, Program | None]:
        motion, (own, theirs) = self._parts[0], self._numbers
        field = _pullback(motion.field, own, motion.size)
        return field, motion.projection and _pullback(motion.projection, theirs, motion.size)

    @functools.cached_property
    def exists(self) -> bool:
        """Whether LLVM can compile it, and what it keeps of a run is not too much."""
        kind = kind_for(self.dtype, 64)
        try:
            _, backward = self._made(kind.width)
        except TranslationError:
            return False
        few = backward.tape.size * kind.width * kind.bytes <= _MOST_KEPT
        return few and all(x.has_machine_code for x in self._programs if x is not None)

    def _made(self, width: int) -> tuple[RunLayout, Backward]:
        layout = RunLayout(*self._parts, kind_for(self.dtype, width))
        return layout, Backward(layout, *self._programs, self._parts[2].most)

    def _written_for(self, width: int) -> tuple[str, int, int]:
        """The text for so many lanes, and how many numbers it works on and keeps."""
        layout, backward = self._made(width)
        return backward.text(), layout.rows.size * width, backward.tape.size * width

    def shapes(self, runs: int, saves: int) -> list[tuple[int, ...]]:
        """Those of the cotangents."""
        return [(runs, count) for count in (*self._numbers, self._parts[0].size)]

    def __call__(self, *operands: Array) -> list[Array]:
        """Cotangents of the parameters of the field and of the projection, and of the states at the start (runs, count).

        **Arguments:**

        - `operands`: those of the integration, and the cotangents of the saved states (runs, saves n) and of the states
          at the end (runs, n).
        """
        return runs_p.bind(*operands, program=self)

    def called(self, *operands: Array) -> list[Array]:
        """The call of the foreign function.

        **Arguments:** as of a call.
        """
        runs, saves = sizes(operands)
        text, rows, kept = self._written(kind_for(self.dtype, runs).width)
        *given, saved, end = operands
        saved, end = (jnp.broadcast_to(x, (runs, x.shape[1])) for x in (saved, end))
        name = registered(lambda: Code(text), Backward.call(), len(operands), 5, "pullback")
        shapes = [*self.shapes(runs, saves), (rows,), (kept,)]
        found = jax.ffi.ffi_call(name, [jax.ShapeDtypeStruct(x, self.dtype) for x in shapes])(
            *given, saved, end
        )
        return list(found[:3])
