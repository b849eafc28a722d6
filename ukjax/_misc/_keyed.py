"""What is compared by a key, so that what was compiled for one serves its equals."""

from collections.abc import Hashable
from typing import Any, Generic, TypeVar, final

import equinox as eqx
import jax

T = TypeVar("T")


@final
class HashableByKey(Generic[T]):
    """Something that equals all of the same key, which is hashed once; a function can be called as it is.

    **Arguments:**

    - `value`: the thing, which lives as long.
    - `key`: what tells it from others.
    """

    def __init__(self, value: T, key: Hashable):
        self.value, self._key, self._hash = value, key, hash(key)

    def __call__(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return self.value(*arguments, **keywords)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, HashableByKey):
            return self is other
        return self._hash == other._hash and self._key == other._key


def key_by_identity(x: T) -> HashableByKey[T]:
    """Something that is equal to itself alone."""
    return HashableByKey(x, id(x))


Static = HashableByKey[Any]
"""What something is compiled for: pytrees without arrays."""


def partition_static(parts: Any) -> tuple[Static, Any]:
    """Pytrees as what something is compiled for, and the arrays it is compiled of."""
    arrays, rest = eqx.partition(parts, eqx.is_array)
    leaves, tree = jax.tree.flatten(rest)
    return HashableByKey(rest, (tuple(leaves), tree)), arrays


def combine_static(static: Static, arrays: Any) -> Any:
    """The pytrees that were parted."""
    return eqx.combine(arrays, static.value)
