"""How far a sweep is: runs made, their rate, who makes them, and the time left."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from .._misc._progress import LOGGER, is_wanted

_EVERY = 60.0  # seconds between lines of a log, which jobs without a terminal have


class Update(Protocol):
    """What is told of runs: how many were made, how many of them failed, and a word on who makes them."""

    def __call__(self, made: int, failed: int, note: str = "") -> None: ...


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


@contextlib.contextmanager
def _on_screen(shown: bool, name: str, total: int, link: str) -> Iterator[Callable[[int, str], None]]:
    """A bar on standard error, where that is a terminal. Yields what moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not (shown and is_wanted() and (console.is_terminal or console.is_jupyter)):
        yield lambda completed, state: None
        return
    if link:
        console.print(f"workers: {link}")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} runs"),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(name, total=total, state="compiling")
        yield lambda completed, state: progress.update(task, completed=completed, state=state)


@contextlib.contextmanager
def bar(shown: bool, name: str, total: int, link: str = "") -> Iterator[Update]:
    """A bar on a terminal; for the logger `ukjax` a line a minute and at the end. Yields what it wants to be told; the
    first time how many runs were made before, when all is compiled.
    """
    with _on_screen(shown, name, total, link) as show:
        start, logged, before, new, bad = 0.0, 0.0, -1, 0, 0

        def update(made: int, failed: int, note: str = "") -> None:
            nonlocal start, logged, before, new, bad
            now = time.perf_counter()
            if before < 0:
                start, logged, before, made = now, now, made, 0
            new, bad, state = new + made, bad + failed, "running"
            done = before + new
            if new:
                rate = new / (now - start)
                state = f"{rate:.3g} runs/s, {_clock((total - done) / rate)} left, {bad} failed"
            state = f"{state}, {note}" if note else state
            show(done, state)
            if made and (now - logged >= _EVERY or done == total):
                logged = now
                LOGGER.info("%s: %d of %d runs, %s", name, done, total, state)

        yield update
