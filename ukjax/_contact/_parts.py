"""What is computed of contacts at a state, by scalar code where there can be such, else on arrays.

A part is a plain function of `Means` and of arrays alone. It is written once for both.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compiler import Code, TranslationError, system_function
from .._formula._acceleration import UdwadiaKalaba
from .._formula._contact_newton import eliminated, inverted
from .._misc._precision import in_full_precision
from .._misc._types import by_precision
from .._motion._model import Model
from .._pseudoinverse._kernels import dot
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from ._rows import Coefficients, Layout

# On the diagonal, beside its mean. Dependent rows get the least of their forces, to rounding over this; what it leaves
# of the others goes with its cube.
_PULL = (1e-9, 1e-4)
_PASSES = 3


def _least(
    directly: Callable[[Array, Array], Array], K: Float[Array, "m m"], b: Float[Array, " m"]
) -> Float[Array, " m"]:
    unit, mean = jnp.eye(b.size, dtype=b.dtype), jnp.trace(K) / max(b.size, 1)
    A = K + by_precision(b.dtype, *_PULL) * jnp.where(mean > 0, mean, 1) * unit
    p = directly(A, b)
    for _ in range(_PASSES - 1):
        p = p + directly(A, b - dot(K, p))
    return p


@final
class Means(eqx.Module):
    """What parts compute with.

    - `model`: of a `Pushed` system.
    - `layout`, `coefficients`: of its contacts.
    - `solve`: the least p with K p = b, dependent rows included (proximal point); rows of zeros keep a p of zero.
    """

    model: Model
    coefficients: Coefficients
    layout: Layout = eqx.field(static=True)
    solve: Callable[[Array, Array], Array] = eqx.field(static=True)


_written_out = functools.partial(_least, eliminated)
_on_arrays = functools.partial(_least, lambda A, b: dot(inverted(A), b))


@dataclasses.dataclass(frozen=True)
class _Part:
    """A part as a function of system, stabilizer, coefficients and arrays.

    - `function`: of `Means` and arrays.
    - `layout`: of the contacts.
    - `code`: of the acceleration.
    """

    function: Callable[..., Any]
    layout: Layout
    code: Code

    def __call__(self, system: AbstractSystem, stabilizer: AbstractStabilizer, *arrays: Array) -> Any:
        count = len(Coefficients._fields)
        model = Model(system, UdwadiaKalaba(), stabilizer, self.code)
        means = Means(model, Coefficients(*arrays[:count]), self.layout, _written_out)
        return self.function(means, *arrays[count:])


@in_full_precision
def computed(
    function: Callable[..., Any], model: Model, coefficients: Coefficients, layout: Layout, *arrays: Array
) -> Any:
    """What a part returns, by scalar code where the acceleration has such and the part can.

    **Arguments:**

    - `function`: of `Means` and arrays; it returns a pytree of real arrays.
    - `model`: of a `Pushed` system.
    - `coefficients`, `layout`: of its contacts.
    - `arrays`: the arrays.
    """
    if model.code is not None:
        given = *coefficients, *arrays
        try:
            code = system_function(
                _Part(function, layout, model.code), model.system, model.stabilizer, *given
            )
            return code(model.system, model.stabilizer, *given)
        except TranslationError:  # of gaps and slips, or as there would be too many operations
            pass
    return function(Means(model, coefficients, layout, _on_arrays), *arrays)
