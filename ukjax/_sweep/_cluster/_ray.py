"""Ray as an executor: an actor for each processor core or GPU of the cluster, each with programs of its own."""

import itertools
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, final

from ..._misc._errors import InputError, missing_extra

_LOOKED = 5.0  # how often to look for new machines [s]


def _ray() -> Any:
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise missing_extra("sweep(executor=...) on a Ray cluster", "ray") from error
    return ray


class _Caller:
    """What an actor does."""

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return function(*arguments)


@final
class RayExecutor(Executor):
    """The actors of a Ray cluster. One that dies is started again by Ray, on another machine where its own is gone.

    **Arguments:**

    - `address`: of the cluster: "ray://host:10001", "host:6379", "auto" for the one this machine belongs to, or "local"
      to start one here.

    **Raises:** `InputError` where there is none.
    """

    def __init__(self, address: str):
        self._ray = _ray()
        self._started = not self._ray.is_initialized()
        if self._started:
            try:
                self._ray.init(address, log_to_driver=False)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise InputError(f"there is no Ray cluster at '{address}': {error}.") from error
        self._actors: dict[int, Any] = {}
        self._busy: Counter[int] = Counter()
        self._names, self._looked = itertools.count(), -_LOOKED

    @property
    def _max_workers(self) -> int:
        self._grow()
        return len(self._actors)

    def _grow(self) -> None:
        """As many actors as the cluster has room for; it takes each GPU for one, or without any each core."""
        if time.monotonic() - self._looked < _LOOKED:
            return
        self._looked = time.monotonic()
        resources = self._ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        options = {"num_cpus": 1, "num_gpus": 1 if gpus else 0, "max_restarts": -1}
        actor = self._ray.remote(**options)(_Caller)
        for _ in range(len(self._actors), gpus or max(1, int(resources.get("CPU", 1)))):
            self._actors[next(self._names)] = actor.remote()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        self._grow()
        name = min(self._actors, key=lambda name: self._busy[name])
        self._busy[name] += 1
        future = self._actors[name].call.remote(fn, args).future()
        future.add_done_callback(lambda _: self._busy.subtract([name]))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()
        if self._started:
            self._ray.shutdown()
