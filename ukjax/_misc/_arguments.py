"""Checks of what a user hands in: each raises `InputError` with one line that names the argument."""

import contextlib
import functools
import inspect
import numbers
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ._errors import InputError, MissingExtraError, SimulationError, format_value, unknown_name
from ._places import deepest_line
from ._types import as_jax, is_traced, is_tracing

_Function = TypeVar("_Function", bound=Callable[..., Any])

# --- Processes forked from one in which JAX had started: they lack its threads, and it waits for them forever

_computing: int | None = None


def require_own_process() -> None:
    """Raises `InputError` in a process forked from one in which ukjax had computed; in others notes that it does.

    A fork keeps memory, this note as well as JAX's, and of all threads only the one that forked.
    """
    global _computing
    if _computing is None:
        _computing = os.getpid()
    elif _computing != os.getpid():
        raise InputError(
            "this process was forked from one in which JAX had started, so JAX would wait here forever: "
            "start processes by 'spawn', as multiprocessing.get_context('spawn') does."
        )


# --- Names a user gives, and what the parameters of a user's function are by their names

_KINDS = {kind.__name__: kind for kind in (float, int, bool, str)}


def kind_of(parameter: inspect.Parameter) -> type | None:
    """What a function's parameter is, float, int, bool or str, by its annotation, else its default; None if it is open.

    An integer for a default leaves it open: `length=1` may as well be 1.5.
    """
    annotation = parameter.annotation
    annotation = getattr(
        annotation, "__name__", annotation
    )  # a string, under `from __future__ import annotations`
    if isinstance(annotation, str) and annotation in _KINDS:
        return _KINDS[annotation]
    default = type(parameter.default)
    return default if default in (float, bool, str) else None


# --- What to write in place of Python and NumPy where JAX traces a value, as it does all that a user's function is
# given

_MENDS = {
    jax.errors.TracerBoolConversionError: "decides by a value that is only known in the run (`if`, `and`, `max`): write "
    "jnp.where(condition, x, y), jnp.logical_and or jnp.maximum",
    jax.errors.TracerArrayConversionError: "hands a value that is only known in the run to NumPy or SciPy: write jnp in "
    "place of np, such as jnp.sin for np.sin and jnp.interp for np.interp, and ukjax.Tabulated or jnp.interp for "
    "splines of SciPy",
    jax.errors.TracerIntegerConversionError: "uses a value that is only known in the run as a place in a list, or a "
    "count: make the list an array of jnp",
    jax.errors.NonConcreteBooleanIndexError: "picks entries by conditions that are only known in the run: write "
    "jnp.where(condition, x, 0.0)",
    jax.errors.ConcretizationTypeError: "makes a Python number of a value that is only known in the run (`float`, `int`, "
    "`math`, `range`): leave the conversion out, and write jnp in place of math",
}
"""By errors of JAX for a traced value that Python or NumPy would have to know; the last is the base of some others."""

_MENDS_BY_WORDS = {
    "__format__": "writes into text what is only known in the run: show it by jax.debug.print('{x}', x=x)",
    "cannot assign to field": "changes the system, which is the same during a run: leave the assignment out, and make "
    "what changes a function of t, q and v",
    "Tracer has no attribute|not support string indexing": "asks an array for a name, as in q.x or q['x']: write its "
    "place, such as q[0]",
    "<class 'list'>|'list' and|and 'list'": "computes with a list: make an array of it, by jnp.array([1.0, 2.0]) or "
    "jnp.stack([x, y])",
    "Zero-dimensional arrays cannot be concatenated": "joins numbers by jnp.concatenate, which joins arrays: write "
    "jnp.stack([x, y])",
}
"""By what the messages of other errors have in them."""

_OF_BUFFERS = (
    "writes into an array, entry by entry, what is only known in the run: write jnp.stack([x, y]), or "
    "f = f.at[0].set(x) in place of f[0] = x, with an array f of jnp"
)


