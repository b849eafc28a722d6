"""Values whose derivatives are those of something else: of a solution, what the equations lack where it is held."""

import jax.numpy as jnp
from jax.extend import core
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

attached_p = core.Primitive("attached")
"""x, with the derivative of the carrier."""
attached_p.def_impl(lambda x, carrier: x)
attached_p.def_abstract_eval(lambda x, carrier: x)
mlir.register_lowering(attached_p, lambda ctx, x, carrier: [x])
# What is constant to this differentiation is not to the next.
ad.primitive_jvps[attached_p] = lambda primals, tangents: (primals[0], tangents[1])


def _batch(operands, axes):
    size = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
    return attached_p.bind(
        *(batching.bdim_at_front(x, a, size) for x, a in zip(operands, axes, strict=True))
    ), 0


batching.primitive_batchers[attached_p] = _batch


def with_tangent_of(x: Array, carrier: Array) -> Array:
    """x, with the derivative of the carrier, an array of its shape and type."""
    return attached_p.bind(x, carrier)


def freeze(x: Array) -> Array:
    """x as a constant to the first differentiation, but not to the next."""
    return attached_p.bind(x, jnp.zeros_like(x))
