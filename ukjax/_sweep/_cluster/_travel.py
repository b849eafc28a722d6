"""What is sent to workers, by cloudpickle; what cannot be sent is told by name."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from ..._misc._errors import InputError, format_value, needing

_DEPTH = 6  # how deep to look for what cannot be sent


def pickle_definition(definition: Any) -> bytes:
    """The bytes of a definition of a sweep."""
    with needing("sweep(executor=...)", "cluster"):
        import cloudpickle

    def fails(x: Any) -> bool:
        try:
            cloudpickle.dumps(x)
        except Exception:
            return True
        return False

    try:
        return cloudpickle.dumps(definition)
    except Exception as error:
        for name, x in zip(definition._fields, definition, strict=True):
            if fails(x):
                path, culprit = _culprit(name, x, fails)
                told = f"{path} is {format_value(culprit)} of type {type(culprit).__name__}"
                raise InputError(f"the sweep cannot be sent to workers: {told}: {error}.") from error
        raise InputError(f"the sweep cannot be sent to workers: {error}.") from error


def _culprit(path: str, x: Any, fails: Any) -> tuple[str, Any]:
    """The innermost part that cannot be pickled, and how it is reached."""
    for _ in range(_DEPTH):
        for name, part in _parts(x):
            if fails(part):
                path, x = f"{path}, {name}", part
                break
        else:
            break
    return path, x


def _parts(x: Any) -> Iterator[tuple[str, Any]]:
    """What an object consists of, by names a user knows it by."""
    if inspect.isfunction(x):
        known = inspect.getclosurevars(x)
        yield from {**known.globals, **known.nonlocals}.items()
        yield from ((f"default of {k}", p.default) for k, p in inspect.signature(x).parameters.items())
    elif isinstance(x, Mapping):
        yield from ((str(key), part) for key, part in x.items())
    elif isinstance(x, list | tuple):
        yield from ((f"entry {i}", part) for i, part in enumerate(x))
    elif inspect.ismethod(x):
        yield from (("its object", x.__self__), ("its function", x.__func__))
    elif hasattr(x, "func") and hasattr(x, "keywords"):  # of functools.partial
        yield from (("function", x.func), *x.keywords.items(), ("arguments", x.args))
    elif hasattr(x, "__dict__") and not isinstance(x, type):
        yield from vars(x).items()
