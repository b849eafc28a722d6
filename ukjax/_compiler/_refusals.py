"""What has no scalar code is refused once: to find out may take as long as to write it."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from .._misc._garbage import collector_paused
from ._scalars import TranslationError

T = TypeVar("T")

_KEPT = 64  # results, and refusals: those of the systems a session goes back and forth between

_forget: list[Callable[[], None]] = []


def forget() -> None:
    """Drops all that is kept, as `jax.clear_caches` does with what JAX keeps: memory, where systems come by hundreds."""
    for clear in _forget:
        clear()


def cached_or_untranslatable(make: Callable[..., T]) -> Callable[..., T]:
    """The same function, which keeps what it made, by its arguments, and why it could not."""

    @functools.lru_cache(maxsize=_KEPT)
    def outcome(*args: Any) -> T | str:
        try:
            with collector_paused():
                return make(*args)
        except TranslationError as reason:
            return str(reason)  # without the frames it was raised in, and all they hold

    _forget.append(outcome.cache_clear)

    @functools.wraps(make)
    def kept(*args: Any) -> T:
        try:
            hash(args)
        except TypeError as reason:
            raise TranslationError(f"what it is made of cannot be kept: {reason}") from None
        found = outcome(*args)
        if isinstance(found, str):
            raise TranslationError(found)
        return found

    return kept
