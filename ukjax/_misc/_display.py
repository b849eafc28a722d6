"""What notebooks show of an object is told by a room above all that can be shown, loaded when a notebook asks."""

import importlib
from typing import Any


def html_of(x: Any) -> str:
    """An object as HTML, by `_run/_display.py`."""
    package = __package__.partition(".")[0]
    return importlib.import_module(f"{package}._run._display").html_of(x)
