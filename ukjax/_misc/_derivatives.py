"""Derivatives told to JAX: in reverse mode only, once, not at all, or those of something else."""

from functools import partial
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend import core
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from ._errors import InputError
from ._types import T

# --- Arrays that may be differentiated in reverse mode only, once, or not at all: the rest ends in a sentence, not in
# JAX's trace.
#
# All functions here are the identity. The tangent of what `reverse_only` returns goes through a linear primitive that
# can be transposed, which is all that reverse mode does with it, but neither computed nor compiled, which is what
# forward mode would do.


def _make_identity(name: str) -> Primitive:
    """A primitive that returns its one array, whatever its parameters; how it is differentiated is its maker's part."""
    same = Primitive(name)
    same.def_impl(lambda x, **_: x)
    same.def_abstract_eval(lambda x, **_: x)
    batching.primitive_batchers[same] = lambda args, axes, **of: (same.bind(*args, **of), axes[0])
    mlir.register_lowering(same, lambda _, x, **__: [x])
    return same


_identity_p = _make_identity("reverse_only")
_tangent_p = Primitive("reverse_only_tangent")
_constant_p = _make_identity("not_differentiable")
_first_p = _make_identity("first_derivative")
_forward_p = _make_identity("forward_only")

_ONCE = (
    "second derivatives cannot go through the reverse mode of this run, which is for one derivative: take "
    "jax.jacfwd(jax.jacfwd(...)), or give adjoint=diffrax.DirectAdjoint() and a max_steps near what the run takes."
)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise InputError(
        "forward-mode differentiation (jax.jvp, jax.jacfwd) cannot go through the adjoint of this run, which "
        "is for reverse mode (jax.grad, jax.jacrev): call simulate(..., adjoint=diffrax.ForwardMode())."
    )


def _jvp_of_identity(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    (tangent,) = tangents
    changed = tangent if type(tangent) is ad.Zero else _tangent_p.bind(tangent)
    return _identity_p.bind(*primals), changed


ad.primitive_jvps[_identity_p] = _jvp_of_identity

_tangent_p.def_impl(_refuse)
_tangent_p.def_abstract_eval(lambda x: x)
ad.deflinear2(_tangent_p, lambda change, _: (_constant_p.bind(change, message=_ONCE),))
batching.primitive_batchers[_tangent_p] = _refuse
mlir.register_lowering(_tangent_p, _refuse)


def _refuse_tangents(same: Primitive, primals: tuple, tangents: tuple, *, message: str) -> tuple[Any, Any]:
    if type(tangents[0]) is not ad.Zero:
        raise InputError(message)
    return same.bind(*primals, message=message), tangents[0]


def _refuse_transposed(*_: Any, message: str) -> NoReturn:
    raise InputError(message)


ad.primitive_jvps[_constant_p] = partial(_refuse_tangents, _constant_p)

ad.deflinear2(_forward_p, _refuse_transposed)

ad.primitive_jvps[_first_p] = partial(_refuse_tangents, _first_p)
ad.primitive_transposes[_first_p] = lambda change, _, message: (
    change if type(change) is ad.Zero else _constant_p.bind(change, message=message),
)


def _bound(primitive: Primitive, tree: T, **parameters: Any) -> T:
    return jax.tree.map(lambda x: primitive.bind(x, **parameters) if eqx.is_inexact_array(x) else x, tree)


def not_differentiable(tree: T, message: str) -> T:
    """The same pytree, whose floating-point arrays raise `InputError` when they are differentiated."""
    return _bound(_constant_p, tree, message=message)


def forward_only(tree: T, message: str) -> T:
    """The same pytree, whose floating-point arrays raise `InputError` under reverse-mode differentiation."""
    return _bound(_forward_p, tree, message=message)


def reverse_only(tree: T) -> T:
    """The same pytree, whose floating-point arrays raise `InputError` under forward-mode differentiation."""
    return _bound(_identity_p, tree)


_THROUGH_EVENTS = (
    "second derivatives cannot go through an event: how its time and the state after it change is known to first order "
    "only. Take differences of first derivatives."
)


def once_through_events(tree: T) -> T:
    """The same pytree, whose floating-point arrays raise `InputError` when they are differentiated twice."""

    @jax.custom_jvp
    def same(x: Any) -> Any:
        return x

    same.defjvp(lambda primals, tangents: (same(*primals), _first_p.bind(*tangents, message=_THROUGH_EVENTS)))
    return jax.tree.map(lambda x: same(x) if eqx.is_inexact_array(x) else x, tree)


# --- Values whose derivatives are those of something else: of a solution, what the equations lack where it is held

attached_p = core.Primitive("attached")
"""x, with the derivative of the carrier; of what that is differentiated to it is x again, unless it stays attached."""
attached_p.def_impl(lambda x, carrier, **_: x)
attached_p.def_abstract_eval(lambda x, carrier, **_: x)
mlir.register_lowering(attached_p, lambda ctx, x, carrier, **_: [x])


# What is constant to this differentiation is not to the next.
def _jvp_of_attached(primals: tuple, tangents: tuple, *, stays: bool) -> tuple[Any, Any]:
    return attached_p.bind(*primals, stays=True) if stays else primals[0], tangents[1]


def _batch_with_carrier(operands, axes, **stays):
    size = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
    both = (batching.bdim_at_front(x, a, size) for x, a in zip(operands, axes, strict=True))
    return attached_p.bind(*both, **stays), 0


ad.primitive_jvps[attached_p] = _jvp_of_attached
batching.primitive_batchers[attached_p] = _batch_with_carrier


def with_tangent_of(x: Array, carrier: Array, *, stays: bool = False) -> Array:
    """x, with the derivative of the carrier, an array of its shape and type; of any order, if it `stays`."""
    return attached_p.bind(x, carrier, stays=stays)


def freeze(x: Array) -> Array:
    """x as a constant to the first differentiation, but not to the next."""
    return attached_p.bind(x, jnp.zeros_like(x), stays=False)
