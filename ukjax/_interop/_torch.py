"""JAX functions in PyTorch programs: values over DLPack, derivatives of any order by JAX's reverse mode."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._misc._arguments import call_user_function
from .._misc._errors import InputError, format_value, needing

if TYPE_CHECKING:
    import torch  # pyright: ignore[reportMissingImports]


def _as_array(tensor: "torch.Tensor") -> Array:
    """The tensor's memory as a JAX array; a copy where its layout is not JAX's."""
    if tensor.element_size() == 8 and not tensor.is_complex() and not jax.config.read("jax_enable_x64"):
        raise InputError(
            f"tensors of {tensor.dtype} need jax.config.update('jax_enable_x64', True), or convert them."
        )
    if tensor.is_floating_point() and tensor.element_size() < 4:
        raise InputError(
            f"tensors of {tensor.dtype} are too coarse for a motion: convert them, as by tensor.float()."
        )
    # DLPack gives memory as it is, of views that PyTorch conjugates or negates when they are read too.
    return jnp.from_dlpack(tensor.detach().resolve_conj().resolve_neg().contiguous())


@contextlib.contextmanager
def _reverse_mode_alone() -> Iterator[None]:
    """Turns what PyTorch says of transformations that a bridge cannot take part in into one sentence."""
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        if not any(word in str(error) for word in ("setup_context", "jvp function")):
            raise
        raise InputError(
            "a function of to_torch has `backward`, no torch.func and no forward mode: use jax.vmap, jax.jvp or jax.grad "
            "within the function that is bridged, or torch.autograd around it."
        ) from error


def _as_tensor(array: Array, inputs: tuple["torch.Tensor", ...]) -> "torch.Tensor":
    """The array's memory as a tensor; a copy where JAX returned an input as it is, which PyTorch must be free to
    change."""
    import torch  # pyright: ignore[reportMissingImports]

    tensor = torch.from_dlpack(array)
    return tensor.clone() if tensor.data_ptr() in [x.data_ptr() for x in inputs] else tensor


def _inexact(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


def _pullback(function: Callable[..., Any], wanted: tuple[bool, ...]) -> Callable[..., tuple[Array, ...]]:
    """Cotangents of the `wanted` arguments, from all arguments and the cotangents of the inexact outputs."""

    def pulled(*arrays: Array) -> tuple[Array, ...]:
        inputs, cotangents = list(arrays[: len(wanted)]), arrays[len(wanted) :]
        places = [i for i, is_wanted in enumerate(wanted) if is_wanted]

        def partial(*values: Array) -> list[Array]:
            for i, value in zip(places, values, strict=True):
                inputs[i] = value
            return [x for x in jax.tree.leaves(function(*inputs)) if _inexact(x)]

        return jax.vjp(partial, *(inputs[i] for i in places))[1](list(cotangents))

    return pulled


def _kind(tensor: "torch.Tensor") -> str:
    """What a tensor is that is not dense, or has no values."""
    if tensor.is_meta:
        return "one without values, on the device 'meta'"
    layout = str(tensor.layout).removeprefix("torch.")
    return f"a {'nested' if tensor.is_nested else 'quantized' if tensor.is_quantized else layout} one"


def _call(function: Callable[..., Any], *arrays: Array) -> Any:
    result = call_user_function("the function of to_torch", function, *arrays)
    for x in jax.tree.leaves(result):
        is_array = isinstance(x, Array | np.ndarray | np.generic | bool | int | float | complex)
        if not is_array or jnp.issubdtype(jnp.result_type(x), jax.dtypes.extended):
            raise InputError(
                f"the function of to_torch must return arrays of numbers, got {format_value(x)}."
            )
    return result


def to_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """A JAX function for PyTorch: tensors in, tensors out, and `backward` through it.

    It is compiled by `jax.jit`. On the same device memory is shared over DLPack, not copied, where the layouts agree.
    The derivative is `jax.vjp` of the function, itself such a function, so that it can be differentiated again.
    `torch.compile` leaves it as it is; `torch.func` and PyTorch's forward mode cannot go through it.

    **Arguments:**

    - `function`: made of JAX operations, of one or more arrays; its result is an array or a container of arrays. For
      `backward` it must have a reverse mode, as `ukjax.step` and `ukjax.simulate` have.

    **Returns:** the function of as many tensors, with tensors in the same container for its result.

    **Raises:** `InputError` for no function; `MissingExtraError` without torch; when called, `InputError` for what is not
    a tensor, for sparse, nested and quantized ones, for 64-bit tensors where JAX's 64-bit types are off, for floats of 16
    bits, for another number of arguments, for results that are not arrays, and within `torch.func`.
    """
    if not callable(function):
        raise InputError(f"to_torch takes a function, got {format_value(function)}.")
    with needing("to_torch()", "torch"):
        import torch  # pyright: ignore[reportMissingImports]
    run = jax.jit(functools.partial(_call, function))
    derivative = functools.cache(lambda wanted: to_torch(_pullback(function, wanted)))

    class Bridge(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, structure: list, *tensors: "torch.Tensor") -> tuple["torch.Tensor", ...]:
            # Waited for, since PyTorch may change an input once this returns.
            result = jax.block_until_ready(run(*map(_as_array, tensors)))
            leaves, tree = jax.tree.flatten(result)
            structure.append(tree)
            outputs = tuple(_as_tensor(x, tensors) for x in leaves)
            ctx.save_for_backward(*tensors)
            ctx.inexact = [_inexact(x) for x in leaves]
            ctx.mark_non_differentiable(
                *(x for x, kept in zip(outputs, ctx.inexact, strict=True) if not kept)
            )
            return outputs

        @staticmethod
        def backward(ctx: Any, *cotangents: "torch.Tensor") -> tuple["torch.Tensor | None", ...]:  # pyright: ignore
            wanted = ctx.needs_input_grad[1:]
            given = [x for x, kept in zip(cotangents, ctx.inexact, strict=True) if kept]
            gradients = iter(derivative(wanted)(*ctx.saved_tensors, *given))
            return None, *(next(gradients) if is_wanted else None for is_wanted in wanted)

    @functools.wraps(function)
    def call(*tensors: "torch.Tensor") -> Any:
        for x in tensors:
            if not isinstance(x, torch.Tensor):
                raise InputError(f"expected tensors, got {type(x).__name__}.")
            if x.layout is not torch.strided or x.is_nested or x.is_quantized or x.is_meta:
                raise InputError(
                    f"expected dense tensors, got {_kind(x)}: convert it, as by tensor.to_dense()."
                )
        structure: list = []
        with _reverse_mode_alone():
            outputs = Bridge.apply(structure, *tensors)
        return jax.tree.unflatten(structure[0], outputs)

    return torch.compiler.disable(call)  # which is compiled already
