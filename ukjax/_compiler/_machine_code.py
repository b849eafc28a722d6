"""Machine code from the text of LLVM functions, kept for other processes."""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .._misc import _cache as cache

# How hard LLVM's code generator tries. 1 makes code as fast as 2 in four fifths of the time; without, code comes in a
# fifth of the time and takes up to 2.5 times as long. Nothing is reassociated or contracted: results are the same bits.
OPTIMIZED, AT_ONCE = 1, 0


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
    """

    text: str
    beside: str = ""
    loops: bool = False


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
    binding, target = llvm(), _target(level)
    wide = f'"prefer-vector-width"="{8 * vector_bytes()}" "min-legal-vector-width"="{8 * vector_bytes()}"'
    for text, loops in ((code.text, code.loops), (code.beside, False)):
        for part in _functions(text) if level > AT_ONCE and text else [text] * bool(text):
            module = binding.parse_assembly(part.replace(") {\n", f") nounwind {wide} {{\n"))
            if loops and level > AT_ONCE:
                tuning = binding.create_pipeline_tuning_options(speed_level=2)
                tuning.loop_vectorization = tuning.slp_vectorization = True
                builder = binding.create_pass_builder(target, tuning)
                builder.getModulePassManager().run(module, builder)
            yield target.emit_object(module)


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
