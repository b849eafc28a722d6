"""Checks of what a user hands in: each raises `InputError` with one line that names the argument."""

import difflib
import numbers
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._errors import InputError
from ._types import is_traced


def real_array(name: str, value: Any) -> Array:
    """A value as a real floating-point array; integers count as real.

    **Arguments:**

    - `name`: what the message calls it.
    - `value`: anything `jnp.asarray` takes.

    **Raises:** `InputError` for what is not an array of real numbers.
    """
    try:
        # JAX would make an array of weak type of a plain number, and compile what converts it.
        array = jax.device_put(np.asarray(value)) if isinstance(value, numbers.Real) else jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers, got {value!r}.") from error
    if jnp.issubdtype(array.dtype, jnp.integer) or jnp.issubdtype(array.dtype, jnp.bool_):
        array = array.astype(float)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise InputError(f"{name} must be real, got {array.dtype}.")
    return array


def require_finite(name: str, value: Array) -> None:
    """Raises `InputError` if a concrete array holds NaN or infinity; says nothing while tracing.

    **Arguments:**

    - `name`: what the message calls it.
    - `value`: the array.
    """
    if not is_traced(value) and not np.all(np.isfinite(value)):
        raise InputError(f"{name} must be finite, got {value}.")


def require_between(name: str, value: Any, low: float, high: float) -> None:
    """Raises `InputError` unless a concrete value is a number with low < value < high.

    **Arguments:**

    - `name`: what the message calls it.
    - `value`: a number, or an array of one.
    - `low`: the bound below, itself excluded.
    - `high`: the bound above, itself excluded.
    """
    if is_traced(value):
        return
    number = value.item() if isinstance(value, Array | np.ndarray) and np.ndim(value) == 0 else value
    if not (isinstance(number, numbers.Real) and low < float(number) < high):
        raise InputError(f"{name} must lie between {low:g} and {high:g}, got {value!r}.")


def require_instance(name: str, value: Any, kind: type | tuple[type, ...], such_as: str) -> None:
    """Raises `InputError` unless a value is an instance of a class.

    **Arguments:**

    - `name`: what the message calls it.
    - `value`: the value.
    - `kind`: the class or classes it may be of.
    - `such_as`: an example of what would be right.
    """
    if not isinstance(value, kind):
        hint = " (an instance is needed, not the class)" if isinstance(value, type) else ""
        raise InputError(f"{name} must be something like {such_as}, got {value!r}{hint}.")


def unknown_name(kind: str, name: Any, known: Iterable[str]) -> InputError:
    """The error for a name that is not known, with the closest one that is.

    **Arguments:**

    - `kind`: what is named, such as `"model"`.
    - `name`: what was given.
    - `known`: the names there are.
    """
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else "."
    return InputError(f"unknown {kind} '{name}'{hint} Known: {', '.join(known)}.")