def mend(error: Exception) -> str | None:
    """What a function did wrong with a traced value, and what it should do: a sentence's end. None for other errors."""
    of_numpy = isinstance(error, ValueError) and isinstance(
        error.__cause__, jax.errors.ConcretizationTypeError
    )
    of_jax = isinstance(error, TypeError) and "JAX arrays are immutable" in str(error)
    if of_numpy or of_jax:
        return f"{_OF_BUFFERS}."
    of_kind = (text for kind, text in _MENDS.items() if isinstance(error, kind))
    of_words = (text for words, text in _MENDS_BY_WORDS.items() if re.search(words, str(error)))
    return next((f"{text}." for text in (*of_kind, *of_words)), None)


# --- Functions of users, called so that what they raise says whose they are

_LONGEST = 200  # characters of a message that come from an exception


def call_user_function(whose: str, fn: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """What a user's function returns."""
    try:
        return fn(*arguments, **keywords)
    except (InputError, MissingExtraError, SimulationError):
        raise
    except Exception as error:
        misses = isinstance(error, TypeError) and not keywords and _takes_others(fn, arguments)
        what = misses or mend(error) or f"raised {type(error).__name__}: {_first_line(error)}"
        if at := "" if misses else deepest_line(error.__traceback__):
            what = f"{what.removesuffix('.')} ({at})."
        raise InputError(f"{whose} {what}") from error


_TAKEN = {2: "(t, q)", 3: "(t, q, v)", 4: "(t, q, v, multipliers)"}
"""The arguments that functions of a system are called with, by how many they are."""


def _takes_others(fn: Callable[..., Any], arguments: tuple[Any, ...]) -> str | None:
    """What is wrong with the arguments a function has, where it cannot be called with these: a sentence's end."""
    with contextlib.suppress(TypeError, ValueError):  # of some written in C nothing is known
        signature = inspect.signature(fn)
        try:
            signature.bind(*arguments)
        except TypeError:
            count = len(arguments)
            taken = _TAKEN.get(count, "1 argument" if count == 1 else f"{count} arguments")
            return f"must be a function of {taken}; this one takes {signature}."
    return None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["(no message)"])[0][:_LONGEST]


# --- What a user hands in


# Counts become 32-bit integers of JAX.
_LARGEST = 2**31 - 1


def number_array(name: str, value: Any) -> Array:
    """A value as an array of whatever numbers."""
    require_own_process()
    require_no_mask(name, value)
    try:
        if isinstance(value, str | bytes):  # of which "\0" would be a truth value
            raise TypeError("text")
        # Of what is differentiated now JAX would compile a copy.
        is_array = isinstance(value, Tracer) and not jax.typeof(value).weak_type
        return value if is_array else jnp.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} must be an array of numbers, got {format_value(value)}.") from error


def require_function(name: str, fn: Any, takes: str) -> None:
    """Raises `InputError` unless `fn` can be called with some positional arguments."""
    if not callable(fn):
        raise InputError(f"{name} must be a function of ({takes}), got {format_value(fn)}.")
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # of some written in C nothing is known
        return
    expected = takes.split(", ")
    try:
        signature.bind(*expected)
    except TypeError as error:
        raise InputError(f"{name} must be a function of ({takes}); this one takes {signature}.") from error
    order = [x for x in signature.parameters if x in expected]
    if order != [x for x in expected if x in order]:
        raise InputError(f"{name} is called with ({takes}), in this order; this one takes {signature}.")


def explain_arguments(meant: Mapping[str, str]) -> Callable[[_Function], _Function]:
    """Decorates a function to raise `InputError` for arguments that it does not have, with those that are meant.

    **Arguments:**

    - `meant`: what to write, by what other software calls it.
    """

    def decorate(fn: _Function) -> _Function:
        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return fn(*args, **kwargs)
            except TypeError:
                _require_arguments(fn, meant, args, kwargs)
                raise

        return call  # pyright: ignore[reportReturnType]

    return decorate


