"""Names for the arrays of one state, so that signatures read like the theory; and whether they have values."""

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

T = TypeVar("T")

Time = Float[Array, ""]
Coordinates = Float[Array, " nq"]
"""Generalized coordinates q."""
Velocities = Float[Array, " n"]
"""Generalized velocities (or quasi-velocities) v."""
Forces = Float[Array, " n"]
"""Generalized forces, conjugate to v."""
MassMatrix = Float[Array, "n n"]
Numbers = ArrayLike | Sequence[float]
"""What users may give where an array is wanted: an array of JAX or NumPy, or a list of numbers."""


def by_precision(dtype: Any, double: T, single: T) -> T:
    """One of two choices: that for float64, or that for float32 and less.

    **Arguments:**

    - `dtype`: a floating-point type.
    - `double`, `single`: the choices.
    """
    return double if jnp.finfo(dtype).bits >= 64 else single


def is_traced(*values: Any) -> bool:
    """Whether JAX is tracing any array in these pytrees, so that its value cannot be looked at.

    **Arguments:**

    - `values`: pytrees.
    """
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def module_for(*values: Any) -> Any:
    """`jax.numpy` where JAX traces any of these values, otherwise NumPy: JAX would compile each small operation.

    **Arguments:**

    - `values`: numbers and arrays.
    """
    return jnp if is_traced(values) else np


def as_jax(x: Any) -> Array:
    """An array of NumPy as one of JAX, of JAX's precision. `jnp.asarray` would compile a program that copies it.

    **Arguments:**

    - `x`: an array of NumPy, which is copied, or one of JAX.
    """
    return x if isinstance(x, Array) else jax.device_put(np.array(x, jax.dtypes.canonicalize_dtype(x.dtype)))
