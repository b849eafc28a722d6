"""Names for the arrays of one state, so that signatures read like the theory; and whether they have values."""

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray, Tracer
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jaxtyping import Array, ArrayLike, Float

try:
    from jax.extend.core import get_opaque_trace_state
except ImportError:  # before JAX 0.10
    from jax.core import get_opaque_trace_state

T = TypeVar("T")

Time = Float[Array, ""]
Coordinates = Float[Array, " nq"]
"""Generalized coordinates q."""
Velocities = Float[Array, " n"]
"""Generalized velocities (or quasi-velocities) v."""
Forces = Float[Array, " n"]
"""Generalized forces, conjugate to v."""
Multipliers = Float[Array, " m"]
"""Constraint multipliers lambda, one a row."""
MassMatrix = Float[Array, "n n"]
Numbers = ArrayLike | Sequence[float]
"""What users may give where an array is wanted: an array of JAX or NumPy, or a list of numbers."""


def choose_by_precision(dtype: Any, double: T, single: T) -> T:
    """One of two choices: that for float64, or that for float32 and less."""
    return double if jnp.finfo(dtype).bits >= 64 else single


def is_traced(*values: Any) -> bool:
    """Whether JAX is tracing any array in these pytrees, so that its value cannot be looked at."""
    known = (np.ndarray, np.generic, float)  # most of what is asked about; to flatten a tree takes longer
    return any(
        isinstance(leaf, Tracer) for x in values if type(x) not in known for leaf in jax.tree.leaves(x)
    )


def _state() -> Any:
    """Which transformation JAX is in, to be compared."""
    return get_opaque_trace_state(convention=None)


@functools.cache
def _outside() -> Any:
    """The state outside of all transformations, in which a thread begins."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_state).result()


def is_transforming() -> bool:
    """Whether JAX transforms what is computed now, by `jit`, `vmap` or differentiation: only then is anything traced."""
    return _state() != _outside()


_nothing_p = Primitive("nothing")  # to ask whether it is traced compiles nothing
_nothing_p.def_impl(lambda: 0.0)
_nothing_p.def_abstract_eval(lambda: ShapedArray((), np.dtype(np.float32)))
mlir.register_lowering(_nothing_p, mlir.lower_fun(lambda: np.float32(0), multiple_results=False))


def is_tracing() -> bool:
    """Whether what is computed now is traced even if all it is computed from has values, as within `jit`."""
    return is_transforming() and isinstance(_nothing_p.bind(), Tracer)


def is_within_jit(*values: Any) -> bool:
    """Whether any array in these pytrees is traced for a program. Where `vmap` or a derivative alone traces it, outside
    of `jit`, operations run one by one."""
    return is_traced(*values) and is_tracing()


def module_for(*values: Any) -> Any:
    """`jax.numpy` where JAX traces any of these values, otherwise NumPy: JAX would compile each small operation."""
    return jnp if is_traced(values) else np


def arrays_of(*values: Any) -> tuple[Any, ...]:
    """Values as arrays of `module_for` all of them."""
    return tuple(map(module_for(*values).asarray, values))


def as_jax(x: Any) -> Array:
    """A float or an array of NumPy as an array of JAX, of JAX's precision. `jnp.asarray` would compile a program that
    copies it.
    """
    if isinstance(x, Array):
        return x
    known = isinstance(x, np.ndarray | np.generic)
    return jax.device_put(np.array(x, jax.dtypes.canonicalize_dtype(x.dtype)) if known else x)


def keep_precision(x: Any) -> Array:
    """As `as_jax`, in the precision of the array, whatever JAX computes in now."""
    with jax.enable_x64(is_float64_enabled() or np.dtype(x.dtype).itemsize == 8):
        return as_jax(x)


# --- Which precision is computed in: of all numbers, and of matrix products, which a GPU would round to ten bits

P = ParamSpec("P")


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
