"""What loads and given motions follow: constants, or functions of time and motion, checked where they are called."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from .._misc._arguments import call_user_function, number_array, require_function
from .._misc._errors import InputError
from ._bodies import check_array


def check_law(what: str, value: Any, takes: str, *shapes: tuple[int, ...]) -> Any:
    """A function as it is, or a constant as an array."""
    if not callable(value):
        return check_array(what, value, *shapes)
    require_function(what, value, takes)
    return value


def value_of(what: str, law: Any, shape: tuple[int, ...], *arguments: Array) -> Array:
    """A function's value, or the constant."""
    if not callable(law):
        return law
    value = number_array(f"what {what} returns", call_user_function(what, law, *arguments))
    if value.shape != shape or not jnp.issubdtype(value.dtype, jnp.number):
        right = f"shape {shape}" if shape else "a scalar"
        raise InputError(f"{what} returned shape {value.shape}; it must return {right}.")
    return value
