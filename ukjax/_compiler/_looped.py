"""A function with loops (`_loops`) as one operation of JAX: on a CPU by machine code, one member after the other.

`vmap` maps it over further members, each of which takes as long as its own loops do: none waits for another, as in a
loop of XLA over a batch. It has no derivative.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend import core
from jax.interpreters import batching, mlir
from jaxtyping import Array

from ._foreign import dimension, kind_for, registered
from ._lowered import flat, members_of
from ._machine_code import Kind
from ._native import compiler_is_here
from ._primitive import with_members


class LoopText(NamedTuple):
    """The code of a function.

    - `code`: the function `compute` of numbers to work with, the result, how many members there are, and the operands
      (count, members), or (count,) of those that are the same for all.
    - `numbers`: how many it works with.
    - `beside`: functions it calls, on vectors already.
    """

    code: str
    numbers: int
    beside: str = ""


class Looped(NamedTuple):
    """A function of vectors.

    - `text`: of the vectors that members may form, and which operands are the same for all of these.
    - `found`: how many numbers it returns.
    - `on_arrays`: the same by operations of JAX on one member, for what has no machine code.
    - `shares`: whether operands may be the same for all members.
    """

    text: Callable[[Kind, tuple[bool, ...]], LoopText]
    found: int
    on_arrays: Callable[..., Array]
    shares: bool = False

    def __call__(self, *given: Array) -> Array:
        """The result (found,)."""
        return looped_p.bind(*given, looped=self)


looped_p = core.Primitive("looped_function")


@looped_p.def_abstract_eval
def _abstract(*given: Any, looped: Looped) -> Any:
    return given[0].update(shape=(looped.found, *members_of(given)), weak_type=False)


@functools.partial(jax.jit, static_argnames="looped")
def _run(*given: Array, looped: Looped) -> Array:
    return looped_p.bind(*given, looped=looped)


@looped_p.def_impl
def _impl(*given: Array, looped: Looped) -> Array:
    return _run(*given, looped=looped)


def _batched(operands: Sequence[Array], axes: Sequence[Any], *, looped: Looped) -> tuple[Array, int]:
    placed, rank = with_members(operands, axes)
    return looped_p.bind(*placed, looped=looped), rank


def _called(*given: Array, looped: Looped) -> Array:
    members, dtype = members_of(given), given[0].dtype
    count = math.prod(members)
    apart = [x if looped.shares and x.ndim == 1 else flat(x, members) for x in given]
    text = looped.text(kind_for(dtype, count), tuple(x.ndim == 1 for x in apart))
    operands = "".join(f", ptr %in{i}" for i in range(len(given)))
    call = f"  call void @compute(ptr %out1, ptr %out0, i64 %members{operands})"
    whole = f"{dimension('out0', 1, 'members')}\n{call}"
    name = registered(text.code, whole, len(given), 2, loops=True, beside=text.beside)
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((looped.found, count), (text.numbers,))]
    found = jax.ffi.ffi_call(name, shapes)(*apart)[0]
    return found.reshape(looped.found, *members)


def _on_arrays(*given: Array, looped: Looped) -> Array:
    members = members_of(given)
    found = jax.vmap(looped.on_arrays, -1, -1)(*(flat(x, members) for x in given))
    return found.reshape(looped.found, *members)


batching.primitive_batchers[looped_p] = _batched
mlir.register_lowering(looped_p, mlir.lower_fun(_on_arrays, multiple_results=False))


def _on_cpu(ctx: Any, *operands: Any, looped: Looped) -> Any:
    here = compiler_is_here() and not ctx.module_context.lowering_parameters.for_export
    return mlir.lower_fun(_called if here else _on_arrays, multiple_results=False)(
        ctx, *operands, looped=looped
    )


mlir.register_lowering(looped_p, _on_cpu, platform="cpu")
