"""What the scalar code of an acceleration and that of a projection both take, traced once: rows and mass matrix."""

from collections.abc import Callable
from typing import Any, NamedTuple

from .._formula._equations import inertia
from .._misc._once import once_traced
from .._system._rows import constraint_rows
from ._parameters import Structure, joined
from ._refusals import remembered


class Common(NamedTuple):
    """Functions of parameter arrays and the state, as JAX traced them.

    - `rows`: all constraints, of the parameters, t, q and v.
    - `inertia`: the mass matrix, of the parameters, t and q.
    """

    rows: Callable[..., Any]
    inertia: Callable[..., Any]


@remembered
def common(structure: Structure, avals: tuple[Any, ...], state: tuple[Any, ...]) -> Common:
    """What is traced of a system, once for each structure.

    **Arguments:**

    - `structure`: of the system.
    - `avals`: shapes and types of its parameters.
    - `state`: shapes and types of t, q and v.
    """
    system = lambda leaves: joined(structure, leaves)[0]
    n = state[2].shape[0]
    rows = once_traced(lambda leaves, *state: constraint_rows(system(leaves), *state), [*avals], *state)
    masses = once_traced(lambda leaves, t, q: inertia(system(leaves), t, q, n), [*avals], *state[:2])
    return Common(rows, masses)
