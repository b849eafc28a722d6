"""A lock at a URL, where there are no locks of files: an object that its holder renews, and that expires."""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from typing import Any

from .._misc._errors import InputError

RENEWED = 5.0
"""How often a lease is renewed [s]."""
EXPIRES = 30.0
"""After how long without being renewed its holder is taken to be gone [s]: some renewals may fail."""


def acquire_lease(files: Any, path: str, name: str) -> contextlib.ExitStack:
    """Holds a lease until it is closed, or the process ends and `EXPIRES` has passed."""
    holder = {"host": socket.gethostname(), "process": os.getpid(), "token": uuid.uuid4().hex}
    written = lambda beat: json.dumps(holder | {"beat": beat}).encode()
    try:
        files.pipe_file(path, written(0), mode="create")
    except FileExistsError:
        _wait_for_end(files, path, name)
        files.pipe_file(path, written(0))
    ended = threading.Event()

    def renew() -> None:
        beat = 0
        while not ended.wait(RENEWED):
            beat += 1
            with contextlib.suppress(Exception):  # where it cannot be reached: again at the next beat
                files.pipe_file(path, written(beat))

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()

    def end() -> None:
        ended.set()
        thread.join()
        with contextlib.suppress(Exception):
            files.rm_file(path)

    held = contextlib.ExitStack()
    held.callback(end)
    return held


def _wait_for_end(files: Any, path: str, name: str) -> None:
    """Returns when a lease was not renewed for so long that its holder must be gone. No clocks are compared."""
    first, end = files.cat_file(path), time.monotonic() + EXPIRES
    while time.monotonic() < end:
        time.sleep(RENEWED / 2)
        try:
            now = files.cat_file(path)
        except FileNotFoundError:
            return
        if now != first:
            other = json.loads(now)
            raise InputError(
                f"another process is writing to '{name}': {other['process']} of {other['host']}."
            )
