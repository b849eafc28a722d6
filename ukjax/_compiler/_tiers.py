"""Machine code in two tiers: at once without optimization, and optimized where it has run for long.

What is called a few times is not worth the time to optimize it; what a sweep or a training calls for minutes is. So the
code counts how long it runs. When that is as long as optimizing takes, it writes its number to a pipe, a thread of this
process optimizes it, and later calls go there: no program waits, and none takes more than about twice the least time it
could. Both tiers give the same bits (`_machine_code`).
"""

import atexit
import contextlib
import ctypes
import functools
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, final

from .._misc import _cache as cache
from ._machine_code import AT_ONCE, OPTIMIZED, Code, engine_of, name_of, objects_of

_CLOCK = getattr(time, "CLOCK_MONOTONIC", None)

# A call of `@compute` through `@current`, timed while `@left` has time left: then its number goes to the pipe.
_CALL = """
@current = global ptr @compute
@left = global i64 0
@pipe = global i32 0
@number = global i64 0
declare void @compute({types})
declare i32 @clock_gettime(i32, ptr)
declare i64 @write(i32, ptr, i64)
define internal i64 @now(ptr %place) {{
  %told = call i32 @clock_gettime(i32 {clock}, ptr %place)
  %seconds = load i64, ptr %place
  %rest.place = getelementptr i64, ptr %place, i64 1
  %rest = load i64, ptr %rest.place
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  ret i64 %now
}}
define void @call({given}) {{
  %place = alloca [2 x i64]
  %function = load atomic ptr, ptr @current acquire, align 8
  %left = load i64, ptr @left
  %counts = icmp sgt i64 %left, 0
  br i1 %counts, label %timed, label %alone
alone:
  call void %function({given})
  ret void
timed:
  %begin = call i64 @now(ptr %place)
  call void %function({given})
  %end = call i64 @now(ptr %place)
  %spent = sub i64 %end, %begin
  %before = atomicrmw sub ptr @left, i64 %spent monotonic
  %was = icmp sgt i64 %before, 0
  %is = icmp sle i64 %before, %spent
  %due = and i1 %was, %is
  br i1 %due, label %ask, label %done
ask:
  %to = load i32, ptr @pipe
  %written = call i64 @write(i32 %to, ptr @number, i64 8)
  br label %done
done:
  ret void
}}
"""
# What optimizing takes, for a byte of the compressed text [ns].
_PER_BYTE = 6000


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
        return Code(*(zlib.decompress(x).decode() for x in self.texts), loops=self.loops)


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

    def watch(self, due: _Due, time_left: int) -> None:
        """Has a code ask when it has run for so many nanoseconds."""
        self.count += 1
        self.due[self.count] = due
        for name, kind, value in (
            ("number", ctypes.c_int64, self.count),
            ("pipe", ctypes.c_int32, self.pipe),
            ("left", ctypes.c_int64, time_left),
        ):
            kind.from_address(due.engine.get_global_value_address(name)).value = value

    def optimize(self, number: int) -> None:
        with self.at_work:
            due = self.due.pop(number, None)
            if due is None:  # asked for twice
                return
            with contextlib.suppress(InterruptedError):
                objects = objects_of(due.known_as, due.code, OPTIMIZED, lambda: not self.ends)
                self.optimized.append(engine := engine_of(objects))
                current = due.engine.get_global_value_address("current")
                ctypes.c_void_p.from_address(current).value = engine.get_function_address("compute")

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


def optimize(engine: Any) -> None:
    """Optimizes what an engine calls, unless that is done."""
    for number, due in list(_optimizer().due.items()):
        if due.engine is engine:
            _optimizer().optimize(number)


def optimize_now() -> None:
    """Optimizes all machine code made so far, on a CPU, and returns when that is done.

    What is compiled runs at once, without optimization, and is optimized in the background when it has run for as long as
    that takes. Whoever measures how long later calls take, or has to keep to a rate from the first call on, calls this
    after a first call of each. Results stay the same, to the bit.
    """
    for number in list(_optimizer().due):
        _optimizer().optimize(number)


def tiered(known_as: str, write: Callable[[], Code], entry: str, pointers: int, *, optimize: bool) -> Any:
    """The engine of a code that is called by `@call`.

    **Arguments:**

    - `known_as`: what names the code.
    - `write`: writes it, with the function `@compute` of an i64 and pointers.
    - `entry`: further text, which may call `@call`.
    - `pointers`: how many.
    - `optimize`: whether to optimize it where it has run for long.
    """
    given = ", ".join(["i64 %members", *(f"ptr %place{i}" for i in range(pointers))])
    types = ", ".join(["i64", *["ptr"] * pointers])
    entry += _CALL.format(given=given, types=types, clock=_CLOCK or 0)
    of_entry = objects_of(entry, lambda: Code(entry), AT_ONCE)
    kept = cache.read(name_of(known_as, OPTIMIZED)) if optimize else None
    if kept is not None:
        return engine_of([*of_entry, *kept])
    if not optimize:
        return engine_of([*of_entry, *objects_of(known_as, write, AT_ONCE)])
    text = cache.name_of("text", known_as)
    texts, objects = cache.read(text), cache.read(name_of(known_as, AT_ONCE))
    if texts is None or objects is None:
        code = write()
        texts = [*(zlib.compress(x.encode(), 1) for x in (code.text, code.beside)), bytes([code.loops])]
        cache.write(text, texts)
        objects = objects_of(known_as, lambda: code, AT_ONCE)
    engine = engine_of([*of_entry, *objects])
    *parts, loops = texts
    _optimizer().watch(_Due(known_as, tuple(parts), bool(loops[0]), engine), _PER_BYTE * sum(map(len, parts)))
    return engine
