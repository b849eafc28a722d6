"""Machine code from the text of LLVM functions, kept for other processes."""

import atexit
import contextlib
import ctypes
import functools
import os
import re
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, final

import numpy as np

from .._misc import _cache as cache
from .._misc._progress import COMPILING, say

# How hard LLVM's code generator tries. 1 makes code as fast as 2 in four fifths of the time; without, code comes in a
# fifth of the time and takes up to 2.5 times as long. Nothing is reassociated or contracted: results are the same bits.
OPTIMIZED, AT_ONCE = 1, 0


@functools.cache
def llvm() -> Any:
    """llvmlite's binding to LLVM, ready to compile; `ImportError` where it cannot be loaded."""
    try:
        import llvmlite.binding as binding
    except (ImportError, OSError) as error:
        raise ImportError(
            "ukjax makes machine code by llvmlite, which is not installed here, or cannot be loaded: "
            "pip install --force-reinstall llvmlite"
        ) from error
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    # Only with a first compiler does LLVM open the process it is in, and finds the functions of the C library.
    binding.create_mcjit_compiler(
        binding.parse_assembly(""), binding.Target.from_default_triple().create_target_machine()
    )
    return binding


@functools.cache
def vector_bytes() -> int:
    """The size of a processor's vectors."""
    features = llvm().get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx") else 16


def width_for(dtype: Any, members: int) -> int:
    """How many numbers of a type a vector holds, of so many members at most."""
    longest = min(members, vector_bytes() // np.dtype(dtype).itemsize)
    return 1 << longest.bit_length() - 1


class Code(NamedTuple):
    """The text of LLVM functions.

    - `text`: of what is called, and of what that calls.
    - `beside`: of more functions that it calls, compiled as they stand.
    - `loops`: whether the loops of `text` are to become vectors where LLVM is to try at all; what is written out comes as
      vectors already.
    - `units`: texts of functions that other codes call too, each compiled once.
    """

    text: str
    beside: str = ""
    loops: bool = False
    units: tuple[str, ...] = ()


@functools.cache
def _machine() -> tuple[str, ...]:
    """What machine code depends on, beside its text."""
    import llvmlite

    binding = llvm()
    features = binding.get_host_cpu_features().flatten()
    versions = llvmlite.__version__, *map(str, binding.llvm_version_info), binding.get_default_triple()
    return binding.get_host_cpu_name(), features, *versions


def name_of(known_as: str, level: int) -> str:
    """By which objects of a code are kept."""
    return cache.name_of(known_as, level, _machine())


def objects_of(
    known_as: str, write: Callable[[], Code], level: int, goes_on: Callable[[], bool] = lambda: True
) -> list[bytes]:
    """The object files of a code, read or made.

    **Raises:** `InterruptedError` if it does not go on.
    """
    name = name_of(known_as, level)
    kept = cache.read(name)
    if kept is None:
        kept = list[bytes]()
        for contents in _compile_objects(write(), level):
            if not goes_on():
                raise InterruptedError
            kept.append(contents)
        cache.write(name, kept)
    return kept


def engine_of(objects: list[bytes]) -> Any:
    """What holds machine code, and owns it."""
    binding = llvm()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _target(AT_ONCE))
    for contents in objects:
        engine.add_object_file(binding.ObjectFileRef.from_data(contents))
    engine.finalize_object()
    return engine


def _target(level: int) -> Any:
    processor, features, *_ = _machine()
    return (
        llvm().Target.from_default_triple().create_target_machine(cpu=processor, features=features, opt=level)
    )


def _compile_objects(code: Code, level: int) -> Iterator[bytes]:
    """One object file after the other; where LLVM is to try, of one function each, so that each takes a short time."""
    texts = (code.text, code.loops, _compile), (code.beside, False, _compile)
    for text, loops, compiler in (*texts, *((x, False, _compile_shared) for x in code.units)):
        for part in _functions(text) if level > AT_ONCE and text else [text] * bool(text):
            yield compiler(part, loops, level)


def _compile(text: str, loops: bool, level: int) -> bytes:
    binding, target = llvm(), _target(level)
    wide = f'"prefer-vector-width"="{8 * vector_bytes()}" "min-legal-vector-width"="{8 * vector_bytes()}"'
    module = binding.parse_assembly(text.replace(") {\n", f") nounwind {wide} {{\n"))
    if loops and level > AT_ONCE:
        tuning = binding.create_pipeline_tuning_options(speed_level=2)
        tuning.loop_vectorization = tuning.slp_vectorization = True
        builder = binding.create_pass_builder(target, tuning)
        builder.getModulePassManager().run(module, builder)
    return target.emit_object(module)


