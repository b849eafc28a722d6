"""What slows Python down where much is made: searches for cycles of objects, and frames at the edge of their memory."""

import contextlib
import functools
import gc
import threading
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_MANY = 100_000  # objects made: those of a large mechanism's scalar code are half a million


# Python takes memory for frames in pieces of 16 KB. A loop whose calls reach beyond the end of one maps and unmaps memory
# for each call, in a hundred times the time of the call. What a large frame calls has its frames in the same piece.
_WORDS = 1 << 16  # of such a frame; as much again is left for others


def with_room(function: Callable[P, R]) -> Callable[P, R]:
    """The same function, which with all that it calls has frames in one piece of memory. It takes 10 us longer."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    call.__code__ = call.__code__.replace(co_stacksize=_WORDS)
    return functools.wraps(function)(call)


def undisturbed(function: Callable[P, R]) -> Callable[P, R]:
    """The same function, `with_room` and without searches for cycles."""
    return with_room(collector_paused()(function))


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Without searches for cycles, of which scalar code has none: they take a fifth of the time it is written in, and
    some more of that in which it becomes machine code.

    What was made counts as old afterwards, so that no search for young cycles goes through it either.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            # Few are searched through sooner than those are counted that someone wants left alone: this would undo it.
            if gc.get_count()[0] > _MANY and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


_RARE = 100_000  # objects made between searches; Python's 700 cost a quarter of the time in which JAX traces a run
_lock, _within, _usual = threading.Lock(), 0, (0,)


@contextlib.contextmanager
def collector_held_back() -> Iterator[None]:
    """With rare searches for cycles: for what traces much, and may call users' code for as long as that likes."""
    global _within, _usual
    with _lock:
        _within += 1
        if _within == 1:
            _usual = gc.get_threshold()
            if 0 < _usual[0] < _RARE:
                gc.set_threshold(_RARE, *_usual[1:])
    try:
        yield
    finally:
        with _lock:
            _within -= 1
            if _within == 0:
                gc.set_threshold(*_usual)
