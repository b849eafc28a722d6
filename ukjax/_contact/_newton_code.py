"""Contact problems solved by scalar code: small ones in batches run as machine code, without loops of XLA."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler import Until, machine_code_is_wanted, program_of, remembered
from .._formula._contact_newton import (
    ContactData,
    Layout,
    Method,
    Scaled,
    Solution,
    State,
    begun,
    data_of,
    eliminated,
    ended,
    goes_on,
    newton_step,
    rows_in,
)

_MOST_ROWS = 18
"""More take more operations than are worth their compilation, of m rows some 3 m^3."""


def by_code(layout: Layout) -> Method | None:
    """What solves a problem as machine code, if there can be such here and the problem is small.

    **Arguments:**

    - `layout`: whose rows are which.
    """
    on_cpu = machine_code_is_wanted() and jax.default_backend() == "cpu"
    return _solved if 0 < rows_in(layout) <= _MOST_ROWS and on_cpu else None


def _solved(layout: Layout, tolerance: float, given: Array, guess: Array) -> Solution:
    end = _code(layout, tolerance, guess.dtype)(given, guess)
    ends = np.cumsum([guess.size, 1, 1, len(layout)])
    p, residual, steps, *modes = jnp.split(end, ends)
    return Solution(p, residual[0], steps[0], *modes)


@remembered
def _code(layout: Layout, tolerance: float, dtype: jnp.dtype) -> Until:
    m, n = rows_in(layout), len(layout)
    shape: Any = lambda *sizes: jax.ShapeDtypeStruct(sizes, jnp.dtype(dtype))
    row, one = shape(m), shape()
    data = ContactData(shape(m, m), row, shape(n), shape(n))
    state = State(row, row, row, row, one, one, one, row, one)
    scaled = Scaled(data, one)

    def begin(given: Array, guess: Array) -> tuple[Scaled, State, Array]:
        scaled, state = begun(layout, data_of(layout, given), guess)
        return scaled, state, goes_on(state, tolerance)

    def step(scaled: Scaled, state: State) -> tuple[State, Array]:
        new = newton_step(layout, scaled.data, state, eliminated)
        return new, goes_on(new, tolerance)

    code = lambda function, *shapes: program_of(function, shapes, jnp.dtype(dtype))
    end = code(lambda scaled, state: ended(layout, scaled, state), scaled, state)
    return Until(code(begin, shape(m * m + m + 2 * n), row), code(step, scaled, state), end)
