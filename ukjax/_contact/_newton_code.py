"""Contact problems solved by scalar code: small ones in batches run as machine code, without loops of XLA."""

from typing import Any

import jax
import jax.numpy as jnp
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
    eliminated,
    ended,
    goes_on,
    newton_step,
)

_MOST_ROWS = 18
"""More take more operations than are worth their compilation, of m rows some 3 m^3."""


def by_code(layout: Layout) -> Method | None:
    """What solves a problem as machine code, if there can be such here and the problem is small.

    **Arguments:**

    - `layout`: whose rows are which.
    """
    rows = sum(int(normal) + tangents for normal, tangents in layout)
    on_cpu = machine_code_is_wanted() and jax.default_backend() == "cpu"
    return _solved if 0 < rows <= _MOST_ROWS and on_cpu else None


def _solved(layout: Layout, tolerance: float, data: ContactData, guess: Array) -> Solution:
    given, found = jnp.concatenate([jnp.ravel(x) for x in (*data, guess)]), []
    end, n = _code(layout, tolerance, guess.dtype)(given), len(layout)
    for size in (guess.size, 1, 1, n, n):
        found.append(end[:size])
        end = end[size:]
    p, residual, steps, *modes = found
    return Solution(p, residual[0], steps[0], *modes)


@remembered
def _code(layout: Layout, tolerance: float, dtype: jnp.dtype) -> Until:
    m, n = sum(int(normal) + tangents for normal, tangents in layout), len(layout)
    shape: Any = lambda *sizes: jax.ShapeDtypeStruct(sizes, jnp.dtype(dtype))
    data = ContactData(shape(m, m), shape(m), shape(n), shape(n))
    state = State(*map(shape, (m, m, m, m)), shape(), shape(), shape(), shape(m), shape())
    scaled = Scaled(data, shape())

    def begin(given: tuple[ContactData, Array]) -> tuple[Scaled, State, Array]:
        scaled, state = begun(layout, *given)
        return scaled, state, goes_on(state, tolerance)

    def step(scaled: Scaled, state: State) -> tuple[State, Array]:
        new = newton_step(layout, scaled.data, state, eliminated)
        return new, goes_on(new, tolerance)

    code = lambda function, *shapes: program_of(function, shapes, jnp.dtype(dtype))
    end = code(lambda scaled, state: ended(layout, scaled, state), scaled, state)
    return Until(code(begin, (data, shape(m))), code(step, scaled, state), end)
