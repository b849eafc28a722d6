"""What is computed of contacts, by scalar code where there can be such, else on arrays.

A part is a plain function, written once for both: of a model, or only of what `contact_at` found at a state.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compiler import AccelerationProgram, TranslationError, array_function, system_function
from .._formula._acceleration import UdwadiaKalaba
from .._formula._contact_newton import invert_matrix, solve_by_elimination
from .._misc._types import choose_by_precision, in_full_precision
from .._motion._model import Model
from .._pseudoinverse._kernels import dot
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from ._rows import Coefficients, ContactLayout, ContactState

# On the diagonal, beside its mean. Dependent rows get the least of their forces, to rounding over this; what it leaves
# of the others goes with its cube.
PULL = (1e-9, 1e-4)
PASSES = 3


def _least(
    directly: Callable[[Array, Array], Array], K: Float[Array, "m m"], b: Float[Array, " m"]
) -> Float[Array, " m"]:
    if not b.size:
        return b
    unit, mean = jnp.eye(b.size, dtype=b.dtype), jnp.trace(K) / b.size
    A = K + choose_by_precision(b.dtype, *PULL) * jnp.where(mean > 0, mean, 1) * unit
    p = directly(A, b)
    for _ in range(PASSES - 1):
        p = p + directly(A, b - dot(K, p))
    return p


class ContactContext(NamedTuple):
    """What parts compute with besides the contacts.

    - `layout`, `coefficients`: of the contacts.
    - `solve`: the least p with K p = b, dependent rows included (proximal point); rows of zeros keep a p of zero.
    """

    layout: ContactLayout
    coefficients: Coefficients
    solve: Callable[[Array, Array], Array]


_written_out = functools.partial(_least, solve_by_elimination)
_on_arrays = functools.partial(_least, lambda A, b: dot(invert_matrix(A), b))


def evaluate_array_part(
    function: Callable[..., Any], *arrays: Array, otherwise: Callable[..., Any] | None = None
) -> Any:
    """What a part returns that needs arrays only."""
    try:
        return array_function(function, *arrays)(*arrays)
    except TranslationError:  # there would be too many operations
        return (otherwise or function)(*arrays)


@dataclasses.dataclass(frozen=True)
class _OfContacts:
    """A part as a function of the leaves of coefficients, contacts and more.

    - `function`: of `ContactContext`, a `ContactState` and more.
    - `layout`: of the contacts.
    - `tree`: the structure of the leaves.
    """

    function: Callable[..., Any]
    layout: ContactLayout
    tree: Any

    def __call__(self, *leaves: Array) -> Any:
        coefficients, contact, more = jax.tree.unflatten(self.tree, leaves)
        return self.function(ContactContext(self.layout, coefficients, _written_out), contact, *more)


@in_full_precision
def evaluate_contact_part(
    function: Callable[..., Any],
    layout: ContactLayout,
    coefficients: Coefficients,
    contact: ContactState,
    *more: Any,
) -> Any:
    """What a part returns that needs no model."""
    leaves, tree = jax.tree.flatten((coefficients, contact, more))
    on_arrays = lambda *_: evaluate_part_on_arrays(function, layout, coefficients, contact, *more)
    return evaluate_array_part(_OfContacts(function, layout, tree), *leaves, otherwise=on_arrays)


@in_full_precision
def evaluate_part_on_arrays(
    function: Callable[..., Any],
    layout: ContactLayout,
    coefficients: Coefficients,
    contact: ContactState,
    *more: Any,
) -> Any:
    """The same without scalar code: what is asked at a few states need not be written out for each row."""
    return function(ContactContext(layout, coefficients, _on_arrays), contact, *more)


@dataclasses.dataclass(frozen=True)
class OfModel:
    """A part as a function of system, stabilizer and arrays.

    - `function`: of a model and arrays.
    - `code`: of the acceleration.
    """

    function: Callable[..., Any]
    code: AccelerationProgram

    def __call__(self, system: AbstractSystem, stabilizer: AbstractStabilizer, *arrays: Array) -> Any:
        return self.function(Model(system, UdwadiaKalaba(), stabilizer, self.code), *arrays)


@in_full_precision
def evaluate_model_part(function: Callable[..., Any], model: Model, *arrays: Array) -> Any:
    """What a part returns that needs the model, by scalar code where the acceleration has such."""
    if model.code is not None and model.is_solved:
        try:
            code = system_function(OfModel(function, model.code), model.system, model.stabilizer, *arrays)
            return code(model.system, model.stabilizer, *arrays)
        except TranslationError:  # of gaps and slips, or as there would be too many operations
            pass
    return function(model, *arrays)
