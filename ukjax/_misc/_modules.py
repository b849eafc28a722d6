"""Modules of Equinox: made of fields that are known to be right, and made ready to be pickled."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, final

import equinox as eqx
import jax
from jax.core import eval_context

from ._types import is_float64_enabled

# --- Modules of Equinox made of fields that are known to be right

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


def replace_unchecked(module: T, **fields: Any) -> T:
    """As `dataclasses.replace`, without conversions and checks."""
    return make_unchecked(type(module), **(vars(module) | fields))


# --- Modules with fields that are computed when they are read


@final
class Later:
    """What a field of a `LazyModule` is to be, computed in the precision that JAX has when this is made."""

    def __init__(self, compute: Callable[[], Any]):
        self._compute, self._in_float64 = compute, is_float64_enabled()

    def __call__(self) -> Any:
        with eval_context(), jax.enable_x64(self._in_float64):
            return self._compute()


class LazyModule(eqx.Module):
    """A module whose fields may be `Later`: they are computed where they are first read, or all are read together, as
    where JAX takes it apart."""

    def __getattribute__(self, name: str) -> Any:
        fields = object.__getattribute__(self, "__dict__")
        for own in fields if name == "__dict__" else (name,):
            if type(later := fields.get(own)) is Later:
                fields[own] = later()
        # Not as Equinox binds methods, which takes a module apart.
        return object.__getattribute__(self, name)


# --- Modules made ready to be pickled, in any pickler
#
# A bound method of an Equinox module carries the annotations of its function, and classes of arrays that stand in them
# cannot be pickled. So it travels as its module and its name.


class _Method(NamedTuple):
    of: Any
    name: str


def _is_method(x: Any) -> bool:
    return isinstance(x, eqx.Module) and hasattr(x, "__func__") and hasattr(x, "__self__")


def _name_method(x: Any) -> Any:
    if not _is_method(x):
        return x
    name = x.__func__.__name__
    same = getattr(getattr(x.__self__, name, None), "__func__", None) is x.__func__
    return _Method(_with_names(x.__self__), name) if same else x


def _with_names(tree: Any) -> Any:
    return jax.tree.map(_name_method, tree, is_leaf=_is_method)


def _with_methods(tree: Any) -> Any:
    method = lambda x: getattr(_with_methods(x.of), x.name) if isinstance(x, _Method) else x
    return jax.tree.map(method, tree, is_leaf=lambda x: isinstance(x, _Method))


def _restore(cls: type, fields: dict[str, Any]) -> Any:
    made = object.__new__(cls)
    for name, x in fields.items():
        object.__setattr__(made, name, _with_methods(x))
    return made


def reduce_module(module: eqx.Module) -> tuple[Callable[..., Any], tuple[type, dict[str, Any]]]:
    """What `__reduce__` of a module returns, whose fields may hold methods of modules at any depth."""
    return _restore, (type(module), {name: _with_names(x) for name, x in vars(module).items()})
