"""Newton's iteration for contacts as scalar code: small problems in batches run as machine code, without loops of XLA."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._compiler import Program, Until, machine_code_is_wanted, program_of, remembered
from .._formula._contact_newton import (
    ContactData,
    Iterate,
    Layout,
    State,
    eliminated,
    goes_on,
    modes,
    newton_step,
)

_MOST_ROWS = 18
"""More take more operations than are worth their compilation, of m rows some 3 m^3."""


class ByCode(NamedTuple):
    """What scalar code computes of a problem.

    - `iterate`: the end of the iteration.
    - `modes`: which contacts are closed, and which slide.
    """

    iterate: Iterate
    modes: Callable[[ContactData, Layout, Array], tuple[Array, Array]]


def by_code(layout: Layout, dtype: jnp.dtype) -> ByCode | None:
    """The iteration and what follows as machine code, if there can be such here and the problem is small.

    **Arguments:**

    - `layout`: whose rows are which.
    - `dtype`: of all.
    """
    rows = sum(int(normal) + tangents for normal, tangents in layout)
    on_cpu = machine_code_is_wanted() and jax.default_backend() == "cpu"
    return ByCode(_iterate, _modes) if 0 < rows <= _MOST_ROWS and on_cpu else None


def _flat(x: Any) -> Array:
    return jnp.concatenate([jnp.ravel(each) for each in jax.tree.leaves(x)])


def _iterate(layout: Layout, tolerance: float, data: ContactData, state: State) -> State:
    until = _code(layout, tolerance, data.u.dtype)
    end, found, done = until(_flat(data), _flat(state)), [], 0
    for each in state:
        found.append(end[done : done + each.size].reshape(each.shape))
        done += each.size
    return State(*found)


def _modes(data: ContactData, layout: Layout, p: Array) -> tuple[Array, Array]:
    found = _code_of_modes(layout, p.dtype)(_flat(data), p) > 0
    return found[: len(layout)], found[len(layout) :]


def _shapes(layout: Layout, dtype: jnp.dtype) -> tuple[ContactData, State]:
    m, n = sum(int(normal) + tangents for normal, tangents in layout), len(layout)
    shape: Any = lambda *sizes: jax.ShapeDtypeStruct(sizes, jnp.dtype(dtype))
    data = ContactData(shape(m, m), shape(m), shape(n), shape(n))
    return data, State(shape(m), shape(m), shape(), shape(), shape(), shape(m), shape())


@remembered
def _code_of_modes(layout: Layout, dtype: jnp.dtype) -> Program:
    data, state = _shapes(layout, dtype)
    found = lambda data, p: tuple(x.astype(p.dtype) for x in modes(data, layout, p))
    return program_of(found, (data, state.p), jnp.dtype(dtype))


@remembered
def _code(layout: Layout, tolerance: float, dtype: jnp.dtype) -> Until:
    data, state = _shapes(layout, dtype)

    def step(data: ContactData, state: State) -> tuple[State, Array]:
        new = newton_step(layout, data, state, eliminated)
        return new, goes_on(new, tolerance)

    return Until(program_of(step, (data, state), jnp.dtype(dtype)))
