"""Modules of Equinox made of fields that are known to be right."""

import dataclasses
import functools
from typing import Any, TypeVar

T = TypeVar("T")


@functools.cache
def _defaults(kind: type) -> dict[str, Any]:
    fields: Any = dataclasses.fields(kind)
    return {x.name: x.default for x in fields if x.default is not dataclasses.MISSING}


def make_unchecked(kind: type[T], **fields: Any) -> T:
    """An instance without conversions and checks, which take as long as a short run."""
    made = object.__new__(kind)
    object.__getattribute__(made, "__dict__").update(_defaults(kind) | fields)
    return made
