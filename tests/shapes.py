"""Shapes in annotations are checked when functions are called, by jaxtyping and beartype (`conftest.py` turns it on).

Only shapes and kinds of numbers are: where an annotation says `Float[Array, " n"]`, an array of NumPy of that shape is
as good, and a Python number is as good as a scalar array, for the functions users call take both. Functions whose
annotations have no shapes stay as they are: to check those too takes a sixth of the time of all tests.
"""

import importlib
import pkgutil
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import jaxtyping
from beartype import beartype

ROOMS = ("_pseudoinverse", "_system", "_formula", "mechanisms", "models")
"""Those that compute on arrays. Scalar code has arrays of expressions, and others have few annotations with shapes."""


def has_shape(hint: Any) -> bool:
    shaped = isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray)
    return shaped or any(has_shape(x) for x in typing.get_args(hint))


def widened(hint: Any) -> Any:
    """Of an annotation what says a shape; `object`, which everything is, for the rest."""
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        kind = getattr(jaxtyping, hint.__name__.partition("[")[0])
        any_array = kind[Any, hint.dim_str]
        return any_array if hint.dim_str.strip() else any_array | float | int
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.Union[tuple(widened(x) for x in arguments)]  # noqa: UP007
    if typing.get_origin(hint) is tuple and ... not in arguments:
        return tuple[tuple(widened(x) for x in arguments)]
    return None if hint in (None, type(None)) else object


def checked(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which raises where shapes of its arguments or its result are not those of its annotations."""
    annotations = fn.__annotations__
    fn.__annotations__ = {name: widened(hint) for name, hint in annotations.items()}
    checking = beartype(fn)
    fn.__annotations__ = checking.__annotations__ = annotations
    return checking


def modules() -> Iterator[types.ModuleType]:
    """Those of the rooms above."""
    for room in ROOMS:
        package = importlib.import_module(f"ukjax.{room}")
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


def with_shapes(names: dict[str, Any], module: str) -> Iterator[tuple[str, types.FunctionType]]:
    """Functions among some names that are written in a module and say shapes."""
    for name, value in names.items():
        ours = isinstance(value, types.FunctionType) and value.__module__ == module
        if ours and any(has_shape(hint) for hint in value.__annotations__.values()):
            yield name, value


def check_shapes() -> None:
    """Has the functions and methods of the rooms above checked, under each name that they have."""
    checks = {}
    for module in modules():
        for part in (module, *(x for x in vars(module).values() if isinstance(x, type))):
            for name, fn in list(with_shapes(dict(vars(part)), module.__name__)):
                checks[fn] = jaxtyping.jaxtyped(fn, typechecker=checked)
                setattr(part, name, checks[fn])
    for module in [x for name, x in sys.modules.items() if name.partition(".")[0] == "ukjax"]:
        for name, value in list(vars(module).items()):
            if isinstance(value, types.FunctionType) and value in checks:
                setattr(module, name, checks[value])
