"""Linear maps given in both directions: of changes to changes of results, and of cotangents of results back.

JAX needs neither before it differentiates or transposes; only what is asked for is traced, which may take seconds.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

_linear_p = Primitive("linear")
_linear_p.multiple_results = True

Map = Callable[..., Sequence[Any]]


def linear(
    forth: Map, back: Map, fixed: Sequence[Any], changes: Sequence[Any], shapes: Sequence[Any]
) -> list[Any]:
    """The changes of results.

    **Arguments:**

    - `forth`: of `fixed` and `changes`, one argument for each array: the changes of results.
    - `back`: of `fixed` and cotangents of the results: those of all changes.
    - `fixed`: what the map depends on.
    - `changes`: what it is linear in.
    - `shapes`: of the results.
    """
    told = tuple((tuple(x.shape), x.dtype) for x in shapes)
    return _linear_p.bind(*fixed, *changes, forth=forth, back=back, fixed=len(fixed), shapes=told)


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


def _transposed(cotangents: Sequence[Any], *given: Any, back: Map, fixed: int, **_: Any) -> list[Any]:
    found = back(*given[:fixed], *map(ad.instantiate_zeros, cotangents))
    wanted = map(ad.is_undefined_primal, given[fixed:])
    return [None] * fixed + [x if it else None for x, it in zip(found, wanted, strict=True)]


def _batched(
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


def _lowered(ctx: Any, *given: Any, forth: Map, **_: Any) -> Any:
    return mlir.lower_fun(lambda *x: list(forth(*x)), multiple_results=True)(ctx, *given)


ad.primitive_jvps[_linear_p] = _jvp
ad.primitive_transposes[_linear_p] = _transposed
batching.primitive_batchers[_linear_p] = _batched
mlir.register_lowering(_linear_p, _lowered)
