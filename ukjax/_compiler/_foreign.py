"""Machine code from the text of LLVM functions, and how XLA calls it: as typed foreign functions on a CPU.

XLA calls such a function without Python. Its name says what it computes, so that programs XLA keeps on disk find it.
"""

import ctypes
import functools
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from .._misc import _cache as cache

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

# How hard LLVM's code generator tries. What a run calls thousands of times is worth it, and 1 makes code as fast as 2 in
# four fifths of the time; what is called once before and after a run is compiled in a quarter of the time without.
# Nothing is reassociated, so results are alike: to the last bit at 1 and 2, to rounding at 0.
_OPTIMIZED, AT_ONCE = 1, 0

_lock = threading.Lock()
_made: dict[str, Any] = {}  # machine code by name: XLA may call it as long as the process lives


@functools.cache
def llvm() -> Any:
    """llvmlite's binding to LLVM, ready to compile; None where it is not installed."""
    try:
        import llvmlite.binding as binding
    except (ImportError, OSError):
        return None
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    # Only with a first compiler does LLVM open the process it is in, and finds the functions of the C library.
    binding.create_mcjit_compiler(
        binding.parse_assembly(""), binding.Target.from_default_triple().create_target_machine()
    )
    return binding


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


@functools.cache
def vector_bytes() -> int:
    """The size of a processor's vectors."""
    features = llvm().get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx") else 16


def width_for(dtype: Any, members: int) -> int:
    """How many numbers of a type a vector holds, of so many members at most."""
    longest = min(members, vector_bytes() // np.dtype(dtype).itemsize)
    return 1 << longest.bit_length() - 1


def _wanted() -> int:
    """How hard LLVM is to try: as XLA, which compiles the rest, is told to."""
    return AT_ONCE if jax.config.read("jax_disable_most_optimizations") else _OPTIMIZED


class Code(NamedTuple):
    """The text of LLVM functions.

    - `text`: of what is called, and of what that calls.
    - `beside`: of more functions that it calls, compiled as they stand.
    - `loops`: whether the loops of `text` are to become vectors where LLVM is to try at all; what is written out comes as
      vectors already.
    """

    text: str
    beside: str = ""
    loops: bool = False


def registered(
    write: Callable[[], Code],
    call: str,
    operands: int,
    results: int,
    known_as: str | None,
) -> str:
    """The name of a foreign function of XLA."""
    known_as, write = _known(write, known_as)
    name = f"ukjax_scalars_{cache.name_of(known_as, call, _wanted())[:32]}"
    with _lock:
        if name not in _made:
            arrays = [("in", i) for i in range(operands)] + [("out", i) for i in range(results)]
            major, minor = version() or (0, 0)
            written = "\n".join(_ARRAY.format(of=of, i=i) for of, i in arrays)
            handler = _HANDLER.format(major=major, minor=minor, arrays=written, call=call)
            whole = lambda: (code := write())._replace(text=code.text + handler)
            engine = _engine(cache.name_of(known_as, handler), whole, _wanted())
            address = engine.get_function_address("handler")
            function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(function), platform="cpu")
            _made[name] = engine, function
    return name


def address_of(function: str, name: str) -> int:
    """Where a function of the code of a foreign function is."""
    return _made[name][0].get_function_address(function)


def compiled(write: Callable[[], Code], known_as: str | None, optimization: int) -> Any:
    """The engine that holds the machine code of a text, and owns it."""
    known_as, write = _known(write, known_as)
    return _engine(known_as, write, optimization)


def _known(write: Callable[[], Code], known_as: str | None) -> tuple[str, Callable[[], Code]]:
    if known_as is not None:
        return known_as, write
    code = write()
    return repr(code), lambda: code


def _engine(known_as: str, write: Callable[[], Code], level: int) -> Any:
    """The engine of some code, by what was kept of it where there is that."""
    binding = llvm()
    machine = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    versions = binding.llvm_version_info, _llvmlite_version(), binding.get_default_triple()
    name = cache.name_of(known_as, level, machine, versions)
    kept = cache.read(name)
    if kept is None:
        made = list[bytes]()
        engine = _compiled(write(), level, *machine, made.append)
        cache.write(name, made)
        return engine
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _target(level, *machine))
    for contents in kept:
        engine.add_object_file(binding.ObjectFileRef.from_data(contents))
    engine.finalize_object()
    return engine


def _llvmlite_version() -> str:
    import llvmlite

    return llvmlite.__version__


def _target(level: int, processor: str, features: str) -> Any:
    of_host = llvm().Target.from_default_triple()
    return of_host.create_target_machine(cpu=processor, features=features, opt=level)


def _compiled(code: Code, level: int, processor: str, features: str, keep: Callable[[bytes], None]) -> Any:
    """The engine, whose machine code is given to `keep`."""
    binding, target = llvm(), _target(level, processor, features)
    wide = f'"prefer-vector-width"="{8 * vector_bytes()}" "min-legal-vector-width"="{8 * vector_bytes()}"'
    parsed = lambda text: binding.parse_assembly(text.replace(") {\n", f") nounwind {wide} {{\n"))
    module = parsed(code.text)
    if code.loops and level > AT_ONCE:
        tuning = binding.create_pipeline_tuning_options(speed_level=2)
        tuning.loop_vectorization = tuning.slp_vectorization = True
        builder = binding.create_pass_builder(target, tuning)
        builder.getModulePassManager().run(module, builder)
    engine = binding.create_mcjit_compiler(module, target)
    engine.set_object_cache(lambda _, contents: keep(contents))
    if code.beside:
        engine.add_module(parsed(code.beside))
    engine.finalize_object()
    return engine
