"""Parameters of the models: how they are stored, and one line that names the one that is wrong.

Values that JAX is tracing pass unchecked, so a model can be built inside `jit`, `vmap` or `grad`.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from .._compiler import evaluate_at_state
from .._misc._arguments import whole_number
from .._misc._closures import equal_to_itself
from .._misc._errors import InputError
from .._misc._types import Coordinates, Time, as_jax, is_traced, module_for

Scalar = float | Array
"""A parameter: a number or a scalar array."""


def as_parameter(value: Any) -> Array:
    """The array a system's field holds, always of floats, so that it can be differentiated."""
    value = float(value) if isinstance(value, int) else value
    return as_jax(value) if isinstance(value, float | np.ndarray | np.generic) else jnp.asarray(value)


def numbers(*values: Any) -> list[Any]:
    """Parameters as arrays of NumPy where all are known, so that nothing is compiled; otherwise of JAX."""
    arrays = [as_parameter(x) for x in values]
    return [module_for(arrays).asarray(x) for x in arrays]


def stack_parameters(values: Iterable[Any]) -> Array:
    """Parameters as one array."""
    arrays = [as_parameter(x) for x in values]
    return as_jax(module_for(arrays).stack(arrays))


def evaluate_start(function: Callable[..., Any], parameters: Any, *values: Scalar) -> Any:
    """What a function of parameters and numbers returns, a pytree of arrays.

    Where all have values XLA compiles nothing: each operation on its own would take 20 ms. Where JAX differentiates
    them it compiles one program.
    """
    arrays = [as_parameter(x) for x in values]
    if is_traced((parameters, arrays)):
        return eqx.filter_jit(function)(parameters, *arrays)
    return jax.tree.map(as_jax, evaluate_at_state(function, parameters, *arrays))


def _number(name: str, value: Any) -> float | None:
    """`value` as a finite float; None where JAX is tracing it."""
    if isinstance(value, Tracer):
        return None
    try:
        if isinstance(value, str | bool):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be a number, not {value!r}.") from None
    if not math.isfinite(number):
        raise InputError(f"{name} must be a finite number, not {number}.")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise InputError(f"{name} is too large for an integer: write {number:g}.")
    return number


def check_finite(**values: Any) -> None:
    """Raise `InputError` unless every value is a finite number."""
    for name, value in values.items():
        _number(name, value)


def check_positive(**values: Any) -> None:
    """Raise `InputError` unless every value is a number greater than zero."""
    for name, value in values.items():
        number = _number(name, value)
        if number is not None and number <= 0.0:
            raise InputError(f"{name} must be greater than 0, not {number:g}.")


def check_not_negative(**values: Any) -> None:
    """Raise `InputError` unless every value is a number of at least zero."""
    for name, value in values.items():
        number = _number(name, value)
        if number is not None and number < 0.0:
            raise InputError(f"{name} must not be negative, it is {number:g}.")


def check_count(**values: Any) -> None:
    """Raise `InputError` unless every value is an integer of at least 1."""
    for name, value in values.items():
        whole_number(name, value)


def check_choice(choices: Iterable[Any], **values: Any) -> None:
    """Raise `InputError` unless every value is one of `choices`."""
    choices = list(choices)
    for name, value in values.items():
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            options = " or ".join(repr(choice) for choice in choices)
            raise InputError(f"{name} must be {options}, not {value!r}.")


def check(condition: Any, message: str) -> None:
    """Raise `InputError(message)` unless `condition` holds, or is traced and cannot be known."""
    if not isinstance(condition, Tracer) and not condition:
        raise InputError(message)


@final
@equal_to_itself
class NamedPoints(eqx.Module):
    """points(t, q) with some of the points of a mechanism, by names of their own."""

    system: Any  # the mechanism
    # `names`: pairs (name, the mechanism's name), such as ("ball1", "rod 1.end").
    names: tuple[tuple[str, str], ...] = eqx.field(static=True)

    def __call__(self, t: Time, q: Coordinates) -> dict[str, Array]:
        points = self.system.points(t, q)
        return {name: points[known] for name, known in self.names}
