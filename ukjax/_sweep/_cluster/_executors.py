"""What gives out tasks: any `concurrent.futures.Executor`, made again when it breaks."""

import functools
import inspect
import multiprocessing
import numbers
import os
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from typing import Any, final

from ..._misc._arguments import whole_number
from ..._misc._errors import InputError, SweepError, format_value
from ..._misc._worker import end_with

_ASKED = 2.0  # how often a cluster is asked for its workers [s]: that is a message there and back
_DASK = ("tcp://", "tls://", "ws://", "wss://", "inproc://")


@final
class Workers:
    """What does tasks, until it is closed.

    **Arguments:**

    - `given`: by a user: a number of processes, an executor, a function that makes one, a Dask client, or the address of
      a Dask scheduler or of a Ray cluster.

    **Raises:** `InputError` for anything else, and for processes made by forking.
    """

    def __init__(self, given: Any):
        self._make = _maker(given)
        self._executor: Executor = _adopt_executor(given) if self._make is None else self._make()
        if not isinstance(self._executor, Executor):
            raise InputError(
                "executor must be a number of processes, a concurrent.futures.Executor, a function that makes one, or "
                f"the address of a cluster, got {format_value(self._executor)}."
            )
        _require_spawned(self._executor)
        self._count, self._asked = 1, -_ASKED

    @property
    def dashboard(self) -> str:
        """Where a browser shows the cluster; nothing where there is no such place."""
        return getattr(self._executor, "dashboard", "")

    def count(self) -> int:
        """How many there are. Of executors that do not tell, as many as processor cores."""
        if time.monotonic() - self._asked > _ASKED:
            told = (getattr(self._executor, name, None) for name in ("workers", "_max_workers"))
            known = next((x for x in told if x is not None), os.cpu_count() or 1)
            self._count, self._asked = known, time.monotonic()
        return self._count

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """Hands over a task."""
        return self._executor.submit(function, *arguments)

    def renew(self, cause: BrokenExecutor) -> None:
        """Makes the executor again."""
        if self._make is None:
            raise SweepError(
                f"the workers of the executor are gone ({cause}). What was made is there, and the same call goes on. "
                "Give a number of processes, executor=4, or a function that makes an executor: these are started again.",
                {},
            )
        _end(self._executor, wait=False)
        self._executor = self._make()

    def close(self) -> None:
        """Ends what this object started."""
        if self._make is not None:
            _end(self._executor, wait=True)


def _maker(given: Any) -> Callable[[], Any] | None:
    """What makes the executor that a user means; None of one that is there."""
    if isinstance(given, str):
        return functools.partial(_connect_executor, given)
    if isinstance(given, numbers.Number):
        return functools.partial(_processes, whole_number("executor", given))
    return given if callable(given) and not isinstance(given, Executor) else None


def _adopt_executor(given: Any) -> Any:
    if not type(given).__module__.startswith("distributed."):
        return given
    from ._dask import DaskExecutor

    return DaskExecutor(given)


def _connect_executor(address: str) -> Executor:
    if address.startswith(_DASK):
        from ._dask import DaskExecutor as AtAddress
    else:
        from ._ray import RayExecutor as AtAddress
    return AtAddress(address)


def _processes(number: int) -> Executor:
    """Processes of this machine, which end with this one."""
    spawning = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(number, spawning, end_with, (os.getpid(), True))


def _end(executor: Executor, wait: bool) -> None:
    """Shuts an executor down. Loky's does not take all that the standard library's takes."""
    known = inspect.signature(executor.shutdown).parameters
    executor.shutdown(wait, **({"cancel_futures": True} if "cancel_futures" in known else {}))


def _require_spawned(executor: Executor) -> None:
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise InputError(
            "the processes of this executor are made by forking, where JAX would wait forever: give it "
            "mp_context=multiprocessing.get_context('spawn')."
        )
