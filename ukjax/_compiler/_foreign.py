"""How XLA calls machine code: as typed foreign functions on a CPU.

XLA calls such a function without Python. Its name says what it computes, so that programs XLA keeps on disk find it.
"""

import contextlib
import contextvars
import ctypes
import functools
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from .._misc import _cache as cache
from ._gpu._call import kernels_run
from ._machine_code import AT_ONCE, OPTIMIZED, Code, build_tiered_engine, engine_of, llvm, objects_of

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
{call}
  ret ptr null
}}
"""
_ARRAY = """  %{of}{i}.place = getelementptr ptr, ptr %{of}, i64 {i}
  %{of}{i}.array = load ptr, ptr %{of}{i}.place
  %{of}{i}.numbers = getelementptr i8, ptr %{of}{i}.array, i64 24
  %{of}{i} = load ptr, ptr %{of}{i}.numbers
  %{of}{i}.shapes = getelementptr i8, ptr %{of}{i}.array, i64 40
  %{of}{i}.shape = load ptr, ptr %{of}{i}.shapes"""

_lock = threading.Lock()
_made: dict[str, Any] = {}  # machine code by name: XLA may call it as long as the process lives


@functools.cache
def version() -> tuple[int, int] | None:
    """That of XLA's interface, if it is one known here."""
    try:
        header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    except OSError:
        return None
    major, minor = (
        int(x) for x in re.findall(r"^#define XLA_FFI_API_M(?:AJ|IN)OR (\d+)", header, re.MULTILINE)
    )
    return (major, minor) if major == 0 else None


def _optimizes() -> bool:
    """Whether LLVM is to try hard: as XLA, which compiles the rest, is told to."""
    return not jax.config.read("jax_disable_most_optimizations")


def register_foreign_function(
    write: Callable[[int], Code],
    call: str,
    operands: int,
    results: int,
    known_as: str | None,
    width: int,
) -> str:
    """The name of a foreign function of XLA.

    **Arguments:**

    - `write`: writes the code of `@compute`, of how many members, results, and operands, for a level of optimization.
    - `call`: text of a call of `@call`, which takes the same, with `%in0`, ... and `%out0`, ... for arrays.
    - `operands`, `results`: how many.
    - `known_as`: what names the code, if that is known before it is written.
    - `width`: members side by side in optimized code.
    """
    if known_as is None:
        known_as = repr(write(OPTIMIZED))
    name = f"ukjax_scalars_{cache.name_of(known_as, call, _optimizes())[:32]}"
    with _lock:
        if name not in _made:
            arrays = [("in", i) for i in range(operands)] + [("out", i) for i in range(results)]
            major, minor = version() or (0, 0)
            written = "\n".join(_ARRAY.format(of=of, i=i) for of, i in arrays)
            handler = _HANDLER.format(major=major, minor=minor, arrays=written, call=call)
            engine = build_tiered_engine(
                known_as, write, handler, operands + results, width, optimize=_optimizes()
            )
            address = engine.get_function_address("handler")
            function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(function), platform="cpu")
            _made[name] = engine, function
    return name


def address_of(function: str, name: str) -> int:
    """Where a function of the code of a foreign function is."""
    return _made[name][0].get_function_address(function)


def compile_engine(write: Callable[[], Code], known_as: str | None) -> Any:
    """The engine that holds the machine code of a text, compile_engine at once, and owns it."""
    write = functools.cache(write)
    return engine_of(objects_of(repr(write()) if known_as is None else known_as, write, AT_ONCE))


# --- Whether what is traced now may become machine code of our own

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
    return compiler_is_here() and (platform == "cpu" or kernels_run())


def machine_code_is_wanted() -> bool:
    """Whether what is traced now may be machine code."""
    return stays_here() and machine_code_runs() and not looks_for_nans()


def looks_for_nans() -> bool:
    """Whether JAX is to stop where a NaN is made: it sees operations on arrays, and nothing of machine code."""
    return jax.config.jax_debug_nans  # pyright: ignore[reportAttributeAccessIssue]


def compiler_is_here() -> bool:
    """Whether machine code can be made here, and be called by XLA."""
    return version() is not None and bool(llvm())
