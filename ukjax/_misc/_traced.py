"""Functions as JAX traces them, the same in every process, and digests that tell one from another."""

from collections.abc import Callable
from hashlib import sha256

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Array

from ._callbacks import cacheable


def traced(fn: Callable[..., list[Array]], *arguments: Array) -> ClosedJaxpr:
    """What a function computes, without host callbacks.

    **Arguments:**

    - `fn`: from arrays to arrays.
    - `arguments`: of the shapes it is to take.
    """
    # The device is part of the key under which JAX keeps what it traced: code kept from elsewhere may call back.
    with cacheable(), jax.default_device(jax.devices()[0]):
        return jax.make_jaxpr(fn)(*arguments)


def fingerprint(program: ClosedJaxpr, *values: Array) -> str:
    """A digest of all operations with all their constants, the same in every process.

    **Arguments:**

    - `program`: the operations, from `traced`.
    - `values`: what else is to be the same.
    """
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in program.in_avals]
    digest = sha256(jax.jit(jaxpr_as_fun(program)).lower(*shapes).as_text().encode())
    for x in values:
        digest.update(np.asarray(x).tobytes())
    return digest.hexdigest()[:16]
