"""Arrays that may be differentiated in reverse mode only: forward mode ends in a sentence, not in JAX's trace.

`reverse_only` is the identity. The tangent of its result goes through a linear primitive that can be transposed, which is
all that reverse mode does with it, but neither computed nor compiled, which is what forward mode would do.
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
ad.deflinear2(_tangent_p, lambda change, _: (change,))
batching.primitive_batchers[_tangent_p] = _refuse
mlir.register_lowering(_tangent_p, _refuse)


def reverse_only(tree: T) -> T:
    """The same pytree, whose floating-point arrays raise `InputError` under forward-mode differentiation."""
    return jax.tree.map(lambda x: _identity_p.bind(x) if eqx.is_inexact_array(x) else x, tree)
