"""Matrix products in full precision: a GPU's default would round float32 to ten bits."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
T = TypeVar("T")


def in_full_precision(function: Callable[P, T]) -> Callable[P, T]:
    """The same function, with all matrix products that it traces in full precision, those of users' code too.

    Rules of derivatives need it for themselves: JAX may trace them long after the function they are of.

    **Arguments:**

    - `function`: any.
    """

    @functools.wraps(function)
    def precise(*args: P.args, **kwargs: P.kwargs) -> T:
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return precise