def _require_arguments(
    fn: Callable[..., Any], meant: Mapping[str, str], args: tuple[Any, ...], names: Iterable[str]
) -> None:
    parameters, called = inspect.signature(fn).parameters, getattr(fn, "__name__", "it")
    by_place = [x.name for x in parameters.values() if x.kind is x.POSITIONAL_OR_KEYWORD]
    if len(args) > len(by_place):
        raise InputError(
            f"{called} takes ({', '.join(by_place)}) by place, got {len(args)} values: write the others as name=value."
        ) from None
    for name in names:
        if name in meant:
            raise InputError(f"{called} has no argument '{name}': write {meant[name]}.") from None
        if name not in parameters:
            raise unknown_name(f"argument of {called}", name, parameters) from None


def real_array(name: str, value: Any) -> Array:
    """A value as a real floating-point array; integers count as real, truth values do not."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    array = _plain(name, value) if is_number else _convert_by_numpy(name, value)
    if jnp.issubdtype(array.dtype, jnp.integer):
        array = array.astype(float)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise InputError(f"{name} must be real, got {array.dtype}.")
    return array


def _plain(name: str, value: numbers.Real) -> Array:
    """A number as an array: JAX would make one of weak type, and compile what converts it."""
    require_own_process()
    try:
        array = np.asarray(value if isinstance(value, np.generic) else float(value))
        if is_tracing():  # where it would be a tracer
            return jax.device_put(array)
        of: Any = jax.config
        return _put_on_device(array.tobytes(), array.dtype, of.x64_enabled, of.jax_default_device)
    except (OverflowError, ValueError) as error:
        raise InputError(
            f"{name} is too large for a floating-point number: {format_value(value)}."
        ) from error


@functools.lru_cache(maxsize=1024)
def _put_on_device(contents: bytes, dtype: Any, x64: bool, device: Any) -> Array:
    """A number on the device that is JAX's default: mechanisms have the same ones thousands of times."""
    return jax.device_put(np.frombuffer(contents, dtype)[0])


def _convert_by_numpy(name: str, value: Any) -> Array:
    """What is no single number as an array, converted by NumPy: JAX would compile that."""
    require_no_mask(name, value)
    if not isinstance(value, Array) and not is_traced(value):
        with contextlib.suppress(TypeError, ValueError):  # what is wrong with it, JAX says
            array = np.asarray(value)
            if array.dtype.kind in "iuf":
                require_own_process()
                return as_jax(array if array.dtype.kind == "f" else array.astype(float))
    return number_array(name, value)


def require_no_mask(name: str, value: Any) -> None:
    """Raises `InputError` if a masked array of NumPy has masked entries: other arrays lose the mask without a word."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InputError(f"{name} has masked entries, and JAX knows none: fill them by array.filled(value).")


def real_values(name: str, value: Any) -> Array:
    """As `real_array`, but by NumPy where values are known: what is only looked at need not go to a device."""
    if is_traced(value):
        return real_array(name, value)
    require_own_process()
    require_no_mask(name, value)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return real_array(name, value)  # which says what is wrong
    if array.dtype.kind in "iu":
        array = array.astype(float)
    if array.dtype.kind != "f" and not jnp.issubdtype(array.dtype, jnp.floating):
        return real_array(name, value)  # likewise
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype))  # pyright: ignore[reportReturnType]


def fails(holds: Callable[..., Any], *values: Any) -> bool:
    """Whether something is known not to hold of values; False while JAX traces any of them.

    NumPy compares: within `jit` an operation of JAX would make a tracer even of arrays that have values.
    """
    if is_traced(*values):
        return False
    known = (float(x) if isinstance(x, int) else x for x in values)  # NumPy has none beyond 64 bits
    return not np.asarray(holds(*map(np.asarray, known))).all()


def require_finite(name: str, value: Any) -> None:
    """Raises `InputError` if a concrete array holds NaN or infinity; says nothing while tracing."""
    if fails(np.isfinite, value):
        raise InputError(f"{name} must be finite, got {_first_entry(~np.isfinite(value), value)}.")


def require_not_negative(name: str, value: Any) -> None:
    """Raises `InputError` unless all numbers of a concrete array are finite and not negative."""
    good = lambda x: (x >= 0) & np.isfinite(x)
    if fails(good, value):
        found = _first_entry(~good(np.asarray(value)), value)
        raise InputError(f"{name} must be finite and not negative, got {found}.")


def _first_entry(wrong: Any, value: Any) -> str:
    """The first entry of an array that is wrong, and where it is."""
    place = tuple(map(int, np.argwhere(wrong)[0])) if np.ndim(value) else ()
    where = f" in entry {', '.join(map(str, place))}" if place else ""
    return f"{np.asarray(value)[place]}{where}"


def whole_number(name: str, value: Any, least: int = 1, most: int = _LARGEST) -> int:
    """An integer, also one of NumPy's.

    **Raises:** `InputError` for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InputError(f"{name} must be an integer of at least {least}, got {format_value(value)}.")
    if (number := int(value)) > most:
        raise InputError(f"{name} must be at most {most}, got {format_value(value)}.")
    return number


