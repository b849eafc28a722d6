"""Newton's iteration for contacts as scalar code: small problems in batches run as machine code, without loops of XLA."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._compiler import Until, machine_code_is_wanted, program_of, remembered
from .._formula._contact_newton import ContactData, Iterate, Layout, State, eliminated, goes_on, newton_step

_MOST_ROWS = 18
"""More take more operations than are worth their compilation, of m rows some 3 m^3."""


def iteration(layout: Layout, dtype: jnp.dtype) -> Iterate | None:
    """The iteration as machine code, if there can be such here and the problem is small.

    **Arguments:**

    - `layout`: whose rows are which.
    - `dtype`: of all.
    """
    rows = sum(int(normal) + tangents for normal, tangents in layout)
    on_cpu = machine_code_is_wanted() and jax.default_backend() == "cpu"
    return _by_code if 0 < rows <= _MOST_ROWS and on_cpu and _code(layout, 0.0, dtype) else None


def _by_code(layout: Layout, tolerance: float, data: ContactData, state: State) -> State:
    until = _code(layout, tolerance, data.u.dtype)
    flat = lambda x: jnp.concatenate([jnp.ravel(each) for each in jax.tree.leaves(x)])
    end, found, done = until(flat(data), flat(state)), [], 0
    for each in state:
        found.append(end[done : done + each.size].reshape(each.shape))
        done += each.size
    return State(*found)


@remembered
def _code(layout: Layout, tolerance: float, dtype: jnp.dtype) -> Until:
    m, n, number = sum(int(normal) + tangents for normal, tangents in layout), len(layout), jnp.dtype(dtype)
    shape = lambda *sizes: jax.ShapeDtypeStruct(sizes, number)
    shapes: Any = (shape(m, m), shape(m), shape(n), shape(n))
    data = ContactData(*shapes)
    shapes = (shape(m), shape(m), shape(), shape(), shape(), shape(m), shape())
    state = State(*shapes)

    def step(data: ContactData, state: State) -> tuple[State, Array]:
        new = newton_step(layout, data, state, eliminated)
        return new, goes_on(new, tolerance)

    return Until(program_of(step, (data, state), number))
