"""One of two functions that compute the same: code of the package's own where that runs, else operations of JAX.

`jax.lax.platform_dependent` traces both. Here only the one that is lowered is traced, which may take seconds.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

_by_platform_p = Primitive("by_platform")
_by_platform_p.multiple_results = True


def _never() -> bool:
    return False


def by_platform(
    native: Callable[..., Any],
    otherwise: Callable[..., Any],
    *arrays: Any,
    on_gpu: Callable[[], bool] = _never,
) -> Any:
    """What two functions give: `native` on a CPU, `otherwise` on other platforms and in what is exported.

    It has no derivative of its own.

    **Arguments:**

    - `native`, `otherwise`: functions of pytrees of arrays, whose results have the same shapes and types.
    - `arrays`: their arguments.
    - `on_gpu`: whether `native` is for the GPU of this process too, asked when that is compiled for.
    """
    flat, tree = jax.tree.flatten(arrays)
    shapes = jax.eval_shape(native, *arrays)

    def flattened(function: Callable[..., Any]) -> Callable[..., list[Any]]:
        return lambda *flat: jax.tree.leaves(function(*jax.tree.unflatten(tree, flat)))

    functions = {"native": flattened(native), "otherwise": flattened(otherwise)}
    found = _by_platform_p.bind(*flat, **functions, on_gpu=on_gpu)
    return jax.tree.unflatten(jax.tree.structure(shapes), found)


@_by_platform_p.def_abstract_eval
def _abstract(*operands: Any, native: Any, **_: Any) -> Any:
    found = jax.eval_shape(native, *(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in operands))
    return [operands[0].update(shape=x.shape, dtype=x.dtype, weak_type=False) for x in found]


@_by_platform_p.def_impl
def _impl(*operands: Any, **functions: Any) -> Any:
    return jax.jit(functools.partial(_by_platform_p.bind, **functions))(*operands)


def _batched(
    operands: Sequence[Any], axes: Sequence[Any], *, native: Any, otherwise: Any, on_gpu: Any
) -> Any:
    over = lambda function: jax.vmap(function, in_axes=tuple(axes))
    found = _by_platform_p.bind(*operands, native=over(native), otherwise=over(otherwise), on_gpu=on_gpu)
    return found, [0] * len(found)


def _lowered(platform: str, ctx: Any, *operands: Any, native: Any, otherwise: Any, on_gpu: Any) -> Any:
    exported = ctx.module_context.lowering_parameters.for_export
    here = not exported and (platform == "cpu" or (platform == "cuda" and on_gpu()))
    return mlir.lower_fun(native if here else otherwise, multiple_results=True)(ctx, *operands)


batching.primitive_batchers[_by_platform_p] = _batched
mlir.register_lowering(_by_platform_p, functools.partial(_lowered, "other"))
for _platform in ("cpu", "cuda"):
    mlir.register_lowering(_by_platform_p, functools.partial(_lowered, _platform), platform=_platform)
