"""Ray as an executor: an actor for each processor core or GPU of the cluster, each with programs of its own."""

import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, final

from ..._misc._errors import InputError, needing

_LOOKED = 5.0  # how often to look for new machines [s]
_PATIENCE = 10.0  # for a connection to a machine; those of one network take milliseconds [s]


class _Caller:
    """What an actor does."""

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return function(*arguments)


def _require_open(address: str) -> None:
    """Raises `OSError` where nobody listens at an address: Ray itself would try again for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), _PATIENCE).close()


@final
class RayExecutor(Executor):
    """The actors of a Ray cluster, as many as it has room for, each with one task at a time.

    One that dies is replaced; one for which there is no room yet gets no task. Addresses of clusters are
    "ray://host:10001", "host:6379", "auto" for the one this machine belongs to, and "local" to start one here.

    **Raises:** `InputError` where there is none.
    """

    def __init__(self, address: str):
        with needing("sweep(executor=...) on a Ray cluster", "ray"):
            import ray  # pyright: ignore[reportMissingImports]
        self._ray: Any = ray
        self._started = not ray.is_initialized()
        if self._started:
            try:
                _require_open(address)
                ray.init(address, log_to_driver=False)
            except (OSError, ValueError, RuntimeError, ImportError, ray.exceptions.RayError) as error:
                token = "a cluster that asks for a token needs RAY_AUTH_MODE=token"
                raise InputError(f"there is no Ray cluster at '{address}': {error}; {token}.") from error
        self._tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._actors: dict[Any, bool] = {}  # whether each has started
        self._looked = -_LOOKED

    @property
    def workers(self) -> int:
        """How many actors have started."""
        self._grow()
        return sum(list(self._actors.values()))

    def _grow(self) -> None:
        if time.monotonic() - self._looked < _LOOKED:
            return
        self._looked = time.monotonic()
        resources = self._ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        made = self._ray.remote(num_cpus=1, num_gpus=1 if gpus else 0)(_Caller)
        for _ in range(len(self._actors), gpus or int(resources.get("CPU", 1))):
            actor = made.remote()
            self._actors[actor] = False
            threading.Thread(target=self._serve, args=(actor,), daemon=True).start()

    def _serve(self, actor: Any) -> None:
        """Hands tasks to an actor, one after the other, until one fails: it is then let go, which ends it."""
        do = lambda function, *arguments: self._ray.get(actor.call.remote(function, arguments))
        failed: Exception | None = None
        try:
            do(os.getpid)  # returns when it has started
            self._actors[actor] = True
        except Exception as error:  # of Ray's many kinds; the next task is told
            failed = error
        while (task := self._tasks.get()) is not None:
            future, *call = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                if failed:
                    raise failed
                future.set_result(do(*call))
            except Exception as error:
                future.set_exception(error)
                break
        self._actors.pop(actor, None)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        self._grow()
        future: Future = Future()
        self._tasks.put((future, fn, *args))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for actor in list(self._actors):
            self._tasks.put(None)
            self._ray.kill(actor)
        if self._started:
            self._ray.shutdown()
