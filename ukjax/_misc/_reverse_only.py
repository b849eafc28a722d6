"""Arrays that may be differentiated in reverse mode only, once, or not at all: the rest ends in a sentence, not in JAX's
trace.

All functions here are the identity. The tangent of what `reverse_only` returns goes through a linear primitive that can
be transposed, which is all that reverse mode does with it, but neither computed nor compiled, which is what forward
mode would do.
"""

from typing import Any, NoReturn

import equinox as eqx
import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ._errors import InputError
from ._types import T

_identity_p = Primitive("reverse_only")
_tangent_p = Primitive("reverse_only_tangent")
_constant_p = Primitive("not_differentiable")
_first_p = Primitive("first_derivative")

_ONCE = (
    "second derivatives cannot go through the reverse mode of this run, which is for one derivative: take "
    "jax.jacfwd(jax.jacfwd(...)), or give adjoint=diffrax.DirectAdjoint() and a max_steps near what the run takes."
)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise InputError(
        "forward-mode differentiation (jax.jvp, jax.jacfwd) cannot go through the adjoint of this run, which "
        "is for reverse mode (jax.grad, jax.jacrev): call simulate(..., adjoint=diffrax.ForwardMode())."
    )


def _jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    (tangent,) = tangents
    changed = tangent if type(tangent) is ad.Zero else _tangent_p.bind(tangent)
    return _identity_p.bind(*primals), changed


_identity_p.def_impl(lambda x: x)
_identity_p.def_abstract_eval(lambda x: x)
ad.primitive_jvps[_identity_p] = _jvp
batching.primitive_batchers[_identity_p] = lambda args, axes: (_identity_p.bind(*args), axes[0])
mlir.register_lowering(_identity_p, lambda _, x: [x])

_tangent_p.def_impl(_refuse)
_tangent_p.def_abstract_eval(lambda x: x)
ad.deflinear2(_tangent_p, lambda change, _: (_constant_p.bind(change, message=_ONCE),))
batching.primitive_batchers[_tangent_p] = _refuse
mlir.register_lowering(_tangent_p, _refuse)


def _has_none(primals: tuple, tangents: tuple, *, message: str) -> tuple[Any, Any]:
    if type(tangents[0]) is not ad.Zero:
        raise InputError(message)
    return _constant_p.bind(*primals, message=message), tangents[0]


_constant_p.def_impl(lambda x, **_: x)
_constant_p.def_abstract_eval(lambda x, **_: x)
ad.primitive_jvps[_constant_p] = _has_none
batching.primitive_batchers[_constant_p] = lambda args, axes, **of: (_constant_p.bind(*args, **of), axes[0])
mlir.register_lowering(_constant_p, lambda _, x, **__: [x])


def not_differentiable(tree: T, message: str) -> T:
    """The same pytree, whose floating-point arrays raise `InputError` when they are differentiated."""
    bound = lambda x: _constant_p.bind(x, message=message) if eqx.is_inexact_array(x) else x
    return jax.tree.map(bound, tree)


def reverse_only(tree: T) -> T:
    """The same pytree, whose floating-point arrays raise `InputError` under forward-mode differentiation."""
    return jax.tree.map(lambda x: _identity_p.bind(x) if eqx.is_inexact_array(x) else x, tree)


def _has_no_second(primals: tuple, tangents: tuple, *, message: str) -> tuple[Any, Any]:
    if type(tangents[0]) is not ad.Zero:
        raise InputError(message)
    return _first_p.bind(*primals, message=message), tangents[0]


_first_p.def_impl(lambda x, **_: x)
_first_p.def_abstract_eval(lambda x, **_: x)
ad.primitive_jvps[_first_p] = _has_no_second
ad.primitive_transposes[_first_p] = lambda change, _, message: (
    change if type(change) is ad.Zero else _constant_p.bind(change, message=message),
)
batching.primitive_batchers[_first_p] = lambda args, axes, **of: (_first_p.bind(*args, **of), axes[0])
mlir.register_lowering(_first_p, lambda _, x, **__: [x])


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
