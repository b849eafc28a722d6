"""How far a sweep is: runs made, their rate, and the time left."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

Update = Callable[[int, int], None]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


@contextlib.contextmanager
def bar(shown: bool, name: str, total: int) -> Iterator[Update]:
    """A bar on standard error, where that is a terminal. Yields what it wants to be told: how many runs were made and
    how many of them failed; the first time those made before, when all is compiled.

    **Arguments:**

    - `shown`: whether there is to be one.
    - `name`: what is swept.
    - `total`: how many runs there are.
    """
    console = Console(stderr=True)
    if not (shown and (console.is_terminal or console.is_jupyter)):
        yield lambda made, failed: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} runs"),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(name, total=total, state="compiling")
        told: list[tuple[float, int, int]] = []

        def update(made: int, failed: int) -> None:
            told.append((time.perf_counter(), made, failed))
            (start, before, _), new = told[0], sum(x[1] for x in told[1:])
            seconds, state = told[-1][0] - start, "running"
            if new:
                left = _clock((total - before - new) * seconds / new)
                state = f"{new / seconds:.3g} runs/s, {left} left, {sum(x[2] for x in told)} failed"
            progress.update(task, completed=before + new, state=state)

        yield update
