"""What every command needs of an application: one line for bad input, JSON without NaN, Ctrl-C that is heard,
and compiled programs kept on disk for the next run. JAX is imported where a command computes, not for its help."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from typer.core import TyperGroup

import ukjax as uk

from ._own_models import line_of_own_model

_T = TypeVar("_T")
_DEVICES = "xla_force_host_platform_device_count"


# Typer brings its own copy of Click, or the package, by its version; this class is the one it raises.
_UsageError: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def _fail(message: str) -> NoReturn:
    print("error:", " ".join(message.split()), file=sys.stderr)
    sys.exit(2)


class OneLineErrors(TyperGroup):
    """All of the commands, with one line for bad input of whatever kind and exit status 2."""

    def main(self, args: Any = None, *rest: Any, **options: Any) -> NoReturn:
        args = list(sys.argv[1:] if args is None else args) or ["--help"]
        try:
            status = super().main(args, *rest, **(options | {"standalone_mode": False}))
        except _UsageError as error:
            _fail(error.format_message())  # pyright: ignore[reportAttributeAccessIssue]
        except Exception as error:
            expected, line = (
                isinstance(error, (uk.InputError, uk.MissingExtraError, uk.SweepError, OSError)),
                line_of_own_model(error),
            )
            if not expected and line is None:
                raise  # a defect of ukjax
            text = error.msg if isinstance(error, SyntaxError) else str(error)
            said = text if expected else f"{type(error).__name__}: {text}"
            _fail(said if line is None else f"{line}: {said}")
        sys.exit(status if isinstance(status, int) else 0)


def start_jax(float32: bool = False) -> None:
    """Sets the precision and the cache, and in a process of its own how loops are compiled; to be called first."""
    import jax

    from .._misc._compilation_cache import use_compilation_cache

    jax.config.update("jax_enable_x64", not float32)
    use_compilation_cache()


def share_cores(number: int | None) -> None:
    """Has JAX take a CPU for several devices, by default one for each core, unless it was told or has started."""
    import jax

    told = jax.config.jax_num_cpu_devices >= 0  # pyright: ignore[reportAttributeAccessIssue]
    if number is None and (told or _DEVICES in os.environ.get("XLA_FLAGS", "")):
        return
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        jax.config.update("jax_num_cpu_devices", own if number is None else number)
    except RuntimeError:  # JAX has started, and its devices stay as they are
        if number is not None:
            raise


def interruptible(fn: Callable[[], _T]) -> _T:
    """Calls `fn` in another thread, so that Ctrl-C is heard while XLA compiles or runs."""
    outcome: list[_T] = []
    raised: list[BaseException] = []

    def call() -> None:
        try:
            outcome.append(fn())
        except BaseException as error:  # handed over to the main thread
            raised.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return outcome[0]


def plain(value: Any) -> Any:
    """`value` as JSON can hold it; NaN and infinity become null."""
    if isinstance(value, dict):
        return {str(k): plain(x) for k, x in value.items()}
    if isinstance(value, list | tuple):
        return [plain(x) for x in value]
    if hasattr(value, "__array__"):
        return plain(np.asarray(value).tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def show(table: Table) -> None:
    """Prints a table: wider than the terminal where its longest words and figures are, so that none is cut off."""
    for column in table.columns:
        column.overflow = "fold"
    console = Console()
    least = Measurement.get(console, console.options.update(max_width=10_000), table).minimum
    Console(width=max(console.width, least)).print(table)


def show_rows(rows: Mapping[str, str], **options: Any) -> None:
    """Prints names beside what is said of them; options are those of a table."""
    table = Table(show_header=False, **options)
    for row in rows.items():
        table.add_row(*map(escape, row))
    show(table)


def print_json(value: Any) -> None:
    print(json.dumps(plain(value), allow_nan=False))
