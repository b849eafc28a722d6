"""Whole integrations in one kernel: on a GPU a thread is one run, and its state stays in registers.

The scalar code of the acceleration is evaluated on blocks of runs, within an explicit Runge-Kutta step whose stages
are written out, within a loop. So nothing but the ends is read from memory or written to it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int

from .._misc._errors import InputError
from .._motion._model import Model
from .._motion._project import Projection
from .._system._system import has_quasi_velocities
from ._runge_kutta import square

Vectors = list[Array]
_BLOCK = 256  # of runs; Triton takes powers of two
_SAFETY, _SMALLEST, _LARGEST = 0.9, 0.2, 10.0  # of the change of a step, as Diffrax's controller has them


def _field(model: Model) -> Callable[[Vectors, Array, Vectors], Vectors]:
    """(q', v') of vectors over the runs, from the numbers of the parameters, time and state."""
    code = model.code
    quasi, projected = has_quasi_velocities(model.system), isinstance(model.stabilizer, Projection)
    if code is None or code.apart or quasi or projected:
        raise InputError(
            "a kernel needs the acceleration as scalar code, velocities that are q', and no projection: "
            "give a system that uk.lanes translates, and Baumgarte or NoStabilizer."
        )

    def field(numbers: Vectors, t: Array, y: Vectors) -> Vectors:
        return [*y[len(y) // 2 :], *code.program.evaluate([*numbers, t, *y])]

    return field


def _sum(y: Array, h: Array, weights: Sequence[float], slopes: Sequence[Array]) -> Array:
    terms = [w * k for w, k in zip(weights, slopes, strict=False) if w]
    return y + h * sum(terms[1:], terms[0]) if terms else y


def _step(
    tableau: Any, field: Callable[[Array, Vectors], Vectors], t: Array, h: Array, y: Vectors
) -> tuple[Vectors, Vectors]:
    """The state after a step, and the error estimate."""
    a, c = square(tableau)
    stages: list[Vectors] = []
    for row, place in zip(a.tolist(), c.tolist(), strict=True):
        slopes = zip(*stages, strict=True) if stages else [()] * len(y)
        stages.append(field(t + place * h, [_sum(x, h, row, k) for x, k in zip(y, slopes, strict=True)]))
    by_number = list(zip(*stages, strict=True))
    ends = [_sum(x, h, tableau.b_sol.tolist(), k) for x, k in zip(y, by_number, strict=True)]
    return ends, [_sum(jnp.zeros_like(h), h, tableau.b_error.tolist(), k) for k in by_number]


def _fixed(step: Callable[..., Any], t0: Array, t1: Array, y: Vectors, steps: int) -> tuple[Vectors, Array]:
    h = (t1 - t0) / steps
    y = lax.fori_loop(0, steps, lambda i, y: step(t0 + i.astype(h.dtype) * h, h, y)[0], y)
    return y, jnp.full(t0.shape, steps, jnp.int32)


def _adaptive(
    step: Callable[..., Any], t0: Array, t1: Array, y: Vectors, steps: int, order: Any, tolerances: tuple
) -> tuple[Vectors, Array]:
    """Each run at its own step, until all of the block are at their ends or have tried `steps` of them."""
    rtol, atol, first = tolerances

    def going(state: tuple[Array, Array, Vectors, Array]) -> Array:
        t, _, _, tried = state
        return jnp.max(((t < t1) & (tried < steps)).astype(jnp.int32)) > 0  # Triton has no `any`

    def attempt(state: tuple[Array, Array, Vectors, Array]) -> tuple[Array, Array, Vectors, Array]:
        t, h, y, tried = state
        active = (t < t1) & (tried < steps)
        last = t + h >= t1
        h = jnp.where(last, t1 - t, h)
        ends, errors = step(t, h, y)
        parts = [
            jnp.square(e / (atol + rtol * jnp.maximum(jnp.abs(x), jnp.abs(x1))))
            for e, x, x1 in zip(errors, y, ends, strict=True)
        ]
        error = jnp.sqrt(sum(parts[1:], parts[0]) / len(parts))
        kept = error < 1
        factor = _SAFETY * jnp.exp(-jnp.log(jnp.maximum(error, 1e-30)) / order)
        factor = jnp.where(kept, jnp.clip(factor, 1.0, _LARGEST), jnp.clip(factor, _SMALLEST, _SAFETY))
        factor = jnp.where(error == error, factor, _SMALLEST)  # not a number: shorter
        move = active & kept
        y = [jnp.where(move, x1, x) for x, x1 in zip(y, ends, strict=True)]
        t = jnp.where(move, jnp.where(last, t1, t + h), t)
        return t, jnp.where(active, h * factor, h), y, tried + active.astype(jnp.int32)

    _, _, y, tried = lax.while_loop(going, attempt, (t0, first, y, jnp.zeros(t0.shape, jnp.int32)))
    return y, tried


def in_one_kernel(
    model: Model,
    numbers: Float[Array, "k runs"],
    span: tuple[Float[Array, " runs"], Float[Array, " runs"]],
    y0: Float[Array, "n runs"],
    solver: dfx.AbstractERK,
    steps: int,
    *,
    tolerances: tuple[float, float, float] | None = None,
    interpret: bool = False,
) -> tuple[Float[Array, "n runs"], Int[Array, " runs"]]:
    """The ends of a batch of runs, and how many steps each tried.

    **Arguments:**

    - `model`: what is integrated, with its acceleration as scalar code.
    - `numbers`: of the parameters of each run, as `Code.numbers` gives them.
    - `span`: start and end of each run [s].
    - `y0`: (q, v) at the start, the runs last; their number a power of two up to 256, or a multiple of it.
    - `solver`: an explicit Runge-Kutta solver of Diffrax.
    - `steps`: how many; of adaptive runs the most to try.
    - `tolerances`: relative and absolute tolerance and the first step [s]; None for fixed steps.
    - `interpret`: run by interpreting the kernel, on any device.
    """
    field, tableau, runs = _field(model), solver.tableau, y0.shape[1]
    block = min(_BLOCK, runs)
    if block.bit_count() != 1 or runs % block:
        raise InputError(
            f"{runs} runs are no power of two up to {_BLOCK} and no multiple of it: fill the batch up."
        )

    def kernel(numbers: Any, t0: Any, t1: Any, y0: Any, ends: Any, tried: Any) -> None:
        parameters = [numbers[i, :] for i in range(numbers.shape[0])]
        step = lambda t, h, y: _step(tableau, lambda t, y: field(parameters, t, y), t, h, y)
        begin, end, y = t0[0, :], t1[0, :], [y0[i, :] for i in range(y0.shape[0])]
        if tolerances is None:
            y, count = _fixed(step, begin, end, y, steps)
        else:
            *bounds, first = tolerances
            first = jnp.full(begin.shape, first, begin.dtype)
            order = solver.order(dfx.ODETerm(lambda t, y, args: y))
            y, count = _adaptive(step, begin, end, y, steps, order, (*bounds, first))
        for i, x in enumerate(y):
            ends[i, :] = x
        tried[0, :] = count

    rows = lambda x: pallas.BlockSpec((x.shape[0], block), lambda i: (0, i))
    given = [numbers if numbers.shape[0] else jnp.zeros((1, runs), y0.dtype), *(t[None] for t in span), y0]
    counts = jax.ShapeDtypeStruct((1, runs), np.int32)
    ends, tried = pallas.pallas_call(
        kernel,
        out_shape=(jax.ShapeDtypeStruct(y0.shape, y0.dtype), counts),
        grid=(runs // block,),
        in_specs=[rows(x) for x in given],
        out_specs=(rows(y0), rows(counts)),
        compiler_params=triton.CompilerParams(),  # Mosaic, the default, has no float64
        interpret=interpret,
    )(*given)
    return ends, tried[0]
