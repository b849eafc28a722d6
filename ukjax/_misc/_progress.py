"""What long work says while it lasts: to `logging.getLogger("ukjax")`, and in a line on a terminal or in a notebook."""

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator

LOGGER = logging.getLogger("ukjax")
LOGGER.addHandler(logging.NullHandler())

COMPILING = "ukjax: compiling (first call; later calls reuse it) ..."

_LATER = 2.0  # seconds: who waits for less needs no word
_TOGETHER = 1.0  # seconds between works that count as one, such as the stages of compiling


class _Last:
    """When the last work ended, how long it took with those just before it, and whether one is going on."""

    ended, spent, busy = 0.0, 0.0, False


def is_wanted() -> bool:
    """Whether nobody asked for silence, by a level of the logger above INFO."""
    return LOGGER.level <= logging.INFO and not LOGGER.disabled


def is_watched() -> bool:
    """Whether somebody sees standard error, in a terminal or a notebook, and did not ask for silence."""
    return is_wanted() and ("ipykernel" in sys.modules or bool(sys.stderr and sys.stderr.isatty()))


@contextlib.contextmanager
def say(words: str) -> Iterator[None]:
    """Says what is being done, once it has taken two seconds; within other work that says so, and on threads, nothing.

    A timer writes. It is stopped and waited for before this returns, so that none is at work where Python ends.
    """
    if _Last.busy or threading.current_thread() is not threading.main_thread():
        yield
        return
    start, written = time.perf_counter(), threading.Event()

    def write() -> None:
        written.set()
        print(f"\r{words}", end="" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)

    before = _Last.spent if start - _Last.ended < _TOGETHER else 0.0
    timer = threading.Timer(max(0.0, _LATER - before), write) if is_watched() else None
    _Last.busy = True
    try:
        if timer is not None:
            timer.daemon = True
            timer.start()
        yield
    finally:
        if timer is not None:
            timer.cancel()
            timer.join()
        if written.is_set() and sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        _Last.busy, _Last.ended = False, time.perf_counter()
        _Last.spent = before + _Last.ended - start
        level = logging.INFO if _Last.spent > _LATER else logging.DEBUG
        LOGGER.log(level, "%s %.3g s", words.removeprefix("ukjax: "), _Last.ended - start)


@contextlib.contextmanager
def show_bar(shown: bool, name: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """A bar on standard error with steps and how it stands, where somebody sees it. Yields what moves it."""
    if not (shown and is_watched()):
        yield lambda steps, state: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(
        *columns, TextColumn("{task.fields[state]}"), console=Console(stderr=True), transient=True
    ) as progress:
        task = progress.add_task("", total=total, state="compiling")
        yield lambda steps, state: progress.update(task, completed=steps, state=state)
