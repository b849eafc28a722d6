"""Programs of scalars as WebAssembly: modules that a browser runs, made by LLVM alone, without a linker.

An object file of LLVM for this target is a module already, with all addresses as if it were loaded at zero: what it lacks
is a list of what it exports.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..._misc._errors import Untranslatable
from .._machine_code import llvm
from ._instructions import ArrayOperand
from ._lanes import Lanes
from ._llvm import write_function
from ._program import Program

_IMPORTS, _EXPORTS = 2, 7  # sections of a module
_FUNCTION, _MEMORY, _GLOBAL = 0, 2, 3  # kinds of imports
# Of the C library: what a page gives under the same names, by JavaScript's `Math`.
KNOWN = {
    *(
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "cbrt",
        "cosh",
        "exp",
        "exp2",
        "expm1",
        "fmod",
    ),
    *("log", "log1p", "pow", "sinh", "tan", "tanh", "malloc", "realloc", "free"),
}


class WebAssembly(NamedTuple):
    """A module with a function `compute`: of a watch (see `_machine_code`), 1, where results and where operands are.

    - `module`: its bytes. It imports memory, the stack pointer, and functions of C.
    - `pages`: of memory, that its tables take from address zero on, each of 64 KiB.
    - `operands`, `results`: how many numbers each has.
    """

    module: bytes
    pages: int
    operands: tuple[int, ...]
    results: tuple[int, ...]


def write_wasm(program: Program) -> WebAssembly:
    """A program of reals of double precision as a module.

    **Raises:** `Untranslatable` where it calls what a browser does not have.
    """
    given = [ArrayOperand(t, n, shared=True) for t, n in program.operands]
    results = [ArrayOperand(t, n, shared=False) for t, n in program.results]
    text, _ = write_function(program.outputs, given, results, program.params, Lanes(1))
    binding, target = llvm(), _target()
    module = binding.parse_assembly(text)
    module.triple, module.data_layout = target.triple, str(target.target_data)
    defined = [x.name for x in module.functions if not x.is_declaration]
    made, pages = _export(target.emit_object(module), defined.index("compute"))
    return WebAssembly(made, pages, *(tuple(n for _, n in x) for x in (program.operands, program.results)))


@functools.cache
def _target() -> Any:
    binding = llvm()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    try:
        target = binding.Target.from_triple("wasm32-unknown-unknown")
    except RuntimeError as error:
        raise Untranslatable(
            "this LLVM has no WebAssembly: pip install --force-reinstall llvmlite"
        ) from error
    return target.create_target_machine(opt=2)


def _export(module: bytes, which: int) -> tuple[bytes, int]:
    """The module that exports `compute`, the function it defines at a place, and the pages of memory it begins with."""
    made, functions, pages = module[:8], 0, 0
    for kind, section in _sections(module):
        if kind == _IMPORTS:
            for name, of, least in _imports(section):
                functions, pages = functions + (of == _FUNCTION), max(pages, least)
                if of == _FUNCTION and name not in KNOWN:
                    raise Untranslatable(f"a browser has no function {name}")
        if kind > _EXPORTS and functions >= 0:
            entry = b"\x01\x07compute\x00" + _to_leb(functions + which)
            made, functions = made + bytes([_EXPORTS]) + _to_leb(len(entry)) + entry, -1
        if kind:  # those of number 0 are for linkers
            made += bytes([kind]) + _to_leb(len(section)) + section
    return made, pages


def _sections(module: bytes) -> Iterator[tuple[int, bytes]]:
    at = 8
    while at < len(module):
        size, begin = _from_leb(module, at + 1)
        yield module[at], module[begin : begin + size]
        at = begin + size


def _imports(section: bytes) -> Iterator[tuple[str, int, int]]:
    """Of each import its name, its kind, and of memory its pages."""
    count, at = _from_leb(section, 0)
    for _ in range(count):
        name, least = "", 0
        for _ in range(2):
            size, begin = _from_leb(section, at)
            name, at = section[begin : begin + size].decode(), begin + size
        kind = section[at]
        if kind == _FUNCTION:
            _, at = _from_leb(section, at + 1)
        elif kind == _GLOBAL:
            at += 3
        else:  # limits, of a table after its type: whether there is a most, the least, and the most
            at += 1 + (kind != _MEMORY)
            bounded = section[at] & 1
            least, at = _from_leb(section, at + 1)
            if bounded:
                _, at = _from_leb(section, at)
        yield name, kind, least * (kind == _MEMORY)


def _to_leb(x: int) -> bytes:
    """A number in groups of seven bits, the lowest first."""
    return bytes([x & 127]) if x < 128 else bytes([x & 127 | 128]) + _to_leb(x >> 7)


def _from_leb(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and what follows it."""
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at
