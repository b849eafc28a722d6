"""What a program of scalars is written for on a GPU: one thread, with branches and loops of its own.

A thread computes one member after the other, as many threads further on each. Arrays have the threads last, so that those
of a warp, which are at the same entry, read and write places side by side.

What reverse mode keeps of a loop's passes grows, and how far is known only once it has run. PTX has a `malloc`, but its
heap is of 8 MB, shared by all threads, unless a process asks for more before its first kernel, which one within JAX
cannot; and each call of it takes turns with all others. So each thread has a part of an array that XLA allocates, and
takes room from it, one growing array after the other, and never gives back. Results of a member that needs more are NaN.
"""

from collections.abc import Sequence
from typing import final

import numpy as np

from ._ir import GROWING, is_float
from ._llvm import ArrayOperand, Function, Place, stored_type, wanted_size

_LOCAL = 1024
"""Bytes of an array that a thread has for itself: registers, or memory that a GPU has for each thread that it can hold at
a time, a quarter of a million. Larger ones stand in XLA's memory, for the threads that there are."""
WORD = 8
"""Bytes that an entry of a growing array takes, whatever its type: so threads that took room for other types, or in another
order, have places of their own."""


@final
class Thread:
    """A `Machine`. Once a function is written, `bytes` is the memory of a thread without what grows, and `grows` whether
    there is such.

    `compute` takes the number of the thread, how many there are, how many words each has for growing arrays, and the
    memory of all.
    """

    width, contracts, library = 1, True, False
    functions = {"div": "quotient", "max": "maximum", "min": "minimum"}  # noqa: RUF012
    parameters = "i64 %thread, i64 %threads, i64 %words, ptr %room, "
    first, step = "%thread", "%threads"

    def __init__(self) -> None:
        self.bytes, self._tapes, self._arrays = 0, list[str](), list[str]()

    @property
    def grows(self) -> bool:
        return bool(self._tapes)

    def allocate(self, f: Function, t: str, size: int) -> Place:
        if size == GROWING:
            header = f.new("tape")
            self._tapes.append(header)
            return Place("", f"%stride{np.dtype(t).itemsize}", 1, own=True, header=header)
        bytes = max(size, 1) * np.dtype(t).itemsize
        if bytes <= _LOCAL:
            pointer = f.new("array")
            self._arrays.append(f"  {pointer} = alloca [{max(size, 1)} x {stored_type(t)}]")
            return Place(pointer, "1", 1, own=True)
        first = f(f"mul i64 %threads, {self.bytes}")
        own = f(f"getelementptr {stored_type(t)}, ptr %room, i64 %thread")
        self.bytes += -(-bytes // WORD) * WORD
        return Place(f(f"getelementptr i8, ptr {own}, i64 {first}"), "%threads", 1, own=True)

    def grow(self, f: Function, place: Place, index: str, t: str) -> None:
        sizes = f(f"getelementptr i64, ptr {place.header}, i64 1")
        size = f(f"load i64, ptr {sizes}")
        full, more, enough, after = (
            f(f"icmp sge i64 {index}, {size}"),
            *f.labels("more", "enough", "after"),
        )
        f.do(f"br i1 {full}, label %{more}, label %{after}")
        f.begin(more)
        new, top = wanted_size(f, size, index), f("load i64, ptr %top")
        # What took room last grows where it is; others move.
        starts = f(f"getelementptr i64, ptr {place.header}, i64 2")
        start = f(f"load i64, ptr {starts}")
        last = f(f"icmp eq i64 {f(f'add i64 {start}, {size}')}, {top}")
        at = f(f"select i1 {last}, i64 {start}, i64 {top}")
        left = f(f"sub i64 %words, {at}")
        new = f(f"select i1 {f(f'icmp slt i64 {new}, {left}')}, i64 {new}, i64 {left}")
        f.do(f"br i1 {f(f'icmp slt i64 {index}, {new}')}, label %{enough}, label %exhausted")
        f.begin(enough)
        for x, where in ((new, sizes), (at, starts), (f(f"add i64 {at}, {new}"), "%top")):
            f.do(f"store i64 {x}, ptr {where}")
        old = Place(f(f"load ptr, ptr {place.header}"), place.stride, 1, own=True)
        pointer = f(f"getelementptr i64, ptr %heap, i64 {f(f'mul i64 {at}, %threads')}")
        moved = old._replace(pointer=pointer)
        f.do(f"store ptr {pointer}, ptr {place.header}")
        moving = f(f"select i1 {last}, i64 0, i64 {size}")
        f.count_up(moving, lambda k: f.write(moved, k, f.read(old, k, t), t))
        f.do(f"br label %{after}")
        f.begin(after)

    def clear(self, f: Function, place: Place, like: Place, t: str) -> None:
        size = f(f"load i64, ptr {f(f'getelementptr i64, ptr {like.header}, i64 1')}")
        self.grow(f, place, f(f"sub i64 {size}, 1"), t)
        _fill(f, place, size, 0.0 if is_float(t) else 0, t)

    def enter(self, f: Function) -> list[str]:
        lines = list(self._arrays)
        if self._tapes:
            lines += [f"  %stride{n} = mul i64 %threads, {WORD // n}" for n in (1, 2, 4, 8)]
            lines += [
                f"  %heap.first = mul i64 %threads, {self.bytes}",
                "  %heap.all = getelementptr i8, ptr %room, i64 %heap.first",
                "  %heap = getelementptr i64, ptr %heap.all, i64 %thread",
                "  %top = alloca i64",
                "  store i64 0, ptr %top",
            ]
        for header in self._tapes:
            lines += [f"  {header} = alloca [3 x i64]", f"  store ptr null, ptr {header}"]
            for k, word in ((1, "size"), (2, "start")):
                lines += [
                    f"  {header}.{word} = getelementptr i64, ptr {header}, i64 {k}",
                    f"  store i64 0, ptr {header}.{word}",
                ]
        return lines

    def leave(self, f: Function, results: Sequence[ArrayOperand]) -> None:
        if not self._tapes:
            return
        f.begin("exhausted")
        for i, result in enumerate(results):
            t = result.type
            pointer = f(f"getelementptr {stored_type(t)}, ptr %out{i}, i64 %first")
            place = Place(pointer, "%count", 1, own=True)
            _fill(f, place, str(result.size), float("nan") if is_float(t) else 0, t)
        f.do("br label %last")

    def exit(self, f: Function) -> None:
        pass


def _fill(f: Function, place: Place, size: str, value: float, t: str) -> None:
    f.count_up(size, lambda k: f.write(place, k, f.constant(value, t), t))
