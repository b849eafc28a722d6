"""Scalar programs compiled by LLVM itself, as foreign functions of XLA on a CPU.

XLA calls such a function without Python. Its name says what it computes, so that programs XLA keeps on disk find it.
"""

import contextlib
import contextvars
import ctypes
import functools
import hashlib
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final

import jax
import numpy as np
from jaxtyping import Array

from ._kernel_code import Operand, text
from ._machine_code import Kind, functions
from ._registers import Parts

# XLA's interface is that of its `xla/ffi/api/c_api.h`. A call is a frame: at byte 8 its extensions, at 40 operands and
# behind them results, both with their own size first, and at 32 of them pointers to arrays; of an array at 24 its
# numbers, at 40 its dimensions. An extension of type 1 asks for metadata in place of a call: they are where its 24
# points to, and have at 24 the version, major and minor, and at 32 traits.
_HANDLER = """
define ptr @handler(ptr %frame) {{
  %extensions = getelementptr i8, ptr %frame, i64 8
  %extension = load ptr, ptr %extensions
  %alone = icmp eq ptr %extension, null
  br i1 %alone, label %run, label %asked
asked:
  %kinds = getelementptr i8, ptr %extension, i64 8
  %kind = load i32, ptr %kinds
  %about = icmp eq i32 %kind, 1
  br i1 %about, label %tell, label %run
tell:
  %places = getelementptr i8, ptr %extension, i64 24
  %metadata = load ptr, ptr %places
  %told = getelementptr i8, ptr %metadata, i64 24
  store <2 x i32> <i32 {major}, i32 {minor}>, ptr %told, align 4
  %traits = getelementptr i8, ptr %metadata, i64 32
  store i32 0, ptr %traits
  ret ptr null
run:
  %operands = getelementptr i8, ptr %frame, i64 40
  %size = load i64, ptr %operands
  %results = getelementptr i8, ptr %operands, i64 %size
  %operands.at = getelementptr i8, ptr %operands, i64 32
  %in = load ptr, ptr %operands.at
  %results.at = getelementptr i8, ptr %results, i64 32
  %out = load ptr, ptr %results.at
{arrays}
  %shapes = getelementptr i8, ptr %out0.array, i64 40
  %shape = load ptr, ptr %shapes
  %second = getelementptr i64, ptr %shape, i64 1
  %members = load i64, ptr %second
  call void @compute(ptr %out1, ptr %out0, i64 %members, {inputs})
  ret ptr null
}}
"""
_ARRAY = """  %{of}{i}.place = getelementptr ptr, ptr %{of}, i64 {i}
  %{of}{i}.array = load ptr, ptr %{of}{i}.place
  %{of}{i}.numbers = getelementptr i8, ptr %{of}{i}.array, i64 24
  %{of}{i} = load ptr, ptr %{of}{i}.numbers"""

# How hard LLVM's code generator tries. What a run calls thousands of times is worth it; what is called once before and
# after a run is compiled in a quarter of the time without. Both compute the same bits: nothing is reassociated.
_OPTIMIZED, _AT_ONCE = 2, 0

_lock = threading.Lock()
_leaves: contextvars.ContextVar[bool] = contextvars.ContextVar("leaves", default=False)
_made: dict[str, Any] = {}  # machine code by name: XLA may call it as long as the process lives


@functools.cache
def _llvm() -> Any:
    """llvmlite's binding to LLVM, ready to compile; None where it is not installed."""
    try:
        import llvmlite.binding as llvm
    except (ImportError, OSError):
        return None
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # Only with a first compiler does LLVM open the process it is in, and finds the functions of the C library.
    llvm.create_mcjit_compiler(
        llvm.parse_assembly(""), llvm.Target.from_default_triple().create_target_machine()
    )
    return llvm


@functools.cache
def _version() -> tuple[int, int] | None:
    """That of XLA's interface, if it is one known here."""
    try:
        header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    except OSError:
        return None
    major, minor = (
        int(x) for x in re.findall(r"^#define XLA_FFI_API_M(?:AJ|IN)OR (\d+)", header, re.MULTILINE)
    )
    return (major, minor) if major == 0 else None


@functools.cache
def _vector_bytes() -> int:
    """The size of a processor's vectors."""
    features = _llvm().get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx") else 16


def kind_for(dtype: Any, members: int) -> Kind:
    """The vectors for so many members: no longer than they are many."""
    longest = min(members, _vector_bytes() // np.dtype(dtype).itemsize)
    return Kind(np.dtype(dtype).name, 1 << longest.bit_length() - 1)


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
    if _llvm() is None or _version() is None or np.dtype(dtype).name not in ("float64", "float32"):
        return False
    called = functions(outputs, Kind(np.dtype(dtype).name, 1))
    return called is not None and all(_llvm().address_of_symbol(name) for name in called)


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
    name = _registered(text(parts, [Operand(len(x), x.ndim == 1) for x in operands], kind), len(operands))
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
        self._kind, self._size, self._outputs = kind_for(dtype, _vector_bytes()), parts.size, outputs
        self._dtype = np.dtype(dtype)
        code = text(parts, [Operand(count, shared=False) for count in counts], self._kind)
        self._engine = _compiled(code, _AT_ONCE)  # which owns the code
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


def _registered(code: str, operands: int) -> str:
    """The name of a foreign function of so many operands, given the text of `compute`."""
    name = "ukjax_" + hashlib.sha256(code.encode()).hexdigest()[:32]
    with _lock:
        if name not in _made:
            arrays = [("in", i) for i in range(operands)] + [("out", 0), ("out", 1)]
            major, minor = _version() or (0, 0)
            handler = _HANDLER.format(
                major=major,
                minor=minor,
                arrays="\n".join(_ARRAY.format(of=of, i=i) for of, i in arrays),
                inputs=", ".join(f"ptr %in{i}" for i in range(operands)),
            )
            engine = _compiled(code + handler, _OPTIMIZED)
            address = engine.get_function_address("handler")
            function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(function), platform="cpu")
            _made[name] = engine, function
    return name


def _compiled(code: str, optimization: int) -> Any:
    llvm = _llvm()
    wide = f'"prefer-vector-width"="{8 * _vector_bytes()}" "min-legal-vector-width"="{8 * _vector_bytes()}"'
    module = llvm.parse_assembly(code.replace(") {\n", f") nounwind {wide} {{\n"))
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=optimization
    )
    engine = llvm.create_mcjit_compiler(module, target)
    engine.finalize_object()
    return engine
