"""Checks of what a user hands in: each raises `InputError` with one line that names the argument."""

import difflib
import inspect
import numbers
from collections.abc import Callable, Iterable
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._conversions import CONVERSIONS, mend
from ._errors import InputError
from ._types import is_traced


def called(whose: str, fn: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """What a user's function returns.

    **Arguments:**

    - `whose`: what the message calls the function, such as "the force of MySystem".
    - `fn`: the function.
    - `arguments`, `keywords`: its arguments.

    **Raises:** `InputError` where the function asks for values that JAX traces, with the error as its cause.
    """
    try:
        return fn(*arguments, **keywords)
    except CONVERSIONS as error:
        raise InputError(f"{whose} {mend(error)}") from error


def number_array(name: str, value: Any) -> Array:
    """A value as an array of whatever numbers.

    **Arguments:** as `real_array`.

    **Raises:** `InputError` for what is not an array of numbers.
    """
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers, got {value!r}.") from error


def require_function(name: str, fn: Any, takes: str) -> None:
    """Raises `InputError` unless `fn` can be called with some positional arguments.

    **Arguments:**

    - `name`: what the message calls it.
    - `fn`: the function.
    - `takes`: their names, such as "t, q".
    """
    if not callable(fn):
        raise InputError(f"{name} must be a function of ({takes}), got {fn!r}.")
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # of some written in C nothing is known
        return
    try:
        signature.bind(*takes.split(", "))
    except TypeError as error:
        raise InputError(f"{name} must be a function of ({takes}); this one takes {signature}.") from error


def real_array(name: str, value: Any) -> Array:
    """A value as a real floating-point array; integers count as real.

    **Arguments:**

    - `name`: what the message calls it.
    - `value`: anything `jnp.asarray` takes.

    **Raises:** `InputError` for what is not an array of real numbers.
    """
    # JAX would make an array of weak type of a plain number, and compile what converts it.
    plain = isinstance(value, numbers.Real)
    array = jax.device_put(np.asarray(value)) if plain else number_array(name, value)
    if jnp.issubdtype(array.dtype, jnp.integer) or jnp.issubdtype(array.dtype, jnp.bool_):
        array = array.astype(float)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise InputError(f"{name} must be real, got {array.dtype}.")
    return array


def fails(holds: Callable[..., Any], *values: Any) -> bool:
    """Whether something is known not to hold of values; False while JAX traces any of them.

    NumPy compares: within `jit` an operation of JAX would make a tracer even of arrays that have values.

    **Arguments:**

    - `holds`: of the values as NumPy arrays, true or an array of truths.
    - `values`: numbers and arrays, as given: what is computed of them within `jit` is traced.
    """
    return not is_traced(values) and not np.all(holds(*map(np.asarray, values)))


def require_finite(name: str, value: Any) -> None:
    """Raises `InputError` if a concrete array holds NaN or infinity; says nothing while tracing.

    **Arguments:**

    - `name`: what the message calls it.
    - `value`: numbers.
    """
    if fails(np.isfinite, value):
        raise InputError(f"{name} must be finite, got {value}.")


def require_not_negative(name: str, value: Any) -> None:
    """Raises `InputError` unless all numbers of a concrete array are finite and not negative.

    **Arguments:**

    - `name`: what the message calls it.
    - `value`: numbers.
    """
    if fails(lambda x: (x >= 0) & np.isfinite(x), value):
        raise InputError(f"{name} must be finite and not negative, got {value}.")


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """An integer, also one of NumPy's.

    **Arguments:**

    - `name`: what the message calls it.
    - `value`: the integer.
    - `least`: the least allowed.

    **Raises:** `InputError` for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InputError(f"{name} must be an integer of at least {least}, got {value!r}.")
    return int(value)


def positive_time(name: str, value: Any) -> Array:
    """A time greater than zero as an array.

    **Arguments:**

    - `name`: what the message calls it.
    - `value`: a number [s].

    **Raises:** `InputError` for anything else.
    """
    array = real_array(name, value)
    if array.ndim or fails(lambda x: (x > 0) & np.isfinite(x), value):
        raise InputError(f"{name} must be a positive time [s], got {value}.")
    return array


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


def require_solver(solver: Any) -> None:
    """Raises `InputError` unless `solver` is one of Diffrax's for ordinary differential equations."""
    require_instance("solver", solver, dfx.AbstractSolver, "diffrax.Tsit5()")
    terms = solver.term_structure
    if not (inspect.isclass(terms) and issubclass(dfx.ODETerm, terms)):
        raise InputError(
            f"{type(solver).__name__} does not solve y' = f(t, y) as it stands: take one such as diffrax.Tsit5()."
        )


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
