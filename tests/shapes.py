"""Shapes in annotations are checked when functions are called, by jaxtyping and beartype (`conftest.py` turns it on).

Only shapes and kinds of numbers are: where an annotation says `Float[Array, " n"]`, an array of NumPy of that shape is
as good, and a Python number is as good as a scalar array, for the functions users call take both.
"""

import types
import typing
from collections.abc import Callable
from typing import Any

import jaxtyping
from beartype import beartype

ROOMS = ("_pseudoinverse", "_system", "_formula", "_servo", "mechanisms", "models")
"""Those that compute on arrays. Scalar code has arrays of expressions, and others have few annotations with shapes."""


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


def check_shapes() -> None:
    """Has the rooms above checked when they are imported."""
    jaxtyping.install_import_hook([f"ukjax.{room}" for room in ROOMS], "shapes.checked")