_compile_shared = functools.lru_cache(maxsize=32)(_compile)


_USED = re.compile(r"@[\w.]+")


def _functions(text: str) -> Iterator[str]:
    """A text for each function, with what it uses of the others declared."""
    shared, bodies, lines = dict[str, str](), dict[str, list[str]](), list[str]()
    for line in text.split("\n"):
        if line.startswith(("declare", "define", "@")):
            name = _USED.search(line)[0]  # pyright: ignore[reportOptionalSubscript]
            shared[name] = line.replace("define", "declare", 1).replace(" internal", "", 1).removesuffix(" {")
            if line.startswith("@"):
                shared[name] = line
            elif line.startswith("define"):
                lines = bodies[name] = [line.replace(" internal", "", 1)]
        else:
            lines.append(line)
    for name, body in bodies.items():
        own = "\n".join(body)
        used = dict.fromkeys(x for x in _USED.findall(own) if x != name)
        yield "\n".join([*(shared[x] for x in used), own, ""])


# --- Machine code in two tiers: at once without optimization, and optimized where it has run for long
#
# What is called a few times is not worth the time to optimize it; what a sweep or a training calls for minutes is. So
# code counts down the instructions it runs. When there were as many as optimizing takes time for, it writes its number
# to a pipe, and a thread of this process optimizes it. Later calls go there, and those that are at work begin anew: no
# program waits, and none takes more than about twice the least time it could. Both tiers give the same bits. Members of
# a batch are side by side in vectors where code is optimized only: without, LLVM takes thrice as long for vectors. Those
# of a batch within a program always are, as loops over them are most of its time.

# `@compute` is told what it may use: how many instructions, and whom to ask when they are used up (`Lanes`). It returns
# whether it has ended at once, because `@ask` said so: then optimized code is there.
_CALL = """
@current = global ptr @compute
@at_once = global {{ i64, ptr }} {{ i64 {most}, ptr @ask }}
@optimized = global {{ i64, ptr }} {{ i64 {most}, ptr @ask }}
@asked = global i8 0
@pipe = global i32 0
@number = global i64 0
declare i1 @compute(ptr, {types})
declare i64 @{write}(i32, ptr, i64)
define internal i1 @ask(ptr %watch) {{
  store i64 {again}, ptr %watch
  %before = atomicrmw xchg ptr @asked, i8 1 monotonic
  %first = icmp eq i8 %before, 0
  br i1 %first, label %write, label %look
write:
  %to = load i32, ptr @pipe
  %written = call i64 @{write}(i32 %to, ptr @number, i64 8)
  br label %look
look:
  %function = load atomic ptr, ptr @current acquire, align 8
  %ends = icmp ne ptr %function, @compute
  ret i1 %ends
}}
define void @call({given}) {{
  br label %begin
begin:
  %function = load atomic ptr, ptr @current acquire, align 8
  %first = icmp eq ptr %function, @compute
  %watch = select i1 %first, ptr @at_once, ptr @optimized
  %early = call i1 %function(ptr %watch, {given})
  br i1 %early, label %begin, label %done
done:
  ret void
}}
"""
# Optimizing takes as long as so many instructions for each byte of the compressed text.
_PER_BYTE = 8_000
_MOST = 2**63 - 1
_AGAIN = 2_000_000  # instructions until it is asked again whether optimized code is there

WATCH = (ctypes.c_int64 * 2)(_MOST)
"""What is told to code that is called without tiers."""


class _Due(NamedTuple):
    """What may be optimized.

    - `known_as`: what names its code.
    - `texts`: of the code, compressed.
    - `loops`: as of `Code`.
    - `engine`: what calls it.
    """

    known_as: str
    texts: tuple[bytes, ...]
    loops: bool
    engine: Any

    def code(self) -> Code:
        text, beside, *units = (zlib.decompress(x).decode() for x in self.texts)
        return Code(text, beside, self.loops, tuple(units))


def _set(engine: Any, name: str, kind: Any, value: int) -> None:
    """Sets a global value of machine code, or the first part of one."""
    kind.from_address(engine.get_global_value_address(name)).value = value


