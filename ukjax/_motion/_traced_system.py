"""What the scalar code of an acceleration and that of a projection take of a system, as JAX traced it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .._compiler._tracing import Structure, Traced, cached_or_untranslatable, rebuild, trace
from .._formula._equations import equations_of_motion, inertia
from .._misc._arguments import call_user_function
from .._system._rows import constraint_rows
from .._system._system import innermost


class Common(NamedTuple):
    """Functions of parameter arrays and the state.

    - `rows`: all constraints, of the parameters, t, q and v.
    - `inertia`: the mass matrix, of the parameters, t and q.
    """

    rows: Traced
    inertia: Traced


@cached_or_untranslatable
def common(structure: Structure, avals: tuple[Any, ...], state: tuple[Any, ...]) -> Common:
    """What both kinds of code take of a system, traced once for each structure."""
    system = lambda leaves: rebuild(structure, leaves)[0]
    n = state[2].shape[0]
    rows = trace(lambda leaves, *state: constraint_rows(system(leaves), *state), [*avals], *state)
    masses = trace(lambda leaves, t, q: inertia(system(leaves), t, q, n), [*avals], *state[:2])
    return Common(rows, masses)


def trace_motion(
    structure: Structure, avals: Sequence[Any], state: Sequence[Any], shared: Common
) -> tuple[Traced, Traced, Traced]:
    """The equations of motion, the energy and the rates of the coordinates, of parameters and state.

    The equations take two more operands: what the functions of `shared` return.
    """

    def equations(leaves: Any, state: Any, M: Any, rows: Any) -> Any:
        system, stabilizer = rebuild(structure, leaves)
        t, q, v, *applied = state
        return equations_of_motion(
            system, t, q, v, stabilizer, (applied[0], applied[1]) if applied else None, M, rows
        )

    def energy(leaves: Any, state: Any) -> Any:
        system, _ = rebuild(structure, leaves)
        return call_user_function(
            f"the energy of {type(innermost(system)).__name__}", system.energy, *state[:3]
        )

    def rates(leaves: Any, state: Any) -> Any:
        return rebuild(structure, leaves)[0].kinematics(*state[:3])

    given = [*avals], [*state]
    known = shared.inertia.shapes, shared.rows.shapes
    return trace(equations, *given, *known), trace(energy, *given), trace(rates, *given)
