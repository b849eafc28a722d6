"""Arrays whose entries are put before they are read."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray
from jax.extend import core
from jax.interpreters import batching, mlir
from jaxtyping import Array

# JAX's own `empty` becomes one array a member under `vmap`, and with it all that is computed in it.
_blank_p = core.Primitive("blank")
_blank_p.def_impl(lambda *, shape, dtype: lax.empty(shape, dtype))
_blank_p.def_abstract_eval(lambda *, shape, dtype: ShapedArray(shape, dtype))
batching.primitive_batchers[_blank_p] = lambda _, __, **of: (_blank_p.bind(**of), None)
mlir.register_lowering(_blank_p, mlir.lower_fun(lambda *, shape, dtype: lax.empty(shape, dtype), False))


def blank(shape: int | tuple[int, ...], dtype: Any) -> Array:
    """An array, flat for a number, whose entries are put before they are read."""
    dtype = jax.dtypes.canonicalize_dtype(jnp.dtype(dtype))
    return _blank_p.bind(shape=shape if isinstance(shape, tuple) else (shape,), dtype=dtype)
