"""Processes forked from one in which JAX had started: they lack its threads, and it waits for them forever."""

import os

from ._errors import InputError

_computing: int | None = None


def require_own_process() -> None:
    """Raises `InputError` in a process forked from one in which ukjax had computed; in others notes that it does.

    A fork keeps memory, this note as well as JAX's, and of all threads only the one that forked.
    """
    global _computing
    if _computing is None:
        _computing = os.getpid()
    elif _computing != os.getpid():
        raise InputError(
            "this process was forked from one in which JAX had started, so JAX would wait here forever: "
            "start processes by 'spawn', as multiprocessing.get_context('spawn') does."
        )
