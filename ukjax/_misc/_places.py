"""Lines of users' files, for messages."""

import traceback
from pathlib import Path
from types import TracebackType

import diffrax as dfx
import equinox as eqx
import jax
import lineax as lx
import numpy as np
import optimistix as optx

_LIBRARIES = [Path(str(x.__file__)).parent for x in (jax, eqx, dfx, lx, optx, np)]
_NOT_THE_USERS = ("<", *map(str, (*_LIBRARIES, Path(__file__).parents[1])))


def line_of_user(file: str, line: int) -> str:
    """A line such as "model.py, line 12"; empty of a library's file."""
    return "" if file.startswith(_NOT_THE_USERS) else f"{Path(file).name}, line {line}"


def deepest_line(calls: TracebackType | None) -> str:
    """The user's line that an exception comes from; empty where there is none."""
    lines = (line_of_user(x.filename, x.lineno or 0) for x in reversed(traceback.extract_tb(calls)))
    return next(filter(None, lines), "")
