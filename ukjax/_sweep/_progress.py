"""How far a sweep is: runs made, their rate, who makes them, and the time left."""

import contextlib
import time
from collections.abc import Iterator
from typing import Protocol

from .._misc._progress import is_wanted


class Update(Protocol):
    """What is told of runs: how many were made, how many of them failed, and a word on who makes them."""

    def __call__(self, made: int, failed: int, note: str = "") -> None: ...


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


@contextlib.contextmanager
def bar(shown: bool, name: str, total: int, link: str = "") -> Iterator[Update]:
    """A bar on standard error, where that is a terminal. Yields what it wants to be told; the first time how many runs
    were made before, when all is compiled.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not (shown and is_wanted() and (console.is_terminal or console.is_jupyter)):
        yield lambda made, failed, note="": None
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
        start, before, new, bad = 0.0, -1, 0, 0

        def update(made: int, failed: int, note: str = "") -> None:
            nonlocal start, before, new, bad
            if before < 0:
                start, before, made = time.perf_counter(), made, 0
            new, bad, state = new + made, bad + failed, "running"
            if new:
                rate = new / (time.perf_counter() - start)
                state = f"{rate:.3g} runs/s, {_clock((total - before - new) / rate)} left, {bad} failed"
            progress.update(task, completed=before + new, state=f"{state}, {note}" if note else state)

        yield update