@final
class _Optimizer:
    """Optimizes what asks for it, one after the other, in a thread of its own."""

    def __init__(self):
        self.asked, self.pipe = os.pipe()
        self.count, self.ends = 0, False
        self.due = dict[int, _Due]()
        self.optimized = list[Any]()  # engines, which own what is called
        self.at_work = threading.Lock()
        threading.Thread(target=self._serve, name="ukjax optimizes", daemon=True).start()
        atexit.register(self._end)

    def watch(self, due: _Due, instructions: int) -> None:
        """Has a code ask when it has run so many instructions."""
        self.count += 1
        self.due[self.count] = due
        _set(due.engine, "number", ctypes.c_int64, self.count)
        _set(due.engine, "pipe", ctypes.c_int32, self.pipe)
        _set(due.engine, "at_once", ctypes.c_int64, instructions)

    def optimize(self, number: int) -> None:
        with self.at_work:
            due = self.due.pop(number, None)
            if due is None:  # asked for twice
                return
            with contextlib.suppress(InterruptedError):
                objects = objects_of(due.known_as, due.code, OPTIMIZED, lambda: not self.ends)
                self.optimized.append(engine := engine_of(objects))
                _set(due.engine, "current", ctypes.c_void_p, engine.get_function_address("compute"))

    def _serve(self) -> None:
        while True:
            self.optimize(int.from_bytes(os.read(self.asked, 8), sys.byteorder))

    def _end(self) -> None:
        """LLVM must not be at work where the process ends: it is waited for one function at most."""
        self.ends = True
        self.at_work.acquire()


@functools.cache
def _optimizer() -> _Optimizer:
    return _Optimizer()


def optimize_now() -> None:
    """Optimizes all machine code made so far, on a CPU, and returns when that is done.

    What is compiled runs at once, without optimization, and is optimized in the background when it has run for as long as
    that takes. Whoever measures how long later calls take, or has to keep to a rate from the first call on, calls this
    after a first call of each. Results stay the same, to the bit.
    """
    for number in list(_optimizer().due):
        _optimizer().optimize(number)


@say(COMPILING)
def build_tiered_engine(
    known_as: str, write: Callable[[int], Code], entry: str, pointers: int, width: int, *, optimize: bool
) -> Any:
    """The engine of a code that is called by `@call`.

    **Arguments:**

    - `known_as`: what names the code.
    - `write`: writes it for a level, with the function `@compute` of a pointer to what it may use, an i64, and pointers.
    - `entry`: further text, which may call `@call`.
    - `pointers`: how many.
    - `width`: members side by side in optimized code, of which code made at once takes one.
    - `optimize`: whether to optimize it where it has run for long.
    """
    given = ", ".join(["i64 %members", *(f"ptr %place{i}" for i in range(pointers))])
    types, write_name = ", ".join(["i64", *["ptr"] * pointers]), "_write" if os.name == "nt" else "write"
    entry += _CALL.format(given=given, types=types, write=write_name, most=_MOST, again=_AGAIN)
    of_entry = objects_of(entry, lambda: Code(entry), AT_ONCE)
    kept = cache.read(name_of(known_as, OPTIMIZED)) if optimize else None
    if kept is not None:
        return engine_of([*of_entry, *kept])
    if not optimize:  # the optimizer's text, so that what tests see is what runs for long
        return engine_of(
            [*of_entry, *objects_of(f"{known_as} as it stands", lambda: write(OPTIMIZED), AT_ONCE)]
        )
    objects = objects_of(known_as, lambda: write(AT_ONCE), AT_ONCE)
    engine = engine_of([*of_entry, *objects])
    text = cache.name_of("text", known_as)
    if (texts := cache.read(text)) is None:
        code = write(OPTIMIZED)
        written = code.text, code.beside, *code.units
        texts = [*(zlib.compress(x.encode(), 1) for x in written), bytes([code.loops])]
        cache.write(text, texts)
    *parts, loops = texts
    due = _Due(known_as, tuple(parts), bool(loops[0]), engine)
    _optimizer().watch(due, _PER_BYTE * sum(map(len, parts)) // width)
    return engine


# --- A switch that is needed no more


def compile_loops_whole() -> None:
    """Does nothing. It made XLA compile loops for a CPU in another way, before whole runs were machine code.

    It is kept for scripts that call it.
    """
