"""Dask as an executor: the workers of a scheduler, which come and go."""

import contextlib
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, InvalidStateError
from typing import Any, final

from ..._misc._errors import InputError, needing


@final
class DaskExecutor(Executor):
    """The workers of a Dask scheduler, given by its address, a client of it, or the executor of a client. Dask's own
    executor leaves tasks open forever where the scheduler dies.

    **Raises:** `InputError` where there is no scheduler.
    """

    def __init__(self, at: Any):
        self._started = isinstance(at, str)
        # Dask's executor has no public names for the client it is of, and what its tasks ask for, such as resources.
        self._client = _client(at) if self._started else getattr(at, "_client", at)
        self._options = {**getattr(at, "_kwargs", {}), "pure": False}  # two calls are two tasks
        self._flying: set[Future] = set()
        if not hasattr(self._client, "submit"):
            raise InputError(f"of Dask give a client or the address of a scheduler, got {type(at).__name__}.")

    @property
    def workers(self) -> int:
        """How many threads of workers there are now; none where the scheduler is gone, too."""
        with contextlib.suppress(Exception):  # of many kinds, after Dask has tried for half a minute
            return sum(self._client.nthreads().values())
        if self._client.status == "closed":
            for future in list(self._flying):
                _tell(future, error=BrokenExecutor("the Dask scheduler is gone"))
        return 0

    @property
    def dashboard(self) -> str:
        """Where a browser shows the cluster."""
        return str(self._client.dashboard_link or "")

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        future: Future = Future()

        def done(task: Any) -> None:
            try:
                _tell(future, task.result())
            except BaseException as error:  # also where Dask cancelled it, since its scheduler is gone
                _tell(future, error=error)

        def cancel(future: Future) -> None:
            self._flying.discard(future)
            if future.cancelled() and self._client.status == "running":
                task.cancel()

        try:
            task = self._client.submit(fn, *args, **kwargs, **self._options)
            task.add_done_callback(done)
        except Exception as error:
            raise BrokenExecutor(f"the Dask scheduler is gone: {error}") from error
        self._flying.add(future)
        future.add_done_callback(cancel)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if self._started:
            self._client.close()


def _tell(future: Future, result: Any = None, error: BaseException | None = None) -> None:
    with contextlib.suppress(InvalidStateError):  # it was cancelled, or given up
        future.set_result(result) if error is None else future.set_exception(error)


def _client(address: str) -> Any:
    with needing(f"sweep(executor='{address}')", "cluster"):
        from distributed import Client
    try:
        return Client(address)
    except (OSError, ValueError) as error:
        raise InputError(f"there is no Dask scheduler at '{address}': {error}.") from error
