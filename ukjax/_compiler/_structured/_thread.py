"""What a program of scalars is written for on a GPU: one thread, with branches and loops of its own.

A thread computes one member after the other, as many threads further on each. Arrays have the threads last, so that those
of a warp, which are at the same entry, read and write places side by side.

What reverse mode keeps of a loop's passes grows, and how far is known only once it has run. PTX has a `malloc`, but its
heap is of 8 MB, shared by all threads, unless a process asks for more before its first kernel, which one within JAX
cannot; and each call of it takes turns with all others. So each thread has a part of an array that XLA allocates, and
takes room from it, one growing array after the other, and never gives back. Results of a member that needs more are NaN.
"""

from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from ._instructions import ArrayOperand, Emitter, Place, stored_type
from ._llvm_function import Function
from ._nodes import GROWING, is_float

_LOCAL = 1024
"""Bytes of an array that a thread has for itself: registers, or memory that a GPU has for each thread that it can hold at
a time, a quarter of a million. Larger ones stand in XLA's memory, for the threads that there are."""
WARP = 32
"""Threads whose entries lie side by side: a number that is known, so that addresses take no registers."""
WORD = 8
"""Bytes that an entry of a growing array takes, whatever its type: so threads that took room for other types, or in
another order, have places of their own."""

# Of a growing array the header is its first word, and how many entries it has room for. It gets twice the room, or as
# much as is left, if that is enough. The one that took room last grows where it is, others move.
_LARGER = """
define internal i1 {name}(i64 %index, ptr %header, ptr %tops, i64 %words, ptr %heap, i64 %threads) noinline {{
entry:
  %sizes = getelementptr i64, ptr %header, i64 {apart}
  %start = load i64, ptr %header
  %size = load i64, ptr %sizes
  %top = load i64, ptr %tops
  %end = add i64 %start, %size
  %last = icmp eq i64 %end, %top
  %at = select i1 %last, i64 %start, i64 %top
  %left = sub i64 %words, %at
  %twice = mul i64 %size, 2
  %needed = add i64 %index, 64
  %bigger = icmp sgt i64 %twice, %needed
  %wanted = select i1 %bigger, i64 %twice, i64 %needed
  %more = icmp slt i64 %wanted, %left
  %new = select i1 %more, i64 %wanted, i64 %left
  %enough = icmp slt i64 %index, %new
  br i1 %enough, label %grow, label %done
grow:
  %first = mul i64 %at, %threads
  %place = getelementptr i64, ptr %heap, i64 %first
  %former = mul i64 %start, %threads
  %old = getelementptr i64, ptr %heap, i64 %former
  %next = add i64 %at, %new
  store i64 %at, ptr %header
  store i64 %new, ptr %sizes
  store i64 %next, ptr %tops
  %count = select i1 %last, i64 0, i64 %size
  %stride = mul i64 %threads, {per_word}
  br label %head
head:
  %k = phi i64 [0, %grow], [%k.next, %copy]
  %some = icmp ult i64 %k, %count
  br i1 %some, label %copy, label %done
copy:
  %offset = mul i64 %k, %stride
  %from = getelementptr i{bits}, ptr %old, i64 %offset
  %to = getelementptr i{bits}, ptr %place, i64 %offset
  %x = load i{bits}, ptr %from
  store i{bits} %x, ptr %to
  %k.next = add i64 %k, 1
  br label %head
done:
  ret i1 %enough
}}"""