def flag(name: str, value: Any) -> bool:
    """A choice of yes or no."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be True or False, got {format_value(value)}.")
    return bool(value)


def one_of(name: str, value: Any, choices: Iterable[str]) -> Any:
    """One of some words."""
    choices = list(choices)
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} must be {' or '.join(map(repr, choices))}, got {format_value(value)}.")
    return value


def all_of(name: str, values: Any, kind: type | tuple[type, ...], such_as: str) -> tuple:
    """Some values as a tuple."""
    if not is_list(values):
        raise InputError(f"{name} must be a list of things like {such_as}, got {type(values).__name__}.")
    values = tuple(values)
    for value in values:
        require_instance(f"each of the {name}", value, kind, such_as)
    return values


def is_list(values: Any) -> bool:
    """Whether something can be iterated, other than text: an array of no dimension only says so."""
    iterable = isinstance(values, Iterable) and not isinstance(values, str | bytes)
    return iterable and getattr(values, "ndim", 1) > 0


def positive_time(name: str, value: Any) -> Array:
    """A time greater than zero as an array."""
    array = real_values(name, value)
    if array.ndim or fails(lambda x: (x > 0) & np.isfinite(x), value):
        raise InputError(f"{name} must be a positive time [s], got {value}.")
    return array


def require_between(name: str, value: Any, low: float, high: float) -> None:
    """Raises `InputError` unless a concrete value is a number with low < value < high."""
    if is_traced(value):
        return
    try:
        number = value.item() if isinstance(value, Array | np.ndarray) and np.ndim(value) == 0 else value
        real = isinstance(number, numbers.Real) and not isinstance(number, bool)
        inside = real and low < float(number) < high
    except (OverflowError, NotImplementedError):  # the latter of keys of randomness
        inside = False
    if not inside:
        raise InputError(f"{name} must lie between {low:g} and {high:g}, got {format_value(value)}.")


def require_instance(name: str, value: Any, kind: type | tuple[type, ...], such_as: str) -> None:
    """Raises `InputError` unless a value is an instance of a class."""
    if not isinstance(value, kind):
        hint = " (an instance is needed, not the class)" if isinstance(value, type) else ""
        raise InputError(f"{name} must be something like {such_as}, got {format_value(value)}{hint}.")


def require_solver(solver: Any) -> None:
    """Raises `InputError` unless `solver` is one of Diffrax's for ordinary differential equations."""
    require_instance("solver", solver, dfx.AbstractSolver, "diffrax.Tsit5()")
    terms = solver.term_structure
    if not (inspect.isclass(terms) and issubclass(dfx.ODETerm, terms)):
        raise InputError(
            f"{type(solver).__name__} does not solve y' = f(t, y) as it stands: take one such as diffrax.Tsit5()."
        )
