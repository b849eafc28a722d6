"""Scalar programs as machine code: foreign functions of XLA on a CPU, and functions that Python itself calls."""

import contextlib
import contextvars
import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, final

import jax
import numpy as np
from jaxtyping import Array

from ._foreign import AT_ONCE, compiled, dimension, kind_for, llvm, registered, vector_bytes, version
from ._kernel_code import Operand, text
from ._machine_code import Kind, functions
from ._registers import Parts

_leaves: contextvars.ContextVar[bool] = contextvars.ContextVar("leaves", default=False)


@contextlib.contextmanager
def to_leave_process() -> Iterator[None]:
    """What is traced within is to run where this process and its machine code are not."""
    token = _leaves.set(True)
    try:
        yield
    finally:
        _leaves.reset(token)


def machine_code_is_wanted() -> bool:
    """Whether what is traced now may be machine code."""
    return jax.default_backend() == "cpu" and not _leaves.get()


def can_compile(outputs: Sequence[Any], dtype: Any) -> bool:
    """Whether expressions can be compiled here.

    **Arguments:**

    - `outputs`: the expressions.
    - `dtype`: of their inputs.
    """
    if llvm() is None or version() is None or np.dtype(dtype).name not in ("float64", "float32"):
        return False
    called = functions(outputs, Kind(np.dtype(dtype).name, 1))
    return called is not None and all(llvm().address_of_symbol(name) for name in called)


def run(parts: Parts, operands: Sequence[Array], outputs: int, members: int) -> Array:
    """The outputs (outputs, members) of a program.

    **Arguments:**

    - `parts`: of the program.
    - `operands`: its inputs: arrays (count, members), or (count,) of those that are the same for all.
    - `outputs`: how many there are.
    - `members`: how many.
    """
    dtype = operands[0].dtype
    kind = kind_for(dtype, members)
    code = text(parts, [Operand(len(x), x.ndim == 1) for x in operands], kind)
    inputs = ", ".join(f"ptr %in{i}" for i in range(len(operands)))
    call = f"  call void @compute(ptr %out1, ptr %out0, i64 %members, {inputs})"
    name = registered(code, f"{dimension('out0', 1, 'members')}\n{call}", len(operands), 2)
    shapes = [
        jax.ShapeDtypeStruct(shape, dtype) for shape in ((outputs, members), (parts.size * kind.width,))
    ]
    return jax.ffi.ffi_call(name, shapes)(*operands)[0]


@final
class HostFunction:
    """A program as machine code that Python itself calls, on NumPy arrays: for the states before and after a run.

    **Arguments:**

    - `parts`: of the program.
    - `counts`: how many inputs each operand holds.
    - `outputs`: how many there are.
    - `dtype`: of all.
    """

    def __init__(self, parts: Parts, counts: Sequence[int], outputs: int, dtype: Any):
        self._kind, self._size, self._outputs = kind_for(dtype, vector_bytes()), parts.size, outputs
        self._dtype = np.dtype(dtype)
        code = text(parts, [Operand(count, shared=False) for count in counts], self._kind)
        self._engine = compiled(code, AT_ONCE)  # which owns the code
        pointers = [ctypes.c_void_p] * (2 + len(counts))
        kind = ctypes.CFUNCTYPE(None, *pointers[:2], ctypes.c_int64, *pointers[2:])
        self._compute = kind(self._engine.get_function_address("compute"))

    def __call__(self, *operands: np.ndarray) -> np.ndarray:
        """The outputs (outputs, members).

        **Arguments:**

        - `operands`: inputs (count, members), or (count, 1) where all members have the same.
        """
        members = np.broadcast_shapes(*(x.shape[1:] for x in operands))[0]
        whole = max(members, self._kind.width)  # a vector at least: the last members are repeated
        given = [self._filled(x, whole) for x in operands if len(x)]
        found = np.empty((self._outputs, whole), self._dtype)
        registers = np.empty(self._size * self._kind.width, self._dtype)
        places = [x.ctypes.data for x in given]
        self._compute(registers.ctypes.data, found.ctypes.data, whole, *places)
        return found[:, :members]

    def _filled(self, x: np.ndarray, members: int) -> np.ndarray:
        """An operand with so many members, each number's side by side."""
        if x.shape[1] == members:
            return np.ascontiguousarray(x, self._dtype)
        filled = np.empty((len(x), members), self._dtype)
        filled[:, : x.shape[1]] = x
        filled[:, x.shape[1] :] = x[:, -1:]
        return filled