@final
class GpuThread:
    """A `Machine`. Once a function is written, `bytes` is the memory of a thread without what grows, `grows` whether
    there is such, and `stack` what is on its stack.

    `compute` takes the number of the thread, how many there are, how many words each has for growing arrays, and the
    memory of all. What functions leave for each other, headers too, is on the thread's stack, or where it is `apart` by
    a warp, in XLA's memory.
    """

    width, contracts, library, returns, vectors = 1, True, False, "void", None
    functions = {"div": "quotient", "max": "maximum", "min": "minimum"}  # noqa: RUF012
    parameters = "i64 %thread, i64 %threads, i64 %words, ptr %memory, "
    passed: tuple[str, ...] = (
        "ptr %room", "ptr %top", "ptr %heap", "ptr %own", "i64 %lane", "i64 %threads", "i64 %words",
    )  # fmt: skip
    straight: dict[str, int] = {"float64": 700, "float32": 6000}  # noqa: RUF012 - of more, NVIDIA's assembler spills most
    first, step = "%thread", "%threads"

    def __init__(self, apart: int = 1) -> None:
        self.bytes, self.grows, self.apart, self.stack = 0, False, apart, 0
        self._larger = set[str]()  # functions that are there

    def allocate(self, f: Function, t: str, size: int) -> Place:
        item = np.dtype(t).itemsize
        if size == GROWING:
            self.grows = True
            stride = f"  %stride{item} = mul i64 %threads, {WORD // item}"
            if stride not in f.emit.entry:
                f.emit.entry.append(stride)
            return Place("", f"%stride{item}", 1, own=True, header=f.at(f.module.reserve_tape()))
        bytes = max(size, 1) * item
        if bytes <= _LOCAL:
            pointer = f.emit.new("array")
            f.emit.entry.append(f"  {pointer} = alloca [{max(size, 1)} x {stored_type(t)}]")
            return Place(pointer, "1", 1, own=True)
        own = f"  %own{item} = getelementptr {stored_type(t)}, ptr %own, i64 %lane"
        if own not in f.emit.entry:
            f.emit.entry.append(own)
        place = f.emit(f"getelementptr i8, ptr %own{item}, i64 {WARP * self.bytes}")
        self.bytes += -(-bytes // WORD) * WORD
        return Place(place, str(WARP), 1, own=True)

    def _size(self, f: Function, place: Place) -> str:
        """How many entries a growing array has room for."""
        return f.emit(f"load i64, ptr {f.emit(f'getelementptr i64, ptr {place.header}, i64 {self.apart}')}")

    def find(self, emit: Emitter, place: Place) -> str:
        start = emit(f"load i64, ptr {place.header}")
        return emit(f"getelementptr i64, ptr %heap, i64 {emit(f'mul i64 {start}, %threads')}")

    def grow(self, f: Function, place: Place, index: str, t: str) -> None:
        size = self._size(f, place)
        full = f.emit(f"icmp sge i64 {index}, {size}")
        more, after = f.emit.labels("more", "after")
        f.emit.do(f"br i1 {full}, label %{more}, label %{after}")
        f.emit.begin(more)
        item = np.dtype(t).itemsize
        name = f"@larger{item}"
        if name not in self._larger:
            self._larger.add(name)
            f.module.globals.append(
                _LARGER.format(name=name, bits=8 * item, per_word=WORD // item, apart=self.apart)
            )
        enough = f.emit(
            f"call i1 {name}(i64 {index}, ptr {place.header}, ptr %top, i64 %words, ptr %heap, i64 %threads)"
        )
        f.emit.do(f"br i1 {enough}, label %{after}, label %exhausted")
        f.stops = True
        f.emit.begin(after)

    def clear(self, f: Function, place: Place, like: Place, t: str) -> None:
        size = self._size(f, like)
        self.grow(f, place, f.emit(f"sub i64 {size}, 1"), t)
        _fill(f, place, size, 0.0 if is_float(t) else 0, t)

    def enter(self, f: Function) -> list[str]:
        if self.apart > 1:
            room = [
                f"  %room.first = getelementptr i8, ptr %own, i64 {WARP * self.bytes}",
                f"  %room = getelementptr i{8 * WORD}, ptr %room.first, i64 %lane",
            ]
            self.bytes += f.module.room
        else:
            room, self.stack = [f"  %room = alloca [{f.module.room} x i8], align {WORD}"], f.module.room
        lines = [
            "  %top = alloca i64",
            "  store i64 0, ptr %top",
            f"  %warp = udiv i64 %thread, {WARP}",
            f"  %lane = urem i64 %thread, {WARP}",
            f"  %own.first = mul i64 %warp, {WARP * self.bytes}",
            "  %own = getelementptr i8, ptr %memory, i64 %own.first",
            f"  %above = add i64 %threads, {WARP - 1}",
            f"  %warps = udiv i64 %above, {WARP}",
            f"  %heap.first = mul i64 %warps, {WARP * self.bytes}",
            "  %heap.all = getelementptr i8, ptr %memory, i64 %heap.first",
            "  %heap = getelementptr i64, ptr %heap.all, i64 %thread",
            *room,
        ]
        for word in (word for tape in f.module.tapes for word in (tape, tape + WORD)):
            lines += [
                f"  %tape{word} = getelementptr i8, ptr %room, i64 {self.apart * word}",
                f"  store i64 0, ptr %tape{word}",
            ]
        return lines

    def leave(self, f: Function, results: Sequence[ArrayOperand]) -> None:
        if not f.stops:
            return
        f.emit.begin("exhausted")
        for i, result in enumerate(results):
            t = result.type
            pointer = f.emit(f"getelementptr {stored_type(t)}, ptr %out{i}, i64 %first")
            place = Place(pointer, "%count", 1, own=True)
            _fill(f, place, str(result.size), float("nan") if is_float(t) else 0, t)
        f.emit.do("br label %last")

    def exit(self, f: Function) -> None:
        f.emit.do("ret void")

    def begin_pass(self, f: Function) -> Callable[[int], None]:
        return lambda instructions: None


def _fill(f: Function, place: Place, size: str, value: float, t: str) -> None:
    f.emit.count_up(size, lambda k: f.memory.write(place, k, f.emit.constant(value, t), t))
