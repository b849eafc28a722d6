"""What a worker process is told before JAX starts in it. This file loads neither JAX nor the rest of ukjax."""

import contextlib
import importlib
import os
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

_lock = threading.Lock()
_slot: list[Any] = []  # holds the lock of this process's slot for as long as it lives
# What libraries of linear algebra and XLA take their number of threads from.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")


def here() -> tuple[str, int]:
    """This process, among those of all machines."""
    return socket.gethostname(), os.getpid()


def call_in_worker(settings: dict[str, Any], module: str, function: str, *arguments: Any) -> Any:
    """Sets this process up and calls a function, of which nothing was imported before."""
    if here() != settings["driver"]:  # else a thread of the driver, where all is as the caller wants it
        with _lock:
            _set_up(settings)
    return getattr(importlib.import_module(module), function)(*arguments)


def _set_up(settings: dict[str, Any]) -> None:
    if not _slot:
        _slot.append(_environment())
        host, process = settings["driver"]
        if host == socket.gethostname():
            end_with(process)
    import jax

    from ._compilation_cache import use_compilation_cache

    jax.config.update("jax_enable_x64", settings["x64"])
    use_compilation_cache(settings["cache"])


def _environment() -> Any:
    """Variables that JAX reads as it starts: those set by whoever started the worker stay."""
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    for name in _THREADS:
        os.environ.setdefault(name, threads)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    devices = _gpus()
    if len(devices) < 2:
        return None
    slot, held = _free_slot()
    os.environ["CUDA_VISIBLE_DEVICES"] = devices[slot % len(devices)]
    return held


def _gpus() -> list[str]:
    """The GPUs this process may use, by the names CUDA has for them."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    if told is not None:
        return [x for x in told.split(",") if x]
    return [str(i) for i in range(len(list(Path("/proc/driver/nvidia/gpus").glob("*"))))]


def _free_slot() -> tuple[int, Any]:
    """The first number that no other worker of this machine holds, and what holds it until this process ends."""
    import fcntl

    folder = Path(tempfile.gettempdir(), f"ukjax-workers-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    slot = 0
    while True:
        file = (folder / str(slot)).open("w")
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return slot, file
        file.close()
        slot += 1


def end_with(parent: int, child: bool = False) -> None:
    """Has this process end when its parent is killed: pools of processes leave theirs behind, and they wait forever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    if child or os.getppid() == parent:
        threading.Thread(target=watch, daemon=True).start()
