"""Derivatives told to JAX: traced only where they are needed, in reverse mode only, or those of something else."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend import core
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from ._errors import InputError
from ._types import T

# --- Derivatives that are traced only where they are needed, and may be computed otherwise than JAX would in reverse
# mode
#
# JAX traces the change of all a function returns, before it is known of what derivatives are wanted; of a run and all
# that is told of it this takes seconds. Here a change is one linear operation, whose transpose is a function of its
# own.

_linear_p = Primitive("linear")
_lazy_p = Primitive("lazily_differentiated")
_linear_p.multiple_results = _lazy_p.multiple_results = True

Map = Callable[..., Sequence[Any]]


def _changes(function: Map, primals: Any, tangents: Any, found: Sequence[Any]) -> list[Any]:
    """The changes of what a function returns."""
    fixed, tree = jax.tree.flatten(primals)
    moves, tree_of_moves = jax.tree.flatten(tangents)
    varied = jax.tree.map(lambda x: x is not None, tangents, is_leaf=lambda x: x is None)

    def parted(given: Sequence[Any]) -> tuple[Any, list[Any]]:
        return jax.tree.unflatten(tree, given[: len(fixed)]), list(given[len(fixed) :])

    def forth(*given: Any) -> list[Any]:
        of, by = parted(given)
        results, change = eqx.filter_jvp(function, of, jax.tree.unflatten(tree_of_moves, by))
        return [jnp.zeros_like(x) if dx is None else dx for x, dx in zip(results, change, strict=True)]

    def back(*given: Any) -> list[Any]:
        of, cotangents = parted(given)
        moving, still = eqx.partition(of, varied)
        _, pulled = jax.vjp(lambda moving: function(*eqx.combine(moving, still)), moving)
        return jax.tree.leaves(pulled(cotangents))

    told = tuple((tuple(x.shape), x.dtype) for x in found)
    return _linear_p.bind(*fixed, *moves, forth=forth, back=back, fixed=len(fixed), shapes=told)


def lazily_differentiated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose derivative is traced only where it is needed."""

    def lazy(*given: Any) -> Any:
        arrays, rest = eqx.partition(given, eqx.is_array)
        flat, tree = jax.tree.flatten(arrays)
        of = lambda *flat: function(*eqx.combine(jax.tree.unflatten(tree, flat), rest))
        program, made = jax.make_jaxpr(of, return_shape=True)(*flat)
        found = _lazy_p.bind(*flat, program=program)
        return jax.tree.unflatten(jax.tree.structure(made), found)

    return lazy


@_lazy_p.def_abstract_eval
def _(*given: Any, program: ClosedJaxpr) -> Any:
    return [given[0].update(shape=x.shape, dtype=x.dtype, weak_type=False) for x in program.out_avals]


@_lazy_p.def_impl
def _(*given: Any, program: ClosedJaxpr) -> Any:
    return jax.jit(jaxpr_as_fun(program))(*given)


def _lazy_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, program: ClosedJaxpr) -> Any:
    found = _lazy_p.bind(*primals, program=program)
    numeric = [jnp.issubdtype(x.dtype, jnp.inexact) for x in found]
    function = jaxpr_as_fun(program)
    numbers = lambda *given: [x for x, it in zip(function(*given), numeric, strict=True) if it]
    moves = tuple(None if type(x) is ad.Zero else x for x in tangents)
    given = [x for x, it in zip(found, numeric, strict=True) if it]
    change = iter(_changes(numbers, tuple(primals), moves, given))
    zero = lambda x: ad.Zero(jax.typeof(x).to_tangent_aval())
    return found, [next(change) if it else zero(x) for x, it in zip(found, numeric, strict=True)]


def _lazy_batched(given: Sequence[Any], axes: Sequence[Any], *, program: ClosedJaxpr) -> Any:
    of_all = jax.make_jaxpr(jax.vmap(jaxpr_as_fun(program), tuple(axes)))(*given)
    found = _lazy_p.bind(*given, program=of_all)
    return found, [0] * len(found)


def _lazy_lowered(ctx: Any, *given: Any, program: ClosedJaxpr) -> Any:
    return mlir.lower_fun(jaxpr_as_fun(program), multiple_results=True)(ctx, *given)


@_linear_p.def_abstract_eval
def _abstract(*given: Any, shapes: Any, **_: Any) -> Any:
    return [given[-1].update(shape=shape, dtype=dtype, weak_type=False) for shape, dtype in shapes]


@_linear_p.def_impl
def _impl(*given: Any, forth: Map, **_: Any) -> Any:
    return jax.jit(forth)(*given)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, forth: Map, fixed: int, **told: Any) -> Any:
    if all(type(x) is ad.Zero for x in tangents[:fixed]):
        found = _linear_p.bind(*primals, forth=forth, fixed=fixed, **told)
        further = map(ad.instantiate_zeros, tangents[fixed:])
        return found, _linear_p.bind(*primals[:fixed], *further, forth=forth, fixed=fixed, **told)
    return jax.jvp(lambda *x: list(forth(*x)), tuple(primals), tuple(map(ad.instantiate_zeros, tangents)))


def _transpose(cotangents: Sequence[Any], *given: Any, back: Map, fixed: int, **_: Any) -> list[Any]:
    found = back(*given[:fixed], *map(ad.instantiate_zeros, cotangents))
    wanted = map(ad.is_undefined_primal, given[fixed:])
    return [None] * fixed + [x if it else None for x, it in zip(found, wanted, strict=True)]


def _batch(
    given: Sequence[Any], axes: Sequence[Any], *, forth: Map, back: Map, fixed: int, shapes: Any
) -> tuple[Any, list[int]]:
    """All changes are given the axis, so that the cotangent of each has it."""
    members = next(x.shape[axis] for x, axis in zip(given, axes, strict=True) if axis is not None)
    own = tuple(axes[:fixed])

    def spread(x: Any, axis: Any) -> Any:
        return jnp.broadcast_to(x, (members, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)

    changes = map(spread, given[fixed:], axes[fixed:])
    count = len(given) - fixed
    found = _linear_p.bind(
        *given[:fixed], *changes, fixed=fixed,
        forth=jax.vmap(lambda *x: list(forth(*x)), (*own, *[0] * count)),
        back=jax.vmap(lambda *x: list(back(*x)), (*own, *[0] * len(shapes))),
        shapes=tuple(((members, *shape), dtype) for shape, dtype in shapes),
    )  # fmt: skip
    return found, [0] * len(found)


def _lower(ctx: Any, *given: Any, forth: Map, **_: Any) -> Any:
    return mlir.lower_fun(lambda *x: list(forth(*x)), multiple_results=True)(ctx, *given)


ad.primitive_jvps[_linear_p] = _jvp
ad.primitive_transposes[_linear_p] = _transpose
batching.primitive_batchers[_linear_p] = _batch
mlir.register_lowering(_linear_p, _lower)
ad.primitive_jvps[_lazy_p] = _lazy_jvp
batching.primitive_batchers[_lazy_p] = _lazy_batched
mlir.register_lowering(_lazy_p, _lazy_lowered)


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
