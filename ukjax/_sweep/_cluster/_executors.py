"""What gives out tasks: any `concurrent.futures.Executor`, with what each kind knows of its workers."""

import inspect
import os
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from typing import Any, final

from ..._misc._errors import InputError, missing_extra, shown

_ASKED = 2.0  # how often a cluster is asked for its workers [s]: that is a message there and back
_DASK = ("tcp://", "tls://", "ws://", "wss://", "inproc://")


@final
class Workers:
    """An executor that is made again when it breaks.

    **Arguments:**

    - `executor`: what the user gave: an executor, a function that makes one, a Dask client, or the address of a Dask
      scheduler or of a Ray cluster.

    **Raises:** `InputError` for anything else, and for processes made by forking.
    """

    def __init__(self, executor: Any):
        make: Any = None if isinstance(executor, str | Executor) or not callable(executor) else executor
        self._make: Callable[[], Executor] | None = make
        self._joined = isinstance(executor, str)
        self._own = self._joined or make is not None
        if isinstance(executor, str):
            executor = _at(executor)
        elif make is not None:
            executor = make()
        else:  # a Dask client has an executor
            executor = getattr(executor, "get_executor", lambda: executor)()
        if not isinstance(executor, Executor):
            raise InputError(
                f"executor must be a concurrent.futures.Executor or the address of a cluster, got {shown(executor)}."
            )
        _require_spawned(executor)
        self._executor, self._count, self._asked = executor, 1, -_ASKED

    @property
    def dashboard(self) -> str:
        """Where a browser shows the cluster; nothing where there is no such place."""
        return str(getattr(getattr(self._executor, "_client", None), "dashboard_link", None) or "")

    def count(self) -> int:
        """How many tasks can be worked on at once."""
        if time.monotonic() - self._asked > _ASKED:
            self._count, self._asked = _count(self._executor), time.monotonic()
        return self._count

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """Hands over a task.

        **Arguments:**

        - `function`: to call.
        - `arguments`: of it.

        **Raises:** `BrokenExecutor` where its processes are gone.
        """
        return self._executor.submit(function, *arguments)

    def renew(self, cause: BrokenExecutor) -> None:
        """Puts a new executor like it in the place of a broken one.

        **Arguments:**

        - `cause`: what it raised.
        """
        broken = self._executor
        self._executor = _like(broken, cause) if self._make is None else self._make()
        _end(broken, wait=False)
        self._own = True

    def close(self) -> None:
        """Ends the processes that this object started, and its connection to a cluster."""
        if self._own:
            _end(self._executor, wait=True)
        if self._joined and (client := getattr(self._executor, "_client", None)) is not None:
            client.close()


def _end(executor: Executor, wait: bool) -> None:
    """Shuts an executor down. Those of Dask and loky do not take all that the standard library's take."""
    known = inspect.signature(executor.shutdown).parameters
    executor.shutdown(wait, **({"cancel_futures": True} if "cancel_futures" in known else {}))


def _at(address: str) -> Executor:
    if not address.startswith(_DASK):
        from ._ray import RayExecutor

        return RayExecutor(address)
    try:
        from distributed import Client
    except ImportError as error:
        raise missing_extra(f"sweep(executor='{address}')", "cluster") from error
    try:
        return Client(address).get_executor()
    except (OSError, ValueError) as error:
        raise InputError(f"there is no Dask scheduler at '{address}': {error}.") from error


def _require_spawned(executor: Executor) -> None:
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise InputError(
            "the processes of this executor are made by forking, where JAX would wait forever: give it "
            "mp_context=multiprocessing.get_context('spawn')."
        )


def _count(executor: Executor) -> int:
    client = getattr(executor, "_client", None)
    if client is not None:  # Dask: workers come and go
        return sum(client.nthreads().values())
    return getattr(executor, "_max_workers", None) or os.cpu_count() or 1


def _like(broken: Any, cause: BrokenExecutor) -> Executor:
    """Another executor with the settings of a broken one, which have no public names."""
    settings = {
        "initializer": getattr(broken, "_initializer", None),
        "initargs": getattr(broken, "_initargs", ()),
    }
    settings["max_workers"] = getattr(broken, "_max_workers", None)
    if type(broken) is ProcessPoolExecutor:
        return ProcessPoolExecutor(mp_context=broken._mp_context, **settings)
    if hasattr(broken, "get_reusable_executor"):  # loky's
        return type(broken).get_reusable_executor(**settings)[0]
    raise InputError(
        f"the workers of the executor are gone ({cause}): as executor give a function that makes one, "
        "which is then called again."
    )
