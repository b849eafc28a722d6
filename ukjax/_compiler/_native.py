"""Scalar programs as machine code: foreign functions of XLA on a CPU, and functions that Python itself calls."""

import contextlib
import contextvars
import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, final

import jax
import numpy as np
from jaxtyping import Array

from .._misc._garbage import collector_paused
from ._foreign import AT_ONCE, Code, compiled, dimension, kind_for, llvm, registered, vector_bytes, version
from ._gpu._call import kernels_run
from ._kernel_code import Operand, rows_of, text
from ._machine_code import Kind, functions
from ._registers import ProgramParts
from ._routine import Again

_leaves: contextvars.ContextVar[bool] = contextvars.ContextVar("leaves", default=False)


@contextlib.contextmanager
def to_leave_process() -> Iterator[None]:
    """What is traced within is to run where this process and its machine code are not."""
    token = _leaves.set(True)
    try:
        yield
    finally:
        _leaves.reset(token)


def stays_here() -> bool:
    """Whether what is traced now is to run in this process."""
    return not _leaves.get()


def machine_code_runs() -> bool:
    """Whether machine code, or a kernel, runs on the device that JAX uses here by default."""
    device: Any = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    platform = getattr(device, "platform", device) or jax.default_backend()
    return platform == "cpu" or kernels_run()


def machine_code_is_wanted() -> bool:
    """Whether what is traced now may be machine code."""
    return stays_here() and machine_code_runs() and not looks_for_nans()


def looks_for_nans() -> bool:
    """Whether JAX is to stop where a NaN is made: it sees operations on arrays, and nothing of machine code."""
    return jax.config.jax_debug_nans  # pyright: ignore[reportAttributeAccessIssue]


def compiler_is_here() -> bool:
    """Whether machine code can be made here, and be called by XLA."""
    return llvm() is not None and version() is not None


def can_compile(nodes: Sequence[Any], dtype: Any) -> bool:
    """Whether expressions can be compiled here.

    **Arguments:**

    - `nodes`: their inputs and operations.
    - `dtype`: of their inputs.
    """
    if not compiler_is_here() or np.dtype(dtype).name not in ("float64", "float32"):
        return False
    called = functions(nodes, Kind(np.dtype(dtype).name, 1))
    return called is not None and all(llvm().address_of_symbol(name) for name in called)


def run(
    parts: ProgramParts, operands: Sequence[Array], outputs: int, members: int, again: Again | None = None
) -> Array:
    """The outputs (outputs, members) of a program.

    **Arguments:**

    - `parts`: of the program.
    - `operands`: its inputs: arrays (count, members), or (count,) of those that are the same for all.
    - `outputs`: how many there are.
    - `members`: how many.
    - `again`: how it is run again, if it is.
    """
    dtype = operands[0].dtype
    kind = kind_for(dtype, members)
    code = text(parts, [Operand(len(x), x.ndim == 1) for x in operands], kind, again)
    inputs = ", ".join(f"ptr %in{i}" for i in range(len(operands)))
    call = f"  call void @compute(ptr %out1, ptr %out0, i64 %members, {inputs})"
    name = registered(lambda: Code(code), f"{dimension('out0', 1, 'members')}\n{call}", len(operands), 2)
    shapes = [
        jax.ShapeDtypeStruct(shape, dtype) for shape in ((outputs, members), (rows_of(parts) * kind.width,))
    ]
    return jax.ffi.ffi_call(name, shapes)(*operands)[0]


@final
class HostFunction:
    """A program as machine code that Python itself calls, on NumPy arrays: for the states before and after a run.

    **Arguments:**

    - `parts`: of the program.
    - `inputs`, `outputs`: how many there are.
    - `dtype`: of all.
    - `again`: how it is run again, if it is.
    """

    @collector_paused()
    def __init__(
        self, parts: ProgramParts, inputs: int, outputs: int, dtype: Any, again: Again | None = None
    ):
        self._kind, self._rows = kind_for(dtype, vector_bytes()), inputs + outputs
        self._dtype, self._registers = np.dtype(dtype), rows_of(parts) * self._kind.width
        code = text(parts, [Operand(inputs, shared=False)], self._kind, again)
        self._engine = compiled(Code(code), AT_ONCE)  # which owns the code
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, ctypes.c_int64, ctypes.c_void_p)
        self._compute = kind(self._engine.get_function_address("compute"))

    def __call__(self, *operands: np.ndarray) -> np.ndarray:
        """The outputs (outputs, members).

        **Arguments:**

        - `operands`: inputs (count, members), or (count, 1) where all members have the same.
        """
        members = max(x.shape[1] for x in operands)
        whole = max(members, self._kind.width)  # a vector at least: the last members are repeated
        # Inputs, outputs and registers in one array: to ask for the place of another takes as long as to fill it.
        numbers = np.empty(self._rows * whole + self._registers, self._dtype)
        columns, end = numbers[: self._rows * whole].reshape(-1, whole), 0
        for x in operands:
            start, end = end, end + len(x)
            columns[start:end, :members] = x
        if whole > members:
            columns[:end, members:] = columns[:end, members - 1 : members]
        first, row = numbers.ctypes.data, whole * numbers.itemsize
        self._compute(first + self._rows * row, first + end * row, whole, first)
        return columns[end:, :members]
