"""Which precision is computed in: of all numbers, and of matrix products, which a GPU would round to ten bits."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax
import numpy as np

P = ParamSpec("P")
T = TypeVar("T")


def is_float64_enabled() -> bool:
    """Whether JAX computes in float64 here."""
    return jax.dtypes.canonicalize_dtype(np.float64) == np.float64


def in_full_precision(function: Callable[P, T]) -> Callable[P, T]:
    """The same function, with all matrix products that it traces in full precision, those of users' code too.

    Rules of derivatives need it for themselves: JAX may trace them long after the function they are of.
    """

    @functools.wraps(function)
    def precise(*args: P.args, **kwargs: P.kwargs) -> T:
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return precise
