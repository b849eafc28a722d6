"""What the scalar code of an acceleration and that of a projection both take, traced once: rows and mass matrix."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from .._formula._equations import equations_of_motion, inertia
from .._misc._called import called
from .._misc._closures import require_seen
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


def traced(structure: Structure, avals: Sequence[Any], state: Sequence[Any]) -> list[tuple[Any, Any]]:
    """The equations of motion, the energy and the rates of the coordinates, each with the pytree it returns.

    **Arguments:**

    - `structure`: of a system and a stabilizer.
    - `avals`: shapes and types of their parameters.
    - `state`: shapes and types of t, q and v, and of the two applied forces where those are given.
    """
    shared = common(structure, tuple(avals), tuple(state[:3]))

    def equations(leaves: Any, t: Any, q: Any, v: Any, *applied: Any) -> Any:
        system, stabilizer = joined(structure, leaves)
        known = shared.inertia(leaves, t, q), shared.rows(leaves, t, q, v)
        return equations_of_motion(system, t, q, v, stabilizer, applied or None, *known)  # pyright: ignore[reportArgumentType]

    def energy(leaves: Any, t: Any, q: Any, v: Any, *applied: Any) -> Any:
        system, _ = joined(structure, leaves)
        return called(f"the energy of {type(system).__name__}", system.energy, t, q, v)

    def rates(leaves: Any, t: Any, q: Any, v: Any, *applied: Any) -> Any:
        return joined(structure, leaves)[0].kinematics(t, q, v)

    def of(function: Callable[..., Any]) -> tuple[Any, Any]:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(list(avals), *state)
        require_seen(closed.consts)
        return closed, jax.tree.structure(shapes)

    return [of(function) for function in (equations, energy, rates)]
