"""What the scalar code of an acceleration and that of a projection take, as JAX traced it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from .._formula._equations import equations_of_motion, inertia
from .._misc._arguments import call_user_function
from .._misc._closures import require_seen
from .._system._rows import constraint_rows
from ._parameters import Structure, convert_reals, rebuild_system
from ._refusals import cached_or_untranslatable
from ._scalars import Builder
from ._structured._arrays import to_scalars
from ._structured._trace import Interpreter


class Traced(NamedTuple):
    """A function as JAX traced it.

    - `program`: its operations.
    - `outputs`: the pytree it returns, of the program's variables.
    - `shapes`: the same, of shapes and types.
    """

    program: core.ClosedJaxpr
    outputs: Any
    shapes: Any

    def part(self, of: Callable[[Any], Any]) -> "Traced":
        """The function that returns a part only: what that does not need is left out where it is interpreted."""
        return self._replace(outputs=of(self.outputs), shapes=of(self.shapes))

    def by(self, interpreter: Interpreter, *inputs: Any) -> Any:
        """The pytree of expressions, each array of its own type."""
        outputs, tree = jax.tree.flatten(self.outputs)
        jaxpr, consts = self.program.jaxpr, self.program.consts
        found = interpreter.run(jaxpr, consts, jax.tree.leaves(inputs), outputs)
        return jax.tree.unflatten(tree, [to_scalars(interpreter.b, x) for x in found])

    def numbers_by(self, build: Builder, interpreter: Interpreter, *inputs: Any) -> Any:
        """The same, of real numbers of the builder's type."""
        found, like = self.by(interpreter, *inputs), jax.ShapeDtypeStruct((), build.type)
        real = lambda aval: jnp.issubdtype(aval.dtype, jnp.floating)
        of_type = lambda x, aval: (
            convert_reals(build, x, np.dtype(aval.dtype).name, like) if real(aval) else x
        )
        return jax.tree.map(of_type, found, self.shapes)


def trace(function: Callable[..., Any], *shapes: Any) -> Traced:
    """A function as JAX traces it."""
    program, found = jax.make_jaxpr(function, return_shape=True)(*shapes)
    require_seen(program.consts)
    return Traced(program, jax.tree.unflatten(jax.tree.structure(found), program.jaxpr.outvars), found)


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
    system = lambda leaves: rebuild_system(structure, leaves)[0]
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
        system, stabilizer = rebuild_system(structure, leaves)
        t, q, v, *applied = state
        return equations_of_motion(
            system, t, q, v, stabilizer, (applied[0], applied[1]) if applied else None, M, rows
        )

    def energy(leaves: Any, state: Any) -> Any:
        system, _ = rebuild_system(structure, leaves)
        return call_user_function(f"the energy of {type(system).__name__}", system.energy, *state[:3])

    def rates(leaves: Any, state: Any) -> Any:
        return rebuild_system(structure, leaves)[0].kinematics(*state[:3])

    given = [*avals], [*state]
    known = shared.inertia.shapes, shared.rows.shapes
    return trace(equations, *given, *known), trace(energy, *given), trace(rates, *given)
