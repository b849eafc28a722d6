"""Models of a user's own: `mymodel.py:hoop` is a function of a file, `package.module:hoop` one of a module."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, final

import ukjax as uk

from .._misc._errors import InputError, unknown_name

_files: set[str] = set()
"""Where users' models came from: an exception raised there is one of theirs, not one of ukjax."""

# What runs of systems that were given no name are called; others go by their class.
_UNNAMED = ("mechanism", "System", "LagrangianSystem")


def is_own(name: str) -> bool:
    """Whether a name on the command line means a function of the user's, not one of `ukjax list`."""
    return ":" in name or name.endswith(".py")


def own_model(name: str) -> Callable[..., uk.Problem]:
    """The function of a name such as `mymodel.py:hoop`; what it returns is checked to be a `Problem`."""
    place, _, function = name.rpartition(":")
    if not place or not function.isidentifier():
        raise InputError(
            f"'{name}' names no function: give file and function, as mymodel.py:hoop, or package.module:hoop."
        )
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    _files.add(str(module.__file__))
    if not hasattr(module, function):
        raise _no_function(place, function, module)
    model = getattr(module, function)
    if not callable(model):
        raise InputError(
            f"{function} in {place} is of type {type(model).__name__}; a model is a function that returns a uk.Problem."
        )
    return OwnModel(model, function, place)


def _import_file(path: Path) -> ModuleType:
    """The module of a file, run as Python runs a script: it may import what lies beside it."""
    if not path.is_file():
        close = difflib.get_close_matches(path.name, [x.name for x in path.parent.glob("*.py")], n=1)
        hint = f"; did you mean '{path.with_name(close[0])}'?" if close else "."
        raise InputError(f"there is no file '{path}'{hint}")
    path = path.resolve()
    name = path.stem if path.stem not in sys.modules else f"own_{path.stem}"  # not in place of another module
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    _files.add(str(path))
    sys.path.insert(0, str(path.parent))
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    """The module of that name, which may lie in the current folder."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise  # it is there, and imports something that is not
        raise InputError(
            f"there is no module '{name}' here; for a file give its path, such as mymodel.py:hoop."
        ) from error


def _no_function(place: str, name: str, module: ModuleType) -> InputError:
    own = [x.__name__ for x in vars(module).values() if getattr(x, "__module__", None) == module.__name__]
    return unknown_name(f"function of {place}", name, own)


@final
class OwnModel:
    """A function of the user's that is checked to return a `Problem`. It travels to other processes by its name and the
    file or module it is in."""

    def __init__(self, function: Callable[..., Any], name: str, place: str):
        self._function, self._name, self._place = function, name, place
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **parameters: Any) -> uk.Problem:
        problem = self._function(*args, **parameters)
        if not isinstance(problem, uk.Problem):
            raise InputError(
                f"{self._name} in {self._place} returned something of type {type(problem).__name__}; a model returns a "
                "uk.Problem, such as uk.Problem(system, q0, v0, t0, t1)."
            )
        unnamed = (*_UNNAMED, type(problem.system).__name__)
        return dataclasses.replace(problem, name=self._name) if problem.name in unnamed else problem

    def __reduce__(self) -> tuple[Any, ...]:
        place = str(Path(self._place).resolve()) if self._place.endswith(".py") else self._place
        return own_model, (f"{place}:{self._name}",)


def line_of_own_model(error: BaseException) -> str | None:
    """Where in a user's model an exception came from, such as "mymodel.py, line 12"; None where it did not."""
    lines = [(x.filename, x.lineno) for x in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        lines.append((str(error.filename), error.lineno))
    own = [f"{Path(file).name}, line {line}" for file, line in lines if file in _files]
    return own[-1] if own else None
