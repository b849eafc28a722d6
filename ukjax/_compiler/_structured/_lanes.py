"""What a program of scalars is written for on a CPU: vectors of one number of each member.

Arrays are on the heap, all in one piece but for those that grow. `compute` counts down the instructions it is to run and
asks, when they are used up, whether to end at once: see `_machine_code`. It returns whether it did.
"""

from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from ._instructions import ArrayOperand, Emitter, Place
from ._llvm_function import Function
from ._nodes import GROWING


@final
class Lanes:
    """A `Machine`, of so many members side by side."""

    contracts, library, returns, first, apart = False, True, "i1", "0", 1
    parameters = "ptr %watch, "
    passed: tuple[str, ...] = ("ptr %room", "ptr %watch")
    # LLVM's time to allocate registers and to schedule grows faster than a function: of straight code as long as this, it
    # takes less for several. They also run faster, as fewer constants are kept in registers around a loop.
    straight: dict[str, int] = {"float64": 6000, "float32": 6000}  # noqa: RUF012

    def __init__(self, width: int, *, batches: bool = False):
        self.width, self.step, self.functions = width, str(width), dict[str, str]()
        self.vectors = Lanes if batches else None

    def allocate(self, f: Function, t: str, size: int) -> Place:
        if size == GROWING:
            return Place("", str(self.width), 1, own=True, header=f.at(f.module.reserve_tape()))
        offset = f.module.reserve(max(size, 1) * self.width * np.dtype(t).itemsize)
        return Place(f.at(offset), str(self.width), 1, own=True)

    def find(self, emit: Emitter, place: Place) -> str:
        return emit(f"load ptr, ptr {place.header}")

    def grow(self, f: Function, place: Place, index: str, t: str) -> None:
        sizes = f.emit(f"getelementptr i8, ptr {place.header}, i64 8")
        size = f.emit(f"load i64, ptr {sizes}")
        full, more, after = f.emit(f"icmp sge i64 {index}, {size}"), *f.emit.labels("more", "after")
        f.emit.do(f"br i1 {full}, label %{more}, label %{after}")
        f.emit.begin(more)
        twice, needed = f.emit(f"mul i64 {size}, 2"), f.emit(f"add i64 {index}, 64")
        bigger = f.emit(f"icmp sgt i64 {twice}, {needed}")
        new = f.emit(f"select i1 {bigger}, i64 {twice}, i64 {needed}")
        f.emit.do(f"store i64 {new}, ptr {sizes}")
        bytes = self.width * np.dtype(t).itemsize
        old, room = f.emit(f"load ptr, ptr {place.header}"), f.emit(f"mul i64 {new}, {bytes}")
        f.emit.declared["realloc"] = "ptr @realloc(ptr, i64)"
        moved = f.emit(f"call ptr @realloc(ptr {old}, i64 {room})")
        f.emit.do(f"store ptr {moved}, ptr {place.header}")
        begin, length = f.emit(f"mul i64 {size}, {bytes}"), f.emit(f"sub i64 {new}, {size}")
        rest = f.emit(f"getelementptr i8, ptr {moved}, i64 {begin}")
        f.emit.declared["llvm.memset.p0.i64"] = "void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
        length = f.emit(f"mul i64 {length}, {bytes}")
        f.emit.do(f"call void @llvm.memset.p0.i64(ptr {rest}, i8 0, i64 {length}, i1 0)")
        f.emit.do(f"br label %{after}")
        f.emit.begin(after)

    def clear(self, f: Function, place: Place, like: Place, t: str) -> None:
        sizes = f.emit(f"getelementptr i8, ptr {like.header}, i64 8")
        last = f.emit(f"sub i64 {f.emit(f'load i64, ptr {sizes}')}, 1")
        self.grow(f, place, last, t)
        size = f.emit(f"load i64, ptr {f.emit(f'getelementptr i8, ptr {place.header}, i64 8')}")
        bytes = f.emit(f"mul i64 {size}, {self.width * np.dtype(t).itemsize}")
        pointer = f.emit(f"load ptr, ptr {place.header}")
        f.emit.do(f"call void @llvm.memset.p0.i64(ptr {pointer}, i8 0, i64 {bytes}, i1 0)")

    def enter(self, f: Function) -> list[str]:
        if not f.module.room:
            return []
        lines = [f"  %room = call ptr @malloc(i64 {f.module.room})"]
        f.emit.declared["malloc"], f.emit.declared["free"] = "ptr @malloc(i64)", "void @free(ptr)"
        for offset in f.module.tapes:
            lines += [
                f"  %tape{offset} = getelementptr i8, ptr %room, i64 {offset}",
                f"  store ptr null, ptr %tape{offset}",
                f"  %tape{offset}.size = getelementptr i8, ptr %tape{offset}, i64 8",
                f"  store i64 0, ptr %tape{offset}.size",
            ]
        return lines

    def begin_pass(self, f: Function) -> Callable[[int], None]:
        left = f.emit("load i64, ptr %watch")
        place = len(f.emit.lines)
        rest = f.emit(f"sub i64 {left}, 0")
        f.emit.do(f"store i64 {rest}, ptr %watch")
        used, (ask, go) = f.emit(f"icmp slt i64 {rest}, 0"), f.emit.labels("ask", "go")
        f.emit.do(f"br i1 {used}, label %{ask}, label %{go}")
        f.emit.begin(ask)
        whom = f.emit(f"load ptr, ptr {f.emit('getelementptr i64, ptr %watch, i64 1')}")
        ends = f.emit(f"call i1 {whom}(ptr %watch)")
        f.emit.do(f"br i1 {ends}, label %exhausted, label %{go}")
        f.emit.begin(go)
        f.stops = True

        def tell(instructions: int) -> None:
            f.emit.lines[place] = f"  {rest} = sub i64 {left}, {instructions}"

        return tell

    def leave(self, f: Function, results: Sequence[ArrayOperand]) -> None:
        f.emit.begin("exhausted")
        f.emit.do("br label %done")

    def exit(self, f: Function) -> None:
        f.emit.do("%early = phi i1 [false, %members], [true, %exhausted]")
        for offset in f.module.tapes:
            p = f.emit(f"load ptr, ptr %tape{offset}")
            f.emit.do(f"call void @free(ptr {p})")
        if f.module.room:
            f.emit.do("call void @free(ptr %room)")
        f.emit.do("ret i1 %early")
